"""Chat completions, held against the documentation of OpenAI's interface."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, get_args

import pytest
from anthropic.types import MessageParam
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionUserMessageParam
from pydantic import TypeAdapter

from acts_celery import (
    Answer,
    BadRequest,
    ContextTooLong,
    InvalidAnswer,
    ModelError,
    RateLimited,
    Refused,
    Truncated,
    Unreachable,
    Usage,
)
from acts_celery.broker_config import ConfiguredModel
from acts_celery.broker_config.models import ProfileName
from acts_celery.worker.agent.clients import TRACEPARENT, Bounds
from acts_celery.worker.agent.dialects import (
    ASK,
    AnthropicMessages,
    OpenAIChat,
    anthropic_messages,
    in_turns,
    openai_messages,
    texts_in,
)
from acts_celery.worker.agent.prices import PROFILES, profile_of
from acts_celery.worker.agent.sdk_model import SdkModel
from acts_celery.worker.registry.models import ModelRequest, OnText, Reported, ignore

from .asked import OUTPUT, request
from .server import ModelServer, Reply, delta, event, failing, model_server, streamed, whole
from .tool_servers import STREAM, WIRES, OpenAIWire, Say

# The provider `openai` against a server of ours: what is sent, what is read, what is made of what goes wrong.

KEY = "sk-test-4711"
TEXT = '{"output": "Привет, †мир"}'
USAGE = Usage(111, 22, 11)


def answer_of(
    reply: Reply,
    *said: str,
    on_text: OnText = ignore,
    bytes_: int = 1_000_000,
    check: Callable[[ModelServer], None] | None = None,
    extra_body: str | None = None,
    **parts: Any,
) -> Answer:
    """What the provider makes of a server's reply."""
    with model_server(lambda body: reply) as server:
        configured = ConfiguredModel(model="openai:m", base_url=server.url, api_key=KEY, extra_body=extra_body)
        model = SdkModel(OpenAIChat(), configured, Bounds(bytes_, 8))
        parts["config"] = {"model": "m", **parts.get("config", {})}
        try:
            return asyncio.run(asked(model, *(said or ("hello",)), on_text=on_text, **parts))
        finally:
            if check is not None:
                check(server)


async def asked(model: SdkModel, *said: str, on_text: OnText = ignore, **parts: Any) -> Answer:
    """Ask, and close the connections."""
    try:
        return await model.ask(request(*said, **parts), on_text)
    finally:
        await model.close()


def failed(reply: Reply, kind: type[ModelError], **parts: Any) -> ModelError:
    """The error that it makes of a reply."""
    with pytest.raises(kind) as caught:
        answer_of(reply, **parts)
    return caught.value


def test_a_streamed_answer_is_heard_as_it_comes_and_tells_its_usage() -> None:
    on_text: list[str | Reported] = []
    answer = answer_of(streamed(TEXT, pieces=5), on_text=on_text.append)
    assert (answer.text, answer.model, answer.usage) == (TEXT, "m-2026", USAGE)
    assert "".join(map(str, on_text)) == TEXT
    assert len(on_text) == 5


@pytest.mark.parametrize("streams", [True, False])
def test_of_content_that_is_a_list_of_parts_the_texts_are_read(*, streams: bool) -> None:
    """Mistral's reasoning models say what they think in parts of their own, and go on in texts."""
    thinking = [{"type": "thinking", "thinking": [{"type": "text", "text": '{"output": "no"}'}]}]
    text = [{"type": "text", "text": TEXT[:9]}]
    if streams:
        chunks = [delta(content=thinking), delta(content=text), delta(content=TEXT[9:])]
        reply = Reply([*chunks, *OpenAIWire.end("stop")], headers=STREAM)
    else:
        parts = [*thinking, *text, {"type": "text", "text": TEXT[9:]}, {"type": "text", "text": None}, "no", None]
        message = {"message": {"content": parts}, "finish_reason": "stop"}
        reply = Reply([json.dumps({"model": "m", "choices": [message]}).encode()])
    assert answer_of(reply).text == TEXT


def test_an_answer_in_one_piece_is_read_too() -> None:
    assert answer_of(whole(TEXT)) == Answer(TEXT, "m-2026", USAGE)


def test_events_are_read_wherever_the_network_cuts_them() -> None:
    stream = b"".join(each for each in streamed(TEXT).chunks if isinstance(each, bytes)).replace(b"\n", b"\r\n")
    headers = {"Content-Type": "text/event-stream"}
    assert answer_of(Reply([bytes([one]) for one in stream], headers=headers)).text == TEXT


def formats(server: ModelServer) -> list[str | None]:
    """What each request asked to be enforced."""
    return [asked.body.get("response_format", {}).get("type") for asked in server.asked]


def test_what_is_sent_is_the_schema_and_every_setting() -> None:
    def check(server: ModelServer) -> None:
        (asked,) = server.asked
        assert asked.path == "/v1/chat/completions"
        assert asked.headers["authorization"] == f"Bearer {KEY}"
        body = asked.body
        shown, said = body["messages"]
        assert said == {"role": "user", "content": "one\n\ntwo"}
        assert shown["role"] == "system"
        assert json.dumps(OUTPUT, separators=(",", ":")) in shown["content"]
        assert body["response_format"]["json_schema"]["schema"] == {**OUTPUT, "additionalProperties": True}
        assert (body["model"], body["temperature"], body["max_tokens"], body["stream"]) == ("m", 0, 99, True)

    config = {"temperature": 0, "max_output_tokens": 99, "tool": {"not": "for the provider"}}
    answer_of(streamed(TEXT), "one", "two", schema=OUTPUT, config=config, check=check)


def test_sampling_and_what_the_operator_adds_are_sent_as_they_are() -> None:
    given = {"top_p": 0.9, "seed": -7, "stop": ["END"], "reasoning_effort": "low"}

    def check(server: ModelServer) -> None:
        assert server.asked[0].body.items() >= {**given, "top_k": 40}.items()

    answer_of(streamed(TEXT), config=given, extra_body='{"top_k": 40}', check=check)


def test_without_a_schema_and_settings_none_are_sent() -> None:
    def check(server: ModelServer) -> None:
        assert server.asked[0].body.keys() == {"model", "messages", "stream", "stream_options"}

    answer_of(streamed(TEXT), check=check)


@pytest.mark.parametrize(
    ("header", "seconds"), [({"Retry_After": "7"}, 7), ({"Retry_After_ms": "1500"}, 1.5), ({}, None)]
)
def test_a_limited_rate_tells_when_to_ask_again(header: dict[str, str], seconds: float | None) -> None:
    error = failed(failing(429, "slow down", **header), RateLimited)
    assert (error.is_transient, error.retry_after_seconds) == (True, seconds)
    assert "slow down" in str(error)


@pytest.mark.parametrize("odd", ["soon", "nan", "inf", "-5", "Fri, 31 Dec 1999 23:59:59 GMT", "Fri, 99 Dec"])
def test_an_odd_retry_after_keeps_no_call_waiting(odd: str) -> None:
    assert failed(failing(429, "slow down", Retry_After=odd), RateLimited).retry_after_seconds in (None, 0)


@pytest.mark.parametrize("status", [500, 502, 503, 529])
def test_a_servers_fault_passes(status: int) -> None:
    reply = failing(status if status != 529 else 504, "internal")
    assert failed(reply, Unreachable).is_transient


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 501])
def test_a_request_that_is_not_taken_fails_in_the_providers_words_without_the_key(status: int) -> None:
    error = failed(failing(status, f"no such thing with {KEY}"), BadRequest)
    assert f"{status}: no such thing with ***" in str(error)
    assert KEY not in str(error)
    assert not error.is_transient


@pytest.mark.parametrize(
    "error",
    [
        {"message": "Please reduce the length of the messages.", "code": "context_length_exceeded"},
        {"message": "This model's maximum context length is 4096 tokens.", "code": 400},
        {"message": "it is too large", "type": "exceed_context_size_error"},
        {"message": "prompt is too long: 200123 tokens > 199999 maximum"},
    ],
)
def test_a_request_that_is_longer_than_the_model_can_read_says_what_to_do(error: dict[str, Any]) -> None:
    told = str(failed(Reply([json.dumps({"error": error}).encode()], 400), ContextTooLong, schema=OUTPUT))
    assert f"400: {error['message']}" in told
    assert "config.show_bytes" in told


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"message": "Provider returned error", "code": 502}, Unreachable),
        ({"message": "slow down", "code": "429"}, RateLimited),
        ({"message": "no credits", "code": 402}, BadRequest),
        ({"message": "bad key", "status": 401}, BadRequest),
        ({"message": "odd", "code": 7}, InvalidAnswer),
        ({"message": "odd", "code": "9" * 5_000}, InvalidAnswer),
        ({"message": "odd", "code": "²"}, InvalidAnswer),
    ],
)
@pytest.mark.parametrize("streams", [True, False])
def test_a_code_of_an_error_inside_a_body_of_200_is_its_status(
    error: dict[str, Any], kind: type[ModelError], *, streams: bool
) -> None:
    reply = (
        Reply([event({"error": error})], headers=STREAM) if streams else Reply([json.dumps({"error": error}).encode()])
    )
    assert error["message"] in str(failed(reply, kind))


def test_the_words_of_an_error_that_comes_in_a_list_are_told() -> None:
    body = [{"error": {"code": 400, "message": "Function call is missing a thought_signature."}}]
    assert "thought_signature" in str(failed(Reply([json.dumps(body).encode()], 400), BadRequest))


@pytest.mark.parametrize("dialect", [OpenAIChat, AnthropicMessages])
def test_the_user_and_password_of_an_address_are_sent_in_place_of_a_key(
    dialect: type[OpenAIChat | AnthropicMessages],
) -> None:
    wire = dialect.sdk
    with model_server(lambda body: WIRES[wire].reply(Say(words=TEXT), streams=True)) as server:
        url = server.url.replace("http://", "http://ann%40example:k1%2F@")
        model = SdkModel(dialect(), ConfiguredModel(model=f"{wire}:m", base_url=url), Bounds(10_000, 4))
        assert asyncio.run(asked(model, "hello", config={"model": "m"})).text == TEXT
    sent = base64.b64encode(b"ann@example:k1/").decode()
    assert [one.headers["authorization"] for one in server.asked] == [f"Basic {sent}"]


def test_a_redirect_is_not_followed() -> None:
    with model_server(lambda body: streamed(TEXT)) as other:
        reply = Reply([], 307, {"Location": f"{other.url}/chat/completions"})
        failed(reply, BadRequest)
        assert other.asked == []


def test_a_server_that_is_not_there_is_unreachable() -> None:
    configured = ConfiguredModel(model="openai:m", base_url="http://127.0.0.1:1/v1")
    with pytest.raises(Unreachable, match=r"openai:m at http://127\.0\.0\.1:1/v1 does not answer"):
        asyncio.run(asked(SdkModel(OpenAIChat(), configured, Bounds(1_000, 8)), "a", config={"model": "m"}))


def test_an_answer_that_is_too_long_for_the_model_is_truncated_and_paid_for() -> None:
    error = failed(streamed('{"calls": [{"_to', finish="length"), Truncated)
    assert error.answer == Answer('{"calls": [{"_to', "m-2026", USAGE)


@pytest.mark.parametrize("is_cut", [True, False])
def test_a_stream_that_ends_in_mid_answer_is_truncated(is_cut: bool) -> None:
    error = failed(streamed('{"calls": [', finish=None, is_cut=is_cut), Truncated)
    assert error.answer is not None
    assert error.answer.text == '{"calls": ['


def test_a_connection_that_breaks_before_the_answer_is_unreachable() -> None:
    headers = {"Content-Type": "text/event-stream"}
    assert failed(Reply([delta(role="assistant")], headers=headers, is_cut=True), Unreachable).is_transient
    assert failed(Reply([], headers=headers), Unreachable).is_transient


def test_events_that_say_of_an_error_that_there_is_none_are_an_answer() -> None:
    reply = streamed(TEXT)
    assert answer_of(replace(reply, chunks=[event({"error": None}), *reply.chunks])).text == TEXT


def test_a_refusal_is_reported_in_the_models_words() -> None:
    headers = {"Content-Type": "text/event-stream"}
    chunks = [delta(refusal="I cannot "), delta(refusal="help."), *streamed("").chunks[1:]]
    assert "I cannot help." in str(failed(Reply(chunks, headers=headers), Refused))
    assert "filtered" in str(failed(whole("", finish="content_filter"), Refused))
    assert "never" in str(failed(whole("", refusal="never"), Refused))


def test_an_answer_of_ten_megabytes_is_not_taken() -> None:
    error = failed(streamed("x" * 10_000_000, pieces=1_000), InvalidAnswer)
    assert "more than 1000000 bytes" in str(error)
    failed(whole("x" * 10_000_000), InvalidAnswer)


@pytest.mark.parametrize("headers", [{}, {"content-encoding": "gzip"}])
def test_of_an_error_of_many_megabytes_no_more_is_read_than_of_an_answer(headers: dict[str, str]) -> None:
    pieces = [gzip.compress(b"x" * 64_000_000)] if headers else [b"x" * 64_000] * 1_000
    tracemalloc.start()
    try:
        with pytest.raises(BadRequest):
            answer_of(Reply(pieces, 400, headers), bytes_=100_000)
        assert tracemalloc.get_traced_memory()[1] < 32_000_000
    finally:
        tracemalloc.stop()


def test_a_stream_without_an_answer_does_not_go_on_for_ever() -> None:
    headers = {"Content-Type": "text/event-stream"}
    failed(Reply([b": x" + b" " * 1_000] * 100, headers=headers), InvalidAnswer, bytes_=1_000)


@pytest.mark.parametrize(
    "reply",
    [
        Reply([b"<html>Please log in</html>"]),
        Reply([b"[1]"]),
        Reply([b"[" * 100_000]),
        Reply([event(b"{half")], headers={"Content-Type": "text/event-stream"}),
        Reply([b"\x1f\x8b"], headers={"Content-Encoding": "br"}),
        Reply([event({"error": {"message": f"overloaded, {KEY}"}})], headers={"Content-Type": "text/event-stream"}),
    ],
)
def test_what_is_no_answer_is_invalid(reply: Reply) -> None:
    assert KEY not in str(failed(reply, InvalidAnswer))


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"choices": None},
        {"choices": []},
        {"choices": [None]},
        {"choices": [{"delta": None}]},
        {"choices": [{"delta": {"content": 5}}]},
        {"choices": {"0": 1}, "model": 5, "usage": []},
        {"model": "\ud800"},
        {"model": "m" * 100_000},
        {"usage": {"prompt_tokens": "many", "completion_tokens": None}},
        {"choices": [{"delta": {"content": None, "refusal": None, "role": 1}, "finish_reason": 7}]},
    ],
)
def test_what_a_chunk_leaves_out_or_fills_with_something_else_counts_as_not_said(odd: Any) -> None:
    first, *rest = streamed(TEXT).chunks
    answer = answer_of(
        Reply([first, event(odd), *rest[:-2], event(odd), *rest[-2:]], headers={"Content-Type": "text/event-stream"})
    )
    assert (answer.text, answer.model) == (TEXT, "m-2026")


@pytest.mark.parametrize("odd", ["5", -1, 2**80, True, None, [], 1.5, float("nan"), float("inf")])
def test_r13_3_usage_that_can_be_none_counts_as_not_said(odd: Any) -> None:
    for read, written in ((odd, 5), (5, odd)):
        usage = {"prompt_tokens": read, "completion_tokens": written}
        end = [event({"choices": [], "usage": usage}), b"data: [DONE]\n\n"]
        chunks = [delta(content=TEXT), event({"choices": [{"delta": {}, "finish_reason": "stop"}]}), *end]
        assert answer_of(Reply(chunks, headers={"Content-Type": "text/event-stream"})).usage is None


def test_text_that_is_no_utf_8_breaks_nothing() -> None:
    odd = json.dumps("\ud800").encode()
    chunk = b'{"choices": [{"delta": {"content": ' + odd + b'}, "finish_reason": "stop"}]}'
    assert answer_of(Reply([event(chunk)], headers={"Content-Type": "text/event-stream"})).text == "\ud800"


def test_a_character_whose_halves_come_in_two_pieces_is_one() -> None:
    pieces: list[str | Reported] = []
    chunks = [delta(content=half) for half in ("a", "\ud83d", "\ude00b\ud83d", "", "\ude00")]
    reply = Reply([*chunks, *streamed("").chunks], headers={"Content-Type": "text/event-stream"})
    assert answer_of(reply, on_text=pieces.append).text == "a😀b😀"
    assert "".join(map(str, pieces)) == "a😀b😀"


def test_a_page_for_people_fails_at_once() -> None:
    page = Reply([b"<html>Please log in</html>"], headers={"Content-Type": "text/html; charset=utf-8"})
    assert "is ACTS_MODEL_BASE_URL right?" in str(failed(page, BadRequest))


def test_a_spent_quota_is_not_asked_again() -> None:
    error = {"message": "You exceeded your current quota.", "type": "insufficient_quota", "code": "insufficient_quota"}
    told = failed(Reply([json.dumps({"error": error}).encode()], 429, {"Retry-After": "1"}), BadRequest)
    assert "429: You exceeded your current quota." in str(told)


def test_an_answer_that_is_too_long_names_the_limit() -> None:
    told = failed(streamed('{"calls": [', finish="length"), Truncated, config={"model": "m", "max_output_tokens": 64})
    assert "longer than max_output_tokens (64)" in str(told)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (400, "Unsupported JSON schema keyword: contains"),
        (422, "contains is not supported"),
        (500, "failed to load model vocabulary required for format: contains"),
        (501, "contains"),
    ],
)
def test_a_schema_that_the_server_refuses_is_sent_unenforced_with_a_finding_and_not_tried_again(
    status: int, words: str
) -> None:
    def reply(body: Any) -> Reply:
        return failing(status, words) if "response_format" in body else streamed(TEXT)

    with model_server(reply) as server:
        model = SdkModel(OpenAIChat(), ConfiguredModel(model="openai:m", base_url=server.url), Bounds(1_000, 8))

        async def twice() -> list[Answer]:
            return [await asked(model, "hello", schema=OUTPUT, config={"model": "m"}) for _ in range(2)]

        answers = asyncio.run(twice())
        again = ["json_schema"] if status == 500 else []
        assert formats(server) == [*again, "json_schema", "json_object", None, None]
        assert json.dumps(OUTPUT, separators=(",", ":")) in server.asked[-1].body["messages"][0]["content"]
    assert [answer.text for answer in answers] == [TEXT, TEXT]
    assert all("not enforced: " in answer.findings[0] and "contains" in answer.findings[0] for answer in answers)


def test_a_fault_that_passes_is_tried_again_with_the_schema_which_stays_enforced() -> None:
    left = [failing(500, "internal error")]

    with model_server(lambda body: left.pop() if left else streamed(TEXT)) as server:
        model = SdkModel(OpenAIChat(), ConfiguredModel(model="openai:m", base_url=server.url), Bounds(1_000, 8))

        async def twice() -> list[Answer]:
            return [await asked(model, "hello", schema=OUTPUT, config={"model": "m"}) for _ in range(2)]

        answers = asyncio.run(twice())
        assert formats(server) == ["json_schema"] * 3
    assert [(answer.text, answer.findings) for answer in answers] == [(TEXT, ())] * 2


def learning(
    refuses: Callable[[Any], str | None], *, status: int = 400, profile: ProfileName | None = None
) -> list[Any]:
    """The bodies of two requests to a server that refuses some, each answered in the end."""

    def reply(body: Any) -> Reply:
        words = refuses(body)
        return streamed(TEXT) if words is None else failing(status, words)

    with model_server(reply) as server:
        configured = ConfiguredModel(model="openai:m", base_url=server.url, profile=profile)
        model = SdkModel(OpenAIChat(), configured, Bounds(1_000, 8))

        async def twice() -> list[Answer]:
            messages = [{"role": "system", "content": "rules"}, *request("one", "two").messages]
            asking = [ModelRequest(messages, OUTPUT, {"model": "m"}) for _ in range(2)]
            try:
                return [await model.ask(each, ignore) for each in asking]
            finally:
                await model.close()

        assert [answer.text for answer in asyncio.run(twice())] == [TEXT] * 2
        return [asked.body for asked in server.asked]


@pytest.mark.parametrize("status", [400, 422])
def test_stream_options_are_left_out_where_the_server_refuses_them_from_then_on(status: int) -> None:
    def refuses(body: Any) -> str | None:
        return "Extra inputs are not permitted: stream_options" if "stream_options" in body else None

    bodies = learning(refuses, status=status)
    assert ["stream_options" in body for body in bodies] == [True, False, False]
    assert all(body["response_format"]["type"] == "json_schema" for body in bodies)


def roles(body: Any) -> list[str]:
    return [message["role"] for message in body["messages"]]


def test_messages_are_put_in_turns_for_a_server_that_says_so_from_then_on() -> None:
    def refuses(body: Any) -> str | None:
        said = roles(body)[1:]
        is_fine = all((role != "user") == bool(at % 2) for at, role in enumerate(said)) and roles(body)[0] == "system"
        return None if is_fine else "Conversation roles must alternate user/assistant/user/assistant/..."

    bodies = learning(refuses, profile="openai")
    assert [roles(body)[-2:] for body in bodies] == [["user", "user"], *[["system", "user"]] * 2]
    assert [roles(body) for body in learning(refuses)] == [["system", "user"]] * 2


def test_a_server_whose_template_has_no_system_messages_is_told_by_the_user() -> None:
    bodies = learning(lambda body: "System role not supported" if "system" in roles(body) else None)
    assert [roles(body) for body in bodies] == [["system", "user"], ["user"], ["user"]]
    (said,) = {body["messages"][0]["content"] for body in bodies[1:]}
    assert said.startswith("rules\n\n")
    assert said.endswith("one\n\ntwo")


def of_settings(body: Any, **settings: Any) -> list[str | None]:
    """What two requests ask a server to enforce that knows JSON mode and no schemas."""

    def reply(body: Any) -> Reply:
        is_known = body.get("response_format", {}).get("type") != "json_schema"
        return streamed(TEXT) if is_known else failing(400, "json_schema is not supported")

    with model_server(reply) as server:
        configured = ConfiguredModel(model="openai:m", base_url=server.url, **settings)
        model = SdkModel(OpenAIChat(), configured, Bounds(1_000, 8))

        async def twice() -> None:
            for _ in range(2):
                await asked(model, "hello", schema=body, config={"model": "m"})

        asyncio.run(twice())
        assert all(json.dumps(OUTPUT, separators=(",", ":")) in str(each.body["messages"]) for each in server.asked)
        return formats(server)


@pytest.mark.parametrize(
    ("settings", "sent"),
    [
        ({}, ["json_schema", "json_object", "json_object"]),
        ({"enforce": "json"}, ["json_object"] * 2),
        ({"enforce": "off"}, [None, None]),
        ({"profile": "json"}, ["json_object"] * 2),
        ({"profile": "text"}, [None, None]),
        ({"profile": "text", "enforce": "json"}, ["json_object"] * 2),
    ],
)
def test_json_mode_is_asked_for_where_no_schema_can_be_and_what_is_enforced_is_a_setting(
    settings: dict[str, Any], sent: list[str | None]
) -> None:
    assert of_settings(OUTPUT, **settings) == sent


@pytest.mark.parametrize(
    ("url", "name", "profile"),
    [
        (None, "gpt-4o", "openai"),
        ("https://api.openai.com/v1", "gpt-4o", "openai"),
        ("https://mine.openai.azure.com/openai/v1", "gpt-4o", "azure"),
        ("https://openai.azure.com.evil.example/v1", "gpt-4o", "compatible"),
        ("https://api.deepseek.com", "deepseek-chat", "json"),
        ("https://openrouter.ai/api/v1", "openai/gpt-4o", "openai"),
        ("https://openrouter.ai/api/v1", "anthropic/claude-sonnet-4.5", "anthropic"),
        ("https://openrouter.ai/api/v1", "qwen/qwen3-32b", "compatible"),
        ("https://generativelanguage.googleapis.com/v1beta/openai/", "gemini-3-pro", "compatible"),
        ("http://localhost:11434/v1", "openai/gpt-oss", "compatible"),
    ],
)
def test_whose_rules_hold_is_told_by_the_host(url: str | None, name: str, profile: str) -> None:
    configured = ConfiguredModel(model=f"openai:{name}", base_url=url)
    assert profile_of(configured, OpenAIChat.url) is PROFILES[profile]
    own = ConfiguredModel(model=f"openai:{name}", base_url=url, profile="text")
    assert profile_of(own, OpenAIChat.url) is PROFILES["text"]


def test_the_profiles_that_can_be_set_are_those_that_there_are() -> None:
    assert set(get_args(ProfileName)) == PROFILES.keys()


@pytest.mark.parametrize(("status", "kind"), [(401, BadRequest), (404, BadRequest), (503, Unreachable)])
def test_what_has_nothing_to_do_with_a_schema_is_not_sent_again_without_it(status: int, kind: type[ModelError]) -> None:
    def check(server: ModelServer) -> None:
        assert len(server.asked) == 1

    failed(failing(status, "no such model"), kind, schema=OUTPUT, check=check)


def test_a_request_that_is_refused_with_and_without_its_schema_fails_and_its_schema_is_not_blamed() -> None:
    with model_server(lambda body: failing(400, "no such model")) as server:
        model = SdkModel(OpenAIChat(), ConfiguredModel(model="openai:m", base_url=server.url), Bounds(1_000, 8))

        async def twice() -> None:
            for _ in range(2):
                with pytest.raises(BadRequest, match="400: no such model"):
                    await asked(model, "hello", schema=OUTPUT, config={"model": "m"})

        asyncio.run(twice())
        assert formats(server) == ["json_schema", "json_object", None] * 2


@pytest.mark.parametrize("place", [None, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"])
def test_a_request_says_which_span_it_is_part_of_where_somebody_traces(place: str | None) -> None:
    def check(server: ModelServer) -> None:
        assert [asked.headers.get("traceparent") for asked in server.asked] == [place]

    token = TRACEPARENT.set(place)
    try:
        answer_of(whole(TEXT), check=check)
    finally:
        TRACEPARENT.reset(token)


# Pictures and documents in messages, held against the SDKs' own types of what providers take.

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n0000").decode()
WORDS = base64.b64encode("Привет".encode()).decode()
TEXT_CONTENT_PARTS = {"type": "text", "text": "What is it?"}
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
    assert of(openai_messages, TEXT_CONTENT_PARTS, PICTURE, PAPER, NOTE) == [
        TEXT_CONTENT_PARTS,
        {"type": "image_url", "image_url": {"url": url}},
        {"type": "file", "file": paper},
        {"type": "text", "text": "Привет"},
    ]


def test_files_become_the_blocks_that_anthropic_takes() -> None:
    assert of(anthropic_messages, TEXT_CONTENT_PARTS, PICTURE, PAPER, NOTE) == [
        TEXT_CONTENT_PARTS,
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
    (message,) = anthropic_messages([{"role": "user", "content": [{"type": "text", "text": ""}, TEXT_CONTENT_PARTS]}])
    assert message["content"] == [TEXT_CONTENT_PARTS]
