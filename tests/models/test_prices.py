"""What a request costs: tokens, images, prices."""

from __future__ import annotations

import base64
import struct
import sys
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts_celery import Cost, Usage
from acts_celery.broker_config import ConfiguredModel, Price
from acts_celery.protocol.engine.costs import Estimate, dollars_of, nanodollars
from acts_celery.protocol.requests.data_blocks import compact
from acts_celery.worker.agent.prices import estimate_of, image_tokens, price_of, request_tokens
from acts_celery.worker.registry.models import image_size, picture_fields

# What requests cost in money: by a price that was given, else by the list of prices (SPEC R13.3).

RATE = st.decimals(0, 1_000, places=4)
COUNT = st.integers(0, 10**7)


def model(name: str = "openai:gpt-4o", **parts: Any) -> ConfiguredModel:
    return ConfiguredModel(model=name, **parts)


def test_a_price_that_is_given_counts_what_is_cached_and_written_by_rates_of_their_own() -> None:
    price = Price(input=Decimal(2), output=Decimal(10), cached=Decimal("0.5"), written=Decimal(3))
    usage = Usage(1_000, 100, 400, written=100)
    # 500 * 2 + 400 * 0.5 + 100 * 3 + 100 * 10, for a million
    assert price_of(model(price=price), usage) == 2_500_000
    assert price_of(model(price=Price(input=Decimal(2), output=Decimal(10))), usage) == 3_000_000


@given(st.tuples(RATE, RATE, RATE), st.tuples(COUNT, COUNT, COUNT, COUNT))
def test_a_price_is_never_less_than_it_is_exactly_and_an_estimate_never_less_than_a_price(
    rates: tuple[Decimal, Decimal, Decimal], counts: tuple[int, int, int, int]
) -> None:
    (input_, output, written), (read, answered, cached, made) = rates, counts
    configured = model(price=Price(input=input_, output=output, cached=input_ / 2, written=written))
    price = price_of(configured, Usage(read, answered, min(cached, read), written=min(made, read)))
    assert price is not None
    assert price >= answered * output * 1_000
    estimate = estimate_of([configured], read, answered)
    assert estimate.nanodollars is not None
    assert price <= estimate.nanodollars


def test_the_list_knows_a_model_where_its_provider_is_asked_and_nowhere_else() -> None:
    usage = Usage(1_000_000, 0)
    assert (price_of(model(), usage) or 0) > 0
    assert price_of(model(base_url="http://localhost:11434/v1"), usage) is None
    assert price_of(model("openai:no-such-model"), usage) is None
    assert price_of(model("house:gpt-4o"), usage) is None
    claude = model("anthropic:claude-sonnet-4-5")
    assert (price_of(claude, Usage(1_000, 0, written=1_000)) or 0) > (price_of(claude, Usage(1_000, 0)) or 0) > 0


def test_a_request_that_a_fallback_may_answer_is_estimated_by_the_dearest_and_not_at_all_where_one_is_unknown() -> None:
    cheap, dear = (model(price=Price(input=Decimal(rate), output=Decimal(rate))) for rate in (1, 5))
    assert estimate_of([cheap, dear], 900, 100) == Estimate(1_000, 5_000_000, 100)
    assert estimate_of([cheap, model("house:x")], 900, 100) == Estimate(1_000, None, 100)
    assert estimate_of([], 900, 100) == Estimate(1_000, None, 100)


@given(st.integers(0, 2**53 - 1))
def test_an_amount_is_read_as_it_was_shown(amount: int) -> None:
    assert nanodollars(Decimal(dollars_of(amount))) == amount


@given(st.lists(st.tuples(COUNT, COUNT, st.none() | COUNT, st.floats(0, 1e6)), max_size=5))
def test_costs_are_read_as_they_were_packed_and_add_up(parts: list[tuple[int, int, int | None, float]]) -> None:
    costs = [
        Cost.of_request({"input": read, "output": written} if amount != 7 else None, Estimate(50), 1, seconds, amount)
        for read, written, amount, seconds in parts
    ]
    total = sum(costs, Cost())
    assert total.requests == 2 * len(parts)
    assert total.tokens == total.input + total.output + total.estimated
    again = Cost.read(total.pack())
    assert again == total or abs(again.seconds - total.seconds) < 0.001


@pytest.mark.parametrize(
    "packed",
    [{}, {"tokens": -1, "requests": "x"}, {"nanodollars": float("nan"), "seconds": -3}, {"usage": {"input": []}}],
)
def test_what_a_worker_that_is_not_trusted_says_it_cost_is_read_as_numbers(packed: dict[str, Any]) -> None:
    cost = Cost.read(packed)
    assert (cost.tokens, cost.nanodollars, cost.seconds, cost.input) == (0, 0, 0.0, 0)


# How many tokens the messages of a request have at most, with the pictures in them (SPEC R13.3).

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


def test_a_picture_is_shown_and_counts_as_the_largest_where_its_size_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "imagesize", None)
    part = picture_fields(png(640, 480))
    assert part == {"media_type": "image/png", "bytes": len(png(640, 480))}
    message = {"role": "user", "content": [{"type": "file", "file": "a", **part, "digest": "d"}]}
    assert request_tokens([message], [CLAUDE]) >= image_tokens(CLAUDE, None)


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
