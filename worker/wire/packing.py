"""msgpack: how everything of ours travels and is stored.

Any client of the broker can write messages. So nothing is taken for granted of what comes from there: size before
decoding, then the shape.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgpack
from pydantic import TypeAdapter, ValidationError

from acts_celery.protocol import Limits
from acts_celery.protocol.language.errors import pointer
from acts_celery.protocol.language.limits import TooManyContainers, unpacked
from acts_celery.worker.errors import MalformedMessage

T = TypeVar("T")

_BESIDE_BYTES: Final = 64 * 1024
"""What a message may hold beside what is limited in itself: ids, names, msgpack's own bytes."""


def pack(value: Any) -> bytes:
    """The bytes of a value made of what JSON knows, and bytes."""
    packed = msgpack.packb(value)
    assert isinstance(packed, bytes)
    return packed


def unpack(data: bytes) -> Any:
    """The inverse of `pack`."""
    return msgpack.unpackb(data, strict_map_key=False)


def read_packed(shape: TypeAdapter[T], data: object, limits: Limits, most_bytes: int) -> T:
    """What bytes from outside hold, if it has that shape. Raises `MalformedMessage`, which does not show what they hold
    instead: it may be data.
    """
    if not isinstance(data, bytes):
        raise MalformedMessage("its argument is not bytes")
    if len(data) > most_bytes + _BESIDE_BYTES:
        raise MalformedMessage(f"{len(data)} bytes, where {most_bytes + _BESIDE_BYTES} are allowed")
    try:
        return shape.validate_python(unpacked(data, limits.containers))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise MalformedMessage(f"{pointer(*first['loc'])}: {first['msg']}") from None
    except TooManyContainers as error:
        raise MalformedMessage(str(error)) from None
    except (ValueError, TypeError, msgpack.UnpackException, MemoryError) as error:
        raise MalformedMessage(f"not msgpack: {type(error).__name__}") from None
