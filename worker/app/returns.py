"""Returns: tasks that this version of ours does not read go back to their queue, for a worker that does.

While an upgrade is rolled out, old workers and new ones take from the same queues. A run is written down in a format
(`storage.formats`); messages say theirs in a header from the second one on. Who does not read one publishes the task
anew a little later, and later each time. After a minute it is dropped, since nobody seems to be there who reads it; the
workers of its version publish what was published for a run again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from acts_celery.worker.backoff import Backoff
from acts_celery.worker.errors import OtherFormat
from acts_celery.worker.lanes.services import Publish
from acts_celery.worker.wire.task_messages import MESSAGE_FORMAT, MESSAGES, RETURNED, TaskMessage

from .tracing import shown_arguments

logger = logging.getLogger(__name__)

_DELAY: Final = Backoff(0.05, 1.0, jitter=True)
_MOST_TIMES: Final = 80
"""After so many a task has been on its way for about a minute."""
_MOST_KEPT: Final = 10_000
"""How many wait in memory; more go back at once."""


def require_message_format(request: Mapping[str, Any]) -> None:
    """Raise `OtherFormat` where a message says that it has another format than ours."""
    number = request.get(MESSAGE_FORMAT, MESSAGES)
    if number != MESSAGES and isinstance(number, int):
        raise OtherFormat(f"the message has format {number} and this version reads {MESSAGES}")


def task_of(name: str, request: Mapping[str, Any], arguments: Sequence[object]) -> TaskMessage | None:
    """The task of a request of Celery, to be published anew; None where it is none of ours."""
    queue = (request["delivery_info"] or {}).get("routing_key")
    times, number = request.get(RETURNED, 0), request.get(MESSAGE_FORMAT)
    if not isinstance(queue, str) or len(arguments) != 1 or not isinstance(arguments[0], bytes):
        return None
    times, number = (value if isinstance(value, int) else None for value in (times, number))
    return TaskMessage(name, queue, arguments[0], shown_arguments(request), returned=times or 0, format=number)


class Returns:
    """What this process gives back. To be used on its event loop."""

    def __init__(self, publish: Publish) -> None:
        self._publish = publish
        self._leaving = asyncio.Event()
        self._waiting: set[asyncio.Task[None]] = set()

    def give_back(self, task: TaskMessage, reason: OtherFormat) -> None:
        """Give back a task, for this reason; one that was given back for a minute is dropped."""
        if task.returned >= _MOST_TIMES:
            logger.warning("a task of %r is dropped, since no worker reads it: %s", task.queue, reason)
            return
        if not task.returned:
            logger.warning("a task of %r is left to other workers: %s", task.queue, reason)
        waiting = asyncio.ensure_future(self._publish_later(task, at_once=len(self._waiting) >= _MOST_KEPT))
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)

    def leave(self) -> None:
        """This process is to end: all go back now."""
        self._leaving.set()

    async def finish(self) -> None:
        """Wait until all have gone back."""
        self._leaving.set()
        if self._waiting:
            await asyncio.wait(self._waiting)

    async def _publish_later(self, task: TaskMessage, *, at_once: bool) -> None:
        if not at_once:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._leaving.wait(), _DELAY.seconds(task.returned + 1))
        await self._publish([replace(task, returned=task.returned + 1)])
