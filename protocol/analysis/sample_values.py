"""Sample values: the simplest value that a JSON Schema describes, always the same one (SPEC R6.7).

It is what the schema pins, lists or gives as an example, else something of its types. A schema can ask for more than
that (a `pattern`, a `not`): the value is validated where that matters.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from math import floor, isfinite
from typing import Any, Final

from acts_celery.protocol.language.paths import copied
from acts_celery.protocol.schemas import referred
from acts_celery.protocol.schemas.walk import spread

PLACEHOLDER: Final = "…"
"""Stands for a value that no schema describes."""
_DEPTH: Final = 12
_MOST_ITEMS: Final = 8
_MOST_REQUIRED: Final = 256
_MOST_LETTERS: Final = 10_000
_MOST_PARTS: Final = 2_000
_MOST_COMBINED: Final = 64
_KEYWORDS: Final = {
    "object": ("properties", "required"),
    "array": ("items", "prefixItems"),
    "number": ("minimum", "maximum"),
}
_FORMATS: Final = {
    "date-time": "2026-01-01T00:00:00Z",
    "date": "2026-01-01",
    "time": "00:00:00Z",
    "email": "someone@example.org",
    "uri": "https://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def sample(schema: Any) -> Any:
    """The simplest value for a schema."""
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
        schema = self._merged(schema)
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
        also = schema.get("dependentRequired", {})
        missing = [*schema.get("required", ()), *(name for key in value for name in also.get(key, ()))]
        missing += map(str, range(min(int(schema.get("minProperties", 0)), _MOST_ITEMS) - len({*value, *missing})))
        for key in missing:
            value.setdefault(key, self.value(schema.get("additionalProperties"), depth + 1))
        return value

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        items = [self.value(part, depth + 1) for part in schema.get("prefixItems", ())]
        length = min(max(int(schema.get("minItems", 0)), 1), int(schema.get("maxItems", 1)), _MOST_REQUIRED)
        length = max(length, min(int(schema.get("minItems", 0)), _MOST_REQUIRED))
        while len(items) < length and schema.get("items") is not False:
            items.append(self.value(schema.get("items"), depth + 1))
        if "contains" in schema:
            number = min(int(schema.get("minContains", 1)), _MOST_ITEMS)
            items[max(len(items) - number, 0) :] = [self.value(schema["contains"], depth + 1) for _ in range(number)]
        return items

    def _merged(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """The schema with what it refers to and combines; of alternatives the first."""
        merged: dict[str, Any] = {}
        for part in islice(spread([schema], self._combined, nearest_first=True), _MOST_COMBINED):
            for key, value in part.items() if isinstance(part, dict) else ():
                if key == "properties":
                    merged["properties"] = {**value, **merged.get("properties", {})}
                elif key == "required":
                    merged["required"] = [*merged.get("required", []), *value]
                else:
                    merged.setdefault(key, value)
        return merged

    def _combined(self, part: Mapping[str, Any]) -> Iterator[Any]:
        yield from part.get("allOf", ())
        yield from (_first(part[key]) for key in ("anyOf", "oneOf") if part.get(key))
        yield from (part["if"], part.get("then")) if "if" in part else ()
        yield referred(part.get("$ref"), self._root)


def _first(branches: list[Any]) -> Any:
    """The first of several branches that is more than null."""
    return next((branch for branch in branches if branch != {"type": "null"}), branches[0])


def _type(schema: Mapping[str, Any]) -> str:
    """The simplest of the types that come into question; where none is named, what the other keywords speak of."""
    declared = schema.get("type")
    if isinstance(declared, str):
        return declared
    if isinstance(declared, list) and declared:
        return str(min(declared, key="null".__eq__))
    spoken_of = (name for name, keywords in _KEYWORDS.items() if any(keyword in schema for keyword in keywords))
    return next(spoken_of, "string")


def _number(schema: Mapping[str, Any], name: str) -> float:
    """The least number in the range that is at least 1, or where only the largest is limited that."""
    step: float = schema.get("multipleOf", 1)
    if name == "number" and "multipleOf" not in schema and {"exclusiveMinimum", "exclusiveMaximum"} <= schema.keys():
        step = (schema["exclusiveMaximum"] - schema["exclusiveMinimum"]) / 4
    low = max(_bounds(schema, "minimum", "exclusiveMinimum", step), default=None)
    high = min(_bounds(schema, "maximum", "exclusiveMaximum", -step), default=None)
    value: float = low if low is not None else 1 if high is None else min(1, high)
    if "multipleOf" in schema and value % step and isfinite(multiple := value / step):
        value = (floor(multiple) + (high is None or value + step <= high)) * step
    return int(value) if name == "integer" or float(value).is_integer() else value


def _bounds(schema: Mapping[str, Any], inclusive: str, exclusive: str, step: float) -> list[float]:
    """What a number may be that is at a bound, or a step inside of one that it may not reach."""
    bounds = [schema[inclusive]] if inclusive in schema else []
    return bounds + ([schema[exclusive] + step] if exclusive in schema else [])


def _text(schema: Mapping[str, Any]) -> str:
    text = _FORMATS.get(str(schema.get("format")), PLACEHOLDER)
    least = int(schema.get("minLength", 0))
    most = max(int(schema.get("maxLength", max(least, len(text)))), least)
    return (text + PLACEHOLDER * min(max(least - len(text), 0), _MOST_LETTERS))[:most]
