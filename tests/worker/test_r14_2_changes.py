"""Narrower scopes by whoever approves, and the audit of what a person changed (SPEC R14.2), on real workers."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery import AlreadyDecided
from acts_celery.protocol import Rejected

from .backend import Backend
from .test_control import echo
from .test_control_cli import command
from .test_r14_people import submitted, wait_held

STATE = {"type": "state", "user": {"name": "Ann", "age": 5}, "other": 1}


def seeing(**how: Any) -> dict[str, Any]:
    return {"_tool": "seeScopes", "_scopes": ["state"], "_outputPath": "†data.seen", **how}


def audited(backend: Backend, run: str) -> list[Any]:
    return [line["audit"] for line in command(backend, "log", run, "--audit", "--json").json_lines]


def test_an_approved_call_sees_the_narrower_scopes_and_what_was_shown(backend: Backend) -> None:
    run = submitted(backend, seeing(), context=[STATE])
    wait_held(run)
    run.send({"type": "state", "user": {"name": "Bob"}})
    done = command(backend, "approve", run.id, "0", "--yes", "--scopes", '["†state.user.name"]', "--json")
    assert done.code == 0
    assert backend.wait(run.id).data()["data"]["seen"] == {"state": {"user": {"name": "Ann"}}}
    decided = run.approve(0, scopes=["†state.user.name"])
    assert decided == done.json["decision"], "the same decision twice is one"
    with pytest.raises(AlreadyDecided, match=r"with the scopes †state\.user\.name by"):
        run.approve(0)
    assert audited(backend, run.id)[-1]["changes"] == {"scopes": {"old": ["state"], "new": ["†state.user.name"]}}
    assert "  scopes: state → †state.user.name" in command(backend, "log", run.id, "--audit").stdout.splitlines()


def test_a_delegate_sees_the_narrower_scopes(backend: Backend) -> None:
    asking = {"_tool": "d", "_delegate": "showContext", "_scopes": ["state", "text"], "_outputPath": "†data.seen"}
    run = submitted(backend, asking, context=[STATE, {"type": "text", "text": "a secret"}])
    wait_held(run)
    run.approve(0, scopes=["†state.other"])
    assert backend.wait(run.id).data()["data"]["seen"]["context"] == [{"type": "state", "other": 1}]


def test_wider_scopes_are_refused_and_the_call_stays_held(backend: Backend) -> None:
    run = submitted(backend, seeing(_scopes=["†state.user"]), context=[STATE])
    wait_held(run)
    with pytest.raises(Rejected, match="wider"):
        run.approve(0, scopes=["state"])
    with pytest.raises(ValueError, match="alone"):
        run.approve(0, scopes=["†state.user"], calls=[echo(1, "†state.x")])
    for arguments, code, text in (
        (["--scopes", '["†state.user.none"]'], 2, "is not in what was shown"),
        (["--scopes", '{"a": 1}'], 2, "--scopes must be a list of kinds and references"),
        (["--scopes", "[]", "--calls", "-"], 2, "either --calls, or"),
    ):
        done = command(backend, "approve", run.id, "0", "--yes", *arguments)
        assert done.code == code
        assert text in done.stderr
    assert len(run.held()) == 1
    run.approve(0, scopes=["†state.user"])
    assert backend.wait(run.id).data()["data"]["seen"] == {"state": {"user": {"name": "Ann", "age": 5}}}
    assert "changes" not in audited(backend, run.id)[-1], "it was approved as it was shown"


def test_each_element_sees_the_narrower_scopes(backend: Backend) -> None:
    run = submitted(
        backend, seeing(_each="value", value="†input.list"), context=[STATE, {"type": "input", "list": [1, 2]}]
    )
    wait_held(run)
    run.approve(0, scopes=["†state.other"])
    assert backend.wait(run.id).data()["data"]["seen"] == [{"state": {"other": 1}}] * 2


def test_the_audit_has_old_and_new_parameters(backend: Backend) -> None:
    run = submitted(backend, {**echo({"amount": 90, "to": "Ann", "old": 1}, "†state.a")})
    wait_held(run)
    run.approve(0, parameters={"value": {"amount": 10, "to": "Ann", "new": [2]}})
    backend.wait(run.id)
    assert audited(backend, run.id)[-1]["changes"]["parameters"] == [
        {"pointer": "/value/amount", "old": 90, "new": 10},
        {"pointer": "/value/old", "old": 1},
        {"pointer": "/value/new", "new": [2]},
    ]
    shown = command(backend, "log", run.id, "--audit").stdout.splitlines()
    assert shown[-3:] == ["  /value/amount: 90 → 10", "  /value/old: 1 → nothing", "  /value/new: nothing → [2]"]


def test_the_audit_has_the_calls_in_place_of_a_held_one(backend: Backend) -> None:
    run = submitted(backend, {"_tool": "echoPlain", "value": 1, "_outputPath": "†state.a"}, approve=["echoPlain"])
    wait_held(run)
    run.approve(0, calls=[echo(2, "†state.a")])
    assert backend.wait(run.id).data()["state"] == {"a": 2}
    (changed,) = [record["changes"] for record in audited(backend, run.id) if "changes" in record]
    assert changed == {"calls": [echo(2, "†state.a")]}
    assert "  in its place: " in command(backend, "log", run.id, "--audit").stdout
