"""A server, workers as processes of their own, and the places where activities and tests meet."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgpack
from redis import Redis

from acts_celery import Client, Result
from acts_celery.broker_config import EmbeddedServer, Settings, load
from acts_celery.broker_config.configuration import queue_prefix
from tests.acceptance import forks
from tests.acceptance.forks import Forked
from tests.environment import without_settings

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = Path(__file__).resolve().parent / "fixtures"
ACTIVITIES = FIXTURES / "worker_activities.py"
MODEL = f"scripted:{FIXTURES / 'worker_model.json'}"
DEADLINE_SECONDS = 60
RUN_SECONDS = 120
"""Longer than any gate stays shut, and than a run of many instances takes where others need the processors too."""


class Meeting:
    """The tests' end of `record` and `pass_gate`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.redis = Redis.from_url(url, socket_timeout=DEADLINE_SECONDS + 5)

    def take(self, *names: str) -> Any:
        """The oldest record under one of these names; waits until there is one."""
        found: Any = self.redis.blpop([f"record:{name}" for name in names], timeout=DEADLINE_SECONDS)
        assert found is not None, f"no record {names} in {DEADLINE_SECONDS} s"
        return msgpack.unpackb(found[1], strict_map_key=False)

    def count(self, name: str) -> int:
        """How many records lie under a name now."""
        found: Any = self.redis.llen(f"record:{name}")
        return int(found)

    def open_gate(self, name: str) -> None:
        """Let pass whoever waits there, and whoever comes."""
        self.redis.rpush(f"gate:{name}", b"open")

    def attempts(self, name: str) -> int:
        """How often a counting activity was called."""
        found: Any = self.redis.get(f"attempts:{name}")
        return int(found or 0)


@dataclass
class Backend:
    """One server's settings, seen by a client in this process and by workers in their own."""

    settings: Settings
    meeting: Meeting
    folder: Path
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.folder / f"{self.settings.key_prefix}.log"

    @cached_property
    def client(self) -> Client:
        return Client(self.settings)

    def queue(self, name: str) -> str:
        """The key of a queue in Redis."""
        return f"{queue_prefix(self.settings)}{name}"

    @cached_property
    def redis(self) -> Redis:
        """The log, raw."""
        return Redis.from_url(self.settings.require_redis())

    def run(
        self,
        calls: Sequence[Mapping[str, Any]],
        context: Sequence[Mapping[str, Any]] = (),
        **parts: Any,
    ) -> Result:
        """Submit a solution and wait for its end."""
        run = self.client.submit(context, {"calls": [dict(call) for call in calls]}, **parts)
        return self.wait(run.id)

    def wait(self, run: str) -> Result:
        """The result of a run, once it has ended."""
        try:
            return self.client.run(run).wait(timeout_seconds=RUN_SECONDS)
        except TimeoutError as error:
            text = self.log.read_text(errors="replace")[-3000:] if self.log.exists() else "no worker"
            raise AssertionError(f"{error}: {self.client.run(run).status()}\nworker: {text}") from None

    def keys(self, run: str) -> set[str]:
        """The names of a run's keys."""
        return {key.decode() for key in self.redis.scan_iter(f"*{{{run}}}*")}

    def environment(self, **extra: str) -> dict[str, str]:
        """What a worker process is started with."""
        kept = without_settings()
        kept["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        return kept | self.settings.to_environment() | {"MEETING_URL": self.meeting.url} | extra

    @contextmanager
    def worker(self, *arguments: str, **extra: str) -> Iterator[Forked]:
        """A worker process (`acts worker …`) that is ready; ended when the block is left."""
        command = ["worker", "--json", "--processes", "1", *arguments]
        starting = forks.staying(command, env=self.environment(**extra), folder=self.folder, log=self.log)
        with starting as (process, announced):
            assert announced["pid"] == process.pid
            yield process


@contextmanager
def ended(command: Sequence[str], env: Mapping[str, str], folder: Path, log: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours that is gone when the block is left."""
    process = subprocess.Popen(
        command, env=dict(env), cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
    )
    try:
        yield process
    finally:
        forks.end(process)
        if process.stdout is not None:
            process.stdout.close()


def heard(backend: Backend, text: str) -> None:
    """Wait until a worker has said so."""
    begun = time.monotonic()
    while text not in backend.log.read_text(errors="replace"):
        assert time.monotonic() - begun < DEADLINE_SECONDS, f"no worker has said {text!r}"
        time.sleep(0.01)


def ends(pid: int) -> bool:
    """Whether a process that is no child of ours ends; waits for it."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], DEADLINE_SECONDS)[0])
    finally:
        os.close(descriptor)


def settings_for(server: EmbeddedServer, **overrides: object) -> Settings:
    """Settings that point at a server, with the tests' activities and model."""
    given: dict[str, object] = {
        "broker_url": server.broker_url,
        "redis_url": server.redis_url,
        "activities": (str(ACTIVITIES),),
        "model": MODEL,
    }
    return load(env_file=None, **(given | overrides))


def settings_apart(server: EmbeddedServer, name: str, **overrides: object) -> Settings:
    """Settings with keys and queues that only those with this name use."""
    queues = {f"queue_{of}": f"{name}-{of}" for of in ("instances", "delegates", "background", "reports")}
    return settings_for(server, key_prefix=name, **queues, **overrides)


@contextmanager
def backend_apart(folder: Path, **overrides: object) -> Iterator[Backend]:
    """A server of our own, and a worker on every queue."""
    with EmbeddedServer() as server:
        running = Backend(settings_for(server, **overrides), Meeting(meeting_url(server)), folder)
        with running.worker():
            yield running


def meeting_url(server: EmbeddedServer) -> str:
    """A database of the same server that holds nothing of ours."""
    return f"{server.redis_url}?db=1"


def status_of(result: Result, index: int, instance: str | None = None) -> str:
    """How one call stands."""
    return next(call.status for call in result.calls if (call.index, call.instance) == (index, instance))
