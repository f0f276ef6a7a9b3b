"""Places: where readers find anything, or may come to, and which of these a misspelt one was probably meant to be.

A place is held by the context or written by a call. It serves hints, so only the first of very many places are known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import Any, Final

from .. import limits
from ..calls.call import Call
from ..errors import Conflict, Speller
from ..messages import Message, is_promise
from ..paths import MISSING, lookup
from ..references import Path, Reference
from ..schemas import conjuncts
from ..schemas.walk import DEFINITIONS, properties_in, schemas_at
from ..state.fold import Fold
from ..state.kinds import Overlay

_MOST_PLACES: Final = 10 * limits.PLACES_MOST_NAMES

Names = dict[str, str | int]
"""The keys below a place, each with the segment that leads there: an element of a list has a number."""


class WrittenPlaces:
    """Where some calls write, and which of them."""

    def __init__(self, calls: Iterable[Call]) -> None:
        self._calls = calls

    @cached_property
    def _at(self) -> dict[Reference, set[int]]:
        found: dict[Reference, set[int]] = {}
        for call in self._calls:
            for place in call.written:
                if place in found or len(found) < _MOST_PLACES:
                    found.setdefault(place, set()).add(call.index)
        return found

    @cached_property
    def _below(self) -> dict[tuple[str, ...], dict[str, tuple[str | int, set[int]]]]:
        found: dict[tuple[str, ...], dict[str, tuple[str | int, set[int]]]] = {}
        for place, indexes in self._at.items():
            for depth, segment in enumerate((place.kind, *place.path)):
                below = found.setdefault(place.key[:depth], {})
                below.setdefault(str(segment), (segment, set()))[1].update(indexes)
        return found

    def below(self, key: tuple[str, ...], but: int | None) -> Names:
        """What calls but this one write below a place, or which kinds where there is no place."""
        found = self._below.get(key, {})
        return {name: segment for name, (segment, writers) in found.items() if writers != {but}}

    def writes(self, place: Reference, but: int | None) -> bool:
        """Whether a call but this one writes the whole of a place."""
        return self._at.get(place, {but}) != {but}


class Places:
    """What some readers may come to see, by what is there and what calls write."""

    def __init__(self, folds: Sequence[Fold], written: Sequence[WrittenPlaces], speller: Speller) -> None:
        self._folds = folds
        self._written = written
        self._speller = speller
        self._held: dict[Reference, Names] = {}
        self._nearest: dict[tuple[Reference, int | None], Reference | None] = {}

    def kinds(self, but: int | None = None) -> tuple[str, ...]:
        """The kinds that are there, or that a call but this one writes."""
        written = (kind for calls in self._written for kind in calls.below((), but))
        return tuple(dict.fromkeys((*self._kinds_held, *written)))

    @cached_property
    def _kinds_held(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(kind for fold in self._folds for kind in fold.kinds()))

    def names(self, place: Reference, but: int | None = None) -> Names:
        """What is there below a place, or what a call but this one writes there."""
        if place not in self._held:
            found = (_names(fold, place) for fold in self._folds)
            self._held[place] = dict(
                islice((item for names in found for item in names.items()), limits.PLACES_MOST_NAMES)
            )
        written = {name: segment for calls in self._written for name, segment in calls.below(place.key, but).items()}
        return written | self._held[place]

    def nearest(self, place: Reference, but: int | None = None) -> Reference | None:
        """The place that another one, which nothing brings, was probably meant to be."""
        if (place, but) not in self._nearest:
            self._nearest[place, but] = self._meant(place, but)
        return self._nearest[place, but]

    def _meant(self, place: Reference, but: int | None) -> Reference | None:
        kinds = self.kinds(but)
        if not self._speller.lasts(2 * len(kinds)):
            return None
        for kind in kinds if place.kind not in kinds else ():  # the kind is left out: `†user.id`
            inside = Reference(kind, (place.kind, *place.path))
            if any(fold.exists(inside) for fold in self._folds):
                return inside
            if place.kind in self.names(Reference(kind), but) and (path := self._path(kind, inside.path, but)):
                return Reference(kind, path)
        near = place.kind if place.kind in kinds else self._near(place.kind, kinds)
        path = self._path(near, place.path, but) if near is not None else None
        found = Reference(near, path) if near is not None and path is not None else place
        return found if (found.kind, found.path) != (place.kind, place.path) else None

    def _path(self, kind: str, path: Path, but: int | None) -> Path | None:
        """The path with its misspelt keys replaced; None where one is like nothing there."""
        found: Path = ()
        for segment in path:
            names = self.names(Reference(kind, found), but)
            near = str(segment) if str(segment) in names else self._near(str(segment), names)
            if near is None and any(calls.writes(Reference(kind, found), but) for calls in self._written):
                return path  # it is not known what will be there
            if near is None or not self._speller.lasts(limits.PER_READER + len(names)):
                return None
            is_right = near == str(segment) and isinstance(names[near], str)
            found = (*found, segment if is_right else names[near])
        return found

    def _near(self, name: str, names: Iterable[str]) -> str | None:
        return self._speller.nearest(name, list(islice(names, limits.PLACES_MOST_NAMES)))


def _names(fold: Fold, place: Reference) -> dict[str, Any]:
    """The names below a place, but for those that others wrote: these may be sentences (SPEC R16.3)."""
    if fold.untrusted(place):
        return {}
    try:
        value = fold.value(place)
    except Conflict:
        return {}
    if isinstance(value, list):
        return {str(index): index for index in range(min(len(value), limits.PLACES_MOST_NAMES))}
    return {name: name for name in islice(value, limits.PLACES_MOST_NAMES)} if isinstance(value, dict) else {}


# Holdings: which of many places the context holds, found for one instance after another (SPEC R3.6, R6.1).
#
# To look up each place in each instance takes the product of their numbers. But an instance holds what all see, and
# besides only what its own messages say. So a place is looked up only where the value at its first key is another
# object than the global one.


class Holdings:
    """Finds which of some places a reader holds. `shared` is what a reader without an instance sees."""

    def __init__(self, places: Iterable[Reference], shared: Fold) -> None:
        self._shared = shared
        self._by_key: dict[str, dict[str | None, list[Reference]]] = {}
        """Kind -> first key below it, None for the kind itself -> the places there."""
        for place in places:
            key = str(place.path[0]) if place.path else None
            self._by_key.setdefault(place.kind, {}).setdefault(key, []).append(place)
        self._held_by_all = frozenset(filter(shared.exists, chain.from_iterable(map(self._all_of, self._by_key))))
        self._known: dict[frozenset[Reference], frozenset[Reference]] = {}
        """Each set that was found, so that readers share it."""

    def of(self, fold: Fold) -> frozenset[Reference]:
        """The places that a reader holds."""
        differing = [place for kind in self._by_key for place in self._differing(kind, fold)]
        if not differing:
            return self._held_by_all
        held = self._held_by_all.difference(differing).union(filter(fold.exists, differing))
        return self._known.setdefault(held, held)

    def _differing(self, kind: str, fold: Fold) -> Iterable[Reference]:
        """The places of a kind that the reader may hold and others do not, or the other way round."""
        value, shared = fold.root(kind), self._shared.root(kind)
        if fold.conflicted(kind) != self._shared.conflicted(kind):
            return self._all_of(kind)
        if value is shared:
            return ()
        if not isinstance(value, dict) or not isinstance(shared, dict):
            return self._all_of(kind)
        by_key = self._by_key[kind]
        own = value.own() if isinstance(value, Overlay) and value.below is shared else by_key
        keys = own if len(own) < len(by_key) else by_key
        return [
            place
            for key in keys
            if key is not None and key in by_key and value.get(key, MISSING) is not shared.get(key, MISSING)
            for place in by_key[key]
        ]

    def _all_of(self, kind: str) -> Iterator[Reference]:
        return chain.from_iterable(self._by_key[kind].values())


# Promises: input that a schema announces and that comes later (SPEC R6.3).
#
# A promise is an `input` message with a `schema` and without the value. It names the properties that its schema
# describes, at any depth; what a schema merely admits it does not name.

KIND: Final = "input"


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise: `at` is its message's position in the context, `instance` the only one it speaks of, if any."""

    at: int
    instance: str | None
    schema: Any

    def names(self, place: Reference) -> bool:
        """Whether its schema names a place."""
        return place.kind == KIND and bool(schemas_at(self.schema, place.path))

    def schema_of(self, place: Reference) -> Any:
        """What its schema says of a place that it names."""
        schema = next(iter(schemas_at(self.schema, place.path)), False)
        if not isinstance(schema, dict) or not isinstance(self.schema, dict):
            return schema
        definitions = {key: self.schema[key] for key in self.schema if key in DEFINITIONS}
        return {**definitions, **schema} if "'$ref'" in str(schema) else schema

    def required(self, fold: Fold) -> Iterator[Reference]:
        """The places that its schema requires, with what it requires below them, and that have no value yet."""
        for path in islice(_required(self.schema), limits.PLACES_MOST_REQUIRED):
            place = Reference(KIND, path)
            if not fold.exists(place):
                yield place

    def missing(self, fold: Fold) -> Iterator[Reference]:
        """The places that it names and that have no value yet, without those below them."""
        root = fold.root(KIND)
        if root is MISSING and not self._names_at(()):
            yield Reference(KIND)
            return
        stack: list[Path] = [()]
        while stack:
            path = stack.pop()
            for place in [(*path, name) for name in self._names_at(path)]:
                if root is MISSING or lookup(root, place) is MISSING:
                    yield Reference(KIND, place)
                elif len(place) < limits.PLACES_MOST_LEVELS:
                    stack.append(place)

    def _names_at(self, path: Path) -> Iterable[str]:
        return properties_in(schemas_at(self.schema, path))


class Promises:
    """The promises of a context."""

    def __init__(self, context: Iterable[Message]) -> None:
        self.all = tuple(
            Promise(at, message.get("_instance"), message["schema"])
            for at, message in enumerate(context)
            if is_promise(message)
        )

    def seen_by(self, instance: str | None) -> Sequence[Promise]:
        """The promises of what a reader sees."""
        return [promise for promise in self.all if promise.instance in (None, instance)]

    def name(self, place: Reference) -> bool:
        """Whether one of them names a place, or one above."""
        lengths = range(min(1, len(place.path)), len(place.path) + 1)
        above = [Reference(KIND, place.path[:length]) for length in lengths] if place.kind == KIND else ()
        return any(each.names(one) for each in self.all for one in above)


def _required(root: Any) -> Iterator[Path]:
    """The paths of required properties, those above first; of those in alternatives none is required.

    Where a schema is required inside of itself, its properties are not followed there.
    """
    waiting: deque[tuple[Path, Any, frozenset[int]]] = deque([((), root, frozenset())])
    while waiting:
        path, schema, within = waiting.popleft()
        parts = [part for part in conjuncts((schema,), root) if id(part) not in within]
        around = within | set(map(id, parts))
        for part in parts:
            properties = part.get("properties") or {}
            for name in part.get("required") or ():
                yield (*path, name)
                if name in properties:
                    waiting.append(((*path, name), properties[name], around))
