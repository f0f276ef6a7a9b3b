"""Results (SPEC R4.6, R4.9): what is promised of them, their schemas, the output of a solution."""

from __future__ import annotations

import json
import tracemalloc
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator

from acts_celery.protocol import Conflict, Context, Reference, Unresolved, check_submission
from acts_celery.protocol.calls.outputs import write_problems
from acts_celery.protocol.calls.tools import Executor, Tool
from acts_celery.protocol.engine.events import Start, Success
from acts_celery.protocol.engine.outcomes import holds_references, output_fault, resolve_output
from acts_celery.protocol.plan.submission import output_problems
from acts_celery.protocol.schemas import compiled
from acts_celery.protocol.state.operations import Method, Operation

from .building import (
    ANY,
    DATE,
    call,
    checked,
    executing,
    pointers,
    problems,
    problems_of,
    run,
    statuses,
    submission,
    written,
)
from .schema_strategies import schema_values, schemas
from .test_scale import steps

# SPEC R4.6, R4.7: results are held against schemas; the results of latent calls.

# R4.6


@pytest.mark.parametrize(("value", "status"), [(5, "done"), ("5", "failed"), (None, "failed")])
def test_r4_6_the_tools_output_schema_validates_the_value(value: Any, status: str) -> None:
    for tool in (
        {"_output": {"type": "integer"}},
        {"properties": {"_output": {"type": "integer"}}, "required": ["_output"]},
    ):
        result = run(call(to="†state.a", value=value), tools={"give": tool})
        assert statuses(result) == [status]
        assert result.data[None].get("state", {}) == ({"a": value} if status == "done" else {})


@pytest.mark.parametrize(
    "tool",
    [
        {"properties": {"_output": {"$ref": "#/$defs/count"}}, "$defs": {"count": {"type": "integer"}}},
        {"properties": {"_output": {"$ref": "#/definitions/count"}}, "definitions": {"count": {"type": "integer"}}},
        {"_output": {"$ref": "#/$defs/count", "$defs": {"count": {"type": "integer"}}}},
    ],
)
def test_r4_6_the_output_schema_may_refer_to_the_definitions_of_its_tool(tool: dict[str, Any]) -> None:
    for value, status in ((5, "done"), ("5", "failed")):
        result = run(call(to="†state.a", value=value), tools={"give": tool})
        assert statuses(result) == [status]
        assert "is not in it" not in str(result.data[None].get("error"))


def test_r4_6_each_value_of_a_returned_message_is_validated() -> None:
    functions = {"whole": lambda *_: {"type": "state", "a": 1, "b": "not a number"}}
    result = run(
        call("whole", to="†state.a && †state.b"), tools={"whole": {"_output": {"type": "integer"}}}, functions=functions
    )
    assert statuses(result) == ["failed"]


def test_r4_6_what_is_wrong_with_a_result_is_reported_with_its_place_in_the_result() -> None:
    result = run(
        call(to="†state.a", value="x"),
        call("deep", to="†state.b", value=[1, "x"]),
        tools={"give": {"_output": {"type": "integer"}}, "deep": {"_output": {"items": {"type": "integer"}}}},
        functions={"deep": lambda parameters, _: parameters["value"]},
    )
    told = [(result.outcome(index).error or {})["message"] for index in (0, 1)]
    promised = "the result is not what the tool's _output promises: "
    assert told[0].startswith(f"{promised}the value is not")
    assert told[1].startswith(f"{promised}/1: the value is not")


def test_r4_6_an_error_is_not_held_against_the_output_schema() -> None:
    result = run(call("fail", to="†state.good || †state.bad"), tools={"fail": {"_output": {"type": "integer"}}})
    assert statuses(result) == ["done"]


STATE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["user", "audit"],
    "properties": {
        "user": {"type": "object", "required": ["id", "name"], "properties": {"id": {"type": "integer"}}},
        "tags": {"type": "array", "minItems": 2, "items": {"type": "string"}, "prefixItems": [{"const": "first"}]},
        "note": {"type": "string", "minLength": 3, "pattern": "^abc$"},
        "by_name": {"patternProperties": {"^n": {"type": "null"}}, "additionalProperties": {"type": "boolean"}},
        "linked": {"$ref": "#/properties/user/properties/id"},
        "both": {"allOf": [{"properties": {"x": {"type": "integer"}}}, {"$ref": "#/$defs/positive"}]},
    },
    "additionalProperties": False,
    "$defs": {"positive": {"properties": {"x": {"minimum": 1}}}},
}


@pytest.mark.parametrize(
    ("path", "value", "method", "is_valid"),
    [
        ("†state.user.id", 5, "set", True),
        ("†state.user.id", "5", "set", False),
        ("†state.user.anything", "x", "set", True),
        ("†state.user", {"id": 5, "name": "x"}, "set", True),
        ("†state.user", {"id": 5}, "set", False),
        ("†state.user", {"id": 5}, "merge", True),
        ("†state.user", {"id": "5"}, "merge", False),
        ("†state.user", {"name": 1}, "assign", True),
        ("†state", {"user": {"id": 1}}, "set", True),
        ("†state", {"user": {"id": "x"}}, "merge", False),
        ("†state", 5, "set", False),
        ("†state.unknown", 1, "set", False),
        ("†state.tags", ["first"], "concat", True),
        ("†state.tags", ["first"], "set", False),
        ("†state.tags", ["first", "x"], "set", True),
        ("†state.tags", [5], "concat", False),
        ("†state.tags", "first", "push", True),
        ("†state.tags.0", "first", "set", True),
        ("†state.tags.0", "second", "set", False),
        ("†state.note", "ab", "concat", True),
        ("†state.note", "ab", "set", False),
        ("†state.note", "abc", "set", True),
        ("†state.note", ["ab"], "concat", False),
        ("†state.by_name.n1", None, "set", True),
        ("†state.by_name.n1", True, "set", False),
        ("†state.by_name.x", True, "set", True),
        ("†state.by_name.x", None, "set", False),
        ("†state.linked", 5, "set", True),
        ("†state.linked", "5", "set", False),
        ("†state.both.x", 1, "set", True),
        ("†state.both.x", 0, "set", False),
        ("†state.both.x", 1.5, "set", False),
        ("†data.user.id", "5", "set", True),
    ],
)
def test_r4_6_a_states_schema_validates_a_value_against_its_part_at_the_path(
    path: str, value: Any, method: str, is_valid: bool
) -> None:
    context = [{"type": "state", "schema": STATE_SCHEMA}]
    result = run(call(to=path, value=value, _outputMethod=method), context=context)
    assert statuses(result) == ["done" if is_valid else "failed"], result.log


def test_r4_6_the_last_schema_of_a_kind_counts_and_an_instances_own_comes_first() -> None:
    context = [
        {"type": "state", "schema": {"properties": {"a": {"type": "string"}}}},
        {"type": "state", "schema": {"properties": {"a": {"type": "integer"}}}},
        {"type": "state", "schema": {"properties": {"a": {"type": "null"}}}, "_instance": "①"},
        {"type": "text", "_instance": "②"},
    ]
    calls = [call(to="†state.a", value=value, _instance=name) for name in ("①", "②", None) for value in (None, 5)]
    result = run(*calls, context=context)
    assert [statuses(result, name) for name in ("①", "②", None)] == [
        ["done", "failed"],
        ["failed", "done"],
        ["failed", "done"],
    ]


def test_r4_6_what_a_call_returns_declares_no_schema() -> None:
    functions = {"whole": lambda *_: {"type": "state", "a": 1, "schema": {"properties": {"a": {"type": "string"}}}}}
    result = run(call("whole", to="†state.a"), call(to="†state.a", after="†state.a", value=2), functions=functions)
    assert statuses(result) == ["done", "done"]


@pytest.mark.parametrize(
    ("given", "to", "value", "method"),
    [
        ({"n": 5}, "†state.n", "x", "push"),
        ({"n": 5}, "†state.n.x", 1, None),
        ({"l": []}, "†state.l.3", 1, None),
        ({}, "†state.a && †state.a.b", 5, None),
        ({}, "†state.l && †state.l.0.x", [1], None),
    ],
)
def test_r4_6_a_write_that_does_not_fit_what_is_there_fails_the_call_and_writes_nothing(
    given: dict[str, Any], to: str, value: Any, method: str | None
) -> None:
    result = run(call(to=to, value=value, _outputMethod=method), context=[{"type": "state", **given}])
    assert statuses(result) == ["failed"]
    error = result.outcome(0).error
    assert error is not None
    assert error["type"] == "Conflict"
    assert result.data[None].get("state") == given


# R4.7


def test_r4_7_a_latent_calls_result_is_the_output_the_model_wrote() -> None:
    for output in ({"a": 1}, None, "", 0):
        raw = {"_tool": "think", "_output": output, "_outputPath": "†state.thought || †state.other"}
        assert run(raw, activities={}).data[None] == {"state": {"thought": output}}


def test_r4_7_an_output_written_into_an_explicit_call_is_not_its_result() -> None:
    assert run(call(to="†state.a", value=1, _output=5)).data[None] == {"state": {"a": 1}}


def test_r4_7_the_output_of_a_latent_call_is_held_against_the_tools_schema() -> None:
    for output in ("x", None):
        raw = {"_tool": "think", "_output": output, "_outputPath": "†state.a"}
        found = problems_of(raw, tools={"think": {"_output": {"type": "integer"}}}, activities={})
        assert pointers(found) == ["/solution/calls/0/_output"]


def test_r4_7_a_latent_call_with_an_output_waits_for_what_it_reads() -> None:
    think = {"_tool": "think", "_output": 1, "_outputPath": "†state.b", "about": "†state.a"}
    result = run(think, call("fail", to="†state.a"), activities={"fail": ANY})
    assert statuses(result) == ["skipped", "failed"]


def test_r4_7_a_latent_call_without_an_output_is_put_to_the_model() -> None:
    plan = checked({"_tool": "think", "about": "†input.x", "_outputPath": "†state.a"},
                   context=[{"type": "input", "x": 1}], activities={}, model=True)  # fmt: skip
    execution, _ = executing(plan)
    (start,) = execution.decide(DATE)
    assert isinstance(start, Start)
    assert (start.call.runner.executor, start.parameters) == (Executor.LATENT, {"about": 1})
    assert execution.finish(0, Success({"a": 1}), DATE).messages[0]["data"] == {"a": {"a": 1}}


def test_r4_7_without_a_model_that_is_a_structural_error() -> None:
    raw = {"_tool": "think", "_outputPath": "†state.a"}
    found = problems_of(raw, activities={}, model=False)
    assert pointers(found) == ["/solution/calls/0"]
    assert "no model is configured" in found[0].message
    assert len(checked({**raw, "_output": 1}, activities={}, model=False).calls) == 1


def test_r4_7_the_model_that_config_names_answers_where_there_is_no_other() -> None:
    raw = {"_tool": "think", "_outputPath": "†state.a"}
    assert len(checked(raw, activities={}, model=False, config={"model": "small"}).calls) == 1


@pytest.mark.parametrize(
    ("output", "good", "bad"),
    [
        ({"$ref": "#/properties/value"}, {"id": 1}, {"id": "x"}),
        ({"properties": {"v": {"$ref": "#/properties/value"}}}, {"v": {"id": 1}}, {"v": {}}),
        ({"properties": {"c": {"$ref": "#/properties/_output"}}, "required": ["n"]},
         {"n": 1, "c": {"n": 1}}, {"n": 1, "c": {}}),
        ({"$ref": "#/$defs/own", "$defs": {"own": {"$ref": "#/properties/value"}}}, {"id": 1}, {}),
        ({"items": {"$ref": "#"}, "type": "array"}, [[], [[]]], [1]),
    ],
)  # fmt: skip
def test_r4_6_what_a_tool_promises_may_refer_to_what_it_takes(output: Any, good: Any, bad: Any) -> None:
    value = {"type": "object", "required": ["id"], "properties": {"id": {"$ref": "#/$defs/id"}}}
    tool = {"properties": {"value": value, "_output": output}, "$defs": {"id": {"type": "integer"}}}
    for result, status in ((good, "done"), (bad, "failed")):
        outcome = run(call("give", to="†state.x"), tools={"give": tool}, functions={"give": lambda *_, r=result: r})
        assert statuses(outcome) == [status]


def test_r4_6_a_result_that_breaks_a_return_annotation_says_that_it_is_the_functions() -> None:
    annotated = {"give": {"_output": {"type": "integer", "x-plain": "always"}}}
    result = run(call(to="†state.a", value="x"), tools=annotated)
    message = (result.outcome(0).error or {})["message"]
    assert message.startswith("the result is not what the function's return annotation promises: the value is not")
    assert "; it is of type " in message


def test_r4_6_a_part_of_a_result_that_does_not_fit_is_named_with_its_own_type() -> None:
    promised = {"give": {"_output": {"type": "object", "properties": {"n": {"type": "integer"}}}}}
    result = run(call(to="†state.a", value={"n": "1"}), tools=promised)
    message = (result.outcome(0).error or {})["message"]
    assert "/n: the value is not" in message
    assert message.endswith("it is of type string")


# SPEC R4.6: what a tool promises of its results, wherever it says so and whatever that refers to.

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


# SPEC R4.6: what is written into a kind is held against the part of its schema that speaks of the place.

INTEGER = {"type": "integer"}
WORD = {"type": "string"}


def outcome(schema: Any, before: Any, to: str, value: Any, method: str | None = None) -> str:
    """What becomes of a call that writes into a state that is there and has a schema."""
    context = [{"type": "state", "data": before, "schema": schema}]
    (status,) = statuses(run(call(to=f"†state{to}", value=value, _outputMethod=method), context=context))
    return status


def one(**properties: Any) -> dict[str, Any]:
    """An object schema of these properties."""
    return {"type": "object", "properties": properties}


NESTED = {"$ref": "#/$defs/n", "$defs": {"n": one(n={"$ref": "#/$defs/n"}, x=INTEGER)}}
JOINED = {
    "allOf": [one(a=INTEGER), {"$ref": "#/$defs/c"}],
    "$defs": {"c": one(a={"minimum": 5}, b=WORD)},
}
CLOSED = {"allOf": [one(a={})], "anyOf": [one(b=INTEGER), one(c={})], "unevaluatedProperties": False}


@pytest.mark.parametrize(
    ("schema", "before", "to", "value", "method", "is_admitted"),
    [
        # Siblings that are still to come are no error; a value is written whole.
        ({**one(a=INTEGER), "required": ["a", "b"], "minProperties": 3}, {}, ".a", 1, None, True),
        ({"dependentRequired": {"a": ["b"]}}, {}, ".a", 1, None, True),
        (one(a={"required": ["b"]}), {}, ".a", {}, None, False),
        (one(a={"required": ["b"]}), {}, ".a.c", 1, None, True),
        (one(a={"required": ["b"]}), {}, ".a", {"c": 1}, "merge", True),
        (one(a={"enum": [{"b": 1, "c": 1}]}), {}, ".a.b", 1, None, True),
        (one(a={"enum": [{"b": 1, "c": 1}]}), {}, ".a", {"b": 1}, None, False),
        (one(a={"oneOf": [INTEGER, {"minimum": 1}]}), {}, ".a", 5, None, False),
        (one(a={"not": WORD}), {}, ".a", "x", None, False),
        # What was there before is not judged again.
        (one(a=INTEGER, b=INTEGER), {"a": "old and wrong"}, ".b", 1, None, True),
        (one(a={"items": INTEGER}), {"a": ["old and wrong"]}, ".a", 1, "push", True),
        # Elements are held against what is said of their index.
        (one(a={"items": INTEGER, "minItems": 2}), {}, ".a", 1, "push", True),
        (one(a={"items": INTEGER}), {"a": [1]}, ".a", "x", "push", False),
        (one(a={"prefixItems": [WORD], "items": INTEGER}), {"a": ["x"]}, ".a", 1, "push", True),
        (one(a={"prefixItems": [WORD], "items": INTEGER}), {"a": ["x"]}, ".a", ["x"], "concat", False),
        (one(a={"prefixItems": [WORD], "items": False}), {"a": ["x"]}, ".a", 1, "push", False),
        (one(a={"prefixItems": [WORD]}), {}, ".a", 1, "push", False),
        (one(a={"items": one(b=INTEGER)}), {"a": [{}]}, ".a.0.b", "x", None, False),
        (one(a={"type": "object"}), {}, ".a", 1, "push", False),
        (one(a=INTEGER), {}, ".a", [], "concat", False),
        # What is said of properties is said of no elements: digits are a key at the root, and where an object is.
        (one(a={"additionalProperties": False}), {}, ".a", 1, "push", True),
        (one(a={"additionalProperties": False}), {}, ".a.0", 1, None, True),
        (one(a={"additionalProperties": False}), {"a": {}}, ".a.0", 1, None, False),
        ({"additionalProperties": False}, {}, ".2024", 1, None, False),
        ({"properties": {"2024": INTEGER}, "items": False}, {}, ".2024", 1, None, True),
        # Texts that are joined are held against their type.
        (one(a={**WORD, "minLength": 3, "pattern": "^abc$"}), {}, ".a", "ab", "concat", True),
        (one(a=INTEGER), {}, ".a", "ab", "concat", False),
        # What is merged or assigned, each part at its own place.
        (one(a=one(b=INTEGER)), {}, "", {"a": {"b": "x"}}, "merge", False),
        (one(a=one(b=INTEGER)), {}, "", {"a": {"c": "x"}}, "merge", True),
        (one(a=one(b={"required": ["c"]})), {}, ".a", {"b": {}}, "assign", False),
        (one(a=one(b={"required": ["c"]})), {}, ".a", {"b": {}}, "merge", True),
        (one(a=INTEGER), {}, ".a", {}, "merge", False),
        # The way to the place.
        (one(a=INTEGER), {}, ".a.b", 1, None, False),
        (one(a={"type": "array"}), {"a": {}}, ".a.b", 1, None, False),
        ({"patternProperties": {"^n": INTEGER}, "additionalProperties": WORD}, {}, ".n", "x", None, False),
        ({"patternProperties": {"^n": INTEGER}, "additionalProperties": WORD}, {}, ".m", "x", None, True),
        ({"patternProperties": {"^n": INTEGER}, "additionalProperties": False}, {}, ".m", 1, None, False),
        (JOINED, {}, ".a", 5, None, True),
        (JOINED, {}, ".a", 4, None, False),
        (JOINED, {}, ".b", 4, None, False),
        (CLOSED, {}, ".a", 1, None, True),
        (CLOSED, {}, ".b", 1, None, True),
        (CLOSED, {}, ".d", 1, None, False),
        ({**CLOSED, "unevaluatedProperties": INTEGER}, {}, ".d", "x", None, False),
        ({**CLOSED, "unevaluatedProperties": INTEGER}, {}, ".d", 1, None, True),
        (one(a={"prefixItems": [{}], "unevaluatedItems": False}), {"a": [1]}, ".a", 2, "push", False),
        (one(a={"prefixItems": [{}], "unevaluatedItems": False}), {}, ".a", 2, "push", True),
        (NESTED, {}, ".n.n.x", "x", None, False),
        (NESTED, {}, ".n.n.x", 1, None, True),
        ({"$dynamicAnchor": "n", **one(n={"$dynamicRef": "#n"}, x=INTEGER)}, {}, ".n.n.x", "x", None, False),
        ({"$dynamicAnchor": "n", **one(n={"$dynamicRef": "#n"}, x=INTEGER)}, {}, ".n.n.x", 1, None, True),
    ],
)  # fmt: skip
def test_r4_6_a_value_is_held_against_what_the_schema_says_of_its_place(
    schema: Any, before: Any, to: str, value: Any, method: str | None, is_admitted: bool
) -> None:
    assert outcome(schema, before, to, value, method) == ("done" if is_admitted else "failed")


@pytest.mark.parametrize(
    ("schema", "before", "to", "value", "method"),
    [
        ({"maxProperties": 1}, {"x": 1}, ".y", 1, None),
        ({"not": {"required": ["secret"]}}, {}, ".secret", 1, None),
        ({"oneOf": [one(a=INTEGER), one(a=WORD)]}, {}, ".a", True, None),
        ({"if": one(kind={"const": "a"}), "then": one(x=INTEGER)}, {"kind": "a"}, ".x", "x", None),
        (one(a={"maxItems": 2}), {"a": [1, 2]}, ".a", 3, "push"),
        (one(a={"uniqueItems": True}), {"a": [1]}, ".a", 1, "push"),
        (one(a={"maxLength": 3}), {"a": "ab"}, ".a", "cd", "concat"),
    ],
)
def test_r4_6_what_is_said_of_more_than_the_place_is_not_enforced_while_a_value_comes_together(
    schema: Any, before: Any, to: str, value: Any, method: str | None
) -> None:
    assert outcome(schema, before, to, value, method) == "done"


def test_r4_6_the_error_says_where_in_the_state() -> None:
    schema = one(users={"items": one(age=INTEGER)})
    result = run(call(to="†state.users.0.age", value="x"), context=[{"type": "state", "users": [{}], "schema": schema}])
    error = result.outcome(0).error
    assert error is not None
    assert error["message"] == (
        'the schema of state forbids the value at †state.users.0.age: /users/0/age: the value is not of type "integer"'
    )


def test_r4_6_of_a_value_that_is_merged_the_names_in_the_schema_are_reported_and_no_others() -> None:
    schema = one(users={"additionalProperties": one(age=INTEGER)})
    result = run(
        call(to="†state", value={"users": {"Xolotl": {"age": "x"}}}, _outputMethod="merge"),
        context=[{"type": "state", "schema": schema}],
    )
    error = result.outcome(0).error
    assert error is not None
    assert error["message"].endswith('/users: below it, the value is not of type "integer"')


def test_r4_6_a_conflict_elsewhere_is_no_matter() -> None:
    context = [
        {"type": "state", "n": 5, "schema": one(a=INTEGER)},
        {"type": "state", "data": {"n": 1}, "_outputMethod": "push", "_call": {"_outputPath": "n"}},
    ]
    calls = call(to="†state.a", value="x"), call(to="†state.a", value=1)
    assert statuses(run(*calls, context=context)) == ["failed", "done"]


def test_r4_6_a_write_costs_the_same_however_large_the_value_is_that_it_is_written_into() -> None:
    schema = compiled({"properties": {"l": {"items": WORD}}, "additionalProperties": INTEGER})
    few, many = ({"l": ["x"] * size, **{f"k{n}": n for n in range(size)}} for size in (10, 10_000))
    for path, method, value in ((("l",), Method.PUSH, "x"), (("k0",), Method.SET, 1), (("l", 3), Method.SET, "x")):
        operation = Operation(Reference("state", path), method, value, "")
        little, much = (steps(partial(write_problems, schema, operation, root)) for root in (few, many))
        assert much < 2 * little


# SPEC R4.8, R4.9: results that models have written, and the output of a solution.

# R4.8


@pytest.mark.parametrize("method", ["set", "push", "concat"])
def test_r4_8_results_written_by_models_are_appended_in_the_order_listed(method: str) -> None:
    values: list[Any] = [["a"], ["b"], ["c"]] if method == "concat" else ["a", "b", "c"]
    calls = [
        {"_tool": "think", "_output": value, "_outputPath": "†state.said", "_outputMethod": method} for value in values
    ]
    result = run(*calls, activities={})
    assert [entry.outcome.index for entry in result.log] == [0, 1, 2]
    assert result.data[None]["state"]["said"] == ("c" if method == "set" else ["a", "b", "c"])


def test_r4_8_they_come_before_the_results_of_calls_that_are_carried_out() -> None:
    thoughts = [{"_tool": "think", "_output": n, "_outputPath": "†state.l", "_outputMethod": "push"} for n in (1, 3)]
    result = run(thoughts[0], call(to="†state.l", value=2, _outputMethod="push"), thoughts[1], activities={"give": {}})
    assert result.data[None]["state"]["l"] == [1, 3, 2]


def test_r4_8_one_that_is_refused_leaves_the_others_in_their_order() -> None:
    calls = [
        {"_tool": "think", "_output": value, "_outputPath": "†state.l", "_outputMethod": "concat"}
        for value in (["a"], "b", ["c"])
    ]
    result = run(*calls, activities={})
    assert statuses(result) == ["done", "failed", "done"]
    assert result.data[None]["state"]["l"] == ["a", "c"]


# R4.9


CONTEXT: list[dict[str, Any]] = [
    {"type": "state", "user": {"name": "Alex"}, "text": "†state.user"},
    {"type": "state", "_instance": "①", "x": 1},
]


def found(output: Any, *calls: Any) -> list[tuple[str, str]]:
    plan = checked(*calls, context=CONTEXT)
    problems = output_problems(output, plan.context, plan.calls, "solution", "output")
    return [(problem.pointer, problem.message) for problem in problems]


def test_r4_9_references_at_any_depth_are_read_as_a_global_reader() -> None:
    output = {"name": "†state.user.name", "list": ["†state.no || †state.user", 5, {"deep": "††state"}], "†key": None}
    assert resolve_output(output, Context(CONTEXT).fold()) == {
        "name": "Alex",
        "list": [{"name": "Alex"}, 5, {"deep": "†state"}],
        "†key": None,
    }


def test_r4_9_what_was_read_is_not_read_again() -> None:
    assert resolve_output("†state.text", Context(CONTEXT).fold()) == "†state.user"


@pytest.mark.parametrize("output", [None, 5, "text", ["a", {"b": "state.user"}]])
def test_r4_9_an_output_without_references_is_itself(output: Any) -> None:
    assert not holds_references(output)
    assert resolve_output(output, Context().fold()) == output
    assert found(output) == []


@pytest.mark.parametrize("output", ["†state.x", ["†state.user.name && †state.gone"]])
def test_r4_9_one_that_cannot_be_read_is_named(output: Any) -> None:
    with pytest.raises(Unresolved, match="†state"):
        resolve_output(output, Context(CONTEXT).fold())


def test_r4_9_a_conflict_is_none_that_can_be_read() -> None:
    context = Context([*CONTEXT, written("†state.text", 1, "push")])
    with pytest.raises(Conflict, match=r"†state\.text"):
        resolve_output(["†state.text"], context.fold())


def test_r4_9_an_output_that_does_not_parse_is_a_structural_error_with_its_place() -> None:
    ((pointer, message),) = found({"a": ["x", "†state..x"]})
    assert pointer == "/solution/output/a/1"
    assert "does not parse" in message


def test_r4_9_a_reference_that_nothing_can_satisfy_is_a_structural_error() -> None:
    calls = [call(to="†state.made", value=1), call(to="†state.own", value=1, _instance="①")]
    assert found(["†state.made.deep", "†state.user", "†state.gone || †state.made", "†state"], *calls) == []
    unresolvable = found({"a": "†state.gone", "b": "†state.own", "c": "†state.made && †state.x"}, *calls)
    assert [pointer for pointer, _ in unresolvable] == [f"/solution/output/{key}" for key in "abc"]
    assert unresolvable[0][1].startswith("unresolvable reference †state.gone: ")


def test_r4_9_an_output_that_can_never_be_read_is_a_structural_error() -> None:
    def submitted(output: Any) -> dict[str, Any]:
        value = submission(call(to="†state.made"), call(to="†state.own", _instance="①"), context=CONTEXT)
        value["solution"]["output"] = output
        return value

    assert check_submission(submitted(["†state.made", "†state.user"])).size == 2
    found = problems(submitted({"a": "†state.own", "b": ["†state..x"], "c": "†state.gone || †state.made"}))
    assert [problem.pointer for problem in found] == ["/solution/output/a", "/solution/output/b/0"]


def test_r4_9_an_output_holds_templates_too() -> None:
    output = {"said": "Dear †{state.user.name}: †{state.text} †{state.no || state.user}", "list": ["††{state.x}"]}
    assert holds_references(output)
    assert resolve_output(output, Context(CONTEXT).fold()) == {
        "said": 'Dear Alex: †state.user {"name":"Alex"}',
        "list": ["†{state.x}"],
    }
    assert found(output) == []
    assert [at for at, _ in found({"a": ["†{state.x} †{state.gone}"], "b": "†{state..x}"})] == [
        *("/solution/output/a/0", "/solution/output/a/0", "/solution/output/b"),
    ]
    with pytest.raises(Unresolved, match=r"†state\.gone"):
        resolve_output("a †{state.gone}", Context(CONTEXT).fold())


def test_r4_9_a_template_is_a_text_in_the_output() -> None:
    tools = {"give": {"type": "object"}}
    value = submission(call(to="†state.n", value=1), schema={"type": "integer"}, tools=tools)
    value["solution"]["output"] = "†{state.n}"
    (problem,) = problems(value)
    assert (problem.pointer, problem.message) == (
        "/solution/output",
        "a template is a text, and no text is admitted here: write †state.n for the value itself",
    )


@pytest.mark.parametrize("reading", ["†state.long", "†{state.long} †{state.long}"])
def test_r4_9_an_output_is_measured_before_it_is_made(reading: str) -> None:
    fold = Context([{"type": "state", "long": "x" * 1_000_000}]).fold()
    assert output_fault([reading] * 4, fold) is None
    tracemalloc.start()
    fault = output_fault([reading] * 5_000, fold)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert fault == "the output cannot be read: it comes to more than 16777216 bytes, or 250000 objects and lists"
    assert peak < 60_000_000
