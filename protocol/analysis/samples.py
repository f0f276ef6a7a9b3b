"""Samples: values made up from a JSON Schema, always the same ones (SPEC R6.7).

Of what the schema's own words lead to - what it pins, lists or gives as an example, else something of its types - the
simplest, or what a `Variety` picks. A schema can ask for more than that (a `pattern`, a `not`); whoever needs to be
sure validates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from protocol.language.paths import copied
from protocol.schemas import referred

from .variety import Variety

PLACEHOLDER: Final = "…"
"""Stands for a text that nobody described."""
_DEPTH: Final = 12
_MOST_ITEMS: Final = 8
_MOST_REQUIRED: Final = 256
_NAMES: Final = ("a", "b", "c", "d", "e", "f", "g", "h")
"""Of properties that only have to be there."""
_MOST_PARTS: Final = 2_000
_LEAST_STEP: Final = 1e-9
_ANYTHING: Final[tuple[Any, ...]] = (PLACEHOLDER, 1, {}, [], True, None, 0.5, "")
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


def sample(schema: Any, variety: Variety | None = None) -> Any:
    """A value for a schema: the simplest, or one of a variety."""
    return _Maker(schema, variety or Variety()).value(schema, 0)


class _Maker:
    """Makes one value up; of a schema that asks for very much, or for itself without end, only so much.

    Wherever there are several ways, they are offered in a list, the simplest first.
    """

    def __init__(self, root: Any, variety: Variety) -> None:
        self._root = root
        self._pick = variety.pick
        self._left = _MOST_PARTS

    def value(self, schema: Any, depth: int) -> Any:
        """A value for a part of the schema."""
        self._left -= 1
        if depth > _DEPTH or self._left < 0:
            return None
        if not isinstance(schema, Mapping):
            return copied(self._pick(_ANYTHING))
        schema = self._merged(schema)
        if "const" in schema:
            return copied(schema["const"])
        given = [schema["default"]] if "default" in schema else []
        for keyword in ("enum", "examples"):
            given += schema[keyword] if isinstance(schema.get(keyword), list) else []
        if given and ("enum" in schema or self._pick([True, False])):
            return copied(self._pick(given))
        match self._pick(_types(schema)):
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "integer" | "number" as name:
                return self._pick(_numbers(schema, name))
            case "boolean":
                return self._pick([True, False])
            case "null":
                return None
        return self._pick(_texts(schema))

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        required = schema.get("required", ())
        properties = {key: part for key, part in schema.get("properties", {}).items() if part is not False}
        kept = {key: part for key, part in properties.items() if key in required or self._pick([True, False])}
        value = {key: self.value(part, depth + 1) for key, part in kept.items()}
        also = schema.get("dependentRequired", {})
        missing = [*required, *(name for key in value for name in also.get(key, ()))]
        missing += _NAMES[: max(0, min(int(schema.get("minProperties", 0)), _MOST_ITEMS) - len({*value, *missing}))]
        for key in missing:
            value.setdefault(key, self.value(schema.get("additionalProperties"), depth + 1))
        return value

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        items = [self.value(part, depth + 1) for part in schema.get("prefixItems", ())]
        least, most = int(schema.get("minItems", 0)), int(schema.get("maxItems", _MOST_ITEMS))
        lengths = dict.fromkeys((max(least, 1), least, least + 1, most))
        if schema.get("items") is not False:
            length = min(self._pick([length for length in lengths if length <= most] or [0]), max(_MOST_ITEMS, least))
            length = min(length, _MOST_REQUIRED)
            while len(items) < length:
                items.append(self.value(schema.get("items"), depth + 1))
        if "contains" in schema:
            number = min(int(schema.get("minContains", 1)), _MOST_ITEMS)
            found = [self.value(schema["contains"], depth + 1) for _ in range(number)]
            items[max(len(items) - number, 0) :] = found
        return items

    def _merged(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """The schema with what it refers to and combines; of alternatives one."""
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
            stack += [self._pick(part[key]) for key in ("anyOf", "oneOf") if part.get(key)]
            if "if" in part:
                stack += self._pick([[part["if"], part.get("then")], [part.get("else")]])
            stack.append(referred(part.get("$ref"), self._root))
        return merged


def _types(schema: Mapping[str, Any]) -> list[str]:
    """The types that come into question; where nothing is said, what the other keywords speak of."""
    declared = schema.get("type")
    if isinstance(declared, str):
        return [declared]
    if isinstance(declared, list) and declared:
        return sorted(map(str, declared), key="null".__eq__)
    spoken_of = (name for name, keywords in _KEYWORDS.items() if any(keyword in schema for keyword in keywords))
    return list(dict.fromkeys((*spoken_of, "string", "number", "object", "array", "boolean", "null")))


def _numbers(schema: Mapping[str, Any], name: str) -> list[float]:
    """Numbers in the range, the least first, or where only the largest is limited that; else one."""
    step: float = schema.get("multipleOf", 1)
    if name == "number" and "multipleOf" not in schema and {"exclusiveMinimum", "exclusiveMaximum"} <= schema.keys():
        step = (schema["exclusiveMaximum"] - schema["exclusiveMinimum"]) / 4
    low = max(_bounds(schema, "minimum", "exclusiveMinimum", step), default=None)
    high = min(_bounds(schema, "maximum", "exclusiveMaximum", -step), default=None)
    first = low if low is not None else 1 if high is None else min(1, high)
    found = [first] if low is None else [first, low + step, low + 2 * step]
    found += [] if high is None else [high, high - step]
    found += [] if low is None or high is None or name == "integer" else [(low + high) / 2]
    found += [0, -1, 2, 10] + ([0.5] if name == "number" else [])
    if "multipleOf" in schema:
        found = [value if value % step == 0 or step < _LEAST_STEP else (value // step + 1) * step for value in found]
    inside = [value for value in found if (low is None or value >= low) and (high is None or value <= high)]
    return [
        int(value) if name == "integer" or float(value).is_integer() else value
        for value in dict.fromkeys(inside or [first])
    ]


def _bounds(schema: Mapping[str, Any], inclusive: str, exclusive: str, step: float) -> list[float]:
    """What a number may be that is at a bound, or a step inside of one that it may not reach."""
    bounds = [schema[inclusive]] if inclusive in schema else []
    return bounds + ([schema[exclusive] + step] if exclusive in schema else [])


def _texts(schema: Mapping[str, Any]) -> list[str]:
    text = _FORMATS.get(str(schema.get("format")), PLACEHOLDER)
    least = int(schema.get("minLength", 0))
    most = int(schema.get("maxLength", max(least, len(text))))
    others = ("", "a", "b" * min(most, 10_000), "1") if "format" not in schema else ()
    return [
        (text + PLACEHOLDER * min(max(least - len(text), 0), 10_000))[: max(most, least)]
        for text in dict.fromkeys((text, *others))
    ]
