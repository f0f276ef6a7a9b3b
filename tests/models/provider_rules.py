"""What providers refuse, as their documentation of structured outputs says it, with the words of their errors. It is
written from that alone, and knows nothing of how requests are made.

OpenAI: developers.openai.com/api/docs/guides/structured-outputs (supported schemas). Anthropic:
platform.claude.com/docs/en/build-with-claude/structured-outputs (JSON Schema limitations, schema complexity limits).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

_TYPES: Final = {"string", "number", "integer", "boolean", "object", "array", "null"}
_EVERYWHERE: Final = {
    "type",
    "title",
    "description",
    "default",
    "enum",
    "const",
    "anyOf",
    "$ref",
    "$defs",
    "definitions",
}
_OF_OPENAI: Final = {
    *("properties", "required", "additionalProperties", "items", "minItems", "maxItems", "pattern", "format"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
_OF_ANTHROPIC: Final = {
    *("properties", "required", "additionalProperties", "items", "minItems", "pattern", "format", "allOf"),
}
_NO_REGEX: Final = re.compile(r"\(\?(?![:])|\\[bB1-9]")
"""What Anthropic's patterns cannot have: looking around, word boundaries, backreferences."""


def openai_refusal(body: Mapping[str, Any]) -> str | None:
    """Why OpenAI refuses a request; None where it takes it."""
    name = body.get("response_format", {}).get("type")
    if name == "json_object" and "json" not in str(body["messages"]).lower():
        return "'messages' must contain the word 'json' in some form, to use 'response_format' of type 'json_object'."
    if name != "json_schema":
        return None
    format_ = body["response_format"]["json_schema"]
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", format_.get("name", "")):
        return "Invalid 'response_format.json_schema.name'"
    if not format_.get("strict"):
        return None
    found = next(openai_faults(format_["schema"]), None)
    return None if found is None else f"Invalid schema for response_format '{format_['name']}': {found}"


def openai_faults(schema: Any) -> Iterator[str]:
    """What is wrong with a strict schema by OpenAI's rules."""
    if schema.get("type") != "object" or "anyOf" in schema:
        yield "schema must be a JSON Schema of 'type: \"object\"', got 'type: \"None\"'."
    for at, part in _parts(schema):
        where = f"In context={at}, "
        yield from (where + fault for fault in _shape_faults(part, _OF_OPENAI))
        if "$ref" in part and len(part) > 1:
            yield f"{where}$ref cannot have keywords {set(part) - {'$ref'}}."
        if part.get("type") == "object":
            if part.get("additionalProperties") is not False:
                yield f"{where}'additionalProperties' is required to be supplied and to be false."
            if missing := part.get("properties", {}).keys() - set(part.get("required", ())):
                yield (
                    f"{where}'required' is required to be supplied and to be an array including every key in "
                    f"properties. Missing '{min(missing)}'."
                )
        if part.get("type") == "array" and "items" not in part:
            yield f"{where}array schema missing items."
        yield from (where + fault for fault in _alike_objects(part, schema))
        values = part.get("enum", ())
        if len(values) > 250 and sum(len(str(value)) for value in values) > 15_000:
            yield f"{where}the total string length of an enum with more than 250 values cannot exceed 15000."
    yield from _openai_sizes(schema)


def _openai_sizes(schema: Any) -> Iterator[str]:
    parts = [part for _, part in _parts(schema)]
    if (count := sum(len(part.get("properties", {})) for part in parts)) > 5_000:
        yield f"a schema may have up to 5000 object properties total, got {count}."
    if (count := sum(len(part.get("enum", ())) for part in parts)) > 1_000:
        yield f"a schema may have up to 1000 enum values across all enum properties, got {count}."
    if (depth := max(at.count("properties") + at.count("items") for at, _ in _parts(schema)) + 1) > 10:
        yield f"{depth} levels of nesting exceeds limit of 10."
    names = [name for part in parts for name in (*part.get("properties", {}), *part.get("$defs", {}))]
    names += [str(value) for part in parts for value in (*part.get("enum", ()), *_constant(part))]
    if (size := sum(map(len, names))) > 120_000:
        yield f"the total string length of names and values cannot exceed 120000 characters, got {size}."


def _alike_objects(part: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[str]:
    met: dict[str, list[set[str] | None]] = {}
    for branch in part.get("anyOf", ()):
        target = root["$defs"][branch["$ref"].removeprefix("#/$defs/")] if "$ref" in branch else branch
        for name, said in list(target.get("properties", {}).items())[:1]:
            values = set(map(repr, (*said.get("enum", ()), *_constant(said)))) or None
            if any(values is None or other is None or values & other for other in met.get(name, ())):
                yield (
                    "Objects provided via 'anyOf' must not share identical first keys. Consider adding a discriminator "
                    "key or rearranging the properties to ensure the first key is unique."
                )
            met.setdefault(name, []).append(values)


def _constant(part: Mapping[str, Any]) -> list[Any]:
    return [part["const"]] if "const" in part else []


def anthropic_refusal(body: Mapping[str, Any]) -> str | None:
    """Why Anthropic refuses a request; None where it takes it."""
    if "response_format" in body or "max_tokens" not in body:
        return "max_tokens: Field required"
    roles = [message["role"] for message in body["messages"]]
    if not roles or set(roles) - {"user", "assistant"}:
        return 'messages: Unexpected role "system".'
    format_ = body.get("output_config", {}).get("format")
    found = next(anthropic_faults(format_["schema"]), None) if format_ is not None else None
    return None if found is None else f"output_config.format.schema: {found}"


def anthropic_faults(schema: Any) -> Iterator[str]:
    """What is wrong with a schema by Anthropic's rules."""
    for _, part in _parts(schema):
        yield from _shape_faults(part, _OF_ANTHROPIC)
        if part.get("type") == "object" and part.get("additionalProperties") is not False:
            yield "For 'object' type, 'additionalProperties' must be explicitly set to false"
        if part.get("minItems", 0) not in (0, 1):
            yield "For 'array' type, 'minItems' values other than 0 or 1 are not supported"
        if _NO_REGEX.search(part.get("pattern", "")):
            yield "For 'string' type, the pattern is not supported"
    if any(_leads_to(name, name, schema) for name in schema.get("$defs", {})):
        yield "Recursive schemas are not supported"
    parts = [part for _, part in _parts(schema)]
    optional = sum(len(part.get("properties", {}).keys() - set(part.get("required", ()))) for part in parts)
    if optional > 24:
        yield (
            f"Schemas contains too many optional parameters ({optional}), which would make grammar compilation "
            "inefficient. Reduce the number of optional parameters in your tool schemas (limit: 24)."
        )
    unions = sum("anyOf" in part or isinstance(part.get("type"), list) for part in parts)
    if unions > 16:
        yield f"Schemas contains too many parameters with union types ({unions}) (limit: 16)."


def _leads_to(start: str, wanted: str, schema: Mapping[str, Any], met: frozenset[str] = frozenset()) -> bool:
    names = [part["$ref"].removeprefix("#/$defs/") for _, part in _parts(schema["$defs"][start]) if "$ref" in part]
    return any(name == wanted or (name not in met and _leads_to(name, wanted, schema, met | {name})) for name in names)


def _shape_faults(part: Mapping[str, Any], known: Collection[str]) -> Iterator[str]:
    for keyword in part.keys() - _EVERYWHERE - set(known):
        yield f"'{keyword}' is not permitted."
    if not part.keys() & {"type", "anyOf", "$ref", "allOf", "enum", "const"}:
        yield "schema must have a 'type' key."
    types = part.get("type", [])
    if unknown := {*(types if isinstance(types, list) else [types])} - _TYPES:
        yield f"'{min(unknown)}' is not valid under any of the given schemas."
    if any(isinstance(value, dict | list) for value in part.get("enum", ())):
        yield "enum value does not validate against {'type': 'string'}"
    if part.get("anyOf") == [] or part.get("enum") == []:
        yield "[] should be non-empty"


def _parts(schema: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Every schema in a schema, with its place."""
    yield at, schema
    for keyword in ("properties", "$defs"):
        for name, below in schema.get(keyword, {}).items():
            yield from _parts(below, (*at, keyword, name))
    for number, below in enumerate(schema.get("anyOf", ())):
        yield from _parts(below, (*at, "anyOf", str(number)))
    if isinstance(schema.get("items"), dict):
        yield from _parts(schema["items"], (*at, "items"))
