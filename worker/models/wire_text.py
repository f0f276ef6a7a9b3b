"""What comes over the wire: a body of bounded size, whole or as server-sent events.

The SDKs make an object of every event, without a bound on its size; an answer has thousands of events, and the
server is not trusted.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from .errors import InvalidAnswer

_DATA: Final = b"data:"
_END: Final = b"[DONE]"
_SHOWN: Final = 200
_HALVES: Final = re.compile("[\ud800-\udfff]")
_SECOND: Final = "\udc00"
"""Halves of characters (UTF-16) from here on are second ones."""


class WholeCharacters:
    """Joins the halves of characters (UTF-16) of a text that comes in pieces."""

    def __init__(self) -> None:
        self.half = ""
        """The first half of a character whose second one has not come."""

    def of(self, piece: str) -> str:
        """Return a piece with the half that the one before ended with, and without one at its own end."""
        text, self.half = self.half + piece, ""
        if _HALVES.search(text):
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
            self.half = text[-1] if _HALVES.match(text[-1]) and text[-1] < _SECOND else ""
        return text.removesuffix(self.half)


async def bounded(chunks: AsyncIterator[bytes], most_bytes: int) -> AsyncIterator[bytes]:
    """The chunks, as far as they are no more than so many bytes together. Raises `InvalidAnswer`."""
    size = 0
    async for chunk in chunks:
        size += len(chunk)
        if size > most_bytes:
            raise InvalidAnswer(f"the model's server has sent more than {most_bytes} bytes in one answer")
        yield chunk


async def events(chunks: AsyncIterator[bytes]) -> AsyncIterator[Mapping[str, Any]]:
    """The data of server-sent events, each a JSON object, until they end or `[DONE]` comes. Raises `InvalidAnswer`."""
    data: list[bytes] = []
    async for line in _lines(chunks):
        if line.startswith(_DATA):
            data.append(line[len(_DATA) :].strip())
        elif not line and data:
            if data == [_END]:
                return
            yield json_object(b"\n".join(data))
            data = []


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The lines, and an empty one at the end."""
    begun: list[bytes] = []
    async for chunk in chunks:
        first, *others = chunk.split(b"\n")
        begun.append(first)
        for other in others:
            yield b"".join(begun).rstrip(b"\r")
            begun = [other]
    for line in (b"".join(begun), b""):
        yield line.rstrip(b"\r")


def json_object(body: bytes) -> Mapping[str, Any]:
    """The JSON object that a body is. Raises `InvalidAnswer`."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        shown = body[:_SHOWN].decode(errors="replace")
        raise InvalidAnswer(f"the model's server has answered with what is not a JSON object: {shown}")
    return value
