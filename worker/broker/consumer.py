"""The consumer of a worker: it takes tasks in msgpack from the broker, and nothing that could stop it.

Celery's consumer takes a message for what it should be. One with a list for a name, or a body of another shape, ends
the worker; one it refuses it prints, body and all, into the log. Here a message is looked at first, and what is refused
costs one line that says why and shows nothing of it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import traceback
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import kombu.compression
import msgpack
from celery import Celery, signals
from celery.exceptions import WorkerShutdown
from celery.worker.consumer import Consumer
from celery.worker.request import Request
from kombu.common import ignore_errors
from kombu.serialization import registry
from kombu.transport.virtual import QoS
from redis.exceptions import NoPermissionError

from ...broker_config import EXECUTE_INSTANCE, priority_queue
from ...broker_config.configuration import CONTENT
from ...protocol import Limits
from ...protocol.limits import unpacked
from .. import limits
from ..backoff import batches
from ..errors import InfrastructureError, MalformedMessage, QueueRefused
from ..fairness import LaneAdmission
from ..outages import Batcher, Outage
from ..process import count_refusal, metrics
from . import transport
from .messages import MESSAGE_FORMAT, RETURNED, SENT, TASKS, TaskMessage, lane_task, pack, unpack
from .queue_order import PriorityQueues, band_of, consume_priorities
from .remote_control import COMMAND, refuse_command, restrict

# What a worker has taken from the broker and not acknowledged, in its own memory: kombu's ledger in Redis is not kept.
#
# That ledger (`unacked`) costs a transaction for each message taken and one for each acknowledged, and nothing of ours
# is brought back by it: a lane, a result or a call whose worker dies is found in the log's own records within seconds,
# long before a visibility timeout is over, and the broker's second opinion on remote calls is refused (see
# `recovery.sweep`). What it is needed for otherwise stays: a worker takes no more than it may have in hand. That is
# counted in tasks, and of each queue in bytes as well: a hundred calls of megabytes wait in the queue, where they take
# no worker's memory.

_UNLIMITED: Final = 1_000_000


class InFlight:
    """How many tasks the messages are that a worker has taken and not answered yet.

    While its event loop `is_blocked` it takes no more: what another worker could begin would wait here.
    """

    def __init__(self, is_blocked: Callable[[], bool] = lambda: False) -> None:
        self.tasks = 0
        self.is_blocked = is_blocked
        self._bytes = Counter[str]()

    def add(self, task: Any, given_back: Callable[[], None] | None = None) -> None:
        """Count a task's message until it is answered; `given_back` is called then."""
        self.tasks += 1
        size, queue = _size_of(task), transport.queue_of(task)
        self._bytes[queue] += size
        metrics().task_taken(queue)

        def let_go(answer: Callable[..., None], *arguments: Any, **named: Any) -> None:
            if task.ack_log_error is _answered:
                return
            task.ack_log_error = task.reject_log_error = _answered  # or it would stay until garbage is looked for
            self.tasks -= 1
            self._bytes[queue] -= size
            metrics().task_answered(queue)
            if given_back is not None:
                given_back()
            answer(*arguments, **named)

        task.ack_log_error = partial(let_go, task.ack_log_error)
        task.reject_log_error = partial(let_go, task.reject_log_error)

    def is_full_of(self, queue: str) -> bool:
        """Whether so many bytes of a queue are in hand that nothing more is to be taken from it."""
        return self._bytes[queue] >= limits.MOST_BYTES_IN_HAND


def _answered(*_: Any, **__: Any) -> None:
    """A message is answered once."""


def _size_of(task: Any) -> int:
    """The bytes of a task's argument; 0 where they are few."""
    arguments = task.payload[0]
    argument = arguments[0] if arguments else None
    return len(argument) if isinstance(argument, bytes) and len(argument) >= limits.LARGE_BYTES else 0


class InMemoryQoS(QoS):  # type: ignore[misc]  # kombu has no types
    """The messages that one channel has delivered. What is not acknowledged when it closes is left to the sweep."""

    restore_at_shutdown = False

    def __init__(self, in_flight: InFlight, channel: Any) -> None:
        super().__init__(channel)
        self._in_flight = in_flight

    def can_consume(self) -> bool:
        """Whether another message may be taken: the limit counts tasks, of which a message may carry several."""
        return self.room > 0

    @property
    def room(self) -> int:
        """How many more tasks may be taken."""
        if self._in_flight.is_blocked():
            return 0
        return self.prefetch_count - self._in_flight.tasks if self.prefetch_count else _UNLIMITED

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Let go of a message. It is never put back: the sweep sees to it, and counts what kills its workers."""
        super().reject(delivery_tag)


def keep_in_memory(channel: Any, in_flight: InFlight) -> None:
    """Let a channel of the Redis transport, from which nothing is consumed yet, keep what it delivers in memory."""
    if channel._qos is not None:
        channel._qos.restore_unacked_once()  # nothing; but else the process keeps it, and the channel, to its end
    channel._qos = InMemoryQoS(in_flight, channel)
    channel._queue_cycle.is_closed = in_flight.is_full_of


logger = logging.getLogger(__name__)

T = TypeVar("T")

_NOT_PERMITTED: Final = 3
"""How a worker ends that may not, or cannot, take from its queues."""
_INEQUIVALENT: Final = 406
"""RabbitMQ's answer where a queue of another kind than the one it has is declared."""


class ValidatingConsumer(Consumer):  # type: ignore[misc]  # celery has no types
    """Celery's consumer, made to survive anything in its queues."""

    class Blueprint(Consumer.Blueprint):  # type: ignore[misc]
        """Without 28 exchanges for delays, which it makes where there are quorum queues: no task of ours has one."""

        default_steps = [step for step in Consumer.Blueprint.default_steps if "delayed_delivery" not in step]  # noqa: RUF012

    def __init__(self, *arguments: Any, **options: Any) -> None:
        transport.log_one_line_per_task()
        transport.hide_addresses()
        self._lanes = LaneAdmission(lambda: int(self.pool.limit), lambda seconds, do: self.hub.call_later(seconds, do))
        self._has_lane_admission = False
        runtimes, lanes = options["app"].conf.acts_runtimes, self._lanes  # to look it up takes longest
        self._in_flight = InFlight(lambda: bool(runtimes.is_blocked) or lanes.is_closed)
        self._is_flush_due = self._is_turn_due = False
        self._priorities: PriorityQueues | None = None
        self._thread = threading.get_ident()
        self._limits = limits.limits_of(options["app"].conf.acts_settings)
        super().__init__(*arguments, **options)
        restrict(self.steps, self.app.conf.acts_settings)

    def connect(self) -> Any:
        """Connect to the broker."""
        self._is_flush_due = self._is_turn_due = False  # Celery has cleared its timers
        self._thread = threading.get_ident()
        connection = super().connect()
        if connection.transport.driver_type == "redis":
            keep_in_memory(connection.default_channel, self._in_flight)
            self._has_lane_admission = self.hub is not None  # RabbitMQ counts lanes that are put aside as taken
        return connection

    def on_connection_error_after_connected(self, exc: Exception) -> None:
        """Called by Celery when the broker fails: it is waited for, but not where it says that this user may not."""
        if isinstance(exc, NoPermissionError):
            logger.critical("the broker's user may not do what the queues of this worker need: %s", exc)
            raise WorkerShutdown(_NOT_PERMITTED)
        if getattr(exc, "reply_code", None) == _INEQUIVALENT:
            logger.critical(
                "RabbitMQ has a queue of another kind than is asked for: %s. Have ACTS_QUEUE_TYPE say what it is, or "
                "delete the queue when it is empty",
                exc,
            )
            raise WorkerShutdown(_NOT_PERMITTED)
        super().on_connection_error_after_connected(exc)

    def call_soon(self, p: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Called by Celery to answer a message in the next turn of its loop.

        Before that, where its own thread asks, the loop would wait for the broker once more, up to a second, and the
        place that is given back with the answer would be free no sooner. So it waits no longer than for others to be
        given back as well: what is taken for several places at once costs less.
        """
        if self.hub and not self._is_turn_due and threading.get_ident() == self._thread:
            self._is_turn_due = True
            self.hub.call_later(limits.FAIR_TURN_SECONDS, self._turn)
        return super().call_soon(p, *arguments, **named)

    def _turn(self) -> None:
        self._is_turn_due = False

    def on_send_event_buffered(self) -> None:
        """Called by Celery, in any thread, when a task event is to be published: those of a while go together."""
        if self.hub and not self._is_flush_due:
            self._is_flush_due = True
            self.hub.call_soon(self.hub.call_later, limits.EVENTS_SECONDS, self._flush_events)

    def _flush_events(self) -> None:
        self._is_flush_due = False
        super()._flush_events()

    def stop(self) -> None:
        """Called by Celery when the worker is to end: lanes that were put aside go back to their queue."""
        if self._priorities is not None:
            ignore_errors(self, self._priorities.cancel)
        super().stop()
        if lanes := self._lanes.leave():
            logger.info("%d lanes that have not begun go back to their queue", len(lanes))
            queue = self.app.conf.acts_settings.queue_instances
            try:
                self.app.conf.acts_runtimes.current().publisher.publish([lane_task(*lane, queue) for lane in lanes])
            except InfrastructureError as error:
                logger.warning("%d lanes are left to the sweep: %s", len(lanes), error)

    def shutdown(self) -> None:
        """Called by Celery when everything else has ended."""
        self._flush_events()
        super().shutdown()

    def create_task_handler(self, *arguments: Any, **options: Any) -> Callable[[Any], None]:
        """Return what is called with each message."""
        handle = super().create_task_handler(*arguments, **options)
        admission = transport.Admission(self.app.conf.acts_settings)

        def tasks_of(message: Any) -> Iterable[Any]:
            outlive_channel(message)
            reason = admission.objection(message)
            if reason is not None:
                raise MalformedMessage(reason)
            return self._taken(message)

        def on_task_received(message: Any) -> None:
            for task in self._accepted(message, lambda: tasks_of(message)) or ():
                self._begin(task, partial(self._handled, task, partial(handle, task)))

        if self.connection.transport.driver_type == "amqp":
            how = {"on_message": on_task_received, "on_decode_error": self.on_decode_error}
            self._priorities = consume_priorities(self.app, self.connection, **how)
        return on_task_received

    def add_task_queue(self, queue: str, *arguments: Any, **options: Any) -> None:
        """Called by Celery to consume one more queue."""
        super().add_task_queue(queue, *arguments, **options)
        if self._priorities is not None:
            self._priorities.add(queue)

    def cancel_task_queue(self, queue: str) -> None:
        """Called by Celery to take no more of a queue."""
        super().cancel_task_queue(queue)
        if self._priorities is not None:
            self._priorities.cancel(queue)

    def on_unknown_message(self, body: Any, message: Any) -> None:
        """Called by Celery for a message that is no task."""
        self._refuse(message, "it is no task")

    def on_unknown_task(self, body: Any, message: Any, exc: Exception) -> None:
        """Called by Celery for a task that is not registered."""
        self._refuse(message, f"there is no task {message.headers['task']!r:.200} here: see ACTS_ACTIVITIES")

    def on_invalid_task(self, body: Any, message: Any, exc: Exception) -> None:
        """Called by Celery for a task that it cannot make out."""
        self._refuse(message, type(exc).__name__)

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """Called by Celery for a message that it cannot or must not decode."""
        if transport.is_from_queue(message):
            self._refuse(message, type(exc).__name__)
        else:
            refuse_command(type(exc).__name__)

    def _accepted(self, message: Any, work: Callable[[], T]) -> T | None:
        """Do something with a message; it is refused for what is wrong with it. Raises errors of the connection."""
        try:
            return work()
        except transport.of_connections(*self.connection_errors, *self.channel_errors):
            raise
        except MalformedMessage as error:
            self._refuse(message, str(error))
        except Exception as error:
            self._refuse(message, type(error).__name__)
        return None

    def _handled(self, message: Any, handle: Callable[[], object]) -> None:
        """Give a task that was admitted to Celery. What goes wrong there is no fault of the message: it comes again."""
        try:
            handle()
        except transport.of_connections(*self.connection_errors, *self.channel_errors):
            raise
        except Exception as error:
            # Not its text, which may quote what the message holds.
            where = "".join(traceback.format_tb(error.__traceback__)).rstrip()
            logger.error(
                "taking a task of %.200r fails: %s\n%s", transport.queue_of(message), type(error).__name__, where
            )
            count_refusal("errors")
            message.reject_log_error(logger, self.connection_errors)

    def _taken(self, message: Any) -> Iterable[Any]:
        """The tasks of a message."""
        if not transport.is_envelope(message):
            keep_once(message)
            return (message,)
        return transport.take_apart(message, self._limits, max(1, getattr(message.channel.qos, "room", 1)))

    def _begin(self, task: Any, begin: Callable[[], object]) -> None:
        """Count a task as in flight until it is answered, and begin it; a lane when its run's share allows it."""

        def take(given_back: Callable[[], None] | None = None) -> None:
            self._in_flight.add(task, given_back)
            begin()

        lane = lane_of(task) if self._has_lane_admission else None
        if lane is None:
            take()
        else:
            self._lanes.take(*lane, take, lambda: self._drop(task))

    def _drop(self, message: Any) -> None:
        message.ack_log_error(logger, self.connection_errors)

    def _refuse(self, message: Any, reason: str) -> None:
        logger.error("a message of %.200r is refused: %s", transport.queue_of(message), reason)
        count_refusal("messages")
        message.reject_log_error(logger, self.connection_errors)
        signals.task_rejected.send(sender=self, message=message, exc=None)


def lane_of(task: Any) -> tuple[str, str | None] | None:
    """The run and the lane that a task drives; None for any other task, and for what will be refused."""
    if task.headers["task"] != EXECUTE_INSTANCE:
        return None
    arguments = task.payload[0]
    argument = arguments[0] if arguments else None
    if not isinstance(argument, bytes) or len(argument) > limits.LONGEST_LANE:
        return None
    try:
        run, instance, *_ = unpack(argument)
    except (ValueError, TypeError, msgpack.UnpackException):
        return None
    return (run, instance) if isinstance(run, str) and isinstance(instance, str | None) else None


def keep_once(message: Any) -> None:
    """Let go of the forms of a message's body that are not needed once it is decoded: they take twice its memory."""
    message.body = message.payload
    message.content_type = message.content_encoding = None  # of a body that is to be decoded
    if (raw := getattr(message, "_raw", None)) is not None:  # Redis' form of it
        raw["body"] = ""


def outlive_channel(message: Any) -> None:
    """Let an answer to a message whose channel is dead be an error of the connection, which Celery logs and outlives.

    A channel that could not be closed, the server being away or full, has no connection any more, and kombu's raises
    AttributeError for that; the worker would end. There is no way to answer: the broker delivers the message again.
    """
    message.ack_log_error = _forgiving(message.ack_log_error)
    message.reject_log_error = _forgiving(message.reject_log_error)


def _forgiving(answer: Callable[..., None]) -> Callable[..., None]:
    def answer_if_possible(log: logging.Logger, errors: tuple[type[Exception], ...], *how: Any, **named: Any) -> None:
        answer(log, (*errors, AttributeError), *how, **named)

    return answer_if_possible


CONSUMER: Final = f"{__name__}:{ValidatingConsumer.__name__}"
"""Where Celery finds it."""


class BandRequest(Request):  # type: ignore[misc]  # celery has no types
    """Celery's request, which acknowledges a message from a queue for priorities when its task begins: else RabbitMQ
    would send no other one before its end. A task that is lost with its worker is found in the log, as over Redis.
    """

    def on_accepted(self, pid: int, time_accepted: float) -> None:
        """Called by the pool when the task begins."""
        super().on_accepted(pid, time_accepted)
        if transport.has_band(self.message):
            self.acknowledge()


REQUEST: Final = f"{__name__}:{BandRequest.__name__}"
"""Where Celery finds it."""


# Decoding: what kombu decodes by itself, before anything of ours sees a message, and bounds for it.

_CONTENT_TYPE = "application/x-msgpack"


def restrict_decoding(limits: Limits) -> None:
    """Bound what a message unfolds to, in this process. The last limits given hold.

    Compressed messages are not taken, since nothing bounds what a few bytes unfold to, and none of ours is; objects and
    lists are counted as msgpack is unpacked.
    """
    for content_type in kombu.compression.encoders():
        encoder, _ = kombu.compression.get_encoder(content_type)
        kombu.compression.register(encoder, _refuse, content_type)
    unpack = partial(unpacked, most_containers=limits.containers)
    registry.register(CONTENT, pack, unpack, content_type=_CONTENT_TYPE, content_encoding="binary")


@contextmanager
def decoding_restored() -> Iterator[None]:
    """Leave this process to decode as it did before the block."""
    compressions = {each: kombu.compression.get_encoder(each)[0] for each in kombu.compression.encoders()}
    decompressions = {each: kombu.compression.get_decoder(each) for each in compressions}
    encoded, decoded = registry._encoders[CONTENT], registry._decoders[_CONTENT_TYPE]
    try:
        yield
    finally:
        for each, encoder in compressions.items():
            kombu.compression.register(encoder, decompressions[each], each)
        registry.register(CONTENT, encoded.encoder, decoded, _CONTENT_TYPE, encoded.content_encoding)


def _refuse(body: bytes) -> bytes:
    raise ValueError("compressed messages are not taken")


# Publishing tasks: in batches, one pipeline each (FACTS "Messages").


class Publisher:
    """Publishes through one Celery application. May be used from any thread."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def publish(self, tasks: Iterable[TaskMessage], *, published: Callable[[int], None] | None = None) -> None:
        """Publish all of them; `published` is called with how many after each batch. Raises `InfrastructureError`;
        `QueueRefused` once all are published that can be.

        Whether a batch that fails has been published is not known: publishing again does no harm, since a worker that
        takes up a task looks into the log first.
        """
        refusals: list[QueueRefused] = []
        for batch in batches(tasks, limits.PUBLISHED_AT_ONCE):
            try:
                self._publish(batch)
            except QueueRefused:
                refusals += self._publish_apart(batch)
            if published is not None:
                published(len(batch))
        if refusals:
            raise QueueRefused(str(refusals[0]), [task for refusal in refusals for task in refusal.tasks])

    def _publish_apart(self, batch: Sequence[TaskMessage]) -> Iterator[QueueRefused]:
        """Publish what lies in one batch queue by queue, for one of them is refused; gives each that is."""
        queues: dict[str, list[TaskMessage]] = {}
        for task in batch:
            queues.setdefault(task.queue, []).append(task)
        for queue, tasks in queues.items():
            try:
                self._publish(tasks)
            except QueueRefused as refused:
                yield QueueRefused(f"queue {queue!r}: {refused}", tasks)

    def waiting(self, queue: str) -> int:
        """The number of tasks in a queue. Raises `InfrastructureError`."""
        with transport.broker_failures("the broker does not answer"), self._app.connection_or_acquire() as connection:
            return transport.queue_length(connection, queue)

    def tell_cancelled(self, key: str) -> None:
        """Tell every worker that the run with that key was cancelled. Raises `InfrastructureError`."""
        with transport.broker_failures("the run is over, but workers could not be asked to stop"):
            self._app.control.broadcast(COMMAND, arguments={"key": key})

    def deliver(self, tasks: Sequence[TaskMessage]) -> None:
        """Publish tasks that must not get lost: goes on trying while the broker is away or full, for some minutes.

        Raises `InfrastructureError`.
        """
        transport.retry_while_unavailable(lambda: self.publish(tasks))

    def _publish(self, batch: list[TaskMessage]) -> None:
        with transport.broker_failures("the broker does not take tasks"):
            self._put(batch)

    def _put(self, batch: list[TaskMessage]) -> None:
        with (
            self._app.producer_or_acquire() as producer,
            _batched(producer),
            producer.connection._reraise_as_library_errors(),
        ):
            for task in transport.enveloped(batch) if producer.connection.transport.driver_type == "redis" else batch:
                self._send(task, producer)

    def _send(self, task: TaskMessage, producer: Any) -> None:
        """Send a message; where it is an envelope, events tell of its tasks, and not of itself."""
        amqp, id_, is_told = self._app.amqp, str(uuid.uuid4()), self._app.conf.task_send_sent_event
        message = amqp.as_task_v2(
            id_,
            task.task,
            args=[task.body],
            argsrepr=task.shown,
            kwargsrepr="-",  # an empty one would show the arguments after all
            ignore_result=True if task.is_forgotten else None,
            create_sent_event=is_told and task.envelope is None,
        )
        message.headers[SENT] = time.time()
        if task.returned:
            message.headers[RETURNED] = task.returned
        if task.format is not None:
            message.headers[MESSAGE_FORMAT] = task.format
        if task.envelope is not None:
            message.headers[TASKS] = len(task.envelope.parts)
        if message.sent_event is not None:
            message.sent_event["name"] = transport.shown_name(task.task, task.shown)
        band = band_of(task.priority)
        how = {"priority": band} if band else {}
        queue = task.queue
        if band and producer.connection.transport.driver_type == "amqp":
            queue = priority_queue(queue, band, self._app.conf.task_create_missing_queue_type)
        amqp.send_task_message(producer, task.task, message, queue=queue, retry=False, **how)
        if is_told and task.envelope is not None:
            amqp._event_dispatcher.publish_all("task-sent", transport.sent_events(id_, task, task.envelope), producer)


def _batched(producer: Any) -> AbstractContextManager[Any]:
    """Publish the messages of a block together; one by one with kombu before 5.7, beside which clients work."""
    batch = getattr(producer, "batch", None)
    return batch(limits.PUBLISHED_AT_ONCE) if batch is not None else nullcontext()


# The buffer in front of the broker: what the lane runners of a process publish, also while the broker is away.
#
# What is handed in is in the log already: a lane is marked as published, a remote call as sent, a forgotten one is
# in the outbox. So publishing decides nothing about a lane, and what this process cannot keep the sweep publishes. What
# several lanes hand in at the same time goes out together.


class Batch(NamedTuple):
    """The messages that were handed in together."""

    tasks: Sequence[TaskMessage]
    size: int
    """Bytes of their arguments."""


class PublishBuffer:
    """Publishes in the order in which tasks are handed in. `send` publishes once; it raises `InfrastructureError`.

    `refused` is given a task that its queue does not take, and why: it is not tried again.
    """

    def __init__(
        self,
        send: Callable[[Sequence[TaskMessage]], Awaitable[None]],
        refused: Callable[[TaskMessage, str], object] = lambda task, why: None,
    ) -> None:
        self._send = send
        self._refused = refused
        self._batcher = Batcher[Batch, None](
            self._send_all,
            most=limits.PUBLISHED_AT_ONCE,
            size_of=lambda batch: batch.size,
            passing=(InfrastructureError,),
            outage=Outage(logger, "publishing tasks"),
        )
        self._kept = self._kept_bytes = 0
        self._sent = 0
        self._is_away = False
        self._awaited: set[asyncio.Future[None]] = set()

    async def publish(self, tasks: Sequence[TaskMessage]) -> None:
        """Hand in tasks; returns when the broker was asked to take them, or seems to be away. Never raises."""
        size = sum(len(task.body) for task in tasks)
        if not tasks or (self._is_away and not self._has_room(len(tasks), size)):
            return
        self._keep(len(tasks), size)
        tried = self._batcher.hand_in(Batch(tasks, size))
        self._awaited.add(tried)
        tried.add_done_callback(self._awaited.discard)
        while not self._is_away and not tried.done():
            sent = self._sent
            await asyncio.wait((tried,), timeout=limits.AWAY_SECONDS)
            # One that takes large tasks slowly is not away: what is made meanwhile would fill the memory.
            self._is_away |= not tried.done() and self._sent == sent

    def _has_room(self, count: int, size: int) -> bool:
        """Whether so many tasks of so many bytes are kept while the broker is away."""
        return self._kept + count <= limits.MOST_TASKS_KEPT and self._kept_bytes + size <= limits.MOST_KEPT_BYTES

    def _keep(self, count: int, size: int) -> None:
        self._kept += count
        self._kept_bytes += size

    async def _send_all(self, batches: Sequence[Batch]) -> None:
        """Publish once. Raises `InfrastructureError` where the broker is away; nobody waits for it then."""
        tasks = [task for batch in batches for task in batch.tasks]
        try:
            await self._send(tasks)
        except QueueRefused as error:
            logger.error("%d tasks are not published: %s", len(error.tasks), error)
            for task in error.tasks:
                assert isinstance(task, TaskMessage)
                self._refused(task, str(error))
        except InfrastructureError:
            self._is_away = True
            for tried in self._awaited:
                if not tried.done():
                    tried.set_result(None)
            raise
        except Exception:
            logger.exception("%d tasks cannot be published", len(tasks))
        self._is_away = False
        self._sent += 1
        self._keep(-len(tasks), -sum(batch.size for batch in batches))
