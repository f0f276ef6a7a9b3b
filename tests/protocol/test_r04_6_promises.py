"""SPEC R4.6: what a tool promises of its results, wherever it says so and whatever that refers to."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator

from acts_celery.protocol.calls.tools import Tool

from .building import call, checked, pointers, problems_of, run, statuses
from .schema_strategies import schema_values, schemas

Schema = dict[str, Any]

TEXT: Schema = {"properties": {"_output": {"type": "string"}}}
SHORT: Schema = {"properties": {"_output": {"maxLength": 2}}}


def is_done(tool: Schema, result: Any, **parameters: Any) -> bool:
    """Whether a call that comes to this result is done."""
    ended = run(call("t", to="†state.x", **parameters), tools={"t": tool}, functions={"t": lambda *_: result})
    assert "the schema " not in str(ended.data[None].get("error")), "each can be applied"
    return statuses(ended) == ["done"]


def keeps(tool: Schema, result: Any) -> bool:
    """The same, and a result that a model writes into its call is refused for the same reason before."""
    written = {"_tool": "t", "_output": result, "_outputPath": "†state.x"}
    refused = Tool("t", tool).problems(written)
    assert {problem.pointer.split("/")[1] for problem in refused} <= {"_output"}
    assert is_done(tool, result) is not bool(refused)
    return not refused


@pytest.mark.parametrize(
    "tool",
    [
        {"allOf": [TEXT]},
        {"allOf": [{"allOf": [{}, TEXT]}]},
        {"$ref": "#/$defs/it", "$defs": {"it": TEXT}},
        {"$ref": "#it", "$defs": {"x": {"$anchor": "it", **TEXT}}},
        {"$ref": "it", "$id": "https://e.org/tool", "$defs": {"x": {"$id": "it", **TEXT}}},
        {"$dynamicRef": "#it", "$defs": {"x": {"$dynamicAnchor": "it", **TEXT}}},
    ],
)
def test_r4_6_a_promise_is_held_wherever_the_schema_joins_it(tool: Schema) -> None:
    assert keeps(tool, "text")
    assert not keeps(tool, 5)


def test_r4_6_several_promises_are_all_held() -> None:
    for tool in ({**SHORT, "allOf": [TEXT]}, {"allOf": [SHORT, TEXT]}, {"_output": {"maxLength": 2}, "allOf": [TEXT]}):
        assert keeps(tool, "ab")
        assert not keeps(tool, "abc")
        assert not keeps(tool, 5)
    assert not keeps({"_output": True, "allOf": [{"properties": {"_output": False}}]}, 5)


def test_r4_6_what_is_said_of_some_calls_only_is_held_against_written_results_alone() -> None:
    for tool in ({"anyOf": [TEXT]}, {"if": {"required": ["a"]}, "then": TEXT}):
        assert is_done(tool, 5, a=1)
        written = {"_tool": "t", "_output": 5, "_outputPath": "†state.x", "a": 1}
        assert len(problems_of(written, tools={"t": tool}, activities={})) == 1


def test_r4_6_readers_are_reported_what_a_joined_promise_does_not_fit() -> None:
    reader = {"properties": {"v": {"type": "integer"}}}
    calls = [call("t", to="†state.x"), call("read", to="†state.y", v="†state.x")]
    (finding,) = checked(*calls, tools={"t": {"allOf": [TEXT]}, "read": reader}).findings
    assert "returns string, and read takes integer" in finding.message


@pytest.mark.parametrize(
    ("tool", "good", "bad"),
    [
        ({"_output": {"$ref": "#text"}, "properties": {"a": {"$anchor": "text", "type": "string"}}}, "x", 5),
        ({"_output": {"$ref": "https://e.com/t/#/$defs/p"}, "$id": "https://e.com/t/",
          "$defs": {"p": {"type": "string"}}}, "x", 5),
        ({"_output": {"$ref": "https://e.com/t#p"}, "$id": "https://e.com/t",
          "$defs": {"p": {"$anchor": "p", "type": "string"}}}, "x", 5),
        ({"_output": {"$ref": "p"}, "$id": "https://e.com/t",
          "$defs": {"p": {"$id": "p", "$ref": "#/$defs/q", "$defs": {"q": {"type": "string"}}}}}, "x", 5),
        ({"_output": {"$id": "urn:output", "items": {"$ref": "#/$defs/q"}, "$defs": {"q": {"type": "string"}}},
          "$defs": {"q": {"type": "integer"}}}, ["x"], [5]),
        ({"_output": {"items": {"$dynamicRef": "#one"}, "$dynamicAnchor": "one", "type": "array"}}, [[]], [5]),
        ({"_output": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/_output"}}]}}, [["x"]], [5]),
        ({"properties": {"_output": {"anyOf": [{"type": "string"}, {"items": {"$ref": "#"}, "type": "array"}]}}},
         [["x"]], [5]),
        ({"_output": {"$ref": "#/_outputPath"}, "_outputPath": {"type": "string"}}, "†state.x", 5),
        ({"_output": {"$ref": "#/$defs/own", "$defs": {"own": {"type": "string"}}}, "$defs": {"own": False}}, "x", 5),
        ({"_output": {"$ref": "#/$defs/a%20%25/b~1"}, "$defs": {"a %": {"b/": {"type": "string"}}}}, "x", 5),
        ({"_output": {"$ref": "#/definitions/const"}, "definitions": {
            "const": {"items": {"$ref": "#/definitions/n"}}, "n": {"type": "string"}}}, ["x"], [5]),
        ({"_output": {"enum": [{"$ref": "#/properties/a"}]}, "properties": {"a": {}}}, {"$ref": "#/properties/a"}, {}),
        ({"_output": {"properties": {"$ref": {"const": {"$id": "x", "$ref": "#a"}}}, "required": ["$ref"]},
          "properties": {"a": {"$anchor": "a"}}}, {"$ref": {"$id": "x", "$ref": "#a"}}, {"$ref": {}}),
        ({"_output": {"$ref": "https://json-schema.org/draft/2020-12/schema"}}, {"type": "string"}, {"type": "word"}),
    ],
)  # fmt: skip
def test_r4_6_a_promise_may_refer_to_whatever_a_schema_can_refer_to(tool: Schema, good: Any, bad: Any) -> None:
    assert keeps(tool, good)
    assert not keeps(tool, bad)


@given(schemas(), schema_values, st.sampled_from(["#/$defs/d", "#name", "https://e.org/tool#name", "/tool#/$defs/d"]))
def test_r4_6_a_promise_means_what_another_implementation_of_the_draft_says(
    schema: Any, value: Any, reference: str
) -> None:
    definition = schema.pop("$defs")["d"] if isinstance(schema, dict) else True
    named = {"$anchor": "name", "allOf": [definition]}
    promise = json.loads(json.dumps(schema).replace('"#/$defs/d"', json.dumps(reference)))
    declaration = {"$id": "https://e.org/tool", "$defs": {"d": named}, "properties": {"_output": promise}}
    tool = Tool("t", declaration)
    assert tool.compiled_output is not None
    is_kept = not tool.compiled_output.problems(value)
    assert is_kept == Draft202012Validator(declaration).is_valid({"_output": value})
    assert is_kept == (not tool.problems({"_output": value}))


@pytest.mark.parametrize(
    ("tool", "pointer"),
    [
        ({"_output": {"items": {"$ref": "#none"}}}, "/tools/t/_output/items/$ref"),
        ({"properties": {"_output": {"$ref": "#/_none"}}}, "/tools/t/properties/_output/$ref"),
        ({"$id": "https://e.org/tool", "_output": {"$ref": "other"}}, "/tools/t/_output/$ref"),
        ({"$id": "https://e.org/tool", "_output": {"$ref": "http://["}}, "/tools/t/_output/$ref"),
    ],
)
def test_r4_6_a_promise_that_refers_to_nothing_is_a_structural_error(tool: Schema, pointer: str) -> None:
    found = problems_of(call("t", to="†state.x"), tools={"t": tool})
    assert pointers(found) == [pointer]
    assert "is referred to, and is not in it" in found[0].message
