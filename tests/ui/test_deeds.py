"""What is done to runs from their pages, and under whose name."""

from __future__ import annotations

from typing import Any

import pytest

from tests.worker.backend import Backend

from .sites import CONTROLLER, DECIDER, READER, Site, error_of

GATE = {"_tool": "waitAtGate", "value": 1, "_outputPath": "†state.one"}
HELD = {"_tool": "echo", "value": 1, "_outputPath": "†state.one"}


def audited(backend: Backend, run: str, did: str) -> list[str]:
    """Who has done this to the run."""
    records = (entry.audit for entry in backend.client.run(run).log(audit=True))
    return [record.actor.name for record in records if record is not None and record.did == did]


def submitted(backend: Backend, *calls: dict[str, Any], **more: Any) -> str:
    """A run under way."""
    return backend.client.submit((), {"calls": list(calls)}, **more).id


def waits(backend: Backend, run: str) -> dict[str, Any]:
    """The call that is held, once one is."""
    next(event for event in backend.client.run(run).follow(timeout_seconds=60) if event.kind == "held")
    return backend.client.run(run).held()[0]


def test_a_held_call_is_approved_with_other_parameters_in_the_name_of_the_token(backend: Backend, site: Site) -> None:
    run = submitted(backend, HELD, config={"approve": ["*"]})
    call = waits(backend, run)
    body = {"call": call["call"], "parameters": {"value": 2}, "shown": call["shown"]}
    assert error_of(site.post(f"/api/runs/{run}/approve", body, READER)) == (403, "NotAdmitted")
    assert site.post(f"/api/runs/{run}/approve", body, DECIDER).json()["run"] == run
    assert backend.wait(run).data()["state"] == {"one": 2}
    assert audited(backend, run, "approved") == ["dee"]
    assert f'acts.audit {{"run": "{run}", "did": "approved", "by": "dee"' in site.log.read_text()
    assert site.post(f"/api/runs/{run}/approve", body, DECIDER).status_code == 200, "the same twice is one"
    other = site.post(f"/api/runs/{run}/reject", {"call": call["call"], "reason": "no"}, CONTROLLER)
    assert error_of(other) == (409, "AlreadyDecided")


def test_a_decision_about_another_call_than_was_shown_is_refused(backend: Backend, site: Site) -> None:
    run = submitted(backend, HELD, config={"approve": ["*"]})
    call = waits(backend, run)
    body = {"call": call["call"], "reason": "no", "shown": "1-1"}
    assert error_of(site.post(f"/api/runs/{run}/reject", body)) == (409, "HeldAnew")
    for unseen in ({"scopes": ["†state", "†secret"]}, {}, {"parameters": {"value": 3}}):
        bad = site.post(f"/api/runs/{run}/approve", {"call": call["call"], **unseen})
        assert error_of(bad) == (422, "Rejected")
        assert "what was shown" in bad.text
    assert site.post(f"/api/runs/{run}/reject", {**body, "shown": call["shown"]}).status_code == 200
    assert [each.status for each in backend.wait(run).calls] == ["failed"]


def test_a_run_is_paused_resumed_forked_and_cancelled(backend: Backend, site: Site, name: str) -> None:
    run = submitted(backend, GATE | {"gate": name})
    assert site.post(f"/api/runs/{run}/pause").json() == {"run": run, "status": "paused"}
    fork = site.post(f"/api/runs/{run}/fork", {"paused": True}).json()
    assert fork["run"] != run
    assert fork["status"] == "paused"
    assert site.post(f"/api/runs/{run}/resume").json() == {"run": run, "status": "running"}
    assert error_of(site.post(f"/api/runs/{run}/resume", {"ticks": 1})) == (404, "NoLoop")
    assert site.post(f"/api/runs/{run}/cancel").json() == {"run": run, "status": "cancelled"}
    assert error_of(site.post(f"/api/runs/{run}/pause")) == (409, "RunOver")
    assert site.post(f"/api/runs/{fork['run']}/cancel").json()["status"] == "cancelled"
    assert [audited(backend, run, did) for did in ("paused", "resumed", "cancelled")] == [["con"]] * 3
    backend.meeting.open_gate(name)


def test_a_run_is_undone_for_its_owner_in_the_name_of_the_token(backend: Backend, site: Site) -> None:
    book = {"_tool": "book", "seat": "four", "_outputPath": "†state.seat"}
    run = backend.run([book]).run
    assert error_of(site.post(f"/api/runs/{run}/cancel", {"undo": True}, DECIDER)) == (403, "NotAdmitted")
    undone = site.post(f"/api/runs/{run}/cancel", {"undo": True}).json()
    assert (undone["status"], undone["undo"], undone["undone"]) == ("completed", f"{run}.undo", 1)
    assert backend.wait(f"{run}.undo").status == "completed"
    assert audited(backend, f"{run}.undo", "submitted") == ["con"]
    assert site.post(f"/api/runs/{run}/cancel", {"undo": True}).json() == undone


def test_a_retry_says_before_what_it_carries_out_and_what_is_stale(backend: Backend, site: Site, name: str) -> None:
    broken = {"_tool": "failUntilMended", "name": name, "value": 1, "_outputPath": "†state.one || †state.failure"}
    reads = {"_tool": "echo", "value": "†state.failure", "_outputPath": "†state.two"}
    run = backend.run([broken, reads]).run
    before = backend.client.run(run).status()
    dry = site.post(f"/api/runs/{run}/retry", {"dry": True, "call": 0}).json()
    assert (dry["retried"], dry["stale"], dry["counts"]["stale"]) == (["0"], ["1"], 1)
    wider = site.post(f"/api/runs/{run}/retry", {"dry": True, "downstream": True, "call": 0}).json()
    assert (wider["retried"], wider["downstream"], wider["stale"]) == (["0"], ["1"], [])
    assert error_of(site.post(f"/api/runs/{run}/retry", {"effects": True})) == (400, "BadBody")
    assert error_of(site.post(f"/api/runs/{run}/retry", {"call": 7})) == (409, "NothingToRetry")
    assert error_of(site.post(f"/api/runs/{run}/retry", {"instance": "none"})) == (404, "InstanceNotFound")
    assert backend.client.run(run).status() == before, "nothing was changed so far"
    backend.meeting.redis.set(f"mended:{name}", 1)
    done = site.post(f"/api/runs/{run}/retry", {"call": 0}).json()
    assert {part: done[part] for part in ("retried", "stale")} == {"retried": ["0"], "stale": ["1"]}
    assert backend.wait(run).data()["state"]["one"] == 1
    assert audited(backend, run, "retried") == ["con"]


def test_a_failed_call_is_taken_as_done_with_a_value(backend: Backend, site: Site) -> None:
    run = backend.run([{"_tool": "explode", "_outputPath": "†state.one"}]).run
    assert site.post(f"/api/runs/{run}/skip", {"value": 7}).json()["retried"] == ["0"]
    assert backend.wait(run).data()["state"] == {"one": 7}
    assert audited(backend, run, "given by hand") == ["con"]


@pytest.mark.parametrize("deed", ["pause", "cancel", "approve_plan", "fork"])
def test_a_run_that_is_not_there_is_told_of(site: Site, deed: str) -> None:
    body = {"plan": "0"} if deed == "approve_plan" else {}
    assert error_of(site.post(f"/api/runs/none/{deed}", body)) == (404, "RunNotFound")


def test_there_are_no_other_deeds(site: Site, run: str) -> None:
    for deed in ("explode", "by", "_carry_out", "__init__"):
        assert error_of(site.post(f"/api/runs/{run}/{deed}")) == (404, "NoSuchDeed")
