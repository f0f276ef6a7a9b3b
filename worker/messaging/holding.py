"""What a worker has in hand, in its own memory: kombu's ledger of unacknowledged messages in Redis is not kept.

That ledger (`unacked`) costs a transaction for each message taken and one for each acknowledged, and nothing of ours is
brought back by it: a lane, a result or a call whose worker dies is found in the log's own records within seconds, long
before a visibility timeout is over, and the broker's second opinion on remote calls is refused (see `recovery.sweep`).
What it is needed for otherwise stays: a worker takes no more than it may have in hand.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kombu.transport.virtual import QoS

_UNLIMITED: Final = 1_000_000


class Hand:
    """How many tasks the messages are that a worker has taken and not answered yet.

    While its event loop `is_blocked` it takes no more: what another worker could begin would wait here.
    """

    def __init__(self, is_blocked: Callable[[], bool] = lambda: False) -> None:
        self.tasks = 0
        self.is_blocked = is_blocked

    def hold(self, task: Any, given_back: Callable[[], None] | None = None) -> None:
        """Count a task's message until it is answered; `given_back` is called then."""
        self.tasks += 1
        is_held = True

        def let_go(answer: Callable[..., None], *arguments: Any, **named: Any) -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                self.tasks -= 1
                if given_back is not None:
                    given_back()
            answer(*arguments, **named)

        task.ack_log_error = partial(let_go, task.ack_log_error)
        task.reject_log_error = partial(let_go, task.reject_log_error)


class Held(QoS):  # type: ignore[misc]  # kombu has no types
    """The messages that one channel has delivered. What is not acknowledged when it closes is left to the sweep."""

    restore_at_shutdown = False

    def __init__(self, hand: Hand, channel: Any) -> None:
        super().__init__(channel)
        self._hand = hand

    def can_consume(self) -> bool:
        """Whether another message may be taken: the limit counts tasks, of which a message may carry several."""
        return self.room > 0

    @property
    def room(self) -> int:
        """How many more tasks may be taken."""
        if self._hand.is_blocked():
            return 0
        return self.prefetch_count - self._hand.tasks if self.prefetch_count else _UNLIMITED

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Let go of a message. It is never put back: the sweep sees to it, and counts what kills its workers."""
        super().reject(delivery_tag)


def hold(channel: Any, hand: Hand) -> None:
    """Let a channel of the Redis transport, from which nothing is consumed yet, keep what it delivers in memory."""
    if channel._qos is not None:
        channel._qos.restore_unacked_once()  # nothing; but else the process keeps it, and the channel, to its end
    channel._qos = Held(hand, channel)
