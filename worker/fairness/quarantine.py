"""Quarantine: calls that were at work when workers died begin again one at a time in each process (SPEC R4.11).

A process that dies takes everything with it that is at work in it, and nobody knows which call has killed it. Each of
these calls has lost an attempt. Most deaths are nobody's fault, so after the first one all of them begin again at once.
From the second one on, and where another death would be its last, a call begins only while no other such call is at
work in the process: the one that kills its worker dies alone, and the others end.

A call that takes longer than `ALONE_SECONDS` lets the next one begin, so that long calls do not wait for each other for
hours. Calls that were never lost, or once, are not held up and hold nobody up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from .fair_semaphore import FairPlaces

ALONE_SECONDS: Final = 30.0
"""For how long a call keeps the next one from beginning."""
_HARMLESS: Final = 1
"""After so many deaths a call begins again beside others."""


def alone_from(limit_attempts: int) -> int:
    """From how many deaths on a call begins alone, where so many end it."""
    return max(1, min(_HARMLESS + 1, limit_attempts - 1))


class Quarantine:
    """The turns of one process's event loop, which the runs take one after the other."""

    def __init__(self) -> None:
        self._places = FairPlaces[Turn](lambda: 1)

    def ask(self, run: str, begin: Callable[[], None]) -> Turn:
        """Ask for a turn for a call of a run; `begin` is called when it has come, perhaps at once."""
        turn = Turn(self._give_back, run, begin)
        if self._places.take(run):
            turn.come()
        else:
            self._places.wait(run, turn, turn)
        return turn

    @asynccontextmanager
    async def turn(self, run: str) -> AsyncIterator[None]:
        """Wait for a turn, and have it until the block is left or its time is over."""
        come = asyncio.Event()
        turn = self.ask(run, come.set)
        try:
            await come.wait()
            yield
        finally:
            turn.cancel()

    def _give_back(self, run: str) -> None:
        self._places.give_back(run)
        while (served := self._places.next()) is not None:
            run, turn = served
            if not turn.is_over:
                turn.come()
                return
            self._places.give_back(run)


class Turn:
    """A call's turn: asked for, come, over."""

    def __init__(self, give_back: Callable[[str], None], run: str, begin: Callable[[], None]) -> None:
        self._give_back = give_back
        self._run = run
        self._begin = begin
        self._end: asyncio.TimerHandle | None = None
        self.is_over = False

    @property
    def is_to_come(self) -> bool:
        """Whether the call is to wait for it."""
        return self._end is None and not self.is_over

    @property
    def has_come(self) -> bool:
        """Whether the call may begin now."""
        return self._end is not None and not self.is_over

    def come(self) -> None:
        """Let the call begin."""
        self._end = asyncio.get_running_loop().call_later(ALONE_SECONDS, self.cancel)
        self._begin()

    def cancel(self) -> None:
        """End the turn: the call has ended, or does not begin."""
        had_come, self.is_over = self.has_come, True
        if self._end is not None:
            self._end.cancel()
        if had_come:
            self._give_back(self._run)
