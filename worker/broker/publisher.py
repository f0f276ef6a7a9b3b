"""Publishing tasks: in batches, one pipeline each (FACTS "Messages")."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from celery import Celery
from kombu.exceptions import ChannelError

from acts_celery.worker.batches import batches
from acts_celery.worker.errors import QueueRefused
from acts_celery.worker.wire.task_messages import MESSAGE_FORMAT, RETURNED, SENT, TASKS, TaskMessage

from .cancellation import COMMAND
from .envelopes import enveloped, sent_events
from .failures import broker_failures, retry_while_unavailable
from .task_events import shown_name

BATCH: Final = 500


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
        for batch in batches(tasks, BATCH):
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
        """How many tasks lie in a queue. Raises `InfrastructureError`."""
        with broker_failures("the broker does not answer"), self._app.connection_or_acquire() as connection:
            try:
                return int(connection.default_channel.queue_declare(queue, passive=True).message_count)
            except ChannelError:
                return 0  # there is no such queue yet

    def tell_cancelled(self, key: str) -> None:
        """Tell every worker that the run with that key was cancelled. Raises `InfrastructureError`."""
        with broker_failures("the run is over, but workers could not be asked to stop"):
            self._app.control.broadcast(COMMAND, arguments={"key": key})

    def deliver(self, tasks: Sequence[TaskMessage]) -> None:
        """Publish tasks that must not get lost: goes on trying while the broker is away or full, for some minutes.

        Raises `InfrastructureError`.
        """
        retry_while_unavailable(lambda: self.publish(tasks))

    def _publish(self, batch: list[TaskMessage]) -> None:
        with broker_failures("the broker does not take tasks"):
            self._put(batch)

    def _put(self, batch: list[TaskMessage]) -> None:
        with (
            self._app.producer_or_acquire() as producer,
            producer.batch(BATCH),
            producer.connection._reraise_as_library_errors(),
        ):
            for task in enveloped(batch) if producer.connection.transport.driver_type == "redis" else batch:
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
            message.sent_event["name"] = shown_name(task.task, task.shown)
        amqp.send_task_message(producer, task.task, message, queue=task.queue, retry=False)
        if is_told and task.envelope is not None:
            amqp._event_dispatcher.publish_all("task-sent", sent_events(id_, task, task.envelope), producer)
