"""Switches: values of which each reader takes others, so that they decide who of these can run (SPEC R4.1).

That is how a model writes `switch`: a call says which it is, and of several others each takes one of the answers, by
what its tool admits - an `enum`, a type, a range.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, permutations, product
from typing import Final

from protocol.calls.call import Call
from protocol.graph.graph import Graph
from protocol.graph.writers import Writers
from protocol.language.references import Expression, Reference

from .demands import Parameter, parameter_at
from .effort import count, is_spent
from .finding import FAILURES
from .fitting import misfit
from .memory import Memory

_MOST_KINDS: Final = 64
"""Where more kinds of readers read a value, none is taken to suit two of them: nobody can tell in time."""
_MOST_EXACT: Final = 4
"""Of so many readers each order is gone through in which they may be preferred."""
_STEPS: Final = 50
"""How much work it is to hold one kind against another (see `effort`)."""


@dataclass(frozen=True, eq=False)
class Switch:
    """Calls that read one and the same value: of each, those that take nothing of what it takes."""

    apart: Mapping[int, frozenset[int]]
    is_certain: bool
    """Whether that was found out, and not taken for granted for want of time."""

    def is_exact(self, among: Collection[int]) -> bool:
        """Whether, of some calls, all that may run together are known."""
        return self.is_certain and len(self.apart.keys() & among) <= _MOST_EXACT

    def refused(self, among: Collection[int], first: Iterable[int]) -> tuple[frozenset[int], ...]:
        """Who is refused of some of the calls: in favour of each set that may run together, or, where they are many, of
        each call, besides of those that go `first`.
        """
        readers = [index for index in self.apart if index in among]
        orders: Iterable[tuple[int, ...]]
        if len(readers) <= _MOST_EXACT:
            orders = permutations(readers)
        else:
            preferred = [index for index in first if index in self.apart]
            orders = ((reader, *preferred, *readers) for reader in readers)
        return tuple(dict.fromkeys(map(self._refused, orders)))

    def _refused(self, readers: Iterable[int]) -> frozenset[int]:
        taken, refused = set[int](), set[int]()
        for reader in readers:
            (refused if self.apart[reader] & taken else taken).add(reader)
        return frozenset(refused)


@dataclass(frozen=True)
class _Reading:
    """How a call reads a value: by an expression, as some parameter."""

    expression: Expression
    parameter: Parameter

    @property
    def place(self) -> Reference:
        """What is read if it is there."""
        return self.expression.alternatives[0][-1]

    @property
    def has_others(self) -> bool:
        """Whether something else is read where that is not there."""
        return len(self.expression.alternatives) > 1


def read_switches(
    calls: Iterable[Call], writers: Writers, memory: Memory, graph_of: Callable[[int], Graph]
) -> tuple[Switch, ...]:
    """The switches among some calls. Whoever waits for all who ever write there reads what is there at last."""
    readers: defaultdict[tuple[int, object], dict[int, list[_Reading]]] = defaultdict(dict)
    for call in calls:
        graph = graph_of(call.index)
        for at, expression in call.reads if not call.is_thought else ():
            reading = _Reading(expression, parameter_at(call, at))
            if _is_particular(reading, memory) and _is_settled(expression, call.index, writers, graph):
                near = readers[id(graph), reading.place.key[:2]]
                near.setdefault(call.index, []).append(reading)
    return tuple(switch for alike in readers.values() if len(alike) > 1 for switch in _switch(alike, memory))


def _is_particular(reading: _Reading, memory: Memory) -> bool:
    """Whether not just any value will do."""
    return not all(demand.admitted.is_open for demand in memory.demands(reading.parameter))


def _is_settled(expression: Expression, reader: int, writers: Writers, graph: Graph) -> bool:
    """Whether a call waits for everybody who writes what it reads (SPEC R6.1)."""
    for place in expression.references:
        lines = list(writers.lines(place))
        are_earlier = all(line.calls[-1] < reader for line in lines)
        are_later = all(line.calls[0] > reader for line in lines) and bool(graph.waits[reader][place])
        if place.kind == FAILURES or not (are_earlier or are_later):
            return False
    return True


def _switch(readers: Mapping[int, list[_Reading]], memory: Memory) -> Iterator[Switch]:
    kinds: defaultdict[tuple[_Reading, ...], list[int]] = defaultdict(list)
    for reader, readings in readers.items():
        kinds[tuple(readings)].append(reader)
    apart: dict[int, set[int]] = {reader: set() for reader in readers}
    for (one, mine), (other, theirs) in combinations(kinds.items(), 2):
        if len(kinds) > _MOST_KINDS or _exclude(one, other, memory):
            for reader in mine:
                apart[reader].update(theirs)
            for reader in theirs:
                apart[reader].update(mine)
    if any(apart.values()):
        is_certain = len(kinds) <= _MOST_KINDS and not is_spent()
        yield Switch({reader: frozenset(others) for reader, others in apart.items()}, is_certain)


def _exclude(one: Iterable[_Reading], other: Iterable[_Reading], memory: Memory) -> bool:
    """Whether no value suits both; taken for granted where there is no time to find out."""
    if is_spent():
        return True
    count(_STEPS)
    pairs = product(one, other)
    return any(memory.once(("apart", mine, theirs), _are_apart, mine, theirs, memory) for mine, theirs in pairs)


def _are_apart(one: _Reading, other: _Reading, memory: Memory) -> bool:
    """Whether no value suits both, where both read the same or one what is inside of the other's."""
    outer, inner = sorted((one, other), key=lambda reading: (len(reading.place.path), not reading.has_others))
    below = inner.place.path[len(outer.place.path) :]
    pairs = product(memory.demands(outer.parameter), memory.demands(inner.parameter))
    return _read_one_value(outer, inner) and any(
        misfit(whole.admitted.at(below, in_lists=True), part.admitted) is not None for whole, part in pairs
    )


def _read_one_value(outer: _Reading, inner: _Reading) -> bool:
    """Whether two calls, if both run, read one value, or the one what is inside of it."""
    if outer.expression == inner.expression:
        return True
    is_first = not outer.has_others or len(outer.expression.alternatives[0]) == 1  # what holds the inner one is there
    return outer.place.overlaps(inner.place) and not inner.has_others and is_first
