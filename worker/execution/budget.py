"""What a loop's requests, and its calls that ask a model, take from its budget (SPEC R13.3): reserved before they are
sent, charged when they have ended. A request that does not fit what is left waits as long as others may give something
back.
"""

from __future__ import annotations

from typing import Final

from acts_celery.broker_config import Settings
from acts_celery.protocol.engine.execution import Failure, Outcome
from acts_celery.protocol.engine.loop_limits import LoopLimits
from acts_celery.worker.messaging.attempts import Attempt, CallId, Retry
from acts_celery.worker.messaging.packing import unpack
from acts_celery.worker.messaging.task_messages import TaskMessage
from acts_celery.worker.models.delegates import estimate
from acts_celery.worker.storage.budgets import Budget, Reservation, Shortfall
from acts_celery.worker.storage.definition import Definition
from acts_celery.worker.storage.log import MessageLog

from .checking import most_of
from .loop_view import LoopView

WAIT_SECONDS: Final = 0.5
"""How long a request waits for others to give back what they have reserved and not needed."""


class CallBudget:
    """The tokens of one run's calls."""

    def __init__(self, log: MessageLog, settings: Settings, definition: Definition) -> None:
        self._log = log
        self._settings = settings
        self._limits = LoopLimits.of(definition.config, most_of(settings)) if definition.request is not None else None

    @property
    def is_limited(self) -> bool:
        """Whether they are counted while they run; where they are not, the log alone says what they have cost."""
        return self._limits is not None and self._limits.tokens is not None

    async def reserve(self, attempt: Attempt, message: TaskMessage) -> Failure | Retry | None:
        """Reserve what a request may cost; else why it is not sent. An attempt that was lost is charged whole."""
        call = unpack(message.body)
        tokens = estimate(call["context"], call["schema"], call["config"])
        shortfall = await self._take(attempt.id, (attempt.losses + 1) * tokens, tokens)
        if shortfall is None:
            return None
        failure = Failure("LimitReached", shortfall.text)
        return Retry(failure, WAIT_SECONDS) if waits(shortfall, attempt.failures, self._settings) else failure

    async def charge(self, id_: CallId, outcome: Outcome) -> None:
        """Put what a call has cost in the place of what it has reserved."""
        await self._take(id_, outcome.cost["tokens"] if outcome.cost is not None else 0)

    async def _take(self, id_: CallId, tokens: int, reserved: int = 0) -> Shortfall | None:
        assert self._limits is not None
        budgets = await self._log.budgets(id_.run, self._limits)
        return await self._log.reserve(budgets, Reservation(f"{id_.run}\x1f{id_.member}", tokens, reserved))


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


def waits(shortfall: Shortfall, failures: int, settings: Settings) -> bool:
    """Whether a request is tried again that does not fit what is left, after so many attempts."""
    return shortfall.may_pass and failures * WAIT_SECONDS < settings.model_request_seconds
