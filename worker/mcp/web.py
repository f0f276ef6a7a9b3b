"""An MCP server at an address: the SDK's transport over HTTP, its answers bounded.

The SDK ends the whole session where a request meets an error of HTTP, and does not say which; here that is the answer
to this one request. Each error says where it comes from (`Origin`): the status of HTTP, or a stream that breaks off,
tells that, and never the error's number. No token but those of the server's own settings is sent, and none follows a
redirect to another host: the SDK follows none that leaves the server's origin.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCResponse

from .errors import Origin, Told, too_large
from .listing import Heard

_CONNECT_SECONDS: Final = 30.0
_STREAM: Final = "text/event-stream"
_PASSING: Final = frozenset({429, 502, 503, 504})
"""Statuses of a server, or of a proxy before it, that may be others soon."""
_NO_KEY: Final = frozenset({401, 403})
_NO_PLACE: Final = frozenset({400, 404, 405, 406, 415})
"""Statuses of an address that speaks something else, such as the older transport over SSE."""
_SESSION: Final = "mcp-session-id"
_BROKEN_OFF: Final = "SSE stream ended"
"""How the SDK's error begins for a stream that has ended without an answer."""
_FAILED: Final = "SSE stream failed"
_TOO_LARGE: Final = "byte limit"
"""How its error begins for a stream that it cannot read, and what it says of an event beyond the limit."""


@asynccontextmanager
async def web(url: str, headers: Mapping[str, str], *, most_bytes: int, timeout_seconds: float) -> AsyncIterator[Any]:
    """The streams of a session with a server at that address. A message has at most `most_bytes`, and comes within
    `timeout_seconds` of the one before.
    """
    faults = _Faults(most_bytes)
    client = httpx2.AsyncClient(
        transport=_Bounded(faults),
        headers={**headers, "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(_CONNECT_SECONDS, read=timeout_seconds),
    )
    async with (
        client,
        streamable_http_client(url, http_client=client, max_sse_event_size=most_bytes) as (reading, writing),
    ):
        yield Heard(reading, faults.tell), writing


@dataclass(frozen=True)
class _Faults:
    """The requests that the server has not answered, by their ids."""

    most_bytes: int
    origins: dict[Any, Origin] = field(default_factory=dict)
    """Those to which this module has answered itself."""
    broken: set[Any] = field(default_factory=set)
    """Those whose stream the server has broken off."""

    def answer(self, request: httpx2.Request, origin: Origin, text: str) -> httpx2.Response:
        """Answer in the server's place."""
        self.origins[_id_in(request.content)] = origin
        error = JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=INTERNAL_ERROR, message=text))
        return httpx2.Response(500, headers={"Content-Type": "application/json"}, content=error.model_dump_json())

    def tell(self, message: object) -> None:
        """Write into an error where it comes from."""
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            return
        if isinstance(message, JSONRPCError):
            origin = self.origins.pop(message.id, Origin.SERVER)
            if message.error.message.startswith(_FAILED) and _TOO_LARGE in message.error.message:
                origin, message.error.message = Origin.UNFIT, f"it answered {too_large(self.most_bytes)}"
            if message.id in self.broken and message.error.message.startswith(_BROKEN_OFF):
                origin = Origin.UNREACHABLE
            message.error.data = Told(origin, message.error.data)
        self.broken.discard(message.id)


class _Bounded(httpx2.AsyncHTTPTransport):
    """Reads no answer beyond the limit; of a stream the SDK bounds each event."""

    def __init__(self, faults: _Faults) -> None:
        super().__init__()
        self._faults = faults

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await super().handle_async_request(request)
            if response.headers.get("content-encoding", "identity") != "identity":
                await response.aclose()
                return self._faults.answer(request, Origin.UNFIT, "a compressed answer, which was not asked for")
            if response.headers.get("content-type", "").lower().startswith(_STREAM):
                response.stream = _Watched(response.stream, request, self._faults)
                return response
            body = await self._read(response)
        except httpx2.TransportError as error:
            return self._faults.answer(request, Origin.UNREACHABLE, f"{type(error).__name__}: {error}")
        if body is None:
            return self._faults.answer(request, Origin.UNFIT, f"it answered {too_large(self._faults.most_bytes)}")
        response.stream = httpx2.ByteStream(body)
        if request.method != "POST" or response.status_code < HTTPStatus.BAD_REQUEST:
            return response
        return self._refused(request, response, body)

    async def _read(self, response: httpx2.Response) -> bytes | None:
        """The body of an answer; None where it is beyond the limit."""
        body, stream = bytearray(), response.stream
        assert isinstance(stream, httpx2.AsyncByteStream)
        try:
            async for piece in stream:
                body += piece
                if len(body) > self._faults.most_bytes:
                    return None
        finally:
            await stream.aclose()
        return bytes(body)

    def _refused(self, request: httpx2.Request, response: httpx2.Response, body: bytes) -> httpx2.Response:
        """What an error of HTTP is: the server's answer where its body is that, by the request's id."""
        status, is_message = response.status_code, b'"jsonrpc"' in body
        if is_message and _id_in(body) == _id_in(request.content):
            return response
        named = f"HTTP {status} {HTTPStatus(status).phrase if status in set(HTTPStatus) else ''}".strip()
        has_session = _SESSION in request.headers
        if has_session and (status == HTTPStatus.NOT_FOUND or (status == HTTPStatus.BAD_REQUEST and is_message)):
            text = f"{named}: it does not know the session any more"
            return self._faults.answer(request, Origin.SESSION_GONE, text)
        if is_message:
            return response
        if status in _PASSING:
            return self._faults.answer(request, Origin.UNREACHABLE, named)
        if status in _NO_KEY:
            named += ': look at the "headers" that ACTS_MCP sends to it'
        elif status in _NO_PLACE and not has_session:
            other = "only streamable HTTP is spoken here, and not the older transport over SSE"
            named += f': {other}; look at the "url" in ACTS_MCP'
        return self._faults.answer(request, Origin.UNFIT, named)


class _Watched(httpx2.AsyncByteStream):
    """A stream of events; one that ends before the SDK lets go of it is broken off."""

    def __init__(self, stream: Any, request: httpx2.Request, faults: _Faults) -> None:
        self._stream = stream
        self._request = request
        self._faults = faults

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._stream:
                yield piece
        except httpx2.TransportError:
            self._faults.broken.add(_id_in(self._request.content))
            raise
        self._faults.broken.add(_id_in(self._request.content))

    async def aclose(self) -> None:
        await self._stream.aclose()


def _id_in(body: bytes) -> Any:
    """The id of a message; None where it has none, or is none."""
    try:
        return json.loads(body)["id"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
