"""Random submissions that gather, executed by two worker processes: what the naive evaluator gives (SPEC R10.4)."""

from __future__ import annotations

from itertools import count, islice
from random import Random
from typing import Any

from acts_celery import Run
from acts_celery.protocol import Rejected
from tests.protocol import naive

from .backend import Backend
from .test_against_naive import FUNCTIONS, two_workers

__all__ = ["two_workers"]  # a fixture

NUMBER = 40
CONTEXT: list[dict[str, Any]] = [
    {"type": "state", "rate": 2},
    {"type": "state", "_instance": "①", "price": 1},
    {"type": "state", "_instance": "②", "price": 3},
    {"type": "text", "_instance": "③"},
]
LANES: list[dict[str, Any]] = [{}, {"_instance": "①"}, {"_instance": "②"}, {"_gather": True}, {"_gather": True}]
TOOLS = ["pureGive", "pureGive", "pureEcho", "pureSee", "pureList", "pureFail"]


def gathering(random: Random) -> dict[str, Any]:
    """A submission in which calls of instances, global ones and gather calls read each other's results."""
    places = [f"†{random.choice(['state', 'data'])}.k{index}" for index in range(random.randint(3, 7))]
    calls = []
    for index, place in enumerate(places):
        known = ["†state.price", "†state.rate", *places[:index], *places[:index], *places[index + 1 :][:1]]
        value = " || ".join(random.sample(known, k=random.choice([1, 1, 2])))
        scopes = random.choice([[], [random.choice(["†state.price", *places[:index]])]])
        call = {"_tool": random.choice(TOOLS), "value": value, "_scopes": scopes, "_outputPath": place}
        calls.append(call | random.choice(LANES))
    if random.random() < 0.5:
        return {"context": [*CONTEXT, {"type": "plan", "calls": calls}]}
    return {"context": CONTEXT, "solution": {"calls": calls}}


def submitted(backend: Backend, seed: int) -> tuple[dict[str, Any], Run] | None:
    """A submission and its run, where it is one that is accepted and whose end hangs on no order."""
    value = gathering(Random(seed))
    try:
        if backend.client.check(value).dropped_waits or not any("_gather" in str(call) for call in value.values()):
            return None
    except Rejected:
        return None
    return value, backend.client.submit_document(value)


def test_r10_4_two_workers_give_what_the_naive_evaluator_gives(two_workers: Backend) -> None:
    found = (one for seed in count(1) if (one := submitted(two_workers, seed)) is not None)
    for value, run in list(islice(found, NUMBER)):
        result, verdict = two_workers.wait(run.id), naive.evaluate(value, FUNCTIONS)
        statuses: dict[str | None, dict[int, str]] = {}
        for call in result.calls:
            statuses.setdefault(call.instance, {})[call.index] = call.status
        assert statuses == {lane: calls for lane, calls in verdict.statuses.items() if calls}, value
        for reader, values in verdict.data.items():
            assert _without_errors(result.data(reader)) == _without_errors(values), value


def _without_errors(data: Any) -> dict[str, Any]:
    return {kind: value for kind, value in data.items() if kind != "error"}
