"""Pictures and documents in messages, held against the SDKs' own types of what providers take."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from anthropic.types import MessageParam
from openai.types.chat import ChatCompletionUserMessageParam
from pydantic import TypeAdapter

from acts_celery.worker.models.content_parts import anthropic_messages, openai_messages
from acts_celery.worker.models.errors import BadRequest

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n0000").decode()
WORDS = base64.b64encode("Привет".encode()).decode()
TEXT = {"type": "text", "text": "What is it?"}
PICTURE = {"type": "file", "file": "cat.png", "media_type": "image/png", "data": PNG, "digest": "0", "bytes": 3}
PAPER = {"type": "file", "file": "a.pdf", "media_type": "application/pdf", "data": PNG}
NOTE = {"type": "file", "file": "a.txt", "media_type": "text/plain", "data": WORDS}


def of(convert: Any, *parts: Any) -> Any:
    (message,) = convert([{"role": "user", "content": list(parts)}])
    kind: Any = MessageParam if convert is anthropic_messages else ChatCompletionUserMessageParam
    TypeAdapter(kind).validate_python(message)
    return message["content"]


def test_files_become_the_parts_that_openai_takes() -> None:
    url = f"data:image/png;base64,{PNG}"
    paper = {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PNG}"}
    assert of(openai_messages, TEXT, PICTURE, PAPER, NOTE) == [
        TEXT,
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "file", "file": paper},
        {"type": "text", "text": "Привет"},
    ]


def test_files_become_the_blocks_that_anthropic_takes() -> None:
    assert of(anthropic_messages, TEXT, PICTURE, PAPER, NOTE) == [
        TEXT,
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": PNG},
            "title": "a.pdf",
        },
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "Привет"},
            "title": "a.txt",
        },
    ]


def test_what_is_written_for_openai_is_understood_for_anthropic_too() -> None:
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "low"}}
    linked = {"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}}
    paper = {"type": "file", "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PNG}"}}
    assert of(anthropic_messages, picture, linked, paper) == [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/cat.png"}},
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": PNG},
            "title": "a.pdf",
        },
    ]
    assert of(openai_messages, picture, linked, paper) == [picture, linked, paper]


@pytest.mark.parametrize("content", ["a text", None, 7])
def test_messages_without_parts_stay_as_they_are(content: Any) -> None:
    for convert in (openai_messages, anthropic_messages):
        assert convert([{"role": "user", "content": content, "name": "Ann"}]) == [
            {"role": "user", "content": content, "name": "Ann"}
        ]


def test_a_part_that_is_the_providers_own_goes_as_it_is() -> None:
    for part in ({"type": "image", "source": {"type": "file", "file_id": "f"}}, {"type": "odd"}, {}, "loose"):
        assert anthropic_messages([{"role": "user", "content": [part]}])[0]["content"] == [part]
        assert openai_messages([{"role": "user", "content": [part]}])[0]["content"] == [part]


def test_a_file_without_its_bytes_and_a_text_that_is_none_are_refused() -> None:
    named = {"type": "file", "file": "/etc/passwd"}
    broken = {**NOTE, "data": "////"}
    for convert in (openai_messages, anthropic_messages):
        with pytest.raises(BadRequest, match="by its name alone"):
            convert([{"role": "user", "content": [named]}])
        with pytest.raises(BadRequest, match="is no text"):
            convert([{"role": "user", "content": [broken]}])
