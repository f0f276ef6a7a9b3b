"""Calls and who runs them (SPEC R4.1, R4.2, R4.10): meta-properties, executors, a call for each element."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from acts_celery.protocol import Context, Limits, Output, Rejected, check, check_submission
from acts_celery.protocol.analysis.simulation import simulate
from acts_celery.protocol.analysis.values import value_findings
from acts_celery.protocol.calls.call import ASK_HUMAN, Approvals, call_of, element_index, element_of
from acts_celery.protocol.calls.tools import Executor, Tool
from acts_celery.protocol.engine.events import (
    CallDecided,
    CallHeld,
    FanOut,
    FanOutBegun,
    Hold,
    Outcome,
    Ruling,
    Snapshot,
    Start,
    Status,
    Success,
    Verdict,
)
from acts_celery.protocol.engine.execution import Execution
from acts_celery.protocol.requests import compose, read_answer, render
from acts_celery.protocol.schemas import CompiledSchema

from .building import (
    ANY,
    DATE,
    call,
    checked,
    pointers,
    problems,
    problems_of,
    run,
    statuses,
    submission,
)
from .schema_strategies import schema_values, schemas
from .test_r12_requests import call_schema, request

# SPEC R4.1, R8.1: meta-properties in whatever a tool's schema applies to a call as a whole.

Schema = dict[str, Any]

IN_PLACE: dict[str, Callable[[Schema], Schema]] = {
    "at the root": lambda schema: schema,
    "in allOf": lambda schema: {"allOf": [{}, schema]},
    "in anyOf": lambda schema: {"anyOf": [False, schema]},
    "in oneOf": lambda schema: {"oneOf": [False, schema]},
    "by $ref": lambda schema: {"$ref": "#/$defs/it", "$defs": {"it": schema}},
    "by an anchor": lambda schema: {"$ref": "#it", "$defs": {"x": {"$anchor": "it", **schema}}},
    "by an id": lambda schema: {"$ref": "it", "$id": "https://e.org/tool", "$defs": {"x": {"$id": "it", **schema}}},
    "by $dynamicRef": lambda schema: {"$dynamicRef": "#it", "$defs": {"x": {"$dynamicAnchor": "it", **schema}}},
    "after then": lambda schema: {"if": {"required": ["a"]}, "then": schema},
    "after else": lambda schema: {"if": {"required": ["none"]}, "else": schema},
    "in dependentSchemas": lambda schema: {"dependentSchemas": {"a": schema}},
    "in not": lambda schema: {"not": {"not": schema}},
    "deep inside": lambda schema: {"allOf": [{"anyOf": [{"$ref": "#/$defs/it"}]}], "$defs": {"it": schema}},
}
in_place = pytest.mark.parametrize("put", IN_PLACE.values(), ids=IN_PLACE)


def admitted(schema: Schema, *, strict_meta: bool = False, **properties: Any) -> bool:
    """Whether a tool with this schema admits a call with these properties; `a` is 1, and the context has a state."""
    value = submission({"_tool": "t", "a": 1, **properties}, context=[{"type": "state", "x": 1}], tools={"t": schema})
    try:
        check_submission(value, strict_meta=strict_meta)
    except Rejected:
        return False
    return True


def scoped(name: str, kind: str) -> Schema:
    """Scopes under one of their names."""
    return {name: [kind]}


@in_place
@pytest.mark.parametrize("written", ["_scopes", "_imports"])
@pytest.mark.parametrize("limited", ["_scopes", "_imports"])
def test_r4_1_a_limit_on_scopes_is_enforced_under_both_names(
    put: Callable[[Schema], Schema], written: str, limited: str
) -> None:
    tool = put({"properties": {limited: {"items": {"enum": ["state"]}}}})
    assert admitted(tool, **scoped(written, "state"))
    assert not admitted(tool, **scoped(written, "secrets"))


@in_place
def test_r4_1_what_is_required_of_scopes_is_met_under_both_names(put: Callable[[Schema], Schema]) -> None:
    for schema in ({"required": ["_imports"]}, {"dependentRequired": {"a": ["_imports"]}}):
        tool = put(schema)
        assert admitted(tool, _imports=["state"])
        assert admitted(tool, _scopes=["state"])
        assert not admitted(tool)


def test_r4_1_what_depends_on_scopes_depends_on_them_under_both_names() -> None:
    for tool in (
        {"dependentRequired": {"_imports": ["b"]}},
        {"dependentSchemas": {"_imports": {"required": ["b"]}}},
        {"allOf": [{"dependentRequired": {"_scopes": ["b"]}}]},
    ):
        for name in ("_scopes", "_imports"):
            assert admitted(tool, **scoped(name, "state"), b=1)
            assert not admitted(tool, **scoped(name, "state"))


@pytest.mark.parametrize("written", ["_scopes", "_imports"])
@pytest.mark.parametrize("limited", ["_scopes", "_imports"])
def test_r4_1_what_is_wrong_with_scopes_is_reported_once_and_where_they_are_written(written: str, limited: str) -> None:
    limits = {"items": {"enum": ["state"]}}
    tool = {"allOf": [{"properties": {limited: limits}}, {"properties": {"_scopes": limits, "_imports": limits}}]}
    found = problems_of({"_tool": "t", written: ["state", "secrets"]}, tools={"t": tool})
    assert pointers(found) == [f"/solution/calls/0/{written}/1"]


@in_place
@pytest.mark.parametrize(
    "closing",
    [
        {"additionalProperties": False},
        {"unevaluatedProperties": False},
        {"propertyNames": {"enum": ["a"]}},
        {"maxProperties": 1},
        {"enum": [{"a": 1}]},
        {"const": {"a": 1}},
    ],
)
def test_r4_1_what_closes_a_call_speaks_of_parameters(closing: Schema, put: Callable[[Schema], Schema]) -> None:
    tool = put({"properties": {"a": {}}, **closing})
    pinned = {"_outputPath": {"pattern": "^†state"}, "_scopes": {"type": "array"}}
    for own in ({}, {"properties": pinned}):
        schema = {**tool, **own, "properties": {**tool.get("properties", {}), **own.get("properties", {})}}
        assert admitted(schema, _outputPath="†state.y", _imports=["state"], _note="x")
        assert not admitted(schema, _outputPath="†state.y", b=1)


def test_r4_1_so_does_what_an_object_must_have_so_many_of() -> None:
    assert not admitted({"minProperties": 2, "properties": {"_outputPath": {}}}, _outputPath="†state.y")
    assert admitted({"minProperties": 2}, b=1)


@in_place
def test_r4_1_strict_meta_closes_a_call_to_what_the_schema_mentions_nowhere(put: Callable[[Schema], Schema]) -> None:
    tool = put({"additionalProperties": False, "properties": {"a": {}}})
    mentioned = {"properties": {"_outputPath": {}}, "patternProperties": {"^_note": {}}, "required": ["_imports"]}
    tool["allOf"] = [*tool.get("allOf", ()), {"anyOf": [mentioned]}]
    given: Schema = {"_outputPath": "†state.y", "_scopes": ["state"], "_notes": 1}
    assert admitted(tool, strict_meta=True, **given)
    assert admitted(tool, **given, _other=1)
    assert not admitted(tool, strict_meta=True, **given, _other=1)
    assert not admitted(tool, strict_meta=True, **given, b=1)
    assert admitted(tool, strict_meta=True, **given, _reasoningForCall="it is asked for")
    assert not admitted(tool, **given, _reasoningForCall=1)


@in_place
def test_r4_1_a_result_is_required_of_no_call(put: Callable[[Schema], Schema]) -> None:
    tool = put({"required": ["_output", "a"], "dependentRequired": {"a": ["_output"]}})
    if "not" not in tool:  # `not` asks whether it is there
        assert admitted(tool, _outputPath="†state.y")
    assert admitted(tool, _outputPath="†state.y", _output=1)
    assert not admitted(put({"required": ["_output", "b"]}), _outputPath="†state.y")


def test_r4_1_not_and_if_ask_whether_a_result_is_there() -> None:
    unwritten = {"not": {"required": ["_output"]}}
    assert admitted(unwritten)
    assert not admitted(unwritten, _output=1)
    described = {"if": {"required": ["_output"]}, "then": {"required": ["b"]}, "else": {"required": ["a"]}}
    assert admitted(described)
    assert not admitted(described, _output=1)
    assert admitted(described, _output=1, b=1)
    closed = {"then": {"properties": {"b": {}}}, "else": {"properties": {"a": {}}}, "unevaluatedProperties": False}
    assert admitted({"if": {"required": ["_output"]}, **closed})
    assert not admitted({"if": {"required": ["_output"]}, **closed}, _output=1)


def test_r4_1_a_result_that_is_still_to_come_may_make_the_difference_between_alternatives() -> None:
    tool = {"oneOf": [{"required": ["_output", "a"]}, {"required": ["b"]}]}
    assert admitted(tool), "it will have one"
    assert admitted(tool, b=1), "nothing says that it will have one"
    assert admitted(tool, _output=1)
    assert not admitted(tool, b=1, _output=1)


def test_r4_1_alternatives_inside_alternatives_do_not_double_the_work() -> None:
    inner = {f"d{n}": {"oneOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"required": ["b"]}]} for n in range(50)}
    tool = Tool("t", {"$ref": "#/$defs/d0", "$defs": {**inner, "d50": False}})
    (problem,) = tool.problems({"a": 1})
    assert "is not valid under any of the schemas" in problem.message


@pytest.mark.parametrize(
    "schema",
    [
        {"additionalProperties": {"const": "yes"}},
        {"unevaluatedProperties": {"const": "yes"}},
        {"patternProperties": {"a": {"const": "yes"}}},
        {"patternProperties": {"Path$": {"const": "yes"}}},
        {"allOf": [{"patternProperties": {".*": {"const": "yes"}}}]},
    ],
)
def test_r4_1_what_is_said_of_all_parameters_is_filled_in_nowhere(schema: Schema) -> None:
    (sent,) = checked(call("t", is_a="yes", fromPath="yes"), tools={"t": schema}).calls
    assert set(sent.properties) == {"_tool", "is_a", "fromPath"}
    assert admitted(schema, a="yes", _outputPath="†state.y", _scopes=["state"])
    assert not admitted(schema, a="yes", is_a=1, fromPath=1, x=1)


@in_place
@pytest.mark.parametrize("pattern", ["^_imports$", "^_sc", "_scopes", "^(_imports|_scopes)$", "^(?:_scopes)$", "^_",
                                     "^.scopes$", "^[_x](imports|scopes)$", r"^\u005fscopes"])  # fmt: skip
def test_r4_1_a_pattern_that_begins_with_an_underscore_speaks_of_meta_properties(
    pattern: str, put: Callable[[Schema], Schema]
) -> None:
    tool = put({"patternProperties": {pattern: {"items": {"enum": ["state"]}}}})
    for name in ("_scopes", "_imports"):
        assert admitted(tool, **scoped(name, "state"))
        assert not admitted(tool, **scoped(name, "secrets"))


@pytest.mark.parametrize("name", ["by $ref", "by an anchor", "by an id", "by $dynamicRef", "in allOf"])
def test_r4_1_what_is_pinned_whatever_the_call_is_is_filled_in(name: str) -> None:
    tool = IN_PLACE[name]({"properties": {"_outputPath": {"const": "†state.y"}, "_imports": {"const": ["state"]}}})
    (pinned,) = checked(call("t", a=1), tools={"t": tool}).calls
    assert (pinned.properties["_outputPath"], pinned.properties["_scopes"]) == ("†state.y", ["state"])


def test_r4_1_what_is_pinned_in_some_case_only_is_not_filled_in() -> None:
    pinned = {"properties": {"_outputPath": {"const": "†state.y"}}}
    for tool in ({"anyOf": [pinned, {}]}, {"if": {"required": ["a"]}, "then": pinned}, {"not": {"not": pinned}}):
        (sent,) = checked(call("t", a=1), tools={"t": tool}).calls
        assert "_outputPath" not in sent.properties


NAMES = ["_scopes", "_imports", "_output", "_outputPath", "_note"]


@given(
    schemas(),
    schema_values.map(lambda value: {"const": value}) | schemas(),
    st.dictionaries(st.sampled_from("abc"), schema_values),
    st.permutations(NAMES),
    st.booleans(),
)
def test_r4_1_a_tool_means_the_same_wherever_its_schema_stands(
    schema: Any, of_one: Any, properties: Schema, names: list[str], strict_meta: bool
) -> None:
    def named(value: Any) -> Any:
        """The same about two meta-properties and a parameter."""
        text = json.dumps(value).replace('"a"', f'"{names[0]}"').replace('"^a"', f'"^{names[0]}"')
        return json.loads(text.replace('"b"', f'"{names[1]}"'))

    whole: Schema = schema if isinstance(schema, dict) else {"allOf": [schema]}
    it = named({**whole, "properties": {**whole.get("properties", {}), "a": of_one}})
    result = it["properties"].get("_output")
    assume(not (isinstance(result, dict) and "$defs" in result))  # at the root they are looked up in these first
    definitions = {"d": True, **it.pop("$defs", {}), "it": it}
    held = named(properties)
    held = {**held, "_scopes": held.pop("_imports")} if "_imports" in held else held
    root = Tool("t", {**it, "$defs": definitions})
    for around in ({"allOf": [it]}, {"$ref": "#/$defs/it"}, {"allOf": [{"allOf": [{"$ref": "#/$defs/it"}]}]}):
        inside = Tool("t", {**around, "$defs": definitions})
        told = [tool.problems(held, strict_meta=strict_meta) for tool in (inside, root)]
        assert bool(told[0]) == bool(told[1])
        assert inside.constants == root.constants
        promises = [tool.compiled_output for tool in (inside, root)]
        for value in properties.values():
            kept = [not promise.problems(value) if promise is not None else True for promise in promises]
            assert kept[0] == kept[1]


def test_r4_1_a_call_inside_a_parameter_is_an_ordinary_object() -> None:
    properties = {"a": {}, "step": {"$ref": "#"}, "_imports": {}}
    tool = {"properties": properties, "additionalProperties": False, "required": ["_imports"]}
    assert admitted(tool, _scopes=["state"], step={"a": 1, "_imports": ["state"]})
    assert not admitted(tool, _scopes=["state"], step={"a": 1, "_scopes": ["state"]})
    assert not admitted(tool, _scopes=["state"], step={"a": 1, "_imports": ["state"], "_note": 1})


@pytest.mark.parametrize(
    "schema",
    [
        {"not": {"properties": {"a": {"type": "string"}}}},
        {"enum": [{"a": 1}]},
        {"oneOf": [{"properties": {"a": {"type": "string"}}}, True]},
        {"if": {"properties": {"a": {"type": "string"}}}, "then": {"minProperties": 2}},
    ],
)
def test_r7_2_what_is_said_of_a_call_as_a_whole_does_not_tell_its_values(schema: Schema) -> None:
    context = [{"type": "state", "secret": "s3cret"}]
    result = run(call("t", to="†data.z", a="†state.secret"), tools={"t": schema}, context=context)
    assert statuses(result) == ["failed"]
    assert "the value" in str(result.outcome(0).error)
    assert "s3cret" not in str(result.outcome(0).error)


def test_r4_1_activities_with_derived_schemas_are_closed_to_parameters_as_well() -> None:
    schema = {"properties": {"a": {}}, "additionalProperties": False}
    plan = checked(call("t", to="†state.y", a=1), tools={}, activities={"t": {**ANY, "allOf": [schema]}})
    assert len(plan.calls) == 1


BRANCHES = {
    "by enum": {"enum": ["success", "failure"]},
    "by enum, with daggers": {"enum": ["†state.success", "†state.failure"]},
    "by oneOf": {"oneOf": [{"const": "†state.success"}, {"const": "failure"}]},
    "by a pattern": {"pattern": "^(†state[.])?(success|failure)$"},
}


@in_place
@pytest.mark.parametrize("pin", BRANCHES.values(), ids=BRANCHES)
def test_r4_1_a_pin_of_the_output_path_speaks_of_each_of_its_places(
    put: Callable[[Schema], Schema], pin: Schema
) -> None:
    tool = put({"properties": {"_outputPath": pin}})
    for path in (
        "success",
        "success || failure",
        "†state.success||failure",
        "success && †state.failure",
        "†state.failure",
    ):
        assert admitted(tool, _outputPath=path), path
    for path in ("other", "success || other", "†input.success", "†state.success || †state", "success.failure"):
        assert not admitted(tool, _outputPath=path), path


@pytest.mark.parametrize(
    "pin", [{"const": "success || failure"}, {"enum": ["†state.success  ||  †state.failure", "x"]}]
)
def test_r4_1_a_pin_of_several_places_speaks_of_the_whole_expression_however_it_is_spelt(pin: Schema) -> None:
    tool = {"properties": {"_outputPath": pin}}
    for path in ("success || failure", "†state.success||†state.failure", "success || †state.failure"):
        assert admitted(tool, _outputPath=path), path
    for path in ("success", "failure || success", "success && failure", "success || failure || x"):
        assert not admitted(tool, _outputPath=path), path


def test_r4_1_a_pattern_speaks_of_what_the_call_says() -> None:
    tool = {"properties": {"_outputPath": {"pattern": '^†state[.a-z"[\\]|&]*$'}}}
    for path in ("†state.a", "†state.a || †state.b", '†state["a||b"]&&†state.c', "†state.a||†state.b&&†state.c"):
        assert admitted(tool, _outputPath=path), path
    for path in ("a", "†state.a || b", "b && †state.a"):
        assert not admitted(tool, _outputPath=path), path


def test_r4_1_what_a_pin_says_of_each_place_counts_for_the_code_of_another_tool_too() -> None:
    tools = {
        "pay": {"properties": {"_outputPath": {"enum": ["success", "failure"]}}},
        "t": {"properties": {"_activity": {"const": "pay"}}},
    }
    checked(call("t", to="success || failure"), tools=tools)
    assert pointers(problems_of(call("t", to="success || secret"), tools=tools)) == ["/solution/calls/0/_outputPath"]


def test_r4_1_what_else_is_wrong_with_a_call_is_told_beside_an_admitted_path() -> None:
    tool = {
        "properties": {"_outputPath": {"enum": ["success", "failure"]}, "b": {"type": "integer"}},
        "required": ["b"],
    }
    found = problems_of(call("t", to="success || failure", b="x"), tools={"t": tool})
    assert pointers(found) == ["/solution/calls/0/b"]


@pytest.mark.parametrize("path", ["success", "†state.failure"])
def test_r4_1_a_latent_call_chooses_of_a_pinned_choice_however_it_is_spelt(path: str) -> None:
    tool = {"properties": {"_outputPath": {"const": "success || failure"}}}
    checked(call("t", to=path, _output=1), tools={"t": tool}, activities={}, model=True)


def test_r4_1_code_chooses_among_the_places_that_a_pin_lists() -> None:
    tools = {"verify": {"properties": {"_outputPath": {"enum": ["success", "failure"]}}}}
    result = run(
        call("verify", to="success || failure"),
        call("give", to="greeted", value="†state.success"),
        call("give", to="sorry", value="†state.failure"),
        tools=tools,
        functions={"verify": lambda parameters, context: Output("†state.failure", {"reason": "unknown"})},
    )
    assert statuses(result) == ["done", "skipped", "done"]


# SPEC R4.2: which code runs a call, and which tools are known.

# R4.2


def runner(
    raw: dict[str, Any], *, tools: Mapping[str, Any] | None = None, activities: Any = (), registered: Any = ()
) -> tuple[Executor, str]:
    """Who runs a call."""
    named = dict.fromkeys(activities, ANY)
    value = {"solution": {"calls": [raw]}, "tools": tools or {}}
    found = check_submission(value, activities=named, delegates=registered).calls[0].runner
    return found.executor, found.name


@pytest.mark.parametrize(
    ("raw", "tool", "activities", "expected"),
    [
        ({"_delegate": "d"}, {"_delegate": {}}, ["a", "t"], (Executor.DELEGATE, "d")),
        ({}, {"_delegate": "d", "_activity": ""}, ["a", "t"], (Executor.DELEGATE, "d")),
        ({}, {"_activity": "a"}, ["a", "t"], (Executor.ACTIVITY, "a")),
        ({}, {"_activity": {"const": "a"}}, ["a", "t"], (Executor.ACTIVITY, "a")),
        ({"_activity": "a"}, {"_activity": {}}, ["a", "t"], (Executor.ACTIVITY, "a")),
        ({}, {"_activity": ""}, ["a", "t"], (Executor.ACTIVITY, "t")),
        ({"_activity": ""}, {}, ["t"], (Executor.ACTIVITY, "t")),
        ({}, {}, ["a", "t"], (Executor.ACTIVITY, "t")),
        ({}, {}, ["a"], (Executor.LATENT, "t")),
        ({}, {"_activity": ""}, [], (Executor.LATENT, "t")),
        ({"_delegate": "anonymous"}, {"_delegate": {}}, ["t"], (Executor.DELEGATE, "anonymous")),
    ],
)
def test_r4_2_a_delegate_then_the_tools_activity_then_one_of_its_name_else_it_is_latent(
    raw: dict[str, Any], tool: dict[str, Any], activities: list[str], expected: tuple[Executor, str]
) -> None:
    assert runner({"_tool": "t", **raw}, tools={"t": tool}, activities=activities, registered=["d"]) == expected


@pytest.mark.parametrize(
    ("tool", "raw"),
    [
        ({"_activity": "a"}, {"_activity": "b"}),
        ({"_activity": ""}, {"_activity": "b"}),
        ({"properties": {"_activity": False}}, {"_activity": "b"}),
        ({"_delegate": {"enum": ["d"]}}, {"_delegate": "e"}),
        ({"properties": {"_delegate": False}}, {"_delegate": "e"}),
    ],
)
def test_r4_2_the_tools_schema_decides_which_code_a_call_may_name(tool: dict[str, Any], raw: dict[str, Any]) -> None:
    found = problems({"solution": {"calls": [{"_tool": "t", **raw}]}, "tools": {"t": tool}},
                     activities={"a": ANY, "b": ANY}, delegates=["d", "e"])  # fmt: skip
    assert pointers(found) == [f"/solution/calls/0/{next(iter(raw))}"]


def test_r4_2_a_tool_is_known_when_declared_registered_or_run_by_a_registered_delegate() -> None:
    assert runner({"_tool": "t"}, tools={"t": {}}) == (Executor.LATENT, "t")
    assert runner({"_tool": "t"}, activities=["t"]) == (Executor.ACTIVITY, "t")
    assert runner({"_tool": "t", "_delegate": "d"}, registered=["d"]) == (Executor.DELEGATE, "d")


@pytest.mark.parametrize(
    ("raw", "pointer", "hint"),
    [
        ({"_tool": "giev"}, "/_tool", "did you mean 'give'?"),
        ({"_tool": "zzz"}, "/_tool", "unknown tool 'zzz'"),
        ({"_tool": "d"}, "/_tool", 'it is a delegate, so write "_delegate": "d", too'),
        ({"_tool": "give", "_delegate": "nobody"}, "/_delegate", "nobody"),
        ({"_tool": "zzz", "_delegate": "nobody"}, "/_delegate", "nobody"),
        ({"_tool": "zzz", "_delegate": "anonymous"}, "/_tool", "zzz"),
        ({"_tool": "give", "_activity": "giev"}, "/_activity", "did you mean 'give'?"),
        ({"_tool": ""}, "/_tool", "_tool"),
        ({"_tool": 5}, "/_tool", "_tool"),
        ({"x": 1}, "", "_tool"),
        ("give", "", "object"),
        (None, "", "object"),
    ],
)
def test_r4_2_an_unknown_tool_delegate_or_activity_is_a_structural_error(raw: Any, pointer: str, hint: str) -> None:
    value = {"solution": {"calls": [raw]}, "tools": {"give": {"_delegate": {}, "_activity": {}}}}
    found = problems(value, activities={"give": ANY}, delegates=["d"])
    assert pointers(found) == ["/solution/calls/0" + pointer]
    assert hint in found[0].message


def test_r4_2_a_submissions_own_delegates_are_registered() -> None:
    own: dict[str, Any] = {"d": {"context": [], "schema": {}}}
    plan = checked({"_tool": "t", "_delegate": "d"}, delegates=own, registered=["e"])
    assert plan.calls[0].runner.name == "d"


def test_r4_2_the_last_declaration_of_a_tool_wins() -> None:
    context = [
        {"type": "tool", "tool": {"t": {"required": ["a"]}}},
        {"type": "tool", "tool": {"t": {"required": ["b"]}}},
    ]
    assert '"b"' in problems({"context": context, "solution": {"calls": [{"_tool": "t"}]}})[0].message
    shorthand = {"t": {"required": ["c"]}}
    assert (
        '"c"' in problems({"context": context, "solution": {"calls": [{"_tool": "t"}]}, "tools": shorthand})[0].message
    )


def test_r4_2_a_declared_schema_comes_before_that_of_the_activity() -> None:
    activities = {"t": {"type": "object", "required": ["a"]}}
    assert len(problems({"solution": {"calls": [{"_tool": "t"}]}}, activities=activities)) == 1
    assert len(checked({"_tool": "t"}, tools={"t": {}}, activities=activities).calls) == 1


@pytest.mark.parametrize("key", ["_activity", "_delegate"])
@pytest.mark.parametrize(
    ("tool", "is_named"),
    [
        ({}, False),
        ({"properties": {"_scopes": {}}}, False),
        ({"patternProperties": {"^_": {}}}, False),
        ({"required": ["KEY"]}, False),
        ({"properties": {"KEY": {}}}, True),
        ({"KEY": {"enum": ["x", "y"]}}, True),
        ({"allOf": [{"$ref": "#/$defs/d"}], "$defs": {"d": {"properties": {"KEY": {"const": "x"}}}}}, True),
    ],
)
def test_r4_2_a_call_names_its_code_only_where_its_tool_names_the_property(
    key: str, tool: dict[str, Any], is_named: bool
) -> None:
    tool = json.loads(json.dumps(tool).replace("KEY", key))
    value = {"solution": {"calls": [{"_tool": "t", key: "x"}]}, "tools": {"t": tool}}
    environment: dict[str, Any] = {"activities": {"x": ANY}, "delegates": ["x"]}
    if is_named:
        assert check_submission(value, **environment).calls[0].runner.name == "x"
    else:
        (problem,) = problems(value, **environment)
        assert problem.pointer == f"/solution/calls/0/{key}"
        assert problem.message == f"the schema of tool 't' does not name {key}, so no call of it may carry one"


def test_r4_2_a_call_of_a_registered_activity_names_no_other_code() -> None:
    for key in ("_activity", "_delegate"):
        found = problems({"solution": {"calls": [{"_tool": "t", key: "x"}]}}, activities={"t": ANY, "x": ANY},
                         delegates=["x"])  # fmt: skip
        assert pointers(found) == [f"/solution/calls/0/{key}"]


@pytest.mark.parametrize(
    ("raw", "tool", "at"),
    [
        ({"_activity": "a", "_delegate": "d"}, {"_activity": {}, "_delegate": {}}, "/_delegate"),
        ({"_delegate": "d"}, {"_activity": "a", "_delegate": {}}, "/_delegate"),
        ({"_activity": "a"}, {"_activity": {}, "_delegate": "d"}, ""),
        ({}, {"_activity": "a", "_delegate": "d"}, ""),
    ],
)
def test_r4_2a_an_activity_and_a_delegate_exclude_each_other(raw: Any, tool: Any, at: str) -> None:
    found = problems({"solution": {"calls": [{"_tool": "t", **raw}]}, "tools": {"t": tool}},
                     activities={"a": ANY}, delegates=["d"])  # fmt: skip
    assert pointers(found) == [f"/solution/calls/0{at}"]
    assert "_activity and _delegate cannot be used together: remove one" in found[0].message


REVEAL: dict[str, Any] = {"properties": {"_scopes": {"items": {"enum": ["input"]}}, "n": {"type": "integer"}}}
OPEN: dict[str, Any] = {"_activity": {}, "_delegate": {}}


@pytest.mark.parametrize(
    ("tools", "activities", "registered"),
    [
        ({"note": OPEN, "reveal": REVEAL}, {"reveal": ANY}, []),
        ({"note": OPEN}, {"reveal": REVEAL}, []),
        ({"note": OPEN, "reveal": {}}, {"reveal": REVEAL}, []),
        ({"note": {"_activity": "reveal"}, "reveal": REVEAL}, {"reveal": ANY}, []),
    ],
)
def test_r4_2_no_other_name_leads_around_what_is_pinned_for_the_code(
    tools: Any, activities: Any, registered: Any
) -> None:
    def submitted(*scopes: str) -> dict[str, Any]:
        raw = {"_tool": "note", "_activity": "reveal", "_scopes": list(scopes)}
        return {"solution": {"calls": [raw]}, "tools": tools}

    (problem,) = problems(submitted("input", "state"), activities=activities, delegates=registered)
    assert problem.pointer == "/solution/calls/0/_scopes/1"
    assert problem.message.endswith("(by the schema of 'reveal', whose code runs the call)")
    for scopes in ((), ("input",), ("†input.user",)):
        assert check_submission(submitted(*scopes), activities=activities, delegates=registered).size == 1


def test_r4_2_nor_does_the_name_of_a_delegate_or_of_a_tool_that_nothing_declares() -> None:
    for tool, tools in (("note", {"note": OPEN, "reveal": REVEAL}), ("undeclared", {"reveal": REVEAL})):
        raw = {"_tool": tool, "_delegate": "reveal", "_scopes": ["state"]}
        found = problems({"solution": {"calls": [raw]}, "tools": tools}, activities={}, delegates=["reveal"])
        assert pointers(found) == ["/solution/calls/0/_scopes/0"]


def test_r4_2_pins_of_the_code_hold_wherever_its_schema_says_them() -> None:
    pins: list[dict[str, Any]] = [
        {"oneOf": [{"properties": {"_scopes": {"const": ["input"]}}}, {"properties": {"_scopes": {"const": []}}}]},
        {"not": {"properties": {"_scopes": {"contains": {"const": "state"}}}, "required": ["_scopes"]}},
        {"patternProperties": {"^_scopes$": {"maxItems": 0}}},
        {"properties": {"_imports": {"const": ["input"]}}},
    ]
    for pin in pins:
        raw: dict[str, Any] = {"_tool": "note", "_activity": "reveal", "_scopes": ["state"]}
        value: dict[str, Any] = {
            "solution": {"calls": [raw]},
            "tools": {"note": OPEN, "reveal": {**pin, "required": ["n", "_tool"]}},
        }
        (problem,) = problems(value, activities={"reveal": ANY})
        assert problem.pointer.removeprefix("/solution/calls/0") in ("", "/_scopes", "/_scopes/0")
        raw["_scopes"] = []
        assert check_submission(value, activities={"reveal": ANY}).size == 1


def test_r4_2_what_the_tool_of_the_code_says_of_parameters_is_said_of_its_own_calls_only() -> None:
    tools = {"note": OPEN, "reveal": {**REVEAL, "required": ["n"], "additionalProperties": False}}
    raw = {"_tool": "note", "_activity": "reveal", "n": "text", "other": 1, "_outputPath": "†state.a"}
    assert checked(raw, tools=tools, activities={"reveal": ANY}).size == 1


def test_r4_2_a_declaration_narrows_what_an_activity_says_of_meta_properties_and_never_widens_it() -> None:
    activities = {"t": {"properties": {"_scopes": {"items": {"enum": ["state", "input"]}}}}}
    narrow = {"t": {"properties": {"_scopes": {"items": {"enum": ["input", "secrets"]}}}}}
    cases: tuple[tuple[str, dict[str, Any], bool], ...] = (
        ("input", narrow, True),
        ("state", narrow, False),
        ("secrets", narrow, False),
        ("secrets", {"t": {}}, False),
        ("state", {"t": {}}, True),
    )
    for scope, tools, fits in cases:
        value = {"solution": {"calls": [{"_tool": "t", "_scopes": [scope]}]}, "tools": tools}
        if fits:
            check_submission(value, activities=activities)
        else:
            assert pointers(problems(value, activities=activities)) == ["/solution/calls/0/_scopes/0"]


# R4.2a


@pytest.mark.parametrize(
    ("raw", "tool", "allow", "at"),
    [
        ({}, {}, ["t"], []),
        ({}, {}, ["other"], ["/_tool"]),
        ({}, {}, [], ["/_tool"]),
        ({"_activity": "a"}, OPEN, ["t", "a"], []),
        ({"_activity": "a"}, OPEN, ["t"], ["/_activity"]),
        ({"_activity": "a"}, OPEN, ["a"], ["/_tool"]),
        ({"_delegate": "d"}, OPEN, ["t", "d"], []),
        ({"_delegate": "d"}, OPEN, ["t"], ["/_delegate"]),
        ({"_delegate": "anonymous"}, OPEN, ["t"], ["/_delegate"]),
        ({}, {"_activity": "a"}, ["t"], [""]),
        ({}, {"_activity": "a"}, ["t", "a"], []),
        ({"_output": 1}, {"_activity": ""}, ["t"], []),
        ({"_output": 1}, {"_activity": ""}, [], ["/_tool"]),
    ],
)
def test_r4_2a_a_tool_and_its_code_have_both_to_be_allowed(
    raw: Any, tool: Any, allow: list[str], at: list[str]
) -> None:
    value = {"solution": {"calls": [{"_tool": "t", **raw}]}, "tools": {"t": tool}}
    environment: dict[str, Any] = {"activities": {"a": ANY}, "delegates": ["d"], "allow": allow}
    if at:
        found = problems(value, **environment)
        assert pointers(found) == [f"/solution/calls/0{place}" for place in at]
        assert found[0].message.endswith("is not allowed here")
    else:
        assert check_submission(value, **environment).allow == frozenset(allow)


def test_r4_2a_whatever_a_document_declares_only_what_is_allowed_may_be_called() -> None:
    context = [{"type": "tool", "tool": {"mine": {"_delegate": "own"}}}]
    solution = {"calls": [{"_tool": "mine"}, {"_tool": "t"}]}
    with pytest.raises(Rejected) as refused:
        check(context, solution, activities={"t": ANY}, allow=["t"])
    assert pointers(refused.value.errors) == ["/solution/calls/0", "/solution/calls/0/_tool"]


BEHIND = {"note": ANY, "reveal": ANY}
BY_MODE = {
    "if": {"properties": {"mode": {"const": "full"}}, "required": ["mode"]},
    "then": {"properties": {"_scopes": {"items": {"enum": ["state", "input"]}}}},
    "else": {"properties": {"_scopes": {"items": {"enum": ["input"]}}}},
}


def around(reveal: dict[str, Any], **properties: Any) -> list[Any]:
    """What is wrong with a call of `note` that is run by `reveal`."""
    call = {"_tool": "note", "_activity": "reveal", "_outputPath": "†data.a", **properties}
    tools = {"reveal": reveal, "note": {"properties": {"_activity": {"const": "reveal"}}}}
    context = [{"type": "state", "secret": 1}, {"type": "input", "mode": "brief"}]
    with pytest.raises(Rejected) as rejected:
        check_submission({"context": context, "tools": tools, "solution": {"calls": [call]}}, activities=BEHIND)
    return [problem.message for problem in rejected.value.errors]


def test_r4_2_a_pin_holds_where_the_schema_of_the_code_takes_too_long_to_apply() -> None:
    texts = {"type": "string", "pattern": "^(?!admin)[a-z]+$"}
    pinned = {"properties": {"id": texts, "_scopes": {"items": {"enum": ["input"]}}}}
    (message,) = around(pinned, ids=["a" * 26] * 5_000, _scopes=["state"])
    assert "exceed the validation budget" in message


def test_r4_2_what_the_code_pins_by_parameters_is_not_led_around_by_a_reference() -> None:
    (message,) = around(BY_MODE, mode="†input.mode", _scopes=["state"])
    assert "to decide on meta-properties" in message
    assert around(BY_MODE, mode="brief", _scopes=["state"])


def test_r4_2_a_declaration_does_not_widen_what_strict_meta_refuses_of_its_activity() -> None:
    closed = {"reveal": {"properties": {"id": {}}, "additionalProperties": False}}
    value = {
        "context": [{"type": "state", "secret": 1}],
        "tools": {"reveal": {"properties": {"_scopes": True}}},
        "solution": {"calls": [{"_tool": "reveal", "_scopes": ["state"]}]},
    }
    with pytest.raises(Rejected):
        check_submission(value, activities=closed, strict_meta=True)


# Calls that are carried out for each element of the lists they are given (SPEC R4.10).

CONTEXT: list[dict[str, Any]] = [{"type": "state", "urls": ["a", "b"], "n": [1, 2], "one": 1, "none": []}]
EACH = call("fetch", "†state.r", url="†state.urls", _each="url")
TEXT = {"type": "string"}
FETCH: dict[str, Any] = {
    "type": "object",
    "properties": {"url": TEXT, "n": {"type": "integer"}, "_each": {"enum": ["url", ["url", "n"]]}, "_output": TEXT},
    "required": ["url"],
}


def execution(*calls: Any, **parts: Any) -> Execution:
    """The global lane of a plan."""
    plan = checked(*calls, context=CONTEXT)
    lane = plan.lanes[None]
    return Execution.of(plan, lane, Context(CONTEXT).fold(None), **parts)


def test_an_element_has_a_number_of_its_own_beyond_all_calls() -> None:
    assert [call_of(element_index(3, 5)), element_of(element_index(3, 5))] == [3, 5]
    assert [call_of(3), element_of(3)] == [3, None]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"_each": 1}, "must be the name of a parameter"),
        ({"_each": []}, "must be the name of a parameter"),
        ({"_each": ["url", 1]}, "must be the name of a parameter"),
        ({"_each": "uri"}, "names 'uri', which is not a parameter"),
        ({"_each": "_scopes", "_scopes": ["state"]}, "names '_scopes', which is not a parameter"),
        ({"_each": ["url", "url"]}, "twice"),
        ({"_each": "url", "url": ["a"]}, "must be a reference to a list"),
        ({"_each": "url", "url": "††state.urls"}, "must be a reference to a list"),
    ],
)
def test_r4_10_it_names_parameters_that_are_references(given: dict[str, Any], words: str) -> None:
    (problem,) = problems_of({**EACH, **given}, context=CONTEXT)
    assert (problem.pointer, words in problem.message) == ("/solution/calls/0/_each", True)


def test_r4_10_it_excludes_gathering_and_what_a_model_or_a_person_gives() -> None:
    instances = [{"type": "state", "_instance": "①", "urls": []}]
    (problem,) = problems_of({**EACH, "_gather": True}, context=instances)
    assert "cannot be combined with _gather" in problem.message
    (problem,) = problems_of(
        {**EACH, "_tool": "think"}, context=CONTEXT, activities={}, model=True, tools={"think": {}}
    )
    assert problem.pointer == "/solution/calls/0/_each"
    asking = {**EACH, "_tool": ASK_HUMAN}
    (problem,) = problems_of(asking, context=CONTEXT, activities={ASK_HUMAN: {}}, tools={ASK_HUMAN: {}})
    assert (problem.pointer, "a question is asked once" in problem.message) == ("/solution/calls/0/_each", True)


def test_r4_10_a_tool_that_pins_it_need_not_be_told() -> None:
    pinned = {"fetch": {**FETCH, "properties": {**FETCH["properties"], "_each": {"const": "url"}}}}
    written = call("fetch", "†state.r", url="†state.urls")
    result = run(written, context=CONTEXT, tools=pinned, functions={"fetch": lambda given, _: given["url"] * 2})
    assert result.data[None]["state"]["r"] == ["aa", "bb"]


def test_r4_6_output_holds_for_each_element() -> None:
    results = iter(["x", 1])
    result = run(EACH, context=CONTEXT, tools={"fetch": FETCH}, functions={"fetch": lambda *_: next(results)})
    assert result.data[None]["state"]["r"] == ["x", None]
    error = result.data[None]["error"]["error"]
    assert (error["type"], error["element"]) == ("OutputError", 1)


def test_r4_4_an_element_names_no_path_and_where_all_fail_the_last_alternative_is_told() -> None:
    chosen = {**EACH, "_outputPath": "†state.r || †state.why"}
    result = run(chosen, context=CONTEXT, functions={"fetch": lambda *_: Output("†state.why", 1)})
    why = result.data[None]["state"]["why"]
    assert (why["type"], why["message"].partition(";")[0]) == ("ElementsFailed", "2 of 2 elements failed (0, 1)")


def test_r4_6_a_place_whose_schema_forbids_null_takes_no_list_with_a_failed_element() -> None:
    strict = [*CONTEXT, {"type": "state", "schema": {"properties": {"r": {"type": "array", "items": TEXT}}}}]
    results = iter(["x", 1])
    result = run(EACH, context=strict, tools={"fetch": FETCH}, functions={"fetch": lambda *_: next(results)})
    assert result.statuses[None][0] is Status.FAILED
    assert "r" not in result.data[None]["state"]


def test_r4_10_the_list_is_taken_once_and_the_results_are_written_once() -> None:
    adding = call("take", "†state.urls", url="†state.urls", _each="url", _outputMethod="concat")
    result = run(adding, context=CONTEXT, functions={"take": lambda given, _: given["url"].upper()})
    assert result.data[None]["state"]["urls"] == ["a", "b", "A", "B"]
    assert len([message for message in result.messages if message["_call"]["_tool"] == "take"]) == 1


def test_r7_1_the_number_of_elements_is_bounded() -> None:
    lane = execution(EACH, limits=Limits(elements=1))
    (outcome,) = lane.decide(DATE)
    assert isinstance(outcome, Outcome)
    assert outcome.error is not None
    assert (outcome.status, "ACTS_LIMIT_ELEMENTS" in outcome.error["message"]) == (Status.FAILED, True)


def test_r7_1_the_results_together_are_no_more_than_a_call_may_be_given() -> None:
    lane = execution(EACH, limits=Limits(call_bytes=100))
    (spread,) = lane.decide(DATE)
    assert isinstance(spread, FanOut)
    lane.apply(FanOutBegun(0, spread.snapshot))
    for start in lane.decide(DATE):
        assert isinstance(start, Start)
        lane.record(start.call.index, Status.RUNNING)
        for event in lane.finish(start.call.index, Success("x" * 60), DATE).events:
            assert lane.apply(event)
    (outcome,) = lane.decide(DATE)
    assert isinstance(outcome, Outcome)
    assert (outcome.status, outcome.error and outcome.error["type"]) == (Status.FAILED, "TooLarge")


def test_r4_10_no_element_shares_what_it_is_given_with_another() -> None:
    def spoil(given: Any, context: Any) -> Any:
        given["more"].append(1)
        context["state"]["one"] = 2
        return [given["more"], sorted(context["state"])]

    spoiling = call("spoil", "†state.r", url="†state.urls", more=[], _each="url", _scopes=["†state.one"])
    result = run(spoiling, context=CONTEXT, functions={"spoil": spoil})
    assert result.data[None]["state"]["r"] == [[[1], ["one"]]] * 2


def test_r14_1_it_is_held_as_a_whole_and_changed_parameters_are_lists() -> None:
    lane = execution(EACH, approvals=Approvals(frozenset({"fetch"})))
    (held,) = lane.decide(DATE)
    assert isinstance(held, Hold)
    assert not isinstance(held, FanOut)
    assert held.snapshot == Snapshot({"url": ["a", "b"]}, {})
    lane.apply(CallHeld(0, held.snapshot))
    lane.apply(CallDecided(0, Ruling(Verdict.APPROVED, {"url": "a"})))
    (outcome,) = lane.decide(DATE)
    assert isinstance(outcome, Outcome)
    assert outcome.status is Status.FAILED


def test_r12_4_it_is_offered_where_the_tool_lists_it_and_demands_references() -> None:
    asked = request({"tools": {"fetch": FETCH}}, activities={"fetch": FETCH})
    schema = CompiledSchema(compose(asked))

    def is_admitted(**properties: Any) -> bool:
        written = {"_tool": "fetch", "_outputPath": "†state.r", **properties}
        return not schema.problems({"calls": [written], "output": None})

    assert list(call_schema(asked, "fetch")["properties"])[:3] == ["_tool", "_reasoningForCall", "_each"]
    assert is_admitted(url="a")
    assert is_admitted(url="†state.urls", _each="url")
    assert is_admitted(url="†state.urls", n="†state.n", _each=["url", "n"])
    assert not is_admitted(url="a", _each="url")
    assert not is_admitted(url="†state.urls", n=1, _each=["url", "n"])
    assert not is_admitted(url="†state.urls", n="†state.n", _each="n")
    assert '"_each" names one or more parameters' in render(asked)[0]["content"]
    plain = {**FETCH, "properties": {key: part for key, part in FETCH["properties"].items() if key != "_each"}}
    without = request({"tools": {"fetch": plain}}, activities={"fetch": plain})
    assert "_each" not in call_schema(without, "fetch")["properties"]
    assert "_each" not in render(without)[0]["content"]


def test_r12_4_what_is_pinned_is_shown_may_be_left_out_and_demands_references_all_the_same() -> None:
    pinned = {**FETCH, "properties": {**FETCH["properties"], "_each": {"const": "url"}}}
    asked = request({"tools": {"fetch": pinned}}, activities={"fetch": pinned})
    written = {"_tool": "fetch", "_outputPath": "†state.r", "url": "†state.urls"}
    context = {"context": CONTEXT}
    shown = call_schema(asked, "fetch")
    assert shown["properties"]["_each"] == {"const": "url"}
    assert "_each" not in shown["required"]
    assert CompiledSchema(compose(asked)).problems({"calls": [{**written, "url": "a"}], "output": None})
    found = read_answer(
        request({"tools": {"fetch": pinned}, **context}, activities={"fetch": pinned}),
        {"calls": [written], "output": None},
    )
    assert found.errors == ()


def lists_of(schema: Any) -> dict[str, Any]:
    """A tool whose result is a list."""
    return {"_output": {"type": "array", "items": schema}}


@pytest.mark.parametrize(
    ("makes", "words", "codes"),
    [
        (lists_of({"type": "integer"}), {}, [("ACT201", (0, 1))]),
        ({"_output": TEXT}, {}, [("ACT201", (0, 1))]),
        (lists_of(TEXT), {"type": "array"}, []),
        (lists_of(TEXT), {"type": "array", "items": TEXT}, []),
        (lists_of(TEXT), TEXT, [("ACT201", (1, 2))]),
    ],
)
def test_check_looks_at_the_elements_of_what_is_read_and_at_lists_of_what_is_written(
    makes: Any, words: Any, codes: Any
) -> None:
    calls = call("make", to="†state.urls"), EACH, call("join", words="†state.r")
    tools = {"make": makes, "fetch": FETCH, "join": {"properties": {"words": words}}}
    assert [(one.code, one.calls) for one in value_findings(checked(*calls, tools=tools))] == codes


def test_a_simulation_makes_lists_up() -> None:
    calls = call("make", to="†state.urls"), EACH, call("join", words="†state.r", to="†state.all")
    join = {"join": {"properties": {"words": {"type": "array", "minItems": 1, "items": TEXT}}}}
    simulated = simulate(checked(*calls, tools={"fetch": FETCH, **join}))
    assert {one.status for one in simulated.calls} == {Status.DONE}
    assert isinstance(simulated.data[None]["state"]["r"], list)


def test_a_template_beside_the_list_is_read_once_and_an_element_is_none() -> None:
    context = [{"type": "state", "urls": ["†{state.key}", "††"], "key": "k"}]
    result = run(call("echo", "†data.r", url="†state.urls", note="of †{state.urls}", _each="url"), context=context)
    assert result.data[None]["data"]["r"] == [
        {"url": url, "note": 'of ["†{state.key}","††"]'} for url in ("†{state.key}", "††")
    ]
    (problem,) = problems_of(call("fetch", "†state.r", url="†{state.urls}", _each="url"), context=CONTEXT)
    assert "must be a reference to a list" in problem.message
