"""Findings about what can be no right answer to a call (SPEC R4.6, R6.7, R9.3)."""

from __future__ import annotations

from typing import Any

import pytest

from .building import call, checked

ASKING = call("ask", "†state.answer", _delegate="oracle")
READING = call("take", "out", value="†state.answer")
TAKING: dict[str, Any] = {"properties": {"value": {"type": "integer"}}}
STATE = [{"type": "state", "schema": {"properties": {"answer": {"type": "integer"}}}}]


def messages(*calls: Any, schema: Any, tools: Any = None, **parts: Any) -> list[str]:
    """What is told as a warning where the delegate's schema is this."""
    definition = {"context": [{"type": "system", "message": "Answer."}], "schema": schema}
    plan = checked(*calls, delegates={"oracle": definition}, tools=tools, **parts)
    return [finding.message for finding in plan.findings if finding.severity == "warning"]


@pytest.mark.parametrize(
    ("schema", "output", "why"),
    [
        (False, None, "the schema of delegate 'oracle' admits nothing"),
        ({"type": "string"}, False, "its tool's _output admits nothing"),
        (
            {"type": "string"},
            {"type": "integer"},
            "the schema of delegate 'oracle' and the tool's _output exclude each other: string is not integer",
        ),
    ],
)
def test_a_delegate_of_whose_answers_none_can_be_right_is_told(schema: Any, output: Any, why: str) -> None:
    tools = {"ask": {} if output is None else {"_output": output}}
    (told,) = messages(ASKING, schema=schema, tools=tools)
    assert told == f"call 0 (ask) can never succeed: no answer can be right, as {why}; change one of the schemas"


def test_what_a_delegate_answers_is_held_against_its_readers_and_its_place() -> None:
    (told,) = messages(ASKING, READING, schema={"type": "string"}, tools={"take": TAKING})
    assert "reads †state.answer at /value, where call 0 (ask) gives what does not fit: string is not integer" in told
    (told,) = messages(ASKING, schema={"type": "string"}, context=STATE)
    assert "what the schema of state forbids: string is not integer" in told


def test_calls_of_one_tool_to_several_delegates_are_told_apart() -> None:
    other = call("ask", "†state.other", _delegate="counter")
    reading = call("take", "other", value="†state.other")
    delegates = {"oracle": {"schema": {"type": "string"}}, "counter": {"schema": {"type": "integer"}}}
    plan = checked(ASKING, other, READING, reading, delegates=delegates, tools={"take": TAKING})
    (told,) = [finding for finding in plan.findings if finding.severity == "warning"]
    assert told.calls == (0, 2)


@pytest.mark.parametrize("schema", [None, {}, True, {"type": ["integer", "null"]}])
def test_nothing_is_told_of_a_delegate_whose_answer_may_be_right(schema: Any) -> None:
    tools = {"take": TAKING, "ask": {"_output": {"type": ["integer", "string"]}}}
    assert messages(ASKING, READING, schema=schema, tools=tools, context=STATE) == []


@pytest.mark.parametrize("output", [False, {"allOf": [{"type": "string"}, {"type": "integer"}]}, {"enum": []}])
def test_a_tool_that_promises_what_nothing_can_be_is_told(output: Any) -> None:
    def told(path: str | None) -> list[str]:
        plan = checked(call("give", path), tools={"give": {"properties": {"_output": output}}})
        return [finding.message for finding in plan.findings if finding.severity == "warning"]

    (message,) = told("†state.x")
    assert message == (
        "call 0 (give) can never succeed: no answer can be right, as its tool's _output admits nothing; "
        "change one of the schemas"
    )
    assert told("†state.x || †state.error") == [], "an exception may be an answer"
    assert told(None) == []
