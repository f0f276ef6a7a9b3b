"""Samples: values made up from a JSON Schema, always the same ones (SPEC R6.7).

The simplest value that the schema's own words lead to: what it pins, lists or gives as an example, else one of its
type. A schema can ask for more than that (a `pattern`, a `not`); whoever needs to be sure validates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .paths import copied
from .schemas import referred

PLACEHOLDER: Final = "…"
"""Stands for a text that nobody described."""
_DEPTH: Final = 12
_MOST_ITEMS: Final = 8
_MOST_PARTS: Final = 2_000
_FORMATS: Final = {
    "date-time": "2026-01-01T00:00:00Z",
    "date": "2026-01-01",
    "time": "00:00:00Z",
    "email": "someone@example.org",
    "uri": "https://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def sample(schema: Any) -> Any:
    """A value for a schema; the placeholder where it says nothing."""
    return _Maker(schema).value(schema, 0)


class _Maker:
    """Makes one value up; of a schema that asks for very much, or for itself without end, only so much."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._left = _MOST_PARTS

    def value(self, schema: Any, depth: int) -> Any:
        """A value for a part of the schema."""
        self._left -= 1
        if depth > _DEPTH or self._left < 0:
            return None
        if not isinstance(schema, Mapping):
            return PLACEHOLDER
        schema = _merged(schema, self._root)
        for keyword in ("const", "default"):
            if keyword in schema:
                return copied(schema[keyword])
        for keyword in ("enum", "examples"):
            if isinstance(schema.get(keyword), list) and schema[keyword]:
                return copied(schema[keyword][0])
        match _type(schema):
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "integer" | "number" as name:
                return _number(schema, name)
            case "boolean":
                return True
            case "null":
                return None
        return _text(schema)

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties = schema.get("properties", {})
        value = {key: self.value(part, depth + 1) for key, part in properties.items() if part is not False}
        for key in schema.get("required", ()):
            value.setdefault(key, self.value(schema.get("additionalProperties"), depth + 1))
        return value

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        items = [self.value(part, depth + 1) for part in schema.get("prefixItems", ())]
        least = min(max(int(schema.get("minItems", 1)), 1), _MOST_ITEMS)
        if schema.get("items") is not False and schema.get("maxItems") != 0:
            while len(items) < least:
                items.append(self.value(schema.get("items"), depth + 1))
        return items


def _merged(schema: Mapping[str, Any], root: Any) -> dict[str, Any]:
    """The schema with what it refers to and combines; of alternatives the first."""
    merged: dict[str, Any] = {}
    stack: list[Any] = [schema]
    for _ in range(64):
        if not stack:
            break
        part = stack.pop(0)
        if not isinstance(part, Mapping):
            continue
        for key, value in part.items():
            if key == "properties" and isinstance(value, Mapping):
                merged["properties"] = {**value, **merged.get("properties", {})}
            elif key == "required" and isinstance(value, list):
                merged["required"] = [*merged.get("required", []), *value]
            else:
                merged.setdefault(key, value)
        stack += part.get("allOf", [])
        stack += [part[key][0] for key in ("anyOf", "oneOf") if part.get(key)]
        stack.append(referred(part.get("$ref"), root))
    return merged


def _type(schema: Mapping[str, Any]) -> str:
    declared = schema.get("type")
    if isinstance(declared, list):
        return str(next((name for name in declared if name != "null"), "null"))
    if isinstance(declared, str):
        return declared
    for name, keywords in (("object", ("properties", "required")), ("array", ("items", "prefixItems"))):
        if any(keyword in schema for keyword in keywords):
            return name
    return "number" if "minimum" in schema or "maximum" in schema else "string"


def _number(schema: Mapping[str, Any], name: str) -> float:
    """The least number allowed, the largest where only that is limited, else one."""
    step = schema.get("multipleOf", 1)
    value: float = 1
    if "minimum" in schema:
        value = schema["minimum"]
    elif "exclusiveMinimum" in schema:
        value = schema["exclusiveMinimum"] + step
    elif "maximum" in schema:
        value = min(value, schema["maximum"])
    elif "exclusiveMaximum" in schema:
        value = min(value, schema["exclusiveMaximum"] - step)
    if "multipleOf" in schema and value % step:
        value = (value // step + 1) * step
    return int(value) if name == "integer" or float(value).is_integer() else value


def _text(schema: Mapping[str, Any]) -> str:
    text = _FORMATS.get(str(schema.get("format")), PLACEHOLDER)
    least, most = int(schema.get("minLength", 0)), int(schema.get("maxLength", len(text)))
    return (text + PLACEHOLDER * min(max(least - len(text), 0), 10_000))[: max(most, least)]
