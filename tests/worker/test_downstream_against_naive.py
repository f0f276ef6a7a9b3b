"""Random submissions whose failing calls pass at the second attempt, on a real worker: after `retry --downstream
--effects` the values are those that the naive evaluator gives where nothing fails (SPEC R11.8).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count, islice
from random import Random
from typing import Any

import pytest

from acts_celery import Result, Run
from acts_celery.protocol import Rejected
from acts_celery.worker.client.retrying import Choice, Extent, Retrier
from tests.protocol import naive

from .backend import Backend, Meeting
from .test_gathering_against_naive import CONTEXT, LANES
from .test_retry import mend

NUMBER = 25
FAULTY = "failUntilMended"


def _give(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    return parameters["value"]


def _see(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    return dict(context)


FUNCTIONS = {"echo": _give, FAULTY: _give, "seeScopes": _see}


def faulty(random: Random, name: str) -> dict[str, Any]:
    """A submission in which calls of instances, global ones and gather calls read each other's results."""
    places = [f"†{random.choice(['state', 'data'])}.k{index}" for index in range(random.randint(3, 8))]
    calls = []
    for index, place in enumerate(places):
        known = ["†state.price", "†state.rate", *places[:index], *places[:index], *places[index + 1 :][:1]]
        value = " || ".join(random.sample(known, k=random.choice([1, 2, 2])))
        scopes = random.choice([[], [random.choice(["†state.price", *places[:index]])]])
        tool = random.choice(["echo", "seeScopes", FAULTY, FAULTY])
        call = {"_tool": tool, "value": value, "_scopes": scopes, "_outputPath": place}
        calls.append(call | random.choice(LANES) | ({"name": name} if tool == FAULTY else {}))
    if random.random() < 0.5:
        return {"context": [*CONTEXT, {"type": "plan", "calls": calls}]}
    return {"context": CONTEXT, "solution": {"calls": calls}}


def submitted(backend: Backend, seed: int) -> tuple[str, dict[str, Any], Run] | None:
    """What a call waits for until it passes, a submission, and its run."""
    name = f"faulty{seed}"
    value = faulty(Random(seed), name)
    try:
        if backend.client.check(value).dropped_waits:
            return None
    except Rejected:
        return None
    return name, value, backend.client.submit_document(value)


class _Whole(Retrier):
    """Reads the whole run, whichever instance is chosen."""

    def _read_one(self, choice: Choice) -> None:
        return None


def chosen_alike(backend: Backend, run: Run, result: Result) -> int:
    """What retries of single instances would do, found from the whole run and from as much as is read of it."""
    failed = {call.instance for call in result.calls if call.status == "failed" and call.instance is not None}
    for instance in failed:
        for extent in (Extent(), Extent(downstream=True, effects=True)):
            choice, arguments = Choice(extent, instance=instance), (run.id, backend.redis, backend.settings)
            assert Retrier(*arguments).planned(choice) == _Whole(*arguments).planned(choice)
    return len(failed)


def retried(backend: Backend, run: Run) -> Result:
    """What a run comes to when all that has failed or is stale was carried out again."""
    while (result := backend.wait(run.id)).status == "failed" or any(call.stale for call in result.calls):
        run.retry(downstream=True, effects=True)
    return result


@pytest.mark.parametrize("first", [1, NUMBER + 1])
def test_r11_8_after_a_retry_the_values_are_those_of_a_run_in_which_nothing_failed(
    backend: Backend, meeting: Meeting, first: int
) -> None:
    found = (one for seed in count(1000 * first) if (one := submitted(backend, seed)) is not None)
    failed = chosen = 0
    for name, value, run in list(islice(found, NUMBER)):
        if first > 1:  # in the middle of it, as soon as something has failed
            for event in run.follow():
                if event.status == "failed":
                    mend(meeting, name)
                    run.retry(downstream=event.id.endswith("0"))
                    break
        result = backend.wait(run.id)
        failed += result.status == "failed"
        chosen += chosen_alike(backend, run, result) if first == 1 else 0
        mend(meeting, name)
        result, verdict = retried(backend, run), naive.evaluate(value, FUNCTIONS)
        statuses: dict[str | None, dict[int, str]] = {}
        for call in result.calls:
            statuses.setdefault(call.instance, {})[call.index] = call.status
        assert statuses == {lane: calls for lane, calls in verdict.statuses.items() if calls}, value
        assert {reader: result.data(reader) for reader in verdict.data} == verdict.data, value
    assert (failed > NUMBER // 2 and chosen > NUMBER // 2) or first > 1
