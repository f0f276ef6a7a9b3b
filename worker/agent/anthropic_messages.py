"""`anthropic`: Anthropic's Messages, with structured outputs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from ...broker_config import ConfiguredModel
from ...protocol.requests.tool_texts import Function
from .. import limits
from ..registry.models import Usage, count_of
from .called import THINKING, Piece, text_of
from .clients import PLAIN, extra_body
from .fitting import Fitted
from .openai_chat import ASK, anthropic_messages, texts_in
from .sdk_model import Written

# Turns: a conversation as Anthropic's Messages take it, with the marks up to which it is cached (SPEC R12.6).
#
# Calls and their results are blocks there: the results stand first in the turn of the user that follows the calls, all
# of them. What is sent again is billed at a tenth where a mark says so: one stands behind tools and system, one at the
# end of what was sent for the tick before, one at the end, which the next tick begins with. Four are allowed.

Block = dict[str, Any]
Turn = dict[str, Any]

_MARK: Final = {"cache_control": {"type": "ephemeral"}}


def turns(messages: Iterable[Mapping[str, Any]]) -> list[Turn]:
    """The turns of chat messages without those of the system; what one side says in a row is one turn, of blocks."""
    found: list[Turn] = []
    for message in messages:
        role = "assistant" if message.get("role") == "assistant" else "user"
        blocks = list(_blocks(message))
        if found and found[-1]["role"] == role:
            found[-1]["content"] += blocks
        elif blocks:
            found.append({"role": role, "content": blocks})
    return found


def mark(system: Sequence[Block], messages: Sequence[Turn]) -> None:
    """Put the marks on system and turns, in place."""
    answers = [at for at, turn in enumerate(messages) if turn["role"] == "assistant"]
    ends = [at for at in (answers[-1] - 1 if answers else -1, len(messages) - 1) if at >= 0]
    for turn in (messages[at] for at in dict.fromkeys(ends)):
        if isinstance(turn["content"], str):
            turn["content"] = [_text(turn["content"])]
        turn["content"][-1] |= _MARK
    if system:
        system[-1].update(_MARK)


def _blocks(message: Mapping[str, Any]) -> Iterator[Block]:
    content = message.get("content")
    yield from map(dict, message.get(THINKING, ()))
    if message.get("role") == "tool":
        yield {"type": "tool_result", "tool_use_id": message.get("tool_call_id"), "content": content}
    elif isinstance(content, str):
        yield from ([_text(content)] if content.strip() else [])
    elif isinstance(content, list):
        yield from map(dict, content)
    for call in message.get("tool_calls") or ():
        function = call["function"]
        yield from map(dict, call.get(THINKING, ()))
        yield {"type": "tool_use", "id": call["id"], "name": function["name"], "input": _input(function["arguments"])}


def _input(arguments: str) -> Any:
    """The arguments of a call, which the engine has written, or who wrote the context."""
    try:
        value = json.loads(arguments)
    except ValueError:
        return {"arguments": arguments}
    return value if isinstance(value, dict) else {"arguments": value}


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


_FINISHES: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}


class AnthropicMessages:
    """Messages."""

    sdk = "anthropic"
    url = "https://api.anthropic.com"
    settings: tuple[str, ...] = ("temperature", "top_p", "stop", "reasoning_effort")
    refusable: Mapping[str, re.Pattern[str]] = MappingProxyType({})

    def client(self, sdk: Any, options: Mapping[str, Any]) -> Any:
        """A client of the SDK."""
        return sdk.AsyncAnthropic(**options)

    def asking(self, client: Any, sent: Fitted, configured: ConfiguredModel) -> AbstractAsyncContextManager[Any]:
        """The request. System messages stand apart; they are there from the first tick on, so the prefix stays."""
        body = self._body(sent, configured)
        responses = client.messages.with_streaming_response
        asking: AbstractAsyncContextManager[Any] = responses.create(
            model=body["model"], max_tokens=body["max_tokens"], messages=[], extra_body=body, extra_headers=PLAIN
        )
        return asking

    def take(self, written: Written, chunk: Mapping[str, Any], *, streams: bool) -> str:
        """Take in an event. What a server leaves out, or fills with something else, counts as not said."""
        if not streams:
            return self._whole(written, chunk)
        match chunk:
            case {"type": "message_start", "message": dict() as message}:
                return self._whole(written, message)
            case {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}:
                return written.add(text)
            case {"type": "content_block_start", "index": int(at), "content_block": {"type": "tool_use"}}:
                return written.take_call(_piece(chunk["content_block"], at))
            case {"type": "content_block_start", "index": int(at), "content_block": dict()}:
                written.keep_block(at, chunk["content_block"])
                return written.skip_call(at)
            case {
                "type": "content_block_delta",
                "index": int(at),
                "delta": {"type": "thinking_delta" | "signature_delta"},
            }:
                written.keep_block(at, {key: part for key, part in chunk["delta"].items() if key != "type"})
            case {"type": "content_block_delta", "index": int(at), "delta": {"partial_json": str(piece)}}:
                return written.take_call(Piece(at, arguments=piece))
            case {"type": "content_block_stop", "index": int(at)}:
                return written.end_call(at)
            case {"type": "message_delta", "delta": dict() as delta, **rest}:
                _end(written, delta)
                _count(written, rest.get("usage"))
        return ""

    def _whole(self, written: Written, message: Mapping[str, Any]) -> str:
        written.call_itself(message.get("model"))
        _count(written, message.get("usage"))
        _end(written, message)
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        texts = [block.get("text") for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
        said = "".join(map(written.add, texts))
        for at, block in enumerate(block if isinstance(block, dict) else {} for block in blocks):
            if block.get("type") != "tool_use":
                written.keep_block(at, block)
            else:
                written.take_call(replace(_piece(block, at), arguments=json.dumps(block.get("input")), is_whole=True))
        return said

    def _body(self, sent: Fitted, configured: ConfiguredModel) -> dict[str, Any]:
        config = sent.config
        said = [each for each in sent.messages if each.get("role") == "system"]
        system = [{"type": "text", "text": text} for each in said for text in texts_in(each.get("content"))]
        messages = anthropic_messages(each for each in sent.messages if each.get("role") != "system")
        messages = (turns(messages) if sent.functions else messages) or [dict(ASK)]
        if sent.continues:
            mark(system, messages)
        body: dict[str, Any] = {
            "model": config["model"],
            "max_tokens": config.get("max_output_tokens") or limits.MOST_TOKENS,
            "messages": messages,
            "stream": True,
            **({"system": system} if system else {}),
        }
        output: dict[str, Any] = {}
        if sent.format is not None:
            output["format"] = {"type": "json_schema", "schema": sent.format}
        if config.get("reasoning_effort") is not None:
            output["effort"] = config["reasoning_effort"]
        if output:
            body["output_config"] = output
        if sent.functions:
            body["tools"] = list(map(_tool, sent.functions))
            body["tool_choice"] = {"type": "any" if sent.must_call else "auto"}
        body |= {key: config[key] for key in ("temperature", "top_p") if config.get(key) is not None}
        if (stop := config.get("stop")) is not None:
            body["stop_sequences"] = [stop] if isinstance(stop, str) else stop
        return {**extra_body(configured), **body}


def _tool(function: Function) -> dict[str, Any]:
    said = {"name": function.name, "description": function.description, "input_schema": function.parameters}
    return {**said, "strict": True} if function.is_strict else said


def _piece(block: Mapping[str, Any], at: int) -> Piece:
    """The beginning of a call; a server that does not write its input piece by piece has it there."""
    id_, name, given = block.get("id"), block.get("name"), block.get("input")
    return Piece(
        at,
        id_ if isinstance(id_, str) and id_ else None,
        name if isinstance(name, str) and name else None,
        text_of(given) if given else "",
    )


def _end(written: Written, message: Mapping[str, Any]) -> None:
    """Note why the answer has ended, where that is said."""
    reason = message.get("stop_reason")
    if isinstance(reason, str):
        written.finish = _FINISHES.get(reason, "stop")


def _count(written: Written, usage: Any) -> None:
    """Note what the answer cost: its input is reported at its beginning, its output at its end."""
    if not isinstance(usage, dict):
        return
    before = written.usage or Usage(0, 0)
    counts = {key: count for key, value in usage.items() if (count := count_of(value)) is not None}
    read = counts.get("cache_read_input_tokens", before.cached)
    fresh = counts.get("input_tokens")
    made = counts.get("cache_creation_input_tokens", before.written if fresh is None else 0)
    total = before.input if fresh is None else fresh + read + made
    written.usage = Usage(total, counts.get("output_tokens", before.output), read, made)
