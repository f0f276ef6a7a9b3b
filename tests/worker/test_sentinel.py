"""Connections to the log: Sentinels, refused writes, commands that go together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kombu.exceptions import OperationalError
from redis import Redis
from redis.exceptions import ResponseError

from acts_celery import InfrastructureError, Run
from acts_celery.broker_config import EmbeddedServer, Settings, load
from acts_celery.worker.broker.consumer import Publisher
from acts_celery.worker.broker.messages import lane_task
from acts_celery.worker.runner.application import make_client_application
from acts_celery.worker.store.connections import GroupedCommands, NotNow, connect, connect_async, redis_errors
from acts_celery.worker.store.log import LogTerms, MessageLog

from .backend import ACTIVITIES, MODEL, Backend, Meeting, meeting_url, settings_for
from .sentinels import Watched, watched_servers

# Connections to the log: Sentinels, silence, refused writes, commands that go together.

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
        return shared.blpop(["connections-nothing"], timeout=1)

    with connect(settings_for(server)) as shared, ThreadPoolExecutor(threads) as pool:
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


# Commands of one turn of the loop go out together, on a server of their own.


@pytest.fixture(scope="module")
def own() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as running:
        yield running


@pytest.fixture
def redis(own: EmbeddedServer) -> Redis:
    connection = Redis.from_url(own.redis_url)
    connection.flushall()
    return connection


def asked(own: EmbeddedServer, act: Callable[[GroupedCommands], Awaitable[Any]]) -> Any:
    async def asking() -> Any:
        async with connect_async(settings_for(own)) as connection:
            return await act(GroupedCommands(connection))

    return asyncio.run(asking())


def test_each_gets_its_own_answer(own: EmbeddedServer, redis: Redis) -> None:
    def count(commands: GroupedCommands) -> Awaitable[list[Any]]:
        return asyncio.gather(*(commands.execute("ECHO", str(n)) for n in range(1_000)))

    assert asked(own, count) == [str(n).encode() for n in range(1_000)]


def test_an_error_is_that_of_the_command_that_has_caused_it(own: EmbeddedServer, redis: Redis) -> None:
    redis.set("text", "a")

    async def ask(commands: GroupedCommands) -> Any:
        return await asyncio.gather(
            commands.execute("GET", "text"), commands.execute("LPOP", "text"), return_exceptions=True
        )

    text, error = asked(own, ask)
    assert text == b"a"
    assert isinstance(error, ResponseError)


def test_commands_of_one_turn_are_read_by_the_server_together(own: EmbeddedServer, redis: Redis) -> None:
    async def ask(commands: GroupedCommands) -> None:
        await commands.execute("PING")
        redis.config_resetstat()
        await asyncio.gather(*(commands.execute("INCR", "n") for _ in range(100)))

    asked(own, ask)
    stats: Any = redis.info("stats")
    assert redis.get("n") == b"100"
    assert stats["total_reads_processed"] < 10


def test_a_script_that_the_server_has_forgotten_is_loaded_again(own: EmbeddedServer, redis: Redis) -> None:
    async def ask(commands: GroupedCommands) -> Any:
        sha = commands.register_script("return {KEYS[1], ARGV[1]}")
        redis.script_flush()
        return await asyncio.gather(*(commands.run_script(sha, ("k",), n) for n in range(3)))

    assert asked(own, ask) == [[b"k", b"0"], [b"k", b"1"], [b"k", b"2"]]


def test_what_the_server_takes_later_is_sent_until_it_does(own: EmbeddedServer, redis: Redis) -> None:
    async def ask(commands: GroupedCommands) -> Any:
        redis.config_set("maxmemory", 1)
        full = asyncio.ensure_future(commands.execute("SET", "k", "v"))
        assert await commands.execute("GET", "k") is None
        assert not full.done()
        redis.config_set("maxmemory", 0)
        return await full

    assert asked(own, ask)
    assert redis.get("k") == b"v"


def test_who_was_cancelled_keeps_no_other_one_waiting(own: EmbeddedServer, redis: Redis) -> None:
    async def ask(commands: GroupedCommands) -> Any:
        cancelled = asyncio.ensure_future(commands.execute("BLPOP", "nothing", "0.1"))
        other = asyncio.ensure_future(commands.execute("ECHO", "here"))
        await asyncio.sleep(0)
        cancelled.cancel()
        return await other

    assert asked(own, ask) == b"here"


def test_large_commands_do_not_go_out_together(own: EmbeddedServer, redis: Redis) -> None:
    sizes: list[list[int]] = []

    class Noting(GroupedCommands):
        async def _ask(self, commands: list[Any]) -> list[Any]:
            sizes.append([len(command[-1]) for command in commands])
            return await super()._ask(commands)

    async def asking() -> list[Any]:
        async with connect_async(settings_for(own)) as connection:
            commands = Noting(connection)
            return await asyncio.gather(
                *(commands.execute("APPEND", "k", b"x" * size) for size in [700_000] * 9 + [1] * 50)
            )

    assert max(asyncio.run(asking())) == 9 * 700_000 + 50
    assert max(map(sum, sizes)) <= 2 * 700_000
    assert [1] * 40 in [group[-40:] for group in sizes], "small ones do"


def test_what_was_under_way_on_a_connection_that_is_cut_is_sent_again(own: EmbeddedServer, redis: Redis) -> None:
    def until_it_waits() -> None:
        clients: Any = {"blocked_clients": 0}
        while not clients["blocked_clients"]:
            clients = redis.info("clients")

    async def ask(commands: GroupedCommands) -> list[Any]:
        before = [await commands.execute("ECHO", "before")]
        waiting = asyncio.ensure_future(commands.execute("BLPOP", "later", "0"))
        await asyncio.to_thread(until_it_waits)
        redis.client_kill_filter(_type="normal", skipme=True)
        beside = [commands.execute("ECHO", str(n)) for n in range(3)]
        after = await asyncio.gather(*beside)
        redis.rpush("later", "came")
        return [*before, *after, await waiting]

    assert asked(own, ask) == [b"before", b"0", b"1", b"2", (b"later", b"came")]


def test_a_server_that_owes_an_answer_for_too_long_is_asked_again_on_another_connection(
    own: EmbeddedServer, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it answers late is taken for no other command's answer."""
    monkeypatch.setattr("acts_celery.worker.limits.REDIS_ANSWER_SECONDS", 0.2)

    async def ask(commands: GroupedCommands) -> list[Any]:
        await commands.execute("ECHO", "connected")
        redis.client_pause(1_000)
        return [await commands.execute("ECHO", str(n)) for n in range(3)]

    assert asked(own, ask) == [b"0", b"1", b"2"]
    stats: Any = redis.info("stats")
    assert stats["total_connections_received"] > 3


def test_answers_are_read_as_the_client_reads_them(own: EmbeddedServer, redis: Redis) -> None:
    redis.zadd("scores", {"a": 1.5})
    redis.hset("hash", "k", "v")

    async def ask(commands: GroupedCommands) -> list[Any]:
        asked = [("ZSCORE", "scores", "a"), ("HGETALL", "hash"), ("ZRANGE", "scores", 0, -1), ("HGET", "hash", "no")]
        return [await commands.execute(*command) for command in asked]

    assert asked(own, ask) == [1.5, {b"k": b"v"}, [b"a"], None]
