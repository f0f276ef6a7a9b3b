"""What a retry undoes, over all lanes of a run (SPEC R11.8): the failed calls that were chosen, what was skipped for
them, and, where that is asked for, what has read what they may write now; and what that leaves stale.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from acts_celery.protocol.calls.elements import call_of
from acts_celery.protocol.engine.statuses import Status
from acts_celery.protocol.graph.downstream import Joins, Reach
from acts_celery.protocol.graph.gathering import Gathers
from acts_celery.protocol.graph.graph import Graph
from acts_celery.protocol.graph.waits import Waits
from acts_celery.worker.storage.definition import LaneRecord, Layer, pack_amended_lane, writers_of
from acts_celery.worker.storage.gatherings import gathers_among
from acts_celery.worker.storage.lane import RunView
from acts_celery.worker.storage.lane_state import LaneState
from acts_celery.worker.wire.attempts import call_name


@dataclass(slots=True)
class EndedLane:
    """A lane, and what is to be undone in it."""

    state: LaneState
    before: set[int]
    """What a client that has died on the way has undone here."""
    begun: set[int] = field(default_factory=set)
    """The calls at work: what they have read is what was there when they began."""
    failed: set[int] = field(default_factory=set)
    """The failed calls that were chosen, and those of which elements have failed."""
    undone: set[int] = field(default_factory=set)
    """All that are carried out again, or decided anew."""
    keeping: set[int] = field(default_factory=set)
    """Those of them of which only the elements that failed are (SPEC R4.10)."""
    stale: set[int] = field(default_factory=set)
    """Those that have read what may be written otherwise now, and are not carried out again."""

    @property
    def instance(self) -> str | None:
        """Whose lane it is."""
        return self.state.instance

    @property
    def held(self) -> set[int]:
        """The calls that wait for a person, with what they have read."""
        return {index for index, call in self.state.calls.items() if call.is_held}

    @property
    def have_read(self) -> set[int]:
        """The calls that have read what was there, or were decided by it."""
        ended = (index for index, end in self.state.ended.items() if end.status is not Status.LATENT)
        return {*ended, *self.begun, *self.held}

    @property
    def waiting(self) -> set[int]:
        """The calls that have not begun."""
        return {*self.state.open} - self.begun

    @property
    def with_failed_elements(self) -> set[int]:
        """The calls that are done, but for elements that have failed."""
        found = ((index, self.state.call(index).elements) for index in self.state.of_status(Status.DONE))
        return {index for index, elements in found if elements is not None and elements.failed}

    @property
    def rescued(self) -> set[int]:
        """The calls that have failed and have written that to the last of their alternatives."""
        return {index for index, end in self.state.ended.items() if end.is_rescued}

    def parts(self, index: int) -> list[int]:
        """The elements of a call that are undone with it."""
        ended, keeps = self.state.elements(index), index in self.keeping
        return sorted(part for part, status in ended.items() if status is Status.FAILED or not keeps)

    def sent(self, undone: Iterable[int]) -> list[int]:
        """The calls and elements of these that were sent and forgotten themselves."""
        return [one for one in undone if self._is_sent(one)]

    def _is_sent(self, index: int) -> bool:
        call = self.state.call(call_of(index))
        if call.elements is not None:
            return call.elements.statuses.get(index) is Status.SENT
        return call.end is not None and call.end.status is Status.SENT


@dataclass(frozen=True, slots=True)
class Extent:
    """How far a retry goes."""

    downstream: bool = False
    """Also what has read what is written anew, and what is stale from before."""
    effects: bool = False
    """Among that also calls with effects, and what was sent and forgotten."""

    @classmethod
    def named(cls, name: str) -> Self:
        """That of such a name (see `name`)."""
        return cls("--downstream" in name, "--effects" in name)

    @property
    def name(self) -> str:
        """What stands in the run's state as the name of the amendment."""
        return f"retry{' --downstream' * self.downstream}{' --effects' * self.effects}"

    def __or__(self, other: Extent) -> Extent:
        """As far as the one or the other."""
        return Extent(self.downstream or other.downstream, self.effects or other.effects)

    def takes(self, view: RunView, lane: EndedLane) -> set[int]:
        """The calls of a lane that are carried out again where they stand behind one that is."""
        if not self.downstream:
            return lane.state.of_status(Status.SKIPPED)
        return lane.held | {index for index in lane.state.ended if self._takes(view, lane, index)}

    def _takes(self, view: RunView, lane: EndedLane, index: int) -> bool:
        end, call = lane.state.end(index), lane.state.known.get(index)
        if end is None or call is None or end.status is Status.LATENT:
            return False
        if end.status is Status.SKIPPED or self.effects:
            return True
        return end.status is not Status.SENT and not view.definition.has_effects(call)


@dataclass(frozen=True, slots=True)
class Retried:
    """What a retry has done, as ids of calls (see `CallResult`)."""

    calls: tuple[str, ...]
    """The failed calls that are done again, or that count as done with the value given."""
    skipped: tuple[str, ...]
    """The calls that were skipped for them and are decided anew."""
    downstream: tuple[str, ...] = ()
    """The others that are done again, since they have read what may be written otherwise now."""
    stale: tuple[str, ...] = ()
    """The calls that have read that and are not done again."""

    def to_dict(self) -> dict[str, list[str]]:
        """As JSON."""
        return {
            "retried": list(self.calls),
            "reconsidered": list(self.skipped),
            "downstream": list(self.downstream),
            "stale": list(self.stale),
        }


class Undoing:
    """What is undone in a run, and what is stale. The lanes say what was chosen; the global one is the first."""

    def __init__(self, view: RunView, lanes: Sequence[EndedLane], extent: Extent) -> None:
        self.view = view
        self.lanes = lanes
        self.extent = extent
        shared = lanes[0]
        self._gathers = frozenset(call.index for call in view.calls if call.gather)
        """Those that wait in the lanes as they are now: others, which an amendment has left behind, are not undone."""
        self._left_behind = {index for index, call in shared.state.known.items() if call.gather} - self._gathers
        joining = _Joining(view)
        self._joins = {lane.instance: joining.of(lane.state) for lane in lanes}
        self._extend()
        left = self._gathers - (shared.state.ended.keys() - shared.undone) - shared.begun
        self.unsettled = {
            lane.instance: sorted({*self._joins[lane.instance].gathering(left, lane.undone | self._shared)})
            for lane in lanes[1:]
        }
        """The gather calls that have something to wait for again, by the lane in which they have."""

    def _extend(self) -> None:
        """Add to what was chosen what stands behind it, as far as the retry goes, and find what is stale."""
        view, lanes = self.view, self.lanes
        replaced = {lane.instance: view.work(lane.state.record, lane.instance).replaced for lane in lanes}
        again = {lane.instance: self.extent.takes(view, lane) - replaced[lane.instance] for lane in lanes}
        reach = Reach(
            lanes=[*self._joins.values()],
            gathers=self._gathers | self._left_behind,
            again={**again, None: again[None] - self._left_behind},
            readers={lane.instance: lane.have_read - replaced[lane.instance] for lane in lanes},
        )
        chosen = {lane.instance: lane.undone | lane.before for lane in lanes}
        extended = reach.extended(chosen, {lane.instance: lane.keeping for lane in lanes})
        for lane in lanes:
            lane.undone = extended.calls[lane.instance] - lane.before
            lane.keeping = extended.keeping[lane.instance]
            found = extended.stale[lane.instance]
            lane.stale = {index for index in found if not lane.state.call(index).is_stale}

    @property
    def _shared(self) -> set[int]:
        """The global calls that are undone."""
        return self.lanes[0].undone | self.lanes[0].before

    @property
    def unsettled_gathers(self) -> list[str]:
        """All gather calls that have something to wait for again."""
        return [str(index) for index in sorted({index for found in self.unsettled.values() for index in found})]

    def concerns(self, lane: EndedLane) -> bool:
        """Whether anything is to be written in a lane: also that its calls wait for others again."""
        if lane.undone or lane.stale:
            return True
        if lane is self.lanes[0]:
            return bool(self.unsettled_gathers)
        waits = bool(self._shared) and bool(self._joins[lane.instance].within(self._shared, lane.waiting))
        return waits or bool(self.unsettled[lane.instance])

    @property
    def retried(self) -> Retried:
        """What comes of it."""
        skipped, downstream = list[str](), list[str]()
        for lane in self.lanes:
            for index in sorted(lane.undone - lane.failed):
                end = lane.state.end(index)
                is_skipped = end is not None and end.status is Status.SKIPPED
                (skipped if is_skipped else downstream).append(id_of(lane, index))
        failed = (id_of(lane, index) for lane in self.lanes for index in sorted(lane.failed))
        stale = (id_of(lane, index) for lane in self.lanes for index in sorted(lane.stale))
        return Retried(tuple(failed), tuple(skipped), tuple(downstream), tuple(stale))


class _Joining:
    """Finds how lanes hang together, as they are and as they were before amendments."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._shared = tuple(view.state.shared.known.values())
        """Every global call that the run has ever had."""
        self._known: dict[bytes, tuple[Graph, Gathers | None]] = {}
        """By the records that lanes share."""
        self._over: dict[tuple[bytes, ...], Graph] = {}
        """By all records of a lane."""

    def of(self, lane: LaneState) -> Joins:
        """How a lane does."""
        found = [self._read(record, lane.instance) for record in lane.records or [LaneRecord()]]
        if len(self._view.state.shared.records) > 1 and self._view.definition.request is None:
            found.append((self._read_all(lane), None))
        gathers = [gathers for _, gathers in found if gathers is not None]
        return Joins(lane.instance, [graph for graph, _ in found], gathers)

    def _read(self, record: LaneRecord, instance: str | None) -> tuple[Graph, Gathers | None]:
        view, definition = self._view, self._view.definition
        if len(view.state.shared.records) < 2:
            work = view.work(record, instance)
            return work.graph, work.gathers
        if (known := self._known.get(record.data)) is not None:
            return known
        calls, shared = definition.lane_calls(record, instance), self._shared if instance is not None else ()
        graph = definition.graph(calls, record, shared)
        stand_ins = {**view.state.shared.record.stand_ins, **record.stand_ins}
        graph = graph.with_stand_ins(stand_ins) if stand_ins else graph
        gathering = [call for call in shared if call.gather]
        found = graph, gathers_among(definition, gathering, record, calls, shared)
        if definition.are_same_everywhere(record):
            self._known[record.data] = found
        return found

    def _read_all(self, lane: LaneState) -> Graph:
        """What calls have read of those of their lane listed before them, also of such as had ended when they came."""
        key = tuple(record.data for record in lane.records)
        if (known := self._over.get(key)) is not None:
            return known
        definition, own = self._view.definition, tuple(lane.known.values())
        waits = Waits(own, writers_of(own, (), definition.failing(own)))
        found = waits.graph(frozenset(waits.uncertain))
        if all(map(definition.are_same_everywhere, lane.records)):
            self._over[key] = found
        return found


def new_record(view: RunView, lane: EndedLane) -> bytes:
    """The lane's newest record, and with it those of the calls that an amendment has left behind since."""
    records, definition = lane.state.records or [LaneRecord()], view.definition
    left = lane.undone - {call.index for call in definition.lane_calls(records[-1], lane.instance)}
    if not left:
        return records[-1].data or pack_amended_lane(records[-1])
    layers = []
    for record, following in zip(reversed(records[:-1]), reversed(records[1:]), strict=True):
        calls = tuple(call for call in definition.lane_calls(record, lane.instance) if call.index in left)
        left -= {call.index for call in calls}
        first = int((following.amendment or ":0").rpartition(":")[2])
        if calls:
            layers.append(Layer(calls, first, record.held, record.promised, record.required, record.unseen))
    return pack_amended_lane(replace(records[-1], kept=(*records[-1].kept, *layers)))


def status_text(lane: EndedLane, index: int) -> str:
    """How a call stands, for people."""
    end = lane.state.end(index)
    return "not over" if end is None else end.status.value


def id_of(lane: EndedLane, index: int) -> str:
    """The id of a call, as results have it."""
    return call_name(index, lane.instance)
