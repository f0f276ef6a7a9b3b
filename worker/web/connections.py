"""Connections: what a client may leave undone, and for how long.

uvicorn closes a connection on which no further request comes, and waits for ever for one that has begun to come, and
for a client that does not read what it is sent.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS: Final = 10.0
"""How long the head of a request may take to come."""
READ_SECONDS: Final = 20.0
"""How long a client may take to read anything of what waits for it."""
_AT_ONCE: Final = struct.pack("ii", 1, 0)


class Connection(H11Protocol):
    """A connection that is dropped where its client does nothing in time."""

    request_seconds: float = REQUEST_SECONDS
    read_seconds: float = READ_SECONDS
    _coming: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Wait for the first request."""
        super().connection_made(transport)
        self._watch_request()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a request that has begun to come."""
        super().data_received(data)
        self._watch_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        super().connection_lost(exc)
        self._stop_coming()
        self._stop_unread()

    def pause_writing(self) -> None:
        """More waits for the client than it has read."""
        super().pause_writing()
        self._watch_reader(None)

    def resume_writing(self) -> None:
        """It has read."""
        super().resume_writing()
        self._stop_unread()

    def _watch_request(self) -> None:
        cycle: Any = self.cycle  # none before the first request, which its type does not say
        if cycle is not None and not cycle.response_complete:
            self._stop_coming()
        elif self._coming is None and not self.transport.is_closing():
            self._coming = self.loop.call_later(self.request_seconds, self._drop)

    def _watch_reader(self, before: int | None) -> None:
        """Drop a client that has read nothing since the last look."""
        waits = self.transport.get_write_buffer_size()
        if before is not None and waits >= before:
            self._drop()
        else:
            self._unread = self.loop.call_later(self.read_seconds, self._watch_reader, waits)

    def _drop(self) -> None:
        """End the connection now; the system keeps nothing of what waits for its client either."""
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.transport.abort()

    def _stop_coming(self) -> None:
        if self._coming is not None:
            self._coming.cancel()
            self._coming = None

    def _stop_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
