"""Types: those that a value can have, by a schema's own words (SPEC R4.1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from protocol.schemas import Schema

ALL_TYPES: Final = frozenset({"null", "boolean", "integer", "fraction", "string", "array", "object"})
"""The types a value can have; a number is an `integer` or a `fraction`, so that sets of types can be compared."""


def json_types(types: Iterable[str]) -> list[str]:
    """The types as a schema names them."""
    return sorted({"number" if name == "fraction" else name for name in types})


_JSON_TYPES: Final = {"number": frozenset({"integer", "fraction"})}


def types_of(schema: Schema) -> frozenset[str]:
    """The types that a schema's own `type`, `enum` and `const` leave."""
    if not isinstance(schema, dict):
        return ALL_TYPES if schema else frozenset()
    types = ALL_TYPES
    if "const" in schema:
        types &= {_type(schema["const"])}
    if isinstance(schema.get("enum"), list):
        types &= frozenset(map(_type, schema["enum"]))
    declared = schema.get("type")
    names = [declared] if isinstance(declared, str) else declared
    if isinstance(names, list):
        types &= frozenset[str]().union(*(_JSON_TYPES.get(str(name), frozenset({str(name)})) for name in names))
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
