"""Naming: which place a text names that has no dagger."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Final

from acts_celery.protocol.graph.promises import KIND
from acts_celery.protocol.language.paths import index_or_key
from acts_celery.protocol.language.references import DAGGER, MAX_SEGMENTS, Path, Reference

_MOST_KINDS: Final = 20
_SEGMENT: Final = re.compile(r"""\.?([^.\[\]"']+)|\[(?:(\d+)|"([^"]*)"|'([^']*)')\]""")
"""A step in a path, as most systems write it: `.name`, `[0]`, `["a name"]`."""


class NamedPlaces(ABC):
    """Places that texts may name."""

    @abstractmethod
    def kinds(self) -> tuple[str, ...]:
        """The kinds that are there, or that a call writes."""

    @abstractmethod
    def has(self, place: Reference) -> bool:
        """Whether a value is at a place, or a call writes there, above it or below it."""

    @abstractmethod
    def is_named(self, place: Reference) -> bool:
        """The same but for what calls write above it: they need not write anything there."""

    @cached_property
    def _others(self) -> list[str]:
        return sorted({*self.kinds(), KIND} - {"state"})[:_MOST_KINDS]

    def meant(self, text: str) -> Reference | None:
        """The known place with a path that a text names without a dagger, with or without its kind."""
        path = _path_in(text.strip().removeprefix(DAGGER).removeprefix("."))
        if path is None:
            return None
        own = (Reference(str(path[0]), path[1:]), *(Reference(kind, path) for kind in ("state", *self._others)))
        return next((place for place in own if place.path and self.has(place)), None)


def _path_in(text: str) -> Path | None:
    """The path that a text is from end to end."""
    path: Path = ()
    position = 0
    while position < len(text):
        match = _SEGMENT.match(text, position)
        if match is None or len(path) == MAX_SEGMENTS:
            return None
        key = next(part for part in match.groups() if part is not None)
        path = (*path, index_or_key(key) if path and not match[3] else key.strip())
        position = match.end()
    return path or None
