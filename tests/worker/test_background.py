"""How what a run has sent and not awaited stands: outstanding, done, dead (SPEC R5.1)."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from acts_celery import Run
from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.store.keys import Keys

from .backend import Backend, Meeting, meeting_url, settings_for
from .test_control_cli import command
from .test_dead_letters import QUEUES, wait_until_done, writes_to
from .test_forgetting import ends_told

Json = dict[str, Any]


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """A server of our own, short leases and little patience."""
    with EmbeddedServer() as server:
        settings = settings_for(server, lease_seconds=1.5, sweep_interval_seconds=0.2, limit_attempts=2)
        yield Backend(settings, Meeting(meeting_url(server)), tmp_path_factory.mktemp("background"))


def sent(backend: Backend, calls: Sequence[Json], context: Sequence[Json] = ()) -> Run:
    run = backend.client.submit(context, {"calls": list(calls)})
    assert backend.wait(run.id).status == "completed"
    return run


def counts(outstanding: int, done: int, dead: int) -> Json:
    return {"outstanding": outstanding, "done": done, "dead": dead}


def test_a_run_says_how_many_are_outstanding_done_and_dead(backend: Backend) -> None:
    with backend.worker("-Q", "instances"):
        run = sent(
            backend,
            [
                *({"_tool": "note", "name": "sent"} for _ in range(3)),
                *({"_tool": "noteAndFail", "name": "doomed"} for _ in range(2)),
                {"_tool": "note", "name": "each", "n": "†state.list", "_each": "n"},
            ],
            [{"type": "state", "list": [1, 2]}],
        )
        assert run.status()["background"] == counts(7, 0, 0)
        assert run.result().to_dict()["background"] == counts(7, 0, 0)
        assert "background" not in run.result(at=list(run.log())[-1].id).to_dict()
        with backend.worker("-Q", "background"):
            wait_until_done(backend, run.id)
        assert run.status()["background"] == run.result().to_dict()["background"] == counts(0, 5, 2)
    for arguments in (("status", run.id), ("show", run.id)):
        shown = command(backend, *arguments).stdout
        assert f"  in the background: 5 done, 2 dead: acts dead list --run {run.id}" in shown.splitlines()


def test_what_a_run_awaits_is_not_counted(backend: Backend) -> None:
    with backend.worker("-Q", "instances"):
        run = sent(backend, [{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}])
    assert "background" not in run.status()
    assert "background" not in run.result().to_dict()


def test_dead_letters_are_listed_by_run(backend: Backend) -> None:
    runs = []
    with backend.worker("-Q", QUEUES):
        for _ in range(2):
            runs.append(sent(backend, [{"_tool": "noteAndFail", "name": "doomed"}]))
            wait_until_done(backend, runs[-1].id)
    for run in runs:
        (letter,) = command(backend, "dead", "list", "--run", run.id, "--json").json_lines
        assert (letter["run"], letter["index"]) == (run.id, 0)
    assert len(command(backend, "dead", "list", "--json").json_lines) >= 2
    assert command(backend, "dead", "list", "--run", "nothing-like-it").code != 0


def test_a_dead_one_that_is_sent_again_is_outstanding_and_then_done_or_dead_once(backend: Backend) -> None:
    letters = backend.client.dead_letters()
    with backend.worker("-Q", "instances"):
        with backend.worker("-Q", "background"):
            run = sent(backend, [{"_tool": "noteAndFail", "name": "doomed"}])
            wait_until_done(backend, run.id)
        for _ in range(2):
            assert run.status()["background"] == counts(0, 0, 1)
            letters.resend([f"{run.id}:0"])
            assert run.status()["background"] == counts(1, 0, 0)
            with backend.worker("-Q", "background"):
                wait_until_done(backend, run.id)
    letters.drop([f"{run.id}:0"])
    assert run.status()["background"] == counts(0, 0, 1), "a letter that is forgotten does not make it done"


def test_one_whose_workers_die_again_and_again_is_dead(backend: Backend) -> None:
    with backend.worker("-Q", "instances"):
        run = sent(backend, [{"_tool": "killFar", "name": "poison"}])
        for attempt in (1, 1, 2):
            with backend.worker("-Q", "far") as victim:
                assert backend.meeting.take("poison") == attempt
                assert run.status()["background"] == counts(1, 0, 0)
                assert victim.wait() == -signal.SIGKILL
        wait_until_done(backend, run.id)
    assert run.status()["background"] == counts(0, 0, 1)


@pytest.mark.parametrize("killed", ["who reads of ends", "who carries out"])
def test_each_is_counted_once_though_a_worker_is_killed(backend: Backend, killed: str) -> None:
    calls = [{"_tool": "noteAndFail" if n % 4 == 0 else "note", "name": "counted"} for n in range(120)]
    run = backend.client.submit(solution={"calls": calls})
    keys = Keys("acts", run.id)
    with (
        writes_to(backend, keys.outbox) as writes,
        backend.worker("-Q", "instances") as reader,
        backend.worker("-Q", "background", "--concurrency", "4") as doer,
    ):
        while not ends_told(backend, keys):
            next(writes)
        os.kill((reader if killed == "who reads of ends" else doer).pid, signal.SIGKILL)
        with backend.worker("-Q", "instances,background"):
            assert backend.wait(run.id).status == "completed"
            wait_until_done(backend, run.id)
    assert run.status()["background"] == counts(0, 90, 30)


def test_what_is_sent_again_by_a_retry_counts_once(backend: Backend) -> None:
    read = "†state.a || †state.b"
    calls: list[Json] = [
        {"_tool": "failUntilMended", "name": "again", "value": 1, "_outputPath": "†state.a"},
        {"_tool": "note", "name": "read", "n": read},
        {"_tool": "note", "name": "each", "n": "†state.list", "value": read, "_each": "n"},
        {"_tool": "doomed", "_activity": "noteAndFail", "name": "doomed", "_scopes": ["†state.a"]},
    ]
    tools: Json = {"doomed": {"properties": {"_activity": {"const": "noteAndFail"}}}}
    context = [{"type": "state", "b": 0, "list": [1, 2]}]
    run = backend.client.submit(context, {"calls": calls}, tools=tools)
    with backend.worker("-Q", "instances"):
        with backend.worker("-Q", "background"):
            assert backend.wait(run.id).status == "failed"
            wait_until_done(backend, run.id)
        assert run.status()["background"] == counts(0, 3, 1)
        backend.meeting.redis.set("mended:again", 1)
        run.retry(downstream=True, effects=True)
        assert backend.wait(run.id).status == "completed"
        assert run.status()["background"] == counts(4, 0, 0)
        with backend.worker("-Q", "background"):
            wait_until_done(backend, run.id)
    assert run.status()["background"] == counts(0, 3, 1)
