"""Models behind an SDK: loading it, asking through it, reading what comes, whichever provider's it is.

The SDK asks, with its own retries off, imported when a model is first asked. The answer is streamed where the server
streams; one that comes in one piece is read, too. What differs between providers is a `Dialect`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from operator import attrgetter
from types import MappingProxyType
from typing import Any, ClassVar, Final

from ...broker_config import ConfiguredModel
from ...protocol.requests.tool_texts import OUTPUT, REQUIRED
from .. import limits
from ..registry import models
from . import streamed_calls
from .clients import PLAIN, Bounds, client_options, error_in_body, errors_of, extra_body, verify_content
from .fitting import Fitted, Fitting

_EVENTS: Final = "text/event-stream"
_JSON: Final = "application/json"
_REFUSES_SCHEMAS: Final = frozenset({400, 422, 500, 501})
"""The statuses with which servers refuse a schema; that it was the schema shows when they take the request without."""
_REFUSES_FIELDS: Final = frozenset({400, 422})
"""The statuses with which servers refuse fields of messages that they do not know."""
_TOO_MUCH: Final = (
    "what the provider said beside the answer is not kept, and not sent back: it has more than a fourth of "
    "ACTS_LIMIT_MESSAGE_BYTES"
)
_STRAY: Final = (
    "the answer is a function call, and no functions were offered: answer with the text of one JSON object (a model "
    'that is to call functions has "wire": "tools" in its settings)'
)
_THOUGHT_TYPES: Final = ("thinking", "redacted_thinking")


@dataclass
class StreamedAnswer:
    """An answer as far as it has come. A field that a server leaves out, or fills with something else, is missing."""

    model: str
    most_bytes: int
    most_tokens: int | None = None
    """The most tokens that it may have, where that is set."""
    usage: models.Usage | None = None
    finish: str | None = None
    """The reason of its end, `stop`, `length` or `content_filter`; None where the server has not said."""
    refusal: str = ""
    calls: streamed_calls.CallAssembler | None = None
    """The function calls, where the tools go as functions: then the text is made of them."""
    has_stray_calls: bool = False
    """Whether functions are called though none were offered."""
    size: int = 0
    """The bytes that have come."""
    pieces: list[str] = field(default_factory=list)
    streamed_words: str = ""
    """Words next to calls that are still to be passed on."""
    origin: str = ""
    """The model that the provider's own data is sent back to (see `SdkModel._origin`)."""
    _fields: list[Mapping[str, Any]] = field(default_factory=list)
    """The fields of the message that are not read, in pieces."""
    _blocks: dict[int, list[Mapping[str, Any]]] = field(default_factory=dict)
    """Thoughts, by their place among the blocks of the message, each in pieces."""
    _first_text: int | None = None
    _fields_size: int = 0
    _is_reported: bool = False
    """Whether the usage before the end was passed on."""
    _characters: streamed_calls.WholeCharacters = field(default_factory=streamed_calls.WholeCharacters)

    def note_model(self, name: Any) -> None:
        """Record the model name that the server reports, if it is printable and not too long."""
        if isinstance(name, str) and 0 < len(name) <= limits.SDK_MODEL_LONGEST_NAME and name.isprintable():
            self.model = name

    @property
    def text(self) -> str:
        """The text so far."""
        return self.calls.text if self.calls is not None else "".join(self.pieces) + self._characters.half

    def add(self, piece: Any) -> str:
        """Take in a piece of text, or a list of parts of which those of type `text` count, and return it. Raises
        `InvalidAnswer` for too much.
        """
        if isinstance(piece, list):
            parts = [part for part in piece if isinstance(part, dict) and part.get("type") == "text"]
            return "".join([self.add(part.get("text")) for part in parts])
        if not isinstance(piece, str) or not (piece := self._characters.joined(piece)):
            return ""
        self._count(piece)
        if self.calls is not None:
            self.streamed_words += self.calls.add_words(piece)
            return ""
        self.pieces.append(piece)
        return piece

    def take_call(self, piece: streamed_calls.Piece) -> str:
        """Take in a piece of a function call, and return what it adds to the text that is passed on. Raises
        `InvalidAnswer` where it belongs to no call, and for too much.
        """
        self._count(piece.arguments)
        if self.calls is None:
            self.has_stray_calls = True
            return ""
        self._has_room_for(piece.own)
        return self._bounded(self.calls.take(piece))

    def end_call(self, index: int) -> str:
        """End a call: nothing more follows. Raises `InvalidAnswer` for too much."""
        return self._bounded(self.calls.end(index)) if self.calls is not None else ""

    def pass_on(self, piece: str, on_text: models.OnText) -> None:
        """Pass on a piece of the text behind the words before it, and once the usage reported before the end."""
        words, self.streamed_words = models.Words(self.streamed_words), ""
        for each in filter(None, (words, piece)):
            on_text(each)
        if not self._is_reported and (usage := self.usage_so_far) is not None and not usage.is_whole:
            self._is_reported = True
            on_text(models.Reported(usage))

    def skip_call(self, index: int) -> str:
        """Take in that the block with this index is no function call. Raises `InvalidAnswer` for too much."""
        return self._bounded(self.calls.skip(index)) if self.calls is not None else ""

    def keep(self, fields: Mapping[str, Any]) -> None:
        """Keep the fields of a piece of the message that are not read: the model is sent them back with its calls."""
        if self._has_room_for(fields):
            self._fields.append(fields)

    def keep_block(self, at: int, block: Mapping[str, Any]) -> None:
        """Keep a block of the message that is no call, or a piece of one, if it is a thought; of a text its place."""
        if block.get("type") == "text" and self._first_text is None:
            self._first_text = at
        if (at in self._blocks or block.get("type") in _THOUGHT_TYPES) and self._has_room_for(block):
            self._blocks.setdefault(at, []).append(block)

    def _has_room_for(self, fields: Mapping[str, Any]) -> bool:
        """Count fields to keep. False where there are no calls to send them back with, or too many fields."""
        if not fields or self.calls is None:
            return False
        self._fields_size += len(json.dumps(fields))
        return not self.has_too_many_fields

    @property
    def has_too_many_fields(self) -> bool:
        """Whether the provider's own data is more than is kept."""
        return self._fields_size > self.most_bytes // limits.OWN_SHARE

    def _provider_data(self, calls: streamed_calls.CallAssembler) -> str:
        if self.has_too_many_fields:
            return ""
        message, found = streamed_calls.whole(self._fields), list[tuple[bool, str | None, dict[str, Any]]]()
        left = sorted(self._blocks)
        for call in calls.written:
            own = dict(call.own)
            before = [at for at in left if call.index is not None and at < call.index]
            left = left[len(before) :]
            first = [at for at in before if not found and (self._first_text is None or at < self._first_text)]
            for fields, places in ((message, first), (own, before[len(first) :])):
                if places:
                    fields[streamed_calls.THINKING] = [streamed_calls.whole(self._blocks[at]) for at in places]
            found.append((call.name == OUTPUT, call.id, own))
        return streamed_calls.packed(self.origin, message, found, self.most_bytes // limits.OWN_SHARE)

    def _bounded(self, text: str) -> str:
        """Return a text of the calls. Raises `InvalidAnswer` where these are too large."""
        assert self.calls is not None
        self._bound(self.calls.size)
        return text

    def _count(self, piece: str) -> None:
        """Count the size of an answer so far. Raises `InvalidAnswer` for too much."""
        self.size += len(piece.encode(errors="replace"))
        self._bound(self.size)

    def _bound(self, size: int) -> None:
        if size > self.most_bytes:
            raise models.InvalidAnswer(
                f"the model's answer has more than {self.most_bytes} bytes (ACTS_LIMIT_MESSAGE_BYTES)",
                answer=self.so_far(),
            )

    def so_far(self) -> models.Answer:
        """The answer as far as it has come, whole or not."""
        if self.calls is None:
            return models.Answer(self.text, self.model, self.usage_so_far)
        words, own = self.calls.words, self._provider_data(self.calls)
        return models.Answer(self.text, self.model, self.usage_so_far, words=words, provider_data=own)

    @property
    def usage_so_far(self) -> models.Usage | None:
        """The usage that the provider has reported, which is not all of it before the end."""
        return replace(self.usage, is_whole=self.finish is not None) if self.usage is not None else None

    def answer(self) -> models.Answer:
        """The answer. Raises `InvalidAnswer`, `Refused`, `Truncated` and `Unreachable`."""
        if self.refusal or self.finish == "content_filter":
            raise models.Refused(f"the model refuses: {self.refusal or 'its provider has filtered the answer'}")
        if self.finish == "length":
            set_ = "" if self.most_tokens is None else f" ({self.most_tokens})"
            raise models.Truncated(f"the answer is longer than max_output_tokens{set_}, or than the model can write")
        if self.finish is None and not self.size:
            raise models.Unreachable("the model's server has answered with nothing")
        if self.finish is None:
            raise models.Truncated("the answer broke off before its end")
        if self.calls is not None:
            self.calls.close()
            self._bound(self.calls.size)
        elif self.has_stray_calls and not self.text.strip():
            raise models.InvalidAnswer(_STRAY, answer=self.so_far())
        return self.so_far()


class Dialect(ABC):
    """The way in which a provider takes requests and answers them."""

    sdk: ClassVar[str]
    """The name of the SDK's module, of the extra that brings it, and of the provider."""
    client_class: ClassVar[str]
    resource: ClassVar[str]
    """The attribute of a client that answers requests."""
    required: ClassVar[tuple[str, ...]] = ("model",)
    """The fields of the body that the SDK demands as arguments."""
    url: ClassVar[str]
    settings: ClassVar[tuple[str, ...]]
    """The settings of `protocol.plan.config.SAMPLING` that the provider has."""
    refusable: ClassVar[Mapping[str, re.Pattern[str]]] = MappingProxyType({})
    """The parts of requests that some endpoints refuse, by name, and the words of such a refusal."""

    def response(self, client: Any, sent: Fitted, configured: ConfiguredModel) -> AbstractAsyncContextManager[Any]:
        """Send the request; entering gives the response. The body goes as it is: what the SDK has types for, it walks
        through, and that costs.
        """
        body = {**extra_body(configured), **self.body(sent, configured)}
        create = attrgetter(self.resource)(client).with_streaming_response.create
        named = {name: body[name] for name in self.required}
        response: AbstractAsyncContextManager[Any] = create(messages=[], **named, extra_body=body, extra_headers=PLAIN)
        return response

    @abstractmethod
    def body(self, sent: Fitted, configured: ConfiguredModel) -> dict[str, Any]:
        """The body of the request."""

    @abstractmethod
    def take(self, answer: StreamedAnswer, chunk: Mapping[str, Any], *, streams: bool) -> str:
        """Take in an event, or the whole body, and return what it adds to the text, as far as that can be passed on.
        What a server leaves out, or fills with something else, is missing. Raises `InvalidAnswer`.
        """


class EndpointModel(models.Model):
    """Models of one endpoint, by their names there, whatever asks them. To be used on one event loop."""

    package: str = ""
    """The module that asks."""

    def __init__(
        self,
        configured: ConfiguredModel,
        bounds: Bounds,
        url: str,
        refusable: Mapping[str, re.Pattern[str]] = MappingProxyType({}),
    ) -> None:
        self._configured = configured
        self._bounds = bounds
        self._url = url
        self._refusable = refusable
        self._loading = asyncio.Lock()
        self._sdk: Any = None
        self._fitting = Fitting(configured, url)
        self._without: frozenset[str] = frozenset()
        """Parts of requests that the endpoint has refused, and takes requests without."""
        self._refusing_provider_data: set[str] = set()
        """The models that do not take back their provider's own data."""

    async def ask(self, request: models.ModelRequest, on_text: models.OnText) -> models.Answer:
        """Ask once. Where the server may have refused the schema to enforce, ask again without it, first with JSON mode
        in its place if there is one (SPEC R12.6); a fault that may pass is first tried again as it was. What a refusal
        names is left out where requests can do without. Raises `ModelError`.
        """
        await self.prepare()
        sent, without, was_repeated = self._fitting.fitted(request), self._without, False
        refused: list[tuple[Fitted, str]] = []
        while True:
            try:
                asked = replace(sent, continues=request.continues, without=without)
                answer = await self._ask_with_provider_data(request, asked, on_text)
            except models.ModelError as error:
                if named := self._named_in(error) - without:
                    without |= named
                    continue
                if error.status == limits.SERVERS_FAULT and not sent.is_plain and not was_repeated:
                    was_repeated = True
                    continue
                reason = str(error)[: limits.SDK_MODEL_LONGEST_REASON]
                may_be_schema = error.status in _REFUSES_SCHEMAS and not isinstance(error, models.ContextTooLong)
                weaker = self._fitting.weaker(request, sent, reason) if may_be_schema else None
                if weaker is None:
                    raise
                refused.append((sent, reason))
                sent = weaker
            else:
                for weaker_than, reason in refused:
                    self._fitting.note_refusal(request, weaker_than, reason)
                self._without |= without
                return answer

    def _named_in(self, error: models.ModelError) -> frozenset[str]:
        """The parts of a request that a refusal names, and that requests can do without."""
        if error.status not in _REFUSES_SCHEMAS:
            return frozenset()
        return frozenset(name for name, words in self._refusable.items() if words.search(str(error)))

    async def prepare(self) -> None:
        """Load the SDK, unless it is there."""
        async with self._loading:
            if self._sdk is None:  # it takes a second, in which the loop should turn
                self._sdk = await asyncio.to_thread(import_module, self.package)

    async def _ask_with_provider_data(
        self, request: models.ModelRequest, sent: Fitted, on_text: models.OnText
    ) -> models.Answer:
        """Ask with the provider's own data of earlier answers; without it, where the server refuses that."""
        model = str(sent.config["model"])
        messages = (
            streamed_calls.restored(sent.messages, request.provider_data, self._origin(model)) if sent.functions else []
        )
        if not request.provider_data or model in self._refusing_provider_data or messages in ([], sent.messages):
            return await self._ask_once(sent, on_text)
        try:
            return await self._ask_once(replace(sent, messages=messages), on_text)
        except models.BadRequest as error:
            if error.status not in _REFUSES_FIELDS or isinstance(error, models.ContextTooLong):
                raise
            try:
                answer = await self._ask_once(sent, on_text)
            except models.BadRequest:
                raise error from None
            self._refusing_provider_data.add(model)
            return answer

    def _origin(self, model: str) -> str:
        """A name for the log of the model at its address: it tells providers apart, and shows no address."""
        base_url = self._configured.base_url
        url = self._url if base_url is None else base_url.get_secret_value()
        return hashlib.sha256("\n".join((self.package, url, model)).encode()).hexdigest()[: limits.ORIGIN_DIGITS]

    async def _ask_once(self, sent: Fitted, on_text: models.OnText) -> models.Answer:
        most_tokens = sent.config.get("max_output_tokens")
        may_be_text = sent.config.get("tool_choice") != REQUIRED
        calls = streamed_calls.CallAssembler(sent.functions, may_be_text=may_be_text) if sent.functions else None
        name, most_bytes = str(sent.config["model"]), self._bounds.answer_bytes
        written = StreamedAnswer(name, most_bytes, most_tokens, calls=calls, origin=self._origin(name))
        try:
            with self._errors():
                await self._answer(sent, written, on_text)
            findings = (*sent.findings, *([_TOO_MUCH] * written.has_too_many_fields))
            return replace(written.answer(), findings=findings)
        except models.ModelError as error:
            if written.text and error.is_transient:
                raise models.Truncated(f"the answer broke off: {error}", answer=written.so_far()) from None
            error.answer = error.answer or (written.so_far() if written.usage or written.text else None)
            raise

    @abstractmethod
    def _errors(self) -> AbstractContextManager[None]:
        """A context that raises what the package raises as `ModelError`."""

    @abstractmethod
    async def _answer(self, sent: Fitted, written: StreamedAnswer, on_text: models.OnText) -> None:
        """Send a request, and take in its answer as it comes. Raises `ModelError`, and what `_errors` translates."""


class SdkModel(EndpointModel):
    """Models behind a provider's own SDK."""

    def __init__(self, dialect: Dialect, configured: ConfiguredModel, bounds: Bounds) -> None:
        super().__init__(configured, bounds, dialect.url, dialect.refusable)
        self._dialect = dialect
        self.package = dialect.sdk

    async def names(self, seconds: float) -> list[str]:
        """The models that the endpoint lists. Raises `ModelError`, `TimeoutError`."""
        await self.prepare()  # takes seconds on a busy machine, which are not the endpoint's
        with self._errors():
            async with (
                asyncio.timeout(seconds),
                self._client.models.with_streaming_response.list(extra_headers=PLAIN) as response,
            ):
                listed = (await self._body(response)).get("data")
        entries = listed if isinstance(listed, list) else []
        return [str(each["id"]) for each in entries if isinstance(each, dict) and "id" in each]

    async def close(self) -> None:
        """Close the connections. A model that is asked again opens others."""
        if "_client" in self.__dict__:
            await self.__dict__.pop("_client").close()

    def _errors(self) -> AbstractContextManager[None]:
        return errors_of(self._sdk, self._configured)

    async def _answer(self, sent: Fitted, written: StreamedAnswer, on_text: models.OnText) -> None:
        async with self._dialect.response(self._client, sent, self._configured) as response:
            streams = verify_content(response.headers, _EVENTS, _JSON) == _EVENTS
            async for chunk in self._chunks(response, streams=streams):
                if error := chunk.get("error"):  # some gateways say of each event that it is none
                    raise error_in_body(error, self._configured)
                piece = self._dialect.take(written, chunk, streams=streams)
                if streams:
                    written.pass_on(piece, on_text)

    async def _chunks(self, response: Any, *, streams: bool) -> AsyncIterator[Mapping[str, Any]]:
        if streams:
            async for event in streamed_calls.events(
                streamed_calls.bounded(response.iter_bytes(), self._bounds.stream_bytes)
            ):
                yield event
        else:
            yield await self._body(response)

    async def _body(self, response: Any) -> Mapping[str, Any]:
        pieces = streamed_calls.bounded(response.iter_bytes(), self._bounds.body_bytes)
        return streamed_calls.json_object(b"".join([piece async for piece in pieces]))

    @cached_property
    def _client(self) -> Any:
        options = client_options(self._sdk, self._configured, self._bounds, self._dialect.url)
        return getattr(self._sdk, self._dialect.client_class)(**options)
