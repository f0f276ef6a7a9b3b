"""SPEC R4.2: which code runs a call, and which tools are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from protocol import check_submission
from protocol.calls.tools import Executor

from .building import (
    ANY,
    checked,
    pointers,
    problems,
)

# R4.2


def runner(
    raw: dict[str, Any], *, tools: Mapping[str, Any] | None = None, activities: Any = (), registered: Any = ()
) -> tuple[Executor, str]:
    """Who runs a call."""
    named = dict.fromkeys(activities, ANY)
    value = {"solution": {"calls": [raw]}, "tools": tools or {}}
    found = check_submission(value, activities=named, delegates=registered).calls[0].runner
    return found.executor, found.name


@pytest.mark.parametrize(
    ("raw", "tool", "activities", "expected"),
    [
        ({"_delegate": "d"}, {"_activity": "a"}, ["a", "t"], (Executor.DELEGATE, "d")),
        ({}, {"_delegate": "d", "_activity": "a"}, ["a", "t"], (Executor.DELEGATE, "d")),
        ({}, {"_activity": "a"}, ["a", "t"], (Executor.ACTIVITY, "a")),
        ({}, {"_activity": {"const": "a"}}, ["a", "t"], (Executor.ACTIVITY, "a")),
        ({"_activity": "a"}, {}, ["a", "t"], (Executor.ACTIVITY, "a")),
        ({}, {"_activity": ""}, ["a", "t"], (Executor.ACTIVITY, "t")),
        ({"_activity": ""}, {}, ["t"], (Executor.ACTIVITY, "t")),
        ({}, {}, ["a", "t"], (Executor.ACTIVITY, "t")),
        ({}, {}, ["a"], (Executor.LATENT, "t")),
        ({}, {"_activity": ""}, [], (Executor.LATENT, "t")),
        ({"_delegate": "anonymous"}, {}, ["t"], (Executor.DELEGATE, "anonymous")),
    ],
)
def test_r4_2_a_delegate_then_the_tools_activity_then_one_of_its_name_else_it_is_latent(
    raw: dict[str, Any], tool: dict[str, Any], activities: list[str], expected: tuple[Executor, str]
) -> None:
    assert runner({"_tool": "t", **raw}, tools={"t": tool}, activities=activities, registered=["d"]) == expected


@pytest.mark.parametrize(
    ("tool", "raw"),
    [
        ({"_activity": "a"}, {"_activity": "b"}),
        ({"_activity": ""}, {"_activity": "b"}),
        ({"properties": {"_activity": False}}, {"_activity": "b"}),
        ({"_delegate": {"enum": ["d"]}}, {"_delegate": "e"}),
        ({"properties": {"_delegate": False}}, {"_delegate": "e"}),
    ],
)
def test_r4_2_the_tools_schema_decides_which_code_a_call_may_name(tool: dict[str, Any], raw: dict[str, Any]) -> None:
    found = problems({"solution": {"calls": [{"_tool": "t", **raw}]}, "tools": {"t": tool}},
                     activities={"a": ANY, "b": ANY}, delegates=["d", "e"])  # fmt: skip
    assert pointers(found) == [f"/solution/calls/0/{next(iter(raw))}"]


def test_r4_2_a_tool_is_known_when_declared_registered_or_run_by_a_registered_delegate() -> None:
    assert runner({"_tool": "t"}, tools={"t": {}}) == (Executor.LATENT, "t")
    assert runner({"_tool": "t"}, activities=["t"]) == (Executor.ACTIVITY, "t")
    assert runner({"_tool": "t", "_delegate": "d"}, registered=["d"]) == (Executor.DELEGATE, "d")


@pytest.mark.parametrize(
    ("raw", "pointer", "hint"),
    [
        ({"_tool": "giev"}, "/_tool", "did you mean 'give'?"),
        ({"_tool": "zzz"}, "/_tool", "unknown tool 'zzz'"),
        ({"_tool": "give", "_delegate": "nobody"}, "/_delegate", "nobody"),
        ({"_tool": "zzz", "_delegate": "nobody"}, "/_delegate", "nobody"),
        ({"_tool": "zzz", "_delegate": "anonymous"}, "/_tool", "zzz"),
        ({"_tool": "give", "_activity": "giev"}, "/_activity", "did you mean 'give'?"),
        ({"_tool": ""}, "/_tool", "_tool"),
        ({"_tool": 5}, "/_tool", "_tool"),
        ({"x": 1}, "", "_tool"),
        ("give", "", "object"),
        (None, "", "object"),
    ],
)
def test_r4_2_an_unknown_tool_delegate_or_activity_is_a_structural_error(raw: Any, pointer: str, hint: str) -> None:
    value = {"solution": {"calls": [raw]}, "tools": {"give": {}}}
    found = problems(value, activities={"give": ANY}, delegates=["d"])
    assert pointers(found) == ["/solution/calls/0" + pointer]
    assert hint in found[0].message


def test_r4_2_a_submissions_own_delegates_are_registered() -> None:
    own: dict[str, Any] = {"d": {"context": [], "schema": {}}}
    plan = checked({"_tool": "t", "_delegate": "d"}, delegates=own, registered=["e"])
    assert plan.calls[0].runner.name == "d"


def test_r4_2_the_last_declaration_of_a_tool_wins() -> None:
    context = [
        {"type": "tool", "tool": {"t": {"required": ["a"]}}},
        {"type": "tool", "tool": {"t": {"required": ["b"]}}},
    ]
    assert "'b'" in problems({"context": context, "solution": {"calls": [{"_tool": "t"}]}})[0].message
    shorthand = {"t": {"required": ["c"]}}
    assert (
        "'c'" in problems({"context": context, "solution": {"calls": [{"_tool": "t"}]}, "tools": shorthand})[0].message
    )


def test_r4_2_a_declared_schema_comes_before_that_of_the_activity() -> None:
    activities = {"t": {"type": "object", "required": ["a"]}}
    assert len(problems({"solution": {"calls": [{"_tool": "t"}]}}, activities=activities)) == 1
    assert len(checked({"_tool": "t"}, tools={"t": {}}, activities=activities).calls) == 1
