"""Waits: what calls wait for, by what the context of their lane holds (SPEC R6.1, R6.3, R8.3a).

A reader of a place waits for the writers listed before it. Where there is none, it waits for those listed after it,
unless the context holds a value there. So who is waited for is certain at most places, and *uncertain* at the others.
This is found out once for all lanes of the same calls; each lane then chooses by what its context holds. For its scopes
a call waits for the writers listed before it, and what it waits for need not exist. For the places of `_after` it waits
for the writers listed before and after it, whatever the context holds (SPEC R6.8).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import or_
from typing import Final

from .. import limits
from ..calls.call import Call
from ..references import Expression, Reference
from .graph import (
    Barriers,
    Graph,
    LeftOut,
    Line,
    Nodes,
    ScopePlaces,
    Window,
    Writers,
    parameter_places,
    places_after,
    scope_places,
)
from .places import KIND

# Scope waits: a call waits for the calls listed before it that write in its scopes (SPEC R8.3a).
#
# A scope wait points to a call listed before. So it can close a cycle only together with a parameter that waits for a
# call listed after its own. The whole cycle then lies in a *window*: from the waiting call to the one it waits for,
# where overlapping windows are joined. Outside of windows no cycle is possible.
#
# In a window, scope waits are added in the order of their readers, then of their writers; one that would close a cycle
# is left out. Sets of calls are integers there: bit n is the call n places after the window's first.


def windows(forward: Iterable[tuple[int, int]]) -> list[Window]:
    """The windows of waits (reader, writer listed after it) that come in order; windows that overlap are joined."""
    found: list[Window] = []
    for reader, writer in forward:
        if found and reader <= found[-1].end:
            found[-1] = Window(found[-1].start, max(found[-1].end, writer))
        else:
            found.append(Window(reader, writer))
    return found


class ScopeWaits:
    """Finds the scope waits of calls. `scopes` has the scopes of each call, in the order listed."""

    def __init__(
        self,
        scopes: Iterable[tuple[int, Sequence[Reference]]],
        writers: Writers,
        windows: Sequence[Window],
        barriers: Barriers,
    ) -> None:
        self.waits: dict[int, ScopePlaces] = {}
        """Reader -> all its scope waits, including those that will be left out."""
        self._writers = writers
        self._barriers = barriers
        self._inside: dict[Window, list[int]] = {}
        self._outside: dict[tuple[Window, Reference], Nodes] = {}
        starts = [window.start for window in windows]
        for reader, places in scopes:
            at = bisect_left(starts, reader + 1) - 1
            window = windows[at] if at >= 0 and reader <= windows[at].end else None
            if window is not None:
                self._inside.setdefault(window, []).append(reader)
                for place in places:
                    if (window, place) not in self._outside:
                        self._outside[window, place] = barriers.before(place, by=window.start)
            self.waits[reader] = {place: barriers.before(place, by=reader) for place in places}

    def without_cycles(self, parameters: Graph) -> tuple[Mapping[int, ScopePlaces], Mapping[int, Nodes], list[LeftOut]]:
        """The scope waits that close no cycle with those for parameters, their own barriers, and what is left out.

        The waits for parameters alone have no cycle.
        """
        if not self._inside:
            return self.waits, {}, []
        waits, left_out = dict(self.waits), list[LeftOut]()
        barriers = _Filtered(self._barriers.count)
        needed = _needed(parameters, list(self._inside))
        for window, readers in self._inside.items():
            masks: dict[Reference, int] = {}
            for place in {place for reader in readers for place in self.waits[reader]}:
                masks[place] = _written(window, self._writers.lines(place))
            seen = {reader: reduce(or_, (masks[place] for place in self.waits[reader]), 0) for reader in readers}
            for reader, closing in _closing(window, seen, needed).items():
                left_out.append(LeftOut(reader, window, closing & seen[reader]))
                rest = window.before(reader) & ~closing
                waits[reader] = {
                    place: (*barriers.nodes(window, place, masks[place] & rest), *self._outside[window, place])
                    for place in self.waits[reader]
                }
        return waits, barriers.made, left_out


def _written(window: Window, lines: Iterable[Line]) -> int:
    """The calls of some lines that are in the window, as bits."""
    marks = bytearray((window.end - window.start) // 8 + 1)
    for line in lines:
        for index in line.calls[bisect_left(line.calls, window.start) : bisect_left(line.calls, window.end + 1)]:
            marks[(index - window.start) // 8] |= 1 << (index - window.start) % 8
    return int.from_bytes(marks, "little")


def _needed(parameters: Graph, windows: Sequence[Window]) -> dict[int, int]:
    """Call -> the calls of its own window that it waits for by parameters, directly or not."""
    starts = [window.start for window in windows]
    needed: dict[int, int] = {}
    at: dict[int, int] = {}
    """Call or barrier -> its window. A barrier belongs to the window of its last call, where all later readers are."""
    last: dict[int, int] = {}
    for node in parameters.in_order():
        before = list(parameters.directly_before(node))
        last[node] = node if node >= 0 else max((last[one] if one < 0 else one for one in before), default=-1)
        number = bisect_left(starts, last[node] + 1) - 1
        if number < 0 or last[node] > windows[number].end:
            continue
        at[node], window, bits = number, windows[number], 0
        if (window.end - window.start) ** 2 > limits.MOST_BITS:
            continue
        for one in before:
            if one >= 0 and window.start <= one <= window.end:
                bits |= window.bit(one)
            if at.get(one) == number:
                bits |= needed.get(one, 0)
        needed[node] = bits
    return needed


def _closing(window: Window, seen: Mapping[int, int], needed: Mapping[int, int]) -> dict[int, int]:
    """Reader -> the calls listed before it that wait for it, where any of them write in its scopes.

    `waiting` has, for the calls not passed yet, which passed calls wait for them: one entry for all calls with the same
    ones.
    """
    all_of_them = {reader: mask for reader in seen if (mask := window.before(reader)) & seen[reader]}
    if (window.end - window.start) ** 2 > limits.MOST_BITS:
        return all_of_them
    found: dict[int, int] = {}
    steps = 0
    waiting = {0: window.bit(window.end + 1) - 1}
    for index in range(window.start, window.end + 1):
        bit = window.bit(index)
        mine = next(before for before, calls in waiting.items() if calls & bit)
        if mine & seen.get(index, 0):
            found[index] = mine
        direct = needed.get(index, 0)
        reached = (seen.get(index, 0) & ~mine | direct) & (bit - 1)
        following: dict[int, int] = {}
        steps += len(waiting)
        if steps > limits.WAITS_MOST_STEPS:
            return all_of_them
        for before, calls in waiting.items():
            calls &= ~bit
            also = calls if reached & before else calls & direct
            for key, part in ((before | mine | bit, also), (before, calls & ~also)):
                if part:
                    following[key] = following.get(key, 0) | part
        waiting = following
    return found


class _Filtered:
    """Makes barriers behind some of a window's calls, each built on the one before it where possible."""

    def __init__(self, count: int) -> None:
        self.made: dict[int, Nodes] = {}
        self._count = count
        self._last: dict[tuple[Window, Reference], tuple[int, int]] = {}

    def nodes(self, window: Window, place: Reference, calls: int) -> Nodes:
        """The calls, or a barrier behind them."""
        if calls.bit_count() <= limits.SPELLED_OUT:
            return tuple(window.calls(calls))
        covered, barrier = self._last.get((window, place), (0, 0))
        if covered == calls:
            return (barrier,)
        is_longer = covered and not covered & ~calls
        new = window.calls(calls & ~covered if is_longer else calls)
        self._count += 1
        self.made[-self._count] = (barrier, *new) if is_longer else tuple(new)
        self._last[window, place] = calls, -self._count
        return (-self._count,)


class Waits:
    """Finds what calls wait for, given all `writers` that they see.

    Gather calls of the global lane also wait in the lanes of instances: there `are_guests` is set.
    """

    def __init__(self, calls: Iterable[Call], writers: Writers, *, are_guests: bool = False) -> None:
        self._calls = sorted(calls, key=lambda call: call.index)
        self._writers = writers
        barriers = Barriers(writers)
        self._are_guests = are_guests
        self._readers = [_read(call, barriers, is_elsewhere=call.gather and not are_guests) for call in self._calls]
        self._barriers = barriers.made
        behind_others = Barriers(writers, barriers.count)
        self._after = {
            call.index: {place: behind_others.around(place, by=call.index) for place in places}
            for call in self._calls
            if (places := places_after(call))
        }
        self._forward = list(self._waits_forward())
        behind_scopes = Barriers(writers, behind_others.count)
        scopes = ((call.index, places) for call in self._calls if (places := scope_places(call)))
        self._scopes = ScopeWaits(scopes, writers, windows(self._forward), behind_scopes)
        lasting = {barrier: barriers.made[barrier] for barrier in barriers.behind_first}
        self._lasting = lasting | behind_others.made | behind_scopes.made

    def _waits_forward(self) -> Iterator[tuple[int, int]]:
        """The calls that may wait for some listed after them in their lane, each with the last of these."""
        own = {call.index for call in self._calls}
        last_at: dict[Reference, int] = {}
        for place in {place for places in self._after.values() for place in places}:
            lines = (reversed(line.calls) for line in self._writers.lines(place))
            last_at[place] = max((next((call for call in line if call in own), -1) for line in lines), default=-1)
        for reader in self._readers:
            last = reader.last(own, self._barriers) if reader.uncertain else None
            after = max((last_at[place] for place in self._after.get(reader.index, ())), default=-1)
            if (found := max(after, -1 if last is None else last)) > reader.index:
                yield reader.index, found

    @cached_property
    def uncertain(self) -> tuple[Reference, ...]:
        """The places at which it depends on the initial context whether readers wait, or can run."""
        return tuple(dict.fromkeys(place for reader in self._readers for place in reader.uncertain))

    @cached_property
    def inputs(self) -> tuple[Reference, ...]:
        """The places of input that parameters read: they may be promised."""
        return tuple(dict.fromkeys(at for reader in self._readers for at in reader.waits if at.kind == KIND))

    def covered(self, places: Set[Reference]) -> frozenset[Reference]:
        """The places of input, among some, that a scope covers."""
        if not places:
            return frozenset()
        seen = {scope for scopes in self._scopes.waits.values() for scope in scopes if scope.kind == KIND}
        return frozenset(place for place in places if any(map(place.overlaps, seen)))

    def graph(
        self, held: Set[Reference], promised: Set[Reference] = frozenset(), required: Set[Reference] = frozenset()
    ) -> Graph:
        """The graph of a lane.

        Its context holds the `held` ones among the uncertain places. Places of `inputs` that are `promised` count as
        held; `required` are places that the schemas of promises require and scopes cover. Where parameters wait for
        each other in a cycle, the graph has no scope waits: nothing of it will run.
        """
        graph = self._graph(held | promised if promised else held)
        return _promising(graph, promised, required) if promised or required else graph

    def _graph(self, held: Set[Reference]) -> Graph:
        waits = {reader.index: reader.waits_given(held) for reader in self._readers}
        barriers = dict(self._lasting)
        for reader in self._readers:
            if reader.has_late_barriers:
                nodes = (node for nodes in waits[reader.index].values() for node in nodes if node < 0)
                barriers.update((node, self._barriers[node]) for node in nodes)
        parameters = Graph(waits, barriers, after=self._after)
        if not self._scopes.waits or (self.may_circle and next(parameters.cycles(), None) is not None):
            return parameters
        scopes, more, left_out = self._scopes.without_cycles(parameters)
        all_barriers = {**barriers, **more} if more else barriers
        return Graph(waits, all_barriers, scopes, left_out=tuple(left_out), after=self._after)

    @cached_property
    def may_circle(self) -> bool:
        """Whether calls wait for each other in a circle where the context holds nothing: no lane waits for more."""
        if not self._forward:
            return False
        waits = {reader.index: reader.waits for reader in self._readers}
        graph = Graph(waits, self._barriers | self._lasting, after=self._after)
        return next(graph.cycles(), None) is not None

    def unsatisfiable(self, held: Set[Reference]) -> Iterator[tuple[Call, str, Expression]]:
        """The expressions, with their calls and places, that neither the context nor another call satisfies (R6.3)."""
        for call, at, expression, needed in self._doubtful:
            if not any(places <= held for places in needed):
                yield call, at, expression

    @cached_property
    def _doubtful(self) -> list[tuple[Call, str, Expression, list[frozenset[Reference]]]]:
        """The expressions that calls alone do not satisfy, and the places that only a context brings."""
        found = []
        for call in self._calls:
            known: dict[Expression, list[frozenset[Reference]]] = {}  # a text may read the same again and again
            for at, expression in call.reads if call.gather is self._are_guests and not call.is_thought else ():
                if (needed := known.get(expression)) is None:
                    needed = known[expression] = [
                        frozenset(place for place in group if not self._writers.has_other(place, than=call.index))
                        for group in expression.alternatives
                    ]
                if all(needed):
                    found.append((call, at, expression, needed))
        return found


@dataclass(frozen=True, slots=True)
class _Reader:
    """The waits of one call for its parameters."""

    index: int
    waits: Mapping[Reference, Nodes]
    """Place -> what it waits for where the context holds nothing."""
    uncertain: Mapping[Reference, None]
    """The places at which it waits for nothing where the context holds them."""
    has_late_barriers: bool
    """True where it may wait for a barrier of calls that are listed after it."""
    _known: dict[frozenset[Reference], Mapping[Reference, Nodes]] = field(default_factory=dict)

    def waits_given(self, held: Set[Reference]) -> Mapping[Reference, Nodes]:
        """Place -> what it waits for where the context holds some places."""
        mine = frozenset(self.uncertain.keys() & held) if self.uncertain else frozenset()
        if not mine:
            return self.waits
        if mine not in self._known:
            self._known[mine] = {place: () if place in mine else nodes for place, nodes in self.waits.items()}
        return self._known[mine]

    def last(self, own: Set[int], barriers: Mapping[int, Nodes]) -> int | None:
        """The last call of its own lane, listed after it, that it may wait for."""
        nodes = (node for place in self.uncertain for node in self.waits[place])
        calls = (call for node in nodes for call in (barriers[node] if node < 0 else (node,)))
        return max((call for call in calls if call in own), default=None)


def _promising(graph: Graph, promised: Set[Reference], required: Set[Reference]) -> Graph:
    """The graph with waits for promised values: of parameters for their places, of scopes for all that is required in
    them (SPEC R6.3).
    """
    first = min(graph.barriers, default=0) - 1
    nodes = {place: first - number for number, place in enumerate(sorted(promised | required, key=str))}
    waits = {
        index: {at: (*before, nodes[at]) if at in promised else before for at, before in places.items()}
        if not promised.isdisjoint(places)
        else places
        for index, places in graph.waits.items()
    }
    scopes = {
        index: {
            at: (*before, *(node for one, node in nodes.items() if one in required and one.overlaps(at)))
            for at, before in places.items()
        }
        for index, places in graph.scopes.items()
    }
    promises = {node: place for place, node in nodes.items()}
    return replace(
        graph, waits=waits, scopes=scopes, barriers={**graph.barriers, **dict.fromkeys(promises, ())}, promises=promises
    )


def _read(call: Call, barriers: Barriers, *, is_elsewhere: bool) -> _Reader:
    """The waits of a call; `is_elsewhere` where it waits for later writers in other lanes (SPEC R10.4)."""
    waits: dict[Reference, Nodes] = {}
    uncertain: dict[Reference, None] = {}
    for place in parameter_places(call):
        before = barriers.before(place, by=call.index)
        if before or is_elsewhere:
            waits[place] = before
        else:
            waits[place] = barriers.after(place, by=call.index)
            uncertain[place] = None
    return _Reader(call.index, waits, uncertain, any(node < 0 for place in uncertain for node in waits[place]))


# Gathering: calls that read in every instance (SPEC R10.4).
#
# A gather call belongs to the global lane and waits in the lane of every instance. Its waits there are a graph apart
# from the lane's, shared by lanes of the same calls; so memory grows with the kinds of lanes, not with the instances.
# Each lane reports when a gather call has nothing to wait for there any more; the global lane needs only the number of
# lanes that have not reported yet.

_ANY: Final = Reference("any")


@dataclass(frozen=True)
class Gathers:
    """The gather calls of the global lane, and what they wait for in the lane of an instance.

    `held`, `promised` and `required` are as in `Lane`, for the places that the gather calls read.
    """

    calls: tuple[Call, ...]
    graph: Graph
    held: frozenset[Reference] = frozenset()
    promised: frozenset[Reference] = frozenset()
    required: frozenset[Reference] = frozenset()

    def beside(self, other: Gathers) -> Gathers:
        """One for these gather calls and others that were added to the lane later."""
        return Gathers(
            (*self.calls, *other.calls),
            self.graph.beside(other.graph),
            self.held | other.held,
            self.promised | other.promised,
            self.required | other.required,
        )

    @cached_property
    def waiting(self) -> tuple[int, ...]:
        """The calls that wait for anything in the lane; the others are settled there from the beginning."""
        return tuple(call.index for call in self.calls if self.graph.directly_before(call.index))


class CrossLaneGraph:
    """One graph over all lanes, joined by gather calls; lanes that share their graphs count once."""

    def __init__(self, lanes: Iterable[tuple[Graph, Gathers | None]], shared: Collection[int]) -> None:
        kinds = {(id(graph), id(gathers)): (graph, gathers) for graph, gathers in lanes}
        graphs = [part for graph, gathers in kinds.values() for part in (graph, gathers.graph if gathers else None)]
        self._stride = 1 + max((index for graph in graphs if graph is not None for index in graph.waits), default=0)
        self._stride = max(self._stride, 1 + max(shared, default=0))
        waits: dict[int, dict[int, None]] = {}
        barriers: dict[int, Nodes] = {}
        for number, graph in enumerate(graphs):
            if graph is None:
                continue

            def named(node: int, number: int = number) -> int:
                """A node's name in the whole graph: the same for global calls, and in both graphs of a lane."""
                if node < 0:
                    return node * len(graphs) - number
                return node if node in shared else node + self._stride * (1 + number // 2)

            for index in graph.waits:
                waits.setdefault(named(index), {}).update(dict.fromkeys(map(named, graph.directly_before(index))))
            for barrier, before in graph.barriers.items():
                barriers[named(barrier)] = tuple(map(named, before))
        self._graph = Graph({index: {_ANY: tuple(before)} for index, before in waits.items()}, barriers)

    def cycles(self) -> Iterator[tuple[int, ...]]:
        """Calls that wait for each other in a circle, by their indexes."""
        for cycle in self._graph.cycles():
            yield tuple(node % self._stride for node in cycle)

    def levels(self) -> dict[int, int]:
        """Call -> the length of the longest chain of calls that it waits for, over all lanes."""
        levels: dict[int, int] = {}
        for node, level in self._graph.levels({}).items():
            levels[node % self._stride] = max(level, levels.get(node % self._stride, 0))
        return levels


# Dependents: the calls of all lanes that wait for some calls, one through another (SPEC R6.1, R10.4, R11.8).

LaneOfCalls = str | None
Calls = Mapping[LaneOfCalls, set[int]]
"""Calls of each lane."""


@dataclass(frozen=True, slots=True)
class LaneWaits:
    """The graphs of one lane."""

    instance: LaneOfCalls
    graphs: Sequence[Graph]
    """The waits of its calls, also from before an amendment."""
    gathers: Sequence[Gathers] = ()
    """The waits of gather calls in it, also from before an amendment."""

    def within(self, start: set[int], among: set[int]) -> set[int]:
        """The calls of the lane, `among` some, that wait for `start`, which may be global calls."""
        found = set[int]()
        for graph in self.graphs if among else ():
            found |= _behind(graph.of_values, start | found, among)
        return found

    def gathering(self, gathers: Collection[int], calls: Collection[int]) -> Iterator[int]:
        """The gather calls, among some, that wait in the lane for some calls of its own or global ones."""
        for found in self.gathers if calls else ():
            for index in found.waiting:
                if index in gathers and not found.graph.of_values.behind([index]).isdisjoint(calls):
                    yield index


def behind(
    lanes: Sequence[LaneWaits], start: Calls, among: Calls, gathers: Collection[int]
) -> dict[LaneOfCalls, set[int]]:
    """The calls of `start`, and those `among` others that wait for them.

    The global lane comes first; `gathers` are its calls that read in every instance.
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
class RetryExtent:
    """The calls that run again, and those whose results become stale."""

    calls: Calls
    """The calls that run again."""
    keeping: Calls
    """The calls that repeat only their failed elements (SPEC R4.10)."""
    stale: Calls
    """The calls that do not run again and have read what may now be written otherwise."""


@dataclass(frozen=True, slots=True)
class RetryReach:
    """Finds which calls follow where some calls run again."""

    lanes: Sequence[LaneWaits]
    """All lanes, the global one first."""
    gathers: Collection[int]
    """The calls that read in every instance."""
    again: Calls
    """The calls that run again where they wait for one that does."""
    readers: Calls
    """The calls that have read values: they are stale where they wait for one that runs again."""

    def extended(self, chosen: Calls, keeping: Calls) -> RetryExtent:
        """The extent of a retry of chosen calls, for `keeping` only of the elements that failed."""
        calls = behind(self.lanes, chosen, self.again, self.gathers)
        reached = behind(self.lanes, calls, self.readers, self.gathers)
        anew = behind(self.lanes, _less(calls, keeping), self.readers, self.gathers)
        return RetryExtent(calls, _less(keeping, anew), _less(reached, calls))


def _less(calls: Calls, others: Calls) -> dict[LaneOfCalls, set[int]]:
    return {lane: found - others[lane] for lane, found in calls.items()}


def _behind(graph: Graph, start: set[int], among: set[int]) -> set[int]:
    touched = set(start)
    for node in graph.in_order():
        if (node < 0 or node in among) and not touched.isdisjoint(graph.directly_before(node)):
            touched.add(node)
    return touched & among
