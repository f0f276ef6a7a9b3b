"""Cancelling with `undo`: what the calls of a run have done is taken back, the newest effect first."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from acts_celery import Client, RunOver
from acts_celery.broker_config import EmbeddedServer
from acts_celery.broker_config.tokens import Identity
from acts_celery.worker.ui import Page
from tests.acceptance.command import start

from .backend import Backend, Meeting, settings_apart
from .test_control_cli import command


def booking(seat: str, **meta: Any) -> dict[str, Any]:
    return {"_tool": "book", "seat": seat, "_outputPath": f"†state.{seat}"} | meta


def taken_back(meeting: Meeting, count: int) -> list[list[str]]:
    found = [meeting.take("unbooked") for _ in range(count)]
    assert meeting.count("unbooked") == 0
    return found


def test_effects_are_taken_back_newest_first_once_and_what_fails_stops_no_other(
    backend: Backend, meeting: Meeting
) -> None:
    calls = [
        booking("first"),
        booking("stuck", _after=["†state.first"]),
        {"_tool": "bookRow", "row": 1, "_outputPath": "†state.row", "_after": ["†state.stuck"]},
        booking("lost", gate="undo:lost", _after=["†state.row"]),
        {"_tool": "echo", "value": 1, "_outputPath": "†state.one"},
    ]
    run = backend.client.submit((), {"calls": calls})
    meeting.take("booked:lost")
    undone = run.cancel(undo=True)
    assert undone is not None
    assert (undone.run, undone.calls, len(undone.left)) == (f"{run.id}.undo", 2, 2)
    assert undone.left[0] == f"call {run.id}:3 (book): its end is not known"
    assert undone.left[1].startswith(f"call {run.id}:2 (bookRow): 'unbook' needs 'seat'")
    result = backend.wait(f"{run.id}.undo")
    assert [call.status for call in result.calls] == ["failed", "done"]
    again = command(backend, "cancel", run.id, "--undo", "--json")
    assert again.code == 0
    assert again.json == run.status() | undone.to_dict()
    assert "(book): its end is not known" in again.stderr
    meeting.open_gate("undo:lost")
    assert taken_back(meeting, 2) == [
        ["stuck", "no. stuck", f"{run.id}:1"],
        ["first", "no. first", f"{run.id}:0"],
    ]
    overview = Page(backend.redis, backend.settings).answer(f"runs/{run.id}")
    assert (overview["status"], overview["undo"]) == ("cancelled", [undone.run])


def test_what_a_run_does_later_is_taken_back_by_another_run_and_by_no_fork(backend: Backend, meeting: Meeting) -> None:
    run = backend.client.submit((), {"calls": [booking("early")]})
    backend.wait(run.id)
    first = run.cancel(undo=True)
    backend.wait(f"{run.id}.undo")
    run.amend({"calls": [booking("late")]}, add=True)
    backend.wait(run.id)
    fork = run.fork()
    backend.wait(fork.id)
    second = run.cancel(undo=True)
    assert first is not None
    assert second is not None
    assert (first.run, second.run, second.calls) == (f"{run.id}.undo", f"{run.id}.undo2", 2)
    backend.wait(f"{run.id}.undo2")
    assert [seat for seat, *_ in taken_back(meeting, 2)] == ["early", "late"]
    of_fork = fork.cancel(undo=True)
    assert of_fork is not None
    assert of_fork.run is None
    assert all(f"another run did it, as {run.id}:" in line for line in of_fork.left)
    assert len(of_fork.left) == 2


def test_each_element_and_a_run_that_is_over_are_taken_back_for_the_runs_owner(
    backend: Backend, meeting: Meeting
) -> None:
    with Client(backend.settings.acting_for("ann", Identity("ann"))) as ann:
        every = booking("every") | {"seat": "†input.seats", "_each": "seat"}
        run = ann.submit([{"type": "input", "seats": ["a", "b"]}], {"calls": [every]})
        assert backend.wait(run.id).status == "completed"
        undone = backend.client.run(run.id).cancel(undo=True)
        assert undone is not None
        assert undone.run is not None
        backend.wait(undone.run)
        assert sorted(one[:2] for one in taken_back(meeting, 2)) == [["a", "no. a"], ["b", "no. b"]]
        assert ann.find(f"undo {run.id}").id == undone.run
    assert backend.client.run(run.id).status()["status"] == "completed"


def test_what_is_too_large_to_be_taken_back_is_named_and_the_others_go_on(backend: Backend, meeting: Meeting) -> None:
    calls = [booking("small"), booking("large") | {"seat": "x" * 5_000}]
    run = backend.client.submit((), {"calls": calls})
    backend.wait(run.id)
    with Client(backend.settings.model_copy(update={"limit_message_bytes": 4_000})) as tight:
        undone = tight.run(run.id).cancel(undo=True)
    assert undone is not None
    assert (undone.run, undone.calls, len(undone.left)) == (f"{run.id}.undo", 1, 1)
    backend.wait(f"{run.id}.undo")
    assert undone.left[0].startswith(f"call {run.id}:1 (book): ")
    assert "4000" in undone.left[0].replace(",", "").replace(" ", "")
    whole = run.cancel(undo=True)
    assert whole is not None
    assert (whole.run, whole.calls, whole.left) == (f"{run.id}.undo2", 2, ())
    backend.wait(f"{run.id}.undo2")
    assert [len(seat) for seat, *_ in taken_back(meeting, 2)] == [5, 5_000]


def test_a_run_that_has_done_nothing_to_take_back_makes_no_other(backend: Backend) -> None:
    run = backend.client.submit((), {"calls": [{"_tool": "echo", "value": 1, "_outputPath": "†state.one"}]})
    backend.wait(run.id)
    undone = run.cancel(undo=True)
    assert undone is not None
    assert undone.to_dict() == {"undo": None, "undone": 0, "not_undone": []}
    with pytest.raises(RunOver):
        run.cancel()


@pytest.fixture
def mortal(server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory) -> Backend:
    settings = settings_apart(server, "undoing", lease_seconds=1.5, sweep_interval_seconds=0.2)
    return Backend(settings, meeting, tmp_path_factory.mktemp("undoing"))


def test_a_worker_that_is_killed_in_the_midst_leaves_the_rest_to_others(mortal: Backend, meeting: Meeting) -> None:
    calls = [booking("early"), booking("deadly", _after=["†state.early"])]
    with mortal.worker() as victim:
        run = mortal.client.submit((), {"calls": calls})
        mortal.wait(run.id)
        undone = run.cancel(undo=True)
        assert undone is not None
        assert undone.run is not None
        victim.wait()
    with mortal.worker():
        assert mortal.wait(undone.run).status == "completed"
    assert [seat for seat, *_ in taken_back(meeting, 3)] == ["deadly", "deadly", "early"]


def test_a_command_that_is_killed_and_repeated_takes_nothing_back_twice(mortal: Backend, meeting: Meeting) -> None:
    with mortal.worker():
        run = mortal.client.submit((), {"calls": [booking("only")]})
        mortal.wait(run.id)
        state = f"{mortal.settings.key_prefix}:{{{run.id}.undo}}:state"
        mortal.redis.config_set("notify-keyspace-events", "Kh")
        with mortal.redis.pubsub() as written:  # type: ignore[no-untyped-call]  # redis is typed but here
            written.subscribe(f"__keyspace@0__:{state}")
            written.get_message(timeout=5)
            client = start("cancel", run.id, "--undo", env=mortal.environment())
            assert written.get_message(timeout=30), "nothing was written"
            os.kill(client.pid, signal.SIGKILL)
            client.communicate()
        mortal.redis.config_set("notify-keyspace-events", "")
        again = command(mortal, "cancel", run.id, "--undo", "--json")
        assert (again.code, again.json["undo"], again.json["undone"]) == (0, f"{run.id}.undo", 1)
        mortal.wait(f"{run.id}.undo")
    assert [seat for seat, *_ in taken_back(meeting, 1)] == ["only"]
