"""An entry of a run's log, read: its event, and the fields beside it (see `fields`).

Ids are given by the server, so they order everything that happened in the run.
The stream is the truth; `calls` only makes commits exactly-once, `lanes` and the counters only spare reading it all.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Final, NamedTuple

from ...protocol.calls.call import element_index
from ...protocol.calls.trust import ToolTrust
from ...protocol.engine import events
from ...protocol.engine import loop as loops
from ...protocol.engine.costs import Cost
from ...protocol.run_rules import RunRule
from ...protocol.trust import Doubt
from ..broker.attempts import Seen, read_progress
from ..broker.messages import pack, unpack
from .held_calls import AuditRecord, Shown, unpack_hold, unpack_ruling
from .keys import LOOP, Field, Fields

# The time that a call took: the field `t` of the details of its end.
#
# When a call ended is in the id of the entry that ends it. What ids do not tell is written beside it: for how long the
# last attempt was at work, and which attempt that was, where it was not the first.


@dataclass(frozen=True, slots=True)
class CallTiming:
    """How long a call was at work, and in how many attempts."""

    took_ms: int | None
    """How long its last attempt was at work; None where its worker was lost, or a child run has answered it."""
    attempts: int = 1

    def pack(self) -> int | list[int | None] | None:
        """Write the value of the field `t`, in as few bytes as will do."""
        return self.took_ms if self.attempts == 1 else [self.took_ms, self.attempts]

    @classmethod
    def read(cls, packed: Any) -> CallTiming | None:
        """Read the field `t`; None where it holds nothing that `pack` writes: a log may be imported."""
        match packed:
            case int(took_ms) if took_ms >= 0:
                return cls(took_ms)
            case [None | int() as took_ms, int(attempts)] if (took_ms or 0) >= 0 and attempts > 1:
                return cls(took_ms, attempts)
        return None


ENTRY_ID: Final = re.compile(r"\d{1,20}-\d{1,20}\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class RunStatusChanged:
    """The run's status has changed; such an entry belongs to no lane."""

    status: str
    reason: str | None = None
    """Why it has ended, where it took more than a run may."""


class Entry(NamedTuple):
    """One entry of a run's log."""

    id: str
    event: events.Event | RunStatusChanged | None = None
    """The event; None where the entry has only a lane's record, an audit record, or events of a loop."""
    is_of_lane: bool = True
    """Whether the entry belongs to a lane, or else to the run."""
    instance: str | None = None
    message: Mapping[str, Any] | None = None
    """The message of the event, or of a loop's solution."""
    record: bytes | None = None
    """The work in the lane from now on (see `definition`)."""
    amendment: bytes | None = None
    elements: int = 0
    """For how many elements a call is run since this entry (SPEC R4.10)."""
    spent: CallTiming | None = None
    """How long the call took that has ended with this entry, where it was run."""
    code: int | None = None
    """The number of who has run it, with which version of the code (`scripts.ExecutedBy`)."""
    seen: Seen | None = None
    """The moment of the log that the delegate, or model, of the ended call was shown."""
    by: str | None = None
    """The actor that has ended the call by hand, or had calls tried again."""
    audit: AuditRecord | None = None
    """Who did what, where the entry was written on order from outside."""
    tick: int | None = None
    """The number of a loop's tick; such an entry belongs to the loop's lane, and to no instance."""
    loop: tuple[loops.LoopEvent, ...] = ()
    """The events of a loop, in order."""
    size: int = 0
    """The bytes of its fields."""

    @property
    def replaces_plan(self) -> bool:
        """Whether the entry has a new record of its lane."""
        return self.record is not None or type(self.event) is events.CallsUndone

    @property
    def kind(self) -> str | None:
        """The kind of event of a call, or an element, by the name that readers know; None where there is none, or
        where a call waits for a moment: no person is asked about it. A call that a rule approves is decided at once.
        """
        if self.given is not None and self.ruling is not None:
            return events.CallDecided.kind
        is_timed = getattr(self.event, "until_ms", None) is not None
        has_come = isinstance(self.event, events.CallDecided) and self.audit is None
        return None if is_timed or has_come else getattr(self.event, "kind", None)

    @property
    def call(self) -> int | None:
        """The call that the event is about."""
        return getattr(self.event, "call", None)

    @property
    def status(self) -> events.Status | None:
        """The status of the call since this entry; None where the entry does not change it. A waiting call may run."""
        event = self.event
        return None if isinstance(event, RunStatusChanged | events.ElementEnded) else getattr(event, "status", None)

    @property
    def end(self) -> events.CallEnded | None:
        """The event, where a call has ended."""
        return self.event if isinstance(self.event, events.CallEnded) else None

    @property
    def element_end(self) -> events.ElementEnded | None:
        """The event, where an element has ended."""
        return self.event if isinstance(self.event, events.ElementEnded) else None

    @property
    def undone(self) -> events.CallsUndone | None:
        """The event, where calls run again."""
        return self.event if isinstance(self.event, events.CallsUndone) else None

    @property
    def given(self) -> events.Snapshot | None:
        """The parameters and scopes with which the call waits for a person, or runs for each."""
        return getattr(self.event, "snapshot", None)

    @property
    def ruling(self) -> events.Ruling | None:
        """The decision on the call, by a person or because its time was over."""
        return getattr(self.event, "ruling", None)

    @property
    def child(self) -> str | None:
        """The run that was started to answer the call."""
        return getattr(self.event, "run", None)

    @property
    def cost(self) -> Mapping[str, Any] | None:
        """The cost of asking models for the call, or element, that has ended."""
        return getattr(self.event, "cost", None)

    @property
    def run_status(self) -> str | None:
        """The new status of the run."""
        return self.event.status if isinstance(self.event, RunStatusChanged) else None


class _Said(NamedTuple):
    """The parts of an entry from which its event is made."""

    value: bytes
    """The value of the field that says which event it is."""
    fields: Fields
    call: int
    message: Mapping[str, Any] | None
    detail: Mapping[str, Any]
    hold: Shown | None
    id: str = ""


def _call_ended(said: _Said) -> events.CallEnded:
    detail, ruling = said.detail, said.fields.get(Field.DECIDED)
    return events.CallEnded(
        said.call,
        events.Status(said.value.decode()),
        said.message,
        error=detail.get("error"),
        reason=detail.get("reason"),
        cost=detail.get("cost"),
        missed=tuple(detail.get("missed", ())),
        ruling=unpack_ruling(ruling) if ruling is not None else None,
        is_rescued="rescued" in detail,
        labels=frozenset(detail.get("labels", ())),
        chosen=frozenset(detail.get("chosen", ())),
    )


def _element_ended(said: _Said) -> events.ElementEnded:
    element, _, status = said.value.decode().partition(":")
    detail = said.detail
    return events.ElementEnded(
        said.call,
        element_index(said.call, int(element)),
        events.Status(status),
        said.message,
        error=detail.get("error"),
        value=detail.get("value"),
        cost=detail.get("cost"),
        answered=ToolTrust.read(detail.get("answered")),
    )


def _listed(said: _Said, name: bytes) -> tuple[int, ...]:
    return tuple(unpack(said.fields[name])) if name in said.fields else ()


def _snapshot(said: _Said) -> Any:
    assert said.hold is not None
    return said.hold.snapshot


def _held_for(said: _Said) -> tuple[Doubt | None, int | None, events.Evidence | None]:
    assert said.hold is not None
    return said.hold.doubt, said.hold.until_ms, said.hold.evidence


def _begun(said: _Said) -> events.CallBegun:
    assert said.hold is not None
    evidence, attempt = said.hold.evidence or events.Evidence(""), int(said.fields.get(Field.ATTEMPT, b"0"))
    return events.CallBegun(said.call, _snapshot(said), replace(evidence, attempt=attempt, since_ms=moment_ms(said.id)))


_EVENTS: Final[Mapping[bytes, Callable[[_Said], events.Event]]] = {
    Field.ENDED: _call_ended,
    Field.ELEMENT: _element_ended,
    Field.BEGUN: _begun,
    Field.HELD: lambda said: events.CallHeld(
        said.call, _snapshot(said), *_held_for(said), said.fields.get(Field.RULED, b"").decode()
    ),
    Field.RULE: lambda said: events.RuleGiven(RunRule.read(unpack(said.value))),
    Field.REVOKED: lambda said: events.RuleRevoked(said.value.decode()),
    Field.MOVED: lambda said: events.WaitMoved(said.call, int(said.value)),
    Field.DECIDED: lambda said: events.CallDecided(said.call, unpack_ruling(said.value)),
    Field.FAN_OUT: lambda said: events.FanOutBegun(said.call, _snapshot(said)),
    Field.CHILD: lambda said: events.ChildStarted(said.call, said.value.decode()),
    Field.GIVEN_BACK: lambda said: events.CallGivenBack(said.call, said.value.decode()),
    Field.PROGRESS: lambda said: events.CallProgressed(said.call, read_progress(said.value) or events.Progress()),
    Field.UNDONE: lambda said: events.CallsUndone(
        tuple(unpack(said.value)), _listed(said, Field.KEEPING), _listed(said, Field.STALE)
    ),
    Field.GAVE_UP: lambda said: events.PromisesGivenUp(),
}
"""The readers of events, by the first field of an entry that is here; an entry with only a message adds it."""


def read_entry(id_: bytes, fields: Fields) -> Entry:
    """An entry, from what Redis returns."""
    message = unpack(fields[Field.MESSAGE]) if Field.MESSAGE in fields else None
    audit = AuditRecord.unpack(fields[Field.AUDIT]) if Field.AUDIT in fields else None
    detail = unpack(fields[Field.DETAIL]) if Field.DETAIL in fields else {}
    size = sum(map(len, fields.values()))
    lane = fields.get(Field.LANE)
    if lane is None:
        status = fields.get(Field.STATUS, fields.get(Field.ENDED))  # the stream of statuses has it under the latter
        event = RunStatusChanged(status.decode(), detail.get("reason")) if status is not None else None
        return Entry(id_.decode(), event, is_of_lane=False, message=message, audit=audit, size=size)
    if (tick := fields.get(Field.TICK)) is not None:
        events = read_loop_events(fields, message)
        return Entry(id_.decode(), message=message, audit=audit, tick=int(tick), loop=events, size=size)
    held = fields.get(Field.HELD) or fields.get(Field.FAN_OUT) or fields.get(Field.BEGUN)
    hold = unpack_hold(held) if held is not None else None
    return Entry(
        id_.decode(),
        _event(id_, fields, message, detail, hold),
        instance=lane.decode() or None,
        message=message,
        record=fields.get(Field.RECORD),
        amendment=fields.get(Field.AMENDMENT),
        elements=hold.elements if hold is not None and Field.FAN_OUT in fields else 0,
        spent=CallTiming.read(detail.get("t")) if detail else None,
        code=int(code) if (code := fields.get(Field.CODE)) is not None else None,
        seen=_seen(detail.get("seen")),
        by=detail.get("by"),
        audit=audit,
        size=size,
    )


def _event(
    id_: bytes, fields: Fields, message: Mapping[str, Any] | None, detail: Mapping[str, Any], hold: Shown | None
) -> events.Event | None:
    call = fields.get(Field.CALL)
    for name, value in fields.items():
        if (read := _EVENTS.get(name)) is not None:
            number = int(call) if call is not None else -1
            return read(_Said(value, fields, number, message, detail, hold, id_.decode()))
    return events.MessageAdded(message, int(call) if call is not None else None) if message is not None else None


def _seen(said: Any) -> Seen | None:
    """Read `seen`; None where it holds nothing that a worker writes: a log may be imported."""
    match said:
        case [str(own), str(shared)] if ENTRY_ID.match(own) and ENTRY_ID.match(shared):
            return own, shared
    return None


def read_flat(id_: bytes, flat: Sequence[bytes]) -> Entry:
    """An entry, its fields and values in one list as a script gives them."""
    return read_entry(id_, dict(zip(flat[::2], flat[1::2], strict=True)))


def id_key(id_: str) -> tuple[int, int]:
    """The order of ids."""
    milliseconds, _, sequence = id_.partition("-")
    return int(milliseconds), int(sequence)


def moment_ms(id_: str) -> int:
    """The server's time in an id, in ms."""
    return int(id_.partition("-")[0])


# What counts no more of calls that were run again: their events, and what they had written (SPEC R11.8).


def effective_entries(entries: Iterable[Entry]) -> list[Entry]:
    """Choose, of the entries of lanes in order, those whose message counts after the last of them."""
    found: list[Entry | None] = []
    written = defaultdict[tuple[str | None, int | None], list[int]](list)
    for entry in entries:
        if entry.undone is not None:
            for call in entry.undone.calls:
                for position in written.pop((entry.instance, call), ()):
                    found[position] = None
        elif entry.message is not None and entry.is_of_lane:
            written[entry.instance, entry.call].append(len(found))
            found.append(entry)
    return [entry for entry in found if entry is not None]


def with_effective_events(entries: Sequence[Entry]) -> Iterator[Entry]:
    """The entries of a lane, without the events that count no more."""
    for entry, counts in zip(entries, events.effective_events([entry.event for entry in entries]), strict=True):
        yield entry if counts else entry._replace(event=None)


# The loop of a run in its log (SPEC R13.5), and one step of it as a script (lua/loop.lua).
#
# A loop is a lane of its own. Its entries begin like those of any lane; the others of their fields are `tick`, `m` the
# message of a solution, and one for each event (`protocol.engine.loop`), whose value is the event's (msgpack).


def loop_alarm() -> str:
    """The member of a run's `leases` that says when the time of its loop is over (see loop.lua)."""
    return f"{LOOP}\x1f@due"


_LOOP_EVENTS: Final[Mapping[bytes, type[Any]]] = {
    b"request": loops.RequestRecorded,
    b"part": loops.PartCame,
    b"output": loops.OutputGrew,
    b"reported": loops.UsageCame,
    b"answer": loops.Answered,
    b"plan": loops.Planned,
    b"approval": loops.Approved,
    b"start": loops.Started,
    b"closing": loops.TickClosed,
    b"end": loops.LoopEnded,
    b"extension": loops.LoopExtended,
}
_FIELDS: Final = {kind: field.decode() for field, kind in _LOOP_EVENTS.items()}


def read_loop_events(entry: Mapping[bytes, bytes], message: Mapping[str, Any] | None) -> tuple[loops.LoopEvent, ...]:
    """Read the events of an entry in a loop's lane, in order; `message` is the entry's."""
    return tuple(_read(kind, unpack(entry[field]), message) for field, kind in _LOOP_EVENTS.items() if field in entry)


def _read(kind: type[Any], said: dict[str, Any], message: Mapping[str, Any] | None) -> loops.LoopEvent:
    if kind in (loops.Answered, loops.Started):
        said["errors"] = tuple(loops.TickError(**error) for error in said["errors"])
    if kind is loops.Answered:
        said["message"] = message
    if kind is loops.RequestRecorded:
        said["quotes"] = loops.read_quotes(said.get("quotes", ()), len(said["messages"]))
    event: loops.LoopEvent = kind(**{part.name: said[part.name] for part in fields(kind) if part.name in said})
    return event


def _packed(event: loops.LoopEvent) -> bytes:
    """An event as the log has it, without what it need not say."""
    kind, said = type(event), dict[str, Any]()
    for part in fields(event):
        value = getattr(event, part.name)
        if part.default is MISSING or value != part.default:
            said[part.name] = value
    if kind in (loops.Answered, loops.Started):
        said["errors"] = [{name.name: getattr(error, name.name) for name in fields(error)} for error in said["errors"]]
    if kind is loops.Answered:
        del said["message"]
    return pack(said)


def follow(loop: loops.Loop, entry: Entry) -> loops.Loop:
    """The loop behind an entry of its run's log. Raises `BrokenLog`."""
    for event in entry.loop:
        loop = loop.apply(event)
    return loop.charge(Cost.read(entry.cost), entry.cost.get("calls", 0)) if entry.cost is not None else loop


@dataclass(slots=True)
class LoopStep:
    """The decisions of a loop by its log as it was read, to be written in one step: events of its own, and what comes
    of them in the lanes of calls. What changes in the run's state by it follows from the events.
    """

    loop: loops.Loop
    """The loop before the step."""
    seen: str
    """The last id of the log by which it was decided."""
    woken: Sequence[str] = ()
    """Lanes in which there is something to do."""
    added: int = 0
    """How many calls are new."""
    gathers: Sequence[tuple[str, int]] = ()
    """New `_gather` calls, each with the number of lanes in which it waits."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """The files in its messages, by their digests."""
    alarm_ms: int | None = None
    """When to check the loop again, even if nothing comes."""
    after: loops.Loop = field(init=False)
    """The loop after the step."""
    entries: list[tuple[str, list[str | bytes]]] = field(default_factory=list)
    """By lane, in order."""
    _events: list[loops.LoopEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.after = self.loop

    def note(self, *events: loops.LoopEvent) -> None:
        """Add an entry of the loop's own. Raises `BrokenLog` for an event that cannot come next."""
        entry: list[str | bytes] = ["tick", str(self.after.tick.number)]
        for event in events:
            if isinstance(event, loops.Answered):
                entry += ["m", pack(event.message)]
            entry += [_FIELDS[type(event)], _packed(event)]
            self.after = self.after.apply(event)
        self.entries.append((LOOP, entry))
        self._events += events

    def append(self, lane: str, message: Mapping[str, Any]) -> None:
        """Add a message to a lane."""
        self.entries.append((lane, ["m", pack(message)]))

    @property
    def answers(self) -> bool:
        """Whether the current request has ended with it."""
        return self.loop.is_asking and not self.after.is_asking

    @property
    def reopens(self) -> bool:
        """Whether a loop that had ended goes on by it."""
        return self.loop.stage is loops.Stage.ENDED and self.after.stage is not loops.Stage.ENDED

    def to_request(self, published_ms: int, most_bytes: int, *, refuses: bool = False) -> dict[str, Any]:
        """The script's request; with `refuses` a step that would exceed the bytes of the run is not taken."""
        kinds, end, waits = {type(event) for event in self._events}, self.after.ended, loops.Stage.PLANNED
        charges = not kinds.isdisjoint({loops.PartCame, loops.Answered, loops.LoopEnded})
        return {
            "lane": LOOP,
            "from": self.loop.name,
            "to": self.after.name,
            "seen": self.seen,
            "entries": [[lane, fields] for lane, fields in self.entries],
            "files": [list(pair) for pair in self.files.items()],
            "woken": list(self.woken),
            "added": self.added,
            "gathers": [list(pair) for pair in self.gathers],
            "answered": str(self.loop.request) if self.answers else None,
            "ends": end.status if end is not None else None,
            "fault": (end.reason if end is not None else None) or "",
            "extends": str(self.after.request) if self.reopens else None,
            "alone": loops.TickClosed in kinds,
            "pauses": self.after.stage is waits and self.loop.stage is not waits,
            "alarm": self.alarm_ms,
            "spent": str(self.after.claimed.tokens) if charges else None,
            "spent_money": str(self.after.claimed.nanodollars) if charges else None,
            "cost": json.dumps(self.after.cost.to_dict()) if charges or loops.TickClosed in kinds else None,
            "published_ms": published_ms,
            "most_bytes": most_bytes,
            "refuses": refuses,
        }
