"""Findings: calls in no certain order whose order matters (SPEC R6.4), or of which the second fails (SPEC R3.4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from protocol import Finding
from protocol.analysis.findings.instances import MOST_TOLD

from .building import ANY, call, checked

BRANCHING = call(to="†data.good || †data.bad")


def said(findings: Sequence[Finding]) -> list[tuple[str, tuple[int, ...]]]:
    return [(finding.severity, finding.calls) for finding in findings]


def told(*calls: Any, **parts: Any) -> list[tuple[str, tuple[int, ...]]]:
    """What is told where models have written the results of the calls already."""
    return said(checked(*calls, activities={}, **parts).findings)


def known(to: str, output: Any, method: str = "merge", **properties: Any) -> dict[str, Any]:
    """A call whose result is known."""
    return call("think", to, _output=output, _outputMethod=method, **properties)


# Races


@pytest.mark.parametrize(
    ("first", "second"), [("†data.x", "†data.x"), ("†data.x", "†data.x.y"), ("†data.x.y", "†data")]
)
def test_two_calls_that_set_one_place_in_no_order_are_told(first: str, second: str) -> None:
    plan = checked(call(to=first), call(to=second))
    assert said(plan.findings) == [("warning", (0, 1))]


def test_the_text_about_a_race_says_what_to_do() -> None:
    assert [finding.message for finding in checked(call(to="†data.x"), call("see", to="†data.x")).findings] == [
        "call 1 (see) writes †data.x in no certain order with call 0 (give), and the last to end wins: "
        "write to different places, let one read what the other writes, or collect with _outputMethod push"
    ]


@pytest.mark.parametrize("method", ["push", "merge", "assign", "concat"])
def test_calls_that_collect_do_not_race_but_one_that_sets_races_with_them(method: str) -> None:
    collecting = call(to="†data.x", _outputMethod=method)
    assert checked(collecting, collecting).findings == ()
    assert said(checked(collecting, call(to="†data.x")).findings) == [("warning", (0, 1))]


@pytest.mark.parametrize("method", ["push", "concat"])
@pytest.mark.parametrize(
    ("place", "before", "is_race"),
    [
        ("†data.l.0", (), False),
        ("†data.l.1.name", (), False),
        ("†data.l.2", (), True),  # which is appended first
        ("†data.l", (), True),
        ("†data.l.0", (call(to="†data.l && †data.go"),), True),  # of which nobody knows how long it is
    ],
)
def test_whoever_appends_does_not_race_with_a_writer_of_an_element_that_is_there(
    method: str, place: str, before: Any, is_race: bool
) -> None:
    context = [{"type": "data", "l": [1, {}]}]
    after = {"q": "†data.go"} if before else {}
    appending, replacing = call(to="†data.l", _outputMethod=method, **after), call(to=place, **after)
    for calls in ([appending, replacing], [replacing, appending]):
        findings = checked(*before, *calls, context=context).findings
        assert any("in no certain order" in finding.message for finding in findings) is is_race


SWITCH = {
    "classify": {"_output": {"type": "string"}},
    **{tool: {"properties": {"label": {"enum": labels}}} for tool, labels in (("bill", ["a", "b"]), ("help", ["c"]))},
    "give": {},
}


def handling(label: str = "†state.label") -> list[dict[str, Any]]:
    """Two calls of which each takes other labels, and what follows from each, to one place."""
    handlers = [call(tool, f"r.{tool}", label=label) for tool in ("bill", "help")]
    return [*handlers, *(call(value=f"†state.r.{tool}", to="reply") for tool in ("bill", "help"))]


@pytest.mark.parametrize("held", [[], [{"type": "state", "label": "b"}]])
def test_what_follows_from_different_values_of_one_place_does_not_race(held: Any) -> None:
    activities = dict.fromkeys(SWITCH, ANY)
    plan = checked(call("classify", "label"), *handling(), tools=SWITCH, activities=activities, context=held)
    assert plan.findings == ()


@pytest.mark.parametrize(
    "also",
    [
        [call("help", "other", label="†state.label"), call(value="†state.other", to="reply")],  # of the same label
        [call(value="†state.label", to="reply")],  # takes any
    ],
)
def test_what_may_follow_from_one_value_races(also: list[Any]) -> None:
    activities = dict.fromkeys(SWITCH, ANY)
    plan = checked(call("classify", "label"), *also, *handling(), tools=SWITCH, activities=activities)
    assert any("in no certain order" in finding.message for finding in plan.findings)


INTEGER = {"type": "integer"}
KIND = {"type": "object", "required": ["kind"]}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({**INTEGER, "minimum": 80}, {**INTEGER, "exclusiveMaximum": 80}),
        ({"type": "string"}, {"type": "null"}),
        ({**KIND, "properties": {"kind": {"const": "a"}}}, {**KIND, "properties": {"kind": {"const": "b"}}}),
        ({"type": "array", "minItems": 1}, {"type": "array", "maxItems": 0}),
    ],
)
@pytest.mark.parametrize("read", ["†state.found", "†state.found || †input.default"])
@pytest.mark.parametrize("refining", [[], [call("refine", "found", value="†state.found")]])
def test_readers_whose_schemas_exclude_each_other_do_not_race(one: Any, other: Any, read: str, refining: Any) -> None:
    tools = {"take": {"properties": {"value": one}}, "leave": {"properties": {"value": other}}}
    readers = [call(tool, "reply", value=read) for tool in tools]
    everyone = {"find": ANY, "refine": ANY, **tools}
    context = [{"type": "input", "default": None}]
    plan = checked(
        call("find", "found"),
        *refining,
        *readers,
        tools=everyone,
        activities=dict.fromkeys(everyone, ANY),
        context=context,
    )
    assert plan.findings == ()


TAGGED = {tag: {"type": "object", "properties": {"kind": {"const": tag}}} for tag in "ab"}


@pytest.mark.parametrize(
    ("one", "other", "read", "is_race"),
    [
        ({"const": "a"}, {"const": "b"}, ("†state.found", "†state.found || †input.default"), False),
        ({"const": "a"}, {"const": "b"}, ("†state.found || †input.x", "†state.found || †input.default"), True),
        ({"const": "a"}, TAGGED["b"], ("†state.found.kind", "†state.found"), False),
        ({"const": "a"}, TAGGED["a"], ("†state.found.kind", "†state.found"), True),
        ({"const": "a"}, TAGGED["b"], ("†state.found.kind", "†state.found || †input.default"), False),
        ({"const": "a"}, TAGGED["b"], ("†state.found.kind || †input.x", "†state.found"), True),
    ],
)
def test_readers_of_a_whole_and_a_part_or_with_a_fallback_race_where_both_may_run(
    one: Any, other: Any, read: tuple[str, str], is_race: bool
) -> None:
    tools = {"take": {"properties": {"value": one}}, "leave": {"properties": {"value": other}}}
    everyone = {"find": {}, **{f"log{number}": {} for number in range(70)}, **tools}
    readers = [call(tool, "reply", value=place) for tool, place in zip(tools, read, strict=True)]
    logging = [call(tool, value="†state.found") for tool in everyone if tool.startswith("log")]
    plan = checked(
        call("find", "found"),
        *readers,
        *logging,
        tools=everyone,
        activities=dict.fromkeys(everyone, ANY),
        context=[{"type": "input", "x": "a", "default": "b"}],
    )
    assert any("in no certain order" in finding.message for finding in plan.findings) is is_race


def test_readers_race_whose_values_need_not_be_the_same() -> None:
    tools = {"take": {"properties": {"value": {"const": 1}}}, "leave": {"properties": {"value": {"const": 2}}}}
    everyone = {"find": ANY, **tools}
    early, late = call("take", "reply", value="†state.found"), call("leave", "reply", value="†state.found")
    calls = early, call("find", "found", value="†input.x"), late
    plan = checked(
        *calls,
        tools=everyone,
        activities=dict.fromkeys(everyone, ANY),
        context=[{"type": "state", "found": 1}, {"type": "input", "x": 0}],
    )
    assert any("†state.reply in no certain order" in finding.message for finding in plan.findings)


def test_calls_in_order_do_not_race() -> None:
    assert checked(call(to="†data.x"), call(to="†data.x", value="†data.x")).findings == ()
    between = call(to="†data.y", value="†data.x")
    assert checked(call(to="†data.x"), between, call(to="†data.x", value="†data.y")).findings == ()
    assert checked(call(to="†data.x", value="†data.z"), call(to="†data.z"), call(to="†data.y")).findings == ()


def test_calls_of_different_branches_do_not_race() -> None:
    calls = [BRANCHING, call(to="†data.r", value="†data.good"), call(to="†data.r", value="†data.bad")]
    assert checked(*calls).findings == ()
    further = call(to="†data.s", value="†data.good"), call(to="†data.r", value="†data.s")
    assert checked(*further, *calls[2:], BRANCHING).findings == ()


@pytest.mark.parametrize("value", ["†data.b || †data.c", "†data.c || †data.s", "†data.b || †data.d"])
@pytest.mark.parametrize("is_first", [True, False])
def test_calls_of_different_branches_do_not_race_where_alternatives_are_of_one_branch(
    value: str, is_first: bool
) -> None:
    branching = call(to="†data.a || †data.b && †data.c || †data.d")
    either, other = call(to="†data.r", value=value), call(to="†data.r", value="†data.a")
    between = call(to="†data.s", value="†data.b")
    calls = [branching, between, *((either, other) if is_first else (other, either))]
    assert not any("in no certain order" in finding.message for finding in checked(*calls).findings)


@pytest.mark.parametrize("value", ["†data.b || †data.a", "†data.b || †data.held", "†data.held || †data.b"])
def test_calls_race_where_one_of_the_alternatives_is_of_no_other_branch(value: str) -> None:
    calls = [call(to="†data.a || †data.b"), call(to="†data.r", value=value), call(to="†data.r", value="†data.a")]
    plan = checked(*calls, context=[{"type": "data", "held": 1}])
    assert [finding.calls for finding in plan.findings if "in no certain order" in finding.message] == [(1, 2)]


def test_calls_of_different_branches_race_where_the_context_holds_what_they_read() -> None:
    held = [{"type": "data", "data": {"good": 1, "bad": 2}}]
    calls = [BRANCHING, call(to="†data.r", value="†data.good"), call(to="†data.r", value="†data.bad")]
    assert said(checked(*calls, context=held).findings) == [("warning", (1, 2))]


def test_calls_of_one_branch_race() -> None:
    calls = [BRANCHING, *[call(to="†data.r", value="†data.good")] * 2, call(value="†data.bad")]
    assert said(checked(*calls).findings) == [("warning", (1, 2))]


def test_instances_do_not_race_with_each_other_nor_with_global_calls() -> None:
    context = [{"type": "text", "_instance": name} for name in "①②"]
    calls = [call(to="†data.x", **({"_instance": name} if name else {})) for name in ("①", "②", "")]
    assert checked(*calls, context=context).findings == ()


def test_of_many_races_the_first_are_told() -> None:
    findings = checked(*[call(to="†data.x")] * 300).findings
    assert len(findings) == MOST_TOLD + 1
    assert findings[-1].message == "and more of the same: only the first 100 are told"
    assert all(len(finding.calls) <= 11 for finding in findings)


# Objects that are joined


@pytest.mark.parametrize("method", ["merge", "assign"])
def test_calls_that_join_objects_race_for_the_keys_that_both_are_sure_to_replace(method: str) -> None:
    first = known("†data.x", {"a": 1, "b": 2}, method)
    assert told(first, known("†data.x", {"a": 3}, method)) == [("warning", (0, 1))]
    assert told(first, known("†data.x.b", 3, "set")) == [("warning", (0, 1))]
    assert told(first, known("†data", {"x": {"b": [1]}})) == [("warning", (0, 1))]
    assert told(first, known("†data.x", {"c": 3}, method)) == []
    assert told(first, known("†data.x.c", 3, "set")) == []
    assert told(first, known("†data.x", {"b": 2}, method)) == []


def test_the_text_about_such_a_race_names_the_key() -> None:
    calls = known("†data.x", {"a": 1}), known("†data.x", {"a": 2})
    assert [finding.message for finding in checked(*calls, activities={}).findings] == [
        "call 1 (think) writes †data.x.a in no certain order with call 0 (think), and the last to end wins: "
        "write to different places, let one read what the other writes, or collect with _outputMethod push"
    ]


def test_objects_inside_are_joined_by_merge_and_replaced_by_assign() -> None:
    assert told(known("†data.x", {"a": {"b": 1}}), known("†data.x", {"a": {"c": 2}})) == []
    assert told(known("†data.x", {"a": {"b": 1}}), known("†data.x", {"a": {"b": 2}})) == [("warning", (0, 1))]
    assert told(known("†data.x", {"a": {"b": 1}}, "assign"), known("†data.x", {"a": {"c": 2}}, "assign")) == [
        ("warning", (0, 1))
    ]


def test_what_is_no_object_replaces_by_merge() -> None:
    assert ("warning", (0, 1)) in told(known("†data.x", 1), known("†data.x", {"a": 1}))
    assert ("warning", (0, 1)) in told(known("†data.x", 1), known("†data.x", [], "push"))
    assert told(known("†data.x", True), known("†data.x", 1)) == [("warning", (0, 1))]


def test_keys_that_a_tool_promises_count_and_others_it_may_give_do_not() -> None:
    kind = {"const": "user"}
    result = {"type": "object", "required": ["id", "kind"], "properties": {"id": {"type": "string"}, "kind": kind}}
    tools = {"load": {"properties": {"_output": result}}, "tag": {"properties": {"_output": {"type": "object"}}}}
    load, tag = call("load", "†data.x", _outputMethod="merge"), call("tag", "†data.x", _outputMethod="merge")
    (finding,) = checked(load, load, tools=tools).findings
    assert "writes †data.x.id in no certain order" in finding.message
    assert checked(load, tag, tools=tools).findings == ()


# Clashes


CLASHING = [
    ("†data.x", [1], "concat", "†data.x", "a", "concat"),
    ("†data.x", 1, "push", "†data.x", {}, "assign"),
    ("†data.x", 1, "push", "†data.x", {"a": 1}, "merge"),
    ("†data.x", 1, "push", "†data.x", "a", "concat"),
    ("†data.x", 1, "push", "†data.x.k", 1, "push"),
    ("†data.x.y", "a", "concat", "†data.x.y.z.z", {}, "merge"),
]


@pytest.mark.parametrize(("to", "output", "method", "other_to", "other_output", "other_method"), CLASHING)
@pytest.mark.parametrize("is_first", [True, False])
def test_calls_that_make_different_things_of_one_place_are_told(
    to: str, output: Any, method: str, other_to: str, other_output: Any, other_method: str, is_first: bool
) -> None:
    calls = [known(to, output, method), known(other_to, other_output, other_method)]
    assert told(*(calls if is_first else reversed(calls))) == [("warning", (0, 1))]


def test_the_text_about_a_clash_says_what_to_do() -> None:
    calls = known("†data.x", "a", "concat"), known("†data.x", [1], "concat")
    assert [finding.message for finding in checked(*calls, activities={}).findings] == [
        "call 1 (think) makes array of †data.x, and call 0 (think) something else, in no certain order: whoever comes "
        "second fails; write to different places, or by methods that go together"
    ]


@pytest.mark.parametrize(
    "second",
    [
        known("†data.x", [1], "concat"),
        known("†data.x.0", 1, "set", after="†data.x"),
        known("†data.x", "a", "concat", after="†data.x", _instance="①"),
        known("†data.y || †data.x", {}, "assign"),
        known("†data.xy", {}, "assign"),
    ],
)
def test_calls_that_go_together_do_not_clash(second: dict[str, Any]) -> None:
    context = [{"type": "data", "_instance": "①", "x": "a"}]
    assert "second fails" not in str(told(known("†data.x", 1, "push"), second, context=context))


def test_of_a_result_that_is_not_known_nothing_is_said() -> None:
    unknown = call(to="†data.x", _outputMethod="concat")
    assert checked(call(to="†data.x", _outputMethod="push"), unknown).findings == ()


INSTANCES: list[Any] = [{"type": "data", "_instance": name, "held": 1} for name in "①②"]


@pytest.mark.parametrize(
    ("to", "output", "method"), [("†data.x", 1, "push"), ("†data.x", {}, "assign"), ("†data.x.y", 1, "set")]
)
def test_what_an_instance_writes_onto_what_a_global_call_leaves_is_told(to: str, output: Any, method: str) -> None:
    calls = [known("†data.x", "a", "set"), known(to, output, method, _instance="①")]
    assert told(*calls, context=INSTANCES) == [("warning", (0, 1))]
    assert told(*reversed(calls), context=INSTANCES) == [("warning", (0, 1))]


def test_the_text_about_it_says_what_to_do() -> None:
    calls = [known("†data.x", "a", "set"), known("†data.x", 1, "push", _instance="①")]
    assert [finding.message for finding in checked(*calls, activities={}, context=INSTANCES).findings] == [
        "call 1 (think) writes in its instance onto what call 0 (think) leaves globally at †data.x, and fails or "
        "cannot be read, as it takes nothing but array there; write to another place, or replace what is there"
    ]


@pytest.mark.parametrize(
    "own",
    [
        [known("†data.x", {}, "set", _instance="①"), known("†data.x.y", 1, "set", _instance="①", after="†data.x")],
        [known("†data.x", "b", "concat", _instance="①")],
        [known("†data.x", 1, "push", _instance="②")],
        [known("†data.other || †data.x", 1, "push", _instance="①")],
    ],
)
def test_an_instance_that_has_something_of_its_own_there_or_takes_it_is_not_told(own: list[Any]) -> None:
    context = [*INSTANCES, {"type": "data", "_instance": "②", "x": []}]
    messages = [f.message for f in checked(known("†data.x", "a", "set"), *own, activities={}, context=context).findings]
    assert not any("in its instance" in message for message in messages)


@pytest.mark.parametrize("is_first", [True, False])
def test_a_key_and_an_element_of_what_is_not_there_yet_are_told(is_first: bool) -> None:
    calls = [known("†data.x.0", 1, "set"), known("†data.x.name", 1, "set")]
    assert told(*(calls if is_first else reversed(calls))) == [("warning", (0, 1))]
    assert told(*calls, context=[{"type": "data", "x": {}}]) == []
    assert told(known("†data.x.name", 1, "set"), known("†data.x.0", 1, "set", after="†data.x")) == []


def test_keys_that_a_closed_result_never_has_do_not_race() -> None:
    closed = {"type": "object", "properties": {"a": {}}, "additionalProperties": False}
    calls = call("make", "†data.x", _outputMethod="merge"), call(to="†data.x.b")
    assert checked(*calls, tools={"make": {"properties": {"_output": closed}}}).findings == ()
    assert said(checked(*calls).findings) == [("warning", (0, 1))]


EXCLUSIVE: list[list[Any]] = [
    [  # a cache
        call(to="†data.hit || †data.miss"),
        call(to="†data.made || †data.err", v="†data.miss"),
        call(to="out", v="†data.hit || †data.made"),
        call(to="out", v="†data.err"),
    ],
    [  # a second try
        call(to="†data.x || †data.e1"),
        call(to="†data.x || †data.e2", v="†data.e1"),
        call(to="out", v="†data.x"),
        call(to="out", v="†data.e2"),
    ],
    [  # one of two bad ends
        call(to="†data.a || †data.bad1"),
        call(to="†data.b || †data.bad2", v="†data.a"),
        call(to="out", v="†data.b"),
        call(to="out", v="†data.bad1 || †data.bad2"),
    ],
]


@pytest.mark.parametrize("calls", EXCLUSIVE)
def test_calls_that_no_run_has_both_of_do_not_race_whichever_of_several_ways_they_come_about(calls: list[Any]) -> None:
    assert not any("in no certain order" in finding.message for finding in checked(*calls).findings)
    both = [*calls[:-1], {**calls[-1], "v": "†data.hit || †data.x || †data.b"}]
    assert any("in no certain order" in finding.message for finding in checked(*both, context=HELD).findings)


HELD = [{"type": "data", "data": {"hit": 1, "b": 1, "x": 1}}]


def test_what_is_assigned_replaces_whatever_is_below_its_keys() -> None:
    closed = {"type": "object", "required": ["u"], "properties": {"u": {"type": "object", "properties": {}}}}
    first = call("make", "†data", _outputMethod="assign")
    tools = {"make": {"properties": {"_output": {**closed, "additionalProperties": False}}}}
    assert said(checked(first, call(to="†data.u.mail"), tools=tools).findings) == [("warning", (0, 1))]


def test_objects_inside_a_constant_result_race_by_their_keys() -> None:
    tools = {"make": {"properties": {"_output": {"const": {"u": {"plan": 1}}}}}}
    calls = call("make", "†data", _outputMethod="merge"), call(to="†data.u.plan")
    assert said(checked(*calls, tools=tools).findings) == [("warning", (0, 1))]


def test_what_a_model_has_written_already_is_there_before_any_other_call_of_the_lane_ends() -> None:
    started, finished = known("†data.status", "started", "set"), call(to="†data.status")
    parts: dict[str, Any] = {"activities": {"give": {}}}
    assert checked(started, finished, **parts).findings == ()
    assert checked(finished, started, **parts).findings == ()
    assert said(checked(started, started, finished, **parts).findings) == [("warning", (0, 1))]
    waiting = call("think", "†data.status", _output="started", after="†data.x")
    assert said(checked(call(to="†data.x"), waiting, finished, **parts).findings) == [("warning", (1, 2))]
