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
    assert messages(*calls, context=context, tools={"give": COUNTING}) == []


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
