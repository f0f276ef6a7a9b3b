"""Files in a context: the parts of chat messages that name one, `{"type": "file", "file": NAME}`.

What such a part stands for lies beside the log of its run, by its digest; the part says it, with `media_type` and
`bytes`. A part without a digest names a file that nobody has given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

Part = Mapping[str, Any]


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
