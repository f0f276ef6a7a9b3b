"""Errors that are read (SPEC R3.1), and instances (R3.6)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts_celery.protocol import Conflict, Context, Rejected, check_submission
from acts_celery.protocol.analysis.analyse import analyse
from acts_celery.protocol.analysis.simulation import simulate
from acts_celery.protocol.calls.call import Call, make_call
from acts_celery.protocol.calls.tools import Executor, Runner
from acts_celery.protocol.engine.events import Status
from acts_celery.protocol.paths import MISSING
from acts_celery.protocol.plan.additions import SoFar, check_amendment
from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.plan.graph import SPELLED_OUT
from acts_celery.protocol.requests import read_answer
from acts_celery.protocol.state.kinds import Overlay

from .building import (
    FUNCTIONS,
    call,
    checked,
    plan_submission,
    problems,
    problems_of,
    run,
    run_plan,
    statuses,
    submission,
    value_at,
    written,
)
from .test_r12_requests import request

# Errors that are read (SPEC R3.1, R7.2): an error's handler is written as a call.

INSTANCES = [{"type": "state", "_instance": mark, "mark": mark} for mark in "①②"]
EARLIER = {"type": "error", "data": {"call": {"_tool": "earlier"}, "error": {"type": "E", "message": "earlier"}}}
HANDLER = call(to="†data.handled", value="†error.error.message")


def test_r3_1_a_handler_runs_where_a_call_before_it_has_failed() -> None:
    result = run(call("fail", to="†state.a"), call(to="†state.b", value="†state.a"), HANDLER)
    assert statuses(result) == ["failed", "skipped", "done"]
    assert result.data[None]["data"] == {"handled": "no reason"}


def test_r3_1_a_handler_is_skipped_where_none_of_them_fails() -> None:
    result = run(call(to="†state.a", value=1), HANDLER, call(to="†data.c", value="†data.handled"))
    assert statuses(result) == ["done", "skipped", "skipped"]
    assert result.outcome(1).reason == (
        "†error.error.message is not there and no call can bring it any more: no call listed before it has failed"
    )


def test_r6_6_what_an_error_does_not_hold_is_not_said_to_come_of_no_failure() -> None:
    result = run(call("fail", to="†state.a"), call(to="†state.b", value="†error.error.code"))
    reason = result.outcome(1).reason
    told = "†error.error.code is not there and no call can bring it any more; †error.error has 'type', 'message'"
    assert reason == told


def test_r3_1_a_reader_waits_for_all_calls_before_it_and_for_none_behind_it() -> None:
    calls = [call(), call(to="†state.a"), call(to="†state.b"), HANDLER, call("fail", to="†state.c")]
    graph = checked(*calls).lanes[None].graph
    assert graph.before(3) == (0, 1, 2)
    assert graph.before(4) == ()


def test_r3_1_a_reader_behind_many_calls_waits_for_one_barrier() -> None:
    many = SPELLED_OUT + 5
    plan = checked(
        *[call(to=f"†state.k{index}") for index in range(many)], HANDLER, call(to="†state.z", _scopes=["error"])
    )
    graph = plan.lanes[None].graph
    assert graph.before(many) == tuple(range(many))
    assert graph.before(many + 1) == tuple(range(many + 1))
    assert sum(len(list(graph.directly_before(node))) for node in (many, many + 1)) == 2


def test_r3_1_an_error_that_is_there_already_is_not_taken_before_those_that_may_come() -> None:
    result = run(call("fail", to="†state.a"), HANDLER, context=[EARLIER])
    assert result.data[None]["data"] == {"handled": "no reason"}
    assert run(call(to="†state.a"), HANDLER, context=[EARLIER]).data[None]["data"] == {"handled": "earlier"}


def test_r4_4_what_an_alternative_has_taken_is_no_error() -> None:
    result = run(call("fail", to="†state.a || †state.why"), HANDLER)
    assert statuses(result) == ["done", "skipped"]


def test_r3_1_who_stands_before_all_others_reads_no_error_of_theirs() -> None:
    (problem,) = problems_of(HANDLER, call("fail", to="†state.a"))
    assert problem.pointer == "/solution/calls/0/value"
    assert problem.message == (
        "unresolvable reference †error.error.message: it is not in the context and no other call writes it; a call "
        "reads the errors of the calls of its instance that are listed before it"
    )
    result = run(
        call(to="†state.a", value="†error || †input.n"),
        call("fail", to="†state.b"),
        context=[{"type": "input", "n": 1}],
    )
    assert [entry.outcome.index for entry in result.log] == [0, 1]
    assert result.data[None]["state"] == {"a": 1}


def test_r5_2_a_passing_thought_brings_no_error() -> None:
    assert "unresolvable" in problems_of({"_tool": "think"}, HANDLER, activities={"give": {}})[0].message


def test_r6_5_an_error_is_the_way_out_where_the_result_does_not_come() -> None:
    calls = [call("fail", to="†state.a"), call(to="†state.b", value="†state.a || †error.error.type")]
    assert run(*calls).data[None]["state"] == {"b": "LookupError"}
    assert run(call(to="†state.a", value=2), calls[1]).data[None]["state"] == {"a": 2, "b": 2}


def test_r6_2_who_waits_for_a_handler_before_it_closes_a_cycle() -> None:
    (problem,) = problems_of(call(to="†state.a", value="†data.handled"), HANDLER)
    assert problem.message == (
        "the calls wait for each other in a cycle: call 0 (give) waits for call 1 (give) waits for call 0 (give)"
    )


def test_r3_1_the_errors_are_those_of_the_readers_instance() -> None:
    calls = [
        call("fail", to="†state.a", _instance="①"),
        call(to="†state.b", value="†error.call._outputPath", _instance="①"),
        call(to="†state.b", value="†error || †state.mark", _instance="②"),
    ]
    result = run(*calls, context=INSTANCES)
    assert (result.data["①"]["state"]["b"], result.data["②"]["state"]["b"]) == ("†state.a", "②")
    lanes = checked(call("fail", to="†state.g"), *calls, context=INSTANCES).lanes
    assert lanes["①"].graph.before(2) == (1,), "and of no global call"


def test_r3_1_a_global_reader_waits_for_no_call_of_an_instance() -> None:
    calls = [call("fail", to="†state.a", _instance="①"), call(to="†state.b"), HANDLER]
    plan = checked(*calls, context=INSTANCES)
    assert plan.lanes[None].graph.before(2) == (1,)
    assert run_plan(plan).statuses[None] == {1: Status.DONE, 2: Status.SKIPPED}


def test_r10_2_a_plans_handler_runs_where_a_call_of_its_instance_has_failed() -> None:
    def pick(parameters: Any, context: Any) -> Any:
        return {"①": 1}[parameters["value"]]

    calls = [call("pick", to="†state.n", value="†state.mark"), HANDLER]
    plan = check_submission(plan_submission(*calls, context=INSTANCES))
    result = run_plan(plan, functions={**FUNCTIONS, "pick": pick})
    assert [statuses(result, mark) for mark in "①②"] == [["done", "skipped"], ["failed", "done"]]
    assert "handled" in result.data["②"]["data"]


def test_r4_10_the_error_of_an_element_is_read() -> None:
    calls = [
        call("fail_at", to="†state.all", value="†input.items", _each="value"),
        call(to="†data.element", value="†error.error.element"),
    ]

    def fail_at(parameters: Any, context: Any) -> Any:
        if parameters["value"] == 2:
            raise LookupError("two")
        return parameters["value"]

    result = run(*calls, functions={**FUNCTIONS, "fail_at": fail_at}, context=[{"type": "input", "items": [1, 2, 3]}])
    assert result.data[None]["state"] == {"all": [1, None, 3]}
    assert result.data[None]["data"] == {"element": 1}


@pytest.mark.parametrize("scope", ["error", "†error.error"])
def test_r8_3a_who_has_errors_in_scope_waits_and_need_not_find_any(scope: str) -> None:
    calls = [call("fail", to="†state.a"), call("see", to="†state.seen", _scopes=[scope])]
    plan = checked(*calls)
    assert plan.lanes[None].graph.before(1) == (0,)
    assert [finding.code for finding in analyse(plan) if finding.code.startswith("ACT4")] == []
    assert "error" in run_plan(plan).data[None]["state"]["seen"]
    assert run(call(to="†state.a"), calls[1]).data[None]["state"]["seen"] == {}


def test_r8_3a_a_scope_wait_for_errors_that_would_close_a_cycle_is_left_out() -> None:
    plan = checked(call(to="†state.a", value="†state.b"), call(to="†state.b", _scopes=["error"]))
    assert plan.dropped_waits == ((1, 0),)


def test_r4_9_the_output_may_read_an_error_of_a_global_call() -> None:
    value = submission(call("fail", to="†state.a"))
    value["solution"]["output"] = "†error || †state.a"
    assert check_submission(value).submission.output == "†error || †state.a"
    inside = submission(call("fail", to="†state.a", _instance="①"), context=INSTANCES)
    inside["solution"]["output"] = "†error"
    assert "no global call writes it" in problems(inside)[0].message


def test_r13_1_in_a_loop_no_call_reads_an_error_of_its_own_tick() -> None:
    any_value: dict[str, Any] = {"properties": {"value": {}}}
    asked = request({"tools": ["fail", "give"]}, activities={"fail": any_value, "give": any_value})
    value = {
        "calls": [call("fail", to="†state.a"), HANDLER, call(to="†state.b", value="†error || †state.a")],
        "output": None,
    }
    answer = read_answer(asked, value)
    ((at, message),) = [(error.pointer, error.message) for error in answer.errors]
    assert (at, [one.index for one in answer.calls]) == ("/calls/1/value", [0, 2])
    assert message.endswith("; the errors of a tick's calls can be read in the next tick")
    assert answer.layout.lanes[None].graph.before(2) == (0,), "for what it writes, and not for its error"
    later = read_answer(asked, value, [EARLIER])
    assert later.errors == ()
    assert later.layout.lanes[None].graph.before(1) == ()


def at_work(index: int) -> Call:
    return make_call(index, call(to="†state.a"), {}, Runner(Executor.ACTIVITY, "give"))


def amended(*messages: Any, **so_far: Any) -> tuple[int, ...]:
    """What a handler waits for that is added to a run."""
    known = Environment(activities={"give": {}}, delegates=())
    return check_amendment({"calls": [HANDLER]}, SoFar(messages, first=7, **so_far), known).lanes[None].graph.before(7)


def test_r11_7_a_handler_that_is_added_waits_for_the_calls_before_it_that_have_not_ended() -> None:
    assert amended(begun={None: (at_work(3),)}, kept={None: (at_work(4),)}) == (3, 4)
    assert amended(EARLIER, begun={}) == ()
    with pytest.raises(Rejected, match=re.escape("it is not in the context")):
        amended(begun={})
    with pytest.raises(Rejected, match="can be read in the next tick"):
        amended(begun={None: (at_work(3),)}, config={"tokens": 1_000})


def test_r6_7_an_arrow_says_that_an_error_is_read() -> None:
    plan = checked(call("fail", to="†state.a"), call(), call(to="†state.c", value="†state.a || †error"))
    arrows = [line.strip() for line in plan.to_mermaid().splitlines() if "-->" in line]
    assert arrows == ['c0 -->|"†state.a"| c2', 'c1 -->|"†error ?"| c2']
    assert '    c1 -.->|"if †error"| c2' in plan.to_mermaid(annotated=True)


def test_r6_7_a_dry_run_skips_a_handler() -> None:
    assert [one.status for one in simulate(checked(call(to="†state.a"), HANDLER)).calls] == [
        Status.DONE,
        Status.SKIPPED,
    ]


# SPEC R3.6: what a reader in an instance sees, whenever the messages came.

GLOBAL = {"type": "input", "a": 1, "shared": {"x": 1, "y": 1}}
MINE = {"type": "input", "_instance": "①", "b": 2, "shared": {"y": 2}}
YOURS = {"type": "input", "_instance": "②", "b": 3}


def test_r3_6_a_reader_sees_the_global_messages_and_its_own() -> None:
    context = Context([GLOBAL, MINE, YOURS])
    assert context.data("①") == {"input": {"a": 1, "b": 2, "shared": {"x": 1, "y": 2}}}
    assert context.data("②") == {"input": {"a": 1, "b": 3, "shared": {"x": 1, "y": 1}}}


def test_r3_6_a_reader_without_an_instance_sees_global_messages_only() -> None:
    assert Context([MINE, GLOBAL, YOURS]).data() == {"input": {"a": 1, "shared": {"x": 1, "y": 1}}}


def test_r3_6_a_targeted_input_overrides_the_global_one_whatever_the_order_of_arrival() -> None:
    expected = {"a": 1, "b": 2, "shared": {"x": 1, "y": 2}}
    assert Context([GLOBAL, MINE]).resolve("†input", instance="①") == expected
    assert Context([MINE, GLOBAL]).resolve("†input", instance="①") == expected


def test_r3_6_what_arrives_globally_later_is_seen_below_ones_own() -> None:
    context = Context([{**written("†state.l", 1, "push"), "_instance": "①"}])
    assert context.resolve("†state.l", instance="①") == [1]
    context.append(written("†state.l", 0, "push"))
    assert context.resolve("†state.l", instance="①") == [0, 1]
    context.append(written("†data.other", 1))
    assert context.data("①") == {"state": {"l": [0, 1]}, "data": {"other": 1}}
    assert context.data() == {"state": {"l": [0]}, "data": {"other": 1}}


def test_r3_6_below_a_kind_that_an_instance_has_replaced_nothing_global_is_seen_whenever_it_was_read() -> None:
    context = Context([{**written("†state", {"own": 1}), "_instance": "①"}])
    assert context.resolve("†state", instance="①") == {"own": 1}
    context.append(written("†state.deep.later", 2))
    assert context.resolve("†state", instance="①") == {"own": 1}
    assert value_at(context, "†state.deep.later", "①") is MISSING
    assert context.resolve("†state") == {"deep": {"later": 2}}


def test_r3_6_a_conflict_with_what_arrives_globally_is_the_instances_own() -> None:
    context = Context([{**written("†state.n", 1, "push"), "_instance": "①"}, written("†state.n", 5)])
    assert context.resolve("†state.n") == 5
    assert context.resolve("†state.n", instance="②") == 5
    with pytest.raises(Conflict):
        context.resolve("†state.n", instance="①")
    context.append(written("†state.n", [0]))
    assert context.resolve("†state.n", instance="①") == [0, 1]


def test_r3_6_a_global_conflict_is_seen_by_all_until_an_instance_replaces_it_for_itself() -> None:
    context = Context([written("†state.n", 5), written("†state.n", 1, "push"), {"type": "text", "_instance": "②"}])
    context.append({**written("†state.n", "mine"), "_instance": "①"})
    assert context.resolve("†state.n", instance="①") == "mine"
    for instance in (None, "②"):
        with pytest.raises(Conflict):
            context.resolve("†state.n", instance=instance)
    assert len(context.fold("①").conflicts()) == 0
    assert len(context.fold("②").conflicts()) == 1


def test_r3_6_an_instance_that_does_not_occur_sees_the_global_values() -> None:
    context = Context([GLOBAL, MINE])
    assert context.data("⑨") == context.data()
    assert context.instances == ("①",)
    assert value_at(context, "†input.b", "⑨") is MISSING


def test_r3_6_what_is_said_of_a_kind_globally_holds_for_instances_that_say_nothing() -> None:
    said = {"type": "state", "description": "everybody's", "schema": {"type": "object"}}
    context = Context([said, MINE, {"type": "state", "_instance": "②", "description": "mine", "schema": True}])
    assert (context.fold("①").description("state"), context.fold("①").schema("state")) == (
        "everybody's",
        {"type": "object"},
    )
    assert (context.fold("②").description("state"), context.fold("②").schema("state")) == ("mine", True)


# What an instance has read already, when something comes globally


def seen_before_and_after(own: Mapping[str, Any], late: Mapping[str, Any], *early: Mapping[str, Any]) -> list[Any]:
    """The state of instance ①: after the early global messages and its own one, and after the late global one."""
    context = Context([*early, {**own, "_instance": "①"}])
    seen = [context.resolve("†state", instance="①")]
    context.append(late)
    return [*seen, context.resolve("†state", instance="①")]


def test_r3_6_a_late_global_value_beside_ones_own_is_seen_and_ones_own_stays() -> None:
    assert seen_before_and_after(written("†state.a.b", 1), written("†state.a.c", 2), written("†state.a.d", 0)) == [
        {"a": {"b": 1, "d": 0}},
        {"a": {"b": 1, "d": 0, "c": 2}},
    ]


def test_r3_6_a_late_global_value_inside_what_one_has_set_is_not_seen() -> None:
    own, late = written("†state.a", {"mine": 1}), written("†state.a.b", 2)
    assert seen_before_and_after(own, late, written("†state.a.b", 0))[1] == {"a": {"mine": 1}}


def test_r3_6_a_late_global_value_in_a_list_that_one_has_written_into_is_seen() -> None:
    early = written("†state.l", [{"x": 1}, {"x": 1}])
    assert seen_before_and_after(written("†state.l.0.x", 2), written("†state.l.1.x", 3), early) == [
        {"l": [{"x": 2}, {"x": 1}]},
        {"l": [{"x": 2}, {"x": 3}]},
    ]


def test_r3_6_an_index_of_ones_own_means_a_key_once_there_is_an_object_below() -> None:
    """Also where what was a list without it has become an object since."""
    own = {**written("†state.a.0", {"x": 1}), "_instance": "①"}
    merged = {"type": "state", "a": {"k": 2}, "_instance": "①"}
    late = written("†state.a.b", 3)
    read_in_between = Context([own, merged])
    assert read_in_between.resolve("†state", instance="①") == {"a": {"k": 2}}
    read_in_between.append(late)
    expected = {"a": {"0": {"x": 1}, "k": 2, "b": 3}}
    assert Context([own, merged, late]).resolve("†state", instance="①") == expected
    assert read_in_between.resolve("†state", instance="①") == expected


def test_r3_6_a_global_conflict_is_over_for_instances_too_when_it_is_replaced_globally() -> None:
    context = Context([written("†state.n", 5), written("†state.n", 1, "push")])
    context.append({**written("†state.own", 1), "_instance": "①"})
    with pytest.raises(Conflict):
        context.resolve("†state.n", instance="①")
    context.append(written("†state.n", 7))
    assert context.resolve("†state", instance="①") == {"n": 7, "own": 1}


def test_r3_6_a_text_that_was_begun_is_no_place_for_anything_else() -> None:
    context = Context([written("†state.t", "a", "concat"), written("†state.t", 1, "push")])
    with pytest.raises(Conflict):
        context.resolve("†state.t")


# Overlays


@given(*[st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3))] * 2)
def test_an_overlay_is_an_object_like_any_other(below: dict[str, int], own: dict[str, int]) -> None:
    overlay, plain = Overlay(below), {**below, **own}
    before = dict(below)
    for key, value in own.items():
        overlay[key] = value
    assert (len(overlay), list(overlay), dict(overlay.items())) == (len(plain), list(plain), plain)
    assert (list(overlay.keys()), list(overlay.values())) == (list(plain), list(plain.values()))
    assert [key in overlay for key in "abcd"] == [key in plain for key in "abcd"]
    assert [overlay.get(key) for key in "abcd"] == [plain.get(key) for key in "abcd"]
    assert overlay == plain
    assert overlay.copy() == plain
    assert overlay != {**plain, "e": 1}
    assert json.loads(json.dumps(overlay.copy())) == plain
    assert below == before, "what is below is not changed"
