"""The provider `anthropic` against a server of ours that speaks Messages."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from acts_celery import (
    Answer,
    BadRequest,
    InvalidAnswer,
    ModelError,
    RateLimited,
    Refused,
    Truncated,
    Unreachable,
    Usage,
)
from acts_celery.broker_config import ConfiguredModel
from acts_celery.worker.agent.anthropic_messages import AnthropicMessages
from acts_celery.worker.agent.clients import Bounds
from acts_celery.worker.agent.sdk_model import SdkModel
from acts_celery.worker.registry.models import ModelRequest, ignore

from .server import ModelServer, Reply, failing, model_server

KEY = "sk-ant-4711"
TEXT = '{"output": "Привет"}'
STREAM = {"Content-Type": "text/event-stream"}
SCHEMA = {
    "type": "object",
    "properties": {"output": {"type": "string"}},
    "required": ["output"],
    "additionalProperties": False,
}
START = {
    "type": "message_start",
    "message": {
        "model": "claude-2026",
        "content": [],
        "stop_reason": None,
        "usage": {
            "input_tokens": 10,
            "cache_read_input_tokens": 90,
            "cache_creation_input_tokens": 5,
            "output_tokens": 1,
        },
    },
}


def event(data: dict[str, Any]) -> bytes:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


def streamed(text: str, reason: str | None = "end_turn") -> Reply:
    """A text as Anthropic streams it."""
    pieces = [text[: len(text) // 2], text[len(text) // 2 :]]
    deltas = [{"type": "content_block_delta", "delta": {"type": "text_delta", "text": piece}} for piece in pieces]
    end = [{"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 22}}]
    stop = [{"type": "message_stop"}]
    return Reply(
        [event(one) for one in [START, {"type": "ping"}, *deltas, *(end + stop if reason else [])]], headers=STREAM
    )


def asked(reply: Reply, *messages: dict[str, Any], schema: Any = SCHEMA, **config: Any) -> tuple[ModelServer, Answer]:
    """What the provider makes of a server's reply, and what it had sent."""

    async def ask(url: str) -> Answer:
        configured = ConfiguredModel(model="anthropic:claude", base_url=url.removesuffix("/v1"), api_key=KEY)
        model = SdkModel(AnthropicMessages(), configured, Bounds(1_000_000, 4))
        try:
            said = messages or ({"role": "user", "content": "hello"},)
            return await model.ask(ModelRequest(said, schema, {"model": "claude", **config}), ignore)
        finally:
            await model.close()

    with model_server(lambda body: reply) as server:
        return server, asyncio.run(ask(server.url))


def test_a_streamed_answer_tells_its_usage_with_what_was_cached() -> None:
    _, answer = asked(streamed(TEXT))
    assert answer == Answer(TEXT, "claude-2026", Usage(105, 22, 90))


def test_an_answer_in_one_piece_is_read_too() -> None:
    whole = {
        "model": "claude-2026",
        "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": TEXT}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 10, "output_tokens": 22},
    }
    assert asked(Reply([json.dumps(whole).encode()]))[1] == Answer(TEXT, "claude-2026", Usage(10, 22))


def test_what_is_sent_is_the_schema_and_every_setting_with_system_messages_apart() -> None:
    messages = ({"role": "system", "content": "one"}, {"role": "user", "content": "two"})
    server, _ = asked(streamed(TEXT), *messages, temperature=0.5, max_output_tokens=99)
    (request,) = server.asked
    assert request.path == "/v1/messages"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}}
    assert request.body["system"] == [{"type": "text", "text": "one"}]
    assert request.body["messages"] == [{"role": "user", "content": "two"}]
    assert (request.body["max_tokens"], request.body["temperature"]) == (99, 0.5)


def test_sampling_is_sent_by_the_names_that_it_has_there() -> None:
    server, _ = asked(streamed(TEXT), top_p=0.9, stop="END", reasoning_effort="low")
    body = server.asked[0].body
    assert (body["top_p"], body["stop_sequences"]) == (0.9, ["END"])
    assert body["output_config"] == {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}}


def test_a_bound_and_a_message_of_a_user_are_always_sent() -> None:
    server, _ = asked(streamed(TEXT), {"role": "system", "content": "one"})
    assert server.asked[0].body["max_tokens"] > 0
    assert server.asked[0].body["messages"][0]["role"] == "user"


def test_a_schema_that_structured_outputs_cannot_say_is_shown_and_a_finding() -> None:
    server, answer = asked(streamed(TEXT), schema={"type": "object"})
    assert "output_config" not in server.asked[0].body
    assert "not enforced" in answer.findings[0]
    assert "JSON Schema" in server.asked[0].body["system"][0]["text"]


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (failing(429, "slow down", Retry_After="3"), RateLimited, "slow down"),
        (failing(500, "internal"), Unreachable, "500: internal"),
        (streamed(TEXT, "max_tokens"), Truncated, "longer than"),
        (streamed(TEXT, "refusal"), Refused, "refuses"),
        (streamed(TEXT, None), Truncated, "broke off"),
        (Reply([event({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})], headers=STREAM),
         Unreachable, "busy"),
        (Reply([event({"type": "error", "error": {"type": "x", "message": f"odd {KEY}"}})], headers=STREAM),
         InvalidAnswer, r"odd \*\*\*"),
        (Reply([b"<html>"], headers={"Content-Type": "text/html"}), BadRequest, "text/html"),
    ],
)  # fmt: skip
def test_what_goes_wrong_has_its_type(reply: Reply, kind: type[ModelError], words: str) -> None:
    with pytest.raises(kind, match=words):
        asked(reply)


@pytest.mark.parametrize(
    ("reason", "usage"),
    [
        ("max_tokens", Usage(105, 22, 90)),
        ("refusal", Usage(105, 22, 90)),
        (None, Usage(105, 1, 90, is_whole=False)),
    ],
)
def test_r13_12_an_answer_of_no_use_has_its_usage_as_far_as_the_provider_has_said_it(
    reason: str | None, usage: Usage
) -> None:
    with pytest.raises(ModelError) as caught:
        asked(streamed(TEXT, reason))
    assert caught.value.answer is not None
    assert caught.value.answer.usage == usage


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "message_start"},
        {"type": "message_start", "message": None},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": 5}},
        {"type": "content_block_delta", "delta": "x"},
        {"type": "message_delta", "delta": {"stop_reason": 5}, "usage": {"output_tokens": "many"}},
        {"type": "message_delta", "delta": None},
        {"type": None},
        {},
    ],
)
def test_what_an_event_leaves_out_or_fills_with_something_else_counts_as_not_said(odd: Any) -> None:
    reply = streamed(TEXT)
    chunk = f"data: {json.dumps(odd)}\n\n".encode()
    assert asked(Reply([*reply.chunks[:1], chunk, *reply.chunks[1:]], headers=STREAM))[1].text == TEXT
