"""From which of its queues a worker takes next, and how soon what has a priority is taken.

kombu takes from the queues in turn, message by message. A message of megabytes takes the thread that reads it a
hundred times as long as a lane's, so one run's large messages in one queue would hold up what lies in all others.
Here each queue that has messages gets an equal share of the time (start-time fair queueing). Within a queue the
priorities of messages have a list each, in bands; the highest is looked at first, but not always.

RabbitMQ sends messages to workers by itself. There each band is a queue of its own, of which a worker has a few
messages in hand besides those that it can begin; its pool chooses by the same turns among all that it has in hand.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ...broker_config import priority_queue
from ...protocol.limits import MOST_URGENT

if TYPE_CHECKING:
    from celery import Celery

logger = logging.getLogger(__name__)

T = TypeVar("T")

BANDS: Final = (0, 3, 6, 9)
"""Bands of the priorities 0, 1 to 3, 4 to 6, 7 to 9: kombu has a list for each of them, and no more."""
BAND: Final = "\x06\x16"
"""The separator, as in kombu's keys, between the name of a queue and a band of priorities."""
BAND_SUFFIXES: Final = tuple(f"{BAND}{band}" if band else "" for band in BANDS)
"""The ends of the names of a queue's lists, one for each band; the lowest has none."""
_TURNS: Final = (9, 6, 9, 3, 9, 6, 9, 9, 6, 9, 3, 9, 6, 9, 0)
"""The band that is read first, take by take: where messages of all bands wait, 8 of 15 are of the highest, and one
is of the lowest.
"""


def band_of(priority: int) -> int:
    """The band of a priority."""
    return -(-priority // 3) * 3


def bands_at(take: int) -> list[int]:
    """The bands in the order in which the next message is looked for, after so many were taken: mostly the highest
    first, and each of the others once in a while, so that none waits for ever.
    """
    first = _TURNS[take % len(_TURNS)]
    return [first, *(band for band in BANDS[::-1] if band != first)]


class QueueOrder:
    """The order in which the broker is asked for the next message, as kombu's channels want it."""

    def __init__(self) -> None:
        self._used: dict[str, float] = {}
        """Seconds."""
        self._last: str | None = None
        self._taken = Counter[str]()
        """How many messages were taken, by queue."""
        self.is_closed: Callable[[str], bool] = lambda queue: False
        """Whether nothing is to be taken from a queue now."""

    def update(self, queues: Iterable[str]) -> None:
        """Set which queues there are; a new one begins with no advantage."""
        most = max(self._used.values(), default=0.0)
        self._used = {queue: self._used.get(queue, most) for queue in queues}

    def consume(self, count: int) -> list[str]:
        """The first queues, in the order in which the broker looks for a message."""
        open_queues = (queue for queue in self._used if not self.is_closed(queue))
        return sorted(open_queues, key=self._used.__getitem__)[:count]

    def bands(self, queue: str) -> list[int]:
        """The bands of priorities of a queue, in the order in which the next message is looked for."""
        return bands_at(self._taken[queue])

    def rotate(self, queue: str) -> None:
        """Note from which queue a message was taken."""
        self._last = queue
        self._taken[queue] += 1

    def charge(self, seconds: float) -> None:
        """Note how long the last message took. The queues before its own were empty, and save up nothing."""
        queue, self._last = self._last, None
        if queue is None or queue not in self._used:
            return
        began = self._used[queue]
        for other, used in self._used.items():
            self._used[other] = max(used, began)
        self._used[queue] += seconds


class BandLines(Generic[T]):
    """Tasks that wait for a place, in a line for each band of priorities."""

    def __init__(self) -> None:
        self._lines = {band: deque[T]() for band in BANDS}
        self._taken = 0

    def __bool__(self) -> bool:
        return any(self._lines.values())

    def add(self, priority: object, one: T) -> None:
        """Put something at the end of its line; the priority may be a stranger's word."""
        known = priority if isinstance(priority, int) else 0
        self._lines[band_of(max(0, min(known, MOST_URGENT)))].append(one)

    def take(self) -> T:
        """Take what is next."""
        line = next(line for band in bands_at(self._taken) if (line := self._lines[band]))
        self._taken += 1
        return line.popleft()


class PriorityQueues:
    """A worker's consumer of RabbitMQ's queues for priorities. Celery's own takes no more tasks than the worker can
    begin; this one has a channel of its own, and a few messages of each queue in hand, which wait for a place.
    """

    def __init__(self, app: Celery, connection: Any, **how: Any) -> None:
        """Consume the queues of all that the worker consumes; `how` goes to kombu's consumer. Raises its errors."""
        self._app = app
        self._channel = connection.channel()
        self._channel.basic_qos(0, len(BANDS), False)  # for each queue
        self._consumer = app.amqp.TaskConsumer(self._channel, queues=self._of(*app.amqp.queues.consume_from), **how)
        self._consumer.consume()

    def add(self, queue: str) -> None:
        """Consume those of one more queue."""
        for one in self._of(queue):
            self._consumer.add_queue(one)
        self._consumer.consume()

    def cancel(self, *queues: str) -> None:
        """Take no more of those of these queues, or of all."""
        for one in list(self._consumer.queues):
            if not queues or one.alias in queues:
                self._consumer.cancel_by_queue(one.name)

    def _of(self, *queues: str) -> list[Any]:
        kind = self._app.conf.task_create_missing_queue_type
        return [priority_queue(queue, band, kind) for queue in queues for band in BANDS if band]


def consume_priorities(app: Celery, connection: Any, **how: Any) -> PriorityQueues | None:
    """Consume the queues for priorities; None if the broker's user may not. Raises other errors of the broker."""
    from amqp.exceptions import AccessRefused

    try:
        return PriorityQueues(app, connection, **how)
    except AccessRefused as error:
        logger.warning(
            "tasks with a priority are not taken, since the broker's user may not read their queues: %s", error
        )
        return None
