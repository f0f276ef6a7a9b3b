"""Races: calls whose order nothing settles, and whose order decides what is there afterwards (SPEC R6.4).

Two calls of one lane race where both write at one place (or one above the other's), at least one of them so that it
replaces what is there (see `replacements`), neither waits for the other, and both can run in one and the same run:
calls that follow different branches of a third one cannot. A global call and one of an instance never race: the
instance's value lies on top (SPEC R3.6).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import islice

from protocol.calls.call import Call
from protocol.language.paths import lookup
from protocol.language.references import Reference
from protocol.state.fold import Fold
from protocol.state.operations import Method

from .finding import FAILURES, Finding
from .order import MOST_CALLS, Calls, indexes
from .replacements import AGAINST, Replacements, Write
from .sight import Sight

_TOLD = 10
_LOOKED_AT = 200
"""Of so many unordered writers before a call it is found out whether they can run together with it."""

Key = tuple[str, ...]


def race_findings(sight: Sight) -> Iterator[Finding]:
    """The races of one lane; each is told at the call that comes later in the order of the graph."""
    if len(sight.lane.calls) > MOST_CALLS or not _has_overlap(sight.lane.calls):
        return
    places, replacements = _Places(), Replacements(sight.memory)
    for index in sight.lane.graph.in_order():
        if index not in sight.own:
            continue
        call, told = sight.calls[index], set[int]()
        writes = replacements.of(call)
        for place, write in writes.items():
            against = places.against(place, write) & ~(1 << index)
            found = _rivals(call, place, against, replacements, sight)
            rivals = tuple(islice((rival for rival in found if not _are_apart(call, rival, places, sight)), _TOLD))
            if rivals and place.kind != FAILURES and not told.issuperset(rival.index for rival in rivals):
                told.update(rival.index for rival in rivals)
                yield _finding(call, place, rivals)
        for place, write in writes.items():
            places.add(place, index, write)


def _rivals(call: Call, place: Reference, against: Calls, replacements: Replacements, sight: Sight) -> Iterator[Call]:
    """Those that write there in no certain order with a call, in one and the same run, and not the same value."""
    for index in islice(indexes(against & ~sight.order.before(call.index)), _LOOKED_AT):
        rival = sight.calls[index]
        if sight.may_meet(index, call.index) and not replacements.agree(place, rival, call):
            yield rival


def _are_apart(one: Call, other: Call, places: _Places, sight: Sight) -> bool:
    """Whether one of two calls appends to lists, and the other writes into elements of these that are there anyway."""
    return any(
        appending.method in (Method.PUSH, Method.CONCAT)
        and all(
            _is_held(into, len(list_.path), sight.fold) and not places.may_replace(list_)
            for list_ in appending.written
            for into in writing.written
            if into.overlaps(list_)
        )
        for appending, writing in ((one, other), (other, one))
    )


def _is_held(place: Reference, depth: int, fold: Fold) -> bool:
    """Whether a path leads through an element of a list of the context."""
    held, element = lookup(fold.root(place.kind), place.path[:depth]), place.path[depth : depth + 1]
    return isinstance(held, list) and bool(element) and isinstance(element[0], int) and element[0] < len(held)


def _finding(call: Call, place: Reference, rivals: tuple[Call, ...]) -> Finding:
    names = " and ".join(f"call {rival.index} ({rival.tool})" for rival in rivals)
    return Finding(
        "warning",
        f"call {call.index} ({call.tool}) writes {place} in no certain order with {names}, and the last to end wins: "
        "write to different places, let one read what the other writes, or collect with _outputMethod push",
        tuple(sorted((*(rival.index for rival in rivals), call.index))),
    )


class _Places:
    """Who writes where, as sets of call indexes in the bits of a number, those who do different things apart."""

    def __init__(self) -> None:
        self._at: dict[Write, dict[Key, Calls]] = {write: defaultdict(int) for write in Write}
        self._at_or_below: dict[Write, dict[Key, Calls]] = {write: defaultdict(int) for write in Write}

    def add(self, place: Reference, index: int, write: Write) -> None:
        """Note that a call writes there."""
        key, bit = place.key, 1 << index
        self._at[write][key] |= bit
        for length in range(1, len(key) + 1):
            self._at_or_below[write][key[:length]] |= bit

    def against(self, place: Reference, write: Write) -> Calls:
        """The calls whose writes matter to one there, and it to them.

        A key that is replaced matters to what is added or joined at it or below, and not above it: there they leave it
        alone, or clash with it (see `clashes`). What only adds and joins matters at one and the same place.
        """
        key, found = place.key, 0
        for other in AGAINST[write]:
            replaces_all = Write.SET in (write, other) or write is other is Write.KEY
            found |= (self._at_or_below if replaces_all or write is Write.KEY else self._at)[other].get(key, 0)
            for length in range(1, len(key) if replaces_all or other is Write.KEY else 0):
                found |= self._at[other].get(key[:length], 0)
        return found

    def may_replace(self, place: Reference) -> bool:
        """Whether a call of those noted may replace what is at a place as a whole."""
        key, others = place.key, (write for write in Write if write is not Write.ADD)
        return any(key[:length] in self._at[write] for write in others for length in range(1, len(key) + 1))


def _has_overlap(calls: Iterable[Call]) -> bool:
    """Whether any two calls write overlapping places: mostly none do, and then nothing has to be compared."""
    at: dict[Key, int] = {}
    above: dict[Key, int] = {}
    for call in calls:
        for place in call.written:
            key = place.key
            prefixes = [key[:length] for length in range(1, len(key) + 1)]
            if above.setdefault(key, call.index) != call.index:
                return True
            if any(at.get(prefix, call.index) != call.index for prefix in prefixes):
                return True
            at[key] = call.index
            for prefix in prefixes:
                above[prefix] = call.index if above.get(prefix, call.index) == call.index else -1
    return False
