"""The server: from its socket to its end, which is that of everything that follows a run, too."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence

from acts_celery.broker_config import Settings
from acts_celery.broker_config.tokens import AccessToken
from acts_celery.worker.web.serving import WebServer

from .application import Pages, most_connections


async def serve(
    listening: socket.socket, host: str, settings: Settings, tokens: Sequence[AccessToken], on_ready: Callable[[], None]
) -> None:
    """Serve until SIGINT or SIGTERM, which end it in good order. `on_ready` is called when requests are answered."""
    pages = Pages(settings, tokens, host)
    try:
        most = most_connections(settings)
        # Viewers end first, who would stay for ever.
        await WebServer(pages.application, most, on_ready, pages.following.close).serve([listening])
    finally:
        await pages.close()


def link(address: str, token: str) -> str:
    """The link that enters with a token: in the part of an address that a browser sends to nobody."""
    return f"{address}/#token={token}"
