"""Celery's task events as other people's exporters read them: in JSON, with names that say what was carried out."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.broker.transport import shown_name
from acts_celery.worker.process import BoundedNames

from .backend import DEADLINE_SECONDS, Backend, Meeting, meeting_url, settings_for


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with EmbeddedServer() as server:
        yield Backend(settings_for(server), Meeting(meeting_url(server)), tmp_path)


class Exporter:
    """What an exporter does (danihodovic/celery-exporter): an application that knows the broker's address and nothing
    else, a receiver, and a state that tells the name and the queue of each event's task.
    """

    def __init__(self, url: str) -> None:
        self._app = Celery(broker=url, set_as_current=False)
        self._state: Any = self._app.events.State()
        self._receiver: Any = None
        self._is_ready, self._is_over = threading.Event(), threading.Event()
        self.seen: Counter[tuple[str, str]] = Counter()
        self.queues: set[str] = set()
        self.runtimes: list[float] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Exporter:
        self._thread.start()
        assert self._is_ready.wait(DEADLINE_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self._receiver.should_stop = True
        self._thread.join(DEADLINE_SECONDS)

    def wait(self) -> None:
        """Until as many tasks have ended as were sent, and some were."""
        assert self._is_over.wait(DEADLINE_SECONDS), self.seen

    def _listen(self) -> None:
        with self._app.connection() as connection:
            self._receiver = self._app.events.Receiver(connection, handlers={"*": self._take})
            with self._receiver.consumer_context():
                self._is_ready.set()
                for _ in self._receiver.consume(limit=None, timeout=DEADLINE_SECONDS):
                    pass

    def _take(self, event: dict[str, Any]) -> None:
        self._state.event(event)
        if not event["type"].startswith("task-"):
            return
        task = self._state.tasks.get(event["uuid"])
        self.seen[event["type"], task.name] += 1
        if event["type"] == "task-sent":
            self.queues.add(task.queue)
        if event["type"] == "task-succeeded":
            self.runtimes.append(task.runtime)
        kinds = Counter(kind for kind, _ in self.seen.elements())
        ended = kinds["task-succeeded"] + kinds["task-failed"]
        if ended and ended == kinds["task-sent"] == kinds["task-started"]:
            self._is_over.set()


def test_an_exporter_that_reads_json_alone_counts_every_task_by_the_activity_that_it_carries_out(
    backend: Backend,
) -> None:
    context = [{"type": "state", "_instance": mark, "a": 1} for mark in "①②"]
    calls = [
        {"_tool": "remoteAdd", "a": "†state.a", "b": 2, "_instance": mark, "_outputPath": "†state.sum"} for mark in "①②"
    ]
    assert backend.settings.broker_url is not None
    with Exporter(backend.settings.broker_url.get_secret_value()) as exporter, backend.worker():
        assert backend.run(calls, context).status == "completed"
        exporter.wait()
    for kind in ("task-sent", "task-received", "task-started", "task-succeeded"):
        assert exporter.seen[kind, "acts.execute_activity.remoteAdd"] == 2, exporter.seen
        assert exporter.seen[kind, "acts.execute_instance"] >= 1
    assert "instances" in exporter.queues
    assert all(isinstance(seconds, float) for seconds in exporter.runtimes)


def test_a_task_in_which_a_call_has_failed_is_told_as_failed(backend: Backend) -> None:
    call = {"_tool": "remoteAdd", "a": "†state.word", "b": 2, "_outputPath": "†state.sum"}
    assert backend.settings.broker_url is not None
    with Exporter(backend.settings.broker_url.get_secret_value()) as exporter, backend.worker():
        backend.run([call], [{"type": "state", "word": "x"}])
        exporter.wait()
    assert exporter.seen["task-failed", "acts.execute_instance"] == 1, exporter.seen


@pytest.mark.parametrize(
    ("task", "shown", "expected"),
    [
        ("acts.execute_background", "run-1 - 3 notify", "acts.execute_background.notify"),
        ("acts.execute_delegate", "run-1 a b 3 model", "acts.execute_delegate.model"),
        ("acts.execute_instance", "run-1 ①", "acts.execute_instance"),
        ("acts.execute_activity", 'run-1 - 3 x{evil="1"}', "acts.execute_activity"),
        ("acts.execute_activity", None, "acts.execute_activity"),
    ],
)
def test_the_name_in_events_has_the_code_behind_it_where_that_is_a_plain_name(
    task: str, shown: str | None, expected: str
) -> None:
    assert shown_name(task, shown) == expected


def test_made_up_names_beyond_the_bound_are_none_of_their_own() -> None:
    names = BoundedNames(most=2)
    assert [names.bounded(name) for name in ("a", "b", "c", "a", "x" * 101)] == ["a", "b", None, "a", None]
