"""Parts: what of a schema speaks of a value as a whole, and of what is in it (SPEC R4.1, R4.6).

An *excerpt* is a part as a schema of its own, with what its references lead to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from acts_celery.protocol.language.references import Path

from .patterns import matches
from .walk import DEFINITIONS, REFERENCES, Schema, Targets, applied, rewritten, together


class SchemaError(ValueError):
    """This is no schema, or one that cannot be applied; `path` says where in it."""

    def __init__(self, message: str, path: Path = ()) -> None:
        super().__init__(message)
        self.message = message
        self.path = path


def parts_at(schema: Schema, path: Path, root: Schema | None = None) -> list[Schema]:
    """Every part of a schema that the value at a path has to satisfy; none where it does not speak of it.

    An index is one of a list. References lead into the root, if that is not the schema itself.
    """
    root = schema if root is None else root
    parts = [schema]
    for segment in path:
        here = [*together(parts, root)]
        parts = [below for part in here for below in _below(part, segment)] or _left_over(here, segment, root)
    return parts


def admits_type(schema: Schema, *types: str) -> bool:
    """Whether a schema's own `type` admits one of these."""
    declared = schema.get("type") if isinstance(schema, dict) else None
    admitted = [declared] if isinstance(declared, str) else declared
    return not isinstance(admitted, list) or any(type_ in admitted for type_ in types)


def admits_name(parts: Iterable[Mapping[str, Any]], name: str) -> bool:
    """Whether no schema of a place is closed to a property of this name."""
    return not any(
        part.get("additionalProperties") is False
        and name not in part.get("properties", ())
        and not any(matches(pattern, name) for pattern in part.get("patternProperties", ()))
        for part in parts
    )


def excerpt(part: Mapping[str, Any], document: Schema) -> dict[str, Any]:
    """A part of a document whose references are pointers, or what is made of such parts."""
    definitions: dict[str, Any] = {}

    def named(reference: str, _: object) -> str:
        return f"{reference.rpartition('/')[2].strip('#') or 'whole'}-{len(definitions)}"

    def moved(below: Any) -> Any:
        if not isinstance(below, dict):
            return below
        return {
            key: targets(item, None, moved) if key in REFERENCES else rewritten(key, item, moved)
            for key, item in below.items()
        }

    targets = Targets(document, definitions, named)
    alone: dict[str, Any] = moved({key: item for key, item in part.items() if key not in DEFINITIONS})
    return {**alone, "$defs": definitions} if definitions else alone


def _left_over(parts: Iterable[Schema], segment: str | int, root: Schema) -> list[Schema]:
    """What is said of a property or element of which nothing else speaks, whatever the value is."""
    keyword = "unevaluatedItems" if isinstance(segment, int) else "unevaluatedProperties"
    left = [part[keyword] for part in parts if isinstance(part, dict) and keyword in part]
    return [] if left and any(_below(part, segment) or "contains" in part for part in applied(parts, root)) else left


def _below(schema: Schema, segment: str | int) -> list[Schema]:
    """What a schema says of one property or element."""
    if not isinstance(schema, dict):
        return [] if schema else [False]
    if isinstance(segment, int) and admits_type(schema, "array"):
        elements = [*schema.get("prefixItems", ())[segment : segment + 1], *_given("items", schema)]
        return elements[:1]
    key = str(segment)
    named = [schema["properties"][key]] if key in schema.get("properties", ()) else []
    for pattern, below in schema.get("patternProperties", {}).items():
        is_match = matches(pattern, key)
        if is_match is not False:  # of a name on which a pattern is given up it is unknown what is said
            named.append(below if is_match else False)
    return named or _given("additionalProperties", schema)


def _given(keyword: str, schema: dict[str, Any]) -> list[Schema]:
    return [schema[keyword]] if keyword in schema else []
