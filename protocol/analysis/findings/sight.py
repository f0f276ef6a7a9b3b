"""Sight: one lane as its findings see it - its calls, the global ones beside them, and what the context holds there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from protocol.calls.call import Call
from protocol.calls.tools import Tool
from protocol.graph.graph import Graph
from protocol.graph.lanes import Lane
from protocol.graph.writers import Writers
from protocol.language.messages import Message, read_data
from protocol.language.references import Reference
from protocol.state.fold import Fold
from protocol.submission.layout import Layout

from .branches import Branches, read_branches
from .finding import FAILURES
from .memory import Memory
from .order import Order
from .schedules import Schedules
from .signatures import signatures_of

_NO_LANE: Final = Lane(None, (), Graph({}))


@dataclass(frozen=True)
class Sight:
    """What one lane sees. `calls`, `writers` and `order` hold the global calls too, which are seen from any lane."""

    lane: Lane
    fold: Fold
    calls: Mapping[int, Call]
    writers: Writers
    order: Order
    tools: Mapping[str, Tool]
    delegates: Mapping[str, Any]
    memory: Memory
    """What is read off tools and schemas, of which all lanes have the same."""
    schedules: Schedules
    shared: Fold
    """What the global calls see."""

    @cached_property
    def own(self) -> frozenset[int]:
        """The indexes of the lane's own calls."""
        return frozenset(call.index for call in self.lane.calls)

    def without(self, lost: Collection[int]) -> Sight:
        """The same as if calls that never succeed were not there, nor those that are skipped since these never do."""
        if not lost:
            return self
        gone = set(lost)
        for index in self.lane.graph.in_order():
            if index in self.own and self._lacks(self.calls[index], gone):
                gone.add(index)
        kept = {index: call for index, call in self.calls.items() if index not in gone}
        lane = replace(self.lane, calls=tuple(call for call in self.lane.calls if call.index not in gone))
        return replace(self, lane=lane, calls=kept, writers=Writers(kept.values()))

    def _lacks(self, call: Call, gone: Collection[int]) -> bool:
        """Whether nobody but those who are gone brings what a call needs."""
        return not call.is_thought and any(
            all(any(self._is_missing(place, call, gone) for place in group) for group in expression.alternatives)
            for expression in call.expressions
        )

    def _is_missing(self, place: Reference, reader: Call, gone: Collection[int]) -> bool:
        writers = (index for line in self.writers.lines(place) for index in line.calls if index != reader.index)
        return place.kind != FAILURES and not self.fold.exists(place) and all(index in gone for index in writers)

    def may_meet(self, one: int, other: int) -> bool:
        """Whether two calls without a certain order between them can really come in either, in one and the same run."""
        return not self.branches.exclude(one, other) and self.schedules.meet(
            one, other, self.lane.instance, self._holds
        )

    def never_runs(self, index: int) -> bool:
        """Whether what a call needs is certain never to be there in one and the same run."""
        return self.schedules.never_runs(index, self._holds)

    def _holds(self, index: int, place: Reference) -> bool:
        """Whether the context holds a value at a place, as one of the calls sees it."""
        return (self.fold if index in self.own else self.shared).exists(place)

    @cached_property
    def branches(self) -> Branches:
        """What its calls need of each other's alternatives."""
        return read_branches(self.lane, self.writers, self.fold.exists, self.calls)


class Sights:
    """What each lane sees; what lanes that share a graph have in common is made once for all of them."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._memory = Memory(layout.tools, layout.submission.delegates, signatures_of(layout))
        self._held = frozenset(_held(layout.submission.context))
        self._shared = self._common(layout.lanes.get(None, _NO_LANE))
        self._known = {id(lane.graph): self._shared for instance, lane in layout.lanes.items() if instance is None}

    def of(self, lane: Lane) -> Sight:
        """What one lane sees."""
        if id(lane.graph) not in self._known:
            self._known[id(lane.graph)] = self._common(lane, self._shared)
        common = self._known[id(lane.graph)]
        layout = self._layout
        fold, delegates = layout.context.fold(lane.instance), layout.submission.delegates
        calls, writers, order, schedules = common
        return Sight(
            lane, fold, calls, writers, order, layout.tools, delegates, self._memory, schedules, layout.context.fold()
        )

    def _common(self, lane: Lane, shared: _Common | None = None) -> _Common:
        own = {call.index: call for call in lane.calls}
        calls = {**shared[0], **own} if shared is not None else own
        writers = Writers(lane.calls, shared[1] if shared is not None else None)
        order = Order(lane.graph, own, writers, self._may_hold, shared[2] if shared is not None else None)
        schedules = Schedules(lane.graph, own, calls, writers, self._memory, shared[3] if shared is not None else None)
        return calls, writers, order, schedules

    def _may_hold(self, place: Reference) -> bool:
        """Whether the context may hold a value at a place, for whomever."""
        return not self._held.isdisjoint((place.key[:1], place.key[:2]))


_Common = tuple[Mapping[int, Call], Writers, Order, Schedules]


def _held(messages: Iterable[Message]) -> Iterator[tuple[str, ...]]:
    """The kinds that messages give a value as a whole, and the keys that they give of others."""
    for message in messages:
        data = read_data(message)
        if data is not None and isinstance(data.payload, dict):
            yield from ((data.kind, key) for key in data.payload)
        elif data is not None:
            yield (data.kind,)
