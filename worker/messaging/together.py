"""Sending together what is handed in at the same time: while one batch is under way, the next one gathers.

So what a process tells of many short calls costs few messages, and a single one goes at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextvars import Context
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_MOST: Final = 100
"""How many go together."""


class Together(Generic[T]):
    """Sends what the tasks of one event loop hand in; `send` is called with a batch, on the executor's threads."""

    def __init__(self, send: Callable[[Sequence[T]], None], executor: Executor) -> None:
        self._send = send
        self._executor = executor
        self._waiting: deque[tuple[T, asyncio.Future[None]]] = deque()
        self._working: asyncio.Task[None] | None = None

    async def send(self, one: T) -> None:
        """Returns when it was sent. Raises what `send` raises of its batch."""
        loop = asyncio.get_running_loop()
        sent = loop.create_future()
        self._waiting.append((one, sent))
        if self._working is None:
            # Not in the context of the first sender: it sends for all.
            self._working = loop.create_task(self._work(), context=Context())
        await sent

    async def _work(self) -> None:
        """Send until nothing is left."""
        try:
            await asyncio.sleep(0)  # what is handed in in the same turn of the loop goes along
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(_MOST, len(self._waiting)))]
                error = await self._error_of([one for one, _ in batch])
                for _, sent in batch:
                    if sent.done():
                        continue  # who handed it in was cancelled
                    if error is None:
                        sent.set_result(None)
                    else:
                        sent.set_exception(error)
        finally:
            self._working = None

    async def _error_of(self, items: Sequence[T]) -> BaseException | None:
        """Send a batch; what is raised, also where no thread can be had for it."""
        try:
            sending = asyncio.get_running_loop().run_in_executor(self._executor, self._send, items)
        except RuntimeError as error:
            return error
        await asyncio.wait([sending])
        return sending.exception()
