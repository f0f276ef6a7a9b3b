"""Models behind pydantic-ai: its own test models, and three providers as their documentation shows their answers."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Any, Final

import pydantic_ai
import pytest
from pydantic_ai.models.function import DeltaToolCall, FunctionModel

from acts_celery import (
    Answer,
    BadRequest,
    ContextTooLong,
    InvalidAnswer,
    ModelError,
    RateLimited,
    Refused,
    Rejected,
    Truncated,
    Unreachable,
    Usage,
    activity,
    local,
)
from acts_celery.broker_config import ConfiguredModel, Settings
from acts_celery.worker.agent.asking import make_model, missing_settings, unenforced
from acts_celery.worker.agent.clients import Bounds
from acts_celery.worker.agent.prices import price_of
from acts_celery.worker.errors import WorkerError
from acts_celery.worker.registry.activities import Registry
from acts_celery.worker.registry.models import ModelRequest, OnText, ignore
from tests.docs.pages import ROOT, run_page

from .asked import ask, on_thread
from .server import Asked, ModelServer, Reply, model_server

KEY = "key-4711-secret"
TEXT = '{"output": "Paris"}'
SCHEMA = {
    "type": "object",
    "properties": {"output": {"type": "string"}},
    "required": ["output"],
    "additionalProperties": False,
}
EVENTS = {"Content-Type": "text/event-stream"}
Call = tuple[str, dict[str, Any]]


def sent_as_events(*events: Mapping[str, Any], end: bytes = b"", is_cut: bool = False) -> Reply:
    named = [f"event: {one['type']}\n".encode() if "type" in one else b"" for one in events]
    chunks = [name + b"data: " + json.dumps(one).encode() + b"\n\n" for name, one in zip(named, events, strict=True)]
    return Reply([*chunks, *([end] if end else [])], headers=EVENTS, is_cut=is_cut)


def gemini(text: str = "", calls: tuple[Call, ...] = (), finish: str | None = "STOP") -> Reply:
    """`streamGenerateContent`; the first call has a signature, which has to come back with it."""
    parts: list[dict[str, Any]] = [{"text": piece} for piece in (text[:9], text[9:]) if piece]
    parts += [{"functionCall": {"name": name, "args": given}} for name, given in calls]
    if calls:
        parts[-len(calls)]["thoughtSignature"] = base64.b64encode(b"signed").decode()
    counted = {"promptTokenCount": 90, "cachedContentTokenCount": 10, "candidatesTokenCount": 22}
    chunks: list[dict[str, Any]] = [{"candidates": [{"content": {"role": "model", "parts": [one]}}]} for one in parts]
    last = {"candidates": [{"content": {"role": "model", "parts": []}, "finishReason": finish}]} if finish else {}
    return sent_as_events(*chunks, {**last, "usageMetadata": counted, "modelVersion": "gemini-3-pro-001"})


def mistral(text: str = "", calls: tuple[Call, ...] = (), finish: str | None = "stop") -> Reply:
    """Chat completions, whose calls come whole."""

    def chunk(delta: dict[str, Any], reason: str | None = None, **more: Any) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        known = {"id": "c1", "object": "chat.completion.chunk", "created": 1702256327, "model": "mistral-large-2512"}
        return {**known, "choices": [choice], **more}

    called = [
        {"id": f"Call0000{at}", "index": at, "function": {"name": name, "arguments": json.dumps(given)}}
        for at, (name, given) in enumerate(calls)
    ]
    usage = {"prompt_tokens": 90, "total_tokens": 112, "completion_tokens": 22}
    pieces = [chunk({"content": piece}) for piece in (text[:9], text[9:]) if piece]
    reason = "tool_calls" if calls and finish == "stop" else finish
    last = chunk({"content": "", **({"tool_calls": called} if called else {})}, reason, usage=usage)
    return sent_as_events(chunk({"role": "assistant", "content": ""}), *pieces, last, end=b"data: [DONE]\n\n")


def responses(text: str = "", calls: tuple[Call, ...] = (), finish: str | None = "stop") -> Reply:
    """OpenAI's Responses; the arguments of a call come in pieces, behind a thought that is encrypted."""
    events: list[dict[str, Any]] = []
    items: list[dict[str, Any]] = []
    if calls:
        items.append({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"})
    if text:
        part = {"type": "output_text", "text": text, "annotations": []}
        items.append({"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [part]})
    for at, (name, given) in enumerate(calls):
        called = {"type": "function_call", "id": f"fc_{at}", "call_id": f"call_{at}", "status": "completed"}
        items.append({**called, "name": name, "arguments": json.dumps(given)})
    for at, item in enumerate(items):
        place = {"output_index": at, "item_id": item["id"]}
        events.append({"type": "response.output_item.added", "output_index": at, "item": _begun(item)})
        if item["type"] == "message":
            events += [
                {"type": "response.output_text.delta", **place, "content_index": 0, "delta": piece, "logprobs": []}
                for piece in (text[:9], text[9:])
            ]
        elif item["type"] == "function_call":
            said = item["arguments"]
            events += [
                {"type": "response.function_call_arguments.delta", **place, "delta": piece}
                for piece in (said[:5], said[5:])
            ]
        events.append({"type": "response.output_item.done", "output_index": at, "item": item})
    whole = {"id": "resp_1", "object": "response", "created_at": 1741386163, "model": "gpt-5-2026", "tools": []}
    whole |= {"parallel_tool_calls": True, "tool_choice": "auto"}
    usage = {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 10}, "output_tokens": 22}
    usage |= {"output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 122}
    done = {**whole, "status": "completed", "output": items, "usage": usage}
    ends = {
        "stop": ("response.completed", done),
        "length": (
            "response.incomplete",
            {**done, "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
        ),
    }
    first = {"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}}
    last = [{"type": ends[finish][0], "response": ends[finish][1]}] if finish else []
    numbered = [{**event, "sequence_number": at} for at, event in enumerate([first, *events, *last])]
    return sent_as_events(*numbered, end=b"data: [DONE]\n\n")


def _begun(item: dict[str, Any]) -> dict[str, Any]:
    empty: dict[str, dict[str, Any]] = {
        "message": {"content": []},
        "function_call": {"arguments": ""},
        "reasoning": {"encrypted_content": None},
    }
    return {**item, **empty[item["type"]], "status": "in_progress"}


@dataclass(frozen=True)
class Provider:
    """One provider: its model, and its answers."""

    name: str
    reply: Callable[..., Reply]
    length: str
    path: str = ""
    """What its addresses end with, behind the server's."""

    def configured(self, server: ModelServer, **more: Any) -> dict[str, Any]:
        url = server.url.removesuffix("/v1") + self.path
        return {"model": f"pydantic-ai:{self.name}", "base_url": url, "api_key": KEY, **more}


GEMINI: Final = Provider("google:gemini-3-pro-preview", gemini, "MAX_TOKENS")
MISTRAL: Final = Provider("mistral:mistral-large-latest", mistral, "length")
RESPONSES: Final = Provider("openai-responses:gpt-5", responses, "length", "/v1")
each_provider = pytest.mark.parametrize("provider", [GEMINI, MISTRAL, RESPONSES], ids=lambda one: one.name)


def asked(
    provider: Provider, reply: Reply, *messages: Any, on_text: OnText = ignore, schema: Any = SCHEMA, **config: Any
) -> tuple[list[Asked], Answer]:
    """What the model makes of a server's reply, and what it had sent."""

    async def answer(server: ModelServer) -> Answer:
        given = ConfiguredModel(**provider.configured(server))
        model = make_model(given, Registry(), on_thread, Bounds(1_000_000, 4))
        said = messages or ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"})
        try:
            return await model.ask(ModelRequest(said, schema, {"model": given.name, **config}), on_text)
        finally:
            await model.close()

    with model_server(lambda body: reply) as server:
        return server.asked, asyncio.run(answer(server))


@each_provider
def test_an_answer_comes_in_pieces_with_its_usage(provider: Provider) -> None:
    pieces: list[Any] = []
    (sent,), answer = asked(provider, provider.reply(TEXT), on_text=pieces.append, max_output_tokens=77)
    assert answer.text == "".join(piece for piece in pieces if isinstance(piece, str)) == TEXT
    assert sum(isinstance(piece, str) for piece in pieces) == 2
    assert answer.usage is not None
    assert (answer.usage.output, answer.usage.is_whole) == (22, True)
    assert "77" in json.dumps(sent.body)
    assert "Be brief." in json.dumps(sent.body)


def test_what_a_provider_enforces_of_the_schema_is_sent_and_else_it_is_shown_and_said() -> None:
    (sent,), answer = asked(GEMINI, gemini(TEXT))
    assert sent.body["generationConfig"]["responseJsonSchema"]["properties"] == SCHEMA["properties"]
    assert answer.findings == ()
    (sent,), answer = asked(RESPONSES, responses(TEXT))
    assert sent.body["text"]["format"] == {**sent.body["text"]["format"], "strict": True, "schema": SCHEMA}
    (sent,), answer = asked(MISTRAL, mistral(TEXT))
    assert "must match this JSON Schema" in json.dumps(sent.body["messages"])
    (finding,) = answer.findings
    assert "enforces none" in finding


@pytest.mark.parametrize(
    ("model", "reason"),
    [("mistral:mistral-large-latest", "the provider enforces none"), ("google:gemini-3-pro-preview", None)],
)
def test_a_check_says_what_is_not_enforced(model: str, reason: str | None) -> None:
    assert unenforced(ConfiguredModel(model=f"pydantic-ai:{model}"), SCHEMA, is_native=False)[0] == reason


@each_provider
def test_an_agent_calls_functions_and_its_provider_gets_back_what_it_said_beside_them(provider: Provider) -> None:
    ran: list[str] = []

    @activity
    def weather(city: str) -> str:
        """The weather of a city."""
        ran.append(city)
        return f"sunny in {city}"

    calls = (("weather", {"city": "Париж"}), ("weather", {"city": "Lyon"}))
    first, last = provider.reply(calls=calls), provider.reply(calls=(("output", {"output": "sunny"}),))
    with model_server(lambda body: last if "sunny in" in json.dumps(body) else first) as server:
        models = {"theirs": provider.configured(server, wire="tools", profile="compatible")}
        with local([weather], models=models) as client:
            result = client.submit(["How is it?"], schema=str, tools=["weather"], config={"model": "theirs"}).wait()
    assert result.output == "sunny", result.to_dict()
    assert sorted(ran) == ["Lyon", "Париж"]
    asked_first, asked_last = (json.dumps(server.asked[at].body, ensure_ascii=False) for at in (0, -1))
    assert "sunny in Париж" in asked_last
    assert "sunny in Lyon" in asked_last
    own = {GEMINI: base64.b64encode(b"signed").decode(), RESPONSES: "sealed"}.get(provider, "")
    assert own in asked_last
    assert not own or own not in asked_first


BUSY = {"object": "error", "message": "Requests rate limit exceeded", "type": "rate_limited", "code": "1300"}
SPENT = {
    "error": {"message": "You exceeded your current quota", "type": "insufficient_quota", "code": "insufficient_quota"}
}
LONG = {"error": {"message": "Your input exceeds the context window of this model.", "code": "context_length_exceeded"}}
DELAY = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7s"}]


def of_gemini(code: int, status: str, message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "status": status, **more}}


@pytest.mark.parametrize(
    ("provider", "status", "body", "error"),
    [
        (GEMINI, 429, of_gemini(429, "RESOURCE_EXHAUSTED", "Resource exhausted", details=DELAY), RateLimited),
        (GEMINI, 503, of_gemini(503, "UNAVAILABLE", "The model is overloaded."), Unreachable),
        (GEMINI, 400, of_gemini(400, "INVALID_ARGUMENT", f"API key not valid: {KEY}"), BadRequest),
        (
            GEMINI,
            400,
            of_gemini(400, "INVALID_ARGUMENT", "The input token count (1048577) exceeds the maximum (1048576)."),
            ContextTooLong,
        ),
        (MISTRAL, 429, BUSY, RateLimited),
        (MISTRAL, 401, {"detail": "Unauthorized"}, BadRequest),
        (MISTRAL, 500, {"object": "error", "message": "Service unavailable", "type": "internal"}, Unreachable),
        (RESPONSES, 429, SPENT, BadRequest),
        (RESPONSES, 400, LONG, ContextTooLong),
        (RESPONSES, 404, {"error": {"message": "The model does not exist", "code": "model_not_found"}}, BadRequest),
    ],
)
def test_an_error_of_a_provider_is_one_of_ours(
    provider: Provider, status: int, body: dict[str, Any], error: type[ModelError]
) -> None:
    with pytest.raises(ModelError) as raised:
        asked(provider, Reply([json.dumps(body).encode()], status=status), schema=None)
    assert type(raised.value) is error
    assert raised.value.status == status
    assert KEY not in str(raised.value)
    assert raised.value.retry_after_seconds == (7 if "details" in body.get("error", {}) else None)


@each_provider
def test_an_answer_that_is_cut_off_is_truncated_and_paid_for(provider: Provider) -> None:
    for finish in (provider.length, None):
        with pytest.raises(Truncated) as raised:
            asked(provider, provider.reply(TEXT, finish=finish))
        assert raised.value.answer is not None
        assert raised.value.answer.text == TEXT


def test_what_a_provider_filters_is_refused_and_a_call_that_it_calls_malformed_is_invalid() -> None:
    with pytest.raises(Refused):
        asked(GEMINI, gemini("Well", finish="SAFETY"))
    with pytest.raises(InvalidAnswer, match="MALFORMED_FUNCTION_CALL"):
        asked(GEMINI, gemini(finish="MALFORMED_FUNCTION_CALL"))


def test_a_setting_that_a_provider_has_not_is_refused_and_not_passed_over() -> None:
    with pytest.raises(BadRequest, match="seed"):
        asked(RESPONSES, responses(TEXT), seed=4)
    model = {"model": "pydantic-ai:openai-responses:gpt-5", "api_key": KEY}
    assert missing_settings(ConfiguredModel(**model), {"seed": 4, "temperature": 0.5}) == ["seed"]
    with local(models={"theirs": model}) as client, pytest.raises(Rejected) as raised:
        client.submit([], schema=str, config={"model": "theirs", "stop": "."})
    assert [problem.pointer for problem in raised.value.errors] == ["/config/stop"]


def test_a_picture_is_sent_by_its_bytes_and_an_address_is_not_fetched() -> None:
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
    file = {"type": "file", "file": "cat", "media_type": "image/png", "data": png}
    (sent,), _ = asked(GEMINI, gemini(TEXT), {"role": "user", "content": [{"type": "text", "text": "What?"}, file]})
    assert png in json.dumps(sent.body)
    elsewhere = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/cat.png"}}
    with pytest.raises(BadRequest, match="image_url"):
        asked(GEMINI, gemini(TEXT), {"role": "user", "content": [elsewhere]})


def test_a_price_is_that_of_the_provider_behind() -> None:
    usage = Usage(1_000, 100)
    known = price_of(ConfiguredModel(model="openai:gpt-5"), usage)
    assert known is not None
    assert price_of(ConfiguredModel(model="pydantic-ai:openai-responses:gpt-5"), usage) == known
    assert price_of(ConfiguredModel(model="pydantic-ai:google:gemini-2.5-flash"), usage) is not None
    assert price_of(ConfiguredModel(model="pydantic-ai:heroku:gpt-5"), usage) is None


def made(model: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A model of pydantic-ai's own, as ours."""
    monkeypatch.setattr(pydantic_ai.models, "infer_model", lambda *_: model)
    return make_model(ConfiguredModel(model="pydantic-ai:theirs:m"), Registry(), on_thread, Bounds(10_000, 4))


def test_the_test_model_of_pydantic_ai_answers() -> None:
    with local(models={"theirs": {"model": "pydantic-ai:test"}}) as client:
        result = client.submit(["Say hello"], schema=str, config={"model": "theirs", "ticks": 1}).wait()
    assert result.status == "failed"  # it says "success (no tool calls)", which is no plan
    assert [tick.usage is not None for tick in result.ticks or ()] == [True]


def test_calls_whose_pieces_are_mixed_are_put_together_and_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def mixed(messages: Any, info: Any) -> Any:
        yield {0: DeltaToolCall("a", '{"x"', tool_call_id="a"), 1: DeltaToolCall("b", "", tool_call_id="b")}
        yield {1: DeltaToolCall(json_args='{"y": 2}')}
        yield {0: DeltaToolCall(json_args=": 1}")}

    call = {"type": "object", "required": ["_tool"], "additionalProperties": False}
    tools = [
        {**call, "properties": {"_tool": {"const": name}, key: {"type": "integer"}}}
        for name, key in (("a", "x"), ("b", "y"))
    ]
    schema = {"properties": {"calls": {"items": {"anyOf": tools}}, "output": {"anyOf": [{"type": "null"}]}}}
    model = made(FunctionModel(stream_function=mixed), monkeypatch)
    answer = ask(model, "go", schema=schema, config={"model": "m", "wire": "tools"})
    assert json.loads(answer.text)["calls"] == [{"_tool": "a", "x": 1}, {"_tool": "b", "y": 2}]

    async def endless(messages: Any, info: Any) -> Any:
        while True:
            yield "word " * 100

    with pytest.raises(InvalidAnswer, match="ACTS_LIMIT_MESSAGE_BYTES"):
        ask(made(FunctionModel(stream_function=endless), monkeypatch), "go", config={"model": "m"})


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    find = util.find_spec
    monkeypatch.setattr(
        "acts_celery.worker.agent.pydantic_models.find_spec", lambda name: None if name == "pydantic_ai" else find(name)
    )
    with pytest.raises(WorkerError, match=r"\[pydantic-ai\]"):
        make_model(ConfiguredModel(model="pydantic-ai:google:g"), Registry(), on_thread, Bounds(10_000, 4))


def test_a_provider_that_is_not_there_or_lacks_its_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOOGLE_API_KEY", raising=False)
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    for name, word in (("nobody:m", "nobody"), ("google:gemini-3-pro-preview", "GOOGLE_API_KEY")):
        model = make_model(ConfiguredModel(model=f"pydantic-ai:{name}"), Registry(), on_thread, Bounds(10_000, 4))
        with pytest.raises(BadRequest, match=word):
            ask(model, "go", config={"model": name})


def test_the_commands_of_the_page_print_what_they_say(tmp_path: Path) -> None:
    request = {"context": [{"type": "text", "message": "Say hello."}], "schema": {"type": "string"}, "tools": {}}
    folder = tmp_path / "page"
    folder.mkdir()
    (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    run_page(page.partition("### Other providers")[2].partition("\n### ")[0], folder)


def test_the_settings_of_a_worker_may_name_one() -> None:
    models = {"theirs": {"model": "pydantic-ai:google:gemini-3-pro-preview", "api_key": KEY}}
    settings = Settings(models=models)
    assert settings.models["theirs"].name == "google:gemini-3-pro-preview"
    assert KEY not in repr(settings)
