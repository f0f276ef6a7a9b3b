"""From which of its queues a worker takes next: the one that has had the least of the consumer's time.

kombu takes from the queues in turn, message by message. A message of megabytes takes the thread that reads it a hundred
times as long as a lane's, so one run's large messages in one queue would hold up what lies in all others. Here each
queue that has messages gets an equal share of the time (start-time fair queueing).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


class QueueOrder:
    """The order in which the broker is asked for the next message, as kombu's channels want it."""

    def __init__(self) -> None:
        self._used: dict[str, float] = {}
        """Seconds."""
        self._last: str | None = None
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

    def rotate(self, queue: str) -> None:
        """Note from which queue a message was taken."""
        self._last = queue

    def charge(self, seconds: float) -> None:
        """Note how long the last message took. The queues before its own were empty, and save up nothing."""
        queue, self._last = self._last, None
        if queue is None or queue not in self._used:
            return
        began = self._used[queue]
        for other, used in self._used.items():
            self._used[other] = max(used, began)
        self._used[queue] += seconds
