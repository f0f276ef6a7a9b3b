"""Gathered values: what a gather call reads, an object from instance name to the value there (SPEC R10.4)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from acts_celery.protocol.language.errors import Unresolved
from acts_celery.protocol.language.messages import TEXT_TYPES, render_data
from acts_celery.protocol.language.paths import copied
from acts_celery.protocol.language.references import Expression, Reference

from .fold import Fold
from .labels import TRUSTED, Labels, Marks
from .scopes import all_messages, scoped, scoped_messages

OF_INSTANCES: Final = "of each instance, by its name"
"""What a model is told of gathered values."""


class Gathered:
    """Reads in every instance at once; what no instance has of its own it reads as a global reader does.

    Any of it may have come from `sources` that the folds do not name, or been chosen by them.
    """

    def __init__(self, shared: Fold, folds: Mapping[str, Fold], sources: Labels = TRUSTED) -> None:
        self._shared = shared
        self._folds = folds
        self._unnamed = Marks(sources, sources)

    def read(self, expression: Expression) -> Any:
        """What an expression reads, as a copy. Raises `Unresolved`, where no instance has a value, or `Conflict`."""
        return copied(self.peek(expression))

    def peek(self, expression: Expression) -> Any:
        """What an expression reads, to be looked at and not changed. Raises as `read` does."""
        chosen = {name: _chosen(fold, expression) for name, fold in self._folds.items()}
        if not any(self._folds[name].has_own(place) for name, group in chosen.items() for place in group):
            return self._shared.peek(expression)
        values = {}
        for name, fold in self._folds.items():
            try:
                values[name] = fold.peek(expression)
            except Unresolved:
                continue
        if not values:
            raise Unresolved(f"{expression} is not there in any instance")
        return values

    def lacks(self, place: Reference, *, is_last: bool) -> bool:
        """Whether an instance has no value at a place, and reads the next alternative; with the last one it is left
        out.
        """
        return not is_last and not all(fold.exists(place) for fold in self._folds.values())

    def marks(self, place: Reference) -> Marks:
        """Which sources the values of all instances came from. Where one has none, whatever chose anything there may
        have chosen that.
        """
        found = self._unnamed
        for fold in self._folds.values():
            found |= fold.marks(place)
            if (chosen := fold.all_marks.chosen) and not fold.exists(place):
                found |= Marks(chosen, chosen)
        return found

    def absence(self, place: Reference) -> Labels:
        """Which sources may have kept a value from being in some instance: any of them."""
        return self.all_marks.labels

    @property
    def all_marks(self) -> Marks:
        """Which sources anything in any instance came from."""
        found = self._unnamed
        for fold in self._folds.values():
            found |= fold.all_marks
        return found

    def scoped(self, scopes: Sequence[Reference]) -> dict[str, Any]:
        """What scopes yield: kind to folded value, or to those of the instances where one has its own."""
        found: dict[str, Any] = {}
        for kind in dict.fromkeys(scope.kind for scope in scopes):
            own = [scope for scope in scopes if scope.kind == kind]
            if self._is_own(own):
                each = {name: scoped(fold, own) for name, fold in self._folds.items()}
                found[kind] = {name: values[kind] for name, values in each.items() if kind in values}
            else:
                found.update(scoped(self._shared, own))
        return found

    def places(self, scopes: Sequence[Reference]) -> Iterator[Any]:
        """What stands at each place that `scoped` reads, to be looked at and not changed. Raises `Conflict`."""
        for kind in dict.fromkeys(scope.kind for scope in scopes):
            own = [scope for scope in scopes if scope.kind == kind]
            folds = self._folds.values() if self._is_own(own) else (self._shared,)
            yield from (fold.value(scope) for fold in folds for scope in own)

    def scoped_messages(self, scopes: Sequence[Reference]) -> list[dict[str, Any]]:
        """What scopes yield, as messages (SPEC R1.5): global texts as they are, then what `scoped` gives."""
        texts = scoped_messages(self._shared, [scope for scope in scopes if scope.kind in TEXT_TYPES])
        return texts + [render_data(kind, value) for kind, value in self.scoped(scopes).items()]

    def all_messages(self, scopes: Sequence[Reference]) -> list[dict[str, Any]]:
        """All that a global reader sees, as messages, and last what `scoped` gives of the instances, which is said to
        be theirs.
        """
        kinds = dict.fromkeys(scope.kind for scope in scopes)
        own = [kind for kind in kinds if self._is_own([scope for scope in scopes if scope.kind == kind])]
        values = self.scoped([scope for scope in scopes if scope.kind in own])
        whole = {scope.kind for scope in scopes if not scope.path and scope.kind in values}
        seen = all_messages(self._shared, scopes, but=whole)
        return seen + [render_data(kind, value, description=OF_INSTANCES) for kind, value in values.items()]

    def _is_own(self, places: Sequence[Reference]) -> bool:
        return any(fold.has_own(place) for fold in self._folds.values() for place in places)


def _chosen(fold: Fold, expression: Expression) -> Sequence[Reference]:
    """The places that an expression is read from: whether others are there makes no difference."""
    return next((group for group in expression.alternatives if all(map(fold.exists, group))), ())
