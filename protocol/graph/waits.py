"""Waits: what calls wait for, by what the context of their lane holds (SPEC R6.1, R6.3).

A reader waits for the writers listed before it; only if there is none and the context does not hold the value, for
those listed after it. So of most places it is certain who is waited for, and of the others there are two cases: that is
found out once for all lanes of the same calls, of which each then takes what is so for it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property

from protocol.calls.call import Call
from protocol.language.references import Expression, Reference

from .graph import SPELLED_OUT, Graph
from .readers import places_read
from .writers import Line, Writers

_Nodes = tuple[int, ...]
"""Calls and barriers."""


class Waits:
    """What some calls wait for, seen together with all `writers` in their sight."""

    def __init__(self, calls: Iterable[Call], writers: Writers) -> None:
        self._calls = sorted(calls, key=lambda call: call.index)
        self._writers = writers
        barriers = _Barriers(writers)
        self._readers = [_read(call, barriers) for call in self._calls]
        self._barriers = barriers.made
        self._lasting = barriers.behind_first

    @cached_property
    def uncertain(self) -> tuple[Reference, ...]:
        """The places whose readers wait or not, or can run or not, by what the initial context holds."""
        return tuple(dict.fromkeys(place for reader in self._readers for place in reader.uncertain))

    def graph(self, held: Set[Reference]) -> Graph:
        """The graph of a lane whose context holds these of the uncertain places."""
        waits = {reader.index: reader.waits_given(held) for reader in self._readers}
        barriers = {barrier: self._barriers[barrier] for barrier in self._lasting}
        for reader in self._readers:
            if reader.has_late_barriers:
                nodes = (node for nodes in waits[reader.index].values() for node in nodes if node < 0)
                barriers.update((node, self._barriers[node]) for node in nodes)
        return Graph(waits, barriers)

    @cached_property
    def may_circle(self) -> bool:
        """Whether some lane's calls may wait for each other in a circle: what the context holds is waited for less."""
        return next(self.graph(frozenset()).cycles(), None) is not None

    def unsatisfiable(self, held: Set[Reference]) -> Iterator[tuple[Call, str, Expression]]:
        """The expressions that no value of the context and no other call can satisfy, with their places (SPEC R6.3)."""
        for call, at, expression, needed in self._doubtful:
            if not any(places <= held for places in needed):
                yield call, at, expression

    @cached_property
    def _doubtful(self) -> list[tuple[Call, str, Expression, list[frozenset[Reference]]]]:
        """The expressions that calls alone do not satisfy, and what of each alternative only the context can bring."""
        found = []
        for call in self._calls:
            for at, expression in call.reads if not call.is_thought else ():
                needed = [
                    frozenset(place for place in group if not self._writers.has_other(place, than=call.index))
                    for group in expression.alternatives
                ]
                if all(needed):
                    found.append((call, at, expression, needed))
        return found


@dataclass(frozen=True, slots=True)
class _Reader:
    """What one call waits for."""

    index: int
    waits: Mapping[Reference, _Nodes]
    """As it is where the context holds nothing."""
    uncertain: Mapping[Reference, None]
    """Those of its places that it does not wait for where the context holds them."""
    has_late_barriers: bool
    """Whether it may wait for a barrier before which calls listed after it stand."""
    _known: dict[frozenset[Reference], Mapping[Reference, _Nodes]] = field(default_factory=dict)

    def waits_given(self, held: Set[Reference]) -> Mapping[Reference, _Nodes]:
        """What it waits for in a lane whose context holds some places."""
        mine = frozenset(self.uncertain.keys() & held) if self.uncertain else frozenset()
        if not mine:
            return self.waits
        if mine not in self._known:
            self._known[mine] = {place: () if place in mine else nodes for place, nodes in self.waits.items()}
        return self._known[mine]


def _read(call: Call, barriers: _Barriers) -> _Reader:
    waits: dict[Reference, _Nodes] = {}
    uncertain: dict[Reference, None] = {}
    for place in places_read(call):
        before = barriers.before(place, by=call.index)
        if before:
            waits[place] = before
        else:
            waits[place] = barriers.after(place, by=call.index)
            uncertain[place] = None
    return _Reader(call.index, waits, uncertain, any(node < 0 for place in uncertain for node in waits[place]))


_Part = tuple[Line, int, int]
"""Some neighbours in a line: from, and up to but without."""


class _Barriers:
    """Finds who writes a place, and sets barriers. To be asked in the order the calls are listed."""

    def __init__(self, writers: Writers) -> None:
        self.made: dict[int, _Nodes] = {}
        """Barrier -> the calls and barriers that have to end before it."""
        self.behind_first: list[int] = []
        """Those behind the first calls of a line, which are waited for whatever the context holds."""
        self._writers = writers
        self._known: dict[_Part, int] = {}
        self._longest: dict[Line, tuple[int, int]] = {}

    def before(self, place: Reference, *, by: int) -> _Nodes:
        """The writers of a place that are listed before its reader."""
        parts = ((line, 0, bisect_left(line.calls, by)) for line in self._writers.lines(place))
        return _nodes(parts, self._barrier_of_first)

    def after(self, place: Reference, *, by: int) -> _Nodes:
        """The writers of a place that are listed after its reader."""
        parts = ((line, bisect_right(line.calls, by), len(line.calls)) for line in self._writers.lines(place))
        return _nodes(parts, self._barrier)

    def _barrier(self, part: _Part) -> int:
        line, start, end = part
        return self._known.get(part) or self._add(part, tuple(line.calls[start:end]))

    def _barrier_of_first(self, part: _Part) -> int:
        """A barrier behind the first calls of a line is built on the one before it."""
        line, _, end = part
        if part in self._known:
            return self._known[part]
        covered, before = self._longest.get(line, (0, 0))
        new = line.calls[covered:end]
        barrier = self._add(part, (before, *new) if before else tuple(new))
        self._longest[line] = (end, barrier)
        self.behind_first.append(barrier)
        return barrier

    def _add(self, part: _Part, before: _Nodes) -> int:
        barrier = self._known[part] = -1 - len(self.made)
        self.made[barrier] = before
        return barrier


def _nodes(parts: Iterable[_Part], barrier: Callable[[_Part], int]) -> _Nodes:
    nodes: set[int] = set()
    for line, start, end in parts:
        nodes.update(line.calls[start:end] if end - start <= SPELLED_OUT else (barrier((line, start, end)),))
    return tuple(sorted(nodes))
