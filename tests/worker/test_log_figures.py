"""Figures of the log and the queues (`acts metrics`): what is there now, whatever lies in a queue."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.broker.consumer import Publisher
from acts_celery.worker.broker.messages import SENT, TASKS, lane_task
from acts_celery.worker.runner.application import make_client_application
from acts_celery.worker.store.keys import recovery
from acts_celery.worker.telemetry.figures import Collection, LogReader, QueueFigures, QueueReader, RedisQueue

from .backend import Backend, Meeting, meeting_url, settings_for
from .figures import metrics_command, page, page_until, scraped, value

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
    return RedisQueue(backend.redis, name)


def truth(backend: Backend, name: str = "instances") -> int:
    """How many tasks lie in a queue, by reading all of it."""
    raw = backend.redis.lrange(name, 0, -1)
    return sum(json.loads(one)["headers"].get(TASKS, 1) for one in raw)


def test_the_length_of_a_queue_is_right_after_whatever_was_put_and_taken(backend: Backend) -> None:
    reader, redis = queue(backend), backend.redis
    publisher = Publisher(make_client_application(backend.settings))
    assert reader.read(FAR) == QueueFigures(0, 0.0)
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
