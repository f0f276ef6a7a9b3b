"""Places: where readers find anything, or may come to, and which of these a misspelt one was probably meant to be.

A place is held by the context or written by a call. It serves hints, so only the first of very many places are known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from itertools import islice
from typing import Any, Final

from .. import limits
from ..calls.call import Call
from ..errors import Conflict, Speller
from ..messages import Message, is_promise
from ..paths import MISSING, lookup
from ..references import Path, Reference
from ..schemas import conjuncts
from ..schemas.walk import DEFINITIONS, properties_in, schemas_at
from ..state.context import Context
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
        """The names that calls other than `but` write below a place, or the kinds where there is no place."""
        found = self._below.get(key, {})
        return {name: segment for name, (segment, writers) in found.items() if writers != {but}}

    def writes(self, place: Reference, but: int | None) -> bool:
        """Whether a call but this one writes the whole of a place."""
        return self._at.get(place, {but}) != {but}


class Places:
    """The places that some readers may come to see: those that hold a value, and those that calls write."""

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
        """The names below a place that are there, or that a call other than `but` writes."""
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
# besides only what its own messages say. So its values are followed into the tree of the places that are asked for:
# what is one and the same object as in the global values is left as it is there. What is noted on the way, the
# differences, says all; instances with the same ones hold the same places.


class _Is(Enum):
    """How a node of the tree, and what is below it, differs from the global values."""

    HELD = auto()
    """Present; what is below may be there or not."""
    AS_SHARED = auto()
    """Equal to the global values, with all below."""
    WITHOUT = auto()
    """Not there, nor anything below, whatever was noted before."""
    IN_CONFLICT = auto()
    """All of it counts as there: reading it raises the conflict (SPEC R3.4)."""


class _Node:
    """A place that is asked for, or one above it."""

    def __init__(self, segment: str | int) -> None:
        self.segment = segment
        self.places: list[Reference] = []
        """The references that lead here."""
        self.below: list[Reference] = []
        """References that lead here or below."""
        self.children: dict[str, list[_Node]] = {}
        """Nodes by segment as a text: `.0` and `["0"]` are two nodes that may be one place."""

    def child(self, segment: str | int) -> _Node:
        """The node one segment further, which is made if it is missing."""
        alike = self.children.setdefault(str(segment), [])
        found = next((node for node in alike if type(node.segment) is type(segment)), None)
        if found is None:
            found = _Node(segment)
            alike.append(found)
        return found


_Difference = tuple[_Is, _Node]


class Holdings:
    """Finds which of some places a reader holds. `shared` is what a reader without an instance sees."""

    def __init__(self, places: Iterable[Reference], shared: Fold) -> None:
        self._places = tuple(places)
        self._shared = shared
        self._tree = _Node("")
        for place in self._places:
            node = self._tree
            for segment in (place.kind, *place.path):
                node = node.child(segment)
                node.below.append(place)
            node.places.append(place)
        self._held_by_all = frozenset(filter(shared.exists, self._places))
        self._known: dict[tuple[_Difference, ...], frozenset[Reference]] = {}

    def of(self, fold: Fold) -> frozenset[Reference]:
        """The places that a reader holds."""
        if fold is self._shared:
            return self._held_by_all
        differences = tuple(self._differences(fold))
        if differences not in self._known:
            self._known[differences] = self._held(differences)
        return self._known[differences]

    def _held(self, differences: Iterable[_Difference]) -> frozenset[Reference]:
        held: set[Reference] = set()
        for what, node in differences:
            match what:
                case _Is.HELD:
                    held.update(node.places)
                case _Is.AS_SHARED:
                    held.update(self._held_by_all.intersection(node.below))
                case _Is.WITHOUT:
                    held.difference_update(node.below)
                case _Is.IN_CONFLICT:
                    held.update(node.below)
        return frozenset(held)

    def _differences(self, fold: Fold) -> Iterator[_Difference]:
        for kind, (node,) in self._tree.children.items():
            value, conflicts = fold.root(kind), fold.conflicted(kind)
            shared, shared_conflicts = self._shared.root(kind), self._shared.conflicted(kind)
            if value is shared and conflicts == shared_conflicts:
                yield _Is.AS_SHARED, node
                continue
            if value is not MISSING:  # a conflict that is settled here may leave the very same value
                yield from _compared(node, value, MISSING if shared_conflicts else shared)
            for key in conflicts:
                yield from _conflicting([node], key)


def _compared(node: _Node, value: Any, shared: Any) -> Iterator[_Difference]:
    """Yield how a value, and what is in it, differs from the global one."""
    if value is shared:
        yield _Is.AS_SHARED, node
        return
    yield _Is.HELD, node
    if not node.children:
        return
    if isinstance(value, Overlay) and value.below is shared:
        yield _Is.AS_SHARED, node
        for child, item in _followed(node, value.own()):
            yield _Is.WITHOUT, child
            yield from _compared(child, item, shared.get(str(child.segment), MISSING))
    elif isinstance(value, dict):
        there = shared if isinstance(shared, dict) else {}
        for child, item in _followed(node, value):
            yield from _compared(child, item, there.get(str(child.segment), MISSING))
    elif isinstance(value, list):
        elements = shared if isinstance(shared, list) else []
        for children in node.children.values():
            for child in children:
                if isinstance(child.segment, int) and child.segment < len(value):
                    element = elements[child.segment] if child.segment < len(elements) else MISSING
                    yield from _compared(child, value[child.segment], element)


def _followed(node: _Node, value: Mapping[str, Any]) -> Iterator[tuple[_Node, Any]]:
    """Yield the nodes below one for which an object has a value, looked up from the smaller side."""
    for name in value if len(value) < len(node.children) else node.children:
        if name in value and name in node.children:
            yield from ((child, value[name]) for child in node.children[name])


def _conflicting(nodes: list[_Node], key: tuple[str, ...]) -> Iterator[_Difference]:
    """Yield what a conflict at a place touches: what is above it, and all at or below it."""
    for name in key[1:]:
        yield from ((_Is.HELD, node) for node in nodes)
        nodes = [child for node in nodes for child in node.children.get(name, ())]
    yield from ((_Is.IN_CONFLICT, node) for node in nodes)


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
        """The part of its schema for a place that it names."""
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
        said = context.declaring if isinstance(context, Context) else enumerate(context)
        self.all = tuple(
            Promise(at, message.get("_instance"), message["schema"]) for at, message in said if is_promise(message)
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
