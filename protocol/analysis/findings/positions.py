"""Positions: elements that are read by their index, of lists that are filled in no certain order (SPEC R3.2, R6.4).

Whoever reads the whole list has every result, in whatever order they came. Whoever reads one element of it gets that of
the call which ended first, or second. Told is only what holds if all that append to the list succeed: how many of them
come before a call in any case, and how many after it, says at which positions its result can be.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Final, NamedTuple

from protocol.calls.call import Call
from protocol.graph.readers import places_read_first
from protocol.language.paths import MISSING, lookup
from protocol.language.references import Reference
from protocol.state.operations import Method

from .finding import FAILURES, Finding
from .order import MOST_CALLS
from .sight import Sight

_TOLD: Final = 10
_LOOKED_AT: Final = 50
"""Where more calls write, nobody is told."""
_MOST_PAIRS: Final = 2_000
"""Of so many pairs of calls, over all lists of a lane, it is found out whether they can run together."""

Nodes = tuple[int, ...]
"""Calls, or in a graph barriers, in order."""


def position_findings(sight: Sight) -> Iterator[Finding]:
    """The elements that calls of a lane read, and that hang on which of others ends first; of each list one."""
    if len(sight.calls) > MOST_CALLS:
        return
    lists = _Lists(sight)
    for call in sight.lane.calls:
        told = set[Reference]()
        for place in places_read_first(call):
            for element in _elements(place, sight):
                if element.list not in told and (rivals := lists.rivals(call, place, element)):
                    told.add(element.list)
                    yield _finding(call, place, element.list, rivals)


def _finding(call: Call, place: Reference, list_: Reference, rivals: Nodes) -> Finding:
    told = rivals[:_TOLD]
    *names, last = [*map(str, told), *([f"{len(rivals) - _TOLD} more"] if len(rivals) > _TOLD else [])]
    return Finding(
        "info",
        f"call {call.index} ({call.tool}) reads {place}, and calls {', '.join(names)} and {last} append to {list_} in "
        "no certain order: whose result it gets depends on timing; let each write to a place of its own, or one read "
        "what the other writes",
        tuple(sorted((*told, call.index))),
    )


class _Element(NamedTuple):
    """An element that the context does not hold: the list, and how many have to be appended before it."""

    list: Reference
    position: int


def _elements(place: Reference, sight: Sight) -> Iterator[_Element]:
    """The elements beyond the end of lists on the way to a place."""
    for depth, segment in enumerate(place.path):
        if isinstance(segment, int) and place.kind != FAILURES:
            list_ = Reference(place.kind, place.path[:depth])
            held = lookup(sight.fold.root(list_.kind), list_.path)
            length = 0 if held is MISSING else len(held) if isinstance(held, list) else segment + 1
            if segment >= length:
                yield _Element(list_, segment - length)


class _Lists:
    """Who appends to the lists of a lane, and in which order."""

    def __init__(self, sight: Sight) -> None:
        self._sight = sight
        self._left = _MOST_PAIRS
        self._rivals: dict[tuple[_Element, Nodes, int | None], tuple[int, ...]] = {}
        self._known: dict[tuple[Reference, Nodes], dict[int, range]] = {}

    def rivals(self, reader: Call, place: Reference, element: _Element) -> tuple[int, ...]:
        """The calls for which a reader waits of whose results each may be the element."""
        nodes = self._sight.lane.graph.waits.get(reader.index, {}).get(place, ())
        writes_there = any(written.overlaps(element.list) for written in reader.written)
        key = element, nodes, reader.index if writes_there else None
        if key not in self._rivals:
            appending = self._appending(reader, place, element.list)
            self._rivals[key] = self._at(element, appending) if len(appending) > 1 else ()
        return self._rivals[key]

    def _at(self, element: _Element, appending: Nodes) -> tuple[int, ...]:
        if (element.list, appending) not in self._known:
            self._known[element.list, appending] = self._positions(appending)
        positions = self._known[element.list, appending]
        found = [index for index in appending if element.position in positions.get(index, ())]
        pairs = [pair for pair in combinations(found, 2) if self._are_open(*pair) and not self._are_alike(*pair)]
        return tuple(sorted({index for pair in pairs for index in pair}))

    def _appending(self, reader: Call, place: Reference, list_: Reference) -> Nodes:
        """The calls that append to a list and that a reader waits for; none where others write there as well."""
        lines = list(self._sight.writers.lines(list_))
        if not 2 <= sum(len(line.calls) for line in lines) <= _LOOKED_AT:
            return ()
        writers = {index for line in lines for index in line.calls if index != reader.index}
        if any(not _appends(self._sight.calls[index], list_) for index in writers):
            return ()
        if self._sight.fold.has_own(list_):
            writers &= self._sight.own  # what the instance has of its own lies on top (SPEC R3.6)
        return tuple(sorted(writers.intersection(self._sight.lane.graph.writers(reader.index, place))))

    def _positions(self, appending: Nodes) -> dict[int, range]:
        """Where the result of each may be; nothing where two of them are never there together, so that nobody knows.

        How many elements are joined to a list at once is not known: then only those that may come first are compared.
        """
        pairs = list(combinations(appending, 2))
        self._left -= len(pairs)
        if self._left < 0 or not all(self._sight.may_meet(*pair) for pair in pairs if self._are_open(*pair)):
            return {}
        joined = any(self._sight.calls[index].method is Method.CONCAT for index in appending)
        found: dict[int, range] = {}
        for index in appending:
            earlier = sum(self._precedes(other, index) for other in appending)
            later = sum(self._precedes(index, other) for other in appending)
            if not joined:
                found[index] = range(earlier, len(appending) - later)
            elif not earlier:
                found[index] = range(10**18)
        return found

    def _are_open(self, one: int, other: int) -> bool:
        return not self._precedes(one, other) and not self._precedes(other, one)

    def _are_alike(self, one: int, other: int) -> bool:
        """Whether two calls append one and the same value."""
        values = [self._sight.calls[index].given for index in (one, other)]
        return MISSING not in values and values[0] == values[1]

    def _precedes(self, one: int, other: int) -> bool:
        """Whether the result of a call is sure to come before that of another.

        A global one does in each instance (SPEC R3.6), and one that a model has written, in a call that waits for
        nothing: of several such in the order listed.
        """
        if (one in self._sight.own) is not (other in self._sight.own):
            return other in self._sight.own
        if self._is_there(one):
            return not self._is_there(other) or one < other
        return bool(self._sight.order.before(other) >> one & 1)

    def _is_there(self, index: int) -> bool:
        call = self._sight.calls[index]
        return call.given is not MISSING and not call.expressions and not call.slices


def _appends(call: Call, list_: Reference) -> bool:
    """Whether a call adds to a list as a whole, and writes nowhere else at, above or below it."""
    places = [place for place in call.written if place.overlaps(list_)]
    return call.method in (Method.PUSH, Method.CONCAT) and all(place.key == list_.key for place in places)
