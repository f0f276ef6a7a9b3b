"""Inline calls: those that a lane runner carries out itself, concurrently."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from acts_celery.worker.registry.activities import Activity
from acts_celery.worker.wire.attempts import Attempt, Result

from .children import Started
from .invocation import CANCELLED_ITSELF, invoke
from .mailbox import Mailbox
from .services import Services

_Ended = tuple[Result | Started, int]
"""What has come of an attempt, and how long it took in ms."""


class InlineCalls:
    """The calls of one lane that are at work in this process."""

    def __init__(self, services: Services, run: str, mailbox: Mailbox) -> None:
        self._services = services
        self._run = run
        self._mailbox = mailbox
        self._tasks: dict[asyncio.Task[_Ended], Attempt] = {}
        self._done: list[asyncio.Task[_Ended]] = []
        """Those of them that have ended since `wait`."""

    def __bool__(self) -> bool:
        return bool(self._tasks)

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """What is at work."""
        return tuple(self._tasks.values())

    def begin(self, activity: Activity, function: Callable[[], Any], attempt: Attempt) -> None:
        """Carry out an attempt; `function` is the activity's with its arguments."""
        working = invoke(
            function,
            attempt,
            name=activity.name,
            is_async=activity.is_async,
            policy=activity.policy,
            limits=self._services.limits,
            threads=self._services.threads,
        )
        self.watch(working, replace(attempt, worker=self._services.worker, version=activity.version))

    def watch(self, working: Coroutine[Any, Any, Result | Started], attempt: Attempt) -> None:
        """Take note of an attempt that a coroutine is at work on."""
        task = asyncio.ensure_future(self._services.turns.take(self._run, _timed(working), is_new=False))
        self._tasks[task] = attempt
        task.add_done_callback(self._ring)

    async def wait(self) -> list[tuple[Attempt, Result | Started]]:
        """Wait for a call to end, or for something in the mailbox. What has ended, in the order of the plan."""
        if not self._done:
            await self._mailbox.wait()
        done, self._done = self._done, []
        ended = list[tuple[Attempt, Result | Started]]()
        for task in done:
            result, took_ms = task.result() if not task.cancelled() else (CANCELLED_ITSELF, 0)
            ended.append((replace(self._tasks.pop(task), took_ms=took_ms), result))
        return sorted(ended, key=lambda pair: pair[0].id.index)

    def dismiss(self) -> None:
        """Stop what is at work."""
        for task in self._tasks:
            task.cancel()

    def _ring(self, task: asyncio.Task[_Ended]) -> None:
        self._done.append(task)
        self._mailbox.ring()


async def _timed(working: Coroutine[Any, Any, Result | Started]) -> _Ended:
    begun = time.monotonic()
    result = await working
    return result, int((time.monotonic() - begun) * 1000)
