"""Presence: of which kinds and at which places anything is, or may come to be, for any reader."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Final

from protocol.calls import Call
from protocol.context import Context
from protocol.messages import DATA_TYPES, kind_of
from protocol.references import Reference
from protocol.writers import Writers

_MOST_INSTANCES: Final = 1_000
"""In so many of them it is looked for a place."""


class Presence:
    """What the context of a submission holds and its calls write, in whatever instance."""

    def __init__(self, calls: Sequence[Call], context: Context) -> None:
        self._calls = calls
        self._context = context
        self._known: dict[Reference, bool] = {}
        self._holders: dict[Reference, str | None] = {}

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds that anything is or may come to be of."""
        held = {str(kind_of(message)) for message in self._context.messages if message.get("type") in DATA_TYPES}
        outputs = [call.output for call in self._calls if call.output is not None]
        return frozenset(held.union(place.kind for output in outputs for place in output.references))

    def at(self, place: Reference) -> bool:
        """Whether a reader finds a value at a place, or a call writes there, above it or below it."""
        if place not in self._known:
            is_held = self._context.fold().exists(place) or self.holder(place) is not None
            self._known[place] = is_held or any(self._writers.lines(place))
        return self._known[place]

    def at_all(self, places: Collection[Reference]) -> bool:
        """Whether that is so of each of some places."""
        return all(map(self.at, places))

    def holder(self, place: Reference) -> str | None:
        """The first instance that holds a place."""
        if place not in self._holders:
            found = (name for name in self._instances if self._context.fold(name).exists(place))
            self._holders[place] = next(found, None)
        return self._holders[place]

    @cached_property
    def _writers(self) -> Writers:
        return Writers(self._calls)

    @property
    def _instances(self) -> Iterator[str]:
        return islice(self._context.instances, _MOST_INSTANCES)
