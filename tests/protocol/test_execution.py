"""The state machine of calls (SPEC R5, R6.4-R6.6, R7.1): what begins, when, and with what."""

from __future__ import annotations

import tracemalloc
from itertools import product
from random import Random
from typing import Any

import msgpack
import pytest

from acts_celery.protocol import Limits, Output, Plan, Rejected, check_submission
from acts_celery.protocol.engine.events import FINAL, TRANSITIONS, Decision, Failure, Outcome, Start, Status, Success
from acts_celery.protocol.engine.execution import Execution
from acts_celery.protocol.engine.outcomes import LaneConfig
from acts_celery.protocol.plan.documents import decode
from acts_celery.protocol.plan.graph import Graph
from acts_celery.protocol.state.fold import Fold
from acts_celery.protocol.templates import as_text

from .building import ANY, DATE, FUNCTIONS, call, checked, executing, pointers, problems_of, run, statuses, submission
from .driver import Driver

# The state machine of a lane: transitions, duplicates, rebuilding.

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
    assert Execution((), Graph({}), Fold(), LaneConfig({})).is_finished


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


# SPEC R5: calls without an output path.

THOUGHT = {"_tool": "think", "about": "†state.nowhere", "_output": {"plan": 1}}


# R5.1


@pytest.mark.parametrize(
    "raw", [{"_tool": "log"}, {"_tool": "log", "_delegate": "d"}, {"_tool": "log", "_activity": "a"}]
)
def test_r5_1_an_explicit_call_without_an_output_path_is_sent_and_forgotten(raw: dict[str, str]) -> None:
    result = run({**raw, "event": "†state.event", "_scopes": ["state"]}, context=[{"type": "state", "event": "login"}])
    assert statuses(result) == ["sent"]
    assert result.messages == []
    assert [(s.parameters, s.context) for s in result.sent] == [({"event": "login"}, {"state": {"event": "login"}})]


def test_r5_1_nothing_is_stored_not_even_what_the_sender_hears() -> None:
    execution, _ = executing(checked(call()))
    assert execution.finish(0, Success({"type": "state", "a": 1}), DATE) == Outcome(0, Status.SENT)


def test_r5_1_it_waits_for_what_it_reads_and_is_skipped_without_it() -> None:
    result = run(
        call(event="†state.a"), call(event="†state.b"), call(to="†state.a", value=1), call("fail", to="†state.b")
    )
    assert statuses(result) == ["sent", "skipped", "done", "failed"]
    assert [s.parameters for s in result.sent] == [{"event": 1}]


def test_r5_1_no_call_can_depend_on_it() -> None:
    found = problems_of(call("first"), call(value="†state.first"))
    assert pointers(found) == ["/solution/calls/1/value"]
    assert checked(call("first"), call()).edges == ()


def test_r5_1_one_that_cannot_be_sent_fails_and_the_others_go_on() -> None:
    execution, _ = executing(checked(call(), call(to="†state.a")))
    assert all(isinstance(start, Start) for start in execution.decide(DATE))
    outcome = execution.finish(0, Failure("BrokerDown", "nobody listens"), DATE)
    assert (outcome.status, outcome.error) == (Status.FAILED, {"type": "BrokerDown", "message": "nobody listens"})


# R5.2


@pytest.mark.parametrize("output", [{}, {"_output": 1}])
def test_r5_2_a_latent_call_without_an_output_path_is_a_passing_thought(output: dict[str, int]) -> None:
    result = run({"_tool": "think", **output}, activities={}, model=False)
    assert statuses(result) == ["latent"]
    assert (result.messages, result.started, result.sent) == ([], (), ())


def test_r5_2_a_thought_waits_for_nothing_and_is_no_error_whatever_it_reads() -> None:
    result = run(THOUGHT, {"_tool": "think", "about": "†state.a"}, call(to="†state.a"), activities={"give": ANY})
    assert statuses(result) == ["latent", "latent", "done"]


def test_r5_2_a_thought_is_in_no_wave_and_no_drawing() -> None:
    plan = checked(call(to="†state.a"), {"_tool": "think", "about": "†state.a"}, activities={"give": ANY})
    assert plan.waves == ((0,),)
    assert plan.edges == ()
    assert "think" not in plan.to_mermaid()


# R5.1: what goes nowhere

TEXT = {"type": "string"}
DEFINITION = {"context": [{"type": "system", "message": "Sum up."}], "schema": {}}


@pytest.mark.parametrize(
    ("raw", "more", "words"),
    [
        (call("sum"), {"tools": {"sum": {"_output": TEXT}}}, "its tool 'sum' says what it gives"),
        (call("sum"), {"activities": {"sum": {"properties": {"_output": TEXT}}}, "tools": {}}, "its tool 'sum'"),
        (
            call("sum", _activity="code"),
            {"activities": {"code": {"properties": {"_output": TEXT}}}},
            "its activity 'code' says what it gives",
        ),
        (call("sum", _delegate="model"), {"delegates": {"model": DEFINITION}}, "its delegate 'model' gives one"),
    ],
)
def test_r5_1_check_warns_of_a_result_that_goes_nowhere(raw: dict[str, Any], more: Any, words: str) -> None:
    value = submission(raw, **{key: part for key, part in more.items() if key not in ("activities", "delegates")})
    value = {**value, **({"delegates": more["delegates"]} if "delegates" in more else {})}
    if more.get("tools") == {}:
        value["tools"] = {}
    known = {"activities": more["activities"]} if "activities" in more else {}
    (finding,) = check_submission(value, **known).findings
    assert (finding.code, finding.severity, words in finding.message) == ("ACT405", "warning", True)
    assert finding.remedy == 'add an _outputPath, such as "†state.sum"'
    value["solution"]["calls"][0]["_outputPath"] = "†state.sum"
    assert check_submission(value, **known).findings == ()


@pytest.mark.parametrize("tool", [{}, {"_output": {"type": "null"}}, {"_output": {"const": None}}, {"_output": True}])
def test_r5_1_what_gives_nothing_loses_nothing(tool: dict[str, Any]) -> None:
    assert checked(call("log"), tools={"log": {**ANY, **tool}}).findings == ()


def test_r5_2_a_passing_thought_loses_nothing() -> None:
    assert checked({"_tool": "think", "_output": "x"}, tools={"think": {"_output": TEXT}}, activities={}).findings == ()


# SPEC R6.4-R6.6: what runs beside what, alternatives, and what is skipped.

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
    assert result.outcome(1).reason == "†state.a is missing, and no call can write it any more: call 0 failed"
    assert result.outcome(2).reason == "†state.b is missing, and no call can write it any more: call 1 was skipped"
    assert result.outcome(1).messages == ()


def test_r6_6_choosing_an_alternative_is_how_if_and_else_are_written() -> None:
    calls = [
        call("pick", to="†state.yes || †state.no"),
        call(to="†state.then", value="†state.yes"),
        call(to="†state.otherwise", value="†state.no"),
        call(to="†state.more", value="†state.then"),
        call(to="†state.joined", value="†state.more || †state.otherwise"),
    ]
    result = run(*calls, functions={"pick": lambda *_: Output("†state.no", "n")})
    assert statuses(result) == ["done", "skipped", "done", "skipped", "done"]
    assert result.data[None]["state"] == {"no": "n", "otherwise": "n", "joined": "n"}
    assert (
        result.outcome(1).reason == "†state.yes is missing, and no call can write it any more: call 0 did not write it"
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
    reason = "†state.a is missing, and no call can write it any more: call 0 failed, call 1 failed, call 2 failed"
    assert three.outcome(3).reason == reason
    assert four.outcome(4).reason == f"{reason} and 1 more"


def test_r6_6_what_was_there_and_is_gone_has_no_writer_to_be_named() -> None:
    calls = [call(value="†state.x.y", other="†state.p"), call(to="†state.x", value=5), call(to="†state.p")]
    result = run(*calls, context=[{"type": "state", "x": {"y": 1}}])
    told = "†state.x is a number"
    assert result.outcome(0).reason == f"†state.x.y is missing, and no call can write it any more; {told}"


# SPEC R7.1: what one call is given is bounded, and measured before it is copied.

MANY = {f"p{number}": "†data.big" for number in range(200)}


def decided(value: Any, limits: Limits, **properties: Any) -> Decision:
    """What is decided about a call where `†data.big` is the value."""
    context = [{"type": "data", "data": {"big": value, "small": 1}}]
    plan = checked(call(to="†state.a", **properties), context=context)
    fold = Fold()
    for number, message in enumerate(plan.submission.context):
        fold.append(message, f"message {number}")
    (decision,) = Execution.of(plan, plan.lanes[None], fold, limits=limits).decide(DATE)
    return decision


def refusal(decision: Decision) -> tuple[str, str]:
    assert isinstance(decision, Outcome)
    assert decision.error is not None
    return decision.error["type"], decision.error["message"]


@pytest.mark.parametrize("properties", [MANY, {"list": [*MANY.values()]}, {"_scopes": ["data"] * 200}])
def test_a_large_value_read_many_times_is_refused(properties: dict[str, Any]) -> None:
    limits = Limits(call_bytes=100_000)
    assert refusal(decided("x" * 1_000, limits, **properties)) == (
        "TooLarge",
        "it is given more than 100000 bytes (ACTS_LIMIT_CALL_BYTES)",
    )
    assert isinstance(decided("x" * 100, limits, **properties), Start)


@pytest.mark.parametrize("properties", [MANY, {"_scopes": ["data"] * 200}])
def test_objects_and_lists_are_counted_whatever_their_bytes(properties: dict[str, Any]) -> None:
    limits = Limits(containers=10_000)
    type_, message = refusal(decided([[]] * 1_000, limits, **properties))
    assert (type_, "more than 10000 objects and lists" in message) == ("TooLarge", True)
    assert isinstance(decided([0] * 1_000, limits, **properties), Start)
    assert isinstance(decided([[]] * 40, limits, **properties), Start)


@pytest.mark.parametrize("value", ["x" * 400, [None] * 90, {"é": [True] * 90}])
def test_what_a_template_comes_to_is_measured_as_it_is_written_out(value: Any) -> None:
    text = as_text(value)
    limits = Limits(call_bytes=2 * len(text.encode()) + 10)
    twice = decided(value, limits, p="†{data.big}: †{data.big}")
    assert isinstance(twice, Start)
    assert twice.parameters == {"p": f"{text}: {text}"}
    refused = decided(value, limits, p="†{data.big}", q=["†{data.big} †{data.big}"])
    assert refusal(refused) == ("TooLarge", f"it is given more than {limits.call_bytes} bytes (ACTS_LIMIT_CALL_BYTES)")


@pytest.mark.nightly
def test_nothing_is_copied_before_it_is_measured() -> None:
    limits = Limits(call_bytes=1_000_000)
    value = [[0]] * 100_000
    tracemalloc.start()
    try:
        assert refusal(decided(value, limits, **MANY))[0] == "TooLarge"
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    one = 100_000 * 72
    assert peak < 10 * one, f"{peak} bytes, where 200 copies have {200 * one}"


@pytest.mark.parametrize("make", [msgpack.packb, lambda value: repr(value).encode()], ids=["msgpack", "json"])
def test_the_objects_and_lists_of_a_submission_are_counted_before_they_are_made(make: Any) -> None:
    limits = Limits(containers=1_000, submission_bytes=16_000)
    just, beyond = make({"context": [[]] * 1_998}), make({"context": [[]] * 1_999})
    with_brackets = make({"context": ["[{" * 1_000]}).replace(b"'", b'"')
    assert decode(just.replace(b"'", b'"'), limits) == {"context": [[]] * 1_998}
    assert decode(with_brackets, limits) == {"context": ["[{" * 1_000]}
    with pytest.raises(Rejected, match="more than 2000 objects and lists"):
        decode(beyond.replace(b"'", b'"'), limits)
