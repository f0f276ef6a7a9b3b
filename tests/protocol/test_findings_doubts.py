"""Doubts: what of a simulation shows nothing of the plan (SPEC R6.7)."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.analysis.findings.doubts import doubtful_calls
from protocol.analysis.simulation import simulate

from .building import call, checked

CODE: dict[str, Any] = {"type": "string", "pattern": "^[A-Z]{3}$"}
TAKES_CODE: dict[str, Any] = {"take": {"properties": {"value": CODE}}}


@pytest.mark.parametrize(
    "declared",
    [
        {"tools": TAKES_CODE},
        {"context": [{"type": "state", "data": {}, "schema": {"properties": {"code": CODE}}}]},
    ],
    ids=["reader", "kind"],
)
def test_calls_that_are_lost_for_what_was_made_up_are_doubtful_with_all_behind_them(declared: dict[str, Any]) -> None:
    plan = checked(
        call(to="†state.code"),
        call("take", value="†state.code", to="†data.y"),
        call(value="†data.y", to="†data.z"),
        **declared,
    )
    lost = {end.index for end in simulate(plan).calls if end.status.value != "done"}
    assert {1, 2} <= lost
    assert set(doubtful_calls(plan, simulate(plan))) == lost


def test_what_fails_on_all_results_is_not_doubtful() -> None:
    context = [{"type": "state", "code": "?"}]
    plan = checked(call("take", value="†state.code", to="†data.y"), context=context, tools=TAKES_CODE)
    assert doubtful_calls(plan, simulate(plan)) == ()


def test_a_branch_that_is_not_taken_is_not_doubtful() -> None:
    plan = checked(call(to="†data.a || †data.b"), call(value="†data.b", to="†data.c"))
    assert doubtful_calls(plan, simulate(plan)) == ()


def test_of_very_many_calls_all_that_are_lost_are_doubtful() -> None:
    plan = checked(call(to="†data.x"), call("take", value="†data.x", to="†data.y"), tools=TAKES_CODE)
    assert doubtful_calls(plan, simulate(plan), most_calls=1) == (1,)
