"""The audit trail: who did what to a run, in its log, in the lines of a logger, and on the command line."""

from __future__ import annotations

import json
import logging
import socket

import pytest

from acts_celery import Client, DeadLetter
from acts_celery.broker_config.tokens import Identity
from acts_celery.protocol import Rejected
from acts_celery.protocol.messages import Message
from acts_celery.worker.broker.attempts import CallId
from acts_celery.worker.broker.messages import TaskMessage, pack
from acts_celery.worker.store.held_calls import Actor, AuditRecord
from acts_celery.worker.store.scripts import date_now

from .backend import Backend, Meeting
from .test_control_cli import command, gate
from .test_r14_people import wait_held

__all__ = ["gate"]

ECHO = {"_tool": "echo", "value": 1, "_outputPath": "†state.a"}
INPUT: Message = {"type": "input", "input": {"name": "Ann"}}


@pytest.fixture
def alice(backend: Backend) -> Client:
    """A client of somebody who has a name."""
    return Client(backend.settings.model_copy(update={"actor": "alice"}))


def deeds(client: Client, run: str) -> list[tuple[str, str]]:
    return [(entry.audit.did, entry.audit.actor.name) for entry in client.run(run).log(audit=True) if entry.audit]


def test_whatever_steers_a_run_leaves_who_did_it(
    alice: Client, meeting: Meeting, gate: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "acts.audit")
    calls = [{"_tool": "waitAtGate", "gate": gate, "_outputPath": "†state.g"}, {**ECHO, "value": "†state.g"}]
    run = alice.submit([], {"calls": calls})
    meeting.take(f"at:{gate}")
    run.pause()
    run.send(INPUT)
    run.amend([ECHO])
    fork = run.fork(paused=True)
    run.resume()
    run.amend([{**ECHO, "_outputPath": "†state.b"}], add=True)
    run.cancel()
    run.cancel()
    done = ["submitted", "paused", "sent", "amended", "resumed", "added calls", "cancelled"]
    assert deeds(alice, run.id) == [(did, "alice") for did in done]
    assert deeds(alice, fork.id) == [(did, "alice") for did in (*done[:4], "forked")]
    fork.cancel()
    told = [json.loads(record.message) for record in caplog.records if record.name == "acts.audit"]
    assert [line["did"] for line in told if line["run"] == run.id] == done
    assert {(line["by"], line["from"]) for line in told} == {("alice", socket.gethostname())}


def test_who_decides_and_retries_is_noted(alice: Client) -> None:
    held = alice.submit_document(
        {
            "context": [],
            "solution": {"calls": [ECHO, {"_tool": "explode", "_outputPath": "†state.b"}]},
            "config": {"approve": ["echo"]},
        }
    )
    wait_held(held)
    held.reject(0, "no")
    held.wait(timeout_seconds=60)
    held.retry(call=1)
    held.wait(timeout_seconds=60)
    assert deeds(alice, held.id) == [(did, "alice") for did in ("submitted", "rejected", "retried")]


def test_who_gives_an_outcome_by_hand_is_noted(alice: Client) -> None:
    run = alice.submit([], {"calls": [{"_tool": "explode", "_outputPath": "†state.b"}]})
    run.wait(timeout_seconds=60)
    run.retry(skip=True, value=7)
    assert deeds(alice, run.id)[:2] == [("submitted", "alice"), ("given by hand", "alice")]
    assert [entry.audit.about for entry in run.log(audit=True) if entry.audit][1] == {"calls": ["0"]}


def test_who_deletes_and_who_imports_a_run_is_noted(
    alice: Client, backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "acts.audit")
    run = alice.submit([], {"calls": [ECHO]})
    run.wait(timeout_seconds=60)
    lines = list(run.export())
    run.delete()
    assert backend.keys(run.id) == set(), "the line of the logger is all that is left"
    bob = Client(backend.settings.model_copy(update={"actor": "bob"}))
    with pytest.raises(Rejected):
        bob.import_run([*lines[:1], "no entry"])
    assert bob.import_run(lines).id == run.id
    assert deeds(bob, run.id) == [("submitted", "alice"), ("imported", "bob")]
    assert bob.run(run.id).result().data() == {"state": {"a": 1}}
    told = [json.loads(record.message) for record in caplog.records if record.name == "acts.audit"]
    ours = [(line["did"], line["by"], line["from"]) for line in told if line["run"] == run.id]
    host = socket.gethostname()
    assert ours == [("submitted", "alice", host), ("deleted", "alice", host), ("imported", "bob", host)]


def test_the_log_without_it_is_the_messages_and_nothing_else(alice: Client) -> None:
    run = alice.submit([{"type": "text", "text": "hello"}], {"calls": [ECHO]})
    run.wait(timeout_seconds=60)
    assert [entry.message["type"] for entry in run.log()] == ["text", "data"]
    assert [entry.message["type"] for entry in run.log(audit=True) if entry.message] == ["text", "data"]


def test_who_resends_and_drops_dead_letters_is_noted_in_their_runs(alice: Client) -> None:
    run = alice.submit([], {"calls": [ECHO]})
    run.wait(timeout_seconds=60)
    letters = alice.dead_letters()
    task = TaskMessage("acts.execute_background", "nobody-takes-from-here", pack({"attempt": {}}), "-", True)
    for act in (letters.resend, letters.drop):
        letters.add(DeadLetter(CallId(run.id, None, 0), task, "ValueError", "no", 1, date_now()))
        act([f"{run.id}:0"])
    assert deeds(alice, run.id) == [(did, "alice") for did in ("submitted", "resent", "dropped")]
    assert run.result().status == "completed"


def test_a_dead_letter_of_a_run_that_is_forgotten_brings_no_log_back(alice: Client, backend: Backend) -> None:
    letters = alice.dead_letters()
    task = TaskMessage("acts.execute_background", "nobody-takes-from-here", pack({"attempt": {}}), "-", True)
    letters.add(DeadLetter(CallId("forgotten", None, 0), task, "ValueError", "no", 1, date_now()))
    letters.drop(["forgotten:0"])
    assert backend.keys("forgotten") == set()


def test_the_command_line_shows_it(backend: Backend) -> None:
    run = backend.client.submit([], {"calls": [ECHO]})
    backend.wait(run.id)
    (line,) = command(backend, "log", run.id, "--audit", "--json").json_lines
    actor = Actor.of(backend.settings)
    assert line["audit"] == {
        "did": "submitted",
        "by": actor.name,
        "from": actor.host,
        "authenticated": False,
        "about": {},
    }
    assert f"submitted by {actor.name} from {actor.host}" in command(backend, "log", run.id, "--audit").stdout
    assert all("message" in line for line in command(backend, "log", run.id, "--json").json_lines)


@pytest.mark.parametrize("is_authenticated", [False, True])
def test_what_a_deed_is_about_comes_back(is_authenticated: bool) -> None:
    deed = AuditRecord("approved", Actor("bob", "here", is_authenticated), {"call": 3})
    assert AuditRecord.unpack(deed.pack()) == deed


def test_who_has_shown_a_token_is_authenticated_and_nobody_else_whatever_he_says(backend: Backend) -> None:
    tom = Client(backend.settings.acting_for("tom", Identity("tom")))
    run = tom.submit_document({"solution": {"calls": [ECHO, ECHO]}, "config": {"approve": ["echo"]}})
    wait_held(run)
    run.approve(0)
    run.approve(1, by="ann")
    run.wait(timeout_seconds=60)
    Client(backend.settings.model_copy(update={"actor": "tom"})).run(run.id).fork(paused=True)
    records = [entry.audit for entry in tom.run(run.id).log(audit=True) if entry.audit]
    shown = [(record.did, record.actor.name, record.actor.is_authenticated) for record in records]
    assert shown == [("submitted", "tom", True), ("approved", "tom", True), ("approved", "ann", False)]
    text = command(backend, "log", run.id, "--audit").stdout
    assert "submitted by tom (authenticated) from " in text
    assert "approved by ann from " in text
    lines = list(run.export())
    run.delete()
    imported = backend.client.import_run(lines)
    assert [entry.audit.actor.is_authenticated for entry in imported.log(audit=True) if entry.audit] == [False] * 4
