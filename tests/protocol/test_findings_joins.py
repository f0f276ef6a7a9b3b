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


@pytest.mark.parametrize("takes", [[[1, 2, 3], [2], [1, 3], [1, 2]], [[1, 2, 3], [2], [3], [1, 3], [1, 2]]])
def test_of_readers_that_may_run_together_others_in_between_keep_none_apart(takes: list[list[int]]) -> None:
    tools = {f"take{n}": {"properties": {"n": {"enum": values}}} for n, values in enumerate(takes)}
    everyone = {"pick": {}, "join": {}, **tools}
    needed = [f"†state.{tool}" for tool, values in zip(tools, takes, strict=True) if 1 in values]
    either = [f"†state.{tool} || {needed[0]}" for tool, values in zip(tools, takes, strict=True) if 1 not in values]
    plan = checked(
        call("pick", "n"),
        *(call(tool, tool, n="†state.n") for tool in tools),
        call("join", "all", needed=needed, either=either),
        tools=everyone,
        activities=dict.fromkeys(everyone, ANY),
    )
    assert plan.findings == ()
