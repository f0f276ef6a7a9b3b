"""An MCP server that is a process of ours, spoken to by its standard input and output: a line is a message.

The SDK's own transport reads a line of any length, and leaves a server that hangs behind when a worker is killed. This
one bounds the line, and runs the server under a guardian (`broker_config/guardian.py`), so that it ends with us.
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

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, JSONRPCResponse

from ...broker_config.embedded import guarded
from .. import limits
from .mcp_tools import Origin, Told, too_large

logger = logging.getLogger(__name__)

_ID: Final = re.compile(rb'"id"\s*:\s*(\d{1,15})\b')
"""The SDK numbers its requests."""


@asynccontextmanager
async def stdio(
    name: str,
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None,
    most_bytes: int,
    on_end: Callable[[str], None],
    said: deque[str],
) -> AsyncIterator[Any]:
    """The streams of a session with a server that is started for it, and ended with it.

    `on_end` is told why, when the server closes its output or says more than `most_bytes` in one message; where it was
    asked one thing, that is the answer. `said` is filled with what it writes on standard error, as much as it takes.
    Raises the OSError that starting it met.
    """
    import anyio

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
        try:
            await _started(ours, command[0])
            told, reading = anyio.create_memory_object_stream[Any](0)
            writing, given = anyio.create_memory_object_stream[Any](0)
            asked, silent = set[Any](), asyncio.Event()
            async with anyio.create_task_group() as tasks, told, reading, writing, given:
                tasks.start_soon(_read, name, process, told, asked, most_bytes, on_end, silent)
                tasks.start_soon(_write, process, given, asked)
                tasks.start_soon(_listen, name, process, said, silent)
                yield reading, writing
                tasks.cancel_scope.cancel()
        finally:
            try:
                with anyio.CancelScope(shield=True):
                    await _end(process, ours)
            finally:
                # Whoever has inherited its output may keep it open; asyncio has no public way to let go of it.
                process._transport.close()  # type: ignore[attr-defined]


async def _started(control: socket.socket, command: str) -> None:
    """Wait for the guardian to say that the server was started."""
    word, _, number = (await asyncio.get_running_loop().sock_recv(control, 64)).decode().partition(" ")
    if word != "started":
        code = int(number) if word == "failed" else 0
        raise OSError(code, os.strerror(code) if code else "it could not be started", command)


async def _read(
    name: str,
    process: Process,
    told: Any,
    asked: set[Any],
    most_bytes: int,
    on_end: Callable[[str], None],
    silent: asyncio.Event,
) -> None:
    """Pass on each message of the server. What is none is logged, and where it is meant as an answer, that answer is
    an error: whoever waits for it need not wait until its time is over.
    """
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp_types import INVALID_REQUEST, ErrorData, JSONRPCError, jsonrpc_message_adapter

    async def fail(id_: Any, text: str) -> None:
        asked.discard(id_)
        error = ErrorData(code=INVALID_REQUEST, message=text, data=Told(Origin.UNFIT))
        await told.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=id_, error=error)))

    assert process.stdout is not None
    why = "it has closed its output"
    async with told:
        try:
            while line := await process.stdout.readline():
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    logger.warning("MCP server %s wrote what is no message: %.200r", name, line)
                    for id_ in _answered(line, asked):
                        await fail(id_, "its answer is no message, or too deep")
                    continue
                asked.discard(getattr(message, "id", None))
                if isinstance(message, JSONRPCError):
                    message.error.data = Told(Origin.SERVER, message.error.data)
                await told.send(SessionMessage(message))
        except ValueError:  # a line beyond the limit
            why = f"it answered {too_large(most_bytes)}"
            if len(asked) == 1:
                with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                    await fail(next(iter(asked)), why)
        except (OSError, anyio.ClosedResourceError, anyio.BrokenResourceError):
            pass
        with anyio.move_on_after(limits.LAST_WORDS_SECONDS):
            await silent.wait()
        on_end(why)


def _answered(line: bytes, asked: set[Any]) -> list[Any]:
    """The requests that a line which is no message is meant to answer: their ids stand at its beginning or its end."""
    if b'"jsonrpc"' not in line:
        return []
    named = {int(number) for part in (line[: limits.SHOWN], line[-limits.SHOWN :]) for number in _ID.findall(part)}
    return [id_ for id_ in asked if id_ in named]


async def _write(process: Process, given: Any, asked: set[Any]) -> None:
    """Pass on each message to the server, and note the requests that it has to answer."""
    import anyio
    from mcp_types import JSONRPCNotification, JSONRPCRequest

    assert process.stdin is not None
    with suppress(OSError, anyio.ClosedResourceError, anyio.BrokenResourceError):
        async for each in given:
            match each.message:
                case JSONRPCRequest(id=id_):
                    asked.add(id_)
                case JSONRPCNotification(method="notifications/cancelled", params={"requestId": id_}):
                    asked.discard(id_)
            text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(text.encode() + b"\n")
            await process.stdin.drain()


async def _listen(name: str, process: Process, said: deque[str], silent: asyncio.Event) -> None:
    """Log what the server says on standard error, one line for each piece: it forges no line of ours."""
    assert process.stderr is not None
    while piece := await process.stderr.read(limits.MCP_TRANSPORTS_CHUNK_BYTES):
        for line in filter(None, piece.decode(errors="replace").splitlines()):
            said.append(line[: limits.SHOWN])
            logger.info("MCP server %s: %r", name, line[: limits.SHOWN])
    silent.set()


async def _end(process: Process, control: socket.socket) -> None:
    """Close the server's input, and see to it that it ends."""
    assert process.stdin is not None
    process.stdin.close()
    with suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), limits.MCP_TRANSPORTS_GRACE_SECONDS)
        return
    with suppress(OSError):
        control.send(b"stop\n")
    with suppress(TimeoutError):
        await asyncio.wait_for(
            process.wait(), limits.MCP_TRANSPORTS_GRACE_SECONDS + limits.MCP_TRANSPORTS_MARGIN_SECONDS
        )
        return
    with suppress(ProcessLookupError):  # with its guardian Linux ends the server
        process.kill()


# An MCP server at an address: the SDK's transport over HTTP, its answers bounded.
#
# The SDK ends the whole session where a request meets an error of HTTP, and does not say which; here that is the answer
# to this one request. Each error says where it comes from (`Origin`): the status of HTTP, or a stream that breaks off,
# tells that, and never the error's number. No token but those of the server's own settings is sent, and none follows a
# redirect to another host: the SDK follows none that leaves the server's origin.

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
        timeout=httpx2.Timeout(limits.MCP_TRANSPORTS_CONNECT_SECONDS, read=timeout_seconds),
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


class Heard:
    """The messages of a server, as a session reads them, of each of which `tell` is told before."""

    def __init__(self, stream: Any, tell: Callable[[Any], None]) -> None:
        self._stream = stream
        self._tell = tell

    async def __aenter__(self) -> Heard:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self._stream.__aexit__(*raised)

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for item in self._stream:
            self._tell(getattr(item, "message", None))
            yield item

    async def aclose(self) -> None:
        """Read no more."""
        await self._stream.aclose()
