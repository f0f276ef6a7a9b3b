"""Messages: what a context is made of (SPEC R1).

A message is a JSON object and stays one: nothing here changes or drops a field. `DataMessage` is a reading of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .paths import MISSING

Message = Mapping[str, Any]

DATA_TYPES: Final = frozenset({"data", "input", "state", "error"})
ERROR: Final = "error"
"""The kind of error messages: each replaces the one before (SPEC R3.1)."""
TEXT_TYPES: Final = frozenset({"text", "system"})
"""Types of messages that scopes give unchanged (SPEC R8.3)."""
EVERYWHERE: Final = "*"
"""The instance of a solution's call that runs once in each instance (SPEC R10.1): no instance has this name."""
TRUST: Final = "_trust"
"""Sources of a message's data (SPEC R16.1); beside a tool's `properties`, the trust that the tool declares."""
CHOSEN: Final = "_chosen"
"""Sources that had a say in whether the message's call ran, or in where it wrote (SPEC R16.2); the engine writes them.
"""
FIELDS: Final = "_trustFields"
"""Sources of a result by the paths of its fields, where they differ (SPEC R16.8); the engine writes them."""
PROVENANCE: Final = frozenset({"_by", "_call", "_chosen", "_date", "_outputMethod", "_path", "_trust", FIELDS})
"""Properties that are kept in the log and never shown to a model, a delegate or an activity (SPEC R1.4)."""

_RESERVED: Final = frozenset({"type", "kind", "schema", "description", "title"})


def shown(message: Message) -> dict[str, Any]:
    """A message without its provenance and its routing, as a delegate or a model sees it (SPEC R1.4)."""
    return {key: value for key, value in message.items() if key not in PROVENANCE and key != "_instance"}


def is_chat(message: Message) -> bool:
    """Whether a message has the shape of a chat: `{"role", "content"}` (SPEC R1.1)."""
    return message.get("type") is None and "role" in message


def inner_message(message: Any) -> Message | None:
    """The message of another type that a chat message has as its content; None where it has none."""
    match message:
        case {"role": _, "content": {"type": str(inside)} as content} if is_chat(message):
            return content if inside in DATA_TYPES or inside in ("tool", "plan", "meta", "advisor") else None
    return None


@dataclass(frozen=True, slots=True)
class DataMessage:
    """A message that carries a value under an identity (SPEC R1.2, R1.3)."""

    kind: str
    payload: Any


def read_data(message: Message) -> DataMessage | None:
    """The data a message carries, or None where it is another kind of message (SPEC R1.1-R1.3)."""
    if message.get("type") not in DATA_TYPES:
        return None
    kind = kind_of(message)
    return DataMessage(kind, _payload(message, kind))


def kind_of(message: Message) -> Any:
    """The kind of a data message (SPEC R1.2)."""
    return message.get("kind", "data") if message["type"] == "data" else message["type"]


def is_written(message: Message) -> bool:
    """Whether a call wrote the message: then it is an operation, else a merge at its kind's root (SPEC R3.1)."""
    return isinstance(message.get("_call"), Mapping)


def is_promise(message: Message) -> bool:
    """Whether a message promises input: an `input` message with a schema, whose value comes later (SPEC R6.3)."""
    if "schema" not in message or message.get("type") not in ("input", "data") or kind_of(message) != "input":
        return False
    return _payload_key(message, "input") is None and all(map(is_reserved, message))


def _payload(message: Message, kind: str) -> Any:
    """`data`, else the property named like the type, else every property that is not reserved (SPEC R1.3).

    `{"type": "data", "kind": "state"}` and `{"type": "state"}` are the same thing (R1.2), so the type that counts is
    the kind where it is a type of its own.
    """
    key = _payload_key(message, kind)
    if key is not None:
        return message[key]
    return {key: value for key, value in message.items() if not is_reserved(key)}


def _payload_key(message: Message, kind: str) -> str | None:
    """The property that holds the payload, or None where all that are not reserved do."""
    if "data" in message:
        return "data"
    return kind if kind in DATA_TYPES and kind in message else None


def riders(message: Message) -> dict[str, Any]:
    """The properties of a data message besides payload, identity, routing and provenance: `schema`, `description`, …"""
    key = _payload_key(message, kind_of(message))
    return {
        name: value
        for name, value in message.items()
        if name not in (key, "type", "kind", "_instance", *PROVENANCE) and (key is not None or is_reserved(name))
    }


def is_reserved(key: str) -> bool:
    """Whether a property of a message is the protocol's and not payload."""
    return key in _RESERVED or key.startswith("_")


def render_data(kind: str, payload: Any, *, schema: Any = MISSING, description: str | None = None) -> dict[str, Any]:
    """The canonical message for a delegate or a model (SPEC R1.5); reading it gives the same payload back."""
    message: dict[str, Any]
    if kind in ("state", "input") and isinstance(payload, dict) and not _ambiguous(kind, payload):
        message = {"type": kind, **payload}
    else:
        message = {"type": "data", "kind": kind, "data": payload}
    if schema is not MISSING:
        message["schema"] = schema
    if description is not None:
        message["description"] = description
    return message


def _ambiguous(kind: str, payload: dict[str, Any]) -> bool:
    return any(is_reserved(key) or key in ("data", kind) for key in payload)


def written_message(
    kind: str, data: Any, *, call: Message, date: str, method: str | None, instance: str | None
) -> dict[str, Any]:
    """The message a call's result becomes (SPEC R4.3)."""
    message: dict[str, Any] = {"type": "data"}
    if kind != "data":
        message["kind"] = kind
    message["data"] = data
    if method is not None:
        message["_outputMethod"] = method
    message["_call"] = dict(call)
    message["_date"] = date
    if instance is not None:
        message["_instance"] = instance
    return message


def error_message(call: Message, error: Message, *, date: str, instance: str | None) -> dict[str, Any]:
    """The message a failed call becomes (SPEC R7.2)."""
    message: dict[str, Any] = {"type": "error", "data": {"call": dict(call), "error": dict(error)}, "_date": date}
    if instance is not None:
        message["_instance"] = instance
    return message


# Files in a context: the parts of chat messages that name one, `{"type": "file", "file": NAME}`.
#
# The file itself is stored with the log of its run, by its digest; the part says it, with `media_type` and
# `bytes`. A part without a digest names a file that nobody has given.
#
# A picture that a tool of an MCP server answers lies there, too: the call's value names it by its digest,
# `{"type": "image", "sha256": DIGEST, …}`.

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
