"""The mailbox of a lane runner: what arrives while it does something else.

Results of remote calls are handed in by tasks that wait for their receipt: whether the result is in the log. Others say
that there is something new in the lane, or that a call that rested is due.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

from acts_celery.worker.fairness.quarantine import Quarantine, Turn
from acts_celery.worker.wire.messages import Delivery

_CLOCKS_DIFFER_SECONDS: Final = 0.005
"""A call that is due by our clock should be so by the server's."""


@dataclass(frozen=True, slots=True)
class News:
    """What has come."""

    is_told: bool
    """Whether a task says that there is something new in the lane."""
    due: tuple[int, ...]
    """Calls that have rested."""
    deliveries: tuple[Delivery, ...]


class Mailbox:
    """What arrives for one lane runner."""

    def __init__(self, quarantine: Quarantine | None = None, run: str = "") -> None:
        """Without a `quarantine` no call asks for a turn."""
        self._quarantine = quarantine or Quarantine()
        self._run = run
        self._is_told = False
        self._due: list[int] = []
        self._deliveries: list[Delivery] = []
        self._receipts: list[asyncio.Future[bool]] = []
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._turns: dict[int, Turn] = {}
        """Those of calls that their workers may have died of: asked for, or come."""
        self._arrival = asyncio.Event()

    @property
    def resting(self) -> tuple[int, ...]:
        """The calls that will come as due."""
        return (*self._timers, *(index for index, turn in self._turns.items() if turn.is_to_come))

    @property
    def has_news(self) -> bool:
        """Whether something has come since `take`."""
        return self._arrival.is_set()

    async def wait(self) -> None:
        """Wait until something comes."""
        await self._arrival.wait()

    def ring(self) -> None:
        """Wake the waiter without a message."""
        self._arrival.set()

    def look_again(self) -> None:
        """A task says that there is something new in the lane."""
        self._is_told = True
        self.ring()

    def deliver(self, delivery: Delivery) -> asyncio.Future[bool]:
        """Hand in the result of a remote call. The receipt: whether it is in the log, or the runner failed before."""
        receipt: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._deliveries.append(delivery)
        self._receipts.append(receipt)
        self.ring()
        return receipt

    def remind(self, index: int, delay_seconds: float) -> None:
        """Let a call come as due after a delay; of several reminders the last one counts."""
        if (timer := self._timers.pop(index, None)) is not None:
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._timers[index] = loop.call_later(delay_seconds + _CLOCKS_DIFFER_SECONDS, self._remember, index)

    def refuse(self, index: int, *, asks: bool) -> None:
        """Take note that a call was not claimed; where it `asks`, it comes as due with its turn in the quarantine."""
        self.end_turns((index,))
        if asks:
            self._turns[index] = self._quarantine.ask(self._run, partial(self._remember, index))

    def has_turn(self, index: int) -> bool:
        """Whether a call has its turn."""
        return index in self._turns and self._turns[index].has_come

    def end_turns(self, indexes: Iterable[int]) -> None:
        """Take note that calls have ended, or do not begin."""
        for index in indexes if self._turns else ():
            if (turn := self._turns.pop(index, None)) is not None:
                turn.cancel()

    def take(self) -> News:
        """What has come since the last time."""
        news = News(self._is_told, tuple(self._due), tuple(self._deliveries))
        self._is_told, self._due, self._deliveries = False, [], []
        self._arrival.clear()
        return news

    def give_receipts(self, *, committed: bool) -> None:
        """Tell those who handed something in what became of it; what has not been taken yet is not meant."""
        if committed and self._deliveries:
            return
        receipts, self._receipts = self._receipts, []
        for receipt in receipts:
            if not receipt.done():
                receipt.set_result(committed)

    def close(self) -> None:
        """The runner leaves: nothing arrives any more, and what was handed in and is not in the log never will be."""
        for timer in self._timers.values():
            timer.cancel()
        self.end_turns(tuple(self._turns))
        self.give_receipts(committed=False)

    def _remember(self, index: int) -> None:
        self._timers.pop(index, None)
        self._due.append(index)
        self.ring()
