"""Findings: calls that stand in a submission and that nobody runs (SPEC R10.2)."""

from __future__ import annotations

from typing import Any

from protocol import check_submission

from .building import ANY, call, submission


def told(value: dict[str, Any]) -> list[tuple[str, str | None]]:
    return [(finding.message, finding.pointer) for finding in check_submission(value).findings]


def test_calls_beside_those_of_the_solution_are_told() -> None:
    value = submission(call(to="x"))
    value["solution"] |= {"then": [call("send", value="†state.x")], "reasoning": "first x"}
    assert told(value) == [
        ("what stands under 'then' in the solution is not run: put it among its calls", "/solution/then")
    ]


def test_of_a_plan_with_two_lists_of_calls_the_one_that_does_not_count_is_told() -> None:
    plan = {"type": "plan", "plan": [call(to="x")], "calls": [call(to="y")]}
    ((message, at),) = told({"context": [plan], "tools": {"give": ANY}})
    assert (message, at) == ("of a plan message with both, only what is in 'plan' counts", "/context/0/calls")


def test_a_plan_beside_a_solution_without_calls_is_told_and_beside_another_it_is_context() -> None:
    plan = {"type": "plan", "calls": [call(to="x")]}
    value: dict[str, Any] = {"context": [plan], "solution": {}, "tools": {"give": ANY}}
    ((message, at),) = told(value)
    assert message.startswith("nothing runs: beside a solution, plan messages are context")
    assert at == "/context/0"
    assert told({**value, "solution": {"calls": [call(to="x")]}}) == []
    assert told({**value, "solution": {"calls": [], "output": 1}}) == []
