"""Amendments and additions (SPEC R11.6, R11.7)."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from itertools import islice
from typing import Any

import pytest

from acts_celery import BeingAmended, Run, RunNotFound, RunOver
from acts_celery.broker_config import EmbeddedServer
from acts_celery.protocol import Limits, Problem, Rejected
from acts_celery.protocol.calls.call import element_index
from acts_celery.protocol.engine.events import CallsUndone, Outcome, Status
from acts_celery.worker.client.amendment import Amender, AmendmentSteps
from acts_celery.worker.store.commits import Held
from acts_celery.worker.store.connections import connect, connect_async
from acts_celery.worker.store.entries import read_entry
from acts_celery.worker.store.held_calls import Actor, AuditRecord
from acts_celery.worker.store.keys import Keys, active_runs
from acts_celery.worker.store.lane import LaneView, RunView
from acts_celery.worker.store.log import LogTerms, MessageLog
from tests.acceptance.command import send, start

from .backend import Backend, Meeting
from .test_commit_script import Log, done
from .test_control import alone, echo, first_ended_call, gate, wait_at
from .test_control_cli import command
from .test_gathering import CONTEXT, MARKS, gather, plan
from .test_r14_people import DEED

__all__ = ["alone", "gate"]

# Amendments: what has not begun is replaced while the run is under way (SPEC R11.1).

MARKS_AMEND = ["①", "②"]
CONTEXT_AMEND = [{"type": "state", "_instance": mark, "mark": mark} for mark in MARKS_AMEND]


def held(backend: Backend, meeting: Meeting, gate: str, *calls: dict[str, Any], **parts: Any) -> Run:
    """A run whose first call is at work until the gate is opened."""
    run = backend.client.submit(solution={"calls": [wait_at(gate), *calls]}, **parts)
    meeting.take(f"at:{gate}")
    return run


def statuses(run: Run) -> list[str]:
    return [call.status for call in run.result().calls]


def test_what_has_not_begun_is_replaced_and_what_is_at_work_goes_on(
    backend: Backend, meeting: Meeting, gate: str
) -> None:
    run = held(backend, meeting, gate, echo("†state.a", "†state.old"), echo("†state.old", "†state.older"))
    run.amend([echo("†state.a", "†state.new"), echo("†state.new", "†state.newer")])
    assert run.status()["status"] == "running"
    meeting.open_gate(gate)
    result = backend.wait(run.id)
    assert (result.status, result.data()) == ("completed", {"state": {"a": 1, "new": 1, "newer": 1}})
    assert statuses(run) == ["done", "skipped", "skipped", "done", "done"]
    assert {call.reason for call in result.calls} == {None, "replaced by an amendment"}
    assert run.status()["calls"] == {"done": 3, "skipped": 2}


def test_new_calls_see_what_the_run_has_come_to(backend: Backend, meeting: Meeting, gate: str) -> None:
    run = held(backend, meeting, gate, echo(5, "†state.five"), echo("†state.a", "†state.old"))
    first_ended_call(run)
    run.amend([echo("†state.five", "†state.new")])
    next(event for event in run.follow(timeout_seconds=30) if event.kind == "call" and event.index == 3)
    assert backend.client.run(run.id).status()["calls"] == {"running": 1, "done": 2, "skipped": 1}
    meeting.open_gate(gate)
    assert backend.wait(run.id).data() == {"state": {"five": 5, "a": 1, "new": 5}}


def test_an_amendment_calls_only_what_the_run_allows(backend: Backend, meeting: Meeting, gate: str) -> None:
    run = held(backend, meeting, gate, echo("†state.a", "†state.b"), allow=[wait_at(gate)["_tool"], "echo"])
    with pytest.raises(Rejected, match="/calls/0/_tool: tool 'add' is not allowed here"):
        run.amend([{"_tool": "add", "a": 1, "b": 2, "_outputPath": "†state.c"}])
    meeting.open_gate(gate)
    assert backend.wait(run.id).data() == {"state": {"a": 1, "b": 1}}


def test_an_amendment_is_refused_where_it_asks_for_what_cannot_be_honoured(
    backend: Backend, meeting: Meeting, gate: str
) -> None:
    run = held(backend, meeting, gate)
    own = {"own": {"context": [], "config": {"slots": 5}}}
    with pytest.raises(Rejected, match="slots"):
        run.amend({"calls": [], "delegates": own})
    meeting.open_gate(gate)
    assert backend.wait(run.id).status == "completed"


def test_an_amendment_that_does_not_fit_changes_nothing_and_says_where(
    backend: Backend, meeting: Meeting, gate: str
) -> None:
    run = held(backend, meeting, gate, echo("†state.a", "†state.b"))
    wrong = [echo("†state.b", "†state.c"), echo(1, "†state.d"), {"_tool": "nothing"}]
    with pytest.raises(Rejected) as refused:
        run.amend(wrong)
    assert [problem.pointer for problem in refused.value.errors] == ["/calls/0/value", "/calls/2/_tool"]
    with pytest.raises(Rejected) as refused:
        run.amend({"solution": {"calls": wrong}})
    assert refused.value.errors[0].pointer == "/solution/calls/0/value"
    with pytest.raises(Rejected):
        run.amend({"call": []})
    assert run.status() == {"run": run.id, "status": "running", "calls": {"running": 1, "waiting": 1}}
    meeting.open_gate(gate)
    assert backend.wait(run.id).data() == {"state": {"a": 1, "b": 1}}
    assert statuses(run) == ["done", "done"]


def test_calls_of_a_plan_are_replaced_once_for_each_instance(alone: Backend, meeting: Meeting, gate: str) -> None:
    plan = {
        "type": "plan",
        "calls": [echo("†state.mark", "†state.a"), wait_at(gate, "†state.g"), echo("†state.g", "†state.old")],
    }
    with alone.worker():
        run = alone.client.submit([plan, *CONTEXT_AMEND])
        for _ in MARKS_AMEND:
            meeting.take(f"at:{gate}")
        run.amend([echo("†state.g", "†state.new"), echo("†state.new", "†state.only", _instance="②")])
        meeting.open_gate(gate)
        result = alone.wait(run.id)
    for mark in MARKS_AMEND:
        assert result.data(mark)["state"].items() >= {"a": mark, "g": 1, "new": 1}.items()
    assert ("only" in result.data("②")["state"], "only" in result.data("①")["state"]) == (True, False)
    assert Counter(call.status for call in result.calls) == {"done": 7, "skipped": 2}


def test_instances_that_wait_for_a_global_call_wait_for_the_new_one(
    backend: Backend, meeting: Meeting, gate: str
) -> None:
    waiting = [echo("†state.b", "†state.seen", _instance=mark) for mark in MARKS_AMEND]
    run = held(backend, meeting, gate, echo("†state.a", "†state.b"), *waiting, context=CONTEXT_AMEND)
    new = [
        echo({"was": "†state.a"}, "†state.c"),
        *(echo("†state.c", "†state.seen", _instance=mark) for mark in MARKS_AMEND),
    ]
    run.amend(new)
    run.amend([*new, echo("†state.a", "†state.direct", _instance="①")])
    meeting.open_gate(gate)
    result = backend.wait(run.id)
    assert result.data("①")["state"] == {"a": 1, "c": {"was": 1}, "mark": "①", "seen": {"was": 1}, "direct": 1}
    assert result.data("②")["state"] == {"a": 1, "c": {"was": 1}, "mark": "②", "seen": {"was": 1}}
    assert Counter(call.status for call in result.calls) == {"done": 5, "skipped": 6}


def test_an_amendment_may_bring_tools_and_delegates(backend: Backend, meeting: Meeting, gate: str) -> None:
    run = held(backend, meeting, gate)
    run.amend(
        {
            "calls": [
                {"_tool": "made", "_output": "thought", "_outputPath": "†state.b"},
                {"_tool": "say", "_delegate": "showContext", "word": "†state.b", "_outputPath": "†state.c"},
            ],
            "tools": {"made": {"type": "object"}, "say": {"type": "object", "_delegate": {}}},
        }
    )
    meeting.open_gate(gate)
    assert backend.wait(run.id).data()["state"]["c"] == {"context": [{"type": "input", "word": "thought"}]}


def test_an_empty_amendment_ends_a_run_with_what_is_at_work(backend: Backend, meeting: Meeting, gate: str) -> None:
    run = held(backend, meeting, gate, echo("†state.a", "†state.b"))
    run.amend([])
    meeting.open_gate(gate)
    assert backend.wait(run.id).data() == {"state": {"a": 1}}
    assert run.status() == {"run": run.id, "status": "completed", "calls": {"done": 1, "skipped": 1}}


def test_an_empty_amendment_ends_a_run_that_has_nothing_at_work(alone: Backend) -> None:
    run = alone.client.submit(solution={"calls": [echo(1, "†state.a")]})
    run.amend([])
    assert run.status() == {"run": run.id, "status": "completed", "calls": {"skipped": 1}}


def test_a_run_that_is_paused_stays_so(alone: Backend) -> None:
    run = alone.client.submit(CONTEXT_AMEND, {"calls": [echo(1, "†state.a", _instance="①")]})
    run.pause()
    run.amend([echo("†state.mark", "†state.b", _instance="②")])
    told = run.status()
    assert (told["status"], told["calls"]) == ("paused", {"skipped": 1, "waiting": 1})
    with alone.worker():
        run.resume()
        assert alone.wait(run.id).data("②")["state"] == {"mark": "②", "b": "②"}


@pytest.mark.nightly
def test_a_call_at_work_that_is_lost_afterwards_is_run_again(alone: Backend, meeting: Meeting, gate: str) -> None:
    with alone.worker() as victim:
        hanging = {"_tool": "hangOnce", "name": gate, "_outputPath": "†state.a"}
        run = alone.client.submit(solution={"calls": [hanging, echo("†state.a", "†state.old")]})
        meeting.take(f"hanging:{gate}")
        run.amend([echo("†state.a", "†state.new")])
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
    with alone.worker():
        assert alone.wait(run.id).data() == {"state": {"a": 2, "new": 2}}


def test_the_past_of_an_amended_run_knows_its_old_calls_only(backend: Backend, meeting: Meeting, gate: str) -> None:
    run = held(backend, meeting, gate, echo("†state.a", "†state.old"))
    before = next(iter(run.follow())).id
    run.amend([echo("†state.a", "†state.new")])
    meeting.open_gate(gate)
    backend.wait(run.id)
    assert [(call.index, call.status) for call in run.result(at=before).calls] == [(0, "waiting"), (1, "waiting")]
    ends = []
    for at in (before, *(event.id for event in run.follow())):
        fork = run.fork(at)
        ends.append(backend.wait(fork.id).data()["state"])
    old, new = {"a": 1, "old": 1}, {"a": 1, "new": 1}
    assert ends == sorted(ends, key=[old, new].index)
    assert ends[0] == old
    assert ends[-1] == new


@pytest.mark.nightly
def test_a_client_that_is_killed_in_the_midst_leaves_a_paused_run_and_may_try_again(
    alone: Backend, meeting: Meeting, gate: str
) -> None:
    many = 900
    context = [{"type": "state", "_instance": f"i{n}", "n": n} for n in range(many)]
    amendment = {"calls": [echo("†state.n", "†state.new"), echo("†state.new", "†state.newer")]}
    run = alone.client.submit([{"type": "plan", "calls": [echo("†state.n", "†state.old")]}, *context])
    keys = Keys(alone.settings.key_prefix, run.id)
    alone.redis.config_set("notify-keyspace-events", "Kt")
    with alone.redis.pubsub() as written:  # type: ignore[no-untyped-call]  # redis is typed but here
        written.subscribe(f"__keyspace@0__:{keys.log}")
        written.get_message(timeout=5)
        client = start("amend", run.id, "-", env=alone.settings.to_environment() | {"MEETING_URL": meeting.url})
        send(client, amendment)
        assert written.get_message(timeout=30), "nothing was written"
        os.kill(client.pid, signal.SIGKILL)
        client.communicate()
    alone.redis.config_set("notify-keyspace-events", "")
    assert run.status()["status"] == "paused"
    with pytest.raises(BeingAmended):
        run.resume()
    with pytest.raises(BeingAmended):
        run.fork()
    with alone.worker():
        again = command(alone, "amend", run.id, "-", "--json", stdin=amendment)
        assert (again.code, again.json["run"]) == (0, run.id)
        result = alone.wait(run.id)
    assert Counter(call.status for call in result.calls) == {"done": 2 * many, "skipped": many}
    assert all(result.data(f"i{n}")["state"] == {"n": n, "new": n, "newer": n} for n in range(many))


def begun_by_another(backend: Backend, run: Run) -> AmendmentSteps:
    """Somebody else's amendment, on its way."""
    another = AmendmentSteps(run.id, backend.redis, backend.settings)
    another.do("begin")
    return another


@pytest.mark.parametrize("adds", [False, True])
def test_a_run_goes_on_though_the_client_dies_between_its_amendment_and_its_resumption(
    backend: Backend, meeting: Meeting, gate: str, adds: bool
) -> None:
    run = held(backend, meeting, gate)
    if adds:
        meeting.open_gate(gate)
        backend.wait(run.id)
    amender = Amender(run.id, backend.redis, backend.settings, backend.client._check_amendment)
    amend = amender.add if adds else amender.amend
    amend({"calls": [echo(2, "†state.new")]}, resume=lambda: None)
    meeting.open_gate(gate)
    assert backend.wait(run.id).data() == {"state": {"a": 1, "new": 2}}


def test_another_amendment_may_take_the_place_of_one_that_was_left_in_the_midst(
    backend: Backend, meeting: Meeting, gate: str
) -> None:
    run = held(backend, meeting, gate, echo("†state.a", "†state.old"))
    another = begun_by_another(backend, run)
    another.do("plan", by="another:1", deed=DEED)
    with pytest.raises(Rejected):
        run.amend([echo("†state.none", "†state.b")])
    assert run.status()["status"] == "paused"
    run.amend([echo("†state.a", "†state.new")])
    with pytest.raises(BeingAmended):
        another.do("end")
    meeting.open_gate(gate)
    assert backend.wait(run.id).data() == {"state": {"a": 1, "new": 1}}


def test_a_run_that_is_cancelled_while_it_is_amended_takes_no_amendment(
    backend: Backend, meeting: Meeting, gate: str
) -> None:
    run = held(backend, meeting, gate, echo("†state.a", "†state.old"))
    another = begun_by_another(backend, run)
    run.cancel()
    with pytest.raises(RunOver):
        another.do("plan", by="another:1", deed=DEED)
    meeting.open_gate(gate)
    assert run.status()["calls"] == {"failed": 1, "skipped": 1}


def test_a_run_that_is_paused_while_it_is_amended_stays_so(alone: Backend) -> None:
    run = alone.client.submit(solution={"calls": [echo(1, "†state.a")]})
    another = begun_by_another(alone, run)
    run.pause()
    another.do("plan", by="another:1", deed=DEED)
    another.end(AuditRecord("amended", Actor("another", "elsewhere")), run.resume)
    assert run.status()["status"] == "paused"
    run.resume()

    def amended() -> None:
        with another.begun(run.resume, adds=False):
            run.pause()
            raise Rejected([Problem("", "it does not fit")])

    with pytest.raises(Rejected):
        amended()
    assert run.status()["status"] == "paused"


def test_a_run_that_is_over_or_not_there_is_not_amended(backend: Backend) -> None:
    run = backend.client.submit(solution={"calls": [echo(1, "†state.a")]})
    backend.wait(run.id)
    with pytest.raises(RunOver):
        run.amend([])
    with pytest.raises(RunNotFound):
        backend.client.run_of("nowhere").amend([])


def test_a_run_is_amended_by_command(backend: Backend, meeting: Meeting, gate: str) -> None:
    run = held(backend, meeting, gate, echo("†state.a", "†state.old"))
    refused = command(backend, "amend", run.id, "-", "--json", stdin={"calls": [echo("†state.none", "†state.b")]})
    assert (refused.code, refused.json["errors"][0]["pointer"]) == (2, "/calls/0/value")
    assert refused.error_lines[0].startswith("acts: /calls/0/value: ")
    more = {"calls": [echo("†state.a", "†state.b")]}
    done = command(backend, "amend", run.id, "-", "--json", stdin=more)
    assert (done.code, done.json["calls"]) == (0, {"skipped": 1, "running": 1, "waiting": 1})
    meeting.open_gate(gate)
    assert backend.wait(run.id).data() == {"state": {"a": 1, "b": 1}}


def test_r11_7_calls_are_added_to_a_run_that_has_ended_and_it_goes_on_from_what_is_there(alone: Backend) -> None:
    with alone.worker():
        failing = {"_tool": "explode", "_outputPath": "†state.x"}
        run = alone.client.submit(
            CONTEXT_AMEND, {"calls": [echo(1, "†state.a"), failing, echo("†state.x", "†state.y")]}
        )
        assert alone.wait(run.id).status == "failed"
        keys = Keys(alone.settings.key_prefix, run.id)
        while alone.redis.ttl(keys.state) < 0:  # the sweep has not been there yet
            run.status()
        run.amend([echo("†state.a", "†state.b"), echo("†state.b", "†state.c", _instance="①")], add=True)
        result = alone.wait(run.id)
        assert [call.status for call in result.calls] == ["done", "failed", "skipped", "done", "done"]
        assert (result.status, result.data("①")["state"]["c"]) == ("failed", 1)
        ended = [event.status for event in run.follow() if event.kind == "run"]
        assert ended == ["running", "failed", "paused", "running", "failed"]


def test_r11_7_a_run_to_which_calls_are_added_does_not_expire_and_ends_anew(
    alone: Backend, meeting: Meeting, gate: str
) -> None:
    with alone.worker():
        run = alone.client.submit(solution={"calls": [echo(1, "†state.a")]})
        assert alone.wait(run.id).status == "completed"
        while any(alone.redis.ttl(key) < 0 for key in alone.keys(run.id)):
            time.sleep(0.02)
        run.amend([wait_at(gate, "†state.b")], add=True)
        meeting.take(f"at:{gate}")
        assert {alone.redis.ttl(key) for key in alone.keys(run.id)} == {-1}
        assert alone.redis.zscore(active_runs(alone.settings.key_prefix), run.id) is not None
        meeting.open_gate(gate)
        assert alone.wait(run.id).data()["state"] == {"a": 1, "b": 1}
        while any(alone.redis.ttl(key) < 0 for key in alone.keys(run.id)):
            time.sleep(0.02)


def test_r11_7_what_does_not_fit_an_ended_run_leaves_it_as_it_is(backend: Backend) -> None:
    run = backend.client.submit(solution={"calls": [echo(1, "†state.a")]})
    backend.wait(run.id)
    before = [event.id for event in run.follow()]
    with pytest.raises(Rejected):
        run.amend([echo("†state.never", "†state.b")], add=True)
    assert [event.id for event in run.follow()] == before
    with pytest.raises(RunOver):
        run.amend([echo("†state.a", "†state.b")])


def test_r11_7_what_has_not_begun_stays_and_waits_for_none_of_the_new_calls(
    backend: Backend, meeting: Meeting, gate: str
) -> None:
    calls = [echo("†state.late || †state.mark", "†state.b", _instance=mark) for mark in MARKS_AMEND]
    late = [echo("†state.a", "†state.late", _instance=mark) for mark in MARKS_AMEND]
    run = held(backend, meeting, gate, *calls, *late, echo("†state.a", "†state.g"), context=CONTEXT_AMEND)
    run.amend([echo(["†state.b"], "†state.c", _instance="①"), echo("†state.g", "†state.h")], add=True)
    run.amend([echo("†state.h", "†state.late", _instance="②"), echo("†state.c", "†state.d", _instance="①")], add=True)
    assert run.status()["calls"] == {"running": 1, "waiting": 9}
    meeting.open_gate(gate)
    result = backend.wait(run.id)
    assert {call.status for call in result.calls} == {"done"}
    assert result.data("①")["state"].items() >= {"b": 1, "c": [1], "d": [1], "late": 1, "g": 1, "h": 1}.items()
    assert result.data("②")["state"].items() >= {"b": 1, "late": 1}.items()


def test_r11_7_calls_of_a_plan_that_have_not_begun_stay(alone: Backend, meeting: Meeting, gate: str) -> None:
    plan = {"type": "plan", "calls": [wait_at(gate, "†state.g"), echo("†state.g", "†state.old")]}
    with alone.worker():
        run = alone.client.submit([plan, *CONTEXT_AMEND])
        for _ in MARKS_AMEND:
            meeting.take(f"at:{gate}")
        run.amend([echo(["†state.old", "†state.mark"], "†state.new")], add=True)
        meeting.open_gate(gate)
        result = alone.wait(run.id)
    assert [result.data(mark)["state"]["new"] for mark in MARKS_AMEND] == [[1, mark] for mark in MARKS_AMEND]


def test_r11_7_calls_are_not_added_to_a_cancelled_run(backend: Backend, meeting: Meeting, gate: str) -> None:
    run = held(backend, meeting, gate, echo("†state.a", "†state.b"))
    run.cancel()
    with pytest.raises(RunOver):
        run.amend([echo(1, "†state.c")], add=True)
    meeting.open_gate(gate)


def test_r11_7_calls_are_added_beside_those_at_work_and_from_the_command_line(
    backend: Backend, meeting: Meeting, gate: str
) -> None:
    run = held(backend, meeting, gate)
    added = command(backend, "amend", run.id, "-", "--add", "--json", stdin={"calls": [echo("†state.a", "†state.b")]})
    assert (added.code, added.json["status"]) == (0, "running")
    meeting.open_gate(gate)
    assert backend.wait(run.id).data()["state"] == {"a": 1, "b": 1}


@pytest.mark.parametrize("is_ended", [True, False])
def test_r11_7_an_addition_that_was_interrupted_is_finished_by_repeating_it(
    backend: Backend, meeting: Meeting, gate: str, monkeypatch: pytest.MonkeyPatch, is_ended: bool
) -> None:
    run = held(backend, meeting, gate, echo("†state.a", "†state.b", _instance="①"), context=CONTEXT_AMEND)
    if is_ended:
        meeting.open_gate(gate)
        backend.wait(run.id)
    new = [echo("†state.a", "†state.c"), echo(["†state.b", "†state.c"], "†state.d", _instance="①")]
    step = AmendmentSteps.do

    def dies(self: AmendmentSteps, name: str, **request: Any) -> dict[str, Any]:
        if name == "end":
            raise KeyboardInterrupt
        return step(self, name, **request)

    monkeypatch.setattr(AmendmentSteps, "do", dies)
    with pytest.raises(KeyboardInterrupt):
        run.amend(new, add=True)
    monkeypatch.undo()
    assert run.status()["status"] == "paused"
    run.amend(new, add=True)
    meeting.open_gate(gate)
    result = backend.wait(run.id)
    assert (result.status, result.data("①")["state"]["d"]) == ("completed", [1, 1])
    assert len(result.calls) == 4


# The steps of an amendment (lua/amend.lua) on a real server: what they leave in the records of a lane and a run.


@pytest.fixture
def log(server: EmbeddedServer, request: pytest.FixtureRequest) -> Log:
    return Log(server, f"amended.{abs(hash(request.node.name))}")


def begun(log: Log) -> AmendmentSteps:
    steps = AmendmentSteps(log.keys.run, connect(log.settings), log.settings)
    steps.do("begin")
    return steps


def test_a_held_call_that_is_skipped_is_neither_held_nor_open(log: Log) -> None:
    log.begin(2)
    log.advance("①", holds=[Held(0, b"\x80")])
    begun(log).do("skip", lane="①", dropped=[0, 1], detail=b"\x80")
    assert (log.entry(0, "①"), log.entry(1, "①")) == ("skipped", "skipped")
    assert str(log.redis.hget(log.keys.lanes, "①")).endswith(":0")
    assert not log.redis.exists(log.keys.held)
    assert (log.state()["n:skipped"], log.state()["remaining"]) == ("2", "1")


def test_what_is_promised_has_its_time_anew_when_an_amendment_is_over(log: Log) -> None:
    log.begin(1)
    log.redis.hset(log.keys.state, mapping={"promise_ms": 1_000_000, "promises_due": 1})
    begun(log).do("drop")
    now_ms = log.redis.time()[0] * 1000
    assert now_ms + 900_000 < int(log.state()["promises_due"]) <= now_ms + 1_001_000


def test_a_lane_that_is_sent_again_since_its_answer_was_lost_is_amended_once(log: Log) -> None:
    log.begin(1)
    write_twice(begun(log))
    another = begun(log)  # which takes over
    write_twice(another)
    assert (log.state()["total"], log.state()["remaining"]) == ("9", "8")
    another.do("end")
    assert not [name for name in log.state() if name.startswith("amending")]


def write_twice(steps: AmendmentSteps) -> None:
    """Write two lanes with two new calls each, each step twice."""
    shared: dict[str, Any] = {"dropped": [0], "detail": b"\x80", "record": b"", "shared": b"", "gathers": []}
    for lane in "①②":
        request = steps._request("lane", {"lane": lane, "added": 2, **shared})
        steps._store.amend([request, request])


def undo(steps: AmendmentSteps, lane: str = "①", **request: Any) -> None:
    steps.do(
        "undo",
        **{"lane": lane, "undone": [], "record": b"", "given": [], "unsettled": [], "detail": b"\x80", **request},
    )


def planned(log: Log, *gathers: str) -> AmendmentSteps:
    steps = begun(log)
    steps.do("plan", by="retry", adds=True, deed=b"\x80", gathers=gathers)
    return steps


def test_r11_8_who_has_not_seen_that_calls_are_undone_begins_nothing(log: Log) -> None:
    log.begin(2)
    log.claim(0, instance="①")
    log.commit(done(0), instance="①")
    before = log.last("①")
    steps = planned(log)
    undo(steps, undone=[0])
    steps.do("end")
    log.redis.hset(log.keys.state, "status", "running")
    outdated: dict[str, Any] = {"seen": before, "holds": [Held(0, b"\x80")], "settled": [5]}
    assert log.claim(1, instance="①", **outdated) == (0,)
    assert (log.entry(0, "①"), log.entry(1, "①"), log.entry(5, "①")) == ("None", "None", "None")
    assert log.claim(0, 1, instance="①") == (1, 1)
    assert (log.state()["n:done"], log.state()["remaining"]) == ("0", "2")


def test_r11_8_who_has_not_seen_it_ends_only_what_had_begun_before(log: Log) -> None:
    log.begin(3)
    mine = {"owner": "mine"}
    log.claim(1, instance="①", **mine)
    log.claim(0, instance="①")
    log.commit(done(0), instance="①")
    before = log.last("①")
    undo(planned(log), undone=[0])
    log.redis.hset(log.keys.state, "status", "running")
    log.claim(0, instance="①")
    outdated = {"instance": "①", "seen": before}
    assert log.commit(done(0), done(2), **outdated, **mine).accepted == (False, False)
    assert log.entry(0, "①").startswith("running:1:")
    assert log.commit(done(1), **outdated, **mine).accepted == (True,)
    assert log.commit(done(0), instance="①").accepted == (True,)


def test_r11_8_a_gather_call_waits_for_the_end_of_a_retry_and_for_the_lanes_that_have_not_settled_it(log: Log) -> None:
    log.begin(2)
    log.redis.hset(log.keys.gathers, "5", 0)
    for lane in "①②":
        log.note("settled", 5, lane)
    steps = planned(log, "5")
    for _ in range(2):  # a retry that was interrupted is repeated
        steps.do("plan", by="retry", adds=True, deed=b"\x80", gathers=["5"])
        undo(steps, "①", unsettled=[5])
        undo(steps, "③", unsettled=[5])  # which had not settled it
        assert log.redis.hget(log.keys.gathers, "5") == "2"
    steps.do("end")
    assert log.redis.hget(log.keys.gathers, "5") == "1"
    assert log.redis.lrange(log.keys.backlog, 0, -1)[-1] == ""
    assert "amending:gathers" not in log.state()


def test_r11_8_a_held_call_is_undone_and_of_an_each_only_what_failed(log: Log) -> None:
    log.begin(2)
    log.advance("①", holds=[Held(0, b"\x80"), Held(1, b"\x80", elements=2)])
    parts = [element_index(1, element) for element in (0, 1)]
    log.claim(*parts, instance="①")
    log.commit(done(parts[0]), Outcome(parts[1], Status.FAILED), instance="①")
    log.commit(done(1), instance="①")
    undo(planned(log), undone=[0, 1], keeping=[1], parts=[parts[1]], stale=[7])
    assert (log.entry(0, "①"), log.entry(1, "①")) == ("None", "each:1:0:")
    assert (log.entry(parts[0], "①"), log.entry(parts[1], "①")) == ("done", "None")
    assert not log.redis.exists(log.keys.held)
    assert str(log.redis.hget(log.keys.lanes, "①")).endswith(":1")
    assert (log.state()["running"], log.state()["remaining"]) == ("1", "3")
    (entry,) = [read_entry(id_, fields) for id_, fields in raw(log) if b"undone" in fields]
    assert entry.event == CallsUndone((0, 1), (1,), (7,))


def raw(log: Log) -> Any:
    return connect(log.settings).xrange(log.keys.log)


# Calls that are added to a run while a gather call waits (SPEC R11.7, R10.4), on real workers.

ALL = {"①": 1, "②": 2, "③": 2}


def gathering(backend: Backend, meeting: Meeting, gate: str, *more: dict[str, Any], first: Any = ()) -> Run:
    """A run whose gather call waits for a call at work in one instance; in the others what it reads is written."""
    calls = [wait_at(gate, "†state.n", _instance="①"), *(echo(2, "†state.n", _instance=mark) for mark in MARKS[1:])]
    run = backend.client.submit(CONTEXT, {"calls": [*first, *calls, gather("†state.n", "†data.all"), *more]})
    meeting.take(f"at:{gate}")
    list(islice((event for event in run.follow(timeout_seconds=60) if event.kind == "call"), 2))
    return run


@pytest.mark.parametrize(
    "added",
    [
        [echo(5, "†state.more", _instance="②")],
        [echo(5, "†state.more")],
        [echo(5, "†state.more", _instance="*")],
        [echo(9, "†state.n", _instance="③")],
        [],
    ],
)
def test_r11_7_a_gather_call_goes_on_waiting_for_the_calls_of_its_time(
    backend: Backend, meeting: Meeting, gate: str, added: list[dict[str, Any]]
) -> None:
    run = gathering(backend, meeting, gate, echo("†data.all", "†data.copy"))
    run.amend([*added, gather("†state.n", "†data.again")], add=True)
    assert "all" not in run.result().data().get("data", {})
    meeting.open_gate(gate)
    result = backend.wait(run.id)
    data = result.data()["data"]
    assert result.status == "completed"
    assert data["copy"] == data["all"]
    assert data["all"].items() >= {"①": 1, "②": 2}.items()
    assert data["again"].items() >= {"①": 1, "②": 2}.items()


def test_r11_7_again_and_again_also_where_another_waits(backend: Backend, meeting: Meeting, gate: str) -> None:
    run = gathering(backend, meeting, gate)
    run.amend([echo("†state.n", "†state.m", _instance=mark) for mark in MARKS], add=True)
    run.amend([gather("†state.m", "†data.second"), echo(1, "†state.x", _instance="②")], add=True)
    run.amend([gather({"of": "†data.second"}, "†data.third"), echo("†state.x", "†state.y", _instance="②")], add=True)
    meeting.open_gate(gate)
    result = backend.wait(run.id)
    assert result.data()["data"] == {"all": ALL, "second": ALL, "third": {"of": ALL}}
    assert result.data("②")["state"]["y"] == 1


def test_r11_7_it_waits_for_a_global_call_that_ends_before_a_lane_is_driven_again(
    backend: Backend, meeting: Meeting, gate: str
) -> None:
    calls = [wait_at(gate, "†state.g"), gather("†state.g", "†data.all"), *(echo(1, "†state.n", _instance="①"),)]
    run = backend.client.submit(CONTEXT, {"calls": calls})
    meeting.take(f"at:{gate}")
    run.pause()
    meeting.open_gate(gate)
    while run.status()["calls"].get("running"):
        time.sleep(0.01)
    run.amend([echo(7, "†state.z", _instance=mark) for mark in MARKS[:2]], add=True)
    run.resume()
    result = backend.wait(run.id)
    assert (result.status, result.data()["data"]["all"]) == ("completed", 1)


def test_r11_7_in_a_plan_too(alone: Backend, meeting: Meeting, gate: str) -> None:
    calls = [wait_at(gate, "†state.n"), gather("†state.n", "†data.all")]
    with alone.worker():
        run = alone.client.submit([plan(*calls), *CONTEXT])
        for _ in MARKS:
            meeting.take(f"at:{gate}")
        run.amend([echo(["†state.n", "†state.mark"], "†state.m"), gather("†state.m", "†data.more")], add=True)
        meeting.open_gate(gate)
        result = alone.wait(run.id)
    assert result.data()["data"]["all"] == dict.fromkeys(MARKS, 1)
    assert result.data()["data"]["more"] == {mark: [1, mark] for mark in MARKS}


def test_r11_2_a_fork_from_between_goes_on_waiting_too(backend: Backend, meeting: Meeting, gate: str) -> None:
    run = gathering(backend, meeting, gate)
    run.amend([echo(5, "†state.more", _instance="②"), gather("†state.more", "†data.more")], add=True)
    copy = run.fork(paused=True)
    meeting.open_gate(gate)
    assert backend.wait(run.id).data()["data"] == {"all": ALL, "more": {"②": 5}}
    copy.resume()
    assert backend.wait(copy.id).data()["data"] == {"all": ALL, "more": {"②": 5}}


def test_r11_7_a_replacement_of_what_has_not_begun_lets_go_of_it(backend: Backend, meeting: Meeting, gate: str) -> None:
    run = gathering(backend, meeting, gate)
    run.amend([echo(5, "†state.more", _instance="②")], add=True)
    run.amend([gather("†state.n", "†data.new")])
    meeting.open_gate(gate)
    result = backend.wait(run.id)
    assert result.data()["data"] == {"new": ALL}


class _AmendedMeanwhile(MessageLog):
    """A log of a run that is amended once, after it was counted how many lanes its gather calls wait for."""

    run: Run

    async def unsettled(self, run: str) -> dict[int, int]:
        found = await super().unsettled(run)
        if max(found) == 3:
            await asyncio.to_thread(self.run.amend, [gather("†state.m", "†data.second")], add=True)
        return found


def test_r11_7_a_gather_call_that_comes_while_the_lane_is_read_waits_for_its_lanes(alone: Backend) -> None:
    calls = [echo(2, "†state.n", _instance=mark) for mark in MARKS]
    run = alone.client.submit(CONTEXT, {"calls": [*calls, gather("†state.n", "†data.all")]})
    run.amend([echo("†state.n", "†state.m", _instance=mark) for mark in MARKS], add=True)
    settings = alone.settings

    async def opened() -> LaneView:
        async with connect_async(settings) as redis:
            log = _AmendedMeanwhile(
                redis, settings.key_prefix, LogTerms(published_seconds=60, lease_seconds=30, window=100)
            )
            log.run = run
            view, _ = await RunView.open(log, run.id, Limits(), None)
            return await LaneView.open(log, view, None)

    lane = asyncio.run(opened())
    assert {call.index for call in lane.calls} == {3, 7}
    assert lane.gathering() == []


def test_r11_7_a_lane_that_was_read_before_it_was_written_anew_says_nothing_of_later_gather_calls(
    alone: Backend,
) -> None:
    calls = [echo(2, "†state.n", _instance=mark) for mark in MARKS]
    run = alone.client.submit(CONTEXT, {"calls": [*calls, gather("†state.n", "†data.all")]})
    settings = alone.settings

    async def opened() -> LaneView:
        async with connect_async(settings) as redis:
            log = MessageLog(redis, settings.key_prefix, LogTerms(published_seconds=60, lease_seconds=30, window=100))
            view, _ = await RunView.open(log, run.id, Limits(), None)
            entries = (await log.open(run.id, "②")).entries
            await asyncio.to_thread(run.amend, [gather("†state.mark || †state.n", "†data.new")])
            view.feed(await log.read(run.id, None, after=view.seen))
            return LaneView(view, "②", entries)

    lane = asyncio.run(opened())
    assert [call.index for call in lane.run.calls] == [4]
    assert lane.newly_settled() == []
