"""How much of a value is shown: what is large in it is cut in the middle, in its place, and its size is said."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

T = TypeVar("T")

SHOW_BYTES: Final = 20_000
"""Of a value that has more bytes, as JSON, the large parts are cut."""
LIST_BYTES: Final = 500_000
"""Of a list in an answer."""
CUT: Final = "…cut"
"""The one key of the object that stands in place of a part that was cut."""
_LEAST_BYTES: Final = 120
"""What has many parts, of each of which less could be shown, is cut as a whole."""
_DEEPEST: Final = 8


def shown(value: Any, most_bytes: int = SHOW_BYTES, *, depth: int = 0) -> Any:
    """The value, with what is large in it replaced by objects that say how large it is, and how its JSON begins and
    ends. Small parts of it stay whole.
    """
    size = size_of(value)
    if size <= most_bytes:
        return value
    if isinstance(value, (dict, list)) and depth < _DEEPEST and len(value) * _LEAST_BYTES <= most_bytes:
        parts: Mapping[Any, Any] = value if isinstance(value, dict) else dict(enumerate(value))
        rooms = _rooms({key: size_of(part) + len(str(key)) + 6 for key, part in parts.items()}, most_bytes)
        kept = {key: shown(part, rooms[key], depth=depth + 1) for key, part in parts.items()}
        return kept if isinstance(value, dict) else list(kept.values())
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    half = max(20, most_bytes // 8)  # characters, which may have several bytes each
    return {CUT: {"bytes": size, "head": text[:half], "tail": text[-half:]}}


def _rooms(sizes: Mapping[Any, int], most_bytes: int) -> dict[Any, int]:
    """How many bytes each part may have: the small ones what they need, the large ones an equal share of the rest."""
    rooms, left = dict[Any, int](), most_bytes
    for place, (key, size) in enumerate(sorted(sizes.items(), key=lambda item: item[1])):
        rooms[key] = min(size, left // (len(sizes) - place))
        left -= rooms[key]
    return rooms


def within(items: Iterable[T], most_bytes: int = LIST_BYTES) -> list[T]:
    """The first of a list's items, as many as have so many bytes together."""
    found: list[T] = []
    for item in items:
        most_bytes -= size_of(item)
        if most_bytes < 0:
            break
        found.append(item)
    return found


def size_of(value: Any) -> int:
    """The bytes of a value as JSON."""
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))
