"""Decisions: what an execution says is to be done, what comes of it, and what that means for the log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.calls.elements import call_of, element_of
from acts_celery.protocol.language.messages import CHOSEN, TRUST
from acts_celery.protocol.state.labels import TRUSTED, Labels, Marks
from acts_celery.protocol.trust.effects import Doubt

from .events import CallEnded, ElementEnded, MessageAdded
from .holds import Snapshot
from .statuses import Status


@dataclass(frozen=True, slots=True)
class Success:
    """A call's executor returned a value: plain, or an `Output` or a `Message` where it may choose."""

    value: Any
    cost: Mapping[str, Any] | None = None
    """What asking models has cost (SPEC R13.3): `tokens` to be charged, and where known `model`, `usage`, `seconds`, or
    `calls`, how many a child run has started.
    """
    labels: Labels = TRUSTED
    """The sources of what a child run has read, beside those of what it was given (SPEC R16.2)."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A call's executor raised or timed out. `type` and `message` are for readers: no secrets, no traceback."""

    type: str
    message: str
    cost: Mapping[str, Any] | None = None
    """As in `Success`."""
    is_for_no_alternative: bool = False
    """Whether none of the call's alternatives takes it: no code came that admits the call (SPEC R17.3)."""
    labels: Labels = TRUSTED
    """As in `Success`."""


@dataclass(frozen=True, slots=True)
class Start:
    """A call that can be carried out now, with its parameters resolved."""

    call: Call
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Hold:
    """A call that could be carried out now, but that a person decides on first (SPEC R14.1)."""

    call: Call
    parameters: Mapping[str, Any]
    snapshot: Snapshot
    doubt: Doubt | None = None
    """Why, where it is for what others wrote (SPEC R16.4)."""


@dataclass(frozen=True, slots=True)
class FanOut:
    """A call that is carried out once for each element, to be written down before any begins (SPEC R4.10)."""

    call: Call
    parameters: Mapping[str, Any]
    snapshot: Snapshot

    @property
    def elements(self) -> int:
        """For how many."""
        return len(self.parameters[self.call.each[0]])


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a call ended, or an element of one, and the messages that say so; to be appended together, once."""

    index: int
    status: Status
    messages: tuple[Mapping[str, Any], ...] = ()
    error: Mapping[str, Any] | None = None
    reason: str | None = None
    cost: Mapping[str, Any] | None = None
    """What asking models for it has cost, as in `Success`."""
    value: Any = None
    """The result of an element: the call writes it, with the others."""
    is_rescued: bool = False
    """Whether the call has failed and has written that to the last of its alternatives (SPEC R4.4)."""
    labels: Labels = TRUSTED
    """The sources of what it has read and of its result (SPEC R16.2)."""

    @property
    def said(self) -> Labels:
        """The sources that its code has named."""
        return TRUSTED.union(*(message.get(TRUST) or () for message in self.messages))

    def marked(self, marks: Marks) -> Outcome:
        """The same with what is true of it (SPEC R16.2)."""
        if not marks:
            return self
        said = {TRUST: sorted(marks.labels), **({CHOSEN: sorted(marks.chosen)} if marks.chosen else {})}
        return replace(self, messages=tuple({**message, **said} for message in self.messages), labels=marks.labels)

    @property
    def events(self) -> Iterator[MessageAdded | CallEnded | ElementEnded]:
        """The same as entries of the log: each message is one, and the last says how the call ended."""
        call, messages = call_of(self.index), self.messages
        for message in messages[:-1]:
            yield MessageAdded(message, call)
        last = messages[-1] if messages else None
        if element_of(self.index) is None:
            yield CallEnded(
                call,
                self.status,
                last,
                self.error,
                self.reason,
                self.cost,
                is_rescued=self.is_rescued,
                labels=self.labels,
            )
        else:
            yield ElementEnded(call, self.index, self.status, last, self.error, self.value, self.cost)


Decision = Start | Hold | FanOut | Outcome
