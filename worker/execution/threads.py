"""Threads for plain functions: so many at a time, and one that hangs takes no other's place (SPEC R7.2).

A thread cannot be killed. A function that outlives its timeout, or whose call is cancelled, keeps its thread, and
another takes the place; what it returns is dropped. The threads are daemons: the process does not wait for them when it
ends.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from .places import Places

Job = Callable[[], object]
Ended = tuple[Any, BaseException | None]


class Threads:
    """Runs functions beside one event loop, at most so many whose end is waited for."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._places = Places(most)
        self._idle: list[SimpleQueue[Job | None]] = []

    async def run(self, function: Callable[[], Any], *, timeout_seconds: float | None, owner: str = "") -> Any:
        """Return what the function does, or raise what it raises. Its time begins when it does, not while it waits.

        No owner, a run, holds the last threads.

        Raises `TimeoutError`.
        """
        async with self._places.one(owner):
            ended = self._begin(contextvars.copy_context(), function)
            async with asyncio.timeout(timeout_seconds):
                value, error = await ended
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        """End the threads that are idle; the loop may not turn any more."""
        for jobs in self._idle:
            jobs.put(None)

    def _begin(self, context: contextvars.Context, function: Callable[[], Any]) -> asyncio.Future[Ended]:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Ended] = loop.create_future()
        jobs = self._idle.pop() if self._idle else _thread()

        def end(result: Ended) -> None:
            if len(self._idle) < self._most:
                self._idle.append(jobs)
            else:
                jobs.put(None)
            if not ended.done():
                ended.set_result(result)

        jobs.put(lambda: loop.call_soon_threadsafe(end, _captured(context, function)))
        return ended


def _captured(context: contextvars.Context, function: Callable[[], Any]) -> Ended:
    try:
        return context.run(function), None
    except BaseException as error:  # some, such as StopIteration, could not be set on a future
        return None, error


def _thread() -> SimpleQueue[Job | None]:
    """Start a thread; what is put into its queue is done there, until nothing is put."""
    jobs: SimpleQueue[Job | None] = SimpleQueue()

    def work() -> None:
        while (job := jobs.get()) is not None:
            job()

    threading.Thread(target=work, name="acts-activity", daemon=True).start()
    return jobs
