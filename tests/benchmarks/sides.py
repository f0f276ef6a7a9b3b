"""The sides: ours and the others, each started as its own introduction says, on a server of its own."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

from acts_celery.broker_config import GuardedProcess
from acts_celery.worker.cli.worker import usable_processors
from tests.benchmarks.environment import ROOT, NotInstalled, peers_bin
from tests.benchmarks.jobs import Figures, deadline_seconds
from tests.benchmarks.surroundings import NotStarted, family, process, ready_worker, server, url_of
from tests.benchmarks.wire import Wire

_TOLD_BYTES: Final = 500


class SideFailed(Exception):
    """A side could not be started, could not do a job, or did it wrong."""


@dataclass(frozen=True)
class Side:
    """Who does a job: a module that is its client, and the command of its worker, if it has one."""

    name: str
    client: str
    worker: tuple[str, ...] = ()
    workers: int = 1
    """How often the command is started."""
    most: int = 1_000_000
    """No job is larger: it would take minutes."""
    settings: tuple[tuple[str, str], ...] = ()
    """Variables in the environment of its processes."""

    @property
    def is_ours(self) -> bool:
        """Whether it is acts-celery, and not a peer."""
        return self.client == "tests.benchmarks.ours"

    @property
    def folder(self) -> Path:
        """Where its commands are. Raises `NotInstalled`."""
        return Path(sys.executable).parent if self.is_ours else peers_bin()


_PEERS: Final = "tests.benchmarks.peers"
_BARE: Final = f"{_PEERS}.bare_celery"
_PROCESSES: Final = usable_processors()
"""As many processes as ours has by itself; also Celery forks as many."""
OURS: Final = Side("acts-celery", "tests.benchmarks.ours", ("acts", "worker"))
CELERY: Final = Side("bare Celery", _BARE, ("celery", "-A", _BARE, "worker"))
CELERY_THREADS: Final = replace(
    CELERY, name="bare Celery, 200 threads", worker=(*CELERY.worker, "-P", "threads", "-c", "200"), workers=_PROCESSES
)
TASKIQ: Final = Side("taskiq", f"{_PEERS}.taskiq_tasks", ("taskiq", "worker", f"{_PEERS}.taskiq_tasks:broker"))
DASK: Final = Side("Dask", f"{_PEERS}.dask_tasks")
DBOS: Final = Side("DBOS", f"{_PEERS}.dbos_workflows", most=200)
LANGGRAPH: Final = Side("LangGraph", f"{_PEERS}.langgraph_graphs")


@dataclass
class Running:
    """A side that is up, until its block ends."""

    side: Side
    environment: Mapping[str, str]
    port: int | None
    """Of its server, if it has one."""
    log: IO[bytes]
    client: subprocess.Popen[bytes]
    workers: list[GuardedProcess] = field(default_factory=list)

    def do(self, job: str, size: int) -> Figures:
        """Let it do a job. Raises `SideFailed`."""
        assert self.client.stdin is not None
        assert self.client.stdout is not None
        try:
            self.client.stdin.write(json.dumps({"job": job, "size": size}).encode() + b"\n")
            self.client.stdin.flush()
            is_there = select.select([self.client.stdout], [], [], 2 * deadline_seconds(size))[0]
            answer: Any = json.loads(self.client.stdout.readline() if is_there else b"")
        except (OSError, ValueError):
            raise SideFailed(f"{self.side.name}: no answer; its log ends with: {self._last_words()}") from None
        if "error" in answer:
            raise SideFailed(f"{self.side.name}: {answer['error']}")
        figures: Figures = answer["figures"]
        return figures

    @property
    def started(self) -> str:
        """What was started, in words."""
        if not self.side.worker:
            return f"{self.side.name}: no command, {_processes(family(self.client.pid))} with its client"
        times = f"{self.side.workers} x " if self.side.workers > 1 else ""
        return f"{self.side.name}: {times}`{' '.join(self.side.worker)}`, {_processes(self.worker_pids)}"

    @property
    def worker_pids(self) -> list[int]:
        """The processes of its workers."""
        return [pid for worker in self.workers for pid in family(worker.pid)]

    def at(self, url: str) -> Mapping[str, str]:
        """The environment of one more process of this side that reaches the server at another address."""
        return {**self.environment, **_addresses(url)}

    @contextmanager
    def another_client(self) -> Iterator[Running]:
        """The same side, seen by one more client."""
        with _client(self.side, self.environment, self.log) as client:
            yield replace(self, client=client)

    def _last_words(self) -> str:
        self.log.seek(max(0, self.log.seek(0, os.SEEK_END) - _TOLD_BYTES))
        return self.log.read().decode(errors="replace").strip()


@contextmanager
def running(side: Side, *, delay_seconds: float = 0.0) -> Iterator[Running]:
    """A side with its server, its workers and its client, the server as far away as that. Raises `SideFailed`."""
    try:
        with ExitStack() as stack:
            log = stack.enter_context(tempfile.TemporaryFile())
            environment = {**os.environ, "PYTHONPATH": str(ROOT), **dict(side.settings)}
            port = None
            if side.worker:
                port = stack.enter_context(server())
                near = stack.enter_context(Wire(port, delay_seconds=delay_seconds)).port if delay_seconds else port
                environment |= _addresses(url_of(near))
            workers = [
                stack.enter_context(worker(side, environment, log)) for _ in range(side.workers if side.worker else 0)
            ]
            client = stack.enter_context(_client(side, environment, log))
            yield Running(side, environment, port, log, client, workers)
    except (NotInstalled, NotStarted, OSError) as error:
        raise SideFailed(f"{side.name}: {error}") from error


@contextmanager
def worker(side: Side, environment: Mapping[str, str], log: IO[bytes]) -> Iterator[GuardedProcess]:
    """A side's worker; ours is ready when the block begins, the first job of the others waits for theirs."""
    command = [str(side.folder / side.worker[0]), *side.worker[1:]]
    start = partial(ready_worker, [*command, "--json"]) if side.is_ours else partial(process, command)
    with start(environment, log=log) as started:
        yield started


def _addresses(url: str) -> dict[str, str]:
    return {
        "BENCH_URL": url,
        "ACTS_BROKER_URL": url,
        "ACTS_REDIS_URL": url,
        "ACTS_ACTIVITIES": "tests.benchmarks.activities",
    }


@contextmanager
def _client(side: Side, environment: Mapping[str, str], log: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """The process that hands jobs in; it ends with its standard input, so also when we die."""
    client = subprocess.Popen(
        [str(side.folder / "python"), "-m", side.client],
        env=environment,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        start_new_session=True,
    )
    with client:
        try:
            yield client
        finally:
            assert client.stdin is not None
            client.stdin.close()
            try:
                client.wait(10)
            except subprocess.TimeoutExpired:
                client.kill()


def _processes(pids: Sequence[int]) -> str:
    return "1 process" if len(pids) == 1 else f"{len(pids)} processes"
