"""Events: what one entry of a lane's log says, as plain values (SPEC R3, R4.10, R5, R9.3, R11.6, R14.2).

`Execution.apply` takes those in that change what can be done. The messages of events go into the lane's fold before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from acts_celery.protocol.state.labels import TRUSTED, Labels
from acts_celery.protocol.trust.effects import Doubt

from .holds import Ruling, Snapshot
from .statuses import Status


@dataclass(frozen=True, slots=True)
class MessageAdded:
    """A message that was submitted, sent, or is one of several in a call's result."""

    message: Mapping[str, Any]
    call: int | None = None
    """The call that wrote it, if one did."""


@dataclass(frozen=True, slots=True)
class CallEnded:
    """A call has ended, with the last message of its result where it has any."""

    call: int
    status: Status
    message: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    reason: str | None = None
    cost: Mapping[str, Any] | None = None
    """What asking models for it has cost (see `decisions.Success`)."""
    missed: tuple[str, ...] = ()
    """What was promised, did not come in time, and what the call had to do without (SPEC R11.6)."""
    ruling: Ruling | None = None
    """What was decided of the call, where it has ended by that."""
    is_rescued: bool = False
    """Whether it has failed and has written that to the last of its alternatives (SPEC R4.4)."""
    labels: Labels = TRUSTED
    """The sources of what it has read and of its result, where others write to them (SPEC R16.2)."""


@dataclass(frozen=True, slots=True)
class ElementEnded:
    """An element of a call that is carried out for each has ended (SPEC R4.10)."""

    call: int
    element: int
    """Its number (see `calls.elements`)."""
    status: Status
    message: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    value: Any = None
    """Its result: the call writes it, with the others."""
    cost: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class CallHeld:
    """A call waits for a person since this entry (SPEC R14.2)."""

    call: int
    snapshot: Snapshot
    """What it will run with."""
    doubt: Doubt | None = None
    """Why it waits, where it is for what others wrote (SPEC R16.4)."""


@dataclass(frozen=True, slots=True)
class CallDecided:
    """A person, or the end of the time for it, has decided on a call."""

    call: int
    ruling: Ruling


@dataclass(frozen=True, slots=True)
class FanOutBegun:
    """A call is carried out for each element of its lists since this entry (SPEC R4.10)."""

    call: int
    snapshot: Snapshot
    """What its elements are carried out with."""


@dataclass(frozen=True, slots=True)
class ChildStarted:
    """A run was started that is to answer a call (SPEC R9.3)."""

    call: int
    run: str


@dataclass(frozen=True, slots=True)
class CallGivenBack:
    """No code has come yet that admits a call: since this entry it waits for that (SPEC R17.3)."""

    call: int
    reason: str
    """What the first code that did not admit it had against it."""


@dataclass(frozen=True, slots=True)
class CallsUndone:
    """Calls are carried out again: what the log says before this entry of their ends, and what they have written,
    counts no more (SPEC R11.8).
    """

    calls: tuple[int, ...]
    keeping: tuple[int, ...] = ()
    """Those of them of which only the elements that failed are."""
    stale: tuple[int, ...] = ()
    """Calls that had begun and are not carried out again, although they have read what may be written now."""


@dataclass(frozen=True, slots=True)
class PromisesGivenUp:
    """What is promised and has not come is not waited for any more (SPEC R11.6)."""


Event = (
    MessageAdded
    | CallEnded
    | ElementEnded
    | CallHeld
    | CallDecided
    | FanOutBegun
    | ChildStarted
    | CallGivenBack
    | CallsUndone
    | PromisesGivenUp
)
