"""Running a coroutine as Celery's tracer runs a function: with its signals, its errors and its one line in the log."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from celery import Task, signals, states
from celery.app import trace
from celery.app.task import Context

_LONGEST_SHOWN: Final = 300
"""Characters of what a message says of its arguments."""

Begin = Callable[[Mapping[str, Any]], Coroutine[Any, Any, None]]
"""Makes a task's coroutine of its request."""
Ended = tuple[int, Any, float]
"""What Celery's tracers return: whether it failed; the result's text, or the error; and how many seconds it took."""


def shown_arguments(request: Mapping[str, Any]) -> str:
    """What a message says of its arguments, bounded."""
    return str(request.get("argsrepr") or "-")[:_LONGEST_SHOWN]


async def traced(task: Task, request: dict[str, Any], begin: Begin) -> Ended:
    """Run a task whose result is not stored. Never raises."""
    began, id_ = time.monotonic(), request["id"]
    about = {"task_id": id_, "task": task, "args": request["args"], "kwargs": request["kwargs"]}
    _send(signals.task_prerun, task, request, about)
    state, failed, value = states.SUCCESS, 0, None
    try:
        await begin(request)
    except BaseException as error:  # a pool's task ends in one way or another, whatever is raised in it
        state, failed = states.FAILURE, 1
        value = trace.TraceInfo(state, error).handle_error_state(task, Context(request))
    seconds = time.monotonic() - began
    if not failed:
        signals.task_success.send(sender=task, result=None)
        trace.info(
            trace.LOG_SUCCESS,
            {
                "id": id_,
                "name": task.name,
                "return_value": "None",
                "runtime": seconds,
                "args": shown_arguments(request),
                "kwargs": "-",
            },
        )
    _send(signals.task_postrun, task, request, {**about, "retval": value, "state": state})
    return failed, value if failed else "None", seconds


def _send(signal: Any, task: Task, request: dict[str, Any], about: dict[str, Any]) -> None:
    """Send a signal to its listeners, which find the request where Celery's tracer leaves it."""
    if not signal.receivers:
        return
    task.request_stack.push(Context(request))
    try:
        signal.send(sender=task, **about)
    finally:
        task.request_stack.pop()
