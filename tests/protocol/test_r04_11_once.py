"""Calls that run at most once, or a person is asked (SPEC R4.11)."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts_celery.protocol import Plan
from acts_celery.protocol.calls.call import element_index
from acts_celery.protocol.calls.tools import Tool
from acts_celery.protocol.engine.events import (
    CallBegun,
    CallDecided,
    CallHeld,
    CallsUndone,
    Decision,
    Evidence,
    Hold,
    Outcome,
    Ruling,
    Snapshot,
    Start,
    Status,
    Success,
    Verdict,
    effective_events,
)
from acts_celery.protocol.engine.execution import Execution

from .building import DATE, call, checked, pointers, problems, submission
from .driver import Driver
from .simulator import Lane, World

ONCE = {"type": "object", "_once": True}
SAID = "its worker died"


def started(*calls: Any, **parts: Any) -> tuple[Execution, Start]:
    """An execution of the global lane whose first call has begun, as the log says."""
    plan = checked(*calls, tools={"pay": ONCE}, **parts)
    one = Execution.of(plan, plan.lanes[None], plan.context.fold())
    (start,) = one.decide(DATE)
    assert isinstance(start, Start)
    assert one.is_once(start.call)
    one.record(0, Status.RUNNING)
    one.apply(CallBegun(0, one.snapshot(start), Evidence("", "r:0", 1, "w", 5)))
    return one, start


def asked(one: Execution) -> Hold:
    """The hold of the call whose end is lost, once the log says it."""
    one.note_unknown(0, SAID)
    (hold,) = one.decide(DATE)
    assert isinstance(hold, Hold)
    one.apply(CallHeld(0, hold.snapshot, evidence=hold.evidence))
    return hold


def settled(one: Execution, ruling: Ruling) -> Decision:
    one.apply(CallDecided(0, ruling))
    (decision,) = one.decide(DATE)
    return decision


def test_r4_11_a_call_whose_end_is_not_known_is_held_with_what_it_was_begun_with() -> None:
    one, start = started(call("pay", to="†state.a", amount=5))
    hold = asked(one)
    assert hold.evidence == Evidence(SAID, "r:0", 1, "w", 5)
    assert (hold.parameters, one.status(0)) == (start.parameters, Status.UNKNOWN)
    assert not one.is_finished
    assert one.decide(DATE) == []


@pytest.mark.parametrize(
    ("ruling", "status", "type_"),
    [
        (Ruling(Verdict.DONE, answer=7), Status.DONE, None),
        (Ruling(Verdict.FAILED, reason="no"), Status.FAILED, "Rejected"),
        (Ruling(Verdict.REJECTED, reason="nobody came"), Status.FAILED, "Unknown"),
    ],
)
def test_r4_11_a_person_says_how_it_has_ended(ruling: Ruling, status: Status, type_: str | None) -> None:
    one, _ = started(call("pay", to="†state.a"))
    asked(one)
    outcome = settled(one, ruling)
    assert isinstance(outcome, Outcome)
    assert (outcome.status, (outcome.error or {}).get("type")) == (status, type_)


def test_r4_11_a_person_has_it_begin_again_with_what_was_shown() -> None:
    one, start = started(call("pay", to="†state.a", amount=5))
    asked(one)
    again = settled(one, Ruling(Verdict.AGAIN))
    assert isinstance(again, Start)
    assert again.parameters == start.parameters


def test_r4_11_what_failed_for_it_goes_where_an_exception_goes() -> None:
    one, _ = started(call("pay", to="†state.a || †state.lost"))
    asked(one)
    outcome = settled(one, Ruling(Verdict.FAILED, reason="no"))
    assert isinstance(outcome, Outcome)
    assert outcome.is_rescued


def test_r4_11_a_result_that_comes_late_still_counts() -> None:
    one, _ = started(call("pay", to="†state.a"))
    asked(one)
    (end,) = one.finish(0, Success(1), DATE).events
    assert one.apply(end)
    assert one.status(0) is Status.DONE


def test_r4_11_with_unknown_fail_nobody_is_asked() -> None:
    one, _ = started(call("pay", to="†state.a"), config={"unknown": "fail"})
    one.note_unknown(0, SAID)
    (outcome,) = one.decide(DATE)
    assert isinstance(outcome, Outcome)
    assert (outcome.error or {})["type"] == "Unknown"


def test_r4_11_it_stands_beside_properties_and_is_true_or_false() -> None:
    assert Tool("pay", ONCE).trust.once
    assert not Tool("pay", {}).trust.once
    assert pointers(problems(submission(call("pay"), tools={"pay": {"_once": 1}}))) == ["/tools/pay/_once"]
    hidden = {"properties": {"_once": {"const": True}}}
    (problem,) = problems(submission(call("pay"), tools={"pay": hidden}))
    assert "beside `properties`" in problem.message
    assert pointers(problems(submission(call("pay"), config={"unknown": "ask"}))) == ["/config/unknown"]


def test_r4_11_a_declaration_takes_nothing_away_from_what_the_activity_says() -> None:
    tools = {"pay": {"type": "object", "_once": False}}
    plan = checked(call("pay", to="†state.a"), tools=tools, activities={"pay": ONCE})
    assert plan.trust["pay"].once


def test_r11_8_what_an_element_was_begun_with_counts_no_more_when_its_call_is_undone() -> None:
    evidence = Evidence("", "r:0", 1)
    begun = CallBegun(element_index(0, 1), Snapshot({}, {}), evidence)
    assert effective_events([begun, CallsUndone((0,)), begun]) == [False, True, True]


class Losing(Driver):
    """Loses what it begins now and then; a person says what has become of it."""

    def _start(self, instance: str | None, start: Start) -> None:
        lane, index = self._lanes[instance], start.call.index
        assert self._random is not None
        is_first = not lane.execution.begun(index)
        self.append(instance, CallBegun(index, lane.execution.snapshot(start), Evidence("", "k", 1)))
        super()._start(instance, start)
        if lane.execution.is_once(start.call) and is_first and self._random.random() < 0.5:
            self.lost[instance, index] = lane.results.pop(index)
            lane.execution.note_unknown(index, SAID)

    def held(self, instance: str | None, hold: Hold) -> None:
        index = hold.call.index
        result = self.lost.pop((instance, index))
        self.append(instance, CallHeld(index, hold.snapshot, evidence=hold.evidence))
        ruling = Ruling(Verdict.AGAIN)
        if isinstance(result, Success) and self._random is not None and self._random.random() < 0.5:
            ruling = Ruling(Verdict.DONE, answer=result.value)
        self.append(instance, CallDecided(index, ruling))

    def __init__(self, plan: Plan, functions: Mapping[str, Any], random: Random) -> None:
        self.lost: dict[tuple[str | None, int], Any] = {}
        super().__init__(plan, functions, random=random)


@pytest.mark.parametrize("seed", range(25))
def test_r4_11_the_values_are_those_of_a_run_in_which_nothing_was_lost(seed: int) -> None:
    plan = checked(
        call("pay", to="†state.a", value=1),
        call("pay", to="†state.b", value="†state.a"),
        call("pay", to="†state.all", value="†state.list", _each="value"),
        call("pay", to="†state.c", value="†state.all.1"),
        context=[{"type": "state", "list": [1, 2, 3]}],
        tools={"pay": ONCE},
    )
    functions = {"pay": lambda parameters, context: ["paid", parameters["value"]]}
    plain, losing = Driver(plan, functions).run(), Losing(plan, functions, Random(seed)).run()
    assert (losing.data, losing.statuses) == (plain.data, plain.statuses)


@given(st.integers(0, 2**32))
def test_r4_11_in_every_schedule_an_effect_happens_once_and_all_that_is_in_doubt_is_asked_about(seed: int) -> None:
    plan = checked(
        call("pay", to="†state.a", value=1),
        call("pay", to="†state.b", value="†state.a"),
        call("pay", to="†state.c", value="†state.a", _instance="①"),
        call("pay", to="†state.d", value=2, _instance="①"),
        context=[{"type": "text", "_instance": "①"}],
        tools={"pay": ONCE},
    )
    paid: dict[tuple[Lane, int], Any] = {}

    def carry(start: Start, lane: Lane, attempt: int, context: Mapping[str, Any]) -> Success:
        assert (lane, start.call.index) not in paid
        paid[lane, start.call.index] = value = ["paid", start.parameters["value"]]
        return Success(value)

    def settle(lane: Lane, index: int) -> Ruling:
        is_paid = (lane, index) in paid
        return Ruling(Verdict.DONE, answer=paid[lane, index]) if is_paid else Ruling(Verdict.AGAIN)

    world = World(plan, carry, Random(seed), misfortunes=12, settle=settle)
    world.run()
    assert set(world.log.ends.values()) == {Status.DONE}
    assert len(paid) == plan.size
    data = world.context().fold("①").snapshot()["state"]
    assert data == {"a": ["paid", 1], "b": ["paid", ["paid", 1]], "c": ["paid", ["paid", 1]], "d": ["paid", 2]}
