"""What a model is asked, what it answers, and what a model is.

A model is one method: `async def ask(self, request: ModelRequest, on_text: OnText) -> Answer`. The caller is on the
event loop of the process, so that waiting for an answer costs no thread.
"""

from __future__ import annotations

import base64
import hashlib
import inspect
import json
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, Final, Protocol, runtime_checkable
from urllib.parse import unquote_to_bytes, urlsplit, urlunsplit

from ...broker_config import ConfiguredModel, Settings
from ...broker_config.addresses import MASK
from ...protocol import Limits, Rejected
from ...protocol.limits import MOST, plain, plain_scalar
from ..errors import CallFailed
from ..registry.activities import RegisteredModel, Registry


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What a model is asked (SPEC R12.5, R12.3)."""

    messages: Sequence[Mapping[str, Any]]
    """Chat messages, `{"role", "content"}`; a content is a text, or whatever a chat message of the context holds."""
    schema: Any = None
    """The JSON Schema of the answer; None where any JSON value will do."""
    config: Mapping[str, Any] = field(default_factory=dict)
    """`model`, `temperature`, `top_p`, `seed`, `stop`, `reasoning_effort`, `max_output_tokens`, `request_seconds` (SPEC
    R13.3); `wire` and `tool_choice`, where its tools go as functions; other keys are passed over.
    """
    provider_data: Mapping[str, str] = field(default_factory=dict)
    """What a provider has said beside the answers of earlier ticks, by tick (see `provider_data`)."""

    @property
    def text(self) -> str:
        """All that its messages say, one below the other."""
        return "\n".join(_content(message) for message in self.messages)

    @property
    def continues(self) -> bool:
        """Whether it is one of a loop, whose next request begins with this one."""
        properties = self.schema.get("properties", {}) if isinstance(self.schema, Mapping) else {}
        return "calls" in properties

    @property
    def shown(self) -> dict[str, Any]:
        """What an answer may depend on, but for the model."""
        settings = {key: value for key, value in self.config.items() if key not in ("model", "request_seconds")}
        return {"messages": list(self.messages), "schema": self.schema, "settings": settings}

    @property
    def digest(self) -> str:
        """By which it is known again: the same for the same messages, schema and settings, whichever model is asked."""
        text = json.dumps(self.shown, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def count_of(value: Any) -> int | None:
    """A number of tokens that a provider reports; None where it is none, or beyond what any answer takes."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST else None


@dataclass(frozen=True, slots=True)
class Usage:
    """What an answer cost, in tokens as the provider counts them."""

    input: int
    output: int
    cached: int = 0
    """How many of the input's tokens were read from the provider's cache."""
    written: int = field(default=0, compare=False)
    """How many of them were written to it: some providers take more for these."""
    is_whole: bool = True
    """Whether it is all; else the answer may have taken more output since."""

    def to_dict(self) -> dict[str, int]:
        """As the log has it (SPEC R13.5)."""
        counts = {"input": self.input, "output": self.output, "cached": self.cached}
        return counts if self.is_whole else {**counts, "is_whole": False}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model has written, as it has written it: nothing of it has been validated."""

    text: str
    model: str
    """The model's name as the provider reports it."""
    usage: Usage | None = None
    """None where the provider does not say."""
    duration_seconds: float = 0.0
    nanodollars: int | None = None
    """What it cost, where a price is known: billionths of a US dollar."""
    is_fallback: bool = False
    """Whether another model has answered than the one that was named."""
    words: str = ""
    """What was said beside the calls, where the tools go as functions (SPEC R12.6); no part of the text."""
    provider_data: str = ""
    """What the provider said besides, which its model is to be sent back (see `provider_data`)."""
    findings: tuple[str, ...] = ()
    """What could not be enforced on the wire, one sentence each (SPEC R12.6)."""


class Model(Protocol):
    """Anything that answers requests."""

    async def ask(self, request: ModelRequest, on_text: OnText) -> Answer:
        """Answer a request, once. Raises `ModelError`."""
        ...


@runtime_checkable
class Loading(Protocol):
    """A model that has to load something before it can be asked, such as an SDK."""

    async def prepare(self) -> None:
        """Load it, unless that was done."""
        ...


@runtime_checkable
class Listing(Protocol):
    """A model of an endpoint that can be asked which models it has."""

    async def names(self, seconds: float) -> list[str]:
        """Their names, waited for as long. Raises `ModelError`, `TimeoutError`."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


@dataclass(frozen=True, slots=True)
class Reported:
    """What a provider has said of the usage before the answer is whole, told between the pieces."""

    usage: Usage
    nanodollars: int | None = None
    """What it may come to, where a price is known."""


OnText = Callable[[str | Reported], None]
"""Called on the event loop with each piece of an answer's text as it comes, where the provider streams."""


class Words(str):
    """A piece of what a model says beside its calls, told as an output that is a text, which it is if no call follows.
    It is no part of the answer: that begins with the next piece that is none of these.
    """

    __slots__ = ()


def ignore(_: str | Reported) -> None:
    """An `OnText` that does nothing, for a caller that waits for the whole answer."""


# What can go wrong with a request to a model, each with what happens next (SPEC R13.4).
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
"""What to do about `ContextTooLong`."""


class ModelError(CallFailed):
    """A request that was not answered. `answer` is what came of it and has to be paid for, where anything did.

    No policy of a call tries it again: what another attempt may help has been tried until the request's deadline.
    """

    is_transient: ClassVar[bool] = False
    """Whether the same request may be answered later."""
    status: int | None = None
    """HTTP's, where the server has said one."""

    def __init__(self, message: str, *, answer: Answer | None = None, retry_after_seconds: float | None = None) -> None:
        super().__init__(message, retry=False)
        self.answer = answer
        self.retry_after_seconds = retry_after_seconds


class RateLimited(ModelError):
    """The provider takes no more requests for now."""

    is_transient = True


class Unreachable(ModelError):
    """The provider does not answer, or not with what it should."""

    is_transient = True


class BadRequest(ModelError):
    """The provider will not take the request as it is, and says why."""


class ContextTooLong(BadRequest):
    """The request is longer than the model can read at once."""


class Refused(ModelError):
    """The model declines to answer."""


class Truncated(ModelError):
    """The answer ends before its end; `answer` has what there is."""


class InvalidAnswer(ModelError):
    """The answer is not what was asked for."""


# Which models there are: those of the settings, and functions registered with `@model` (SPEC R13.11).
#
# A `config.model` names one of them, never an address. Nothing is loaded or asked for that.


def find_model(settings: Settings, name: str | None) -> ConfiguredModel | None:
    """The model of that name among those of the settings, as `KnownModels.find` does."""
    default = settings.default_model
    if name is None:
        return default
    if name in settings.models:
        return settings.models[name]
    return default if default is not None and name in (default.model, default.name) else None


class KnownModels:
    """The models by their names."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self._settings = settings
        self._default = settings.default_model
        self._named = settings.models
        self._registered = registry.models
        self._stand_ins = registry.stand_ins

    def find(self, name: str | None) -> ConfiguredModel | None:
        """The model of that name, by default the one of `ACTS_MODEL`; None where there is none.

        That one goes by `provider:name` and by `name`, too.
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
        """The same, whatever stands in for it."""
        found = find_model(self._settings, name)
        return ConfiguredModel(model=f"{name}:{name}") if found is None and name in self._registered else found

    def fallbacks(self, model: ConfiguredModel) -> Iterator[ConfiguredModel]:
        """What is asked when that model does not answer."""
        yield from filter(None, map(self.find, model.fallbacks))

    def asked(self, name: str | None) -> tuple[ConfiguredModel, ...]:
        """The model of that name, and those that are asked in its stead; none where there is none."""
        found = self.find(name)
        return (found, *self.fallbacks(found)) if found is not None else ()

    def see_pictures(self, name: str | None) -> bool:
        """Whether the model of that name, and all that are asked in its stead, are shown pictures of tools."""
        asked = self.asked(name)
        return bool(asked) and all(model.sees_pictures for model in asked)

    def configured(self) -> Iterator[ConfiguredModel]:
        """Those of the settings."""
        if self._default is not None:
            yield self._default
        yield from self._named.values()

    def __iter__(self) -> Iterator[str]:
        """Every name."""
        if self._default is not None:
            yield self._default.model
        yield from (*self._named, *self._registered)


# Functions registered with `@model`: `(messages, schema, config) -> answer`.
#
# An answer is a value, which becomes its JSON text, a text as the model wrote it, or an `Answer` with its usage. A
# coroutine function runs on the event loop, a plain one on a thread. A generator, of either kind, streams its answer:
# it yields pieces of the text, and its `Usage` where that is known; what it raises behind a piece breaks the answer
# off.

OnThread = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a plain function beside the event loop."""


class FunctionModel:
    """A registered function as a model."""

    def __init__(self, registered: RegisteredModel, on_thread: OnThread) -> None:
        self._registered = registered
        self._on_thread = on_thread

    async def ask(self, request: ModelRequest, on_text: OnText) -> Answer:
        """What the function answers. Raises `InvalidAnswer`, and whatever the function raises."""
        function = self._registered.function
        given = ([dict(message) for message in request.messages], request.schema, dict(request.config))
        if self._registered.is_async:
            said = await function(*given)
        else:
            said = await self._on_thread(lambda: function(*given))
        pieces: Any = self._beside(said) if inspect.isgenerator(said) else said
        if inspect.isasyncgen(pieces):
            return await self._streamed(pieces, on_text)
        answer = said if isinstance(said, Answer) else Answer(answer_text(said), self._registered.name)
        on_text(answer.text)
        return answer

    async def _beside(self, pieces: Iterator[Any]) -> AsyncGenerator[Any, None]:
        """What a plain generator yields, each piece on a thread."""
        over = object()
        while (piece := await self._on_thread(lambda: next(pieces, over))) is not over:
            yield piece

    async def _streamed(self, pieces: Any, on_text: OnText) -> Answer:
        """The answer that pieces come to. Raises `InvalidAnswer`, and what the generator raises."""
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


def answer_text(said: Any) -> str:
    """A text as it is, and any other value as JSON. Raises `InvalidAnswer` where it is none."""
    try:
        value = plain(said, Limits())
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError, Rejected) as error:
        raise InvalidAnswer(f"what the model returned is not a JSON value: {error}") from None


# What the SDKs of providers have in common: their HTTP client, and their errors as ours (SPEC R13.4).
#
# One client for a process: its connections are kept and shared. It follows no redirects, since prompts go where the
# operator has said and nowhere else, and it waits as long as the request's deadline lets it.

PLAIN: Final = {"Accept-Encoding": "identity"}
"""Asks for an answer whose size is known as it comes."""
_CONNECT_SECONDS: Final = 10.0
_LONGEST_TEXT: Final = 2_000
_TOO_MANY: Final = 429
_LATER: Final = frozenset({408, 409, 425})
_SERVERS_FAULT: Final = 500
_NEVER: Final = frozenset({501, 505})
"""What a server answers that takes no such requests: another one than a model's, mostly."""
_STATUSES: Final = range(400, 600)
_STATUS_DIGITS: Final = 3
_PASSING: Final = frozenset({"overloaded_error", "rate_limit_error", "api_error", "server_error"})
"""What providers call errors without a status that may pass."""
_PAGE: Final = "text/html"
_SPENT: Final = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
"""By which OpenAI says with a 429 that nothing is left to pay with: that does not pass by waiting."""
_LENGTH_WORDS: Final = (
    *("context_length", "context length", "context size", "context limit", "context window"),
    *("exceed_context", "prompt is too long"),
)
"""By which OpenAI, Anthropic, vLLM and llama.cpp say that a request is longer than the model can read."""
_OF_CONNECTIONS: Final = frozenset({"httpx", "httpx2", "httpcore", "httpcore2", "anyio", "aiohttp"})
"""The libraries below an SDK whose errors come through it."""
TRACEPARENT: Final[ContextVar[str | None]] = ContextVar("acts_traceparent", default=None)
"""The span that requests are part of, as the header of W3C Trace Context; None where nobody has asked for a trace."""
_KEY_LENGTH: Final = 4
"""A shorter one is no secret, and would be found where it is none."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much one process takes from a provider."""

    answer_bytes: int
    connections: int

    @property
    def stream_bytes(self) -> int:
        """Of a stream of events, most of which are a few letters and some hundred bytes around them."""
        return 64 * self.answer_bytes

    @property
    def body_bytes(self) -> int:
        """Of an answer that comes in one piece, in which a letter may be written in six."""
        return 8 * self.answer_bytes


def client_options(sdk: Any, model: ConfiguredModel, bounds: Bounds, default_url: str) -> dict[str, Any]:
    """What a client of an SDK is made with. Nothing of it is left to the SDK's own environment variables."""
    limits = type(sdk.DEFAULT_CONNECTION_LIMITS)
    most = bounds.connections
    url, headers = _address(default_url if model.base_url is None else model.base_url.get_secret_value())
    return {
        "api_key": "none" if model.api_key is None else model.api_key.get_secret_value(),
        "base_url": url,
        "default_headers": headers,
        "max_retries": 0,
        "http_client": sdk.DefaultAioHttpClient(
            limits=limits(max_connections=most, max_keepalive_connections=most),
            timeout=type(sdk.DEFAULT_TIMEOUT)(None, connect=_CONNECT_SECONDS),
            follow_redirects=False,
            event_hooks={
                "request": [_place_in_trace],
                "response": [partial(_cut_error, most_bytes=bounds.answer_bytes)],
            },
        ),
    }


def _address(url: str) -> tuple[str, dict[str, str]]:
    """An address without its user and password, and the header that has them in place of a key's: with both of them the
    HTTP library sends nothing.
    """
    parts = urlsplit(url)
    user, is_there, host = parts.netloc.rpartition("@")
    if not is_there:
        return url, {}
    secret = base64.b64encode(unquote_to_bytes(user if ":" in user else f"{user}:")).decode()
    return urlunsplit(parts._replace(netloc=host)), {"Authorization": f"Basic {secret}"}


def extra_body(model: ConfiguredModel) -> dict[str, Any]:
    """What the body of each request has besides, as the operator has set it."""
    found: dict[str, Any] = json.loads(model.extra_body) if model.extra_body is not None else {}
    return found


async def _place_in_trace(request: Any) -> None:
    """Hand on the span that the request is part of."""
    if (place := TRACEPARENT.get()) is not None:
        request.headers["traceparent"] = place


async def _cut_error(response: Any, *, most_bytes: int) -> None:
    """Keep so many bytes of the body of an error, as they came: an SDK reads and unfolds the whole of it."""
    if not response.is_error:
        return
    response.headers.pop("content-encoding", None)
    plain = import_module(type(response).__module__.partition(".")[0])
    kept = bytearray()
    async for piece in response.stream:
        kept += piece[: most_bytes - len(kept)]
        if len(kept) == most_bytes:
            break
    await response.stream.aclose()
    response.stream = plain.ByteStream(bytes(kept))


@contextmanager
def errors_of(sdk: Any, model: ConfiguredModel) -> Iterator[None]:
    """An SDK's errors, and those of its HTTP library, as ours; keys are masked."""
    try:
        yield
    except ModelError:
        raise
    except sdk.APIStatusError as error:
        raise _of_status(error, model) from None
    except sdk.APIConnectionError as error:
        cause = error.__cause__ or error
        raise Unreachable(masked(f"{_place(model)} does not answer: {_said(cause)}", model)) from None
    except sdk.APIError as error:
        raise InvalidAnswer(masked(f"{_place(model)}: {_said(error)}", model)) from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in _OF_CONNECTIONS:
            raise
        raise Unreachable(masked(f"the connection to {_place(model)} broke: {_said(error)}", model)) from None


def masked(text: str, model: ConfiguredModel) -> str:
    """A provider's words, without the key that it was asked with."""
    text = without_key(text, model)
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…"


def without_key(text: str, model: ConfiguredModel) -> str:
    """A text, whole, without the key of a model."""
    key = "" if model.api_key is None else model.api_key.get_secret_value()
    return text if len(key) < _KEY_LENGTH else text.replace(key, MASK)


def verify_content(headers: Mapping[str, str], *types: str) -> str:
    """The content's type, which is one of these. Raises `InvalidAnswer`, and `BadRequest` for a page for people."""
    found = headers.get("content-type", "").partition(";")[0].strip().lower()
    if found not in types or headers.get("content-encoding", "identity") != "identity":
        kind = BadRequest if found == _PAGE else InvalidAnswer
        raise kind(
            f"the model's server has answered with {found or 'something'} and not with {' or '.join(types)}: "
            "is ACTS_MODEL_BASE_URL right?"
        )
    return found


def error_in_body(error: Any, model: ConfiguredModel) -> ModelError:
    """An error that comes in place of an answer, in a body of status 200 or in the midst of a stream. A code that is a
    number is the status that the provider behind a gateway has answered with.
    """
    body = {"error": error}
    if (status := _status_in(error)) is not None:
        return _of_code(status, body, "", {}, model)
    passes = isinstance(error, Mapping) and error.get("type") in _PASSING
    text = masked(f"the model's server says: {words_of(body)}", model)
    return Unreachable(text) if passes else InvalidAnswer(text)


def _status_in(error: Any) -> int | None:
    """The status of HTTP that an error names; None where it names none."""
    for key in ("code", "status"):
        said = error.get(key) if isinstance(error, Mapping) else None
        if isinstance(said, str) and said.isascii() and said.isdigit():
            said = int(said[:_STATUS_DIGITS])
        if isinstance(said, int) and said in _STATUSES:
            return said
    return None


def _of_status(error: Any, model: ConfiguredModel) -> ModelError:
    return _of_code(int(error.status_code), error.body, _said(error), error.response.headers, model)


def _of_code(status: int, body: Any, said: str, headers: Mapping[str, str], model: ConfiguredModel) -> ModelError:
    found = _by_status(status, body, said, headers, model)
    found.status = status
    return found


def _by_status(status: int, body: Any, said: str, headers: Mapping[str, str], model: ConfiguredModel) -> ModelError:
    text = masked(f"{_place(model)} says {status}: {words_of(body) or said}", model)
    wait_seconds = _retry_after_seconds(headers)
    if status == _TOO_MANY and not _codes(body) & _SPENT:
        return RateLimited(text, retry_after_seconds=wait_seconds)
    if status in _NEVER:
        return BadRequest(f"{text}: is ACTS_MODEL_BASE_URL right?")
    if status >= _SERVERS_FAULT or status in _LATER:
        return Unreachable(text, retry_after_seconds=wait_seconds)
    return ContextTooLong(f"{text}: {TOO_LONG}") if _is_too_long(body) else BadRequest(text)


def _codes(body: Any) -> set[str]:
    """What a provider calls an error."""
    inner = _inner(body)
    return (
        {inner[key] for key in ("code", "type") if isinstance(inner.get(key), str)}
        if isinstance(inner, Mapping)
        else set()
    )


def _is_too_long(body: Any) -> bool:
    """Whether a provider says that a request is longer than the model's context."""
    inner = _inner(body)
    parts = [inner.get(key) for key in ("code", "type", "message")] if isinstance(inner, Mapping) else [inner]
    said = " ".join(part for part in parts if isinstance(part, str)).lower()
    return any(words in said for words in _LENGTH_WORDS)


def words_of(body: Any) -> str:
    """The provider's own words in the body of an error; nothing where it has none."""
    inner = _inner(body)
    said = inner.get("message") if isinstance(inner, Mapping) else inner
    return said if isinstance(said, str) else ""


def _inner(body: Any) -> Any:
    """What a body says of an error. Gemini's endpoint for OpenAI's clients answers with a list of one."""
    if isinstance(body, list) and body:
        body = body[0]
    return body.get("error", body) if isinstance(body, Mapping) else body


def _said(error: BaseException) -> str:
    return " ".join(f"{error}".split()) or type(error).__name__


def _place(model: ConfiguredModel) -> str:
    """The model as people know it; its address is shown without what is secret in it."""
    return model.model if model.base_url is None else f"{model.model} at {model.base_url}"


def _retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """How long the provider asks to wait; None where it does not say so in a way that can be read."""
    for name, unit_seconds in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers[name]) * unit_seconds
        except (KeyError, ValueError):
            continue
        return max(0.0, seconds) if math.isfinite(seconds) else None
    try:
        return max(0.0, parsedate_to_datetime(headers["retry-after"]).timestamp() - time.time())
    except (KeyError, ValueError):
        return None
