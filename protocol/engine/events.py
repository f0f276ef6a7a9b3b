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
from ..calls.trust import NOTHING, ToolTrust
from ..errors import ExpressionError, Problem, pointer
from ..messages import CHOSEN, FIELDS, TRUST, render_data
from ..references import Reference
from ..run_rules import RunRule
from ..state.fold import Fold
from ..state.labels import TRUSTED, Fields, Labels, Marks, fields_of, marks_of, with_fields
from ..state.scopes import read_scope, sliced
from ..trust import Doubt, WrittenMarks, marks_since

# Holds: calls that wait for a person, and what the person said (SPEC R14.2).
#
# A call is held with a snapshot: its resolved parameters, and what its scopes give it. What was shown is what runs, or
# less of it: the person may narrow the scopes, and the snapshot with them.


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Parameters and scoped values that a held call was shown with."""

    parameters: Mapping[str, Any]
    scopes: Mapping[str, Any]
    """Scoped values by kind, as code gets them."""
    messages: Sequence[Mapping[str, Any]] = ()
    """The scoped values as messages for a delegate or a model, with schemas and texts (SPEC R8.3)."""


class Verdict(StrEnum):
    """Decision of a person on a held call."""

    APPROVED = "approved"
    REJECTED = "rejected"
    ANSWERED = "answered"
    """The call was a question, and this is its result."""
    REPLACED = "replaced"
    """The call ends as skipped, and other calls replace it."""
    DONE = "done"
    """The end of the call was not known, and it has happened: this is its result (SPEC R4.11)."""
    AGAIN = "again"
    """The end of the call was not known: it is begun again."""
    FAILED = "failed"
    """The end of the call was not known, and it has failed."""


@dataclass(frozen=True, slots=True)
class Ruling:
    """Decision on a held call, with what goes with it."""

    verdict: Verdict
    parameters: Mapping[str, Any] | None = None
    """Parameters to run with, if the person changed them."""
    scopes: tuple[str, ...] | None = None
    """Scopes to run with, if the person narrowed them."""
    reason: str = ""
    """Why it was rejected, or what is known of its failure."""
    answer: Any = None
    """The result of a question, or of a call whose end was not known."""
    amendment: Mapping[str, Any] | None = None
    """Calls that replace it, as they were submitted."""
    rule: str = ""
    """The rule of the run that approved it, where no person was asked (SPEC R16.8)."""


SETTLING: Final = frozenset({Verdict.DONE, Verdict.AGAIN, Verdict.FAILED})
"""The verdicts that a person may give on a call whose end is not known."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence about a call that was begun and whose end is not known (SPEC R4.11)."""

    said: str
    """How its end was lost."""
    key: str = ""
    """The idempotency key that its code was given."""
    attempt: int = 0
    """Which execution of the call it was; 0 where that is not known."""
    worker: str | None = None
    """The worker that had begun it, or, where its message went to a queue, the one that had sent it."""
    since_ms: int | None = None
    """When it was begun."""

    def to_dict(self) -> dict[str, Any]:
        """The evidence in JSON; what is not known is left out."""
        said: dict[str, Any] = {"said": self.said, "key": self.key, "attempt": self.attempt, "worker": self.worker}
        return {name: value for name, value in (said | {"since_ms": self.since_ms}).items() if value}

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Evidence:
        """Read what `to_dict` gives."""
        return cls(**{name: said[name] for name in cls.__dataclass_fields__ if name in said})


def scope_problems(given: Any, call: Call, snapshot: Snapshot) -> Iterator[Problem]:
    """Problems of the scopes that a person gives a held call: each must be one of its own scopes or lie in one, and be
    present in what was shown. What a `_gather` call reads of a kind is given whole or not at all.
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
    """The snapshot with narrower scopes (see `scope_problems`)."""
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
    """The kinds that are narrower than in the call's own scopes."""
    kinds = {scope.kind for scope in chosen}
    return {scope.kind for scope in own if scope.kind in kinds and scope not in chosen}


# Statuses: the states of a call, and how one follows another (SPEC R4.11, R5, R6.6, R11.4).


class Status(StrEnum):
    """The statuses of a call."""

    WAITING = "waiting"
    HELD = "held"
    UNKNOWN = "unknown"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    SENT = "sent"
    LATENT = "latent"


CallStatus = Literal["waiting", "held", "unknown", "running", "done", "failed", "skipped", "sent", "latent"]
"""Statuses of a call as texts, for users who read results."""

TRANSITIONS: Final[Mapping[Status, frozenset[Status]]] = {
    Status.WAITING: frozenset(
        {
            *(Status.HELD, Status.UNKNOWN, Status.RUNNING),
            *(Status.DONE, Status.FAILED, Status.SKIPPED, Status.SENT, Status.LATENT),
        }
    ),
    Status.HELD: frozenset({Status.WAITING, Status.RUNNING, Status.FAILED, Status.SKIPPED}),
    # What is given up as lost may still bring its result, which tells how it has ended (SPEC R4.11).
    Status.UNKNOWN: frozenset({Status.WAITING, Status.DONE, Status.FAILED, Status.SENT}),
    # Skipped: it was lost, and what it needs ran again and has failed (SPEC R11.8).
    Status.RUNNING: frozenset(
        {Status.WAITING, Status.UNKNOWN, Status.DONE, Status.FAILED, Status.SKIPPED, Status.SENT}
    ),
    Status.DONE: frozenset(),
    Status.FAILED: frozenset(),
    Status.SKIPPED: frozenset(),
    Status.SENT: frozenset(),
    Status.LATENT: frozenset(),
}
FINAL: Final = frozenset(status for status, following in TRANSITIONS.items() if not following)
"""Statuses in which a call has ended."""


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
    """Cost of asking models for the call (see `Success`)."""
    missed: tuple[str, ...] = ()
    """Promised places that did not get a value in time and that the call had to do without (SPEC R11.6)."""
    ruling: Ruling | None = None
    """Decision by which the call has ended, if any."""
    is_rescued: bool = False
    """Whether the call failed and wrote its error to the last of its alternatives (SPEC R4.4)."""
    labels: Labels = TRUSTED
    """Sources of what the call read and of its result, where others write to them (SPEC R16.2)."""
    chosen: Labels = TRUSTED
    """Sources that had a say in whether the call ran."""

    @property
    def choosing(self) -> Labels:
        """Sources that had a say in whether the call ran, or at which of its places it has written."""
        said = self.message.get(CHOSEN) if self.message is not None else None
        return self.chosen.union(said) if said else self.chosen

    @property
    def is_by_field(self) -> bool:
        """Whether the call has written a result whose fields have labels of their own (SPEC R16.8)."""
        return self.message is not None and FIELDS in self.message


@dataclass(frozen=True, slots=True)
class ElementEnded:
    """An element of a call with `_each` has ended (SPEC R4.10)."""

    kind: ClassVar = "element"
    call: int
    element: int
    """Number of the element (see `calls.call`)."""
    status: Status
    message: Mapping[str, Any] | None = None
    error: Mapping[str, Any] | None = None
    value: Any = None
    """Result of the element; the call writes all results together."""
    cost: Mapping[str, Any] | None = None
    answered: ToolTrust = NOTHING
    """Sources that came with its answer, besides those that are known of the call (SPEC R16.2)."""


@dataclass(frozen=True, slots=True)
class CallBegun:
    """An attempt at a call, or an element, that runs at most once begins with this entry (SPEC R4.11)."""

    kind: ClassVar = "begun"
    status: ClassVar = Status.RUNNING
    call: int
    snapshot: Snapshot
    """Parameters and scoped values that the attempt runs with; the values of an element are those of its call."""
    evidence: Evidence


@dataclass(frozen=True, slots=True)
class CallHeld:
    """A call waits for a person since this entry (SPEC R14.2); one whose end is not known may be an element."""

    kind: ClassVar = "held"
    call: int
    snapshot: Snapshot
    """Parameters and scoped values that the call will run with."""
    doubt: Doubt | None = None
    """Why the call waits, if it is because of untrusted data (SPEC R16.4)."""
    until_ms: int | None = None
    """The moment at which the call ends, if it waits for that and for no person (SPEC R4.12)."""
    evidence: Evidence | None = None
    """The evidence, if the call was begun and its end is not known (SPEC R4.11)."""
    rule: str = ""
    """The rule of the run that approves the call at once, so nobody is asked (SPEC R16.8)."""

    @property
    def status(self) -> Status:
        """The status of the call since this entry."""
        if self.rule:
            return Status.WAITING
        return Status.HELD if self.evidence is None else Status.UNKNOWN

    @property
    def ruling(self) -> Ruling | None:
        """The decision by a rule; None where a person decides."""
        return Ruling(Verdict.APPROVED, rule=self.rule) if self.rule else None


@dataclass(frozen=True, slots=True)
class CallDecided:
    """A person, or the end of the time for it, has decided on a call."""

    kind: ClassVar = "decided"
    status: ClassVar = Status.WAITING
    call: int
    ruling: Ruling


@dataclass(frozen=True, slots=True)
class RuleGiven:
    """A person has given a rule, whose name is the id of this entry (SPEC R16.8)."""

    rule: RunRule


@dataclass(frozen=True, slots=True)
class RuleRevoked:
    """A rule is in force no longer since this entry."""

    revoked: str
    """The id of the entry that gave it."""


@dataclass(frozen=True, slots=True)
class FanOutBegun:
    """A call runs for each element of its lists since this entry (SPEC R4.10)."""

    kind: ClassVar = "each"
    status: ClassVar = Status.RUNNING
    call: int
    snapshot: Snapshot
    """Parameters and scoped values that the elements run with."""


@dataclass(frozen=True, slots=True)
class ChildStarted:
    """A child run was started to answer a call (SPEC R9.3)."""

    kind: ClassVar = "child"
    status: ClassVar = Status.RUNNING
    call: int
    run: str


@dataclass(frozen=True, slots=True)
class CallGivenBack:
    """No worker with code that admits the call has come yet: the call waits for one since this entry (SPEC R17.3)."""

    call: int
    reason: str
    """Why the first code that was tried did not admit the call."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far an attempt at a call has come, as its code has reported."""

    done: float | None = None
    """How much is done, in the units of `total`."""
    total: float | None = None
    text: str = ""
    details: Any = None
    """JSON that the call's next attempt goes on from; nobody else is shown it."""

    def to_dict(self) -> dict[str, Any]:
        """Write what readers are shown as JSON, without what is not known."""
        shown = {"done": self.done, "total": self.total, "text": self.text or None}
        return {name: value for name, value in shown.items() if value is not None}


@dataclass(frozen=True, slots=True)
class CallProgressed:
    """An attempt at a call, or an element, has come so far. It decides nothing."""

    kind: ClassVar = "progress"
    status: ClassVar = Status.RUNNING
    call: int
    progress: Progress


@dataclass(frozen=True, slots=True)
class CallsUndone:
    """Calls run again: earlier entries about their ends, and what they wrote, no longer count (SPEC R11.8)."""

    calls: tuple[int, ...]
    keeping: tuple[int, ...] = ()
    """The calls among them that repeat only their failed elements."""
    stale: tuple[int, ...] = ()
    """Calls that had begun and do not run again, although they read places that may be written now."""


@dataclass(frozen=True, slots=True)
class WaitMoved:
    """A call that waits for a moment waits for another one since this entry (SPEC R4.12)."""

    call: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class PromisesGivenUp:
    """Promised input that has not come is no longer waited for (SPEC R11.6)."""


Event = (
    MessageAdded
    | CallEnded
    | ElementEnded
    | CallBegun
    | CallHeld
    | CallDecided
    | WaitMoved
    | FanOutBegun
    | ChildStarted
    | CallGivenBack
    | CallProgressed
    | CallsUndone
    | PromisesGivenUp
    | RuleGiven
    | RuleRevoked
)
WriteEvent = MessageAdded | CallEnded | ElementEnded
"""Events that carry a message that a call wrote."""


def relabelled(event: WriteEvent, call: Call, trust: ToolTrust, fold: Fold, elsewhere: Labels = TRUSTED) -> WriteEvent:
    """The event with the sources that are known since the log was written. A gather call also gets those from
    `elsewhere`: of all results that it may have read in other lanes.
    """
    is_done = isinstance(event, CallEnded) and event.status is Status.DONE and not event.is_rescued
    since = marks_since(call, trust, fold, is_done=is_done)
    marks, fields = since.marks, since.fields
    if call.gather and elsewhere:
        marks, fields = marks | Marks(elsewhere, elsewhere), frozenset()
    if not marks:
        return event
    if event.message is not None:
        event = replace(event, message=_said(event.message, WrittenMarks(marks, fields)))
    if not isinstance(event, CallEnded):
        return event
    return replace(event, labels=event.labels | marks.labels, chosen=event.chosen | marks.chosen)


def _said(message: Mapping[str, Any], written: WrittenMarks) -> Mapping[str, Any]:
    """A message with further sources; its fields keep apart only what all that is known of it keeps apart."""
    before, marks = marks_of(message), marks_of(message) | written.marks
    chosen = {CHOSEN: sorted(marks.chosen)} if marks.chosen else {}
    fields = with_fields(before.labels, fields_of(message)) | with_fields(written.marks.labels, written.fields)
    differs = bool(fields_of(message) or written.fields)
    kept = {FIELDS: [one.to_dict() for one in fields]} if differs else {}
    return {**message, TRUST: sorted(marks.labels), **chosen, **kept}


# Undone: which events of a lane still count after calls ran again (SPEC R11.8).


def effective_events(events: Sequence[object]) -> list[bool]:
    """Say for each event of a lane, in order, whether it still counts after the last one. If only the failed elements
    of a call ran again, its parameters and the other elements still count.
    """
    undoing = {n: event for n, event in enumerate(events) if isinstance(event, CallsUndone)}
    if not undoing:
        return [True] * len(events)
    last = {call: n for n, event in undoing.items() for call in event.calls}
    whole = {call: n for n, event in undoing.items() for call in event.calls if call not in event.keeping}
    return [
        (call := getattr(event, "call", None)) is None
        or n > last.get(call := call_of(call), -1)
        or (n > whole.get(call, -1) and not _is_undone(event))
        for n, event in enumerate(events)
    ]


def _is_undone(event: object) -> bool:
    """Whether an event no longer counts where only the failed elements of its call run again."""
    failed = isinstance(event, ElementEnded) and event.status is Status.FAILED
    return failed or isinstance(event, MessageAdded | CallEnded | CallGivenBack)


# Decisions: what an execution wants to be done, its result, and what that means for the log.


@dataclass(frozen=True, slots=True)
class Success:
    """A call's code returned a value: plain, or an `Output` or a `Message` where it may choose a place."""

    value: Any
    cost: Mapping[str, Any] | None = None
    """Cost of asking models (SPEC R13.3): `tokens` to be charged, and where known `model`, `usage`, `seconds`, or
    `calls`, the number that a child run has started.
    """
    labels: Labels = TRUSTED
    """Sources of what a child run read, besides those of what it was given (SPEC R16.2), or that a worker has added."""
    fields: Fields = frozenset()
    """Sources by field, where the fields of the value differ (SPEC R16.8)."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A call's code raised or timed out. `type` and `message` are for readers: no secrets, no traceback."""

    type: str
    message: str
    cost: Mapping[str, Any] | None = None
    """See `Success`."""
    is_for_no_alternative: bool = False
    """Whether the error goes to none of the call's alternatives: no code came that admits the call (SPEC R17.3)."""
    labels: Labels = TRUSTED
    """See `Success`."""
    is_unknown: bool = False
    """Whether the end of a call that runs at most once is not known: it timed out, or its result cannot be
    kept (SPEC R4.11).
    """


@dataclass(frozen=True, slots=True)
class Start:
    """A call that can run now, with its parameters resolved."""

    call: Call
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Hold:
    """A call that could run now, but needs a decision by a person first (SPEC R14.1)."""

    call: Call
    parameters: Mapping[str, Any]
    snapshot: Snapshot
    doubt: Doubt | None = None
    """Why the call is held, if it is because of untrusted data (SPEC R16.4)."""
    until_ms: int | None = None
    """The moment at which the call ends, if it waits for that and for no person (SPEC R4.12)."""
    evidence: Evidence | None = None
    """The evidence, if the call was begun and its end is not known (SPEC R4.11)."""
    rule: str = ""
    """The rule of the run that approves the call at once (SPEC R16.8)."""
    rules: str | None = None
    """The entry that had changed the run's rules last, empty where none had, if a rule could have approved the call."""

    @property
    def event(self) -> CallHeld:
        """What the log is to say."""
        return CallHeld(self.call.index, self.snapshot, self.doubt, self.until_ms, self.evidence, self.rule)


@dataclass(frozen=True, slots=True)
class FanOut:
    """A call that runs once for each element; this is recorded before any element begins (SPEC R4.10)."""

    call: Call
    parameters: Mapping[str, Any]
    snapshot: Snapshot

    @property
    def elements(self) -> int:
        """Number of elements."""
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
    """Cost of asking models for it (see `Success`)."""
    value: Any = None
    """Result of an element; the call writes all results together."""
    is_rescued: bool = False
    """Whether the call failed and wrote its error to the last of its alternatives (SPEC R4.4)."""
    labels: Labels = TRUSTED
    """Sources of what the call read and of its result (SPEC R16.2)."""
    chosen: Labels = TRUSTED
    """Sources that had a say in whether the call ran."""
    answered: ToolTrust = NOTHING
    """Sources that came with the answer of an element."""

    @property
    def said(self) -> Labels:
        """Sources that the call's code named."""
        return TRUSTED.union(*(message.get(TRUST) or () for message in self.messages))

    def marked(self, written: WrittenMarks) -> Outcome:
        """The outcome with its sources added to the messages (SPEC R16.2)."""
        if not (marks := written.marks):
            return self
        messages = tuple(_said(message, written) for message in self.messages)
        return replace(self, messages=messages, labels=marks.labels)

    @property
    def events(self) -> Iterator[WriteEvent]:
        """Events for the log: one for each message, and the last says how the call ended."""
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
                chosen=self.chosen,
            )
        else:
            said = self.error, self.value, self.cost, self.answered
            yield ElementEnded(call, self.index, self.status, last, *said)


Decision = Start | Hold | FanOut | Outcome
