"""Notes about queues, for a reader that may count messages but not read them: `acts metrics` with its own Redis user.

A message holds what a call is given, so a process that only draws figures sees no more than a queue's length. The
worker that sweeps notes in the log how old the oldest message is, and how many tasks travel in one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from redis import Redis

from acts_celery.worker.wire.task_messages import SENT, TASKS

from .keys import queue_notes

_SAMPLE: Final = 10
_INTERVAL_SECONDS: Final = 5.0
_LATEST: Final = 10**12
"""No time in seconds is later."""
_MOST_TASKS: Final = 100
"""How many tasks are believed to be in one message."""


class QueuedMessage(NamedTuple):
    """What is read of a message that lies in a queue."""

    tag: str
    tasks: int
    sent: float | None

    @classmethod
    def read(cls, raw: bytes) -> QueuedMessage:
        """Who writes to the queue may write anything."""
        try:
            said = json.loads(raw)
            headers, tag = said["headers"], str(said["properties"]["delivery_tag"])
            tasks, sent = headers.get(TASKS, 1), headers.get(SENT)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return cls("", 1, None)
        is_number = isinstance(tasks, int) and not isinstance(tasks, bool) and 0 < tasks <= _MOST_TASKS
        is_time = isinstance(sent, int | float) and 0 <= sent <= _LATEST
        return cls(tag, tasks if is_number else 1, sent if is_time else None)


@dataclass(frozen=True, slots=True)
class QueueNote:
    """What was noted of one queue."""

    at: float
    """When, in seconds since 1970."""
    sent: float | None
    """When its oldest message was sent; None where there was none, or it does not say."""
    mean_tasks: float
    """How many tasks were in one of its oldest messages."""

    @classmethod
    def read(cls, field: bytes | None) -> Self | None:
        """The note of a field; None where there is none that can be read."""
        try:
            at, sent, mean = json.loads(field or b"null")
            return cls(float(at), float(sent) if sent is not None else None, float(mean))
        except (ValueError, TypeError, RecursionError):
            return None


class QueueNotes:
    """Notes what lies in queues, every few seconds. `broker` is where they lie, with names that begin with `prefix`."""

    def __init__(self, log: Redis, broker: Redis, key_prefix: str, prefix: str, names: Iterable[str]) -> None:
        self._log = log
        self._broker = broker
        self._key = queue_notes(key_prefix)
        self._keys = {name: f"{prefix}{name}" for name in names}
        self._next = 0.0

    def note(self) -> None:
        """Note it, if that was some seconds ago. Raises `RedisError`."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _INTERVAL_SECONDS
        with self._broker.pipeline(transaction=False) as pipeline:
            for key in self._keys.values():
                pipeline.lrange(key, -_SAMPLE, -1)
            ends: Any = pipeline.execute(raise_on_error=False)
        notes: dict[Any, Any] = {}
        for name, end in zip(self._keys, ends, strict=True):
            if isinstance(end, Exception):  # a queue that this user may not read, or a key that is none
                continue
            oldest = [QueuedMessage.read(raw) for raw in end]
            mean = sum(message.tasks for message in oldest) / len(oldest) if oldest else 1.0
            notes[name] = json.dumps([time.time(), oldest[-1].sent if oldest else None, mean])
        if notes:
            self._log.hset(self._key, mapping=notes)
