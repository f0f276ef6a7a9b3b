"""Views: the places that one reader may come to see, held by the context or written by the calls of its lane.

Made for hints, so of very many places only the first are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Final

from protocol.calls.call import Call
from protocol.graph.lanes import Lane
from protocol.language.errors import Conflict
from protocol.language.references import Reference
from protocol.state.context import Context
from protocol.state.fold import Fold

from .missing_dagger import Undaggered, undaggered

MOST_NAMES: Final = 200
_MOST_PLACES: Final = 10 * MOST_NAMES

Names = dict[str, str | int]
"""The keys below a place, each with the segment that leads there: an element of a list has a number."""


class Views:
    """The views of the readers of a submission."""

    def __init__(self, lanes: Mapping[str | None, Lane], context: Context) -> None:
        self._lanes = lanes
        self._context = context
        self._views: dict[str | None, View] = {}
        self._written: dict[int, _Written] = {}

    def of(self, instance: str | None) -> View:
        """What the calls of an instance, or the global ones, see."""
        if instance not in self._views:
            lanes = [self._lanes[name] for name in dict.fromkeys((None, instance)) if name in self._lanes]
            written = [self._by(lane.calls) for lane in lanes]
            self._views[instance] = View(self._context.fold(instance), written)
        return self._views[instance]

    def _by(self, calls: tuple[Call, ...]) -> _Written:
        """Lanes of the same calls share what is known of them."""
        return self._written.setdefault(id(calls), _Written(calls))


class View:
    """What one reader may come to see, by what is there and what others write."""

    def __init__(self, fold: Fold, written: Sequence[_Written]) -> None:
        self._fold = fold
        self._written = written
        self._held: dict[Reference, Names] = {}

    def kinds(self, *, but: int | None) -> tuple[str, ...]:
        """The kinds that are there, or that a call but this one writes."""
        written = (kind for calls in self._written for kind in calls.below((), but))
        return tuple(dict.fromkeys((*self._fold.kinds(), *written)))

    def names(self, place: Reference, *, but: int | None) -> Names:
        """What is there below a place, or what a call but this one writes there."""
        if place not in self._held:
            self._held[place] = self._names_held(place)
        written = {name: segment for calls in self._written for name, segment in calls.below(place.key, but).items()}
        return self._held[place] | {name: s for name, s in written.items() if name not in self._held[place]}

    def slips(self, *, but: int | None) -> Iterator[Undaggered]:
        """The paths without a dagger that a call but this one writes to."""
        return (slip for calls in self._written for slip in calls.slips if slip.call.index != but)

    def _names_held(self, place: Reference) -> Names:
        try:
            value = self._fold.value(place)
        except Conflict:
            return {}
        if isinstance(value, list):
            return {str(index): index for index in range(min(len(value), MOST_NAMES))}
        return {name: name for name in islice(value, MOST_NAMES)} if isinstance(value, dict) else {}


class _Written:
    """Where some calls write, and which of them."""

    def __init__(self, calls: Iterable[Call]) -> None:
        self._calls = calls

    def below(self, key: tuple[str, ...], but: int | None) -> Names:
        """What calls but this one write below a place, or which kinds where there is no place."""
        found = self._below.get(key, {})
        return {name: segment for name, (segment, writers) in found.items() if writers - {but}}

    @cached_property
    def slips(self) -> tuple[Undaggered, ...]:
        """The paths of these calls that lack a dagger."""
        return tuple(islice((slip for call in self._calls for slip in undaggered(call)), MOST_NAMES))

    @cached_property
    def _below(self) -> dict[tuple[str, ...], dict[str, tuple[str | int, set[int]]]]:
        writers: dict[Reference, set[int]] = {}
        for call in self._calls:
            for place in call.written:
                if place in writers or len(writers) < _MOST_PLACES:
                    writers.setdefault(place, set()).add(call.index)
        found: dict[tuple[str, ...], dict[str, tuple[str | int, set[int]]]] = {}
        for place, indexes in writers.items():
            for depth, segment in enumerate((place.kind, *place.path)):
                _, known = found.setdefault(place.key[:depth], {}).setdefault(str(segment), (segment, set()))
                known |= indexes
        return found
