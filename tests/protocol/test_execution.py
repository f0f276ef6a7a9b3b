"""The state machine of a lane: transitions, duplicates, rebuilding."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pytest

from acts_celery.protocol import Plan
from acts_celery.protocol.engine.events import FINAL, TRANSITIONS, Decision, Failure, Outcome, Start, Status, Success
from acts_celery.protocol.engine.execution import Execution
from acts_celery.protocol.engine.outcomes import Terms
from acts_celery.protocol.plan.graph import Graph
from acts_celery.protocol.state.fold import Fold

from .building import DATE, FUNCTIONS, call, checked, executing, submission
from .driver import Driver

DIAMOND = [
    call(to="†state.a", value=1),
    call(to="†state.b || †state.c", value="†state.a"),
    call(to="†state.d", value="†state.b"),
    call(to="†state.e", value="†state.c"),
    call(to="†state.f", value="†state.d || †state.e"),
    call(event="†state.f"),
]


def reach(execution: Execution, status: Status) -> None:
    """Bring call 0 into a status, the shortest way."""
    if status is not Status.WAITING:
        assert execution.record(0, status)


# Transitions


def test_every_status_has_its_transitions_and_what_has_none_is_final() -> None:
    assert TRANSITIONS.keys() == set(Status)
    assert {Status.DONE, Status.FAILED, Status.SKIPPED, Status.SENT, Status.LATENT} == FINAL


@pytest.mark.parametrize("status", Status)
def test_every_status_can_be_reached_and_all_but_the_final_ones_left(status: Status) -> None:
    assert any(status in following for following in TRANSITIONS.values())
    assert bool(TRANSITIONS[status]) is (status not in FINAL)


@pytest.mark.parametrize(("before", "after"), list(product(Status, Status)))
def test_what_the_transitions_allow_is_news_and_what_they_do_not_changes_nothing(before: Status, after: Status) -> None:
    execution, _ = executing(checked(call(to="†state.a"), call(value="†state.a")))
    reach(execution, before)
    execution.decide(DATE)
    assert execution.record(0, after) is (after in TRANSITIONS[before])
    assert execution.status(0) is (after if after in TRANSITIONS[before] else before)
    assert execution.statuses == {0: execution.status(0), 1: Status.WAITING}


@pytest.mark.parametrize("status", Status)
def test_a_call_is_started_again_only_when_it_is_waiting_again(status: Status) -> None:
    execution, _ = executing(checked(call(to="†state.a")))
    assert [type(decision) for decision in execution.decide(DATE)] == [Start]
    reach(execution, status)
    assert execution.decide(DATE) == []
    if execution.record(0, Status.WAITING):
        assert [type(decision) for decision in execution.decide(DATE)] == [Start]
        assert execution.decide(DATE) == []


def test_a_call_whose_start_was_not_carried_out_can_be_reconsidered() -> None:
    execution, _ = executing(checked(call(to="†state.a")))
    execution.decide(DATE)
    execution.reconsider(0)
    assert len(execution.decide(DATE)) == 1
    execution.record(0, Status.DONE)
    execution.reconsider(0)
    assert execution.decide(DATE) == []


def test_a_held_call_waits_until_it_is_let_go() -> None:
    execution, _ = executing(checked(call(to="†state.a"), call(value="†state.a")))
    execution.record(0, Status.HELD)
    assert execution.decide(DATE) == []
    execution.record(0, Status.WAITING)
    assert [d.call.index for d in execution.decide(DATE) if isinstance(d, Start)] == [0]


def test_a_refused_call_fails_and_its_readers_are_skipped() -> None:
    execution, _ = executing(checked(call(to="†state.a"), call(value="†state.a")))
    execution.record(0, Status.HELD)
    execution.record(0, Status.FAILED)
    (outcome,) = execution.decide(DATE)
    assert isinstance(outcome, Outcome)
    assert outcome.status is Status.SKIPPED


def test_a_call_of_the_global_lane_is_recorded_and_never_decided_here() -> None:
    plan = checked(
        call(to="†state.g"), call(value="†state.g", _instance="①"), context=[{"type": "text", "_instance": "①"}]
    )
    lane = plan.lanes["①"]
    shared = Fold()
    execution = Execution.of(plan, lane, Fold(shared))
    assert execution.decide(DATE) == []
    for status in (Status.RUNNING, Status.WAITING, Status.RUNNING):
        assert execution.record(0, status)
        assert execution.decide(DATE) == []
    execution.reconsider(0)
    shared.append({"type": "state", "g": 1}, "message")
    assert execution.record(0, Status.DONE)
    assert [d.parameters for d in execution.decide(DATE) if isinstance(d, Start)] == [{"value": 1}]
    assert execution.statuses == {1: Status.WAITING}
    assert not execution.is_finished


def test_a_lane_is_finished_when_all_its_calls_have_ended() -> None:
    execution, _ = executing(checked(call(to="†state.a"), call(to="†state.b")))
    assert not execution.is_finished
    execution.record(0, Status.DONE)
    execution.record(0, Status.DONE)
    execution.record(7, Status.DONE)
    assert not execution.is_finished
    execution.record(1, Status.FAILED)
    assert execution.is_finished
    assert Execution((), Graph({}), Fold(), Terms({})).is_finished


def test_finishing_changes_nothing_until_it_is_recorded() -> None:
    execution, fold = executing(checked(call(to="†state.a"), call(value="†state.a")))
    execution.decide(DATE)
    first = execution.finish(0, Success(1), DATE)
    assert execution.finish(0, Success(1), DATE) == first
    assert execution.finish(0, Failure("E", "m"), DATE).status is Status.FAILED
    assert fold.snapshot() == {}
    assert execution.status(0) is Status.WAITING


# Whole runs


def run_of(plan: Plan, seed: int) -> Driver:
    """A run with all the mischief that the driver knows."""
    return Driver(plan, FUNCTIONS, random=Random(seed), date=DATE)


@pytest.mark.parametrize("seed", range(25))
def test_any_order_with_duplicates_and_losses_ends_the_same(seed: int) -> None:
    plan = checked(*DIAMOND)
    orderly = Driver(plan, FUNCTIONS, date=DATE).run()
    result = run_of(plan, seed).run()
    assert (result.statuses, result.data) == (orderly.statuses, orderly.data)
    assert sorted(entry.outcome.index for entry in result.log) == list(range(len(DIAMOND)))


@pytest.mark.parametrize("seed", range(10))
def test_rebuilding_from_any_prefix_of_the_log_gives_the_state_it_had(seed: int) -> None:
    plan = checked(*DIAMOND, call("fail", to="†state.g"), call(value="†state.g"))
    log = run_of(plan, seed).run().log
    for length in range(len(log) + 1):
        live_fold = Fold()
        one = Execution.of(plan, plan.lanes[None], live_fold)
        pending: dict[int, Decision] = {}
        for entry in log[:length]:
            pending |= {_index(decision): decision for decision in one.decide(DATE)}
            _take(one, live_fold, entry.outcome)
        pending |= {_index(decision): decision for decision in one.decide(DATE)}
        pending = {index: decision for index, decision in pending.items() if one.status(index) is Status.WAITING}
        fold = Fold()
        other = Execution.of(plan, plan.lanes[None], fold)
        for entry in log[:length]:
            _take(other, fold, entry.outcome)
        assert other.statuses == one.statuses
        assert fold.snapshot() == live_fold.snapshot()
        rebuilt = {_index(decision): decision for decision in other.decide(DATE)}
        assert rebuilt == pending


def _index(decision: Decision) -> int:
    return decision.index if isinstance(decision, Outcome) else decision.call.index


def _take(execution: Execution, fold: Fold, outcome: Outcome) -> None:
    for message in outcome.messages:
        fold.append(message, "a result")
    assert execution.record(outcome.index, outcome.status)


def test_the_tests_own_submissions_can_be_handed_in_as_json() -> None:
    import json

    assert json.loads(json.dumps(submission(*DIAMOND))) == submission(*DIAMOND)


def test_of_outcomes_that_are_decided_together_each_finds_what_those_before_it_leave() -> None:
    tools: dict[str, Any] = {"judge": {"_output": {}}}
    given = (("†state.a", "x"), ("†state.b", "y"), ("†state.a", [1]))
    calls = [call("judge", to=to, _output=value, _outputMethod="concat") for to, value in given]
    execution, _ = executing(checked(*calls, tools=tools, activities={}))
    decided = execution.decide(DATE)
    assert [outcome.status for outcome in decided if isinstance(outcome, Outcome)] == [
        Status.DONE,
        Status.DONE,
        Status.FAILED,
    ], "a list does not join a text"
