"""A held call that a person replaces by other calls, and many held calls decided on at once (SPEC R14.2)."""

from __future__ import annotations

import json
from typing import Any

import click
import pytest
from click.testing import CliRunner

from acts_celery import AlreadyDecided, BeingAmended, NotHeld
from acts_celery.protocol import Rejected
from acts_celery.worker.cli import acts as group
from acts_celery.worker.client.amendment import AmendmentSteps
from acts_celery.worker.store.keys import Keys

from .backend import Backend, Meeting, status_of
from .test_amend import DEED
from .test_control import alone, echo, gate, wait_at
from .test_control_cli import command
from .test_r14_people import submitted, wait_held

__all__ = ["alone", "gate"]  # fixtures


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
        run.status()
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
        AmendmentSteps(alone.redis, Keys(alone.settings.key_prefix, run.id)).do("begin")
        another = AmendmentSteps(alone.redis, Keys(alone.settings.key_prefix, run.id))
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
