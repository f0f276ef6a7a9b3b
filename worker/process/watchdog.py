"""The watchdog of an event loop: whether the loop turns, and which call keeps it from turning.

A process speaks for the calls on its loop from threads, since the loop may be busy. But a loop that a coroutine blocks
serves none of them: what it cannot serve is not spoken for, and goes on elsewhere. The call that blocks it is at work.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from dataclasses import dataclass

from acts_celery.worker.wire.attempts import Attempt, attempt_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Blocked:
    """A loop does not turn."""

    attempt: Attempt | None
    """The call that blocks it, where it is one."""


class LoopWatchdog:
    """Asks one event loop, from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, most_silent_seconds: float) -> None:
        self._loop = loop
        self._most_silent_seconds = most_silent_seconds
        self._lock = threading.Lock()
        self._asked: float | None = None
        """When the loop was asked, where it has not answered yet."""
        self._is_reported = False
        self.is_blocked = False
        """What `blocked` has found the last time."""

    def blocked(self) -> Blocked | None:
        """Whether the loop has not turned for too long. It is asked now, and should have answered the next time."""
        with self._lock:
            if self._asked is None:
                self._is_reported = self.is_blocked = False
                self._asked = time.monotonic()
                self._loop.call_soon_threadsafe(self._answer)
                return None
            silent_seconds = time.monotonic() - self._asked
            if silent_seconds <= self._most_silent_seconds:
                return None
            self.is_blocked = True
            is_news, self._is_reported = not self._is_reported, True
        at_work = attempt_of(asyncio.current_task(self._loop))
        if is_news:
            what = f"{at_work[1]}, call {at_work[0].id.idempotency_key}," if at_work else "a task that is no call"
            logger.warning(
                "%s blocks the event loop for %.0f s and longer: the calls beside it go on elsewhere. An activity that "
                "does not await should be a plain function, not a coroutine",
                what,
                silent_seconds,
            )
        return Blocked(at_work[0] if at_work else None)

    def _answer(self) -> None:
        self._asked = None
        self.is_blocked = False
