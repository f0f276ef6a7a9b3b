"""The parts of a chat message's content - texts, pictures, documents - as a provider takes them (SPEC R12.5, R12.6).

A message may have OpenAI's parts (`image_url`, `file`), whichever provider is asked, and files as they come here:
`{"type": "file", "file": NAME, "media_type": …, "data": BASE64}`. Any other part is the provider's own, and goes as it
is.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from .errors import BadRequest

Part = Mapping[str, Any]

TEXT: Final = "text/plain"
_DATA_URL: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w.+-]+=[\w.+-]+)*;base64,(.*)", re.ASCII | re.DOTALL)


class _Content(NamedTuple):
    """What a picture or a document is."""

    media_type: str
    data: str
    """In base64."""
    name: str

    @property
    def is_image(self) -> bool:
        return self.media_type.startswith("image/")

    @property
    def text(self) -> str:
        """Of a text."""
        try:
            return base64.b64decode(self.data, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise BadRequest(f"the file {self.name!r} of the request is no text") from error


def openai_messages(messages: Iterable[Part]) -> list[dict[str, Any]]:
    """Messages for Chat Completions. Raises `BadRequest`."""
    return _converted(messages, _openai_part)


def anthropic_messages(messages: Iterable[Part]) -> list[dict[str, Any]]:
    """Messages for Anthropic's Messages. Raises `BadRequest`."""
    return _converted(messages, _anthropic_part)


def _converted(messages: Iterable[Part], convert: Callable[[Part], Part]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, list):
            content = [convert(part) if isinstance(part, Mapping) else part for part in content]
        found.append({**message, **({"content": content} if "content" in message else {})})
    return found


def _openai_part(part: Part) -> Part:
    if (content := _own(part)) is None:
        return part
    if content.media_type == TEXT:
        return {"type": "text", "text": content.text}
    url = f"data:{content.media_type};base64,{content.data}"
    if content.is_image:
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": content.name, "file_data": url}}


def _anthropic_part(part: Part) -> Part:
    content = _own(part) or _of_openai(part)
    if isinstance(content, str):
        return {"type": "image", "source": {"type": "url", "url": content}}
    if content is None:
        return part
    if content.media_type == TEXT:
        source = {"type": "text", "media_type": TEXT, "data": content.text}
    else:
        source = {"type": "base64", "media_type": content.media_type, "data": content.data}
    title = {"title": content.name} if content.name and not content.is_image else {}
    return {"type": "image" if content.is_image else "document", "source": source, **title}


def _own(part: Part) -> _Content | None:
    """A file as it comes here."""
    name = part.get("file")
    if part.get("type") != "file" or not isinstance(name, str):
        return None
    if not isinstance(part.get("data"), str):
        raise BadRequest(f"the request has the file {name!r} by its name alone: only a run's own context has files")
    return _Content(str(part.get("media_type")), part["data"], name)


def _of_openai(part: Part) -> _Content | str | None:
    """A picture or a document as OpenAI takes it; a picture at an address is that address."""
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)} | str(url)}:
            found = _DATA_URL.fullmatch(url)
            return url if found is None else _Content(found[1], found[2], "")
        case {"type": "file", "file": {"file_data": str(url), **more}}:
            found = _DATA_URL.fullmatch(url)
            return _Content(found[1], found[2], str(more.get("filename", ""))) if found is not None else None
    return None
