"""Offered places: what calls of a staged plan may refer to, and where declared types provably fit (SPEC R12.7).

The context's places are looked at with their values, in every instance; those that a call writes with what its tool
promises of its result. A place that several calls may write to, or one and the context, is not offered.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from acts_celery.protocol.language.errors import Conflict, ExpressionError
from acts_celery.protocol.language.paths import MISSING
from acts_celery.protocol.language.references import Path, Reference, parse
from acts_celery.protocol.schemas import CompiledSchema, Schema, compiled, excerpt
from acts_celery.protocol.schemas.algebra import EVERYTHING, Algebra, Values, is_empty
from acts_celery.protocol.schemas.parts import parts_at
from acts_celery.protocol.schemas.walk import applied
from acts_celery.protocol.state.fold import Fold

_MOST_PLACES: Final = 200
"""Of the context, and of each result, so many are offered: what lies deeper is left out first."""
_MOST_ELEMENTS: Final = 20
_DEEPEST: Final = 6


@dataclass(frozen=True)
class SlotResult:
    """A place that a call writes, and the schemas that its result has to fit."""

    place: Reference
    schemas: tuple[Schema, ...]


@dataclass(frozen=True)
class Known:
    """A place of the context, with the values that readers see there."""

    place: Reference
    values: tuple[Any, ...]


@dataclass(frozen=True)
class PlaceOfResult:
    """A place inside of a result, with what may stand there."""

    place: Reference
    values: Values


class OfferedPlaces:
    """All that calls may refer to; `algebra` bounds what it takes to prove that something fits."""

    def __init__(self, algebra: Algebra, known: Sequence[Known]) -> None:
        self._algebra = algebra
        self._known = known
        self._known_to_fit: dict[CompiledSchema, list[Reference]] = {}
        """Those of the context that fit a schema: they are the same for every call."""
        self._promised: Sequence[PlaceOfResult] = ()

    def with_results(self, written: Iterable[SlotResult]) -> OfferedPlaces:
        """These, and what the results of earlier calls hold."""
        found = (place for each in written for place in islice(self._inside(each), _MOST_PLACES))
        more = copy(self)
        more._promised = [*self._promised, *found]
        return more

    @property
    def has_results(self) -> bool:
        """Whether there are places of results among them."""
        return bool(self._promised)

    def fitting(self, part: Schema, document: Schema) -> list[str]:
        """References to those of which each value provably fits a part of a document."""
        schema = excerpt(part, document) if isinstance(part, dict) else part
        held: CompiledSchema = compiled(schema)
        if held not in self._known_to_fit:
            fit = (each.place for each in self._known if not any(held.problems(value) for value in each.values))
            self._known_to_fit[held] = list(fit)
        promised = [each.place for each in self._promised if self._algebra.covered(each.values, schema)]
        return list(map(str, [*promised, *self._known_to_fit[held]]))

    def _inside(self, written: SlotResult) -> Iterator[PlaceOfResult]:
        """A written place, and the places inside of its result that schemas name; of a list the first element."""
        result = EVERYTHING
        for schema in written.schemas:
            result = self._algebra.both(result, self._algebra.made_of(schema))
        waiting: deque[Path] = deque([()])
        while waiting:
            path = waiting.popleft()
            place = Reference(written.place.kind, (*written.place.path, *path))
            values = self._algebra.along(result, path)
            if is_empty(values) or not _can_be_read(place):
                continue
            yield PlaceOfResult(place, values)
            if len(path) < _DEEPEST:
                waiting.extend((*path, segment) for segment in _segments(written.schemas, path))


def known_places(folds: Sequence[Fold], written: Sequence[Reference]) -> list[Known]:
    """The places that every one of these readers sees a value at, but for those that calls write to."""
    first, *others = folds
    found: list[Known] = []
    waiting = deque(Reference(kind) for kind in first.kinds())
    while waiting and len(found) < _MOST_PLACES:
        place = waiting.popleft()
        values = [_read(fold, place) for fold in (first, *others)]
        if MISSING in values:
            continue
        if not any(place.overlaps(each) for each in written):
            distinct = {id(value): value for value in values}  # what is global is one value for all of them
            found.append(Known(place, tuple(distinct.values())))
        if len(place.path) < _DEEPEST:
            waiting.extend(Reference(place.kind, (*place.path, segment)) for segment in _keys(values[0], place.path))
    return found


def _read(fold: Fold, place: Reference) -> Any:
    """What a reader sees at a place; nothing where it cannot be written as a reference, or is in conflict."""
    try:
        return fold.value(place) if _can_be_read(place) else MISSING
    except Conflict:
        return MISSING


def _can_be_read(place: Reference) -> bool:
    """Whether a call can refer to it: not every kind or key can be written in a reference."""
    try:
        return parse(str(place)).references == (place,)
    except ExpressionError:
        return False


def _keys(value: Any, path: Path) -> Iterator[str | int]:
    """The keys of an object; the first indexes of a list, but for one that is all of a kind (SPEC R3.5)."""
    if isinstance(value, dict):
        yield from value
    elif isinstance(value, list) and path:
        yield from range(min(len(value), _MOST_ELEMENTS))


def _segments(schemas: Iterable[Schema], path: Path) -> Iterator[str | int]:
    """What schemas name at a path of their values."""
    named: dict[str | int, None] = {}
    for schema in schemas:
        for part in applied(parts_at(schema, path), schema):
            named |= dict.fromkeys(part.get("properties", ()))
            named |= {0: None} if part.keys() & {"items", "prefixItems"} else {}
    return iter(named)
