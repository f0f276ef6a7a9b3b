"""A declared tool whose activity does not take what its schema admits is told of before it fails (SPEC R4.1, R4.2)."""

from __future__ import annotations

from typing import Any

import pytest

from protocol import check_submission

from .building import ANY, call, submission

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
GIVEN = {"type": "state", "given": 1}


def told(tool: Any = ANY, activities: Any = None, **parameters: Any) -> list[tuple[str | None, str]]:
    value = submission(call("charge", "†state.x", **parameters), tools={"charge": tool}, context=[GIVEN])
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
        ({"amount": None}, "/amount", "None is not of type 'integer'"),
        ({"amount": [1]}, "/amount", "[1] is not of type 'integer'"),
        ({"amount": -1}, "/amount", "-1 is less than the minimum of 0"),
        ({"currency": 5}, "/currency", "5 is not of type 'string'"),
        ({"currency": True}, "/currency", "True is not of type 'string'"),
        ({"due": []}, "/due", "[] is not of type 'string'"),
        ({"notify": {}}, "/notify", "{} is not of type 'boolean'"),
        ({"lines": "a, b"}, "/lines", "'a, b' is not of type 'array'"),
        ({"lines": {"a": "†state.given"}}, "/lines", "is not of type 'array'"),
        ({"lines": [1, "x"]}, "/lines/1", "'x' is not of type 'number'"),
        ({"more": ["†state.given"]}, "/more", "is not of type 'object'"),
        ({"note": 5}, "/note", "5 is not valid under any of the given schemas"),
        ({"note": [1]}, "/note", "[1] is not valid under any of the given schemas"),
        ({"speed": "quick"}, "/speed", "'quick' is not one of ['slow', 'fast']"),
        ({"payer": {}}, "/payer", "'id' is a required property"),
        ({"payer": {"id": "x"}}, "/payer/id", "'x' is not of type 'integer'"),
        ({"payer": {"id": "†state.given", "nmae": 1}}, "/payer", "'nmae' was unexpected"),
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
        {"amount": "†state.given"},
        {"amount": True},
        {"due": 1_700_000_000},
        {"notify": "yes"},
        {"notify": 1},
        {"amount": "-5"},
        {"amount": " 1_000 "},
        {"lines": []},
        {"lines": ["1.5", "NaN", "†state.given"]},
        {"marks": [1, 1]},
        {"speed": "fast"},
        {"grade": "2"},
        {"kind": "card"},
        {"payer": {"id": "7", "name": "alex"}},
        {"payer": {"id": "†state.given"}},
        {"payer": "†state.given"},
        {"more": {}},
        {"note": None},
        {"until": 1_700_000_000},
        {"note": "†state.given"},
    ],
)
def test_nothing_is_said_of_what_may_be_converted(parameters: dict[str, Any]) -> None:
    assert told(**{"amount": 1, **parameters}) == []


def test_nothing_is_said_of_activities_that_take_anything_or_are_not_known() -> None:
    assert told(activities={"charge": {"type": "object"}}, any=1) == []
    value = submission(call("charge", "†state.x", any=1), tools={"charge": ANY})
    assert check_submission(value).findings == ()


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
        (SCOPED, ["state", "input", "†data.x"], ["/_scopes/1", "/_scopes/2"]),
        (SCOPED, ["state", "†state.given"], []),
        ({"type": "object"}, ["state", "input"], []),
    ],
)
def test_a_scope_of_which_the_function_is_given_nothing_is_told(
    activity: Any, scopes: list[str], at: list[str]
) -> None:
    value = submission(call("charge", "†state.x", amount=1, _scopes=scopes), tools={"charge": ANY}, context=[GIVEN])
    plan = check_submission(value, activities={"charge": activity})
    found = [finding for finding in plan.findings if "is not given" in finding.message]
    assert [(finding.severity, finding.pointer) for finding in found] == [
        ("info", f"/solution/calls/0{place}") for place in at
    ]


def test_a_scope_that_the_tool_fills_in_is_nobodys_slip() -> None:
    tool = {"type": "object", "_scopes": {"const": ["state"]}}
    value = submission(call("charge", "†state.x", amount=1), tools={"charge": tool}, context=[GIVEN])
    assert check_submission(value, activities={"charge": SIGNATURE}).findings == ()
