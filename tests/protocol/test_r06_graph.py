"""SPEC R6: the graph."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from protocol import Output, Plan, check_submission
from protocol.execution import Execution, Start, Status, Success
from protocol.graph import SPELLED_OUT, Graph
from protocol.resolution import Fold

from .building import (
    ANY,
    DATE,
    FUNCTIONS,
    call,
    checked,
    plan_submission,
    pointers,
    problems,
    problems_of,
    run,
    statuses,
)
from .driver import Driver

X = [{"type": "state", "x": 0}]


def waits(plan: Plan, index: int, lane: str | None = None) -> tuple[int, ...]:
    """The calls a call waits for."""
    return plan.lanes[lane].graph.before(index)


# R6.1


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("†state.a", "†state.a"),
        ("†state.a", "†state.a.b.c"),
        ("†state.a.b.c", "†state.a"),
        ("†state", "†state.a"),
        ("†state.a", "†state"),
        ("†state.l.0", '†state.l["0"]'),
        ("†state.no || †state.a", "†state.a"),
        ("†state.no && †state.a", "†state.a"),
        ("†state.a", "†input.p || †state.a"),
        ("†state.a", "†state.a && †input.p"),
    ],
)
def test_r6_1_a_call_waits_for_those_that_write_at_above_or_below_what_it_reads(written: str, read: str) -> None:
    plan = checked(call(to=written), call(value={"in": [read]}), context=[{"type": "input", "p": 1}])
    assert plan.edges == ((0, 1),)


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("†state.ab", "†state.a"),
        ("†data.a", "†state.a"),
        ("†state.l.1", "†state.l.0"),
        ("†state.a.b", "†state.a.c"),
    ],
)
def test_r6_1_a_call_does_not_wait_for_those_that_write_elsewhere(written: str, read: str) -> None:
    context = [{"type": "state", "a": {"c": 1}, "l": [1]}]
    assert checked(call(to=written), call(value=read), context=context).edges == ()


def test_r6_1_of_several_writers_it_waits_for_those_listed_before_it() -> None:
    plan = checked(call(to="†state.a"), call(to="†state.a.b"), call(value="†state.a"), call(to="†state.a"))
    assert waits(plan, 2) == (0, 1)


def test_r6_1_only_without_one_before_it_waits_for_those_after_unless_the_context_holds_the_value() -> None:
    calls = [call(value="†state.x"), call(to="†state.x"), call(to="†state.x.y")]
    assert waits(checked(*calls), 0) == (1, 2)
    assert waits(checked(*calls, context=X), 0) == ()
    assert waits(checked(call(to="†state.x"), *calls, context=X), 1) == (0,)


def test_r6_1_a_call_never_waits_for_itself() -> None:
    plan = checked(call(to="†state.x", value="†state.x"), context=X)
    assert plan.edges == ()
    plan = checked(*[call(to="†state.x", value="†state.x")] * 3, context=X)
    assert plan.edges == ((0, 1), (0, 2), (1, 2))


def test_r6_1_calls_of_an_instance_wait_for_their_own_and_for_global_writers() -> None:
    context = [{"type": "text", "_instance": name} for name in ("①", "②")]
    plan = checked(
        call(to="†state.a"),
        call(to="†state.b", _instance="①"),
        call(to="†state.b", _instance="②"),
        call(value=["†state.a", "†state.b"], _instance="①"),
        call(value="†state.a"),
        context=context,
    )
    assert waits(plan, 3, "①") == (0, 1)
    assert waits(plan, 4) == (0,)
    assert plan.awaited == {0}


def test_r6_1_a_global_call_does_not_wait_for_those_of_instances() -> None:
    found = problems_of(
        call(to="†state.a", _instance="①"), call(value="†state.a"), context=[{"type": "text", "_instance": "①"}]
    )
    assert pointers(found) == ["/solution/calls/1/value"]


def test_r6_1_what_the_context_holds_is_asked_for_each_instance() -> None:
    context = [{"type": "state", "_instance": "①", "x": 1}, {"type": "text", "_instance": "②"}]
    readers = [call(value="†state.x", _instance=name) for name in "①②"]
    writers = [call(to="†state.x", _instance=name) for name in "①②"]
    plan = checked(*readers, *writers, context=context)
    assert (waits(plan, 0, "①"), waits(plan, 1, "②")) == ((), (3,))


def test_r6_1_the_listing_of_writers_after_readers_does_not_matter_to_the_values() -> None:
    calls = [call(to="†state.c", value="†state.b"), call(to="†state.b", value="†state.a"), call(to="†state.a", value=1)]
    assert run(*calls).data[None]["state"] == {"a": 1, "b": 1, "c": 1}


def test_r6_1_reading_and_writing_one_path_goes_in_the_order_listed() -> None:
    increment = call("increment", to="†state.x", value="†state.x")
    plan = checked(*[increment] * 20, context=X)
    functions = {"increment": lambda parameters, _: parameters["value"] + 1}
    result = Driver(plan, functions, random=Random(1)).run()
    assert result.data[None]["state"] == {"x": 20}
    assert [entry.outcome.index for entry in result.log] == list(range(20))


def test_r6_1_many_writers_are_waited_for_just_like_a_few() -> None:
    many = 3 * SPELLED_OUT
    writers = [call(to=f"†state.l.k{i}", value=i) for i in range(many)]
    plan = checked(call(value="†state.l.k0", to="†data.first"), *writers, *[call(to="†data.all", value="†state.l")] * 2)
    assert waits(plan, 0) == (1,)
    for reader in (many + 1, many + 2):
        assert waits(plan, reader) == tuple(range(1, many + 1))
        assert plan.lanes[None].graph.writers(reader, plan.calls[reader].reads[0][1].references[0]) == waits(
            plan, reader
        )
    assert plan.lanes[None].graph.awaited == set(range(1, many + 1))
    assert len(plan.waves) == 2
    result = Driver(plan, FUNCTIONS, random=Random(2)).run()
    assert result.data[None]["data"]["all"] == {f"k{i}": i for i in range(many)}


def test_r6_1_many_writers_listed_after_their_reader_are_waited_for() -> None:
    writers = [call(to=f"†state.l.k{i}", value=i) for i in range(3 * SPELLED_OUT)]
    plan = checked(call(to="†data.all", value="†state.l"), *writers)
    assert waits(plan, 0) == tuple(range(1, len(writers) + 1))
    result = Driver(plan, FUNCTIONS, random=Random(3)).run()
    assert len(result.data[None]["data"]["all"]) == len(writers)


# R6.2


def test_r6_2_a_cycle_is_rejected_and_names_the_calls_on_it_in_order() -> None:
    calls = [
        call("free", to="†state.z"),
        call("first", to="†state.a", value="†state.c"),
        call("second", to="†state.b", value="†state.a"),
        call("third", to="†state.c", value="†state.b"),
    ]
    (problem,) = problems_of(*calls)
    assert problem.pointer == "/solution/calls/1"
    assert (
        "call 1 (first) waits for call 3 (third) waits for call 2 (second) waits for call 1 (first)" in problem.message
    )


def test_r6_2_a_call_that_only_leads_to_a_cycle_is_not_named_as_on_it() -> None:
    leading = [call(to="†state.x", value="†state.y"), call(to="†state.y", value="†state.a")]
    pair = [call(to="†state.a", value="†state.b"), call(to="†state.b", value="†state.a")]
    (problem,) = problems_of(*leading, *pair)
    assert problem.pointer == "/solution/calls/2"
    assert problem.message.endswith("call 2 (give) waits for call 3 (give) waits for call 2 (give)")


def test_r6_2_every_cycle_is_named_at_once() -> None:
    pair = [call(to="†state.a", value="†state.b"), call(to="†state.b", value="†state.a")]
    other = [call(to="†data.a", value="†data.b"), call(to="†data.b", value="†data.a")]
    assert pointers(problems_of(*pair, *other)) == ["/solution/calls/0", "/solution/calls/2"]


def test_r6_2_a_cycle_through_many_writers_names_calls_only() -> None:
    writers = [call(to=f"†state.l.k{i}") for i in range(3 * SPELLED_OUT)]
    last = [call(to="†state.m", value="†state.l"), call(to="†state.l.more", value="†state.m")]
    found = problems_of(call(to="†state.l.first", value="†state.m"), *writers, *last)
    assert len(found) == 1
    assert "-" not in found[0].message.replace("call ", "")
    assert f"call 0 (give) waits for call {len(writers) + 1} (give) waits for call 0 (give)" in found[0].message


def test_r6_2_a_narrow_scope_can_close_a_cycle() -> None:
    found = problems_of(call(to="†state.a", _scopes=["†state.b"]), call(to="†state.b", value="†state.a"))
    assert "cycle" in found[0].message


def test_r6_2_what_the_context_holds_breaks_a_cycle() -> None:
    calls = [call(to="†state.y", value="†state.x"), call(to="†state.x", value="†state.y")]
    assert "cycle" in problems_of(*calls)[0].message
    assert run(*calls, context=X).data[None]["state"] == {"x": 0, "y": 0}


# R6.3


@pytest.mark.parametrize(
    "expression",
    [
        "†state.no",
        "†state.x && †state.no",
        "†state.no && †state.x",
        "†state.no || †input.no",
        "†state.x.deep",
        "†state.out",
    ],
)
def test_r6_3_a_reference_that_nothing_can_satisfy_is_rejected(expression: str) -> None:
    found = problems_of(call(to="†state.out", value={"in": [expression]}), context=X)
    assert pointers(found) == ["/solution/calls/0/value/in/0"]
    assert str(expression) in found[0].message


@pytest.mark.parametrize(
    "expression", ["†state.no || †state.x", "†state.x || †state.no", "†state.no && †input.no || †state.later.x"]
)
def test_r6_3_unless_an_alternative_can_be_satisfied(expression: str) -> None:
    plan = checked(call(value=expression), call(to="†state.later"), context=X)
    assert len(plan.calls) == 2


def test_r6_3_what_only_other_instances_can_bring_is_rejected_naming_the_instance() -> None:
    context = [{"type": "state", "_instance": "①", "x": 1}, {"type": "text", "_instance": "②"}]
    (problem,) = problems(plan_submission(call(value="†state.x"), context=context))
    assert problem.pointer == "/context/2/calls/0/value"
    assert "②" in problem.message


def test_r6_3_a_narrow_scope_need_not_exist() -> None:
    assert statuses(run(call("see", to="†data.seen", _scopes=["†state.nowhere"]))) == ["done"]


# R6.4


def test_r6_4_independent_calls_are_started_together() -> None:
    plan = checked(call(to="†state.a"), call(to="†state.b"), call(value="†state.a", to="†state.c"), call())
    execution = Execution(plan.calls, plan.lanes[None].graph, Fold(), plan.tools)
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


def executing(plan: Plan) -> tuple[Execution, Fold]:
    """The global lane of a plan at its start, everything that is ready started."""
    fold = Fold()
    for message in plan.submission.context:
        fold.append(message, "a message")
    execution = Execution(plan.calls, plan.lanes[None].graph, fold, plan.tools)
    for decision in execution.decide(DATE):
        assert isinstance(decision, Start)
        assert execution.record(decision.call.index, Status.RUNNING)
    return execution, fold


def test_r6_5_or_waits_for_the_first_and_does_not_wait_for_the_second_when_it_has_come() -> None:
    execution, fold = executing(checked(call(to="†state.a"), call(to="†state.b"), call(value="†state.a || †state.b")))
    finished(execution, fold, 0, "first")
    start = start_of(execution, 2)
    assert start is not None
    assert start.parameters == {"value": "first"}


def test_r6_5_or_does_not_take_the_second_while_the_first_may_still_come() -> None:
    plan = checked(call(to="†state.a || †state.c"), call(to="†state.b"), call(value="†state.a || †state.b"))
    execution, fold = executing(plan)
    finished(execution, fold, 1, "second")
    assert execution.decide(DATE) == []
    finished(execution, fold, 0, Output("†state.c", "elsewhere"))
    start = start_of(execution, 2)
    assert start is not None
    assert start.parameters == {"value": "second"}


def test_r6_5_and_waits_for_all() -> None:
    execution, fold = executing(checked(call(to="†state.a"), call(to="†state.b"), call(value="†state.b && †state.a")))
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
    execution, fold = executing(plan)
    finished(execution, fold, 0, Output("†state.no", 1))
    start = start_of(execution, 2)
    assert start is not None
    assert start.parameters == {"value": 0}


def test_r6_5_a_start_is_given_out_once_however_many_writers_end_afterwards() -> None:
    plan = checked(call(to="†state.a"), call(to="†state.b"), call(value="†state.a || †state.b"))
    execution, fold = executing(plan)
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
    execution, _ = executing(
        checked(call("fail", to="†state.a"), call(to="†state.b"), call(value=["†state.a", "†state.b"]))
    )
    assert execution.record(0, Status.FAILED)
    (outcome,) = execution.decide(DATE)
    assert not isinstance(outcome, Start)
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
    result = run(call("see", to="†data.seen", _scopes=["†state.a", "†state.x"]), call("fail", to="†state.a"), context=X)
    assert statuses(result) == ["done", "failed"]
    assert result.data[None]["data"]["seen"] == {"state": {"x": 0}}
    assert [entry.outcome.index for entry in result.log] == [1, 0]


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


# R6.7


def test_r6_7_waves_list_what_can_run_at_the_same_time() -> None:
    plan = checked(
        call(to="†state.a"),
        call(to="†state.c", value="†state.b"),
        call(to="†state.b", value="†state.a"),
        call(to="†state.d", value="†state.a"),
        call(event="†state.c"),
        call(),
    )
    assert plan.waves == ((0, 5), (2, 3), (1,), (4,))


def test_r6_7_waves_of_instances_come_after_the_global_calls_they_wait_for() -> None:
    context = [{"type": "text", "_instance": "①"}]
    plan = checked(
        call(to="†state.a"),
        call(to="†state.b", value="†state.a"),
        call(value="†state.b", _instance="①"),
        context=context,
    )
    assert plan.waves == ((0,), (1,), (2,))


def test_r6_7_the_graph_is_had_as_data() -> None:
    plan = checked(call(to="†state.a"), call(value="†state.a"))
    assert plan.to_dict() == {"waves": [[0], [1]], "edges": [[0, 1]], "findings": []}


def test_r6_7_of_many_writers_in_a_row_the_edges_name_the_nearest() -> None:
    plan = checked(*[call(to="†state.x", value="†state.x")] * 50, context=X)
    assert (48, 49) in plan.edges
    assert len(plan.edges) < 50 * SPELLED_OUT
    assert len(plan.waves) == 50


def test_r6_7_the_graph_is_drawn_as_a_mermaid_flowchart() -> None:
    plan = checked(
        call("find", to="†state.good || †state.bad"),
        {"_tool": 'say "<hi>"\n#1;', "_delegate": "d", "value": "†state.good", "_outputPath": "†state.said"},
        {"_tool": "think", "_output": 1, "_outputPath": "†state.t", "about": "†state.bad"},
        call("log", event="†state.said"),
        activities={"find": ANY, "log": ANY},
    )
    assert plan.to_mermaid().splitlines() == [
        "flowchart TD",
        '    c0["0 find"]',
        '    c1[["1 say &quot;&lt;hi&gt;&quot; #35;1;"]]',
        '    c2(["2 think"])',
        '    c3[/"3 log"/]',
        '    c0 -->|"†state.good ?"| c1',
        '    c0 -->|"†state.bad ?"| c2',
        '    c1 -->|"†state.said"| c3',
    ]


def test_r6_7_instances_of_one_call_are_one_node() -> None:
    context = [{"type": "text", "_instance": name} for name in "①②③"]
    drawing = check_submission(plan_submission(call(), call(_instance="②"), context=context)).to_mermaid()
    assert '    c0[/"0 give<br/>× 3 instances"/]' in drawing.splitlines()
    assert '    c1[/"1 give<br/>②"/]' in drawing.splitlines()


def test_r6_7_a_graph_without_calls_is_empty() -> None:
    graph = Graph({})
    assert (graph.before(0), list(graph.cycles()), graph.levels({}), graph.awaited) == ((), [], {}, frozenset())
    assert checked().waves == ()
