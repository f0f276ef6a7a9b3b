"""Submissions in mode lazy: the plan is written down, and runs when its digest is approved (SPEC R10.2, R13.7)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from acts_celery import ActivitiesError, Client, PlanChanged, PlanWaits, Run, RunOver
from acts_celery.protocol import Rejected

from .backend import Backend
from .loops import Asked, answer
from .test_control import alone, echo
from .test_control_cli import command

__all__ = ["alone"]  # fixtures

MARKS = ["①", "②"]
CONTEXT: list[dict[str, Any]] = [{"type": "state", "_instance": mark, "mark": mark} for mark in MARKS]
CALL = echo("†state.mark", "†state.n")
PLAN = {"type": "plan", "mode": "lazy", "calls": [CALL]}


def lazy(backend: Backend) -> Run:
    return backend.client.submit([*CONTEXT, PLAN])


def digest(run: Run) -> str:
    plan = run.plan()
    assert plan is not None
    return str(plan["plan"])


@pytest.mark.parametrize(
    ("document", "calls"),
    [
        ({"context": [*CONTEXT, PLAN]}, 2),
        ({"context": [*CONTEXT, {"type": "plan", "plan": {"mode": "lazy", "calls": [CALL]}}]}, 2),
        ({"context": [*CONTEXT, {**PLAN, "mode": "eager"}, PLAN]}, 4),
        ({"context": [*CONTEXT, {"type": "plan", "calls": [CALL]}], "config": {"mode": "lazy"}}, 2),
        ({"context": CONTEXT, "solution": {"calls": [{**CALL, "_instance": "①"}]}, "config": {"mode": "lazy"}}, 1),
        ({"context": [*CONTEXT, PLAN], "solution": {"calls": [{**CALL, "_instance": "*"}]}}, 2),
    ],
)
def test_r10_2_nothing_runs_before_the_plan_is_approved(backend: Backend, document: Any, calls: int) -> None:
    run = backend.client.submit_document(document)
    assert run.status() == {**run.status(), "status": "paused", "calls": {"waiting": calls}}
    plan = run.plan()
    assert plan is not None
    assert (plan["tick"], len(plan["calls"])) == (None, 2 if calls == 4 else 1)
    run.approve_plan(plan["plan"])
    result = backend.wait(run.id)
    assert result.status == "completed"
    assert run.status()["calls"] == {"done": calls}
    assert result.data("①")["state"]["n"] == "①"
    assert run.plan() is None


@pytest.mark.parametrize("mode", [{"mode": "eager"}, {}])
def test_r10_2_the_mode_of_the_plan_message_counts_before_that_of_config(backend: Backend, mode: Any) -> None:
    eager = {"type": "plan", "calls": [CALL], **mode}
    run = backend.client.submit_document({"context": [*CONTEXT, eager], "config": {"mode": "eager"}})
    assert backend.wait(run.id).status == "completed"


def test_r7_1_an_unknown_mode_is_an_error(backend: Backend) -> None:
    with pytest.raises(Rejected, match='/context/0/mode: must be "eager" or "lazy"'):
        backend.client.submit([{**PLAN, "mode": "later"}])


def test_r13_7_it_does_not_go_on_by_resuming_and_no_worker_begins_it(alone: Backend) -> None:
    run = lazy(alone)
    with alone.worker():
        with pytest.raises(PlanWaits):
            run.resume()
        run.pause()
        other = alone.run([echo(1, "†state.x")])
        assert other.status == "completed"
        assert run.status()["calls"] == {"waiting": 2}
        run.approve_plan(digest(run), by="ann")
        assert alone.wait(run.id).status == "completed"
    (done,) = [entry for entry in run.log(audit=True) if entry.audit is not None and entry.audit.did == "approved"]
    assert done.audit is not None
    assert done.audit.actor.name == "ann"


def test_r13_7_another_plan_is_refused_and_the_same_approval_twice_is_one(backend: Backend) -> None:
    run = lazy(backend)
    shown = digest(run)
    with pytest.raises(PlanChanged, match=f"has the plan {shown} to be approved"):
        run.approve_plan("0123456789abcdef")
    run.approve_plan(shown)
    backend.wait(run.id)
    with pytest.raises(RunOver):
        run.approve_plan(shown)


def test_r13_7_an_amended_plan_goes_on_waiting_under_another_digest(backend: Backend) -> None:
    run = lazy(backend)
    shown = digest(run)
    run.amend([echo("new", "†state.n")])
    assert run.status()["status"] == "paused"
    with pytest.raises(PlanChanged):
        run.approve_plan(shown)
    run.amend([echo("more", "†state.more")], add=True)
    plan = run.plan()
    assert plan is not None
    assert [call["value"] for call in plan["calls"]] == ["new", "more"]
    run.approve_plan(plan["plan"])
    result = backend.wait(run.id)
    assert [(result.data(mark)["state"]["n"], result.data(mark)["state"]["more"]) for mark in MARKS] == [
        ("new", "more")
    ] * 2


def test_r13_7_the_digest_is_of_what_the_calls_name_too(backend: Backend) -> None:
    run = lazy(backend)
    shown = digest(run)
    run.amend({"calls": [CALL], "tools": {"echo": {"properties": {"value": {"type": "string"}}}}})
    assert digest(run) != shown


def test_r13_7_a_plan_that_waits_can_be_cancelled(backend: Backend) -> None:
    run = lazy(backend)
    shown = digest(run)
    run.cancel()
    assert (run.status()["status"], run.plan()) == ("cancelled", None)
    with pytest.raises(RunOver):
        run.approve_plan(shown)


def test_r11_2_a_fork_of_a_plan_that_waits_waits_too_and_one_from_later_does_not(backend: Backend) -> None:
    run = lazy(backend)
    first = run.fork()
    assert (first.status()["status"], digest(first)) == ("paused", digest(run))
    first.approve_plan(digest(first))
    assert backend.wait(first.id).status == "completed"
    run.approve_plan(digest(run))
    backend.wait(run.id)
    assert backend.wait(run.fork().id).status == "completed"


def test_r10_2_a_plan_without_calls_has_nothing_to_approve(backend: Backend) -> None:
    run = backend.client.submit_document({"context": CONTEXT, "solution": {"calls": []}, "config": {"mode": "lazy"}})
    assert (run.status()["status"], run.plan()) == ("completed", None)


def test_r13_7_it_is_shown_and_approved_by_command(backend: Backend) -> None:
    run = lazy(backend)
    shown = command(backend, "held", run.id, "--json")
    whole = shown.json["sha256"]
    assert shown.json == {"plan": digest(run), "tick": None, "calls": [CALL], "sha256": whole}
    assert (whole.startswith(digest(run)), len(whole)) == (True, 64)
    assert f"acts approve {run.id} --plan {digest(run)}" in command(backend, "held", run.id).stdout
    refused = command(backend, "resume", run.id)
    assert (refused.code != 0, "is to be approved" in refused.stderr) == (True, True)
    assert command(backend, "approve", run.id, "--plan", digest(run)).code == 0
    assert backend.wait(run.id).status == "completed"


# Plans that were approved once for all their runs (SPEC R9.5).


def plan_named(name: str) -> list[dict[str, Any]]:
    """A plan of a test's own, so that no other has approved it."""
    return [*CONTEXT, {**PLAN, "calls": [{**CALL, "_reasoningForCall": name}]}]


def test_r9_5_a_plan_that_was_approved_for_all_is_not_asked_about_again(backend: Backend) -> None:
    first = backend.client.submit(plan_named("all"))
    plan = first.plan() or {}
    first.approve_plan(plan["plan"], by="ann", for_all=True)
    assert backend.wait(first.id).status == "completed"
    again = backend.client.submit([*plan_named("all"), {"type": "text", "message": "other data"}])
    assert backend.wait(again.id).status == "completed"
    submitted = next(entry for entry in again.log(audit=True) if entry.audit is not None)
    assert submitted.audit is not None
    assert submitted.audit.about == {"approved_plan": plan["sha256"]}
    changed = backend.client.submit(plan_named("all, or nearly"))
    assert changed.status()["status"] == "paused"
    changed.cancel()


def test_r9_5_the_operator_lists_plans_that_need_no_approval(backend: Backend, tmp_path: Path) -> None:
    waiting = backend.client.submit(plan_named("listed"))
    digest_ = (waiting.plan() or {})["sha256"]
    waiting.cancel()
    (tmp_path / "ours.txt").write_text(f"# ours\n{digest_}  # of the copies\n", encoding="utf-8")
    for place in (tmp_path, tmp_path / "ours.txt"):
        with Client(backend.settings.model_copy(update={"approved_plans": str(place)})) as client:
            assert backend.wait(client.submit(plan_named("listed")).id).status == "completed"
    (tmp_path / "ours.txt").write_text(digest_[:16], encoding="utf-8")
    for place in (tmp_path, tmp_path / "none.txt"):
        with (
            Client(backend.settings.model_copy(update={"approved_plans": str(place)})) as client,
            pytest.raises(ActivitiesError, match="ACTS_APPROVED_PLANS"),
        ):
            client.submit(plan_named("listed"))


def test_r9_5_a_command_approves_for_all(backend: Backend) -> None:
    run = backend.client.submit(plan_named("command"))
    assert command(backend, "approve", run.id, "--all", "--for-all").code == 2
    assert command(backend, "approve", run.id, "--plan", digest(run), "--for-all").code == 0
    again = backend.client.submit(plan_named("command"))
    assert backend.wait(again.id).status == "completed"


def test_r9_5_the_plan_of_a_tick_is_approved_for_itself(loops: Backend) -> None:
    call = {"_tool": "add", "a": 1, "_outputPath": "†state.x"}
    asked = Asked(loops, answer(call), config={"mode": "lazy"})
    while (plan := asked.run.plan()) is None:
        time.sleep(0.01)
    with pytest.raises(Rejected, match="export"):
        asked.run.approve_plan(plan["plan"], for_all=True)
    asked.run.cancel()
