"""What all lane runners of a process share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from acts_celery.broker_config import Settings
from acts_celery.protocol import Limits
from acts_celery.worker.fairness.fair_scheduling import FairScheduling
from acts_celery.worker.fairness.fair_semaphore import FairSemaphore
from acts_celery.worker.fairness.quarantine import Quarantine
from acts_celery.worker.liveness.presence import Presence
from acts_celery.worker.registry.activities import Activity, Registry
from acts_celery.worker.storage.log import MessageLog
from acts_celery.worker.storage.slots import Slots
from acts_celery.worker.wire.task_messages import TaskMessage

from .checking import Checker
from .children import Children
from .remote import Remote
from .threads import Threads
from .validator import Validator

Publish = Callable[[Sequence[TaskMessage]], Awaitable[None]]
"""Sees to it that tasks which stand in the log are published; never raises (see `publish_buffer`)."""

_HEAVY_AT_ONCE: Final = 1
"""How many large commits, with what they send, one process has under way: what is large goes out one by one anyway."""


@dataclass(frozen=True)
class Services:
    """What all lane runners of a process share."""

    log: MessageLog
    settings: Settings
    registry: Registry
    limits: Limits
    publish: Publish
    threads: Threads
    presence: Presence
    remote: Remote
    slots: Slots
    turns: FairScheduling
    checker: Checker
    """What the calls of a loop's solutions are held against."""
    children: Children
    """Starts the runs of delegates that have tools."""
    validator: Validator
    """Makes the heavy checks of results and parameters."""
    quarantine: Quarantine = field(default_factory=Quarantine)
    """Where calls wait that their workers may have died of."""
    worker: str = "acts"
    """The name of the worker that this process is, or belongs to."""
    leaving: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when this process is to end: no call begins here any more."""
    heavy: FairSemaphore = field(default_factory=lambda: FairSemaphore(_HEAVY_AT_ONCE))
    """For what is large on its way to the servers: what is small does not wait behind it, and runs take turns."""

    def activity(self, name: str) -> Activity | None:
        """The activity that this worker carries out under the name (`ACTS_ALLOW`)."""
        is_allowed = not self.settings.allow or name in self.settings.allow
        return self.registry.activities.get(name) if is_allowed else None
