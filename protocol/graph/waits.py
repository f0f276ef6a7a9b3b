"""Waits: what calls wait for, by what the context of their lane holds (SPEC R6.1, R6.3, R8.3a).

A reader waits for the writers listed before it; only if there is none and the context does not hold the value, for
those listed after it. So of most places it is certain who is waited for, and of the others there are two cases: that is
found out once for all lanes of the same calls, of which each then takes what is so for it. What is in a call's scopes
it waits for where it is written before it, and need not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from functools import cached_property

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.language.references import Expression, Reference

from .barriers import Barriers
from .graph import Graph, Nodes
from .promises import KIND
from .readers import parameter_places, scope_places
from .scope_waits import ScopeWaits, windows
from .writers import Writers


class Waits:
    """What some calls wait for, seen together with all `writers` in their sight.

    Gather calls wait in the lanes of instances, where they `are_guests`.
    """

    def __init__(self, calls: Iterable[Call], writers: Writers, *, are_guests: bool = False) -> None:
        self._calls = sorted(calls, key=lambda call: call.index)
        self._writers = writers
        barriers = Barriers(writers)
        self._are_guests = are_guests
        self._readers = [_read(call, barriers, is_elsewhere=call.gather and not are_guests) for call in self._calls]
        self._barriers = barriers.made
        own = {call.index for call in self._calls}
        self._forward = [
            (reader.index, last)
            for reader in self._readers
            if reader.uncertain and (last := reader.last(own, barriers.made)) is not None
        ]
        behind_scopes = Barriers(writers, barriers.count)
        scopes = ((call.index, places) for call in self._calls if (places := scope_places(call)))
        self._scopes = ScopeWaits(scopes, writers, windows(self._forward), behind_scopes)
        self._lasting = {barrier: barriers.made[barrier] for barrier in barriers.behind_first} | behind_scopes.made

    @cached_property
    def uncertain(self) -> tuple[Reference, ...]:
        """The places whose readers wait or not, or can run or not, by what the initial context holds."""
        return tuple(dict.fromkeys(place for reader in self._readers for place in reader.uncertain))

    @cached_property
    def inputs(self) -> tuple[Reference, ...]:
        """The places of input that parameters read: they may be promised."""
        return tuple(dict.fromkeys(at for reader in self._readers for at in reader.waits if at.kind == KIND))

    def covered(self, places: Set[Reference]) -> frozenset[Reference]:
        """Those of some places of input that a scope covers."""
        if not places:
            return frozenset()
        seen = {scope for scopes in self._scopes.waits.values() for scope in scopes if scope.kind == KIND}
        return frozenset(place for place in places if any(map(place.overlaps, seen)))

    def graph(
        self, held: Set[Reference], promised: Set[Reference] = frozenset(), required: Set[Reference] = frozenset()
    ) -> Graph:
        """The graph of a lane whose context holds these of the uncertain places; of `inputs` some are `promised`, and
        the schemas of the promises have `required` places that scopes cover. What is promised counts as held.

        Where parameters wait for each other in a cycle, scope waits are left out: nothing of it will run.
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
        parameters = Graph(waits, barriers)
        if not self._scopes.waits or (self.may_circle and next(parameters.cycles(), None) is not None):
            return parameters
        scopes, more, left_out = self._scopes.without_cycles(parameters)
        return Graph(waits, {**barriers, **more} if more else barriers, scopes, left_out=tuple(left_out))

    @cached_property
    def may_circle(self) -> bool:
        """Whether some lane's calls may wait for each other in a circle: what the context holds is waited for less."""
        if not self._forward:
            return False
        waits = {reader.index: reader.waits for reader in self._readers}
        return next(Graph(waits, self._barriers).cycles(), None) is not None

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
            known: dict[Expression, list[frozenset[Reference]]] = {}  # a text may read the same again and again
            for at, expression in call.reads if call.gather is self._are_guests and not call.is_note else ():
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
    """What one call waits for by its parameters."""

    index: int
    waits: Mapping[Reference, Nodes]
    """As it is where the context holds nothing."""
    uncertain: Mapping[Reference, None]
    """Those of its places that it does not wait for where the context holds them."""
    has_late_barriers: bool
    """Whether it may wait for a barrier before which calls listed after it stand."""
    _known: dict[frozenset[Reference], Mapping[Reference, Nodes]] = field(default_factory=dict)

    def waits_given(self, held: Set[Reference]) -> Mapping[Reference, Nodes]:
        """What it waits for in a lane whose context holds some places."""
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
    """The graph with what waits for promised values: parameters at their places, scopes for all that is required there
    (SPEC R6.3).
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
    """What a call waits for; a gather call waits in the lanes of instances for what is listed after it (SPEC R10.4)."""
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
