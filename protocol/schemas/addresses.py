"""Addresses: where the references of a document lead, put as pointers from its root (draft 2020-12, core 8 and 9).

A reference may name its target by an `$anchor`, or by the `$id` of a schema around it. Once all are pointers, no such
names are needed to find what a reference leads to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote, urljoin

from protocol.language.errors import segments
from protocol.language.paths import copied
from protocol.language.references import Path

from .parts import REFERENCES, found, objects, reference_to

_ANCHORS: Final = ("$anchor", "$dynamicAnchor")


def settled(document: Mapping[str, Any], readings: Callable[[Path, Path], Iterable[Path]]) -> dict[str, Any]:
    """The document without names: every reference that leads into it is a pointer from its root.

    `readings` are the places that a pointer may mean, given where it stands and where it leads; the first that is there
    counts. References that lead elsewhere or nowhere stay, and so do all where a `$dynamicRef` has several `$id` to
    choose among.
    """
    settled: dict[str, Any] = copied(dict(document))
    schemas = list(_schemas_in(settled))
    if any("$id" in part for place, _, part in schemas if place) and any("$dynamicRef" in part for *_, part in schemas):
        return settled
    names = _names(schemas)
    for place, base, part in schemas:
        for keyword, reference in _references(part):
            target = _target(reference, base, names)
            meant = readings(place, target) if target is not None else ()
            path = next((path for path in meant if found(path, settled) is not None), None)
            if path is not None:
                del part[keyword]
                part["$ref" if "$ref" not in part else keyword] = reference_to(path)
    for *_, part in schemas:
        for name in ("$id", *_ANCHORS):
            if isinstance(part.get(name), str):
                del part[name]
    return settled


def _schemas_in(document: Any) -> Iterator[tuple[Path, str, dict[str, Any]]]:
    """Every object that may be applied as a schema, where it stands, and the address that counts there."""
    bases: dict[Path, str] = {}
    for place, part in objects(document):
        base = next((bases[place[:length]] for length in range(len(place), -1, -1) if place[:length] in bases), "")
        if isinstance(own := part.get("$id"), str):
            base = bases[place] = _joined(base, own) or base
        yield place, base, part


def _references(part: dict[str, Any]) -> list[tuple[str, str]]:
    return [(keyword, part[keyword]) for keyword in REFERENCES if isinstance(part.get(keyword), str)]


def _names(schemas: Iterable[tuple[Path, str, dict[str, Any]]]) -> dict[str, Path]:
    """What the schemas can be referred to by, without a pointer."""
    names: dict[str, Path] = {"": ()}
    for place, base, part in schemas:
        if not place or isinstance(part.get("$id"), str):
            names.setdefault(base, place)
        for anchor in _ANCHORS:
            if isinstance(name := part.get(anchor), str):
                names.setdefault(f"{base}#{name}", place)
    return names


def _target(reference: str, base: str, names: Mapping[str, Path]) -> Path | None:
    """Where a reference leads, whether or not something is there; None where that is out of the document."""
    address, _, fragment = reference.partition("#")
    document = _joined(base, address) if address else base
    fragment = unquote(fragment)
    if document is None or document not in names:
        return None
    is_pointer = not fragment or fragment.startswith("/")
    return (*names[document], *segments(fragment)) if is_pointer else names.get(f"{document}#{fragment}")


def _joined(base: str, address: str) -> str | None:
    """An address as it is meant below another, without an empty fragment; None where it is none."""
    try:
        return urljoin(base, address).removesuffix("#")
    except ValueError:
        return None
