"""The routes: the front and its assets, the answers, what follows a run, and the actions."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from typing import Any, Final

from redis import Redis
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from ...broker_config import Settings
from ...broker_config.settings import UI_RIGHTS
from ...broker_config.tokens import AccessToken
from ...protocol.paths import MISSING
from ...protocol.plan.submission import decode
from ..actions import ACTIONS
from ..client.client import Client
from ..client.run import ReadableRun
from ..limits import ACTION_THREADS, APPLICATION_NAMED, BESIDE_VIEWERS, limits_of
from ..store.connections import connect
from . import Page
from .access import Access, Bodies, Guard, Reader, Refused, Site, Visitor, encoded
from .following import WATCHED, EventStream, Following
from .opened import Query
from .server import WebServer

SERVED: Final = {name: action for name, action in ACTIONS.items() if action.served is not None}
"""The actions that can be asked for here, by the last part of their path. Each takes a right of the token."""


PAGES: Final = Site(
    guarded="/api/",
    url_setting="ACTS_UI_URL",
    how_to_enter="open the link that `acts ui` has printed, or send Authorization: Bearer TOKEN",
    where_from="`acts ui` prints a link with a new one at each start, unless ACTS_UI_TOKENS says who may enter",
)
_FRONT: Final = "page.html"
_TYPES: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


def most_connections(settings: Settings) -> int:
    """How many connections there may be: viewers have theirs as long as they look."""
    return settings.ui_viewers + BESIDE_VIEWERS


class Pages:
    """What is served under some settings to those who have a token. Make it in the event loop that serves."""

    def __init__(self, settings: Settings, tokens: Sequence[AccessToken], host: str) -> None:
        self._settings = settings
        self._source = settings.for_reading
        self._host = host
        self._redis: Redis = connect(self._source)
        self._page = Page(self._redis, self._source)
        self._reader = Reader(self._page)
        self._actions = ThreadPoolExecutor(ACTION_THREADS, "acts-ui-actions")
        self._clients = {token.name: Client(settings.acting_for(token.name, token.identity)) for token in tokens}
        self._bodies = Bodies(int(settings.limit_call_bytes), "ACTS_LIMIT_CALL_BYTES")
        self._assets = _read_assets()
        self._access = Access(tokens, PAGES)
        self.following = Following(self._source, self._reader, self._access.shares(settings.ui_viewers, WATCHED))

    @property
    def application(self) -> ASGIApp:
        """The whole of it, with its guard."""
        routes = [
            Route("/", self._front),
            Route("/health", self._health),
            Route("/assets/{name}", self._asset),
            Route("/api/me", self._me),
            Route("/api/whole", self._whole),
            Route("/api/runs/{run}/events", self._events),
            Route("/api/runs/{run}/{action}", self._act, methods=["POST"]),
            Route("/api/{path:path}", self._answer),
        ]
        router = Router(routes, redirect_slashes=False)
        most = most_connections(self._settings)
        return Guard(
            router, access=self._access, site=PAGES, host=self._host, url=self._settings.ui_url, most_requests=most
        )

    async def close(self) -> None:
        """End what follows runs, and the connections."""
        await self.following.close()
        self._reader.close()
        self._actions.shutdown(wait=False, cancel_futures=True)
        for client in self._clients.values():
            client.close()
        self._redis.close()

    async def _front(self, _: Request) -> Response:
        return self._assets[_FRONT]

    async def _health(self, _: Request) -> Response:
        return _json(b'{"status":"ok"}')

    async def _asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._assets:
            raise Refused(404, "NoSuchAsset", "there is no such file")
        return self._assets[name]

    async def _me(self, request: Request) -> Response:
        visitor = _visitor(request)
        return _json(encoded({"name": visitor.name, "may": [right for right in UI_RIGHTS if right in visitor.rights]}))

    async def _answer(self, request: Request) -> Response:
        only = _visitor(request).only
        return _json(await self._reader.body(request.path_params["path"], dict(request.query_params), only))

    async def _whole(self, request: Request) -> Response:
        """A whole value, as a file to be saved."""
        asked = Query(request.query_params)
        run = await self._seen(request, asked.required("run"))
        body = await self._reader.call(run, lambda: self._value(run, asked))
        return _json(body, {"Content-Disposition": 'attachment; filename="value.json"'})

    def _value(self, run: str, asked: Query) -> bytes:
        """The bytes of a value, as a question names it."""
        found = ReadableRun(run, self._redis, self._source).explain(
            asked.required("path"), instance=asked.text("instance"), at=asked.moment("at")
        )
        if found.value is MISSING:
            raise Refused(404, "NoValue", found.conflict or "there is no value at this place")
        body, most = encoded(found.value), int(self._settings.limit_call_bytes)
        if len(body) > most:
            text = (
                f"the value has more than {most} bytes (ACTS_LIMIT_CALL_BYTES): `acts explain {run} PATH --json` has it"
            )
            raise Refused(413, "TooLarge", text)
        return body

    async def _events(self, request: Request) -> Any:
        run = await self._seen(request, request.path_params["run"])
        return EventStream(self.following, await self.following.join(run, _visitor(request).name))

    async def _act(self, request: Request) -> Response:
        name, visitor = request.path_params["action"], _visitor(request)
        if (action := SERVED.get(name)) is None:
            raise Refused(404, "NoSuchDeed", f"there is no such deed; there are {', '.join(SERVED)}")
        visitor.require(action.right)
        run = await self._seen(request, request.path_params["run"])
        limits = limits_of(self._settings)
        async with self._bodies.read(request, visitor.name) as data:

            def done() -> bytes:
                given = action.read(decode(data, limits) if data.strip() else {})
                found = self._clients[visitor.name].run(run)
                more = _counted(action.do(found, **given))
                return encoded({"run": run, "status": found.status()["status"], **more})

            return _json(await asyncio.get_running_loop().run_in_executor(self._actions, done))

    async def _seen(self, request: Request, run: str) -> str:
        """A run that is asked for; who sees only runs of its own is told of no other. Raises `RunNotFound`."""
        if (only := _visitor(request).only) is None:
            return run
        return await self._reader.call("", lambda: self._page.find(run, only))


def _visitor(request: Request) -> Visitor:
    found: Visitor = request.state.visitor
    return found


def _counted(done: dict[str, Any]) -> dict[str, Any]:
    """What an action has done, or would do: of many calls the first ones, and how many there are."""
    lists = {name: value for name, value in done.items() if isinstance(value, list)}
    first = {name: calls[:APPLICATION_NAMED] for name, calls in lists.items()}
    return done | first | ({"counts": {name: len(calls) for name, calls in lists.items()}} if lists else {})


def _json(body: bytes, headers: Mapping[str, str] | None = None) -> Response:
    return Response(body, headers=headers, media_type="application/json")


def _read_assets() -> dict[str, Response]:
    """The front and what it loads, by name: nothing else is served from a disk."""
    found = {}
    for file in files("acts_celery.worker.ui").joinpath("assets").iterdir():
        if (kind := _TYPES.get(file.name.rpartition(".")[2])) is not None:
            found[file.name] = Response(file.read_bytes(), media_type=kind)
    return found


# The server: from its socket to its end, which is that of everything that follows a run, too.


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
