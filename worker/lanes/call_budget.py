"""What calls that ask a model take from a loop's budget (SPEC R13.3): reserved before they are sent, charged when they
have ended. A request that does not fit what is left waits as long as others may give something back.
"""

from __future__ import annotations

from typing import Final

from acts_celery.broker_config import Settings
from acts_celery.protocol.engine.decisions import Failure, Outcome
from acts_celery.protocol.engine.loop_limits import LoopLimits
from acts_celery.worker.models.delegates import estimate
from acts_celery.worker.storage.budgets import Reservation, Shortfall
from acts_celery.worker.storage.definition import Definition
from acts_celery.worker.storage.log import MessageLog
from acts_celery.worker.wire.attempts import Attempt, CallId, Retry
from acts_celery.worker.wire.packing import unpack
from acts_celery.worker.wire.task_messages import TaskMessage

from .checking import most_of

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


def waits(shortfall: Shortfall, failures: int, settings: Settings) -> bool:
    """Whether a request is tried again that does not fit what is left, after so many attempts."""
    return shortfall.may_pass and failures * WAIT_SECONDS < settings.model_request_seconds
