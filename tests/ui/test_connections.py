"""Clients that leave a request half sent, or do not read: their connections end, and nobody else's."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from acts_celery.worker.ui.server import Connection, WebServer

WAIT_SECONDS = 30
LARGE = b"x" * 8_000_000
HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"


class Impatient(Connection):
    """Waits for a moment only."""

    request_seconds = 0.2
    read_seconds = 0.2


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """A large response."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(LARGE))]})
    await send({"type": "http.response.body", "body": LARGE})


@asynccontextmanager
async def serving() -> AsyncIterator[int]:
    """The port of a server with such connections."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(answer, http=Impatient, ws="none", lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        task = asyncio.create_task(server._serve([listening]))
        yield listening.getsockname()[1]
        server.should_exit = True
        await task


def in_time(test: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        async with serving() as port:
            await asyncio.wait_for(test(port), WAIT_SECONDS)

    asyncio.run(run())


@pytest.mark.parametrize("sent", [b"", b"GET", HEAD, b"POST / HTTP/1.1\r\n" + b"A: b\r\n" * 100])
def test_a_request_that_does_not_come_ends_its_connection(sent: bytes) -> None:
    async def asked(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()

    in_time(asked)


def test_a_second_request_has_as_long_as_the_first() -> None:
    async def asked(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            writer.write(HEAD + b"\r\n")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            assert len(await reader.readexactly(len(LARGE))) == len(LARGE)
        writer.write(HEAD)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()

    in_time(asked)


def test_a_client_that_does_not_read_is_dropped_and_takes_no_memory() -> None:
    async def asked(port: int) -> None:
        loop = asyncio.get_running_loop()
        with socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", port))
            await loop.sock_sendall(client, HEAD + b"\r\n")
            # A reset is told of without reading.
            poller = select.poll()
            poller.register(client, select.POLLHUP)
            assert await asyncio.to_thread(poller.poll, 1_000 * WAIT_SECONDS)

    in_time(asked)


def test_connections_that_ask_for_nothing_keep_nobody_out() -> None:
    async def asked() -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=1_000) as listening:
            server = WebServer(answer, 20, lambda: None)
            task = asyncio.create_task(server._serve([listening]))
            port = listening.getsockname()[1]
            half = [await asyncio.open_connection("127.0.0.1", port) for _ in range(60)]
            for _, writer in half:
                writer.write(HEAD)
            for _ in range(5):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
                writer.write(HEAD + b"Connection: close\r\n\r\n")
                assert (await reader.readline()).split()[1] == b"200"
                assert (await reader.read()).endswith(LARGE)
                writer.close()
            for _, writer in half:
                writer.close()
            server.should_exit = True
            await task

    asyncio.run(asyncio.wait_for(asked(), WAIT_SECONDS))
