"""What is said while nothing happens: which queue has no worker, which worker lacks code, that the log is full."""

from __future__ import annotations

import threading
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from acts_celery import InfrastructureError
from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.cli import run as no_worker_hint
from tests.acceptance.backend import server_settings
from tests.acceptance.command import acts

from .backend import ACTIVITIES, Backend, Meeting, meeting_url, settings_for
from .test_control_cli import command


def test_a_run_that_waits_says_which_queue_has_no_worker(tmp_path: Path) -> None:
    submission = {"solution": {"calls": [{"_tool": "remoteAdd", "a": 1, "b": 2, "_outputPath": "†state.n"}]}}
    with EmbeddedServer() as server:  # of its own: no other test's worker serves that queue
        alone = Backend(settings_for(server), Meeting(meeting_url(server)), tmp_path)
        with alone.worker("-Q", "instances"):
            told = command(alone, "run", "-", "--timeout", "10", "--json", stdin=submission)
    assert told.code == 3
    assert told.stderr.splitlines()[0] == (
        "acts: no worker is known to serve lathe: acts worker --queues lathe; see `acts doctor`"
    )


def test_a_run_that_waits_says_whose_code_is_missing(backend: Backend, tmp_path: Path) -> None:
    more = tmp_path / "more.py"
    more.write_text("from acts_celery import activity\n\n\n@activity\ndef onlyAsked() -> int: return 1\n")
    submission = {"solution": {"calls": [{"_tool": "onlyAsked", "_outputPath": "†state.n"}]}}
    told = command(backend, "run", "-", "--timeout", "8", "--json", "--activities", str(more), stdin=submission)
    assert told.code == 3
    assert "no worker's code admits it" in told.stderr.splitlines()[0]
    assert "has no activity 'onlyAsked'" in told.stderr.splitlines()[0]


def test_a_log_that_is_away_is_left_to_whoever_waits_for_the_run(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waiting() -> list[Any]:
        asking.put(threading.current_thread())
        raise InfrastructureError("no answer from the log")

    monkeypatch.setattr("acts_celery.worker.limits.RUN_QUIET_SECONDS", 0.0)
    asking: SimpleQueue[threading.Thread] = SimpleQueue()
    with no_worker_hint.no_worker_hint(backend.settings, list, waiting):
        thread = asking.get(timeout=60)
        thread.join(60)  # what is raised in a thread fails a test
    assert not thread.is_alive()


def test_a_run_that_is_soon_over_says_nothing(backend: Backend) -> None:
    submission = {"solution": {"calls": [{"_tool": "echo", "value": 1, "_outputPath": "†state.n"}]}}
    assert command(backend, "run", "-", "--json", stdin=submission).stderr == ""


def layer(document: Any, name: str) -> dict[str, Any]:
    return next(one for one in document["layers"] if one["layer"] == name)


def test_the_doctor_says_which_activities_a_worker_lacks(aside: Backend, tmp_path: Any) -> None:
    more = tmp_path / "more.py"
    more.write_text("from acts_celery import activity, delegate\n\n\n@activity\ndef onlyHere() -> None: ...\n")
    settings = aside.settings.model_copy(update={"activities": (str(ACTIVITIES), str(more))})
    env = settings.to_environment() | {"MEETING_URL": aside.meeting.url}
    workers = layer(acts("doctor", "--json", env=env).json, "workers")
    assert (workers["ok"], "does not know onlyHere" in workers["detail"]) == (False, True)
    assert "with the same --activities" in workers["remedy"]
    known = layer(command(aside, "doctor", "--json").json, "workers")
    assert (known["ok"], "does not know" in known["detail"]) == (True, False)


def test_the_doctor_says_that_the_log_is_full_or_loses_messages() -> None:
    with EmbeddedServer() as server:
        import redis

        with redis.Redis.from_url(server.redis_url) as connection:
            connection.config_set("maxmemory", "1000")
            full = layer(acts("doctor", "--json", env=server_settings(server)).json, "log")
            connection.config_set("maxmemory-policy", "allkeys-lru")
            evicts = layer(acts("doctor", "--json", env=server_settings(server)).json, "log")
    assert (full["ok"], "it is full" in full["detail"], "raise maxmemory" in full["remedy"]) == (False, True, True)
    assert (evicts["ok"], "runs may lose messages" in evicts["detail"]) == (False, True)
