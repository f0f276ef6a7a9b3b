"""Findings: tools declared as other systems have them (SPEC R4.1, R4.6)."""

from __future__ import annotations

from typing import Any

import pytest

from protocol import check_submission

from .building import call, checked, problems_of

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@pytest.mark.parametrize(
    ("tool", "at"),
    [
        ({"name": "find", "description": "…", "strict": True, "parameters": SCHEMA}, "parameters"),
        ({"name": "find", "input_schema": SCHEMA}, "input_schema"),
        ({"name": "find", "inputSchema": {"type": "object"}}, "inputSchema"),
        ({"function": {"name": "find", "parameters": SCHEMA}}, "function.parameters"),
    ],
)
def test_a_schema_inside_a_tool_is_told_with_where_it_belongs(tool: dict[str, Any], at: str) -> None:
    (finding,) = checked(call("find", town=5), call("find", town=6), tools={"find": tool}).findings
    assert finding.to_dict() == {
        "severity": "info",
        "message": "tool 'find' has a schema where nobody looks: a tool is itself the JSON Schema of its calls, put "
        f"what is under {at} in its place",
        "calls": [],
        "pointer": "/tools/find",
    }


def test_a_schema_of_a_result_belongs_under_output() -> None:
    tool = {**SCHEMA, "outputSchema": {"type": "string"}}
    (finding,) = checked(call("find", city="x"), tools={"find": tool}).findings
    assert finding.message.endswith(
        "the schema of a tool's result is its _output, put what is under outputSchema there"
    )
    assert checked(call("find", city="x"), tools={"find": {**tool, "_output": {}}}).findings == ()


def test_it_is_told_where_the_last_declaration_stands() -> None:
    wrapped = {"input_schema": SCHEMA}
    context = [{"type": "tool", "tool": {"find": declared}} for declared in (SCHEMA, wrapped)]
    value = {"context": context, "solution": {"calls": [call("find", town=5)]}}
    (finding,) = check_submission(value).findings
    assert finding.pointer == "/context/1/tool/find"


@pytest.mark.parametrize(
    "tool",
    [
        {"properties": {"parameters": SCHEMA, "input_schema": {}}},
        {**SCHEMA, "parameters": SCHEMA},
        {"parameters": {"city": "text"}, "function": "f"},
        {"name": "find", "parameters": []},
    ],
)
def test_a_tool_that_is_a_schema_or_holds_none_is_as_it_should_be(tool: dict[str, Any]) -> None:
    assert checked(call("find", city="x"), tools={"find": tool}).findings == ()


def test_a_tool_that_nobody_calls_is_not_looked_at() -> None:
    assert checked(call(), tools={"find": {"input_schema": SCHEMA}}).findings == ()


def test_a_declaration_that_is_no_schema_is_refused_with_the_same_hint() -> None:
    tool = {"type": "function", "function": {"name": "find", "parameters": SCHEMA}}
    (problem,) = problems_of(call("find", city="x"), tools={"find": tool})
    assert problem.pointer == "/tools/find/type"
    assert problem.message.endswith("put what is under function.parameters in its place")


@pytest.mark.parametrize("key", ["messages", "prompt", "output_schema"])
def test_a_delegate_defined_as_elsewhere_is_told_what_is_looked_at(key: str) -> None:
    plan = checked(call("ask", "answer", _delegate="oracle"), delegates={"oracle": {key: {}}})
    (finding,) = plan.findings
    assert (finding.severity, finding.pointer) == ("info", f"/delegates/oracle/{key}")
    assert finding.message.startswith(f"delegate 'oracle' is defined with {key}, where nobody looks")


def test_a_delegate_that_has_what_is_looked_at_may_have_more() -> None:
    definition = {"context": [{"type": "system", "message": "Answer."}], "schema": {}, "messages": [], "output": 1}
    assert checked(call("ask", "answer", _delegate="oracle"), delegates={"oracle": definition}).findings == ()
