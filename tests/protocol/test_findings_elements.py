"""Findings about list elements that are written before the list is that long (SPEC R3.5, R6.7)."""

from __future__ import annotations

from typing import Any

import pytest

from protocol import check_submission

from .building import call, checked, plan_submission, run, statuses

READING = {"value": "†state.l.0"}


def told(*calls: Any, **parts: Any) -> list[tuple[str, tuple[int, ...]]]:
    """What is said of elements, as the beginning of the reason and the calls."""
    found = [(finding.message, finding.calls) for finding in checked(*calls, **parts).findings]
    reasons = {"which fails as long as": "race", "can never write": "never"}
    return [(reasons[key], calls) for message, calls in found for key in reasons if key in message]


@pytest.mark.parametrize(
    "calls",
    [
        [call(to="l.1"), call(to="l.0")],
        [call(to="l.0"), call(to="l.1")],
        [call(to="l.1"), call(to="l", value=[0])],
        [call(to="l.1"), call(to="l", _outputMethod="push")],
        [call(to="l.1", _outputMethod="push"), call(to="l", _outputMethod="concat")],
        [call(to="rows.l.1.name"), call(to="rows.l.0.name")],
        [call(to="l.1"), call(to="l.0 || other")],
        [call(to="l.1 || other"), call(to="l.0")],
        [call(to="†data.x"), call(to="†l.1"), call(to="†l.0", value="†data.x")],
    ],
)
def test_an_element_whose_list_calls_that_it_does_not_wait_for_have_to_lengthen_is_told(calls: list[Any]) -> None:
    ((reason, concerned),) = told(*calls)
    assert reason == "race"
    assert concerned == tuple(i for i, each in enumerate(calls) if each["_outputPath"] != "†data.x")


def test_the_text_about_an_element_says_what_to_do_and_it_is_so() -> None:
    calls = [call(to="l.1"), call(to="l.0")]
    assert checked(*calls).findings[0].message == (
        "call 0 (give) writes †state.l.1, which fails as long as †state.l has fewer than 1 elements, and does not wait "
        "for call 1 (give): let it read what is written there, or collect with _outputMethod push"
    )
    assert statuses(run(*calls)) == ["failed", "done"]


@pytest.mark.parametrize(
    "calls",
    [
        [call(to="l.0"), call(to="l.2", **READING)],
        [call(to="l.0"), call(to="l.0", **READING), call(to="l.2", **READING)],
        [call(to="l", _outputMethod="push"), call(to="l.3", value="†state.l")],
        [call(to="l.5 || other")],
        [call(to="l.0 && l.2")],
        [call(to="l.1"), call(to="l.0", value="†state.l.1")],
    ],
)
def test_an_element_that_no_call_before_makes_room_for_is_told(calls: list[Any]) -> None:
    assert [reason for reason, _ in told(*calls)] == ["never"]
    assert "failed" in statuses(run(*calls))


@pytest.mark.parametrize(
    ("calls", "context"),
    [
        ([call(to="l.0"), call(to="l.1", **READING)], []),
        ([call(to="l.0 && l.1")], []),
        ([call(to="l.1"), call(to="l.2")], [0, 1]),
        ([call(to="l.0"), call(to="l.1")], [0]),
        ([call(to="l", value=[1]), call(to="l.1", value="†state.l.0")], []),
        ([call(to="l", _outputMethod="push"), call(to="l.1", value="†state.l")], []),
        ([call(to="l.0"), call(to="l.1"), call(to="l.2", value=["†state.l.0", "†state.l.1"])], [0]),
        ([call(to="l.k"), call(to="l.5", value="†state.l.k")], None),
    ],
)
def test_nothing_is_said_where_the_list_is_long_enough(calls: list[Any], context: Any) -> None:
    messages = [] if context is None else [{"type": "state", "l": context}]
    assert told(*calls, context=messages) == []
    assert set(statuses(run(*calls, context=messages))) == {"done"}


def test_a_call_that_never_runs_beside_it_makes_no_room() -> None:
    branching = call(to="†data.good || †data.bad")
    calls = [branching, call(to="l.0", value="†data.good"), call(to="l.1", value="†data.bad")]
    assert told(*calls) == [("never", (2,))]


def test_an_instance_waits_for_global_calls_or_races_with_them() -> None:
    context = [{"type": "text", "_instance": "①"}]
    own = call(to="l.1", _instance="①")
    assert told(call(to="l.0"), own, context=context) == [("race", (0, 1))]
    assert told(call(to="l.0"), {**own, **READING}, context=context) == []


def test_a_list_that_the_instance_has_is_long_enough() -> None:
    context = [{"type": "state", "_instance": "①", "l": [1]}]
    plan = check_submission(plan_submission(call(to="l.1"), call(to="l.0"), context=context))
    assert plan.findings == ()


def test_findings_about_thousands_of_elements_are_had_at_once() -> None:
    chain = [call(to=f"l.{n}", value=f"†state.l.{n - 1}" if n else 0) for n in range(3_000)]
    assert told(*chain) == []
    beside = [call(to=f"l.{n}") for n in range(3_000)]
    assert len(told(*beside)) == 100
