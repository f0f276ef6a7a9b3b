"""Promises: input that a schema announces and that comes later (SPEC R6.3).

A promise is an `input` message with a `schema` and without the value. It names the properties that its schema
describes, at any depth; what a schema merely admits it does not name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from acts_celery.protocol.language.messages import Message, is_promise
from acts_celery.protocol.language.paths import MISSING, lookup
from acts_celery.protocol.language.references import Path, Reference
from acts_celery.protocol.schemas import conjuncts
from acts_celery.protocol.schemas.walk import DEFINITIONS, together
from acts_celery.protocol.state.fold import Fold

KIND: Final = "input"
_MOST_LEVELS: Final = 64
_MOST_REQUIRED: Final = 1_000
"""So many places are waited for by themselves: schemas that share what they refer to name more than there are."""


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
        for path in islice(_required(self.schema), _MOST_REQUIRED):
            place = Reference(KIND, path)
            if not fold.exists(place):
                yield place

    def missing(self, fold: Fold) -> Iterator[Reference]:
        """The places that it names and that have no value yet, without those below them."""
        root = fold.root(KIND)
        if root is MISSING and not any(True for _ in _named(self.schema, self.schema)):
            yield Reference(KIND)
            return
        stack: list[Path] = [()]
        while stack:
            path = stack.pop()
            below = [(*path, name) for schema in schemas_at(self.schema, path) for name in _named(schema, self.schema)]
            for place in dict.fromkeys(below):
                if root is MISSING or lookup(root, place) is MISSING:
                    yield Reference(KIND, place)
                elif len(place) < _MOST_LEVELS:
                    stack.append(place)


class Promises:
    """The promises of a context."""

    def __init__(self, context: Iterable[Message]) -> None:
        self.all = tuple(
            Promise(at, message.get("_instance"), message["schema"])
            for at, message in enumerate(context)
            if is_promise(message)
        )

    def seen_by(self, instance: str | None) -> Sequence[Promise]:
        """Those that speak of what a reader sees."""
        return [promise for promise in self.all if promise.instance in (None, instance)]

    def name(self, place: Reference) -> bool:
        """Whether one of them names a place, or one above."""
        lengths = range(min(1, len(place.path)), len(place.path) + 1)
        above = [Reference(KIND, place.path[:length]) for length in lengths] if place.kind == KIND else ()
        return any(each.names(one) for each in self.all for one in above)


def schemas_at(root: Any, path: Path) -> list[Any]:
    """What a schema says of a path, by the properties and items that it names; nothing where it names none."""
    found = parts_of([root], root)
    for segment in path:
        found = parts_of((below for schema in found for below in named_below(schema, segment)), root)
    return found


def named_below(schema: Any, segment: str | int) -> Iterator[Any]:
    """What a schema says of one step down, by the properties and items that it names."""
    properties = schema.get("properties")
    if isinstance(properties, dict) and str(segment) in properties:
        yield properties[str(segment)]
    if isinstance(segment, int):
        first = schema.get("prefixItems")
        if isinstance(first, list) and segment < len(first):
            yield first[segment]
        elif isinstance(schema.get("items"), dict):
            yield schema["items"]


def parts_of(schemas: Iterable[Any], root: Any) -> list[Any]:
    """Schemas of one place, and what they refer to or combine, each once."""
    parts = together(schemas, root, "allOf", "anyOf", "oneOf")
    return [{} if part is True else part for part in parts if part is not False]


def _named(schema: Any, root: Any) -> Iterator[str]:
    for part in parts_of([schema], root):
        if isinstance(part.get("properties"), dict):
            yield from part["properties"]


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
