"""The transports to MCP servers: to a process of ours by its standard input and output, or to an address over HTTP.

A message of a process is a line. The SDK's own transport for that reads a line of any length, and leaves a server that
hangs behind when a worker is killed. This one bounds the line, and runs the server under a guardian
(`broker_config/guardian.py`), so that it ends with us.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import socket
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

import anyio
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from ...broker_config.embedded import guarded
from .. import limits
from .mcp_tools import ObservedMessages, Origin, OriginData, too_large

logger = logging.getLogger(__name__)

_ID: Final = re.compile(rb'"id"\s*:\s*(\d{1,15})\b')
"""The SDK numbers its requests."""
_CLOSED: Final = (anyio.ClosedResourceError, anyio.BrokenResourceError)


@asynccontextmanager
async def stdio(
    name: str,
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None,
    most_bytes: int,
    on_end: Callable[[str], None],
    last_lines: deque[str],
) -> AsyncIterator[Any]:
    """The streams of a session with a server that is started for it, and ended with it.

    `on_end` is called with the reason when the server closes its output or writes more than `most_bytes` in one
    message; where one request alone is unanswered, that is its answer. `last_lines` gets what the server writes on
    standard error. Raises the OSError that starting the server met.
    """
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        process = await asyncio.create_subprocess_exec(
            *guarded(command, theirs, grace_seconds=limits.MCP_TRANSPORTS_GRACE_SECONDS),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=dict(env),
            cwd=cwd,
            pass_fds=(theirs.fileno(),),
            start_new_session=True,
            limit=most_bytes,
        )
        theirs.close()
        server = _ServerProcess(name, process, most_bytes, on_end, last_lines)
        try:
            await _started(ours, command[0])
            received, reading = anyio.create_memory_object_stream[Any](0)
            writing, to_send = anyio.create_memory_object_stream[Any](0)
            async with anyio.create_task_group() as tasks, received, reading, writing, to_send:
                tasks.start_soon(server.read, received)
                tasks.start_soon(server.write, to_send)
                tasks.start_soon(server.listen)
                yield reading, writing
                tasks.cancel_scope.cancel()
        finally:
            try:
                with anyio.CancelScope(shield=True):
                    await server.end(ours)
            finally:
                # A process that has inherited its output may keep it open; asyncio has no public way to let go of it.
                process._transport.close()  # type: ignore[attr-defined]


async def _started(control: socket.socket, command: str) -> None:
    """Wait until the guardian says that the server was started."""
    word, _, number = (await asyncio.get_running_loop().sock_recv(control, 64)).decode().partition(" ")
    if word != "started":
        code = int(number) if word == "failed" else 0
        raise OSError(code, os.strerror(code) if code else "it could not be started", command)


@dataclass
class _ServerProcess:
    """A server that is a process, and the requests that it has not answered."""

    name: str
    process: Process
    most_bytes: int
    on_end: Callable[[str], None]
    last_lines: deque[str]
    unanswered: set[Any] = field(default_factory=set)
    is_silent: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether standard error is closed."""

    async def read(self, received: Any) -> None:
        """Pass on each message of the server. A line that is none is logged, and where it is meant as an answer, that
        answer is an error: the caller need not wait until its time is over.
        """
        assert self.process.stdout is not None
        why = "it has closed its output"
        async with received:
            try:
                while line := await self.process.stdout.readline():
                    await self._pass_on(line, received)
            except ValueError:  # a line beyond the limit
                why = f"it answered {too_large(self.most_bytes)}"
                if len(self.unanswered) == 1:
                    with suppress(*_CLOSED):
                        await self._fail(next(iter(self.unanswered)), why, received)
            except (OSError, *_CLOSED):
                pass
            with anyio.move_on_after(limits.LAST_WORDS_SECONDS):
                await self.is_silent.wait()
            self.on_end(why)

    async def _pass_on(self, line: bytes, received: Any) -> None:
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            logger.warning("MCP server %s wrote an invalid message: %.200r", self.name, line)
            for id_ in _answered(line, self.unanswered):
                await self._fail(id_, "its answer is no message, or too deep", received)
            return
        self.unanswered.discard(getattr(message, "id", None))
        if isinstance(message, JSONRPCError):
            message.error.data = OriginData(Origin.SERVER, message.error.data)
        await received.send(SessionMessage(message))

    async def _fail(self, id_: Any, text: str, received: Any) -> None:
        """Answer a request with an error of ours."""
        self.unanswered.discard(id_)
        error = ErrorData(code=INVALID_REQUEST, message=text, data=OriginData(Origin.UNFIT))
        await received.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=id_, error=error)))

    async def write(self, to_send: Any) -> None:
        """Pass on each message to the server, and note the requests that it has to answer."""
        assert self.process.stdin is not None
        with suppress(OSError, *_CLOSED):
            async for each in to_send:
                match each.message:
                    case JSONRPCRequest(id=id_):
                        self.unanswered.add(id_)
                    case JSONRPCNotification(method="notifications/cancelled", params={"requestId": id_}):
                        self.unanswered.discard(id_)
                text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                self.process.stdin.write(text.encode() + b"\n")
                await self.process.stdin.drain()

    async def listen(self) -> None:
        """Log standard error, one line for each piece: the server forges no line of ours."""
        assert self.process.stderr is not None
        while piece := await self.process.stderr.read(limits.MCP_TRANSPORTS_CHUNK_BYTES):
            for line in filter(None, piece.decode(errors="replace").splitlines()):
                self.last_lines.append(line[: limits.SHOWN])
                logger.info("MCP server %s: %r", self.name, line[: limits.SHOWN])
        self.is_silent.set()

    async def end(self, control: socket.socket) -> None:
        """Close the server's input, then have its guardian stop it, and at last kill the guardian."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        grace = limits.MCP_TRANSPORTS_GRACE_SECONDS
        for seconds in (grace, grace + limits.MCP_TRANSPORTS_MARGIN_SECONDS):
            with suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), seconds)
                return
            with suppress(OSError):
                control.send(b"stop\n")
        with suppress(ProcessLookupError):  # with its guardian Linux ends the server
            self.process.kill()


def _answered(line: bytes, unanswered: set[Any]) -> list[Any]:
    """The requests that a line which is no message is meant to answer, by the ids at its beginning or its end."""
    if b'"jsonrpc"' not in line:
        return []
    named = {int(number) for part in (line[: limits.SHOWN], line[-limits.SHOWN :]) for number in _ID.findall(part)}
    return [id_ for id_ in unanswered if id_ in named]


# An MCP server at an address: the SDK's transport over HTTP, its answers bounded.
#
# The SDK ends the whole session where a request meets an error of HTTP, and does not say which; here that is the answer
# to this one request. The status of HTTP, or a stream that breaks off, shows where an error comes from (`Origin`),
# and never the error's number. No token but those of the server's own settings is sent, and none follows a
# redirect to another host: the SDK follows none that leaves the server's origin.

_STREAM: Final = "text/event-stream"
_PASSING: Final = frozenset({429, 502, 503, 504})
"""Statuses of a server, or of a proxy before it, that may be others soon."""
_NO_KEY: Final = frozenset({401, 403})
_NO_PLACE: Final = frozenset({400, 404, 405, 406, 415})
"""Statuses of an address with another protocol, such as the older transport over SSE."""
_SESSION: Final = "mcp-session-id"
_BROKEN_OFF: Final = "SSE stream ended"
"""The beginning of the SDK's error for a stream that has ended without an answer."""
_FAILED: Final = "SSE stream failed"
"""The beginning of the SDK's error for a stream that it cannot read."""
_TOO_LARGE: Final = "byte limit"
"""Words of that error for an event beyond the limit."""


@asynccontextmanager
async def web(url: str, headers: Mapping[str, str], *, most_bytes: int, timeout_seconds: float) -> AsyncIterator[Any]:
    """The streams of a session with a server at that address. A message has at most `most_bytes`, and comes within
    `timeout_seconds` of the one before.
    """
    faults = _Faults(most_bytes)
    client = httpx2.AsyncClient(
        transport=_Bounded(faults),
        headers={**headers, "Accept-Encoding": "identity"},
        timeout=httpx2.Timeout(limits.MCP_TRANSPORTS_CONNECT_SECONDS, read=timeout_seconds),
    )
    async with (
        client,
        streamable_http_client(url, http_client=client, max_sse_event_size=most_bytes) as (reading, writing),
    ):
        yield ObservedMessages(reading, faults.note_origin), writing


@dataclass(frozen=True)
class _Faults:
    """The requests that the server has not answered, by their ids."""

    most_bytes: int
    origins: dict[Any, Origin] = field(default_factory=dict)
    """The requests that this module has answered itself."""
    broken: set[Any] = field(default_factory=set)
    """The requests whose stream the server has broken off."""

    def answer(self, request: httpx2.Request, origin: Origin, text: str) -> httpx2.Response:
        """Answer in the server's place."""
        self.origins[_id_in(request.content)] = origin
        error = JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=INTERNAL_ERROR, message=text))
        return httpx2.Response(500, headers={"Content-Type": "application/json"}, content=error.model_dump_json())

    def note_origin(self, message: object) -> None:
        """Write its origin into an error."""
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            return
        if isinstance(message, JSONRPCError):
            origin = self.origins.pop(message.id, Origin.SERVER)
            if message.error.message.startswith(_FAILED) and _TOO_LARGE in message.error.message:
                origin, message.error.message = Origin.UNFIT, f"it answered {too_large(self.most_bytes)}"
            if message.id in self.broken and message.error.message.startswith(_BROKEN_OFF):
                origin = Origin.UNREACHABLE
            message.error.data = OriginData(origin, message.error.data)
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
        """The response for an error of HTTP: the server's own where its body answers the request by its id."""
        status, is_message = response.status_code, b'"jsonrpc"' in body
        if is_message and _id_in(body) == _id_in(request.content):
            return response
        named = f"HTTP {status} {HTTPStatus(status).phrase if status in set(HTTPStatus) else ''}".strip()
        has_session = _SESSION in request.headers
        if has_session and (status == HTTPStatus.NOT_FOUND or (status == HTTPStatus.BAD_REQUEST and is_message)):
            text = f"{named}: it no longer knows the session"
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
    """The id of a message; None where it has none, or is no message."""
    try:
        return json.loads(body)["id"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
