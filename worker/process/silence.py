"""Connections that were dropped silently are found and closed, so that whoever uses them connects again.

A NAT, a load balancer or a cloud's maintenance may forget connections without a reset: nobody answers on them, though
the server is there. Where the network loses packets the kernel notices (`broker_config.KEEPALIVE`). Where something in
between goes on taking them, nobody does but who asks: twice a second a worker process sends PING on a connection of its
own to each server. If no answer comes for two seconds, but one does on a new connection, the old ones are dead. A
server that is only slow answers on both, and nothing is closed. Where asking fails, as while a server restarts,
connections are opened before the next one that is asked: those to the log are closed once more.

Not for unix sockets, and not for the nodes of a cluster, whose connections redis-py keeps: there a command waits for
`connections.SILENT_SECONDS`.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any, Final
from weakref import WeakSet

from redis.exceptions import RedisError

from .duties import Duty
from .outages import ON_FAILURE

logger = logging.getLogger(__name__)

_INTERVAL_SECONDS: Final = 0.5
_SILENT_SECONDS: Final = 2.0
_TOO_MANY: Final = "max number of clients"
_SLOW_SECONDS: Final = 0.2
"""How much later than on a new connection an answer may come on an old one."""

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
            interval_seconds=_INTERVAL_SECONDS,
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
        """Those that owe an answer."""
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
        if asked.can_read(timeout=_SILENT_SECONDS):
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
        if asked.can_read(timeout=_SLOW_SECONDS):
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
    waits = {"socket_timeout": _SILENT_SECONDS, "socket_connect_timeout": _SILENT_SECONDS, "health_check_interval": 0}
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
    """Have who reads from a socket, or will, find that the connection has ended."""
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
        return True
    return False
