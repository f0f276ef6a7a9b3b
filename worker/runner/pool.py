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
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import click
import kombu
from celery import Task, signals
from celery.concurrency import get_implementation
from celery.concurrency.thread import TaskPool
from click.core import ParameterSource

from ...broker_config import NotConfigured, Settings
from ..broker.queue_order import BandLines
from ..errors import ActivitiesError
from .scheduler import Begin, Ended, traced

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
        self._waiting = BandLines[_Job]()
        self._at_work = 0
        self._handed: deque[_Job] = deque()
        """The jobs that the loop has not taken over yet."""
        self._is_handing = False
        self._running: set[asyncio.Task[None]] = set()
        self._ended: deque[tuple[_Job, Ended]] = deque()
        """The ended jobs that Celery's thread has not settled yet."""
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
        priority = request["delivery_info"]["priority"]
        self._waiting.add(priority, _Job(task, request, begin, accept_callback, callback))
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
            job = self._waiting.take()
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


# Options of `celery -A acts_celery worker`: each has its effect, or the worker does not start and says why.

_OF_PREFORK: Final = {
    "max_concurrency": "--autoscale",
    "time_limit": "--time-limit",
    "soft_time_limit": "--soft-time-limit",
    "max_tasks_per_child": "--max-tasks-per-child",
    "max_memory_per_child": "--max-memory-per-child",
}
"""The options that have an effect only in a pool of processes, by the worker's attribute."""
_REMEDIES: Final = {
    "--autoscale": "-c N is how many tasks a process has at a time",
    "--time-limit": "@activity(timeout_seconds=N) bounds a call",
    "--soft-time-limit": "@activity(timeout_seconds=N) bounds a call",
}
_PATCHING: Final = ("gevent", "eventlet")
_BROKERS: Final = ("CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL")


def _take_options(sender: Any, **_: Any) -> None:
    """Called by Celery before it makes a worker's parts. Ends the process where an option cannot be honoured."""
    settings: Settings | None = sender.app.conf.get("acts_settings")
    if settings is None:  # another application of this process
        return
    command = _celery_command()
    if _is_typed(command, "pool") and sender.pool_cls is CoroutinePool:
        # Celery gives the default for it; nothing else that can be typed has this pool.
        sender.pool_cls = get_implementation("prefork")
        if not _is_typed(command, "concurrency"):
            sender.concurrency = os.cpu_count() or 1
        _say("-P prefork: a pool of processes; without it, tasks run as coroutines")
    if (problem := next(_problems(sender, command), None)) is not None:
        _say(problem)
        raise SystemExit(2)
    own = settings.require_broker()
    if named := [name for name in _BROKERS if os.environ.get(name, own) != own]:
        _say(f"{named[0]} is ignored, and so is BROKER_URL: the broker is set by ACTS_BROKER_URL")


def _say(line: str) -> None:
    """Write a line before logging is set up."""
    sys.stderr.write(f"acts: {line}\n")


def _problems(worker: Any, command: click.Context | None) -> Iterator[str]:
    pool = get_implementation(worker.pool_cls)
    if pool.__module__.rpartition(".")[2] in _PATCHING:
        yield "-P gevent and -P eventlet patch what calls and heartbeats run on: leave -P out, tasks run as coroutines"
    given = {**vars(worker), "max_concurrency": worker.options.get("autoscale")}
    for attribute, option in _OF_PREFORK.items():
        if given.get(attribute) and pool is not get_implementation("prefork"):
            remedy = f"; {_REMEDIES[option]}" if option in _REMEDIES else ""
            yield f"{option} has an effect with -P prefork alone{remedy}"
    if command is not None and command.find_root().get_parameter_source("broker") is ParameterSource.COMMANDLINE:
        yield "--broker is not read: ACTS_BROKER_URL says where the broker is"


def _celery_command() -> click.Context | None:
    """The command of Celery's that makes the worker, where it is one."""
    context = click.get_current_context(silent=True)
    return context if context is not None and type(context.command).__module__.startswith("celery.") else None


def _is_typed(command: click.Context | None, option: str) -> bool:
    return command is not None and command.get_parameter_source(option) is ParameterSource.COMMANDLINE


def refuse_old_libraries() -> None:
    """Raise `NotConfigured` where clients run and workers do not: workers need the transport of kombu 5.7."""
    if (kombu.VERSION.major, kombu.VERSION.minor) < (5, 7):
        raise NotConfigured(
            f"workers need kombu 5.7 (Celery 5.6 or 5.7), and here is kombu {kombu.__version__}, which is enough for "
            "clients alone: start workers in another environment, or after pip install -U celery kombu redis"
        )


def refuse_half_patched() -> None:
    """Raise `ActivitiesError` in a process whose sockets wait for other greenlets while its threads are real ones: its
    event loop never turns.
    """
    if (gevent := sys.modules.get("gevent.monkey")) is not None and _is_half(gevent.is_module_patched, "threading"):
        raise ActivitiesError(_HALF.format("gevent.monkey.patch_all(thread=False)", "patch_all()"))
    if (eventlet := sys.modules.get("eventlet.patcher")) is not None and _is_half(eventlet.is_monkey_patched, "thread"):
        raise ActivitiesError(_HALF.format("eventlet.monkey_patch(thread=False)", "monkey_patch()"))


_HALF: Final = "a module of activities, or what it imports, calls {}, with which no worker runs: call {} or nothing"


def _is_half(is_patched: Any, threads: str) -> bool:
    return bool(is_patched("socket")) and not is_patched(threads)


signals.worker_init.connect(_take_options)
