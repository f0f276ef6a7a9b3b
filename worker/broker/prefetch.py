"""What a worker has taken from the broker and not acknowledged, in its own memory: kombu's ledger in Redis is not kept.

That ledger (`unacked`) costs a transaction for each message taken and one for each acknowledged, and nothing of ours is
brought back by it: a lane, a result or a call whose worker dies is found in the log's own records within seconds, long
before a visibility timeout is over, and the broker's second opinion on remote calls is refused (see `recovery.sweep`).
What it is needed for otherwise stays: a worker takes no more than it may have in hand. That is counted in tasks, and of
each queue in bytes as well: a hundred calls of megabytes wait in the queue, where they take no worker's memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kombu.transport.virtual import QoS

from acts_celery.worker.process.figures import figures

from .admission import queue_of

MOST_BYTES: Final = 48 * 2**20
"""Of a queue of which a worker has so much in hand it takes nothing more."""
_LARGE_BYTES: Final = 2**16
"""Smaller messages are not counted."""
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
        size, queue = _size_of(task), queue_of(task)
        self._bytes[queue] += size
        figures().task_taken(queue)

        def let_go(answer: Callable[..., None], *arguments: Any, **named: Any) -> None:
            if task.ack_log_error is _answered:
                return
            task.ack_log_error = task.reject_log_error = _answered  # or it would stay until garbage is looked for
            self.tasks -= 1
            self._bytes[queue] -= size
            figures().task_answered(queue)
            if given_back is not None:
                given_back()
            answer(*arguments, **named)

        task.ack_log_error = partial(let_go, task.ack_log_error)
        task.reject_log_error = partial(let_go, task.reject_log_error)

    def is_full_of(self, queue: str) -> bool:
        """Whether so many bytes of a queue are in hand that nothing more is to be taken from it."""
        return self._bytes[queue] >= MOST_BYTES


def _answered(*_: Any, **__: Any) -> None:
    """A message is answered once."""


def _size_of(task: Any) -> int:
    """The bytes of a task's argument; 0 where they are few."""
    arguments = task.payload[0]
    argument = arguments[0] if arguments else None
    return len(argument) if isinstance(argument, bytes) and len(argument) >= _LARGE_BYTES else 0


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
