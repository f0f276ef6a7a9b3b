"""Wording: what is wrong with a setting and what it should be, in place of pydantic's own words."""

from __future__ import annotations

from typing import Final

from pydantic_core import ErrorDetails

from .models import MODEL_PATTERN

__all__ = ["NAME_PATTERN", "PREFIX_PATTERN", "VISIBLE_PATTERN", "worded"]

NAME_PATTERN: Final = r"^[A-Za-z0-9_.-]+$"
PREFIX_PATTERN: Final = r"^[A-Za-z0-9_.:-]+$"
VISIBLE_PATTERN: Final = r"^[^\x00-\x1f\x7f-\x9f]+$"

_SHAPES: Final = {
    MODEL_PATTERN: "should be PROVIDER:NAME, such as openai:gpt-4o, or scripted:FILE.json",
    NAME_PATTERN: "should be of letters, digits, hyphens, dots and _",
    PREFIX_PATTERN: "should be of letters, digits, hyphens, dots, colons and _",
    VISIBLE_PATTERN: "should hold no control characters",
}
"""What a setting looks like, by the pattern that it has to match."""
_TYPES: Final = {
    "int_parsing": "should be a whole number",
    "int_type": "should be a whole number",
    "float_parsing": "should be a number",
    "bool_parsing": "should be true or false",
    "byte_size": "should be a size, such as 1048576 or 64MiB",
    "byte_size_unit": "should be a size, such as 1048576 or 64MiB",
}
"""What it should be, by pydantic's name for the error."""


def worded(detail: ErrorDetails) -> str:
    """What is wrong with a value, and what it should be."""
    if detail["type"] == "string_pattern_mismatch" and (shape := _SHAPES.get(detail["ctx"]["pattern"])) is not None:
        return shape
    message = " ".join(detail["msg"].removeprefix("Value error, ").removeprefix("Input ").split())
    return _TYPES.get(detail["type"], message)
