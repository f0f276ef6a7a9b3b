"""The workshop: what all drives of a process share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from broker_config import Settings
from protocol import Limits

from .activities import Registry
from .leases import Leases
from .log import MessageLog
from .messages import TaskMessage
from .remote import Remote
from .slots import Slots
from .threads import Threads

Publish = Callable[[Sequence[TaskMessage]], Awaitable[None]]


@dataclass(frozen=True)
class Workshop:
    """What all drives of a process share."""

    log: MessageLog
    settings: Settings
    registry: Registry
    limits: Limits
    publish: Publish
    threads: Threads
    leases: Leases
    remote: Remote
    slots: Slots
