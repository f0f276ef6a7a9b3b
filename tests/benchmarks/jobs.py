"""The jobs that both sides do. Each returns when the last value is back at the client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from celery import chain, group

from tests.benchmarks import bare_celery
from worker import Client, Run

_DEADLINE_SECONDS = 300.0


@dataclass(frozen=True)
class Job:
    """One thing to measure: `size` units of `unit`, on acts-celery and on Celery alone."""

    name: str
    unit: str
    size: int
    ours: Callable[[Client, int], object]
    theirs: Callable[[int], object]


def _batch(client: Client, instances: int, calls: list[dict[str, Any]]) -> Run:
    context: list[dict[str, Any]] = [{"type": "input", "_instance": f"i{n}", "value": "x"} for n in range(instances)]
    return client.submit(context=[*context, {"type": "plan", "calls": calls}])


def _finish(run: Run) -> None:
    status = run.wait(timeout_seconds=_DEADLINE_SECONDS).status
    assert status == "completed", status


def _chain_of_five() -> list[dict[str, Any]]:
    places = ["†input.value", *(f"†state.v{n}" for n in range(5))]
    return [{"_tool": "echo", "value": source, "_outputPath": target} for source, target in pairwise(places)]


def _ours_one_call_each(client: Client, size: int) -> None:
    _finish(_batch(client, size, [{"_tool": "echo", "value": "†input.value", "_outputPath": "†state.v"}]))


def _theirs_one_call_each(size: int) -> None:
    group(bare_celery.echo.s("x") for _ in range(size))().get(timeout=_DEADLINE_SECONDS)


def _ours_chains(client: Client, size: int) -> None:
    _finish(_batch(client, size, _chain_of_five()))


def _theirs_chains(size: int) -> None:
    one = chain(bare_celery.echo.s("x"), *(bare_celery.echo.s() for _ in range(4)))
    for result in [one() for _ in range(size)]:
        result.get(timeout=_DEADLINE_SECONDS)


def _ours_one_by_one(client: Client, size: int) -> None:
    for _ in range(size):
        call = {"_tool": "echo", "value": "x", "_outputPath": "†state.v"}
        _finish(client.submit(context=[], solution={"calls": [call]}))


def _theirs_one_by_one(size: int) -> None:
    for _ in range(size):
        bare_celery.echo.delay("x").get(timeout=_DEADLINE_SECONDS)


def _ours_waiting(client: Client, size: int) -> None:
    _finish(_batch(client, size, [{"_tool": "pause", "seconds": 0.1, "_outputPath": "†state.v"}]))


def _theirs_waiting(size: int) -> None:
    group(bare_celery.pause.s(0.1) for _ in range(size))().get(timeout=_DEADLINE_SECONDS)


JOBS = (
    Job("one after the other", "calls", 100, _ours_one_by_one, _theirs_one_by_one),
    Job("one call for each instance", "instances", 2_000, _ours_one_call_each, _theirs_one_call_each),
    Job("a chain of five for each instance", "chains", 400, _ours_chains, _theirs_chains),
    Job("calls that wait 100 ms", "calls", 500, _ours_waiting, _theirs_waiting),
)
