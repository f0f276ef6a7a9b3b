"""The pool of a worker: coroutines run on the process's event loop, everything else on threads.

Celery has no coroutine tasks, so its pools hold a thread for each task under way. Ours only wait: for the log, and for
activities and delegates. Here such a task is handed to the loop, together with what else comes in the same turn, and
Celery's own thread settles it when it has ended, again several at a time. So it costs no thread and no change of
threads, and Celery's state is touched by one thread only. What operators see is the same: tasks with their states and
events, the limit on how many are at work, a warm shutdown that waits for them.

Which tasks are coroutines is said in `app.conf.acts_coroutines`. Where there is a result backend they run on threads as
well, since storing a result would block the loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from celery import Task
from celery.concurrency.thread import TaskPool

from .tracing import Begin, Ended, traced

logger = logging.getLogger(__name__)


class _Job(NamedTuple):
    task: Task
    request: dict[str, Any]
    begin: Begin
    accepted: Callable[..., None]
    ended: Callable[[Ended], None]


class CoroutinePool(TaskPool):  # type: ignore[misc]  # celery has no types
    """Celery's pool of threads, with coroutines beside them: at most `limit` of these at a time."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._hub: Any = None
        self._runtimes = self.app.conf.acts_runtimes
        self._coroutines: dict[str, tuple[Task, Begin]] = {}
        self._waiting: deque[_Job] = deque()
        self._at_work = 0
        self._handed: deque[_Job] = deque()
        """What the loop has not taken over yet."""
        self._is_handing = False
        self._running: set[asyncio.Task[None]] = set()
        self._ended: deque[tuple[_Job, Ended]] = deque()
        """What Celery's thread has not settled yet."""
        self._is_telling = False
        self._has_ended = threading.Event()

    def on_start(self) -> None:
        """Called by Celery when the worker starts."""
        tasks = ((self.app.tasks[name], begin) for name, begin in self.app.conf.acts_coroutines.items())
        self._coroutines = {task.name: (task, begin) for task, begin in tasks if task.ignore_result}
        self._runtimes.current()  # its sidecar is there before the first call

    def register_with_event_loop(self, hub: Any) -> None:
        """Called by Celery: its thread runs this loop from now on."""
        self._hub = hub

    def on_apply(
        self,
        target: Callable[..., Any],
        args: Any = None,
        kwargs: Any = None,
        callback: Any = None,
        accept_callback: Any = None,
        **options: Any,
    ) -> Any:
        """Called by Celery with a task; `target` would run it on a thread."""
        name, _, request, *_ = args
        if self._hub is None or name not in self._coroutines:
            return super().on_apply(target, args, kwargs, callback, accept_callback, **options)
        task, begin = self._coroutines[name]
        self._waiting.append(_Job(task, request, begin, accept_callback, callback))
        self._begin_waiting()
        return None

    def on_stop(self) -> None:
        """Called by Celery: wait for everything under way."""
        while self._at_work:
            self._has_ended.wait()
            self._settle()
        super().on_stop()

    def _begin_waiting(self) -> None:
        """Hand over to the loop what has a place."""
        while self._waiting and self._at_work < self.limit:
            job = self._waiting.popleft()
            self._at_work += 1
            job.accepted(os.getpid(), time.monotonic())
            self._handed.append(job)
            if not self._is_handing:
                self._is_handing = True
                self._runtimes.current().call_soon(self._take_over)

    def _take_over(self) -> None:
        """On the loop: begin what was handed over."""
        self._is_handing = False
        while self._handed:
            running = asyncio.ensure_future(self._run(self._handed.popleft()))
            self._running.add(running)
            running.add_done_callback(self._running.discard)

    async def _run(self, job: _Job) -> None:
        self._ended.append((job, await traced(job.task, job.request, job.begin)))
        if not self._is_telling:
            self._is_telling = True
            asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        """On the loop: let Celery's thread settle what has ended in this turn."""
        self._is_telling = False
        self._has_ended.set()
        self._hub.call_soon(self._settle)

    def _settle(self) -> None:
        """Tell Celery of what has ended."""
        self._has_ended.clear()
        while self._ended:
            job, ended = self._ended.popleft()
            self._at_work -= 1
            try:
                job.ended(ended)
            except Exception:
                logger.exception("the end of a task cannot be noted")
        self._begin_waiting()

    def _get_info(self) -> dict[str, Any]:
        """For `inspect stats`."""
        return {**super()._get_info(), "coroutines": self._at_work}


POOL: Final = f"{__name__}:{CoroutinePool.__name__}"
"""Where Celery finds it."""
