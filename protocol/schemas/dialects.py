"""Dialects: schemas of older drafts written as ones of 2020-12, the only draft that is read here (SPEC R4.1).

What a schema of draft-04, 06, 07 or 2019-09 says, by its `$schema`, is said with the keywords of 2020-12: a list of
`items` is `prefixItems`, and so on. Beside a `$ref` those drafts, but the last, read nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import unquote

from acts_celery.protocol.language.errors import pointer, segments
from acts_celery.protocol.language.paths import copied
from acts_celery.protocol.language.references import Path

from .walk import DEFINITIONS, NAMED, VALUES, found, reference_to

_OLDER: Final = re.compile(r"https?://json-schema\.org/(?:draft-0([4-7])|draft/2019-09)/(?:hyper-)?schema#?")
_LAST_NUMBERED: Final = 7
_WITHOUT_NUMBERS: Final = 4
"""In this draft `exclusiveMinimum` is a boolean, and `$id` is `id`."""
_TEXTS: Final = frozenset({"title", "description", "$comment"})
_FLAGS: Final = frozenset({"deprecated", "readOnly", "writeOnly"})
_ANNOTATIONS: Final = _TEXTS | _FLAGS | {"examples", "default"}
_TYPES: Final = {**dict.fromkeys(_TEXTS, str), **dict.fromkeys(_FLAGS, bool), "examples": list}
_BOUNDS: Final = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))


def modern(document: Any) -> Any:
    """The document as one of 2020-12, where it says that it is of an older draft; else the document itself."""
    dialect = document.get("$schema") if isinstance(document, dict) else None
    draft = _OLDER.fullmatch(dialect) if isinstance(dialect, str) else None
    if draft is None:
        return document
    number = int(draft[1]) if draft[1] else _LAST_NUMBERED + 1
    written = copied(document)
    for _, part in _schemas(written):
        _translate(part, number, document)
    del written["$schema"]
    return written


def misfits(document: Any) -> Iterator[tuple[str, dict[str, Any], str]]:
    """The annotations of a document that are not of their type: a pointer, the schema that has it, and its name. They
    say nothing about values.
    """
    for place, part in _schemas(document):
        for name, type_ in _TYPES.items():
            if name in part and not isinstance(part[name], type_):
                yield pointer(*place, name), part, name


def _schemas(document: Any) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Every object that may be a schema, with its place; outer ones first, and those in it as it is left."""
    stack: list[tuple[Path, Any]] = [((), document)]
    while stack:
        place, part = stack.pop()
        if isinstance(part, list):
            stack.extend(((*place, index), below) for index, below in enumerate(part))
        if isinstance(part, dict):
            yield place, part
            for key, below in part.items():
                if key in NAMED | DEFINITIONS and isinstance(below, dict):
                    stack.extend(((*place, key, name), item) for name, item in below.items())
                elif key not in VALUES:
                    stack.append(((*place, key), below))


def _translate(part: dict[str, Any], number: int, document: Any) -> None:
    """Write a schema of a draft of that number anew, in place; those in it come after."""
    if isinstance(reference := part.get("$ref"), str):
        part["$ref"] = _moved(reference, document)
        if number <= _LAST_NUMBERED:
            for keyword in part.keys() - {"$ref", "$schema"} - DEFINITIONS - _ANNOTATIONS:
                del part[keyword]
    if number == _WITHOUT_NUMBERS:
        _number_bounds(part)
        if isinstance(part.get("id"), str):
            part["$id"] = part.pop("id")
    if number <= _LAST_NUMBERED and str(part.get("$id", "")).startswith("#"):
        part["$anchor"] = part.pop("$id")[1:]
    if part.pop("$recursiveAnchor", None) is not None or "$recursiveRef" in part:
        part |= {"$ref": part.pop("$recursiveRef")} if "$recursiveRef" in part else {}
    rest = part.pop("additionalItems", None)
    if isinstance(part.get("items"), list):
        first = part.pop("items")
        part |= {"prefixItems": first} if first else {}
        part |= {"items": rest} if rest is not None else {}
    if isinstance(said := part.get("dependencies"), dict):
        del part["dependencies"]
        names = {name: one for name, one in said.items() if isinstance(one, list)}
        schemas = {name: one for name, one in said.items() if not isinstance(one, list)}
        part |= {"dependentRequired": names} if names else {}
        part |= {"dependentSchemas": schemas} if schemas else {}


def _number_bounds(part: dict[str, Any]) -> None:
    for exclusive, bound in _BOUNDS:
        if isinstance(part.get(exclusive), bool) and part.pop(exclusive) and bound in part:
            part[exclusive] = part.pop(bound)


def _moved(reference: str, document: Any) -> str:
    """A reference into the document, where what it leads to stands when that is written anew."""
    if not reference.startswith("#/"):
        return reference
    place, path = list[Any](), segments(unquote(reference))
    for index, segment in enumerate(path):
        above, name = found(path[:index], document), str(segment)
        is_schema = not place or str(place[-1]) not in ("properties", "patternProperties", *DEFINITIONS)
        if isinstance(above, dict) and is_schema and isinstance(above.get("items"), list):
            name = {"items": "prefixItems", "additionalItems": "items"}.get(name, name)
        if isinstance(above, dict) and is_schema and name == "dependencies":
            name = "dependentSchemas"
        place.append(name)
    return reference_to(tuple(place)) if place != [str(one) for one in path] else reference
