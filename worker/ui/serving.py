"""The server: from its socket to its end, which is that of everything that follows a run, too."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import uvicorn

from acts_celery.broker_config import Settings
from acts_celery.broker_config.tokens import AccessToken
from acts_celery.worker.web.connections import Connection

from .application import Pages

_BESIDE_VIEWERS: Final = 200
"""Connections that there may be besides those that follow a run."""
_STOP_SECONDS: Final = 3
"""How long answers under way may take when the server is to stop."""
_HEAD_BYTES: Final = 16_384


async def serve(
    listening: socket.socket, host: str, settings: Settings, tokens: Sequence[AccessToken], on_ready: Callable[[], None]
) -> None:
    """Serve until SIGINT or SIGTERM, which end it in good order. `on_ready` is called when requests are answered."""
    pages = Pages(settings, tokens, host)
    try:
        await _Server(pages, settings.ui_viewers + _BESIDE_VIEWERS, on_ready).serve([listening])
    finally:
        await pages.close()


class _Server(uvicorn.Server):
    """uvicorn's, which ends what follows runs before it waits for its connections."""

    def __init__(self, pages: Pages, most_connections: int, on_ready: Callable[[], None]) -> None:
        self._pages = pages
        self._on_ready = on_ready
        super().__init__(
            uvicorn.Config(
                pages.application,
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
        """Stop: viewers first, who would stay for ever."""
        await self._pages.following.close()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Hear the signals, which are not raised once more after that: this is how the command is to end."""
        with super().capture_signals():
            yield
            self._captured_signals.clear()


def link(address: str, token: str) -> str:
    """The link that enters with a token: in the part of an address that a browser sends to nobody."""
    return f"{address}/#token={token}"
