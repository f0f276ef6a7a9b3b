"""Excerpts: a part of a document as a document of its own, with what its references lead to (SPEC R4.6)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from protocol.language.errors import segments
from protocol.language.references import Path

from .addresses import readdressed, references
from .compilation import CompiledSchema
from .parts import Schema, found, parts_at
from .steps import count

_WHOLE: Final = "(whole)"
"""Under this name an excerpt keeps the document that it is from."""
_DEFINITIONS: Final = ("$defs", "definitions")


def excerpt(part: Mapping[str, Any], document: Mapping[str, Any], at: str | None = None) -> dict[str, Any]:
    """A part of a settled document, or what is made of parts.

    `at` is what refers to the part in the document: references to what is below lead into the part itself.
    """
    leads_out = False

    def moved(reference: str) -> str:
        nonlocal leads_out
        if at is not None and (reference == at or reference.startswith(at + "/")):
            return "#" + reference.removeprefix(at)
        leads_out = leads_out or reference.startswith("#")
        return _in_whole(reference)

    alone = readdressed(part, moved)
    if not leads_out:
        return alone
    return {**alone, "$defs": {**alone.get("$defs", {}), _WHOLE: readdressed(document, _in_whole)}}


def _in_whole(reference: str) -> str:
    return f"#/$defs/{_WHOLE}{reference[1:]}" if reference.startswith("#") else reference


@lru_cache(maxsize=4_096)
def excerpt_at(path: Path, schema: CompiledSchema) -> dict[str, Any] | None:
    """What a schema says of the value at a path, as a schema of its own with the definitions that this refers to.

    None where it says nothing of it, or what does not stand by itself. Kept: the many trials of one plan ask the same.
    """
    said = [part for part in schema.parts(path) if part is not True and part != {}]
    count(len(said))
    if not said or False in said:
        return None
    parts = [part for part in parts_at(schema.schema, path) if isinstance(part, dict)]
    return _with_definitions(parts[0] if len(parts) == 1 else {"allOf": parts}, schema.schema)


def _with_definitions(part: dict[str, Any], root: Schema) -> dict[str, Any] | None:
    """A part of a schema with the definitions that it comes to, under their names; None where it refers to others."""
    defined: dict[str, dict[str, Any]] = {}
    left: list[Any] = [part]
    while left:
        for reference in references(left.pop()):
            keyword, name, *_ = (*segments(reference), "", "")
            definition = found((keyword, name), root) if reference.startswith("#/") else None
            if keyword not in _DEFINITIONS or definition is None:
                return None
            if name not in defined.setdefault(keyword, {}):
                count(1)
                defined[keyword][name] = definition
                left.append(definition)
    return {**part, **defined}
