"""Parts: what of a schema speaks of a value as a whole, and of what is in it (SPEC R4.1, R4.6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from protocol.language.errors import segments
from protocol.language.references import Path

from .patterns import matches

Schema = dict[str, Any] | bool

NAMED: Final = frozenset({"properties", "patternProperties", "dependentSchemas", "$defs"})
"""Keywords that hold schemas by name."""
VALUES: Final = frozenset({"const", "enum", "default", "examples"})
"""Keywords that hold values, not schemas."""


def parts_at(root: Schema, path: Path) -> list[Schema]:
    """Every subschema that the value at a path has to satisfy; none where the schema does not speak of it."""
    parts = [root]
    for segment in path:
        parts = [below for part in joined(parts, root) for below in _below(part, segment)]
    return parts


def joined(schemas: Iterable[Any], root: Schema) -> tuple[Schema, ...]:
    """Schemas of one place, with those that they join there by `allOf` and by `$ref` into the same document."""
    return _reached(schemas, root, _joining)


def applied(schemas: Iterable[Any], root: Schema) -> tuple[Schema, ...]:
    """The same, with all others that they may apply there, depending on the value."""
    return _reached(schemas, root, _applying)


def admits_type(schema: Schema, type_: str) -> bool:
    """Whether a schema's own `type` admits one; a list's index may also be an object's key."""
    declared = schema.get("type") if isinstance(schema, dict) else None
    admitted = [declared] if isinstance(declared, str) else declared
    return not isinstance(admitted, list) or type_ in admitted or (type_ == "array" and "object" in admitted)


def referred(reference: Any, root: Any) -> Any:
    """What a `$ref` into the same document points at; None where it leads elsewhere or nowhere."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")) or "%" in reference:
        return None
    return found(segments(reference), root)


def found(path: Path, root: Any) -> Any:
    """What stands at a place of a document, whose indexes may be texts; None where there is nothing."""
    for key in map(str, path):
        if isinstance(root, list) and key.isdecimal() and len(key) < 7 and int(key) < len(root):
            root = root[int(key)]
        elif isinstance(root, dict) and key in root:
            root = root[key]
        else:
            return None
    return root


def _reached(
    schemas: Iterable[Any], root: Schema, following: Callable[[dict[str, Any]], Iterator[Any]]
) -> tuple[Schema, ...]:
    """Schemas, those that follow from them and those that they refer to, each once."""
    reached: list[Schema] = []
    stack, seen = list(schemas), set[int]()
    while stack:
        part = stack.pop()
        if id(part) in seen or not isinstance(part, (dict, bool)):
            continue
        seen.add(id(part))
        reached.append(part)
        if isinstance(part, dict):
            stack.extend(following(part))
            stack.append(referred(part.get("$ref"), root))
    return tuple(reached)


def _joining(part: dict[str, Any]) -> Iterator[Any]:
    yield from both if isinstance(both := part.get("allOf"), list) else ()


def _applying(part: dict[str, Any]) -> Iterator[Any]:
    for keyword in ("allOf", "anyOf", "oneOf"):
        yield from some if isinstance(some := part.get(keyword), list) else ()
    yield from (part.get(keyword) for keyword in ("not", "if", "then", "else"))
    yield from depending.values() if isinstance(depending := part.get("dependentSchemas"), dict) else ()


def _below(schema: Schema, segment: str | int) -> list[Schema]:
    """What a schema says of one property or element."""
    if not isinstance(schema, dict):
        return [] if schema else [False]
    key = str(segment)
    named = [schema["properties"][key]] if key in schema.get("properties", ()) else []
    named += [below for pattern, below in schema.get("patternProperties", {}).items() if matches(pattern, key)]
    if named:
        return named
    prefix = schema.get("prefixItems", [])
    if isinstance(segment, int) and segment < len(prefix):
        return [prefix[segment]]
    if isinstance(segment, int) and "items" in schema:
        return [schema["items"]]
    return [schema["additionalProperties"]] if "additionalProperties" in schema else []
