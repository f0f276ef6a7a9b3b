"""HTTP (INTERFACE "HTTP"): what is read, followed and ordered through `acts ui`, and how it is refused."""

from __future__ import annotations

import pytest

from tests.ui.sites import CONTROLLER, DECIDER, READER, Listener, Site, error_of
from tests.worker.backend import Backend

ACTIONS = (
    "approve",
    "reject",
    "approve_together",
    "reject_together",
    "revoke",
    "answer",
    "settle",
    "move",
    "approve_plan",
    "retry",
    "skip",
    "pause",
    "resume",
    "cancel",
    "fork",
    "delete",
    "amend",
)


def test_a_run_is_read_followed_and_ordered(backend: Backend, site: Site, name: str) -> None:
    calls = [{"_tool": "waitAtGate", "gate": name, "value": 1, "_outputPath": "†state.one"}]
    run = backend.client.submit([], {"calls": calls}).id
    assert site.get(f"/api/runs/{run}", READER).json()["status"] == "running"
    assert run in {one["run"] for one in site.get("/api/runs", READER).json()["runs"]}
    for what in ("held", "questions", "rules"):
        assert site.get(f"/api/runs/{run}/{what}", READER).json() == []
        assert error_of(site.get(f"/api/runs/none/{what}", READER)) == (404, "RunNotFound")
    listener = Listener(site, run)
    assert site.post(f"/api/runs/{run}/pause", token=CONTROLLER).json() == {"run": run, "status": "paused"}
    assert site.post(f"/api/runs/{run}/resume", token=CONTROLLER).json() == {"run": run, "status": "running"}
    backend.meeting.open_gate(name)
    assert listener.until("changed", status="completed")["run"] == run
    listener.close()
    assert error_of(site.post(f"/api/runs/{run}/cancel")) == (409, "RunOver")


@pytest.mark.parametrize("action", ACTIONS)
def test_an_action_takes_a_token_and_its_right(site: Site, action: str) -> None:
    assert error_of(site.post(f"/api/runs/any/{action}", token=None))[0] == 401
    assert error_of(site.post(f"/api/runs/any/{action}", token=READER)) == (403, "NotAdmitted")


@pytest.mark.parametrize("action", [action for action in ACTIONS if action != "amend"])  # it takes another token
def test_an_option_that_an_action_does_not_have_is_named(site: Site, action: str) -> None:
    refused = site.post(f"/api/runs/any/{action}", {"no_such_option": 1})
    assert refused.status_code in (400, 404)
    if refused.status_code == 400:
        assert "no_such_option" in refused.json()["error"]["message"]


def test_an_unknown_run_and_an_unknown_action_are_told_apart(site: Site) -> None:
    assert error_of(site.get("/api/runs/none", READER)) == (404, "RunNotFound")
    assert error_of(site.post("/api/runs/none/cancel"))[0] == 404
    assert error_of(site.post("/api/runs/none/explode")) == (404, "NoSuchDeed")
    assert site.get("/api/me", DECIDER).json()["may"] == ["read", "decide"]
