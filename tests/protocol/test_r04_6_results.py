"""SPEC R4.6, R4.7: results are held against schemas; the results of latent calls."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery.protocol.calls.tools import Executor
from acts_celery.protocol.engine.events import Start, Success

from .building import (
    ANY,
    DATE,
    call,
    checked,
    executing,
    pointers,
    problems_of,
    run,
    statuses,
)

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
