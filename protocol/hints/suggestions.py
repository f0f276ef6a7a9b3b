"""Suggestions: the place that a reference to nothing was probably meant to read.

The nearest of those that its reader sees, where the kind is left out, or the kind or a key of the path looks misspelt;
or the one that a path without its dagger was meant to write.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from protocol.language.references import Path, Reference
from protocol.language.spelling import Patience

from .views import MOST_NAMES, View

PER_READER: Final = 20
"""Steps (see `spelling`) in whose time a reader's values are looked at."""


@dataclass(frozen=True)
class Reader:
    """A call that reads what nothing can bring: what it writes itself is no help."""

    view: View
    call: int | None
    patience: Patience

    def slip(self, places: Iterable[Reference]) -> str | None:
        """The path that was written without a dagger, and with one would be read at one of some places."""
        for place in places:
            for slip in self.view.slips(but=self.call):
                if not self.patience.lasts(1):
                    return None
                if slip.meant.path and slip.meant.overlaps(place):
                    return str(slip)
        return None

    def nearest(self, places: Iterable[Reference]) -> Reference | None:
        """The place that the first misspelt of some was probably meant to be."""
        for place in places:
            kinds = self.view.kinds(but=self.call)
            if not self.patience.lasts(2 * len(kinds)):
                break
            if place.kind not in kinds and (meant := self._without_kind(place, kinds)) is not None:
                return meant
            kind = place.kind if place.kind in kinds else self._near(place.kind, kinds)
            path = self._path(kind, place.path) if kind is not None else None
            if kind is not None and path is not None and (kind, path) != (place.kind, place.path):
                return Reference(kind, path)
        return None

    def _without_kind(self, place: Reference, kinds: Iterable[str]) -> Reference | None:
        """What is meant where the kind is left out: `†state.user.id` by `†user.id`."""
        for kind in kinds:
            if place.kind in self.view.names(Reference(kind), but=self.call):
                path = self._path(kind, (place.kind, *place.path))
                return Reference(kind, path if path is not None else (place.kind, *place.path))
        return None

    def _path(self, kind: str, path: Path) -> Path | None:
        """The path with its misspelt keys replaced; None where one is like nothing there."""
        found: Path = ()
        for segment in path:
            names = self.view.names(Reference(kind, found), but=self.call)
            near = str(segment) if str(segment) in names else self._near(str(segment), names)
            if near is None or not self.patience.lasts(PER_READER + len(names)):
                return None
            is_right = near == str(segment) and isinstance(names[near], str)
            found = (*found, segment if is_right else names[near])
        return found

    def _near(self, name: str, names: Iterable[str]) -> str | None:
        return self.patience.nearest(name, list(islice(names, MOST_NAMES)))
