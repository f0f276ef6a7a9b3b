"""Events: what one entry of a lane's log says, as plain values (SPEC R3, R4.10, R5, R9.3, R11.6, R14.2).

`Execution.apply` takes those in that change what can be done. The messages of events go into the lane's fold before.

Each event says what it means for its call: `kind` names it for readers, `status` is the status that the call (or the
element) has since. `worker.store.state` reduces a log to the state of a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar, Final, Literal

from ..calls.call import Call, call_of, element_of
from ..calls.trust import ToolTrust
from ..errors import ExpressionError, Problem, pointer
from ..messages import CHOSEN, TRUST, render_data
from ..references import Reference
from ..state.fold import Fold
from ..state.labels import TRUSTED, Labels, Marks, marks_of
from ..state.scopes import read_scope, sliced
from ..trust import Doubt, marks_since

# Holds: calls that wait for a person, and what the person said (SPEC R14.2).
#
# A call is held with a snapshot: its resolved parameters, and what its scopes give it. What was shown is what runs, or
# less of it: whoever approves may narrow the scopes, and the snapshot with them.


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a call was held with."""

    parameters: Mapping[str, Any]
    scopes: Mapping[str, Any]
    """Kind to value, as code gets it."""
    messages: Sequence[Mapping[str, Any]] = ()
    """The same as messages, for a delegate or a model: schemas and texts ride along (SPEC R8.3)."""


class Verdict(StrEnum):
    """What a person says of a held call."""

    APPROVED = "approved"
    REJECTED = "rejected"
    ANSWERED = "answered"
    """It was a question, and this is its result."""
    REPLACED = "replaced"
    """It ends as skipped, and other calls stand in for it."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """What was decided of a held call."""

    verdict: Verdict
    parameters: Mapping[str, Any] | None = None
    """Those that it is to run with, where they were changed."""
    scopes: tuple[str, ...] | None = None
    """Those that it is to run with, where they were narrowed."""
    reason: str = ""
    """Why it was rejected."""
    answer: Any = None
    """The result of a question."""
    amendment: Mapping[str, Any] | None = None
    """The calls that stand in for it, as they were handed in."""


def scope_problems(given: Any, call: Call, snapshot: Snapshot) -> Iterator[Problem]:
    """What keeps scopes from being narrower ones for a held call: each is one of its own or lies in one of those, and
    is there in what was shown. What a `_gather` call reads of a kind is given whole or not at all.
    """
    if not isinstance(given, list):
        yield Problem("", "must be a list of kinds and references")
        return
    chosen: list[Reference] = []
    for place, text in enumerate(given):
        try:
            scope = read_scope(text) if isinstance(text, str) else None
        except ExpressionError as error:
            yield Problem(pointer(place), str(error))
            continue
        if scope is None:
            yield Problem(pointer(place), "must be a kind, or a reference for a part of one")
        elif not any(_lies_in(scope, own) for own in call.scopes):
            has = ", ".join(map(str, call.scopes)) or "none"
            yield Problem(pointer(place), f"{scope} is wider than the scopes of the call, which are {has}")
        elif scope not in call.scopes and not call.gather and not sliced(snapshot.scopes, [scope]):
            yield Problem(pointer(place), f"{scope} is not in what was shown: see `acts held`")
        else:
            chosen.append(scope)
    for kind in _parted(call.scopes, chosen) if call.gather else ():
        yield Problem("", f"a call with _gather sees all of what it reads of {kind}, or nothing of it")


def narrowed(snapshot: Snapshot, call: Call, scopes: Sequence[str]) -> Snapshot:
    """What a call was held with, with narrower scopes (see `scope_problems`)."""
    chosen = [read_scope(text) for text in scopes]
    parted = _parted(call.scopes, chosen)
    parts = sliced(snapshot.scopes, [scope for scope in chosen if scope.kind in parted])
    kinds = {scope.kind for scope in chosen}
    values = {kind: value for kind, value in snapshot.scopes.items() if kind in kinds - parted} | parts
    messages = [
        render_data(kind, parts[kind]) if kind in parts else message
        for message in snapshot.messages
        if (kind := message.get("kind", message.get("type"))) in parts or kind in kinds - parted
    ]
    return Snapshot(snapshot.parameters, values, tuple(messages))


def _lies_in(scope: Reference, own: Reference) -> bool:
    return scope.kind == own.kind and scope.path[: len(own.path)] == own.path


def _parted(own: Sequence[Reference], chosen: Sequence[Reference]) -> set[str]:
    """The kinds of which not all is chosen that the call's own scopes give."""
    kinds = {scope.kind for scope in chosen}
    return {scope.kind for scope in own if scope.kind in kinds and scope not in chosen}


# Statuses: the states of a call, and how one follows another (SPEC R5, R6.6, R11.4).


class Status(StrEnum):
    """The statuses of a call."""

    WAITING = "waiting"
    HELD = "held"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    SENT = "sent"
    LATENT = "latent"


CallStatus = Literal["waiting", "held", "running", "done", "failed", "skipped", "sent", "latent"]
"""The same as texts, for those who read results."""

TRANSITIONS: Final[Mapping[Status, frozenset[Status]]] = {
    Status.WAITING: frozenset(
        {Status.HELD, Status.RUNNING, Status.DONE, Status.FAILED, Status.SKIPPED, Status.SENT, Status.LATENT}
    ),
    Status.HELD: frozenset({Status.WAITING, Status.RUNNING, Status.FAILED, Status.SKIPPED}),
    # Skipped: it was lost, and what it needs was carried out again and has failed (SPEC R11.8).
    Status.RUNNING: frozenset({Status.WAITING, Status.DONE, Status.FAILED, Status.SKIPPED, Status.SENT}),
    Status.DONE: frozenset(),
    Status.FAILED: frozenset(),
    Status.SKIPPED: frozenset(),
    Status.SENT: frozenset(),
    Status.LATENT: frozenset(),
}
FINAL: Final = frozenset(status for status, following in TRANSITIONS.items() if not following)
"""How a call can end."""


@dataclass(frozen=True, slots=True)
class MessageAdded:
    """A message that was submitted, sent, or is one of several in a call's result."""

    message: Mapping[str, Any]
    call: int | None = None
    """The call that wrote it, if one did."""


@dataclass(frozen=True, slots=True)
class CallEnded:
    """A call has ended, with the last message of its result where it has any."""

    kind: ClassVar = "call"
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

    kind: ClassVar = "element"
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

    kind: ClassVar = "held"
    status: ClassVar = Status.HELD
    call: int
    snapshot: Snapshot
    """What it will run with."""
    doubt: Doubt | None = None
    """Why it waits, where it is for what others wrote (SPEC R16.4)."""


@dataclass(frozen=True, slots=True)
class CallDecided:
    """A person, or the end of the time for it, has decided on a call."""

    kind: ClassVar = "decided"
    status: ClassVar = Status.WAITING
    call: int
    ruling: Ruling


@dataclass(frozen=True, slots=True)
class FanOutBegun:
    """A call is carried out for each element of its lists since this entry (SPEC R4.10)."""

    kind: ClassVar = "each"
    status: ClassVar = Status.RUNNING
    call: int
    snapshot: Snapshot
    """What its elements are carried out with."""


@dataclass(frozen=True, slots=True)
class ChildStarted:
    """A run was started that is to answer a call (SPEC R9.3)."""

    kind: ClassVar = "child"
    status: ClassVar = Status.RUNNING
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
Wrote = MessageAdded | CallEnded | ElementEnded
"""What an entry says of a call that has written, or ended."""


def relabelled(event: Wrote, call: Call, trust: ToolTrust, fold: Fold, elsewhere: Labels = TRUSTED) -> Wrote:
    """What a call has written, or how it has ended, with the sources that are known since the log was written. A gather
    call has those from `elsewhere`, too: of all results that it may have read in other lanes.
    """
    is_done = isinstance(event, CallEnded) and event.status is Status.DONE and not event.is_rescued
    marks = marks_since(call, trust, fold, is_done=is_done)
    if call.gather and elsewhere:
        marks |= Marks(elsewhere, elsewhere)
    if not marks:
        return event
    if event.message is not None:
        together = marks_of(event.message) | marks
        chosen = {CHOSEN: sorted(together.chosen)} if together.chosen else {}
        event = replace(event, message={**event.message, TRUST: sorted(together.labels), **chosen})
    return replace(event, labels=event.labels | marks.labels) if isinstance(event, CallEnded) else event


# Undone: which events of a lane still count where calls were carried out again since (SPEC R11.8).


def effective_events(events: Sequence[object]) -> list[bool]:
    """Of each event of a lane, in order, whether it counts after the last of them.

    Of a call of which only the elements that failed were carried out again, what it was given and the others stay.
    """
    undoing = {n: event for n, event in enumerate(events) if isinstance(event, CallsUndone)}
    last = {call: n for n, event in undoing.items() for call in event.calls}
    whole = {call: n for n, event in undoing.items() for call in event.calls if call not in event.keeping}
    return [
        (call := getattr(event, "call", None)) is None
        or n > last.get(call, -1)
        or (n > whole.get(call, -1) and not _is_undone(event))
        for n, event in enumerate(events)
    ]


def _is_undone(event: object) -> bool:
    """Whether an event of a call counts no more where only the elements that failed are carried out again."""
    failed = isinstance(event, ElementEnded) and event.status is Status.FAILED
    return failed or isinstance(event, MessageAdded | CallEnded | CallGivenBack)


# Decisions: what an execution says is to be done, what comes of it, and what that means for the log.


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
    def events(self) -> Iterator[Wrote]:
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
