"""How large a schema is by the measures that providers limit (SPEC R12.6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from .profiles import Rules

_WORDS: Final[Mapping[str, str]] = {
    "properties": "properties",
    "values": "listed values",
    "unions": "unions",
    "optional": "properties that may be left out",
    "characters": "characters of names and listed values",
}


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a schema as it is sent, each definition counted once. The names are those of `Rules`."""

    properties: int = 0
    values: int = 0
    unions: int = 0
    optional: int = 0
    characters: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def __sub__(self, other: Size) -> Size:
        return Size(*(getattr(self, each.name) - getattr(other, each.name) for each in fields(self)))

    def limits(self, rules: Rules) -> Iterator[tuple[str, int]]:
        """The limits that it exceeds: their names, and how much is allowed."""
        for each in fields(self):
            most = getattr(rules, each.name)
            if most is not None and getattr(self, each.name) > most:
                yield each.name, most

    def share(self, rules: Rules) -> float:
        """How much of the tightest limit it takes, where 1 is all of it."""
        mosts = ((getattr(self, each.name), getattr(rules, each.name)) for each in fields(self))
        return max((size / most for size, most in mosts if most is not None), default=0.0)

    def beyond(self, rules: Rules) -> list[str]:
        """The limits that it exceeds, in words."""
        return [f"{getattr(self, name)} {_WORDS[name]}, where {most} are allowed" for name, most in self.limits(rules)]


def size_of(schema: Any) -> Size:
    """The size of a schema that `wire_schema` has written."""
    if not isinstance(schema, dict):
        return Size()
    properties, listed = schema.get("properties", {}), schema.get("enum", ())
    definitions = schema.get("$defs", {})
    own = Size(
        properties=len(properties),
        values=len(listed),
        unions=int("anyOf" in schema or isinstance(schema.get("type"), list)),
        optional=len(properties) - len(schema.get("required", ())),
        characters=sum(map(len, (*properties, *definitions))) + sum(len(str(value)) for value in listed),
    )
    below = [*properties.values(), *definitions.values(), *schema.get("anyOf", ())]
    below += [schema[key] for key in ("items", "additionalProperties") if key in schema]
    return sum(map(size_of, below), own)


def depth_of(schema: Any) -> int:
    """How many levels of a value lie below what `wire_schema` has written, but for what its references lead to."""
    below = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    beside = max(map(depth_of, schema.get("anyOf", ())), default=0)
    return max(beside, 1 + max(map(depth_of, below)) if below else 0)
