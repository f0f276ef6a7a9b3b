"""The server: from its socket to its end."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from .connections import Connection

_STOP_SECONDS: Final = 3
"""How long answers under way may take when the server is to stop."""
_HEAD_BYTES: Final = 16_384


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
                h11_max_incomplete_event_size=_HEAD_BYTES,
                timeout_graceful_shutdown=_STOP_SECONDS,
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
