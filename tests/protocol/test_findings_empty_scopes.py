"""Scopes that certainly show nothing, and were hardly meant so (SPEC R8.1, R8.2)."""

from __future__ import annotations

from typing import Any

import pytest

from protocol import check_submission

from .building import call, checked, plan_submission

NAMED = [{"type": "input", "user": {"name": 1}}]
TWO = [{"type": "text", "_instance": name} for name in "①②"]
HELD = [{"type": "state", "_instance": "①", "text": "x"}]


@pytest.mark.parametrize("scope", ["inputs", "†inputs.y"])
def test_a_scope_of_a_kind_that_is_nearly_one_that_is_there_is_told(scope: str) -> None:
    context = [{"type": "input", "y": 1}]
    (finding,) = checked(call(_scopes=["state", scope]), context=context).findings
    assert finding.to_dict() == {
        "severity": "warning",
        "message": f"call 0 (give) has {scope} in its _scopes, and nothing is of that kind, did you mean 'input'?",
        "calls": [0],
        "pointer": "/solution/calls/0/_scopes/1",
    }
    (finding,) = checked(call(_imports=[scope]), context=context).findings
    assert finding.pointer == "/solution/calls/0/_imports/0"


@pytest.mark.parametrize("scope", ["state", "error", "data", "profile", "input", "†memory.x", "†input.z"])
def test_a_scope_of_what_may_come_or_is_like_nothing_there_is_no_slip(scope: str) -> None:
    context = [{"type": "input", "y": 1}, {"type": "data", "kind": "memory", "_instance": "①", "data": {}}]
    assert checked(call(_scopes=[scope]), context=context).findings == ()


@pytest.mark.parametrize(("scope", "meant"), [("user", "†state.user"), ("†user.name", "†state.user.name")])
def test_a_scope_of_a_place_inside_the_state_is_told(scope: str, meant: str) -> None:
    (finding,) = checked(call(_scopes=[scope]), context=[{"type": "state", "user": {"name": "x"}}]).findings
    assert (finding.severity, finding.pointer) == ("warning", "/solution/calls/0/_scopes/0")
    assert finding.message.endswith(f"and nothing is of that kind, did you mean {meant}?")
    assert checked(call(to="user.name"), call(_scopes=[scope])).findings != ()


def test_a_scope_of_a_kind_that_a_call_writes_is_no_slip() -> None:
    calls = call(to="†inputs.x"), call(_scopes=["†inputs.x"])
    assert checked(*calls, context=[{"type": "input", "y": 1}]).findings == ()


@pytest.mark.parametrize("scope", ["state", "†state.text"])
def test_a_scope_of_what_only_an_instance_holds_is_told_to_a_call_without_one(scope: str) -> None:
    (finding,) = checked(call(_scopes=["input", scope]), context=HELD).findings
    assert finding.to_dict() == {
        "severity": "warning",
        "message": f"call 0 (give) is shown nothing of {scope}: instance '①' holds it, and this call has no _instance; "
        "give it one",
        "calls": [0],
        "pointer": "/solution/calls/0/_scopes/1",
    }


@pytest.mark.parametrize("scope", ["result", "†result", "†result.summary", "†result.summary.text"])
def test_a_scope_of_what_only_calls_of_instances_write_is_told_to_a_call_without_one(scope: str) -> None:
    made = [call("make", "†result.summary", _instance=name) for name in "②①"]
    (finding,) = checked(*made, call(_scopes=[scope]), context=TWO).findings
    assert finding.to_dict() == {
        "severity": "warning",
        "message": f"call 2 (give) is shown nothing of {scope}: call 0 (make) writes it in instance '②', and this call "
        "has no _instance; give it one",
        "calls": [2],
        "pointer": "/solution/calls/2/_scopes/0",
    }
    for shown in (
        [call(_scopes=[scope], _instance="②")],
        [call(_scopes=[scope]), call("make", "†result.summary.text")],
    ):
        assert not any("shown nothing" in finding.message for finding in checked(*made, *shown, context=TWO).findings)


def test_a_scope_that_the_tool_gives_is_one_for_all_of_its_calls() -> None:
    for tool in ({"_scopes": ["state"]}, {"properties": {"_scopes": {"x-granted": ["state"]}}}):
        (finding,) = checked(call(), context=HELD, tools={"give": tool}).findings
        assert (finding.severity, finding.pointer) == ("info", "/solution/calls/0")


def test_a_scope_is_no_slip_where_its_call_has_an_instance_or_something_is_there() -> None:
    assert checked(call(_scopes=["state"], _instance="①"), context=HELD).findings == ()
    assert checked(call(_scopes=["state"]), context=[*HELD, {"type": "state", "x": 1}]).findings == ()
    assert checked(call(_scopes=["†state.text"]), call(to="text"), context=HELD).findings == ()
    assert check_submission(plan_submission(call(_scopes=["state"]), context=HELD)).findings == ()


@pytest.mark.parametrize(
    ("scope", "near"),
    [("†input.user.nmae", "†input.user.name"), ("†input.usr", "†input.user"), ("†state.ful", "†state.full")],
)
def test_a_misspelt_scope_is_told_with_the_nearest_place(scope: str, near: str) -> None:
    (finding,) = checked(call(_scopes=[scope]), call(to="full"), context=NAMED).findings
    assert finding.to_dict() == {
        "severity": "warning",
        "message": f"call 0 (give) is shown nothing of {scope}: the context does not hold it and no other call writes "
        f"it, did you mean {near}?",
        "calls": [0],
        "pointer": "/solution/calls/0/_scopes/0",
    }


@pytest.mark.parametrize(
    "more", [{"_scopes": ["†input.user.names"]}, {"_scopes": ["†input.user.names", "†input.user.name"]}]
)
def test_a_scope_is_not_misspelt_where_something_may_come_or_the_nearest_place_is_known_to_the_call(
    more: dict[str, Any],
) -> None:
    assert checked(call(**more), call(to="†input.user.names"), context=NAMED).findings == ()
    assert checked(call(value="†input.user.name", **more), context=NAMED).findings == ()


def test_a_place_of_another_number_is_not_the_one_that_was_meant() -> None:
    assert checked(call(_scopes=["†state.step2"]), call(to="step1")).findings == ()


def test_a_scope_that_nobody_is_shown_is_no_slip_of_who_does_not_look() -> None:
    scopes: dict[str, Any] = {"_scopes": ["†input.usr"]}
    assert checked(call("think", **scopes), context=NAMED, activities={}).findings == ()
    assert checked(call("think", "†state.x", _output=1, **scopes), context=NAMED, activities={}).findings == ()
    assert checked(call("think", "†state.x", **scopes), context=NAMED, activities={}).findings != ()


def test_a_scope_of_a_template_is_told_where_it_shows_nothing_to_any_instance() -> None:
    context = [{"type": "state", "_instance": name, "text": "x"} for name in "①②"]
    value = plan_submission(call(_scopes=["†state.txet"]), context=context)
    (finding,) = check_submission(value).findings
    assert finding.message.endswith("did you mean †state.text?")
    value["context"].append({"type": "state", "_instance": "②", "txet": "y"})
    assert check_submission(value).findings == ()


def test_a_call_of_one_lane_is_looked_at_beside_however_many_others() -> None:
    many = [{"type": "state", "_instance": str(number), "text": "x"} for number in range(3_000)]
    calls = [call(_scopes=["state"]), *(call(_instance=str(number), value="†state.text") for number in range(3_000))]
    found = checked(*calls, context=many).findings
    assert [finding.calls for finding in found if finding.severity == "warning"] == [(0,)]


def test_what_failures_write_is_looked_for_by_nobody() -> None:
    assert (
        checked(call(_scopes=["error", "†error.x"]), context=[{"type": "error", "_instance": "①", "x": 1}]).findings
        == ()
    )
