"""Threads for plain functions: so many at a time, and one that hangs takes no other's place (SPEC R7.2).

A thread cannot be killed. A function that outlives its timeout, or whose call is cancelled, keeps its thread, and
another takes the place; what it returns is dropped. So many may stay behind, and then no more functions are begun. The
threads are daemons: the process does not wait for them when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final

from acts_celery.worker.fairness.fair_semaphore import FairSemaphore

from .django_connections import close_old_connections

logger = logging.getLogger(__name__)

MOST_LEFT_BEHIND: Final = 256
"""So many threads may be at work on what nobody waits for."""

Job = Callable[[], object]
Ended = tuple[Any, BaseException | None]


class StuckThreads(RuntimeError):
    """Too many functions of this process outlived their calls."""


class Threads:
    """Runs functions beside one event loop, at most so many whose end is waited for."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._places = FairSemaphore(most)
        self._idle: list[SimpleQueue[Job | None]] = []
        self._left_behind = 0

    async def run(self, function: Callable[[], Any], *, timeout_seconds: float | None, owner: str = "") -> Any:
        """Return what the function does, or raise what it raises. Its time begins when it does, not while it waits.

        No owner, a run, holds the last threads.

        Raises `TimeoutError`, and `StuckThreads` where too many are at work on what nobody waits for.
        """
        async with self._places.one(owner):
            value, error = await self._ended(function, timeout_seconds)
        if error is not None:
            raise error
        return value

    async def read(self, function: Callable[[], Any]) -> Any:
        """As `run`, for reading the result of a coroutine: it has a place already, and its call has a timeout."""
        value, error = await self._ended(function, None)
        if error is not None:
            raise error
        return value

    async def _ended(self, function: Callable[[], Any], timeout_seconds: float | None) -> Ended:
        if self._left_behind >= MOST_LEFT_BEHIND:
            raise StuckThreads(
                f"{self._left_behind} functions that outlived their calls are still at work in this process: "
                "let them end by themselves in time, or restart the worker"
            )
        ended = self._begin(contextvars.copy_context(), function)
        try:
            async with asyncio.timeout(timeout_seconds):
                return await ended
        except BaseException:
            if ended.cancelled():
                self._leave_behind()
            raise

    def close(self) -> None:
        """End the threads that are idle; the loop may not turn any more."""
        for jobs in self._idle:
            jobs.put(None)

    def _leave_behind(self) -> None:
        self._left_behind += 1
        if self._left_behind.bit_count() == 1:  # told at 1, 2, 4, ...
            logger.warning(
                "%d functions outlived their calls and keep a thread each; from %d on no more are begun",
                self._left_behind,
                MOST_LEFT_BEHIND,
            )

    def _begin(self, context: contextvars.Context, function: Callable[[], Any]) -> asyncio.Future[Ended]:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Ended] = loop.create_future()
        jobs = self._idle.pop() if self._idle else _thread()

        def end(result: Ended) -> None:
            if len(self._idle) < self._most:
                self._idle.append(jobs)
            else:
                jobs.put(None)
            if ended.done():
                self._left_behind -= 1
            else:
                ended.set_result(result)

        def job() -> None:
            result = _captured(context, function)
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody waits for the result
                loop.call_soon_threadsafe(end, result)

        jobs.put(job)
        return ended


def _captured(context: contextvars.Context, function: Callable[[], Any]) -> Ended:
    close_old_connections()
    try:
        return context.run(function), None
    except BaseException as error:  # some, such as StopIteration, could not be set on a future
        return None, error
    finally:
        close_old_connections()


def _thread() -> SimpleQueue[Job | None]:
    """Start a thread; what is put into its queue is done there, until nothing is put."""
    jobs: SimpleQueue[Job | None] = SimpleQueue()

    def work() -> None:
        while (job := jobs.get()) is not None:
            job()

    threading.Thread(target=work, name="acts-activity", daemon=True).start()
    return jobs
