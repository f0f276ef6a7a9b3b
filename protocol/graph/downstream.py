"""What stands behind some calls, over all lanes: what waits for them, one through another (SPEC R6.1, R10.4, R11.8)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from .gathering import Gathers
from .graph import Graph

Lane = str | None
Calls = Mapping[Lane, set[int]]
"""Calls of each lane."""


@dataclass(frozen=True, slots=True)
class Joins:
    """How one lane hangs together."""

    instance: Lane
    graphs: Sequence[Graph]
    """What its calls wait for; several where that was changed."""
    gathers: Sequence[Gathers] = ()
    """What gather calls wait for in it; as above."""

    def within(self, start: set[int], among: set[int]) -> set[int]:
        """Those of its calls, `among` some, that stand behind others, also global ones."""
        found = set[int]()
        for graph in self.graphs if among else ():
            found |= _behind(graph, start | found, among)
        return found

    def gathering(self, gathers: Collection[int], calls: Collection[int]) -> Iterator[int]:
        """Those of some gather calls that wait in the lane for some calls, its own or global ones."""
        for found in self.gathers if calls else ():
            for index in found.waiting:
                if index in gathers and not found.graph.behind([index]).isdisjoint(calls):
                    yield index


def behind(lanes: Sequence[Joins], start: Calls, among: Calls, gathers: Collection[int]) -> dict[Lane, set[int]]:
    """Some calls, and those `among` others that stand behind them. The global lane is the first, the `gathers` are its
    calls that read in every instance.
    """
    found = {lane.instance: set(start[lane.instance]) for lane in lanes}
    shared = found[None]
    before = -1
    while before != (before := sum(map(len, found.values()))):
        for lane in lanes:
            own = found[lane.instance]
            if own or shared:
                own |= lane.within(own | shared, among[lane.instance] - own)
        left = (among[None] - shared).intersection(gathers)
        for lane in lanes[1:] if left else ():
            shared |= {*lane.gathering(left, found[lane.instance] | shared)}
    return found


@dataclass(frozen=True, slots=True)
class Extended:
    """What is carried out again, and what that leaves stale."""

    calls: Calls
    keeping: Calls
    """Those of the calls of which only the elements that failed are (SPEC R4.10)."""
    stale: Calls
    """Those that have read what may be written otherwise now, and are not carried out again."""


@dataclass(frozen=True, slots=True)
class Reach:
    """How far carrying out some calls again reaches, by lane."""

    lanes: Sequence[Joins]
    """The global one first."""
    gathers: Collection[int]
    """The calls that read in every instance."""
    again: Calls
    """The calls that are carried out again where they stand behind one that is."""
    readers: Calls
    """The calls that have read what was there: they are stale where they stand behind one."""

    def extended(self, chosen: Calls, keeping: Calls) -> Extended:
        """What follows where some calls are carried out again, of those `keeping` only the elements that failed."""
        calls = behind(self.lanes, chosen, self.again, self.gathers)
        reached = behind(self.lanes, calls, self.readers, self.gathers)
        anew = behind(self.lanes, _less(calls, keeping), self.readers, self.gathers)
        return Extended(calls, _less(keeping, anew), _less(reached, calls))


def _less(calls: Calls, others: Calls) -> dict[Lane, set[int]]:
    return {lane: found - others[lane] for lane, found in calls.items()}


def _behind(graph: Graph, start: set[int], among: set[int]) -> set[int]:
    touched = set(start)
    for node in graph.in_order():
        if (node < 0 or node in among) and not touched.isdisjoint(graph.directly_before(node)):
            touched.add(node)
    return touched & among
