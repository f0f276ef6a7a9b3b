"""The broker as this backend uses it over Redis: nothing but queues and channels, and any entry in them is outlived.

kombu keeps in Redis which queue belongs to which exchange (`_kombu.binding…`). Every process would read and write those
sets, so one that was captured could have the answers to others copied to itself. Here that is not stored at all: a
queue's name follows from the exchange and the routing key.

Who may add to a queue or publish in a channel may add anything. kombu takes an entry and reads it in one step of
its event loop; what it cannot read it raises, and the process would end. Here such an entry is gone, is counted, and
costs one line in the log. What comes when the worker has stopped taking goes back to its queue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache, partial
from queue import Empty
from time import monotonic
from typing import Any, Final

from kombu import Connection, pools
from kombu.connection import ConnectionPool, PooledConnection
from kombu.utils.collections import HashedSeq
from kombu.utils.json import loads

from acts_celery.broker_config import KEEPALIVE
from acts_celery.worker.process.refusals import count_refusal
from acts_celery.worker.process.silence import watched

from .queue_order import QueueOrder

logger = logging.getLogger(__name__)

REPLIES: Final = "reply.celery.pidbox"
"""The exchange of the answers to remote control."""
_LONGEST_WAIT_SECONDS: Final = 5


class BackendConnection(Connection):  # type: ignore[misc]  # kombu has no types
    """kombu's connection; over Redis, Sentinels included, its channels are those of this module."""

    def create_transport(self) -> Any:
        """Return what makes the channels of this connection."""
        transport = super().create_transport()
        if transport.driver_type == "redis":
            transport.Channel = _channel_class(transport.Channel)
            transport._deliver = partial(_deliver, transport, transport._deliver)
        return transport

    def ensure(self, obj: Any, fun: Any, errback: Any = None, max_retries: int | None = None, **options: Any) -> Any:
        """Return what does something once more where the connection fails; kombu would do so without end.

        What is to be tried for longer says so itself.
        """
        return super().ensure(obj, fun, errback, 1 if max_retries is None else max_retries, **options)

    def ensure_connection(self, *arguments: Any, **options: Any) -> Any:
        """Wait for the server and connect. Celery's workers would look again after 30 s where it was away for long."""
        return super().ensure_connection(*arguments, **{"interval_max": _LONGEST_WAIT_SECONDS, **options})

    def Pool(self, limit: int | None = None, **_: Any) -> Any:
        """Return a pool of connections that are like this one."""
        return _ConnectionPool(self, limit)

    def __eqhash__(self) -> Any:
        """How kombu knows the pool of this connection; not that of another application to the same server."""
        return HashedSeq(__name__, super().__eqhash__())


def forget_connections(connection: Connection) -> None:
    """Close what this process keeps open to the server of a connection; nobody may be using it any more.

    kombu keeps connections for as long as the process lives.
    """
    for group in (pools.producers, pools.connections):
        for key, pool in tuple(group.items()):
            if getattr(pool, "connections", pool).connection.hostname == connection.hostname:
                dict.pop(group, key)
                pool.force_close_all()


class _PooledConnection(PooledConnection, BackendConnection):  # type: ignore[misc]  # as above
    pass


class _ConnectionPool(ConnectionPool):  # type: ignore[misc]  # as above
    def new(self) -> Any:
        return _PooledConnection(self, **dict(self.connection._info(resolve=False)))


_BASE: Any = object


class _ChannelParts(_BASE):  # type: ignore[misc]  # of whichever of kombu's classes
    """What is changed of kombu's channels, as this module says: a mixin before one of its classes."""

    queue_order_strategy = QueueOrder

    def _lookup(self, exchange: str, routing_key: str, default: str | None = None) -> list[str]:
        return [_bound_queue(exchange, routing_key)]

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        if self.typeof(exchange).type == "fanout":
            self._fanout_queues[queue] = (exchange, routing_key.replace("#", "*"))
        elif _bound_queue(exchange, routing_key) != queue:
            raise ValueError(
                f"queue {queue!r} cannot be bound to exchange {exchange!r} with the key {routing_key!r}: over "
                "Redis a queue has the name of its exchange and of its routing key"
            )

    def _delete(self, queue: str, *_: Any, client: Any = None, **__: Any) -> None:
        self.auto_delete_queues.discard(queue)
        with self.conn_or_acquire(client=client) as connection:
            connection.delete(*(self._q_for_pri(queue, priority) for priority in self.priority_steps))

    def _has_queue(self, queue: str, **_: Any) -> bool:
        return bool(self._size(queue))  # kombu asks for the key without its prefix

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        """kombu's, and options of the socket. Numbers are their keys: among the transport's options, which workers tell
        in their statistics, they could not be read by who asks.
        """
        found: dict[str, Any] = super()._connparams(asynchronous=asynchronous)
        return found | ({"socket_keepalive_options": KEEPALIVE} if found.get("socket_keepalive") else {})

    def _get_pool(self, asynchronous: bool = False) -> Any:
        pool = super()._get_pool(asynchronous=asynchronous)
        watched(pool)
        return pool

    @property
    def pool(self) -> Any:
        return self.async_pool  # kombu has a second one, and so an idle connection more for each channel

    def get_table(self, exchange: str) -> list[tuple[str, ...]]:
        return []

    def _brpop_read(self, **options: Any) -> bool:
        began = monotonic()
        try:
            return bool(super()._brpop_read(**options))
        except self._passing:
            raise
        except Exception as error:
            _drop("a queue", error)
            return True
        finally:
            self._queue_cycle.charge(monotonic() - began)

    def _receive_one(self, client: Any) -> Any:
        try:
            return super()._receive_one(client)
        except self._passing:
            raise
        except Exception as error:
            _drop("a channel", error)
            return True

    def _handle_message(self, client: Any, response: Any) -> Any:
        payload = super()._handle_message(client, response)
        if payload["type"] in (b"message", b"pmessage"):
            loads(payload["data"].decode())  # kombu would print what it cannot read
        return payload

    @property
    def _passing(self) -> tuple[type[Exception], ...]:
        return (Empty, *of_connections(*self.connection_errors, *self.connection.channel_errors))


@cache
def _channel_class(base: Any) -> Any:
    """The channels of one of kombu's Redis transports, changed."""
    return type("Channel", (_ChannelParts, base), {})


def of_connections(*errors: type[Exception]) -> tuple[type[Exception], ...]:
    """What is wrong with a connection, of what kombu calls so: a KeyError is raised by a message without its parts."""
    return tuple(error for error in errors if error is not KeyError)


def _deliver(transport: Any, hand_on: Callable[[Any, str], None], message: Any, queue: str) -> None:
    """Hand on a message. One that comes when the worker has stopped taking goes back to its queue, where kombu would
    have it rejected, which leaves it to the sweep (see `prefetch`).
    """
    stopped = queue not in transport._callbacks and not any(queue in each._fanout_queues for each in transport.channels)
    if stopped and transport.channels:
        transport.channels[0]._put(queue, message)
    else:
        hand_on(message, queue)


def _bound_queue(exchange: str, routing_key: str) -> str:
    """The queue that is bound to an exchange with a key."""
    return f"{routing_key}.{exchange}" if exchange == REPLIES else routing_key


def _drop(where: str, error: Exception) -> None:
    count_refusal("entries")
    logger.error("an entry of %s is no message (%s) and is dropped", where, type(error).__name__)
