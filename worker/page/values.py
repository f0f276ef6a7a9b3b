"""How much of a value is shown: one that is large is cut in the middle, and its size is said."""

from __future__ import annotations

import json
from typing import Any, Final

SHOW_BYTES: Final = 20_000
"""A value of more bytes, as JSON, is cut."""
CUT: Final = "…cut"
"""The one key of the object that stands in place of a value that was cut."""


def shown(value: Any, most_bytes: int = SHOW_BYTES) -> Any:
    """The value, or where it is large an object that says how large, and how its JSON begins and ends."""
    size = size_of(value)
    if size <= most_bytes:
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    half = most_bytes // 8  # characters: with their escapes, these have at most so many bytes
    return {CUT: {"bytes": size, "head": text[:half], "tail": text[-half:]}}


def size_of(value: Any) -> int:
    """The bytes of a value as JSON."""
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
