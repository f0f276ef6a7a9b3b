"""SPEC R4.1, R8.1: meta-properties in whatever a tool's schema applies to a call as a whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from acts_celery.protocol import Output, Rejected, check_submission
from acts_celery.protocol.calls.tools import Tool

from .building import ANY, call, checked, pointers, problems_of, run, statuses, submission
from .schema_strategies import schema_values, schemas

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
