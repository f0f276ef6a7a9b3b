"""What the log holds of a run's loop (SPEC R13.5), and one step of it as a script (lua/loop.lua).

A loop is a lane of its own. Its entries begin like those of any lane; the others of their fields are `tick`, `m` the
message of a solution, and one for each event (`protocol.engine.loop_events`), whose value is the event's (msgpack).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from ...protocol.engine.costs import Cost
from ...protocol.engine.loop import (
    Answered,
    Approved,
    Asked,
    Loop,
    LoopEnded,
    LoopEvent,
    LoopExtended,
    OutputGrew,
    PartCame,
    Planned,
    Stage,
    Started,
    TickClosed,
    TickError,
    UsageCame,
)
from ..broker.messages import pack, unpack

if TYPE_CHECKING:
    from .entries import Entry

LOOP: Final = "?"
"""The loop's lane. No instance of a request has this name."""


def loop_alarm() -> str:
    """The member of a run's `leases` that says when the time of its loop is over (see loop.lua)."""
    return f"{LOOP}\x1f@due"


_LOOP_EVENTS: Final[Mapping[bytes, type[Any]]] = {
    b"request": Asked,
    b"part": PartCame,
    b"output": OutputGrew,
    b"reported": UsageCame,
    b"answer": Answered,
    b"plan": Planned,
    b"approval": Approved,
    b"start": Started,
    b"closing": TickClosed,
    b"end": LoopEnded,
    b"extension": LoopExtended,
}
_FIELDS: Final = {kind: field.decode() for field, kind in _LOOP_EVENTS.items()}


def read_loop_events(entry: Mapping[bytes, bytes], message: Mapping[str, Any] | None) -> tuple[LoopEvent, ...]:
    """What an entry of a loop's lane says has happened, in order; `message` is the entry's."""
    return tuple(_read(kind, unpack(entry[field]), message) for field, kind in _LOOP_EVENTS.items() if field in entry)


def _read(kind: type[Any], said: dict[str, Any], message: Mapping[str, Any] | None) -> LoopEvent:
    if kind in (Answered, Started):
        said["errors"] = tuple(TickError(**error) for error in said["errors"])
    if kind is Answered:
        said["message"] = message
    event: LoopEvent = kind(**{part.name: said[part.name] for part in fields(kind) if part.name in said})
    return event


def _packed(event: LoopEvent) -> bytes:
    """An event as the log has it, without what it need not say."""
    kind, said = type(event), dict[str, Any]()
    for part in fields(event):
        value = getattr(event, part.name)
        if part.default is MISSING or value != part.default:
            said[part.name] = value
    if kind in (Answered, Started):
        said["errors"] = [{name.name: getattr(error, name.name) for name in fields(error)} for error in said["errors"]]
    if kind is Answered:
        del said["message"]
    return pack(said)


def follow(loop: Loop, entry: Entry) -> Loop:
    """The loop behind an entry of its run's log. Raises `BrokenLog`."""
    for event in entry.loop:
        loop = loop.apply(event)
    return loop.charge(Cost.read(entry.cost), entry.cost.get("calls", 0)) if entry.cost is not None else loop


@dataclass(slots=True)
class LoopStep:
    """What a loop has decided by its log as it was read, to be written in one step: events of its own, and what comes
    of them in the lanes of calls. What changes in the run's state by it follows from the events.
    """

    loop: Loop
    """By which it was decided."""
    seen: str
    """The last id of the log by which it was decided."""
    woken: Sequence[str] = ()
    """Lanes in which there is something to do."""
    added: int = 0
    """How many calls are new."""
    gathers: Sequence[tuple[str, int]] = ()
    """New `_gather` calls, each with the number of lanes in which it waits."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """What its messages show, by the digests."""
    alarm_ms: int | None = None
    """When the loop is to be looked at again, though nothing comes."""
    after: Loop = field(init=False)
    """What it has come to with the step."""
    entries: list[tuple[str, list[str | bytes]]] = field(default_factory=list)
    """By lane, in order."""
    _events: list[LoopEvent] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.after = self.loop

    def note(self, *events: LoopEvent) -> None:
        """Add an entry of the loop's own. Raises `BrokenLog` for an event that cannot come next."""
        entry: list[str | bytes] = ["tick", str(self.after.tick.number)]
        for event in events:
            if isinstance(event, Answered):
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
        return self.loop.stage is Stage.ENDED and self.after.stage is not Stage.ENDED

    def to_request(self, published_ms: int, most_bytes: int, *, refuses: bool = False) -> dict[str, Any]:
        """As the script takes it; `refuses` a step by which the run would have written more than it may."""
        kinds, end, waits = {type(event) for event in self._events}, self.after.ended, Stage.PLANNED
        charges = not kinds.isdisjoint({PartCame, Answered, LoopEnded})
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
            "alone": TickClosed in kinds,
            "pauses": self.after.stage is waits and self.loop.stage is not waits,
            "alarm": self.alarm_ms,
            "spent": str(self.after.claimed.tokens) if charges else None,
            "spent_money": str(self.after.claimed.nanodollars) if charges else None,
            "cost": json.dumps(self.after.cost.to_dict()) if charges or TickClosed in kinds else None,
            "published_ms": published_ms,
            "most_bytes": most_bytes,
            "refuses": refuses,
        }
