"""Runs that wait for what is promised, and messages sent to them (SPEC R6.3, R11.6)."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

import pytest

from acts_celery import BeingAmended, Run, RunOver
from acts_celery.protocol import Rejected
from acts_celery.worker.broker.consumer import Publisher
from acts_celery.worker.client import control as sending
from acts_celery.worker.store.keys import Keys

from .backend import Backend, Meeting, status_of
from .test_control import alone, echo, gate, wait_at
from .test_control_cli import command

__all__ = ["alone", "gate"]  # fixtures

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "note": {"type": "string"}},
    "required": ["n"],
}
PROMISE = {"type": "input", "schema": SCHEMA}
MARKS = ["①", "②", "③"]
INSTANCES = [{"type": "state", "_instance": mark, "mark": mark} for mark in MARKS]


def given(**values: Any) -> dict[str, Any]:
    return {"type": "input", "input": values}


def promised(
    backend: Backend, *calls: dict[str, Any], context: Sequence[dict[str, Any]] = (PROMISE,), seconds: float = 3600
) -> Run:
    """A run that waits for its promises for so long."""
    return backend.client.submit_document(
        {"context": [*context], "solution": {"calls": [*calls]}, "config": {"promise_seconds": seconds}}
    )


def wait_idle(backend: Backend, run: Run, parked: int = 0) -> Keys:
    """Wait until a run holds nothing any more but the marks of lanes that wait."""
    keys = Keys(backend.settings.key_prefix, run.id)
    while backend.redis.zcard(keys.published) or backend.redis.zcard(keys.leases):
        backend.client.run(run.id).status()
    assert backend.redis.zcard(keys.parked) == parked
    return keys


def test_r6_3_without_promise_seconds_a_run_is_refused_and_says_what_to_do(backend: Backend) -> None:
    with pytest.raises(Rejected, match="promise_seconds"):
        backend.client.submit([PROMISE], {"calls": [echo("†input.n", "†state.a")]})


def test_r6_3_a_call_waits_for_what_is_promised_and_holds_nothing(backend: Backend) -> None:
    run = promised(backend, echo("†input.n", "†state.a"), echo(1, "†state.b"))
    keys = wait_idle(backend, run)
    assert run.status()["calls"] == {"done": 1, "waiting": 1}
    assert not backend.redis.exists(keys.leases, keys.published, keys.parked, keys.backlog)
    (id_,) = run.send(given(n=7))
    result = backend.wait(run.id)
    assert (result.status, result.data()["state"]) == ("completed", {"a": 7, "b": 1})
    assert [entry.message for entry in run.log() if entry.id == id_] == [given(n=7)]


def test_r11_6_a_global_message_wakes_every_instance_and_one_of_an_instance_that_one(backend: Backend) -> None:
    calls = [echo({"of": "†state.mark", "n": "†input.n"}, "†state.a", _instance=mark) for mark in MARKS]
    run = promised(backend, *calls, context=[PROMISE, *INSTANCES])
    wait_idle(backend, run, parked=3)
    run.send({**given(n=2), "_instance": "②"})
    assert next(event for event in run.follow(timeout_seconds=60) if event.kind == "call").instance == "②"
    assert run.status()["calls"] == {"done": 1, "waiting": 2}
    run.send(given(n=1))
    result = backend.wait(run.id)
    assert [result.data(mark)["state"]["a"]["n"] for mark in MARKS] == [1, 2, 1]


def test_r11_6_messages_are_added_together_or_not_at_all(backend: Backend) -> None:
    run = promised(backend, echo("†input.n", "†state.a"), context=[PROMISE, *INSTANCES])
    before = len(list(run.log()))
    wrong: dict[str, dict[str, Any]] = {
        "/1": given(n="text"),
        "/1/_instance": {**given(n=1), "_instance": "④"},
        "/1/_call": {**given(n=1), "_call": {}},
    }
    for pointer, message in wrong.items():
        with pytest.raises(Rejected) as refused:
            run.send([given(note="first"), message])
        assert [problem.pointer for problem in refused.value.errors] == [pointer]
    assert len(list(run.log())) == before
    assert run.send([]) == ()
    assert len(run.send([given(note="first"), given(n=3)])) == 2
    assert backend.wait(run.id).data()["input"] == {"note": "first", "n": 3}
    with pytest.raises(RunOver):
        run.send(given(n=4))


def test_r11_6_what_is_sent_while_calls_are_at_work_is_seen_by_those_that_follow(
    backend: Backend, meeting: Meeting, gate: str
) -> None:
    run = promised(backend, wait_at(gate), echo(["†state.a", "†input.n"], "†state.b"))
    meeting.take(f"at:{gate}")
    run.send(given(n=5))
    meeting.open_gate(gate)
    assert backend.wait(run.id).data()["state"]["b"] == [1, 5]


def test_r11_6_a_paused_run_takes_messages_and_goes_on_with_them_when_resumed(backend: Backend) -> None:
    run = promised(backend, echo("†input.n", "†state.a", _instance="①"), context=[PROMISE, *INSTANCES])
    wait_idle(backend, run, parked=1)
    run.pause()
    run.send(given(n=1))
    assert run.status()["calls"] == {"waiting": 1}
    run.resume()
    assert backend.wait(run.id).data("①")["state"]["a"] == 1


@pytest.mark.nightly
def test_r11_6_a_client_that_dies_after_the_append_leaves_it_to_the_sweep(
    alone: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [echo("†input.n", "†state.a", _instance=mark) for mark in MARKS]
    with alone.worker():
        run = promised(alone, *calls, echo("†input.n", "†data.a"), context=[PROMISE, *INSTANCES])
        wait_idle(alone, run, parked=3)
        monkeypatch.setattr(sending, "publish_lanes", lambda *args, **more: None)
        run.send(given(n=1))
        assert alone.wait(run.id).status == "completed"


@pytest.mark.nightly
def test_r11_6_a_run_waits_through_the_death_of_its_workers(alone: Backend) -> None:
    with alone.worker() as victim:
        run = promised(alone, echo("†input.n", "†state.a"))
        wait_idle(alone, run)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
    run.send(given(n=1))
    with alone.worker():
        assert alone.wait(run.id).data()["state"] == {"a": 1}


def test_r11_6_what_does_not_come_in_time_fails_the_run_and_is_named(alone: Backend) -> None:
    with alone.worker():
        run = promised(
            alone,
            echo("†input.n || †state.other", "†state.a"),
            echo("†input.n", "†state.b"),
            echo("†state.b", "†state.c"),
            echo("†input.n", "†state.d", _instance="①"),
            context=[PROMISE, {"type": "state", "other": 5}, *INSTANCES],
            seconds=0.5,
        )
        result = alone.wait(run.id)
        assert (result.status, result.reason) == ("failed", "†input.n: promised, and not there within 0.5 s")
        assert [status_of(result, index) for index in range(3)] == ["done", "skipped", "skipped"]
        assert status_of(result, 3, "①") == "skipped"
        assert result.data()["state"]["a"] == 5
        reasons = {call.index: call.reason for call in result.calls}
        assert reasons[1] == "†input.n is not there: it was promised and did not come in time"
        last = list(run.follow())[-1].id
        assert run.result(at=last).reason == result.reason
        assert alone.wait(run.fork(last).id).status == "failed"


def test_r11_6_a_scope_that_a_promise_requires_something_of_is_missed_too(alone: Backend) -> None:
    seeing = {"_tool": "show", "_delegate": "showContext", "_scopes": ["input"], "_outputPath": "†state.a"}
    with alone.worker():
        run = promised(alone, echo(1, "†state.z"), seeing, seconds=0.5)
        result = alone.wait(run.id)
    assert (result.status, status_of(result, 1)) == ("failed", "done")
    assert result.reason == "†input.n: promised, and not there within 0.5 s"


def test_r11_6_the_time_is_kept_where_all_workers_die(alone: Backend) -> None:
    with alone.worker() as victim:
        run = promised(alone, echo("†input.n", "†state.a"), seconds=1)
        wait_idle(alone, run)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
    with alone.worker():
        assert alone.wait(run.id).status == "failed"


def test_r11_6_what_was_promised_and_came_in_time_fails_nothing(alone: Backend, meeting: Meeting, gate: str) -> None:
    with alone.worker():
        run = promised(alone, echo("†input.n", "†state.b"), wait_at(gate), seconds=1)
        run.send(given(n=1))
        keys = Keys(alone.settings.key_prefix, run.id)
        while alone.redis.hexists(keys.state, "promises_due"):
            run.status()
        meeting.open_gate(gate)
        assert alone.wait(run.id).status == "completed"


def test_r11_6_a_fork_from_before_waits_anew(backend: Backend) -> None:
    run = promised(backend, echo(1, "†state.z"), echo("†input.n", "†state.a"))
    wait_idle(backend, run)
    fork = run.fork()
    run.send(given(n=1))
    fork.send(given(n=2))
    assert [backend.wait(one.id).data()["state"]["a"] for one in (run, fork)] == [1, 2]


def test_r11_6_an_amendment_may_read_what_is_promised(backend: Backend) -> None:
    run = promised(backend, echo("†input.n", "†state.a"))
    wait_idle(backend, run)
    run.amend([echo("†input.note", "†state.b")])
    run.send(given(n=1, note="x"))
    assert backend.wait(run.id).data()["state"] == {"b": "x"}


def test_r11_6_nothing_is_added_in_the_midst_of_an_amendment(backend: Backend) -> None:
    run = promised(backend, echo("†input.n", "†state.a"))
    keys = wait_idle(backend, run)
    backend.redis.hset(keys.state, "amending", "another")
    with pytest.raises(BeingAmended):
        run.send(given(n=1))
    backend.redis.hdel(keys.state, "amending")
    run.send(given(n=1))
    assert backend.wait(run.id).status == "completed"


def test_r11_6_a_broker_that_is_away_keeps_no_client_from_sending(
    alone: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    from acts_celery import InfrastructureError

    def refuse(self: Publisher, tasks: Any, **how: Any) -> None:
        raise InfrastructureError("away")

    with alone.worker():
        run = promised(alone, echo("†input.n", "†state.a"))
        wait_idle(alone, run)
        monkeypatch.setattr(Publisher, "publish", refuse)
        run.send(given(n=1))
        assert alone.wait(run.id).data()["state"] == {"a": 1}


def test_r11_6_messages_are_sent_from_the_command_line(backend: Backend) -> None:
    run = promised(backend, echo("†input.n", "†state.a")).id
    refused = command(backend, "send", run, "-", "--json", stdin=[given(n="x")])
    assert (refused.code, refused.json["status"], refused.json["errors"][0]["pointer"]) == (2, "rejected", "/0")
    assert command(backend, "send", run, "-", "--json", stdin=given(n=1)).code == 0
    assert backend.wait(run).data()["state"] == {"a": 1}
    over = command(backend, "send", run, "-", stdin=given(n=1))
    assert (over.code, "nothing can be added" in over.stderr) == (4, True)
