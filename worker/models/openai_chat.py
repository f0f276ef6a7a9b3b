"""`openai`: every endpoint that speaks OpenAI's Chat Completions - OpenAI, Ollama, vLLM, llama.cpp, gateways."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from acts_celery.broker_config import ConfiguredModel
from acts_celery.protocol.requests.functions import Function
from acts_celery.protocol.submission.config import SAMPLING

from .called import Piece, text_of
from .content_parts import in_turns, openai_messages
from .fitting import Fitted
from .http_client import PLAIN, extra_body
from .profiles import profile_of
from .provider_data import of_call, of_message
from .request import Usage, count_of
from .sdk_model import Written

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
