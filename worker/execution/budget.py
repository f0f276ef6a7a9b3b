"""What a loop's calls that ask a model take from its tokens (SPEC R13.3): reserved before they are sent, charged when
they have ended. A call whose request does not fit what is left waits as long as others may give something back.
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
from acts_celery.worker.storage.definition import Definition
from acts_celery.worker.storage.log import MessageLog
from acts_celery.worker.storage.pools import Draw, Lack

from .checking import most_of

WAIT_SECONDS: Final = 0.5
"""How long a request waits for others to give back what they have reserved and not needed."""


class Budget:
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
        """Take what a request may cost; else why it is not sent. An attempt that was lost is charged whole."""
        assert self._limits is not None
        call = unpack(message.body)
        tokens = estimate(call["context"], call["schema"], call["config"])
        draw = Draw(_member(attempt.id), (attempt.losses + 1) * tokens, tokens)
        lack = await self._log.draw(await self._log.pools(attempt.id.run, self._limits), draw)
        if lack is None:
            return None
        failure = Failure("LimitReached", lack.text)
        return Retry(failure, WAIT_SECONDS) if waits(lack, attempt.failures, self._settings) else failure

    async def charge(self, id_: CallId, outcome: Outcome) -> None:
        """Put what a call has cost in the place of what it has reserved."""
        assert self._limits is not None
        tokens = outcome.cost["tokens"] if outcome.cost is not None else 0
        await self._log.draw(await self._log.pools(id_.run, self._limits), Draw(_member(id_), tokens))


def waits(lack: Lack, failures: int, settings: Settings) -> bool:
    """Whether a request is tried again that does not fit what is left, after so many attempts."""
    return lack.may_pass and failures * WAIT_SECONDS < settings.model_request_seconds


def _member(id_: CallId) -> str:
    return f"{id_.run}\x1f{id_.member}"
