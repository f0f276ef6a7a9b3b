"""Conflicts: places that have no value, because an operation there did not fit what it found (SPEC R3.4).

Reading such a place, one above it or one below it raises the conflict; everything else stays readable. An operation
that replaces what is there, whatever it was, settles it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from acts_celery.protocol.language.errors import Conflict

from .operations import Operation, replaced

Key = tuple[str, ...]


class Conflicts:
    """The conflicts of a fold by place; looking one up costs the length of the path, however many there are."""

    def __init__(self) -> None:
        self._at: dict[Key, Conflict] = {}
        self._at_or_below: dict[Key, dict[Key, Conflict]] = defaultdict(dict)

    def __bool__(self) -> bool:
        return bool(self._at)

    def __iter__(self) -> Iterator[Conflict]:
        return iter(self._at.values())

    def places(self) -> tuple[Key, ...]:
        """Where they are."""
        return tuple(self._at)

    def copy(self) -> Conflicts:
        """The same conflicts, to be settled apart."""
        copy = Conflicts()
        for key, conflict in self._at.items():
            copy.add(key, conflict)
        return copy

    def add(self, key: Key, conflict: Conflict) -> None:
        """Note a conflict at a place; below one that is noted already it says nothing new."""
        if self.covering(key) is None:
            self._at[key] = conflict
            for length in range(1, len(key) + 1):
                self._at_or_below[key[:length]][key] = conflict

    def covering(self, key: Key) -> tuple[Key, Conflict] | None:
        """The conflict at a place or above it, and where it is."""
        for length in range(1, len(key) + 1):
            if key[:length] in self._at:
                return key[:length], self._at[key[:length]]
        return None

    def touching(self, key: Key) -> Conflict | None:
        """The conflict that keeps a place from being read: at it, above it or below it."""
        covering = self.covering(key)
        if covering is not None:
            return covering[1]
        return next(iter(self._at_or_below[key].values()), None) if key in self._at_or_below else None

    def settle(self, operation: Operation) -> None:
        """Forget the conflicts at places that an operation replaces."""
        for place in replaced(operation):
            for key in list(self._at_or_below.get(place, ())):
                self._remove(key)

    def _remove(self, key: Key) -> None:
        del self._at[key]
        for length in range(1, len(key) + 1):
            del self._at_or_below[key[:length]][key]
