"""What the workload's calls do: arithmetic that can be foretold, and a line in a file for each execution.

A line is written with one `write` to a file opened for appending: it is there whole or not at all, also when its writer
is killed the moment after. The file is none of the servers' that the faults are about. A worker of an earlier version
loads this file too, so it uses only what the first version offered.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from acts_celery import Output, activity, delegate

RECORDS = Path(os.environ.get("CHAOS_RECORDS", os.devnull))
KEEP_LOCK = signal.SIGUSR2
KEPT_SECONDS = 9
"""Longer than a lease."""
FAILURES_OF_FLAKY = 2


def _keep_lock(*_: object) -> None:
    """Let no other thread of this process run for some time, as code in C may."""
    ctypes.PyDLL(None).sleep(KEPT_SECONDS)


if "CHAOS_RECORDS" in os.environ:  # in a worker
    signal.signal(KEEP_LOCK, _keep_lock)


class Refused(Exception):
    """What the calls that fail raise."""


@contextmanager
def recorded(mark: str) -> Iterator[None]:
    """One execution: a line at its beginning and one at its end, should it come to that."""
    _write("begun", mark)
    yield
    _write("done", mark)


def _write(event: str, mark: str) -> None:
    line = f"{time.time():.6f} {os.getpid()} {os.getpgid(0)} {event} {mark}\n"
    descriptor = os.open(RECORDS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def _executions(mark: str) -> int:
    """How often a call has been begun."""
    ending = f" begun {mark}"
    return sum(line.endswith(ending) for line in RECORDS.read_text().splitlines())


@activity
async def step(mark: str, value: int, seconds: float) -> int:
    """A coroutine in the instance's own task."""
    with recorded(mark):
        await asyncio.sleep(seconds)
        return value + 1


@activity(max_concurrency=8)
def stepPlain(mark: str, value: int, seconds: float) -> int:
    """The same in a thread, and in so many threads of all workers at most."""
    with recorded(mark):
        time.sleep(seconds)
        return value + 1


@activity("stepElsewhere", queue="chaos")
def step_elsewhere(mark: str, value: int, seconds: float) -> int:
    """The same in a task of its own, on the workers of another queue."""
    with recorded(mark):
        time.sleep(seconds)
        return value + 1


@activity
async def total(mark: str, parts: dict[str, int]) -> int:
    """What a fan comes together in."""
    with recorded(mark):
        return sum(parts.values())


@activity
async def parity(mark: str, value: int, even: str, odd: str) -> Output:
    """A branch: writes to one of its two places."""
    with recorded(mark):
        return Output(odd if value % 2 else even, value)


@activity(retries=3, backoff_seconds=0.05)
def flaky(mark: str, value: int) -> int:
    """Fails at first."""
    with recorded(mark):
        if _executions(mark) <= FAILURES_OF_FLAKY:
            raise Refused("not yet")
        return value + 1


@activity(retries=1, backoff_seconds=0.05)
def failing(mark: str) -> NoReturn:
    """Fails whenever it is tried."""
    with recorded(mark):
        raise Refused("never")


@activity
def announce(mark: str, value: int) -> None:
    """Sent and forgotten; its line is the effect on the world outside."""
    with recorded(mark):
        pass


@delegate("addUp")
def add_up(context: list[dict[str, Any]]) -> int:
    """A delegate in code: knows what its scopes and its parameters bring it."""
    given = next(message for message in reversed(context) if message["type"] == "input")
    base = next(message for message in context if message["type"] == "state")["base"]
    with recorded(given["mark"]):
        time.sleep(given["seconds"])
        return int(base) + int(given["value"])
