"""Invocation: calling an activity or a delegate, with its timeout and its retries (SPEC R7.2).

Coroutines run on the event loop of the process; plain functions in threads of their own, so that neither stops the
other. A thread cannot be killed: a plain function that outlives its timeout goes on, and what it returns is dropped.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final

from pydantic import ValidationError

from protocol import Limits
from protocol.execution import Failure, Success

from .activities import Policy
from .errors import CallFailed
from .values import travelling

logger = logging.getLogger(__name__)

_LONGEST_TEXT: Final = 10_000


async def invoke(
    function: Callable[[], Any], *, name: str, is_async: bool, policy: Policy, limits: Limits, threads: Executor
) -> Success | Failure:
    """Call a function until it returns or its policy is spent. Never raises, but for its own cancellation."""
    attempt = 0
    while True:
        try:
            value = await _attempt(function, is_async, policy.timeout_seconds, threads)
            return Success(travelling(value, limits))
        except BaseException as error:  # whatever it raises, SystemExit too, becomes the call's error
            if _is_cancelled():
                raise
            attempt += 1
            if attempt > policy.retries or not _may_retry(error):
                return _failure(name, error, policy)
            logger.info("attempt %d of %s failed, trying again: %s", attempt, name, type(error).__name__)
        await asyncio.sleep(_backoff_seconds(policy, attempt))


async def _attempt(
    function: Callable[[], Any], is_async: bool, timeout_seconds: float | None, threads: Executor
) -> Any:
    """One attempt; its time begins when the function does, not while it waits for a thread."""
    if is_async:
        async with asyncio.timeout(timeout_seconds):
            return await function()
    begun, ended = _in_thread(function, threads)
    await begun
    async with asyncio.timeout(timeout_seconds):
        value, error = await ended
    if error is not None:
        raise error
    return value


def _in_thread(
    function: Callable[[], Any], threads: Executor
) -> tuple[asyncio.Future[None], asyncio.Future[tuple[Any, BaseException | None]]]:
    """Run a function in a thread: two futures, one for its beginning, one for what it returned or raised."""
    loop = asyncio.get_running_loop()
    begun: asyncio.Future[None] = loop.create_future()
    context = contextvars.copy_context()

    def begin() -> None:
        if not begun.done():
            begun.set_result(None)

    def captured() -> tuple[Any, BaseException | None]:
        loop.call_soon_threadsafe(begin)
        try:
            return context.run(function), None
        except BaseException as error:  # some, such as StopIteration, could not be set on a future
            return None, error

    return begun, loop.run_in_executor(threads, captured)


def _is_cancelled() -> bool:
    """Whether it is we who are cancelled, and not the function that raised."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _may_retry(error: BaseException) -> bool:
    return error.retry if isinstance(error, CallFailed) else not isinstance(error, ValidationError)


def _backoff_seconds(policy: Policy, attempt: int) -> float:
    longest: float = min(policy.backoff_seconds * 2 ** (attempt - 1), policy.backoff_max_seconds)
    return longest * random.uniform(0.5, 1.0)


def _failure(name: str, error: BaseException, policy: Policy) -> Failure:
    """What readers are told; the traceback stays in the worker's log."""
    if isinstance(error, TimeoutError) and policy.timeout_seconds is not None:
        message = _text(error) or f"took longer than {policy.timeout_seconds:g} seconds"
        return Failure("TimeoutError", message)
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        return Failure("InvalidParameters", f"{place}: {first['msg']}")
    logger.warning("%s failed", name, exc_info=error)
    return Failure(type(error).__name__, _text(error))


def _text(error: BaseException) -> str:
    """An exception's text, which is foreign code too, fit to travel."""
    try:
        text = str(error)
    except Exception:
        return ""
    return text.encode("utf-8", "replace").decode()[:_LONGEST_TEXT]
