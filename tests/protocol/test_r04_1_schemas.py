"""SPEC R4.1: calls are held against the schemas of their tools."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery.protocol import Rejected, check_submission
from acts_celery.protocol.schemas import compiled

from .building import (
    ANY,
    call,
    checked,
    pointers,
    problems,
    problems_of,
    run,
    run_plan,
    statuses,
    submission,
)

COUNT: dict[str, Any] = {
    "type": "object",
    "properties": {"number": {"type": "integer", "minimum": 0}, "unit": {"enum": ["m", "s"]}},
    "required": ["number"],
    "additionalProperties": False,
}
NUMBERS = [{"type": "state", "one": 1, "minus": -1, "text": "1", "unit": "m"}]


def admitted(schema: Any, **properties: Any) -> bool:
    """Whether a tool with this schema admits a call with these properties."""
    value = submission({"_tool": "t", **properties}, context=NUMBERS, tools={"t": schema})
    try:
        check_submission(value)
    except Rejected:
        return False
    return True


# R4.1


@pytest.mark.parametrize(
    ("properties", "pointer"),
    [
        ({"number": "1"}, "/number"),
        ({"number": -1}, "/number"),
        ({"number": 1, "unit": "h"}, "/unit"),
        ({}, ""),
        ({"number": 1, "extra": 1}, ""),
    ],
)
def test_r4_1_a_call_is_held_against_its_tools_schema_at_submission(properties: dict[str, Any], pointer: str) -> None:
    found = problems_of({"_tool": "count", **properties}, tools={"count": COUNT})
    assert pointers(found) == ["/solution/calls/0" + pointer]


def test_r4_1_expressions_stand_in_for_any_value_at_submission() -> None:
    for number in ("†state.one", "†state.minus", "†state.text", "†state.one || †state.text"):
        assert admitted(COUNT, number=number, unit="†state.unit")
    assert not admitted(COUNT, number="††text")
    assert not admitted(COUNT, number="†state.one", extra="†state.one"), "a parameter too many is one in any case"
    assert not admitted(COUNT, unit="†state.unit"), "and so is one that is missing"


@pytest.mark.parametrize(
    ("schema", "value", "is_admitted"),
    [
        ({"anyOf": [{"type": "string"}, {"minimum": 5}]}, "†state.one", True),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"c": "†state.one"}, False),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"b": "†state.one"}, True),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "†state.one", True),
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"c": "†state.one"}, False),
        ({"oneOf": [{"properties": {"a": {"const": n}}} for n in (1, 2)]}, {"a": "†state.one"}, True),
        ({"not": {"type": "integer"}}, "†state.one", True),
        ({"not": {"properties": {"a": {"const": 1}}}}, {"a": "†state.one"}, True),
        ({"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}}, {"a": "†state.one"}, True),
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {"a": 1}, False),
        ({"const": {"a": 1}}, {"a": "†state.one"}, True),
        ({"const": {"a": 1}}, {"a": 2}, False),
        ({"enum": [[1], [2]]}, ["†state.one"], True),
        ({"enum": [[1], [2]]}, [3], False),
        ({"contains": {"const": 1}}, ["†state.one"], True),
        ({"contains": {"const": 1}}, [2], False),
        ({"uniqueItems": True}, ["†state.one", "†state.one"], True),
        ({"uniqueItems": True}, [1, 1], False),
        ({"minItems": 2}, ["†state.one"], False),
        ({"items": {"type": "string"}}, ["†state.one", 5], False),
        ({"additionalProperties": {"type": "string"}}, {"a": "†state.one"}, True),
        ({"additionalProperties": {"type": "string"}}, {"a": "†state.one", "b": 5}, False),
        ({"propertyNames": {"maxLength": 1}}, {"long": "†state.one"}, False),
        ({"unevaluatedProperties": False, "if": {"properties": {"a": {"const": 1}}}, "else": {"properties": {"b": {}}}},
         {"a": "†state.one", "b": 1}, True),
        ({"unevaluatedProperties": False, "allOf": [{"properties": {"a": True}}]}, {"a": "†state.one", "b": 1}, False),
        ({"unevaluatedProperties": False, "anyOf": [{"required": ["a"], "properties": {"a": True}},
                                                    {"required": ["b"], "properties": {"b": True}}]},
         {"a": "†state.one", "b": 1}, True),
        ({"unevaluatedProperties": False, "if": {"properties": {"a": {"const": 1}}}, "else": {"properties": {"b": {}}}},
         {"a": "†state.one", "c": 1}, False),
        ({"unevaluatedProperties": {"type": "string"}}, {"a": "†state.one", "b": 1}, False),
        ({"unevaluatedItems": False, "prefixItems": [True]}, ["†state.one"], True),
        ({"unevaluatedItems": False, "prefixItems": [True]}, [1, "†state.one"], False),
        ({"unevaluatedItems": False, "contains": {"const": 1}}, ["†state.one", 1], True),
        ({"unevaluatedItems": False, "contains": {"const": 1}}, ["†state.one", 2], True),
        ({"$ref": "#/$defs/int"}, "†state.one", True),
        ({"$ref": "#/$defs/int"}, "one", False),
        ({"dependentRequired": {"a": ["b"]}}, {"a": "†state.one"}, False),
        (False, "†state.one", False),
    ],
)  # fmt: skip
def test_r4_1_an_expression_inside_gets_the_benefit_of_the_doubt_and_only_that(
    schema: Any, value: Any, is_admitted: bool
) -> None:
    tool = {"type": "object", "properties": {"x": schema}, "$defs": {"int": {"type": "integer"}}}
    assert admitted(tool, x=value) is is_admitted


def test_r4_1_expressions_are_admitted_below_a_schema_that_names_its_dialect() -> None:
    tool = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "child": {"$ref": "#"},
            "x": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "integer"},
        },
    }
    assert admitted(tool, x="†state.one", child={"x": "†state.one", "child": {"x": 1}})
    assert not admitted(tool, child={"child": {"x": "one"}})


def test_r4_1_resolved_parameters_are_held_against_the_schema_before_execution() -> None:
    calls = [
        {"_tool": "count", "number": f"†state.{name}", "_outputPath": f"†data.{name}"} for name in ("one", "minus")
    ]
    result = run(*calls, context=NUMBERS, tools={"count": COUNT}, functions={"count": lambda parameters, _: parameters})
    assert statuses(result) == ["done", "failed"]
    error = result.outcome(1).error
    assert error is not None
    assert error["type"] == "InvalidParameters"
    assert "/number" in error["message"]
    assert result.started == ((None, 0),)


@pytest.mark.parametrize(
    ("schema", "path", "is_admitted"),
    [
        ({"const": "†state.a"}, "†state.a", True),
        ({"const": "†state.a"}, "†state.b", False),
        ({"enum": ["†state.success", "†state.failure"]}, "†state.failure", True),
        ({"enum": ["†state.success", "†state.failure"]}, "†state.other", False),
        ({"type": "string", "pattern": "^†"}, "†state.a", True),
        ({"type": "string", "pattern": "^†"}, "a", False),
        ({"oneOf": [{"const": "†state.a"}, {"const": "†state.b"}]}, "†state.b", True),
        ({"oneOf": [{"const": "†state.a"}, {"const": "†state.b"}]}, "†state.c", False),
    ],
)
def test_r4_1_a_pinned_output_path_is_enforced(schema: dict[str, Any], path: str, is_admitted: bool) -> None:
    for tool in ({"properties": {"_outputPath": schema}}, {"_outputPath": schema}):
        assert admitted(tool, _outputPath=path) is is_admitted


def test_r4_1_a_pin_inside_a_combined_schema_is_enforced_as_well() -> None:
    pinned = {"properties": {"_outputPath": {"const": "†state.a"}}}
    combined: list[dict[str, Any]] = [
        {"allOf": [pinned]},
        {"if": {"properties": {"mode": {"const": 1}}}, "then": pinned},
        {"$ref": "#/$defs/p", "$defs": {"p": pinned}},
    ]
    for tool in combined:
        assert admitted({"type": "object", **tool}, mode=1, _outputPath="†state.a")
        assert not admitted({"type": "object", **tool}, mode=1, _outputPath="†state.b")


@pytest.mark.parametrize("name", ["_scopes", "_imports"])
@pytest.mark.parametrize(
    ("schema", "scopes", "is_admitted"),
    [
        ({"const": ["input"]}, ["input"], True),
        ({"const": ["input"]}, ["state"], False),
        ({"const": ["input"]}, [], True),
        ({"items": {"enum": ["state", "input"]}}, ["input"], True),
        ({"items": {"enum": ["state", "input"]}}, ["data"], False),
        ({"items": {"enum": ["state"]}}, ["†state.one"], True),
    ],
)
def test_r4_1_scopes_are_held_to_a_const_or_an_enum_of_items(
    name: str, schema: dict[str, Any], scopes: list[str], is_admitted: bool
) -> None:
    assert admitted({"properties": {name: schema}}, _scopes=scopes) is is_admitted
    assert admitted({"properties": {"_scopes": schema}}, **{name: scopes}) is is_admitted


PINS: dict[str, Any] = {"_outputPath": "†state.a", "_outputMethod": "push", "_scopes": ["state"]}
PINNING = {name: {"const": value} for name, value in PINS.items()}


@pytest.mark.parametrize(
    "tool",
    [
        {"properties": PINNING},
        {"_outputPath": PINNING["_outputPath"], "_outputMethod": {"const": "push"}, "_imports": PINNING["_scopes"]},
        PINS,
        {**PINS, "required": list(PINS)},
    ],
)
def test_r4_1_a_pinned_meta_property_that_the_call_omits_is_filled_in(tool: dict[str, Any]) -> None:
    result = run({"_tool": "see"}, tools={"see": tool}, context=[{"type": "state", "b": 1}])
    assert result.data[None]["state"] == {"b": 1, "a": [{"state": {"b": 1}}]}
    (message,) = result.messages
    assert message["_call"] == {"_tool": "see"}, "the call as submitted"
    assert (message["_path"], message["_outputMethod"]) == ("†state.a", "push")


def test_r4_1_a_null_meta_property_counts_as_left_out() -> None:
    nothing = dict.fromkeys(["_outputMethod", "_scopes", "_imports", "_instance", "_delegate", "_activity"])
    result = run({**call(to="†state.a", value=None), **nothing})
    assert result.data[None]["state"] == {"a": None}
    assert statuses(run(call(_outputPath=None))) == ["sent"]
    assert not admitted({"required": ["_outputPath"]}, _outputPath=None)


def test_r4_1_a_pinned_instance_is_where_the_call_runs() -> None:
    tool = {"_instance": {"const": "①"}}
    result = run(call("pinned", to="†state.a"), tools={"pinned": tool}, context=[{"type": "text", "_instance": "①"}],
                 functions={"pinned": lambda *_: 1})  # fmt: skip
    assert result.data == {None: {}, "①": {"state": {"a": 1}}}
    assert pointers(problems_of(call("pinned"), tools={"pinned": tool})) == ["/solution/calls/0"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("_outputPath", 5),
        ("_outputPath", "†"),
        ("_outputMethod", "shuffle"),
        ("_outputMethod", []),
        ("_scopes", "state"),
        ("_scopes", [["state"]]),
        ("_delegate", ["x"]),
        ("_activity", {"const": 1}),
        ("_instance", 5),
    ],
)
def test_r4_1_a_tool_that_pins_nonsense_is_found_at_submission(name: str, value: Any) -> None:
    tool = {"properties": {name: {"const": value}}}
    (problem,) = problems_of({"_tool": "t"}, tools={"t": tool}, activities={"t": ANY})
    assert problem.pointer == "/solution/calls/0"
    assert problem.message.startswith(f"{name}, which its tool's schema fills in: ")


def test_r4_1_additional_properties_false_speaks_of_parameters_unless_meta_is_strict() -> None:
    raw = {"_tool": "count", "number": 1, "_outputPath": "†state.a", "_note": "x"}
    assert len(checked(raw, tools={"count": COUNT}).calls) == 1
    found = problems_of(raw, tools={"count": COUNT}, strict_meta=True)
    assert pointers(found) == ["/solution/calls/0"]
    assert "_outputPath" in found[0].message
    assert "_note" in found[0].message
    mentioned = {**COUNT, "_outputPath": {}, "_note": {}}
    assert len(checked(raw, tools={"count": mentioned}, strict_meta=True).calls) == 1


@pytest.mark.parametrize(
    ("step", "value", "is_one"),
    [
        (0.01, 0.07, True),
        (0.01, 19.99, True),
        (0.01, 0.075, False),
        (3, 9, True),
        (3, 10.0, False),
        (1e-7, 3e-7, True),
        (2, "3", True),
    ],
)
def test_r4_1_a_multiple_is_one_as_the_numbers_are_written(step: float, value: Any, is_one: bool) -> None:
    assert admitted({"properties": {"x": {"multipleOf": step}}}, x=value) is is_one


def test_r4_1_a_schema_is_never_fetched() -> None:
    tool = {"properties": {"x": {"$ref": "http://127.0.0.1:9/schema.json"}}}
    found = problems_of({"_tool": "t", "x": 1}, tools={"t": tool})
    assert pointers(found) == ["/tools/t/properties/x/$ref"]
    assert "http://127.0.0.1:9/schema.json" in found[0].message


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}},
        {"properties": {"x": {"$ref": "#/nowhere"}}},
        {"properties": {"x": {"$ref": "#/example"}}, "example": {"type": 5}},
        {"properties": {"x": {"$ref": "#anchor"}}},
        {"properties": {"x": {"$id": "http://[", "$ref": "y"}}},
    ],
)
def test_r4_1_a_schema_that_cannot_be_applied_is_an_error_and_no_crash(schema: dict[str, Any]) -> None:
    assert not admitted(schema, x=1)


@pytest.mark.parametrize(
    ("tools", "pointer"),
    [
        ("t", "/tools"),
        ([[]], "/tools/0"),
        ({"t": []}, "/tools/t"),
        ({"t": {"type": "nonsense"}}, "/tools/t/type"),
        ({"t": {"properties": []}}, "/tools/t/properties"),
        ({"t": {"properties": {"a": {"type": 5}}}}, "/tools/t/properties/a/type"),
        ({"t": {"properties": {"a": "string"}}}, "/tools/t/properties/a"),
        ({"t": {"required": "a"}}, "/tools/t/required"),
        ({"t": {"required": [1]}}, "/tools/t/required"),
        ({"t": {"properties": {"a": {"pattern": "("}}}}, "/tools/t/properties/a/pattern"),
        ({"t": {"_output": {"type": 5}}}, "/tools/t/_output/type"),
        ({"t": {"properties": {"a": {"$ref": "#/$defs/a"}}}}, "/tools/t/properties/a/$ref"),
        ({"t": {"properties": {"a": {"anyOf": [{}, {"$ref": "#a"}]}}}}, "/tools/t/properties/a/anyOf/1/$ref"),
        ({"t": {"properties": {"a": {"$dynamicRef": "#a"}}}}, "/tools/t/properties/a/$dynamicRef"),
        ({"t": {"_output": {"items": {"$ref": "#/$defs/a"}}}}, "/tools/t/_output/items/$ref"),
    ],
)
def test_r4_1_a_tool_that_is_no_json_schema_is_a_structural_error(tools: Any, pointer: str) -> None:
    assert pointer in pointers(problems({"solution": {"calls": [{"_tool": "t"}]}, "tools": tools}))


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {}}},
        {"properties": {"a": {"$ref": "#here"}, "b": {"$anchor": "here"}}},
        {"properties": {"a": {"$ref": "#"}, "$ref": {"type": "string"}}},
        {"properties": {"a": {"const": {"$ref": "#/nowhere"}}}, "examples": [{"$ref": "#/nowhere"}]},
        {"properties": {"a": {"$ref": "#/odd%20name"}}, "odd name": {}},
    ],
)
def test_r4_1_a_reference_to_what_is_there_is_no_error(schema: dict[str, Any]) -> None:
    assert check_submission(submission(tools={"t": schema})).calls == ()


# R4.1a


def test_r4_1a_a_call_gets_the_kinds_of_the_signature_unless_it_says_which() -> None:
    scopes = {"type": "array", "items": {"enum": ["state", "input"]}, "x-granted": ["state", "input"]}
    activities = {"see": {"type": "object", "properties": {"_scopes": scopes}, "additionalProperties": False}}
    context = [{"type": "state", "a": 1}, {"type": "input", "b": 2}, {"type": "data", "c": 3}]
    calls: list[dict[str, Any]] = [
        {"_tool": "see", "_outputPath": "†data.all"},
        {"_tool": "see", "_outputPath": "†data.one", "_scopes": ["input"]},
    ]
    value: dict[str, Any] = {"context": context, "solution": {"calls": calls}}
    data = run_plan(check_submission(value, activities=activities)).data[None]["data"]
    assert data["all"] == {"state": {"a": 1}, "input": {"b": 2}}
    assert data["one"] == {"input": {"b": 2}}
    calls[1]["_scopes"] = ["data"]
    assert pointers(problems(value, activities=activities)) == ["/solution/calls/1/_scopes/0"]


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"$ref": "/$defs/int"}, "'/$defs/int' is referred to, and is not in it, did you mean '#/$defs/int'?"),
        ({"$ref": "#/$defs/on"}, "'#/$defs/on' is referred to, and is not in it"),
        ({"$ref": "http://example.org/int.json"}, "'http://example.org/int.json' is referred to, and is not in it"),
        ({"$ref": "#/default"}, '5 is not of type "array"'),
        ({"$ref": "#/examples/0"}, '5 is not of types "boolean", "object"'),
        ({"$ref": "#/definitions/a"}, "'#/definitions/c' is referred to, and is not in it"),
    ],
)
def test_r4_1_a_reference_to_what_is_not_there_or_is_no_schema_is_reported(schema: Any, fault: str) -> None:
    tool = {
        "properties": {"x": schema},
        "$defs": {"int": {"type": "integer"}},
        "definitions": {"a": {"allOf": [{"$ref": "#/definitions/c"}]}},
        "default": {"allOf": 5},
        "examples": [5],
    }
    [problem] = problems(submission(call("t", "†state.y"), tools={"t": tool}))
    assert problem.pointer.startswith("/tools/t/")
    assert problem.message.startswith(f"not a JSON Schema: {fault}")


def test_r4_1_a_reference_may_lead_into_json_schema_itself() -> None:
    schema = {"$ref": "https://json-schema.org/draft/2020-12/schema"}
    tool = {"properties": {"x": schema, "y": {"$ref": "#/properties/x%20y"}, "x y": {}}}
    assert admitted(tool, x={"type": "string"})
    assert not admitted(tool, x={"type": "word"})


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"allOf": [{"properties": {"_outputPath": {"const": "†state.a"}}}]},
        {"if": {"required": ["value"]}, "then": {"properties": {"_outputPath": {"const": "†state.a"}}}},
        {"$ref": "#/$defs/pinned", "$defs": {"pinned": {"properties": {"_outputPath": {"const": "†state.a"}}}}},
        {"dependentRequired": {"value": ["_outputPath"]}},
    ],
)
def test_r4_1_a_meta_property_that_is_spoken_of_elsewhere_is_no_additional_one(elsewhere: dict[str, Any]) -> None:
    tool = {"type": "object", "properties": {"value": {}}, "additionalProperties": False, **elsewhere}
    assert admitted(tool, value=1, _outputPath="†state.a")
    if "dependentRequired" not in elsewhere:
        assert not admitted(tool, value=1, _outputPath="†state.b")


def test_r4_1_what_is_said_of_calls_inside_a_parameter_is_not_said_of_the_call() -> None:
    call_schema = {"type": "object", "properties": {"_tool": {"const": "a"}, "_outputPath": {"type": "string"}}}
    tool = {"properties": {"step": {"$ref": "#/$defs/c"}}, "additionalProperties": False, "$defs": {"c": call_schema}}
    assert admitted(tool, step={"_tool": "a"}, _outputPath="†state.x")
    assert not admitted(tool, step={"_tool": "b"}, _outputPath="†state.x")


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        ({"type": "string"}, None, 'null is not of type "string"'),
        ({"enum": ["a", None, True]}, "b", '"b" is not one of "a", null or true'),
        ({"const": None}, 1, "null was expected"),
        ({"const": [True]}, False, "[true] was expected"),
        ({"maxItems": 1}, [{"a": None}, "é"], '[{"a":null},"é"] has more than 1 item'),
        ({"minLength": 2}, "é", '"é" is shorter than 2 characters'),
        ({"properties": {"a": False}}, {"a": None}, "null is not admitted"),
    ],
)
def test_r4_1_values_are_reported_as_json_has_them(schema: Any, value: Any, said: str) -> None:
    assert [problem.message for problem in compiled(schema).problems(value)] == [said]


DRAFT = "http://json-schema.org/draft-0{}/schema#"
PAIR = {"items": [{"type": "integer"}, {"type": "string"}], "additionalItems": False}


@pytest.mark.parametrize(
    ("draft", "schema", "good", "bad"),
    [
        ("7", PAIR, [1, "a"], [1, "a", 2]),
        ("6", {"items": [{"type": "integer"}], "additionalItems": {"type": "string"}}, [1, "a"], [1, 2]),
        ("7", {"items": {"type": "integer"}, "additionalItems": False}, [1, 2], ["a"]),
        ("7", {"items": []}, [1], None),
        ("4", {"minimum": 3, "exclusiveMinimum": True}, 4, 3),
        ("4", {"maximum": 3, "exclusiveMaximum": False}, 3, 4),
        ("7", {"exclusiveMinimum": 3}, 4, 3),
        ("7", {"dependencies": {"a": ["b"]}}, {"a": 1, "b": 1}, {"a": 1}),
        ("4", {"dependencies": {"a": {"required": ["b"]}}}, {"a": 1, "b": 1}, {"a": 1}),
        ("7", {"$ref": "#/definitions/n", "minimum": 9, "definitions": {"n": {"type": "integer"}}}, 1, "a"),
        ("7", {"properties": {"a": PAIR, "b": {"$ref": "#/properties/a/items/1"}}}, {"b": "x"}, {"b": 1}),
        ("6", {"allOf": [{"$ref": "#n"}], "definitions": {"n": {"$id": "#n", "type": "integer"}}}, 1, "a"),
        ("4", {"properties": {"id": {"type": "integer"}, "items": PAIR}}, {"id": 1, "items": [1]}, {"items": ["a"]}),
        ("7", {"const": {"items": [1], "dependencies": {"a": ["b"]}}}, {"items": [1], "dependencies": {"a": ["b"]}}, 1),
    ],
)
def test_r4_1_a_schema_of_an_older_draft_means_what_it_means_there(
    draft: str, schema: dict[str, Any], good: Any, bad: Any
) -> None:
    whole = {"$schema": DRAFT.format(draft), **schema}
    assert compiled(whole).problems(good) == []
    assert bad is None or compiled(whole).problems(bad) != []
    assert admitted({"$schema": DRAFT.format(draft), "properties": {"v": schema}}, v=good) or "$ref" in str(schema)


def test_r4_1_a_tool_of_an_older_draft_is_held_against_it() -> None:
    tool = {"$schema": DRAFT.format(7), "type": "object", "properties": {"range": PAIR}}
    assert admitted(tool, range=[1, "a"])
    assert not admitted(tool, range=["a", 1])
    assert not admitted({**tool, "$schema": "https://json-schema.org/draft/2020-12/schema"}, range=[1, "a"])
