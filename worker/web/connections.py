"""Connections: what a client may leave undone, for how long, and how many of its connections may.

uvicorn closes a connection on which no further request comes, and waits for ever for one that has begun to come, and
for a client that does not read what it is sent. Where it has as many as it may, it refuses all others: here the oldest
of those that ask for nothing is dropped instead, of the address that has most of them.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
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
    _idle_since: float = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Wait for the first request."""
        super().connection_made(transport)
        self._idle_since = self.loop.time()
        self._make_room()
        self._watch_request()

    def data_received(self, data: bytes) -> None:
        """Wait for the rest of a request that has begun to come."""
        super().data_received(data)
        self._watch_request()

    def on_response_complete(self) -> None:
        """Wait for another request."""
        super().on_response_complete()
        self._idle_since = self.loop.time()

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

    @property
    def _is_idle(self) -> bool:
        """Whether it asks for nothing: its next request has not come whole."""
        cycle: Any = self.cycle  # none before the first request, which its type does not say
        return cycle is None or bool(cycle.response_complete)

    def _make_room(self) -> None:
        """Drop one that asks for nothing, where this one is more than there may be."""
        if self.limit_concurrency is None or len(self.connections) < self.limit_concurrency:
            return
        idle = [one for one in self.connections if isinstance(one, Connection) and one is not self and one._is_idle]
        if idle:
            by_address = Counter(one.client[0] if one.client is not None else "" for one in idle)
            most = by_address.most_common(1)[0][0]
            of_most = (one for one in idle if (one.client[0] if one.client is not None else "") == most)
            oldest = min(of_most, key=lambda one: one._idle_since)
            self.connections.discard(oldest)  # the loop hears later that it is lost
            oldest._drop()

    def _watch_request(self) -> None:
        if not self._is_idle:
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
