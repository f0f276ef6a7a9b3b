"""Many clients, over HTTP: each with a token, which says who it is and what it may do.

The protocol is stateless here, also for clients that speak older versions of it: whatever a request needs to know is in
it and in the log, so a server may end and another may take its place.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import Any, Final

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from acts_celery.broker_config import Settings
from acts_celery.broker_config.tokens import AccessToken
from acts_celery.protocol.submission.decoding import decode
from acts_celery.worker.process.limits import limits_of
from acts_celery.worker.web.access import Access, Visitor
from acts_celery.worker.web.bodies import body_of
from acts_celery.worker.web.guard import Guard
from acts_celery.worker.web.refusals import Refused
from acts_celery.worker.web.serving import WebServer
from acts_celery.worker.web.site import Site

from .principals import Principal
from .server import Context, make_server, most_bytes

PATH: Final = "/mcp"
SITE: Final = Site(
    guarded=PATH,
    url_setting="ACTS_MCP_URL",
    how_to_enter="send Authorization: Bearer TOKEN",
    where_from="`acts mcp --http` prints a new one at each start, unless ACTS_MCP_TOKENS says who may enter",
)
_MOST_CONNECTIONS: Final = 200


async def serve(
    listening: socket.socket,
    host: str,
    settings: Settings,
    tokens: Sequence[AccessToken],
    on_ready: Callable[[], None],
) -> None:
    """Serve until SIGINT or SIGTERM. A run belongs to the name of the token that it was submitted with, where a setting
    has that.
    """

    def who(context: Context) -> Principal:
        assert context.request is not None, "over HTTP each message comes with its request"
        visitor: Visitor = context.request.state.visitor
        return Principal(visitor.name, visitor.rights, visitor.identity)

    manager = StreamableHTTPSessionManager(
        make_server(settings, who), stateless=True, max_request_body_size=most_bytes(settings)
    )
    routes = [
        Route(PATH, _Bounded(manager.handle_request, settings), methods=["POST"]),
        Route("/health", _health),
    ]
    router = Router(routes, redirect_slashes=False)
    access, most = Access(tokens, SITE), _MOST_CONNECTIONS
    guard = Guard(router, access=access, site=SITE, host=host, url=settings.mcp_url, most_requests=most)
    async with manager.run():
        await WebServer(guard, _MOST_CONNECTIONS, on_ready).serve([listening])


class _Bounded:
    """Reads the body of a request as far as it may go, and counts what is in it before memory is taken."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._most = most_bytes(settings)
        self._limits = limits_of(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await body_of(Request(scope, receive), self._most, "twice ACTS_LIMIT_SUBMISSION_BYTES")
        message = await asyncio.get_running_loop().run_in_executor(None, decode, body, self._limits)
        if not isinstance(message, dict):
            raise Refused(400, "BadBody", "the body should be one message of JSON-RPC")
        is_read = False

        async def again() -> Message:
            nonlocal is_read
            if is_read:
                return await receive()
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, again, send)


async def _health(_: Any) -> Response:
    return Response(b'{"status":"ok"}', media_type="application/json")
