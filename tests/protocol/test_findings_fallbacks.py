"""Alternatives of what calls read that are never taken (SPEC R2.3, R6.3, R6.5)."""

from __future__ import annotations

from typing import Any

import pytest

from protocol import check_submission

from .building import call, checked, plan_submission

INPUT: list[dict[str, Any]] = [{"type": "input", "name": "x", "fallback": "y"}]


def test_a_result_that_is_only_read_behind_what_the_context_holds_is_told() -> None:
    reading = call(to="†data.r", value=["†input.name || †state.b.c"])
    (finding,) = checked(call(to="†state.b"), reading, context=INPUT).findings
    assert finding.to_dict() == {
        "severity": "info",
        "message": "call 1 (give) never reads †state.b.c, which call 0 (give) writes and nobody else reads: the "
        "context holds †input.name, which comes first; leave call 0 out, or put †state.b.c first",
        "calls": [0, 1],
        "pointer": "/solution/calls/1/value/0",
    }


@pytest.mark.parametrize(
    "others",
    [
        [call(value="†state.b")],
        [call(_scopes=["state"])],
        [call(to="†input.name")],
        [call(to="†state.b.c", value="†input.name")],
    ],
    ids=["read", "shown", "may come to be another", "written by two"],
)
def test_a_result_is_not_in_vain_where_something_may_come_of_it(others: list[dict[str, Any]]) -> None:
    reading = call(to="†data.r", value="†input.name || †state.b")
    findings = checked(call(to="†state.b"), reading, *others, context=INPUT).findings
    assert not any("never reads" in finding.message for finding in findings)


@pytest.mark.parametrize(
    "parameters",
    [
        {"value": "†state.b || †input.name"},
        {"value": "†input.none || †state.b"},
        {"value": "†input.name && †state.b || †state.b"},
        {"value": "†input.name || †state.b", "other": "†state.b"},
        {"value": "†input.name || †state.b", "_scopes": ["†state.b"]},
    ],
)
def test_a_result_that_may_be_read_is_not_in_vain(parameters: dict[str, Any]) -> None:
    assert checked(call(to="†state.b"), call(to="†data.r", **parameters), context=INPUT).findings == ()


def test_a_template_may_be_one_for_many_contexts() -> None:
    value = plan_submission(call(to="†state.b"), call(to="†data.r", value="†input.name || †state.b"), context=INPUT)
    assert check_submission(value).findings == ()


def test_an_alternative_that_only_an_instance_has_is_told_to_a_call_without_one() -> None:
    context = [*INPUT, {"type": "state", "_instance": "①", "text": "x"}]
    made = call("make", "†state.summary", _instance="①")
    reading = call(value="†state.summary.text || †state.text || †input.name")
    written, held = checked(made, reading, context=context).findings
    assert written.to_dict() == {
        "severity": "info",
        "message": "call 1 (give) never reads †state.summary.text: call 0 (make) writes it in instance '①', and this "
        "call has no _instance; give it one",
        "calls": [1],
        "pointer": "/solution/calls/1/value",
    }
    assert "never reads †state.text: instance '①' holds it, and" in held.message
    assert checked(made, {**reading, "_instance": "①"}, context=context).findings == ()


@pytest.mark.parametrize(
    ("written", "meant"),
    [("†input.nmae", "†input.name"), ("†inptu.name", "†input.name"), ("†state.ful", "†state.full")],
)
def test_an_alternative_that_nothing_brings_is_told_with_the_nearest_place(written: str, meant: str) -> None:
    reading = call(to="†data.r", value=f"{written} || †input.fallback")
    (finding,) = checked(reading, call(to="full"), context=INPUT).findings
    assert finding.to_dict() == {
        "severity": "info",
        "message": f"call 0 (give) never reads {written}: the context does not hold it and no other call writes it, "
        f"did you mean {meant}?",
        "calls": [0],
        "pointer": "/solution/calls/0/value",
    }


@pytest.mark.parametrize(
    "read",
    [
        "†input.nickname || †input.name",
        "†input.names || †input.name",
        "†input.lang || †input.fallback",
        "†error.nmae || †input.fallback",
        "†input.full || †input.fallback",
        "†input.step2 || †input.fallback",
        "†input.counts || †input.fallback",
    ],
)
def test_an_alternative_need_not_be_there(read: str) -> None:
    calls = call(to="†input.counts", value=read), call(to="†input.full")
    assert (
        checked(*calls, context=[{"type": "input", "name": "x", "fallback": "y", "step1": 1, "count": 1}]).findings
        == ()
    )


def test_an_alternative_of_a_template_is_told_where_nothing_brings_it_in_any_instance() -> None:
    context = [{"type": "state", "_instance": name, "text": "x", "other": 1} for name in "①②"]
    value = plan_submission(call(value="†state.txet || †state.other"), context=context)
    (finding,) = check_submission(value).findings
    assert finding.message.endswith("did you mean †state.text?")
    value["context"].append({"type": "state", "_instance": "②", "txet": "y"})
    assert check_submission(value).findings == ()


def test_what_a_thought_would_read_is_no_matter() -> None:
    thought = call("think", value="†input.nmae || †input.name || †state.b")
    assert checked(call(to="†state.b"), thought, context=INPUT, activities={"give": {}}).findings == ()
