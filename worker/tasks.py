"""The Celery tasks: what each queue's workers do with a message. Each takes one argument, msgpack bytes.

A message that is none of ours is refused with one line in the worker's log; nobody hears of what is in it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from celery import Celery

from broker_config import (
    DELIVER,
    EXECUTE_ACTIVITY,
    EXECUTE_BACKGROUND,
    EXECUTE_DELEGATE,
    EXECUTE_INSTANCE,
)
from protocol import Limits
from protocol.execution import Failure, Success

from .errors import MalformedMessage
from .messages import (
    ActivityCall,
    CallId,
    DelegateCall,
    Delivery,
    delivery_task,
    unpack_activity_call,
    unpack_delegate_call,
    unpack_delivery,
    unpack_lane_id,
)
from .runtime import Runtime, Runtimes

logger = logging.getLogger(__name__)

T = TypeVar("T")
Read = Callable[[object, Limits], T]
Work = Callable[[Runtime, T], None]


class BackgroundFailed(Exception):
    """A fire-and-forget call failed after its retries. The run is not affected (SPEC R5.3).

    Operators see this text: it names the call and the error's type, and nothing that the call works on.
    """


def register_tasks(app: Celery, runtimes: Runtimes, limits: Limits) -> None:
    """Register every task of ours with an application."""

    def task(name: str, read: Read[T], **options: Any) -> Callable[[Work[T]], None]:
        """Make a task of a function: it is given what `read` makes of the message, if that can be read."""

        def register(work: Work[T]) -> None:
            @wraps(work)
            def run(*arguments: object, **named: object) -> None:
                try:
                    if len(arguments) != 1 or named:
                        raise MalformedMessage("it should have one argument")
                    message = read(arguments[0], limits)
                except MalformedMessage as error:
                    logger.error("%s: a message is refused: %s", name, error)
                else:
                    work(runtimes.current(), message)

            app.task(name=name, **options)(run)

        return register

    @task(EXECUTE_INSTANCE, unpack_lane_id)
    def execute_instance(runtime: Runtime, lane: tuple[str, str | None]) -> None:
        """Run the calls of one lane that are ready."""
        runtime.run(runtime.driver.drive(*lane))

    @task(DELIVER, unpack_delivery)
    def deliver(runtime: Runtime, delivery: Delivery) -> None:
        """Bring the result of a remote call back to its lane, and carry on there."""
        runtime.run(runtime.driver.deliver(delivery))

    @task(EXECUTE_DELEGATE, unpack_delegate_call)
    def execute_delegate(runtime: Runtime, message: DelegateCall) -> None:
        """Run one delegate on its snapshot of the context."""
        if not message.awaited:
            _tell_failure(message.id, runtime.run(runtime.remote.delegate(message)))
        elif (result := runtime.carry_out(message.id.run, runtime.remote.delegate(message))) is not None:
            runtime.publisher.deliver(delivery_task(Delivery(message.id, result), runtime.settings.queue_instances))

    @task(EXECUTE_ACTIVITY, unpack_activity_call)
    def execute_activity(runtime: Runtime, message: ActivityCall) -> None:
        """Run one activity that has a queue of its own."""
        result = runtime.carry_out(message.id.run, runtime.remote.activity(message))
        if result is not None:
            runtime.publisher.deliver(delivery_task(Delivery(message.id, result), runtime.settings.queue_instances))

    @task(EXECUTE_BACKGROUND, unpack_activity_call, ignore_result=True)
    def execute_background(runtime: Runtime, message: ActivityCall) -> None:
        """Run one fire-and-forget call; nothing is stored, nobody waits."""
        _tell_failure(message.id, runtime.run(runtime.remote.activity(message)))


def _tell_failure(id_: CallId, result: Success | Failure) -> None:
    if isinstance(result, Failure):
        raise BackgroundFailed(f"{id_}: {result.type}")
