"""Findings about calls that need what never comes together in one run (SPEC R6.6, R6.7)."""

from __future__ import annotations

from typing import Any

import pytest

from .building import ANY, call, checked

SWITCH: dict[str, Any] = {
    "route": {},
    "refund": {"properties": {"kind": {"const": "refund"}}},
    "order": {"properties": {"kind": {"const": "order"}}},
    "any": {},
    "join": {},
}
ROUTED = [call("route", "kind"), *(call(tool, tool, kind="†state.kind") for tool in ("refund", "order", "any"))]


def told(*calls: dict[str, Any], **parts: Any) -> list[tuple[str, tuple[int, ...]]]:
    """What is said of values that never come together."""
    plan = checked(*calls, tools=SWITCH, activities=dict.fromkeys(SWITCH, ANY), **parts)
    return [(finding.severity, finding.calls) for finding in plan.findings if "can never run" in finding.message]


def test_what_comes_of_different_values_of_one_place_never_comes_together() -> None:
    join = call("join", "both", a="†state.refund", b="†state.order")
    assert told(*ROUTED, join) == [("warning", (4,))]
    assert told(*ROUTED, join, call("join", "after", a="†state.both", b="†state.any")) == [("warning", (4,))]


@pytest.mark.parametrize(
    "read",
    [
        {"a": "†state.refund || †state.order"},
        {"a": "†state.refund", "b": "†state.any"},
        {"a": "†state.refund", "b": "†state.order || †state.any"},
    ],
)
def test_what_may_come_together_is_not_told(read: dict[str, str]) -> None:
    assert told(*ROUTED, call("join", "both", **read)) == []


def test_what_the_context_holds_or_somebody_else_may_bring_may_come_together() -> None:
    join = call("join", "both", a="†state.refund", b="†state.order")
    assert told(*ROUTED, join, context=[{"type": "state", "order": 1}]) == []
    assert told(*ROUTED, join, call("any", "order")) == []


def test_where_many_read_a_value_nobody_says_what_never_comes_together() -> None:
    ranges = {f"from{n}": {"properties": {"n": {"type": "integer", "minimum": n}}} for n in range(70)}
    tools = {"count": {}, "join": {}, **ranges}
    readers = [call(tool, tool, n="†state.n") for tool in ranges]
    join = call("join", "both", a="†state.from0", b="†state.from69")
    plan = checked(call("count", "n"), *readers, join, tools=tools, activities=dict.fromkeys(tools, ANY))
    assert plan.findings == ()


def test_of_readers_that_may_run_together_others_in_between_keep_none_apart() -> None:
    takes = {"x": [1, 2, 3], "z1": [2], "z2": [3], "y": [1, 3], "w": [1, 2]}
    tools = {
        "pick": {},
        "join": {},
        **{tool: {"properties": {"n": {"enum": values}}} for tool, values in takes.items()},
    }
    readers = [call(tool, tool, n="†state.n") for tool in takes]
    read = {
        "a": "†state.x",
        "b": "†state.y",
        "c": "†state.w",
        "d": "†state.z1 || †state.x",
        "e": "†state.z2 || †state.x",
    }
    plan = checked(
        call("pick", "n"), *readers, call("join", "all", **read), tools=tools, activities=dict.fromkeys(tools, ANY)
    )
    assert plan.findings == ()
