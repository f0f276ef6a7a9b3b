"""`openai`: every endpoint that speaks OpenAI's Chat Completions - OpenAI, Ollama, vLLM, llama.cpp, gateways.

The official SDK asks, with its own retries off, imported when a model is first asked. The answer is streamed where the
server streams; one that comes in one piece is read, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from typing import Any, Final
from urllib.parse import urlsplit

from broker_config import ConfiguredModel

from .errors import BadRequest, InvalidAnswer, ModelError, Refused, Truncated, Unreachable
from .http_client import PLAIN, Bounds, client_options, errors_of, masked, verify_content, words_of
from .profiles import Fitted, Profile, is_about_schema
from .request import Answer, Heard, ModelRequest, Usage
from .wire_schema import OPENAI
from .wire_text import bounded, events, json_object

_URL: Final = "https://api.openai.com/v1"
_EVENTS: Final = "text/event-stream"
_JSON: Final = "application/json"


class OpenAIModel:
    """Models of one endpoint, by their names there. To be used on one event loop."""

    def __init__(self, configured: ConfiguredModel, bounds: Bounds) -> None:
        self._configured = configured
        self._bounds = bounds
        self._loading = asyncio.Lock()
        self._sdk: Any = None
        self._profile = Profile(OPENAI if is_openai(configured) else None)

    async def ask(self, request: ModelRequest, heard: Heard) -> Answer:
        """Ask once, and once more without the schema where the server will not take it. Raises `ModelError`."""
        await self._load()
        sent = self._profile.fitted(request)
        try:
            return await self._asked(sent, heard)
        except BadRequest as error:
            if sent.format is None or not is_about_schema(error):
                raise
            self._profile.note_refusal(request, error)
        return await self._asked(self._profile.fitted(request), heard)

    async def names(self) -> list[str]:
        """The models that the endpoint lists; none where it has no list. Raises `ModelError`."""
        await self._load()
        with errors_of(self._sdk, self._configured):
            async with self._client.models.with_streaming_response.list(extra_headers=PLAIN) as response:
                body = b"".join([each async for each in bounded(response.iter_bytes(), self._bounds.body_bytes)])
        listed = json_object(body).get("data")
        return [str(each["id"]) for each in listed if isinstance(each, dict) and "id" in each] if listed else []

    async def close(self) -> None:
        """Close the connections. A model that is asked again opens others."""
        if "_client" in self.__dict__:
            await self.__dict__.pop("_client").close()

    async def _load(self) -> None:
        async with self._loading:
            if self._sdk is None:  # it takes a second, in which the loop should turn
                self._sdk = await asyncio.to_thread(import_module, "openai")

    async def _asked(self, sent: Fitted, heard: Heard) -> Answer:
        written = _Written(str(sent.config["model"]), self._bounds.answer_bytes)
        try:
            with errors_of(self._sdk, self._configured):
                await self._answer(self._body(sent), written, heard)
            return replace(written.answer(), findings=sent.findings)
        except ModelError as error:
            if written.text and error.is_transient:
                raise Truncated(f"the answer broke off: {error}", answer=written.so_far()) from None
            error.answer = error.answer or (written.so_far() if written.usage or written.text else None)
            raise

    async def _answer(self, body: Mapping[str, Any], written: _Written, heard: Heard) -> None:
        responses = self._client.chat.completions.with_streaming_response
        # The whole body goes as it is: what the SDK knows the types of it walks through, which is a third of the work.
        asking = responses.create(model=body["model"], messages=[], extra_body=body, extra_headers=PLAIN)
        async with asking as response:
            streams = verify_content(response.headers, _EVENTS, _JSON) == _EVENTS
            async for chunk in self._chunks(response, streams=streams):
                if "error" in chunk:
                    raise InvalidAnswer(masked(f"the model's server says: {words_of(chunk)}", self._configured))
                if piece := written.take(chunk, "delta" if streams else "message"):
                    heard(piece)

    async def _chunks(self, response: Any, *, streams: bool) -> AsyncIterator[Mapping[str, Any]]:
        if streams:
            async for event in events(bounded(response.iter_bytes(), self._bounds.stream_bytes)):
                yield event
        else:
            yield json_object(
                b"".join([each async for each in bounded(response.iter_bytes(), self._bounds.body_bytes)])
            )

    def _body(self, sent: Fitted) -> dict[str, Any]:
        """What is sent: the schema as the answer's format, and every setting that is given."""
        config = sent.config
        body: dict[str, Any] = {
            "model": config["model"],
            "messages": sent.messages,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if sent.format is not None:
            format_ = {"name": "answer", "schema": sent.format, **({"strict": True} if sent.is_strict else {})}
            body["response_format"] = {"type": "json_schema", "json_schema": format_}
        if config.get("temperature") is not None:
            body["temperature"] = config["temperature"]
        if config.get("max_output_tokens") is not None:
            body[self._most_tokens] = config["max_output_tokens"]
        return body

    @property
    def _most_tokens(self) -> str:
        """OpenAI's newer models know the one name only, other servers the older one only."""
        return "max_completion_tokens" if is_openai(self._configured) else "max_tokens"

    @cached_property
    def _client(self) -> Any:
        return self._sdk.AsyncOpenAI(**client_options(self._sdk, self._configured, self._bounds, _URL))


@dataclass
class _Written:
    """What has come of an answer. Whatever a server leaves out, or fills with something else, counts as not said."""

    model: str
    most_bytes: int
    usage: Usage | None = None
    finish: str | None = None
    refusal: str = ""
    size: int = 0
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self.pieces)

    def take(self, chunk: Mapping[str, Any], part: str) -> str:
        """Take in a chunk; return the text that it brought. Raises `InvalidAnswer` where that is too much."""
        if isinstance(chunk.get("model"), str) and chunk["model"]:
            self.model = chunk["model"]
        self.usage = _usage(chunk.get("usage")) or self.usage
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
        said = choice.get(part)
        if isinstance(choice.get("finish_reason"), str):
            self.finish = choice["finish_reason"]
        if not isinstance(said, dict):
            return ""
        if isinstance(said.get("refusal"), str):
            self.refusal += said["refusal"]
        piece = said.get("content")
        if not isinstance(piece, str) or not piece:
            return ""
        self.pieces.append(piece)
        self.size += len(piece.encode(errors="replace"))
        if self.size > self.most_bytes:
            raise InvalidAnswer(
                f"the model's answer has more than {self.most_bytes} bytes (ACTS_LIMIT_MESSAGE_BYTES)",
                answer=self.so_far(),
            )
        return piece

    def so_far(self) -> Answer:
        """What has come, whole or not."""
        return Answer(self.text, self.model, self.usage)

    def answer(self) -> Answer:
        """The answer. Raises `Refused`, `Truncated` and `Unreachable`."""
        if self.refusal or self.finish == "content_filter":
            raise Refused(f"the model refuses: {self.refusal or 'its provider has filtered the answer'}")
        if self.finish == "length":
            raise Truncated("the answer is longer than max_output_tokens, or than the model can write")
        if self.finish is None and not self.pieces:
            raise Unreachable("the model's server has answered with nothing")
        if self.finish is None:
            raise Truncated("the answer broke off before its end")
        return self.so_far()


def is_openai(configured: ConfiguredModel) -> bool:
    """Whether it is OpenAI itself, or Azure's, that is asked."""
    url = _URL if configured.base_url is None else configured.base_url.get_secret_value()
    host = urlsplit(url).hostname or ""
    return host == "api.openai.com" or host.endswith(".openai.azure.com")


def _usage(usage: Any) -> Usage | None:
    """What an answer cost, where the server says so in numbers."""
    if not isinstance(usage, dict):
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else None
    read, written = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not isinstance(read, int) or not isinstance(written, int):
        return None
    return Usage(read, written, cached if isinstance(cached, int) else 0)
