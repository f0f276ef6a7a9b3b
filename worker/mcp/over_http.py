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

from ...broker_config import Settings
from ...broker_config.tokens import AccessToken
from ...protocol.plan.submission import decode
from .. import limits
from ..limits import limits_of
from ..ui.access import Access, Bodies, Guard, Refused, Site, Visitor
from ..ui.server import WebServer
from .documents import NO_MESSAGE, CarriedOut, Documents
from .server import Context, make_server, most_bytes
from .tools import Principal

PATH: Final = "/mcp"
SITE: Final = Site(
    guarded=PATH,
    url_setting="ACTS_MCP_URL",
    how_to_enter="send Authorization: Bearer TOKEN",
    where_from="`acts mcp --http` prints a new one at each start, unless ACTS_MCP_TOKENS says who may enter",
)


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
        return _principal(context.request.state.visitor)

    documents = Documents(settings)
    manager = StreamableHTTPSessionManager(
        make_server(settings, who), stateless=True, max_request_body_size=most_bytes(settings)
    )
    routes = [
        Route(PATH, _Bounded(manager.handle_request, settings, documents), methods=["POST"]),
        Route("/health", _health),
    ]
    router = Router(routes, redirect_slashes=False)
    access, most = Access(tokens, SITE), limits.MOST_CONNECTIONS
    guard = Guard(router, access=access, site=SITE, host=host, url=settings.mcp_url, most_requests=most)
    async with manager.run():
        try:
            await WebServer(guard, limits.MOST_CONNECTIONS, on_ready).serve([listening])
        finally:
            await documents.close()


class _Bounded:
    """Reads the body of a request as far as it may go. The call that a large one is has been carried out when the
    protocol's server sees it, which gets its message without the arguments; of others what is in it is counted before
    memory is taken.
    """

    def __init__(self, app: ASGIApp, settings: Settings, documents: Documents) -> None:
        self._app = app
        self._bodies = Bodies(most_bytes(settings), "twice ACTS_LIMIT_SUBMISSION_BYTES")
        self._limits = limits_of(settings)
        self._documents = documents

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        async with self._bodies.read(request, request.state.visitor.name) as body:
            await self._app(scope, await self._message(request, body), send)

    async def _message(self, request: Request, body: bytes) -> Receive:
        """What the protocol's server reads of a request. Raises `Refused`, `Rejected`."""
        done: CarriedOut | None = None
        if len(body) > limits.DOCUMENTS_SMALL_BYTES:
            done = await self._documents.carried_out(body, _principal(request.state.visitor))
            if done is None and len(body) > 2 * self._limits.message_bytes:
                raise Refused(413, "TooLarge", "only a call of a tool has so large a message, and `result` has none")
        if done is not None:
            body, request.state.result = done.message, done.result
        else:
            message = await asyncio.get_running_loop().run_in_executor(None, decode, body, self._limits)
            if not isinstance(message, dict):
                raise Refused(400, "BadBody", NO_MESSAGE)
        is_read = False

        async def again() -> Message:
            nonlocal is_read
            if is_read:
                return await request.receive()
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}

        return again


def _principal(visitor: Visitor) -> Principal:
    return Principal(visitor.name, visitor.rights, visitor.identity)


async def _health(_: Any) -> Response:
    return Response(b'{"status":"ok"}', media_type="application/json")
