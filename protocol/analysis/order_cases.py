"""Order cases: all the ways in which the calls that a lane sees can turn out (SPEC R4.4, R6.5, R6.6).

A *case* is one choice for each call that chooses: the alternative it writes, a failure where others then read something
else, and for a value whose readers admit different ones, which of these readers get a value that they admit. All
cases are tried up to `limits.MOST_ORDER_CASES`, and beyond that as many, drawn by a fixed seed. A set of cases is the
bits of a number, so one pass over the calls finds for all cases at once which calls run. Which calls have ended before
another starts is found case by case, where it is needed.

The rules are those of the engine's readiness, applied to sets of cases; a law compares the two.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from hashlib import shake_128
from itertools import chain, count
from operator import and_, or_
from typing import Final

from .. import limits
from ..calls.call import Call
from ..messages import ERROR
from ..paths import MISSING
from ..plan.checked_plan import CheckedPlan
from ..plan.graph import Graph, ReadPlaces, Writers, places_read
from ..plan.lanes import Lane
from ..plan.places import Holdings
from ..references import Expression, Reference
from ..state.fold import Fold

# Lane views: the calls that a lane sees, its own and global ones, in the order in which they wait (SPEC R6.1, R10).
#
# Lanes that run the same calls by the same graph, and hold values at the same places that these read, are one view.


@dataclass(frozen=True, eq=False)
class SeenCalls:
    """The calls that lanes of one view see: their own, and the global ones that these wait for or share places with."""

    lanes: tuple[Lane, ...]
    calls: Mapping[int, Call]
    graphs: tuple[Graph, ...]
    nodes: tuple[tuple[int, ...], ...]
    """The calls and barriers of each graph, each after those it waits for."""
    writers: Writers
    fold: Fold
    """The context of the first of the lanes."""
    held: frozenset[Reference]
    """The places that are read and that the context holds."""
    shared: Fold

    @cached_property
    def own(self) -> frozenset[int]:
        """The lanes' own calls."""
        return frozenset(call.index for call in self.lanes[0].calls)

    @cached_property
    def position(self) -> Mapping[int, int]:
        """Call -> its position in an order in which each call comes after those it waits for."""
        return {node: position for position, node in enumerate(node for nodes in self.nodes for node in nodes)}

    @cached_property
    def graph_of(self) -> Mapping[int, Graph]:
        """Call -> the graph that has its waits."""
        return {
            node: graph for graph, nodes in zip(self.graphs, self.nodes, strict=True) for node in nodes if node >= 0
        }

    def holds(self, index: int, place: Reference) -> bool:
        """Whether the context holds a value at a place, as the call sees it."""
        return place in self.held if index in self.own else self.shared.exists(place)

    def behind(self, index: int) -> SeenCalls:
        """A view of one call and all that it waits for."""
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


def views_of(plan: CheckedPlan) -> Iterator[SeenCalls]:
    """The views of a plan's lanes, the global one first."""
    context, lanes = plan.context, plan.lanes
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
        yield SeenCalls(tuple(members), calls, graphs, nodes, writers, fold, held, context.fold())


def _met(lane: Lane, graph: Graph, writers: Writers, known: Set[int]) -> set[int]:
    """The global calls and barriers that calls of a lane wait for or share places with, and all before them."""
    places = {place for call in lane.calls for place in (*call.written, *lane.graph.waits.get(call.index, ()))}
    found = {call for place in places for line in writers.lines(place) for call in line.calls[: limits.MOST_RIVALS]}
    return graph.behind((found | lane.graph.awaited) & known)


def _after(calls: Sequence[int], index: int) -> Sequence[int]:
    """The first few calls of a list after one."""
    start = bisect_right(calls, index)
    return calls[start : start + limits.MOST_RIVALS]


_NEVER_FAILING: Final = (1 << limits.MOST_ORDER_CASES // 8) - 1

Bits = int
"""A set of cases, or of calls."""
Refused = frozenset[int]
"""The readers that do not admit a value."""


class OrderCases:
    """Who runs and who writes what in each case of a view."""

    def __init__(self, view: SeenCalls, refusals: Sequence[Sequence[Refused]] = (), *, is_exact: bool = True) -> None:
        """`refusals` has for each value the sets of readers that may refuse it; `is_exact` if these are all sets."""
        self._view = view
        choosing = {index: len(call.alternatives) for index, call in view.calls.items() if len(call.alternatives) > 1}
        failing = list(_failing(view))
        sizes = [*choosing.values(), *map(len, refusals), *(2 for _ in failing)]
        number = reduce(lambda product, size: min(product * size, limits.MOST_ORDER_CASES + 1), sizes, 1)
        self.is_exact = is_exact
        self.is_exhaustive = number <= limits.MOST_ORDER_CASES and is_exact
        self.number = min(number, limits.MOST_ORDER_CASES)
        self.all: Bits = (1 << self.number) - 1
        dice = partial(next, map(_half, count()))
        parts = iter(_divided(sizes, self.number) if number <= limits.MOST_ORDER_CASES else _sampled(sizes, dice))
        self._chosen = {index: next(parts) for index in choosing}
        self._refused = defaultdict[int, Bits](int)
        for ways in refusals:
            for refused, bits in zip(ways, next(parts), strict=True):
                for index in refused:
                    self._refused[index] |= bits
        self._failed = {index: next(parts)[1] for index in failing}
        if number > limits.MOST_ORDER_CASES:
            rare = dice() & dice() & ~_NEVER_FAILING
            self._failed = {index: bits & (rare | dice() & ~_NEVER_FAILING) for index, bits in self._failed.items()}
        self.without_failures: Bits = self.all & ~reduce(or_, self._failed.values(), 0)
        """The cases in which no call fails."""
        self.ran: dict[int, Bits] = {}
        """Call -> the cases in which it runs."""
        self._there: dict[tuple[int, Reference], Bits] = {}
        self._run()

    def wrote(self, index: int, place: Reference) -> Bits:
        """The cases in which a call writes at a place, above or below it, or fails where the place is in `error`."""
        if place.kind == ERROR:
            return self.ran[index] & self._failed.get(index, 0)
        groups = enumerate(self._view.calls[index].alternatives)
        return reduce(or_, (self.chose(index, n) for n, group in groups if any(map(place.overlaps, group))), 0)

    def chose(self, index: int, number: int) -> Bits:
        """The cases in which a call writes one of its alternatives."""
        ran = self.ran[index] & ~self._failed.get(index, 0)
        return ran & self._chosen[index][number] if index in self._chosen else ran

    def taken(self, index: int, expression: Expression) -> list[Bits]:
        """The cases in which each alternative of an expression is read by a call (SPEC R6.5)."""
        found, left = [], self.all
        for group in expression.alternatives:
            there = reduce(and_, (self._there[index, place] for place in group))
            found.append(left & there)
            left &= ~there
        return found

    def before(self, case: int, bits: Mapping[int, Bits]) -> dict[int, Bits]:
        """Call -> the calls of `bits` that have ended, or are skipped, when it starts in this case, as bits."""
        starts: dict[int, Bits] = {}
        ended: dict[int, Bits] = {}
        bit = 1 << case
        for graph, nodes in zip(self._view.graphs, self._view.nodes, strict=True):
            for node in nodes:
                if node < 0:
                    ended[node] = reduce(or_, (ended[each] for each in graph.barriers[node]), 0)
                    continue
                waits = graph.waits[node]
                settled = {place: reduce(or_, (ended.get(n, 0) for n in at), 0) for place, at in waits.items()}
                start, skipped = self._timed(node, bit, settled)
                if skipped is None:
                    others = (*graph.scopes.get(node, {}).values(), *graph.after.get(node, {}).values())
                    start = reduce(or_, (ended.get(n, 0) for nodes in others for n in nodes), start)
                starts[node], ended[node] = start, bits.get(node, 0) | (start if skipped is None else skipped)
        return starts

    def _timed(self, index: int, bit: Bits, settled: Mapping[Reference, Bits]) -> tuple[Bits, Bits | None]:
        """The calls that have ended when a call's parameters can be read and, where it is skipped, when that is known.

        The rules are SPEC R6.5 and R6.6.
        """
        start, skipped = 0, -1
        call = self._view.calls[index]
        there = self._there
        for expression in call.expressions if not call.is_thought else ():
            passed = 0
            for group in expression.alternatives:
                missing = [settled[place] for place in group if not there[index, place] & bit]
                if not missing:
                    passed |= reduce(or_, (settled[place] for place in group))
                    break
                passed |= reduce(and_, missing)  # the first of those that are missing lets it go on
            else:
                skipped &= passed  # by the first expression that can never be read
            start |= passed
        return start, None if skipped == -1 else skipped

    def _run(self) -> None:
        """Find out which calls run, in the order of the graph."""
        for graph, nodes in zip(self._view.graphs, self._view.nodes, strict=True):
            behind = _behind(graph)
            brought: dict[int, Bits] = {}
            for node in nodes:
                if node in graph.promises:
                    brought[node] = self.all  # it comes (SPEC R6.3)
                    continue
                if node < 0:
                    if (place := behind.get(node)) is not None:  # else no call waits for it
                        found = (brought[n] if n < 0 else self.wrote(n, place) for n in graph.barriers[node])
                        brought[node] = reduce(or_, found, 0)
                    continue
                call, waits = self._view.calls[node], graph.waits[node]
                ran = self.all
                for expression in call.expressions if not call.is_thought else ():
                    for place in expression.references:
                        if call.gather or self._view.holds(
                            node, place
                        ):  # what it gathers is not looked at (SPEC R10.4)
                            self._there[node, place] = self.all
                            continue
                        there = 0
                        for writer in waits.get(place, ()):
                            there |= brought[writer] if writer < 0 else self.wrote(writer, place)
                        self._there[node, place] = there
                    ran &= reduce(or_, self.taken(node, expression))
                self.ran[node] = 0 if call.is_thought else ran & ~self._refused.get(node, 0)


def _failing(view: SeenCalls) -> Iterator[int]:
    """The calls whose failure matters, because others then read something else."""
    reads = [each for call in view.calls.values() for each in call.expressions]
    fallible = ReadPlaces(place for each in reads for group in each.alternatives[:-1] for place in group)
    is_told = any(place.kind == ERROR for each in reads for place in each.references)
    for index, call in view.calls.items():
        is_alone = len(call.alternatives) == 1 and call.given is MISSING
        if is_alone and (is_told or any(map(fallible.overlap, call.written))):
            yield index


def _behind(graph: Graph) -> dict[int, Reference]:
    """Barrier -> a place whose writers it is for."""
    found: dict[int, Reference] = {}
    for places in chain(graph.waits.values(), graph.scopes.values(), graph.after.values()) if graph.barriers else ():
        for place, nodes in places.items():
            found.update((node, place) for node in nodes if node < 0)
    for barrier in sorted(graph.barriers):  # one before another is older, so its number is higher
        if barrier in found:
            found.update((node, found[barrier]) for node in graph.barriers[barrier] if node < 0 and node not in found)
    return found


def _divided(sizes: Sequence[int], number: int) -> Iterator[list[Bits]]:
    """For each choice the cases of each option, so that every combination occurs in one case."""
    stride = 1
    for size in sizes:
        period = stride * size
        every = reduce(or_, (1 << start for start in range(0, number, period)))
        yield [every * ((1 << stride) - 1) << option * stride for option in range(size)]
        stride = period


def _sampled(sizes: Sequence[int], dice: Callable[[], Bits]) -> Iterator[list[Bits]]:
    """For each choice the cases of each option, drawn by chance where there are too many combinations."""
    for size in sizes:
        parts = [(1 << limits.MOST_ORDER_CASES) - 1]
        while len(parts) < size:
            bits, half = parts.pop(0), dice()
            parts += [bits & half, bits & ~half]
        yield parts


def _half(number: int) -> Bits:
    """Half of the cases by chance, always the same ones for a number."""
    return int.from_bytes(shake_128(b"%d" % number).digest(limits.MOST_ORDER_CASES // 8), "big")
