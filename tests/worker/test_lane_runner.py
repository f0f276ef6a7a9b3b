"""What a lane's runner holds while it waits: a scheduler in this process on a server of its own."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from acts_celery import activity
from acts_celery.worker.store.keys import Keys

from .backend import DEADLINE_SECONDS
from .test_scheduler import DOORS, Process, process, servers

__all__ = ["process", "servers"]  # fixtures

LATER_SECONDS = 0.3
BEGUN: list[float] = []
FIRST = threading.Event()


@activity(retries=1, backoff_seconds=0.001)
async def failFirst() -> int:
    BEGUN.append(time.monotonic())
    if len(BEGUN) == 1:
        FIRST.set()
        raise ConnectionError("not yet")
    return len(BEGUN)


def until(reached: Any) -> None:
    """Ask a server until something is so."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not reached():
        assert time.monotonic() < end


def test_a_call_that_rests_is_begun_when_it_comes_as_due_also_where_its_lane_was_read_anew(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acts_celery.worker.runner.step._CLOCKS_DIFFER_SECONDS", LATER_SECONDS)
    run = process.submit([{"_tool": "failFirst", "_outputPath": "†state.a"}])
    calls = Keys("acts", run.id).calls

    def is_due() -> bool:
        """Whether the log would let it be begun."""
        entry: Any = process.redis.hget(calls, "\x1f0") or b":::"
        now: Any = process.redis.time()
        kind, _, _, due = entry.decode().split(":", 3)
        return bool(kind == "retry" and float(due) < now[0] * 1000 + now[1] / 1000)

    with process.driving(run):
        assert FIRST.wait(DEADLINE_SECONDS)
        until(is_due)
        process.drive(run)  # somebody says that there is something new: the lane is read anew
    assert run.result().data()["state"] == {"a": 2}
    assert BEGUN[1] - BEGUN[0] > LATER_SECONDS


def test_a_runner_that_waits_for_a_global_call_stays_while_calls_run_in_line(process: Process) -> None:
    context = [{"type": "state", "_instance": "①", "n": 1}]
    calls = [
        {"_tool": "remoteAdd", "a": 1, "b": 0, "_outputPath": "†state.g"},
        {"_tool": "waitAtDoor", "name": "parked", "_instance": "①", "_outputPath": "†state.a"},
        {"_tool": "echo", "value": ["†state.g", "†state.a"], "_instance": "①", "_outputPath": "†state.b"},
    ]
    run = process.client.submit(context, {"calls": calls})
    keys = Keys("acts", run.id)
    process.drive(run)
    with ThreadPoolExecutor(1) as pool:
        driven = pool.submit(process.run, lambda scheduler: scheduler.drive(run.id, "①"))
        until(lambda: process.redis.zscore(keys.parked, "①") is not None)
        leases: Any = process.redis.zrange(keys.leases, 0, -1)
        assert [one for one in leases if one.decode().startswith("①\x1f@")], "who looks after what runs in line"
        DOORS.open("parked")
        process.deliver(run, 1)
        driven.result(DEADLINE_SECONDS)
    process.run(lambda scheduler: scheduler.drive(run.id, "①"))
    assert run.result().data("①")["state"]["b"] == [{"sum": 0}, 1]
