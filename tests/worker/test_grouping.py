"""Commands of one turn of the loop go out together, on a server of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.store import connections as grouping
from acts_celery.worker.store.connections import GroupedCommands, connect_async

from .backend import settings_for


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
    monkeypatch.setattr(grouping, "SILENT_SECONDS", 0.2)

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
