"""Models behind an SDK: loading it, asking through it, reading what comes, whichever provider's it is.

The SDK asks, with its own retries off, imported when a model is first asked. The answer is streamed where the server
streams; one that comes in one piece is read, too. What differs between providers is a `Dialect`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from typing import Any, Final, Protocol

from ...broker_config import ConfiguredModel
from ...protocol.requests.tool_texts import OUTPUT, REQUIRED
from .. import limits
from ..registry.models import (
    Answer,
    BadRequest,
    ContextTooLong,
    InvalidAnswer,
    ModelError,
    ModelRequest,
    OnText,
    Refused,
    Reported,
    Truncated,
    Unreachable,
    Usage,
    Words,
)
from .called import (
    THINKING,
    Called,
    Piece,
    WholeCharacters,
    bounded,
    events,
    json_object,
    packed,
    restored,
    whole,
)
from .clients import PLAIN, Bounds, client_options, error_in_body, errors_of, verify_content
from .fitting import Fitted, Fitting

_EVENTS: Final = "text/event-stream"
_JSON: Final = "application/json"
_OF_SCHEMAS: Final = frozenset({400, 422, 500, 501})
"""The statuses with which servers refuse a schema; that it was the schema shows when they take the request without."""
_OF_FIELDS: Final = frozenset({400, 422})
"""The statuses with which servers refuse fields of messages that they do not know."""
_TOO_MUCH: Final = (
    "what the provider said beside the answer is not kept, and not sent back: it has more than a fourth of "
    "ACTS_LIMIT_MESSAGE_BYTES"
)
_STRAY: Final = (
    "the answer is a function call, and no functions were offered: answer with the text of one JSON object (a model "
    'that is to call functions has "wire": "tools" in its settings)'
)
_THOUGHTS: Final = ("thinking", "redacted_thinking")


@dataclass
class Written:
    """What has come of an answer. Whatever a server leaves out, or fills with something else, counts as not said."""

    model: str
    most_bytes: int
    most_tokens: int | None = None
    """How many it may write, where that is set."""
    usage: Usage | None = None
    finish: str | None = None
    """Why it ended: `stop`, `length` or `content_filter`; None where it has not said."""
    refusal: str = ""
    called: Called | None = None
    """The calls of functions, where the tools go as functions: then the text is made of them."""
    has_stray_calls: bool = False
    """Whether it calls functions, and none were offered."""
    size: int = 0
    """How many bytes have come."""
    pieces: list[str] = field(default_factory=list)
    told: str = ""
    """What is to be told of words beside calls."""
    giver: str = ""
    """Whom the provider's own data is sent back to."""
    _own: list[Mapping[str, Any]] = field(default_factory=list)
    """The fields of the message that are not read, in pieces."""
    _blocks: dict[int, list[Mapping[str, Any]]] = field(default_factory=dict)
    """Thoughts, by their place among the blocks of the message, each in pieces."""
    _first_text: int | None = None
    _own_size: int = 0
    _characters: WholeCharacters = field(default_factory=WholeCharacters)

    def call_itself(self, name: Any) -> None:
        """Take in the model's name, as its server says it; nothing where it is none that can be shown and kept."""
        if isinstance(name, str) and 0 < len(name) <= limits.SDK_MODEL_LONGEST_NAME and name.isprintable():
            self.model = name

    @property
    def text(self) -> str:
        """The text so far."""
        return self.called.text if self.called is not None else "".join(self.pieces) + self._characters.half

    def add(self, piece: Any) -> str:
        """Take in a piece of text, and return it; of a list of parts those of type `text`, and nothing where it is
        neither. Raises `InvalidAnswer` for too much.
        """
        if isinstance(piece, list):
            parts = [part for part in piece if isinstance(part, dict) and part.get("type") == "text"]
            return "".join([self.add(part.get("text")) for part in parts])
        if not isinstance(piece, str):
            return ""
        if not (piece := self._characters.of(piece)):
            return ""
        self._count(piece)
        if self.called is not None:
            self.told += self.called.say(piece)
            return ""
        self.pieces.append(piece)
        return piece

    def take_call(self, piece: Piece) -> str:
        """Take in a piece of a function call, and return what it adds to the text that is told on. Raises
        `InvalidAnswer` where it belongs to no call, and for too much.
        """
        self._count(piece.arguments)
        if self.called is None:
            self.has_stray_calls = True
            return ""
        self._keeps(piece.own)
        return self._bounded(self.called.take(piece))

    def end_call(self, index: int) -> str:
        """Take in that nothing more comes of a call. Raises `InvalidAnswer` for too much."""
        return self._bounded(self.called.end(index)) if self.called is not None else ""

    def skip_call(self, index: int) -> str:
        """Take in that what has this index is no function call. Raises `InvalidAnswer` for too much."""
        return self._bounded(self.called.skip(index)) if self.called is not None else ""

    def keep(self, fields: Mapping[str, Any]) -> None:
        """Take in what a piece of the message says that is not read, for the model to be sent back with its calls."""
        if self._keeps(fields):
            self._own.append(fields)

    def keep_block(self, at: int, block: Mapping[str, Any]) -> None:
        """Take in a block of the message that is no call, or a piece of one: of thoughts all, of words the place."""
        if block.get("type") == "text" and self._first_text is None:
            self._first_text = at
        if (at in self._blocks or block.get("type") in _THOUGHTS) and self._keeps(block):
            self._blocks.setdefault(at, []).append(block)

    def _keeps(self, fields: Mapping[str, Any]) -> bool:
        """Whether these are kept: where there are calls to send them back with, and not too much in all."""
        if not fields or self.called is None:
            return False
        self._own_size += len(json.dumps(fields))
        return not self.has_said_too_much

    @property
    def has_said_too_much(self) -> bool:
        """Whether what it says besides is more than is kept."""
        return self._own_size > self.most_bytes // limits.OWN_SHARE

    def _provider_data(self, called: Called) -> str:
        if self.has_said_too_much:
            return ""
        message, calls = whole(self._own), list[tuple[bool, str | None, dict[str, Any]]]()
        left = sorted(self._blocks)
        for call in called.written:
            own = dict(call.own)
            before = [at for at in left if call.index is not None and at < call.index]
            left = left[len(before) :]
            first = [at for at in before if not calls and (self._first_text is None or at < self._first_text)]
            for fields, places in ((message, first), (own, before[len(first) :])):
                if places:
                    fields[THINKING] = [whole(self._blocks[at]) for at in places]
            calls.append((call.name == OUTPUT, call.id, own))
        return packed(self.giver, message, calls, self.most_bytes // limits.OWN_SHARE)

    def _bounded(self, text: str) -> str:
        """Return a text that calls have come to. Raises `InvalidAnswer` for too much of them."""
        assert self.called is not None
        self._bound(self.called.size)
        return text

    def _count(self, piece: str) -> None:
        """Count what has come. Raises `InvalidAnswer` for too much."""
        self.size += len(piece.encode(errors="replace"))
        self._bound(self.size)

    def _bound(self, size: int) -> None:
        if size > self.most_bytes:
            raise InvalidAnswer(
                f"the model's answer has more than {self.most_bytes} bytes (ACTS_LIMIT_MESSAGE_BYTES)",
                answer=self.so_far(),
            )

    def so_far(self) -> Answer:
        """What has come, whole or not."""
        if self.called is None:
            return Answer(self.text, self.model, self.usage_so_far)
        words, own = self.called.words, self._provider_data(self.called)
        return Answer(self.text, self.model, self.usage_so_far, words=words, provider_data=own)

    @property
    def usage_so_far(self) -> Usage | None:
        """What the provider has said of the usage: before the end it is not all that the answer takes."""
        return replace(self.usage, is_whole=self.finish is not None) if self.usage is not None else None

    def answer(self) -> Answer:
        """The answer. Raises `InvalidAnswer`, `Refused`, `Truncated` and `Unreachable`."""
        if self.refusal or self.finish == "content_filter":
            raise Refused(f"the model refuses: {self.refusal or 'its provider has filtered the answer'}")
        if self.finish == "length":
            set_ = "" if self.most_tokens is None else f" ({self.most_tokens})"
            raise Truncated(f"the answer is longer than max_output_tokens{set_}, or than the model can write")
        if self.finish is None and not self.size:
            raise Unreachable("the model's server has answered with nothing")
        if self.finish is None:
            raise Truncated("the answer broke off before its end")
        if self.called is not None:
            self.called.close()
            self._bound(self.called.size)
        elif self.has_stray_calls and not self.text.strip():
            raise InvalidAnswer(_STRAY, answer=self.so_far())
        return self.so_far()


class Dialect(Protocol):
    """What differs between providers."""

    sdk: str
    """The name of the SDK's module, of the extra that brings it, and of the provider."""
    url: str
    settings: tuple[str, ...]
    """Those of `protocol.submission.config.SAMPLING` that the provider has."""
    refusable: Mapping[str, re.Pattern[str]]
    """What some endpoints of the provider refuse, by the words of the refusal: the names that `Fitted.without` has."""

    def client(self, sdk: Any, options: Mapping[str, Any]) -> Any:
        """A client of the SDK."""
        ...

    def asking(self, client: Any, sent: Fitted, configured: ConfiguredModel) -> AbstractAsyncContextManager[Any]:
        """The request, which gives the response when it is entered."""
        ...

    def take(self, written: Written, chunk: Mapping[str, Any], *, streams: bool) -> str:
        """Take in an event, or the whole body; return what it adds to the text, as far as that can be told. Raises
        `InvalidAnswer`.
        """
        ...


class SdkModel:
    """Models of one endpoint, by their names there. To be used on one event loop."""

    def __init__(self, dialect: Dialect, configured: ConfiguredModel, bounds: Bounds) -> None:
        self._dialect = dialect
        self._configured = configured
        self._bounds = bounds
        self._loading = asyncio.Lock()
        self._sdk: Any = None
        self._fitting = Fitting(configured, dialect.url)
        self._without: frozenset[str] = frozenset()
        """What the endpoint has refused, and takes requests without."""
        self._without_own: set[str] = set()
        """The models that do not take back what they said beside their answers."""

    async def ask(self, request: ModelRequest, on_text: OnText) -> Answer:
        """Ask once; and where what is to be enforced may be what the server does not take, without it: first with JSON
        mode in its place, where there is one (SPEC R12.6). A fault that may pass is first tried again as it was. What
        the server names in a refusal is left out where requests can do without. Raises `ModelError`.
        """
        await self.prepare()
        sent, without, was_repeated = self._fitting.fitted(request), self._without, False
        refused: list[tuple[Fitted, str]] = []
        while True:
            try:
                asked = replace(sent, continues=request.continues, without=without)
                answer = await self._asked_with_own(request, asked, on_text)
            except ModelError as error:
                if named := self._named_in(error) - without:
                    without |= named
                    continue
                if error.status == limits.MAY_PASS and not sent.is_plain and not was_repeated:
                    was_repeated = True
                    continue
                reason = str(error)[: limits.SDK_MODEL_LONGEST_REASON]
                weaker = self._fitting.weaker(request, sent, reason) if _may_be_of_format(error) else None
                if weaker is None:
                    raise
                refused.append((sent, reason))
                sent = weaker
            else:
                for weaker_than, reason in refused:
                    self._fitting.note_refusal(request, weaker_than, reason)
                self._without |= without
                return answer

    def _named_in(self, error: ModelError) -> frozenset[str]:
        """What a refusal names of that which requests can do without."""
        if error.status not in _OF_SCHEMAS:
            return frozenset()
        return frozenset(name for name, words in self._dialect.refusable.items() if words.search(str(error)))

    async def names(self, seconds: float) -> list[str]:
        """The models that the endpoint lists; none where it has no list. Raises `ModelError`, `TimeoutError`."""
        await self.prepare()  # takes seconds on a busy machine, which are not the endpoint's
        with errors_of(self._sdk, self._configured):
            async with (
                asyncio.timeout(seconds),
                self._client.models.with_streaming_response.list(extra_headers=PLAIN) as response,
            ):
                body = b"".join([each async for each in bounded(response.iter_bytes(), self._bounds.body_bytes)])
        listed = json_object(body).get("data")
        entries = listed if isinstance(listed, list) else []
        return [str(each["id"]) for each in entries if isinstance(each, dict) and "id" in each]

    async def close(self) -> None:
        """Close the connections. A model that is asked again opens others."""
        if "_client" in self.__dict__:
            await self.__dict__.pop("_client").close()

    async def prepare(self) -> None:
        """Load the SDK, unless it is there."""
        async with self._loading:
            if self._sdk is None:  # it takes a second, in which the loop should turn
                self._sdk = await asyncio.to_thread(import_module, self._dialect.sdk)

    async def _asked_with_own(self, request: ModelRequest, sent: Fitted, on_text: OnText) -> Answer:
        """Ask with what the model said beside its calls; without it, where its server refuses that."""
        model = str(sent.config["model"])
        messages = restored(sent.messages, request.provider_data, self._giver(model)) if sent.functions else []
        if not request.provider_data or model in self._without_own or messages in ([], sent.messages):
            return await self._asked(sent, on_text)
        try:
            return await self._asked(replace(sent, messages=messages), on_text)
        except BadRequest as error:
            if error.status not in _OF_FIELDS or isinstance(error, ContextTooLong):
                raise
            try:
                answer = await self._asked(sent, on_text)
            except BadRequest:
                raise error from None
            self._without_own.add(model)
            return answer

    def _giver(self, model: str) -> str:
        """The name under which the log has what a model said: it tells providers apart, and shows no address."""
        base_url = self._configured.base_url
        url = self._dialect.url if base_url is None else base_url.get_secret_value()
        return hashlib.sha256("\n".join((self._dialect.sdk, url, model)).encode()).hexdigest()[: limits.SDK_MODEL_GIVER]

    async def _asked(self, sent: Fitted, on_text: OnText) -> Answer:
        most_tokens = sent.config.get("max_output_tokens")
        may_say = sent.config.get("tool_choice") != REQUIRED
        called = Called(sent.functions, may_say=may_say) if sent.functions else None
        name, most_bytes = str(sent.config["model"]), self._bounds.answer_bytes
        written = Written(name, most_bytes, most_tokens, called=called, giver=self._giver(name))
        try:
            with errors_of(self._sdk, self._configured):
                await self._answer(sent, written, on_text)
            findings = (*sent.findings, *([_TOO_MUCH] * written.has_said_too_much))
            return replace(written.answer(), findings=findings)
        except ModelError as error:
            if written.text and error.is_transient:
                raise Truncated(f"the answer broke off: {error}", answer=written.so_far()) from None
            error.answer = error.answer or (written.so_far() if written.usage or written.text else None)
            raise

    async def _answer(self, sent: Fitted, written: Written, on_text: OnText) -> None:
        async with self._dialect.asking(self._client, sent, self._configured) as response:
            streams = verify_content(response.headers, _EVENTS, _JSON) == _EVENTS
            is_reported = not streams
            async for chunk in self._chunks(response, streams=streams):
                if error := chunk.get("error"):  # some gateways say of each event that it is none
                    raise error_in_body(error, self._configured)
                piece = self._dialect.take(written, chunk, streams=streams)
                words, written.told = Words(written.told), ""
                for each in filter(None, (words, piece) if streams else ()):
                    on_text(each)
                if not is_reported and (usage := written.usage_so_far) is not None and not usage.is_whole:
                    is_reported = True
                    on_text(Reported(usage))

    async def _chunks(self, response: Any, *, streams: bool) -> AsyncIterator[Mapping[str, Any]]:
        if streams:
            async for event in events(bounded(response.iter_bytes(), self._bounds.stream_bytes)):
                yield event
        else:
            yield json_object(
                b"".join([each async for each in bounded(response.iter_bytes(), self._bounds.body_bytes)])
            )

    @cached_property
    def _client(self) -> Any:
        options = client_options(self._sdk, self._configured, self._bounds, self._dialect.url)
        return self._dialect.client(self._sdk, options)


def _may_be_of_format(error: ModelError) -> bool:
    """Whether an error may be of what is to be enforced, and of nothing else."""
    return error.status in _OF_SCHEMAS and not isinstance(error, ContextTooLong)
