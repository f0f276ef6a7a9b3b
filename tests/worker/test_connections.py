"""Connections: as many to the log as there are lanes at work in one process, and to a broker that is full."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kombu.exceptions import OperationalError
from redis import Redis

from acts_celery.broker_config import EmbeddedServer, load
from acts_celery.worker.broker.consumer import Publisher
from acts_celery.worker.broker.messages import lane_task
from acts_celery.worker.runner.application import make_client_application
from acts_celery.worker.store.connections import connect, connect_async
from acts_celery.worker.store.log import LogTerms, MessageLog

from .backend import settings_for


def test_as_many_lanes_as_a_worker_has_threads_can_read_at_once(server: EmbeddedServer) -> None:
    settings = settings_for(server)

    async def read() -> list[object]:
        async with connect_async(settings) as redis:
            log = MessageLog(redis, "crowd", LogTerms(published_seconds=60, window=500, lease_seconds=30))
            reads = (log.read("none", f"i{n}") for n in range(settings.concurrency))
            return list(await asyncio.gather(*reads, return_exceptions=True))

    assert asyncio.run(read()) == [[]] * settings.concurrency


def test_a_client_waits_for_as_many_runs_as_there_are_threads(server: EmbeddedServer) -> None:
    """redis-py's own limit is a hundred connections."""
    threads = 150
    together = threading.Barrier(threads)

    def blocked(_: int) -> object:
        together.wait(timeout=60)
        return redis.blpop(["connections-nothing"], timeout=1)

    with connect(settings_for(server)) as redis, ThreadPoolExecutor(threads) as pool:
        assert list(pool.map(blocked, range(threads))) == [None] * threads


def test_a_result_waits_for_a_broker_that_is_full() -> None:
    with EmbeddedServer() as server, Redis.from_url(server.redis_url) as redis:
        publisher = Publisher(make_client_application(settings_for(server)))
        redis.config_set("maxmemory", 1)
        room = threading.Timer(0.5, redis.config_set, ("maxmemory", 0))
        room.start()
        publisher.deliver([lane_task("run", None, "instances")])
        room.join()
        refused: Any = redis.info("errorstats")
        assert refused["errorstat_OOM"]["count"] > 0
        assert redis.llen("instances") == 1


def test_a_broker_that_was_away_for_long_is_found_again_within_seconds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("kombu.utils.functional.sleep", lambda seconds: None)
    nobody = load(env_file=None, broker_url=f"redis+socket://{tmp_path}/nobody")
    connection = make_client_application(nobody).connection_for_read()
    waits: list[float] = []
    with pytest.raises(OperationalError):
        connection.ensure_connection(lambda error, seconds: waits.append(seconds), 12)
    assert len(waits) == 12
    assert max(waits) <= 5
