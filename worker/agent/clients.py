"""The HTTP client of the providers' SDKs, and the translation of their errors (SPEC R13.4).

A client keeps and shares its connections. It follows no redirects, since prompts go where the operator has said and
nowhere else, and it waits as long as the request's deadline lets it.
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
from ..registry.models import TOO_LONG, BadRequest, ContextTooLong, InvalidAnswer, ModelError, RateLimited, Unreachable

PLAIN: Final = {"Accept-Encoding": "identity"}
"""Asks for an uncompressed answer, whose size is known as it comes."""
_TOO_MANY: Final = 429
_LATER: Final = frozenset({408, 409, 425})
_NEVER: Final = frozenset({501, 505})
"""The statuses of a server that takes no such requests, which is mostly none of a model."""
_STATUSES: Final = range(400, 600)
_STATUS_DIGITS: Final = 3
_PASSING: Final = frozenset({"overloaded_error", "rate_limit_error", "api_error", "server_error"})
"""The types of errors without a status that may pass."""
_PAGE: Final = "text/html"
_SPENT: Final = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
"""The codes with which OpenAI says in a 429 that nothing is left to pay with, which waiting does not help."""
_LENGTH_WORDS: Final = (
    *("context_length", "context length", "context size", "context limit", "context window"),
    *("exceed_context", "prompt is too long"),
)
"""Words with which OpenAI, Anthropic, vLLM and llama.cpp say that a request is longer than the model can read."""
OF_CONNECTIONS: Final = frozenset({"httpx", "httpx2", "httpcore", "httpcore2", "anyio", "aiohttp"})
"""The libraries below an SDK whose errors come through it."""
TRACEPARENT: Final[ContextVar[str | None]] = ContextVar("acts_traceparent", default=None)
"""The span that requests are part of, as the header of W3C Trace Context; None where nobody has asked for a trace."""
_KEY_LENGTH: Final = 4
"""A shorter key is no secret, and its letters would be found in other words."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one process on what it takes from a provider."""

    answer_bytes: int
    connections: int

    @property
    def stream_bytes(self) -> int:
        """The most bytes of a stream of events, most of which are a few letters in some hundred bytes."""
        return 64 * self.answer_bytes

    @property
    def body_bytes(self) -> int:
        """The most bytes of an answer in one piece, in which an escaped letter may have six."""
        return 8 * self.answer_bytes


def client_options(sdk: Any, model: ConfiguredModel, bounds: Bounds, default_url: str) -> dict[str, Any]:
    """The arguments of an SDK's client. None of them is left to the SDK's own environment variables."""
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
    """An address without its user and password, and the header with these, which replaces the key's: if both were
    there, the HTTP library would send neither.
    """
    parts = urlsplit(url)
    user, is_there, host = parts.netloc.rpartition("@")
    if not is_there:
        return url, {}
    secret = base64.b64encode(unquote_to_bytes(user if ":" in user else f"{user}:")).decode()
    return urlunsplit(parts._replace(netloc=host)), {"Authorization": f"Basic {secret}"}


def extra_body(model: ConfiguredModel) -> dict[str, Any]:
    """The fields that the operator adds to the body of each request."""
    found: dict[str, Any] = json.loads(model.extra_body) if model.extra_body is not None else {}
    return found


async def _place_in_trace(request: Any) -> None:
    """Send the span that the request is part of."""
    if (place := TRACEPARENT.get()) is not None:
        request.headers["traceparent"] = place


async def _cut_error(response: Any, *, most_bytes: int) -> None:
    """Cut the body of an error to `most_bytes` as they came: an SDK reads and decompresses all of it."""
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
    """Raise the errors of an SDK and of its HTTP library as `ModelError`; keys are masked."""
    try:
        yield
    except ModelError:
        raise
    except sdk.APIStatusError as error:
        headers = error.response.headers
        raise _by_status(int(error.status_code), error.body, _line(error), headers, model) from None
    except sdk.APIConnectionError as error:
        cause = error.__cause__ or error
        raise Unreachable(masked(f"{place_of(model)} does not answer: {_line(cause)}", model)) from None
    except sdk.APIError as error:
        raise InvalidAnswer(masked(f"{place_of(model)}: {_line(error)}", model)) from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in OF_CONNECTIONS:
            raise
        raise Unreachable(masked(f"the connection to {place_of(model)} broke: {_line(error)}", model)) from None


def masked(text: str, model: ConfiguredModel) -> str:
    """A provider's text, cut, without the key of the request."""
    text = without_key(text, model)
    return text if len(text) <= CLIENTS_LONGEST_TEXT else text[:CLIENTS_LONGEST_TEXT] + "…"


def without_key(text: str, model: ConfiguredModel) -> str:
    """A whole text without the key of a model."""
    key = "" if model.api_key is None else model.api_key.get_secret_value()
    return text if len(key) < _KEY_LENGTH else text.replace(key, MASK)


def verify_content(headers: Mapping[str, str], *types: str) -> str:
    """The content type, which is one of `types`. Raises `InvalidAnswer`, and `BadRequest` for a page for people."""
    found = headers.get("content-type", "").partition(";")[0].strip().lower()
    if found not in types or headers.get("content-encoding", "identity") != "identity":
        kind = BadRequest if found == _PAGE else InvalidAnswer
        text = f"has answered with {found or 'something'} and not with {' or '.join(types)}"
        raise kind(f"the model's server {text}: is ACTS_MODEL_BASE_URL right?")
    return found


def error_in_body(error: Any, model: ConfiguredModel) -> ModelError:
    """An error instead of an answer, in a body with status 200 or in the middle of a stream. A code that is a
    number is the status of the provider behind a gateway.
    """
    body = {"error": error}
    if (status := _status_in(error)) is not None:
        return _by_status(status, body, "", {}, model)
    passes = isinstance(error, Mapping) and error.get("type") in _PASSING
    text = masked(f"the model's server says: {error_texts(body).get('message', '')}", model)
    return Unreachable(text) if passes else InvalidAnswer(text)


def _status_in(error: Any) -> int | None:
    """The status of HTTP that an error names; None where it names none."""
    for key in ("code", "status"):
        status = error.get(key) if isinstance(error, Mapping) else None
        if isinstance(status, str) and status.isascii() and status.isdigit():
            status = int(status[:_STATUS_DIGITS])
        if isinstance(status, int) and status in _STATUSES:
            return status
    return None


def _by_status(status: int, body: Any, text: str, headers: Mapping[str, str], model: ConfiguredModel) -> ModelError:
    """The error for a status; `text` counts where the body has no message."""
    texts = error_texts(body)
    text = masked(f"{place_of(model)} says {status}: {texts.get('message') or text}", model)
    wait_seconds = _retry_after_seconds(headers)
    error: ModelError
    if status == _TOO_MANY and _SPENT.isdisjoint((texts.get("code"), texts.get("type"))):
        error = RateLimited(text, retry_after_seconds=wait_seconds)
    elif status in _NEVER:
        error = BadRequest(f"{text}: is ACTS_MODEL_BASE_URL right?")
    elif status >= SERVERS_FAULT or status in _LATER:
        error = Unreachable(text, retry_after_seconds=wait_seconds)
    elif any(words in " ".join(texts.values()).lower() for words in _LENGTH_WORDS):
        error = ContextTooLong(f"{text}: {TOO_LONG}")
    else:
        error = BadRequest(text)
    error.status = status
    return error


def error_texts(body: Any) -> dict[str, str]:
    """The texts in the body of an error: its `code`, `type` and `message`, where it has them."""
    if isinstance(body, list) and body:  # Gemini's endpoint for OpenAI's clients answers with a list of one
        body = body[0]
    error = body.get("error", body) if isinstance(body, Mapping) else body
    fields = error if isinstance(error, Mapping) else {"message": error}
    return {key: fields[key] for key in ("code", "type", "message") if isinstance(fields.get(key), str)}


def _line(error: BaseException) -> str:
    return " ".join(f"{error}".split()) or type(error).__name__


def place_of(model: ConfiguredModel) -> str:
    """The model's name and address for people, without secrets."""
    return model.model if model.base_url is None else f"{model.model} at {model.base_url}"


def _retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """The wait that the provider asks for; None where it names none that can be read."""
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
