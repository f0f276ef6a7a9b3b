"""Readers: who reads at a place, by its parameters or its scopes (SPEC R2.3, R8).

The counterpart of `graph.Writers`. Whole kinds in scopes count, though they order nothing (SPEC R8.3a).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from .calls import Call
from .references import Reference


class Readers:
    """An index over the places that calls read. Passing thoughts read nothing (SPEC R5.2)."""

    def __init__(self, calls: Iterable[Call]) -> None:
        self._at: dict[tuple[str, ...], dict[int, None]] = defaultdict(dict)
        self._at_or_below: dict[tuple[str, ...], dict[int, None]] = defaultdict(dict)
        for call in calls:
            for place in _places(call):
                key = place.key
                self._at[key][call.index] = None
                for length in range(1, len(key) + 1):
                    self._at_or_below[key[:length]][call.index] = None

    def at(self, place: Reference, *, but: int) -> Iterator[int]:
        """The calls, but one, that read at, above or below a place; a call may come twice."""
        key = place.key
        groups = [self._at_or_below.get(key, {})]
        groups += [self._at.get(key[:length], {}) for length in range(1, len(key))]
        for group in groups:
            yield from (index for index in group if index != but)

    def has(self, place: Reference, *, but: int) -> bool:
        """Whether a call but this one reads there."""
        return next(self.at(place, but=but), None) is not None


def _places(call: Call) -> Iterator[Reference]:
    if call.is_thought:
        return
    for _, expression in call.reads:
        yield from expression.references
    yield from call.scopes
