"""Excerpts: a part of a document as a document of its own, with what its references lead to (SPEC R4.6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from .parts import referred

_WHOLE: Final = "(whole)"
"""Under this name an excerpt keeps the document that it is from."""


def excerpt(part: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """The part, whose references may lead into itself or into the document; where into neither, they are left."""

    def moved(reference: str) -> str:
        is_elsewhere = referred(reference, part) is None and referred(reference, document) is not None
        return _in_whole(reference) if is_elsewhere else reference

    alone = _with_references(part, moved)
    if alone == part:
        return dict(part)
    definitions = alone.get("$defs", {})
    return {**alone, "$defs": {**definitions, _WHOLE: _with_references(document, _in_whole)}}


def _in_whole(reference: str) -> str:
    return f"#/$defs/{_WHOLE}{reference[1:]}" if reference == "#" or reference.startswith("#/") else reference


def _with_references(value: Any, moved: Callable[[str], str]) -> Any:
    """The same with other references."""
    if isinstance(value, list):
        return [_with_references(item, moved) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: moved(item) if key == "$ref" and isinstance(item, str) else _with_references(item, moved)
        for key, item in value.items()
    }
