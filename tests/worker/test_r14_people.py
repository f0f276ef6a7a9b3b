"""What waits for people, and how they decide (SPEC R14)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
import json
import os
import pty
import queue
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Event, Thread
from typing import Any

import click
import pytest
from click.testing import CliRunner

from acts_celery import (
    AlreadyDecided,
    AmbiguousRun,
    BeingAmended,
    Client,
    HeldAnew,
    NotHeld,
    Run,
    RunNotFound,
    RunOver,
    WorkerError,
)
from acts_celery.broker_config import EmbeddedServer, SettingsError, load
from acts_celery.broker_config.tokens import Identity
from acts_celery.protocol import Rejected
from acts_celery.worker.broker.attempts import CallId
from acts_celery.worker.cli import acts as group
from acts_celery.worker.cli.options import Failed
from acts_celery.worker.cli.run import Decider
from acts_celery.worker.client.amendment import AmendmentSteps
from acts_celery.worker.recovery.overdue import HoldHook, next_delay_ms
from acts_celery.worker.store.connections import connect
from acts_celery.worker.store.held_calls import Actor, AuditRecord
from acts_celery.worker.store.keys import Keys
from acts_celery.worker.store.run_list import child_id

from .backend import DEADLINE_SECONDS, Backend, Meeting, settings_apart, status_of
from .loops import Asked, answer
from .test_control import alone, echo, gate, wait_at
from .test_control_cli import command
from .test_r9_3_children import Told

__all__ = ["alone", "gate"]

DEED = AuditRecord("amended", Actor("another", "elsewhere")).pack()
# Calls that wait for a person, and what the person decides, on real workers (SPEC R14).


def submitted(backend: Backend, *calls: dict[str, Any], context: Sequence[dict[str, Any]] = (), **config: Any) -> Run:
    """A run with these settings."""
    return backend.client.submit_document(
        {"context": [*context], "solution": {"calls": [*calls]}, "config": {"approve": ["*"], **config}}
    )


def wait_held(run: Run, number: int = 1) -> list[dict[str, Any]]:
    """Wait until so many calls are held."""
    while len(found := run.held()) < number:
        time.sleep(0.02)
    return found


def test_r14_1_a_call_is_held_when_it_is_ready_and_not_before_and_others_go_on(backend: Backend) -> None:
    calls = echo(1, "†state.a"), {**echo("†state.a", "†state.b"), "_tool": "echoPlain"}, echo(3, "†state.c")
    run = submitted(backend, *calls, approve=["echoPlain"])
    (held,) = wait_held(run)
    assert (held["call"], held["index"], held["tool"], held["parameters"]) == ("1", 1, "echoPlain", {"value": 1})
    while run.status()["calls"] != {"done": 2, "held": 1}:
        time.sleep(0.02)
    assert run.status()["status"] == "running"
    run.approve("1")
    assert backend.wait(run.id).data()["state"] == {"a": 1, "b": 1, "c": 3}


def test_r14_2_what_was_shown_is_what_runs_whatever_comes_since(backend: Backend, meeting: Meeting, gate: str) -> None:
    seeing = {"_tool": "seeScopes", "_scopes": ["state"], "value": "†state.a", "_outputPath": "†data.seen"}
    given = {"type": "state", "a": 1, "b": 2}
    run = submitted(backend, seeing, context=[given], approve=["†state.b"])
    (held,) = wait_held(run)
    assert (held["parameters"], held["scopes"]) == ({"value": 1}, {"state": {"a": 1, "b": 2}})
    run.send({"type": "state", "a": 5, "b": 6})
    run.approve(0)
    assert backend.wait(run.id).data()["data"]["seen"] == {"state": {"a": 1, "b": 2}}


def test_r14_2_a_delegate_gets_what_was_shown(backend: Backend) -> None:
    context = [{"type": "system", "message": "be brief"}, {"type": "state", "user": "Ann"}]
    asking = {"_tool": "d", "_delegate": "showContext", "_scopes": ["state", "system"], "_outputPath": "†data.seen"}
    run = submitted(backend, asking, context=context)
    (held,) = wait_held(run)
    assert held["messages"] == [*context[:1], {"type": "state", "user": "Ann"}]
    run.send({"type": "state", "user": "Bob"})
    run.approve(0)
    assert backend.wait(run.id).data()["data"]["seen"]["context"][:2] == held["messages"]


def test_r14_2_parameters_may_be_changed_and_are_validated(backend: Backend) -> None:
    run = submitted(backend, {"_tool": "add", "a": 1, "_outputPath": "†state.sum"})
    wait_held(run)
    with pytest.raises(Rejected) as refused:
        run.approve(0, parameters={"a": "one"})
    assert refused.value.errors[0].pointer == "/a"
    with pytest.raises(Rejected, match="only these can be changed"):
        run.approve(0, parameters={"a": 1, "_outputPath": "†state.other"})
    assert len(run.held()) == 1
    run.approve(0, parameters={"a": 40, "b": 2})
    assert backend.wait(run.id).data()["state"] == {"sum": 42}


def test_r14_2_values_that_a_person_gives_are_never_read_as_references(backend: Backend) -> None:
    run = submitted(backend, echo("x", "†state.a"), context=[{"type": "state", "secret": 1}])
    wait_held(run)
    run.approve(0, parameters={"value": "†state.secret"})
    assert backend.wait(run.id).data()["state"]["a"] == "†state.secret"


def test_r14_2_a_rejection_goes_where_an_exception_would(backend: Backend) -> None:
    calls = echo(1, "†state.a || †state.refused"), echo(2, "†state.b"), echo("†state.b", "†state.c")
    run = submitted(backend, *calls)
    wait_held(run, 2)
    run.reject(0, "too dear", by="Ann")
    run.reject(1, reason="not today")
    result = backend.wait(run.id)
    assert result.status == "failed"
    assert result.data()["state"] == {"refused": {"type": "Rejected", "message": "too dear"}}
    assert [status_of(result, index) for index in range(3)] == ["done", "failed", "skipped"]
    assert result.calls[1].error == {"type": "Rejected", "message": "not today"}


def test_r14_2_the_same_decision_twice_is_one_and_another_one_is_refused(backend: Backend) -> None:
    run = submitted(backend, echo(1, "†state.a"), echo(2, "†state.b"))
    wait_held(run, 2)
    first = run.approve("0", by="Ann")
    assert run.approve(0, by="Bob") == run.approve(0, parameters={"value": 1}) == first
    with pytest.raises(AlreadyDecided, match=r"call 0 .* was approved by Ann at .*; that stays"):
        run.reject(0, "no")
    with pytest.raises(AlreadyDecided):
        run.approve(0, parameters={"value": 7})
    run.reject("1", "no")
    assert backend.wait(run.id).data()["state"]["a"] == 1
    assert run.approve(0) == first
    with pytest.raises(AlreadyDecided, match=r"was rejected by .*\(no\)"):
        run.approve(1)
    with pytest.raises(AlreadyDecided):
        run.reject(1, "for another reason")


def test_r14_2_what_is_not_held_cannot_be_decided(backend: Backend, meeting: Meeting, gate: str) -> None:
    run = submitted(backend, wait_at(gate), echo("†state.a", "†state.b"), approve=["echo"])
    meeting.take(f"at:{gate}")
    for wrong in (0, 1, 7, "x", "0:①", "²"):
        with pytest.raises(NotHeld):
            run.approve(wrong)
    with pytest.raises(Rejected, match="needs a reason"):
        run.reject(1, " ")
    meeting.open_gate(gate)
    wait_held(run)
    run.cancel()
    assert run.held() == []
    with pytest.raises(RunOver):
        run.approve(1)
    assert status_of(run.result(), 1) == "skipped"


def test_r14_1_calls_of_instances_are_held_each_on_its_own(backend: Backend) -> None:
    marks = ["①", "②"]
    context: list[Any] = [{"type": "state", "_instance": mark, "mark": mark} for mark in marks]
    plan = {"type": "plan", "calls": [echo("†state.mark", "†state.a"), echo("†state.a", "†state.b")]}
    run = backend.client.submit_document({"context": [*context, plan], "config": {"approve": ["*"]}})
    assert {call["call"]: call["parameters"] for call in wait_held(run, 2)} == {
        "0:①": {"value": "①"},
        "0:②": {"value": "②"},
    }
    with pytest.raises(NotHeld, match="several calls have the index 0: say which, 0:①, 0:②"):
        run.approve(0)
    run.approve("0:②")
    run.approve("0:①")
    for call in wait_held(run, 2):
        run.approve(call["call"], parameters={"value": call["call"]})
    result = backend.wait(run.id)
    assert [result.data(mark)["state"]["b"] for mark in marks] == ["1:①", "1:②"]


def test_r14_1_fire_and_forget_calls_are_held_too(backend: Backend, meeting: Meeting, gate: str) -> None:
    saying = [{"_tool": "note", "name": f"{gate}-{index}", "text": "hello"} for index in range(2)]
    run = submitted(backend, *saying)
    wait_held(run, 2)
    run.reject(1, "no")
    run.approve(0, parameters={"name": f"{gate}-0", "text": "changed"})
    result = backend.wait(run.id)
    assert [status_of(result, index) for index in range(2)] == ["sent", "failed"]


def test_r14_2_nothing_is_held_by_a_worker_and_all_of_them_may_die(alone: Backend) -> None:
    with alone.worker() as victim:
        run = submitted(alone, echo(1, "†state.a"), echo("†state.a", "†state.b"))
        wait_held(run)
        keys = Keys(alone.settings.key_prefix, run.id)
        while alone.redis.exists(keys.leases, keys.published):
            time.sleep(0.02)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
    run.approve(0)
    with alone.worker() as victim:
        assert wait_held(run)[0]["parameters"] == {"value": 1}
        run.approve(1, parameters={"value": 5})
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
    with alone.worker():
        assert alone.wait(run.id).data()["state"] == {"a": 1, "b": 5}


def test_r14_2_an_approved_call_runs_again_with_the_same_snapshot_where_its_worker_dies(
    alone: Backend, meeting: Meeting, gate: str
) -> None:
    slow = {"_tool": "waitAtGate", "gate": gate, "value": "†state.x", "_outputPath": "†state.a"}
    with alone.worker() as victim:
        run = submitted(alone, slow, context=[{"type": "state", "x": 1}])
        wait_held(run)
        run.send({"type": "state", "x": 2})
        run.approve(0)
        meeting.take(f"at:{gate}")
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
    meeting.open_gate(gate)
    with alone.worker():
        assert alone.wait(run.id).data()["state"] == {"a": 1, "x": 2}


def test_r14_3_what_is_not_decided_in_time_is_rejected_also_where_all_workers_died(alone: Backend) -> None:
    with alone.worker() as victim:
        run = submitted(alone, echo(1, "†state.a || †state.late"), approve_seconds=0.5)
        (held,) = wait_held(run)
        assert held["until"] > held["since"]
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
    with alone.worker():
        result = alone.wait(run.id)
    reason = "no person decided within 0.5 s (config.approve_seconds)"
    assert result.data()["state"] == {"late": {"type": "Rejected", "message": reason}}
    with pytest.raises(AlreadyDecided, match=r"by config\.approve_seconds"):
        run.approve(0)


def test_r14_3_what_is_decided_in_time_is_not_rejected(alone: Backend, meeting: Meeting, gate: str) -> None:
    with alone.worker():
        run = submitted(alone, wait_at(gate), echo(1, "†state.late"), approve_seconds=1)
        wait_held(run, 2)
        run.approve(0)
        meeting.take(f"at:{gate}")
        while status_of(run.result(), 1) != "failed":
            time.sleep(0.02)
        meeting.open_gate(gate)
        assert alone.wait(run.id).data()["state"]["a"] == 1


def test_r14_2_a_paused_run_takes_decisions_and_goes_on_with_them_when_resumed(backend: Backend) -> None:
    run = submitted(backend, echo(1, "†state.a"), echo("†state.a", "†state.b"))
    wait_held(run)
    run.pause()
    run.approve(0)
    assert run.status()["calls"] == {"waiting": 2}
    run.resume()
    wait_held(run)
    run.approve(1)
    assert backend.wait(run.id).status == "completed"


def test_r14_1_a_held_call_that_an_amendment_replaces_is_asked_for_no_more(backend: Backend) -> None:
    run = submitted(backend, echo(1, "†state.a"))
    wait_held(run)
    run.amend([echo(2, "†state.b")])
    while [call["call"] for call in run.held()] != ["1"]:
        time.sleep(0.02)
    run.amend([echo(3, "†state.c")], add=True)
    wait_held(run, 2)
    run.approve(1)
    run.approve(2)
    result = backend.wait(run.id)
    assert result.data()["state"] == {"b": 2, "c": 3}
    assert [call.status for call in result.calls] == ["skipped", "done", "done"]


def test_r14_1_a_fork_asks_anew_for_what_had_not_ended(backend: Backend, meeting: Meeting, gate: str) -> None:
    run = submitted(backend, wait_at(gate), echo(2, "†state.b"))
    wait_held(run, 2)
    run.approve(0)
    meeting.take(f"at:{gate}")
    fork = run.fork()
    meeting.open_gate(gate)
    assert [call["parameters"].get("gate") for call in wait_held(fork, 2)] == [gate, None]
    for one in (run, fork):
        one.approve(1)
    fork.approve(0)
    assert [backend.wait(one.id).data()["state"] for one in (run, fork)] == [{"a": 1, "b": 2}] * 2


def test_r14_3_who_decided_what_and_when_is_in_the_log(backend: Backend) -> None:
    run = submitted(backend, echo(1, "†state.a"))
    wait_held(run)
    run.approve(0, by="Ann")
    backend.wait(run.id)
    kinds = [(event.kind, event.status) for event in run.follow()]
    assert kinds[-3:] == [("decided", "approved"), ("call", "done"), ("run", "completed")]


def test_r14_2_a_call_that_is_retried_is_asked_for_anew(backend: Backend) -> None:
    run = submitted(backend, echo(1, "†state.a"))
    wait_held(run)
    run.reject(0, "not yet")
    assert backend.wait(run.id).status == "failed"
    run.retry()
    wait_held(run)
    run.approve(0)
    assert backend.wait(run.id).data()["state"] == {"a": 1}


def test_r14_3_the_audit_trail_says_who_decided(backend: Backend) -> None:
    run = submitted(backend, echo(1, "†state.a"))
    wait_held(run)
    id_ = run.approve(0, by="Ann")
    (deed,) = (entry.audit for entry in run.log(audit=True) if entry.id == id_)
    assert deed is not None
    assert (deed.did, deed.actor.name, deed.about) == ("approved", "Ann", {"call": "0"})
    run.wait(timeout_seconds=60)


def test_r14_2_people_decide_from_the_command_line(backend: Backend) -> None:
    given = [
        {"_tool": "add", "a": 1, "_outputPath": "†state.a"},
        echo("x", "†state.b || †state.c"),
        echo(3, "†state.d"),
    ]
    run = submitted(backend, *given)
    wait_held(run, 3)
    shown = command(backend, "held", run.id, "--json")
    assert [json.loads(line)["parameters"] for line in shown.stdout.splitlines()] == [
        {"a": 1},
        {"value": "x"},
        {"value": 3},
    ]
    text = command(backend, "held", run.id).stdout
    assert "0 add" in text
    assert "value: x" in text
    refused = command(backend, "approve", run.id, "0", "--yes", "--parameters", '{"a": "one"}', "--json")
    assert (refused.code, refused.json["errors"][0]["pointer"]) == (2, "/a")
    assert command(backend, "approve", run.id, "0", "--yes", "--parameters", "[1]").code == 2
    assert command(backend, "approve", run.id, "0", "--yes", "--parameters", '{"a": 5}', "--by", "Ann").code == 0
    assert command(backend, "reject", run.id, "1", "--yes", "--reason", "no").code == 0
    other = command(backend, "approve", run.id, "1")
    assert (other.code, "was rejected by" in other.stderr) == (4, True)
    assert command(backend, "approve", run.id, "9").code == 4
    assert command(backend, "approve", "nowhere", "0").code == 4
    assert command(backend, "approve", run.id, "2", "--yes").code == 0
    assert backend.wait(run.id).data()["state"] == {"a": 6, "c": {"type": "Rejected", "message": "no"}, "d": 3}
    assert "nothing waits" in command(backend, "held", run.id).stdout


def test_r14_a_question_to_a_person_waits_without_a_worker_and_the_answer_is_its_result(backend: Backend) -> None:
    asking = {"_tool": "ask_human", "question": "†state.what", "options": ["red", "blue"], "_outputPath": "†state.a"}
    value = {
        "context": [{"type": "state", "what": "Which?"}],
        "solution": {"calls": [asking, echo("†state.a", "†state.b")]},
    }
    run = backend.client.submit_document(value)
    (held,) = wait_held(run)
    assert (held["question"], held["parameters"]["question"]) == (True, "Which?")
    with pytest.raises(Rejected, match="is a question"):
        run.approve(0)
    with pytest.raises(Rejected, match="not one of the options"):
        run.answer(0, "green")
    run.answer(0, "blue", by="Ann")
    assert backend.wait(run.id).data()["state"] == {"what": "Which?", "a": "blue", "b": "blue"}
    with pytest.raises(AlreadyDecided, match="was answered by Ann"):
        run.answer(0, "red")


def test_r14_a_tool_of_ones_own_may_ask_and_its_output_is_what_an_answer_has_to_fit(backend: Backend) -> None:
    age = {"properties": {"_activity": {"const": "ask_human"}, "question": {}}, "_output": {"type": "integer"}}
    calls = [{"_tool": "askAge", "question": "How old?", "_outputPath": "†state.age"}, echo(1, "†state.b")]
    run = backend.client.submit([], {"calls": calls}, tools={"askAge": age})
    wait_held(run)
    refused = command(backend, "answer", run.id, "0", "old", "--yes", "--json")
    assert (refused.code, refused.json["status"]) == (2, "rejected")
    assert command(backend, "answer", run.id, "0").code == 2
    assert command(backend, "answer", run.id, "0", "--yes", "--value", "5").code == 0
    assert backend.wait(run.id).data()["state"] == {"age": 5, "b": 1}


def test_r14_what_is_no_question_takes_no_answer(backend: Backend) -> None:
    run = submitted(backend, echo(1, "†state.a"))
    wait_held(run)
    with pytest.raises(Rejected, match="is no question"):
        run.answer(0, 2)
    run.reject(0, "no")


def test_r14_a_question_is_answered_at_the_terminal_until_an_answer_fits(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    asking = {"_tool": "ask_human", "question": "How many?", "options": [1, 2], "_outputPath": "†state.a"}
    run = backend.client.submit([], {"calls": [asking]})
    wait_held(run)
    monkeypatch.setattr("sys.stdin", io.StringIO("three\n3\n2\n"))
    decider = Decider(run, is_embedded=False)
    decider.can_ask = True
    decider.take(next(event for event in run.follow() if event.kind == "held"))
    assert backend.wait(run.id).data()["state"] == {"a": 2}


def test_r14_1_without_a_terminal_the_status_is_asked_for_when_all_that_was_at_work_has_ended(
    backend: Backend, meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates = [secrets.token_hex(4) for _ in range(3)]
    waiting = [
        {"_tool": "waitAtGate", "gate": gate, "value": 1, "_outputPath": f"†state.g{number}"}
        for number, gate in enumerate(gates)
    ]
    run = submitted(backend, echo(1, "†state.a"), *waiting, approve=["echo"])
    wait_held(run)
    meeting.take(f"at:{gates[0]}")
    meeting.take(f"at:{gates[1]}")
    meeting.take(f"at:{gates[2]}")
    asked, status = list[None](), run.status

    def counted() -> dict[str, Any]:
        asked.append(None)
        return status()

    monkeypatch.setattr(run, "status", counted)
    decider = Decider(run, is_embedded=True)
    decider.can_ask = False
    told = list[int]()

    def follow() -> None:
        for event in run.follow(timeout_seconds=60):
            decider.take(event)
            if event.kind in ("held", "call"):
                told.append(len(asked))
                meeting.open_gate(gates[len(told) - 1])

    with pytest.raises(Failed, match="there is no terminal to ask at"):
        follow()
    assert told == [1, 1, 1]  # then the last call ended, and it was asked for once more
    assert len(asked) == 2
    run.cancel()


def test_r14_1_acts_wait_says_that_a_call_waits_for_a_person(backend: Backend) -> None:
    run = submitted(backend, echo(1, "†state.a"))
    wait_held(run)
    waited = command(backend, "wait", run.id, "--timeout", "1")
    assert (waited.code, f"acts held {run.id}" in waited.stderr) == (3, True)
    run.approve(0)
    assert command(backend, "wait", run.id).code == 0


def test_r14_2_an_approval_of_what_was_shown_does_not_let_something_else_run(backend: Backend) -> None:
    run = submitted(backend, echo("†state.wanted", "†state.a"), context=[{"type": "state", "wanted": "a cheap thing"}])
    (shown,) = wait_held(run)
    run.reject("0", "not this one")
    backend.wait(run.id)
    run.amend([{"_tool": "echo", "value": "a dear thing", "_outputPath": "†state.wanted"}], add=True)
    wait_held(run)
    run.approve("1")
    backend.wait(run.id)
    run.retry()
    (anew,) = wait_held(run)
    assert (anew["call"], anew["parameters"]) == (shown["call"], {"value": "a dear thing"})
    with pytest.raises(HeldAnew, match=r"call 0 of run .* is another call than the one that was shown"):
        run.approve("0", shown=shown["shown"])
    with pytest.raises(HeldAnew):
        run.approve("0", calls=[echo(1, "†state.a")], shown=shown["shown"])
    with pytest.raises(HeldAnew):
        run.reject("0", "no", shown=shown["shown"])
    refused = command(backend, "approve", run.id, "0", "--shown", shown["shown"])
    assert (refused.code, "is another call than the one that was shown" in refused.stderr) == (4, True), refused
    assert command(backend, "approve", run.id, "0", "--shown", anew["shown"]).code == 0
    assert backend.wait(run.id).data()["state"]["a"] == "a dear thing"


def test_r14_4_a_decision_that_names_nothing_shown_is_refused_and_one_about_what_held_gave_is_taken(
    backend: Backend,
) -> None:
    run = submitted(backend, echo(1, "†state.a"), echo(2, "†state.b"), echo(3, "†state.c"))
    shown = wait_held(run, 3)
    unseen = backend.client.run(run.id)
    with pytest.raises(Rejected, match="nothing says what was shown of call 0"):
        unseen.approve(0)
    with pytest.raises(Rejected, match="nothing says what was shown of call 0"):
        unseen.reject(0, "no")
    for arguments in (["approve", run.id, "0"], ["reject", run.id, "0", "--reason", "no"]):
        refused = command(backend, *arguments)
        assert (refused.code, "--shown DIGEST" in refused.stderr) == (2, True), refused
    assert len(unseen.held()) == 3
    unseen.approve(0)
    backend.client.run(run.id).approve(shown[1])
    done = command(backend, "approve", run.id, "2", "--shown", shown[2]["shown"])
    assert f'approved call 2 of run {run.id}: echo {{"value": 3}}' in done.stdout
    assert backend.wait(run.id).data()["state"] == {"a": 1, "b": 2, "c": 3}


def test_r14_4_what_was_shown_of_one_run_decides_nothing_in_another(backend: Backend) -> None:
    mine, other = (submitted(backend, echo(1, "†state.a")) for _ in range(2))
    (shown,), (unlike,) = wait_held(mine), wait_held(other)
    assert shown["parameters"] == unlike["parameters"]
    with pytest.raises(HeldAnew):
        other.approve(0, shown=shown["shown"])


def test_r14_4_a_terminal_shows_the_call_and_asks(backend: Backend) -> None:
    run = submitted(backend, echo("tea", "†state.a"))
    wait_held(run)
    for said, left in (("n\n", 1), ("y\n", 0)):
        master, slave = pty.openpty()
        os.write(master, said.encode())
        arguments = [sys.executable, "-m", "acts_celery", "approve", run.id, "0"]
        env = {**os.environ, **backend.settings.to_environment()}
        done = subprocess.run(arguments, stdin=slave, capture_output=True, text=True, env=env, timeout=60, check=False)
        assert ("value: tea" in done.stderr, f"approve call 0 of run {run.id}?" in done.stderr) == (True, True), done
        assert len(run.held()) == left
        os.close(master)
        os.close(slave)


def test_r14_4_a_name_that_a_stranger_chose_decides_nothing(backend: Backend) -> None:
    name = f"nightly-{secrets.token_hex(4)}"
    calls: dict[str, Any] = {"solution": {"calls": [echo("tea", "†state.a")]}, "config": {"approve": ["*"]}}
    with Client(backend.settings.acting_for("ann", Identity("ann"))) as ann:
        mine = backend.client.submit_document(calls, name=name)
        wait_held(mine)
        dear = {**calls, "solution": {"calls": [echo("FERRARI", "†state.a")]}}
        theirs = ann.submit_document(dear, name=name)
        yacht = ann.submit_document(dear, name=mine.id[:-2])
        alone = ann.submit_document(dear, name=f"{name}-alone")
        for run in (theirs, yacht, alone):
            wait_held(run)
        for verb in (["approve", name, "0", "--yes"], ["approve", name, "--all"], ["cancel", name], ["fork", name]):
            refused = command(backend, *verb)
            assert (refused.code, "several owners" in refused.stderr, mine.id in refused.stderr) == (4, True, True), (
                verb
            )
        with pytest.raises(RunNotFound, match=rf"of your own: .*{alone.id} \(of ann\)"):
            backend.client.find(f"{name}-alone")
        done = command(backend, "approve", mine.id[:-2], "0", "--yes")
        assert f'approved call 0 of run {mine.id}: echo {{"value": "tea"}}' in done.stdout
        assert [len(run.held()) for run in (theirs, yacht, alone)] == [1, 1, 1]
        with pytest.raises(AmbiguousRun):
            ann.find(name)
        assert ann.find(f"{name}-alone").id == ann.find("latest").id == alone.id
        assert backend.client.find("latest").id == mine.id


# The web hook that is told what waits for a person (SPEC R14): signed, at least once, in nobody's way.

SECRET = "whsec_" + base64.b64encode(b"a secret of the tests").decode()
TOKEN = "whoever-knows-this-may-write-here"
_names = count()


class Address(ThreadingHTTPServer):
    """An address that is told; it answers with `codes` in turn, then 204, each when `gate` is open."""

    def __init__(self, *codes: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.codes = iter(codes)
        self.gate = Event()
        self.gate.set()
        self.taken: queue.Queue[tuple[dict[str, str], bytes]] = queue.Queue()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/held?token={TOKEN}"

    def take(self) -> tuple[dict[str, str], bytes]:
        """The next request: its headers and its body."""
        return self.taken.get(timeout=DEADLINE_SECONDS)


class _Handler(BaseHTTPRequestHandler):
    server: Address

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.taken.put(({key.lower(): value for key, value in self.headers.items()}, body))
        self.server.gate.wait(DEADLINE_SECONDS)
        self.send_response(next(self.server.codes, 204))
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@contextmanager
def listening(*codes: int) -> Iterator[Address]:
    address = Address(*codes)
    thread = Thread(target=address.serve_forever)
    thread.start()
    try:
        yield address
    finally:
        address.gate.set()
        address.shutdown()
        thread.join()
        address.server_close()


def backend_for(
    address: Address, server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory
) -> Backend:
    name = f"hook{next(_names)}"
    hook = {"hold_webhook_url": address.url, "hold_webhook_secret": SECRET}
    settings = settings_apart(server, name, lease_seconds=1.5, sweep_interval_seconds=0.2, **hook)
    return Backend(settings, meeting, tmp_path_factory.mktemp(name))


def is_signed(headers: dict[str, str], body: bytes) -> bool:
    """As a receiver checks it, by the text of Standard Webhooks."""
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = hmac.new(b"a secret of the tests", signed, hashlib.sha256).digest()
    return headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"


def test_r14_the_hook_gets_what_acts_held_shows_signed_and_until_it_answers_well(
    server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with listening(500, 302) as address:
        backend = backend_for(address, server, meeting, tmp_path_factory)
        with backend.worker():
            run = submitted(backend, echo(1, "†state.a"))
            requests = [address.take() for _ in range(3)]
            (held,) = wait_held(run)
            assert all(is_signed(headers, body) for headers, body in requests)
            assert len({headers["webhook-id"] for headers, _ in requests}) == 1
            told = [json.loads(body) for _, body in requests]
            assert told == [{"type": "call.held", "timestamp": held["since"], "data": {"run": run.id, **held}}] * 3
            keys = Keys(backend.settings.key_prefix, run.id)
            while backend.redis.zcard(keys.pending_webhooks):
                time.sleep(0.02)
            run.approve(0)
            assert backend.wait(run.id).status == "completed"
            assert address.taken.empty()
        assert TOKEN not in backend.log.read_text()


def test_r14_an_address_that_does_not_answer_holds_up_no_other(
    server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with listening() as address:
        address.gate.clear()
        backend = backend_for(address, server, meeting, tmp_path_factory)
        with backend.worker():
            run = submitted(backend, echo(1, "†state.a"), echo("†state.a", "†state.b"))
            run.approve(json.loads(address.take()[1])["data"])
            run.approve(json.loads(address.take()[1])["data"])
            assert backend.wait(run.id).status == "completed"
            address.gate.set()


@pytest.mark.nightly
def test_r14_the_hook_is_called_although_the_worker_dies(
    server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with listening(503, 503, 503) as address:
        backend = backend_for(address, server, meeting, tmp_path_factory)
        with backend.worker() as victim:
            submitted(backend, echo(1, "†state.a"))
            first, _ = address.take()
            os.kill(victim.pid, signal.SIGKILL)
            victim.wait()
        with backend.worker():
            again, _ = address.take()
    assert again["webhook-id"] == first["webhook-id"]


def test_r14_each_attempt_waits_as_long_as_all_before_and_no_longer_than_an_hour() -> None:
    assert [next_delay_ms(age) for age in (0, 5_000, 60_000, 10**9)] == [2_000, 5_000, 60_000, 3_600_000]


def test_r14_a_hook_needs_a_secret_and_an_address_of_the_web() -> None:
    for given in (
        {"hold_webhook_url": "https://example.org/"},
        {"hold_webhook_url": "ftp://example.org/", "hold_webhook_secret": SECRET},
        {"hold_webhook_url": "https://example.org/", "hold_webhook_secret": "short"},
    ):
        with pytest.raises(SettingsError, match="HOLD_WEBHOOK") as refused:
            load(env_file=None, **given)
        assert "short" not in str(refused.value)
    shown = load(env_file=None, hold_webhook_url="https://u:p@example.org/t0ken", hold_webhook_secret=SECRET).masked()
    assert (shown["hold_webhook_url"], shown["hold_webhook_secret"]) == ("***", "***")


# People decide on calls that a model has chosen (SPEC R14 with R13.1, R13.2).

SUM = {"_tool": "add", "a": 1, "b": 2, "_outputPath": "†state.sum"}


def test_r14_1_the_next_tick_waits_for_the_person(loops: Backend) -> None:
    asked = Asked(loops, answer(SUM), answer(output="†state.sum"), config={"approve": ["add"]})
    (held,) = wait_held(asked.run)
    assert (held["tool"], held["parameters"], asked.asked) == ("add", {"a": 1, "b": 2}, {0: 1})
    asked.run.approve(held["call"], parameters={"a": 40, "b": 2})
    assert (asked.result().output, asked.asked) == (42, {0: 1, 1: 1})


def test_r14_2_a_rejection_is_told_to_the_model_and_sets_the_output_aside(loops: Backend) -> None:
    asked = Asked(loops, answer(SUM, output=1), answer(output=2), config={"approve": ["*"]})
    wait_held(asked.run)
    asked.run.reject(0, "we do not add here")
    result = asked.result()
    assert (result.status, result.output) == ("completed", 2)
    assert [message["data"]["error"]["type"] for message in asked.messages("error")] == ["Rejected"]
    assert "we do not add here" in asked.requests[1]["messages"][-1]["content"]


def test_r14_a_model_may_ask_a_person(loops: Backend) -> None:
    question = {"_tool": "ask_human", "question": "How many?", "_outputPath": "†state.many"}
    asked = Asked(loops, answer(question), answer(output="†state.many"), tools=["ask_human"])
    wait_held(asked.run)
    asked.run.answer(0, 7)
    assert asked.result().output == 7


def held_below(backend: Backend, **config: Any) -> tuple[Run, Told]:
    """A run that asks a child run, whose model calls `add`."""
    told = Told(backend, answer(SUM), answer(output="†state.sum"))
    asking = {"_tool": "ask", "_delegate": "researcher", "_outputPath": "†state.answer"}
    calls = [asking, {"_tool": "own", "_output": 1, "_outputPath": "†state.own"}]
    document = {
        "solution": {"calls": calls},
        "tools": {"own": {"_output": {}}},
        "delegates": {"researcher": told.definition()},
        "config": {"approve": ["add", "own"]} | config,
    }
    return backend.client.submit_document(document), told


def test_r14_1_what_the_parent_approves_is_held_in_child_runs_too_and_decided_on_from_there(loops: Backend) -> None:
    run, _ = held_below(loops)
    child = child_id(CallId(run.id, None, 0))
    own, below = sorted(wait_held(run, 2), key=lambda held: held["tool"], reverse=True)
    assert (own["call"], own["tool"], "run" in own) == ("1", "own", False)
    assert (below["call"], below["index"], below["tool"], below["run"]) == (f"{child}/0", 0, "add", child)
    assert (run.status()["held_below"], run.status()["calls"]) == (1, {"held": 1, "running": 1})
    (same,) = loops.client.run(child).held()
    assert (same["call"], "run" in same) == ("0", False)
    run.approve(1)
    with pytest.raises(HeldAnew):
        run.approve(below["call"], shown="1-1")
    run.approve(below["call"], parameters={"a": 3, "b": 4}, shown=below["shown"])
    assert loops.wait(run.id).data()["state"] == {"answer": 7, "own": 1}
    assert run.held() == []


def test_r14_1_a_call_of_a_child_is_rejected_and_replaced_through_its_parent(loops: Backend) -> None:
    run, told = held_below(loops, approve=["add"])
    (below,) = wait_held(run)
    run.reject(below["call"], "not that")
    told_again, _ = held_below(loops, approve=["add"])
    (other,) = wait_held(told_again)
    told_again.approve(other["call"], calls=[{**SUM, "a": 20}])
    (instead,) = wait_held(told_again)  # which is to be approved, too
    told_again.approve(instead["call"])
    assert loops.wait(told_again.id).data()["state"]["answer"] == 22
    loops.wait(run.id)
    assert "not that" in str(Asked.requests.fget(told)[1]["messages"])  # type: ignore[attr-defined]  # it uses the same as `Asked`


def test_r14_1_no_run_decides_on_the_calls_of_another_one_that_is_not_below_it(loops: Backend) -> None:
    run, _ = held_below(loops, approve=["add"])
    stranger, _ = held_below(loops, approve=["add"])
    (below,) = wait_held(run)
    wait_held(stranger)
    for call in (below["call"], f"{run.id}/0", f"{stranger.id}/0", "nowhere/0"):
        with pytest.raises(NotHeld, match="is no child run"):
            stranger.approve(call)
        with pytest.raises(NotHeld, match="is no child run"):
            stranger.reject(call, "no")
    for one in (run, stranger):
        one.cancel()
    assert (run.held(), stranger.held()) == ([], [])


def test_r14_1_acts_held_lists_the_calls_of_child_runs_and_acts_approve_takes_them(loops: Backend) -> None:
    run, _ = held_below(loops, approve=["add"])
    (below,) = wait_held(run)
    listed = command(loops, "held", run.id, "--json")
    assert json.loads(listed.stdout)["call"] == below["call"]
    assert f"1 call of child runs waits for a person: acts held {run.id}" in command(loops, "status", run.id).stdout
    decided = command(loops, "approve", run.id, below["call"], "--yes")
    assert (decided.code, decided.stdout.splitlines()[1:]) == (0, [f"decided, 0 calls of run {run.id} still held"])
    assert f"call {below['call']} of run {run.id}: add" in decided.stdout
    assert loops.wait(run.id).data()["state"]["answer"] == 3


# A held call that a person replaces by other calls, and many held calls decided on at once (SPEC R14.2).


def plain(value: Any, path: str) -> dict[str, Any]:
    return {**echo(value, path), "_tool": "echoPlain"}


def test_r14_2_other_calls_stand_in_for_a_held_one_and_what_waits_for_it_waits_for_them(backend: Backend) -> None:
    run = submitted(backend, plain(1, "†state.a"), echo("†state.a", "†state.b"), approve=["echoPlain"])
    wait_held(run)
    first = run.approve(0, calls=[echo(20, "†state.x"), echo("†state.x", "†state.a")], by="Ann")
    result = backend.wait(run.id)
    assert (result.status, result.data()["state"]) == ("completed", {"x": 20, "a": 20, "b": 20})
    assert [status_of(result, index) for index in range(4)] == ["skipped", "done", "done", "done"]
    assert result.calls[0].reason == "replaced by calls 2, 3"
    (deed,) = (entry.audit for entry in run.log(audit=True) if entry.id == first)
    assert deed is not None
    assert (deed.did, deed.actor.name, deed.about) == ("replaced", "Ann", {"call": "0"})


def test_r14_2_the_same_replacement_twice_is_one_and_another_decision_is_refused(backend: Backend) -> None:
    run = submitted(backend, plain(1, "†state.a"), plain(2, "†state.b"), approve=["echoPlain"])
    wait_held(run, 2)
    instead = [echo(3, "†state.a")]
    first = run.approve(0, calls=instead, by="Ann")
    assert run.approve(0, calls={"calls": instead}, by="Bob") == first
    for other in ({}, {"calls": [echo(4, "†state.a")]}, {"parameters": {"value": 5}}):
        with pytest.raises(AlreadyDecided, match=r"call 0 .* was replaced by Ann at"):
            run.approve(0, **other)
    with pytest.raises(AlreadyDecided):
        run.reject(0, "no")
    run.approve(1)
    with pytest.raises(AlreadyDecided, match="was approved"):
        run.approve(1, calls=instead)
    result = backend.wait(run.id)
    assert result.data()["state"] == {"a": 3, "b": 2}
    assert run.approve(0, calls=instead) == first


def test_r14_2_what_does_not_fit_is_refused_as_an_amendment_is_and_the_call_stays_held(backend: Backend) -> None:
    run = submitted(backend, plain(1, "†state.a"), echo("†state.a", "†state.b"), approve=["echoPlain"])
    wait_held(run)
    for calls, at, text in (
        ([{"_tool": "add", "a": "one", "_outputPath": "†state.a"}], "/calls/0/a", "not of type"),
        ([echo("†state.b", "†state.a")], "/calls/0/value", "unresolvable"),  # it would wait for what waits for it
        ([echo(1, "†state.a", _instance="①")], "/calls/0/_instance", "runs globally"),
        ([echo(1, "†state.a", _gather=True)], "/calls/0/_gather", "cannot have _gather"),
        ([], "/calls", "reject it instead"),
    ):
        with pytest.raises(Rejected) as refused:
            run.approve(0, calls=calls)
        assert (refused.value.errors[0].pointer, text in str(refused.value)) == (at, True), str(refused.value)
    assert (run.status()["status"], len(run.held())) == ("running", 1)
    with pytest.raises(NotHeld):
        run.approve(1, calls=[echo(1, "†state.a")])
    run.approve(0)
    assert backend.wait(run.id).data()["state"] == {"a": 1, "b": 1}


def test_r14_2_a_replacement_runs_in_the_instance_of_the_call_and_is_asked_for_in_its_turn(backend: Backend) -> None:
    marks = ["①", "②"]
    context: list[Any] = [{"type": "state", "_instance": mark, "mark": mark} for mark in marks]
    plan = {"type": "plan", "calls": [plain("†state.mark", "†state.a"), echo("†state.a", "†state.b")]}
    run = backend.client.submit_document({"context": [*context, plan], "config": {"approve": ["echoPlain"]}})
    wait_held(run, 2)
    run.approve("0:①", calls=[plain("†state.mark", "†state.old"), echo("new", "†state.a")])
    while {call["call"] for call in run.held()} != {"2:①", "0:②"}:
        time.sleep(0.02)
    run.approve("2:①", calls=[echo("newer", "†state.old")])
    run.approve("0:②")
    result = backend.wait(run.id)
    assert [result.data(mark)["state"] for mark in marks] == [
        {"mark": "①", "old": "newer", "a": "new", "b": "new"},
        {"mark": "②", "a": "②", "b": "②"},
    ]


def test_r14_2_calls_of_instances_wait_for_what_stands_in_for_a_global_one(
    backend: Backend, meeting: Meeting, gate: str
) -> None:
    context = [{"type": "state", "_instance": mark, "mark": mark} for mark in ("①", "②")]
    calls = [plain(1, "†data.a"), *(echo("†data.a", "†state.b", _instance=mark) for mark in ("①", "②"))]
    run = submitted(backend, *calls, context=context, approve=["echoPlain"])
    wait_held(run)
    run.approve(0, calls=[wait_at(gate, "†data.a")])
    meeting.take(f"at:{gate}")
    run.amend([echo(1, "†data.z")], add=True)  # those that wait stay, and go on waiting
    meeting.open_gate(gate)
    result = backend.wait(run.id)
    assert [result.data(mark)["state"]["b"] for mark in ("①", "②")] == [1, 1]
    assert result.data()["data"] == {"a": 1, "z": 1}


def test_r14_2_a_replacement_that_was_left_in_the_midst_is_finished_by_repeating_it(alone: Backend) -> None:
    with alone.worker():
        run = submitted(alone, plain(1, "†state.a"), approve=["echoPlain"])
        wait_held(run)
        AmendmentSteps(run.id, alone.redis, alone.settings).do("begin")
        another = AmendmentSteps(run.id, alone.redis, alone.settings)
        another.do("begin")
        another.do("plan", by="another:1", deed=DEED)
        with pytest.raises(BeingAmended):
            run.approve(0)
        run.approve(0, calls=[echo(2, "†state.a")])
        assert alone.wait(run.id).data()["state"] == {"a": 2}


def test_r14_2_a_retry_does_not_bring_a_replaced_call_back(backend: Backend) -> None:
    run = submitted(backend, plain(1, "†state.a"), echo("†state.a", "†state.b"), approve=["echoPlain"])
    wait_held(run)
    run.approve(0, calls=[{"_tool": "refuse", "name": "x", "_outputPath": "†state.a"}])
    assert backend.wait(run.id).status == "failed"
    run.retry(skip=True, value=7)
    result = backend.wait(run.id)
    assert (result.status, result.data()["state"]) == ("completed", {"a": 7, "b": 7})
    assert status_of(result, 0) == "skipped"


def test_r14_2_people_replace_and_decide_many_from_the_command_line(backend: Backend) -> None:
    calls = [plain(n, f"†state.a{n}") for n in range(3)] + [echo(n, f"†state.b{n}") for n in range(3)]
    run = submitted(backend, *calls)
    wait_held(run, 6)
    refused = command(
        backend, "approve", run.id, "0", "--yes", "--calls", "-", "--json", stdin={"calls": [{"_tool": "nope"}]}
    )
    assert (refused.code, refused.json["errors"][0]["pointer"]) == (2, "/calls/0/_tool")
    instead = {"calls": [echo(7, "†state.a0")]}
    assert command(backend, "approve", run.id, "0", "--yes", "--calls", "-", "--by", "Ann", stdin=instead).code == 0
    wait_held(run, 6)
    rejected = command(backend, "reject", run.id, "--tool", "echoPlain", "--reason", "no", "--json")
    assert (rejected.code, sorted(rejected.json["decisions"])) == (0, ["1", "2"])
    approved = command(backend, "approve", run.id, "--all", "--json")
    assert sorted(approved.json["decisions"]) == ["3", "4", "5", "6"]
    result = backend.wait(run.id)
    assert result.data()["state"] == {"a0": 7, "b0": 0, "b1": 1, "b2": 2}
    for wrong in ([], ["0", "--all"], ["--all", "--parameters", "{}"], ["0", "--parameters", "{}", "--calls", "-"]):
        assert command(backend, "approve", run.id, *wrong).code == 2, wrong


def test_r14_2_many_decisions_are_made_after_a_question_on_a_terminal(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = submitted(backend, echo(0, "†state.a"), echo(1, "†state.b"))
    wait_held(run, 2)
    asked: list[str] = []

    def refuse(question: str) -> None:
        asked.append(question)
        raise click.Abort

    monkeypatch.setattr("acts_celery.worker.cli.people.confirmed", refuse)
    runner, env = CliRunner(), backend.settings.to_environment()
    runner.invoke(group, ["approve", run.id, "--all"], env=env)
    runner.invoke(group, ["reject", run.id, "--tool", "echo", "--reason", "no"], env=env)
    assert (asked, len(run.held())) == ([f"{verb} 2 calls of run {run.id}?" for verb in ("approve", "reject")], 2)
    assert command(backend, "approve", run.id, "--tool", "echo", "--yes").code == 0
    assert backend.wait(run.id).status == "completed"


def test_r14_2_many_decisions_leave_questions_to_be_answered(backend: Backend) -> None:
    run = submitted(backend, {"_tool": "ask_human", "question": "why?", "_outputPath": "†state.a"}, echo(1, "†state.b"))
    wait_held(run, 2)
    done = command(backend, "approve", run.id, "--all", "--json")
    assert (list(json.loads(done.stdout)["decisions"]), "1 question left" in done.stderr) == (["1"], True)
    run.answer(0, "so")
    assert backend.wait(run.id).data()["state"] == {"a": "so", "b": 1}


def test_r14_1_explain_names_the_call_that_waits_for_a_person(backend: Backend) -> None:
    run = submitted(backend, plain(1, "†state.a"), echo("†state.a", "†state.b"), approve=["echoPlain"])
    wait_held(run)
    writers = run.explain_absence("state.b").to_dict()["writers"]
    assert [(one["index"], one["status"]) for one in writers] == [(1, "waiting"), (0, "held")]
    assert "acts held" in command(backend, "explain", run.id, "state.b").stdout
    run.approve(0)
    assert backend.wait(run.id).data()["state"]["b"] == 1


def test_r14_a_hook_without_what_sends_its_requests_says_which_extra_has_it(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = {"hold_webhook_url": "https://example.org/", "hold_webhook_secret": SECRET}
    settings = settings_apart(server, "hookless", **hook)
    monkeypatch.setitem(sys.modules, "httpx", None)
    with connect(settings) as redis, pytest.raises(WorkerError, match=r"\[hooks\]"):
        HoldHook(redis, settings)
