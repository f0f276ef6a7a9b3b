"""Model servers whose models call functions, by both wires, streamed or not: each request is held to what the
provider's documentation demands, and to the types of its SDK, before it is answered.

OpenAI: platform.openai.com/docs/guides/function-calling and the API reference of Chat Completions. Anthropic:
docs.claude.com, "Implement tool use", "Prompt caching" and the API reference of Messages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import TypeAdapter

from .provider_rules import anthropic_faults, openai_faults
from .server import USAGE, Reply, delta, event

STREAM: Final = {"Content-Type": "text/event-stream"}
_TOP: Final = ("oneOf", "anyOf", "allOf", "enum", "not")
_REASONS: Final = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}
"""Why an answer has ended, in Anthropic's words."""


@dataclass(frozen=True)
class Say:
    """What a model answers: words, and calls of functions, each a name and its arguments, as a value or a text."""

    calls: Sequence[tuple[str, Any]] = ()
    words: str = ""
    finish: str | None = None
    """In OpenAI's words; by default what fits."""
    refusal: str = ""


def output(value: Any) -> tuple[str, Any]:
    """A call of the output."""
    return "output", {"output": value}


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


class OpenAIWire:
    """Chat Completions."""

    @staticmethod
    def verify(body: Mapping[str, Any]) -> None:
        """Raise `AssertionError` where a request breaks a rule."""
        from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolUnionParam

        _verify_types(ChatCompletionMessageParam, body["messages"])
        _verify_types(ChatCompletionToolUnionParam, body.get("tools", ()))
        functions = [tool["function"] for tool in body.get("tools", ())]
        _verify_functions(functions, "parameters", 64, openai_faults)
        assert body.get("tool_choice", "auto") in ("auto", "required", "none")
        waiting: list[str] = []
        seen: set[str] = set()
        for message in body["messages"]:
            if message["role"] == "tool":
                assert message["tool_call_id"] in waiting, "a tool message that answers no call before it"
                waiting.remove(message["tool_call_id"])
                continue
            assert not waiting, f"calls without tool messages: {waiting}"
            assert message["content"] or message.get("tool_calls"), "an empty message"
            waiting = [call["id"] for call in message.get("tool_calls", ())]
            assert not seen.intersection(waiting), "an id twice"
            seen.update(waiting)
            for call in message.get("tool_calls", ()):
                assert re.fullmatch("[a-zA-Z0-9_-]{1,64}", call["function"]["name"])
                assert isinstance(json.loads(call["function"]["arguments"]), dict)
        assert not waiting, f"calls without tool messages: {waiting}"

    @staticmethod
    def reply(say: Say, *, streams: bool) -> Reply:
        """The answer as it comes."""
        finish = say.finish or ("tool_calls" if say.calls else "stop")
        made = [
            {"id": f"call_{at}", "type": "function", "function": {"name": name, "arguments": _text(arguments)}}
            for at, (name, arguments) in enumerate(say.calls)
        ]
        if not streams:
            message: dict[str, Any] = {"role": "assistant", "content": say.words or None}
            message |= {**({"tool_calls": made} if made else {}), **({"refusal": say.refusal} if say.refusal else {})}
            choice = {"index": 0, "message": message, "finish_reason": finish}
            return Reply([json.dumps({"model": "m-2026", "choices": [choice], "usage": USAGE}).encode()])
        return Reply([*OpenAIWire.chunks(say), *OpenAIWire.end(finish)], headers=STREAM)

    @staticmethod
    def chunks(say: Say) -> list[bytes]:
        """The pieces of an answer as it is streamed, without its end."""
        chunks = [delta(role="assistant", content=None), *([delta(refusal=say.refusal)] if say.refusal else [])]
        chunks += [delta(content=piece) for piece in _pieces(say.words)]
        for at, (name, arguments) in enumerate(say.calls):
            begin = {"index": at, "id": f"call_{at}", "type": "function", "function": {"name": name, "arguments": ""}}
            chunks.append(delta(tool_calls=[begin]))
            chunks += [delta(tool_calls=[{"index": at, "function": {"arguments": p}}]) for p in _pieces(arguments)]
        return chunks

    @staticmethod
    def error(type_: str, message: str) -> dict[str, Any]:
        """An error."""
        return {"error": {"message": message, "type": type_, "param": None, "code": None}}

    @staticmethod
    def end(finish: str) -> list[bytes]:
        """The end of a stream."""
        last = {"model": "m-2026", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}
        return [event(last), event({"model": "m-2026", "choices": [], "usage": USAGE}), event(b"[DONE]")]


class AnthropicWire:
    """Messages."""

    @staticmethod
    def verify(body: Mapping[str, Any]) -> None:
        """Raise `AssertionError` where a request breaks a rule."""
        from anthropic.types import MessageParam, TextBlockParam, ToolUnionParam

        _verify_types(MessageParam, body["messages"])
        _verify_types(TextBlockParam, body.get("system", ()))
        _verify_types(ToolUnionParam, body.get("tools", ()))
        _verify_functions(body.get("tools", ()), "input_schema", 128, anthropic_faults)
        assert body.get("tool_choice", {"type": "auto"})["type"] in ("auto", "any", "none")
        assert body["messages"][0]["role"] == "user"
        blocks, waiting, seen = [*body.get("system", ())], list[str](), set[str]()
        for before, message in zip([None, *body["messages"]], body["messages"], strict=False):
            assert before is None or before["role"] != message["role"], "roles do not alternate"
            content = message["content"]
            own = [{"type": "text", "text": content}] if isinstance(content, str) else content
            assert own, "an empty message"
            blocks += own
            results = [block for block in own if block["type"] == "tool_result"]
            assert own[: len(results)] == results, "something stands before the results of tools"
            assert sorted(block["tool_use_id"] for block in results) == sorted(waiting), "results that do not fit"
            waiting = [block["id"] for block in own if block["type"] == "tool_use"]
            assert not seen.intersection(waiting), "an id twice"
            seen.update(waiting)
            assert all(re.fullmatch("[a-zA-Z0-9_-]+", id_) for id_ in waiting)
        assert not waiting, "calls without results"
        assert all(block["text"].strip() for block in blocks if block["type"] == "text"), "an empty text"
        assert sum("cache_control" in block for block in [*blocks, *body.get("tools", ())]) <= 4

    @staticmethod
    def reply(say: Say, *, streams: bool) -> Reply:
        """The answer as it comes."""
        finish = say.finish or ("content_filter" if say.refusal else "tool_calls" if say.calls else "stop")
        if streams:
            return Reply([*AnthropicWire.chunks(say), *AnthropicWire.end(finish)], headers=STREAM)
        content: list[Any] = [{"type": "text", "text": say.words}] if say.words else []
        content += [
            {"type": "tool_use", "id": f"toolu_{at}", "name": name, "input": json.loads(_text(arguments) or "{}")}
            for at, (name, arguments) in enumerate(say.calls)
        ]
        usage = {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 22}
        body = {"model": "m-2026", "content": content, "stop_reason": _REASONS[finish], "usage": usage}
        return Reply([json.dumps(body).encode()])

    @staticmethod
    def chunks(say: Say) -> list[bytes]:
        """The pieces of an answer as it is streamed, without its end."""
        usage = {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": 1}
        start: dict[str, Any] = {"model": "m-2026", "content": [], "stop_reason": None, "usage": usage}
        events: list[dict[str, Any]] = [{"type": "message_start", "message": start}, {"type": "ping"}]
        texts = [("text", {"type": "text", "text": ""}, "text_delta", _pieces(say.words))] if say.words else []
        calls = [
            ("partial_json", {"type": "tool_use", "id": f"toolu_{at}", "name": name, "input": {}}, "input_json_delta",
             ["", *_pieces(arguments)])
            for at, (name, arguments) in enumerate(say.calls)
        ]  # fmt: skip
        for at, (key, block, kind, pieces) in enumerate([*texts, *calls]):
            events.append({"type": "content_block_start", "index": at, "content_block": block})
            said = [{"type": kind, key: piece} for piece in pieces]
            events += [{"type": "content_block_delta", "index": at, "delta": each} for each in said]
            events.append({"type": "content_block_stop", "index": at})
        return [_named(each) for each in events]

    @staticmethod
    def error(type_: str, message: str) -> dict[str, Any]:
        """An error."""
        return {"type": "error", "error": {"type": type_, "message": message}, "request_id": "req_1"}

    @staticmethod
    def end(finish: str) -> list[bytes]:
        """The end of a stream."""
        last = {"type": "message_delta", "delta": {"stop_reason": _REASONS[finish]}, "usage": {"output_tokens": 22}}
        return [_named(last), _named({"type": "message_stop"})]


Wire = type[OpenAIWire] | type[AnthropicWire]
WIRES: Final[Mapping[str, Wire]] = {"openai": OpenAIWire, "anthropic": AnthropicWire}


def wire_of(body: Mapping[str, Any]) -> Wire:
    """The wire that a request speaks."""
    return AnthropicWire if "max_tokens" in body and "stream_options" not in body else OpenAIWire


def _pieces(arguments: Any) -> list[str]:
    text = _text(arguments)
    size = max(7, len(text) // 1_000)
    return [text[at : at + size] for at in range(0, len(text), size)]


def _named(data: dict[str, Any]) -> bytes:
    return f"event: {data['type']}\ndata: {json.dumps(data)}\n\n".encode()


def _verify_functions(
    functions: Sequence[Mapping[str, Any]], key: str, longest: int, faults: Callable[[Any], Iterable[str]]
) -> None:
    names = [function["name"] for function in functions]
    assert len(set(names)) == len(names), "a name twice"
    for function in functions:
        schema = function[key]
        assert re.fullmatch(f"[a-zA-Z0-9_-]{{1,{longest}}}", function["name"])
        assert schema["type"] == "object"
        assert not schema.keys() & set(_TOP), f"{set(_TOP) & schema.keys()} at the top of a schema"
        assert set(schema.get("required", ())) <= set(schema.get("properties", ()))
        assert not (function.get("strict") and [*faults(schema)]), "not a strict schema"


def _verify_types(kind: Any, values: Iterable[Any]) -> None:
    """Hold values against a type of the SDK, in all their depth."""
    adapter = TypeAdapter(kind)
    for value in values:
        _exhaust(adapter.validate_python(value))


def _exhaust(value: Any) -> None:
    if isinstance(value, Mapping):
        for below in value.values():
            _exhaust(below)
    elif isinstance(value, Iterable) and not isinstance(value, str):
        for below in value:
            _exhaust(below)


@dataclass
class Speaker:
    """Answers the ticks of each topic as it was told; `broken` are the rules that requests have broken."""

    replies: dict[str, list[Callable[[Wire], Reply]]] = field(default_factory=dict)
    bodies: dict[str, list[Any]] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def __call__(self, body: Any) -> Reply:
        wire = wire_of(body)
        try:
            wire.verify(body)
        except Exception as error:
            self.broken.append(f"{wire.__name__}: {error!r:.2000}")
            return Reply(
                [json.dumps({"error": {"type": "invalid_request_error", "message": str(error)}}).encode()], 400
            )
        topic = re.findall("topic: (\\w+)", json.dumps(body["messages"], ensure_ascii=False))[0]
        bodies = self.bodies.setdefault(topic, [])
        if body not in bodies:  # else it is asked again
            bodies.append(body)
        return self.replies[topic][bodies.index(body)](wire)
