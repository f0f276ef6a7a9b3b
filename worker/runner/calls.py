"""Invocation: calling an activity or a delegate once, with its timeout (SPEC R7.2).

Whether and when there is another attempt is said here, and seen to by the commit that records it: a wait holds no
worker, and survives it.

Coroutines run on the event loop of the process; plain functions in threads of their own, so that neither stops the
other (see `threads`).
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import partial
from queue import SimpleQueue
from types import NoneType
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_jsonable_python

from ...protocol import Limits, Message, Output
from ...protocol.engine.events import Failure, Success
from ...protocol.engine.execution import UNKNOWN
from ...protocol.errors import pointer
from ...protocol.limits import exceeded, plain_scalar, scalar_problem, too_many_containers
from ..backoff import Backoff
from ..broker.attempts import Attempt, ProgressReports, Result, Retry, enter, enter_place
from ..broker.messages import given_back, pack, refused_by, unknown_code
from ..errors import CallFailed, InvalidParameters
from ..fairness import FairSemaphore
from ..limits import LONGEST_ERROR_TEXT, LONGEST_TYPE, SMALL_INTEGER, THREADS_LEFT_BEHIND, TRACEBACKS_REMEMBERED
from ..process import metrics
from ..registry.activities import Activity, Policy, first_fault
from ..registry.mcp_tools import McpError
from ..registry.models import ModelError

# Django's database connections: those that are unusable or too old are closed around each attempt, as Django does
# around each request. Django is not imported for it: it has to be set up by the activities.

logger = logging.getLogger(__name__)

_closing: Final[set[asyncio.Task[None]]] = set()


def close_old_connections() -> None:
    """Close those of this thread, where Django is set up."""
    close = _close_of_django()
    if close is None:
        return
    try:
        close()
    except Exception:
        logger.exception("Django's database connections cannot be closed")


async def close_old_async_connections() -> None:
    """Close those of the thread in which Django runs the queries of coroutines."""
    if (in_that_thread := _sync_to_async()) is not None:
        await in_that_thread(close_old_connections)()


def close_old_async_connections_later() -> None:
    """Close those of that thread when it is free; nobody waits for it."""
    if _sync_to_async() is not None:
        closing = asyncio.ensure_future(close_old_async_connections())
        _closing.add(closing)
        closing.add_done_callback(_closing.discard)


def _close_of_django() -> Callable[[], None] | None:
    conf, db = sys.modules.get("django.conf"), sys.modules.get("django.db")
    if db is None or conf is None or not conf.settings.configured:
        return None
    close: Callable[[], None] | None = getattr(db, "close_old_connections", None)
    return close


def _sync_to_async() -> Any:
    """Django's runner of functions in the thread of coroutines' queries, where Django is set up."""
    return sys.modules["asgiref.sync"].sync_to_async if _close_of_django() and "asgiref.sync" in sys.modules else None


# Threads for plain functions: so many at a time, and one that hangs takes no other's place (SPEC R7.2).
#
# A thread cannot be killed. A function that outlives its timeout, or whose call is cancelled, keeps its thread, and
# another takes the place; what it returns is dropped. So many may stay behind, and then no more functions are begun.
# The threads are daemons: the process does not wait for them when it ends.


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

    async def run_at_once(self, function: Callable[[], Any]) -> Any:
        """Run a function at once, in a thread beside the places: its call has a turn and a timeout already."""
        value, error = await self._ended(function, None)
        if error is not None:
            raise error
        return value

    async def _ended(self, function: Callable[[], Any], timeout_seconds: float | None) -> Ended:
        if self._left_behind >= THREADS_LEFT_BEHIND:
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
                THREADS_LEFT_BEHIND,
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


# Results: what code returns, read as exact JSON values within the limits.
#
# Reading calls code of the value's own where it is lazy (an iterator), or a model with serializers. So it belongs to
# the call: it is done in the call's thread and within its timeout, and ends as soon as a limit is exceeded.

_LISTS: Final = (list, tuple, set, frozenset, deque)
_READ_BY: Final = ("tolist", "to_list", "item")
"""Methods by which an array of numpy or what is like one, or a scalar of it, gives plain values."""


class NotPlain(Exception):
    """A result is to be read beside the event loop: code of its own may be called for it."""


def to_json_value(value: Any, limits: Limits, *, is_plain: bool = False) -> Any:
    """Return a copy of the value with exact JSON types: models, dataclasses, dates, tuples, sets, iterators and arrays
    become what they hold. An `Output` or a `Message` stays one.

    With `is_plain` no code of the value's own is called. Raises `NotPlain` where it would have to be; `CallFailed`
    where the value is not serialisable, too deep, too large, or holds a number that msgpack cannot hold.
    """
    if isinstance(value, Output):
        return Output(plain_scalar(value.path), to_json_value(value.value, limits, is_plain=is_plain))
    if isinstance(value, Message):
        content = to_json_value(value.content, limits, is_plain=is_plain)
        if not isinstance(content, dict):
            raise CallFailed("the result is a Message that is no object", retry=False)
        return Message(content)
    try:
        read = _Reader(limits, is_plain=is_plain).read(value, 1)
    except _Unfit as unfit:
        at = f"at {pointer(*reversed(unfit.at))}: " if unfit.at else ""
        raise CallFailed(f"the result is not JSON: {at}{unfit}", retry=False) from unfit.__cause__
    if (size := len(pack(read))) > limits.message_bytes:
        raise _too_large(f"{size} bytes", limits)
    return read


def _too_large(what: str, limits: Limits) -> CallFailed:
    return CallFailed(exceeded(f"the result has {what}", limits, "message_bytes"), retry=False)


class _Unfit(Exception):
    """Something in a value is not JSON. `at` is where, the innermost key first."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.at: list[str | int] = []


class _Reader:
    """Reads one value; counts containers and bytes on the way, at least those that it will have as msgpack."""

    def __init__(self, limits: Limits, *, is_plain: bool) -> None:
        self._limits = limits
        self._is_plain = is_plain
        self._bytes = limits.message_bytes
        self._containers = limits.containers

    def read(self, value: Any, depth: int) -> Any:
        """The value as exact JSON types. Raises `_Unfit`, `CallFailed`, `NotPlain`, and what an iterator raises."""
        kind = type(value)
        if kind is dict:
            return self._object(value, depth)
        if kind is list or kind is tuple:
            return self._list(value, depth)
        self._bytes -= len(value) if kind is str else 1
        if self._bytes >= 0 and (
            value is None
            or kind is bool
            or (kind is str and value.isascii())
            or (kind is int and -SMALL_INTEGER < value < SMALL_INTEGER)
        ):
            return value
        if not issubclass(kind, (str, int, float, NoneType)):
            if self._is_plain:
                raise NotPlain
            return self._other(value, kind, depth)
        value = plain_scalar(value)
        if self._bytes < 0:
            raise _too_large(f"more than {self._limits.message_bytes} bytes", self._limits)
        if (problem := scalar_problem(value)) is not None:
            raise _Unfit(problem)
        return value

    def _open(self, depth: int) -> None:
        """Count an object or a list."""
        self._bytes -= 1
        self._containers -= 1
        if self._containers < 0:
            raise _Unfit(too_many_containers(self._limits))
        if depth > self._limits.depth:
            raise CallFailed(
                f"the result is nested too deeply or in a circle: {self._limits.depth} levels are allowed "
                "(ACTS_LIMIT_DEPTH)",
                retry=False,
            )

    def _object(self, value: dict[Any, Any], depth: int) -> dict[str, Any]:
        self._open(depth)
        read = {}
        for given, item in value.items():
            key = given if type(given) is str and given.isascii() else self._key(given)
            try:
                read[key] = self.read(item, depth + 1)
            except _Unfit as unfit:
                unfit.at.append(key)
                raise
        return read

    def _list(self, items: Iterable[Any], depth: int) -> list[Any]:
        self._open(depth)
        read: list[Any] = []
        for item in items:
            try:
                read.append(self.read(item, depth + 1))
            except _Unfit as unfit:
                unfit.at.append(len(read))
                raise
        return read

    def _key(self, key: Any) -> str:
        if not issubclass(type(key), str):
            if self._is_plain:
                raise NotPlain
            if hasattr(type(key), "dtype"):
                key = self._array(key, type(key), 1)
            (key,) = _serialised({key: None})
        key = plain_scalar(key)
        self._bytes -= len(key)
        if (problem := scalar_problem(key)) is not None:
            raise _Unfit(problem)
        return str(key)

    def _other(self, value: Any, kind: type, depth: int) -> Any:
        """A value of a type that JSON does not have."""
        if issubclass(kind, dict):
            return self.read(dict(dict.items(value)), depth)
        for each in _LISTS:
            if issubclass(kind, each):
                return self._list(each.__iter__(value), depth)
        if issubclass(kind, Enum):
            return self.read(value.value, depth)
        if hasattr(kind, "__next__"):
            return self._list(value, depth)
        if hasattr(kind, "__pydantic_serializer__"):
            self._refuse_lazy(value)
        elif is_dataclass(kind):
            return self.read({each.name: getattr(value, each.name) for each in fields(kind)}, depth)
        elif hasattr(kind, "dtype"):
            return self._array(value, kind, depth)
        return self.read(_serialised(value), depth)

    def _array(self, value: Any, kind: type, depth: int) -> Any:
        """An array of numbers, a column of a table, or one number of these."""
        size = getattr(value, "size", 0)
        if isinstance(size, int) and size > self._bytes:
            raise _too_large(f"{size} elements", self._limits)
        for name in _READ_BY:
            if callable(getattr(kind, name, None)):
                held = getattr(value, name)()
                if type(held) is not kind:
                    return self.read(held, depth)
        raise _Unfit(scalar_problem(value) or "")

    def _refuse_lazy(self, model: Any) -> None:
        """Raise `_Unfit` for a model that holds an iterator: reading it could not be ended."""
        stack, left = [model], self._bytes
        while stack:
            item = stack.pop()
            left -= 1
            if left < 0:
                raise _too_large(f"more than {self._limits.message_bytes} values", self._limits)
            kind = type(item)
            if hasattr(kind, "__next__"):
                raise _Unfit(f"{type(model).__name__} holds a {kind.__name__}: give it a list instead")
            if issubclass(kind, dict):
                stack += dict.values(item)
            elif issubclass(kind, _LISTS):
                stack += item
            elif hasattr(kind, "__pydantic_serializer__") or is_dataclass(kind):
                stack += getattr(item, "__dict__", {}).values()


def _serialised(value: Any) -> Any:
    """Serialise a value with pydantic. Raises `_Unfit`."""
    try:
        return to_jsonable_python(value, inf_nan_mode="constants")
    except (PydanticSerializationError, TypeError) as error:
        known = scalar_problem(value) or ""
        what = known if ": " in known else str(error)
        raise _Unfit(f"{what}; return texts, numbers, lists, objects, dataclasses or models") from error
    except UnicodeDecodeError as error:
        raise _Unfit("holds bytes that are no UTF-8 text: JSON has no bytes") from error
    except (RecursionError, ValueError) as error:
        raise _Unfit(f"is nested too deeply or in a circle: {error}") from error


_shown: Final[set[tuple[str, str, int] | None]] = set()
"""The errors whose tracebacks are in the log, by type and place."""
_PACKED: Final = (StopIteration, StopAsyncIteration)
"""The exceptions that no coroutine can raise: they arrive as the cause of a RuntimeError."""
CANCELLED_ITSELF: Final = Failure("CancelledError", "its code has cancelled the task that it ran in")
"""The end of an attempt that cancelled itself: nobody outside has cancelled it."""
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
    """Call a function, once. Never raises, but for its own cancellation. Where the policy says that a call runs
    at most once, a failure says whether anybody knows what the function has done (SPEC R4.11).
    """
    if attempt.ends_ms:
        if (left := attempt.ends_ms / 1000 - time.time()) <= 0:
            return Failure("TimeoutError", _over(policy))
        policy = policy.within(left)
    reports = ProgressReports(attempt, partial(metrics().progressed, name))
    enter(attempt, name, reports)
    enter_place(attempt)
    began, outcome = time.monotonic(), "cancelled"
    metrics().attempt_began(name)
    try:
        try:
            if is_async:
                value = await _awaited(function, policy.timeout_seconds, threads, limits, is_once=policy.once)
            else:
                value = await threads.run(
                    lambda: _read(function(), limits, is_once=policy.once),
                    timeout_seconds=policy.timeout_seconds,
                    owner=attempt.id.run,
                )
            result: Result = Success(value)
        except BaseException as raised:  # whatever it raises, SystemExit too, becomes the call's error
            if _is_cancelled():
                raise
            error = raised.__cause__ if isinstance(raised.__cause__, _PACKED) else raised
            result = _failed(error, attempt, name, policy)
            result = replace(result, progress=reports.last) if isinstance(result, Retry) and reports.last else result
        outcome = _OUTCOMES[type(result)]
        return result
    finally:
        reports.end()
        metrics().attempt_ended(name, outcome, time.monotonic() - began)


class _Unkept(Exception):
    """The function of a call that runs at most once has returned, and its result cannot be kept."""


def _read(value: Any, limits: Limits, *, is_once: bool, is_plain: bool = False) -> Any:
    """Make a JSON value of what a function has returned. Raises what `to_json_value` does, or `_Unkept` instead."""
    try:
        return to_json_value(value, limits, is_plain=is_plain)
    except NotPlain:
        raise
    except Exception as error:
        if not is_once:
            raise
        raise _Unkept(_text(error)) from error


def _unknown(error: BaseException, policy: Policy) -> Failure | None:
    """The end of an attempt at a call that runs at most once, where it does not say what the function has
    done (SPEC R4.11): an exception that the function raised does.
    """
    if isinstance(error, _Unkept):
        said = f"it has returned, and its result cannot be kept: {error}"
    elif isinstance(error, TimeoutError) and policy.timeout_seconds is not None:
        said = f"it took longer than {policy.timeout_seconds:g} seconds: its end is not known"
    else:
        return None
    return Failure(UNKNOWN, said, is_unknown=True)


async def _awaited(
    function: Callable[[], Any], timeout_seconds: float | None, threads: Threads, limits: Limits, *, is_once: bool
) -> Any:
    """The result of a coroutine function. If reading it calls code of its own, that does not stop the loop either."""
    if timeout_seconds is not None:
        async with asyncio.timeout(timeout_seconds):
            return await _awaited(function, None, threads, limits, is_once=is_once)
    await close_old_async_connections()
    try:
        value = await function()
    finally:
        close_old_async_connections_later()
    try:
        return _read(value, limits, is_once=is_once, is_plain=True)
    except NotPlain:
        return await threads.run_at_once(lambda: _read(value, limits, is_once=is_once))


def _failed(error: BaseException, attempt: Attempt, name: str, policy: Policy) -> Failure | Retry:
    """Decide what happens after an attempt that has raised."""
    if policy.once and (unknown := _unknown(error, policy)) is not None:
        logger.error("%s: %s, call %s", name, unknown.message, attempt.id.idempotency_key)
        return unknown
    found = _found(error, policy)
    failure = found or Failure(type(error).__name__[:LONGEST_TYPE], _text(error))
    failures = attempt.failures + 1
    is_last = failures > policy.retries or not _may_retry(error, policy)
    delay_seconds = Backoff(policy.backoff_seconds, policy.backoff_max_seconds, jitter=True).seconds(failures)
    if attempt.ends_ms and time.time() + delay_seconds >= attempt.ends_ms / 1000:
        if not is_last or isinstance(error, TimeoutError):
            failure = replace(failure, message=f"{failure.message[: LONGEST_ERROR_TEXT // 2]}; {_over(policy)}")
        is_last = True
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
    return Retry(failure, delay_seconds)


def _over(policy: Policy) -> str:
    """Why there is no further attempt at a call whose time is over."""
    return f"the time of all its attempts is over (total_timeout_seconds={policy.total_timeout_seconds})"


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
    if len(_shown) == TRACEBACKS_REMEMBERED:
        _shown.clear()
    _shown.add(where)
    return True


def _is_cancelled() -> bool:
    """Whether this task was cancelled from outside, and the function has not raised by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _may_retry(error: BaseException, policy: Policy) -> bool:
    return policy.may_retry(error) and (error.retry if isinstance(error, CallFailed) else True)


def _found(error: BaseException, policy: Policy) -> Failure | None:
    """The failure of an error that we found, and not the function's code: it needs no traceback."""
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
        text = f"{text[: LONGEST_ERROR_TEXT // 2]}, first {type(first).__name__[:LONGEST_TYPE]}: {_text(first)}"
    return text.encode("utf-8", "replace").decode()[:LONGEST_ERROR_TEXT]


# Whether the code of this worker fits a call that may have been checked under another contract (SPEC R17.3).


def activity_for(
    activity: Activity | None,
    name: str,
    worker: str,
    call: Mapping[str, Any],
    parameters: Mapping[str, Any],
    mark: str | None,
) -> Activity | Retry:
    """The activity of that name, where this worker has it and it admits a call with the mark of its contract, if one is
    known; else the end of the attempt: it is given back.
    """
    if activity is None:
        return given_back(unknown_code("activity", name, worker))
    if not mark or activity.contract.is_of(mark):
        return activity
    why = activity.refusal(call, parameters, mark)
    return activity if why is None else given_back(refused_by(worker, why))
