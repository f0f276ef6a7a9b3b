"""Order: which calls are sure to have ended before a call starts, in lanes that share a graph (SPEC R6.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Final

from protocol.graph import Graph

MOST_CALLS: Final = 20_000
"""In a longer lane nobody is known to come before anybody: to find it out takes the square of their number."""

Calls = int
"""A set of calls, as the bits of their indexes."""


class Order:
    """Who comes before whom in a graph without cycles; found out when it is first asked.

    `shared` is the order of the global calls, where the graph is that of an instance.
    """

    def __init__(self, graph: Graph, shared: Order | None = None) -> None:
        self._graph = graph
        self._shared = shared

    def before(self, index: int) -> Calls:
        """Every call that comes before a call."""
        return self._before[index] if index in self._before else self._before_in_shared(index)

    @cached_property
    def _before(self) -> Mapping[int, Calls]:
        found: dict[int, Calls] = {}
        for node in self._graph.in_order() if len(self._graph.waits) <= MOST_CALLS else ():
            all_before = 0
            for before in self._graph.directly_before(node):
                all_before |= found[before] if before in found else self._before_in_shared(before)
                all_before |= 1 << before if before >= 0 else 0
            found[node] = all_before
        return found

    def _before_in_shared(self, index: int) -> Calls:
        return self._shared.before(index) if self._shared is not None else 0


def indexes(calls: Calls) -> Iterator[int]:
    """The indexes in a set of calls, in order."""
    while calls:
        lowest = calls & -calls
        yield lowest.bit_length() - 1
        calls ^= lowest
