"""Messages to Anthropic's interface and back, held against its documentation; answers without end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from itertools import count, pairwise, repeat
from pathlib import Path
from typing import Any, Final, get_type_hints

import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from pydantic import TypeAdapter

from acts_celery import (
    Answer,
    BadRequest,
    InvalidAnswer,
    ModelError,
    RateLimited,
    Refused,
    Result,
    Truncated,
    Unreachable,
    Usage,
    local,
)
from acts_celery.broker_config import ConfiguredModel
from acts_celery.protocol.schemas import compiled
from acts_celery.worker.agent.asking import Candidate, PartialAnswers, answered
from acts_celery.worker.agent.clients import Bounds
from acts_celery.worker.agent.dialects import AnthropicMessages, OpenAIChat
from acts_celery.worker.agent.prices import PROFILES
from acts_celery.worker.agent.sdk_model import Dialect, SdkModel
from acts_celery.worker.registry.models import ModelRequest, Reported, Words, ignore

from . import six_tools
from .as_sent import as_sent
from .asked import request
from .provider_rules import anthropic_refusal, openai_refusal
from .server import ModelServer, Reply, delta, event, failing, model_server, streamed

# The provider `anthropic` against a server of ours that speaks Messages.

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


def event_of(data: dict[str, Any]) -> bytes:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


def streamed_by_anthropic(text: str, reason: str | None = "end_turn") -> Reply:
    """A text as Anthropic streams it."""
    pieces = [text[: len(text) // 2], text[len(text) // 2 :]]
    deltas = [{"type": "content_block_delta", "delta": {"type": "text_delta", "text": piece}} for piece in pieces]
    end = [{"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 22}}]
    stop = [{"type": "message_stop"}]
    return Reply(
        [event_of(one) for one in [START, {"type": "ping"}, *deltas, *(end + stop if reason else [])]],
        headers=STREAM,
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
    _, answer = asked(streamed_by_anthropic(TEXT))
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
    server, _ = asked(streamed_by_anthropic(TEXT), *messages, temperature=0.5, max_output_tokens=99)
    (request,) = server.asked
    assert request.path == "/v1/messages"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body["output_config"] == {"format": {"type": "json_schema", "schema": SCHEMA}}
    assert request.body["system"] == [{"type": "text", "text": "one"}]
    assert request.body["messages"] == [{"role": "user", "content": "two"}]
    assert (request.body["max_tokens"], request.body["temperature"]) == (99, 0.5)


def test_sampling_is_sent_by_the_names_that_it_has_there() -> None:
    server, _ = asked(streamed_by_anthropic(TEXT), top_p=0.9, stop="END", reasoning_effort="low")
    body = server.asked[0].body
    assert (body["top_p"], body["stop_sequences"]) == (0.9, ["END"])
    assert body["output_config"] == {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}}


def test_a_bound_and_a_message_of_a_user_are_always_sent() -> None:
    server, _ = asked(streamed_by_anthropic(TEXT), {"role": "system", "content": "one"})
    assert server.asked[0].body["max_tokens"] > 0
    assert server.asked[0].body["messages"][0]["role"] == "user"


def test_a_schema_that_structured_outputs_cannot_say_is_shown_and_a_finding() -> None:
    server, answer = asked(streamed_by_anthropic(TEXT), schema={"type": "object"})
    assert "output_config" not in server.asked[0].body
    assert "not enforced" in answer.findings[0]
    assert "JSON Schema" in server.asked[0].body["system"][0]["text"]


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (failing(429, "slow down", Retry_After="3"), RateLimited, "slow down"),
        (failing(500, "internal"), Unreachable, "500: internal"),
        (streamed_by_anthropic(TEXT, "max_tokens"), Truncated, "longer than"),
        (streamed_by_anthropic(TEXT, "refusal"), Refused, "refuses"),
        (streamed_by_anthropic(TEXT, None), Truncated, "broke off"),
        (Reply([event_of({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})], headers=STREAM),
         Unreachable, "busy"),
        (Reply([event_of({"type": "error", "error": {"type": "x", "message": f"odd {KEY}"}})], headers=STREAM),
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
        asked(streamed_by_anthropic(TEXT, reason))
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
    reply = streamed_by_anthropic(TEXT)
    chunk = f"data: {json.dumps(odd)}\n\n".encode()
    assert asked(Reply([*reply.chunks[:1], chunk, *reply.chunks[1:]], headers=STREAM))[1].text == TEXT


# Answers that never end, in whatever part of them: each ends by a limit (SPEC R13.4).

KEY_ENDLESS: Final = "sk-canary-4711"
BOUNDS: Final = Bounds(10_000, 4)
OK: Final = b"HTTP/1.1 200 OK\r\n"
STREAM_ENDLESS: Final = OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
DIALECTS: Final[dict[str, type[Dialect]]] = {"openai": OpenAIChat, "anthropic": AnthropicMessages}
MUCH: Final = "x" * 1_000
TEXT_ENDLESS: Final = {
    "openai": delta(content=MUCH),
    "anthropic": event_of({"type": "content_block_delta", "delta": {"type": "text_delta", "text": MUCH}}),
}


def headers(each: int) -> Iterator[bytes]:
    """So many headers at once, one batch after the other."""
    yield OK
    yield from (b"".join(b"X-%d-%d: y\r\n" % (batch, at) for at in range(each)) for batch in count())


def body(piece: bytes) -> Iterator[bytes]:
    """A body of the same piece again and again."""
    yield STREAM_ENDLESS
    yield from repeat(b"%x\r\n%s\r\n" % (len(piece), piece))


def line(*before: bytes) -> Iterator[bytes]:
    """What is no body, and a line that goes on."""
    yield from before
    yield from repeat(MUCH.encode())


async def asked_endless(wire: str, answer: Iterator[bytes], pause_seconds: float, seconds: float) -> ModelError:
    """What comes of asking a server within so many seconds that answers so, and pauses behind each piece."""
    import_module(wire)  # takes seconds on a busy machine, which are not the server's

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            for piece in answer:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause_seconds)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # whoever asked has gone
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        configured = ConfiguredModel(model=f"{wire}:m", base_url=f"http://127.0.0.1:{port}/v1", api_key=KEY_ENDLESS)
        model = SdkModel(DIALECTS[wire](), configured, BOUNDS)
        asking = answered([Candidate(model, "m")], request("x", config={"model": "m"}), ignore, seconds, once)
        with pytest.raises(ModelError) as caught:
            await asking
        await model.close()
        return caught.value


def once(error: ModelError, *_: object) -> None:
    """What may pass is asked again: here it is seen the first time."""
    raise error


@pytest.mark.parametrize("wire", DIALECTS)
@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        pytest.param(lambda wire: headers(1_000), Unreachable, "Too many headers", id="headers"),
        pytest.param(lambda wire: line(OK, b"X: "), Unreachable, "more than 8190 bytes", id="a header"),
        pytest.param(lambda wire: line(b"HTTP/1.1 200 "), Unreachable, "more than 8190 bytes", id="a status"),
        pytest.param(lambda wire: body(TEXT_ENDLESS[wire]), InvalidAnswer, "ACTS_LIMIT_MESSAGE_BYTES", id="a text"),
        pytest.param(lambda wire: body(event({"x": MUCH})), InvalidAnswer, "640000 bytes in one answer", id="events"),
        pytest.param(lambda wire: body(MUCH.encode()), InvalidAnswer, "640000 bytes in one answer", id="a line"),
    ],
)
def test_an_answer_that_never_ends_is_ended_by_its_size(
    wire: str, answer: Callable[[str], Iterator[bytes]], kind: type[ModelError], words: str
) -> None:
    error = asyncio.run(asked_endless(wire, answer(wire), 0, 60))
    assert type(error) is kind
    assert words in str(error)
    assert KEY_ENDLESS not in str(error)


@pytest.mark.parametrize("wire", DIALECTS)
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda wire: headers(1), id="headers"),
        pytest.param(lambda wire: body(b":"), id="a body"),
        pytest.param(lambda wire: body(TEXT_ENDLESS[wire][:-1]), id="a text"),
        pytest.param(lambda wire: repeat(b"HTTP/1.1 100 Continue\r\n\r\n"), id="the promise of an answer"),
    ],
)
def test_an_answer_that_drips_is_ended_by_the_time_of_its_request(
    wire: str, answer: Callable[[str], Iterator[bytes]]
) -> None:
    error = asyncio.run(asked_endless(wire, answer(wire), 0.1, 0.5))
    assert type(error) is Unreachable
    assert "has not answered within 0.5 seconds (request_seconds)" in str(error)


# The agent of `six_tools` runs, whatever stands between it and its model: requests are held against the provider's
# documented rules and against its SDK's own types, and the answer is written as the schema that was sent demands it.

ANSWERS = ({"calls": six_tools.CALLS, "output": None}, {"calls": [], "output": six_tools.OUTPUT})


def run(model: str, **settings: Any) -> Result:
    with local([six_tools.ACTIVITIES], model=model, **settings) as client:
        return client.submit_document(six_tools.REQUEST).wait()


def verify_result(result: Result) -> None:
    assert {call.status for call in result.calls} == {"done", "sent"}, result.calls
    assert [call.tool for call in result.calls] == [call["_tool"] for call in six_tools.CALLS]
    assert (result.status, result.output) == ("completed", six_tools.EXPECTED)


def answering(
    refusal: Callable[[Any], str | None], schema_of: Callable[[Any], Any], reply: Callable[[str], Reply]
) -> Callable[[Any], Reply]:
    """A server that holds requests to a provider's rules, and answers tick after tick as the schema demands it."""
    left: Iterator[Mapping[str, Any]] = iter(ANSWERS)

    def written(body: Any) -> Any:
        value, schema = next(left), schema_of(body)
        if schema is None:
            return value
        assert not compiled(schema).problems(as_sent(value, schema))
        return as_sent(value, schema)

    def answer(body: Any) -> Reply:
        try:
            words = refusal(body)
            return failing(400, words) if words is not None else reply(json.dumps(written(body), ensure_ascii=False))
        except Exception as error:  # which would look as if nobody were there
            return failing(404, repr(error))

    return answer


def verify_typed(body: Mapping[str, Any], params: Any) -> None:
    """The body is one that the SDK itself would send: its types admit it, and know every part of it."""
    assert not body.keys() - get_type_hints(params).keys()
    adapter = TypeAdapter[Any](params)  # which has to live as long as what it reads lazily
    for part in adapter.validate_python(body).values():
        if type(part).__name__ == "ValidatorIterator":
            list(part)


def openai_schema(body: Any) -> Any:
    format_ = body.get("response_format", {})
    return format_["json_schema"]["schema"] if format_.get("type") == "json_schema" else None


def anthropic_schema(body: Any) -> Any:
    return body.get("output_config", {}).get("format", {}).get("schema")


def test_the_agent_of_six_tools_runs_with_a_scripted_model(tmp_path: Path) -> None:
    script = tmp_path / "answers.json"
    script.write_text(json.dumps([{"when": "", "answer": answer, "times": 1} for answer in ANSWERS]), "utf-8")
    verify_result(run(f"scripted:{script}"))


@pytest.mark.parametrize("profile", PROFILES)
def test_the_agent_of_six_tools_runs_by_every_profile_of_chat_completions(profile: str) -> None:
    refusal = openai_refusal if profile in ("openai", "azure") else lambda body: None
    with model_server(answering(refusal, openai_schema, streamed)) as server:
        verify_result(run("openai:m", model_base_url=server.url, model_profile=profile))
        verify_asked(server)
        formats = [asked.body.get("response_format", {}).get("type") for asked in server.asked]
        assert formats == [{"json": "json_object", "text": None}.get(profile, "json_schema")] * 2
    for asked in server.asked:
        verify_typed(asked.body, CompletionCreateParamsStreaming)


def test_the_agent_of_six_tools_runs_with_structured_outputs_of_messages() -> None:
    with model_server(answering(anthropic_refusal, anthropic_schema, streamed_by_anthropic)) as server:
        url = server.url.removesuffix("/v1")
        verify_result(run("anthropic:m", model_base_url=url, model_api_key="k"))
        verify_asked(server)
    for asked in server.asked:
        assert anthropic_schema(asked.body) is not None
        verify_typed(asked.body, MessageCreateParamsStreaming)


def verify_asked(server: ModelServer) -> None:
    """Each tick is asked once: nothing was refused."""
    assert len(server.asked) == len(ANSWERS)


# Which parts of an answer are sent on while it is written (SPEC R13.8).


def test_r13_8_the_first_calls_are_sent_one_by_one_and_many_in_growing_numbers() -> None:
    sent: list[int] = []

    async def send(text: str, _: object) -> None:
        sent.append(text.count("_tool"))

    async def write(calls: int) -> None:
        with PartialAnswers(send) as on_text:
            on_text('{"calls": [')
            for index in range(calls):
                on_text(f'{{"_tool": "a", "n": {index}}},')
                await asyncio.sleep(0)

    asyncio.run(write(200))
    assert sent[:8] == list(range(1, 9))
    assert all(after >= before + before // 4 for before, after in pairwise(sent))
    assert sum(sent) < 6 * 200, "all that is sent is in proportion to the answer"


def test_r13_12_words_are_sent_as_an_output_until_a_call_or_other_words_come_in_their_place() -> None:
    sent: list[str] = []

    async def write() -> None:
        came = asyncio.Event()

        async def send(text: str, _: object) -> None:
            sent.append(text)
            came.set()

        with PartialAnswers(send) as on_text:
            for piece in (Words('{"calls": [], "output": "He'), Words('{"calls": [], "output": "I look'), call):
                on_text(piece)
                await came.wait()
                came.clear()

    call = '{"calls": [{"_tool": "a"}'
    asyncio.run(asyncio.wait_for(write(), 60))
    assert sent == ['{"calls": [], "output": "He', '{"calls": [], "output": "I look', call]


def test_r13_3_what_was_reported_is_sent_at_once_and_with_each_part_also_where_nobody_wants_the_text() -> None:
    reported = Reported(Usage(100, 1, is_whole=False), 7)
    sent: list[tuple[str, Reported | None]] = []

    async def write(*, tells_text: bool) -> None:
        came = asyncio.Event()

        async def send(text: str, said: Reported | None) -> None:
            sent.append((text, said))
            came.set()

        with PartialAnswers(send, tells_text=tells_text) as on_text:
            on_text(reported)
            await came.wait()
            came.clear()
            on_text(call)
            await (came.wait() if tells_text else asyncio.sleep(0))

    call = '{"calls": [{"_tool": "a"}'
    for tells_text in (True, False):
        asyncio.run(asyncio.wait_for(write(tells_text=tells_text), 60))
    assert sent == [("", reported), (call, reported), ("", reported)]
