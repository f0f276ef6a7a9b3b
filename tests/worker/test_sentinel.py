"""Connections to the log: Sentinels, silence, refused writes, commands that go together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kombu.exceptions import OperationalError
from redis import Redis

from acts_celery import InfrastructureError, Run
from acts_celery.broker_config import EmbeddedServer, Settings, load
from acts_celery.worker.broker.consumer import Publisher
from acts_celery.worker.broker.messages import lane_task
from acts_celery.worker.runner.application import make_client_application
from acts_celery.worker.store.connections import NotNow, connect, connect_async, redis_errors
from acts_celery.worker.store.log import LogTerms, MessageLog

from .backend import ACTIVITIES, MODEL, Backend, Meeting, meeting_url, settings_for
from .sentinels import Watched, watched_servers

# The log, and the broker, on a master that Sentinels name: sentinel:// addresses, and a failover during a run.


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    with watched_servers(tmp_path) as servers:
        yield servers


@pytest.fixture
def backend(watched: Watched, tmp_path: Path) -> Iterator[Backend]:
    """Workers and clients that know the Sentinel alone; the tests meet elsewhere."""
    with EmbeddedServer() as elsewhere:
        yield Backend(settings_at(watched.url), Meeting(meeting_url(elsewhere)), tmp_path)


def settings_at(url: str) -> Settings:
    return load(env_file=None, broker_url=url, activities=(str(ACTIVITIES),), model=MODEL)


def calls(gate: str) -> list[dict[str, object]]:
    """One call of each kind; the second waits at a gate."""
    return [
        {"_tool": "echo", "value": 1, "_outputPath": "†state.a"},
        {"_tool": "waitAtGate", "gate": gate, "value": "†state.a", "_outputPath": "†state.b"},
        {"_tool": "remoteAdd", "a": "†state.b", "b": 1, "_outputPath": "†state.c"},
        {"_tool": "note", "name": "told"},
    ]


def test_a_run_whose_log_and_broker_sentinels_name_completes(backend: Backend) -> None:
    backend.meeting.open_gate("open")
    with backend.worker():
        result = backend.run(calls("open"))
    assert result.data()["state"] == {"a": 1, "b": 1, "c": {"sum": 2}}


def test_a_run_outlives_a_failover(backend: Backend, watched: Watched) -> None:
    with backend.worker():
        run: Run = backend.client.submit(solution={"calls": calls("later")})
        backend.meeting.take("at:later")
        with connect(backend.settings) as redis:
            redis.set("last", "write")
            assert redis.wait(1, 10_000) == 1, "the replica has everything"
        before = watched.master_port
        assert watched.kill_master() != before
        backend.meeting.open_gate("later")
        assert backend.wait(run.id).data()["state"] == {"a": 1, "b": 1, "c": {"sum": 2}}
        more = backend.run([{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}])
        assert more.status == "completed"


# A server that takes no writes for a while - its disk is full, its replicas are away - is waited for.


def test_what_calls_have_done_while_the_log_refuses_it_is_written_once_it_does_not(tmp_path: Path) -> None:
    with EmbeddedServer() as broker, EmbeddedServer() as log:
        settings = settings_for(broker, redis_url=log.redis_url)
        backend = Backend(settings, Meeting(meeting_url(broker)), tmp_path)
        with backend.worker(), Redis.from_url(log.redis_url) as admin:
            calls = [
                {"_tool": "waitAtGate", "gate": "refused", "value": number, "_outputPath": f"†state.v{number}"}
                for number in range(10)
            ]
            run = backend.client.submit(solution={"calls": calls}).id
            for _ in calls:
                backend.meeting.take("at:refused")
            admin.config_set("min-replicas-to-write", 1)
            backend.meeting.open_gate("refused")
            with redis_errors(settings), pytest.raises(NotNow), connect(settings) as ours:
                ours.set("anything", 1)
            with pytest.raises(InfrastructureError, match=r"takes nothing at the moment .*replicas \(NOREPLICAS\)"):
                backend.client.submit(solution={"calls": calls})
            admin.config_set("min-replicas-to-write", 0)
            assert backend.wait(run).data()["state"] == {f"v{number}": number for number in range(10)}
            assert backend.meeting.count("at:refused") == 0, "no call was carried out twice"
            assert "unexpected" not in backend.log.read_text()


# Connections: as many to the log as there are lanes at work in one process, and to a broker that is full.


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
