"""The buffer in front of the broker: what the lane runners of a process publish, also while the broker is away.

What is handed in stands in the log already: a lane is marked as published, a remote call as sent, a forgotten one is in
the outbox. So publishing decides nothing about a lane, and what this process cannot keep the sweep publishes. What
several lanes hand in at the same time goes out together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from acts_celery.worker.errors import InfrastructureError, QueueRefused
from acts_celery.worker.process.batching import Batcher
from acts_celery.worker.process.outages import Outage
from acts_celery.worker.wire.task_messages import TaskMessage

from .publisher import BATCH

logger = logging.getLogger(__name__)

_MOST_KEPT: Final = 10_000
"""How many tasks are kept in memory while the broker is away."""
_MOST_KEPT_BYTES: Final = 64 * 2**20
"""How many bytes those have at most."""
_AWAY_SECONDS: Final = 1.0
"""A broker that takes nothing for so long counts as away."""


class Batch(NamedTuple):
    """What was handed in at once."""

    tasks: Sequence[TaskMessage]
    size: int
    """Bytes of their arguments."""


class PublishBuffer:
    """Publishes in the order in which tasks are handed in. `send` publishes once; it raises `InfrastructureError`.

    `refused` is given a task that its queue does not take, and why: it is not tried again.
    """

    def __init__(
        self,
        send: Callable[[Sequence[TaskMessage]], Awaitable[None]],
        refused: Callable[[TaskMessage, str], object] = lambda task, why: None,
    ) -> None:
        self._send = send
        self._refused = refused
        self._batcher = Batcher[Batch, None](
            self._send_all,
            most=BATCH,
            size_of=lambda batch: batch.size,
            passing=(InfrastructureError,),
            outage=Outage(logger, "publishing tasks"),
        )
        self._kept = self._kept_bytes = 0
        self._sent = 0
        self._is_away = False
        self._awaited: set[asyncio.Future[None]] = set()

    async def publish(self, tasks: Sequence[TaskMessage]) -> None:
        """Hand in tasks; returns when the broker was asked to take them, or seems to be away. Never raises."""
        size = sum(len(task.body) for task in tasks)
        if not tasks or (self._is_away and not self._has_room(len(tasks), size)):
            return
        self._keep(len(tasks), size)
        tried = self._batcher.hand_in(Batch(tasks, size))
        self._awaited.add(tried)
        tried.add_done_callback(self._awaited.discard)
        while not self._is_away and not tried.done():
            sent = self._sent
            await asyncio.wait((tried,), timeout=_AWAY_SECONDS)
            # One that takes large tasks slowly is not away: what is made meanwhile would fill the memory.
            self._is_away |= not tried.done() and self._sent == sent

    def _has_room(self, count: int, size: int) -> bool:
        """Whether so many tasks of so many bytes are kept while the broker is away."""
        return self._kept + count <= _MOST_KEPT and self._kept_bytes + size <= _MOST_KEPT_BYTES

    def _keep(self, count: int, size: int) -> None:
        self._kept += count
        self._kept_bytes += size

    async def _send_all(self, batches: Sequence[Batch]) -> None:
        """Publish once. Raises `InfrastructureError` where the broker is away; nobody waits for it then."""
        tasks = [task for batch in batches for task in batch.tasks]
        try:
            await self._send(tasks)
        except QueueRefused as error:
            logger.error("%d tasks are not published: %s", len(error.tasks), error)
            for task in error.tasks:
                assert isinstance(task, TaskMessage)
                self._refused(task, str(error))
        except InfrastructureError:
            self._is_away = True
            for tried in self._awaited:
                if not tried.done():
                    tried.set_result(None)
            raise
        except Exception:
            logger.exception("%d tasks cannot be published", len(tasks))
        self._is_away = False
        self._sent += 1
        self._keep(-len(tasks), -sum(batch.size for batch in batches))
