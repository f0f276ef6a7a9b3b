"""What a loop takes from its budget (SPEC R13.3): a request's tokens before it is sent, its calls before they are
written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from acts_celery.protocol.engine.costs import Cost
from acts_celery.worker.storage.budgets import Budget, Reservation, Shortfall
from acts_celery.worker.storage.log import MessageLog

from .loop_view import LoopView

_FREE: Final = Cost()


class LoopBudget:
    """What one loop takes itself: its calls from its own budget, and where it is a child run these and its tokens from
    those above.
    """

    def __init__(self, log: MessageLog, view: LoopView) -> None:
        self._log = log
        self._view = view

    async def reserve(self, losses: int) -> Shortfall | None:
        """Reserve what the current request may take at most, before it is sent; so many attempts at it were lost."""
        estimate = self._view.loop.tick.estimate
        lost = Cost.of_request(None, estimate, losses)
        return await self._take(lost, reserved=lost)

    async def charge(self, cost: Cost | None = None, *, calls: int = 0) -> Shortfall | None:
        """Take so many more calls of the current tick before they are written, and what it has cost where it ended."""
        return await self._take(cost, calls=calls)

    async def give_back(self) -> None:
        """The loop has ended: what it has taken and not needed is there for others."""
        await self._take(Cost(), ticks=1)

    async def _take(
        self, cost: Cost | None, *, reserved: Cost = _FREE, calls: int = 0, ticks: int = 0
    ) -> Shortfall | None:
        view, loop = self._view, self._view.loop
        above = view.parent.budgets if view.parent is not None else ()
        if not above and not calls:
            return None  # its log says what it has taken
        own = Budget(view.run, None, view.limits.calls)
        taken = Reservation(view.run, calls=loop.own_calls + calls, tick=loop.tick.number + ticks)
        if above and cost is not None:
            whole = loop.own_cost + cost
            taken = replace(taken, tokens=whole.tokens, money=whole.nanodollars)
            taken = replace(taken, open=reserved.tokens, open_money=reserved.nanodollars)
        return await self._log.reserve((own, *above), taken)
