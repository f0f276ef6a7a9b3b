"""The relay: publishes what the lane runners of a process hand in, and goes on trying while the broker is away.

What is handed in stands in the log already: a lane is marked as published, a remote call as sent, a forgotten one is in
the outbox. So publishing decides nothing about a lane, and what this process cannot keep the sweep publishes. What
several lanes hand in at the same time goes out together.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import Final, NamedTuple

from acts_celery.worker.backoff import Backoff
from acts_celery.worker.errors import InfrastructureError, QueueRefused

from .outages import Outage
from .publisher import BATCH
from .task_messages import TaskMessage

logger = logging.getLogger(__name__)

_MOST_KEPT: Final = 10_000
"""How many tasks are kept in memory while the broker is away."""
_MOST_KEPT_BYTES: Final = 64 * 2**20
"""How many bytes those have at most."""
_TOGETHER_BYTES: Final = 2**20
"""How many bytes of tasks go out together, or one task that has more."""
_BACKOFF: Final = Backoff(0.1, 1.0)

Send = Callable[[Sequence[TaskMessage]], Awaitable[None]]


class Parcel(NamedTuple):
    """What was handed in at once."""

    tasks: Sequence[TaskMessage]
    size: int
    """Bytes of their arguments."""
    tried: asyncio.Future[None]
    """Done when the broker was asked to take them, or seems to be away."""


class Relay:
    """Publishes in the order in which tasks are handed in. `send` publishes once; it raises `InfrastructureError`.

    `refused` is told of a task that its queue does not take, and why: it is not tried again.
    """

    def __init__(self, send: Send, refused: Callable[[TaskMessage, str], object] = lambda task, why: None) -> None:
        self._send = send
        self._refused = refused
        self._parcels: deque[Parcel] = deque()
        self._kept = self._kept_bytes = 0
        self._sent = 0
        self._is_away = False
        self._outage = Outage(logger, "publishing tasks")
        self._working: asyncio.Task[None] | None = None

    async def publish(self, tasks: Sequence[TaskMessage]) -> None:
        """Hand in tasks; returns when the broker was asked to take them, or seems to be away. Never raises."""
        size = sum(len(task.body) for task in tasks)
        if not tasks or (self._is_away and not self._has_room(len(tasks), size)):
            return
        tried = asyncio.get_running_loop().create_future()
        self._parcels.append(Parcel(tasks, size, tried))
        self._kept += len(tasks)
        self._kept_bytes += size
        if self._working is None:
            # Not in the context of the lane that happens to be the first: it publishes for all.
            self._working = asyncio.get_running_loop().create_task(self._work(), context=Context())
        while not self._is_away and not tried.done():
            sent = self._sent
            await asyncio.wait((tried,), timeout=_BACKOFF.longest_seconds)
            # One that takes large tasks slowly is not away: what is made meanwhile would fill the memory.
            if not tried.done() and self._sent == sent:
                self._is_away = True

    def _has_room(self, count: int, size: int) -> bool:
        """Whether so many tasks of so many bytes are kept while the broker is away."""
        return self._kept + count <= _MOST_KEPT and self._kept_bytes + size <= _MOST_KEPT_BYTES

    async def _work(self) -> None:
        """Publish until nothing is left."""
        await asyncio.sleep(0)  # what is handed in in the same turn of the loop goes along
        try:
            while self._parcels:
                parcels = self._next()
                await self._deliver([task for parcel in parcels for task in parcel.tasks])
                for parcel in parcels:
                    self._parcels.popleft()
                    self._kept -= len(parcel.tasks)
                    self._kept_bytes -= parcel.size
                    _release(parcel.tried)
        finally:
            self._working = None

    async def _send_or_refuse(self, tasks: Sequence[TaskMessage]) -> None:
        try:
            await self._send(tasks)
        except QueueRefused as error:
            logger.error("%d tasks are not published: %s", len(error.tasks), error)
            for task in error.tasks:
                assert isinstance(task, TaskMessage)
                self._refused(task, str(error))

    def _next(self) -> list[Parcel]:
        """The parcels that go out together."""
        parcels: list[Parcel] = []
        count = size = 0
        for parcel in self._parcels:
            parcels.append(parcel)
            count += len(parcel.tasks)
            size += parcel.size
            if count >= BATCH or size >= _TOGETHER_BYTES:
                break
        return parcels

    async def _deliver(self, tasks: Sequence[TaskMessage]) -> None:
        """Publish, however long it takes; meanwhile who hands something in does not wait for it."""
        for wait_seconds in _BACKOFF.waits():
            try:
                await self._send_or_refuse(tasks)
            except InfrastructureError as error:
                self._outage.failed(error)
                self._is_away = True
                for parcel in self._parcels:
                    _release(parcel.tried)
                await asyncio.sleep(wait_seconds)
            except Exception:
                logger.exception("%d tasks cannot be published", len(tasks))
                return
            else:
                self._outage.succeeded()
                self._is_away = False
                self._sent += 1
                return


def _release(tried: asyncio.Future[None]) -> None:
    if not tried.done():
        tried.set_result(None)
