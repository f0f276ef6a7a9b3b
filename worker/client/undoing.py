"""What a retry undoes: the failed calls that were chosen, and what was skipped for them, over all lanes of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from acts_celery.protocol.engine.statuses import Status
from acts_celery.protocol.graph.graph import Graph
from acts_celery.worker.storage.definition import LaneRecord, Layer, pack_amended_lane
from acts_celery.worker.storage.lane import RunView
from acts_celery.worker.storage.lane_state import LaneState
from acts_celery.worker.wire.attempts import call_name


@dataclass(slots=True)
class EndedLane:
    """A lane, and what is to be undone in it."""

    state: LaneState
    failed: set[int] = field(default_factory=set)
    """The failed calls that were chosen."""
    undone: set[int] = field(default_factory=set)
    """They, and what was skipped for them."""

    @property
    def instance(self) -> str | None:
        """Whose lane it is."""
        return self.state.instance


def spread(view: RunView, lanes: Sequence[EndedLane]) -> None:
    """Add what was skipped for what is undone, from lane to lane until there is no more of it."""
    shared = lanes[0]
    before = -1
    while before != (before := sum(len(lane.undone) for lane in lanes)):
        for lane in lanes:
            if lane.undone or shared.undone:
                _spread_within(view, lane, shared.undone)
        skipped = shared.state.of_status(Status.SKIPPED) - shared.undone
        for lane in lanes[1:] if any(is_gather(view, index) for index in skipped) else ():
            shared.undone |= set(gathering(view, lane, skipped)) if lane.undone else set()


def _spread_within(view: RunView, lane: EndedLane, shared: set[int]) -> None:
    skipped = lane.state.of_status(Status.SKIPPED) - lane.undone
    for record in lane.state.records or [LaneRecord()] if skipped else ():
        work = view.work(record, lane.instance)
        lane.undone |= _behind(work.graph, lane.undone | shared, skipped - work.replaced)


def _behind(graph: Graph, undone: set[int], skipped: set[int]) -> set[int]:
    """The skipped calls that wait for what is undone, one through another."""
    touched = set(undone)
    for node in graph.in_order():
        if (node < 0 or node in skipped) and not touched.isdisjoint(graph.directly_before(node)):
            touched.add(node)
    return touched & skipped


def gathering(view: RunView, lane: EndedLane, calls: set[int]) -> Iterator[int]:
    """Those of some gather calls that wait for what is undone in a lane."""
    gathers = view.work(lane.state.record, lane.instance).gathers
    for index in gathers.waiting if gathers is not None else ():
        if index in calls and gathers is not None and not lane.undone.isdisjoint(gathers.graph.behind([index])):
            yield index


def is_gather(view: RunView, index: int) -> bool:
    """Whether a global call reads in every instance (SPEC R10.4)."""
    return any(call.gather and call.index == index for call in view.calls)


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
