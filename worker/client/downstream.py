"""What stands behind some calls, over all lanes of a run: what waits for them, one through another (SPEC R11.8)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from acts_celery.protocol.graph.graph import Graph
from acts_celery.worker.storage.definition import LaneRecord
from acts_celery.worker.storage.lane import RunView
from acts_celery.worker.storage.lane_state import LaneState

Calls = Mapping[str | None, set[int]]
"""Calls of each lane."""


def behind(view: RunView, lanes: Sequence[LaneState], start: Calls, among: Calls) -> dict[str | None, set[int]]:
    """Some calls, and those `among` others that stand behind them. The global lane is the first."""
    found = {lane.instance: set(start[lane.instance]) for lane in lanes}
    shared = found[None]
    before = -1
    while before != (before := sum(map(len, found.values()))):
        for lane in lanes:
            own = found[lane.instance]
            if own or shared:
                own |= within(view, lane, own | shared, among[lane.instance] - own)
        gathers = {index for index in among[None] - shared if is_gather(view, index)}
        for lane in lanes[1:] if gathers else ():
            shared |= set(gathering(view, lane, gathers, found[lane.instance]))
    return found


def within(view: RunView, lane: LaneState, start: set[int], among: set[int]) -> set[int]:
    """Those of the calls of one lane that stand behind some, also global ones."""
    found = set[int]()
    for record in lane.records or [LaneRecord()] if among else ():
        work = view.work(record, lane.instance)
        found |= _behind(work.graph, start | found, among - work.replaced)
    return found


def gathering(view: RunView, lane: LaneState, gathers: Collection[int], calls: Collection[int]) -> Iterator[int]:
    """Those of some gather calls that wait for some calls in the lane of an instance (SPEC R10.4)."""
    found = view.work(lane.record, lane.instance).gathers if calls else None
    for index in found.waiting if found is not None else ():
        if index in gathers and found is not None and not found.graph.behind([index]).isdisjoint(calls):
            yield index


def is_gather(view: RunView, index: int) -> bool:
    """Whether a global call reads in every instance (SPEC R10.4)."""
    return any(call.gather and call.index == index for call in view.calls)


def _behind(graph: Graph, start: set[int], among: set[int]) -> set[int]:
    touched = set(start)
    for node in graph.in_order():
        if (node < 0 or node in among) and not touched.isdisjoint(graph.directly_before(node)):
            touched.add(node)
    return touched & among
