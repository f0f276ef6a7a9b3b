"""Telling of an answer while it is written: its text, each time that more calls of it are complete (SPEC R13.8).

One telling is under way at a time, and the next one says all that has come meanwhile; a slow broker makes them fewer.
Each has the whole text so far: it may come twice, late or not at all. The log keeps each, so a long answer is not told
of at every call: from the eighth on, each telling has a quarter more calls than the one before.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from acts_celery.protocol.requests.answers import Unreadable
from acts_celery.protocol.requests.growing import GrowingAnswer
from acts_celery.worker.errors import WorkerError

from .request import Heard

logger: Final = logging.getLogger(__name__)

Tell = Callable[[str], Awaitable[None]]


class Telling:
    """Tells as long as it is entered; `tell` is called on the event loop."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._growing = GrowingAnswer()
        self._calls = 0
        self._next = 1
        """With how many calls the next telling begins."""
        self._working: asyncio.Task[None] | None = None
        self._is_over = False

    def __enter__(self) -> Heard:
        return self._hear

    def __exit__(self, *_: object) -> None:
        self._is_over = True
        if self._working is not None:
            self._working.cancel()

    def _hear(self, piece: str) -> None:
        """Take in a piece of the answer."""
        if self._is_over:
            return
        try:
            self._calls += len(self._growing.feed(piece))
        except Unreadable:  # what is wrong is said where the whole answer is read
            self._is_over = True
            return
        if self._calls >= self._next and self._working is None:
            self._working = asyncio.get_running_loop().create_task(self._work())

    async def _work(self) -> None:
        try:
            while self._calls >= self._next:
                self._next = self._calls + max(1, self._calls // 4)
                await self._tell(self._growing.text[: self._growing.end])
        except WorkerError as error:
            logger.warning("the calls of an answer wait for its end: %s", error)
            self._is_over = True
        finally:
            self._working = None
