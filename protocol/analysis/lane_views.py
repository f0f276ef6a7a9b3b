"""Lane views: the calls that a lane sees, its own and global ones, in the order in which they wait (SPEC R6.1, R10).

Lanes that run the same calls by the same graph, and hold the same of what these read, are one view.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.graph.graph import Graph
from acts_celery.protocol.graph.holdings import Holdings
from acts_celery.protocol.graph.lanes import Lane
from acts_celery.protocol.graph.readers import places_read
from acts_celery.protocol.graph.writers import Writers
from acts_celery.protocol.language.references import Reference
from acts_celery.protocol.state.fold import Fold
from acts_celery.protocol.submission.layout import Layout

_MOST_RIVALS: Final = 8
"""Of the calls that write at one place so many are looked at by one that does not wait for them."""


@dataclass(frozen=True, eq=False)
class View:
    """What lanes see that run the same calls by the same graph: their own calls, and the global ones they meet."""

    lanes: tuple[Lane, ...]
    calls: Mapping[int, Call]
    graphs: tuple[Graph, ...]
    nodes: tuple[tuple[int, ...], ...]
    """The calls and barriers of each graph, each after those it waits for."""
    writers: Writers
    fold: Fold
    """The context of the first of the lanes."""
    held: frozenset[Reference]
    """What it holds of the places that are read."""
    shared: Fold

    @cached_property
    def own(self) -> frozenset[int]:
        """The lanes' own calls."""
        return frozenset(call.index for call in self.lanes[0].calls)

    @cached_property
    def position(self) -> Mapping[int, int]:
        """Call -> its place in an order in which each call stands after those it waits for."""
        return {node: position for position, node in enumerate(node for nodes in self.nodes for node in nodes)}

    @cached_property
    def graph_of(self) -> Mapping[int, Graph]:
        """Call -> the graph that says what it waits for."""
        return {
            node: graph for graph, nodes in zip(self.graphs, self.nodes, strict=True) for node in nodes if node >= 0
        }

    def holds(self, index: int, place: Reference) -> bool:
        """Whether the context holds a value at a place, as the call sees it."""
        return place in self.held if index in self.own else self.shared.exists(place)

    def behind(self, index: int) -> View:
        """The same with a call and all that it hangs on alone."""
        wanted, parts = {index}, list[tuple[int, ...]]()
        for graph, nodes in zip(reversed(self.graphs), reversed(self.nodes), strict=True):
            reached = graph.behind(wanted)
            parts.append(tuple(node for node in nodes if node in reached))
            wanted = {node for node in reached if node >= 0}
        calls = {index: call for index, call in self.calls.items() if index in wanted}
        return replace(self, calls=calls, nodes=tuple(reversed(parts)))

    def late_writers(self, index: int, place: Reference) -> list[int]:
        """The calls that write at a place and are listed after its reader, which does not wait for them (SPEC R6.1)."""
        if not self.holds(index, place) and not self.writers.has_earlier(place, than=index):
            return []
        later = (call for line in self.writers.lines(place) for call in _after(line.calls, index))
        return [call for call in dict.fromkeys(later) if call in self.calls]


def views_of(layout: Layout) -> Iterator[View]:
    """What the lanes see, the global one first; lanes that hold the same of what is read are one view."""
    context, lanes = layout.context, layout.lanes
    shared = lanes.get(None, Lane(None, (), Graph({})))
    order = {node: position for position, node in enumerate(shared.graph.in_order())}
    of_all = Writers(shared.calls)
    holdings: dict[int, Holdings] = {}
    alike: dict[tuple[int, frozenset[Reference]], list[Lane]] = {}
    for lane in sorted(lanes.values(), key=lambda lane: lane.instance is not None):
        if id(lane.calls) not in holdings:
            read = (place for call in lane.calls for place in places_read(call))
            holdings[id(lane.calls)] = Holdings(dict.fromkeys(read), context.fold())
        held = holdings[id(lane.calls)].of(context.fold(lane.instance))
        alike.setdefault((id(lane.graph), held), []).append(lane)
    for (_, held), members in alike.items():
        lane = members[0]
        fold = context.fold(lane.instance)
        calls = {call.index: call for call in lane.calls}
        graphs: tuple[Graph, ...] = (lane.graph,)
        nodes: tuple[tuple[int, ...], ...] = (tuple(lane.graph.in_order()),)
        writers = of_all
        if lane.instance is not None:
            met = sorted(_met(lane, shared.graph, of_all, order.keys()), key=order.__getitem__)
            calls = {call.index: call for call in shared.calls if call.index in set(met)} | calls if met else calls
            graphs, nodes, writers = (shared.graph, *graphs), (tuple(met), *nodes), Writers(lane.calls, of_all)
        yield View(tuple(members), calls, graphs, nodes, writers, fold, held, context.fold())


def _met(lane: Lane, graph: Graph, writers: Writers, known: Set[int]) -> set[int]:
    """The global calls and barriers that the calls of a lane wait for or write and read beside, and all before them."""
    places = {place for call in lane.calls for place in (*call.written, *lane.graph.waits.get(call.index, ()))}
    found = {call for place in places for line in writers.lines(place) for call in line.calls[:_MOST_RIVALS]}
    return graph.behind((found | lane.graph.awaited) & known)


def _after(calls: Sequence[int], index: int) -> Sequence[int]:
    """Of calls in the order listed the first few after one."""
    start = bisect_right(calls, index)
    return calls[start : start + _MOST_RIVALS]
