"""Excerpts: a part of a document as a schema of its own, with what its references lead to (SPEC R4.6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protocol.language.references import Path

from .compilation import CompiledSchema
from .parts import DEFINITIONS, REFERENCES, VALUES, Schema, reference_to, referred


def excerpt(part: Mapping[str, Any], document: Schema) -> dict[str, Any]:
    """A part of a document whose references are pointers, or what is made of such parts."""
    names: dict[str, str] = {}
    alone = _moved({key: value for key, value in part.items() if key not in DEFINITIONS}, document, names)
    definitions: dict[str, Any] = {}
    while missing := [reference for reference, name in names.items() if name not in definitions]:
        for reference in missing:
            definitions[names[reference]] = _moved(referred(reference, document), document, names)
    return {**alone, "$defs": definitions} if definitions else dict(alone)


def excerpt_at(path: Path, schema: CompiledSchema) -> dict[str, Any] | None:
    """What a schema says of the value at a path, as a schema of its own; None where it says nothing of it."""
    said = [part for part in schema.parts_at(path) if part is not True and part != {}]
    if not said or False in said:
        return None
    return excerpt(said[0] if len(said) == 1 else {"allOf": said}, schema.document)  # type: ignore[arg-type]


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
