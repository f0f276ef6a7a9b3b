"""Races: calls whose order nothing settles, and whose order decides what is there afterwards (SPEC R6.4).

Two calls of one lane race where both write at one place (or one above the other's), at least one of them by `set`,
neither waits for the other, and both can run in one and the same run: calls that follow different branches of a third
one cannot. A global call and one of an instance never race: the instance's value lies on top (SPEC R3.6).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from protocol.calls import Call
from protocol.operations import Method
from protocol.references import Reference

from .finding import FAILURES, Finding
from .order import MOST_CALLS, indexes
from .sight import Sight

_TOLD = 10
_LOOKED_AT = 200
"""Of so many unordered writers before a call it is found out whether they can run together with it."""

Key = tuple[str, ...]


def race_findings(sight: Sight) -> Iterator[Finding]:
    """The races of one lane; each is told at the call that comes later in the order of the graph."""
    lane, order = sight.lane, sight.order
    if len(lane.calls) > MOST_CALLS or not _has_overlap(lane.calls):
        return
    calls = {call.index: call for call in lane.calls}
    places = _Places()
    for index in lane.graph.in_order():
        call = calls.get(index)
        if call is None or call.output is None:
            continue
        for place in dict.fromkeys(call.output.references):
            unordered = places.against(place, call) & ~order.before(index) & ~(1 << index)
            looked_at = islice(indexes(unordered), _LOOKED_AT)
            rivals = tuple(islice((rival for rival in looked_at if not sight.branches.exclude(rival, index)), _TOLD))
            if rivals and place.kind != FAILURES:
                yield _finding(call, place, rivals, calls)
        for place in call.output.references:
            places.add(place, call)


def _finding(call: Call, place: Reference, rivals: tuple[int, ...], calls: Mapping[int, Call]) -> Finding:
    names = " and ".join(f"call {rival} ({calls[rival].tool})" for rival in sorted(rivals))
    return Finding(
        "warning",
        f"call {call.index} ({call.tool}) writes {place} in no certain order with {names}, and the last to end wins: "
        "write to different places, let one read what the other writes, or collect with _outputMethod push",
        tuple(sorted((*rivals, call.index))),
    )


class _Places:
    """Who writes where, as sets of call indexes in the bits of a number."""

    def __init__(self) -> None:
        self._at: dict[bool, dict[Key, int]] = {True: defaultdict(int), False: defaultdict(int)}
        self._at_or_below: dict[bool, dict[Key, int]] = {True: defaultdict(int), False: defaultdict(int)}

    def add(self, place: Reference, call: Call) -> None:
        """Note that a call writes there."""
        key, is_set, bit = place.key, call.method is Method.SET, 1 << call.index
        self._at[is_set][key] |= bit
        for length in range(1, len(key) + 1):
            self._at_or_below[is_set][key[:length]] |= bit

    def against(self, place: Reference, call: Call) -> int:
        """The calls whose writes there and this call's matter to each other."""
        key, found = place.key, 0
        for is_set in (True, False) if call.method is Method.SET else (True,):
            found |= self._at_or_below[is_set].get(key, 0)
            for length in range(1, len(key)):
                found |= self._at[is_set].get(key[:length], 0)
        return found


def _has_overlap(calls: Iterable[Call]) -> bool:
    """Whether any two calls write overlapping places: mostly none do, and then nothing has to be compared."""
    at: dict[Key, int] = {}
    above: dict[Key, int] = {}
    for call in calls:
        for place in call.output.references if call.output is not None else ():
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
