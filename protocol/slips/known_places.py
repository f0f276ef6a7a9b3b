"""Known places: where anything is, or may come to be, for any reader; and which of them a text was meant to name."""

from __future__ import annotations

from functools import cached_property
from itertools import islice
from typing import Final

from acts_celery.protocol.graph.places import Places, WrittenPlaces
from acts_celery.protocol.graph.promises import KIND, Promises
from acts_celery.protocol.graph.writers import Writers
from acts_celery.protocol.language.references import Reference
from acts_celery.protocol.language.spelling import Speller
from acts_celery.protocol.submission.layout import Layout

from .naming import NamedPlaces

_MOST_INSTANCES: Final = 100
"""It is looked into so many instances."""
_LIKENESS: Final = 0.7


class KnownPlaces(Places, NamedPlaces):
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

    def has(self, place: Reference) -> bool:
        """Whether a reader finds a value at a place, or a call writes there, above it or below it."""
        if place not in self._known:
            self._known[place] = any(self._writers.lines(place)) or self.is_held(place)
        return self._known[place]

    def is_named(self, place: Reference) -> bool:
        """Whether the context holds a value at a place, or a call writes there or below it."""
        return self._writers.has_inside(place) or self.is_held(place)

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


def is_promised(layout: Layout, place: Reference) -> bool:
    """Whether an input may come with a value at a place: its schema names the place, or one above (SPEC R6.3)."""
    return place.kind == KIND and Promises(layout.submission.context).name(place)
