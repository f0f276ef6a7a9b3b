"""Fitting: whether what one schema promises can ever be what another one admits (SPEC R4.1, R4.6).

Only what is certain is said: a misfit is told where *no* value could satisfy both, by type, `enum`, `const` or a
property that one side requires and the other forbids. Whatever depends on more than that is taken to fit.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .errors import Problem, shortened
from .patterns import matches
from .references import Path
from .schemas import Schema, compiled, joined

ALL_TYPES: Final = frozenset({"null", "boolean", "integer", "fraction", "string", "array", "object"})
"""The types a value can have; a number is an `integer` or a `fraction`, so that sets of types can be compared."""
_MOST_VALUES: Final = 100
_DEPTH: Final = 8
_MOST_PAIRS: Final = 500


@dataclass(frozen=True, slots=True)
class Shape:
    """What a schema says of a value at a path: `parts` are the schemas all of which it satisfies."""

    root: Schema
    path: Path
    parts: tuple[Schema, ...]

    @property
    def is_impossible(self) -> bool:
        """Whether there can be no value at the path at all."""
        return any(part is False for part in self.parts) or not self.types

    @property
    def types(self) -> frozenset[str]:
        """The types the value can have."""
        types = ALL_TYPES
        for part in self.parts:
            types &= _types(part)
        return types

    @property
    def values(self) -> tuple[Any, ...] | None:
        """All values that come into question, where a `const` or an `enum` lists them."""
        for part in self.parts:
            if isinstance(part, dict) and "const" in part:
                return (part["const"],)
            if isinstance(part, dict) and isinstance(part.get("enum"), list) and len(part["enum"]) <= _MOST_VALUES:
                return tuple(part["enum"])
        return None

    def admits(self, value: Any) -> bool:
        """Whether the whole of the schema has nothing against the value at the path."""
        return not self.problems(value)

    def problems(self, value: Any) -> list[Problem]:
        """What the whole of the schema has against the value at the path."""
        return compiled(self.root).problems_at(self.path, value)

    def below(self, segment: str | int) -> Shape:
        """What is said of one property or element, given that it is there."""
        types = self.types
        parts = [below for part in self.parts for below in _below(part, segment, types)]
        return Shape(self.root, (*self.path, segment), _together(parts, self.root))

    @property
    def required(self) -> frozenset[str]:
        """The properties that are there whenever the value is an object."""
        return frozenset(
            key
            for part in self.parts
            if isinstance(part, dict)
            for key in part.get("required", ())
            if isinstance(key, str)
        )


def shape_at(schema: Schema, path: Path = ()) -> Shape:
    """What a schema says of the value at a path."""
    shape = Shape(schema, (), _together([schema], schema))
    for segment in path:
        if isinstance(segment, str) and "object" not in shape.types:
            return Shape(schema, path, (False,))
        if isinstance(segment, int) and not shape.types & {"object", "array"}:
            return Shape(schema, path, (False,))
        shape = shape.below(segment)
    return shape


def misfit(given: Shape, wanted: Shape) -> str | None:
    """Why no value of the one shape can be one of the other, or None where one might be."""
    return _Comparison().misfit(given, wanted, 0)


class _Comparison:
    """One comparison of two shapes and what is below them; after so many pairs the rest is taken to fit."""

    def __init__(self) -> None:
        self._left = _MOST_PAIRS

    def misfit(self, given: Shape, wanted: Shape, depth: int) -> str | None:
        self._left -= 1
        if depth > _DEPTH or self._left < 0:
            return None
        if not given.parts or not wanted.parts or given.is_impossible or wanted.is_impossible:
            return None
        if (values := given.values) is not None and not any(map(wanted.admits, values)):
            return f"{_either(values)} is not {_description(wanted)}"
        if (values := wanted.values) is not None and not any(map(given.admits, values)):
            return f"{_description(given)} is never {_either(values)}"
        if not given.types & wanted.types:
            return f"{_description(given)} is not {_description(wanted)}"
        if given.types & wanted.types == {"object"}:
            return self._object_misfit(given, wanted, depth)
        return None

    def _object_misfit(self, given: Shape, wanted: Shape, depth: int) -> str | None:
        for key in sorted(given.required | wanted.required):
            here, there = given.below(key), wanted.below(key)
            if key in wanted.required and here.is_impossible:
                return f"it never has {key!r}, which is required"
            if key in given.required and there.is_impossible:
                return f"it always has {key!r}, which is not admitted"
            if (why := self.misfit(here, there, depth + 1)) is not None:
                return f"in {key!r}, {why}"
            if self._left < 0:
                return None
        return None


def _together(schemas: Iterable[Any], root: Schema) -> tuple[Schema, ...]:
    """The schemas and those that they join; of a document with a name of its own, references are left alone."""
    is_named = isinstance(root, dict) and "$id" in root
    return joined(schemas, {} if is_named else root)


def _below(schema: Schema, segment: str | int, types: frozenset[str]) -> list[Any]:
    if not isinstance(schema, dict):
        return []
    if isinstance(segment, int) and "object" in types:
        if "array" in types:
            return []  # an element or a property: nobody can tell
        segment = str(segment)
    if isinstance(segment, int):
        prefix = schema.get("prefixItems", [])
        if segment < len(prefix):
            return [prefix[segment]]
        return [schema["items"]] if "items" in schema else []
    named = [schema["properties"][segment]] if segment in schema.get("properties", ()) else []
    patterns = schema.get("patternProperties", {})
    named += [below for pattern, below in patterns.items() if matches(pattern, segment)]
    return named or ([schema["additionalProperties"]] if "additionalProperties" in schema else [])


_JSON_TYPES: Final = {"number": frozenset({"integer", "fraction"})}


def _types(schema: Schema) -> frozenset[str]:
    if not isinstance(schema, dict):
        return ALL_TYPES if schema else frozenset()
    types = ALL_TYPES
    if "const" in schema:
        types &= {_type(schema["const"])}
    if isinstance(schema.get("enum"), list):
        types &= frozenset(map(_type, schema["enum"]))
    declared = schema.get("type")
    if declared is not None:
        names = [declared] if isinstance(declared, str) else declared
        types &= frozenset[str]().union(*(_JSON_TYPES.get(name, frozenset({name})) for name in names))
    return types


def _type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "fraction"
        case str():
            return "string"
        case list():
            return "array"
    return "object"


def _description(shape: Shape) -> str:
    """`string or null`; the values where they are listed."""
    if shape.values is not None:
        return _either(shape.values)
    types = shape.types
    number = "number" if "fraction" in types else "integer"
    spelled = {"integer": number, "fraction": number}
    order = ("string", "integer", "fraction", "boolean", "array", "object", "null")
    names = dict.fromkeys(spelled.get(name, name) for name in order if name in types)
    return " or ".join(names)


def _either(values: Sequence[Any]) -> str:
    told = " or ".join(shortened(json.dumps(value, ensure_ascii=False), 60) for value in values[:4])
    return told + (" …" if len(values) > 4 else "")
