"""Pictures and documents in messages, held against the SDKs' own types of what providers take."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import pytest
from anthropic.types import MessageParam
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionUserMessageParam
from pydantic import TypeAdapter

from acts_celery import BadRequest
from acts_celery.worker.agent.openai_chat import ASK, anthropic_messages, in_turns, openai_messages, texts_in

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


ROLES = st.sampled_from(["system", "developer", "user", "user", "assistant"])
CONTENTS = st.one_of(
    st.integers(0, 99).map(lambda number: f"said {number}."),
    st.lists(
        st.integers(0, 99).map(lambda number: {"type": "text", "text": f"part {number}."}), min_size=1, max_size=2
    ),
    st.just([PICTURE]),
)
CALLING = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f"}}]}
CALLED = {"role": "tool", "tool_call_id": "1", "content": "result"}
CHATS = st.lists(
    st.builds(lambda role, content: [{"role": role, "content": content}], ROLES, CONTENTS) | st.just([CALLING, CALLED]),
    max_size=8,
).map(lambda parts: [message for part in parts for message in part])


def parts_of(messages: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Everything that is said in messages: texts cut where they were joined, and pictures."""
    contents = [message.get("content") or () for message in messages]
    parts = [part for content in contents for part in ([content] if isinstance(content, str) else content)]
    texts = [part if isinstance(part, str) else part.get("text") for part in parts]
    cut = [line for text in texts if text is not None for line in text.split("\n\n")]
    return Counter(cut + ["picture" for part in parts if part == PICTURE])


@given(CHATS, st.booleans())
def test_law_what_is_said_in_turns_is_what_was_said(chat: list[dict[str, Any]], has_system: bool) -> None:
    found = in_turns(chat, has_system=has_system)
    added = parts_of(found) - parts_of(chat)
    assert parts_of(chat) - parts_of(found) == Counter()
    assert added in (Counter(), Counter([ASK["content"]]))
    said = [message["role"] for message in found]
    assert "system" not in said[1:]
    assert has_system or "system" not in said
    turns = [role for role in said if role != "system"]
    assert turns[:1] == ["user"]
    plain = [(one, two) for one, two in pairwise(found) if one.keys() == two.keys() == {"role", "content"}]
    assert all(one["role"] != two["role"] for one, two in plain)


@given(CHATS, CHATS, st.booleans())
def test_law_the_messages_of_the_next_request_begin_with_those_of_this_one(
    chat: list[dict[str, Any]], more: list[dict[str, Any]], has_system: bool
) -> None:
    before = [*chat, {"role": "user", "content": "asked"}]
    after = in_turns([*before, {"role": "assistant", "content": "answered"}, *more], has_system=has_system)
    asked = in_turns(before, has_system=has_system)
    assert after[: len(asked)] == asked


def test_system_messages_that_say_nothing_are_none_for_anthropic_and_parts_are_texts() -> None:
    assert texts_in([{"type": "text", "text": "Shop."}, {"type": "text", "text": " "}]) == ["Shop."]
    assert texts_in("") == []
    (message,) = anthropic_messages([{"role": "user", "content": [{"type": "text", "text": ""}, TEXT]}])
    assert message["content"] == [TEXT]
