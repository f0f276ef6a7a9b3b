"""Invocation: calling an activity or a delegate once, with its timeout (SPEC R7.2).

Whether and when there is another attempt is said here, and seen to by the commit that records it: a wait holds no
worker, and survives it.

Coroutines run on the event loop of the process; plain functions in threads of their own, so that neither stops the
other (see `threads`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import ValidationError

from acts_celery.protocol import Limits
from acts_celery.protocol.engine.decisions import Failure, Success
from acts_celery.worker.backoff import Backoff
from acts_celery.worker.errors import CallFailed, InvalidParameters
from acts_celery.worker.mcp.errors import McpError
from acts_celery.worker.models.errors import ModelError
from acts_celery.worker.process.figures import figures
from acts_celery.worker.process.open_telemetry import enter_place
from acts_celery.worker.registry.activities import Policy, first_fault
from acts_celery.worker.wire.attempts import Attempt, Result, Retry, enter
from acts_celery.worker.wire.messages import LONGEST_TYPE

from .django_connections import close_old_async_connections, close_old_async_connections_later
from .threads import Threads
from .values import NotPlain, to_json_value

logger = logging.getLogger(__name__)

_LONGEST_TEXT: Final = 10_000
_MOST_SHOWN: Final = 1_000
_shown: Final[set[tuple[str, str, int] | None]] = set()
"""The errors whose tracebacks are in the log, by type and place."""
_PACKED: Final = (StopIteration, StopAsyncIteration)
"""What no coroutine can raise: it arrives as the cause of a RuntimeError."""
CANCELLED_ITSELF: Final = Failure("CancelledError", "its code has cancelled the task that it ran in")
"""What comes of an attempt that has ended cancelled though nobody outside has cancelled it."""
_OUTCOMES: Final[Mapping[type[Result], str]] = {Success: "done", Failure: "failed", Retry: "retried"}


async def invoke(
    function: Callable[[], Any],
    attempt: Attempt,
    *,
    name: str,
    is_async: bool,
    policy: Policy,
    limits: Limits,
    threads: Threads,
) -> Result:
    """Call a function, once. Never raises, but for its own cancellation."""
    enter(attempt, name)
    enter_place(attempt)
    began, outcome = time.monotonic(), "cancelled"
    figures().attempt_began(name)
    try:
        try:
            if is_async:
                value = await _awaited(function, policy.timeout_seconds, threads, limits)
            else:
                value = await threads.run(
                    lambda: to_json_value(function(), limits),
                    timeout_seconds=policy.timeout_seconds,
                    owner=attempt.id.run,
                )
            result: Result = Success(value)
        except BaseException as raised:  # whatever it raises, SystemExit too, becomes the call's error
            if _is_cancelled():
                raise
            result = _failed(
                raised.__cause__ if isinstance(raised.__cause__, _PACKED) else raised, attempt, name, policy
            )
        outcome = _OUTCOMES[type(result)]
        return result
    finally:
        figures().attempt_ended(name, outcome, time.monotonic() - began)


async def _awaited(function: Callable[[], Any], timeout_seconds: float | None, threads: Threads, limits: Limits) -> Any:
    """The result of a coroutine function. If reading it calls code of its own, that does not stop the loop either."""
    if timeout_seconds is not None:
        async with asyncio.timeout(timeout_seconds):
            return await _awaited(function, None, threads, limits)
    await close_old_async_connections()
    try:
        value = await function()
    finally:
        close_old_async_connections_later()
    try:
        return to_json_value(value, limits, is_plain=True)
    except NotPlain:
        return await threads.read(lambda: to_json_value(value, limits))


def _failed(error: BaseException, attempt: Attempt, name: str, policy: Policy) -> Failure | Retry:
    """What becomes of an attempt that has raised."""
    found = _found(error, policy)
    failure = found or Failure(type(error).__name__[:LONGEST_TYPE], _text(error))
    failures = attempt.failures + 1
    is_last = failures > policy.retries or not _may_retry(error)
    logger.log(
        logging.ERROR if is_last else logging.WARNING,
        "%s failed: %s (%.200s), call %s, attempt %d of %d",
        name,
        failure.type,
        failure.message,
        attempt.id.idempotency_key,
        failures,
        policy.retries + 1,
        # The traceback stays here; readers get the failure. One that is tried again has none.
        exc_info=error if is_last and not found and _is_news(error) else None,
    )
    if is_last:
        return failure
    backoff = Backoff(policy.backoff_seconds, policy.backoff_max_seconds, jitter=True)
    return Retry(failure, backoff.seconds(failures))


def _is_news(error: BaseException) -> bool:
    """Whether the log has no traceback yet of such an error at that place: one says what a thousand would say."""
    if logger.isEnabledFor(logging.DEBUG):
        return True
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    where = (type(error).__name__, frame.tb_frame.f_code.co_filename, frame.tb_lineno) if frame is not None else None
    if where in _shown:
        return False
    if len(_shown) == _MOST_SHOWN:
        _shown.clear()
    _shown.add(where)
    return True


def _is_cancelled() -> bool:
    """Whether it is we who are cancelled, and not the function that raised."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _may_retry(error: BaseException) -> bool:
    return error.retry if isinstance(error, CallFailed) else True


def _found(error: BaseException, policy: Policy) -> Failure | None:
    """What we found ourselves and not the function's code: it needs no traceback."""
    if isinstance(error, TimeoutError) and policy.timeout_seconds is not None:
        message = _text(error) or f"took longer than {policy.timeout_seconds:g} seconds"
        return Failure("TimeoutError", message)
    if isinstance(error, InvalidParameters):
        return Failure("InvalidParameters", _text(error))
    if isinstance(error, (ModelError, McpError)):
        return Failure(type(error).__name__, _text(error))
    return None


def _text(error: BaseException) -> str:
    """An exception's text, which is foreign code too, fit to travel; of a group also the first in it."""
    first = error
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    try:
        text = first_fault(error) if isinstance(error, ValidationError) else str(error)
    except Exception:
        text = ""
    if first is not error:
        text = f"{text[: _LONGEST_TEXT // 2]}, first {type(first).__name__[:LONGEST_TYPE]}: {_text(first)}"
    return text.encode("utf-8", "replace").decode()[:_LONGEST_TEXT]
