"""Errors that are read (SPEC R3.1), instances (R3.6), and what is found in valid plans (R6.7)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts_celery.protocol import Conflict, Context, Rejected, check_submission
from acts_celery.protocol.analysis.findings import CATALOGUE
from acts_celery.protocol.analysis.simulation import simulate
from acts_celery.protocol.calls.call import Call, make_call
from acts_celery.protocol.calls.tools import Executor, Runner
from acts_celery.protocol.engine.events import Status
from acts_celery.protocol.facade import analyse
from acts_celery.protocol.limits import SPELLED_OUT
from acts_celery.protocol.paths import MISSING
from acts_celery.protocol.plan.additions import SoFar, check_amendment
from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.requests import read_answer
from acts_celery.protocol.state.kinds import Overlay

from .building import (
    ANY,
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

# Errors that are read (SPEC R3.1), and instances (R3.6).

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
        "†error.error.message is missing, and no call can write it any more: no call listed before it has failed"
    )


def test_r6_6_what_an_error_does_not_hold_is_not_said_to_come_of_no_failure() -> None:
    result = run(call("fail", to="†state.a"), call(to="†state.b", value="†error.error.code"))
    reason = result.outcome(1).reason
    told = "†error.error.code is missing, and no call can write it any more; †error.error has 'type', 'message'"
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


# What is found in valid plans (SPEC R6.7): each code, and nothing in sensible plans.

# Analysis: every code of the catalogue has a submission that gives it, and one nearly the same that does not.

Submission = dict[str, Any]

GIVES: dict[str, Any] = {
    "type": "object",
    "properties": {
        "_output": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "tags": {"type": "array"}},
        }
    },
}
TAKES: dict[str, Any] = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "userId": {}, "more": {}},
}
PINNED: dict[str, Any] = {"type": "object", "properties": {"_outputPath": {"enum": ["†state.a", "†state.b"]}}}
STATE: dict[str, Any] = {"type": "state", "user": {"name": "Alex", "age": 36}}


def user(text: Any = "†state.user.name", **more: Any) -> Submission:
    """A call that takes a text, beside a user in the state."""
    return submission(call("take", "†state.done", text=text, **more), tools={"take": TAKES}, context=[STATE])


def chain(read: str, **more: Any) -> Submission:
    """A call that reads of what another one gives."""
    calls = call("get", "†state.x", **more), call("take", "†state.y", text=read)
    return submission(*calls, tools={"get": GIVES, "take": TAKES})


def kind(schema: Any, *paths: str) -> Submission:
    """Calls that write into a state with a schema."""
    calls = [call("get", path) for path in paths]
    return submission(*calls, tools={"get": GIVES}, context=[{"type": "state", "schema": schema, "data": {}}])


def delegated(schema: Any) -> Submission:
    """A delegate that declares what it is given."""
    definition = {"context": [{"type": "input", "schema": {"properties": {"text": schema}}}], "schema": {}}
    calls = call("get", "†state.x"), call("ask", "†state.y", text="†state.x.age", _delegate="expert")
    tools = {"get": GIVES, "ask": {"properties": {"_delegate": {}}}}
    return submission(*calls, tools=tools, delegates={"expert": definition})


def advised(moment: str) -> Submission:
    """An advisor that is asked at a moment."""
    return submission(call(), context=[{"type": "advisor", "id": "a", "on": moment}])


def asking(tool: dict[str, Any]) -> Submission:
    """A request with this tool."""
    return {"context": [], "schema": {"type": "string"}, "config": {}, "tools": {"get": tool}}


def large(properties: int) -> Submission:
    """A reader whose schema has so many parts."""
    takes = {"properties": {"text": {"type": "string"}} | {f"p{n}": {"type": "string"} for n in range(properties)}}
    return chain("†state.x.name") | {"tools": {"get": GIVES, "take": takes}}


def scoped(scope: str, **more: Any) -> Submission:
    """A call that is shown a scope of a user's state."""
    return submission(call("see", "†data.seen", _scopes=[scope], **more), context=[STATE])


def of_instance(**more: Any) -> Submission:
    """A scope that only an instance holds."""
    context = [{"type": "state", "_instance": "①", "order": 1}, {"type": "data", "x": 1}]
    return submission(call("see", "†data.seen", _scopes=["†state.order"], **more), context=context)


def two_writers(scope: str) -> Submission:
    """A call that needs one of two results."""
    calls = call("get", "†state.a"), call("get", "†state.b"), call("see", "†data.c", a="†state.a", _scopes=[scope])
    return submission(*calls)


def circling(scope: str) -> Submission:
    """A call that sees what a call listed before it writes, which waits for it."""
    return submission(call("get", "†state.a", after="†data.b"), call("see", "†data.b", _scopes=[scope]))


def flat(**message: Any) -> Submission:
    """A message without `data`."""
    return submission(call("take", "†data.y", text="†input.topic"), context=[{"type": "input", "topic": "x"} | message])


def typed(type_: str) -> Submission:
    """A message of a type beside a call."""
    return submission(call(), context=[{"type": type_, "message": "hello"}])


def branching(**parameters: Any) -> Submission:
    """A call that reads of one that chooses."""
    return submission(call("pick", "†data.good || †data.bad"), call("take", "†data.taken", **parameters))


def held(*calls: Any) -> Submission:
    """Calls beside a value that is there already."""
    return submission(*calls, context=[{"type": "data", "x": 1}])


def gathering(path: str) -> Submission:
    """A plan that gathers beside a call whose scope is all of the state."""
    calls = [call("see", "†data.seen", _scopes=["state"]), call("sum", path, of="†data.seen", _gather=True)]
    return plan_submission(*calls, context=[{"type": "state", "_instance": name, "x": 1} for name in "ab"])


def hiding(**parameters: Any) -> Submission:
    """A call of a delegate that sees an input."""
    context = [{"type": "input", "text": "old"}]
    return submission(call("ask", "†data.x", _delegate="d", _scopes=["input"], **parameters), context=context)


def paying(account: Any, **parameters: Any) -> Submission:
    """A call that changes something outside, beside one that others write to and one that chooses by it."""
    tools = {"fetch": {"_trust": {"result": ["mail"]}}, "pay": {"_trust": {"effects": True, "content": ["note"]}}}
    choosing = call("take", "†state.a || †state.b", value="†state.mail")
    pay = call("pay", "†state.paid", account=account, **parameters)
    return submission(call("fetch", "†state.mail"), choosing, pay, tools=tools)


def judged(text: Any) -> Submission:
    """A payment that a delegate which endorses decides on."""
    tools = {"fetch": {"_trust": {"result": ["mail"]}}, "pay": {"_trust": {"effects": True}}}
    asking = call("ask", "†state.ours", _delegate="judge", text=text)
    delegates = {"judge": {"schema": {"type": "boolean"}, "_endorses": True}}
    calls = call("fetch", "†state.mail"), asking, call("pay", "†state.paid", when="†state.ours")
    return submission(*calls, tools=tools, delegates=delegates)


def confirming(code: Any) -> Submission:
    """An order that a code completes."""
    tools = {"fetch": {"_trust": {"result": ["mail"]}}, "pay": {"_trust": {"effects": True, "proof": ["code"]}}}
    return submission(call("fetch", "†state.mail"), call("pay", "†state.paid", code=code), tools=tools)


def outside(**more: Any) -> Submission:
    """A sale, and a look at the same shop."""
    tools = {"sell": {"_trust": {"effects": True}, "_resource": "shop"}, "stock": {"_resource": "shop"}}
    return submission(call("sell", "†state.sold"), call("stock", "†state.left", **more), tools=tools)


def deciding(*cases: Any) -> Submission:
    """A count that goes to one of three places."""
    places = "†state.first || †state.second || †state.third"
    counting = call("count", "†state.count"), call("choose", places, value="†state.count", cases=[*cases])
    return submission(*counting, tools={"count": {"_output": {"type": ["number", "string"]}}, "choose": {}})


READER, WRITER = call("take", "†data.taken", value="†data.x"), call("get", "†data.x")

CASES: dict[str, tuple[Submission, Submission]] = {
    "ACT101": (branching(a="†data.good", b="†data.bad"), branching(a="†data.good || †data.bad")),
    "ACT103": (
        submission(call("get", "†state.a"), call("get", "†state.a")),
        submission(call("get", "†state.a"), call("get", "†state.a", after="†state.a")),
    ),
    "ACT104": (held(READER, WRITER), held(WRITER, READER)),
    "ACT105": (outside(), outside(_after=["†state.sold"])),
    "ACT201": (chain("†state.x.age"), chain("†state.x.name")),
    "ACT202": (user("†state.user.age"), user("†state.user.name")),
    "ACT203": (
        kind({"properties": {"user": {"type": "string"}}}, "†state.user"),
        kind({"properties": {"user": {"type": "object"}}}, "†state.user"),
    ),
    "ACT204": (chain("†state.x.nmae"), chain("†state.x.name")),
    "ACT205": (chain("†state.x.0.name"), chain("†state.x.tags.0")),
    "ACT206": (chain("†state.x.name", _outputMethod="concat"), chain("†state.x.name", _outputMethod="assign")),
    "ACT207": (delegated({"type": "string"}), delegated({"type": "integer"})),
    "ACT208": (
        kind({"required": ["user", "total"]}, "†state.user"),
        kind({"required": ["user", "total"]}, "†state.user", "†state.total"),
    ),
    "ACT209": (user(userid=1), user(userId=1)),
    "ACT299": (large(20_000), large(25)),
    "ACT301": (user("state.user.name"), user("the user's name")),
    "ACT302": (user("{{state.user.name}}"), user("{name}")),
    "ACT303": (user(_outputpath="†state.z"), user(_reasoningForCall="why not")),
    "ACT304": (user(_dependsOn=[0]), user(more=[0])),
    "ACT305": (user("Hello {{state.user.name}}!"), user("Hello!")),
    "ACT307": (
        submission(call("get", "state.x"), call("take", text="†state.state.y || †state.z"), call("get", "†state.z")),
        submission(call("get", "x"), call("take", text="†state.x")),
    ),
    "ACT308": (user("†user.name || †state.user.age"), user("†state.user.name || †state.user.age")),
    "ACT309": (user("†state.other || †state.user.name"), user("†state.user.age || †state.user.name")),
    "ACT310": (user(userld=1), user(userId=1)),
    "ACT401": (scoped("†state.usr"), scoped("†state.user")),
    "ACT402": (of_instance(), of_instance(_instance="①")),
    "ACT403": (two_writers("state"), two_writers("†state.a")),
    "ACT404": (user() | submission(call("take", _outputMethod="push")), user(_outputMethod="push")),
    "ACT405": (
        submission(call("get"), tools={"get": PINNED}),
        submission(call("get", "†state.a"), tools={"get": PINNED}),
    ),
    "ACT406": (
        submission(call("get", "†state.a"), tools={"get": {"parameters": {"type": "object", "properties": {}}}}),
        submission(call("get", "†state.a"), tools={"get": {"type": "object", "properties": {"parameters": {}}}}),
    ),
    "ACT407": (flat(title={"text": "x"}), flat(title="What the topic is")),
    "ACT408": (circling("state"), circling("†state.b")),
    "ACT409": (advised("commit"), advised("request")),
    "ACT411": (gathering("†state.all"), gathering("†summary.all")),
    "ACT412": (hiding(text="new"), hiding(words="new")),
    "ACT414": (typed("txt"), typed("note")),
    "ACT415": (asking({"minProperties": 1, "additionalProperties": False}), asking({"minProperties": 1})),
    "ACT210": (deciding({"type": "number"}, {"type": "integer"}), deciding({"type": "integer"}, {"type": "number"})),
    "ACT601": (paying("†state.mail.iban"), paying("DE01", note="†state.mail.iban")),
    "ACT602": (paying("DE01", note="†state.a"), paying("DE01", note="†state.mail")),
    "ACT603": (judged("†state.mail"), judged("hello")),
    "ACT604": (confirming("†state.mail.code"), confirming("7")),
}
"""Code to a submission that gives it, and one that does not."""
OF_MODELS = ("ACT413",)
"""What hangs on the settings of a model: `tests/worker/test_prompt_cli.py` has its good and its bad request."""
SIGNATURE = {"properties": {"text": {}, "userId": {}}, "required": ["userId"], "additionalProperties": False}
OPTIONS: dict[str, Any] = {"ACT209": {"activities": {"take": SIGNATURE}}}
"""What else a check is given."""


def codes(value: Submission, code: str) -> set[str]:
    return {finding.code for finding in analyse(check_submission(value, **OPTIONS.get(code, {})))}


@pytest.mark.parametrize("code", CASES)
def test_a_bad_plan_gives_the_code_and_a_good_one_does_not(code: str) -> None:
    bad, good = CASES[code]
    assert code in codes(bad, code)
    assert code not in codes(good, code)


def test_every_code_of_the_catalogue_has_a_bad_plan_and_a_good_one() -> None:
    assert sorted([*CASES, *OF_MODELS]) == sorted(CATALOGUE)


def test_a_value_that_a_delegate_does_not_declare_is_found_as_one_that_is_read_is() -> None:
    def asked(text: Any) -> Submission:
        value = delegated({"type": "string"})
        value["solution"]["calls"][1]["text"] = text
        return value

    (finding,) = analyse(check_submission(asked(5)))
    assert (finding.code, finding.pointer) == ("ACT207", "/solution/calls/1/text")
    assert "ACT207" not in codes(asked("five"), "ACT207")


def test_r3_5_digits_that_are_an_index_of_nothing_are_found_and_the_quotes_are_suggested() -> None:
    years = submission(call("get", "†state.years.2024"), call("get", "†state.years.2025"))
    found = [finding for finding in analyse(check_submission(years)) if finding.code == "ACT205"]
    assert [finding.remedy for finding in found] == [f'write †state.years["{year}"] for a key' for year in (2024, 2025)]
    for makes in ("†state.years", "†state.years.0", '†state.years["a"]', "†state"):
        assert "ACT205" not in codes(submission(call("get", makes), call("get", "†state.years.1")), "ACT205")
    held = submission(call("get", "†state.years.1"), context=[{"type": "state", "years": [1]}])
    assert "ACT205" not in codes(held, "ACT205")
    assert "ACT205" not in codes(submission(call("get", "†state.2024"), call("get", "†state.a.0")), "ACT205")


def test_a_result_that_is_given_beside_the_code_that_gives_it_is_found_also_where_no_tool_is_declared() -> None:
    value = submission({"_tool": "take", "_output": 1, "_outputPath": "†state.x"})
    (finding,) = analyse(check_submission(value, activities={"take": {"type": "object"}}))
    assert (finding.code, finding.pointer) == ("ACT404", "/solution/calls/0/_output")


@pytest.mark.parametrize("code", CASES)
def test_a_finding_has_the_shape_that_is_documented(code: str) -> None:
    found = [finding.to_dict() for finding in analyse(check_submission(CASES[code][0], **OPTIONS.get(code, {})))]
    finding = next(each for each in found if each["code"] == code)
    keys = ["code", "name", "severity", "message", "calls", "pointer", "remedy", "rule"]
    assert list(finding) == [*keys, *(["source", "effect", "way"] if code.startswith("ACT6") else [])]
    assert finding["severity"] in ("warning", "info", "note")
    assert finding["message"]
    assert finding["remedy"]
    assert json.loads(json.dumps(finding)) == finding


@pytest.mark.parametrize("code", CASES)
def test_a_finding_is_left_out_by_its_code_or_its_name_or_by_the_submission_itself(code: str) -> None:
    value, options = CASES[code][0], OPTIONS.get(code, {})
    plan = check_submission(value, **options)
    asking = check_submission({**value, "config": {"ignore": [code]}}, **options)
    ways = analyse(plan, [code]), analyse(plan, [CATALOGUE[code].name]), analyse(asking)
    assert all(code not in {finding.code for finding in found} for found in ways)


def test_names_are_unlike_and_codes_are_of_the_five_families() -> None:
    names = [entry.name for entry in CATALOGUE.values()]
    assert len(set(names)) == len(names)
    assert {code[:4] for code in CATALOGUE} == {"ACT1", "ACT2", "ACT3", "ACT4", "ACT6"}


# Findings: of plans as models write them every day, and that run as they are meant to, nothing is told (SPEC R6.7).

INPUT = {"topic": "x", "lang": "de", "style": "formal"}
SECTIONS = range(5)


def step(tool: str, to: str = "", **properties: Any) -> dict[str, Any]:
    """A call that reads the topic where it reads nothing else."""
    written = {"_outputPath": to} if to else {}
    return {"_tool": tool, **written, **(properties or {"topic": "†input.topic"})}


def triage(handlers: int) -> list[dict[str, Any]]:
    """Each branch is answered in a way of its own; what was answered is polished, the rest goes to a human."""
    routes = [f"†state.route{number}" for number in range(handlers)]
    return [
        step("classify", " || ".join((*routes, "†state.other"))),
        *(step("answer", "draft", about=route) for route in routes),
        step("polish", "reply", text="†state.draft"),
        step("escalate", "reply", text="†state.other"),
        step("send", body="†state.reply"),
    ]


def sections() -> list[dict[str, Any]]:
    """Behind a gate there are sections, each of which may fail and have another one put in its place."""
    parts = [
        part
        for number in SECTIONS
        for part in (
            step("draft", f"draft{number} || error{number}", topic="†state.ok"),
            step("format", f"section{number}", text=f"†state.draft{number}"),
            step("excuse", f"section{number}", text=f"†state.error{number}"),
        )
    ]
    return [
        step("moderate", "ok || blocked"),
        *parts,
        step("compose", "reply", parts=[f"†state.section{number}" for number in SECTIONS]),
        step("refuse", "reply", why="†state.blocked"),
    ]


def providers() -> list[dict[str, Any]]:
    """One after the other is asked until one knows; of what is good several parts are made at once."""
    return [
        step("ask", "found0 || lost0"),
        *(step("ask", f"found{n} || lost{n}", after=f"†state.lost{n - 1}") for n in range(1, 4)),
        step("search", "found4", after="†state.lost3"),
        step("judge", "good || bad", facts=" || ".join(f"†state.found{number}" for number in SECTIONS)),
        *(step("make", part, facts="†state.good") for part in ("title", "body", "image")),
        step("page", "reply", title="†state.title", body="†state.body", image="†state.image"),
        step("apologise", "reply", why="†state.bad"),
    ]


PLANS = {
    "triage": triage(6),
    "sections": sections(),
    "providers": providers(),
    "revised twice": [
        step("write", "draft"),
        step("review", "notes", text="†state.draft"),
        step("revise", "draft", text="†state.draft", notes="†state.notes"),
        step("review", "more", text="†state.draft"),
        step("revise", "draft", text="†state.draft", notes="†state.more"),
        step("publish", text="†state.draft"),
    ],
    "revised on one branch": [
        step("moderate", "ok || blocked"),
        step("write", "draft", text="†state.ok"),
        *[step("improve", "draft", text="†state.draft")] * 2,
        step("publish", "reply", text="†state.draft"),
        step("refuse", "reply", why="†state.blocked"),
        step("send", body="†state.reply"),
    ],
    "polished on one branch": [
        step("route", "easy || hard"),
        step("draft", "reply", text="†state.easy"),
        step("polish", "reply", text="†state.reply"),
        step("human", "reply", text="†state.hard"),
        step("send", body="†state.reply"),
    ],
    "reviewed with a way out": [
        step("write", "draft"),
        step("review", "review || failed", draft="†state.draft", style="†input.style"),
        step("revise", "draft", review="†state.review || †state.failed"),
    ],
    "a ticket filled in": [
        step("classify", "ticket.category", ticket="†state.ticket"),
        step("answer", "ticket.reply", category="†state.ticket.category", lang="†input.lang"),
        step("close", "ticket.status", reply="†state.ticket.reply"),
    ],
    "steps in a list": [
        step("think", "steps.0"),
        *(step("think", f"steps.{n}", before=f"†state.steps.{n - 1}", lang="†input.lang") for n in (1, 2)),
        step("sum", "summary", steps="†state.steps"),
    ],
    "a cart": [
        step("add", "cart.items", _outputMethod="push", item="†input.topic"),
        step("total", "cart.total", items="†state.cart.items", lang="†input.lang"),
        step("pay", "cart.paid || cart.declined", total="†state.cart.total", style="†input.style"),
        step("ship", "cart.status", paid="†state.cart.paid"),
        step("cancel", "cart.status", why="†state.cart.declined"),
        step("clear", "cart.items", status="†state.cart.status"),
    ],
    "all of the state shown": [
        step("fetch", "ticket.items"),
        step("price", "ticket.total", items="†state.ticket.items", lang="†input.lang"),
        step("explain", "text", _delegate="explainer", _scopes=["state"], total="†state.ticket.total"),
    ],
    "a status written before": [
        step("announce", "status", topic="†input.topic", _output="started"),
        step("work", "result"),
        step("finish", "status", result="†state.result"),
    ],
}


@pytest.mark.parametrize("name", PLANS)
def test_of_a_sensible_plan_nothing_is_reported(name: str) -> None:
    context = [{"type": "input", **INPUT}, {"type": "state", "ticket": {"id": 7}, "steps": [], "cart": {"items": []}}]
    activities = {call["_tool"]: ANY for call in PLANS[name] if "_output" not in call and "_delegate" not in call}
    plan = checked(*PLANS[name], context=context, activities=activities, delegates={"explainer": {"context": []}})
    assert analyse(plan) == ()
