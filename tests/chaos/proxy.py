"""A network between clients and the server that can be slow, break, or swallow what is sent."""

from __future__ import annotations

import asyncio
import threading
from typing import Final, Self

from .server import url_of

_CHUNK_BYTES: Final = 65_536


class Proxy:
    """Passes bytes on between a port of its own and the server's, in a thread of its own."""

    def __init__(self, target: int, *, swallow_after_bytes: int | None = None) -> None:
        self.delay_seconds = 0.0
        """How long a piece of data is under way, in each direction."""
        self.swallowing = threading.Event()
        """Set once clients have sent `swallow_after_bytes`: nothing of what they send is passed on any more."""
        self.port = 0
        self._target = target
        self._left = swallow_after_bytes
        self._opened = self._silent = 0
        """How many connections there were, and up to which of them nothing is passed on."""
        self._loop = asyncio.new_event_loop()
        self._connections: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos-proxy", daemon=True)

    @property
    def url(self) -> str:
        """The server's address, as seen through this network."""
        return url_of(self.port)

    def cut(self) -> None:
        """Break every connection there is; new ones are welcome."""
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result()

    def swallow(self, coming: int = 0) -> None:
        """Take what comes on the connections there are, and on so many that come, and pass nothing on; others are
        welcome.
        """
        self._silent = self._opened + coming

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._accept, "127.0.0.1", 0)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._connect(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _cut(self) -> None:
        connections = list(self._connections)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either side ends it."""
        self._opened += 1
        number = self._opened
        server: asyncio.StreamWriter | None = None
        try:
            replies, server = await asyncio.open_connection("127.0.0.1", self._target)
            ways = [
                asyncio.ensure_future(self._pass_on(number, reader, server, is_request=True)),
                asyncio.ensure_future(self._pass_on(number, replies, writer, is_request=False)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except OSError:
            pass  # the server is away, and so are we for this client
        finally:
            writer.transport.abort()
            if server is not None:
                server.transport.abort()

    async def _pass_on(
        self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_request: bool
    ) -> None:
        while data := await reader.read(_CHUNK_BYTES):
            if number <= self._silent:
                continue
            if self.delay_seconds:
                await asyncio.sleep(self.delay_seconds)
            writer.write(self._admitted(data) if is_request else data)
            await writer.drain()

    def _admitted(self, data: bytes) -> bytes:
        """What of the data still goes through."""
        if self._left is None:
            return data
        data, self._left = data[: self._left], max(0, self._left - len(data))
        if self._left == 0:
            self.swallowing.set()
        return data
