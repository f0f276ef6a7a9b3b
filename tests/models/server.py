"""A model server for tests: HTTP on the loopback, in a thread; it answers what the test says, and keeps what was asked.

It speaks as much HTTP/1.1 as the SDKs need, with connections that are kept, and closes one in mid-answer where it is
asked to: that is what libraries for servers are bad at.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

Body = Mapping[str, Any]
_MOST_HELD_SECONDS = 60


@dataclass(frozen=True)
class Reply:
    """What the server answers: with `is_cut` the connection is closed behind the last chunk, before the end. At an
    event it waits until that is set.
    """

    chunks: Sequence[bytes | threading.Event] = ()
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    is_cut: bool = False
    delay_seconds: float = 0.0


@dataclass(frozen=True)
class Asked:
    """A request that came."""

    path: str
    headers: Mapping[str, str]
    body: Any


@dataclass
class ModelServer:
    """Answers each request with what `reply` makes of its body."""

    reply: Callable[[Any], Reply]
    asked: list[Asked] = field(default_factory=list)
    port: int = 0
    most_at_once: int = 0
    _at_once: int = 0

    @property
    def url(self) -> str:
        """The base URL for OpenAI's API."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
            while (asked := await _read(reader)) is not None:
                self.asked.append(asked)
                self._at_once += 1
                self.most_at_once = max(self.most_at_once, self._at_once)
                try:
                    reply = self.reply(asked.body)
                    await asyncio.sleep(reply.delay_seconds)
                    await _write(writer, reply)
                finally:
                    self._at_once -= 1
                if reply.is_cut:
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # whoever asked has gone, or the test is over
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    head = await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b""
    if not head:
        return None
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(first.split()[1], headers, json.loads(body) if body else None)


async def _write(writer: asyncio.StreamWriter, reply: Reply) -> None:
    headers = {"Content-Type": "application/json", **reply.headers, "Transfer-Encoding": "chunked"}
    lines = [f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}", *(f"{k}: {v}" for k, v in headers.items())]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    for chunk in reply.chunks:
        if isinstance(chunk, threading.Event):
            await asyncio.to_thread(chunk.wait, _MOST_HELD_SECONDS)
            continue
        writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
        await writer.drain()
    if not reply.is_cut:
        writer.write(b"0\r\n\r\n")
    await writer.drain()


@contextmanager
def model_server(reply: Callable[[Any], Reply]) -> Iterator[ModelServer]:
    """A server that is ready, in a thread of its own."""
    server, loop, ready = ModelServer(reply), asyncio.new_event_loop(), threading.Event()

    async def listen() -> asyncio.Server:
        return await asyncio.start_server(server.serve, "127.0.0.1", 0, backlog=4096)

    def run() -> None:
        asyncio.set_event_loop(loop)
        listening = loop.run_until_complete(listen())
        server.port = listening.sockets[0].getsockname()[1]
        ready.set()
        loop.run_forever()
        listening.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.gather(*asyncio.all_tasks(loop), return_exceptions=True))
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready.wait()
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


USAGE = {"prompt_tokens": 111, "completion_tokens": 22, "prompt_tokens_details": {"cached_tokens": 11}}


def event(data: Any) -> bytes:
    """One server-sent event."""
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


def delta(**said: Any) -> bytes:
    """An event with a piece of an answer."""
    return event({"model": "m-2026", "choices": [{"index": 0, "delta": said, "finish_reason": None}]})


def streamed(text: str, *, finish: str | None = "stop", pieces: int = 3, **parts: Any) -> Reply:
    """A text as a stream of events, with usage at its end; without `finish` it breaks off."""
    size = max(1, -(-len(text) // pieces))
    chunks = [delta(role="assistant", content="")]
    chunks += [delta(content=text[at : at + size]) for at in range(0, len(text), size)]
    if finish is not None:
        chunks.append(event({"model": "m-2026", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}))
        chunks.append(event({"model": "m-2026", "choices": [], "usage": USAGE}))
        chunks.append(event(b"[DONE]"))
    return Reply(chunks, headers={"Content-Type": "text/event-stream; charset=utf-8"}, **parts)


def whole(text: str, *, finish: str = "stop", **said: Any) -> Reply:
    """A text in one piece, from a server that does not stream."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text, **said}, "finish_reason": finish}
    return Reply([json.dumps({"model": "m-2026", "choices": [choice], "usage": USAGE}).encode()])


def failing(status: int, message: str, **headers: str) -> Reply:
    """An error in the provider's words."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply([json.dumps({"error": {"message": message, "type": "x", "code": None}}).encode()], status, named)
