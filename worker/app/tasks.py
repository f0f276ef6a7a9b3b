"""The Celery tasks: what each queue's workers do with a message. Each takes one argument, msgpack bytes.

A message that is none of ours is refused with one line in the worker's log, which shows nothing of what is in it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar

from celery import Celery, Task

from broker_config import (
    DELIVER,
    EXECUTE_ACTIVITY,
    EXECUTE_BACKGROUND,
    EXECUTE_DELEGATE,
    EXECUTE_INSTANCE,
    PROBE,
)
from protocol import Limits
from protocol.engine.execution import Failure
from worker.errors import MalformedMessage
from worker.execution.scheduler import Scheduler
from worker.messaging.attempts import Result
from worker.messaging.messages import (
    ActivityCall,
    DelegateCall,
    Delivery,
    Probe,
    delivery_task,
    unpack_activity_call,
    unpack_delegate_call,
    unpack_delivery,
    unpack_lane_id,
    unpack_probe,
)
from worker.messaging.refusals import count_refusal

from .runtime import Runtime, Runtimes

logger = logging.getLogger(__name__)

T = TypeVar("T")
Read = Callable[[object, Limits], T]
Work = Callable[[Runtime, T], None]
Doing = Callable[[Scheduler, T], Coroutine[Any, Any, None]]
RemoteCall = TypeVar("RemoteCall", ActivityCall, DelegateCall)
Carrying = Callable[[RemoteCall], Coroutine[Any, Any, Result]]


class BackgroundFailed(Exception):
    """A fire-and-forget call failed after its retries. The run is not affected (SPEC R5.3).

    Operators see this text: it names the call and the error's type, and nothing that the call works on.
    """


def register_tasks(app: Celery, runtimes: Runtimes, limits: Limits) -> None:
    """Register every task of ours with an application."""

    def reader(name: str, read: Read[T]) -> Callable[[Sequence[object], Mapping[str, object]], T | None]:
        """What makes a task's message of its arguments; one that cannot be read is refused, and there is none."""

        def message_of(arguments: Sequence[object], named: Mapping[str, object]) -> T | None:
            try:
                if len(arguments) != 1 or named:
                    raise MalformedMessage("it should have one argument")
                return read(arguments[0], limits)
            except MalformedMessage as error:
                logger.error("%s: a message is refused: %s", name, error)
                count_refusal("messages")
                return None

        return message_of

    def task(name: str, read: Read[T], **options: Any) -> Callable[[Work[T]], None]:
        """Make a task of a function that is given what `read` makes of the message, if that can be read.

        A message that the broker delivers again is acknowledged and that is all. The sweep sees to calls that were
        lost, and it alone: else one would run again long after it ended, or beside itself when a connection breaks.
        """
        message_of = reader(name, read)

        def register(work: Work[T]) -> None:
            @wraps(work)
            def run(celery_task: Task, *arguments: object, **named: object) -> None:
                if (celery_task.request.delivery_info or {}).get("redelivered"):
                    return
                if (message := message_of(arguments, named)) is not None:
                    work(runtimes.current(), message)

            app.task(name=name, bind=True, shared=False, **options)(run)

        return register

    def coroutine(name: str, read: Read[T], **options: Any) -> Callable[[Doing[T]], None]:
        """Make a task of a coroutine function on the loop. It may come twice."""
        message_of = reader(name, read)

        def register(doing: Doing[T]) -> None:
            async def begin(request: Mapping[str, Any]) -> None:
                if (message := message_of(request["args"], request["kwargs"])) is not None:
                    await doing(runtimes.current().scheduler, message)

            @wraps(doing)
            def run(*arguments: object, **named: object) -> None:
                runtimes.current().run(begin({"args": arguments, "kwargs": named}))

            app.task(name=name, shared=False, **options)(run)
            app.conf.acts_coroutines[name] = begin

        return register

    app.conf.acts_coroutines = {}

    @coroutine(EXECUTE_INSTANCE, unpack_lane_id)
    async def execute_instance(scheduler: Scheduler, lane: tuple[str, str | None]) -> None:
        """Run the calls of one lane that are ready."""
        await scheduler.drive(*lane)

    @task(PROBE, unpack_probe, ignore_result=True)
    def probe(runtime: Runtime, probe: Probe) -> None:
        """Tell that what was published to this queue before that time was taken."""
        runtime.reporter.came_out(probe)

    @coroutine(DELIVER, unpack_delivery)
    async def deliver(scheduler: Scheduler, delivery: Delivery) -> None:
        """Bring the result of a remote call back to its lane, and carry on there."""
        await scheduler.deliver(delivery)

    @task(EXECUTE_DELEGATE, unpack_delegate_call)
    def execute_delegate(runtime: Runtime, message: DelegateCall) -> None:
        """Run one delegate on its snapshot of the context."""
        if message.awaited:
            _carry_out(runtime, message, runtime.remote.delegate)
        else:
            _try(runtime, message, runtime.remote.delegate)

    @task(EXECUTE_ACTIVITY, unpack_activity_call)
    def execute_activity(runtime: Runtime, message: ActivityCall) -> None:
        """Run one activity that has a queue of its own."""
        _carry_out(runtime, message, runtime.remote.activity)

    @task(EXECUTE_BACKGROUND, unpack_activity_call, ignore_result=True)
    def execute_background(runtime: Runtime, message: ActivityCall) -> None:
        """Run one fire-and-forget call; nothing is stored, nothing waits for it."""
        _try(runtime, message, runtime.remote.activity)


def _carry_out(runtime: Runtime, message: RemoteCall, doing: Carrying[RemoteCall]) -> None:
    """Carry out a remote call, and bring back what comes of it."""
    attempt = message.attempt
    with runtime.reporter.at_work(attempt):
        result = runtime.carry_out(attempt, doing(message))
        if result is not None:
            runtime.publisher.deliver(delivery_task(Delivery(attempt, result), runtime.settings.queue_instances))


def _try(runtime: Runtime, message: RemoteCall, doing: Carrying[RemoteCall]) -> None:
    """Carry out a fire-and-forget call once, and tell what came of it; the sweep sees to whether there is more."""
    attempt = message.attempt
    with runtime.reporter.at_work(attempt):
        result = runtime.run(doing(message))
        runtime.reporter.close(attempt, result)
    if isinstance(result, Failure):
        raise BackgroundFailed(f"{attempt.id}: {result.type}")
