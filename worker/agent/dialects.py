"""The dialects of providers: OpenAI's Chat Completions, which Ollama, vLLM, llama.cpp and gateways speak as well, and
Anthropic's Messages.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from ...broker_config import ConfiguredModel
from ...protocol.messages import with_changed
from ...protocol.plan.config import SAMPLING
from ...protocol.requests.tool_texts import Function
from .. import limits
from ..registry.models import BadRequest, Usage, count_of
from .fitting import Fitted
from .prices import profile_of
from .sdk_model import Dialect, StreamedAnswer
from .streamed_calls import THINKING, Piece, of_call, of_message, text_of

# The parts of a chat message's content - texts, pictures, documents - as a provider takes them (SPEC R12.5, R12.6).
#
# A message may have OpenAI's parts (`image_url`, `file`), whichever provider is asked, and files as they come here:
# `{"type": "file", "file": NAME, "media_type": …, "data": BASE64}`. Any other part is the provider's own, and goes as
# it is.

Part = Mapping[str, Any]

TEXT: Final = "text/plain"
ASK: Final = {"role": "user", "content": "Answer now."}
"""The user's message for a request without one, which providers refuse, or answer without the system message."""
_PLAIN: Final = {"role", "content"}
_SYSTEM_ROLES: Final = ("system", "developer")
_DATA_URL: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w.+-]+=[\w.+-]+)*;base64,(.*)", re.ASCII | re.DOTALL)


class _File(NamedTuple):
    """A picture or a document of a message."""

    media_type: str
    data: str
    """The bytes in base64."""
    name: str

    @property
    def is_image(self) -> bool:
        return self.media_type.startswith("image/")

    @property
    def text(self) -> str:
        """The text that the file holds. Raises `BadRequest` where it holds none."""
        try:
            return base64.b64decode(self.data, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise BadRequest(f"the file {self.name!r} of the request is no text") from error


def openai_messages(messages: Iterable[Part]) -> list[dict[str, Any]]:
    """Messages for Chat Completions. Raises `BadRequest`."""
    return [dict(with_changed(message, _openai_part)) for message in messages]


def anthropic_messages(messages: Iterable[Part]) -> list[dict[str, Any]]:
    """Messages for Anthropic's Messages, which refuse empty texts. Raises `BadRequest`."""
    found = [dict(with_changed(message, _anthropic_part)) for message in messages]
    for message in found:
        if isinstance(parts := message.get("content"), list):
            message["content"] = [part for part in parts if (text := _text_of(part)) is None or text.strip()]
    return found


def in_turns(messages: Iterable[Part], *, has_system: bool = True) -> list[dict[str, Any]]:
    """Messages as the chat templates of open models take them: one system message at the beginning, or none, then user
    and assistant in turn, beginning with a user. Calls and their results stay as they are.

    What one side says in a row is one message, with an empty line between; texts in parts are one text. A system
    message that follows an answer is said by the user, so that the messages of the next request begin with these.
    """
    system, found, is_opening = list[Any](), list[dict[str, Any]](), True
    for message in messages:
        role = message.get("role")
        is_opening = is_opening and role not in ("assistant", "tool")
        if role in _SYSTEM_ROLES and is_opening:
            system.append(message.get("content"))
            continue
        turn = {**message, "role": "user"} if role in _SYSTEM_ROLES else dict(message)
        if isinstance(turn.get("content"), list):
            turn["content"] = _together([turn["content"]])
        if found and turn.keys() == found[-1].keys() == _PLAIN and turn["role"] == found[-1]["role"]:
            turn["content"] = _together([found.pop()["content"], turn["content"]])
        elif not found and turn["role"] != "user":
            found.append(dict(ASK))
        found.append(turn)
    found = found or [dict(ASK)]
    if system and has_system:
        return [{"role": "system", "content": _together(system)}, *found]
    if system:
        found[0] = {**found[0], "content": _together([*system, found[0].get("content")])}
    return found


def _together(contents: Sequence[Any]) -> Any:
    """The contents of several messages as one: a text, unless there are pictures or documents in them."""
    parts = [part for content in contents for part in ([content] if isinstance(content, str) else content or ())]
    texts = [text for part in parts if (text := _text_of(part)) is not None]
    if len(texts) == len(parts):
        return "\n\n".join(texts)
    return [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]


def _text_of(part: Any) -> str | None:
    """The text that a part of a message is; None where it is something else."""
    text = part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else part
    return text if isinstance(text, str) else None


def texts_in(content: Any) -> list[str]:
    """The texts of a message's content, but for those that say nothing."""
    parts = [content] if isinstance(content, str) else content if isinstance(content, list) else []
    return [text for part in parts if (text := _text_of(part)) and text.strip()]


def _openai_part(part: Any) -> Any:
    if (file := _file_of_run(part)) is None:
        return part
    if file.media_type == TEXT:
        return {"type": "text", "text": file.text}
    url = f"data:{file.media_type};base64,{file.data}"
    if file.is_image:
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": file.name, "file_data": url}}


def _anthropic_part(part: Any) -> Any:
    file = _file_of_run(part) or _openai_file(part)
    if isinstance(file, str):
        return {"type": "image", "source": {"type": "url", "url": file}}
    if file is None:
        return part
    if file.media_type == TEXT:
        source = {"type": "text", "media_type": TEXT, "data": file.text}
    else:
        source = {"type": "base64", "media_type": file.media_type, "data": file.data}
    title = {"title": file.name} if file.name and not file.is_image else {}
    return {"type": "image" if file.is_image else "document", "source": source, **title}


def _file_of_run(part: Any) -> _File | None:
    """The file of a part as runs have it (see above). Raises `BadRequest` where its bytes are missing."""
    match part:
        case {"type": "file", "file": str(name), "data": str(data)}:
            return _File(str(part.get("media_type")), data, name)
        case {"type": "file", "file": str(name)}:
            raise BadRequest(f"the request has the file {name!r} by its name alone: only a run's own context has files")
    return None


def _openai_file(part: Any) -> _File | str | None:
    """The picture or document of a part in OpenAI's form; of a picture at an address that address."""
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)} | str(url)}:
            found = _DATA_URL.fullmatch(url)
            return url if found is None else _File(found[1], found[2], "")
        case {"type": "file", "file": {"file_data": str(url), **more}}:
            found = _DATA_URL.fullmatch(url)
            return _File(found[1], found[2], str(more.get("filename", ""))) if found is not None else None
    return None


_STREAM_OPTIONS: Final = "stream_options"
_TURNS: Final = "turns"
_SYSTEM: Final = "system"
REFUSABLE: Final[Mapping[str, re.Pattern[str]]] = {
    _STREAM_OPTIONS: re.compile(_STREAM_OPTIONS),
    _TURNS: re.compile(r"roles? must alternate|alternate user|system message must be at the beginning", re.IGNORECASE),
    _SYSTEM: re.compile(r"system (role|prompt|message)s?\b.{0,40}\b(not|un)[ -]?support", re.IGNORECASE),
}
"""The words of refusals by vLLM, llama.cpp, SGLang, Databricks, and by the chat templates of open models."""


class OpenAIChat(Dialect):
    """OpenAI's Chat Completions."""

    sdk = "openai"
    client_class = "AsyncOpenAI"
    resource = "chat.completions"
    url = "https://api.openai.com/v1"
    settings = SAMPLING
    refusable = REFUSABLE

    def take(self, answer: StreamedAnswer, chunk: Mapping[str, Any], *, streams: bool) -> str:
        """Take in a chunk. What a server leaves out, or fills with something else, is missing."""
        answer.note_model(chunk.get("model"))
        answer.usage = _openai_usage(chunk.get("usage")) or answer.usage
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        if isinstance(choice.get("finish_reason"), str):
            answer.finish = choice["finish_reason"]
        message = choice.get("delta" if streams else "message")
        if not isinstance(message, dict):
            return ""
        if isinstance(message.get("refusal"), str):
            answer.refusal += message["refusal"]
        answer.keep(of_message(message))
        text = answer.add(message.get("content"))
        calls = message.get("tool_calls")
        pieces = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
        return text + "".join(answer.take_call(_openai_piece(piece, streams=streams)) for piece in pieces)

    def body(self, sent: Fitted, configured: ConfiguredModel) -> dict[str, Any]:
        """The body of the request: the schema as the answer's format, and every setting that is set."""
        config, profile = sent.config, profile_of(configured, self.url)
        messages = openai_messages(sent.messages)
        if not profile.takes_any_turns or {_TURNS, _SYSTEM} & sent.without:
            messages = in_turns(messages, has_system=_SYSTEM not in sent.without)
        body: dict[str, Any] = {"model": config["model"], "messages": messages, "stream": True}
        if _STREAM_OPTIONS not in sent.without:
            body[_STREAM_OPTIONS] = {"include_usage": True}
        if sent.format is not None:
            format_ = {"name": "answer", "schema": sent.format, **({"strict": True} if sent.is_strict else {})}
            body["response_format"] = {"type": "json_schema", "json_schema": format_}
        elif sent.is_json:
            body["response_format"] = {"type": "json_object"}
        if sent.functions:
            body["tools"] = [{"type": "function", "function": _function(each, "parameters")} for each in sent.functions]
            body["tool_choice"] = "required" if sent.must_call else "auto"
        body |= {key: config[key] for key in self.settings if config.get(key) is not None}
        if config.get("max_output_tokens") is not None:
            body["max_completion_tokens" if profile.newer_names else "max_tokens"] = config["max_output_tokens"]
        return body


def _function(function: Function, parameters: str) -> dict[str, Any]:
    """The declaration of a function; `parameters` is the provider's name for the schema of these."""
    declared = {"name": function.name, "description": function.description, parameters: function.parameters}
    return {**declared, "strict": True} if function.is_strict else declared


def _text_or_none(value: Any) -> str | None:
    """A text that is not empty; None where a server has left it out, or sent something else."""
    return value if isinstance(value, str) and value else None


def _openai_piece(call: Mapping[str, Any], *, streams: bool) -> Piece:
    """A call, or a piece of one."""
    function, index = call.get("function"), call.get("index")
    fields = function if isinstance(function, dict) else {}
    return Piece(
        index if isinstance(index, int) else None,
        _text_or_none(call.get("id")),
        _text_or_none(fields.get("name")),
        text_of(fields.get("arguments")),
        is_whole=not streams,
        own=of_call(call),
    )


def _openai_usage(usage: Any) -> Usage | None:
    """The tokens of an answer, where the server reports them as numbers."""
    if not isinstance(usage, dict):
        return None
    details = usage.get("prompt_tokens_details")
    cached = count_of(details.get("cached_tokens")) if isinstance(details, dict) else None
    read, written = count_of(usage.get("prompt_tokens")), count_of(usage.get("completion_tokens"))
    if read is None or written is None:
        return None
    return Usage(read, written, cached or 0)


# Turns: a conversation as Anthropic's Messages take it, with the marks up to which it is cached (SPEC R12.6).
#
# Calls and their results are blocks there: all results come first in the user's turn that follows the calls. A prefix
# that is sent again is billed at a tenth where a mark ends it: one mark is behind tools and system, one at the end of
# the messages of the tick before, one at the end, with which the next tick begins. Four are allowed.

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


class AnthropicMessages(Dialect):
    """Anthropic's Messages. System messages are separate; they are there from the first tick, so the prefix stays."""

    sdk = "anthropic"
    client_class = "AsyncAnthropic"
    resource = "messages"
    required = ("model", "max_tokens")
    url = "https://api.anthropic.com"
    settings = ("temperature", "top_p", "stop", "reasoning_effort")

    def take(self, answer: StreamedAnswer, chunk: Mapping[str, Any], *, streams: bool) -> str:
        """Take in an event. What a server leaves out, or fills with something else, is missing."""
        if not streams:
            return self._whole(answer, chunk)
        match chunk:
            case {"type": "message_start", "message": dict() as message}:
                return self._whole(answer, message)
            case {"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}:
                return answer.add(text)
            case {"type": "content_block_start", "index": int(at), "content_block": {"type": "tool_use"}}:
                return answer.take_call(_anthropic_piece(chunk["content_block"], at))
            case {"type": "content_block_start", "index": int(at), "content_block": dict()}:
                answer.keep_block(at, chunk["content_block"])
                return answer.skip_call(at)
            case {
                "type": "content_block_delta",
                "index": int(at),
                "delta": {"type": "thinking_delta" | "signature_delta"},
            }:
                answer.keep_block(at, {key: part for key, part in chunk["delta"].items() if key != "type"})
            case {"type": "content_block_delta", "index": int(at), "delta": {"partial_json": str(piece)}}:
                return answer.take_call(Piece(at, arguments=piece))
            case {"type": "content_block_stop", "index": int(at)}:
                return answer.end_call(at)
            case {"type": "message_delta", "delta": dict() as delta, **rest}:
                _take_finish(answer, delta)
                _take_usage(answer, rest.get("usage"))
        return ""

    def _whole(self, answer: StreamedAnswer, message: Mapping[str, Any]) -> str:
        answer.note_model(message.get("model"))
        _take_usage(answer, message.get("usage"))
        _take_finish(answer, message)
        content = message.get("content")
        blocks = content if isinstance(content, list) else []
        texts = [block.get("text") for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
        text = "".join(map(answer.add, texts))
        for at, block in enumerate(block if isinstance(block, dict) else {} for block in blocks):
            if block.get("type") != "tool_use":
                answer.keep_block(at, block)
            else:
                answer.take_call(
                    replace(_anthropic_piece(block, at), arguments=json.dumps(block.get("input")), is_whole=True)
                )
        return text

    def body(self, sent: Fitted, configured: ConfiguredModel) -> dict[str, Any]:
        """The body of the request: the schema as the output's format, functions as tools."""
        config = sent.config
        contents = [each.get("content") for each in sent.messages if each.get("role") == "system"]
        system = [_text(text) for content in contents for text in texts_in(content)]
        messages = anthropic_messages(each for each in sent.messages if each.get("role") != "system")
        messages = (turns(messages) if sent.functions else messages) or [dict(ASK)]
        if sent.continues:
            mark(system, messages)
        body: dict[str, Any] = {
            "model": config["model"],
            "max_tokens": config.get("max_output_tokens") or limits.ANTHROPIC_OUTPUT_TOKENS,
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
            body["tools"] = [_function(each, "input_schema") for each in sent.functions]
            body["tool_choice"] = {"type": "any" if sent.must_call else "auto"}
        body |= {key: config[key] for key in ("temperature", "top_p") if config.get(key) is not None}
        if (stop := config.get("stop")) is not None:
            body["stop_sequences"] = [stop] if isinstance(stop, str) else stop
        return body


def _anthropic_piece(block: Mapping[str, Any], at: int) -> Piece:
    """The beginning of a call; a server that does not write its input piece by piece has it there."""
    arguments = block.get("input")
    id_, name = _text_or_none(block.get("id")), _text_or_none(block.get("name"))
    return Piece(at, id_, name, text_of(arguments) if arguments else "")


def _take_finish(answer: StreamedAnswer, message: Mapping[str, Any]) -> None:
    """Note why the answer has ended, where the server gives a reason."""
    reason = message.get("stop_reason")
    if isinstance(reason, str):
        answer.finish = _FINISHES.get(reason, "stop")


def _take_usage(answer: StreamedAnswer, usage: Any) -> None:
    """Note the tokens of the answer: its input is reported at its beginning, its output at its end."""
    if not isinstance(usage, dict):
        return
    before = answer.usage or Usage(0, 0)
    counts = {key: count for key, value in usage.items() if (count := count_of(value)) is not None}
    read = counts.get("cache_read_input_tokens", before.cached)
    fresh = counts.get("input_tokens")
    made = counts.get("cache_creation_input_tokens", before.written if fresh is None else 0)
    total = before.input if fresh is None else fresh + read + made
    answer.usage = Usage(total, counts.get("output_tokens", before.output), read, made)
