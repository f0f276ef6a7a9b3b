"""Files in a context: the parts of chat messages that name one, `{"type": "file", "file": NAME}`.

What such a part stands for lies beside the log of its run, by its digest; the part says it, with `media_type` and
`bytes`. A part without a digest names a file that nobody has given.

A picture that a tool of an MCP server answers lies there, too: the call's value names it by its digest,
`{"type": "image", "sha256": DIGEST, …}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

Part = Mapping[str, Any]

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_NAMING: Final = ("image", "resource")
"""The types of parts that may name a picture."""
_BEGIN: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


def picture_type(content: bytes) -> str | None:
    """The media type of a picture that models take, by how it begins; None for anything else."""
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for begin, kind in _BEGIN if content.startswith(begin)), None)


def pictures_in(value: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Every place inside a JSON value that names a picture of a tool, with the picture's digest."""
    if isinstance(value, Mapping):
        digest = value.get("sha256")
        if value.get("type") in _NAMING and isinstance(digest, str) and _DIGEST.fullmatch(digest):
            yield at, digest
        for key, item in value.items():
            if isinstance(item, (Mapping, list)):
                yield from pictures_in(item, (*at, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            if isinstance(item, (Mapping, list)):
                yield from pictures_in(item, (*at, number))


def file_parts(messages: Iterable[Any]) -> Iterator[Part]:
    """The parts that name a file, in order."""
    for message in messages:
        content = message.get("content") if isinstance(message, Mapping) else None
        for part in content if isinstance(content, list) else ():
            if is_file(part):
                yield part


def is_file(part: Any) -> bool:
    """Whether a part of a chat message's content names a file."""
    return isinstance(part, Mapping) and part.get("type") == "file" and isinstance(part.get("file"), str)


def with_changed(message: Part, change: Callable[[Any], Any]) -> Part:
    """A message with each part of its content as `change` gives it."""
    content = message.get("content")
    return {**message, "content": [change(part) for part in content]} if isinstance(content, list) else message


def digests(*contexts: Iterable[Any]) -> list[str]:
    """The digests of the files that contexts name, each once."""
    found = (part.get("digest") for messages in contexts for part in file_parts(messages))
    return list(dict.fromkeys(digest for digest in found if isinstance(digest, str)))


def sent_bytes(messages: Iterable[Any]) -> int:
    """How many bytes the files of messages add to a request: they travel in base64."""
    sizes = (part.get("bytes") for part in file_parts(messages))
    return sum(-(-size // 3) * 4 for size in sizes if isinstance(size, int))
