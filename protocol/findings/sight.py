"""Sight: one lane as its findings see it - its calls, the global ones beside them, and what the context holds there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from protocol.calls import Call
from protocol.graph import Graph
from protocol.lanes import Lane
from protocol.layout import Layout
from protocol.resolution import Fold
from protocol.tools import Tool
from protocol.writers import Writers

from .branches import Branches, read_branches
from .order import Order

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

    @cached_property
    def own(self) -> frozenset[int]:
        """The indexes of the lane's own calls."""
        return frozenset(call.index for call in self.lane.calls)

    @cached_property
    def branches(self) -> Branches:
        """What its calls need of each other's alternatives."""
        return read_branches(self.lane, self.writers, self.fold.exists, self.calls)


class Sights:
    """What each lane sees; what lanes that share a graph have in common is made once for all of them."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._shared = _common(layout.lanes.get(None, _NO_LANE))
        self._known = {id(lane.graph): self._shared for instance, lane in layout.lanes.items() if instance is None}

    def of(self, lane: Lane) -> Sight:
        """What one lane sees."""
        if id(lane.graph) not in self._known:
            self._known[id(lane.graph)] = _common(lane, self._shared)
        common = self._known[id(lane.graph)]
        layout = self._layout
        return Sight(lane, layout.context.fold(lane.instance), *common, layout.tools, layout.submission.delegates)


_Common = tuple[Mapping[int, Call], Writers, Order]


def _common(lane: Lane, shared: _Common | None = None) -> _Common:
    own = {call.index: call for call in lane.calls}
    if shared is None:
        return own, Writers(lane.calls), Order(lane.graph)
    calls, writers, order = shared
    return {**calls, **own}, Writers(lane.calls, writers), Order(lane.graph, order)
