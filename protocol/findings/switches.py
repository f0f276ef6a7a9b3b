"""Switches: values of which each reader takes others, so that they decide who of these can run (SPEC R4.1).

That is how a model writes `switch`: a call says which it is, and of several others each takes one of the answers, by
what its tool admits - an `enum`, a type, a range.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, product
from typing import Final

from protocol.calls import Call
from protocol.graph import Graph
from protocol.references import Expression
from protocol.writers import Writers

from .demands import Parameter, parameter_at
from .effort import count, is_spent
from .finding import FAILURES
from .fitting import misfit
from .memory import Memory

_MOST_KINDS: Final = 64
"""Where more kinds of readers read a value, none is taken to suit two of them: nobody can tell in time."""
_STEPS: Final = 50
"""How much work it is to hold one kind against another (see `effort`)."""


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
        if len(parameters) > 1 and _is_settled(expression, next(iter(parameters)), writers, graph_of)
        for switch in _switch(parameters, memory)
    )


def _switch(readers: Mapping[int, list[Parameter]], memory: Memory) -> Iterator[Switch]:
    kinds: defaultdict[tuple[Parameter, ...], list[int]] = defaultdict(list)
    for reader, parameters in readers.items():
        if any(memory.demands(parameter) for parameter in parameters):
            kinds[tuple(parameters)].append(reader)
    apart: dict[int, set[int]] = {reader: set() for members in kinds.values() for reader in members}
    for (one, mine), (other, theirs) in combinations(kinds.items(), 2):
        if len(kinds) > _MOST_KINDS or _exclude(one, other, memory):
            for reader in mine:
                apart[reader].update(theirs)
            for reader in theirs:
                apart[reader].update(mine)
    if any(apart.values()):
        yield Switch({reader: frozenset(others) for reader, others in apart.items()})


def _exclude(one: Iterable[Parameter], other: Iterable[Parameter], memory: Memory) -> bool:
    """Whether no value suits both; taken for granted where there is no time to find out."""
    if is_spent():
        return True
    count(_STEPS)
    pairs = product(one, other)
    return any(memory.once(("apart", mine, theirs), _are_apart, mine, theirs, memory) for mine, theirs in pairs)


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
