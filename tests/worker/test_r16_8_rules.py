"""Rules of a run: given with an approval, shown, revoked, and never wider than what was shown (SPEC R16.8)."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from acts_celery import AlreadyDecided, NoSuchRule, Run, RunOver
from acts_celery.broker_config import EmbeddedServer
from acts_celery.protocol import Rejected
from tests.ui.sites import DECIDER, READER, TOKENS, error_of, served

from .backend import Backend, Meeting, meeting_url, settings_for
from .pages import Asking
from .test_control import gate
from .test_control_cli import command
from .test_r14_people import wait_held

__all__ = ["gate"]

ASKED = {"type": "text", "message": "Pay the rent to DE01, or to DE02."}
MAIL = {"type": "data", "data": {"one": "DE01", "two": "DE02", "evil": "DE66"}, "_trust": ["mail"]}
EFFECT = {"_trust": {"effects": True}}
WORDS = {"value": "words"}


def pay(payee: Any, place: str, **more: Any) -> dict[str, Any]:
    return {"_tool": "echo", "value": payee, "_outputPath": f"†state.{place}", **more}


def submitted(backend: Backend, *calls: dict[str, Any], **parts: Any) -> Run:
    document = {"context": [ASKED, MAIL], "solution": {"calls": [*calls]}, "tools": {"echo": EFFECT}, **parts}
    return backend.client.submit_document(document)


def ruled(backend: Backend, said: Any = WORDS) -> Run:
    """A run with a rule, and more to come: it waits for a call at the second place."""
    run = submitted(backend, pay("†data.one", "a"), pay("†data.evil", "stays"))
    held = {call["call"]: call for call in wait_held(run, 2)}
    run.approve(held["0"], rule=said, by="Ann")
    return run


def statuses(run: Run) -> list[str]:
    return [call.status for call in run.result().calls]


def wait_for(run: Run, *wanted: str) -> None:
    """Wait until the calls of a run are so."""
    for _ in run.follow(timeout_seconds=60):
        if statuses(run) == [*wanted]:
            return
    raise AssertionError(statuses(run))


def test_a_rule_lets_later_calls_start_and_says_so_wherever_one_may_ask(backend: Backend) -> None:
    run = ruled(backend)
    run.amend([pay("†data.two", "b"), pay("†data.evil", "c")], add=True)
    wait_for(run, "done", "held", "done", "held")
    [rule] = run.rules()
    assert (rule["by"], rule["revoked"], rule["calls"]) == ("Ann", None, ["2"])
    assert (rule["parameters"], rule["sources"]) == ({"value": {"words": True}}, {"value": ["mail"]})
    assert "in the user's own words" in rule["text"]
    assert run.status()["rules"] == 1
    assert [call.rule for call in run.result().calls] == [None, None, rule["rule"], None]
    page = Asking(backend, run)
    assert page.ask("rules") == run.rules()
    assert page.ask()["rules"] == 1
    explained = command(backend, "explain", run.id, "†state.b").stdout
    assert f"nobody was asked: rule {rule['rule']}, given by Ann" in explained
    assert rule["text"] in command(backend, "rules", run.id).stdout
    run.reject_together({call["call"]: call["shown"] for call in run.held()}, "no")
    backend.wait(run.id)
    assert [("rule" in call, "unasked" in call) for call in page.ask("instance")["calls"]] == [
        *[(False, False)] * 2,
        (True, False),
        (False, False),
    ]
    assert [event.kind for event in run.follow() if event.index == 2] == ["decided", "call"]
    assert any('"rule": ' in line for line in run.export())


def test_where_it_was_declared_that_nobody_is_asked_the_page_and_a_command_say_it(backend: Backend) -> None:
    tools = {"echo": {"_trust": {"effects": True, "proof": ["value"]}}}
    run = submitted(backend, pay("†data.one", "a"), pay("DE01", "b"), tools=tools)
    backend.wait(run.id)
    told = {"why": "proof", "parameter": "value", "sources": ["mail"], "text": "value comes from mail, and only proves"}
    page = Asking(backend, run)
    assert [call.get("unasked") for call in page.ask("instance")["calls"]] == [[told], None]
    assert [origin["unasked"] for origin in page.ask("place", path="state.a")["provenance"]] == [[told]]
    assert "nobody was asked: value comes from mail" in command(backend, "explain", run.id, "†state.a").stdout
    assert command(backend, "explain", run.id, "†state.b", "--json").json["messages"][0]["unasked"] == []


def test_a_rule_that_is_revoked_lets_nothing_start_from_then_on(backend: Backend) -> None:
    run = ruled(backend)
    [rule] = run.rules()
    run.revoke_rule(rule["rule"], by="Bob")
    run.revoke_rule(rule["rule"])
    run.amend([pay("†data.two", "b")], add=True)
    assert {call["call"] for call in wait_held(run, 2)} == {"1", "2"}
    [rule] = run.rules()
    assert (rule["revoked_by"], rule["calls"]) == ("Bob", [])
    assert "rules" not in run.status()
    with pytest.raises(NoSuchRule, match="acts rules"):
        run.revoke_rule("1-1")
    run.cancel()
    with pytest.raises(RunOver):
        run.revoke_rule(rule["rule"])


def test_a_rule_is_given_by_who_may_approve_and_only_as_narrow_as_what_was_shown(backend: Backend) -> None:
    run = submitted(backend, pay("†data.evil", "a"), pay("†data.one", "b"))
    held = {call["call"]: call for call in wait_held(run, 2)}
    for wide, pointer in ((WORDS, "/rule/value"), ({"value": {"matches": ".*"}}, "/rule/value"), ({}, "/rule")):
        with pytest.raises(Rejected) as refused:
            run.approve(held["0"], rule=wide)
        assert refused.value.errors[0].pointer == pointer
    with pytest.raises(Rejected, match="unchanged"):
        run.approve(held["0"], rule=WORDS, parameters={"value": "DE01"})
    assert run.rules() == []
    assert len(run.held()) == 2
    run.approve(held["1"])
    with pytest.raises(AlreadyDecided, match="no rule was given"):
        run.approve(held["1"], rule=WORDS)
    run.approve(held["0"], rule={"value": "shown"})
    assert run.approve(held["0"], rule={"value": "shown"}), "the same decision twice is one"
    assert len(run.rules()) == 1
    tools = {"echo": EFFECT, "echoPlain": EFFECT}
    both = pay("†data.one", "a"), pay("†data.one", "b") | {"_tool": "echoPlain"}
    approved = submitted(backend, *both, config={"approve": ["echoPlain"]}, tools=tools)
    plain, ruled_ = sorted(wait_held(approved, 2), key=lambda call: call["tool"], reverse=True)
    with pytest.raises(Rejected, match=r"config\.approve"):
        approved.approve(plain, rule=WORDS)
    approved.approve(ruled_, rule=WORDS)
    approved.amend([both[1], both[0] | {"_outputPath": "†state.c"}], add=True)
    assert {call["index"] for call in wait_held(approved, 2)} == {1, 2}, "approvals hold whatever rules there are"
    approved.cancel()


def test_a_rule_holds_in_every_instance_for_retries_and_amendments_and_not_in_a_fork(
    backend: Backend, meeting: Meeting, gate: str
) -> None:
    names = ("Ann", "Bob")
    states = [{"type": "state", "_instance": name, "to": "DE01", "_trust": ["mail"]} for name in names]
    broken = {"_tool": "failUntilMended", "name": gate, "value": "†state.to", "_outputPath": "†state.paid"}
    plan = {"type": "plan", "calls": [pay("†state.to", "first"), broken]}
    tools = {"echo": EFFECT, "failUntilMended": EFFECT}
    run = backend.client.submit_document({"context": [ASKED, *states, plan], "tools": tools})
    for call in wait_held(run, 4):
        is_broken = call["tool"] == "failUntilMended"
        run.approve(call, rule={"value": "words", **({"name": "shown"} if is_broken else {})})
        if is_broken:
            break
    for call in run.held():
        run.approve(call)
    assert backend.wait(run.id).status == "failed"
    meeting.redis.set(f"mended:{gate}", 1)
    run.retry()
    again = backend.wait(run.id)
    assert [call.rule is not None for call in again.calls if call.tool == "failUntilMended"] == [True, True]
    assert run.held() == []
    fork = run.fork()
    assert all(rule["revoked"] is not None for rule in fork.rules())
    assert "rules" not in fork.status()
    fork.amend([pay("†state.to", "more", _instance="Ann")], add=True)
    assert [call["instance"] for call in wait_held(fork)] == ["Ann"]
    fork.cancel()
    run.amend([pay("†state.to", "more", _instance="Bob")], add=True)
    assert backend.wait(run.id).calls[-1].rule is not None


def test_a_rule_has_no_value_of_an_instance_that_was_deleted_and_admits_none_in_its_place(backend: Backend) -> None:
    states = [
        {"type": "state", "_instance": "ann", "to": "DE4711", "_trust": ["mail"]},
        {"type": "state", "_instance": "bob", "to": "DE01", "end": "4711", "_trust": ["mail"]},
    ]
    plan = {"type": "plan", "calls": [pay("†state.to", "first")]}
    run = backend.client.submit_document({"context": [ASKED, *states, plan], "tools": {"echo": EFFECT}})
    held = {call["instance"]: call for call in wait_held(run, 2)}
    run.approve(held["ann"], rule={"value": "shown"})
    run.reject(held["bob"], reason="no")
    backend.wait(run.id)
    again = pay("DE†{state.end}", "more", _instance="bob")
    run.amend([again], add=True)
    assert backend.wait(run.id).calls[-1].rule == run.rules()[0]["rule"]
    run.delete_instances("ann")
    [rule] = run.rules()
    assert (rule["parameters"], rule["call"], rule["shown"]) == ({"value": {"one_of": []}}, "0:ann", "")
    assert "values that were deleted" in rule["text"]
    assert rule["revoked"] is not None, "a worker that has read the rule hears of it, too"
    run.amend([again | {"_outputPath": "†state.last"}], add=True)
    assert [call["instance"] for call in wait_held(run)] == ["bob"]
    run.cancel()


def test_over_http_a_rule_takes_the_right_to_decide(backend: Backend) -> None:
    run = submitted(backend, pay("†data.one", "a"), pay("†data.evil", "b"))
    held = {call["call"]: call for call in wait_held(run, 2)}
    body = {"call": "0", "shown": held["0"]["shown"], "rule": WORDS}
    with served(backend, ACTS_UI_TOKENS=TOKENS) as site:
        assert error_of(site.post(f"/api/runs/{run.id}/approve", body, READER)) == (403, "NotAdmitted")
        assert site.post(f"/api/runs/{run.id}/approve", body, DECIDER).status_code == 200
        [rule] = site.get(f"/api/runs/{run.id}/rules", READER).json()
        assert rule["by"] == "dee"
        assert error_of(site.post(f"/api/runs/{run.id}/revoke", {"rule": rule["rule"]}, READER)) == (403, "NotAdmitted")
        assert site.post(f"/api/runs/{run.id}/revoke", {"rule": rule["rule"]}, DECIDER).status_code == 200
    assert run.rules()[0]["revoked_by"] == "dee"
    run.cancel()


def test_the_check_says_what_nobody_is_asked_with_the_rules_of_a_run(backend: Backend, tmp_path: Path) -> None:
    run = submitted(backend, pay("†data.one", "a"), pay("†data.evil", "b"))
    held = {call["call"]: call for call in wait_held(run, 2)}
    code = command(
        backend, "approve", run.id, "0", "--shown", held["0"]["shown"], "--rule", json.dumps({"value": "any"})
    )
    assert code.code == 0, code
    rules = tmp_path / "rules.jsonl"
    rules.write_text(command(backend, "rules", run.id, "--json").stdout, "utf-8")
    typed = {"echo": {**EFFECT, "properties": {"value": {"type": "string"}}}}
    document = {"context": [ASKED, MAIL], "solution": {"calls": [pay("†data.two", "c")]}}
    for tools, asked, codes in ((typed, "never", set()), ({"echo": EFFECT}, "unless", {"ACT601"})):
        found = command(backend, "check", "-", "--rule", str(rules), "--json", stdin={**document, "tools": tools}).json
        assert [(one["call"], one["asked"]) for one in found["rules"]] == [(0, asked)]
        assert {one["code"] for one in found["findings"] if one["code"].startswith("ACT6")} == codes
    lines = command(backend, "check", "-", "--rule", str(rules), stdin={**document, "tools": typed}).stdout
    assert "nobody is asked, by the rule: any call of echo" in lines
    assert command(backend, "check", "-", "--rule", "/no/such", stdin={**document, "tools": typed}).code == 2
    revoked = command(backend, "revoke", run.id, run.rules()[0]["rule"])
    assert revoked.code == 0
    run.cancel()


def test_a_rule_outlives_the_workers_and_lets_calls_start_that_one_of_them_has_left(tmp_path: Path) -> None:
    with EmbeddedServer() as server:
        backend = Backend(
            settings_for(server, lease_seconds=1.5, sweep_interval_seconds=0.2), Meeting(meeting_url(server)), tmp_path
        )
        with backend.worker() as first:
            run = ruled(backend)
            wait_for(run, "done", "held")
            os.kill(first.pid, signal.SIGKILL)
            run.amend([pay("†data.two", "b"), pay("†data.evil", "c")], add=True)
        with backend.worker():
            wait_for(run, "done", "held", "done", "held")
        assert run.rules()[0]["calls"] == ["2"]
