"""Parts: what of a schema speaks of a value as a whole, and of what is in it (SPEC R4.1, R4.6).

An *excerpt* is a part as a schema of its own, with what its references lead to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote, unquote

from acts_celery.protocol.language.errors import pointer, segments
from acts_celery.protocol.language.references import Path

from .patterns import matches

Schema = dict[str, Any] | bool

REFERENCES: Final = ("$ref", "$dynamicRef")
NAMED: Final = frozenset({"properties", "patternProperties", "dependentSchemas"})
"""Keywords that hold schemas by name."""
DEFINITIONS: Final = frozenset({"$defs", "definitions"})
"""Keywords that do so, and apply none of them."""
LISTED: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
"""Keywords that hold lists of schemas."""
SINGLE: Final = frozenset(
    {"not", "if", "then", "else", "items", "contains", "additionalProperties", "propertyNames"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
"""Keywords that hold one schema."""
IN_PLACE: Final = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")
"""Keywords that apply what they hold to the same value."""
VALUES: Final = frozenset({"const", "enum", "default", "examples"})
"""Keywords that hold values, not schemas."""


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
        here = joined(parts, root)
        parts = [below for part in here for below in _below(part, segment)] or _left_over(here, segment, root)
    return parts


def joined(schemas: Iterable[Any], root: Schema, *keywords: str) -> tuple[Schema, ...]:
    """Schemas of one place, with those that they join there by `$ref` into the same document and by keywords.

    Each stands there once. Without keywords that is `allOf`, which applies to every value.
    """
    reached: list[Schema] = []
    stack, seen = [*schemas][::-1], set[int]()
    while stack:
        part = stack.pop()
        if id(part) in seen or not isinstance(part, (dict, bool)):
            continue
        seen.add(id(part))
        reached.append(part)
        if isinstance(part, dict):
            stack += [*in_place(part, root, *(keywords or ("allOf",)))][::-1]
    return tuple(reached)


def applied(schemas: Iterable[Any], root: Schema) -> list[dict[str, Any]]:
    """The objects among them and among all others that they may apply there, depending on the value."""
    return [part for part in joined(schemas, root, *IN_PLACE) if isinstance(part, dict)]


def in_place(part: dict[str, Any], root: Any, *keywords: str) -> Iterator[Any]:
    """The schemas that a part applies to the same value, by these keywords or by `$ref` into the same document."""
    yield from (below for _, below in held(part, keywords))
    yield from (target for reference in REFERENCES if (target := referred(part.get(reference), root)) is not None)


def held(part: dict[str, Any], keywords: Iterable[str] | None = None) -> Iterator[tuple[Path, Any]]:
    """The schemas that a part applies by its keywords or by some of them, each with the way from the part to it."""
    for key in part if keywords is None else filter(part.__contains__, keywords):
        below = part[key]
        if key in NAMED and isinstance(below, dict):
            yield from (((key, name), item) for name, item in below.items())
        elif key in LISTED and isinstance(below, list):
            yield from (((key, index), item) for index, item in enumerate(below))
        elif key in SINGLE:
            yield (key,), below


def reachable(document: Any, entry: Path = ()) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every object that can be applied from an entry on, by keywords and references, with its place; each once."""
    stack = [(entry, found(entry, document))]
    seen: set[int] = set()
    while stack:
        place, part = stack.pop()
        if not isinstance(part, dict) or id(part) in seen:
            continue
        seen.add(id(part))
        yield place, part
        stack.extend(((*place, *way), below) for way, below in held(part))
        for reference in filter(None, map(part.get, REFERENCES)):
            if (target := referred(reference, document)) is not None:
                stack.append((segments(unquote(reference)), target))


def admits_type(schema: Schema, *types: str) -> bool:
    """Whether a schema's own `type` admits one of these."""
    declared = schema.get("type") if isinstance(schema, dict) else None
    admitted = [declared] if isinstance(declared, str) else declared
    return not isinstance(admitted, list) or any(type_ in admitted for type_ in types)


def referred(reference: Any, root: Any) -> Any:
    """What a `$ref` into the same document points at; None where it leads elsewhere or nowhere."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    return found(segments(unquote(reference)), root)


def reference_to(place: Path) -> str:
    """The `$ref` that points at a place of the same document."""
    return "#" + quote(pointer(*place), safe="/~")


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


def excerpt(part: Mapping[str, Any], document: Schema) -> dict[str, Any]:
    """A part of a document whose references are pointers, or what is made of such parts."""
    names: dict[str, str] = {}
    alone = _moved({key: value for key, value in part.items() if key not in DEFINITIONS}, document, names)
    definitions: dict[str, Any] = {}
    while missing := [reference for reference, name in names.items() if name not in definitions]:
        for reference in missing:
            definitions[names[reference]] = _moved(referred(reference, document), document, names)
    return {**alone, "$defs": definitions} if definitions else dict(alone)


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


def _moved(value: Any, document: Schema, names: dict[str, str]) -> Any:
    """A copy whose references lead to definitions by these names."""
    if isinstance(value, list):
        return [_moved(item, document, names) for item in value]
    if not isinstance(value, dict):
        return value
    moved = {key: item if key in VALUES else _moved(item, document, names) for key, item in value.items()}
    for keyword in REFERENCES:
        reference = moved.get(keyword)
        if isinstance(reference, str) and isinstance(referred(reference, document), (dict, bool)):
            name = names.setdefault(reference, f"{reference.rpartition('/')[2].strip('#') or 'whole'}-{len(names)}")
            moved[keyword] = reference_to(("$defs", name))
    return moved
