"""An MCP server at an address: the SDK's transport over HTTP, its answers bounded.

No token but those of the server's own settings is sent, and none follows a redirect to another host: the SDK follows
none that leaves the server's origin.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

_CONNECT_SECONDS: Final = 30.0
_STREAM: Final = b"text/event-stream"


@asynccontextmanager
async def web(url: str, headers: Mapping[str, str], *, most_bytes: int, timeout_seconds: float) -> AsyncIterator[Any]:
    """The streams of a session with a server at that address. A message has at most `most_bytes`, and comes within
    `timeout_seconds` of the one before.
    """
    import httpx2
    from mcp.client.streamable_http import streamable_http_client

    class Bounded(httpx2.AsyncHTTPTransport):
        """Reads no answer beyond the limit; of a stream the SDK bounds each event."""

        async def handle_async_request(self, request: Any) -> Any:
            response = await super().handle_async_request(request)
            if response.headers.get("content-encoding", "identity") != "identity":
                raise httpx2.RemoteProtocolError("a compressed answer, which was not asked for")
            kind = response.headers.get("content-type", "").encode("ascii", "replace")
            if not kind.startswith(_STREAM):
                response.stream = Limited(response.stream)
            return response

    class Limited(httpx2.AsyncByteStream):
        def __init__(self, stream: Any) -> None:
            self._stream = stream

        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = most_bytes
            async for piece in self._stream:
                left -= len(piece)
                if left < 0:
                    raise httpx2.RemoteProtocolError(f"more than {most_bytes} bytes in one answer")
                yield piece

        async def aclose(self) -> None:
            await self._stream.aclose()

    client = httpx2.AsyncClient(
        transport=Bounded(),
        headers={**headers, "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(_CONNECT_SECONDS, read=timeout_seconds),
    )
    async with client, streamable_http_client(url, http_client=client, max_sse_event_size=most_bytes) as streams:
        yield streams
