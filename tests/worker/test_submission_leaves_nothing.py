"""A submission that is rejected, or cannot be written down whole, leaves no key of ours (SPEC R7.1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from acts_celery import Client, InfrastructureError
from acts_celery.broker_config import EmbeddedServer
from acts_celery.protocol import Rejected
from acts_celery.worker.broker.consumer import Publisher
from acts_celery.worker.recovery.heartbeats import ReportQueue
from acts_celery.worker.recovery.sweep import Sweeper
from acts_celery.worker.runner.application import make_client_application

from .backend import settings_for


@pytest.fixture(scope="module")
def own_server() -> Iterator[EmbeddedServer]:
    """A server that these tests may fill up."""
    with EmbeddedServer() as running:
        yield running


@pytest.fixture
def redis(own_server: EmbeddedServer) -> Iterator[Redis]:
    with Redis.from_url(own_server.redis_url) as connection:
        connection.flushall()
        yield connection
        connection.config_set("maxmemory", 0)


def our_keys(redis: Redis) -> list[bytes]:
    return list(redis.scan_iter("*"))


def echo(value: Any, **meta: Any) -> dict[str, Any]:
    return {"_tool": "echo", "value": value, "_outputPath": "†state.a", **meta}


@pytest.mark.parametrize(
    "submission",
    [
        None,
        [],
        {},
        {"solution": 5},
        {"solution": {"calls": [{"_tool": "unknown"}]}},
        {"solution": {"calls": [echo("†state.nothing")]}},
        {"solution": {"calls": [echo("†state.")]}},
        {"solution": {"calls": [echo(1, _instance="①")]}},
        {"solution": {"calls": [{"_tool": "add", "a": "one", "_outputPath": "†state.a"}]}},
        {"solution": {"calls": [echo("x" * 2_000_000)]}},
        {"solution": {"calls": [echo("†state.b"), {**echo("†state.a"), "_outputPath": "†state.b"}]}},
        {"solution": {"calls": [echo(1)]}, "config": "text"},
        {"solution": {"calls": [echo(1)]}, "config": [1]},
        {"solution": {"calls": [echo(1)]}, "config": {"ticks": 8}},
        {"context": [{"type": "state", "_instance": "①"}], "solution": {"calls": [echo(2**70)]}},
    ],
)
def test_a_rejected_submission_leaves_nothing(own_server: EmbeddedServer, redis: Redis, submission: Any) -> None:
    with Client(settings_for(own_server)) as client, pytest.raises(Rejected):
        client.submit_document(submission)
    assert our_keys(redis) == []


def test_a_submission_that_calls_what_is_not_allowed_leaves_nothing(own_server: EmbeddedServer, redis: Redis) -> None:
    with Client(settings_for(own_server)) as client, pytest.raises(Rejected, match="'echo' is not allowed here"):
        client.submit(solution={"calls": [echo(1)]}, allow=["add"])
    assert our_keys(redis) == []


def test_a_server_that_is_full_leaves_nothing(own_server: EmbeddedServer, redis: Redis) -> None:
    redis.config_set("maxmemory", 1)
    with Client(settings_for(own_server)) as client, pytest.raises(InfrastructureError, match="is full"):
        client.submit(solution={"calls": [echo(1)]})
    redis.config_set("maxmemory", 0)
    assert our_keys(redis) == []


def test_a_server_that_gets_full_in_the_middle_leaves_nothing(own_server: EmbeddedServer, redis: Redis) -> None:
    memory: Any = redis.info("memory")
    redis.config_set("maxmemory", memory["used_memory"] + 4_000_000)
    context = [{"type": "state", "_instance": f"i{n}", "text": "x" * 10_000} for n in range(1_200)]
    with Client(settings_for(own_server)) as client, pytest.raises(InfrastructureError, match="is full"):
        client.submit(context, {"calls": [echo("†state.text", _instance="i0")]})
    redis.config_set("maxmemory", 0)
    assert our_keys(redis) == []


def test_a_submission_that_cannot_be_published_is_a_run_that_the_sweep_publishes(
    own_server: EmbeddedServer, redis: Redis
) -> None:
    away = settings_for(own_server, broker_url="redis://127.0.0.1:1/0")
    with Client(away) as client:
        run = client.submit(solution={"calls": [echo(1)]})
    settings = settings_for(own_server)
    app = make_client_application(settings)
    assert redis.llen(settings.queue_instances) == 0
    Sweeper(redis, Publisher(app), ReportQueue(app, settings), settings).sweep()
    assert redis.llen(settings.queue_instances) == 1
    assert run.status()["status"] == "running"


def test_a_log_that_does_not_answer_leaves_no_task(own_server: EmbeddedServer, redis: Redis) -> None:
    settings = settings_for(own_server, redis_url="redis://127.0.0.1:1/0")
    with Client(settings) as client, pytest.raises(InfrastructureError):
        client.submit(solution={"calls": [echo(1)]})
    assert our_keys(redis) == []
