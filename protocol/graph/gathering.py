"""Gathering: calls that read in every instance (SPEC R10.4).

A gather call belongs to the global lane and waits in the lane of every instance. What it waits for there is a graph of
its own beside the lane's, which lanes of the same calls share, as they share theirs; so memory grows with the kinds of
lanes, not with the instances. Each lane says by itself when a gather call has nothing to wait for there any more; the
global lane needs only the number of lanes that have not yet said so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.language.references import Reference

from .graph import Graph, Nodes

_ANY: Final = Reference("any")


@dataclass(frozen=True)
class Gathers:
    """The gather calls of the global lane, and what they wait for in the lane of an instance.

    The places are those of `Lane`, as the gather calls see them in the instance.
    """

    calls: tuple[Call, ...]
    graph: Graph
    held: frozenset[Reference] = frozenset()
    promised: frozenset[Reference] = frozenset()
    required: frozenset[Reference] = frozenset()

    def beside(self, other: Gathers) -> Gathers:
        """These, and others that came later, in the same lane."""
        return Gathers(
            (*self.calls, *other.calls),
            self.graph.beside(other.graph),
            self.held | other.held,
            self.promised | other.promised,
            self.required | other.required,
        )

    @cached_property
    def waiting(self) -> tuple[int, ...]:
        """The calls that have anything to wait for in the lane; the others are settled there from the beginning."""
        return tuple(call.index for call in self.calls if self.graph.directly_before(call.index))


class Joined:
    """One graph over all lanes, as gather calls join them; of the lanes that share their graphs, one stands for all."""

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
                """The node of this graph: global calls are the same in all, those of a lane the same in both of its."""
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
        """How many calls stand one behind the other before each call, in the lane where they are most."""
        levels: dict[int, int] = {}
        for node, level in self._graph.levels({}).items():
            levels[node % self._stride] = max(level, levels.get(node % self._stride, 0))
        return levels
