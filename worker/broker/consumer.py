"""What a worker takes from the broker: tasks in msgpack, and nothing that could stop it.

Celery's consumer takes a message for what it should be. One with a list for a name, or a body of another shape, ends
the worker; one it refuses it prints, body and all, into the log. Here a message is looked at first, and what is refused
costs one line that says why and shows nothing of it.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, TypeVar

import msgpack
from celery import signals
from celery.exceptions import WorkerShutdown
from celery.worker.consumer import Consumer
from redis.exceptions import NoPermissionError

from acts_celery.broker_config import EXECUTE_INSTANCE
from acts_celery.worker.errors import InfrastructureError, MalformedMessage
from acts_celery.worker.fairness.lane_admission import LaneAdmission
from acts_celery.worker.process.limits import limits_of
from acts_celery.worker.process.refusals import count_refusal
from acts_celery.worker.wire.packing import unpack
from acts_celery.worker.wire.task_messages import lane_task

from .admission import Admission, is_from_queue, queue_of
from .envelopes import is_envelope, take_apart
from .prefetch import InFlight, keep_in_memory
from .remote_control import refuse_command, restrict
from .task_log import hide_addresses, log_one_line_per_task
from .transport import of_connections

logger = logging.getLogger(__name__)

T = TypeVar("T")

_LONGEST_LANE: Final = 2_000
"""Bytes of a lane's task that shares are kept of; it may be longer."""
_NOT_PERMITTED: Final = 3
"""How a worker ends that may not, or cannot, take from its queues."""
_INEQUIVALENT: Final = 406
"""What RabbitMQ answers who asks for a queue of another kind than the one it has."""
_ANSWER_SECONDS: Final = 0.005
_EVENTS_SECONDS: Final = 0.1
"""How long a task event may wait for others: each message of them costs as much as a hundred events more."""


class ValidatingConsumer(Consumer):  # type: ignore[misc]  # celery has no types
    """Celery's consumer, which outlives whatever lies in its queues."""

    class Blueprint(Consumer.Blueprint):  # type: ignore[misc]
        """Without 28 exchanges for delays, which it makes where there are quorum queues: no task of ours has one."""

        default_steps = [step for step in Consumer.Blueprint.default_steps if "delayed_delivery" not in step]  # noqa: RUF012

    def __init__(self, *arguments: Any, **options: Any) -> None:
        log_one_line_per_task()
        hide_addresses()
        self._lanes = LaneAdmission(lambda: int(self.pool.limit), lambda seconds, do: self.hub.call_later(seconds, do))
        self._has_lane_admission = False
        runtimes, lanes = options["app"].conf.acts_runtimes, self._lanes  # to look it up takes longest
        self._in_flight = InFlight(lambda: bool(runtimes.is_blocked) or lanes.is_closed)
        self._is_flush_due = self._is_turn_due = False
        self._thread = threading.get_ident()
        self._limits = limits_of(options["app"].conf.acts_settings)
        super().__init__(*arguments, **options)
        restrict(self.steps, self.app.conf.acts_settings)

    def connect(self) -> Any:
        """Connect to the broker."""
        self._is_flush_due = self._is_turn_due = False  # Celery has cleared its timers
        self._thread = threading.get_ident()
        connection = super().connect()
        if connection.transport.driver_type == "redis":
            keep_in_memory(connection.default_channel, self._in_flight)
            self._has_lane_admission = self.hub is not None  # RabbitMQ counts what stands aside as taken
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
            self.hub.call_later(_ANSWER_SECONDS, self._turn)
        return super().call_soon(p, *arguments, **named)

    def _turn(self) -> None:
        self._is_turn_due = False

    def on_send_event_buffered(self) -> None:
        """Called by Celery, in any thread, when a task event is to be published: those of a while go together."""
        if self.hub and not self._is_flush_due:
            self._is_flush_due = True
            self.hub.call_soon(self.hub.call_later, _EVENTS_SECONDS, self._flush_events)

    def _flush_events(self) -> None:
        self._is_flush_due = False
        super()._flush_events()

    def stop(self) -> None:
        """Called by Celery when the worker is to end: lanes that stand aside go back to their queue."""
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
        admission = Admission(self.app.conf.acts_settings)

        def tasks_of(message: Any) -> Iterable[Any]:
            outlive_channel(message)
            reason = admission.objection(message)
            if reason is not None:
                raise MalformedMessage(reason)
            return self._taken(message)

        def on_task_received(message: Any) -> None:
            for task in self._accepted(message, lambda: tasks_of(message)) or ():
                self._begin(task, partial(self._handled, task, partial(handle, task)))

        return on_task_received

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
        if is_from_queue(message):
            self._refuse(message, type(exc).__name__)
        else:
            refuse_command(type(exc).__name__)

    def _accepted(self, message: Any, work: Callable[[], T]) -> T | None:
        """Do something with a message; it is refused for what is wrong with it. Raises errors of the connection."""
        try:
            return work()
        except of_connections(*self.connection_errors, *self.channel_errors):
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
        except of_connections(*self.connection_errors, *self.channel_errors):
            raise
        except Exception as error:
            # Not its text, which may quote what the message holds.
            where = "".join(traceback.format_tb(error.__traceback__)).rstrip()
            logger.error("taking a task of %.200r fails: %s\n%s", queue_of(message), type(error).__name__, where)
            count_refusal("errors")
            message.reject_log_error(logger, self.connection_errors)

    def _taken(self, message: Any) -> Iterable[Any]:
        """The tasks of a message."""
        if not is_envelope(message):
            keep_once(message)
            return (message,)
        return take_apart(message, self._limits, max(1, getattr(message.channel.qos, "room", 1)))

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
        logger.error("a message of %.200r is refused: %s", queue_of(message), reason)
        count_refusal("messages")
        message.reject_log_error(logger, self.connection_errors)
        signals.task_rejected.send(sender=self, message=message, exc=None)


def lane_of(task: Any) -> tuple[str, str | None] | None:
    """The run and the lane that a task drives; None for any other task, and for what will be refused."""
    if task.headers["task"] != EXECUTE_INSTANCE:
        return None
    arguments = task.payload[0]
    argument = arguments[0] if arguments else None
    if not isinstance(argument, bytes) or len(argument) > _LONGEST_LANE:
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
