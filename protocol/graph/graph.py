"""The data-flow graph: which call waits for which (SPEC R6.1-R6.3, R8.3a).

Calls are joined by the paths they read, by parameters and scopes, and write. The graph is that of one *lane*: the calls
of one instance together with the global ones they can see, or the global calls alone. Lanes never wait for each other
otherwise.

Where many calls wait for the same many writers, listing each pair would take the square of their number. There a
*barrier* stands between them: a node without a call, numbered below zero, that ends when all before it have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from acts_celery.protocol.language.references import Reference

SPELLED_OUT: Final = 8
"""Up to this many calls waited for at one place are listed one by one."""


Nodes = tuple[int, ...]
"""Calls and barriers."""
ScopePlaces = Mapping[Reference, Nodes]
"""What a call waits for at each of its scopes."""


@dataclass(frozen=True, slots=True)
class Window:
    """Neighbours in the list of calls, both ends included. A set of them is an integer: bit n stands for the call n
    places behind the first.
    """

    start: int
    end: int

    def bit(self, index: int) -> int:
        """The call as a bit."""
        return 1 << (index - self.start)

    def before(self, index: int) -> int:
        """The calls of the window that are listed before one."""
        return self.bit(index) - 1

    def calls(self, bits: int) -> list[int]:
        """The calls that bits stand for, in the order listed."""
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
        """As pairs (reader, writer), in the order of the writers."""
        return ((self.reader, writer) for writer in self.window.calls(self.bits))


@dataclass(frozen=True)
class Graph:
    """The waits of a lane's calls: call index -> place read -> the calls that may write it, and barriers."""

    waits: Mapping[int, Mapping[Reference, Nodes]]
    """By parameters."""
    barriers: Mapping[int, Nodes] = field(default_factory=dict)
    """Barrier -> the calls and barriers that have to end before it."""
    scopes: Mapping[int, ScopePlaces] = field(default_factory=dict)
    """By scopes; calls without any are not in it."""
    promises: Mapping[int, Reference] = field(default_factory=dict)
    """Barriers that end when a promised value is there, and its place (SPEC R6.3)."""
    left_out: tuple[LeftOut, ...] = ()
    """Scope waits that would close a cycle, in the order of their readers."""

    def beside(self, other: Graph) -> Graph:
        """This graph and that of other readers, whose barriers get other numbers."""
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
        )

    def with_stand_ins(self, stand_ins: Mapping[int, Nodes]) -> Graph:
        """The graph in which what waits for a call also waits for those that stand in for it (SPEC R14.2)."""

        def joined(nodes: Nodes) -> Nodes:
            return tuple(dict.fromkeys(_reached(reversed(nodes), lambda node: stand_ins.get(node, ()))))

        def moved(places: Mapping[Reference, Nodes]) -> dict[Reference, Nodes]:
            return {place: joined(nodes) for place, nodes in places.items()}

        return replace(
            self,
            waits={reader: moved(places) for reader, places in self.waits.items()},
            barriers={barrier: joined(nodes) for barrier, nodes in self.barriers.items()},
            scopes={reader: moved(places) for reader, places in self.scopes.items()},
        )

    def before(self, index: int) -> tuple[int, ...]:
        """The calls that a call waits for, in the order listed."""
        return tuple(sorted({node for node in self._reached(self.directly_before(index)) if node >= 0}))

    def writers(self, index: int, place: Reference) -> tuple[int, ...]:
        """The calls that a call waits for at one place, in the order listed."""
        nodes = (*self.waits.get(index, {}).get(place, ()), *self.scopes.get(index, {}).get(place, ()))
        return tuple(sorted({node for node in self._reached(nodes) if node >= 0}))

    @cached_property
    def awaited(self) -> frozenset[int]:
        """Every call that some call waits for."""
        found: set[int] = set()
        for readers in (self.waits, self.scopes):
            for places in readers.values():
                found.update(*places.values())
        return frozenset(node for node in found.union(*self.barriers.values()) if node >= 0)

    @cached_property
    def readers(self) -> Mapping[int, Set[int]]:
        """Call -> the calls that wait for it. Behind a barrier, what follows from the nearest ones is left out."""
        return self.readers_among(self.waits)

    def readers_among(self, calls: Iterable[int]) -> Mapping[int, Set[int]]:
        """Call -> those of some calls that wait for it; see `readers`."""
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
        """How many calls stand one behind the other before each call. `known` has the levels of other lanes' calls.

        The graph must have no cycle.
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
        """The calls and barriers that a call or barrier waits for, as they are noted down."""
        if node < 0:
            return self.barriers[node]
        found = dict.fromkeys(writer for writers in self.waits.get(node, {}).values() for writer in writers)
        for writers in self.scopes[node].values() if node in self.scopes else ():
            found.update(dict.fromkeys(writers))
        return found

    def behind(self, nodes: Iterable[int]) -> set[int]:
        """Some calls and barriers, and all that these wait for, one through another."""
        return set(_reached(nodes, self.directly_before))

    def _is_ours(self, node: int) -> bool:
        return node < 0 or node in self.waits

    def _reached(self, nodes: Iterable[int]) -> Iterator[int]:
        """The nodes, and through barriers those before them."""
        return _reached(nodes, lambda node: self.barriers.get(node, ()))

    def _nearest(self, nodes: Iterable[int], openings: Mapping[int, tuple[int, ...]]) -> Iterator[int]:
        """Like `_reached`, but calls only, and not beyond a barrier's opening."""
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
        """What stands before a barrier, without the barriers that one of the calls there waits for anyway."""
        behind = self.barriers[barrier]
        waited_for = {before for call in behind if call >= 0 for before in self.directly_before(call)}
        return tuple(before for before in behind if before >= 0 or before not in waited_for)

    def _cycle_from(self, start: int, done: set[int]) -> tuple[int, ...]:
        """A circle among the nodes before a call that are not done; what was looked at is done afterwards."""
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
    """Nodes, and what can be reached from them, each once."""
    stack, seen = list(nodes), set[int]()
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            yield node
            stack.extend(before(node))
