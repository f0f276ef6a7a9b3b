"""Making the Celery application from settings."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Final, Generic, TypeVar

from celery import Celery, Task, bootsteps
from celery.worker import WorkController

from ...broker_config import (
    DELIVER,
    EXECUTE_ACTIVITY,
    EXECUTE_BACKGROUND,
    EXECUTE_DELEGATE,
    EXECUTE_INSTANCE,
    PROBE,
    Settings,
    celery_configuration,
    queue,
)
from ...broker_config.addresses import scheme_of
from ...protocol import Limits
from ...protocol.engine.events import Failure
from ..broker import messages
from ..broker.attempts import Attempt, Result
from ..broker.consumer import CONSUMER, REQUEST, restrict_decoding
from ..broker.transport import EVENTS, BackendConnection, QueueConsumer
from ..errors import MalformedMessage, OtherFormat
from ..limits import MOST_NAMED, limits_of
from ..logs import note_task, set_up_logs
from ..process import RefusalsStep, count_refusal, metrics
from ..recovery.heartbeats import ReservedStep
from ..recovery.sweep import SweepStep
from ..registry.activities import Registry
from ..registry.loading import require_own_queues
from ..registry.request_definitions import doubts
from .pool import POOL, refuse_half_patched, refuse_old_libraries
from .rooms import agent, worker_steps
from .runtime import GarbageStep, HealthStep, Runtime, Runtimes, WorkerNameStep
from .scheduler import require_message_format, task_of

# Warns, when a worker starts, of what the operator says of tools and may not mean so (`ACTS_TRUST`).

logger = logging.getLogger(__name__)


class OperatorStep(bootsteps.Step):  # type: ignore[misc]  # celery has no types
    """Takes part in the making of a worker. Raises `ActivitiesError`: without the file it would take tasks that it does
    not know the labels of.
    """

    def __init__(self, parent: WorkController, **options: object) -> None:
        super().__init__(parent, **options)
        runtimes = parent.app.conf.acts_runtimes
        for doubt in doubts(parent.app.conf.acts_settings, runtimes.registry):
            logger.warning("%s", doubt)


# The Celery tasks: what each queue's workers do with a message. Each takes one argument, msgpack bytes.
#
# A message that is none of ours is refused with one line in the worker's log, which shows nothing of what is in it.


T = TypeVar("T")
Read = Callable[[object, Limits], T]
Doing = Callable[[Runtime, T], Coroutine[Any, Any, None]]
RemoteCall = TypeVar("RemoteCall", messages.ActivityCall, messages.DelegateCall)
Carrying = Callable[[RemoteCall], Coroutine[Any, Any, Result]]


class TaskFailed(Exception):
    """Calls of a task have failed. What that means for the run is settled when it is raised: it only shows.

    Operators see this text: it names the calls and their errors' types, and nothing that the calls work on.
    """


def register_tasks(app: Celery, runtimes: Runtimes, limits: Limits) -> None:
    """Register every task of ours with an application."""
    app.conf.acts_coroutines = {}
    for kind in _KINDS:
        _register(app, kind, runtimes, limits)


@dataclass(frozen=True)
class _Kind(Generic[T]):
    """A kind of task: a coroutine function on the loop, which is given what `read` makes of the message.

    Where it is to be done `once`, a message that the broker delivers again is acknowledged and that is all. The sweep
    sees to calls that were lost, and it alone: else one would run again long after it ended, or beside itself when a
    connection breaks. The others do no harm when they come twice.
    """

    name: str
    read: Read[T]
    doing: Doing[T]
    once: bool = True
    ignores_result: bool = False

    def message(self, arguments: Sequence[object], named: Mapping[str, object], limits: Limits) -> T | None:
        """Read the message in a task's arguments; returns None for one that cannot be read, which is refused."""
        try:
            if len(arguments) != 1 or named:
                raise MalformedMessage("it should have one argument")
            return self.read(arguments[0], limits)
        except MalformedMessage as error:
            logger.error("%s: a message is refused: %s", self.name, error)
            count_refusal("messages")
            return None


def _register(app: Celery, kind: _Kind[Any], runtimes: Runtimes, limits: Limits) -> None:
    async def begin(request: Mapping[str, Any]) -> None:
        is_redelivered = bool((request["delivery_info"] or {}).get("redelivered"))
        if kind.once and is_redelivered:
            return
        # A call does not read its run: what it was sent need not be kept for as long as it takes.
        kept = () if kind.once else tuple(request["args"])
        try:
            require_message_format(request)
            await carry_out(request, is_redelivered)
        except OtherFormat as error:
            task = task_of(kind.name, request, kept or request["args"])
            if task is not None:
                runtimes.current().returns.give_back(replace(task, is_forgotten=kind.ignores_result), error)

    async def carry_out(request: Mapping[str, Any], is_redelivered: bool) -> None:
        message = kind.message(request["args"], request["kwargs"], limits)
        if isinstance(request["args"], list):
            request["args"].clear()  # Celery keeps them until the task has ended, and what they say is read
        if message is None:
            return
        if not isinstance(message, messages.Probe):
            note_task(_subject_of(message))
        _note_wait(request, message)
        if (
            isinstance(message, messages.LaneCall) and is_redelivered
        ):  # the worker that took it before did not get to its end
            message = message._replace(was_lost=True, is_redelivered=True)
        await kind.doing(runtimes.current(), message)

    @wraps(kind.doing)
    def run(celery_task: Task, *arguments: object, **named: object) -> None:
        asked = celery_task.request
        named_headers = (
            (name, asked.get(name)) for name in (messages.SENT, messages.RETURNED, messages.MESSAGE_FORMAT, "argsrepr")
        )
        headers = {name: value for name, value in named_headers if value is not None}
        request = {"args": arguments, "kwargs": named, "delivery_info": asked.delivery_info, **headers}
        runtimes.current().run(begin(request))

    options = {"ignore_result": True} if kind.ignores_result else {}
    app.task(name=kind.name, bind=True, shared=False, throws=(TaskFailed,), **options)(run)
    app.conf.acts_coroutines[kind.name] = begin


def _subject_of(
    message: messages.LaneCall | messages.Delivery | messages.ActivityCall | messages.DelegateCall,
) -> Attempt | tuple[str, str | None]:
    """The call or lane of a task, for its lines in the log."""
    match message:
        case messages.LaneCall(run, instance):
            return run, instance
        case messages.Delivery(attempt):
            return attempt.id.run, attempt.id.instance
    return message.attempt


def _note_wait(request: Mapping[str, Any], message: object) -> None:
    """Note how long a task has lain in its queue, where its sender says when it was sent."""
    sent, queue = request.get(messages.SENT), (request["delivery_info"] or {}).get("routing_key")
    if isinstance(sent, int | float) and isinstance(queue, str):
        code = message.activity if isinstance(message, messages.ActivityCall) else ""
        code = message.delegate or "model" if isinstance(message, messages.DelegateCall) else code
        metrics().waited(queue, code, max(0.0, time.time() - sent))


async def execute_instance(runtime: Runtime, lane: messages.LaneCall) -> None:
    """Run the calls of one lane that are ready."""
    if failed := await runtime.drive(lane):
        raise TaskFailed(", ".join(failed[:MOST_NAMED]) + (", …" if len(failed) > MOST_NAMED else ""))


async def probe(runtime: Runtime, probe: messages.Probe) -> None:
    """Tell that what was published to this queue before that time was taken."""
    await runtime.heartbeat.came_out(probe)


async def deliver(runtime: Runtime, delivery: messages.Delivery) -> None:
    """Bring the result of a remote call back to its lane, and carry on there."""
    await runtime.take_result(delivery)


async def execute_delegate(runtime: Runtime, message: messages.DelegateCall) -> None:
    """Run one delegate on its snapshot of the context."""
    carry = _carry_out if message.awaited else _try
    await carry(runtime, message, runtime.delegate)


async def execute_activity(runtime: Runtime, message: messages.ActivityCall) -> None:
    """Run one activity that has a queue of its own."""
    await _carry_out(runtime, message, runtime.remote.activity)


async def execute_background(runtime: Runtime, message: messages.ActivityCall) -> None:
    """Run one fire-and-forget call; nothing is stored, nothing waits for it."""
    await _try(runtime, message, runtime.remote.activity)


_KINDS: Final[tuple[_Kind[Any], ...]] = (
    _Kind(EXECUTE_INSTANCE, messages.unpack_lane_call, execute_instance, once=False),
    _Kind(PROBE, messages.unpack_probe, probe, ignores_result=True),
    _Kind(DELIVER, messages.unpack_delivery, deliver, once=False),
    _Kind(EXECUTE_DELEGATE, messages.unpack_delegate_call, execute_delegate),
    _Kind(EXECUTE_ACTIVITY, messages.unpack_activity_call, execute_activity),
    _Kind(EXECUTE_BACKGROUND, messages.unpack_activity_call, execute_background, ignores_result=True),
)


async def _carry_out(runtime: Runtime, message: RemoteCall, doing: Carrying[RemoteCall]) -> None:
    """Run a remote call, and send its result back."""
    attempt = message.attempt
    if _is_in_doubt(runtime, attempt):
        return
    async with runtime.heartbeat.at_work(attempt):
        begun = time.monotonic()
        result = await runtime.carry_out(attempt, doing(message))
        if result is not None:
            took_ms = int((time.monotonic() - begun) * 1000)
            ended = replace(
                attempt, progress=b"", took_ms=took_ms, worker=runtime.worker, version=runtime.remote.version(message)
            )
            await runtime.deliver(messages.Delivery(ended, result))
    if isinstance(result, Failure):
        raise TaskFailed(f"{attempt.id}: {result.type}")


async def _try(runtime: Runtime, message: RemoteCall, doing: Carrying[RemoteCall]) -> None:
    """Run a fire-and-forget call once, and report its result; the sweep decides whether it runs again."""
    attempt = message.attempt
    if _is_in_doubt(runtime, attempt):
        return
    async with runtime.heartbeat.at_work(attempt):
        result = await doing(message)
        await runtime.heartbeat.complete(attempt, result)
    if isinstance(result, Failure):
        raise TaskFailed(f"{attempt.id}: {result.type}")


def _is_in_doubt(runtime: Runtime, attempt: Attempt) -> bool:
    """Whether a remote call may have been sent again while this process had its message and nothing ran here: then it
    is not begun. The sweep sends it, once more or for the first time.
    """
    if is_in_doubt := runtime.sidecar.has_just_woken:
        logger.warning("%s is left to the sweep: this process did not run while it had its message", attempt.id)
    return is_in_doubt


def make_application(settings: Settings, registry: Registry, *, verifies_models: bool = True) -> Celery:
    """A worker's application: configured, with our tasks and the sweep. Raises `broker_config.NotConfigured`."""
    refuse_old_libraries()
    refuse_half_patched()
    require_own_queues(registry, settings)
    if verifies_models:  # one that cannot be had is reported when the worker starts, not in every task
        agent().verify_models(settings, registry)
    restrict_decoding(limits_of(settings))
    app = make_client_application(settings)
    app.conf.acts_settings = settings
    app.conf.worker_consumer = CONSUMER
    app.amqp.Consumer = QueueConsumer
    app.Task.Request = REQUEST
    set_up_logs(app, settings)
    app.conf.worker_pool = POOL
    app.steps["worker"].update(
        (WorkerNameStep, ConnectionsStep, OperatorStep, GarbageStep, SweepStep, ReservedStep, RefusalsStep)
    )
    app.steps["worker"].update(worker_steps())
    app.steps["consumer"].add(HealthStep)
    # Without -Q a worker serves these too.
    app.conf.task_queues = (*app.conf.task_queues, *(queue(name, settings) for name in registry.queues()))
    app.conf.acts_runtimes = Runtimes(app, settings, registry)
    register_tasks(app, app.conf.acts_runtimes, limits_of(settings))
    return app


class ConnectionsStep(bootsteps.Step):  # type: ignore[misc]  # celery has no types
    """Bounds the connections on which a worker process publishes. Other programs that use the application keep Celery's
    own limit: Flower holds one for each of its eight questions to workers and needs another one to send them.
    """

    def __init__(self, worker: Any, **options: Any) -> None:
        super().__init__(worker, **options)
        worker.app.conf.broker_pool_limit = worker.app.conf.acts_settings.broker_connections


_ANSWERED_WITHIN: Final = {"read_timeout": 5, "write_timeout": 5}
"""A RabbitMQ that is short of memory or disk takes nothing and says nothing: seconds until that is an error."""


class _Application(Celery):  # type: ignore[misc]  # celery has no types
    """Celery's application, with the servers of the settings. CELERY_BROKER_URL, which Celery makes of BROKER_URL, and
    CELERY_RESULT_BACKEND belong to other applications.
    """

    def connection_for_read(self, url: str | None = None, **options: Any) -> Any:
        return super().connection_for_read(url or self.conf["broker_url"], **options)

    def connection_for_write(self, url: str | None = None, **options: Any) -> Any:
        return super().connection_for_write(url or self.conf["broker_url"], **options)

    connection = connection_for_write


def make_client_application(settings: Settings) -> Celery:
    """An application that only publishes; nothing of its process is changed."""
    app = _Application("acts", set_as_current=False, events=EVENTS)
    app.conf.update(celery_configuration(settings))
    app.backend_cls = app.conf["result_backend"] or "disabled"
    if scheme_of(settings.require_broker()).startswith("amqp"):
        app.conf.broker_transport_options = {**app.conf.broker_transport_options, **_ANSWERED_WITHIN}
    app.amqp.Connection = BackendConnection
    return app
