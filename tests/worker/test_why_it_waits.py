"""`acts status` and `acts explain` say what a call waits for that is no call, `acts doctor` which queue is deserted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from acts_celery import Run
from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.store.keys import Keys

from .backend import Backend, Meeting, meeting_url, settings_for
from .test_control_cli import command
from .test_r17_3_given_back import given_back

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
            pass
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
        assert "lies in the queue background.old" in why
        told = command(backend, "status", run.id).stdout
        assert "call 0 waits: its message lies in the queue background.old" in told
        told = command(backend, "explain", other.id, "†state.b").stdout
        assert "waiting: for" in told
        assert "no worker's code admits it" in told
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
