"""Batches: while one is under way the next one gathers, so many items cost little and a single one goes at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from contextvars import Context
from typing import Any, Final, Generic, TypeVar

from acts_celery.worker.backoff import Backoff

from .outages import Outage

T = TypeVar("T")
R = TypeVar("R")

_MOST: Final = 100
_MOST_BYTES: Final = 2**20
_BACKOFF: Final = Backoff(0.05, 1.0)

Waiting = tuple[T, asyncio.Future[R]]
Send = Callable[[list[T]], Awaitable[Sequence[Any] | None]]
"""Sends a batch. Returns what comes of each item, in their order: a result or an exception; None stands for None of
each. What it raises comes of all of them.
"""


class Batcher(Generic[T, R]):
    """Sends what the tasks of one event loop hand in, in that order, so many batches `under_way` at a time.

    A batch is closed when it has `most` items, or a megabyte by `size_of`. Items of which something `passing` comes are
    sent again until something else does; the `outage` notes it.
    """

    def __init__(
        self,
        send: Send[T],
        *,
        most: int = _MOST,
        size_of: Callable[[T], int] = lambda item: 0,
        under_way: int = 1,
        passing: tuple[type[Exception], ...] = (),
        outage: Outage | None = None,
    ) -> None:
        self._send = send
        self._most = most
        self._size_of = size_of
        self._under_way = under_way
        self._passing = passing
        self._outage = outage
        self._waiting: deque[Waiting[T, R]] = deque()
        self._sending: set[asyncio.Task[None]] = set()
        self._is_beginning = False
        """Whether a task has been made that sends and has not begun: it takes along what is handed in until then."""

    def hand_in(self, item: T) -> asyncio.Future[R]:
        """Have an item sent, unless its future is cancelled before; returns that: what comes of the item."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[R] = loop.create_future()
        self._waiting.append((item, result))
        if not self._is_beginning and len(self._sending) < self._under_way:
            self._is_beginning = True
            # Not in the context of who happens to be the first: it sends for all.
            self._sending.add(loop.create_task(self._send_all(), context=Context()))
        return result

    async def send(self, item: T) -> R:
        """What comes of an item, which is sent although who waits here may be cancelled."""
        return await asyncio.shield(self.hand_in(item))

    async def _send_all(self) -> None:
        """Send until nothing is left."""
        self._is_beginning = False
        try:
            while self._waiting:
                batch = self._next()
                for wait_seconds in _BACKOFF.waits():
                    batch = await self._send_once([one for one in batch if not one[1].cancelled()])
                    if not batch:
                        break
                    await asyncio.sleep(wait_seconds)
        finally:
            task = asyncio.current_task()
            assert task is not None
            self._sending.discard(task)

    def _next(self) -> list[Waiting[T, R]]:
        """What goes out together, at least one item."""
        batch: list[Waiting[T, R]] = []
        size = 0
        while self._waiting and len(batch) < self._most and size < _MOST_BYTES:
            batch.append(self._waiting.popleft())
            size += self._size_of(batch[-1][0])
        return batch

    async def _send_once(self, batch: list[Waiting[T, R]]) -> list[Waiting[T, R]]:
        """Send a batch; returns what is to be sent again."""
        results: Sequence[Any] = ()
        try:
            if batch:
                results = await self._send([item for item, _ in batch]) or [None] * len(batch)
        except Exception as error:
            results = [error] * len(batch)
        again: list[Waiting[T, R]] = []
        failed: Exception | None = None
        for one, result in zip(batch, results, strict=True):
            if isinstance(result, self._passing):
                again.append(one)
                failed = result
            elif one[1].done():
                pass  # nobody waits for it any more
            elif isinstance(result, Exception):
                one[1].set_exception(result)
            else:
                one[1].set_result(result)
        if self._outage is not None and failed is not None:
            self._outage.failed(failed)
        elif self._outage is not None:
            self._outage.succeeded()
        return again


def on_threads(executor: Executor, send: Callable[[list[T]], None]) -> Send[T]:
    """A `send` that does its work on an executor's threads."""

    async def sending(batch: list[T]) -> None:
        await asyncio.get_running_loop().run_in_executor(executor, send, batch)

    return sending
