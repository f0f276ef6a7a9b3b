"""Plans tried before they run (SPEC R6.7): their order, branches and values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acts_celery.protocol import Finding, check_submission
from acts_celery.protocol.analysis.order import order_findings
from acts_celery.protocol.analysis.sample_values import PLACEHOLDER, sample
from acts_celery.protocol.analysis.simulation import Simulation, branch_effects, simulate
from acts_celery.protocol.engine.events import Status
from acts_celery.protocol.limits import MOST_ALTERNATIVES, SIMULATION_MOST_CALLS, SIMULATION_MOST_TRIED
from acts_celery.protocol.schemas import compiled

from .building import ANY, call, checked, plan_submission

# Findings about order: races, reads that depend on timing, calls that never run (SPEC R6.1, R6.4-R6.6, R6.7).

Calls = list[dict[str, Any]]
RACE, TIMING, NEVER = "ACT103", "ACT104", "ACT101"
BRANCHING = call(to="†data.good || †data.bad")
GOOD, BAD = call(to="†data.r", value="†data.good"), call(to="†data.r", value="†data.bad")
HELD = {"type": "data", "x": {"y": 1}, "l": [1, {}]}


def found(*calls: Any, **parts: Any) -> list[Finding]:
    return list(order_findings(checked(*calls, **parts)))


def said(*calls: Any, **parts: Any) -> list[tuple[str, tuple[int, ...]]]:
    return [(finding.code, finding.calls) for finding in found(*calls, **parts)]


def known(to: str, output: Any, method: str = "set", **properties: Any) -> dict[str, Any]:
    """A call whose result a model has written, and that waits for a call before it."""
    return call("think", to, _output=output, _outputMethod=method, **properties)


def after(calls: Calls) -> Calls:
    """The calls, each of which waits for another call of its own first: so their order is open."""
    gates = [call(to=f"†data.gate{number}") for number in range(len(calls))]
    return [*gates, *({**each, "gate": f"†data.gate{number}"} for number, each in enumerate(calls))]


def test_a_race_says_which_calls_where_and_what_to_do() -> None:
    (finding,) = found(call(to="†state.a"), call(to="†state.a"))
    assert finding.to_dict() == {
        "code": "ACT103",
        "name": "race",
        "severity": "warning",
        "message": "race: calls 0 and 1 both write †state.a and neither waits for the other; the value of the one "
        "that ends last counts",
        "calls": [0, 1],
        "pointer": None,
        "remedy": "let call 1 read what call 0 writes, or write to different places, or use _outputMethod push",
        "rule": "R6.4",
    }


def test_a_call_that_races_with_one_of_two_that_are_in_order_is_named_too() -> None:
    calls = [call(to="†data.d", v="†data.a"), call(to="†data.a"), call(to="†data.d"), known("†data.d", 4, v="†data.a")]
    assert said(*calls) == [(RACE, (0, 2, 3))]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (call(to="†data.x"), call(to="†data.x")),
        (call(to="†data.x"), call(to="†data.x.y")),
        (call(to="†data.x.y"), call(to="†data")),
        (call(to="†data.x"), call(to="†data.x", _outputMethod="push")),
        (call(to="†data.x"), call(to="†data.x", _outputMethod="merge")),
        (call(to="†data.x"), call(to="†data.x", _outputMethod="concat")),
        (call(to="†data.x", _outputMethod="merge"), call(to="†data.x", _outputMethod="push")),
        (call(to="†data.x", _outputMethod="concat"), call(to="†data.x", _outputMethod="concat")),
        (call(to="†data.l", _outputMethod="push"), call(to="†data.l.2")),
        (call(to="†data.a || †data.x"), call(to="†data.b || †data.x")),
    ],
)
def test_two_calls_in_no_order_whose_methods_do_not_go_together_race(one: Any, other: Any) -> None:
    assert said(one, other, context=[HELD]) == said(other, one, context=[HELD]) == [(RACE, (0, 1))]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *(
            (call(to="†data.x", _outputMethod=m), call(to="†data.x", _outputMethod=m))
            for m in ("push", "merge", "assign")
        ),
        (call(to="†data.l", _outputMethod="concat"), call(to="†data.l", _outputMethod="concat")),
        (call(to="†data.l", _outputMethod="concat"), call(to="†data.l", _outputMethod="push")),
        (call(to="†data.l", _outputMethod="push"), call(to="†data.l.0")),
        (call(to="†data.l", _outputMethod="push"), call(to="†data.l.1.name")),
        (call(to="†data.x.a"), call(to="†data.x.b")),
        (call(to="†data.x"), call(to="†data.y", value="†data.x")),
        (call(to="†data.x"), call(to="†data.x", value="†data.x")),
    ],
)
def test_two_calls_that_go_together_or_are_in_order_do_not_race(one: Any, other: Any) -> None:
    assert said(one, other, context=[HELD]) == []


@pytest.mark.parametrize(
    ("one", "other", "is_race"),
    [
        (known("†data.k", {"a": 1}, "merge"), known("†data.k", {"c": 3}, "merge"), False),
        (known("†data.k", {"a": 1}, "merge"), known("†data.k.c", 3), False),
        (known("†data.k", True), known("†data.k", 1), True),
        (known("†data.k", 1), known("†data.k", 1), False),
    ],
)
def test_results_that_models_have_written_race_where_they_replace_each_other(
    one: Any, other: Any, is_race: bool
) -> None:
    assert said(*after([one, other]), activities={"give": {}}) == ([(RACE, (2, 3))] if is_race else [])


SWITCH: dict[str, Any] = {
    "classify": {"_output": {"type": "string"}},
    "bill": {"properties": {"label": {"enum": ["a", "b"]}}},
    "help": {"properties": {"label": {"enum": ["c"]}}},
    **{f"log{number}": {} for number in range(70)},
}
HANDLING = [
    call("classify", "label"),
    *(call(tool, f"r.{tool}", label="†state.label") for tool in ("bill", "help")),
    *(call(value=f"†state.r.{tool}", to="reply") for tool in ("bill", "help")),
]


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([BRANCHING, GOOD, BAD], []),
        ([call(to="†data.s", value="†data.good"), call(to="†data.r", value="†data.s"), BAD, BRANCHING], []),
        ([BRANCHING, GOOD, GOOD, call(value="†data.bad")], [(RACE, (1, 2))]),
        ([BRANCHING, call(to="†data.r", value="†data.good || †data.y"), BAD], [(RACE, (1, 2))]),
        (HANDLING, []),
        ([*HANDLING, *(call(f"log{number}", value="†state.label") for number in range(70))], []),
        ([*HANDLING, call("help", "reply", label="†state.label")], [(RACE, (4, 5))]),
        ([*HANDLING, call(value="†state.label", to="reply")], [(RACE, (3, 4, 5))]),
    ],
    ids=["branches", "further down", "one branch", "a fallback", "a switch", "and others", "one label", "any label"],
)
def test_calls_of_different_branches_do_not_race(calls: Calls, expected: Any) -> None:
    everyone = {**SWITCH, "give": {}}
    context = [{"type": "data", "y": 1}]
    assert said(*calls, tools=everyone, activities=dict.fromkeys(everyone, ANY), context=context) == expected


INTEGER = {"type": "integer"}


@pytest.mark.parametrize(
    ("one", "other", "read", "is_race"),
    [
        ({**INTEGER, "minimum": 80}, {**INTEGER, "exclusiveMaximum": 80}, ("†state.found",) * 2, False),
        ({"type": "string"}, {"type": "null"}, ("†state.found || †input.default",) * 2, False),
        ({"const": 1}, {"const": 2}, ("†state.found", "†state.found || †input.default"), False),
        ({"const": 1}, {"const": 2}, ("†state.found || †input.x", "†state.found || †input.default"), True),
        ({"const": 1}, {"properties": {"kind": {"const": 2}}}, ("†state.found.kind", "†state.found"), False),
        ({"const": 1}, {"properties": {"kind": {"const": 1}}}, ("†state.found.kind", "†state.found"), True),
        ({"const": 1}, {"enum": [1, 2]}, ("†state.found",) * 2, True),
    ],
)
def test_readers_whose_schemas_exclude_each_other_do_not_race(one: Any, other: Any, read: Any, is_race: bool) -> None:
    tools = {"take": {"properties": {"value": one}}, "leave": {"properties": {"value": other}}}
    readers = [call(tool, "reply", value=place) for tool, place in zip(tools, read, strict=True)]
    everyone = {"find": ANY, **tools}
    context = [{"type": "input", "x": 1, "default": None}]
    calls = [call("find", "found"), *readers]
    races = said(*calls, tools=everyone, activities=dict.fromkeys(everyone, ANY), context=context)
    assert races == ([(RACE, (1, 2))] if is_race else [])


EXCLUSIVE = {
    "a cache": [
        call(to="†data.hit || †data.miss"),
        call(to="†data.made || †data.err", v="†data.miss"),
        call(to="out", v="†data.hit || †data.made"),
        call(to="out", v="†data.err"),
    ],
    "a second try": [
        call(to="†data.x || †data.e1"),
        call(to="†data.x || †data.e2", v="†data.e1"),
        call(to="out", v="†data.x"),
        call(to="out", v="†data.e2"),
    ],
    "one of two bad ends": [
        call(to="†data.a || †data.bad1"),
        call(to="†data.b || †data.bad2", v="†data.a"),
        call(to="out", v="†data.b"),
        call(to="out", v="†data.bad1 || †data.bad2"),
    ],
    "many branches": [
        *(call(to=f"†data.a{number} || †data.b{number}") for number in range(30)),
        call(to="out", v="†data.a7"),
        call(to="out", v="†data.b7"),
    ],
}


@pytest.mark.parametrize("name", EXCLUSIVE)
def test_calls_that_no_run_has_both_of_do_not_race(name: str) -> None:
    assert said(*EXCLUSIVE[name]) == []


def test_results_that_models_have_written_are_in_order() -> None:
    parts: dict[str, Any] = {"activities": {"give": {}}}
    started, finished = known("†data.status", "started"), call(to="†data.status")
    assert said(started, finished, **parts) == said(finished, started, **parts) == []
    assert said(started, known("†data.status", "over"), **parts) == []
    waiting = known("†data.status", "started", after="†data.x")
    assert said(call(to="†data.x"), waiting, finished, **parts) == [(RACE, (1, 2))]
    skipped = call(to="†data.x", v="†data.y || †data.y")  # both read x of the context then
    waiting, finished = known("†data.status", 1, v="†data.x"), call(to="†data.status", v="†data.x")
    context = [{"type": "data", "x": 0}]
    assert said(call(to="†data.y"), skipped, waiting, finished, context=context, **parts) == []


def test_many_that_write_one_place_are_one_finding() -> None:
    (finding,) = found(*[call(to="†data.x")] * 300)
    assert finding.message.startswith("race: calls 0, 1, 2 and 297 more write †data.x and do not wait for each other")
    assert len(finding.calls) == 10


# Instances


def test_an_instance_races_with_a_global_call_only_where_it_adds_to_what_that_leaves_and_reads_it() -> None:
    context = [{"type": "text", "_instance": name} for name in "①②"]
    shared, own = call(to="†data.x"), [call(to="†data.x", _instance=name) for name in "①②"]
    assert said(shared, *own, context=context) == []
    pushing, reading = call(to="†data.x", _outputMethod="push", _instance="①"), call(v="†data.x", _instance="①")
    assert said(shared, pushing, context=context) == []
    assert said(shared, pushing, reading, context=context) == [(RACE, (0, 1))]


def test_of_a_plan_the_instances_are_named_where_they_differ() -> None:
    context: list[Any] = [{"type": "data", "_instance": name} for name in "①②③"]
    racing = call(to="†data.x"), call(to="†data.x")
    everywhere = order_findings(check_submission(plan_submission(*racing, context=context)))
    assert [finding.message[:5] for finding in everywhere] == ["race:"]
    context[0] = {"type": "data", "_instance": "①", "y": 1}
    calls = call(v="†data.y"), call(to="†data.q"), call(to="†data.y")
    (finding,) = order_findings(check_submission(plan_submission(*calls, context=context)))
    assert finding.message.startswith("in instance ①: call 0 reads †data.y and does not wait for call 2")


# Timing


@pytest.mark.parametrize("reading", [{"value": "†data.x"}, {"value": "†data.x || †data.y"}, {"_scopes": ["†data.x"]}])
@pytest.mark.parametrize("place", ["†data.x", "†data.x.y", "†data"])
def test_a_value_of_the_context_is_read_before_or_after_a_writer_that_is_listed_later(
    reading: dict[str, Any], place: str
) -> None:
    (finding,) = found(call("see", "†state.a", **reading), call(to=place), context=[HELD])
    assert (finding.code, finding.calls) == (TIMING, (0, 1))
    assert finding.message == (
        "call 0 reads †data.x and does not wait for call 1, listed after it, which may write there before or after"
    )


@pytest.mark.parametrize(
    "calls",
    [
        [call(value="†data.x", to="a"), call(value="†state.a", to="†data.x")],
        [call(to="†data.x"), call(value="†data.x", to="a")],
        [call(value="†data.x", to="†data.x"), call(value="†data.x", to="†data.x")],
        [call(value="†data.y || †data.x", to="a"), call(to="†data.x"), call(to="†data.y")],
        [call(value="†data.z", to="a"), call(to="†data.z")],
        [call(value="†data.z || †data.x", to="a"), call(to="†data.z")],
        [BRANCHING, call(value=["†data.good", "†data.x"]), call(value="†data.bad", to="†data.x")],
        [call(value="†data.l.0", to="a"), call(to="†data.l", _outputMethod="push")],
        [call(value="†data.x.y", to="a"), call(to="†data.x", _outputMethod="merge")],
        [call(value="†data.u", to="a", _instance="①"), call(to="†data.u")],
        [call(to="†data.y"), call(value="†data.y", to="a"), call(to="†data.y", value="†state.a")],
    ],
)
def test_a_reader_in_order_with_the_writers_reads_one_thing(calls: Calls) -> None:
    assert said(*calls, context=[HELD, {"type": "data", "_instance": "①", "u": 1}]) == []


# Calls that never run

ROUTES: dict[str, Any] = {
    "route": {},
    "refund": {"properties": {"kind": {"const": "refund"}}},
    "order": {"properties": {"kind": {"const": "order"}}},
    "any": {},
    "join": {},
}
ROUTED = [call("route", "kind"), *(call(tool, tool, kind="†state.kind") for tool in ("refund", "order", "any"))]
JOIN = call("join", "both", a="†state.refund", b="†state.order")


@pytest.mark.parametrize(
    ("calls", "context", "expected"),
    [
        ([*ROUTED, JOIN], [], [(NEVER, (4,))]),
        ([*ROUTED, JOIN, call("join", "then", a="†state.both", b="†state.any")], [], [(NEVER, (4,))]),
        ([*ROUTED, call("join", "both", a="†state.refund || †state.order")], [], []),
        ([*ROUTED, call("join", "both", a="†state.refund", b="†state.order || †state.any")], [], []),
        ([*ROUTED, JOIN], [{"type": "state", "order": 1}], []),
        ([call("route", "a || b"), call("join", "c", v="†state.a && †state.b")], [], [(NEVER, (1,))]),
        (
            [*(call("route", f"a{n} || b{n}") for n in range(30)), call("join", "c", v="†state.a9 && †state.b9")],
            [],
            [(NEVER, (30,))],
        ),
        (
            [
                *(call("route", f"a{n} || b{n}", v=f"†state.a{n - 1}") for n in range(1, 30)),
                call("join", v="†state.a29"),
            ],
            [{"type": "state", "a0": 1}],
            [],
        ),
    ],
    ids=["joined", "first cause", "either", "and any", "held", "branches", "one of many", "a long way"],
)
def test_what_never_comes_together_is_said_of_the_first_call_that_needs_it(
    calls: Calls, context: Any, expected: Any
) -> None:
    never = said(*calls, tools=ROUTES, activities=dict.fromkeys(ROUTES, ANY), context=context)
    assert [each for each in never if each[0] == NEVER] == expected


def test_what_a_call_gathers_may_be_there() -> None:
    context = [{"type": "state", "_instance": name, "n": 1} for name in "①②"]
    calls = [call(to="†state.x", v="†state.n", _instance=name) for name in "①②"]
    assert said(*calls, call(to="†state.all", v="†state.x", _gather=True), call(v="†state.all"), context=context) == []


def test_a_passing_thought_reads_nothing_and_is_not_said_to_be_unreachable() -> None:
    thought = {"_tool": "think", "about": "†state.b"}
    plan = check_submission(
        {"tools": {"think": {}, "u": {}}, "solution": {"calls": [thought, {"_tool": "u", "_outputPath": "†state.b"}]}},
        activities={"u": {}},
    )
    assert plan.findings == ()


@pytest.mark.parametrize("required", [{}, {"required": ["lang"]}])
@pytest.mark.parametrize(
    "calls",
    [
        [call(value="†input.lang || †state.default", to="a")],
        [call(value="†input.user.name || †state.default", to="a")],
        [BRANCHING, call(value="†input.user.name || †data.good", other="†data.bad")],
        [BRANCHING, call(value="†data.good", other="†data.bad || †input.lang")],
        [call(value="†input.lang || †state.x", to="a"), call(to="†state.x")],
        [call(to="†state.x"), call(value="†state.x || †input.lang", to="†state.x")],
    ],
)
def test_what_an_input_promises_may_come_or_not(calls: Calls, required: Any) -> None:
    schema = {"properties": {"lang": {"type": "string"}, "user": {"type": "object"}}, **required}
    context = [{"type": "input", "schema": schema}, {"type": "state", "default": "en"}]
    assert checked(*calls, context=context).findings == ()


def test_what_is_put_in_a_text_keeps_no_readers_apart() -> None:
    tools = {
        name: {"type": "object", "properties": {"value": schema}}
        for name, schema in (("yes", {"enum": ["yes"]}), ("no", {"enum": ["no"]}), ("starts", {"pattern": "^a"}))
    }
    calls = [call("make", to="†state.x"), call("yes", value="†state.x", to="†state.y")]
    for reader in (
        call("no", value="†{state.x}", to="†state.z"),
        call("starts", value="a†{state.x}†{state.x.part}", to="†state.z"),
    ):
        plan = checked(*calls, reader, call(value={"y": "†state.y", "z": "†state.z"}), tools=tools)
        assert [finding.code for finding in plan.findings] == []
    refused = checked(
        *calls, call("no", value="†state.x", to="†state.z"), call(a="†state.y", b="†state.z"), tools=tools
    )
    assert [finding.code for finding in refused.findings] == ["ACT101"]


# The simulation: a plan run in the pure engine on made-up values (SPEC R6.7).

OBJECT: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 5}, "s": {}}}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (True, PLACEHOLDER),
        ({}, PLACEHOLDER),
        ({"const": [1]}, [1]),
        ({"enum": ["a", "b"]}, "a"),
        ({"type": "string", "examples": ["Ада"]}, "Ада"),
        ({"type": "string", "default": "x"}, "x"),
        (OBJECT, {"n": 5, "s": PLACEHOLDER}),
        ({"type": "object", "required": ["a"], "additionalProperties": {"type": "boolean"}}, {"a": True}),
        ({"type": "array", "items": {"type": "null"}, "minItems": 3}, [None, None, None]),
        ({"type": "array", "maxItems": 0}, []),
        ({"type": "array", "prefixItems": [{"const": 1}], "items": False}, [1]),
        ({"type": ["null", "number"], "exclusiveMinimum": 2}, 3),
        ({"type": "integer", "minimum": 7, "multipleOf": 5}, 10),
        ({"type": "integer", "maximum": -4}, -4),
        ({"type": "string", "minLength": 3}, "………"),
        ({"type": "string", "format": "date"}, "2026-01-01"),
        ({"anyOf": [{"type": "boolean"}, {"type": "string"}]}, True),
        ({"allOf": [{"required": ["a"]}, {"properties": {"a": {"const": 1}}}]}, {"a": 1}),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"const": 4}}}, 4),
    ],
)
def test_a_sample_is_always_the_same_and_satisfies_its_schema(schema: Any, value: Any) -> None:
    assert sample(schema) == value
    assert compiled(schema).problems(value) == []


def test_a_schema_without_end_has_a_sample_that_ends() -> None:
    assert sample({"type": "object", "properties": {"next": {"$ref": "#"}}})
    assert sample({"$ref": "#"}) == PLACEHOLDER


def test_results_are_made_up_from_output_schemas_and_nothing_is_carried_out() -> None:
    tools = {"make": {"type": "object", "properties": {"_output": OBJECT}}}
    calls = call("make", to="†data.x"), call(value="†data.x.n", to="†data.y"), call(value="†data.y")
    simulation = simulate(checked(*calls, tools=tools))
    assert simulation.data == {None: {"data": {"x": {"n": 5, "s": PLACEHOLDER}, "y": PLACEHOLDER}}}
    assert [call.status.value for call in simulation.calls] == ["done", "done", "sent"]
    assert simulate(checked(*calls, tools=tools)) == simulation


def test_without_a_schema_there_is_something_wherever_others_read() -> None:
    simulation = simulate(checked(call(to="†data.x"), call(value="†data.x.user.name"), call(value="†data.x.id")))
    assert simulation.data[None]["data"]["x"] == {"user": {"name": PLACEHOLDER}, "id": PLACEHOLDER}
    assert simulation.skipped == ()


def test_the_schemas_of_delegates_and_of_the_state_are_used_too() -> None:
    context = [{"type": "state", "schema": {"properties": {"age": {"type": "integer"}}}}]
    plan = checked(
        call("ask", _delegate="d", to="†data.a"),
        call(to="†state.age"),
        context=context,
        delegates={"d": {"context": [], "schema": {"type": "boolean"}}},
    )
    assert simulate(plan).data[None] == {"data": {"a": True}, "state": {"age": 1}}


@pytest.mark.parametrize(
    ("method", "before", "after"),
    [("push", [1], [1, "…"]), ("concat", [1], [1, "…"]), ("concat", "a", "a…"), ("merge", {"a": 1}, {"a": 1})],
)
def test_made_up_values_fit_the_method(method: str, before: Any, after: Any) -> None:
    context = [{"type": "data", "data": {"x": before}}]
    simulation = simulate(checked(call(to="†data.x", _outputMethod=method), context=context))
    assert simulation.data[None] == {"data": {"x": after}}


def test_the_first_branch_is_taken_and_the_others_can_be() -> None:
    plan = checked(
        call(to="†data.good || †data.bad"),
        call(value="†data.good", to="†data.x"),
        call(value="†data.bad", to="†data.y"),
        call(value="†data.x"),
    )
    assert simulate(plan).skipped == (2,)
    assert simulate(plan, {0: 1}).skipped == (1, 3)
    assert [effect.to_dict() for effect in branch_effects(plan, simulate(plan))] == [
        {"call": 0, "alternative": "†data.good", "skipped": [2]},
        {"call": 0, "alternative": "†data.bad", "skipped": [1, 3]},
    ]


def test_every_instance_has_its_own_end_and_sees_the_global_one() -> None:
    context = [{"type": "state", "_instance": name, "text": name} for name in "①②"]
    template = simulate(check_submission(plan_submission(call(value="†state.text", to="†state.x"), context=context)))
    assert template.data["②"] == {"state": {"text": "②", "x": PLACEHOLDER}}
    assert len(template.calls) == 2
    calls = call(to="†data.g"), call(value="†data.g", to="†data.h", _instance="①")
    mixed = simulate(checked(*calls, context=context))
    assert mixed.data["①"]["data"] == {"g": PLACEHOLDER, "h": PLACEHOLDER}
    assert mixed.data["②"]["data"] == {"g": PLACEHOLDER}


def test_what_would_fail_fails() -> None:
    tools = {
        "make": {"type": "object", "properties": {"_output": {"type": "string"}}},
        "take": {"type": "object", "properties": {"value": {"type": "integer"}}},
    }
    simulation = simulate(checked(call("make", to="†data.x"), call("take", value="†data.x", to="†data.y"), tools=tools))
    assert [call.status.value for call in simulation.calls] == ["done", "failed"]
    assert (simulation.calls[1].error or {})["type"] == "InvalidParameters"


def test_a_value_made_up_without_a_schema_is_what_its_reader_asks_for() -> None:
    tools = {"take": {"type": "object", "properties": {"value": {"type": "integer"}}}}
    simulation = simulate(checked(call(to="†data.x"), call("take", value="†data.x", to="†data.y"), tools=tools))
    assert [call.status.value for call in simulation.calls] == ["done", "done"]
    assert isinstance(simulation.data[None]["data"]["x"], int)


TAKES_INTEGER: dict[str, Any] = {"properties": {"value": {"type": "integer", "minimum": 2}}}


@pytest.mark.parametrize(
    ("output", "value"),
    [({}, 2), (True, 2), ({"type": "integer"}, 2), ({"type": "integer", "default": 5}, 5), ({"type": "number"}, 2)],
)
def test_what_a_schema_leaves_open_is_what_the_reader_asks_for(output: Any, value: Any) -> None:
    tools = {"make": {"properties": {"_output": output}}, "take": TAKES_INTEGER}
    simulation = simulate(checked(call("make", to="†data.x"), call("take", value="†data.x", to="†data.y"), tools=tools))
    assert simulation.data[None] == {"data": {"x": value, "y": PLACEHOLDER}}


@pytest.mark.parametrize("method", ["push", "concat"])
def test_what_is_read_of_an_element_is_made_up_for_each_element(method: str) -> None:
    context = [{"type": "data", "data": {"l": []}}]
    add = call(to="†data.l", _outputMethod=method)
    simulation = simulate(
        checked(add, add, call("take", value="†data.l.1", to="†data.y"), call(value="†data.l.0"), context=context,
                tools={"take": TAKES_INTEGER})
    )  # fmt: skip
    assert simulation.data[None] == {"data": {"l": [2, 2], "y": PLACEHOLDER}}


def test_what_is_asked_of_the_elements_of_a_list_is_made_up_too() -> None:
    tools = {"take": {"properties": {"value": {"type": "array", "items": {"required": ["id"]}}}}}
    add = call(to="†data.l", _outputMethod="push")
    simulation = simulate(checked(add, add, call("take", value="†data.l"), tools=tools))
    assert simulation.data[None] == {"data": {"l": [{"id": PLACEHOLDER}] * 2}}


@pytest.mark.parametrize(
    ("first", "then", "after"),
    [
        ("†data.o", call(value="†data.o", to="†data.o.k"), {"o": {"k": PLACEHOLDER}}),
        ("†data.o", call(value="†data.o", to="†data.o.k.l"), {"o": {"k": {"l": PLACEHOLDER}}}),
        ("†data.o", call(value="†data.o.n", to="†data.o.k"), {"o": {"n": PLACEHOLDER, "k": PLACEHOLDER}}),
        ("†data.o", call(value="†data.o", to="†data.o", _outputMethod="merge"), {"o": {}}),
        ("†data.o", call(value="†data.o", to="†data.o", _outputMethod="push"), {"o": [PLACEHOLDER] * 2}),
        ("†data.o", call(value="†data.o", to="†data.o.l", _outputMethod="push"), {"o": {"l": [PLACEHOLDER] * 2}}),
    ],
)
def test_what_others_add_to_can_be_added_to(first: str, then: dict[str, Any], after: dict[str, Any]) -> None:
    assert simulate(checked(call(to=first), then)).data[None] == {"data": after}


ADDRESS: dict[str, Any] = {
    "type": "object",
    "properties": {"street": {"type": "string"}, "zip": {"type": "string", "minLength": 5}},
    "required": ["street", "zip"],
}
"""A model, as it stands among the definitions of a schema."""


def outcomes(simulation: Simulation) -> set[Status]:
    """How the calls ended."""
    return {call.status for call in simulation.calls}


@pytest.mark.parametrize("definitions", ["$defs", "definitions"])
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"$ref": "Address"}, {"street": "…", "zip": "……………"}),
        ({"anyOf": [{"$ref": "Address"}, {"type": "null"}]}, {"street": "…", "zip": "……………"}),
        ({"type": "array", "items": {"$ref": "Tier"}}, ["free"]),
        ({"$ref": "Person"}, {"tier": "free"}),
    ],
)
def test_what_a_kind_or_a_reader_refers_to_is_made_up(definitions: str, schema: Any, value: Any) -> None:
    defined = {"Address": ADDRESS, "Tier": {"enum": ["free", "pro"]}}
    defined["Person"] = {"type": "object", "properties": {"tier": {"$ref": "Tier"}}, "required": ["tier"]}
    text = json.dumps({"properties": {"value": schema}, definitions: defined})
    whole = json.loads(text.replace('"$ref": "', f'"$ref": "#/{definitions}/'))
    calls = call(to="†state.value"), call("take", value="†state.value", to="†data.y")
    for declared in ({"tools": {"take": whole}}, {"context": [{"type": "state", "schema": whole}]}):
        simulation = simulate(checked(*calls, **declared))
        assert (simulation.data[None]["state"], outcomes(simulation)) == ({"value": value}, {Status.DONE})


LOG: dict[str, Any] = {
    "properties": {"log": {"type": "array", "items": {"$ref": "#/$defs/a"}}},
    "$defs": {"a": ADDRESS},
}


@pytest.mark.parametrize("held", [{}, {"log": []}, {"log": [{"street": "A", "zip": "12345"}]}])
@pytest.mark.parametrize("method", ["push", "concat"])
@pytest.mark.parametrize("read", ["†state.log", "†state.log.0", "†state.log.0.street"])
def test_what_is_added_to_a_list_is_such_as_the_schema_of_its_kind_asks(held: Any, method: str, read: str) -> None:
    add = call(to="†state.log", _outputMethod=method)
    context = [{"type": "state", "schema": LOG, "data": held}]
    simulation = simulate(checked(add, add, call(value=read, to="†data.y"), context=context))
    assert outcomes(simulation) == {Status.DONE}
    assert simulation.data[None]["state"]["log"][-2:] == [{"street": "…", "zip": "……………"}] * 2


@pytest.mark.parametrize("under", ["kind", "reader"])
def test_objects_merged_in_parts_have_all_that_is_asked_of_them(under: str) -> None:
    schema = {"type": "object", "properties": {"address": ADDRESS}}
    declared: dict[str, Any] = {"context": [{"type": "state", "schema": schema}]}
    if under == "reader":
        declared = {"tools": {"take": schema}}
    merge = call(to="†state.address", _outputMethod="merge")
    calls = merge, {**merge, "value": "†state.address"}, call("take", address="†state.address", to="†data.y")
    simulation = simulate(checked(*calls, call(value="†state.address.zip", to="†data.z"), **declared))
    assert (outcomes(simulation), simulation.data[None]["data"]) == ({Status.DONE}, {"y": "…", "z": "…"})


A_SET: dict[str, Any] = {"type": "array", "uniqueItems": True, "minItems": 3}


@pytest.mark.parametrize("method", ["push", "concat"])
@pytest.mark.parametrize("items", [{"type": "string"}, {"type": "integer"}, ADDRESS])
def test_elements_that_have_to_differ_do(method: str, items: Any) -> None:
    schema = {"properties": {"tags": {**A_SET, "items": items}}}
    add = call(to="†state.tags", _outputMethod=method)
    calls = add, add, add, call("take", tags="†state.tags", to="†data.y")
    context = [{"type": "state", "tags": [], "schema": schema}]
    assert outcomes(simulate(checked(*calls, context=context, tools={"take": schema}))) == {Status.DONE}


def test_what_a_reader_asks_for_is_added_to_what_a_schema_leaves_open() -> None:
    tools = {"make": {"properties": {"_output": {"type": "object"}}}}
    simulation = simulate(checked(call("make", to="†data.x"), call(value="†data.x.id", to="†data.y"), tools=tools))
    assert simulation.data[None]["data"] == {"x": {"id": "…"}, "y": "…"}


def test_a_schema_that_no_sample_fits_is_named_and_not_applied() -> None:
    tools = {"make": {"type": "object", "properties": {"_output": {"type": "string", "pattern": "^[A-Z]{3}$"}}}}
    simulation = simulate(checked(call("make", to="†data.x"), tools=tools))
    assert simulation.unfit == ("make",)
    assert simulation.data[None] == {"data": {"x": PLACEHOLDER}}


def test_thoughts_and_given_results_are_taken_as_they_are() -> None:
    calls = {"_tool": "t", "_output": 7, "_outputPath": "†data.x"}, {"_tool": "t"}
    simulation = simulate(checked(*calls, activities={}))
    assert simulation.data[None] == {"data": {"x": 7}}
    assert [call.status.value for call in simulation.calls] == ["done", "latent"]


def test_of_very_many_branches_the_first_are_tried() -> None:
    plan = checked(*[call(to=f"†data.a{number} || †data.b{number}") for number in range(50)])
    assert len(list(branch_effects(plan, simulate(plan)))) == MOST_ALTERNATIVES


@pytest.mark.nightly
def test_of_very_many_calls_of_instances_the_first_are_run_and_the_others_counted() -> None:
    context = [{"type": "state", "_instance": f"i{number}", "n": number} for number in range(SIMULATION_MOST_CALLS)]
    calls = call(value="†state.n", to="†state.x"), call(value="†state.x", to="†state.y || †state.z")
    plan = check_submission(plan_submission(*calls, context=context))
    simulation = simulate(plan)
    assert len(simulation.calls) == SIMULATION_MOST_CALLS
    assert (len(simulation.data), simulation.left_out) == (SIMULATION_MOST_CALLS // 2 + 1, SIMULATION_MOST_CALLS // 2)
    assert simulation.data["i0"]["state"] == {"n": 0, "x": PLACEHOLDER, "y": PLACEHOLDER}
    effects = list(branch_effects(plan, simulation))
    assert [effect.alternative for effect in effects] == ["†state.y", "†state.z"]


@pytest.mark.nightly
def test_what_is_global_and_the_first_instance_are_run_however_many_calls_they_have() -> None:
    context = [{"type": "text", "_instance": name} for name in "①②"]
    calls = [call(to=f"†state.k{i}", _instance=name) for name in (None, "①", "②") for i in range(SIMULATION_MOST_CALLS)]
    simulation = simulate(checked(*calls, context=context))
    assert (len(simulation.calls), simulation.left_out) == (2 * SIMULATION_MOST_CALLS, 1)
    assert simulation.data.keys() == {None, "①"}


@pytest.mark.nightly
def test_a_message_that_is_left_out_leaves_the_others_their_numbers() -> None:
    context: list[Any] = [{"type": "text", "_instance": "①"}, {"type": "text", "_instance": "②"}]
    context += [{"type": "state", "data": 5}, {"type": "state", "n": 1}]
    calls = [call(to="†data.x", _instance="①") for _ in range(SIMULATION_MOST_CALLS)]
    simulation = simulate(checked(*calls, call(_instance="②"), call(value="†state.n"), context=context))
    assert simulation.left_out == 1
    (failed,) = [call for call in simulation.calls if call.error]
    assert "(message 3)" in (failed.error or {})["message"]


def test_alternatives_that_would_take_too_many_calls_are_not_tried() -> None:
    calls = [call(to=f"†data.k{i}") for i in range(SIMULATION_MOST_TRIED // 2)]
    plan = checked(call(to="†data.a || †data.b || †data.c"), *calls)
    effects = branch_effects(plan, simulate(plan))
    assert [effect.alternative for effect in effects] == ["†data.a", "†data.b"]


def test_what_is_read_in_a_text_may_be_anything_and_what_is_all_of_it_what_its_reader_asks_for() -> None:
    tools = {"take": {"type": "object", "properties": {"kind": {"enum": ["a", "b"]}, "long": {"maxLength": 30}}}}
    calls = call(to="†data.x"), call("take", kind="†{data.x.k}", long="so: †{data.x.l}", to="†data.y")
    simulation = simulate(checked(*calls, tools=tools))
    assert [call.status.value for call in simulation.calls] == ["done", "done"]
    assert simulation.data[None]["data"]["x"] == {"k": "a", "l": PLACEHOLDER}
