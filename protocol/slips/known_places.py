"""Known places: where anything is, or may come to be, for any reader; and which of them a text was meant to name."""

from __future__ import annotations

import re
from functools import cached_property
from itertools import islice
from typing import Final

from acts_celery.protocol.graph.places import Places, WrittenPlaces
from acts_celery.protocol.graph.promises import KIND, Promises
from acts_celery.protocol.graph.writers import Writers
from acts_celery.protocol.language.paths import index_or_key
from acts_celery.protocol.language.references import DAGGER, MAX_SEGMENTS, Path, Reference
from acts_celery.protocol.language.spelling import Speller
from acts_celery.protocol.submission.layout import Layout

_MOST_INSTANCES: Final = 100
"""It is looked into so many instances."""
_MOST_KINDS: Final = 20
_LIKENESS: Final = 0.7
_SEGMENT: Final = re.compile(r"""\.?([^.\[\]"']+)|\[(?:(\d+)|"([^"]*)"|'([^']*)')\]""")
"""A step in a path, as most systems write it: `.name`, `[0]`, `["a name"]`."""


class KnownPlaces(Places):
    """What the context of a submission holds and its calls write, in whatever instance."""

    def __init__(self, layout: Layout, *, most_instances: int = _MOST_INSTANCES) -> None:
        context = layout.context
        self._layout = layout
        self._of = {name: context.fold(name) for name in (None, *islice(context.instances, most_instances))}
        self._known: dict[Reference, bool] = {}
        super().__init__(tuple(self._of.values()), [WrittenPlaces(layout.calls)], Speller(likeness=_LIKENESS))

    @cached_property
    def _writers(self) -> Writers:
        return Writers(self._layout.calls)

    @cached_property
    def _others(self) -> list[str]:
        return sorted({*self.kinds(), KIND} - {"state"})[:_MOST_KINDS]

    def has(self, place: Reference) -> bool:
        """Whether a reader finds a value at a place, or a call writes there, above it or below it."""
        if place not in self._known:
            self._known[place] = any(self._writers.lines(place)) or self.is_held(place)
        return self._known[place]

    def is_held(self, place: Reference) -> bool:
        """Whether the context holds a value at a place, or promises one, for some reader."""
        return any(fold.exists(place) for fold in self._folds) or is_promised(self._layout, place)

    def holder(self, place: Reference) -> str | None:
        """An instance that holds a value at a place which nothing global has, or in which a call writes there."""
        if self._layout.context.fold().exists(place):
            return None
        writers = {index for line in self._writers.lines(place) for index in line.calls[:_MOST_INSTANCES]}
        calls = [self._layout.calls[index - self._layout.submission.first] for index in sorted(writers)]
        if any(call.instance is None for call in calls):
            return None
        held = (name for name, fold in self._of.items() if name is not None and fold.exists(place))
        return next(held, calls[0].instance if calls else None)

    def meant(self, text: str) -> Reference | None:
        """The known place with a path that a text names without a dagger, with or without its kind."""
        path = _path_in(text.strip().removeprefix(DAGGER).removeprefix("."))
        if path is None:
            return None
        own = (Reference(str(path[0]), path[1:]), *(Reference(kind, path) for kind in ("state", *self._others)))
        return next((place for place in own if place.path and self.has(place)), None)


def is_promised(layout: Layout, place: Reference) -> bool:
    """Whether an input may come with a value at a place: its schema names the place, or one above (SPEC R6.3)."""
    promises = Promises(layout.submission.context).all if place.kind == KIND else ()
    lengths = range(min(1, len(place.path)), len(place.path) + 1)
    return any(each.names(Reference(KIND, place.path[:length])) for each in promises for length in lengths)


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
