"""SPEC R6.4-R6.6: what runs beside what, alternatives, and what is skipped."""

from __future__ import annotations

from random import Random
from typing import Any

from acts_celery.protocol import Output, Plan
from acts_celery.protocol.engine.events import Outcome, Start, Status, Success
from acts_celery.protocol.engine.execution import Execution
from acts_celery.protocol.state.fold import Fold

from .building import (
    DATE,
    FUNCTIONS,
    call,
    checked,
    executing,
    run,
    statuses,
)
from .driver import Driver

X = [{"type": "state", "x": 0}]


def waits(plan: Plan, index: int, lane: str | None = None) -> tuple[int, ...]:
    """The calls a call waits for."""
    return plan.lanes[lane].graph.before(index)


# R6.4


def test_r6_4_independent_calls_are_started_together() -> None:
    calls = [call(to="†state.a"), call(to="†state.b"), call(value="†state.a", to="†state.c"), call()]
    execution, _ = executing(checked(*calls))
    starts = execution.decide(DATE)
    assert [start.call.index for start in starts if isinstance(start, Start)] == [0, 1, 3]
    assert execution.decide(DATE) == []


def test_r6_4_of_two_calls_writing_one_path_the_last_to_complete_wins_and_both_stay_in_the_log() -> None:
    plan = checked(call(to="†state.a", value=1), call(to="†state.a", value=2))
    finals = set()
    for seed in range(20):
        result = Driver(plan, FUNCTIONS, random=Random(seed)).run()
        assert result.data[None]["state"]["a"] == result.messages[-1]["data"]["a"]
        assert sorted(message["data"]["a"] for message in result.messages) == [1, 2]
        finals.add(result.data[None]["state"]["a"])
    assert finals == {1, 2}


def test_r6_4_a_call_that_is_asked_about_again_is_given_out_again_and_one_that_has_ended_is_not() -> None:
    execution, _ = executing(checked(call(to="†state.a")))
    assert len(execution.decide(DATE)) == 1
    execution.reconsider(0)
    assert len(execution.decide(DATE)) == 1
    assert execution.record(0, Status.DONE)
    execution.reconsider(0)
    assert execution.decide(DATE) == []


# R6.5


def start_of(execution: Execution, index: int) -> Start | None:
    """The start of a call, when it is decided now."""
    return next((d for d in execution.decide(DATE) if isinstance(d, Start) and d.call.index == index), None)


def finished(execution: Execution, fold: Fold, index: int, value: Any) -> None:
    """A call has returned, and the log has it."""
    outcome = execution.finish(index, Success(value), DATE)
    for message in outcome.messages:
        fold.append(message, "a result")
    assert execution.record(index, outcome.status)


def started(plan: Plan) -> tuple[Execution, Fold]:
    """The global lane of a plan, everything that is ready started."""
    execution, fold = executing(plan)
    for decision in execution.decide(DATE):
        assert isinstance(decision, Start)
        assert execution.record(decision.call.index, Status.RUNNING)
    return execution, fold


def test_r6_5_or_waits_for_the_first_and_does_not_wait_for_the_second_when_it_has_come() -> None:
    execution, fold = started(checked(call(to="†state.a"), call(to="†state.b"), call(value="†state.a || †state.b")))
    finished(execution, fold, 0, "first")
    start = start_of(execution, 2)
    assert start is not None
    assert start.parameters == {"value": "first"}


def test_r6_5_or_does_not_take_the_second_while_the_first_may_still_come() -> None:
    plan = checked(call(to="†state.a || †state.c"), call(to="†state.b"), call(value="†state.a || †state.b"))
    execution, fold = started(plan)
    finished(execution, fold, 1, "second")
    assert execution.decide(DATE) == []
    finished(execution, fold, 0, Output("†state.c", "elsewhere"))
    start = start_of(execution, 2)
    assert start is not None
    assert start.parameters == {"value": "second"}


def test_r6_5_and_waits_for_all() -> None:
    execution, fold = started(checked(call(to="†state.a"), call(to="†state.b"), call(value="†state.b && †state.a")))
    finished(execution, fold, 1, 1)
    assert execution.decide(DATE) == []
    finished(execution, fold, 0, 2)
    start = start_of(execution, 2)
    assert start is not None
    assert start.parameters == {"value": 2}


def test_r6_5_a_part_that_cannot_come_frees_the_alternative_at_once() -> None:
    plan = checked(
        call(to="†state.a || †state.no"), call(to="†state.b"), call(value="†state.a && †state.b || †state.x"), context=X
    )
    execution, fold = started(plan)
    finished(execution, fold, 0, Output("†state.no", 1))
    start = start_of(execution, 2)
    assert start is not None
    assert start.parameters == {"value": 0}


def test_r6_5_a_start_is_given_out_once_however_many_writers_end_afterwards() -> None:
    plan = checked(call(to="†state.a"), call(to="†state.b"), call(value="†state.a || †state.b"))
    execution, fold = started(plan)
    finished(execution, fold, 0, 1)
    assert start_of(execution, 2) is not None
    finished(execution, fold, 1, 2)
    assert execution.decide(DATE) == []
    execution.reconsider(2)
    assert start_of(execution, 2) is not None


def test_r6_5_many_alternatives_and_scopes_are_waited_for_as_few() -> None:
    pairs = [call("fail" if i % 2 else "give", to=f"†state.a{i}", value=i) for i in range(40)]
    fallbacks = [call(to=f"†state.b{i}", value=-i) for i in range(40)]
    reader = call("echo", to="†data.all", all=[f"†state.a{i} || †state.b{i}" for i in range(40)], _scopes=["†state.b0"])
    result = Driver(checked(reader, *pairs, *fallbacks), FUNCTIONS, random=Random(5)).run()
    assert result.data[None]["data"]["all"] == {"all": [-i if i % 2 else i for i in range(40)]}


# R6.6


def test_r6_6_a_call_whose_writer_failed_is_skipped_with_the_reason_and_skipping_spreads() -> None:
    result = run(call("fail", to="†state.a"), call(to="†state.b", value="†state.a"), call(value="†state.b"))
    assert statuses(result) == ["failed", "skipped", "skipped"]
    assert result.outcome(1).reason == "†state.a is not there and no call can bring it any more: call 0 failed"
    assert result.outcome(2).reason == "†state.b is not there and no call can bring it any more: call 1 was skipped"
    assert result.outcome(1).messages == ()


def test_r6_6_choosing_an_alternative_is_how_if_and_else_are_written() -> None:
    calls = [
        call("choose", to="†state.yes || †state.no"),
        call(to="†state.then", value="†state.yes"),
        call(to="†state.otherwise", value="†state.no"),
        call(to="†state.more", value="†state.then"),
        call(to="†state.joined", value="†state.more || †state.otherwise"),
    ]
    result = run(*calls, functions={"choose": lambda *_: Output("†state.no", "n")})
    assert statuses(result) == ["done", "skipped", "done", "skipped", "done"]
    assert result.data[None]["state"] == {"no": "n", "otherwise": "n", "joined": "n"}
    assert (
        result.outcome(1).reason == "†state.yes is not there and no call can bring it any more: call 0 did not write it"
    )


def test_r6_6_a_call_is_skipped_as_soon_as_one_of_its_values_cannot_come() -> None:
    execution, _ = started(
        checked(call("fail", to="†state.a"), call(to="†state.b"), call(value=["†state.a", "†state.b"]))
    )
    assert execution.record(0, Status.FAILED)
    (outcome,) = execution.decide(DATE)
    assert isinstance(outcome, Outcome)
    assert (outcome.index, outcome.status) == (2, Status.SKIPPED)


def test_r6_6_a_reader_runs_when_its_value_is_there_although_one_of_its_writers_failed() -> None:
    result = run(call(to="†state.a", value=1), call("fail", to="†state.a"), call(to="†state.b", value="†state.a"))
    assert statuses(result) == ["done", "failed", "done"]
    result = run(call("fail", to="†state.x"), call(to="†state.b", value="†state.x"), context=X)
    assert statuses(result) == ["failed", "done"]
    assert result.data[None]["state"] == {"x": 0, "b": 0}


def test_r6_6_a_value_that_is_null_has_come() -> None:
    result = run(call(to="†state.a", value=None), call(to="†state.b", value="†state.a"))
    assert result.data[None]["state"] == {"a": None, "b": None}


def test_r6_6_a_writer_that_did_not_bring_the_part_that_is_read_is_no_writer() -> None:
    result = run(call(to="†state.a", value={"x": 1}), call(value="†state.a.y"), call(to="†state.b", value="†state.a.x"))
    assert statuses(result) == ["done", "skipped", "done"]


def test_r6_6_a_call_that_only_looks_at_a_slice_runs_in_any_case_once_the_writer_has_ended() -> None:
    result = run(call("fail", to="†state.a"), call("see", to="†data.seen", _scopes=["†state.a", "†state.x"]), context=X)
    assert statuses(result) == ["failed", "done"]
    assert result.data[None]["data"]["seen"] == {"state": {"x": 0}}
    assert [entry.outcome.index for entry in result.log] == [0, 1]


def test_r6_6_reading_where_values_conflict_fails_the_call_with_what_is_wrong() -> None:
    bad = {"type": "state", "_call": {"_outputPath": "†state.x"}, "_outputMethod": "push", "data": {"x": 1}}
    result = run(
        call(value="†state.x"), call("see", _scopes=["state"]), call(value=1, to="†state.y"), context=[*X, bad]
    )
    assert statuses(result) == ["failed", "failed", "done"]
    error = result.outcome(0).error
    assert error is not None
    assert error["type"] == "Conflict"
    assert "message 1" in error["message"]


def test_r6_6_the_reason_names_the_first_few_writers_and_how_many_more_there_were() -> None:
    three, four = (run(*[call("fail", to="†state.a")] * n, call(value="†state.a")) for n in (3, 4))
    reason = "†state.a is not there and no call can bring it any more: call 0 failed, call 1 failed, call 2 failed"
    assert three.outcome(3).reason == reason
    assert four.outcome(4).reason == f"{reason} and 1 more"


def test_r6_6_what_was_there_and_is_gone_has_no_writer_to_be_named() -> None:
    calls = [call(value="†state.x.y", other="†state.p"), call(to="†state.x", value=5), call(to="†state.p")]
    result = run(*calls, context=[{"type": "state", "x": {"y": 1}}])
    told = "†state.x is a number"
    assert result.outcome(0).reason == f"†state.x.y is not there and no call can bring it any more; {told}"
