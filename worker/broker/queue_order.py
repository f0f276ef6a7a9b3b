"""From which of its queues a worker takes next, and how soon what has a priority is taken.

kombu takes from the queues in turn, message by message. A message of megabytes takes the thread that reads it a
hundred times as long as a lane's, so one run's large messages in one queue would hold up what lies in all others.
Here each queue that has messages gets an equal share of the time (start-time fair queueing). Within a queue the
priorities of messages have a list each, in bands; the highest is looked at first, but not always.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

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
        """The bands of priorities of a queue, in the order in which the next message is looked for: mostly the highest
        first, and each of the others once in a while, so that none waits for ever.
        """
        first = _TURNS[self._taken[queue] % len(_TURNS)]
        return [first, *(band for band in BANDS[::-1] if band != first)]

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
