"""The server: from its socket to its end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from .. import limits
from ..errors import InfrastructureError

# Connections: what a client may leave undone, for how long, and how many of its connections may.
#
# uvicorn closes a connection on which no further request comes, and waits for ever for one that has begun to come, and
# for a client that does not read what it is sent. Where it has as many as it may, it refuses all others: here the
# oldest of those that ask for nothing is dropped instead, of the address that has most of them.

_AT_ONCE: Final = struct.pack("ii", 1, 0)


class Connection(H11Protocol):
    """A connection that is dropped where its client does nothing in time."""

    request_seconds: float = limits.REQUEST_SECONDS
    read_seconds: float = limits.READ_SECONDS
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
        """Wait no more for the client, which has read."""
        super().resume_writing()
        self._stop_unread()

    @property
    def _is_idle(self) -> bool:
        """Return whether the connection has no whole request to answer."""
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


class WebServer(uvicorn.Server):
    """uvicorn's, with our connections. It serves until SIGINT or SIGTERM, which end it in good order."""

    def __init__(
        self,
        application: ASGIApp,
        most_connections: int,
        on_ready: Callable[[], None],
        on_stop: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`on_ready` is called when requests are answered, `on_stop` before the end of connections is waited for."""
        self._on_ready = on_ready
        self._on_stop = on_stop
        super().__init__(
            uvicorn.Config(
                application,
                http=Connection,
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                limit_concurrency=most_connections,
                h11_max_incomplete_event_size=limits.HEAD_BYTES,
                timeout_graceful_shutdown=limits.STOP_SECONDS,
            )
        )

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop."""
        if self._on_stop is not None:
            await self._on_stop()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Hear the signals, which are not raised once more after that: this is how the command is to end."""
        with super().capture_signals():
            yield
            self._captured_signals.clear()


# The socket of a server.


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 is a free one. Raises `InfrastructureError`."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            remedy = "something listens there already: choose another with --port N"
        elif error.errno == errno.EACCES:
            remedy = "that takes rights of its own: choose a port above 1023 with --port N"
        else:
            remedy = f"{error.strerror or error}: --host names an address of this machine"
        raise InfrastructureError(f"port {port} of {host} cannot be had: {remedy}") from error


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host."""
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(str(address).partition("%")[0]).is_loopback for address in found)


def address_of(listening: socket.socket, host: str) -> str:
    """The address that a browser on this machine opens."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listening.getsockname()[1]}"
