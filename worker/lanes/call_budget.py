"""What calls that ask a model take from a loop's budget (SPEC R13.3): reserved before they are sent, charged when they
have ended. A request that does not fit what is left waits as long as others may give something back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from acts_celery.broker_config import Settings
from acts_celery.protocol.engine.costs import Cost, Estimate
from acts_celery.protocol.engine.decisions import Failure, Outcome
from acts_celery.protocol.engine.loop_limits import PRICE_REMEDY, LoopLimits
from acts_celery.worker.models.delegates import most_tokens
from acts_celery.worker.models.known import KnownModels
from acts_celery.worker.models.prices import estimate_of
from acts_celery.worker.storage.budgets import Reservation, Shortfall
from acts_celery.worker.storage.definition import Definition
from acts_celery.worker.storage.log import MessageLog
from acts_celery.worker.wire.attempts import Attempt, CallId, Retry
from acts_celery.worker.wire.packing import unpack
from acts_celery.worker.wire.task_messages import TaskMessage

from .checking import most_of

_FREE: Final = Cost()
WAIT_SECONDS: Final = 0.5
"""How long a request waits for others to give back what they have reserved and not needed."""


class CallBudget:
    """The tokens of one run's calls."""

    def __init__(self, log: MessageLog, settings: Settings, definition: Definition, models: KnownModels) -> None:
        self._log = log
        self._models = models
        self._settings = settings
        self._limits = LoopLimits.of(definition.config, most_of(settings)) if definition.request is not None else None

    @property
    def is_limited(self) -> bool:
        """Whether they are counted while they run; where they are not, the log alone says what they have cost."""
        return self._limits is not None and self._limits.counts_spending

    async def reserve(self, attempt: Attempt, message: TaskMessage) -> Failure | Retry | None:
        """Reserve what a request may cost; else why it is not sent. An attempt that was lost is charged whole."""
        call = unpack(message.body)
        estimate = await asyncio.to_thread(self._estimate, call)
        if self._limits is not None and self._limits.money is not None and estimate.nanodollars is None:
            return Failure("LimitReached", f"no price is known of its model, which config.money needs: {PRICE_REMEDY}")
        whole = Cost.of_request(None, estimate, attempt.losses)
        shortfall = await self._take(attempt.id, attempt.again, whole, Cost.of_request(None, estimate))
        if shortfall is None:
            return None
        failure = Failure("LimitReached", shortfall.text)
        return Retry(failure, WAIT_SECONDS) if waits(shortfall, attempt.failures, self._settings) else failure

    async def charge(self, id_: CallId, again: int, outcome: Outcome) -> None:
        """Put what a call has cost in the place of what it has reserved; `again` as in `Attempt`."""
        await self._take(id_, again, Cost.read(outcome.cost) if outcome.cost is not None else Cost())

    def _estimate(self, call: Mapping[str, Any]) -> Estimate:
        """What a call's request may cost: in money, too, where that is limited. The first time it loads the prices."""
        asked = self._models.asked(call["config"].get("model"))
        tokens = most_tokens(call["context"], call["schema"], call["config"], asked)
        counts_money = self._limits is not None and self._limits.money is not None
        return estimate_of(asked if counts_money else (), *tokens)

    async def _take(self, id_: CallId, again: int, cost: Cost, reserved: Cost = _FREE) -> Shortfall | None:
        """What a call has taken before it was carried out again stays."""
        assert self._limits is not None
        member = f"{id_.run}\x1f{id_.member}" + (f"\x1f{again}" if again else "")
        budgets = await self._log.budgets(id_.run, self._limits)
        taken = {"tokens": cost.tokens, "open": reserved.tokens}
        money = {"money": cost.nanodollars, "open_money": reserved.nanodollars}
        return await self._log.reserve(budgets, Reservation(member, **taken, **money))


def waits(shortfall: Shortfall, failures: int, settings: Settings) -> bool:
    """Whether a request is tried again that does not fit what is left, after so many attempts."""
    return shortfall.may_pass and failures * WAIT_SECONDS < settings.model_request_seconds
