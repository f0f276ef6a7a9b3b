"""msgpack: how everything of ours travels and is stored."""

from __future__ import annotations

from typing import Any

import msgpack


def pack(value: Any) -> bytes:
    """The bytes of a value made of what JSON knows, and bytes."""
    packed = msgpack.packb(value)
    assert isinstance(packed, bytes)
    return packed


def unpack(data: bytes) -> Any:
    """The inverse of `pack`."""
    return msgpack.unpackb(data, strict_map_key=False)
