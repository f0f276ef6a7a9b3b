"""Commands of one turn of the loop go out together, on a server of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.storage.connections import connect_async
from acts_celery.worker.storage.grouping import GroupedCommands

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

    async def ask(connection: Any) -> list[Any]:
        make = connection.pipeline

        def pipeline(**options: Any) -> Any:
            made = make(**options)
            execute = made.execute

            async def noting(**how: Any) -> Any:
                sizes.append([len(command[0][-1]) for command in made.command_stack])
                return await execute(**how)

            made.execute = noting
            return made

        connection.pipeline = pipeline
        commands = GroupedCommands(connection)
        return await asyncio.gather(
            *(commands.execute("APPEND", "k", b"x" * size) for size in [700_000] * 9 + [1] * 50)
        )

    async def asking() -> list[Any]:
        async with connect_async(settings_for(own)) as connection:
            return await ask(connection)

    assert max(asyncio.run(asking())) == 9 * 700_000 + 50
    assert max(map(sum, sizes)) <= 2 * 700_000
    assert [1] * 40 in [group[-40:] for group in sizes], "small ones do"
