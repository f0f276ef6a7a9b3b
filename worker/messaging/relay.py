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
from typing import Final

from worker.errors import InfrastructureError

from .messages import TaskMessage
from .outages import Outage
from .publisher import BATCH

logger = logging.getLogger(__name__)

_MOST_KEPT: Final = 10_000
"""How many tasks are kept in memory while the broker is away."""
_FIRST_WAIT_SECONDS: Final = 0.1
_LONGEST_WAIT_SECONDS: Final = 1.0

Send = Callable[[Sequence[TaskMessage]], Awaitable[None]]
Parcel = tuple[Sequence[TaskMessage], asyncio.Future[None]]


class Relay:
    """Publishes in the order in which tasks are handed in. `send` publishes once; it raises `InfrastructureError`."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._parcels: deque[Parcel] = deque()
        self._kept = 0
        self._is_away = False
        self._outage = Outage(logger, "publishing tasks")
        self._working: asyncio.Task[None] | None = None

    async def publish(self, tasks: Sequence[TaskMessage]) -> None:
        """Hand in tasks; returns when the broker was asked to take them, or seems to be away. Never raises."""
        if not tasks or (self._is_away and self._kept + len(tasks) > _MOST_KEPT):
            return
        tried = asyncio.get_running_loop().create_future()
        self._parcels.append((tasks, tried))
        self._kept += len(tasks)
        if self._working is None:
            # Not in the context of the lane that happens to be the first: it publishes for all.
            self._working = asyncio.get_running_loop().create_task(self._work(), context=Context())
        if not self._is_away:
            await asyncio.wait((tried,), timeout=_LONGEST_WAIT_SECONDS)
            self._is_away = not tried.done()

    async def _work(self) -> None:
        """Publish until nothing is left."""
        await asyncio.sleep(0)  # what is handed in in the same turn of the loop goes along
        try:
            while self._parcels:
                parcels = self._next()
                await self._deliver([task for tasks, _ in parcels for task in tasks])
                for _ in parcels:
                    tasks, tried = self._parcels.popleft()
                    self._kept -= len(tasks)
                    _release(tried)
        finally:
            self._working = None

    def _next(self) -> list[Parcel]:
        """The parcels that go out together."""
        parcels: list[Parcel] = []
        count = 0
        for parcel in self._parcels:
            parcels.append(parcel)
            count += len(parcel[0])
            if count >= BATCH:
                break
        return parcels

    async def _deliver(self, tasks: Sequence[TaskMessage]) -> None:
        """Publish, however long it takes; meanwhile who hands something in does not wait for it."""
        wait_seconds = _FIRST_WAIT_SECONDS
        while True:
            try:
                await self._send(tasks)
            except InfrastructureError as error:
                self._outage.failed(error)
                self._is_away = True
                for _, tried in self._parcels:
                    _release(tried)
                await asyncio.sleep(wait_seconds)
                wait_seconds = min(2 * wait_seconds, _LONGEST_WAIT_SECONDS)
            except Exception:
                logger.exception("%d tasks cannot be published", len(tasks))
                return
            else:
                self._outage.succeeded()
                self._is_away = False
                return


def _release(tried: asyncio.Future[None]) -> None:
    if not tried.done():
        tried.set_result(None)
