"""Findings: list elements that are read by their index, of lists that are filled in no certain order (SPEC R6.4)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from protocol import check_submission

from .building import FUNCTIONS, call, checked, plan_submission
from .driver import Driver

HELD = [{"type": "state", "held": ["a", "b"], "text": "x", "at": {"0": 1}}, {"type": "input", "x": 1}]
BRANCHES = call("choose", "†state.yes || †state.no")


def push(value: Any, to: str = "†state.l", **more: Any) -> dict[str, Any]:
    return call("give", to, value=value, **{"_outputMethod": "push", **more})


def told(*calls: Any, **parts: Any) -> list[tuple[int, ...]]:
    found = checked(*calls, **{"context": HELD, **parts}).findings
    return [finding.calls for finding in found if "append" in finding.message]


def test_the_text_says_who_appends_and_what_to_do() -> None:
    (finding,) = checked(push(1), push(2), call("take", "†state.y", value="†state.l.1")).findings
    assert finding.to_dict() == {
        "severity": "info",
        "message": "call 2 (take) reads †state.l.1, and calls 0 and 1 append to †state.l in no certain order: whose "
        "result it gets depends on timing; let each write to a place of its own, or one read what the other writes",
        "calls": [0, 1, 2],
        "pointer": None,
    }
    (finding,) = checked(*(push(n) for n in range(12)), call("take", value="†state.l.0")).findings
    assert "calls 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more append" in finding.message


@pytest.mark.parametrize(
    "calls",
    [
        [push(1), push(2), call("take", value="†state.l.0.name")],
        [push(1), push(2), call("take", value={"in": ["†state.l.0 || †input.x"]})],
        [push(1), push(2), call("take", _scopes=["†state.l.0"])],
        [push(1, "†state.held"), push(2, "†state.held"), call("take", value="†state.held.2")],
        [push([1], _outputMethod="concat"), push([2], _outputMethod="concat"), call("take", value="†state.l.3")],
    ],
)
def test_an_element_that_may_be_of_either_is_told(calls: list[Any]) -> None:
    assert told(*calls) == [(0, 1, 2)]


@pytest.mark.parametrize(
    "calls",
    [
        [push(1), push(2), call("take", value="†state.l")],
        [push(1), push(2), call("take", value="†state.l.2 || †input.x")],
        [push(1), push("†state.l"), call("take", value="†state.l.0")],
        [push(1, "†state.held"), push(2, "†state.held"), call("take", value="†state.held.1")],
        [push(1), push(2, "†state.m"), call("take", value=["†state.l.0", "†state.m.0"])],
        [BRANCHES, push("†state.yes"), push("†state.no"), call("take", value="†state.l.0")],
        [call("give", "†state.l", _output=[]), push("†state.l"), push("†state.l"), call("take", value="†state.l.0")],
        [push(1, _output=7), push(2, _output=8), call("take", value="†state.l.0")],
        [push(1, _output=7, x="†input.x"), push(2, _output=7, x="†input.x"), call("take", value="†state.l.0")],
    ],
)
def test_an_element_that_is_certain_or_that_nobody_knows_is_not_told(calls: list[Any]) -> None:
    assert told(*calls, activities={"give": {}, "choose": {}, "take": {}} if "_output" not in str(calls) else {}) == []


def test_only_those_that_may_come_to_the_position_are_told() -> None:
    first, then = push(1), [push("†state.l"), push("†state.l.0")]
    assert told(first, *then, call("take", value="†state.l.0")) == []
    assert told(first, push("†state.l.0 || †input.x"), call("take", value="†state.l.0")) == []
    beside = [push(1, also="†state.a"), push(2, also="†state.a"), push(3, also=["†state.b", "†state.c"])]
    steps = [call("give", f"†state.{name}") for name in "abc"]
    assert told(*steps, *beside, call("take", value="†state.l.2")) == [(3, 4, 5, 6)]


def test_an_instance_reads_its_own_behind_the_global_ones() -> None:
    names = [{"type": "state", "_instance": name, "x": 1} for name in "ab"]
    one_of_each = push(1), push(2, _instance="a"), call("take", value="†state.l.0", _instance="a")
    assert told(*one_of_each, context=names) == []
    global_ones = push(1), push(2), call("take", value="†state.l.0", _instance="a")
    assert told(*global_ones, context=names) == [(0, 1, 2)]
    own = {"type": "state", "_instance": "a", "l": ["own"]}
    assert told(*global_ones, context=[*names, own]) == []
    template = plan_submission(push(1), push(2), call("take", "†state.y", value="†state.l.1"), context=names)
    (finding,) = check_submission(template).findings
    assert finding.message.startswith("call 2 (take) reads †state.l.1")


@pytest.mark.parametrize("position", range(4))
def test_what_is_told_is_what_comes_about(position: int) -> None:
    """Four that push, the last one after the others: what it pushes is the last element in whatever order."""
    pushes = [push(0), push(1), push(2), push(3, after="†state.l.0 || †input.x")]
    plan = checked(*pushes, call("take", "†state.y", value=f"†state.l.{position}"), context=HELD)
    functions = {**FUNCTIONS, "take": FUNCTIONS["give"]}
    results = {Driver(plan, functions, random=Random(seed)).run().data[None]["state"]["y"] for seed in range(60)}
    assert (len(results) > 1) is any(finding.message.startswith("call 4 (take) reads") for finding in plan.findings)


def test_very_many_that_push_take_no_time() -> None:
    pushes = [push(n, f"†state.l{n // 40}") for n in range(4_000)]
    readers = [call("take", value=f"†state.l{n % 100}.{n // 100}") for n in range(4_000)]
    assert len(told(*pushes, *readers)) > 10
