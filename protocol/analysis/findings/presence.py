"""Presence: of which kinds and at which places anything is, or may come to be, for any reader."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import Final

from protocol.calls.call import Call
from protocol.graph.writers import Writers
from protocol.language.messages import DATA_TYPES, kind_of
from protocol.language.paths import MISSING
from protocol.language.references import Reference
from protocol.schemas import joined
from protocol.state.context import Context
from protocol.state.fold import Fold

_MOST_LOOKS: Final = 100_000
"""So often it is looked into an instance, over all places; then nothing more is said to be there."""


class Presence:
    """What the context of a submission holds and its calls write, in whatever instance."""

    def __init__(self, calls: Sequence[Call], context: Context) -> None:
        self._calls = calls
        self._context = context
        self._left = _MOST_LOOKS
        self._there: dict[Reference, bool] = {}
        self._holders: dict[Reference, str | None] = {}
        self._named: dict[Reference, bool] = {}

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds that anything is or may come to be of."""
        return self.held.union(place.kind for call in self._calls for place in call.written)

    @cached_property
    def held(self) -> frozenset[str]:
        """The kinds that messages of the context are of."""
        messages = self._context.messages
        return frozenset(str(kind_of(message)) for message in messages if message.get("type") in DATA_TYPES)

    def at(self, place: Reference) -> bool:
        """Whether a reader finds a value at a place, or a call writes there, above it or below it."""
        if place not in self._there:
            is_written = next(self._writers.lines(place), None) is not None
            self._there[place] = is_written or self._context.fold().exists(place) or self.holder(place) is not None
        return self._there[place]

    def at_all(self, places: Collection[Reference]) -> bool:
        """Whether that is so of each of some places."""
        return all(map(self.at, places))

    def holder(self, place: Reference) -> str | None:
        """The first instance that holds a place."""
        if place not in self._holders:
            self._holders[place] = next((name for name, fold in self._folds() if fold.exists(place)), None)
        return self._holders[place]

    def elsewhere(self, place: Reference) -> str | None:
        """Who has what no global reader sees: an instance that holds a place, or the first call to write it in one."""
        if (holder := self.holder(place)) is not None:
            return f"instance {holder!r} holds it"
        line = next(self._instance_writers.lines(place), None)
        if line is None:
            return None
        writer = self._by_index[line.calls[0]]
        return f"call {writer.index} ({writer.tool}) writes it in instance {writer.instance!r}"

    def speaks_of(self, key: Reference) -> bool:
        """Whether a reader sees a key inside a kind, or the kind's schema names it. Taken for granted where too much
        has been looked at.
        """
        if key not in self._named:
            is_known = _speaks_of(self._context.fold(), key) or any(_speaks_of(fold, key) for _, fold in self._folds())
            self._named[key] = is_known or self._left < 0
        return self._named[key]

    @cached_property
    def _writers(self) -> Writers:
        return Writers(self._calls)

    @cached_property
    def _instance_writers(self) -> Writers:
        return Writers(call for call in self._calls if call.instance is not None)

    @cached_property
    def _by_index(self) -> dict[int, Call]:
        return {call.index: call for call in self._calls}

    def _folds(self) -> Iterator[tuple[str, Fold]]:
        for name in self._context.instances:
            self._left -= 1
            if self._left < 0:
                return
            yield name, self._context.fold(name)


def _speaks_of(fold: Fold, key: Reference) -> bool:
    """Whether a reader sees a key inside a kind, or the kind's schema names it."""
    schema = fold.schema(key.kind)
    parts = [part for part in joined((schema,), schema) if isinstance(part, dict)] if schema is not MISSING else []
    named = (names for part in parts for names in (part.get("properties", ()), part.get("required", ())))
    return fold.exists(key) or any(str(key.path[0]) in names for names in named)
