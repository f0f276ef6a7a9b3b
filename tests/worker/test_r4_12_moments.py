"""SPEC R4.12: calls that wait for a moment; nobody is at work on them meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from acts_celery import Run
from acts_celery.broker_config import EmbeddedServer
from acts_celery.protocol import Rejected
from acts_celery.worker.errors import NotHeld, RunOver

from .backend import DEADLINE_SECONDS, Backend, Meeting, settings_for
from .test_control_cli import command
from .test_house_faults import AppendedServer

FAR = "2031-01-01T00:00:00+01:00"
"""Later than any test runs."""


def waiting(**when: Any) -> dict[str, Any]:
    return {"_tool": "wait", **when, "_outputPath": "†state.waited"}


AFTER = {"_tool": "echo", "value": 1, "_outputPath": "†state.after", "_after": ["†state.waited"]}


def submitted(backend: Backend, **when: Any) -> Run[Any]:
    """A run whose only open call waits for a moment."""
    run = backend.client.submit([], {"calls": [waiting(**when), AFTER]})
    until(lambda: waits_for(run) == ["moment"])
    return run


def waits_for(run: Run[Any]) -> list[str]:
    return [one["for"] for one in run.status().get("waiting_for", ())]


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def kept(backend: Backend, run: Run[Any], name: str) -> Any:
    """What a sorted set of a run holds."""
    return backend.redis.zrange(f"{backend.settings.key_prefix}:{{{run.id}}}:{name}", 0, -1, withscores=True)


@pytest.mark.parametrize("when", [{"seconds": 0}, {"seconds": 0.2}, {"until": "2020-02-29T12:00:00Z"}])
def test_what_is_to_follow_runs_when_the_moment_has_come(backend: Backend, when: dict[str, Any]) -> None:
    result = backend.run([waiting(**when), AFTER])
    assert [call.status for call in result.calls] == ["done", "done"]
    assert result.data()["state"]["waited"].startswith("20")


def test_a_waiting_call_says_until_when_and_holds_no_worker_lease_or_slot(backend: Backend) -> None:
    run = submitted(backend, until=FAR)
    call, after = run.result().calls
    assert (call.status, call.until, after.status) == ("waiting", "2030-12-31T23:00:00.000Z", "waiting")
    assert waits_for(run) == ["moment"]
    assert run.status()["calls"] == {"waiting": 2}
    assert list(run.held()) == []
    assert "held" not in {event.kind for event in islice(run.follow(), 1)}, "no person is asked"
    assert not [name for name, _ in kept(backend, run, "leases") if name.rpartition(b"\x1f")[2][:1] != b"@"]
    run.cancel()


def test_a_person_moves_the_moment_and_the_log_says_who(backend: Backend) -> None:
    run = submitted(backend, until=FAR)
    with pytest.raises(Rejected):
        run.move(0, "tomorrow")
    with pytest.raises(NotHeld):
        run.move(1, 0)
    run.move(0, 3600, by="Ann")
    assert str(run.result().calls[0].until) < "2030"
    moved = command(backend, "move", run.id, "0", "2020-01-01T00:00:00Z", "--json")
    assert moved.code == 0
    assert [call.status for call in backend.wait(run.id).calls] == ["done", "done"]
    with pytest.raises(RunOver):
        run.move(0, 0)


def test_what_nobody_can_decide_is_no_question(backend: Backend) -> None:
    run = submitted(backend, until=FAR)
    with pytest.raises(NotHeld):
        run.approve(0, shown="x")
    with pytest.raises(NotHeld):
        run.reject(0, "no", shown="x")
    run.cancel()
    assert backend.wait(run.id).status == "cancelled"


def test_it_survives_the_death_of_all_workers(own: Backend) -> None:
    with own.worker() as victim:
        run = submitted(own, until=FAR)
        os.kill(victim.pid, signal.SIGKILL)
    run.move(0, 0)
    with own.worker():
        assert [call.status for call in own.wait(run.id).calls] == ["done", "done"]


def test_while_a_run_is_paused_no_moment_comes_and_then_it_does(backend: Backend) -> None:
    run = submitted(backend, until=FAR)
    run.pause()
    run.move(0, 0)
    assert run.status()["status"] == "paused"
    run.resume()
    assert backend.wait(run.id).status == "completed"


def test_a_fork_waits_for_the_same_moment(backend: Backend) -> None:
    run = submitted(backend, until=FAR)
    fork = run.fork()
    assert [due for _, due in kept(backend, fork, "waits")] == [due for _, due in kept(backend, run, "waits")]
    fork.move(0, 0)
    assert backend.wait(fork.id).status == "completed"
    run.cancel()


def test_a_moment_that_is_none_fails_the_call_when_it_is_read(backend: Backend) -> None:
    context = [{"type": "state", "when": "soon"}]
    result = backend.run([waiting(until="†state.when")], context)
    assert (result.calls[0].status, dict(result.calls[0].error or {})["type"]) == ("failed", "InvalidParameters")


def test_a_moment_comes_once_although_the_worker_and_the_server_die(meeting: Meeting, tmp_path: Path) -> None:
    with EmbeddedServer() as server:
        before = Backend(settings_for(server), meeting, tmp_path)
        before.redis.config_set("appendonly", "yes")
        with before.worker() as victim:
            run = submitted(before, until=FAR)
            os.kill(victim.pid, signal.SIGKILL)
        run.move(0, 0)
        before.redis.config_set("auto-aof-rewrite-percentage", 0)
        until(lambda: not before.redis.info("persistence")["aof_rewrite_in_progress"])
        shutil.copytree(server.directory / "appendonlydir", tmp_path / "appendonlydir")
    with AppendedServer(tmp_path) as restored:
        after = Backend(settings_for(restored), meeting, tmp_path)
        assert waits_for(after.client.run(run.id)) == ["moment"]
        with after.worker(), after.worker():
            assert [call.status for call in after.wait(run.id).calls] == ["done", "done"]
        decided = [
            entry
            for entry in after.redis.xrange(f"{after.settings.key_prefix}:{{{run.id}}}:log") or ()
            if b"decided" in (entry[1] or ())
        ]
        assert len(decided) == 1


def test_a_wait_that_a_person_has_to_approve_waits_for_its_moment_behind_that(backend: Backend) -> None:
    run = backend.client.submit([], {"calls": [waiting(until=FAR), AFTER]}, config={"approve": ["wait"]})
    until(lambda: waits_for(run) == ["person"])
    with pytest.raises(NotHeld):
        run.move(0, 0)
    (held,) = run.held()
    run.approve(0, parameters={"until": "2030-01-01T00:00:00Z"}, shown=held["shown"])
    until(lambda: waits_for(run) == ["moment"])
    assert run.result().calls[0].until == "2030-01-01T00:00:00.000Z"
    run.move(0, 0)
    assert backend.wait(run.id).status == "completed"


def test_amending_retrying_cancelling_and_deleting_leave_no_moment_behind(backend: Backend) -> None:
    run = submitted(backend, until=FAR)
    run.amend({"calls": [{"_tool": "echo", "value": 2, "_outputPath": "†state.b"}]})
    assert backend.wait(run.id).data()["state"]["b"] == 2
    assert kept(backend, run, "waits") == []
    failing = {"_tool": "failUntilMended", "name": "moments", "_outputPath": "†state.when"}
    run = backend.client.submit([], {"calls": [waiting(until=FAR), failing]})
    until(lambda: waits_for(run) == ["moment"] and run.status()["calls"].get("failed") == 1)
    run.retry()
    until(lambda: run.status()["calls"] == {"waiting": 1, "failed": 1})
    assert run.result().calls[0].until == "2030-12-31T23:00:00.000Z"
    run.cancel()
    assert [call.status for call in run.result().calls] == ["skipped", "failed"]
    run.delete()
    assert not backend.keys(run.id)


def test_an_imported_run_can_be_forked_and_waits_for_the_same_moment(backend: Backend) -> None:
    run = submitted(backend, until=FAR)
    run.move(0, "2030-01-01T00:00:00Z")
    lines = list(run.export())
    run.cancel()
    run.delete()
    imported = backend.client.import_run(lines)
    assert imported.result().calls[0].until == "2030-01-01T00:00:00.000Z"
    fork = imported.fork()
    until(lambda: waits_for(fork) == ["moment"])
    assert fork.result().calls[0].until == "2030-01-01T00:00:00.000Z"
    fork.move(0, 0)
    assert backend.wait(fork.id).status == "completed"
