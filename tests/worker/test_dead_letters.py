"""Calls that are sent and forgotten, and what becomes of those that fail."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import click
import pytest
from click.testing import CliRunner

from acts_celery import Client, DeadLetter, DeadLetters, LetterNotFound, Run
from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.broker.attempts import CallId
from acts_celery.worker.broker.messages import TaskMessage
from acts_celery.worker.cli.control import dead
from acts_celery.worker.store.keys import Keys, due_runs

from .backend import DEADLINE_SECONDS, Backend, Meeting, meeting_url, settings_for
from .test_control_cli import command
from .test_liveness import RECOVERY_SECONDS

# What is sent and forgotten is done all the same, or becomes a dead letter (SPEC R5.1, R5.3).

QUEUES = "instances,background,far"


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """A server of our own; every setting at its default."""
    with EmbeddedServer() as server:
        yield Backend(settings_for(server), Meeting(meeting_url(server)), tmp_path_factory.mktemp("dead"))


@pytest.fixture(scope="module")
def hasty(backend: Backend) -> Backend:
    """The same, with short leases and little patience."""
    short = {"lease_seconds": 1.5, "sweep_interval_seconds": 0.2, "limit_attempts": 2}
    return Backend(backend.settings.model_copy(update=short), backend.meeting, backend.folder)


@contextmanager
def writes_to(backend: Backend, key: str) -> Iterator[Iterator[None]]:
    """Yields once for each write to a key."""
    backend.redis.config_set("notify-keyspace-events", "Kghz")
    with backend.redis.pubsub() as events:  # type: ignore[no-untyped-call]  # redis is typed but here
        events.subscribe(f"__keyspace@0__:{key}")
        events.get_message(timeout=DEADLINE_SECONDS)
        yield (None for _ in iter(lambda: events.get_message(timeout=DEADLINE_SECONDS), None))


def forget(backend: Backend, tool: str, **parameters: Any) -> str:
    """Submit a call that nobody awaits. Returns its run."""
    run = backend.client.submit(solution={"calls": [{"_tool": tool, **parameters}]})
    assert backend.wait(run.id).status == "completed"
    return run.id


def wait_until_done(backend: Backend, run: str) -> None:
    """Wait until a run has nothing in its outbox."""
    outbox = Keys("acts", run).outbox
    with writes_to(backend, outbox) as writes:
        while backend.redis.exists(outbox):
            next(writes)


def ends_told(backend: Backend, keys: Keys) -> int:
    """Of how many calls of a run that were sent and forgotten it was noted that they are done."""
    sent: Any = backend.redis.hget(keys.state, "n:sent")
    left: Any = backend.redis.hlen(keys.outbox)
    return int(sent or 0) - int(left)


def acts_dead(backend: Backend, *arguments: str) -> tuple[int, list[Any]]:
    done = command(backend, "dead", *arguments, "--json")
    return done.code, done.json_lines


def test_what_a_killed_worker_did_unawaited_is_at_work_again_within_ten_seconds(backend: Backend) -> None:
    with backend.worker("-Q", "instances"), backend.worker("-Q", "background") as victim:
        run = forget(backend, "hangOnce", name="forgotten")
        assert backend.meeting.take("hanging:forgotten") == victim.pid
        with backend.worker("-Q", "background") as heir:
            os.kill(victim.pid, signal.SIGKILL)
            killed = time.monotonic()
            assert backend.meeting.take("hanging:forgotten") == heir.pid
            assert time.monotonic() - killed < RECOVERY_SECONDS
            wait_until_done(backend, run)
    assert not [key for key in backend.keys(run) if b"outbox" in key.encode()]
    assert backend.meeting.count("hanging:forgotten") == 0


def test_a_message_that_was_lost_on_the_way_is_sent_again(hasty: Backend) -> None:
    with hasty.worker("-Q", "instances"):
        with writes_to(hasty, "background") as writes:
            hasty.redis.config_set("notify-keyspace-events", "Kl")
            run = forget(hasty, "note", name="strayed")
            next(writes)
        hasty.redis.delete("background")
        with hasty.worker("-Q", "background"):
            assert hasty.meeting.take("strayed")
            wait_until_done(hasty, run)
    assert hasty.meeting.count("strayed") == 0


def test_a_retry_of_a_call_that_is_not_awaited_survives_its_worker(backend: Backend) -> None:
    with backend.worker("-Q", QUEUES) as first:
        run = forget(backend, "failOnceThenLate", name="unawaited")
        assert backend.meeting.take("unawaited") == [1, f"{run}:0", first.pid]
        first.terminate()
        assert first.wait(10) == 0
    with backend.worker("-Q", QUEUES) as second:
        assert backend.meeting.take("unawaited") == [2, f"{run}:0", second.pid]
        wait_until_done(backend, run)
    assert backend.client.dead_letters().list() == []


def test_a_worker_that_leaves_politely_has_reported_what_was_done(backend: Backend) -> None:
    with backend.worker("-Q", "instances"):
        with backend.worker("-Q", "background") as leaving:
            run = forget(backend, "note", name="done-politely")
            backend.meeting.take("done-politely")
            leaving.terminate()
            assert leaving.wait(10) == 0
        wait_until_done(backend, run)
    assert backend.redis.llen("background") == 0


def test_what_failed_for_good_is_listed_resent_and_dropped(hasty: Backend) -> None:
    with hasty.worker("-Q", QUEUES):
        with writes_to(hasty, "acts:{dead}:times") as deaths:
            run = forget(hasty, "noteAndFail", name="doomed")
            next(deaths)
            hasty.meeting.take("doomed")
        wait_until_done(hasty, run)
        (code, (letter,)) = acts_dead(hasty, "list")
        assert code == 0
        assert (letter["id"], letter["run"], letter["index"], letter["instance"]) == (f"{run}:0", run, 0, None)
        assert (letter["activity"], letter["delegate"]) == ("noteAndFail", None)
        assert (letter["queue"], letter["attempts"]) == ("background", 1)
        assert "noteAndFail on background, 1 attempt" in command(hasty, "dead", "list").stdout
        doctor = command(hasty, "doctor").stdout.splitlines()
        assert doctor[doctor.index("warn  dead letters 1") + 1] == "      → see `acts dead list`"
        assert letter["error"] == {"type": "ValueError", "message": "in the background"}
        code, (shown,) = acts_dead(hasty, "show", letter["id"])
        assert (code, shown["body"]["parameters"]) == (0, {"name": "doomed"})
        with writes_to(hasty, "acts:{dead}:times") as changes:
            assert acts_dead(hasty, "resend", "--all") == (0, [{"resent": [f"{run}:0"]}])
            next(changes)
            next(changes)
        hasty.meeting.take("doomed")
        wait_until_done(hasty, run)
    assert acts_dead(hasty, "drop", f"{run}:0") == (0, [{"dropped": [f"{run}:0"]}])
    assert acts_dead(hasty, "list") == (0, [])
    assert "dead letters" not in command(hasty, "doctor").stdout
    assert acts_dead(hasty, "drop", f"{run}:0")[0] == 4
    assert acts_dead(hasty, "resend")[0] == 2


def test_what_kills_its_worker_again_and_again_becomes_a_dead_letter(hasty: Backend) -> None:
    with hasty.worker("-Q", "instances"), writes_to(hasty, "acts:{dead}:times") as deaths:
        run = forget(hasty, "killFar", name="poison")
        for attempt in (1, 1, 2):
            with hasty.worker("-Q", "far") as victim:
                assert hasty.meeting.take("poison") == attempt
                assert victim.wait() == -signal.SIGKILL
        next(deaths)
    letter = hasty.client.dead_letters().get(f"{run}:0")
    assert (letter.error_type, letter.attempts) == ("WorkerLost", 2)
    hasty.client.dead_letters().drop([letter.id])


@pytest.fixture
def letters(backend: Backend) -> Iterator[DeadLetters]:
    settings = backend.settings.model_copy(update={"key_prefix": "few", "limit_dead_letters": 2})
    with Client(settings) as client:
        found = client.dead_letters()
        yield found
        found.drop([letter.id for letter in found.list()])


def letter(index: int, error: str = "E") -> DeadLetter:
    task = TaskMessage("acts.execute_background", "background", b"\x80", "-", is_forgotten=True)
    return DeadLetter(CallId("r", "①", index), task, error, "", 1, f"2026-11-21T00:00:0{index}.000+00:00")


def test_a_death_that_is_reported_twice_is_one_letter(letters: DeadLetters) -> None:
    letters.add(letter(0, "first"))
    letters.add(letter(0, "second"))
    assert [found.error_type for found in letters.list()] == ["first"]


def test_the_oldest_letters_make_room(letters: DeadLetters) -> None:
    for index in range(4):
        letters.add(letter(index))
    assert [found.id for found in letters.list()] == ["r:2:①", "r:3:①"]


def test_nothing_is_resent_or_dropped_where_one_of_them_is_not_there(letters: DeadLetters) -> None:
    letters.add(letter(0))
    for act in (letters.resend, letters.drop):
        with pytest.raises(LetterNotFound, match="r:9"):
            act(["r:0:①", "r:9"])
    assert [found.id for found in letters.list()] == ["r:0:①"]
    assert not letters._redis.exists(due_runs("few"))
    letters.resend(["r:0:①"])
    assert letters._redis.zscore(due_runs("few"), "r") == 0, "the next sweep looks at the run"


def test_dead_letters_are_kept_no_longer_than_ended_runs(backend: Backend) -> None:
    settings = backend.settings.model_copy(update={"key_prefix": "brief", "retention_seconds": 3_600})
    letters = DeadLetters(backend.redis, settings)
    task = TaskMessage("acts.execute_background", "background", b"", "-", is_forgotten=True)
    for number, date in enumerate(
        ("2026-01-01T10:00:00+00:00", "2026-01-01T10:30:00+00:00", "2026-01-01T11:15:00+00:00")
    ):
        letters.add(DeadLetter(CallId("r", None, number), task, "ValueError", "no", 1, date))
    assert [letter.call.index for letter in letters.list()] == [1, 2]
    assert {backend.redis.ttl(key) for key in backend.redis.scan_iter("brief:*")} <= {3_599, 3_600}


def test_on_a_terminal_it_is_asked_before_all_are_forgotten(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    letters = backend.client.dead_letters()
    task = TaskMessage("acts.execute_background", "background", b"", "-", is_forgotten=True)
    for name, value in backend.settings.to_environment().items():
        monkeypatch.setenv(name, value)
    for arguments, answer, left in ((["--all"], "n", 1), (["--all"], "y", 0), (["--all", "--yes"], "", 0)):
        letters.add(DeadLetter(CallId("asked", None, 0), task, "ValueError", "no", 1, "2026-01-01T10:00:00+00:00"))
        with CliRunner().isolation(input=answer):
            monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
            with suppress(click.exceptions.Exit, click.exceptions.Abort, SystemExit):
                dead.main(["drop", *arguments], standalone_mode=False)
        assert sum(letter.call.run == "asked" for letter in letters.list()) == left


# How what a run has sent and not awaited stands: outstanding, done, dead (SPEC R5.1).

Json = dict[str, Any]


@pytest.fixture(scope="module")
def backend_background(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
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


def test_a_run_says_how_many_are_outstanding_done_and_dead(backend_background: Backend) -> None:
    with backend_background.worker("-Q", "instances"):
        run = sent(
            backend_background,
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
        with backend_background.worker("-Q", "background"):
            wait_until_done(backend_background, run.id)
        assert run.status()["background"] == run.result().to_dict()["background"] == counts(0, 5, 2)
    for arguments in (("status", run.id), ("show", run.id)):
        shown = command(backend_background, *arguments).stdout
        assert f"  in the background: 5 done, 2 dead: acts dead list --run {run.id}" in shown.splitlines()


def test_what_a_run_awaits_is_not_counted(backend_background: Backend) -> None:
    with backend_background.worker("-Q", "instances"):
        run = sent(backend_background, [{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}])
    assert "background" not in run.status()
    assert "background" not in run.result().to_dict()


def test_dead_letters_are_listed_by_run(backend_background: Backend) -> None:
    runs = []
    with backend_background.worker("-Q", QUEUES):
        for _ in range(2):
            runs.append(sent(backend_background, [{"_tool": "noteAndFail", "name": "doomed"}]))
            wait_until_done(backend_background, runs[-1].id)
    for run in runs:
        (letter,) = command(backend_background, "dead", "list", "--run", run.id, "--json").json_lines
        assert (letter["run"], letter["index"]) == (run.id, 0)
    assert len(command(backend_background, "dead", "list", "--json").json_lines) >= 2
    assert command(backend_background, "dead", "list", "--run", "nothing-like-it").code != 0


def test_a_dead_one_that_is_sent_again_is_outstanding_and_then_done_or_dead_once(backend_background: Backend) -> None:
    letters = backend_background.client.dead_letters()
    with backend_background.worker("-Q", "instances"):
        with backend_background.worker("-Q", "background"):
            run = sent(backend_background, [{"_tool": "noteAndFail", "name": "doomed"}])
            wait_until_done(backend_background, run.id)
        for _ in range(2):
            assert run.status()["background"] == counts(0, 0, 1)
            letters.resend([f"{run.id}:0"])
            assert run.status()["background"] == counts(1, 0, 0)
            with backend_background.worker("-Q", "background"):
                wait_until_done(backend_background, run.id)
    letters.drop([f"{run.id}:0"])
    assert run.status()["background"] == counts(0, 0, 1), "a letter that is forgotten does not make it done"


def test_one_whose_workers_die_again_and_again_is_dead(backend_background: Backend) -> None:
    with backend_background.worker("-Q", "instances"):
        run = sent(backend_background, [{"_tool": "killFar", "name": "poison"}])
        for attempt in (1, 1, 2):
            with backend_background.worker("-Q", "far") as victim:
                assert backend_background.meeting.take("poison") == attempt
                assert run.status()["background"] == counts(1, 0, 0)
                assert victim.wait() == -signal.SIGKILL
        wait_until_done(backend_background, run.id)
    assert run.status()["background"] == counts(0, 0, 1)


@pytest.mark.parametrize("killed", ["who reads of ends", "who carries out"])
def test_each_is_counted_once_though_a_worker_is_killed(backend_background: Backend, killed: str) -> None:
    calls = [{"_tool": "noteAndFail" if n % 4 == 0 else "note", "name": "counted"} for n in range(120)]
    run = backend_background.client.submit(solution={"calls": calls})
    keys = Keys("acts", run.id)
    with (
        writes_to(backend_background, keys.outbox) as writes,
        backend_background.worker("-Q", "instances") as reader,
        backend_background.worker("-Q", "background", "--concurrency", "4") as doer,
    ):
        while not ends_told(backend_background, keys):
            next(writes)
        os.kill((reader if killed == "who reads of ends" else doer).pid, signal.SIGKILL)
        with backend_background.worker("-Q", "instances,background"):
            assert backend_background.wait(run.id).status == "completed"
            wait_until_done(backend_background, run.id)
    assert run.status()["background"] == counts(0, 90, 30)


def test_what_is_sent_again_by_a_retry_counts_once(backend_background: Backend) -> None:
    read = "†state.a || †state.b"
    calls: list[Json] = [
        {"_tool": "failUntilMended", "name": "again", "value": 1, "_outputPath": "†state.a"},
        {"_tool": "note", "name": "read", "n": read},
        {"_tool": "note", "name": "each", "n": "†state.list", "value": read, "_each": "n"},
        {"_tool": "doomed", "_activity": "noteAndFail", "name": "doomed", "_scopes": ["†state.a"]},
    ]
    tools: Json = {"doomed": {"properties": {"_activity": {"const": "noteAndFail"}}}}
    context = [{"type": "state", "b": 0, "list": [1, 2]}]
    run = backend_background.client.submit(context, {"calls": calls}, tools=tools)
    with backend_background.worker("-Q", "instances"):
        with backend_background.worker("-Q", "background"):
            assert backend_background.wait(run.id).status == "failed"
            wait_until_done(backend_background, run.id)
        assert run.status()["background"] == counts(0, 3, 1)
        backend_background.meeting.redis.set("mended:again", 1)
        run.retry(downstream=True, effects=True)
        assert backend_background.wait(run.id).status == "completed"
        assert run.status()["background"] == counts(4, 0, 0)
        with backend_background.worker("-Q", "background"):
            wait_until_done(backend_background, run.id)
    assert run.status()["background"] == counts(0, 3, 1)
