"""Options of `celery -A acts_celery worker`: each has its effect, or the worker does not start and says why."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any, Final

import click
from celery import signals
from celery.concurrency import get_implementation
from click.core import ParameterSource

from acts_celery.broker_config import Settings
from acts_celery.worker.errors import ActivitiesError

from .pool import CoroutinePool

_OF_PREFORK: Final = {
    "max_concurrency": "--autoscale",
    "time_limit": "--time-limit",
    "soft_time_limit": "--soft-time-limit",
    "max_tasks_per_child": "--max-tasks-per-child",
    "max_memory_per_child": "--max-memory-per-child",
}
"""What has an effect in a pool of processes alone, by the worker's attribute."""
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
        _say(f"{named[0]} is not read, nor is BROKER_URL: the broker is that of ACTS_BROKER_URL")


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
