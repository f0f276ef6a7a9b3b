"""Models: requests, answers and errors, the configured ones by name, and functions that are registered as models.

A model is one method: `async def ask(self, request: ModelRequest, on_text: OnText) -> Answer`. The caller is on the
event loop of the process, so that waiting for an answer costs no thread.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, ClassVar, Final, NamedTuple, Self

from ...broker_config import ConfiguredModel, Settings
from ...protocol import Limits, Rejected
from ...protocol.engine.costs import Estimate
from ...protocol.errors import one_line
from ...protocol.limits import MOST, plain, plain_scalar
from ...protocol.messages import picture_type
from .. import limits
from ..errors import CallFailed
from .activities import RegisteredModel, Registry


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """A request to a model (SPEC R12.5, R12.3)."""

    messages: Sequence[Mapping[str, Any]]
    """Chat messages, `{"role", "content"}`; a content is a text, or the content of a chat message of the context."""
    schema: Any = None
    """The JSON Schema of the answer; None where any JSON value will do."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """`model`, `temperature`, `top_p`, `seed`, `stop`, `reasoning_effort`, `max_output_tokens`, `request_seconds` (SPEC
    R13.3); `wire` and `tool_choice`, where its tools go as functions; other keys are passed over.
    """
    provider_data: Mapping[str, str] = field(default_factory=dict)
    """The provider's own data of earlier answers, by tick (see `agent.streamed_calls`)."""

    @property
    def text(self) -> str:
        """The contents of its messages, one below the other."""
        return "\n".join(_content(message) for message in self.messages)

    @property
    def continues(self) -> bool:
        """Whether this is a request of a loop, whose next request begins with this one."""
        properties = self.schema.get("properties", {}) if isinstance(self.schema, Mapping) else {}
        return "calls" in properties

    @property
    def shown(self) -> dict[str, Any]:
        """All that an answer may depend on, but for the model."""
        settings = {key: value for key, value in self.config.items() if key not in ("model", "request_seconds")}
        return {"messages": list(self.messages), "schema": self.schema, "settings": settings}

    @property
    def digest(self) -> str:
        """A digest of messages, schema and settings, by which the request is recognized, whichever model is asked."""
        text = json.dumps(self.shown, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()

    def recorded(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """An entry of a recording that holds for this request alone, which it shows to readers."""
        return {"asked": self.digest, **answer, "request": self.shown}


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def count_of(value: Any) -> int | None:
    """A number of tokens that a provider reports; None for what is no number, or larger than any answer."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST else None


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of an answer, as the provider counts them."""

    input: int
    output: int
    cached: int = 0
    """The input tokens that were read from the provider's cache."""
    written: int = field(default=0, compare=False)
    """The input tokens that were written to it: some providers take more for these."""
    is_whole: bool = True
    """Whether these are all tokens; else the answer may have taken more output since."""

    def to_dict(self) -> dict[str, int]:
        """The usage as the log has it (SPEC R13.5)."""
        counts = {"input": self.input, "output": self.output, "cached": self.cached}
        return counts if self.is_whole else {**counts, "is_whole": False}


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as the model has written it: nothing of it has been validated."""

    text: str
    model: str
    """The model's name as the provider reports it."""
    usage: Usage | None = None
    """The tokens; None where the provider reports none."""
    duration_seconds: float = 0.0
    nanodollars: int | None = None
    """The cost, where a price is known, in billionths of a US dollar."""
    is_fallback: bool = False
    """Whether another model than the one that was named has answered."""
    words: str = ""
    """The words next to the calls, where the tools go as functions (SPEC R12.6); no part of the text."""
    provider_data: str = ""
    """The provider's own data, which its model is sent back (see `agent.streamed_calls`)."""
    findings: tuple[str, ...] = ()
    """Notes on what could not be enforced on the wire, one sentence each (SPEC R12.6)."""
    heard_seconds: float = 0.0
    """How long before its end its first piece came, if the model has a limit: the provider had the request by then."""


class Model(ABC):
    """Anything that answers requests."""

    @abstractmethod
    async def ask(self, request: ModelRequest, on_text: OnText) -> Answer:
        """Answer a request, once. Raises `ModelError`."""

    async def prepare(self) -> None:
        """Load what the model takes to be asked, such as an SDK, unless that was done."""
        return

    async def names(self, seconds: float) -> list[str] | None:
        """The names of the endpoint's models, at the latest after `seconds`; None of a model without an endpoint.
        Raises `ModelError`, `TimeoutError`.
        """
        return None

    async def close(self) -> None:
        """Close the connections."""
        return


@dataclass(frozen=True, slots=True)
class Reported:
    """The usage that a provider reports before the answer is whole, between the pieces."""

    usage: Usage
    nanodollars: int | None = None
    """The most that it may cost, where a price is known."""


OnText = Callable[[str | Reported], None]
"""Called on the event loop with each piece of an answer's text as it comes, where the provider streams."""


class Words(str):
    """A piece of the words next to a model's calls, passed on as an output that is a text, which it is if no call
    follows. The answer does not contain it: that begins with the next piece of another type.
    """

    __slots__ = ()


def ignore(_: str | Reported) -> None:
    """An `OnText` that does nothing, for a caller that waits for the whole answer."""


# The errors of requests to models, and what happens next (SPEC R13.4).
#
# | error | what | next |
# |---|---|---|
# | `RateLimited` | 429, but for a spent quota | asked again, after `Retry-After` or a backoff, until `request_seconds`
# |
# | `Unreachable` | no connection, one that broke, 5xx, no answer in time | the same |
# | `BadRequest` | 400-404, 501, a spent quota, a page for people | the run fails, in the provider's words |
# | `ContextTooLong` | 400, 413: more than the model takes at once | the same, with what to do |
# | `Refused` | the model or the provider will not answer this | the error of a loop's tick; a delegate's call fails |
# | `Truncated` | the answer was cut off, by its length or by the connection | the same |
# | `InvalidAnswer` | no JSON, not what the schema demands, too large | the same |

TOO_LONG: Final = "give the request less context (config.show_bytes cuts values) or less to write, or a larger model"
"""The remedy for `ContextTooLong`."""


class ModelError(CallFailed):
    """A request that was not answered. `answer` is the part that came and has to be paid for, where there is one.

    No policy of a call tries it again: an error that may pass has been tried again until the request's deadline.
    """

    code = "model_error"

    is_transient: ClassVar[bool] = False
    """Whether the same request may be answered later."""
    status: int | None = None
    """The status of HTTP, where the server has answered with one."""

    def __init__(self, message: str, *, answer: Answer | None = None, retry_after_seconds: float | None = None) -> None:
        super().__init__(message, retry=False)
        self.answer = answer
        self.retry_after_seconds = retry_after_seconds


class RateLimited(ModelError):
    """The provider takes no more requests for now."""

    code = "rate_limited"

    is_transient = True


class Unreachable(ModelError):
    """The provider does not answer, or not with what it should."""

    code = "unreachable"

    is_transient = True


class BadRequest(ModelError):
    """The provider will not take the request as it is, and says why."""

    code = "bad_request"


class ContextTooLong(BadRequest):
    """The request is longer than the model can read at once."""

    code = "context_too_long"


class Refused(ModelError):
    """The model declines to answer."""

    code = "refused"


class Truncated(ModelError):
    """The answer was cut off; `answer` has what arrived."""

    code = "truncated"


class InvalidAnswer(ModelError):
    """The answer is not what was asked for."""

    code = "invalid_answer"


# The models by name: those of the settings, and functions registered with `@model` (SPEC R13.11).
#
# A `config.model` names one of them, never an address. Nothing is loaded or asked for that.


class KnownModels:
    """The models by their names."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self._settings = settings
        self._default = settings.default_model
        self._named = settings.models
        self._registered = registry.models
        self._stand_ins = registry.stand_ins

    def find(self, name: str | None) -> ConfiguredModel | None:
        """The model of that name, by default the one of `ACTS_MODEL`; None if it is not configured.

        The default goes by `provider:name` and by `name`, too.
        """
        found = self.of_settings(name)
        stand_in = self._stand_ins.get(name) or self._stand_ins.get(None)
        if stand_in is None:
            return found
        model = f"{stand_in}:{name or stand_in}"
        if found is None:
            return ConfiguredModel(model=model)
        others = dict.fromkeys(("base_url", "api_key", "context_tokens", "recording"))
        return found.model_copy(update={"model": model, **others})

    def of_settings(self, name: str | None) -> ConfiguredModel | None:
        """The model of that name in the settings, without the one that replaces it in tests."""
        found = self._settings.find_model(name)
        return ConfiguredModel(model=f"{name}:{name}") if found is None and name in self._registered else found

    def fallbacks(self, model: ConfiguredModel) -> Iterator[ConfiguredModel]:
        """The models that are asked when that model does not answer."""
        yield from filter(None, map(self.find, model.fallbacks))

    def with_fallbacks(self, name: str | None) -> tuple[ConfiguredModel, ...]:
        """The model of that name and its fallbacks; none where there is no such model."""
        found = self.find(name)
        return (found, *self.fallbacks(found)) if found is not None else ()

    def see_pictures(self, name: str | None) -> bool:
        """Whether the model of that name and all its fallbacks are shown pictures of tools."""
        asked = self.with_fallbacks(name)
        return bool(asked) and all(model.sees_pictures for model in asked)

    def configured(self) -> Iterator[ConfiguredModel]:
        """The models of the settings."""
        if self._default is not None:
            yield self._default
        yield from self._named.values()

    def __iter__(self) -> Iterator[str]:
        """Every name."""
        if self._default is not None:
            yield self._default.model
        yield from (*self._named, *self._registered)


# What a model's provider allows in a minute: requests, and tokens, which all workers share.
#
# A request takes from when it is sent the tokens that it probably has, and those that its answer may have. What it
# costs at most, as for `config.tokens`, would be three times as much.


class ProviderLimit(NamedTuple):
    """The limit on the requests to one model."""

    place: str
    requests: int | None
    tokens: int | None

    @classmethod
    def of(cls, model: ConfiguredModel | None) -> Self | None:
        """The limit of a model; None where it has none."""
        if model is None or not (model.requests_per_minute or model.tokens_per_minute):
            return None
        return cls(model.place, model.requests_per_minute, model.tokens_per_minute)

    def refusal(self, tokens: int) -> str | None:
        """Why a request is not sent that may take so many tokens: more than there are in a minute."""
        if self.tokens is None or tokens <= self.tokens:
            return None
        return (
            f"the request may take {tokens} tokens with its answer, and {self.place} may take {self.tokens} in a "
            "minute (tokens_per_minute): lower config.max_output_tokens, show the model less, or raise that limit"
        )


def likely_tokens(estimate: Estimate, known: int = 0) -> int:
    """The tokens that a request probably takes which may take as many as the estimate says: those that are known of the
    request before, one for so many bytes of what is new, and all that its answer may have.
    """
    new = max(estimate.tokens - estimate.output - known, 0)
    return known + new * 6 // (5 * limits.USUAL_BYTES) + estimate.output


# Functions registered with `@model`: `(messages, schema, config) -> answer`.
#
# An answer is a value, which becomes its JSON text, a text as the model wrote it, or an `Answer` with its usage. A
# coroutine function runs on the event loop, a plain one on a thread. A generator, of either kind, streams its answer:
# it yields pieces of the text, and its `Usage` where that is known; what it raises behind a piece breaks the answer
# off.

OnThread = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a plain function on a thread, so that the event loop goes on."""


class FunctionModel(Model):
    """A registered function as a model."""

    def __init__(self, registered: RegisteredModel, on_thread: OnThread) -> None:
        self._registered = registered
        self._on_thread = on_thread

    async def ask(self, request: ModelRequest, on_text: OnText) -> Answer:
        """The answer of the function. Raises `InvalidAnswer`, and all that the function raises."""
        function = self._registered.function
        arguments = ([dict(message) for message in request.messages], request.schema, dict(request.config))
        if self._registered.is_async:
            reply = await function(*arguments)
        else:
            reply = await self._on_thread(lambda: function(*arguments))
        pieces: Any = self._on_threads(reply) if inspect.isgenerator(reply) else reply
        if inspect.isasyncgen(pieces):
            return await self._streamed(pieces, on_text)
        answer = reply if isinstance(reply, Answer) else Answer(answer_text(reply), self._registered.name)
        on_text(answer.text)
        return answer

    async def _on_threads(self, pieces: Iterator[Any]) -> AsyncGenerator[Any, None]:
        """The pieces of a plain generator, each made on a thread."""
        over = object()
        while (piece := await self._on_thread(lambda: next(pieces, over))) is not over:
            yield piece

    async def _streamed(self, pieces: Any, on_text: OnText) -> Answer:
        """The answer that consists of the pieces. Raises `InvalidAnswer`, and all that the generator raises."""
        so_far = Answer("", self._registered.name)
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    if isinstance(piece, Usage):
                        so_far = replace(so_far, usage=piece)
                    elif isinstance(piece, str):
                        text = plain_scalar(piece)
                        so_far = replace(so_far, text=so_far.text + text)
                        on_text(text)
                    else:
                        raise InvalidAnswer(f"a piece of an answer is a text, or its Usage: {type(piece).__name__}")
        except ModelError as error:
            error.answer = error.answer or (so_far if so_far.text or so_far.usage else None)
            raise
        return so_far


def answer_text(reply: Any) -> str:
    """Return a text unchanged, and any other value as JSON. Raises `InvalidAnswer` where that fails."""
    try:
        value = plain(reply, Limits())
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError, Rejected) as error:
        raise InvalidAnswer(f"what the model returned is not a JSON value: {error}") from None


# Pictures that a model is shown: their sizes, and the message that shows them.

Size = tuple[int, int]
"""The width and height of a picture, in pixels."""
Part = Mapping[str, Any]
"""A part of a chat message's content."""


def image_size(content: bytes) -> Size | None:
    """The size of a picture by its header; None where that cannot be read, or the extra `models` is not installed: the
    picture counts as the largest then.
    """
    try:
        import imagesize

        width, height = imagesize.get(io.BytesIO(content))
    except Exception:  # anybody may have written the bytes that it parses
        return None
    return valid_size((width, height))


def valid_size(size: tuple[Any, Any]) -> Size | None:
    """A width and a height, if a picture can have them."""
    width, height = size
    is_size = all(isinstance(side, int) and not isinstance(side, bool) and side > 0 for side in size)
    return (width, height) if is_size else None


def picture_fields(content: bytes) -> Part | None:
    """The fields of a file part for a picture that a tool has answered; None where it cannot be shown."""
    media_type, size = picture_type(content), image_size(content)
    if media_type is None or (size is None and find_spec("imagesize") is not None):
        return None
    pixels = {"pixels": [*size]} if size is not None else {}
    return {"media_type": media_type, "bytes": len(content), **pixels}


def picture_message(
    shown: Iterable[tuple[str, str]], known: Mapping[str, Part | None], most_bytes: int
) -> dict[str, Any] | None:
    """The message that shows pictures, each once, by their places and digests: those `known` (see `picture_fields`), of
    at most `most_bytes` in base64.
    """
    content: list[Part] = []
    seen = set[str]()
    for place, digest in shown:
        if digest in seen or (part := known.get(digest)) is None:
            continue
        seen.add(digest)
        heading = f"## Picture: {one_line(place)}"
        if (size := -(-part["bytes"] // 3) * 4) > most_bytes:
            content.append({"type": "text", "text": f"{heading}\nNot shown: the request would be too large"})
            continue
        most_bytes -= size
        content += [
            {"type": "text", "text": heading},
            {"type": "file", "file": one_line(place), **part, "digest": digest},
        ]
    return {"role": "user", "content": content} if content else None
