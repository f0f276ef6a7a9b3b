"""Places: where readers find anything, or may come to, and which of these a misspelt one was probably meant to be.

A place is held by the context or written by a call. Made for hints, so of very many places only the first are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, Final

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.language.errors import Conflict
from acts_celery.protocol.language.references import Path, Reference
from acts_celery.protocol.language.spelling import Speller
from acts_celery.protocol.state.fold import Fold

MOST_NAMES: Final = 200
PER_READER: Final = 20
"""Steps (see `spelling`) in whose time a reader's values are looked at."""
_MOST_PLACES: Final = 10 * MOST_NAMES

Names = dict[str, str | int]
"""The keys below a place, each with the segment that leads there: an element of a list has a number."""


class WrittenPlaces:
    """Where some calls write, and which of them."""

    def __init__(self, calls: Iterable[Call]) -> None:
        self._calls = calls

    @cached_property
    def _at(self) -> dict[Reference, set[int]]:
        found: dict[Reference, set[int]] = {}
        for call in self._calls:
            for place in call.written:
                if place in found or len(found) < _MOST_PLACES:
                    found.setdefault(place, set()).add(call.index)
        return found

    @cached_property
    def _below(self) -> dict[tuple[str, ...], dict[str, tuple[str | int, set[int]]]]:
        found: dict[tuple[str, ...], dict[str, tuple[str | int, set[int]]]] = {}
        for place, indexes in self._at.items():
            for depth, segment in enumerate((place.kind, *place.path)):
                below = found.setdefault(place.key[:depth], {})
                below.setdefault(str(segment), (segment, set()))[1].update(indexes)
        return found

    def below(self, key: tuple[str, ...], but: int | None) -> Names:
        """What calls but this one write below a place, or which kinds where there is no place."""
        found = self._below.get(key, {})
        return {name: segment for name, (segment, writers) in found.items() if writers != {but}}

    def writes(self, place: Reference, but: int | None) -> bool:
        """Whether a call but this one writes the whole of a place."""
        return self._at.get(place, {but}) != {but}


class Places:
    """What some readers may come to see, by what is there and what calls write."""

    def __init__(self, folds: Sequence[Fold], written: Sequence[WrittenPlaces], speller: Speller) -> None:
        self._folds = folds
        self._written = written
        self._speller = speller
        self._held: dict[Reference, Names] = {}
        self._nearest: dict[tuple[Reference, int | None], Reference | None] = {}

    def kinds(self, but: int | None = None) -> tuple[str, ...]:
        """The kinds that are there, or that a call but this one writes."""
        written = (kind for calls in self._written for kind in calls.below((), but))
        return tuple(dict.fromkeys((*self._kinds_held, *written)))

    @cached_property
    def _kinds_held(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(kind for fold in self._folds for kind in fold.kinds()))

    def names(self, place: Reference, but: int | None = None) -> Names:
        """What is there below a place, or what a call but this one writes there."""
        if place not in self._held:
            found = (_names(fold, place) for fold in self._folds)
            self._held[place] = dict(islice((item for names in found for item in names.items()), MOST_NAMES))
        written = {name: segment for calls in self._written for name, segment in calls.below(place.key, but).items()}
        return written | self._held[place]

    def nearest(self, place: Reference, but: int | None = None) -> Reference | None:
        """The place that another one, which nothing brings, was probably meant to be."""
        if (place, but) not in self._nearest:
            self._nearest[place, but] = self._meant(place, but)
        return self._nearest[place, but]

    def _meant(self, place: Reference, but: int | None) -> Reference | None:
        kinds = self.kinds(but)
        if not self._speller.lasts(2 * len(kinds)):
            return None
        for kind in kinds if place.kind not in kinds else ():  # the kind is left out: `†user.id`
            inside = Reference(kind, (place.kind, *place.path))
            if any(fold.exists(inside) for fold in self._folds):
                return inside
            if place.kind in self.names(Reference(kind), but) and (path := self._path(kind, inside.path, but)):
                return Reference(kind, path)
        near = place.kind if place.kind in kinds else self._near(place.kind, kinds)
        path = self._path(near, place.path, but) if near is not None else None
        found = Reference(near, path) if near is not None and path is not None else place
        return found if (found.kind, found.path) != (place.kind, place.path) else None

    def _path(self, kind: str, path: Path, but: int | None) -> Path | None:
        """The path with its misspelt keys replaced; None where one is like nothing there."""
        found: Path = ()
        for segment in path:
            names = self.names(Reference(kind, found), but)
            near = str(segment) if str(segment) in names else self._near(str(segment), names)
            if near is None and any(calls.writes(Reference(kind, found), but) for calls in self._written):
                return path  # it is not known what will be there
            if near is None or not self._speller.lasts(PER_READER + len(names)):
                return None
            is_right = near == str(segment) and isinstance(names[near], str)
            found = (*found, segment if is_right else names[near])
        return found

    def _near(self, name: str, names: Iterable[str]) -> str | None:
        return self._speller.nearest(name, list(islice(names, MOST_NAMES)))


def _names(fold: Fold, place: Reference) -> dict[str, Any]:
    """The names below a place, but for those that others wrote: these may be sentences (SPEC R16.3)."""
    if fold.strange(place):
        return {}
    try:
        value = fold.value(place)
    except Conflict:
        return {}
    if isinstance(value, list):
        return {str(index): index for index in range(min(len(value), MOST_NAMES))}
    return {name: name for name in islice(value, MOST_NAMES)} if isinstance(value, dict) else {}
