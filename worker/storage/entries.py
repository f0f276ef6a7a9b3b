"""What an entry of a run's log says (DESIGN "The log").

A run is one stream. An entry that belongs to a lane begins with the fields `l`, the lane, and `p`, the id of the lane's
entry before it, so a lane is read from its end (lua/lane.lua) and costs nothing for the others. The other fields: `m` a
message (msgpack); `c` the call that wrote the entry, with `s` its status where it has ended with it, and `d` details
(msgpack); `k` the lane's own record, in its first entry and wherever it was amended; `a`, beside the global lane's
record, what the lanes share of an amendment; `g`, in the global lane, that what was promised is given up (SPEC R11.6);
`u` calls whose ends before it count no more (msgpack), since they are tried again;
`h` what the call `c` is held with, `j` what was decided of it (msgpack, see `held_calls`); `r` the run that is to
answer it; `f` what the call `c` is carried out with for each element, `i` which element of it has ended with the entry
and how.
An entry with `s` and without a lane is a change of the run's status. `w` says who did it, where that was done from
outside (`audit`); an entry may hold nothing else. The entries of a loop have fields of their own (see `loop_entries`).
Readers pass over fields that they do not know.

Ids are given by the server, so they order everything that happened in the run.
The stream is the truth; `calls` only makes commits exactly-once, `lanes` and the counters only spare reading it all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from acts_celery.protocol.calls.elements import element_index
from acts_celery.protocol.engine.events import (
    CallDecided,
    CallEnded,
    CallHeld,
    CallsUndone,
    ChildStarted,
    ElementEnded,
    Event,
    FanOutBegun,
    MessageAdded,
    PromisesGivenUp,
)
from acts_celery.protocol.engine.execution import Status
from acts_celery.protocol.engine.loop_events import LoopEvent
from acts_celery.worker.messaging.packing import unpack

from .audit import Deed
from .held_calls import unpack_hold, unpack_ruling
from .loop_entries import read_loop_events
from .timings import Spent


@dataclass(frozen=True, slots=True)
class Part:
    """How an element of a call has ended (SPEC R4.10)."""

    index: int
    """Its number (see `protocol.calls.elements`)."""
    status: Status
    value: Any


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a run's log."""

    id: str
    instance: str | None = None
    message: Mapping[str, Any] | None = None
    call: int | None = None
    status: Status | None = None
    """Of the call, where it has ended with this entry."""
    error: Mapping[str, Any] | None = None
    reason: str | None = None
    cost: Mapping[str, Any] | None = None
    """What asking models for the call has cost (see `protocol.engine.execution.Success`)."""
    record: bytes | None = None
    amendment: bytes | None = None
    missed: tuple[str, ...] = ()
    """What was promised, did not come in time, and what the call had to do without."""
    gives_up: bool = False
    """Whether what is promised is not waited for any more."""
    undone: tuple[int, ...] = ()
    """Calls of the lane that had ended and are tried again: their ends before count no more."""
    by: str | None = None
    """Who has done it by hand."""
    snapshot: bytes | None = None
    """What the call is held with since this entry (SPEC R14.2)."""
    ruling: bytes | None = None
    """What was decided of the call."""
    child: str | None = None
    """The run that is to answer the call (SPEC R9.3)."""
    spread: bytes | None = None
    """What the call is carried out with for each element since this entry (SPEC R4.10)."""
    size: int = 0
    """Of its fields, in bytes."""
    part: Part | None = None
    """The element of the call that has ended with this entry."""
    run_status: str | None = None
    """What the run's status changed to; such an entry belongs to no lane."""
    tick: int | None = None
    """Of a loop; such an entry belongs to the loop's lane, and to no instance."""
    loop: tuple[LoopEvent, ...] = ()
    """What has happened to it."""
    deed: Deed | None = None
    """Who did what, where the entry was written on order from outside."""
    spent: Spent | None = None
    """What the call took that has ended with this entry, where it was carried out."""
    is_of_lane: bool = True
    """Whether it belongs to a lane, or else to the run."""

    @property
    def lays_out(self) -> bool:
        """Whether it says anew what is to be done in its lane."""
        return self.record is not None or bool(self.undone)

    @property
    def event(self) -> Event | None:
        """What it says of the calls and messages of its lane, as the core takes it in; None where it says nothing."""
        if self.gives_up:
            return PromisesGivenUp()
        if self.undone:
            return CallsUndone(self.undone)
        if self.call is None:
            return MessageAdded(self.message) if self.message is not None else None
        if self.status is not None:
            ruling = unpack_ruling(self.ruling) if self.ruling is not None else None
            return CallEnded(
                self.call, self.status, self.message, self.error, self.reason, self.cost, self.missed, ruling
            )
        if self.snapshot is not None:
            return CallHeld(self.call, unpack_hold(self.snapshot).snapshot)
        if self.ruling is not None:
            return CallDecided(self.call, unpack_ruling(self.ruling))
        if self.spread is not None:
            return FanOutBegun(self.call, unpack_hold(self.spread).snapshot)
        if (part := self.part) is not None:
            return ElementEnded(self.call, part.index, part.status, self.message, self.error, part.value, self.cost)
        if self.child is not None:
            return ChildStarted(self.call, self.child)
        return MessageAdded(self.message, self.call) if self.message is not None else None


def read_entry(id_: bytes, fields: Mapping[bytes, bytes]) -> Entry:
    """An entry, from what Redis returns."""
    detail = unpack(fields[b"d"]) if b"d" in fields else {}
    is_of_loop = b"t" in fields
    message = unpack(fields[b"m"]) if b"m" in fields else None
    status = fields[b"s"].decode() if b"s" in fields else None
    return Entry(
        id=id_.decode(),
        size=sum(map(len, fields.values())),
        instance=fields[b"l"].decode() or None if b"l" in fields and not is_of_loop else None,
        message=message,
        call=int(fields[b"c"]) if b"c" in fields else None,
        status=Status(status) if status is not None and b"c" in fields else None,
        error=detail.get("error"),
        reason=detail.get("reason"),
        cost=detail.get("cost"),
        record=fields.get(b"k"),
        amendment=fields.get(b"a"),
        missed=tuple(detail.get("missed", ())),
        gives_up=b"g" in fields,
        undone=tuple(unpack(fields[b"u"])) if b"u" in fields else (),
        by=detail.get("by"),
        snapshot=fields.get(b"h"),
        ruling=fields.get(b"j"),
        child=fields[b"r"].decode() if b"r" in fields else None,
        spread=fields.get(b"f") if not is_of_loop else None,  # of a loop it is a part of an answer
        part=_read_part(fields, detail),
        run_status=status if b"l" not in fields else None,
        tick=int(fields[b"t"]) if is_of_loop else None,
        loop=read_loop_events(fields, message) if is_of_loop else (),
        deed=Deed.unpack(fields[b"w"]) if b"w" in fields else None,
        spent=Spent.read(detail.get("t")),
        is_of_lane=b"l" in fields,
    )


def _read_part(fields: Mapping[bytes, bytes], detail: Mapping[str, Any]) -> Part | None:
    if b"i" not in fields:
        return None
    element, status = fields[b"i"].decode().split(":")
    return Part(element_index(int(fields[b"c"]), int(element)), Status(status), detail.get("value"))


def read_flat(id_: bytes, flat: Sequence[bytes]) -> Entry:
    """An entry, its fields and values in one list as a script gives them."""
    return read_entry(id_, dict(zip(flat[::2], flat[1::2], strict=True)))


def standing(entries: Sequence[Entry]) -> Iterator[Entry]:
    """The entries of one lane, without the ends of calls that were undone later and what was decided of them."""
    last = {call: number for number, entry in enumerate(entries) for call in entry.undone}
    if not last:
        yield from entries
        return
    for number, entry in enumerate(entries):
        is_undone = entry.call is not None and number < last.get(entry.call, -1)
        if is_undone:
            entry = replace(entry, status=None, snapshot=None, ruling=None, spread=None, part=None)
        yield entry
