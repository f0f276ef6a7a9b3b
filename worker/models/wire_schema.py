"""The schema as a provider's strict mode takes it: wider than the truth where that mode cannot say it, never narrower.

A schema is a conjunction: what stands beside each other in it, and each branch of `allOf`, all hold. So whichever one
of them is sent admits everything that the whole admits, and of a keyword that cannot be said nothing is left but that
it is validated afterwards (SPEC R12.6). What only the strict mode requires - that every property is there - a model
fills with null, and that is dropped again before anything is validated (`acts_celery.protocol.requests.wire`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Schema = dict[str, Any]

_SPOKEN: Final = ("title", "description")
_OF_TYPE: Final[Mapping[str, tuple[str, ...]]] = {
    "string": ("pattern",),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "array": ("minItems", "maxItems"),
}
"""Not `format`, which says nothing of a value by the truth, and would be enforced."""
_EASY_PATTERN: Final = re.compile(r"\^[^|]*\$", re.DOTALL)
"""Of the whole text, so that it means the same where a pattern is matched against all of it or any part."""
_HARD: Final = ("(?", "\\p", "\\P", "\\1", "\\b", "\\B")
"""What not every engine of regular expressions has."""
_NULL: Final = {"type": "null"}


@dataclass(frozen=True)
class StrictMode:
    """What a provider's strict mode can say, and how much of it."""

    requires_all: bool
    """Whether every property of an object is to be required; one that may be left out admits null then."""
    bounds: bool
    """Whether it knows bounds of numbers and lists, and patterns."""
    most_properties: int
    most_levels: int
    most_values: int
    """In all `enum`s together."""
    most_unions: int
    most_optional: int


OPENAI: Final = StrictMode(True, True, 5_000, 10, 1_000, most_unions=10_000, most_optional=0)
ANTHROPIC: Final = StrictMode(False, False, 5_000, 50, 10_000, most_unions=16, most_optional=24)


class Inexpressible(ValueError):
    """A schema that a strict mode cannot say; the text tells why."""


def strict_schema(schema: Any, mode: StrictMode) -> Schema:
    """The schema for the wire. Raises `Inexpressible` where nothing as wide as it can be said."""
    if not isinstance(schema, dict):
        raise Inexpressible("it admits any value")
    writer = _Writer(mode, schema.get("$defs", {}))
    written = writer.written({key: value for key, value in schema.items() if key != "$defs"}, 1)
    if written.get("type") != "object":
        raise Inexpressible("it is not the schema of an object")
    if definitions := writer.definitions():
        written["$defs"] = definitions
    writer.verify()
    return written


@dataclass
class _Writer:
    """Writes one schema, and counts what it takes."""

    mode: StrictMode
    given: Mapping[str, Any]
    needed: dict[str, Schema | None] = field(default_factory=dict)
    """The definitions that are referred to; None where one is not written yet."""
    properties: int = 0
    levels: int = 0
    values: int = 0
    unions: int = 0
    optional: int = 0

    def written(self, part: Any, level: int) -> Schema:
        """A part of the schema: the first of what holds together in it that can be said."""
        if not isinstance(part, dict):
            raise Inexpressible("somewhere it admits any value, or none")
        self.levels = max(self.levels, level)
        reason = Inexpressible("somewhere it admits any value")
        for conjunct in _conjuncts(part):
            try:
                said = self._conjunct(conjunct, level)
            except Inexpressible as error:
                reason = error
            else:
                if "$ref" in said:
                    return said  # beside which nothing may stand
                return {**{key: part[key] for key in _SPOKEN if isinstance(part.get(key), str)}, **said}
        raise reason

    def definitions(self) -> dict[str, Schema]:
        """The definitions that are needed, and those that they need. Raises `Inexpressible`."""
        while missing := [name for name, written in self.needed.items() if written is None]:
            for name in missing:
                self.needed[name] = self.written(self.given.get(name), 2)
        return {name: written for name, written in self.needed.items() if written is not None}

    def verify(self) -> None:
        """Raise `Inexpressible` where it is more than the mode takes."""
        mode = self.mode
        for found, most, what in (
            (self.properties, mode.most_properties, "properties"),
            (self.levels, mode.most_levels, "levels"),
            (self.values, mode.most_values, "listed values"),
            (self.unions, mode.most_unions, "unions"),
            (0 if mode.requires_all else self.optional, mode.most_optional, "properties that may be left out"),
        ):
            if found > most:
                raise Inexpressible(f"it has {found} {what}, where {most} are allowed")

    def _conjunct(self, part: Schema, level: int) -> Schema:
        if "$ref" in part:
            return self._referred(part["$ref"])
        if "const" in part or "enum" in part:
            return self._listed([part["const"]] if "const" in part else part["enum"])
        if "anyOf" in part:
            return self._union(part["anyOf"], level)
        match part.get("type"):
            case list() as types:
                return self._union([{**part, "type": one} for one in types], level)
            case "object":
                return self._object(part, level)
            case "array":
                return {"type": "array", **self._bounds(part, "array"), "items": self._items(part, level)}
            case str() as one:
                return {"type": one, **self._bounds(part, one)}
        raise Inexpressible("somewhere it admits any value")

    def _referred(self, reference: str) -> Schema:
        name = reference.removeprefix("#/$defs/").replace("~1", "/").replace("~0", "~")
        if name == reference or name not in self.given:
            raise Inexpressible(f"it refers to {reference}, which is not among its $defs")
        self.needed.setdefault(name, None)
        return {"$ref": reference}

    def _listed(self, values: list[Any]) -> Schema:
        if not values or any(isinstance(value, dict | list) for value in values):
            raise Inexpressible("it lists objects or lists, or nothing")
        self.values += len(values)
        types = list(dict.fromkeys(map(_type_of, values)))
        return {"type": types[0] if len(types) == 1 else types, "enum": values}

    def _union(self, branches: list[Any], level: int) -> Schema:
        written = [self.written(branch, level) for branch in branches if branch is not False]
        if len(written) == 1:
            return written[0]
        self.unions += 1
        return {"anyOf": written}

    def _object(self, part: Schema, level: int) -> Schema:
        """An object that is closed already: to close one would forbid what it admits."""
        if part.get("additionalProperties") is not False or part.get("patternProperties"):
            raise Inexpressible("it has an object that admits any property")
        required = set(part.get("required", ()))
        properties = {}
        for name, below in part.get("properties", {}).items():
            if below is False:
                continue
            written = self.written(below, level + 1)
            self.properties += 1
            if name not in required:
                self.optional += 1
                written = self._or_null(written) if self.mode.requires_all else written
            properties[name] = written
        needed = [name for name in properties if self.mode.requires_all or name in required]
        return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}

    def _or_null(self, written: Schema) -> Schema:
        self.unions += 1
        return (
            {"anyOf": [written, _NULL]} if "anyOf" not in written else {**written, "anyOf": [*written["anyOf"], _NULL]}
        )

    def _items(self, part: Schema, level: int) -> Schema:
        """What any element may be; where each place has a schema of its own, one of those."""
        if part.get("maxItems") == 0:
            return _NULL
        places = [*part.get("prefixItems", ()), *([part["items"]] if "items" in part else [True])]
        return self._union([place for place in places if place is not False] or [True], level + 1)

    def _bounds(self, part: Schema, type_: str) -> Schema:
        if not self.mode.bounds:
            return {}
        kept = {key: part[key] for key in _OF_TYPE.get(type_, ()) if key in part}
        pattern = kept.get("pattern", "")
        if pattern and (not _EASY_PATTERN.fullmatch(pattern) or any(hard in pattern for hard in _HARD)):
            del kept["pattern"]
        return kept


def _conjuncts(part: Schema) -> Iterator[Schema]:
    """What holds together in a schema, each enough by itself to be sent; what says most comes first."""
    if part.keys() & {"const", "enum"}:
        yield part
    own = {key: value for key, value in part.items() if key not in ("$ref", "anyOf", "oneOf", "allOf", "const", "enum")}
    if "type" in own:
        yield own
    if "$ref" in part:
        yield {"$ref": part["$ref"]}
    for keyword in ("anyOf", "oneOf"):
        if keyword in part:
            yield {"anyOf": part[keyword]}
    for each in part.get("allOf", ()):
        if isinstance(each, dict):
            yield from _conjuncts(each)


def _type_of(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}
    return names[type(value)]
