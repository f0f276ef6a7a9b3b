"""How many tokens the messages of a request have at most, with the pictures in them (SPEC R13.3)."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts_celery.broker_config import ConfiguredModel
from acts_celery.protocol.requests.data_blocks import compact
from acts_celery.worker.agent.prices import image_tokens, request_tokens
from acts_celery.worker.registry.models import image_size

OPENAI = ConfiguredModel(model="openai:gpt-4o-2024-11-20")
CLAUDE = ConfiguredModel(model="anthropic:claude-x")
LOCAL = ConfiguredModel(model="openai:gpt-4o", base_url="http://localhost:8000/v1")
SIDE = st.integers(1, 10_000)


def png(width: int, height: int, more: bytes = b"") -> bytes:
    return b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + struct.pack(">II", width, height) + b"\x08\x02\0\0\0" + more


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0\0\0"


def jpeg(width: int, height: int) -> bytes:
    start = b"\xff\xd8\xff\xe0\x00\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0"
    return start + b"\xff\xc0\x00\x11\x08" + struct.pack(">HH", height, width) + b"\x03" + bytes(9)


def webp(width: int, height: int) -> bytes:
    sides = b"".join(struct.pack("<I", side - 1)[:3] for side in (width, height))
    return b"RIFF\x1a\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + sides


@pytest.mark.parametrize("make", [png, gif, jpeg, webp])
def test_the_size_of_a_picture_is_read_from_its_header(make: Any) -> None:
    assert image_size(make(640, 480)) == (640, 480)


@given(
    st.binary(max_size=200), st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"\xff\xd8\xff", b"RIFF", b"<svg"])
)
def test_whatever_bytes_say_they_are_they_have_a_size_or_none(content: bytes, begin: bytes) -> None:
    size = image_size(begin + content)
    assert size is None or min(size) > 0


@pytest.mark.parametrize(
    ("model", "size", "tokens"),
    [  # the examples of the providers' documentation
        ("openai:gpt-4o", (1024, 1024), 765),
        ("openai:gpt-4o", (2048, 4096), 1_105),
        ("openai:gpt-4o-mini", (1024, 1024), 25_501),
        ("openai:gpt-4.1-mini", (1024, 1024), 1_659),
        ("openai:gpt-5-nano", (10_000, 10_000), 3_779),
        ("anthropic:claude-x", (200, 200), 64),
        ("anthropic:claude-x", (1000, 1000), 1_334),
    ],
)
def test_a_picture_counts_by_the_rule_of_its_provider(model: str, size: tuple[int, int], tokens: int) -> None:
    assert image_tokens(ConfiguredModel(model=model), size) == tokens


def test_a_picture_of_low_detail_counts_once() -> None:
    assert image_tokens(OPENAI, (4_000, 4_000), "low") == 85


@given(SIDE, SIDE, st.sampled_from([OPENAI, CLAUDE, LOCAL, ConfiguredModel(model="openai:new"), OPENAI]))
def test_a_picture_that_cannot_be_read_counts_as_the_largest(width: int, height: int, model: ConfiguredModel) -> None:
    assert 0 < image_tokens(model, (width, height)) <= image_tokens(model, None)


def test_a_large_picture_is_not_counted_by_its_bytes() -> None:
    data = base64.b64encode(png(1024, 1024, bytes(300_000))).decode()
    url = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    own = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    given = {"type": "file", "file": "a.png", "media_type": "image/png", "digest": "0", "bytes": 300_000}
    text = [{"role": "user", "content": "what is it?"}]
    parts: tuple[dict[str, Any], ...] = (url, own, {**given, "pixels": [1024, 1024]}, {**given, "data": data})
    for part in parts:
        shown: dict[str, Any] = {"role": "user", "content": [{"type": "text", "text": "this"}, part]}
        messages = [*text, shown]
        found = request_tokens(messages, [OPENAI, CLAUDE])
        assert 1_399 < found < 1_399 + 200  # the dearer of the two
    there: dict[str, Any] = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    away: list[dict[str, Any]] = [{"role": "user", "content": [there, given]}]
    assert 2 * 1_445 < request_tokens(away, [OPENAI]) < 2 * 1_445 + 200
    forged = [{"role": "user", "content": [{**given, "pixels": [-5, 0]}]}]
    assert request_tokens(forged, [OPENAI]) > 1_445
    document = {"type": "file", "file": "a.pdf", "media_type": "application/pdf", "digest": "0", "bytes": 5_000}
    assert request_tokens([{"role": "user", "content": [document]}], [OPENAI]) > 5_000


@given(st.lists(st.text(max_size=50), max_size=4))
def test_texts_count_by_their_bytes(texts: list[str]) -> None:
    messages = [{"role": "user", "content": text} for text in texts]
    assert request_tokens(messages, [OPENAI]) == len(compact(messages).encode())
