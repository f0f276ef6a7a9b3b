"""Where a value of a run came from, and why nobody was asked about the calls that wrote it; or why there is none: which
calls were to write it, what became of them, and what was meant instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Final

from ...protocol.analysis.provenance import Explanation, Logged, Waiver, Writer, explain, unasked
from ...protocol.calls.call import Call
from ...protocol.engine.events import CallStatus, Status
from ...protocol.errors import Speller
from ...protocol.plan.places import Places, WrittenPlaces
from ...protocol.references import Reference
from ...protocol.state.fold import Fold
from .. import limits
from ..broker.attempts import call_name
from ..store.definition import StoredPlan
from ..store.entries import Entry, effective_entries
from ..store.run_store import RunStore
from ..store.scripts import iso_date
from ..store.state import LaneState, RunState
from ..store.waiting import missing_in, read_waiting

# Origins of a value, with what the run's definition says of the calls that wrote it.


def explanation(
    definition: StoredPlan, entries: Sequence[Entry], place: Reference, *, instance: str | None
) -> Explanation:
    """Find the origins of the value that a reader in an instance, or a global one, sees at a place, by the entries of
    its lanes in order.
    """
    run = RunState(definition)
    run.feed(entries)
    logged = [Logged(entry.id, entry.message or {}, entry.call) for entry in effective_entries(entries)]
    waive = partial(why_unasked, run)
    return explain(place, logged, instance=instance, tools=definition.tools, waive=waive)


def why_unasked(run: RunState, writer: Writer, fold: Fold) -> tuple[Waiver, ...]:
    """Find why nobody was asked about a call, by what it read in the fold (SPEC R16.8); nothing where somebody was. A
    rule of the run is not among that: the state of the call has it.
    """
    lane, index = run.lane(writer[0]), writer[1] if writer[1] is not None else -1
    call, state = lane.known.get(index), lane.call(index)
    if call is None or (state.held is not None and not state.rule):
        return ()
    tool = run.definition.tools.get(call.tool) or run.definition.returns.get(call.runner.name)
    calls, is_of_server = {**run.shared.known, **lane.known}.values(), tool is not None and tool.is_of_server
    trust = run.definition.trust_of
    return unasked(call, fold, calls, trust, is_of_server=is_of_server, is_ruled=bool(state.rule))


# Absence: why nothing is there.

_OPEN: Final = (Status.WAITING.value, Status.RUNNING.value, Status.HELD.value, Status.UNKNOWN.value)
_WENT_ELSEWHERE: Final = "it wrote to another of its places"
_WAITS_FOR_A_PERSON: Final = "it waits for a person: see `acts held`"
_IS_THERE: Final = "it is there, in this instance only: ask with --instance"
_HAS_NO_PART: Final = "what it wrote has no such part"


@dataclass(frozen=True, slots=True)
class AbsentWriter:
    """A call that was to write a place, and what became of it."""

    index: int
    tool: str
    instance: str | None
    status: CallStatus
    places: tuple[str, ...]
    reason: str | None
    error: Mapping[str, Any] | None
    needed_by: int | None = None
    """The call that lacks what this one was to write; None where it is the place itself that was asked for."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self) | {"places": list(self.places)}


@dataclass(frozen=True, slots=True)
class Absence:
    """Why nothing is at a place."""

    writers: tuple[AbsentWriter, ...]
    near: str | None
    """A place where something is, or is to be written, that was probably meant."""
    instances: tuple[str, ...]
    """Instances that have a value there, where a global reader asks; some of them."""
    is_promised: bool = False
    """Whether a schema has promised it, and calls wait for it."""
    priority: int = 0
    """The priority of the run, if calls that write the place have not ended."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        found = asdict(self)
        promised = {"promised": True} if found.pop("is_promised") else {}
        priority = {"priority": self.priority} if found.pop("priority") else {}
        return found | promised | priority


def absence(
    definition: StoredPlan, store: RunStore, place: Reference, *, instance: str | None, at: str | None
) -> Absence:
    """Say why a reader in an instance, or a global one, finds nothing at a place, now or as of an id.

    Raises `RedisError`.
    """
    run = RunState(definition, at=at)
    run.feed(store.lane(None))
    lanes = [run.shared]
    if instance is not None:
        run.feed(store.lane(instance))
        lanes.append(run.lane(instance))
    fold = lanes[-1].fold
    at_work = store.at_work().keys() if at is None else frozenset()
    calls = [call for lane in lanes for call in lane.known.values()]
    near = Places([fold], [WrittenPlaces(calls)], Speller(likeness=limits.ABSENCE_LIKENESS)).nearest(place)
    having = list[LaneState]()
    for name in islice(store.instances(), limits.ABSENCE_MOST_INSTANCES) if instance is None else ():
        run.feed(store.lane(name))
        if (lane := run.lane(name)).fold.exists(place) or any(_writing(lane, place)):
            having.append(lane)
    writers = tuple(islice(_writers(having[:1] or lanes, place, at_work), limits.MOST_WRITERS))
    is_open = at is None and any(writer.status in _OPEN for writer in writers)
    if is_open:
        waits = {one.call: one.reason for one in reversed(read_waiting(store, run))}
        writers = tuple(
            replace(writer, reason=waits.get(call_name(writer.index, writer.instance), waits.get(None, writer.reason)))
            if writer.status in _OPEN
            else writer
            for writer in writers
        )
    return Absence(
        writers=writers,
        near=str(near) if near is not None else None,
        instances=tuple(str(lane.instance) for lane in having if lane.fold.exists(place)),
        is_promised=any(one.overlaps(place) for lane in lanes for one in missing_in(lane, run)),
        priority=store.priority() if is_open else 0,
    )


def _writing(lane: LaneState, place: Reference) -> Iterator[Call]:
    """List the calls that were to write at a place, above or below it."""
    return (call for call in lane.known.values() if any(one.overlaps(place) for one in call.written))


def _writers(
    lanes: Sequence[LaneState], place: Reference, at_work: Collection[tuple[str | None, int]]
) -> Iterator[AbsentWriter]:
    """Yield the writers of a place, then those of what these were skipped for or wait for, breadth first."""
    wanted: list[tuple[Reference, int | None]] = [(place, None)]
    seen = set[tuple[str | None, int]]()
    for asked, needed_by in wanted:
        for lane in lanes:
            for call in _writing(lane, asked):
                if (lane.instance, call.index) in seen:
                    continue
                seen.add((lane.instance, call.index))
                writer = _writer(lane, call, asked, needed_by)
                if (lane.instance, call.index) in at_work:
                    writer = replace(writer, status=Status.RUNNING.value)
                yield writer
                if writer.status in (Status.SKIPPED.value, Status.WAITING.value):
                    wanted += [(one, call.index) for one in call.read if not lanes[-1].fold.exists(one)]


def _writer(lane: LaneState, call: Call, place: Reference, needed_by: int | None) -> AbsentWriter:
    end = lane.end(call.index)
    status, reason = (end.status, end.reason) if end is not None else (Status.WAITING, None)
    state = lane.call(call.index)
    if state.is_set_aside:
        until = f"it ends at {iso_date(state.until_ms or 0)}"
        status, reason = (state.status, _WAITS_FOR_A_PERSON) if state.is_held else (status, until)
    if status is Status.DONE:
        has_written = any(lane.fold.exists(one) for one in call.written if one.overlaps(place))
        reason = _IS_THERE if lane.fold.exists(place) else _HAS_NO_PART if has_written else _WENT_ELSEWHERE
    error = end.error if end is not None else None
    places = tuple(map(str, call.written))
    return AbsentWriter(call.index, call.tool, lane.instance, status.value, places, reason, error, needed_by)
