"""A declared tool whose activity does not take what its schema admits is told of before it fails (SPEC R4.1, R4.2)."""

from __future__ import annotations

from typing import Any

import pytest

from protocol import check_submission

from .building import ANY, call, submission

SIGNATURE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "amount": {"type": "integer"},
        "currency": {"type": "string"},
        "due": {"type": "string", "format": "date-time"},
        "notify": {"type": "boolean"},
        "lines": {"type": "array"},
        "more": {"type": "object"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "until": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}]},
    },
    "required": ["amount"],
    "additionalProperties": False,
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
    "parameters",
    [
        {"amount": "five"},
        {"amount": None},
        {"amount": [1]},
        {"currency": 5},
        {"currency": True},
        {"due": []},
        {"notify": {}},
        {"lines": "a, b"},
        {"lines": {"a": "†state.given"}},
        {"more": ["†state.given"]},
        {"note": 5},
        {"note": [1]},
    ],
)
def test_a_value_that_no_conversion_makes_one_for_the_activity_is_told(parameters: dict[str, Any]) -> None:
    [(pointer, message)] = told(**{"amount": 1, **parameters})
    [(name, value)] = parameters.items()
    assert pointer == f"/solution/calls/0/{name}"
    assert f"which does not take {value!r} as {name!r}" in message


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
        {"lines": []},
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
