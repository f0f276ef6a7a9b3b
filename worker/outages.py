"""Outages in the log of a worker: one line when something stops working, and one when it works again."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from contextvars import Context
from typing import Any, Final, Generic, TypeVar
from weakref import WeakSet

from redis.exceptions import RedisError

from . import limits
from .backoff import Backoff
from .process import forget, watch

ON_FAILURE: Final[list[Callable[[Exception], None]]] = []
"""Functions that are called with each failure."""


class Outage:
    """Logs the failures of something done again and again, such as a sweep: one line at the first, one at the end."""

    def __init__(self, logger: logging.Logger, what: str) -> None:
        self._logger = logger
        self._what = what
        self._is_told = False
        self._succeeded_at = time.monotonic()

    def failed(self, error: Exception, *, is_unexpected: bool = False) -> None:
        """Note a failure, maybe not the first; an unexpected one is logged with its traceback."""
        for call in ON_FAILURE:
            call(error)
        if self._is_told:
            return
        self._is_told = True
        if is_unexpected:
            self._logger.error("%s failed and will be tried again until it succeeds", self._what, exc_info=error)
        else:
            self._logger.warning("%s failed and will be tried again until it succeeds: %s", self._what, error)

    def succeeded(self) -> None:
        """Note a success."""
        self._succeeded_at = time.monotonic()
        if self._is_told:
            self._logger.warning("%s succeeds again", self._what)
            self._is_told = False

    def problem(self) -> str | None:
        """Say what is wrong where nothing has succeeded for long."""
        silent_seconds = time.monotonic() - self._succeeded_at
        return (
            f"has not succeeded for {silent_seconds:.0f} s" if silent_seconds > limits.OUTAGES_SILENT_SECONDS else None
        )


# Background duties: what a process does again and again in a thread of its own, such as a sweep.

logger = logging.getLogger(__name__)


class Duty:
    """Does something every so often from its start until it is stopped, whatever it raises.

    What is `passing` is an outage: one line in the log when it begins, and one when it is over. Meanwhile, and where it
    ends without being stopped, a duty is part of the process's health.
    """

    def __init__(
        self,
        what: str,
        act: Callable[[], None],
        *,
        thread: str,
        interval_seconds: float,
        passing: tuple[type[Exception], ...],
    ) -> None:
        self._what = what
        self._act = act
        self._interval_seconds = interval_seconds
        self._passing = passing
        self._outage = Outage(logger, what)
        self._stopped = threading.Event()
        self._has_ended = False
        self._thread = threading.Thread(target=self._run, name=thread, daemon=True)

    def start(self) -> None:
        """Begin, after one interval; once more does nothing."""
        if self._thread.ident is None:
            self._outage = Outage(logger, self._what)  # what was not begun has not failed either
            self._thread.start()

    def stop(self, *, waits: bool = False) -> None:
        """Stop; with `waits`, return only when it is not at work any more."""
        self._stopped.set()
        if waits and self._thread.ident is not None:
            self._thread.join()

    def problem(self) -> str | None:
        """Say what is wrong with the duty, where something is."""
        return "has ended" if self._has_ended else self._outage.problem()

    def _run(self) -> None:
        watch(self._what, self.problem)
        try:
            while not self._stopped.wait(self._interval_seconds):
                try:
                    self._act()
                except self._passing as error:
                    self._outage.failed(error)
                except Exception as error:
                    self._outage.failed(error, is_unexpected=True)
                else:
                    self._outage.succeeded()
            forget(self._what, self.problem)
        finally:
            self._has_ended = True


# Connections that were dropped silently are found and closed, so that their users connect again.
#
# A NAT, a load balancer or a cloud's maintenance may forget connections without a reset: nobody answers on them, though
# the server is there. Where the network loses packets the kernel notices (`broker_config.KEEPALIVE`). Where something
# in between goes on taking them, only a question shows it: twice a second a worker process sends PING on a connection
# of its own to each server. If no answer comes for two seconds, but one does on a new connection, the old ones are
# dead. A server that is only slow answers on both, and nothing is closed. Where asking fails, as while a server
# restarts, connections are opened before the next one that is asked: those to the log are closed once more.
#
# Not for unix sockets, and not for the nodes of a cluster, whose connections redis-py keeps: there a command waits for
# `limits.REDIS_ANSWER_SECONDS`.


_TOO_MANY: Final = "max number of clients"

_Address = tuple[Any, ...]
_pools: Final[WeakSet[Any]] = WeakSet()
_lock: Final = threading.Lock()
_watches: Final[dict[int, Duty]] = {}


def watched(pool: Any) -> None:
    """Have the connections of a pool of redis-py looked at, where this process watches."""
    with _lock:
        _pools.add(pool)


def watch_connections() -> None:
    """Begin to watch in this process, unless it does already."""
    ON_FAILURE[:] = [give_back_idle]
    with _lock:
        if os.getpid() in _watches:
            return
        _watches.clear()
        duty = _watches[os.getpid()] = Duty(
            "looking for connections that were dropped",
            SilenceWatch().look,
            thread="acts-connections",
            interval_seconds=limits.PING_INTERVAL_SECONDS,
            passing=(RedisError, OSError),
        )
    duty.start()


def give_back_idle(error: Exception) -> None:
    """Close the connections of this process that are not in use, where a server says that it has too many clients."""
    if _TOO_MANY not in str(error):
        return
    with _lock:
        pools = [pool for pool in _pools if not _is_async(pool)]
    for pool in pools:
        with suppress(RedisError, OSError):
            pool.disconnect(inuse_connections=False)


class SilenceWatch:
    """Looks at the connections of all pools of this process."""

    def __init__(self) -> None:
        self._asked: dict[_Address, Any] = {}
        """The connection to each server that is asked."""
        self._owing: set[_Address] = set()
        """Servers that owe an answer."""
        self._failed: set[_Address] = set()
        """Servers that nobody asks since asking has failed."""

    def look(self) -> None:
        """Ask each server once; close what was dropped. Raises what redis-py raises where a server is away."""
        with _lock:
            pools = list(_pools)
        groups: dict[_Address, list[Any]] = {}
        for pool in pools:
            if (address := _address_of(pool)) is not None:
                groups.setdefault(address, []).append(pool)
        for gone in self._asked.keys() - groups.keys():
            self._forget(gone)
        failed: Exception | None = None
        for address, of_server in groups.items():
            try:
                self._look_at(address, of_server)
            except (RedisError, OSError) as error:
                self._forget(address)
                self._failed.add(address)
                failed = error
        if failed is not None:
            raise failed

    def _look_at(self, address: _Address, pools: list[Any]) -> None:
        of_threads = next((pool for pool in pools if not _is_async(pool)), None)
        if of_threads is None:
            return
        if (asked := self._asked.get(address)) is None:
            asked = self._asked[address] = _connection(of_threads)
            asked.connect()
            if address in self._failed:
                # What was opened meanwhile may have been dropped before there was a connection of its age to ask.
                self._failed.discard(address)
                _shut_all(pool for pool in pools if not _is_of_broker(pool))
        if address not in self._owing:
            asked.send_command("PING", check_health=False)
            self._owing.add(address)
        if asked.can_read(timeout=limits.PING_ANSWER_SECONDS):
            self._answered(address, asked)
            return
        another = _connection(of_threads)
        try:
            another.connect()
            another.send_command("PING", check_health=False)
            another.read_response()
        except (RedisError, OSError):
            another.disconnect()
            return  # the server is slow, or away: the old connection may be good
        if asked.can_read(timeout=limits.SLOW_SECONDS):
            another.disconnect()
            self._answered(address, asked)
            return
        self._forget(address)
        self._asked[address] = another
        closed = _shut_all(pools)
        logger.warning(
            "nothing answers on connections that were opened before, though the server is there: "
            "%d are closed and opened again",
            closed,
        )

    def _answered(self, address: _Address, asked: Any) -> None:
        self._owing.discard(address)
        asked.read_response()

    def _forget(self, address: _Address) -> None:
        self._owing.discard(address)
        if (asked := self._asked.pop(address, None)) is not None:
            asked.disconnect()


def _address_of(pool: Any) -> _Address | None:
    """Where the connections of a pool lead; None for unix sockets."""
    if (service := getattr(pool, "service_name", None)) is not None:
        return ("sentinel", service)
    options = pool.connection_kwargs
    return ("tcp", options.get("host", "localhost"), options.get("port", 6379)) if "path" not in options else None


def _is_async(pool: Any) -> bool:
    return type(pool).__module__.startswith("redis.asyncio")


def _is_of_broker(pool: Any) -> bool:
    """Whether a pool is kombu's, which looks after its connections itself."""
    return not str(pool.connection_class.__module__).startswith("redis.")


def _connection(pool: Any) -> Any:
    """A connection as those of a pool, which is not in it and waits no longer."""
    waits = {
        "socket_timeout": limits.PING_ANSWER_SECONDS,
        "socket_connect_timeout": limits.PING_ANSWER_SECONDS,
        "health_check_interval": 0,
    }
    # None of kombu's classes: those tell their channel when they are closed.
    own = next(each for each in pool.connection_class.__mro__ if each.__module__.startswith("redis."))
    return own(**{**pool.connection_kwargs, **waits})


def _sockets_of(pool: Any) -> Iterator[Any]:
    """The sockets of a pool's connections, in use or not."""
    for connection in [*pool._available_connections, *pool._in_use_connections]:
        writer = getattr(connection, "_writer", None)
        found = writer.get_extra_info("socket") if writer is not None else getattr(connection, "_sock", None)
        if found is not None:
            yield found


def _shut_all(pools: Iterable[Any]) -> int:
    """Shut the connections of pools; says how many there were."""
    return sum(_shut(each) for pool in pools for each in _sockets_of(pool))


def _shut(one: Any) -> bool:
    """Shut a socket, so that its readers find that the connection has ended."""
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
        return True
    return False


# Batches: while one is under way the next one gathers, so many items cost little and a single one goes at once.

T = TypeVar("T")
R = TypeVar("R")

_BACKOFF: Final = Backoff(0.05, 1.0)

Waiting = tuple[T, asyncio.Future[R]]
Send = Callable[[list[T]], Awaitable[Sequence[Any] | None]]
"""Sends a batch. Returns a result or an exception for each item, in their order; None means None for each. What
it raises is raised for all of them.
"""


class Batcher(Generic[T, R]):
    """Sends what the tasks of one event loop hand in, in that order, so many batches `under_way` at a time.

    A batch is closed when it has `most` items, or a megabyte by `size_of`. What fails with an error of `passing` is
    sent again until it succeeds or fails otherwise; the `outage` logs that.
    """

    def __init__(
        self,
        send: Send[T],
        *,
        most: int = limits.BATCH_ITEMS,
        size_of: Callable[[T], int] = lambda item: 0,
        under_way: int = 1,
        passing: tuple[type[Exception], ...] = (),
        outage: Outage | None = None,
    ) -> None:
        self._send = send
        self._most = most
        self._size_of = size_of
        self._under_way = under_way
        self._passing = passing
        self._outage = outage
        self._waiting: deque[Waiting[T, R]] = deque()
        self._sending: set[asyncio.Task[None]] = set()
        self._is_beginning = False
        """Whether a task that sends was made and has not begun: it takes along what is handed in until then."""

    def hand_in(self, item: T) -> asyncio.Future[R]:
        """Have an item sent, unless its future is cancelled before; returns the future of its result."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[R] = loop.create_future()
        self._waiting.append((item, result))
        if not self._is_beginning and len(self._sending) < self._under_way:
            self._is_beginning = True
            # Not in the context of who happens to be the first: it sends for all.
            self._sending.add(loop.create_task(self._send_all(), context=Context()))
        return result

    async def send(self, item: T) -> R:
        """Send an item and wait for its result; it is sent even where the waiting task is cancelled."""
        return await asyncio.shield(self.hand_in(item))

    async def _send_all(self) -> None:
        """Send until nothing is left."""
        self._is_beginning = False
        try:
            while self._waiting:
                batch = self._next()
                for wait_seconds in _BACKOFF.waits():
                    batch = await self._send_once([one for one in batch if not one[1].cancelled()])
                    if not batch:
                        break
                    await asyncio.sleep(wait_seconds)
        finally:
            task = asyncio.current_task()
            assert task is not None
            self._sending.discard(task)

    def _next(self) -> list[Waiting[T, R]]:
        """Take the items that go out together, at least one."""
        batch: list[Waiting[T, R]] = []
        size = 0
        while self._waiting and len(batch) < self._most and size < limits.BATCH_BYTES:
            batch.append(self._waiting.popleft())
            size += self._size_of(batch[-1][0])
        return batch

    async def _send_once(self, batch: list[Waiting[T, R]]) -> list[Waiting[T, R]]:
        """Send a batch; returns what is to be sent again."""
        results: Sequence[Any] = ()
        try:
            if batch:
                results = await self._send([item for item, _ in batch]) or [None] * len(batch)
        except Exception as error:
            results = [error] * len(batch)
        again: list[Waiting[T, R]] = []
        failed: Exception | None = None
        for one, result in zip(batch, results, strict=True):
            if isinstance(result, self._passing):
                again.append(one)
                failed = result
            elif one[1].done():
                pass  # nobody waits for it any more
            elif isinstance(result, Exception):
                one[1].set_exception(result)
            else:
                one[1].set_result(result)
        if self._outage is not None and failed is not None:
            self._outage.failed(failed)
        elif self._outage is not None:
            self._outage.succeeded()
        return again


def on_threads(executor: Executor, send: Callable[[list[T]], None]) -> Send[T]:
    """A `send` that does its work on an executor's threads."""

    async def sending(batch: list[T]) -> None:
        await asyncio.get_running_loop().run_in_executor(executor, send, batch)

    return sending
