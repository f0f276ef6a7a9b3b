"""Findings about output paths that something in the context stands in the way of (SPEC R3.4, R3.5, R6.7)."""

from __future__ import annotations

from typing import Any

import pytest

from .building import call, checked, run, statuses

CONTEXT: list[dict[str, Any]] = [{"type": "state", "count": 5, "name": "Alex", "rows": [1], "user": {"id": {}}}]


def told(*calls: Any) -> list[str]:
    """What is said of calls that can never write their results."""
    found = [finding.message for finding in checked(*calls, context=CONTEXT).findings]
    return [message for message in found if "can never write" in message]


@pytest.mark.parametrize(
    ("path", "method"),
    [
        ("count.unit", "set"),
        ("count", "push"),
        ("count", "concat"),
        ("name", "assign"),
        ("user", "push"),
        ("rows.name", "set"),
        ("rows.2", "set"),
        ("fresh.5", "set"),
        ("user.fresh.1.id", "set"),
    ],
)
def test_a_path_that_nothing_can_be_written_to_is_told_and_fails_the_call(path: str, method: str) -> None:
    writing = call(to=path, value={}, _outputMethod=method)
    assert len(told(writing, call(to="elsewhere"))) == 1
    assert statuses(run(writing, context=CONTEXT)) == ["failed"]


@pytest.mark.parametrize(
    ("path", "method", "value"),
    [
        ("count", "set", 1),
        ("count", "merge", 1),
        ("name", "concat", "!"),
        ("rows", "concat", [2]),
        ("rows", "push", 2),
        ("rows.1", "set", 2),
        ("user.id.0", "set", 1),
        ("user.id.x.y", "set", 1),
        ("fresh.0", "set", 1),
        ("fresh", "assign", {}),
    ],
)
def test_nothing_is_said_of_a_path_that_can_be_written_to(path: str, method: str, value: Any) -> None:
    writing = call(to=path, value=value, _outputMethod=method)
    assert told(writing) == []
    assert statuses(run(writing, context=CONTEXT)) == ["done"]


@pytest.mark.parametrize("first", ["count", "†state"])
def test_nothing_is_said_where_another_call_may_clear_the_way(first: str) -> None:
    assert told(call(to=first, value={}), call(to="count.unit")) == []


def test_elements_that_other_calls_append_are_not_in_the_way() -> None:
    assert told(call(to="fresh.0"), call(to="fresh.1", value="†state.fresh.0")) == []
