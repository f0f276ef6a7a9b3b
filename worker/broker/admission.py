"""Which messages a worker takes, by the queue that they were really taken from (docs/security.md).

A message says itself what it is: its task, its routing key, what is to follow it. A writer to one queue would
so choose what the worker there does, and with what rights. Here the queue decides, and it is known from the broker:
which tasks belong there, and that a task is carried out and that is all. Nothing of ours is followed by another task,
belongs to a group, waits or expires: a message that asks Celery for such a thing was not written by us.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from kombu import Consumer

from acts_celery.broker_config import (
    DELIVER,
    EXECUTE_ACTIVITY,
    EXECUTE_BACKGROUND,
    EXECUTE_DELEGATE,
    EXECUTE_INSTANCE,
    PROBE,
    SEVERAL,
    Settings,
)

_ENVELOPE_BYTES: Final = 1024 * 1024
"""What Celery may add to a message of ours."""
_LONGEST_ID: Final = 200
_TAKEN_FROM: Final = "taken_from"
_NOT_OWN: Final = ("acts.", "celery.")
"""How the names of our tasks and of Celery's begin; an operator's own tasks have other names."""
_NAMED: Final = ("task", "id")
"""The headers by which every task is known."""
_EMPTY: Final = ("eta", "expires", "group", "group_index", "chord", "retries", "shadow", "stamped_headers", "stamps")
"""What Celery would act on, or show, in the headers of a message."""
UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""How kombu names processes that await answers, and their questions."""


class QueueConsumer(Consumer):  # type: ignore[misc]  # kombu has no types
    """kombu's consumer, which notes on each message the queue that it was taken from (see `queue_of`)."""

    def _basic_consume(
        self, queue: Any, consumer_tag: str | None = None, no_ack: Any = None, nowait: bool = True
    ) -> str:
        tag: str | None = self._active_tags.get(queue.name)
        if tag is None:
            no_ack = queue.no_ack if no_ack is None else no_ack
            tag = str(self._add_tag(queue, consumer_tag))
            self._active_queue_no_ack[queue.name] = no_ack
            queue.consume(tag, partial(self._receive_from, queue.name), no_ack=no_ack, nowait=nowait)
        return tag

    def _receive_from(self, queue: str, message: Any) -> None:
        message.delivery_info[_TAKEN_FROM] = queue  # what kombu makes a message of ours out of keeps this
        self._receive_callback(message)


def is_from_queue(message: Any) -> bool:
    """Whether a message was taken from a queue of tasks; it is one of remote control otherwise."""
    return _TAKEN_FROM in message.delivery_info


def queue_of(message: Any) -> str:
    """The queue that a message was taken from; what else `delivery_info` says of it may be the sender's word."""
    return str(message.delivery_info[_TAKEN_FROM])


class Admission:
    """What the queues of a worker admit."""

    def __init__(self, settings: Settings) -> None:
        self._most_bytes = int(settings.limit_call_bytes) + 2 * int(settings.limit_message_bytes) + _ENVELOPE_BYTES
        self._tasks = defaultdict[str, set[str]](set)
        self._tasks[settings.queue_instances] |= {EXECUTE_INSTANCE, DELIVER, PROBE}
        self._tasks[settings.queue_delegates] |= {EXECUTE_DELEGATE, PROBE}
        self._tasks[settings.queue_background] |= {EXECUTE_BACKGROUND, EXECUTE_DELEGATE, PROBE}

    def objection(self, message: Any) -> str | None:
        """What speaks against a message, as far as that can be seen without running it."""
        if len(message.body) > self._most_bytes:
            return f"{len(message.body)} bytes, where {self._most_bytes} are allowed"
        headers = message.headers
        if not isinstance(headers, dict) or not all(isinstance(headers.get(key), str) for key in _NAMED):
            return "it is no task"
        if len(headers["id"]) > _LONGEST_ID or not headers["id"].isprintable():
            return "its id is too long, or no line of text"
        if not self._belongs(headers["task"].removesuffix(SEVERAL), queue_of(message)):
            return f"the task {headers['task']!r:.200} does not belong there"
        if (extra := _extra(headers, message.properties)) is not None:
            return f"it has {extra!r}, which no task of ours has"
        match message.payload:
            case [[*_], dict(named), dict() | None as embedded]:
                return "it asks for more than its task" if named or any((embedded or {}).values()) else None
        return "its body is not that of a task"

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
