"""Order: which calls are sure to have ended before a call starts, in lanes that share a graph (SPEC R6.1, R6.5, R6.6).

That a call waits for another is not enough. Of alternatives joined by `||` the later ones are waited for only where the
first is not there; and a call that is skipped has ended as soon as one of its values can no longer arrive, whatever the
others are waiting for. So two things are known of each call: who has ended when it starts, and who when it has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import and_, or_
from typing import Final

from protocol.calls.call import Call
from protocol.graph.graph import Graph
from protocol.graph.writers import Writers
from protocol.language.references import Expression, Reference

MOST_CALLS: Final = 20_000
"""In a longer lane nobody is known to come before anybody: to find it out takes the square of their number."""

Calls = int
"""A set of calls, as the bits of their indexes."""


@dataclass(frozen=True, eq=False)
class Order:
    """Who comes before whom in a graph without cycles; found out when it is first asked.

    `shared` is the order of the global calls, where the graph is that of an instance. `may_hold` says of a place that
    only one call writes whether its value might come from the context.
    """

    graph: Graph
    calls: Mapping[int, Call]
    writers: Writers
    may_hold: Callable[[Reference], bool]
    shared: Order | None = None
    _at_end: dict[int, Calls] = field(default_factory=dict)
    """Call or barrier -> the calls that have ended when it has."""

    def before(self, index: int) -> Calls:
        """Every call that is sure to have ended when a call starts."""
        return self._at_start[index] if index in self._at_start else self._before_in_shared(index)

    def behind(self, index: int) -> set[int]:
        """Every call that a call may wait for, directly or through others, whether it is sure to or not."""
        graphs = [order.graph for order in (self, self.shared) if order is not None]
        stack, seen = [index], set[int]()
        while stack:
            call = stack.pop()
            new = {writer for graph in graphs for writer in graph.before(call)} - seen
            seen |= new
            stack.extend(new)
        return seen

    @cached_property
    def _at_start(self) -> Mapping[int, Calls]:
        found: dict[int, Calls] = {}
        for node in self.graph.in_order() if len(self.graph.waits) <= MOST_CALLS else ():
            if node < 0:
                self._at_end[node] = self._all_ended(self.graph.directly_before(node))
                continue
            call = self.calls[node]
            reads = call.expressions if not call.is_thought else ()
            waited_for = [self._settled(node, place) for place in _waited_for(reads)]
            waited_for += map(self._all_ended, self.graph.scopes.get(node, {}).values())
            needed = (found[w] if w in found else self._before_in_shared(w) for w in self._needed(node, reads))
            found[node] = reduce(or_, (*waited_for, *needed), 0)
            skips = (self._when_missing(node, expression) for expression in reads)
            self._at_end[node] = reduce(and_, skips, found[node]) | 1 << node
        return found

    def _needed(self, index: int, reads: Iterable[Expression]) -> Iterator[int]:
        """The calls without whose success a call is skipped: nobody else writes there, and nothing is there."""
        for expression in reads:
            for place in expression.alternatives[0] if len(expression.alternatives) == 1 else ():
                nodes = self.graph.waits[index].get(place, ())
                if len(nodes) == 1 and nodes[0] >= 0 and not self.may_hold(place):
                    others = {writer for line in self.writers.lines(place) for writer in line.calls[:3]}
                    if not others - {nodes[0], index}:
                        yield nodes[0]

    def _when_missing(self, index: int, expression: Expression) -> Calls:
        """Who has ended when it turns out that an expression gives nothing: of each alternative a place is missing."""
        return reduce(
            or_,
            (reduce(and_, (self._settled(index, place) for place in group)) for group in expression.alternatives),
        )

    def _settled(self, index: int, place: Reference) -> Calls:
        """Who has ended when nobody can write a place any more for whom the call waits."""
        return self._all_ended(self.graph.waits[index].get(place, ()))

    def _all_ended(self, nodes: Iterable[int]) -> Calls:
        return reduce(or_, map(self._ended, nodes), 0)

    def _ended(self, node: int) -> Calls:
        """Who has ended when a call or barrier has."""
        if node in self._at_end or self.shared is None:
            return self._at_end.get(node, 0)
        return self.shared._ended(node) if self.shared._at_start else 0

    def _before_in_shared(self, index: int) -> Calls:
        return self.shared.before(index) if self.shared is not None else 0


def _waited_for(reads: Iterable[Expression]) -> Iterator[Reference]:
    """The places that a call waits for in any case: of several alternatives the first, if it is but one place."""
    for expression in reads:
        first, *others = expression.alternatives
        if not others or len(first) == 1:
            yield from first


def indexes(calls: Calls) -> Iterator[int]:
    """The indexes in a set of calls, in order."""
    while calls:
        lowest = calls & -calls
        yield lowest.bit_length() - 1
        calls ^= lowest
