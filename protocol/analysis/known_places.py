"""Known places: where anything is, or may come to be, for any reader; and which of them a text was meant to name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import Final

from protocol.graph.promises import KIND, Promises
from protocol.graph.writers import Writers
from protocol.language.errors import Conflict
from protocol.language.messages import DATA_TYPES, kind_of
from protocol.language.paths import MISSING
from protocol.language.references import DAGGER, MAX_SEGMENTS, Path, Reference
from protocol.language.spelling import Patience
from protocol.state.fold import Fold
from protocol.submission.layout import Layout

_MOST_INSTANCES: Final = 100
"""It is looked into so many instances."""
_MOST_NAMES: Final = 200
_MOST_KINDS: Final = 20
_LIKENESS: Final = 0.7
_SEGMENT: Final = re.compile(r"""\.?([^.\[\]"']+)|\[(?:(\d+)|"([^"]*)"|'([^']*)')\]""")
"""A step in a path, as most systems write it: `.name`, `[0]`, `["a name"]`."""


class KnownPlaces:
    """What the context of a submission holds and its calls write, in whatever instance."""

    def __init__(self, layout: Layout, *, most_instances: int = _MOST_INSTANCES) -> None:
        self._layout = layout
        self._most = most_instances
        self._patience = Patience(likeness=_LIKENESS)
        self._known: dict[Reference, bool] = {}
        self._nearest: dict[Reference, Reference | None] = {}

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds that anything is or may come to be of."""
        messages = self._layout.context.messages
        held = {str(kind_of(message)) for message in messages if message.get("type") in DATA_TYPES}
        return frozenset(held.union(place.kind for call in self._layout.calls for place in call.written))

    @cached_property
    def _others(self) -> list[str]:
        return sorted(self.kinds - {"state"})[:_MOST_KINDS]

    @cached_property
    def _writers(self) -> Writers:
        return Writers(self._layout.calls)

    @cached_property
    def _folds(self) -> list[tuple[str | None, Fold]]:
        context = self._layout.context
        return [(name, context.fold(name)) for name in (None, *islice(context.instances, self._most))]

    def has(self, place: Reference) -> bool:
        """Whether a reader finds a value at a place, or a call writes there, above it or below it."""
        if place not in self._known:
            self._known[place] = self.is_written(place) or self.is_held(place)
        return self._known[place]

    def is_held(self, place: Reference) -> bool:
        """Whether the context holds a value at a place, or promises one, for some reader."""
        return any(fold.exists(place) for _, fold in self._folds) or is_promised(self._layout, place)

    def is_written(self, place: Reference) -> bool:
        """Whether a call writes at a place, above it or below it."""
        return next(self._writers.lines(place), None) is not None

    def holder(self, place: Reference) -> str | None:
        """An instance that holds a value at a place which nothing global has, or in which a call writes there."""
        if self._layout.context.fold().exists(place):
            return None
        writers = {index for line in self._writers.lines(place) for index in line.calls[:_MOST_INSTANCES]}
        calls = [self._layout.calls[index - self._layout.submission.first] for index in sorted(writers)]
        if any(call.instance is None for call in calls):
            return None
        held = (name for name, fold in self._folds if name is not None and fold.exists(place))
        return next(held, calls[0].instance if calls else None)

    def meant(self, text: str) -> Reference | None:
        """The known place with a path that a text names without a dagger, with or without its kind."""
        path = _path_in(text.strip().removeprefix(DAGGER).removeprefix("."))
        if path is None:
            return None
        own = (Reference(str(path[0]), path[1:]), *(Reference(kind, path) for kind in ("state", *self._others)))
        return next((place for place in own if place.path and self.has(place)), None)

    def nearest(self, place: Reference) -> Reference | None:
        """The known place that another one, which nothing brings, was probably meant to be."""
        if place not in self._nearest:
            self._nearest[place] = self._near(place)
        return self._nearest[place]

    def _near(self, place: Reference) -> Reference | None:
        if place.kind not in self.kinds and self.has(inside := Reference("state", (place.kind, *place.path))):
            return inside
        kind = place.kind if place.kind in self.kinds else self._patience.nearest(place.kind, sorted(self.kinds))
        found = Reference(kind) if kind is not None else None
        for segment in place.path:
            if found is None:
                return None
            names = list(islice(self._names(found), _MOST_NAMES))
            near = str(segment) if str(segment) in names else self._patience.nearest(str(segment), names)
            found = Reference(found.kind, (*found.path, segment if near == str(segment) else near)) if near else None
        return found if found != place else None

    def _names(self, place: Reference) -> Iterator[str]:
        """The keys below a place."""
        for _, fold in self._folds:
            try:
                value = fold.value(place)
            except Conflict:
                value = MISSING
            if isinstance(value, dict):
                yield from value
        yield from self._written.get(place.key, ())

    @cached_property
    def _written(self) -> dict[tuple[str, ...], dict[str, None]]:
        """The keys that calls write below each place."""
        found: dict[tuple[str, ...], dict[str, None]] = {}
        for call in self._layout.calls:
            for place in call.written:
                for depth in range(1, len(place.key)):
                    found.setdefault(place.key[:depth], {})[place.key[depth]] = None
        return found


def is_promised(layout: Layout, place: Reference) -> bool:
    """Whether an input may come with a value at a place: its schema names the place, or one above (SPEC R6.3)."""
    above = [
        Reference(place.kind, place.path[:length]) for length in range(min(1, len(place.path)), len(place.path) + 1)
    ]
    promises = Promises(layout.submission.context).all if place.kind == KIND else ()
    return any(promise.names(each) for promise in promises for each in above)


def _path_in(text: str) -> Path | None:
    """The path that a text is from end to end."""
    path: Path = ()
    position = 0
    while position < len(text):
        match = _SEGMENT.match(text, position)
        if match is None or len(path) == MAX_SEGMENTS:
            return None
        key = next(part for part in match.groups() if part is not None)
        path = (*path, int(key) if path and key.isdecimal() and key.isascii() and not match[3] else key.strip())
        position = match.end()
    return path or None
