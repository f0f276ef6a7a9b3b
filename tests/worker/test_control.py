"""Orders to a run: pause, resume, cancel, and what they wait for."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice
from typing import Any

import pytest

from acts_celery import Run, RunNotFound, RunOver, activity
from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.store.keys import Keys

from .backend import DEADLINE_SECONDS, Backend, Meeting, heard, meeting_url, settings_apart, settings_for, status_of
from .pages import Asking, agree
from .test_control_cli import command
from .test_r17_1_codes import given_back
from .test_scheduler import DOORS, Process, process, servers

__all__ = ["process", "servers"]

# Pausing, resuming and cancelling runs (SPEC R11.1).

_names = count()


@pytest.fixture
def alone(server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory) -> Backend:
    """Queues and keys that only the workers of one test serve; they look after their runs often."""
    name = f"alone{next(_names)}"
    settings = settings_apart(server, name, lease_seconds=1.5, sweep_interval_seconds=0.2)
    return Backend(settings, meeting, tmp_path_factory.mktemp(name))


@pytest.fixture
def gate() -> str:
    return f"control{next(_names)}"


def echo(value: Any, path: str, **meta: Any) -> dict[str, Any]:
    return {"_tool": "echo", "value": value, "_outputPath": path, **meta}


def wait_at(gate: str, path: str = "†state.a", **meta: Any) -> dict[str, Any]:
    return {"_tool": "waitAtGate", "gate": gate, "value": 1, "_outputPath": path, **meta}


def first_ended_call(run: Run) -> int | None:
    """Wait for the first call to end."""
    return next(event.index for event in run.follow(timeout_seconds=30) if event.kind == "call")


def as_it_was_when_imported(backend: Backend, run: Run) -> None:
    """A run has the same calls once it was exported, deleted and imported."""
    calls, counts, lines = run.result().calls, run.status()["calls"], list(run.export())
    run.delete()
    again = backend.client.import_run(lines)
    assert [(call.status, call.error) for call in again.result().calls] == [(one.status, one.error) for one in calls]
    assert again.status()["calls"] == counts


def test_a_paused_run_takes_what_is_at_work_and_begins_nothing(backend: Backend, meeting: Meeting, gate: str) -> None:
    run = backend.client.submit(solution={"calls": [wait_at(gate), echo("†state.a", "†state.b")]})
    meeting.take(f"at:{gate}")
    run.pause()
    meeting.open_gate(gate)
    assert first_ended_call(run) == 0
    told = run.status()
    assert (told["status"], told["calls"]) == ("paused", {"done": 1, "waiting": 1})
    run.resume()
    assert backend.wait(run.id).data() == {"state": {"a": 1, "b": 1}}
    assert [event.status for event in run.follow() if event.kind == "run"] == [
        "running",
        "paused",
        "running",
        "completed",
    ]


def test_a_drive_that_is_at_work_through_pause_and_resume_goes_on(
    backend: Backend, meeting: Meeting, gate: str
) -> None:
    calls = [wait_at(gate), wait_at(f"{gate}-long", "†state.long"), echo("†state.a", "†state.b")]
    run = backend.client.submit(solution={"calls": calls})
    meeting.take(f"at:{gate}")
    meeting.take(f"at:{gate}-long")
    run.pause()
    meeting.open_gate(gate)
    assert first_ended_call(run) == 0
    run.resume()
    calls_ended = (event.index for event in run.follow(timeout_seconds=30) if event.kind == "call")
    assert [next(calls_ended), next(calls_ended)] == [0, 2]
    meeting.open_gate(f"{gate}-long")
    assert backend.wait(run.id).status == "completed"


def test_results_of_remote_calls_come_in_while_the_run_is_paused(backend: Backend, meeting: Meeting, gate: str) -> None:
    remote = {"_tool": "remoteWait", "gate": gate, "_outputPath": "†state.a"}
    run = backend.client.submit(solution={"calls": [remote, echo("†state.a", "†state.b")]})
    meeting.take(f"at:{gate}")
    run.pause()
    meeting.open_gate(gate)
    assert first_ended_call(run) == 0
    assert run.status()["calls"] == {"done": 1, "waiting": 1}
    run.resume()
    assert backend.wait(run.id).data() == {"state": {"a": 1, "b": 1}}


def test_lanes_that_wait_for_a_global_call_go_on_after_a_pause(backend: Backend, meeting: Meeting, gate: str) -> None:
    marks = ["①", "②", "③"]
    context = [{"type": "state", "_instance": mark, "mark": mark} for mark in marks]
    calls = [wait_at(gate), *(echo("†state.a", "†state.seen", _instance=mark) for mark in marks)]
    run = backend.client.submit(context, {"calls": calls})
    meeting.take(f"at:{gate}")
    run.pause()
    meeting.open_gate(gate)
    assert first_ended_call(run) == 0
    assert run.status()["calls"] == {"done": 1, "waiting": 3}
    run.resume()
    result = backend.wait(run.id)
    assert [result.data(mark)["state"]["seen"] for mark in marks] == [1, 1, 1]


def test_a_pause_survives_the_restart_of_all_workers(alone: Backend, meeting: Meeting, gate: str) -> None:
    with alone.worker() as victim:
        run = alone.client.submit(
            solution={"calls": [{"_tool": "hangOnce", "name": gate, "_outputPath": "†state.a"}, echo(1, "†state.b")]}
        )
        meeting.take(f"hanging:{gate}")
        run.pause()
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
    with alone.worker():
        for _ in range(3):
            alone.run([echo(1, "†state.a")])
        assert (run.status()["status"], meeting.attempts(gate)) == ("paused", 1)
    with alone.worker():
        run.resume()
        assert alone.wait(run.id).data()["state"] == {"a": 2, "b": 1}


@pytest.mark.parametrize("many", [1_500, pytest.param(4_000, marks=pytest.mark.nightly)])
def test_a_run_of_many_instances_is_paused_within_a_second_and_ends_complete(alone: Backend, many: int) -> None:
    calls = [echo("†state.n", "†state.a"), echo("†state.a", "†state.b")]
    context = [{"type": "state", "_instance": f"i{n}", "n": n} for n in range(many)]
    with alone.worker():
        run = alone.client.submit([{"type": "plan", "calls": calls}, *context])
        first_ended_call(run)
        begun = time.monotonic()
        run.pause()
        assert time.monotonic() - begun < 1
        paused = run.status()["calls"]
        assert 0 < paused["waiting"] < 2 * many
        alone.run([echo(1, "†state.a")])
        now = run.status()["calls"]
        assert now["waiting"] == paused["waiting"]
        run.resume()
        result = alone.wait(run.id)
    assert Counter(call.status for call in result.calls) == {"done": 2 * many}
    assert all(result.data(f"i{n}")["state"] == {"n": n, "a": n, "b": n} for n in range(many))
    assert sum(1 for entry in run.log() if "_call" in entry.message) == 2 * many


def test_workers_resume_what_a_client_that_died_has_not_published(alone: Backend, meeting: Meeting, gate: str) -> None:
    with alone.worker():
        run = alone.client.submit(solution={"calls": [wait_at(gate), echo("†state.a", "†state.b")]})
        meeting.take(f"at:{gate}")
        run.pause()
        meeting.open_gate(gate)
        first_ended_call(run)
        alone.redis.hset(Keys(alone.settings.key_prefix, run.id).state, "status", "running")
        assert alone.wait(run.id).status == "completed"


def test_a_cancelled_run_takes_no_result_and_skips_what_had_not_begun_and_nothing_else(
    backend: Backend, meeting: Meeting, gate: str
) -> None:
    failing = {"_tool": "explode", "_outputPath": "†state.x"}
    calls = [echo(1, "†state.early"), wait_at(gate), echo("†state.a", "†state.b"), failing]
    run = backend.client.submit(solution={"calls": calls})
    meeting.take(f"at:{gate}")
    ended = list(islice(run.follow(timeout_seconds=30), 3))
    assert [event.kind for event in ended] == ["run", "call", "call"]
    run.cancel()
    meeting.open_gate(gate)
    result = backend.wait(run.id)
    assert result.status == "cancelled"
    assert [call.status for call in result.calls] == ["done", "failed", "skipped", "failed"]
    assert (result.calls[1].error or {})["type"] == "Unknown", "nobody heard of its end"
    assert [call.reason for call in result.calls] == [None, "the run was cancelled", "the run was cancelled", None]
    assert run.status() == {"run": run.id, "status": "cancelled", "calls": {"done": 1, "failed": 2, "skipped": 1}}
    assert "a" not in result.data()["state"]
    as_it_was_when_imported(backend, run)


@pytest.mark.parametrize("is_each", [False, True])
def test_r4_11_a_call_between_two_attempts_is_failed_when_its_run_is_cancelled(
    backend: Backend, meeting: Meeting, gate: str, is_each: bool
) -> None:
    failing = {"_tool": "failUntilTomorrow", "name": gate, "_outputPath": "†state.a"}
    each = {"name": "†state.names", "_each": "name"} if is_each else {}
    context = [{"type": "state", "names": [gate]}]
    run = backend.client.submit(context, {"calls": [failing | each, echo("†state.a", "†state.b")]})
    assert meeting.take(gate) == 1
    while "attempt" not in [one["for"] for one in run.status().get("waiting_for", [])]:
        time.sleep(0.01)
    run.cancel()
    result = run.result()
    assert [call.status for call in result.calls] == ["failed", "skipped"]
    assert [call.reason for call in result.calls] == ["the run was cancelled"] * 2
    error = result.calls[0].error or {}
    assert error["type"] == ("Unknown" if is_each else "Stopped")
    assert is_each or "attempt 1 failed" in error["message"]
    assert run.status()["calls"] == {"failed": 1, "skipped": 1}
    assert run.result(at=f"{10**15}-0").calls == result.calls
    assert meeting.count(gate) == 0
    agree(Asking(backend, run))
    as_it_was_when_imported(backend, run)


@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_coroutines_of_a_cancelled_run_are_cancelled(alone: Backend, meeting: Meeting, gate: str, pool: str) -> None:
    call = {"_tool": "waitForCancellation", "name": gate, "_outputPath": "†state.a"}
    with alone.worker("-P", pool, "-c", "2"):
        run = alone.client.submit(solution={"calls": [call]})
        meeting.take(f"waiting:{gate}")
        run.cancel()
        meeting.take(f"cancelled:{gate}")


def test_remote_calls_of_a_cancelled_run_are_cancelled_and_those_in_the_queue_dropped(
    alone: Backend, meeting: Meeting, gate: str
) -> None:
    calls = [
        {"_tool": "x", "_delegate": "neverAnswers", "name": f"{gate}{n}", "_outputPath": f"†state.s{n}"}
        for n in range(2)
    ]
    last = {"_tool": "x", "_delegate": "showContext", "_outputPath": "†state.s"}
    with alone.worker("-Q", alone.settings.queue_instances), alone.worker("-Q", alone.settings.queue_delegates, "-c1"):
        run = alone.client.submit(solution={"calls": calls})
        at_work = next(n for n in range(2) if meeting.redis.blpop([f"record:waiting:{gate}{n}"], 5))
        run.cancel()
        meeting.take(f"cancelled:{gate}{at_work}")
        assert alone.run([last]).status == "completed"
        assert meeting.count(f"waiting:{gate}{1 - at_work}") == 0
    assert alone.wait(run.id).status == "cancelled"


@pytest.mark.parametrize("pool", ["coroutines", "prefork"])
def test_a_remote_coroutine_of_a_cancelled_run_is_stopped_while_its_worker_ends_and_in_any_pool(
    alone: Backend, meeting: Meeting, gate: str, pool: str
) -> None:
    call = {"_tool": "x", "_delegate": "neverAnswers", "name": gate, "_outputPath": "†state.a"}
    with alone.worker("--pool", pool, "-c", "2") as worker:
        run = alone.client.submit(solution={"calls": [call]})
        meeting.take(f"waiting:{gate}")
        worker.terminate()
        heard(alone, "stopping: no more calls")
        run.cancel()
        meeting.take(f"cancelled:{gate}")
        assert worker.wait(20) == 0


def test_what_was_sent_and_forgotten_has_left_a_run_that_is_cancelled(alone: Backend, meeting: Meeting) -> None:
    name = f"note{next(_names)}"
    with alone.worker("-Q", alone.settings.queue_instances):
        run = alone.client.submit(
            solution={"calls": [{"_tool": "note", "name": name}, wait_at(name, _instance="①")]},
            context=[{"type": "state", "_instance": "①"}],
        )
        meeting.take(f"at:{name}")
        assert first_ended_call(run) == 0
        with alone.worker("-Q", alone.settings.queue_background):
            run.cancel()
            assert meeting.take(name)["call"]["name"] == name
        meeting.open_gate(name)
    assert status_of(run.result(), 0) == "sent"


def test_orders_may_be_repeated(backend: Backend, meeting: Meeting, gate: str) -> None:
    run = backend.client.submit(solution={"calls": [wait_at(gate)]})
    for order in (run.pause, run.pause, run.resume, run.resume, run.pause, run.cancel, run.cancel):
        order()
    meeting.open_gate(gate)
    assert [event.status for event in run.follow() if event.kind == "run"] == [
        "running",
        "paused",
        "running",
        "paused",
        "cancelled",
    ]


def test_an_ended_run_takes_no_orders_and_says_why(backend: Backend) -> None:
    run = backend.client.submit(solution={"calls": [echo(1, "†state.a")]})
    backend.wait(run.id)
    for order, done in ((run.pause, "paused"), (run.resume, "resumed"), (run.cancel, "cancelled")):
        with pytest.raises(RunOver, match=f"run {run.id} is completed: it cannot be {done} any more"):
            order()


def test_a_run_that_is_not_there_takes_no_orders(backend: Backend) -> None:
    with pytest.raises(RunNotFound):
        backend.client.run_of("nowhere").pause()


# What a lane's runner holds while it waits: a scheduler in this process on a server of its own.

LATER_SECONDS = 0.3
BEGUN: list[float] = []
FIRST = threading.Event()


@activity(retries=1, backoff_seconds=0.001)
async def failFirst() -> int:
    BEGUN.append(time.monotonic())
    if len(BEGUN) == 1:
        FIRST.set()
        raise ConnectionError("not yet")
    return len(BEGUN)


def until(reached: Any) -> None:
    """Ask a server until something is so."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not reached():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_call_that_rests_is_begun_when_it_comes_as_due_also_where_its_lane_was_read_anew(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acts_celery.worker.runner.step.CLOCKS_DIFFER_SECONDS", LATER_SECONDS)
    run = process.submit([{"_tool": "failFirst", "_outputPath": "†state.a"}])
    calls = Keys("acts", run.id).calls

    def is_due() -> bool:
        """Whether the log would let it be begun."""
        entry: Any = process.redis.hget(calls, "\x1f0") or b":::"
        now: Any = process.redis.time()
        kind, _, _, due = entry.decode().split(":", 3)
        return bool(kind == "retry" and float(due) < now[0] * 1000 + now[1] / 1000)

    with process.driving(run):
        assert FIRST.wait(DEADLINE_SECONDS)
        until(is_due)
        process.drive(run)  # somebody says that there is something new: the lane is read anew
    assert run.result().data()["state"] == {"a": 2}
    assert BEGUN[1] - BEGUN[0] > LATER_SECONDS


def test_a_runner_that_waits_for_a_global_call_stays_while_calls_run_in_line(process: Process) -> None:
    context = [{"type": "state", "_instance": "①", "n": 1}]
    calls = [
        {"_tool": "remoteAdd", "a": 1, "b": 0, "_outputPath": "†state.g"},
        {"_tool": "waitAtDoor", "name": "parked", "_instance": "①", "_outputPath": "†state.a"},
        {"_tool": "echo", "value": ["†state.g", "†state.a"], "_instance": "①", "_outputPath": "†state.b"},
    ]
    run = process.client.submit(context, {"calls": calls})
    keys = Keys("acts", run.id)
    process.drive(run)
    with ThreadPoolExecutor(1) as pool:
        driven = pool.submit(process.run, lambda scheduler: scheduler.drive(run.id, "①"))
        until(lambda: process.redis.zscore(keys.parked, "①") is not None)
        leases: Any = process.redis.zrange(keys.leases, 0, -1)
        assert [one for one in leases if one.decode().startswith("①\x1f@")], "who looks after what runs in line"
        DOORS.open("parked")
        process.deliver(run, 1)
        driven.result(DEADLINE_SECONDS)
    process.run(lambda scheduler: scheduler.drive(run.id, "①"))
    assert run.result().data("①")["state"]["b"] == [{"sum": 0}, 1]


# `acts status` and `acts explain` say what a call waits for that is no call, `acts doctor` which queue is deserted.

Json = dict[str, Any]
OLD = """
from acts_celery import activity, delegate

@activity(queue="background.old")
def moved(n: int) -> int:
    return n

@activity
def vanishing(n: int) -> int:
    return n

@activity(queue="apart", max_concurrency=1)
def single(n: int) -> int:
    return n
"""
NEW = """
from acts_celery import activity

@activity(queue="background.new")
def moved(n: int) -> int:
    return n

@activity(queue="apart", max_concurrency=1)
def single(n: int) -> int:
    return n
"""


@pytest.fixture(scope="module")
def moving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    folder = tmp_path_factory.mktemp("waits")
    with EmbeddedServer() as server:
        (folder / "code.py").write_text(OLD, encoding="utf-8")
        settings = settings_for(server, activities=(str(folder / "code.py"),))
        yield Backend(settings, Meeting(meeting_url(server)), folder)


def reasons(backend: Backend, run: Run, most: int) -> dict[str, tuple[str, str]]:
    """What calls wait for, once that is told of so many."""
    found: dict[str, tuple[str, str]] = {}
    while len(found) < most:
        told = run.status().get("waiting_for", [])
        found = {one["call"]: (one["for"], one["reason"]) for one in told}
    return found


def test_what_a_call_waits_for_is_said(moving: Backend) -> None:
    backend = moving
    calls: list[Json] = [
        {"_tool": "moved", "n": 1, "_outputPath": "†state.a"},
        {"_tool": "vanishing", "n": 2, "_outputPath": "†state.b"},
        {"_tool": "single", "n": 3, "_outputPath": "†state.c"},
        {"_tool": "single", "n": 4, "_outputPath": "†state.d"},
    ]
    lanes = ("-Q", "instances,background,delegates")
    with backend.worker("--name", "old@here", *lanes):
        run = backend.client.submit([], {"calls": calls[:1]})
        while b"sent" not in (backend.redis.hget(Keys("acts", run.id).calls, "\x1f0") or b""):
            time.sleep(0.02)
    (backend.folder / "code.py").write_text(NEW, encoding="utf-8")
    with backend.worker("--name", "new@here", "-Q", "instances,background,delegates,background.new"):
        other = backend.client.submit([], {"calls": calls[1:]})
        given_back(backend, other, {0})
        found = reasons(backend, other, 2)
        assert found["0"][0] == "code"
        assert "new@here has no activity 'vanishing'" in found["0"][1]
        (slot,) = [reason for what, reason in found.values() if what == "slot"]
        assert "slot of activity:single (limit 1), held by call" in slot
        (what, why) = reasons(backend, run, 1)["0"]
        assert what == "queue"
        assert "has been in the queue background.old" in why
        told = command(backend, "status", run.id).stdout
        assert "call 0 waits: its message has been in the queue background.old" in told
        told = command(backend, "explain", other.id, "†state.b").stdout
        assert "waiting: no worker's code admits it" in told
        doctor = command(backend, "doctor")
        assert doctor.code == 3
        assert f"no worker serves background.old: a call of run {run.id} lies there" in doctor.stdout
        assert "acts worker --queues background.old" in doctor.stdout
        with backend.worker("--name", "late@here", "-Q", "background.old,apart"):
            assert backend.wait(run.id).data()["state"] == {"a": 1}
        assert "waiting_for" not in run.status()
        other.cancel()
        assert "background.old" not in command(backend, "doctor").stdout


def test_a_person_a_promise_and_a_paused_run_are_said(backend: Backend) -> None:
    promise = {"type": "input", "schema": {"properties": {"n": {"type": "integer"}, "o": {}}}}
    calls = [
        {"_tool": "echo", "value": 1, "_outputPath": "†state.a"},
        {"_tool": "echo", "value": "†input.n", "_outputPath": "†state.b"},
        {"_tool": "echo", "value": "†state.b", "_outputPath": "†state.c"},
        {"_tool": "echo", "value": "†input.o", "_outputPath": "†state.d", "_instance": "①"},
    ]
    document = {
        "context": [promise, {"type": "state", "_instance": "①", "x": 1}],
        "solution": {"calls": calls},
        "config": {"promise_seconds": 3600, "approve": ["echo"], "approve_seconds": 3600},
    }
    run = backend.client.submit_document(document)
    found = reasons(backend, run, 3)
    assert {call: what for call, (what, _) in found.items()} == {"0": "person", "1": "promise", "3:①": "promise"}
    assert f"for a person: `acts held {run.id}` shows it" in found["0"][1]
    assert "it is rejected in 3" in found["0"][1]
    assert "for †input.n, which is promised" in found["1"][1]
    run.send({"type": "input", "_instance": "①", "input": {"o": 1}})
    while {call: what for call, (what, _) in reasons(backend, run, 3).items()} != {
        "0": "person",
        "1": "promise",
        "3:①": "person",
    }:
        pass
    run.pause()
    assert f"the run waits: it is paused: `acts resume {run.id}`" in command(backend, "status", run.id).stdout
    told = command(backend, "explain", run.id, "†state.c").stdout
    assert "writes †state.b, which call 2 lacks: waiting: for †input.n, which is promised" in told
    assert "a schema has promised it" in command(backend, "explain", run.id, "†input.n").stdout
    assert "for a person: `acts held" in command(backend, "explain", run.id, "†state.a").stdout
    run.cancel()
    assert "waiting_for" not in run.status()
