"""Whether one tenant holds up another: `make bench ARGS=hostile` or `python -m tests.benchmarks hostile`.

A worker as it is started by default serves a run of each kind that wants everything for itself. Beside it small runs of
three calls, one behind the other, are submitted and waited for, for half a minute. Of each kind the longest that a
small run took is printed, and the worst of all. The goal is 5 s.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from acts_celery import Client
from acts_celery.broker_config import EmbeddedServer, load
from tests.benchmarks.surroundings import ready_worker

GOAL_SECONDS: Final = 5.0
_ACTIVITIES: Final = Path(__file__).with_name("hostile_activities.py")
_SMALL_RUNS: Final = 5
_SECONDS: Final = 30.0
"""So long small runs are submitted at least: what a hostile run has begun comes back later."""
_HEAD_START_SECONDS: Final = 2.0
_PATIENCE_SECONDS: Final = 60.0
_SMALL: Final = (
    {"_tool": "add_one", "number": 1, "_outputPath": "†state.a"},
    {"_tool": "add_one_plain", "number": "†state.a", "_outputPath": "†state.b"},
    {"_tool": "add_one", "number": "†state.b", "_outputPath": "†state.c"},
)


@dataclass(frozen=True)
class Hostility:
    """A kind of run that may hold up others."""

    name: str
    document: Callable[[], dict[str, Any]]


@dataclass(frozen=True)
class Measured:
    """How long the small runs took beside it, in seconds; those that did not end count as the patience."""

    name: str
    seconds: Sequence[float]

    @property
    def worst(self) -> float:
        """The longest."""
        return max(self.seconds)


def plan(instances: int, *calls: Mapping[str, Any], context: Sequence[Any] = (), **more: Any) -> dict[str, Any]:
    """A submission in which each instance runs the calls."""
    lanes = [{"type": "state", "_instance": f"i{number}", "n": number} for number in range(instances)]
    return {"context": [{"type": "plan", "calls": list(calls)}, *context, *lanes], **more}


def _schemas() -> dict[str, Any]:
    """Results of thousands of texts, each held against hundreds of schemas."""
    heavy = {"items": {"anyOf": [{"pattern": f"(a|b)*{'[ab]' * 12}c{number}"} for number in range(300)] + [{}]}}
    tools = {"repeat": {"type": "object", "properties": {"_activity": {}}, "_output": heavy}}
    call = {"_tool": "repeat", "text": "ab" * 20, "times": 2_000, "_outputPath": "†data.r"}
    return plan(400, call, tools=tools)


def _long_plain() -> dict[str, Any]:
    """Functions that hold a thread each."""
    return plan(2_000, {"_tool": "rest_plain", "_outputPath": "†state.r"})


def _long() -> dict[str, Any]:
    """Coroutines that hold a place each."""
    return plan(2_000, {"_tool": "rest", "_outputPath": "†state.r"})


def _fan_out() -> dict[str, Any]:
    """Many instances, and many calls in each."""
    calls = [{"_tool": "add_one", "number": "†state.n", "_outputPath": f"†state.p{number}"} for number in range(50)]
    return plan(20_000, *calls)


def _large_values() -> dict[str, Any]:
    """Calls that are given as much as one may be given."""
    big = {"type": "data", "data": {"big": [["x" * 20] * 3 for _ in range(11_000)]}}
    reads = {f"p{number}": "†data.big" for number in range(20)}
    return plan(1_000, {"_tool": "take", **reads, "_outputPath": "†state.r"}, context=[big])


def _large_messages() -> dict[str, Any]:
    """The same, sent to a queue."""
    big = {"type": "data", "data": {"big": "x" * 700_000}}
    reads = {f"p{number}": "†data.big" for number in range(20)}
    return plan(1_000, {"_tool": "take_far", **reads, "_outputPath": "†state.r"}, context=[big])


def _large_results() -> dict[str, Any]:
    """Results as large as one may be, as many as there is room for."""
    calls = [
        {"_tool": "repeat", "text": "x" * 1_000, "times": 1_000, "_outputPath": f"†data.r{number}"}
        for number in range(20)
    ]
    return plan(1_000, *calls)


HOSTILITIES: Final = (
    Hostility("large schemas", _schemas),
    Hostility("long functions", _long_plain),
    Hostility("long coroutines", _long),
    Hostility("wide fan-out", _fan_out),
    Hostility("large values", _large_values),
    Hostility("large messages", _large_messages),
    Hostility("large results", _large_results),
)


def measure(only: Sequence[str] = (), *, small_runs: int = _SMALL_RUNS) -> Iterator[Measured]:
    """Each kind in turn, on a server and workers of its own."""
    for hostility in HOSTILITIES:
        if not only or hostility.name in only:
            yield _measured(hostility, small_runs)


def _measured(hostility: Hostility, small_runs: int) -> Measured:
    with EmbeddedServer() as server:
        given = {"broker_url": server.broker_url, "redis_url": server.redis_url, "activities": (str(_ACTIVITIES),)}
        settings = load(env_file=None, **given)
        command = [sys.executable, "-m", "acts_celery", "worker", "--json"]
        environment = {**os.environ, **settings.to_environment()}
        with ready_worker(command, environment), Client(settings) as client:
            _small(client)  # what is loaded at first is not measured
            run = client.submit_document(hostility.document())
            time.sleep(_HEAD_START_SECONDS)
            seconds, until = list[float](), time.monotonic() + _SECONDS
            while len(seconds) < small_runs or time.monotonic() < until:
                seconds.append(_small(client))
            if run.status()["status"] == "running":
                run.cancel()
    return Measured(hostility.name, seconds)


def _small(client: Client) -> float:
    begun = time.monotonic()
    run = client.submit(solution={"calls": list(_SMALL)})
    try:
        result = run.wait(timeout_seconds=_PATIENCE_SECONDS)
    except TimeoutError:
        return _PATIENCE_SECONDS
    assert result.data()["state"] == {"a": 2, "b": 3, "c": 4}
    return time.monotonic() - begun


def lines_of(rows: Sequence[Measured]) -> Iterator[str]:
    """What is printed."""
    yield "three calls beside a run that wants everything: seconds, the longest of each kind"
    for row in rows:
        yield f"  {row.name:16} {row.worst:7.2f}   of {len(row.seconds)}, the median {median(row.seconds):.2f}"
    worst = max(rows, key=lambda row: row.worst)
    reached = "reached" if worst.worst <= GOAL_SECONDS else "not reached"
    yield f"worst: {worst.worst:.2f} s, {worst.name}; the goal of {GOAL_SECONDS:g} s is {reached}"
