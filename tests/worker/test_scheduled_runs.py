"""Runs that begin at a time: until then nobody works on them, and nothing that dies meanwhile keeps them from it."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from acts_celery import Run
from acts_celery.broker_config import EmbeddedServer
from acts_celery.protocol import Rejected
from acts_celery.worker.ui import Page

from .backend import DEADLINE_SECONDS, Backend, Meeting, settings_for
from .test_control_cli import command
from .test_house_faults import AppendedServer

FAR = "2031-01-01T00:00:00+01:00"
"""Later than any test runs."""
CALLS = {"calls": [{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}]}


def soon(seconds: float = 2) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


def until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def begun(run: Run[Any]) -> datetime:
    """When the run began, as its log says."""
    [event] = [event for event in run.follow() if event.kind == "run" and event.status == "running"]
    return datetime.fromtimestamp(int(event.id.partition("-")[0]) / 1000, UTC)


def test_it_begins_at_its_time_and_not_before(backend: Backend) -> None:
    at = soon()
    run = backend.client.submit([], CALLS, at=at)
    assert run.status()["status"] == "scheduled"
    assert backend.wait(run.id).data()["state"] == {"a": 1}
    assert at - timedelta(milliseconds=1) <= begun(run)


def test_a_time_that_is_past_begins_it_at_once(backend: Backend) -> None:
    run = backend.client.submit([], CALLS, at="2020-02-29T12:00:00Z")
    assert run.status()["status"] in ("running", "completed")
    assert backend.wait(run.id).status == "completed"


def test_its_instances_are_scheduled_as_well(backend: Backend) -> None:
    plan: list[dict[str, Any]] = [{"type": "state", "_instance": "①"}, {"type": "plan", "calls": CALLS["calls"]}]
    run = backend.client.submit(plan, at=FAR)
    assert dict(run.result().instance_status) == {"①": "scheduled"}
    assert "1 instance: 1 scheduled" in command(backend, "status", run.id).stdout
    run.cancel()
    assert backend.wait(run.id).status == "cancelled"


def test_it_says_when_it_begins_and_holds_nothing_until_then(backend: Backend) -> None:
    run = backend.client.submit([], CALLS, at=FAR)
    shown = run.status()
    assert (shown["status"], shown["at"], shown["calls"]) == ("scheduled", "2030-12-31T23:00:00.000Z", {"waiting": 1})
    assert [(one["call"], one["for"]) for one in shown["waiting_for"]] == [(None, "moment")]
    assert [one.run for one in backend.client.runs(status="scheduled")] == [run.id]
    assert not backend.redis.exists(f"{backend.settings.key_prefix}:{{{run.id}}}:published")
    run.cancel()
    assert backend.wait(run.id).status == "cancelled"


def test_status_explain_and_the_page_say_its_moment_and_its_priority(backend: Backend) -> None:
    run = backend.client.submit([], CALLS, at=FAR, priority=7)
    for shown in (command(backend, "status", run.id), command(backend, "explain", run.id, "state.a")):
        assert "it begins at 2030-12-31T23:00:00.000Z" in shown.stdout
        assert "priority 7" in shown.stdout
    page = Page(backend.redis, backend.settings)
    overview = page.answer(f"runs/{run.id}")
    assert (overview["priority"], overview["at"]) == (7, "2030-12-31T23:00:00.000Z")
    assert [(one["call"], one["for"]) for one in overview["waiting_for"]] == [(None, "moment")]
    missing = page.answer(f"runs/{run.id}/place", {"path": "†state.a"})["missing"]
    assert missing["priority"] == 7
    assert "it begins at 2030-12-31T23:00:00.000Z" in missing["why"][0]["reason"]
    run.cancel()


def test_to_resume_it_is_to_begin_it_now(backend: Backend) -> None:
    run = backend.client.submit([], CALLS, at=FAR)
    run.resume()
    assert backend.wait(run.id).status == "completed"
    assert "at" not in run.status()


def test_what_is_paused_meanwhile_does_not_begin_by_itself(backend: Backend) -> None:
    run = backend.client.submit([], CALLS, at=soon(0.5))
    run.pause()
    later = backend.client.submit([], CALLS, at=soon(1))
    assert backend.wait(later.id).status == "completed"
    assert run.status()["status"] == "paused"
    run.resume()
    assert backend.wait(run.id).status == "completed"


def test_messages_and_other_calls_may_come_before_it_begins(backend: Backend) -> None:
    reads = {"calls": [{"_tool": "echo", "value": "†state.given", "_outputPath": "†state.a"}]}
    run = backend.client.submit([{"type": "state", "given": 1}], reads, at=FAR)
    run.send({"type": "state", "given": 2})
    run.amend({"calls": [{"_tool": "echo", "value": "†state.given", "_outputPath": "†state.b"}]})
    assert run.status()["status"] == "scheduled"
    run.resume()
    assert backend.wait(run.id).data()["state"] == {"given": 2, "b": 2}


def test_wide_runs_and_what_is_sent_and_forgotten_begin_then_too(backend: Backend) -> None:
    context = [{"type": "state", "_instance": f"i{number}"} for number in range(30)]
    calls = [{"_tool": "echo", "value": 1, "_instance": f"i{number}"} for number in range(30)]
    run = backend.client.submit(context, {"calls": calls}, at=soon(1))
    assert run.status()["calls"] == {"waiting": 30}
    assert {call.status for call in backend.wait(run.id).calls} == {"sent"}


def test_the_command_takes_a_moment_and_refuses_what_is_none(backend: Backend, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text('{"solution": {"calls": [{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}]}}')
    submitted = command(backend, "submit", str(file), "--at", FAR, "--json")
    run = backend.client.run(submitted.json["run"])
    assert "it begins at 2030-12-31T23:00:00.000Z" in command(backend, "status", run.id).stdout
    run.cancel()
    assert command(backend, "submit", str(file), "--at", "tomorrow").code == 2
    with pytest.raises(Rejected, match="with its offset from UTC"):
        backend.client.submit([], CALLS, at=datetime(2031, 1, 1))  # noqa: DTZ001  # the point of it
    lazy = {"context": [{"type": "plan", "mode": "lazy", **CALLS}]}
    with pytest.raises(Rejected, match="leave `at` out"):
        backend.client.submit(lazy, at=FAR)


def test_it_begins_although_everything_dies_before(meeting: Meeting, tmp_path: Path) -> None:
    with EmbeddedServer() as server:
        before = Backend(settings_for(server), meeting, tmp_path)
        before.redis.config_set("appendonly", "yes")
        with before.worker() as victim:
            run = before.client.submit([], CALLS, at=soon(3), id="once")
            os.kill(victim.pid, signal.SIGKILL)
        before.redis.config_set("auto-aof-rewrite-percentage", 0)
        until(lambda: not before.redis.info("persistence")["aof_rewrite_in_progress"])
        shutil.copytree(server.directory / "appendonlydir", tmp_path / "appendonlydir")
    with AppendedServer(tmp_path) as restored:
        after = Backend(settings_for(restored), meeting, tmp_path)
        assert after.client.run(run.id).status()["status"] == "scheduled"
        with after.worker(), after.worker():
            assert after.wait(run.id).status == "completed"
        assert begun(after.client.run(run.id)) < datetime.now(UTC), "once"
