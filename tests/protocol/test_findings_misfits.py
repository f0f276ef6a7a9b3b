"""Findings about values that are there or promised and can never be taken (SPEC R4.1, R4.6, R6.7)."""

from __future__ import annotations

from typing import Any

import pytest

from protocol import check_submission

from .building import call, checked, plan_submission, run, statuses

COUNTING: dict[str, Any] = {"properties": {"value": {"type": "integer"}}}


def messages(*calls: Any, **parts: Any) -> list[str]:
    """What is told as a warning."""
    return [finding.message for finding in checked(*calls, **parts).findings if finding.severity == "warning"]


def test_a_value_of_the_context_that_its_reader_cannot_take_is_told_and_fails_the_call() -> None:
    parts: dict[str, Any] = {"context": [{"type": "input", "name": "Alex"}], "tools": {"give": COUNTING}}
    reading = call(value="†input.name", to="out")
    (told,) = messages(reading, **parts)
    assert "reads †input.name at /value, where the context holds what does not fit: 'Alex' is not of type" in told
    assert statuses(run(reading, **parts)) == ["failed"]


@pytest.mark.parametrize(
    "calls",
    [
        [call(value="†input.count", to="out")],
        [call(value="†input.nowhere || †input.count", to="out")],
        [call(value="†input.name && †input.count", to="out")],
        [call(value="†input.name", to="out"), call(value=1, to="†input.name")],
        [call(value="†input.name || †state.other", to="out"), call(value=1, to="†input")],
    ],
)
def test_nothing_is_told_where_another_value_may_be_read(calls: list[Any]) -> None:
    context = [{"type": "input", "name": "Alex", "count": 3}]
    assert "does not fit" not in str(messages(*calls, context=context, tools={"give": COUNTING}))


def test_of_an_instance_whose_own_value_does_not_fit_it_is_told_which() -> None:
    context = [{"type": "input", "_instance": "①", "n": 1}, {"type": "input", "_instance": "②", "n": "two"}]
    value = plan_submission(call(value="†input.n", to="out"), context=context, tools={"give": COUNTING})
    (told,) = [finding.message for finding in check_submission(value).findings if finding.severity == "warning"]
    assert "in instance '②'" in told


@pytest.mark.parametrize(
    ("path", "why"), [("count", "string is not number"), ("other", "it admits nothing there"), ("†state.count.x", "it")]
)
def test_a_result_that_the_schema_of_its_kind_forbids_is_told_and_fails_the_call(path: str, why: str) -> None:
    schema = {"properties": {"count": {"type": "number"}}, "additionalProperties": False}
    parts: dict[str, Any] = {
        "context": [{"type": "state", "schema": schema}],
        "tools": {"give": {"_output": {"type": "string"}}},
    }
    (told,) = messages(call(value="text", to=path), **parts)
    assert f"what the schema of state forbids: {why}" in told
    assert statuses(run(call(value="text", to=path), **parts)) == ["failed"]


@pytest.mark.parametrize("path", ["count", "count || other", "†data.count", "names"])
def test_nothing_is_told_of_a_result_that_may_fit(path: str) -> None:
    schema = {"properties": {"count": {"type": ["number", "string"]}, "names": {"type": "array"}}}
    method = {"_outputMethod": "push"} if path == "names" else {}
    parts = {"context": [{"type": "state", "schema": schema}], "tools": {"give": {"_output": {"type": "string"}}}}
    assert messages(call(value="text", to=path, **method), **parts) == []


def test_a_place_that_a_written_result_does_not_have_is_told() -> None:
    calls = [call("think", to="note", _output={"x": 1}), call("read", value="†state.note.y", to="out")]
    (told,) = messages(*calls, activities={"read": {}})
    assert "reads †state.note.y at /value, where nothing is ever there" in told
    assert messages(calls[0], call("read", value="†state.note.x", to="out"), activities={"read": {}}) == []


USER = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}


@pytest.mark.parametrize(
    ("method", "output", "value", "why"),
    [
        ("assign", {"type": "string"}, "x", "by assign, which takes object: it gives string"),
        (
            "concat",
            {"type": ["integer", "null"]},
            1,
            "by concat, which takes array or string: it gives integer or null",
        ),
    ],
)
def test_a_result_that_its_method_never_takes_is_told_and_fails_the_call(
    method: str, output: Any, value: Any, why: str
) -> None:
    parts: dict[str, Any] = {"tools": {"give": {"_output": output}}}
    writing = call(value=value, to="x", _outputMethod=method)
    (told,) = messages(writing, **parts)
    assert told == f"call 0 (give) can never write its result {why}; change the method, or the schema"
    assert statuses(run(writing, **parts)) == ["failed"]


@pytest.mark.parametrize(
    ("method", "output", "value", "wanted", "why"),
    [
        ("push", {"type": "integer"}, 1, {"type": "string"}, "array is not string"),
        ("push", {"type": "integer"}, 1, {"items": {"type": "string"}}, "integer is not string"),
        ("push", {"type": "integer"}, 1, {"items": False}, "it admits no element there"),
        ("push", USER, {"id": 1}, {"items": {"maxProperties": 0}}, "a number of properties of at least 1"),
        ("concat", {"type": "string"}, "x", {"type": "array"}, "string is not array"),
        ("assign", USER, {"id": 1}, {"type": "array"}, "object is not array"),
        ("assign", USER, {"id": 1}, {"properties": {"id": {"type": "string"}}}, "in 'id', integer is not string"),
        ("assign", USER, {"id": 1}, {"additionalProperties": False}, "in 'id', it is not admitted"),
        ("merge", {"type": "integer"}, 1, {"type": "string"}, "integer is not string"),
    ],
)
def test_what_a_method_makes_and_the_schema_of_its_kind_forbids_is_told_and_fails_the_call(
    method: str, output: Any, value: Any, wanted: Any, why: str
) -> None:
    schema = {"properties": {"x": wanted}}
    parts: dict[str, Any] = {"context": [{"type": "state", "schema": schema}], "tools": {"give": {"_output": output}}}
    writing = call(value=value, to="x", _outputMethod=method)
    (told,) = messages(writing, **parts)
    assert f"what the schema of state forbids: {why}" in told
    assert statuses(run(writing, **parts)) == ["failed"]


@pytest.mark.parametrize(
    ("method", "value", "wanted"),
    [
        ("push", 1, {"const": [2]}),
        ("push", 1, {"prefixItems": [{"type": "string"}]}),
        ("push", 1, {"minItems": 3}),
        ("assign", {"id": 1}, {"required": ["name"]}),
        ("assign", {"id": 1}, {"enum": [{"id": 2}]}),
        ("merge", {"id": 1}, {"minProperties": 2}),
        ("concat", "x", {"enum": ["yz"]}),
        ("concat", [1], {"minItems": 2}),
    ],
)
def test_nothing_is_told_of_what_can_still_become_what_the_schema_asks_for(
    method: str, value: Any, wanted: Any
) -> None:
    schema = {"properties": {"x": wanted}}
    context = [{"type": "state", "schema": schema, "data": {"x": ["a"]}}] if "prefixItems" in wanted else []
    parts: dict[str, Any] = {
        "context": context or [{"type": "state", "schema": schema}],
        "tools": {"give": {"_output": {"const": value}}},
    }
    writing = call(value=value, to="x", _outputMethod=method)
    assert messages(writing, **parts) == []
    assert statuses(run(writing, **parts)) == ["done"]


def test_nothing_is_told_of_values_that_fit_a_schema_with_a_part_that_has_a_name_of_its_own() -> None:
    named = {"$id": "https://example.org/a", "$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"value": named}, "$defs": {"n": {"type": "string"}}}
    context = [{"type": "input", "n": 5}, {"type": "state", "schema": schema}]
    tools = {"give": {**schema, "_output": {"type": "integer"}}}
    giving = call(value="†input.n", to="value")
    assert messages(giving, context=context, tools=tools) == []
    assert statuses(run(giving, context=context, tools=tools)) == ["done"]


def test_a_result_that_does_not_fit_into_a_list_of_parameters_is_told_and_fails_the_call() -> None:
    tools = {
        "give": {"_output": {"type": "string"}},
        "take": {"properties": {"values": {"items": {"type": "integer"}}}},
    }
    calls = [call(value="text", to="†state.x"), call("take", "out", values=["†state.x"])]
    (told,) = messages(*calls, tools=tools)
    assert "reads †state.x at /values/0, where call 0 (give) gives what does not fit: string is not integer" in told
    assert statuses(run(*calls, tools=tools)) == ["done", "failed"]


def test_an_element_that_a_list_never_has_is_told_and_its_reader_skipped() -> None:
    tools = {"give": {"_output": {"type": "string"}}}
    calls = [call(value="text", to="†state.x", _outputMethod="push"), call("take", "out", value="†state.x.1")]
    (told,) = messages(*calls, tools=tools)
    assert "reads †state.x.1 at /value, where nothing is ever there" in told
    assert statuses(run(*calls, tools=tools)) == ["done", "skipped"]
