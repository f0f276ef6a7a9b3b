"""Grouping: commands that are asked for in one turn of the event loop go out in one pipeline.

A lane's opening, claim and commit are one command each, and many lanes run on one loop: together they cost one write,
one read and one wake-up of the loop, instead of one each.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Any, Final

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from acts_celery.worker.backoff import Backoff
from acts_celery.worker.messaging.outages import Outage

from .connections import PASSING

logger = logging.getLogger(__name__)

_MOST_COMMANDS: Final = 100
"""How many commands go out together: their answers come together, too."""
_MOST_BYTES: Final = 2**20
"""How many bytes they have: what is behind waits until a server has read them."""
_PIPELINES: Final = 2
"""How many pipelines are under way at a time; what is asked for meanwhile waits, and goes out together."""
_BACKOFF: Final = Backoff(0.05, 2.0)

Command = tuple[Any, ...]
Waiting = tuple[Command, asyncio.Future[Any]]


class GroupedCommands:
    """Sends commands for the tasks of one event loop. A command may be sent twice, where its answer was lost.

    What the server will take later - it is full, loading or away - is repeated until it takes it.
    """

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._waiting: deque[Waiting] = deque()
        self._pipelines: set[asyncio.Task[None]] = set()
        self._is_beginning = False
        """Whether one of them has not begun yet, and takes along what is asked for until then."""
        self._scripts: dict[str, str] = {}
        self._outage = Outage(logger, "a command to the log")

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
            await self._redis.script_load(self._scripts[sha])
            return await self.execute("EVALSHA", sha, len(keys), *keys, *arguments)

    async def execute(self, *command: Any) -> Any:
        """What the server answers to a command."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((command, answer))
        self._send_soon()
        return await answer

    def _send_soon(self) -> None:
        if not self._is_beginning and len(self._pipelines) < _PIPELINES:
            self._is_beginning = True
            self._pipelines.add(asyncio.ensure_future(self._send()))

    async def _send(self) -> None:
        """Send what waits, until nothing does."""
        self._is_beginning = False
        task = asyncio.current_task()
        assert task is not None
        try:
            await self._send_all()
        finally:
            self._pipelines.discard(task)

    async def _send_all(self) -> None:
        while self._waiting:
            group = self._next()
            for wait_seconds in _BACKOFF.waits():
                group = await self._ask([one for one in group if not one[1].done()])
                if not group:
                    break
                await asyncio.sleep(wait_seconds)
            self._outage.succeeded()

    def _next(self) -> list[Waiting]:
        """The commands that go out together, at least one."""
        group: list[Waiting] = []
        size = 0
        while self._waiting and len(group) < _MOST_COMMANDS and size < _MOST_BYTES:
            group.append(self._waiting.popleft())
            size += sum(len(part) for part in group[-1][0] if isinstance(part, bytes))
        return group

    async def _ask(self, group: list[Waiting]) -> list[Waiting]:
        """Send a group; returns those that the server will take later."""
        if not group:
            return []
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                for command, _ in group:
                    pipeline.execute_command(*command)
                answers = await pipeline.execute(raise_on_error=False)
        except Exception as error:
            answers = [error] * len(group)
        later = []
        for one, answer in zip(group, answers, strict=True):
            if isinstance(answer, PASSING):
                self._outage.failed(answer)
                later.append(one)
            elif one[1].done():
                pass  # who asked was cancelled
            elif isinstance(answer, Exception):
                one[1].set_exception(answer)
            else:
                one[1].set_result(answer)
        return later
