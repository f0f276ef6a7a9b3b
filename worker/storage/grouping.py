"""Grouping: commands that are asked for in one turn of the event loop go out in one pipeline.

A lane's opening, claim and commit are one command each, and many lanes run on one loop: together they cost one write,
one read and one wake-up of the loop, instead of one each.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final

import hiredis
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from acts_celery.worker.process.batching import Batcher
from acts_celery.worker.process.outages import Outage

from .connections import PASSING, SILENT_SECONDS

logger = logging.getLogger(__name__)

_PIPELINES: Final = 2
"""How many pipelines are under way at a time; what is asked for meanwhile waits, and goes out together."""

Command = tuple[Any, ...]


class GroupedCommands:
    """Sends commands for the tasks of one event loop. A command may be sent twice, where its answer was lost.

    What the server will take later - it is full, loading or away - is repeated until it takes it.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._scripts: dict[str, str] = {}
        self._idle: list[AbstractConnection] = []
        """Connections of the pool that are kept, as many as there are pipelines."""
        self._batcher = Batcher[Command, Any](
            self._ask,
            size_of=_size,
            under_way=_PIPELINES,
            passing=PASSING,
            outage=Outage(logger, "a command to the log"),
        )

    def register_script(self, text: str) -> str:
        """Make a script known; returns what `run_script` takes."""
        sha: str = self._redis.register_script(text).sha
        self._scripts[sha] = text
        return sha

    async def run_script(self, sha: str, keys: tuple[str, ...], *arguments: Any) -> Any:
        """What a registered script answers. Raises `RedisError`, as `execute` does."""
        try:
            return await self.execute("EVALSHA", sha, len(keys), *keys, *arguments)
        except NoScriptError:
            return await self.execute("EVAL", self._scripts[sha], len(keys), *keys, *arguments)

    async def execute(self, *command: Any) -> Any:
        """What the server answers to a command."""
        return await self._batcher.hand_in(command)

    async def _ask(self, commands: list[Command]) -> list[Any]:
        """The answers to commands, each of which may be an error."""
        if isinstance(self._redis, RedisCluster):
            async with self._redis.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                return await pipeline.execute(raise_on_error=False)
        try:
            async with asyncio.timeout(SILENT_SECONDS) as silence:
                connection = self._idle.pop() if self._idle else await self._redis.connection_pool.get_connection()  # type: ignore[no-untyped-call]  # redis has none here
                try:
                    return await self._answers(connection, commands, silence)
                finally:
                    self._idle.append(connection)  # one that has failed is closed, and connects anew
        except TimeoutError as error:
            raise RedisTimeoutError(f"no answer for {SILENT_SECONDS} s") from error

    async def _answers(
        self, connection: AbstractConnection, commands: Sequence[Command], silence: asyncio.Timeout
    ) -> list[Any]:
        if not connection.is_connected:
            # Sending alone does not ask the Sentinels again.
            await connection.connect()  # type: ignore[no-untyped-call]  # as above
        await _send(connection, b"".join(map(hiredis.pack_command, commands)))
        answers = []
        for command in commands:
            answers.append(await self._answer(connection, command[0]))
            silence.reschedule(asyncio.get_running_loop().time() + SILENT_SECONDS)
        return answers

    async def _answer(self, connection: AbstractConnection, command: str) -> Any:
        try:
            answer = await connection.read_response()
        except ResponseError as error:
            return error
        read = self._redis.response_callbacks.get(command)
        return answer if read is None else read(answer)


async def _send(connection: AbstractConnection, data: bytes) -> None:
    try:
        await connection.send_packed_command(data)
    except AttributeError as error:  # Python 3.13's transport, where the connection was reset meanwhile
        await connection.disconnect(nowait=True)
        raise RedisConnectionError("the connection was reset") from error


def _size(command: Command) -> int:
    return sum(len(part) for part in command if isinstance(part, bytes))
