"""An MCP server at an address: the SDK's transport over HTTP, its answers bounded.

The SDK ends the whole session where a request meets an error of HTTP, and does not say which; here that is the answer
to this one request. No token but those of the server's own settings is sent, and none follows a redirect to another
host: the SDK follows none that leaves the server's origin.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final

from .errors import TOO_LARGE, too_large

_CONNECT_SECONDS: Final = 30.0
_STREAM: Final = "text/event-stream"
_PASSING: Final = frozenset({429, 502, 503, 504})
"""Statuses of a server, or of a proxy before it, that may be others soon."""
_NO_KEY: Final = frozenset({401, 403})


@asynccontextmanager
async def web(url: str, headers: Mapping[str, str], *, most_bytes: int, timeout_seconds: float) -> AsyncIterator[Any]:
    """The streams of a session with a server at that address. A message has at most `most_bytes`, and comes within
    `timeout_seconds` of the one before.
    """
    import httpx2
    from mcp.client.streamable_http import streamable_http_client
    from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_REQUEST, ErrorData, JSONRPCError

    def failed(code: int, text: str) -> Any:
        error = JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=code, message=text))
        return httpx2.Response(500, headers={"Content-Type": "application/json"}, content=error.model_dump_json())

    class Bounded(httpx2.AsyncHTTPTransport):
        """Reads no answer beyond the limit; of a stream the SDK bounds each event."""

        async def handle_async_request(self, request: Any) -> Any:
            try:
                response = await super().handle_async_request(request)
                if response.headers.get("content-encoding", "identity") != "identity":
                    await response.aclose()
                    return failed(INVALID_REQUEST, "a compressed answer, which was not asked for")
                if response.headers.get("content-type", "").lower().startswith(_STREAM):
                    return response
                body = await self._read(response)
            except httpx2.TransportError as error:
                return failed(CONNECTION_CLOSED, f"{type(error).__name__}: {error}")
            if body is None:
                return failed(TOO_LARGE, too_large(most_bytes))
            response.stream = httpx2.ByteStream(body)
            status = response.status_code
            if b'"jsonrpc"' in body or not (status in _PASSING | _NO_KEY or status >= 500):
                return response
            return failed(*self._meant(status))

        async def _read(self, response: Any) -> bytes | None:
            """The body of an answer; None where it is beyond the limit."""
            body = bytearray()
            try:
                async for piece in response.stream:
                    body += piece
                    if len(body) > most_bytes:
                        return None
            finally:
                await response.stream.aclose()
            return bytes(body)

        def _meant(self, status: int) -> tuple[int, str]:
            named = f"HTTP {status} {HTTPStatus(status).phrase if status in set(HTTPStatus) else ''}".strip()
            if status in _NO_KEY:
                return INVALID_REQUEST, f'{named}: look at the "headers" that ACTS_MCP sends to it'
            return (CONNECTION_CLOSED if status in _PASSING else INTERNAL_ERROR), named

    client = httpx2.AsyncClient(
        transport=Bounded(),
        headers={**headers, "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(_CONNECT_SECONDS, read=timeout_seconds),
    )
    async with client, streamable_http_client(url, http_client=client, max_sse_event_size=most_bytes) as streams:
        yield streams
