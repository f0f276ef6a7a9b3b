"""An answer as a model writes it that is held to a schema by its provider: every property in its place, and what cannot
be said as a text. The other way round from `acts_celery.protocol.requests.reading`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from acts_celery.protocol.requests.reading import AS_TEXT
from acts_celery.protocol.schemas import compiled

_OF_WHOLE: Final = frozenset(
    {"type", "enum", "pattern", "minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
    | {"multipleOf"}
)


class Unwritable(ValueError):
    """The schema is narrower than the truth: there is no way to write the value."""


def as_sent(value: Any, schema: Any, root: Mapping[str, Any] | None = None) -> Any:
    """A value as the schema on the wire admits it, its properties in the schema's order. Raises `Unwritable`."""
    root = schema if root is None else root
    assert root is not None
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/").replace("~1", "/").replace("~0", "~")
        return as_sent(value, root["$defs"][name], root)
    if "anyOf" in schema:
        for branch in schema["anyOf"]:
            try:
                return as_sent(value, branch, root)
            except Unwritable:
                continue
        raise Unwritable(value)
    if schema.get("properties", {}).keys() == {AS_TEXT}:
        return {AS_TEXT: json.dumps(value, ensure_ascii=False)}
    if isinstance(value, dict) and "object" in (schema.get("type"), *_types(schema)):
        return _object(value, schema, root)
    if isinstance(value, list) and schema.get("type") == "array":
        written: Any = [as_sent(item, schema.get("items", {}), root) for item in value]
    else:
        written = value
    own = {key: part for key, part in schema.items() if key in _OF_WHOLE}
    if compiled(own).problems(written):
        raise Unwritable(value)
    return written


def _types(schema: Mapping[str, Any]) -> list[str]:
    types = schema.get("type", ["object"])
    return types if isinstance(types, list) else [types]


def _object(value: Mapping[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties", {})
    others = {key: item for key, item in value.items() if key not in properties}
    written = {}
    for name, part in properties.items():
        if name == AS_TEXT:
            if others or AS_TEXT in value or name in schema["required"]:
                text = {**others, **({AS_TEXT: value[AS_TEXT]} if AS_TEXT in value else {})}
                written[name] = json.dumps(text, ensure_ascii=False) if text else None
            others = {}
        elif name in value:
            written[name] = as_sent(value[name], part, root)
        elif name in schema.get("required", ()):
            written[name] = as_sent(None, part, root)
    if others and schema.get("additionalProperties") is False:
        raise Unwritable(value)
    below = schema.get("additionalProperties", True)
    return written | {key: as_sent(item, {} if below is True else below, root) for key, item in others.items()}
