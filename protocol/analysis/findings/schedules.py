"""Schedules: whether two calls can be at work at the same time (SPEC R6.1, R6.4-R6.6).

That nothing orders two calls does not say that they ever meet: one may run on another branch than the other, or be
skipped whenever the other is not there yet. So that is tried (see `rehearsals`): where never both were at work, they
are taken not to meet.

A result that a model has written is there as soon as its call could start, before any other call of the lane ends. It
meets another call only if that has started before.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final

from protocol.calls.call import Call
from protocol.graph.graph import Graph
from protocol.graph.writers import Writers
from protocol.language.paths import MISSING
from protocol.language.references import Reference

from .effort import count, is_spent
from .finding import FAILURES
from .memory import Memory
from .order import Calls
from .rehearsals import STEPS, Read, Rehearsal
from .switches import Switch, read_switches

_MOST_ASIDE: Final = 8
"""Whoever writes what is read and is not waited for is gone through too, where there are no more of them."""

Holds = Callable[[int, Reference], bool]
"""Whether the context holds a value at a place, for the call with an index."""
_Waits = dict[int, dict[Reference, tuple[int, ...]]]
_Barriers = dict[int, tuple[int, ...]]


class Schedules:
    """Who can meet among the calls that a lane sees; `shared` is the same of the global calls, if it is an instance's.

    Lanes that share a graph share it, too: what depends on what they hold is found out for each.
    """

    def __init__(
        self,
        graph: Graph,
        own: Iterable[int],
        calls: Mapping[int, Call],
        writers: Writers,
        memory: Memory,
        shared: Schedules | None = None,
    ) -> None:
        self._graphs: tuple[Graph, ...] = (graph, shared._graphs[0]) if shared is not None else (graph,)
        self._own = frozenset(own)
        self._calls = calls
        self._writers = writers
        self._memory = memory
        self._shared = shared
        self._kinds: dict[int, int] = {}
        self._alike: dict[Hashable, int] = {}
        self._rehearsals: dict[Hashable, Rehearsal] = {}
        self._results: dict[Hashable, bool] = {}
        self._known: dict[Hashable, bool] = {}

    def meet(self, one: int, other: int, whose: str | None, holds: Holds) -> bool:
        """Whether two calls were seen at work at the same time in an instance or the global lane; not so where too much
        effort was spent.
        """
        pair, behind = 1 << one | 1 << other, self.behind(one) | self.behind(other)
        instant = self._instant((one, other))
        is_alone = instant is not None or bool(behind & pair or (behind | pair) & self._switched)
        if not is_alone and not behind & self._choosing:
            return True  # where all succeed that they hang on, both start
        key = (is_alone, one, other) if is_alone else (is_alone, self._kind(one), self._kind(other))
        if (key, whose) not in self._known:
            self._known[key, whose] = not is_spent() and self._rehearsed(key, (one, other), instant, holds)
        return self._known[key, whose]

    def never_runs(self, index: int, holds: Holds) -> bool:
        """Whether what a call needs is certain never to be there in one and the same run."""
        behind = self.behind(index)
        places = [place for expression in self._calls[index].expressions for place in expression.references]
        if len(places) < 2 or not behind & (self._choosing | self._switched) or is_spent():
            return False
        rehearsal = self._rehearsal((index,), None)
        switches = (switch for each in rehearsal.calls for switch in self._switches.get(each, ()))
        if not all(switch.is_exact(rehearsal.calls) for switch in switches):
            return False
        return rehearsal.never_meet(frozenset(read for read in rehearsal.bringers if holds(*read)))

    def _rehearsed(self, key: Hashable, pair: tuple[int, int], instant: int | None, holds: Holds) -> bool:
        """The same, tried; once for all who hold the same."""
        if key not in self._rehearsals:
            self._rehearsals[key] = self._rehearsal(pair, instant)
        rehearsal = self._rehearsals[key]
        count(len(rehearsal.bringers))
        held = frozenset(read for read in rehearsal.bringers if holds(*read))
        if (key, held) not in self._results:
            self._results[key, held] = rehearsal.meet(held)
        return self._results[key, held]

    @cached_property
    def _choosing(self) -> Calls:
        """The calls that choose between places to write to."""
        return sum(
            1 << call.index
            for call in self._calls.values()
            if call.output is not None and len(call.output.alternatives) > 1
        )

    @cached_property
    def _switches(self) -> Mapping[int, list[Switch]]:
        """Call -> the switches that decide whether it can run."""
        found: dict[int, list[Switch]] = {}
        for switch in read_switches(self._calls.values(), self._writers, self._memory, self._graph):
            for index in switch.apart:
                found.setdefault(index, []).append(switch)
        return found

    @cached_property
    def _switched(self) -> Calls:
        """The calls that are in a switch."""
        return sum(1 << index for index in self._switches)

    def _graph(self, index: int) -> Graph:
        """The graph that says what a call waits for."""
        return next(graph for graph in self._graphs if index in graph.waits)

    def behind(self, index: int) -> Calls:
        """The calls that a call may wait for, directly or through others."""
        if index in self._behind:
            return self._behind[index]
        return self._shared.behind(index) if self._shared is not None else 0

    @cached_property
    def _behind(self) -> Mapping[int, Calls]:
        """The same of each call and barrier of the lane."""
        graph, found = self._graphs[0], dict[int, Calls]()
        for node in graph.in_order():
            behind = 0
            for before in graph.directly_before(node):
                behind |= found[before] if before in found or self._shared is None else self._shared.behind(before)
                behind |= 1 << before if before >= 0 else 0
            found[node] = behind
        return found

    def _kind(self, index: int) -> int:
        """A number that calls have in common of which one starts whenever the other does."""
        if index not in self._kinds:
            call = self._calls[index]
            waits, scopes = self._graph(index).waits[index], self._graph(index).scopes.get(index, {})
            waited_for = tuple(waits.items()), tuple(scopes.items())
            likeness = call.expressions, waited_for, call.given is MISSING, index in self._own
            self._kinds[index] = self._alike.setdefault(likeness, len(self._alike))
        return self._kinds[index]

    def _rehearsal(self, held_back: tuple[int, ...], instant: int | None) -> Rehearsal:
        """Two calls, or one, with all that they hang on."""
        waits, barriers, scopes = self._reached(held_back)
        count(STEPS * (len(waits) + len(barriers)))
        slow = [index for index in held_back if index != instant]
        early = frozenset(self._reached(slow)[0]) if instant is not None else frozenset()
        switches = dict.fromkeys(switch for index in waits for switch in self._switches.get(index, ()))
        ways = [switch.refused(waits, held_back) for switch in switches]
        calls = {index: self._calls[index] for index in sorted(waits)}
        return Rehearsal(held_back, instant, early, calls, Graph(waits, barriers, scopes), self._brings(waits), ways)

    def _reached(self, indexes: Iterable[int]) -> tuple[_Waits, _Barriers, _Waits]:
        """What calls wait for, by parameters and by scopes: some, and all that these hang on."""
        waits: _Waits = {}
        scopes: _Waits = {}
        barriers: _Barriers = {}
        stack = list(indexes)
        while stack:
            node = stack.pop()
            if node < 0 and node not in barriers:
                graph, number = self._barrier(node)
                barriers[node] = self._nodes(graph, self._graphs[graph].barriers[number])
                stack.extend(barriers[node])
            elif node >= 0 and node not in waits:
                graph = next(number for number, graph in enumerate(self._graphs) if node in graph.waits)
                places = self._graphs[graph].waits[node]
                waits[node] = {place: self._nodes(graph, nodes) for place, nodes in places.items()}
                seen = self._graphs[graph].scopes.get(node, {})
                scopes[node] = {place: self._nodes(graph, nodes) for place, nodes in seen.items()}
                stack.extend(before for own in (waits, scopes) for nodes in own[node].values() for before in nodes)
                stack.extend(self._aside(node))
        return waits, barriers, scopes

    def _instant(self, pair: Iterable[int]) -> int | None:
        """The one of two calls of a lane whose result a model has written, if it is one of them."""
        found = [index for index in pair if self._calls[index].given is not MISSING]
        is_one_lane = len({index in self._own for index in pair}) == 1
        return found[0] if len(found) == 1 and is_one_lane else None

    def _nodes(self, graph: int, nodes: Iterable[int]) -> tuple[int, ...]:
        """Calls, and the barriers of one of the graphs by numbers that no other has."""
        return tuple(node if node >= 0 else node * len(self._graphs) - graph for node in nodes)

    def _barrier(self, node: int) -> tuple[int, int]:
        """Which graph a barrier is of, and its number there."""
        graph = -node % len(self._graphs)
        return graph, (node + graph) // len(self._graphs)

    def _aside(self, index: int) -> Iterator[int]:
        """Those who may bring what a call reads, whether it waits for them or not, where they are few."""
        for expression in self._calls[index].expressions:
            for place in expression.references:
                for line in self._writers.lines(place) if place.kind != FAILURES else ():
                    if len(line.calls) <= _MOST_ASIDE:
                        yield from (writer for writer in line.calls if self._is_seen(writer, index))

    def _brings(self, calls: Iterable[int]) -> dict[Read, dict[int, frozenset[int]]]:
        """Call and place read -> those who may bring it, with the alternatives by which they do."""
        among = frozenset(calls)
        found: dict[Read, dict[int, frozenset[int]]] = {}
        for index in among:
            places = (place for expression in self._calls[index].expressions for place in expression.references)
            for place in places:
                lines = list(self._writers.lines(place)) if place.kind != FAILURES and not is_spent() else []
                count(STEPS * sum(len(line.calls) for line in lines))
                found[index, place] = {
                    writer: self._alternatives(writer, place)
                    for line in lines
                    for writer in line.calls
                    if writer != index and writer in among and self._is_seen(writer, index)
                }
        return found

    def _is_seen(self, writer: int, reader: int) -> bool:
        """Whether a call can read what another writes: global calls see nothing of an instance."""
        return writer not in self._own or reader in self._own

    def _alternatives(self, writer: int, place: Reference) -> frozenset[int]:
        output = self._calls[writer].output
        groups = output.alternatives if output is not None else ()
        return frozenset(number for number, group in enumerate(groups) if any(map(place.overlaps, group)))
