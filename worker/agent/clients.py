"""What the SDKs of providers have in common: their HTTP client, and their errors as ours (SPEC R13.4).

One client for a process: its connections are kept and shared. It follows no redirects, since prompts go where the
operator has said and nowhere else, and it waits as long as the request's deadline lets it.
"""

from __future__ import annotations

import base64
import json
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from importlib import import_module
from typing import Any, Final
from urllib.parse import unquote_to_bytes, urlsplit, urlunsplit

from ...broker_config import ConfiguredModel
from ...broker_config.addresses import MASK
from ..limits import CLIENTS_CONNECT_SECONDS, CLIENTS_LONGEST_TEXT, SERVERS_FAULT
from ..registry.models import (
    TOO_LONG,
    BadRequest,
    ContextTooLong,
    InvalidAnswer,
    ModelError,
    RateLimited,
    Unreachable,
)

PLAIN: Final = {"Accept-Encoding": "identity"}
"""Asks for an answer whose size is known as it comes."""
_TOO_MANY: Final = 429
_LATER: Final = frozenset({408, 409, 425})
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
            timeout=type(sdk.DEFAULT_TIMEOUT)(None, connect=CLIENTS_CONNECT_SECONDS),
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
    return text if len(text) <= CLIENTS_LONGEST_TEXT else text[:CLIENTS_LONGEST_TEXT] + "…"


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
    if status >= SERVERS_FAULT or status in _LATER:
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
