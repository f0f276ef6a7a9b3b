"""Addresses: where the references of a document lead, put as pointers from its root (draft 2020-12, core 8 and 9).

A reference may name its target by an `$anchor`, or by the `$id` of a schema around it. Once all are pointers, no such
names are needed to find what a reference leads to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote, urljoin

from acts_celery.protocol.language.errors import segments
from acts_celery.protocol.language.paths import copied
from acts_celery.protocol.language.references import Path

from .dialects import modern
from .patterns import translated
from .walk import DEFINITIONS, NAMED, REFERENCES, VALUES, found, reference_to

_NAMES: Final = ("$id", "$anchor", "$dynamicAnchor")
Readings = Callable[[Path, Path], Iterable[Path]]
"""The places that a pointer may mean, given where it stands and where it leads; the first that is there counts."""


def normalized(document: Any, readings: Readings = lambda _, path: (path,)) -> Any:
    """The document as jsonschema-rs takes it: of 2020-12, without names, and with patterns translated.

    Every reference that leads into it is a pointer from its root. Those that lead elsewhere or nowhere stay, and so do
    all where a `$dynamicRef` has several `$id` to choose among.
    """
    document = copied(modern(document))
    schemas = list(_schemas(document))
    has_bases = any(place and isinstance(part.get("$id"), str) for place, _, part in schemas)
    is_open = has_bases and any("$dynamicRef" in part for *_, part in schemas)
    names = _names(schemas)
    for place, base, part in schemas if not is_open else ():
        for keyword in filter(part.__contains__, REFERENCES):
            target = _target(part[keyword], base, names)
            meant = readings(place, target) if target is not None else ()
            path = next((path for path in meant if found(path, document) is not None), None)
            if path is not None:
                del part[keyword]
                part["$ref" if "$ref" not in part else keyword] = reference_to(path)
    if isinstance(document, dict):
        document.pop("$schema", None)  # whatever it is: the document is read as of this dialect
    for *_, part in schemas:
        for name in ("$schema", *(() if is_open else _NAMES)):
            if isinstance(part.get(name), str):
                del part[name]
        if isinstance(pattern := part.get("pattern"), str):
            part["pattern"] = translated(pattern)
        if isinstance(named := part.get("patternProperties"), dict):
            part["patternProperties"] = {translated(pattern): below for pattern, below in named.items()}
    return document


def _schemas(document: Any) -> Iterator[tuple[Path, str, dict[str, Any]]]:
    """Every object that may be applied as a schema, where it stands, and the address that counts there; outer ones
    first. What stands in values is none. References may lead to what no keyword applies.
    """
    stack: list[tuple[Path, str, Any]] = [((), "", document)]
    while stack:
        place, base, part = stack.pop()
        if isinstance(part, list):
            stack.extend(((*place, index), base, below) for index, below in enumerate(part))
        if isinstance(part, dict):
            if isinstance(own := part.get("$id"), str):
                base = _address(base, own) or base
            yield place, base, part
            for key, below in part.items():
                if key in NAMED | DEFINITIONS and isinstance(below, dict):
                    stack.extend(((*place, key, name), base, item) for name, item in below.items())
                elif key not in VALUES:
                    stack.append(((*place, key), base, below))


def _names(schemas: Iterable[tuple[Path, str, dict[str, Any]]]) -> dict[str, Path]:
    """What the schemas can be referred to by, without a pointer."""
    names: dict[str, Path] = {"": ()}
    for place, base, part in schemas:
        if not place or isinstance(part.get("$id"), str):
            names.setdefault(base, place)
        for name in filter(None, map(part.get, _NAMES[1:])):
            names.setdefault(f"{base}#{name}", place)
    return names


def _target(reference: Any, base: str, names: Mapping[str, Path]) -> Path | None:
    """Where a reference leads, whether or not something is there; None where that is out of the document."""
    if not isinstance(reference, str):
        return None
    address, _, fragment = reference.partition("#")
    document = _address(base, address) if address else base
    fragment = unquote(fragment)
    if document is None or document not in names:
        return None
    is_pointer = not fragment or fragment.startswith("/")
    return (*names[document], *segments(fragment)) if is_pointer else names.get(f"{document}#{fragment}")


def _address(base: str, address: str) -> str | None:
    """An address as it is meant below another, without an empty fragment; None where it is none."""
    try:
        return urljoin(base, address).removesuffix("#")
    except ValueError:
        return None
