"""Lazy loops: the model plans, a person approves, and the plan runs once for each instance (SPEC R13.7)."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from acts_celery import PlanChanged, PlanWaits, Run, RunOver
from acts_celery.protocol import Rejected
from tests.acceptance.command import acts

from .backend import Backend
from .loops import Asked, answer

CONTEXT = [{"type": "state", "_instance": name, "n": n} for n, name in enumerate("①②③")]
NEXT = {"_tool": "add", "a": "†state.n", "b": 1, "_outputPath": "†state.next"}


def planned(run: Run) -> dict[str, Any]:
    """The plan of the run, once it waits."""
    for event in run.follow():
        if event.kind == "run" and event.status == "paused":
            break
    plan = run.plan()
    assert plan is not None
    return plan


def test_r13_7_a_plan_runs_once_for_each_instance_when_it_is_approved(loops: Backend) -> None:
    asked = Asked(loops, answer(NEXT), answer(output=1), context=CONTEXT, config={"mode": "lazy"})
    plan = planned(asked.run)
    assert (plan["tick"], plan["calls"]) == (0, [NEXT])
    (waiting,) = asked.run.status()["waiting_for"]
    assert "its plan waits for a person" in waiting["reason"]
    assert f"`acts approve {asked.run.id} --plan DIGEST`" in waiting["reason"]
    asked.run.approve_plan(plan["plan"])
    result = asked.result()
    assert (result.status, result.output) == ("completed", 1)
    assert [result.data(name)["state"]["next"] for name in "①②③"] == [1, 2, 3]
    assert {(call.index, call.instance, call.tick) for call in result.calls} == {(0, name, 0) for name in "①②③"}
    assert asked.asked == {0: 1, 1: 1}
    assert asked.run.plan() is None


def test_r13_7_the_mode_is_that_of_the_plan_message(loops: Backend) -> None:
    message = {"type": "plan", "mode": "lazy", "calls": []}
    asked = Asked(loops, answer(NEXT), answer(output=1), context=[*CONTEXT, message])
    asked.run.approve_plan(planned(asked.run)["plan"])
    assert asked.result().status == "completed"


def test_r13_7_resuming_does_not_approve(loops: Backend) -> None:
    asked = Asked(loops, answer(NEXT), answer(output=1), context=CONTEXT, config={"mode": "lazy"})
    plan = planned(asked.run)
    with pytest.raises(PlanWaits):
        asked.run.resume()
    asked.run.resume(ticks=1)
    assert (asked.run.plan(), asked.run.status()["status"]) == (plan, "paused")
    asked.run.approve_plan(plan["plan"])
    assert asked.result().status == "completed"


def test_r13_7_another_plan_than_the_one_that_waits_is_not_approved(loops: Backend) -> None:
    asked = Asked(loops, answer(NEXT), answer(output=1), context=CONTEXT, config={"mode": "lazy"})
    plan = planned(asked.run)
    with pytest.raises(PlanChanged, match=f"has the plan {plan['plan']} to be approved"):
        asked.run.approve_plan("0123456789abcdef")
    asked.run.approve_plan(plan["plan"])
    with suppress(RunOver, PlanChanged):  # it goes on, and may have ended by now
        asked.run.approve_plan(plan["plan"])
    asked.result()
    with pytest.raises(Exception, match="completed"):
        asked.run.approve_plan(plan["plan"])


def test_r13_7_a_plan_that_is_amended_goes_on_waiting_under_another_digest(loops: Backend) -> None:
    asked = Asked(loops, answer(NEXT), answer(output=1), context=CONTEXT, config={"mode": "lazy"})
    plan = planned(asked.run)
    with pytest.raises(Rejected, match="/calls/0"):
        asked.run.amend([{**NEXT, "a": "†nowhere.x"}])
    asked.run.amend([{**NEXT, "b": 10}])
    other = asked.run.plan()
    assert other is not None
    assert other["calls"] == [{**NEXT, "b": 10}]
    with pytest.raises(PlanChanged):
        asked.run.approve_plan(plan["plan"])
    asked.run.approve_plan(other["plan"])
    result = asked.result()
    assert [result.data(name)["state"]["next"] for name in "①②③"] == [10, 11, 12]


def test_r13_7_every_tick_waits_for_its_own_approval(loops: Backend) -> None:
    again = {**NEXT, "a": "†state.next", "_outputPath": "†state.last"}
    asked = Asked(loops, answer(NEXT), answer(again), answer(output=1), context=CONTEXT, config={"mode": "lazy"})
    asked.run.approve_plan(planned(asked.run)["plan"])
    asked.wait_until_asked(0)
    asked.wait_until_asked(1)
    for entry in asked.run.log(follow=True):
        if entry.message.get("tick") == 1:
            break
    plan = asked.run.plan()
    assert plan is not None
    assert (plan["tick"], plan["calls"]) == (1, [again])
    asked.run.approve_plan(plan["plan"])
    assert asked.result().data("③")["state"]["last"] == 4


def test_r13_7_acts_held_shows_the_plan_and_acts_approve_lets_it_run(loops: Backend) -> None:
    asked = Asked(loops, answer(NEXT), answer(output=1), context=CONTEXT, config={"mode": "lazy"})
    digest = planned(asked.run)["plan"]
    shown = acts("held", asked.run.id, "--json", env=loops.environment()).json
    assert (shown["plan"], shown["calls"]) == (digest, [NEXT])
    approved = acts("approve", asked.run.id, "--plan", digest, "--by", "Ann", env=loops.environment())
    assert approved.code == 0
    assert asked.result().status == "completed"
    deeds = [entry.audit for entry in asked.run.log(audit=True) if entry.audit is not None]
    approvals = [(deed.actor.name, deed.about) for deed in deeds if deed.did == "approved"]
    assert approvals == [("Ann", {"plan": digest})]
