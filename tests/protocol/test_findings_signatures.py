"""A declared tool whose activity does not take what its schema admits is told of before it fails (SPEC R4.1, R4.2)."""

from __future__ import annotations

from typing import Any

import pytest

from protocol import check_submission
from protocol.analysis.findings.signatures import Signature, signature_findings

from .building import ANY, call, checked, submission

SIGNATURE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "amount": {"type": "integer", "minimum": 0},
        "currency": {"type": "string"},
        "due": {"type": "string", "format": "date-time"},
        "notify": {"type": "boolean"},
        "lines": {"type": "array", "items": {"type": "number"}},
        "marks": {"type": "array", "uniqueItems": True, "maxItems": 1},
        "speed": {"type": "string", "enum": ["slow", "fast"]},
        "grade": {"type": "integer", "enum": [1, 2]},
        "payer": {"$ref": "#/$defs/Payer"},
        "kind": {"oneOf": [{"type": "string"}, {"const": "card"}]},
        "more": {"type": "object"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "until": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
    },
    "required": ["amount"],
    "additionalProperties": False,
    "$defs": {
        "Payer": {
            "type": "object",
            "properties": {"id": {"type": "integer"}, "name": {"type": "string", "pattern": "^[A-Z]"}},
            "required": ["id"],
            "additionalProperties": False,
        }
    },
}
GIVEN = {"type": "state", "given": {"count": 1, "text": "five", "digits": "5", "many": [1, 2]}}


def told(tool: Any = ANY, activities: Any = None, **parameters: Any) -> list[tuple[str | None, str]]:
    calls = call("charge", "†state.x", **parameters), call("make", "†state.made")
    value = submission(*calls, tools={"charge": tool}, context=[GIVEN])
    plan = check_submission(value, activities=activities or {"charge": SIGNATURE})
    return [(finding.pointer, finding.message) for finding in plan.findings if "signature" in finding.message]


def test_a_parameter_that_the_activity_does_not_take_is_told_with_the_name_that_was_meant() -> None:
    assert told(amount=1, curency="EUR") == [
        (
            "/solution/calls/0/curency",
            "call 0 (charge) does not fit the signature of its activity 'charge', which takes no 'curency', "
            "did you mean 'currency'?; change the call, the tool or the function",
        )
    ]


def test_a_parameter_that_the_activity_needs_is_told() -> None:
    assert told(currency="EUR") == [
        (
            "/solution/calls/0",
            "call 0 (charge) does not fit the signature of its activity 'charge', which needs 'amount'; "
            "change the call, the tool or the function",
        )
    ]


def test_the_activity_that_the_tool_names_counts() -> None:
    tool = {"type": "object", "_activity": "pay"}
    assert told(tool, {"pay": SIGNATURE, "charge": {"type": "object"}}, currency="EUR")
    assert told(tool, {"pay": {"type": "object"}, "charge": SIGNATURE}, currency="EUR") == []


@pytest.mark.parametrize(
    ("parameters", "at", "why"),
    [
        ({"amount": "five"}, "/amount", "'five' is not of type 'integer'"),
        ({"amount": None}, "/amount", "null is not of type 'integer'"),
        ({"amount": [1]}, "/amount", "[1] is not of type 'integer'"),
        ({"amount": -1}, "/amount", "-1 is less than the minimum of 0"),
        ({"currency": 5}, "/currency", "5 is not of type 'string'"),
        ({"currency": True}, "/currency", "true is not of type 'string'"),
        ({"due": []}, "/due", "[] is not of type 'string'"),
        ({"notify": {}}, "/notify", "{} is not of type 'boolean'"),
        ({"lines": "a, b"}, "/lines", "'a, b' is not of type 'array'"),
        ({"lines": {"a": "†state.made"}}, "/lines", "is not of type 'array'"),
        ({"lines": [1, "x"]}, "/lines/1", "'x' is not of type 'number'"),
        ({"more": ["†state.made"]}, "/more", "is not of type 'object'"),
        ({"note": 5}, "/note", "5 is not valid under any of the given schemas"),
        ({"note": [1]}, "/note", "[1] is not valid under any of the given schemas"),
        ({"speed": "quick"}, "/speed", '\'quick\' is not one of ["slow", "fast"]'),
        ({"payer": {}}, "/payer", "'id' is a required property"),
        ({"payer": {"id": "x"}}, "/payer/id", "'x' is not of type 'integer'"),
        ({"payer": {"id": "†state.made", "nmae": 1}}, "/payer", "'nmae' was unexpected"),
    ],
)
def test_a_value_that_no_conversion_makes_one_for_the_activity_is_told(
    parameters: dict[str, Any], at: str, why: str
) -> None:
    [(pointer, message)] = told(**{"amount": 1, **parameters})
    assert pointer == f"/solution/calls/0{at}"
    assert "which takes something else here: " in message
    assert why in message


@pytest.mark.parametrize(
    "parameters",
    [
        {"amount": "5"},
        {"amount": 5.0},
        {"amount": "†state.made"},
        {"amount": True},
        {"due": 1_700_000_000},
        {"notify": "yes"},
        {"notify": 1},
        {"amount": "-5"},
        {"amount": " 1_000 "},
        {"lines": []},
        {"lines": ["1.5", "NaN", "†state.made"]},
        {"marks": [1, 1]},
        {"speed": "fast"},
        {"grade": "2"},
        {"kind": "card"},
        {"payer": {"id": "7", "name": "alex"}},
        {"payer": {"id": "†state.made"}},
        {"payer": "†state.made"},
        {"more": {}},
        {"note": None},
        {"until": 1_700_000_000},
        {"note": "†state.made"},
    ],
)
def test_nothing_is_said_of_what_may_be_converted(parameters: dict[str, Any]) -> None:
    assert told(**{"amount": 1, **parameters}) == []


def test_nothing_is_said_of_activities_that_take_anything_or_are_not_known() -> None:
    assert told(activities={"charge": {"type": "object"}}, any=1) == []
    value = submission(call("charge", "†state.x", any=1), tools={"charge": ANY})
    assert check_submission(value).findings == ()


@pytest.mark.parametrize(
    ("parameters", "at", "why"),
    [
        ({"amount": "†state.given.text"}, "/amount", "'five' is not of type 'integer'"),
        ({"lines": ["†state.given.text"]}, "/lines/0", "'five' is not of type 'number'"),
        ({"payer": {"id": "†state.given"}}, "/payer/id", "is not of type 'integer'"),
        ({"speed": "†state.given.count"}, "/speed", "1 is not of type 'string'"),
    ],
)
def test_a_value_of_the_context_that_the_activity_cannot_make_use_of_is_told(
    parameters: dict[str, Any], at: str, why: str
) -> None:
    [(_, message)] = told(**{"amount": 1, **parameters})
    assert f" at {at}, where the context holds what does not fit the signature of its activity 'charge': " in message
    assert why in message


@pytest.mark.parametrize(
    "parameters",
    [
        {"amount": "†state.given.digits"},
        {"lines": "†state.given.many"},
        {"due": "†state.given.count"},
        {"payer": {"id": "†state.given.digits"}},
        {"amount": "†state.made || †state.given.text"},
    ],
)
def test_nothing_is_said_of_a_value_of_the_context_that_may_be_converted(parameters: dict[str, Any]) -> None:
    assert told(**{"amount": 1, **parameters}) == []


def told_of_result(output: Any, **parameters: Any) -> list[str]:
    """What is told of a reader of a call with this `_output`."""
    tools = {"charge": ANY, "make": {"properties": {"_output": output}}}
    value = submission(call("make", "†state.made"), call("charge", **{"amount": 1, **parameters}), tools=tools)
    plan = check_submission(value, activities={"charge": SIGNATURE, "make": {"type": "object"}})
    return [finding.message for finding in plan.findings if "signature" in finding.message]


@pytest.mark.parametrize(
    ("output", "parameters", "why"),
    [
        ({"type": "object"}, {"amount": "†state.made"}, "object is not integer"),
        ({"enum": ["low", "high"]}, {"amount": "†state.made"}, '"low" or "high" is not integer'),
        ({"type": "string"}, {"lines": "†state.made"}, "string is not array"),
        ({"type": "string"}, {"more": "†state.made"}, "string is not object"),
        ({"type": "array"}, {"lines": ["†state.made"]}, "array is not number"),
        ({"type": "integer"}, {"speed": "†state.made"}, 'integer is never "slow" or "fast"'),
        ({"required": ["id"], "properties": {"id": {"type": "null"}}}, {"payer": "†state.made"}, "null is not integer"),
    ],
)
def test_a_result_that_the_activity_of_its_reader_cannot_make_use_of_is_told(
    output: Any, parameters: dict[str, Any], why: str
) -> None:
    (message,) = told_of_result({"type": "object", **output} if "required" in output else output, **parameters)
    assert "call 0 (make) gives what does not fit the signature of its activity 'charge': " in message
    assert why in message


@pytest.mark.parametrize(
    ("output", "parameters"),
    [
        ({"type": "string"}, {"amount": "†state.made"}),
        ({"enum": ["low", "5"]}, {"amount": "†state.made"}),
        ({"type": "boolean"}, {"amount": "†state.made"}),
        ({"type": "number"}, {"due": "†state.made"}),
        ({"type": "string"}, {"notify": "†state.made"}),
        ({"type": "array", "items": {"type": "string"}}, {"lines": "†state.made"}),
        ({"type": "object", "properties": {"id": {"type": "string"}}}, {"payer": "†state.made"}),
        ({}, {"payer": "†state.made"}),
    ],
)
def test_nothing_is_said_of_a_result_that_may_be_converted(output: Any, parameters: dict[str, Any]) -> None:
    assert told_of_result(output, **parameters) == []


def test_what_neither_the_tool_nor_its_activity_admits_is_told_once() -> None:
    tool = {"type": "object", "properties": {"amount": {"type": "integer"}}}
    assert told(tool, amount="†state.given.text") == []
    value = submission(call("charge", "†state.x", amount="†state.given.text"), tools={"charge": tool}, context=[GIVEN])
    (finding,) = check_submission(value, activities={"charge": SIGNATURE}).findings
    assert "what does not fit: 'five' is not of type 'integer'" in finding.message


SCOPED = SIGNATURE | {
    "properties": SIGNATURE["properties"]
    | {
        "_scopes": {
            "type": "array",
            "items": {"anyOf": [{"enum": ["state"]}, {"type": "string", "pattern": "^†state"}]},
        }
    }
}


@pytest.mark.parametrize(
    ("activity", "scopes", "at"),
    [
        (SIGNATURE, ["state"], ["/_scopes/0"]),
        (SCOPED, ["state", "†state.given"], []),
        ({"type": "object"}, ["state", "input"], []),
    ],
)
def test_a_scope_of_which_the_function_is_given_nothing_is_told(
    activity: Any, scopes: list[str], at: list[str]
) -> None:
    value = submission(call("charge", "†state.x", amount=1, _scopes=scopes), tools={"charge": ANY}, context=[GIVEN])
    plan = check_submission(value, activities={"charge": activity})
    found = [finding for finding in plan.findings if "is given nothing" in finding.message]
    assert [(finding.severity, finding.pointer) for finding in found] == [
        ("info", f"/solution/calls/0{place}") for place in at
    ]


def test_a_scope_that_the_tool_fills_in_is_nobodys_slip() -> None:
    tool = {"type": "object", "_scopes": {"const": ["state"]}}
    value = submission(call("charge", "†state.x", amount=1), tools={"charge": tool}, context=[GIVEN])
    assert check_submission(value, activities={"charge": SIGNATURE}).findings == ()


def test_of_the_names_of_many_activities_no_more_is_compared_than_of_those_of_one() -> None:
    properties = {f"{'text' * 20}{number}": ANY for number in range(30)}
    names = [f"t{number}" for number in range(300)]
    closed = {name: Signature(name, {"properties": properties, "additionalProperties": False}) for name in names}
    calls = checked(*({"_tool": name, f"{'text' * 20}x": 1} for name in names)).calls
    found = list(signature_findings(calls, [()] * len(calls), closed))
    assert "did you mean" in found[0].message
    assert "did you mean" not in found[-1].message
