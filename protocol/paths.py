"""Walking JSON values along a path (SPEC R2, R3.5).

An `int` segment indexes a list, and names the key of those digits in an object; a `str` segment names a key.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, Final

from .references import Path


class Missing(Enum):
    """The type of `MISSING`, the one mark for "there is no value here" (null is a value, SPEC R2.3)."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


def lookup(value: Any, path: Path) -> Any:
    """The value at a path, or `MISSING`."""
    for segment in path:
        if isinstance(value, dict):
            value = value.get(str(segment), MISSING)
        elif isinstance(value, list) and isinstance(segment, int):
            value = value[segment] if segment < len(value) else MISSING
        else:
            return MISSING
    return value


def nest(value: Any, path: Path) -> Any:
    """The smallest object that holds the value at the path: `{"user": {"name": value}}` (SPEC R4.3)."""
    for segment in reversed(path):
        value = {str(segment): value}
    return value


def unnest(value: Any, path: Path) -> Any:
    """The value that `nest` was given; `MISSING` if the value holds anything but that one path."""
    for segment in path:
        if not isinstance(value, dict) or len(value) != 1:
            return MISSING
        value = value.get(str(segment), MISSING)
    return value


def leaves(value: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The values in nested objects that are no objects, each with its path; an empty object has none."""
    if not isinstance(value, dict):
        yield at, value
        return
    for key, item in value.items():
        yield from leaves(item, (*at, key))


def copied(value: Any) -> Any:
    """A deep copy of a JSON value."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copied(item) for item in value]
    return value


def strings(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Every string inside a JSON value with its place, at any depth of objects and lists; keys are not values."""
    if isinstance(value, str):
        yield at, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from strings(item, (*at, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from strings(item, (*at, index))


def index_or_key(text: str) -> int | str:
    """Read a segment of a path: an index if it is made of digits, and not more than any list needs."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else text


def parts_of(value: Any) -> Iterator[Any]:
    """A JSON value and all that it holds at any depth, in no certain order."""
    stack = [value]
    while stack:
        part = stack.pop()
        yield part
        if isinstance(part, dict):
            stack.extend(part.values())
        elif isinstance(part, list):
            stack.extend(part)


def type_name(value: Any) -> str:
    """The JSON name of a value's type, for messages to people."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "list"
        case dict():
            return "object"
        case Missing.MISSING:
            return "nothing"
    return type(value).__name__
