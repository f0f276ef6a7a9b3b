"""The broker as this backend uses it over Redis: nothing but queues and channels, and any entry in them is outlived.

kombu keeps in Redis which queue belongs to which exchange (`_kombu.binding…`). Every process would read and write those
sets, so one that was captured could have the answers to others copied to itself. Here that is not stored at all: a
queue's name follows from the exchange and the routing key.

A process that may add to a queue or publish in a channel may add anything. kombu takes an entry and reads it in one
step of its event loop; what it cannot read it raises, and the process would end. Here such an entry is gone, is
counted, and costs one line in the log. What comes when the worker has stopped taking goes back to its queue.
"""

from __future__ import annotations

import logging
import re
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import takewhile
from queue import Empty
from time import monotonic
from typing import Any, Final

from celery import Celery
from celery.app import trace
from celery.app.events import Events
from celery.events import Event
from celery.events.dispatcher import EventDispatcher
from celery.events.event import group_from
from celery.utils.time import utcoffset
from kombu import Connection, pools
from kombu import Consumer as KombuConsumer
from kombu.connection import ConnectionPool, PooledConnection
from kombu.exceptions import KombuError, OperationalError
from kombu.utils.collections import HashedSeq
from kombu.utils.functional import retry_over_time
from kombu.utils.json import dumps, loads
from redis.exceptions import NoPermissionError, RedisError, ResponseError

from ...broker_config import (
    DELIVER,
    EXECUTE_ACTIVITY,
    EXECUTE_BACKGROUND,
    EXECUTE_DELEGATE,
    EXECUTE_INSTANCE,
    KEEPALIVE,
    PROBE,
    SEVERAL,
    Settings,
    priority_queue,
    reports_queue,
)
from ...protocol import Limits
from .. import limits
from ..errors import InfrastructureError, MalformedMessage, QueueRefused
from ..outages import watched
from ..process import BoundedNames, count_refusal
from . import messages
from .queue_order import BANDS, QueueOrder, band_of

logger = logging.getLogger(__name__)

REPLIES: Final = "reply.celery.pidbox"
"""The exchange of the answers to remote control."""


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
        return super().ensure_connection(*arguments, **{"interval_max": limits.BROKER_WAIT_SECONDS, **options})

    def Pool(self, limit: int | None = None, **_: Any) -> Any:
        """Return a pool of connections that are like this one."""
        return _ConnectionPool(self, limit)

    def __eqhash__(self) -> Any:
        """The key of this connection's pool in kombu, which other applications to the same server do not share."""
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
    """The changes to kombu's channels, as this module says: a mixin before one of its classes."""

    queue_order_strategy = QueueOrder
    _publisher = cached_property(lambda channel: channel._create_client())

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
        in their statistics, the asking process could not read them.
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

    def conn_or_acquire(self, client: Any = None) -> AbstractContextManager[Any]:
        """The client, else one of the pool, where kombu makes one each time."""
        return nullcontext(client or self._publisher)

    def get_table(self, exchange: str) -> list[tuple[str, ...]]:
        return []

    def _brpop_start(self, timeout: int | None = None) -> None:
        """Ask for the next message: as kombu does, but queue by queue, and in each band by band."""
        order = self._queue_cycle
        queues = order.consume(len(self.active_queues))
        if not queues:
            return
        self._in_poll = self.client.connection
        self._brpop_sent_at = monotonic()
        keys = [self._q_for_pri(queue, band) for queue in queues for band in order.bands(queue)]
        command = ["BRPOP", *keys, timeout or self.brpop_timeout or 0]
        if self.global_keyprefix:
            command = self.client._prefix_args(command)
        self.client.connection.send_command(*command)

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
    """The errors of a connection among those that kombu calls so: a KeyError comes from a message without its parts."""
    return tuple(error for error in errors if error is not KeyError)


def _deliver(transport: Any, hand_on: Callable[[Any, str], None], message: Any, queue: str) -> None:
    """Hand on a message. One that comes when the worker has stopped taking goes back to its queue, where kombu would
    have it rejected, which leaves it to the sweep (see `consumer`).
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


# Which messages a worker takes, by the queue that they were really taken from (docs/security.md).
#
# A message says itself what it is: its task, its routing key, what is to follow it. A writer to one queue would
# so choose what the worker there does, and with what rights. Here the queue decides, and it is known from the broker:
# which tasks belong there, and that a task is run and that is all. Nothing of ours is followed by another task,
# belongs to a group, waits or expires: a message that asks Celery for such a thing was not written by us.

_TAKEN_FROM: Final = "taken_from"
_HAS_BAND: Final = "has_band"
_NOT_OWN: Final = ("acts.", "celery.")
"""How the names of our tasks and of Celery's begin; an operator's own tasks have other names."""
_NAMED: Final = ("task", "id")
"""The headers by which every task is known."""
_EMPTY: Final = ("eta", "expires", "group", "group_index", "chord", "retries", "shadow", "stamped_headers", "stamps")
"""The headers of a message that Celery would act on, or show."""
UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""How kombu names processes that await answers, and their questions."""


class QueueConsumer(KombuConsumer):  # type: ignore[misc]  # kombu has no types
    """kombu's consumer, which notes on each message the queue that it was taken from (see `queue_of`)."""

    def _basic_consume(
        self, queue: Any, consumer_tag: str | None = None, no_ack: Any = None, nowait: bool = True
    ) -> str:
        tag: str | None = self._active_tags.get(queue.name)
        if tag is None:
            no_ack = queue.no_ack if no_ack is None else no_ack
            tag = str(self._add_tag(queue, consumer_tag))
            self._active_queue_no_ack[queue.name] = no_ack
            queue.consume(tag, partial(self._receive_from, queue), no_ack=no_ack, nowait=nowait)
        return tag

    def _receive_from(self, queue: Any, message: Any) -> None:
        message.delivery_info[_TAKEN_FROM] = queue.alias or queue.name  # what kombu makes a message of keeps this
        message.delivery_info[_HAS_BAND] = queue.alias is not None
        self._receive_callback(message)


def is_from_queue(message: Any) -> bool:
    """Whether a message was taken from a queue of tasks; it is one of remote control otherwise."""
    return _TAKEN_FROM in message.delivery_info


def queue_of(message: Any) -> str:
    """The queue that a message was taken from; what else `delivery_info` says of it may be the sender's word."""
    return str(message.delivery_info[_TAKEN_FROM])


def has_band(message: Any) -> bool:
    """Whether a message was taken from a queue for priorities (see `priority_queue`)."""
    return bool(message.delivery_info.get(_HAS_BAND))


class Admission:
    """The messages that the queues of a worker admit."""

    def __init__(self, settings: Settings) -> None:
        self._most_bytes = (
            int(settings.limit_call_bytes) + 2 * int(settings.limit_message_bytes) + limits.ENVELOPE_BYTES
        )
        self._tasks = defaultdict[str, set[str]](set)
        self._tasks[settings.queue_instances] |= {EXECUTE_INSTANCE, DELIVER, PROBE}
        self._tasks[settings.queue_delegates] |= {EXECUTE_DELEGATE, PROBE}
        self._tasks[settings.queue_background] |= {EXECUTE_BACKGROUND, EXECUTE_DELEGATE, PROBE}

    def objection(self, message: Any) -> str | None:
        """The reason to refuse a message, as far as that can be seen without running it."""
        if len(message.body) > self._most_bytes:
            return f"{len(message.body)} bytes, where {self._most_bytes} are allowed"
        headers = message.headers
        if not isinstance(headers, dict) or not all(isinstance(headers.get(key), str) for key in _NAMED):
            return "it is no task"
        if len(headers["id"]) > limits.LONGEST_ID or not headers["id"].isprintable():
            return "its id is too long, or no line of text"
        if not self._belongs(headers["task"].removesuffix(SEVERAL), queue_of(message)):
            return f"the task {headers['task']!r:.200} does not belong there"
        if (extra := _extra(headers, message.properties)) is not None:
            return f"it has {extra!r}, which no task of ours has"
        match message.payload:
            case [[*_], dict(named), dict() | None as embedded]:
                return "it asks for more than its task" if named or any((embedded or {}).values()) else None
        return "its body is not a task's"

    def _belongs(self, task: str, queue: str) -> bool:
        if queue in self._tasks:
            return task in self._tasks[queue]
        # A queue of activities, or of an operator's own tasks.
        return task in (EXECUTE_ACTIVITY, EXECUTE_BACKGROUND, PROBE) or not task.startswith(_NOT_OWN)


def _extra(headers: Mapping[str, Any], properties: Mapping[str, Any]) -> str | None:
    """The first thing in a message that asks Celery for more than to run a task."""
    for name in _EMPTY:
        if headers.get(name):
            return name
    if any(headers.get("timelimit") or ()):
        return "timelimit"
    # Celery gives each process a queue for answers, named by a UUID.
    reply_to = properties.get("reply_to")
    return "reply_to" if reply_to and not UUID.fullmatch(str(reply_to)) else None


# Task events that arrive, also from a pool of threads.
#
# Celery buffers task events and publishes the buffer from time to time: `EventDispatcher.flush` publishes a copy and
# then clears the buffer. What the pool's threads append in between is lost, and Flower shows the task as never ended.
# Here what was published is removed, under the dispatcher's own lock, and nothing else. When is decided by the
# consumer.
#
# The name of a task in events has the activity or delegate behind it, `acts.execute_activity.sendMail`: exporters and
# dashboards show figures by the name. A submission can name delegates, so a process gives only so many names.

_WITH_CODE: Final = frozenset({EXECUTE_ACTIVITY, EXECUTE_BACKGROUND, EXECUTE_DELEGATE})
_names: Final = BoundedNames()


class ThreadSafeDispatcher(EventDispatcher):  # type: ignore[misc]  # celery has no types
    """Celery's dispatcher, with a flush that loses nothing, and a larger buffer."""

    def __init__(self, *arguments: Any, buffer_limit: int = limits.EVENTS_AT_ONCE, **options: Any) -> None:
        super().__init__(*arguments, buffer_limit=buffer_limit, **options)

    def send(self, type: str, *arguments: Any, **fields: Any) -> None:
        """Send an event, or buffer it."""
        if "name" in fields:
            fields["name"] = shown_name(fields["name"], fields.get("args"))
        super().send(type, *arguments, **fields)

    def flush(self, errors: bool = True, groups: bool = True) -> None:
        """Publish what is buffered."""
        super().flush(errors=errors, groups=False)
        if not groups:
            return
        with self.mutex:
            for group, events in self._group_buffer.items():
                published = events[:]
                if published:
                    self._publish(published, self.producer, f"{group}.multi")
                    del events[: len(published)]

    def publish_all(self, type_: str, events: Iterable[Mapping[str, Any]], producer: Any) -> None:
        """Publish several events of one type in one message."""
        common = {"hostname": self.hostname, "utcoffset": utcoffset(), "pid": self.pid}
        made = [Event(type_, clock=self.clock.forward(), **common, **fields) for fields in events]
        with self.mutex:
            self._publish(made, producer, f"{group_from(type_)}.multi")


def shown_name(task: str, shown: object) -> str:
    """The name of a task in events; `shown` is what its message shows of its argument, with the code's name last."""
    if task not in _WITH_CODE or not isinstance(shown, str):
        return task
    code = _names.bounded(shown.strip("'").rpartition(" ")[2])
    return task if code is None else f"{task}.{code}"


class ThreadSafeEvents(Events):  # type: ignore[misc]  # as above
    """The class of events that the application is configured with."""

    dispatcher_cls = f"{__name__}:ThreadSafeDispatcher"


EVENTS: Final = f"{__name__}:ThreadSafeEvents"
"""Where Celery finds it."""


# Envelopes: several tasks of one name in one message of the broker, and one Celery task for each all the same.
#
# Taking a message costs a round trip and much of kombu's and Celery's time; what a lane does, or a small call, costs
# little more. So tasks that are published together share messages, which the consumer takes apart into tasks, each with
# an id, events and an answer of its own. The message is answered with the last of them.
#
# An envelope holds a small part of what lies in the queue, so that workers share the work. One that has less room than
# an envelope has tasks puts the rest back where it has taken it. RabbitMQ counts messages where a worker asks for no
# more tasks than it has room for: there each task travels alone.
#
# A writer to the queue is not trusted: how many tasks an envelope has, and its bytes, are bounded.

_SHARES: Final[Mapping[str, int]] = {EXECUTE_INSTANCE: 16, DELIVER: 1}
"""Into so many messages the tasks of a name that lie in a queue go before these hold more than one each.

A lane may be long, and results that come together are written together.
"""


def enveloped(tasks: Iterable[messages.TaskMessage]) -> Iterator[messages.TaskMessage]:
    """Put tasks together in fewer messages."""
    groups = defaultdict[tuple[str, str, bool, int, int | None, int], list[messages.TaskMessage]](list)
    for task in tasks:
        kind = task.task, task.queue, task.is_forgotten, task.returned, task.format, band_of(task.priority)
        groups[kind].append(task)
    for (name, *_), group in groups.items():
        queued = max(len(group), *(task.queued for task in group))
        size = max(1, min(limits.TASKS_IN_A_MESSAGE, queued // _SHARES.get(name, limits.SHARES_OF_CALLS)))
        for part in _parts(group, size):
            yield part[0] if len(part) == 1 else messages.envelope_task(part)


def _parts(tasks: Sequence[messages.TaskMessage], size: int) -> Iterator[list[messages.TaskMessage]]:
    part: list[messages.TaskMessage] = []
    free = limits.BYTES_IN_A_MESSAGE
    for task in tasks:
        if part and (len(part) == size or free < len(task.body)):
            yield part
            part, free = [], limits.BYTES_IN_A_MESSAGE
        part.append(task)
        free -= len(task.body)
    yield part


def task_ids(id_: str, envelope: messages.Envelope) -> list[str]:
    """The ids of an envelope's tasks; the same ones however often it is delivered."""
    return [f"{id_}-{envelope.first + number}" for number in range(len(envelope.parts))]


def sent_events(id_: str, message: messages.TaskMessage, envelope: messages.Envelope) -> list[dict[str, Any]]:
    """Celery's events for the tasks of an envelope that was sent."""
    place = {"queue": message.queue, "exchange": "", "routing_key": message.queue}
    plain = {"kwargs": "-", "parent_id": None, "retries": 0, "eta": None, "expires": None}
    name = message.task.removesuffix(SEVERAL)
    tasks = zip(task_ids(id_, envelope), envelope.parts, strict=True)
    return [
        {"uuid": task, "root_id": task, "name": shown_name(name, shown), "args": shown, **plain, **place}
        for task, (_, shown) in tasks
    ]


def is_envelope(message: Any) -> bool:
    """Whether a message of the broker is one."""
    return bool(message.headers["task"].endswith(SEVERAL))


def take_apart(message: Any, limits: Limits, room: int) -> list[Part]:
    """The tasks of an envelope, as many as there is room for; the rest is put back.

    Raises `MalformedMessage`, and what the transport raises where it cannot put the rest back.
    """
    arguments, _, _ = message.payload
    envelope = messages.unpack_envelope(arguments[0] if len(arguments) == 1 else None, limits)
    if len(envelope.parts) > room:
        _put_back(message, messages.Envelope(envelope.first + room, envelope.parts[room:]))
        envelope = replace(envelope, parts=envelope.parts[:room])
    answer = _Answer(message, len(envelope.parts))
    ids = task_ids(message.headers["id"], envelope)
    return [Part(message, id_, *part, answer) for id_, part in zip(ids, envelope.parts, strict=True)]


def _put_back(message: Any, envelope: messages.Envelope) -> None:
    """Put an envelope back in front of its queue, in Redis."""
    channel, raw = message.channel, message._raw
    body = messages.pack([[messages.pack_envelope(envelope)], {}, {}])
    encoded, _ = channel.encode_body(body, raw["properties"].get("body_encoding"))
    properties = {**raw["properties"], "delivery_tag": str(uuid.uuid4())}
    headers = {**raw["headers"], messages.TASKS: len(envelope.parts)}
    with channel.conn_or_acquire() as client:
        key = channel._q_for_pri(queue_of(message), channel._get_message_priority(raw))
        client.rpush(key, dumps({**raw, "body": encoded, "headers": headers, "properties": properties}))


@dataclass(slots=True)
class _Answer:
    """Answers a message when so many tasks have been answered."""

    message: Any
    missing: int

    def give(self, log: Any, errors: Any, *_: Any, **__: Any) -> None:
        self.missing -= 1
        if not self.missing:
            self.message.ack_log_error(log, errors)


class Part:
    """One task of an envelope, as Celery's request handling takes a message."""

    content_type = content_encoding = None  # its body is decoded

    def __init__(self, message: Any, id_: str, argument: bytes, shown: str, answer: _Answer) -> None:
        name = message.headers["task"].removesuffix(SEVERAL)
        self.headers = {**message.headers, "task": name, "id": id_, "root_id": id_, "argsrepr": shown}
        self.body: tuple[list[bytes], dict[str, Any], dict[str, Any]] = ([argument], {}, {})
        self.payload = self.body
        self.delivery_info = message.delivery_info
        self.properties = {**message.properties, "correlation_id": id_}
        self.ack_log_error = self.reject_log_error = answer.give  # what is rejected is found in the log


# The broker's failures: reported as errors of ours, and outlasted where nothing may get lost.


_SILENT: Final = "it does not answer; RabbitMQ takes nothing while it is short of memory or disk (rabbitmqctl status)"


@contextmanager
def broker_failures(what: str) -> Iterator[None]:
    """Turn what the broker's client raises into an `InfrastructureError` that begins with `what`.

    What will be refused again is a `QueueRefused`.
    """
    try:
        yield
    except (KombuError, OperationalError, RedisError, OSError) as error:
        kind = QueueRefused if any(map(_is_permanent, _causes(error))) else InfrastructureError
        raise kind(f"{what}: {str(error) or _SILENT}") from error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that it comes from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_permanent(error: BaseException) -> bool:
    """Whether Redis says that the user may not write the key, or that it holds something else."""
    return isinstance(error, NoPermissionError) or (
        isinstance(error, ResponseError) and str(error).startswith(("WRONGTYPE", "NOPERM"))
    )


def retry_while_unavailable(act: Callable[[], None]) -> None:
    """Do something again while the broker is away or full, for some minutes. Raises `InfrastructureError`."""
    retry_over_time(
        act,
        InfrastructureError,
        max_retries=limits.PUBLISHING_TRIES,
        interval_start=0.1,
        interval_step=0.2,
        interval_max=5,
    )


# What a task leaves in the worker's log: one line, when it has ended, with its run, instance and call.
#
# Libraries that ask others over HTTP leave none there: theirs show addresses, which may hold a secret.

# An instance's name must not forge a line.
_DONE: Final = "%(name)s %(args)r: done in %(runtime).3f s [%(id)s]"
_SHOW_ADDRESSES: Final = ("httpx", "httpx2", "openai", "anthropic")


def log_one_line_per_task() -> None:
    """Replace Celery's two lines, which do not say what a task is about. On the level DEBUG its first one stays."""
    trace.LOG_SUCCESS = _DONE
    if not trace.logger.isEnabledFor(logging.DEBUG):
        logging.getLogger("celery.worker.strategy").setLevel(logging.WARNING)


def hide_addresses() -> None:
    """Log no requests over HTTP: the address of a web hook is a secret, and a model's address may be one."""
    for name in _SHOW_ADDRESSES:
        logging.getLogger(name).setLevel(logging.WARNING)


# The queue of reports: any process adds to it, the sweep reads it a page at a time.

_FAILURE: Final = "the broker takes or gives no reports"


class ReportQueue:
    """The reports' queue. May be used from any thread."""

    def __init__(self, app: Celery, settings: Settings) -> None:
        self._app = app
        self._queue = reports_queue(settings)
        self._limits = limits.limits_of(settings)

    def send(self, report: messages.Report) -> None:
        """Add a report. Raises `InfrastructureError`."""
        with broker_failures(_FAILURE), self._app.producer_or_acquire() as producer:
            producer.publish(
                messages.pack_report(report),
                exchange="",
                routing_key=self._queue.name,
                content_type="application/msgpack",
                content_encoding="binary",
                expiration=None if report.completed else limits.OUTDATED_SECONDS,  # a completion is reported once
                retry=False,
            )

    def pages(self) -> Iterator[list[messages.Report]]:
        """The reports that there are now, a page at a time. Raises `InfrastructureError`.

        A page is removed when the next one is asked for: what a reader had that died, another one reads.
        """
        with broker_failures(_FAILURE), self._app.connection_or_acquire() as connection:
            queue = self._queue(connection.default_channel)
            page_of = _peeked if connection.transport.driver_type == "redis" else _taken
            left = queue.queue_declare().message_count
            while left > 0:
                with page_of(queue, min(left, limits.REPORTS_A_PAGE)) as bodies:
                    yield [report for body in bodies if (report := self._read(body)) is not None]
                left = left - limits.REPORTS_A_PAGE if len(bodies) == min(left, limits.REPORTS_A_PAGE) else 0

    def _read(self, body: object) -> messages.Report | None:
        try:
            return messages.unpack_report(body, self._limits)
        except MalformedMessage as error:
            logger.error("a report is refused: %s", error)
            return None


@contextmanager
def _peeked(queue: Any, most: int) -> Iterator[list[object]]:
    """The oldest messages of a queue in Redis; they stay in it until the block has ended well.

    What is taken from there in the usual way would come back after the visibility timeout only, an hour.
    """
    channel = queue.channel
    with channel.conn_or_acquire() as client:
        key = f"{channel.global_keyprefix}{queue.name}"  # kombu prefixes neither LRANGE nor LREM
        found = client.lrange(key, -most, -1)[::-1]
        yield [_body(channel, item) for item in found]
        with client.pipeline(transaction=False) as pipeline:
            for item in found:
                pipeline.lrem(key, -1, item)
            pipeline.execute()


def _body(channel: Any, item: bytes) -> object:
    """The body of a message in Redis, or None: a stranger may have put it there."""
    try:
        return channel.Message(loads(item.decode()), channel=channel).body
    except Exception:
        return None


@contextmanager
def _taken(queue: Any, most: int) -> Iterator[list[object]]:
    """The oldest messages of a queue; acknowledged when the block has ended well, else the broker has them again."""
    messages = list(takewhile(lambda message: message is not None, (queue.get(no_ack=False) for _ in range(most))))
    try:
        yield [message.body for message in messages]
    except BaseException:
        for message in messages:
            message.requeue()
        raise
    for message in messages:
        message.ack()


def queue_length(connection: Any, queue: str) -> int:
    """Count the messages in a queue, of all priorities; one that was never used does not exist yet."""
    bands = BANDS[1:] if connection.transport.driver_type == "amqp" else ()
    names = [queue, *(priority_queue(queue, band, "classic").name for band in bands)]
    return sum(_messages_in(connection, name) for name in names)


def _messages_in(connection: Any, queue: str) -> int:
    with connection.channel() as channel:
        try:
            return int(channel.queue_declare(queue, passive=True).message_count)
        except connection.channel_errors:
            return 0
