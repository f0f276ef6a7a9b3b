"""What lies in the queues now, in tasks: several travel in one message, and its headers say how many.

In RabbitMQ each task travels alone, so the broker's own count is theirs. In Redis a queue is a list, to the left of
which messages are put, and from the right of which they are taken. A reading looks at those that came since the last
one, and at the right end, where workers put back the rest of an envelope that they had no room for. So it costs what
has come, whatever lies there; a queue that is long when it is read for the first time is read in several turns.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from celery import Celery
from redis import Redis
from redis.exceptions import NoPermissionError

from acts_celery.worker.broker.failures import broker_failures
from acts_celery.worker.storage.keys import queue_notes
from acts_celery.worker.storage.queue_notes import QueuedMessage, QueueNote

_SECONDS: Final = 2.0
"""How long a reading may take; the next one goes on."""
_BYTES_AT_ONCE: Final = 2 * 2**20
_MOST_AT_ONCE: Final = 500
_END: Final = 50
"""How many messages at the right end are looked at each time."""
_FRESH_SECONDS: Final = 30.0
"""A note that is older says nothing of now."""


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """One queue."""

    tasks: int
    oldest_seconds: float | None
    """How long its oldest message lies there, 0 where there is none; None where it is not known, in RabbitMQ."""


class RedisQueue:
    """A queue in Redis, by what was read of it. All of it raises `RedisError`."""

    def __init__(self, redis: Redis, key: str) -> None:
        self._redis = redis
        self._key = key
        self._known: deque[QueuedMessage] = deque()
        """From the left end without a gap."""
        self._mean_bytes = float(_BYTES_AT_ONCE)  # so that the first reading is of one message

    def read(self, until: float) -> QueueFigures:
        """As it is now. A message that there was no time to read counts as one task."""
        length, end = self._look()
        while len(self._known) < length and time.monotonic() < until and self._read_older():
            length, end = self._look()
        if len(self._known) == length:
            for message in reversed(end):
                self._known[-1] = message
                self._known.rotate()
            self._known.rotate(-len(end))
        oldest = end[-1].sent if end else None
        waited = max(0.0, time.time() - oldest) if oldest is not None else 0.0
        unread = length - len(self._known)
        return QueueFigures(sum(message.tasks for message in self._known) + unread, waited)

    def _look(self) -> tuple[int, list[QueuedMessage]]:
        """The length of the queue and its right end at one moment; what was new at its left end is known now."""
        size = self._page_size() if not self._known else min(_END, self._page_size())
        while True:
            with self._redis.pipeline(transaction=True) as pipeline:
                pipeline.llen(self._key)
                pipeline.lrange(self._key, 0, size - 1)
                pipeline.lrange(self._key, -min(_END, size), -1)
                length, page, end = pipeline.execute()
            messages = self._read(page)
            tags = [message.tag for message in messages]
            if self._known and self._known[0].tag in tags:
                self._known.extendleft(reversed(messages[: tags.index(self._known[0].tag)]))
                break
            if not self._known or len(page) < size or size >= self._page_size():
                self._known = deque(messages)  # what was known has been taken, or there is a gap before it
                break
            size = min(4 * size, self._page_size())
        while len(self._known) > length:
            self._known.pop()
        return length, self._read(end)

    def _read_older(self) -> bool:
        """Read on to the right of what is known; says whether there was anything."""
        size = self._page_size()
        tags = {message.tag for message in islice(reversed(self._known), size)}
        page = self._read(self._redis.lrange(self._key, len(self._known), len(self._known) + size - 1))
        older = [message for message in page if message.tag not in tags]  # others have come at the left meanwhile
        self._known.extend(older)
        return bool(older)

    def _page_size(self) -> int:
        return max(1, min(_MOST_AT_ONCE, int(_BYTES_AT_ONCE / self._mean_bytes)))

    def _read(self, found: Any) -> list[QueuedMessage]:
        if found:
            self._mean_bytes = max(1.0, sum(map(len, found)) / len(found))
        return [QueuedMessage.read(raw) for raw in found]


class UnreadQueue:
    """A queue in Redis whose messages are not to be read. All of it raises `RedisError`."""

    def __init__(self, redis: Redis, key: str, log: Redis, notes: str, name: str) -> None:
        self._redis = redis
        self._key = key
        self._log = log
        self._notes = notes
        self._name = name
        self._filled_since: float | None = None

    def read(self) -> QueueFigures:
        """As it is now, about: as many tasks to a message as in those looked at; as old as a worker has said or, where
        none has for a while, as long as messages have been seen there.
        """
        length: Any = self._redis.llen(self._key)
        field: Any = self._log.hget(self._notes, self._name)
        now, note = time.time(), QueueNote.read(field)
        if not length:
            self._filled_since = None
            return QueueFigures(0, 0.0)
        self._filled_since = now if self._filled_since is None else self._filled_since
        if note is None or now - note.at > _FRESH_SECONDS:
            return QueueFigures(length, now - self._filled_since)
        return QueueFigures(round(length * max(1.0, note.mean_tasks)), max(0.0, now - (note.sent or note.at)))


class QueueReader:
    """Reads the queues of these names; `redis` is the broker where it is one, whose keys begin with `prefix`. In the
    `log` is what workers note of queues that may only be counted.
    """

    def __init__(
        self,
        app: Celery,
        redis: Redis | None,
        prefix: str,
        names: Iterable[str],
        *,
        log: Redis | None = None,
        key_prefix: str = "acts",
    ) -> None:
        self._app = app
        self._names = tuple(names)
        self._queues: dict[str, RedisQueue] = {}
        self._unread: dict[str, UnreadQueue] = {}
        for name in self._names:
            if redis is None:
                break
            key = f"{prefix}{name}"
            self._queues[name] = RedisQueue(redis, key)
            self._unread[name] = UnreadQueue(redis, key, log or redis, queue_notes(key_prefix), name)
        self._is_refused = False

    def read(self) -> Mapping[str, QueueFigures]:
        """Each queue. Raises `RedisError` and `InfrastructureError`."""
        if self._queues and not self._is_refused:
            until = time.monotonic() + _SECONDS
            try:
                return {name: queue.read(until) for name, queue in self._queues.items()}
            except NoPermissionError:
                self._is_refused = True
        if self._queues:
            return {name: queue.read() for name, queue in self._unread.items()}
        with broker_failures("the broker does not answer"), self._app.connection_for_read() as connection:
            return {name: QueueFigures(queue_length(connection, name), None) for name in self._names}


def queue_length(connection: Any, queue: str) -> int:
    """The number of messages in a queue; one that was never used does not exist yet."""
    with connection.channel() as channel:
        try:
            return int(channel.queue_declare(queue, passive=True).message_count)
        except connection.channel_errors:
            return 0
