"""Excerpts: a part of a document as a document of its own, with what its references lead to (SPEC R4.6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .addresses import readdressed

_WHOLE: Final = "(whole)"
"""Under this name an excerpt keeps the document that it is from."""


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
