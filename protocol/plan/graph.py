"""The data-flow graph: which call waits for which (SPEC R6.1-R6.3, R8.3a).

A call that reads a place, by a parameter or a scope, waits for the calls that write it. A graph belongs to one *lane*:
of the calls of one instance with the global ones that they see, or of the global calls alone.

Where many calls wait for the same many writers, listing each pair would take the square of their number. A *barrier* is
put between them: a node without a call, numbered below zero, that ends when all before it have ended.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Generic, TypeVar

from .. import limits
from ..calls.call import Call
from ..messages import ERROR, EVERYWHERE
from ..references import Reference

T = TypeVar("T")


Nodes = tuple[int, ...]
"""Calls and barriers."""
ScopePlaces = Mapping[Reference, Nodes]
"""The calls that a call waits for at each of its scopes."""


@dataclass(frozen=True, slots=True)
class Window:
    """A range of the list of calls, both ends included. A set of its calls is an integer: bit n is the call n
    places after the first.
    """

    start: int
    end: int

    def bit(self, index: int) -> int:
        """The bit of a call."""
        return 1 << (index - self.start)

    def before(self, index: int) -> int:
        """The bits of all calls that are listed before one."""
        return self.bit(index) - 1

    def calls(self, bits: int) -> list[int]:
        """The calls of a set of bits, in the order listed."""
        text = bin(bits)[:1:-1]
        found, at = [], text.find("1")
        while at >= 0:
            found.append(self.start + at)
            at = text.find("1", at + 1)
        return found


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The scope waits of one reader that would close a cycle (SPEC R8.3a)."""

    reader: int
    window: Window
    bits: int

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Pairs (reader, writer), in the order of the writers."""
        return ((self.reader, writer) for writer in self.window.calls(self.bits))


@dataclass(frozen=True)
class Graph:
    """The waits of a lane's calls: call index -> place read -> the calls that may write it, and barriers."""

    waits: Mapping[int, Mapping[Reference, Nodes]]
    """The waits for parameters."""
    barriers: Mapping[int, Nodes] = field(default_factory=dict)
    """Barrier -> the calls and barriers that have to end before it."""
    scopes: Mapping[int, ScopePlaces] = field(default_factory=dict)
    """The waits for scopes; only of calls that have some."""
    promises: Mapping[int, Reference] = field(default_factory=dict)
    """Barriers that end when a promised value is there, and its place (SPEC R6.3)."""
    left_out: tuple[LeftOut, ...] = ()
    """Scope waits that would close a cycle, in the order of their readers."""
    after: Mapping[int, ScopePlaces] = field(default_factory=dict)
    """The waits without data; only of calls that have some (SPEC R6.8)."""

    def beside(self, other: Graph) -> Graph:
        """A graph of these readers and others; the barriers of the others get new numbers."""
        last = min(self.barriers, default=0)

        def named(node: int) -> int:
            return node if node >= 0 else node + last

        def moved(places: Mapping[Reference, Nodes]) -> dict[Reference, Nodes]:
            return {place: tuple(map(named, nodes)) for place, nodes in places.items()}

        return Graph(
            {**self.waits, **{reader: moved(places) for reader, places in other.waits.items()}},
            {**self.barriers, **{named(node): tuple(map(named, before)) for node, before in other.barriers.items()}},
            {**self.scopes, **{reader: moved(places) for reader, places in other.scopes.items()}},
            {**self.promises, **{named(node): place for node, place in other.promises.items()}},
            (*self.left_out, *other.left_out),
            {**self.after, **{reader: moved(places) for reader, places in other.after.items()}},
        )

    def with_stand_ins(self, stand_ins: Mapping[int, Nodes]) -> Graph:
        """The graph in which who waits for a call also waits for its stand-ins (SPEC R14.2)."""

        def joined(nodes: Nodes) -> Nodes:
            return tuple(dict.fromkeys(_reached(reversed(nodes), lambda node: stand_ins.get(node, ()))))

        def moved(places: Mapping[Reference, Nodes]) -> dict[Reference, Nodes]:
            return {place: joined(nodes) for place, nodes in places.items()}

        return replace(
            self,
            waits={reader: moved(places) for reader, places in self.waits.items()},
            barriers={barrier: joined(nodes) for barrier, nodes in self.barriers.items()},
            scopes={reader: moved(places) for reader, places in self.scopes.items()},
            after={reader: moved(places) for reader, places in self.after.items()},
        )

    @cached_property
    def of_values(self) -> Graph:
        """The graph without the waits that carry no value."""
        return replace(self, after={}) if self.after else self

    def before(self, index: int) -> tuple[int, ...]:
        """The calls that a call waits for, in the order listed."""
        return tuple(sorted({node for node in self._reached(self.directly_before(index)) if node >= 0}))

    def only_after(self, index: int) -> tuple[int, ...]:
        """The calls that a call waits for without reading what they write, in the order listed (SPEC R6.8)."""
        nodes = (node for nodes in self.after.get(index, {}).values() for node in nodes)
        return tuple(sorted({node for node in self._reached(nodes) if node >= 0}))

    def writers(self, index: int, place: Reference) -> tuple[int, ...]:
        """The calls that a call waits for at one place, in the order listed."""
        nodes = (*self.waits.get(index, {}).get(place, ()), *self.scopes.get(index, {}).get(place, ()))
        return tuple(sorted({node for node in self._reached(nodes) if node >= 0}))

    @cached_property
    def awaited(self) -> frozenset[int]:
        """Every call that some call waits for."""
        found: set[int] = set()
        for readers in (self.waits, self.scopes, self.after):
            for places in readers.values():
                found.update(*places.values())
        return frozenset(node for node in found.union(*self.barriers.values()) if node >= 0)

    @cached_property
    def readers(self) -> Mapping[int, Set[int]]:
        """Call -> the calls that wait for it. A wait that follows from others behind a barrier is left out."""
        return self.readers_among(self.waits)

    def readers_among(self, calls: Iterable[int]) -> Mapping[int, Set[int]]:
        """Call -> the calls, among some, that wait for it; see `readers`."""
        openings = {barrier: self._opening(barrier) for barrier in self.barriers}
        waiting: dict[int, list[int]] = {}
        for reader in calls:
            for node in self.directly_before(reader):
                waiting.setdefault(node, []).append(reader)
        ends: dict[int, list[int]] = {}
        for node in waiting:
            for writer in self._nearest((node,), openings):
                ends.setdefault(writer, []).append(node)
        alike: dict[tuple[int, ...], frozenset[int]] = {}  # those that many writers have in common, once
        for nodes in map(tuple, ends.values()):
            if nodes not in alike:
                alike[nodes] = frozenset(reader for node in nodes for reader in waiting[node])
        return {writer: alike[tuple(nodes)] for writer, nodes in ends.items()}

    def cycles(self) -> Iterator[tuple[int, ...]]:
        """Calls that wait for each other in a circle, each circle in the order they wait (SPEC R6.2)."""
        done: set[int] = set()
        for start in self.waits:
            if start not in done:
                cycle = self._cycle_from(start, done)
                if cycle:
                    yield tuple(node for node in cycle if node >= 0)

    def levels(self, known: Mapping[int, int]) -> dict[int, int]:
        """Call -> the length of the longest chain of calls that it waits for.

        `known` has the levels of other lanes' calls. The graph must have no cycle.
        """
        levels: dict[int, int] = {}
        for node in self.in_order():
            before = self.directly_before(node)
            deepest = max((levels[w] if w in levels else known.get(w, 0) for w in before), default=-1)
            levels[node] = deepest if node < 0 else 1 + deepest
        return {index: levels[index] for index in self.waits}

    def in_order(self) -> list[int]:
        """Every call and barrier after those it waits for. The graph must have no cycle."""
        order: list[int] = []
        seen: set[int] = set()
        for start in self.waits:
            stack = [(start, iter(self.directly_before(start)))] if start not in seen else []
            seen.add(start)
            while stack:
                node, before = stack[-1]
                for writer in before:
                    if writer not in seen and self._is_ours(writer):
                        seen.add(writer)
                        stack.append((writer, iter(self.directly_before(writer))))
                        break
                else:
                    order.append(node)
                    stack.pop()
        return order

    def directly_before(self, node: int) -> Iterable[int]:
        """The calls and barriers that a call or barrier waits for, without those behind barriers."""
        if node < 0:
            return self.barriers[node]
        found = dict.fromkeys(writer for writers in self.waits.get(node, {}).values() for writer in writers)
        for others in (self.scopes, self.after):
            for writers in others[node].values() if node in others else ():
                found.update(dict.fromkeys(writers))
        return found

    def behind(self, nodes: Iterable[int]) -> set[int]:
        """Calls and barriers, with all that they wait for, one through another."""
        return set(_reached(nodes, self.directly_before))

    def _is_ours(self, node: int) -> bool:
        return node < 0 or node in self.waits

    def _reached(self, nodes: Iterable[int]) -> Iterator[int]:
        """The nodes, and those behind barriers among them."""
        return _reached(nodes, lambda node: self.barriers.get(node, ()))

    def _nearest(self, nodes: Iterable[int], openings: Mapping[int, tuple[int, ...]]) -> Iterator[int]:
        """The calls among nodes, and those of the openings of barriers among them."""
        stack, seen = list(nodes), set[int]()
        while stack:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                if node >= 0:
                    yield node
                else:
                    stack.extend(openings[node])

    def _opening(self, barrier: int) -> tuple[int, ...]:
        """The nodes before a barrier, without barriers that one of the calls there waits for anyway."""
        behind = self.barriers[barrier]
        waited_for = {before for call in behind if call >= 0 for before in self.directly_before(call)}
        return tuple(before for before in behind if before >= 0 or before not in waited_for)

    def _cycle_from(self, start: int, done: set[int]) -> tuple[int, ...]:
        """Find a circle among the nodes before a call that are not `done`; adds the visited nodes to `done`."""
        path = [start]
        on_path = {start}
        stack = [iter(self.directly_before(start))]
        while stack:
            for writer in stack[-1]:
                if writer in on_path:
                    done |= on_path
                    return tuple(path[path.index(writer) :])
                if writer not in done and self._is_ours(writer):
                    path.append(writer)
                    on_path.add(writer)
                    stack.append(iter(self.directly_before(writer)))
                    break
            else:
                stack.pop()
                finished = path.pop()
                on_path.discard(finished)
                done.add(finished)
        return ()


def _reached(nodes: Iterable[int], before: Callable[[int], Iterable[int]]) -> Iterator[int]:
    """Nodes, and all that can be reached from them, each once."""
    stack, seen = list(nodes), set[int]()
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            yield node
            stack.extend(before(node))


# Writers: who writes at a place, by its output paths (SPEC R6.1).
#
# No call has an output path in `error`, and any call may fail: a reader of `error` waits for the calls of its instance
# that are listed before it, and for no other (SPEC R3.1).


@dataclass(frozen=True, eq=False, slots=True)
class Line:
    """The calls that write at one place (or at or below it), in the order listed."""

    calls: list[int] = field(default_factory=list)

    def add(self, index: int) -> None:
        """Append a call; it may come several times in a row."""
        if not self.calls or self.calls[-1] != index:
            self.calls.append(index)


class Writers:
    """Who writes where: an index over the output paths of the calls a lane can see.

    `shared` is the index of the global calls. `failing` are the calls whose errors a reader sees.
    """

    def __init__(self, calls: Iterable[Call], shared: Writers | None = None, *, failing: Iterable[Call] = ()) -> None:
        self._shared = shared
        self._failing = Line(sorted({call.index for call in failing if not call.is_thought}))
        self._at: dict[tuple[str, ...], Line] = defaultdict(Line)
        self._at_or_below: dict[tuple[str, ...], Line] = defaultdict(Line)
        for call in sorted(calls, key=lambda call: call.index):
            for place in {reference.key for reference in call.output.references} if call.output else ():
                self._at[place].add(call.index)
                for length in range(1, len(place) + 1):
                    self._at_or_below[place[:length]].add(call.index)

    def lines(self, place: Reference) -> Iterator[Line]:
        """The calls that write at or below a place, then those that write above it (SPEC R6.1)."""
        key = place.key
        if place.kind == ERROR and self._failing.calls:
            yield self._failing
        if key in self._at_or_below:
            yield self._at_or_below[key]
        for length in range(1, len(key)):
            if key[:length] in self._at:
                yield self._at[key[:length]]
        if self._shared is not None:
            yield from self._shared.lines(place)

    def has_inside(self, place: Reference) -> bool:
        """Whether a call writes at a place or below it."""
        return place.key in self._at_or_below or (self._shared is not None and self._shared.has_inside(place))

    def has_earlier(self, place: Reference, *, than: int) -> bool:
        """Whether a call listed before a reader writes at a place, below or above it."""
        return any(line.calls[0] < than for line in self.lines(place))

    def has_other(self, place: Reference, *, than: int) -> bool:
        """Whether another call, for which a reader may wait, writes at a place, below or above it."""
        if place.kind == ERROR:
            return self.has_earlier(place, than=than)
        return any(len(line.calls) > 1 or line.calls[0] != than for line in self.lines(place))


# Barriers: many writers of a place as one node, so that many readers may wait for them (SPEC R6.1).
#
# Readers listed one after the other wait for more and more of the same writers, so the barrier of each is built on the
# one before it.

_Part = tuple[Line, int, int]
"""Some neighbours in a line: from, and up to but without."""


class Barriers:
    """Finds who writes a place, and makes barriers. Readers have to come in the order listed.

    `count` is the number of barriers made elsewhere.
    """

    def __init__(self, writers: Writers, count: int = 0) -> None:
        self.made: dict[int, Nodes] = {}
        """Barrier -> the calls and barriers that have to end before it."""
        self.behind_first: dict[int, None] = {}
        """The barriers of writers listed before their reader, which waits for them whatever the context holds."""
        self._writers = writers
        self._before = count
        self._known: dict[_Part, int] = {}
        self._longest: dict[Line, tuple[int, int]] = {}

    @property
    def count(self) -> int:
        """The number of all barriers, with those made elsewhere."""
        return self._before + len(self.made)

    def before(self, place: Reference, *, by: int) -> Nodes:
        """The writers of a place that are listed before its reader."""
        parts = ((line, 0, bisect_left(line.calls, by)) for line in self._writers.lines(place))
        return _nodes(parts, self._barrier_of_first)

    def after(self, place: Reference, *, by: int) -> Nodes:
        """The writers of a place that are listed after its reader; none for errors (SPEC R3.1)."""
        if place.kind == ERROR:
            return ()
        parts = ((line, bisect_right(line.calls, by), len(line.calls)) for line in self._writers.lines(place))
        return _nodes(parts, self._barrier)

    def around(self, place: Reference, *, by: int) -> Nodes:
        """The writers of a place that are listed before or after a call."""
        return tuple(dict.fromkeys((*self.before(place, by=by), *self.after(place, by=by))))

    def _barrier(self, part: _Part) -> int:
        line, start, end = part
        return self._known.get(part) or self._add(part, tuple(line.calls[start:end]))

    def _barrier_of_first(self, part: _Part) -> int:
        """A barrier behind the first calls of a line is built on the one before it."""
        line, _, end = part
        if part in self._known:
            self.behind_first[self._known[part]] = None  # it may have been made for a reader listed before all of them
            return self._known[part]
        covered, before = self._longest.get(line, (0, 0))
        new = line.calls[covered:end]
        barrier = self._add(part, (before, *new) if before else tuple(new))
        self._longest[line] = (end, barrier)
        self.behind_first[barrier] = None
        return barrier

    def _add(self, part: _Part, before: Nodes) -> int:
        barrier = self._known[part] = -1 - self.count
        self.made[barrier] = before
        return barrier


def _nodes(parts: Iterable[_Part], barrier: Callable[[_Part], int]) -> Nodes:
    nodes: list[int] = []
    for line, start, end in parts:
        if end > start:
            nodes += line.calls[start:end] if end - start <= limits.SPELLED_OUT else (barrier((line, start, end)),)
    return tuple(sorted(set(nodes)) if len(nodes) > 1 else nodes)


# Readers: who reads at a place, by its parameters or its scopes (SPEC R2.3, R8).

_Places = Callable[[Call], Iterable[Reference]]


def parameter_places(call: Call) -> tuple[Reference, ...]:
    """The places that the parameters of a call read, each once; none of a passing thought (SPEC R5.2)."""
    if not call.reads or call.is_thought:
        return ()
    return tuple(dict.fromkeys(place for _, expression in call.reads for place in expression.references))


def scope_places(call: Call) -> tuple[Reference, ...]:
    """The scopes of a call, each once; none of a passing thought."""
    return tuple(dict.fromkeys(call.scopes)) if call.scopes and not call.is_thought else ()


def places_after(call: Call) -> tuple[Reference, ...]:
    """The places for whose writers a call waits without reading them; none of a passing thought (SPEC R6.8)."""
    return () if call.is_thought else call.after


def places_read(call: Call) -> tuple[Reference, ...]:
    """The places that a call waits for, each once: those that its parameters read, and its narrow scopes (R8.3a)."""
    return () if call.is_thought else tuple(dict.fromkeys((*parameter_places(call), *call.slices)))


def places_read_first(call: Call) -> tuple[Reference, ...]:
    """The places that a call reads where they have values: first alternatives (SPEC R2.3) and narrow scopes."""
    if call.is_thought:
        return ()
    first = (place for _, expression in call.reads for place in expression.alternatives[0])
    return tuple(dict.fromkeys((*first, *call.slices)))


def places_seen(call: Call) -> tuple[Reference, ...]:
    """The places that a call may see: those that its parameters read, and its scopes; one may come twice."""
    return *parameter_places(call), *scope_places(call)


def sees(reader: Call, writer: Call) -> bool:
    """Whether one call of a solution sees what another writes: globally or in one of its instances (SPEC R3.6)."""
    if writer.instance is None or writer.instance == reader.instance:
        return True
    return reader.instance is not None and EVERYWHERE in (reader.instance, writer.instance)


class PlaceIndex(Generic[T]):
    """Things by the places that they are about, each once for a place, in the order in which they were added."""

    def __init__(self) -> None:
        self._at: dict[tuple[str, ...], dict[T, None]] = defaultdict(dict)
        self._at_or_below: dict[tuple[str, ...], dict[T, None]] = defaultdict(dict)

    def add(self, place: Reference, thing: T) -> None:
        """Add a thing that is about a place."""
        key = place.key
        self._at[key][thing] = None
        for length in range(1, len(key) + 1):
            self._at_or_below[key[:length]][thing] = None

    def at(self, place: Reference) -> Iterator[T]:
        """The things about a place or one below it, then those about one above (SPEC R6.1); one may come twice."""
        key = place.key
        yield from self._at_or_below.get(key, ())
        for length in range(1, len(key)):
            yield from self._at.get(key[:length], ())


class ReadPlaces:
    """Places that are read, and whether another overlaps any of them."""

    def __init__(self, places: Iterable[Reference]) -> None:
        self._index = PlaceIndex[None]()
        for place in places:
            self._index.add(place, None)

    def overlap(self, place: Reference) -> bool:
        """Whether one of them is this place, above it or below it (SPEC R6.1)."""
        return any(True for _ in self._index.at(place))


class Readers:
    """An index of calls over the places that they read by `places`."""

    def __init__(self, calls: Iterable[Call], places: _Places = places_seen) -> None:
        self._index = PlaceIndex[int]()
        for call in calls:
            for place in places(call):
                self._index.add(place, call.index)

    def at(self, place: Reference, *, but: int | None = None) -> Iterator[int]:
        """The calls, but one, that read at, above or below a place; a call may come twice."""
        return (index for index in self._index.at(place) if index != but)

    def has(self, place: Reference, *, but: int) -> bool:
        """Whether a call but this one reads there."""
        return next(self.at(place, but=but), None) is not None


def unread_results(calls: Iterable[Call]) -> tuple[int, ...]:
    """The calls whose results no call reads, by a parameter or a scope: the purpose of a run, or superfluous."""
    calls = tuple(calls)
    readers = Readers(calls)
    return tuple(
        call.index
        for call in calls
        if call.output is not None and not any(readers.has(place, but=call.index) for place in call.output.references)
    )


class Audience:
    """Finds who can ever read what a call writes (SPEC R3.6, R10)."""

    def __init__(self, calls: Collection[Call], *, is_template: bool, places: _Places = places_seen) -> None:
        members: dict[str | None, list[Call]] = defaultdict(list)
        for call in calls:
            members[call.instance].append(call)
        everywhere = {EVERYWHERE, None} if is_template else {EVERYWHERE}
        self._all = Readers(calls, places)
        self._of = {instance: Readers(own, places) for instance, own in members.items() if instance is not None}
        self._everywhere = Readers((call for call in calls if call.instance in everywhere or call.gather), places)
        self._inside = Readers((call for call in calls if call.instance is not None or call.gather), places)

    def of(self, writer: Call, place: Reference) -> Iterator[int]:
        """The calls that can read what a call writes at a place, itself among them; a call may come twice."""
        if writer.instance is None:
            yield from self._all.at(place)
            return
        if writer.instance == EVERYWHERE:
            yield from self._inside.at(place)
            return
        yield from self._of[writer.instance].at(place)
        yield from self._everywhere.at(place)
