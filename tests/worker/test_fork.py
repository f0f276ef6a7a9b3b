"""Forks: a new run that begins where another one was (SPEC R11.2)."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from acts_celery import Run, RunNotFound
from acts_celery.worker.store.keys import Keys, active_runs
from tests.acceptance.command import start

from .backend import Backend, Meeting
from .test_control import alone, echo, first_ended_call, gate, wait_at
from .test_control_cli import command

__all__ = ["alone", "gate"]  # fixtures

MARKS = ["①", "②"]


def messages(run: Run) -> list[tuple[str, Any]]:
    return [(entry.id, entry.message) for entry in run.log()]


def ended(backend: Backend, gate: str = "") -> Run:
    """A run with a global call that instances wait for, a failure, and something that was sent."""
    context = [{"type": "state", "_instance": mark, "mark": mark} for mark in MARKS]
    calls = [
        echo(1, "†state.a && †state.b"),
        *(echo("†state.a", "†state.seen", _instance=mark) for mark in MARKS),
        {"_tool": "explode", "_outputPath": "†state.never"},
        echo("†state.never", "†state.after"),
        {"_tool": "note", "name": f"fork {gate}", "seen": "†state.seen", "_instance": "①"},
    ]
    run = backend.client.submit(context, {"calls": calls})
    backend.wait(run.id)
    return run


def outcome(run: Run) -> Any:
    result = run.result()
    return result.status, result.data(), result.instances, [(call.index, call.status) for call in result.calls]


def test_a_fork_from_any_moment_ends_as_the_run_itself_did(backend: Backend, meeting: Meeting, gate: str) -> None:
    run = ended(backend, gate)
    expected = outcome(run)
    meeting.take(f"fork {gate}")
    ids = [event.id for event in run.follow()]
    sent = next(event.id for event in run.follow() if event.status == "sent")
    again = 0
    for at in [None, "0-0", *ids, *(id_ for id_, _ in messages(run))]:
        fork = run.fork(at)
        backend.wait(fork.id)
        assert outcome(fork) == expected, at
        if at is not None and order(at) < order(sent):
            again += 1
            meeting.take(f"fork {gate}")
    assert again
    assert meeting.count(f"fork {gate}") == 0


def order(id_: str) -> tuple[int, int]:
    milliseconds, sequence = id_.split("-")
    return int(milliseconds), int(sequence)


def test_the_past_of_a_fork_is_that_of_its_run(backend: Backend) -> None:
    run = ended(backend)
    at = messages(run)[4][0]
    fork = run.fork(at)
    backend.wait(fork.id)
    past = [message for message in messages(run) if order(message[0]) <= order(at)]
    assert messages(fork)[: len(past)] == past
    assert fork.result(at=at).calls == run.result(at=at).calls
    assert fork.result(at=at).instances == run.result(at=at).instances
    assert fork.status()["forked_from"] == {"run": run.id, "at": at}
    assert outcome(run) == outcome(fork)


def test_an_id_in_the_midst_of_a_result_stands_for_the_moment_before(backend: Backend) -> None:
    run = ended(backend)
    first = next(id_ for id_, message in messages(run) if "_call" in message)
    fork = run.fork(first, paused=True)
    assert fork.status()["calls"] == {"waiting": 6}
    assert fork.result().data() == {}
    fork.resume()
    backend.wait(fork.id)
    assert outcome(fork) == outcome(run)


def test_a_run_at_work_is_forked_as_of_one_moment_and_goes_on_itself(
    backend: Backend, meeting: Meeting, gate: str
) -> None:
    run = backend.client.submit(
        solution={"calls": [echo(1, "†state.first"), wait_at(gate), echo("†state.a", "†state.b")]}
    )
    meeting.take(f"at:{gate}")
    first_ended_call(run)
    fork = run.fork(paused=True)
    assert fork.status()["calls"] == {"done": 1, "waiting": 2}
    fork.resume()
    meeting.take(f"at:{gate}")
    meeting.open_gate(gate)
    for one in (run, fork):
        assert backend.wait(one.id).data()["state"] == {"first": 1, "a": 1, "b": 1}


def test_a_cancelled_run_goes_on_in_its_fork(backend: Backend, meeting: Meeting, gate: str) -> None:
    run = backend.client.submit(solution={"calls": [wait_at(gate), echo("†state.a", "†state.b")]})
    meeting.take(f"at:{gate}")
    run.cancel()
    fork = run.fork()
    meeting.open_gate(gate)
    assert backend.wait(fork.id).status == "completed"
    assert [event.status for event in fork.follow() if event.kind == "run"][-1] == "completed"


def test_a_run_that_is_not_there_cannot_be_forked(backend: Backend) -> None:
    with pytest.raises(RunNotFound):
        backend.client.run_of("nowhere").fork()


def test_workers_publish_a_fork_whose_client_died_before_it_could(alone: Backend) -> None:
    from acts_celery.worker.client.fork import Forker

    run = alone.client.submit(solution={"calls": [echo(1, "†state.a")]})
    fork = Forker(run.id, alone.redis, alone.settings).fork()
    with alone.worker():
        assert alone.wait(fork).data() == {"state": {"a": 1}}


def test_half_a_fork_is_never_executed_and_is_removed(alone: Backend, meeting: Meeting) -> None:
    plan = {"type": "plan", "calls": [echo("†state.n", "†state.a")]}
    many = 3_000
    context = [{"type": "state", "_instance": f"i{n}", "n": n} for n in range(many)]
    run = alone.client.submit([plan, *context])
    prefix = alone.settings.key_prefix
    alone.redis.config_set("notify-keyspace-events", "K$g")
    with alone.redis.pubsub() as written:  # type: ignore[no-untyped-call]  # redis is typed but here
        written.psubscribe(f"__keyspace@0__:{prefix}:*:definition")
        written.get_message(timeout=5)
        env = alone.settings.to_environment() | {"MEETING_URL": meeting.url}
        client = start("fork", run.id, env=env)
        assert written.get_message(timeout=30), "nothing was written"
        os.kill(client.pid, signal.SIGKILL)
        client.communicate()
        runs: Any = alone.redis.zrange(active_runs(prefix), 0, -1)
        (half,) = {name.decode() for name in runs} - {run.id}
        assert not alone.redis.exists(Keys(prefix, half).state)
        with alone.worker():
            alone.run([echo(1, "†state.a")])
            assert alone.keys(half)
            alone.redis.zadd(active_runs(prefix), {half: 1})
            while (event := written.get_message(timeout=30)) is not None and half not in str(event["channel"]):
                pass
            assert event is not None, "it was not removed"
    alone.redis.config_set("notify-keyspace-events", "")
    assert not alone.keys(half)
    assert alone.redis.zscore(active_runs(prefix), half) is None


def test_a_fork_is_made_by_command(backend: Backend) -> None:
    run = ended(backend)
    at = messages(run)[4][0]
    made = command(backend, "fork", run.id, "--at", at, "--paused", "--json", afresh=True)
    assert (made.code, made.json["status"]) == (0, "paused")
    assert made.json["forked_from"] == {"run": run.id, "at": at}
    assert command(backend, "resume", made.json["run"]).code == 0
    backend.wait(made.json["run"])
    told = command(backend, "fork", run.id).stdout.strip()
    assert backend.wait(told).status == "failed"
    assert command(backend, "fork", "nowhere").code == 4
