"""Fire and forget: sent once with its parameters resolved, stored nowhere, waited for by nobody (SPEC R5.1)."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from acts_celery.broker_config import EmbeddedServer, find_server
from acts_celery.broker_config.configuration import queue_prefix
from acts_celery.worker.broker.messages import AttemptRef, Completion, Report
from acts_celery.worker.recovery.heartbeats import ReportQueue
from acts_celery.worker.runner.application import make_client_application
from acts_celery.worker.store.keys import Keys

from .backend import Backend, Meeting, ended, meeting_url, settings_apart, settings_for
from .test_dead_letters import wait_until_done, writes_to
from .test_delegates import argument, queued


def test_a_call_without_an_output_path_is_sent_with_its_parameters_resolved(backend: Backend, meeting: Meeting) -> None:
    result = backend.run(
        [
            {"_tool": "add", "a": 1, "_instance": "①", "_outputPath": "†state.n"},
            {"_tool": "note", "name": "sent", "n": "†state.n", "_instance": "①", "_scopes": ["state"]},
        ],
        [{"type": "state", "_instance": "①", "who": "me"}, {"type": "input", "hidden": True}],
    )
    assert [call.status for call in result.calls] == ["done", "sent"]
    seen = meeting.take("sent")
    assert (seen["call"]["n"], seen["call"]["name"], seen["call"]["_instance"]) == (2, "sent", "①")
    assert seen["context"] == {"state": {"who": "me", "n": 2}}


def test_it_is_sent_exactly_once_and_leaves_no_message(backend: Backend, meeting: Meeting) -> None:
    marks = [f"i{n}" for n in range(40)]
    plan = {"type": "plan", "calls": [{"_tool": "note", "name": "once", "mark": "†state.mark"}]}
    run = backend.client.submit([plan, *({"type": "state", "_instance": m, "mark": m} for m in marks)])
    result = backend.wait(run.id)
    assert run.status()["calls"] == {"sent": 40}
    assert result.status == "completed"
    assert sorted(meeting.take("once")["call"]["mark"] for _ in marks) == sorted(marks)
    assert meeting.count("once") == 0
    assert len(list(run.log())) == 41


def test_its_failure_does_not_affect_the_run(backend: Backend, meeting: Meeting) -> None:
    calls = [{"_tool": "noteAndFail", "name": "lost"}, {"_tool": "echo", "value": 1, "_outputPath": "†state.a"}]
    run = backend.client.submit(solution={"calls": calls})
    result = backend.wait(run.id)
    assert meeting.take("lost") == "failing"
    assert result.status == "completed"
    assert [call.status for call in run.result().calls] == ["sent", "done"]
    assert "error" not in run.result().data()


def test_a_delegate_without_an_output_path_is_sent_to_the_background(aside: Backend) -> None:
    aside.redis.delete(aside.queue("aside-background"))
    result = aside.run([{"_tool": "ask", "_delegate": "showContext", "question": "why"}])
    assert (result.status, [call.status for call in result.calls]) == ("completed", ["sent"])
    message = queued(aside, "aside-background")
    assert argument(message)["context"] == [{"type": "input", "question": "why"}]
    assert argument(message)["awaited"] is False
    assert message["headers"]["ignore_result"] is True


def test_the_run_does_not_wait_for_it_and_its_message_asks_for_no_result(aside: Backend) -> None:
    aside.redis.delete(aside.queue("aside-background"))
    result = aside.run([{"_tool": "note", "name": "never-run"}])
    assert result.status == "completed"
    message = queued(aside, "aside-background")
    assert message["headers"]["ignore_result"] is True
    assert aside.redis.llen(aside.queue("aside-background")) == 1


@pytest.fixture
def with_results(server: EmbeddedServer, meeting: Meeting, tmp_path: Path) -> Iterator[Backend]:
    """A worker with a result backend, a server of its own (Celery cannot use one behind a unix socket)."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    command = [str(find_server()), "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)]
    with ended(command, os.environ, tmp_path, None) as process:
        assert process.stdout is not None
        assert any(b"eady to accept" in line for line in process.stdout)
        settings = settings_for(
            server,
            key_prefix="results",
            queue_instances="results-instances",
            queue_background="results-background",
            result_backend_url=f"redis://127.0.0.1:{port}/0",
        )
        running = Backend(settings, meeting, tmp_path)
        with running.worker("-Q", "results-instances,results-background"):
            yield running


def test_nothing_is_stored_in_a_configured_result_backend(with_results: Backend, meeting: Meeting) -> None:
    result = with_results.run(
        [{"_tool": "note", "name": "no-result"}, {"_tool": "echo", "value": 1, "_outputPath": "†state.a"}]
    )
    assert result.status == "completed"
    meeting.take("no-result")
    url = with_results.settings.result_backend_url
    assert url is not None
    with Redis.from_url(url.get_secret_value()) as results:
        stored = [str(results.get(key)) for key in results.scan_iter("celery-task-meta-*")]
    assert [value for value in stored if "background" in value] == []
    assert len(stored) <= 1, "at most the lane's own task has a result"


def test_what_is_reported_of_an_end_never_expires(server: EmbeddedServer) -> None:
    settings = settings_apart(server, "lasting")
    reports = ReportQueue(make_client_application(settings), settings)
    sign = AttemptRef("r", "", 0, 1)
    for report in (Report(begun=(sign,)), Report(completed=(Completion(sign),))):
        reports.send(report)
    with Redis.from_url(server.redis_url) as redis:
        found: Any = redis.lrange(f"{queue_prefix(settings)}lasting-reports", 0, -1)
        lasts = ["expiration" not in json.loads(item)["properties"] for item in found]
    assert lasts == [True, False], "the newest first"


@pytest.mark.parametrize("count", [120, pytest.param(1_000, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("killed", ["who reads of ends", "who carries out"])
def test_a_worker_that_is_killed_while_ends_are_reported_makes_only_what_was_at_work_run_twice(
    tmp_path: Path, killed: str, count: int
) -> None:
    threads = 4
    with EmbeddedServer() as server:
        backend = Backend(settings_for(server), Meeting(meeting_url(server)), tmp_path)
        run = backend.client.submit(solution={"calls": [{"_tool": "note", "name": "told"} for _ in range(count)]})
        keys = Keys("acts", run.id)
        with (
            writes_to(backend, keys.outbox) as writes,
            backend.worker("-Q", "instances") as reader,
            backend.worker("-Q", "background", "--concurrency", str(threads)) as doer,
        ):
            while not ends_told(backend, keys):
                next(writes)
            os.kill((reader if killed == "who reads of ends" else doer).pid, signal.SIGKILL)
            with backend.worker("-Q", "instances,background"):
                assert backend.wait(run.id).status == "completed"
                wait_until_done(backend, run.id)  # while the run goes on, what is sent may be done before more is
        at_work = threads if killed == "who carries out" else 0
        assert count <= backend.meeting.count("told") <= count + at_work


def ends_told(backend: Backend, keys: Keys) -> int:
    """Of how many calls of a run that were sent and forgotten it was noted that they are done."""
    sent: Any = backend.redis.hget(keys.state, "n:sent")
    left: Any = backend.redis.hlen(keys.outbox)
    return int(sent or 0) - int(left)
