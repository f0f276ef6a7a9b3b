"""Conversions: what may become what a signature says, on the way into an activity (SPEC R4.1a).

Activities are called with conversions: `"5"` becomes a number, a number a date. So the schema of a signature is made
wide enough to admit whatever may be converted, and whatever it says in words that are not looked at here.
"""

from __future__ import annotations

from typing import Any, Final

from protocol.schemas import Schema

_MADE_FROM: Final = {
    "integer": ("boolean", "string"),
    "number": ("boolean", "string"),
    "boolean": ("number", "string"),
}
"""Types of which some values are converted to one of a type."""
_NUMERIC: Final = r"^\s*[+-]?(\d|\.\d|[^\x00-\x7F]|[iI][nN][fF]|[nN][aA][nN])"
"""What a text starts with that may stand for a number."""
_OF_TYPE: Final = {
    "array": ("items", "prefixItems", "minItems", "maxItems"),
    "object": ("properties", "required", "additionalProperties"),
    "string": ("minLength", "maxLength"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"),
}
"""What is looked at of a value of some type."""
_LISTED: Final = ("anyOf", "allOf", "prefixItems")
_NAMED: Final = ("properties", "$defs", "definitions")
_SINGLE: Final = ("items", "additionalProperties")


def convertible(schema: Schema) -> Schema:
    """The schema of all that may be converted to what a schema admits."""
    if not isinstance(schema, dict):
        return schema
    kept = {key: schema[key] for key in ("$ref", "$defs", "definitions", "allOf", "anyOf") if key in schema}
    if "oneOf" in schema and "anyOf" not in schema:
        kept["anyOf"] = schema["oneOf"]  # by conversion it may be several of them
    return _below(kept | _typed(schema))


def _typed(schema: dict[str, Any]) -> dict[str, Any]:
    """What is left of what a schema says of the value itself."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if values is not None and all(value is None or isinstance(value, str) for value in values):
        return {"enum": values}  # these are taken as they are
    declared = schema.get("type", [])
    types = {declared} if isinstance(declared, str) else set(declared)
    if not types:
        return {}
    wide = types.union(*(_MADE_FROM.get(type_, ()) for type_ in types))
    kept = {key: schema[key] for type_ in sorted(types) for key in _OF_TYPE.get(type_, ()) if key in schema}
    if schema.get("uniqueItems"):
        kept.pop("maxItems", None)  # of those that are equal one is left
    if "format" in schema:  # a date, a duration, an address may be a number as well
        wide |= {"string", "number", "boolean"}
        kept = {key: part for key, part in kept.items() if key not in _OF_TYPE["string"]}
    elif "string" in wide and not types & {"string", "boolean"}:
        kept["pattern"] = _NUMERIC
    return {"type": sorted(wide), **kept}


def _below(schema: dict[str, Any]) -> dict[str, Any]:
    """The same with the schemas inside made as wide."""
    wide: dict[str, Any] = {}
    for key, part in schema.items():
        if key in _LISTED:
            wide[key] = [convertible(each) for each in part]
        elif key in _NAMED:
            wide[key] = {name: convertible(each) for name, each in part.items()}
        else:
            wide[key] = convertible(part) if key in _SINGLE else part
    return wide
