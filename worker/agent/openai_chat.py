"""`openai`: every endpoint that speaks OpenAI's Chat Completions - OpenAI, Ollama, vLLM, llama.cpp, gateways."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, NamedTuple

from ...broker_config import ConfiguredModel
from ...protocol.plan.config import SAMPLING
from ...protocol.requests.tool_texts import Function
from ..registry.models import BadRequest, Usage, count_of
from .called import Piece, of_call, of_message, text_of
from .clients import PLAIN, extra_body
from .fitting import Fitted
from .prices import profile_of
from .sdk_model import Written

# The parts of a chat message's content - texts, pictures, documents - as a provider takes them (SPEC R12.5, R12.6).
#
# A message may have OpenAI's parts (`image_url`, `file`), whichever provider is asked, and files as they come here:
# `{"type": "file", "file": NAME, "media_type": …, "data": BASE64}`. Any other part is the provider's own, and goes as
# it is.

Part = Mapping[str, Any]

TEXT: Final = "text/plain"
ASK: Final = {"role": "user", "content": "Answer now."}
"""Where nothing is said by a user: providers refuse that, or leave out the system message with it."""
_PLAIN: Final = {"role", "content"}
_SYSTEM_ROLES: Final = ("system", "developer")
_DATA_URL: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w.+-]+=[\w.+-]+)*;base64,(.*)", re.ASCII | re.DOTALL)


class _Content(NamedTuple):
    """What a picture or a document is."""

    media_type: str
    data: str
    """In base64."""
    name: str

    @property
    def is_image(self) -> bool:
        return self.media_type.startswith("image/")

    @property
    def text(self) -> str:
        """Of a text."""
        try:
            return base64.b64decode(self.data, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise BadRequest(f"the file {self.name!r} of the request is no text") from error


def openai_messages(messages: Iterable[Part]) -> list[dict[str, Any]]:
    """Messages for Chat Completions. Raises `BadRequest`."""
    return _converted(messages, _openai_part)


def anthropic_messages(messages: Iterable[Part]) -> list[dict[str, Any]]:
    """Messages for Anthropic's Messages, which refuse empty texts. Raises `BadRequest`."""
    found = _converted(messages, _anthropic_part)
    for message in found:
        if isinstance(message.get("content"), list):
            message["content"] = [part for part in message["content"] if not _says_nothing(part)]
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
    """What several messages say, as the content of one: a text, unless there are pictures or documents in it."""
    parts = [part for content in contents for part in ([content] if isinstance(content, str) else content or ())]
    texts = [part if isinstance(part, str) else part.get("text") for part in parts if _is_text(part)]
    if len(texts) == len(parts):
        return "\n\n".join(texts)
    return [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts]


def _is_text(part: Any) -> bool:
    return isinstance(part, str) or (
        isinstance(part, Mapping) and part.get("type") == "text" and isinstance(part.get("text"), str)
    )


def _says_nothing(part: Any) -> bool:
    return _is_text(part) and not (part if isinstance(part, str) else part["text"]).strip()


def texts_in(content: Any) -> list[str]:
    """The texts of a message's content, but for those that say nothing."""
    parts = [content] if isinstance(content, str) else content if isinstance(content, list) else []
    found = [part if isinstance(part, str) else part["text"] for part in parts if _is_text(part)]
    return [text for text in found if text.strip()]


def _converted(messages: Iterable[Part], convert: Callable[[Part], Part]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, list):
            content = [convert(part) if isinstance(part, Mapping) else part for part in content]
        found.append({**message, **({"content": content} if "content" in message else {})})
    return found


def _openai_part(part: Part) -> Part:
    if (content := _own(part)) is None:
        return part
    if content.media_type == TEXT:
        return {"type": "text", "text": content.text}
    url = f"data:{content.media_type};base64,{content.data}"
    if content.is_image:
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": content.name, "file_data": url}}


def _anthropic_part(part: Part) -> Part:
    content = _own(part) or _of_openai(part)
    if isinstance(content, str):
        return {"type": "image", "source": {"type": "url", "url": content}}
    if content is None:
        return part
    if content.media_type == TEXT:
        source = {"type": "text", "media_type": TEXT, "data": content.text}
    else:
        source = {"type": "base64", "media_type": content.media_type, "data": content.data}
    title = {"title": content.name} if content.name and not content.is_image else {}
    return {"type": "image" if content.is_image else "document", "source": source, **title}


def _own(part: Part) -> _Content | None:
    """A file as it comes here."""
    name = part.get("file")
    if part.get("type") != "file" or not isinstance(name, str):
        return None
    if not isinstance(part.get("data"), str):
        raise BadRequest(f"the request has the file {name!r} by its name alone: only a run's own context has files")
    return _Content(str(part.get("media_type")), part["data"], name)


def _of_openai(part: Part) -> _Content | str | None:
    """A picture or a document as OpenAI takes it; a picture at an address is that address."""
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)} | str(url)}:
            found = _DATA_URL.fullmatch(url)
            return url if found is None else _Content(found[1], found[2], "")
        case {"type": "file", "file": {"file_data": str(url), **more}}:
            found = _DATA_URL.fullmatch(url)
            return _Content(found[1], found[2], str(more.get("filename", ""))) if found is not None else None
    return None


_STREAM_OPTIONS: Final = "stream_options"
_TURNS: Final = "turns"
_SYSTEM: Final = "system"
REFUSABLE: Final[Mapping[str, re.Pattern[str]]] = {
    _STREAM_OPTIONS: re.compile(_STREAM_OPTIONS),
    _TURNS: re.compile(r"roles? must alternate|alternate user|system message must be at the beginning", re.IGNORECASE),
    _SYSTEM: re.compile(r"system (role|prompt|message)s?\b.{0,40}\b(not|un)[ -]?support", re.IGNORECASE),
}
"""By the words of vLLM, llama.cpp, SGLang, Databricks, and of the chat templates of open models."""


class OpenAIChat:
    """Chat Completions."""

    sdk = "openai"
    url = "https://api.openai.com/v1"
    settings: tuple[str, ...] = SAMPLING
    refusable: Mapping[str, re.Pattern[str]] = REFUSABLE

    def client(self, sdk: Any, options: Mapping[str, Any]) -> Any:
        """A client of the SDK."""
        return sdk.AsyncOpenAI(**options)

    def asking(self, client: Any, sent: Fitted, configured: ConfiguredModel) -> AbstractAsyncContextManager[Any]:
        """The request. Its body goes as it is: what the SDK has types of, it walks through, and that costs."""
        body = self._body(sent, configured)
        responses = client.chat.completions.with_streaming_response
        asking: AbstractAsyncContextManager[Any] = responses.create(
            model=body["model"], messages=[], extra_body=body, extra_headers=PLAIN
        )
        return asking

    def take(self, written: Written, chunk: Mapping[str, Any], *, streams: bool) -> str:
        """Take in a chunk. What a server leaves out, or fills with something else, counts as not said."""
        written.call_itself(chunk.get("model"))
        written.usage = _usage(chunk.get("usage")) or written.usage
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        if isinstance(choice.get("finish_reason"), str):
            written.finish = choice["finish_reason"]
        said = choice.get("delta" if streams else "message")
        if not isinstance(said, dict):
            return ""
        if isinstance(said.get("refusal"), str):
            written.refusal += said["refusal"]
        written.keep(of_message(said))
        text = written.add(said.get("content"))
        calls = said.get("tool_calls")
        pieces = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
        return text + "".join(written.take_call(_piece(piece, streams=streams)) for piece in pieces)

    def _body(self, sent: Fitted, configured: ConfiguredModel) -> dict[str, Any]:
        """What is sent: the schema as the answer's format, and every setting that is given."""
        config, profile = sent.config, profile_of(configured, self.url)
        messages = openai_messages(sent.messages)
        if not profile.takes_any_turns or {_TURNS, _SYSTEM} & sent.without:
            messages = in_turns(messages, has_system=_SYSTEM not in sent.without)
        body: dict[str, Any] = {
            "model": config["model"],
            "messages": messages,
            "stream": True,
        }
        if _STREAM_OPTIONS not in sent.without:
            body[_STREAM_OPTIONS] = {"include_usage": True}
        if sent.format is not None:
            format_ = {"name": "answer", "schema": sent.format, **({"strict": True} if sent.is_strict else {})}
            body["response_format"] = {"type": "json_schema", "json_schema": format_}
        elif sent.is_json:
            body["response_format"] = {"type": "json_object"}
        if sent.functions:
            body["tools"] = [{"type": "function", "function": _function(each)} for each in sent.functions]
            body["tool_choice"] = "required" if sent.must_call else "auto"
        body |= {key: config[key] for key in self.settings if config.get(key) is not None}
        if config.get("max_output_tokens") is not None:
            body["max_completion_tokens" if profile.newer_names else "max_tokens"] = config["max_output_tokens"]
        return {**extra_body(configured), **body}


def _function(function: Function) -> dict[str, Any]:
    said = {"name": function.name, "description": function.description, "parameters": function.parameters}
    return {**said, "strict": True} if function.is_strict else said


def _piece(call: Mapping[str, Any], *, streams: bool) -> Piece:
    """A call, or a piece of one; what a server leaves out, or fills with something else, counts as not said."""
    function = call.get("function")
    said = function if isinstance(function, dict) else {}
    index, id_, name = call.get("index"), call.get("id"), said.get("name")
    return Piece(
        index if isinstance(index, int) else None,
        id_ if isinstance(id_, str) and id_ else None,
        name if isinstance(name, str) and name else None,
        text_of(said.get("arguments")),
        is_whole=not streams,
        own=of_call(call),
    )


def _usage(usage: Any) -> Usage | None:
    """What an answer cost, where the server says so in numbers."""
    if not isinstance(usage, dict):
        return None
    details = usage.get("prompt_tokens_details")
    cached = count_of(details.get("cached_tokens")) if isinstance(details, dict) else None
    read, written = count_of(usage.get("prompt_tokens")), count_of(usage.get("completion_tokens"))
    if read is None or written is None:
        return None
    return Usage(read, written, cached or 0)
