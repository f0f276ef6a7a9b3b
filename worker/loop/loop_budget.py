"""What a loop takes from its budget (SPEC R13.3): a request's tokens before it is sent, its calls before they are
written.
"""

from __future__ import annotations

from acts_celery.worker.storage.budgets import Budget, Reservation, Shortfall
from acts_celery.worker.storage.log import MessageLog

from .loop_view import LoopView


class LoopBudget:
    """What one loop takes itself: its calls from its own budget, and where it is a child run these and its tokens from
    those above.
    """

    def __init__(self, log: MessageLog, view: LoopView) -> None:
        self._log = log
        self._view = view

    async def reserve(self, tokens: int) -> Shortfall | None:
        """Reserve what the current request may take at most, before it is sent."""
        return await self._take(self._view.loop.own_tokens + tokens, reserved=tokens)

    async def charge(self, tokens: int | None = None, *, calls: int = 0) -> Shortfall | None:
        """Take so many more calls of the current tick before they are written, and what it has cost where it ended."""
        own = self._view.loop.own_tokens
        return await self._take(own + tokens if tokens is not None else None, calls=calls)

    async def give_back(self) -> None:
        """The loop has ended: what it has taken and not needed is there for others."""
        await self._take(self._view.loop.own_tokens, ticks=1)

    async def _take(self, tokens: int | None, *, reserved: int = 0, calls: int = 0, ticks: int = 0) -> Shortfall | None:
        view, loop = self._view, self._view.loop
        above = view.parent.budgets if view.parent is not None else ()
        if not above and not calls:
            return None  # its log says what it has taken
        own = Budget(view.run, None, view.limits.calls)
        taken = Reservation(
            view.run,
            tokens if above else None,
            reserved,
            loop.own_calls + calls,
            loop.tick.number + ticks,
        )
        return await self._log.reserve((own, *above), taken)
