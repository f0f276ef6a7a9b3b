"""A network between a side and its server that takes time and counts what it carries."""

from __future__ import annotations

import asyncio
import threading
from typing import Final, Self

_CHUNK_BYTES: Final = 65_536


class Wire:
    """Passes bytes on between a port of its own and the server's, in a thread of its own.

    What clients send arrives `delay_seconds` later, however much of it is on the way; answers come at once.
    """

    def __init__(self, target: int, *, delay_seconds: float = 0.0) -> None:
        self.port = 0
        self.sent_bytes = 0
        """What clients have sent so far."""
        self.received_bytes = 0
        """What clients have received so far."""
        self._target = target
        self._delay_seconds = delay_seconds
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wire", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        listening = asyncio.start_server(self._connect, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result()
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either side ends it."""
        replies, server = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._send(reader, server))
                ways.create_task(self._receive(replies, writer))
        except* OSError:
            pass  # one of the two has gone, and so does the other
        finally:
            writer.close()
            server.close()

    async def _send(self, reader: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        arriving = asyncio.ensure_future(self._arrive(under_way, server))
        try:
            while data := await reader.read(_CHUNK_BYTES):
                self.sent_bytes += len(data)
                under_way.put_nowait((self._loop.time() + self._delay_seconds, data))
            under_way.put_nowait((0.0, b""))
            await arriving
        finally:
            arriving.cancel()

    async def _arrive(self, under_way: asyncio.Queue[tuple[float, bytes]], server: asyncio.StreamWriter) -> None:
        while True:
            due, data = await under_way.get()
            if not data:
                server.write_eof()
                return
            if (left := due - self._loop.time()) > 0:
                await asyncio.sleep(left)
            server.write(data)
            await server.drain()

    async def _receive(self, replies: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await replies.read(_CHUNK_BYTES):
            self.received_bytes += len(data)
            writer.write(data)
            await writer.drain()
        writer.write_eof()
