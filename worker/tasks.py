"""The Celery tasks: what each queue's workers do with a message. Each takes one argument, msgpack bytes."""

from __future__ import annotations

from celery import Celery

from broker_config import (
    DELIVER,
    EXECUTE_ACTIVITY,
    EXECUTE_BACKGROUND,
    EXECUTE_DELEGATE,
    EXECUTE_INSTANCE,
)
from protocol.execution import Failure

from .messages import (
    Delivery,
    delivery_task,
    unpack_activity_call,
    unpack_delegate_call,
    unpack_delivery,
    unpack_lane_id,
)
from .runtime import Runtimes


class BackgroundFailed(Exception):
    """A fire-and-forget call failed after its retries. The run is not affected (SPEC R5.3).

    Operators see this text: it names the call and the error's type, and nothing that the call works on.
    """


def register_tasks(app: Celery, runtimes: Runtimes) -> None:
    """Register every task of ours with an application."""

    @app.task(name=EXECUTE_INSTANCE)  # type: ignore[untyped-decorator]  # celery has no types
    def execute_instance(body: bytes) -> None:
        """Run the calls of one lane that are ready."""
        runtime = runtimes.current()
        runtime.run(runtime.driver.drive(*unpack_lane_id(body)))

    @app.task(name=DELIVER)  # type: ignore[untyped-decorator]  # celery has no types
    def deliver(body: bytes) -> None:
        """Bring the result of a remote call back to its lane, and carry on there."""
        runtime = runtimes.current()
        runtime.run(runtime.driver.deliver(unpack_delivery(body)))

    @app.task(name=EXECUTE_DELEGATE)  # type: ignore[untyped-decorator]  # celery has no types
    def execute_delegate(body: bytes) -> None:
        """Run one delegate on its snapshot of the context."""
        runtime = runtimes.current()
        message = unpack_delegate_call(body)
        result = runtime.run(runtime.remote.delegate(message))
        if message.awaited:
            runtime.publisher.deliver(delivery_task(Delivery(message.id, result), runtime.settings.queue_instances))
        elif isinstance(result, Failure):
            raise BackgroundFailed(f"{message.id}: {result.type}")

    @app.task(name=EXECUTE_ACTIVITY)  # type: ignore[untyped-decorator]  # celery has no types
    def execute_activity(body: bytes) -> None:
        """Run one activity that has a queue of its own."""
        runtime = runtimes.current()
        message = unpack_activity_call(body)
        result = runtime.run(runtime.remote.activity(message))
        runtime.publisher.deliver(delivery_task(Delivery(message.id, result), runtime.settings.queue_instances))

    @app.task(name=EXECUTE_BACKGROUND, ignore_result=True)  # type: ignore[untyped-decorator]  # celery has no types
    def execute_background(body: bytes) -> None:
        """Run one fire-and-forget call; nothing is stored, nobody waits."""
        runtime = runtimes.current()
        message = unpack_activity_call(body)
        result = runtime.run(runtime.remote.activity(message))
        if isinstance(result, Failure):
            raise BackgroundFailed(f"{message.id}: {result.type}")
