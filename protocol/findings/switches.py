"""Switches: values of which each reader takes others, so that they decide who of these can run (SPEC R4.1).

That is how a model writes `switch`: a call says which it is, and of several others each takes one of the answers, by
what its tool admits - an `enum`, a type, a range.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from protocol.calls import Call
from protocol.graph import Graph
from protocol.references import Expression
from protocol.writers import Writers

from .demands import Parameter, parameter_at
from .finding import FAILURES
from .fitting import misfit
from .memory import Memory

_MOST_READERS: Final = 50
"""Where more read a value, it is taken to suit them all."""


@dataclass(frozen=True, eq=False)
class Switch:
    """Calls that read one and the same value: of each, those that take nothing of what it takes."""

    apart: Mapping[int, frozenset[int]]

    def refused(self, among: Collection[int], first: Iterable[int]) -> tuple[frozenset[int], ...]:
        """Who is refused of some of the calls, in favour of each of them; besides, of those that go `first`."""
        readers = [index for index in self.apart if index in among]
        preferred = [index for index in first if index in self.apart]
        return tuple(dict.fromkeys(self._refused((reader, *preferred, *readers)) for reader in readers))

    def _refused(self, readers: Iterable[int]) -> frozenset[int]:
        taken, refused = set[int](), set[int]()
        for reader in readers:
            (refused if self.apart[reader] & taken else taken).add(reader)
        return frozenset(refused)


def read_switches(
    calls: Iterable[Call], writers: Writers, memory: Memory, graph_of: Callable[[int], Graph]
) -> tuple[Switch, ...]:
    """The switches among some calls. Those read the same that wait for the same, and for all who ever write there."""
    readers: defaultdict[tuple[int, Expression, object], dict[int, list[Parameter]]] = defaultdict(dict)
    for call in calls:
        for at, expression in call.reads if not call.is_thought else ():
            graph = graph_of(call.index)
            waits = graph.waits[call.index]
            same = id(graph), expression, tuple(waits[place] for place in expression.references)
            readers[same].setdefault(call.index, []).append(parameter_at(call, at))
    return tuple(
        switch
        for (_, expression, _), parameters in readers.items()
        if 1 < len(parameters) <= _MOST_READERS and _is_settled(expression, next(iter(parameters)), writers, graph_of)
        for switch in _switch(parameters, memory)
    )


def _switch(readers: Mapping[int, Collection[Parameter]], memory: Memory) -> Iterator[Switch]:
    apart: dict[int, set[int]] = {reader: set() for reader in readers}
    for one, other in combinations(readers, 2):
        if any(_exclude(mine, theirs, memory) for mine in readers[one] for theirs in readers[other]):
            apart[one].add(other)
            apart[other].add(one)
    if any(apart.values()):
        yield Switch({reader: frozenset(others) for reader, others in apart.items()})


def _exclude(one: Parameter, other: Parameter, memory: Memory) -> bool:
    """Whether no value suits both."""
    return memory.once(("apart", one, other), _are_apart, one, other, memory)


def _are_apart(one: Parameter, other: Parameter, memory: Memory) -> bool:
    pairs = ((mine, theirs) for mine in memory.demands(one) for theirs in memory.demands(other))
    return any(misfit(mine.admitted, theirs.admitted) is not None for mine, theirs in pairs)


def _is_settled(expression: Expression, reader: int, writers: Writers, graph_of: Callable[[int], Graph]) -> bool:
    """Whether nobody writes who is not waited for: then it is the same for all who wait for the same."""
    return all(
        place.kind != FAILURES
        and graph_of(reader).writers(reader, place)
        == tuple(sorted({index for line in writers.lines(place) for index in line.calls}))
        for place in expression.references
    )
