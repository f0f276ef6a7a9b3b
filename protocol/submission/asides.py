"""Asides: what a request asks for beside calls and an output: advice, and a version (SPEC R15).

Each type of message that asks for something has one reader here; `requests.asides` says what a model is shown of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from acts_celery.protocol.language.errors import Problem, pointer
from acts_celery.protocol.language.messages import Message
from acts_celery.protocol.language.paths import type_name
from acts_celery.protocol.schemas import schema_problem

ON_REQUEST = "request"
"""The one moment at which advice is asked for: before the calls (SPEC R15.1)."""


@dataclass(frozen=True, slots=True)
class Advisor:
    """An advisor that a request asks: `{"type": "advisor", "id": …, "role": …, "on": "request", "schema": …}`."""

    id: str
    role: str | None
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Meta:
    """What a solution's `meta` is a newer version of: `{"type": "meta", "meta": {"path", "version", …}}`."""

    value: Mapping[str, Any]
    version: str

    def is_newer(self, version: Any) -> bool:
        """Whether a version is greater: segments of digits compare as numbers, and zeros at the end do not count. An
        empty text is none.
        """
        return isinstance(version, str) and version != "" and _segments(version) > _segments(self.version)


def advisors_of(context: Iterable[Message]) -> tuple[Advisor, ...]:
    """The advisors that a valid request asks; the last message of an id counts."""
    asked = (message for message in context if is_asked(message))
    found = {m["id"]: Advisor(m["id"], _text(m.get("role")), m.get("schema") or {}) for m in asked}
    return tuple(found.values())


def meta_of(context: Iterable[Message]) -> Meta | None:
    """The newest `meta` of a valid request, None where none is asked for."""
    found = [meta for message in context if (meta := _meta(message)) is not None]
    return Meta(found[-1], found[-1]["version"]) if found else None


def is_asked(message: Message) -> bool:
    """Whether a message is an advisor that is asked with the request; others are kept, and mean nothing yet."""
    return message.get("type") == "advisor" and message.get("on", ON_REQUEST) == ON_REQUEST


def aside_problems(context: Iterable[Message]) -> Iterator[Problem]:
    """What keeps a request from asking for them."""
    for index, message in enumerate(context):
        at = ("context", index)
        if is_asked(message):
            yield from _advisor_problems(message, *at)
        elif (meta := _meta(message)) is not None and not (isinstance(meta["version"], str) and meta["version"]):
            text = f"must be a text such as 1.2.0 (found: {type_name(meta['version'])})"
            yield Problem(pointer(*at, "meta", "version"), text)


def _meta(message: Message) -> Mapping[str, Any] | None:
    """What a message asks to be versioned, if it does."""
    meta = message.get("meta") if message.get("type") == "meta" else None
    return meta if isinstance(meta, Mapping) and "version" in meta else None


def _advisor_problems(message: Message, *at: str | int) -> Iterator[Problem]:
    if not isinstance(message.get("id"), str) or not message["id"]:
        yield Problem(pointer(*at, "id"), "an advisor needs an id, a text")
    schema = message.get("schema")
    if schema is None:
        return
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        yield Problem(pointer(*at, "schema"), "the schema of an advisor must describe an object")
    elif (problem := schema_problem(schema, *at, "schema")) is not None:
        yield problem


def _segments(version: str) -> tuple[tuple[int, int, str], ...]:
    parts = list(map(_segment, version.split(".")))
    while parts and parts[-1] == (0, 0, ""):
        parts.pop()
    return tuple(parts)


def _segment(part: str) -> tuple[int, int, str]:
    """A segment as it is compared: numbers as such, however long they are, and before texts."""
    if not (part.isascii() and part.isdecimal()):
        return 1, 0, part
    digits = part.lstrip("0")
    return 0, len(digits), digits


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
