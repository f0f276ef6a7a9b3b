"""Invocation: calling an activity or a delegate, with its timeout and its retries (SPEC R7.2).

Coroutines run on the event loop of the process; plain functions in threads of their own, so that neither stops the
other. A thread cannot be killed: a plain function that outlives its timeout goes on, and what it returns is dropped.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import random
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any

from pydantic import ValidationError

from protocol import Limits
from protocol.execution import Failure, Success

from .activities import Policy
from .errors import CallFailed
from .values import travelling

logger = logging.getLogger(__name__)


async def invoke(
    function: Callable[[], Any], *, name: str, is_async: bool, policy: Policy, limits: Limits, threads: Executor
) -> Success | Failure:
    """Call a function until it returns or its policy is spent. Never raises, but for cancellation."""
    attempt = 0
    while True:
        try:
            async with asyncio.timeout(policy.timeout_seconds):
                value = await (function() if is_async else _in_thread(function, threads))
            return Success(travelling(value, limits))
        except Exception as error:  # an activity may raise whatever it likes; it becomes the call's error
            attempt += 1
            if attempt > policy.retries or not _may_retry(error):
                return _failure(name, error, policy)
            logger.info("attempt %d of %s failed, trying again: %s", attempt, name, type(error).__name__)
            await asyncio.sleep(_backoff_seconds(policy, attempt))


def _in_thread(function: Callable[[], Any], threads: Executor) -> Awaitable[Any]:
    context = contextvars.copy_context()
    return asyncio.get_running_loop().run_in_executor(threads, context.run, function)


def _may_retry(error: Exception) -> bool:
    return error.retry if isinstance(error, CallFailed) else not isinstance(error, ValidationError)


def _backoff_seconds(policy: Policy, attempt: int) -> float:
    longest: float = min(policy.backoff_seconds * 2 ** (attempt - 1), policy.backoff_max_seconds)
    return longest * random.uniform(0.5, 1.0)


def _failure(name: str, error: Exception, policy: Policy) -> Failure:
    """What readers are told; the traceback stays in the worker's log."""
    if isinstance(error, TimeoutError) and policy.timeout_seconds is not None:
        message = str(error) or f"took longer than {policy.timeout_seconds:g} seconds"
        return Failure("TimeoutError", message)
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        return Failure("InvalidParameters", f"{place}: {first['msg']}")
    logger.warning("%s failed", name, exc_info=error)
    return Failure(type(error).__name__, str(error))
