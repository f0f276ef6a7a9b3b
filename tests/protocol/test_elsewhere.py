"""What is checked in another process comes to the same as what is checked here, in the same words (SPEC R4.1, R4.6)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts_celery.protocol import Problem
from acts_celery.protocol.engine.events import Decision, Outcome, Start, Status, Success
from acts_celery.protocol.schemas import CompiledSchema, compiled, validation
from acts_celery.protocol.schemas.costs import METER, Meter
from acts_celery.protocol.schemas.validation import OffloadedChecks, verdict_of

from .building import DATE, call, checked, executing
from .schema_strategies import schema_values, schemas
from .test_law_secrecy import REFUSING

T = TypeVar("T")

HEAVY = {"items": {"anyOf": [{"pattern": f"(a|b)*{'[ab]' * 12}c{number}$"} for number in range(300)]}}
TEXTS = ["ab" * 20] * 1_000


def judged(decide: Callable[[], T]) -> tuple[T, int]:
    """What is decided when all offloaded are there, and how many were asked for."""
    offloaded = OffloadedChecks()
    while True:
        with offloaded:
            decided = decide()
        if not offloaded.asked:
            return decided, len(offloaded.found)
        offloaded.found.update({check: verdict_of(check) for check in offloaded.asked})


@pytest.fixture(scope="class")
def all_is_heavy() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validation, "HEAVY_WORK", -1)
        patch.setattr(validation, "_HEAVY_LISTED", -1)
        yield


@pytest.mark.usefixtures("all_is_heavy")
class TestWhereAllIsHeavy:
    @given(
        st.one_of(st.sampled_from(REFUSING).map(lambda one: one[1:]), st.tuples(schemas(), schema_values)),
        st.none() | st.lists(st.text(max_size=3) | st.integers(0, 3), max_size=3),
    )
    def test_the_same_is_said_elsewhere(self, case: tuple[Any, Any], known: list[str | int] | None) -> None:
        schema, value = case
        ready = CompiledSchema(schema)

        def said() -> list[Problem]:
            at_a_place = ready.problems_at(("a", 0), value, "y", known=known)
            return ready.problems(value, "x", 1, known=known) + at_a_place

        here = said()
        there, asked = judged(said)
        assert there == here
        assert asked

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**64 - 1, 1.0, -0.0, "\ud800", "\x00\n"])
    def test_so_it_is_of_what_is_hard_to_write_down(self, value: Any) -> None:
        ready = CompiledSchema({"items": {"enum": [1]}})
        assert judged(lambda: ready.problems([value], known=("\udfff",)))[0] == ready.problems(
            [value], known=("\udfff",)
        )
        assert judged(lambda: ready.problems([value]))[0] == ready.problems([value])

    def test_what_a_call_comes_to_is_decided_when_the_verdicts_are_there(self) -> None:
        tools = {
            "give": {
                "type": "object",
                "properties": {"value": {"type": "integer"}, "_activity": {}},
                "_output": {"type": "string"},
            }
        }
        kind = {"type": "state", "schema": {"properties": {"a": {"maxLength": 3}, "b": {"maxLength": 1}}}}
        plan = checked(
            call("give", "†state.a", value="†input.n"),
            call("give", "†state.b", value="†input.text"),
            tools=tools,
            context=[kind, {"type": "input", "input": {"n": 1, "text": "x"}}],
        )
        execution, plain, offloaded = executing(plan)[0], executing(plan)[0], OffloadedChecks()
        decided: list[Decision] = []
        while True:
            with offloaded:
                decided += execution.decide(DATE)
            if not offloaded.asked:
                break
            offloaded.found.update({check: verdict_of(check) for check in offloaded.asked})
        assert decided == plain.decide(DATE)
        assert isinstance(decided[0], Start)
        assert isinstance(decided[1], Outcome), "its parameter is no number"
        for result, status in (
            (Success("abc"), Status.DONE),
            (Success("abcd"), Status.FAILED),
            (Success(1), Status.FAILED),
        ):
            outcome, asked = judged(lambda result=result: execution.finish(0, result, DATE))  # type: ignore[misc]
            assert outcome == plain.finish(0, result, DATE)
            assert (outcome.status, asked > 0) == (status, True)


def test_what_is_heavy_is_asked_for_once_and_costs_the_run_as_much() -> None:
    ready, meters = compiled(HEAVY), (Meter(), Meter())
    token = METER.set(meters[0])
    try:
        here = ready.problems(TEXTS, known=())
        METER.set(meters[1])
        there, asked = judged(lambda: [ready.problems(TEXTS, known=()), ready.problems([*TEXTS], known=())])
    finally:
        METER.reset(token)
    assert (there, asked) == ([here, here], 1)
    assert here
    assert meters[1].units >= 2 * meters[0].units > 0


def test_what_is_not_heavy_is_checked_here() -> None:
    offloaded = OffloadedChecks()
    with offloaded:
        assert compiled(HEAVY).problems(["x"], known=())
        assert compiled({"type": "string"}).problems(TEXTS, known=())
    assert not offloaded.asked


def test_what_is_found_soon_and_takes_long_to_say_is_said_elsewhere() -> None:
    ready = compiled({"anyOf": [{"items": {"enum": [1, "b"]}}, {"maxItems": 3}]})
    offloaded = OffloadedChecks()
    with offloaded:
        assert ready.problems(["b"] * 5_000, known=()) == []
        assert not offloaded.asked, "it fits"
        assert ready.problems(["a"] * 5_000, known=()) == []
        assert offloaded.asked


def test_what_takes_long_to_say_costs_the_run_no_more_than_one_value_may() -> None:
    ready, meter = compiled({"anyOf": [{"items": {"enum": [1, "b"]}}, {"maxItems": 3}]}), Meter()
    token = METER.set(meter)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(validation, "MOST_WORK", 40_000)
            problems, _ = judged(lambda: ready.problems(["a"] * 5_000, known=()))
    finally:
        METER.reset(token)
    assert (len(problems), meter.units) == (1, 40_000)


def test_one_pass_asks_for_many_checks_and_for_no_more_than_fit() -> None:
    ready, most = compiled(HEAVY), 2**23
    values = [["ab" * 20 + str(number)] * 1_000 for number in range(3)]
    offloaded = OffloadedChecks()
    with offloaded:
        for value in values:
            ready.problems(value)
    assert len(offloaded.asked) == 3
    texts = [["x" * 40 + str(number)] * 100_000 for number in range(3)]
    with offloaded:
        for number, value in enumerate(texts):
            offloaded.of([number], "true", value)
    assert 0 < sum(len(check.value) for check in offloaded.asked) <= most
    assert len(offloaded.asked) < 3
