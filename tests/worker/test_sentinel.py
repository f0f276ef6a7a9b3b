"""The log, and the broker, on a master that Sentinels name: sentinel:// addresses, and a failover during a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from acts_celery import Run
from acts_celery.broker_config import EmbeddedServer, Settings, load
from acts_celery.worker.store.connections import connect

from .backend import ACTIVITIES, MODEL, Backend, Meeting, meeting_url
from .sentinels import Watched, watched_servers


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    with watched_servers(tmp_path) as servers:
        yield servers


@pytest.fixture
def backend(watched: Watched, tmp_path: Path) -> Iterator[Backend]:
    """Workers and clients that know the Sentinel alone; the tests meet elsewhere."""
    with EmbeddedServer() as elsewhere:
        yield Backend(settings_at(watched.url), Meeting(meeting_url(elsewhere)), tmp_path)


def settings_at(url: str) -> Settings:
    return load(env_file=None, broker_url=url, activities=(str(ACTIVITIES),), model=MODEL)


def calls(gate: str) -> list[dict[str, object]]:
    """One call of each kind; the second waits at a gate."""
    return [
        {"_tool": "echo", "value": 1, "_outputPath": "†state.a"},
        {"_tool": "waitAtGate", "gate": gate, "value": "†state.a", "_outputPath": "†state.b"},
        {"_tool": "remoteAdd", "a": "†state.b", "b": 1, "_outputPath": "†state.c"},
        {"_tool": "note", "name": "told"},
    ]


def test_a_run_whose_log_and_broker_sentinels_name_completes(backend: Backend) -> None:
    backend.meeting.open_gate("open")
    with backend.worker():
        result = backend.run(calls("open"))
    assert result.data()["state"] == {"a": 1, "b": 1, "c": {"sum": 2}}


def test_a_run_outlives_a_failover(backend: Backend, watched: Watched) -> None:
    with backend.worker():
        run: Run = backend.client.submit(solution={"calls": calls("later")})
        backend.meeting.take("at:later")
        with connect(backend.settings) as redis:
            redis.set("last", "write")
            assert redis.wait(1, 10_000) == 1, "the replica has everything"
        before = watched.master_port
        assert watched.kill_master() != before
        backend.meeting.open_gate("later")
        assert backend.wait(run.id).data()["state"] == {"a": 1, "b": 1, "c": {"sum": 2}}
        more = backend.run([{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}])
        assert more.status == "completed"
