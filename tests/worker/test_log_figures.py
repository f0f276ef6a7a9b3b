"""Figures of logs, queues and processes; what Celery's own tools are shown."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from celery import Celery
from prometheus_client import CollectorRegistry, generate_latest

from acts_celery import local
from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.broker.consumer import Publisher
from acts_celery.worker.broker.messages import SENT, TASKS, lane_task
from acts_celery.worker.broker.transport import shown_name
from acts_celery.worker.process import BoundedNames, Tokens
from acts_celery.worker.runner.application import make_client_application
from acts_celery.worker.store.keys import recovery
from acts_celery.worker.store.living import QueueList
from acts_celery.worker.telemetry.metrics import Collection, LogReader, QueueMetrics, QueueReader, RedisQueue
from acts_celery.worker.telemetry.process_metrics import OTHER, ProcessMetrics
from tests.acceptance import forks

from .backend import DEADLINE_SECONDS, Backend, Meeting, ended, meeting_url, settings_apart, settings_for
from .figures import Page, free_port, metrics_command, page, page_until, scraped, value

# Figures of logs, queues and processes for Prometheus.

# Figures of the log and the queues (`acts metrics`): what is there now, whatever lies in a queue.

FAR = float("inf")


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with EmbeddedServer() as server:
        yield Backend(settings_for(server), Meeting(meeting_url(server)), tmp_path)


def test_outstanding_calls_held_ones_and_the_length_of_queues_are_shown(backend: Backend) -> None:
    context = [{"type": "state", "_instance": f"n{number}", "a": number} for number in range(700)]
    call = {"_tool": "add", "a": "†state.a", "b": 1, "_outputPath": "†state.b"}
    held = {"_tool": "echo", "value": 1, "_outputPath": "†state.c"}
    with metrics_command(backend) as url:
        assert value(page(url), "acts_runs", status="running") == 0
        waiting = backend.client.submit([*context, {"type": "plan", "calls": [call]}])
        found = page_until(url, lambda one: value(one, "acts_runs", status="running") == 1)
        window = backend.settings.publish_window
        assert value(found, "acts_queue_tasks", queue="instances") == window > backend.redis.llen("instances")
        assert value(found, "acts_backlog_tasks", queue="instances") == 700 - window
        assert value(found, "acts_outstanding_calls", status="waiting") == 700
        page_until(url, lambda one: value(one, "acts_queue_oldest_seconds", queue="instances") > 1)
        with backend.worker():
            backend.wait(waiting.id)
            backend.client.submit([], {"calls": [held]}, config={"approve": ["echo"]})
            page_until(url, lambda one: value(one, "acts_outstanding_calls", status="held") == 1)
            page_until(url, lambda one: value(one, "acts_held_oldest_seconds") > 0)
            found = page_until(url, lambda one: value(one, "acts_runs_kept") == 1)
    assert value(found, "acts_outstanding_calls", status="waiting") == 0
    assert value(found, "acts_queue_tasks", queue="instances") == 0
    assert value(found, "acts_sweep_age_seconds") < 30
    assert value(found, "acts_log_memory_bytes") > 0
    assert value(found, "acts_log_up") == value(found, "acts_broker_up") == 1


def test_a_call_that_was_forgotten_and_failed_for_good_is_a_dead_letter(backend: Backend) -> None:
    with metrics_command(backend) as url, backend.worker():
        backend.run([{"_tool": "noteAndFail", "name": "dead"}])
        page_until(url, lambda one: value(one, "acts_dead_letters") == 1)


def test_two_that_ask_within_a_second_cost_one_reading(backend: Backend) -> None:
    collection = Collection(
        LogReader(backend.redis, backend.settings),
        QueueReader(make_client_application(backend.settings), backend.redis, "", ["instances"]),
    )
    began = time.monotonic()
    first = list(collection.collect())
    again = list(collection.collect())
    took = time.monotonic() - began
    assert took > 1 or all(one is other for one, other in zip(first, again, strict=True))


def test_a_server_that_does_not_answer_leaves_its_figures_out_and_is_reported_as_down(tmp_path: Path) -> None:
    with EmbeddedServer() as log, EmbeddedServer() as broker:
        settings = settings_for(broker, redis_url=log.redis_url)
        backend = Backend(settings, Meeting(meeting_url(log)), tmp_path)
        with metrics_command(backend) as url:
            assert value(page(url), "acts_broker_up") == 1
            broker.stop()
            found = page_until(url, lambda one: value(one, "acts_broker_up") == 0)
            assert not any(name == "acts_queue_tasks" for name, _ in found)
            assert value(found, "acts_log_up") == 1


def test_of_more_runs_than_one_reading_takes_all_are_counted_after_a_few(backend: Backend) -> None:
    call = {"_tool": "echo", "value": 1, "_outputPath": "†state.c"}
    runs = [backend.client.submit([], {"calls": [call, call | {"_outputPath": "†state.d"}]}) for _ in range(5)]
    reader = LogReader(backend.redis, backend.settings, most_read=2)
    readings = [reader.read() for _ in range(4)]
    assert [reading.unread for reading in readings] == [3, 1, 0, 0]
    assert [reading.calls["waiting"] for reading in readings] == [4, 8, 10, 10]
    assert all(reading.oldest_seconds >= 0 for reading in readings)
    runs[0].cancel()
    cancelled = [reader.read() for _ in range(3)][-1]
    assert (cancelled.calls["waiting"], cancelled.runs["running"]) == (8, 4)


def test_the_age_of_the_sweep_counts_only_while_there_is_something_to_sweep(backend: Backend) -> None:
    reader = LogReader(backend.redis, backend.settings)
    backend.redis.hset(recovery("acts"), "heard", "1000")
    assert reader.read().sweep_seconds == 0
    backend.client.submit([], {"calls": [{"_tool": "echo", "value": 1, "_outputPath": "†state.c"}]})
    assert reader.read().sweep_seconds < 60


def queue(backend: Backend, name: str = "instances") -> RedisQueue:
    return RedisQueue(QueueList(backend.redis, name))


def truth(backend: Backend, name: str = "instances") -> int:
    """How many tasks lie in a queue, by reading all of it."""
    raw = backend.redis.lrange(name, 0, -1)
    return sum(json.loads(one)["headers"].get(TASKS, 1) for one in raw)


def test_the_length_of_a_queue_is_right_after_whatever_was_put_and_taken(backend: Backend) -> None:
    reader, redis = queue(backend), backend.redis
    publisher = Publisher(make_client_application(backend.settings))
    assert reader.read(FAR) == QueueMetrics(0, 0.0)
    for put, taken in ((40, 0), (700, 30), (0, 10), (3, 0), (2_000, 60), (0, 10_000), (5, 1)):
        publisher.publish([lane_task("r", f"{number}", "instances", put) for number in range(put)])
        for _ in range(taken):
            redis.rpop("instances")
        found = reader.read(FAR)
        assert found.tasks == truth(backend), (put, taken)
        assert found.oldest_seconds is not None


def test_the_rest_of_an_envelope_that_is_put_back_is_counted_as_the_rest(backend: Backend) -> None:
    publisher, reader = Publisher(make_client_application(backend.settings)), queue(backend)
    publisher.publish([lane_task("r", f"{number}", "instances", 400) for number in range(60)])
    assert reader.read(FAR).tasks == 60
    popped: Any = backend.redis.rpop("instances")
    taken = json.loads(popped)
    rest = {
        **taken,
        "headers": {**taken["headers"], TASKS: 3},
        "properties": {**taken["properties"], "delivery_tag": "x"},
    }
    backend.redis.rpush("instances", json.dumps(rest))
    assert reader.read(FAR).tasks == truth(backend) == 40 + 3


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xff",
        b"[]",
        b"7",
        b'{"headers": null}',
        b"[" * 5_000,
        b'{"headers": {"acts_tasks": "x"}, "properties": {}}',
        b'{"headers": {"%s": 1%s}, "properties": {"delivery_tag": "a"}}' % (SENT.encode(), b"0" * 400),
    ],
)
def test_what_is_no_message_counts_as_one_task_and_breaks_nothing(backend: Backend, raw: bytes) -> None:
    backend.redis.rpush("instances", raw)
    assert queue(backend).read(FAR).tasks == 1


def test_without_time_to_read_it_each_message_of_a_queue_counts_as_one_task(backend: Backend) -> None:
    publisher = Publisher(make_client_application(backend.settings))
    publisher.publish([lane_task("r", f"{number}", "instances", 400) for number in range(500)])
    messages = backend.redis.llen("instances")
    reader = queue(backend)
    assert messages <= reader.read(until=0).tasks < truth(backend)
    assert reader.read(FAR).tasks == truth(backend) == 500


def test_what_was_read_of_a_queue_is_not_read_again(backend: Backend) -> None:
    publisher = Publisher(make_client_application(backend.settings))
    for number in range(20):
        publisher.publish([lane_task("r", f"{number}.{one}", "instances") for one in range(200)])
    reader = queue(backend)
    reader.read(FAR)
    before = int(backend.redis.info("stats")["total_net_output_bytes"])
    reader.read(FAR)
    again = int(backend.redis.info("stats")["total_net_output_bytes"]) - before
    assert again < before / 3  # both ends


def test_queues_of_another_prefix_and_those_that_are_not_there_are_read_too(tmp_path: Path) -> None:
    with EmbeddedServer() as server:
        backend = Backend(settings_for(server, key_prefix="other"), Meeting(meeting_url(server)), tmp_path)
        backend.client.submit([], {"calls": [{"_tool": "echo", "value": 1, "_outputPath": "†state.c"}]})
        with metrics_command(backend) as url:
            found = page(url)
    assert value(found, "acts_queue_tasks", queue="instances") == 1
    assert value(found, "acts_queue_tasks", queue="lathe") == 0


def test_promtool_finds_nothing_wrong_with_what_is_shown(backend: Backend, promtool: str) -> None:
    with metrics_command(backend) as url:
        text = scraped(url)
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


# Figures of a worker's process: each call, attempt, run and answer of a model is counted once, by a bounded number of
# names.

PRICE = '{"input": 1, "output": 2}'


@pytest.fixture
def backend_process_figures(tmp_path: Path) -> Iterator[Backend]:
    with EmbeddedServer() as server:
        yield Backend(settings_for(server, model_price=PRICE), Meeting(meeting_url(server)), tmp_path)


def add(a: int) -> int:
    return a


def total(found: Page, name: str) -> float:
    return sum(number for (sample, _), number in found.items() if sample == name)


def test_calls_attempts_waits_commits_and_runs_are_counted_once_where_they_end(
    backend_process_figures: Backend,
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/metrics"
    calls: list[dict[str, Any]] = [
        {"_tool": "failTwice", "name": "figures", "_outputPath": "†state.mended"},
        {"_tool": "remoteAdd", "a": 1, "b": 2, "_outputPath": "†state.sum"},
        {"_tool": "explode", "_outputPath": "†state.no"},
        {"_tool": "echo", "value": "†state.no", "_outputPath": "†state.never"},
        {"_tool": "noteAndFail", "name": "figures"},
    ]
    with backend_process_figures.worker("--metrics-port", str(port)):
        assert backend_process_figures.run(calls).status == "failed"
        found = page_until(
            url,
            lambda one: (
                value(one, "acts_runs_ended_total", status="failed") == 1
                and value(one, "acts_attempts_total", tool="noteAndFail", outcome="failed") == 1
            ),
        )
    assert {key: number for key, number in found.items() if key[0] == "acts_calls_total"} == {
        ("acts_calls_total", frozenset({("tool", tool), ("status", status)})): 1
        for tool, status in (
            ("failTwice", "done"),
            ("remoteAdd", "done"),
            ("explode", "failed"),
            ("echo", "skipped"),
            ("noteAndFail", "sent"),
        )
    }
    assert value(found, "acts_attempts_total", tool="failTwice", outcome="retried") == 2
    assert value(found, "acts_attempts_total", tool="failTwice", outcome="done") == 1
    assert value(found, "acts_attempt_seconds_count", tool="failTwice") == 3
    assert value(found, "acts_wait_seconds_count", queue="lathe", tool="remoteAdd") == 1
    assert value(found, "acts_wait_seconds_count", queue="background", tool="noteAndFail") == 1
    assert value(found, "acts_wait_seconds_count", queue="instances", tool="") >= 1
    assert value(found, "acts_commit_seconds_count") >= 3
    assert value(found, "acts_serves_queue", queue="lathe") == 1
    assert total(found, "acts_attempts_at_work") == 0
    assert total(found, "acts_runs_ended_total") == 1


def test_what_is_at_work_and_in_hand_is_shown_until_it_has_ended(backend_process_figures: Backend) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/metrics"
    call = {"_tool": "remoteWait", "gate": "figures", "_outputPath": "†state.a"}
    with backend_process_figures.worker("--metrics-port", str(port)):
        run = backend_process_figures.client.submit([], {"calls": [call]})
        found = page_until(url, lambda one: value(one, "acts_attempts_at_work", tool="remoteWait") == 1)
        assert value(found, "acts_tasks_in_hand", queue="lathe") == 1
        backend_process_figures.meeting.open_gate("figures")
        backend_process_figures.wait(run.id)
        page_until(
            url,
            lambda one: (
                value(one, "acts_attempts_at_work", tool="remoteWait") == 0
                and value(one, "acts_tasks_in_hand", queue="lathe") == 0
            ),
        )


def test_answers_of_models_are_counted_with_their_tokens_and_their_price(backend_process_figures: Backend) -> None:
    port = free_port()
    call = {"_tool": "say", "text": "Bonjour", "_outputPath": "†state.english"}
    tools = {
        "say": {"type": "object", "properties": {"_delegate": {"const": "translator"}, "text": {"type": "string"}}}
    }
    delegates = {"translator": {"context": [{"type": "system", "message": "Translate."}], "schema": {}}}
    with backend_process_figures.worker("--metrics-port", str(port)):
        assert backend_process_figures.run([call], tools=tools, delegates=delegates).status == "completed"
        found = page(f"http://127.0.0.1:{port}/metrics")
    (name,) = {dict(labels)["model"] for sample, labels in found if sample == "acts_model_requests_total"}
    assert value(found, "acts_model_requests_total", model=name, outcome="answered") == 1
    assert value(found, "acts_model_request_seconds_count", model=name) == 1
    paid = value(found, "acts_model_dollars_total", model=name)
    unpriced = value(found, "acts_model_unpriced_requests_total", model=name)
    assert (paid > 0) != (unpriced == 1), found


def test_tokens_are_counted_by_kind_and_none_twice() -> None:
    registry = CollectorRegistry()
    figures = ProcessMetrics(registry, ())
    figures.model_answered("m", Tokens(input=70, cached=30, output=5), nanodollars=2_000_000_000, seconds=1.5)
    figures.model_answered("m", None, nanodollars=None, seconds=0.5)
    figures.model_failed("m", "RateLimited")
    sample = registry.get_sample_value
    kinds = {kind: sample("acts_model_tokens_total", {"model": "m", "kind": kind}) for kind in Tokens._fields}
    assert kinds == {"input": 70, "cached": 30, "output": 5}
    assert sample("acts_model_dollars_total", {"model": "m"}) == 2
    assert sample("acts_model_unpriced_requests_total", {"model": "m"}) == 1
    assert sample("acts_model_requests_total", {"model": "m", "outcome": "RateLimited"}) == 1


def test_made_up_names_of_tools_models_and_queues_make_no_more_series_than_a_bounded_number() -> None:
    registry = CollectorRegistry()
    figures = ProcessMetrics(registry, ())
    for number in range(5_000):
        name = f"tool-{number}" if number % 2 else f'"\n{number}'
        figures.call_ended(name, "done")
        figures.attempt_began(name)
        figures.attempt_ended(name, "done", 0.1)
        figures.waited(name, name, 0.1)
        figures.model_answered(name, None, None, 0.1)
    text = generate_latest(registry).decode()
    assert text.count("\nacts_calls_total{") == 201
    assert text.count("\nacts_model_requests_total{") == 51
    assert text.count("\n") < 20_000
    assert registry.get_sample_value("acts_calls_total", {"tool": OTHER, "status": "done"}) == 5_000 - 200


def test_each_of_several_processes_shows_its_own_figures_on_a_port_of_its_own(backend_process_figures: Backend) -> None:
    port = free_port(following=1)
    command = [sys.executable, "-m", "acts_celery", "worker", "--json", "--processes", "2"]
    environment = backend_process_figures.environment(ACTS_METRICS_PORT=str(port))
    with (
        backend_process_figures.log.open("wb") as log,
        ended(command, environment, backend_process_figures.folder, log) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline(), backend_process_figures.log.read_text()
        context = [{"type": "state", "_instance": f"n{number}", "a": number} for number in range(40)]
        call = {"_tool": "add", "a": "†state.a", "b": 1, "_outputPath": "†state.b"}
        backend_process_figures.wait(
            backend_process_figures.client.submit([*context, {"type": "plan", "calls": [call]}]).id
        )
        deadline, ended_calls = time.monotonic() + DEADLINE_SECONDS, 0.0
        while ended_calls < 40:  # a process counts what it has committed, after its end can be seen
            assert time.monotonic() < deadline, ended_calls
            pages = [page(f"http://127.0.0.1:{port + number}/metrics") for number in (0, 1)]
            ended_calls = sum(value(found, "acts_calls_total", tool="add", status="done") for found in pages)
    assert ended_calls == 40


def refused(backend: Backend, *arguments: str, **environment: str) -> tuple[int, str]:
    """How a command ends that does not start, and what it says."""
    finished = subprocess.run(
        [sys.executable, "-m", "acts_celery", *arguments],
        env=backend.environment(**environment),
        cwd=backend.folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    return finished.returncode, finished.stderr


@pytest.mark.nightly
def test_a_worker_whose_figures_cannot_be_shown_does_not_start_and_says_what_to_do(
    backend_process_figures: Backend,
) -> None:
    port = str(free_port())
    with backend_process_figures.worker("--metrics-port", port):
        for command in (("worker", "--processes", "1", "--metrics-port", port), ("metrics", "--port", port)):
            code, said = refused(backend_process_figures, *command)
            assert (code, "name another port or address" in said) == (3, True), said
    code, said = refused(backend_process_figures, "worker", "--pool", "prefork", "--metrics-port", port)
    assert (code, "use another pool" in said) == (3, True), said


@pytest.mark.nightly
def test_a_worker_that_a_command_or_a_test_brings_along_leaves_the_port_to_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("ACTS_METRICS_PORT", str(taken.getsockname()[1]))
        with local([add]) as client:
            assert client.submit(
                [], {"calls": [{"_tool": "add", "a": 1, "_outputPath": "†state.b"}]}
            ).wait().status == ("completed")
        (tmp_path / "own.py").write_text(
            "from acts_celery import activity\n\n@activity\ndef one() -> int:\n    return 1\n"
        )
        (tmp_path / "own.json").write_text('{"calls": [{"_tool": "one", "_outputPath": "†state.one"}]}')
        command = [sys.executable, "-m", "acts_celery", "run", "own.json", "--activities", "own.py"]
        finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr


@pytest.mark.nightly
def test_without_the_extra_a_port_is_refused_with_what_to_install(
    backend_process_figures: Backend, tmp_path: Path
) -> None:
    package = tmp_path / "without" / "prometheus_client"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('not installed')\n")
    path = {"PYTHONPATH": f"{package.parent}:{backend_process_figures.environment()['PYTHONPATH']}"}
    for command in (("worker", "--processes", "1", "--metrics-port", "1"), ("metrics", "--port", "1")):
        code, said = refused(backend_process_figures, *command, **path)
        assert (code, "pip install '.[metrics]'" in said) == (3, True), said


@pytest.mark.nightly
def test_a_worker_without_a_port_loads_nothing_for_figures(backend_process_figures: Backend) -> None:
    code = (
        "import sys; from acts_celery.celery import app; app.Worker(pool='solo'); "
        "print('prometheus_client' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=backend_process_figures.environment(),
        cwd=backend_process_figures.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout.strip().splitlines()[-1].lower()) is False


def test_what_the_process_carries_out_has_its_name_whatever_others_have_made_up() -> None:
    registry = CollectorRegistry()
    figures = ProcessMetrics(registry, (), ["order"])
    for number in range(300):
        figures.call_ended(f"alias-{number}", "done")
    figures.call_ended("order", "done")
    assert registry.get_sample_value("acts_calls_total", {"tool": "order", "status": "done"}) == 1
    assert registry.get_sample_value("acts_calls_total", {"tool": OTHER, "status": "done"}) == 100


# Celery's task events as other people's exporters read them: in JSON, with names that say what was carried out.


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


# A worker that does only half of its work says so: to `inspect stats`, to `acts doctor` and to `acts health`.

REMOTE = {"ACTS_REMOTE_CONTROL": "true"}


@pytest.fixture
def backend_health(tmp_path: Path) -> Iterator[Backend]:
    with EmbeddedServer() as server:
        settings = settings_for(server, health_folder=str(tmp_path / "health"))
        yield Backend(settings, Meeting(meeting_url(server)), tmp_path)


def ask(backend: Backend, command: str) -> tuple[int, str]:
    """What `acts health` or `acts doctor` answers: exit code and output."""
    code, stdout, _ = forks.run(
        [command], env=backend.environment(), folder=backend.folder, stdin=b"", timeout_seconds=DEADLINE_SECONDS
    )
    return code, stdout.decode()


def stats(backend: Backend) -> dict[str, Any]:
    """The health of the one worker, as it tells of it: asked again where it has only just begun to listen."""
    inspect = make_client_application(backend.settings).control.inspect(timeout=2, limit=1)
    answers = next(found for _ in range(DEADLINE_SECONDS // 2) if (found := inspect.stats()))
    (answer,) = answers.values()
    health: dict[str, Any] = answer["health"]
    return health


def until(seen: Callable[[], bool]) -> None:
    """Ask again until it is so: a worker can be asked, but never calls."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_worker_that_does_all_of_its_work_is_well(backend_health: Backend) -> None:
    assert ask(backend_health, "health")[0] == 3, "there is none yet"
    with backend_health.worker("-Q", "instances", "-n", "one") as process:
        told = stats(backend_health)
        assert (told["queues"], told["problems"]) == (["instances"], {})
        code, said = ask(backend_health, "health")
        assert (code, said.split("@")[0], said.split()[-1]) == (0, "one", "ok")
        process.send_signal(signal.SIGTERM)
        process.wait(DEADLINE_SECONDS)
    assert list((backend_health.folder / "health").iterdir()) == []


def test_a_dead_sweep_is_seen(backend_health: Backend) -> None:
    with backend_health.worker("-n", "one"):
        run = backend_health.run([{"_tool": "endThread", "name": "acts-sweep", "_outputPath": "†state.a"}])
        assert run.status == "completed"
        until(lambda: "the sweep" in stats(backend_health)["problems"])
        until(lambda: ask(backend_health, "health")[0] == 3)
        assert ask(backend_health, "health")[1].endswith(": the sweep has ended\n")
        code, said = ask(backend_health, "doctor")
        assert code == 3
        assert "the sweep has ended" in said
        assert backend_health.run([{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}]).status == "completed"


def test_a_cancelled_consumer_is_seen(backend_health: Backend) -> None:
    with backend_health.worker("-n", "one", **REMOTE):
        assert stats(backend_health)["problems"] == {}
        make_client_application(backend_health.settings).control.cancel_consumer("delegates", reply=True, limit=1)
        until(lambda: ask(backend_health, "health")[0] == 3)
        assert "queue delegates is no longer consumed" in ask(backend_health, "health")[1]
        assert stats(backend_health)["problems"] == {"queue delegates": "is no longer consumed"}
        code, said = ask(backend_health, "doctor")
        assert code == 3
        assert "queue delegates is no longer consumed" in said


def test_a_worker_that_gives_no_sign_of_life_is_seen(backend_health: Backend) -> None:
    with backend_health.worker("-n", "one") as process:
        (file,) = (backend_health.folder / "health").glob("*.json")
        process.send_signal(signal.SIGSTOP)
        long_ago = time.time() - 31
        os.utime(file, (long_ago, long_ago))
        code, told = ask(backend_health, "health")
        process.send_signal(signal.SIGCONT)
    assert code == 3
    assert "it has given no sign of life for 3" in told


def test_what_a_killed_worker_has_left_is_removed_by_the_next_one(backend_health: Backend) -> None:
    folder = backend_health.folder / "health"
    with backend_health.worker("-n", "one") as process:
        process.kill()
        process.wait(DEADLINE_SECONDS)
    assert [file.stem.split("@")[0] for file in folder.iterdir()] == ["one"]
    assert ask(backend_health, "health")[1].endswith(f" it is dead: there is no process {process.pid}\n")
    theirs = {"package.json": "{}", "theirs.acts-health.json": '{"pid": 1}', "other.acts-health.json": "[" * 100_000}
    for name, text in theirs.items():
        (folder / name).write_text(text)
    with backend_health.worker("-n", "two"):
        left = {file.name for file in folder.iterdir()}
        assert left >= theirs.keys(), "what is not whole and ours stays"
        assert {name.split("@")[0] for name in left - theirs.keys()} == {"two"}


def test_a_worker_whose_folder_is_removed_goes_on_and_says_so(backend_health: Backend) -> None:
    with backend_health.worker("-n", "one"):
        shutil.rmtree(backend_health.folder / "health")
        (backend_health.folder / "health").write_text("in the way")
        until(lambda: "its file" in stats(backend_health)["problems"])
        assert backend_health.run([{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}]).status == "completed"
        (backend_health.folder / "health").unlink()
        until(lambda: ask(backend_health, "health")[0] == 0)


def test_a_worker_that_begins_anew_again_and_again_says_so(backend_health: Backend) -> None:
    with backend_health.worker("-n", "one"):
        cut = set[str]()

        def listening() -> set[str]:
            return {client["id"] for client in backend_health.redis.client_list() if client["cmd"] == "brpop"} - cut

        for _ in range(4):
            until(lambda: bool(listening()))
            for client in listening():
                backend_health.redis.client_kill_filter(_id=client)
                cut.add(client)
        until(lambda: "began anew" in ask(backend_health, "health")[1])


# What figures cost: one call for each of 2,000 instances takes a worker hardly longer with them than without.

INSTANCES = 2_000
ROUNDS = 5
MOST_SHARE = 0.01
"""Of the processor time. Among all else that a worker does the same takes up to three times as long."""
CONTEXT = [{"type": "state", "_instance": f"n{number}", "a": number} for number in range(INSTANCES)]
PLAN = {"type": "plan", "calls": [{"_tool": "add", "a": "†state.a", "b": 1, "_outputPath": "†state.b"}]}


def work(backend: Backend, pid: int) -> float:
    """Seconds of processor time that a worker takes for the run."""
    before = processor_seconds(pid)
    backend.wait(backend.client.submit([*CONTEXT, PLAN]).id)
    return processor_seconds(pid) - before


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def noted(commits: int) -> float:
    """Seconds of processor time for noting what a worker notes of the run, and for showing it once."""
    registry = CollectorRegistry()
    figures = ProcessMetrics(registry, ["instances"])
    began = process_time()
    for number in range(INSTANCES):
        figures.task_taken("instances")
        figures.waited("instances", "", 0.02)
        figures.attempt_began("add")
        figures.attempt_ended("add", "done", 0.01)
        figures.call_ended("add", "done")
        figures.task_answered("instances")
        for _ in range(commits * (number + 1) // INSTANCES - commits * number // INSTANCES):
            figures.committed(0.02)
    generate_latest(registry)
    return process_time() - began


@pytest.mark.nightly
def test_a_worker_takes_at_most_three_in_a_hundred_of_its_time_for_figures(
    server: EmbeddedServer, meeting: Meeting, tmp_path: Path
) -> None:
    backend, port = Backend(settings_apart(server, "counting"), meeting, tmp_path), free_port()
    with backend.worker("--metrics-port", str(port)) as worker:
        seconds = min(work(backend, worker.pid) for _ in range(ROUNDS))
        found = page(f"http://127.0.0.1:{port}/metrics")
    assert value(found, "acts_calls_total", tool="add", status="done") == ROUNDS * INSTANCES
    commits = int(value(found, "acts_commit_seconds_count")) // ROUNDS
    share = min(noted(commits) for _ in range(ROUNDS)) / seconds
    print(f"{share:.4f} of {seconds:.2f} s, with {commits} commits")
    assert share <= MOST_SHARE
