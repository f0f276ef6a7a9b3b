"""Servers and processes for the time of a measurement; none of them is left behind, however it ends."""

from __future__ import annotations

import os
import select
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from redis import Redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

from acts_celery.broker_config import GuardedProcess
from tests.benchmarks.environment import ROOT

_START_SECONDS: Final = 60


class NotStarted(Exception):
    """A process did not become ready."""


@contextmanager
def server() -> Iterator[int]:
    """A server that keeps its data in memory, on a free port of the loopback interface: its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as directory:
        command = [
            "-m",
            "acts_celery.broker_config.server",
            "--directory",
            directory,
            "--port",
            str(port),
            "--no-append-only",
        ]
        with process([sys.executable, *command], os.environ):
            with Redis.from_url(url_of(port), retry=Retry(ConstantBackoff(0.05), 200)) as redis:
                redis.ping()
            yield port


def url_of(port: int) -> str:
    """The address of a server on this machine."""
    return f"redis://127.0.0.1:{port}/0"


@contextmanager
def process(
    command: Sequence[str], environment: Mapping[str, str], *, log: IO[bytes] | None = None
) -> Iterator[GuardedProcess]:
    """A process in the project's folder; what it says goes to `log`."""
    with (
        Path(os.devnull).open("wb") as nothing,
        GuardedProcess(command, env=environment, cwd=ROOT, stdout=log or nothing, stderr=log or nothing) as started,
    ):
        yield started


@contextmanager
def ready_worker(
    command: Sequence[str], environment: Mapping[str, str], *, log: IO[bytes] | None = None
) -> Iterator[GuardedProcess]:
    """A worker that prints a line once it takes tasks. Raises `NotStarted`."""
    reading, writing = os.pipe()
    with open(reading, "rb", buffering=0) as said:  # noqa: PTH123  # a descriptor, no path
        try:
            started = GuardedProcess(command, env=environment, cwd=ROOT, stdout=writing, stderr=log)
        finally:
            os.close(writing)
        with started:
            if not select.select([said], [], [], _START_SECONDS)[0] or not said.read(1):
                raise NotStarted(f"{' '.join(command)}: not ready within {_START_SECONDS} s, or it has ended")
            yield started


def family(pid: int) -> list[int]:
    """A process and all that it has started. Linux only: elsewhere it knows of the first one."""
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        parents.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found = [pid]
    for member in found:
        found.extend(parents.get(member, ()))
    return found
