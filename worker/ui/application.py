"""The web application: the page and its assets, the answers, streams that follow a run, and the actions."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from ...broker_config import Settings
from ...broker_config.settings import UI_RIGHTS
from ...broker_config.tokens import AccessToken
from ...protocol.paths import MISSING
from ...protocol.plan.documents import decode
from .. import limits
from ..actions import ACTIONS
from ..backoff import Backoff
from ..client.client import Client
from ..client.run import ReadableRun
from ..store.connections import connect, connect_async_client
from ..store.log import wait_for_entry
from . import Page
from .access import Access, Bodies, Guard, Reader, Refused, Shares, Site, Visitor, document, encoded, refusal
from .opened import Query
from .server import WebServer

# Following runs: one reader of the log for everybody who looks at one run.
#
# A reader waits for entries of the log, reads the overview of the run, and hands it to each viewer, at most twice a
# second. A viewer holds the newest overview alone: a slow viewer misses what came between, and takes no memory.

WATCHED: Final = "pages that follow runs"
_PASSING: Final = ("expires", "duration_seconds")
_BACKOFF: Final = Backoff(0.5, 10.0)


@dataclass(frozen=True, slots=True)
class ViewerEvent:
    """An event for viewers: `changed` with the overview, `unavailable` with an error, or `gone`."""

    event: str
    data: bytes = field(compare=False)
    known: bytes = b""
    """The part of the data that is compared: two times in it change by themselves."""


class Viewer:
    """One page that follows a run."""

    def __init__(self, run: str, name: str = "") -> None:
        self.run = run
        self.name = name
        self.is_over = False
        self._newest: ViewerEvent | None = None
        self._came = asyncio.Event()

    def tell(self, told: ViewerEvent) -> None:
        """Hand over an event; one that was not taken before is dropped."""
        self._newest = told
        self._came.set()

    def leave(self) -> None:
        """Let `next` end."""
        self.is_over = True
        self._came.set()

    async def next(self, timeout_seconds: float) -> ViewerEvent | None:
        """Wait for the next event; None where none came for so long, or where it is over."""
        try:
            await asyncio.wait_for(self._came.wait(), timeout_seconds)
        except TimeoutError:
            return None
        self._came.clear()
        newest, self._newest = self._newest, None
        return newest


@dataclass(slots=True)
class _Followed:
    """A run with viewers."""

    viewers: set[Viewer] = field(default_factory=set)
    newest: ViewerEvent | None = None
    task: asyncio.Task[None] | None = None

    def tell(self, told: ViewerEvent) -> None:
        """Hand an event to all viewers, if it is a new one."""
        if told != self.newest:
            self.newest = told
            for viewer in self.viewers:
                viewer.tell(told)


class Following:
    """The runs that have viewers. Use it in one event loop; `settings` say where runs are read."""

    def __init__(self, settings: Settings, reader: Reader, shares: Shares | None = None) -> None:
        """`shares` limit how many viewers each token may have; without it a token may have all."""
        self._settings = settings
        self._reader = reader
        self._shares = shares or Shares(settings.ui_viewers, WATCHED)
        self._redis: AsyncRedis = connect_async_client(settings)
        self._runs: dict[str, _Followed] = {}
        self._is_closed = False

    @property
    def viewers(self) -> int:
        """How many viewers there are."""
        return sum(len(followed.viewers) for followed in self._runs.values())

    async def join(self, run: str, name: str = "") -> Viewer:
        """Add a viewer to a run, for the token of that name. Raises `Refused` where there are too many viewers, and
        what `Page.answer` raises where there is no such run.
        """
        self._refuse_if_full()
        self._shares.take(name)
        try:
            overview = await self._reader.answer(f"runs/{run}", {})
            self._refuse_if_full()  # others may have come meanwhile
        except BaseException:
            self._shares.give_back(name)
            raise
        viewer = Viewer(overview["run"], name)
        followed = self._runs.setdefault(viewer.run, _Followed())
        followed.viewers.add(viewer)
        if followed.task is None or followed.task.done():  # the run under its id was gone, and is another one now
            followed.newest = None
            followed.task = asyncio.create_task(self._follow(viewer.run, followed))
        # What the others know may be newer; where it is older, all hear of this soon.
        viewer.tell(followed.newest or _changed(overview))
        return viewer

    def _refuse_if_full(self) -> None:
        most = self._settings.ui_viewers
        if self._is_closed or self.viewers >= most:
            text = "acts ui is stopping" if self._is_closed else f"{most} pages follow runs already (ACTS_UI_VIEWERS)"
            raise Refused(503, "TooManyViewers", f"{text}: try again later", {"Retry-After": "10"})

    def leave(self, viewer: Viewer) -> None:
        """Take a viewer away; with the last one the reader ends."""
        viewer.leave()
        followed = self._runs.get(viewer.run)
        if followed is None or viewer not in followed.viewers:
            return
        followed.viewers.remove(viewer)
        self._shares.give_back(viewer.name)
        if not followed.viewers:
            del self._runs[viewer.run]
            if followed.task is not None:
                followed.task.cancel()

    async def close(self) -> None:
        """End all readers and viewers, and the connections."""
        self._is_closed = True
        tasks = {followed.task for followed in self._runs.values() if followed.task is not None}
        for followed in [*self._runs.values()]:
            for viewer in followed.viewers:
                viewer.leave()
        # The client of Redis loses a cancellation now and then, so it may take another.
        while tasks:
            for task in tasks:
                task.cancel()
            _, tasks = await asyncio.wait(tasks, timeout=limits.CANCEL_SECONDS)
        await self._redis.aclose()

    async def _follow(self, run: str, followed: _Followed) -> None:
        """Read a run and hand out events, until it is gone."""
        failures = 0
        while followed.viewers and not self._is_closed:  # a cancellation may be lost
            try:
                overview = await self._reader.answer(f"runs/{run}", {})
                followed.tell(_changed(overview))
                failures = 0
                after = overview["log"] or "0-0"
                await wait_for_entry(
                    self._redis, self._settings.key_prefix, run, after=after, block_ms=limits.FOLLOWING_BLOCK_MS
                )
                await asyncio.sleep(limits.FOLLOWING_PAUSE_SECONDS)
            except Exception as error:
                refused = refusal(error)
                if refused.status < 500:
                    followed.tell(ViewerEvent("gone", encoded(document(refused))))
                    return
                followed.tell(ViewerEvent("unavailable", (data := encoded(document(refused))), data))
                failures += 1
                await asyncio.sleep(_BACKOFF.seconds(failures))


def _changed(overview: Any) -> ViewerEvent:
    return ViewerEvent(
        "changed", encoded(overview), encoded({name: overview[name] for name in overview if name not in _PASSING})
    )


# A stream of server-sent events for one viewer of a run: what is new, and a comment now and then, by which a proxy and
# the client see that it is alive. It ends when the client goes, when the run is gone, and when the server stops.

_HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    # nginx would hold events back.
    (b"x-accel-buffering", b"no"),
)
_HEARTBEAT: Final = b": alive\n\n"


class EventStream:
    """The response that a viewer of a run gets."""

    def __init__(self, following: Following, viewer: Viewer) -> None:
        self._following = following
        self._viewer = viewer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until it is over."""
        going = asyncio.create_task(self._until_gone(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            while not self._viewer.is_over:
                told = await self._viewer.next(limits.HEARTBEAT_SECONDS)
                if not self._viewer.is_over:
                    await send({"type": "http.response.body", "body": _sent(told), "more_body": True})
                if told is not None and told.event == "gone":
                    break
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._following.leave(self._viewer)
            going.cancel()

    async def _until_gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._viewer.leave()


def _sent(told: ViewerEvent | None) -> bytes:
    """Write an event. JSON on one line has no line end in it, so no data is taken for another event."""
    return _HEARTBEAT if told is None else b"event: %s\ndata: %s\n\n" % (told.event.encode(), told.data)


# The routes.

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
    return settings.ui_viewers + limits.BESIDE_VIEWERS


class Pages:
    """What is served under some settings to those who have a token. Make it in the event loop that serves."""

    def __init__(self, settings: Settings, tokens: Sequence[AccessToken], host: str) -> None:
        self._settings = settings
        self._source = settings.for_reading
        self._host = host
        self._redis: Redis = connect(self._source)
        self._page = Page(self._redis, self._source)
        self._reader = Reader(self._page)
        self._actions = ThreadPoolExecutor(limits.ACTION_THREADS, "acts-ui-actions")
        self._clients = {token.name: Client(settings.acting_for(token.name, token.identity)) for token in tokens}
        self._bodies = Bodies(int(settings.limit_call_bytes), "ACTS_LIMIT_CALL_BYTES")
        self._assets = _read_assets()
        self._access = Access(tokens, PAGES)
        self.following = Following(self._source, self._reader, self._access.shares(settings.ui_viewers, WATCHED))

    @property
    def application(self) -> ASGIApp:
        """The routes, behind their guard."""
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
        most = limits.limits_of(self._settings)
        async with self._bodies.read(request, visitor.name) as data:

            def done() -> bytes:
                given = action.read(decode(data, most) if data.strip() else {})
                found = self._clients[visitor.name].run(run)
                more = _counted(action.do(found, **given))
                return encoded({"run": run, "status": found.status()["status"], **more})

            return _json(await asyncio.get_running_loop().run_in_executor(self._actions, done))

    async def _seen(self, request: Request, run: str) -> str:
        """Check that the visitor may see a run; others do not exist for them. Raises `RunNotFound`."""
        if (only := _visitor(request).only) is None:
            return run
        return await self._reader.call("", lambda: self._page.find(run, only))


def _visitor(request: Request) -> Visitor:
    found: Visitor = request.state.visitor
    return found


def _counted(done: dict[str, Any]) -> dict[str, Any]:
    """Shorten what an action has done, or would do: of many calls the first ones, and how many there are."""
    lists = {name: value for name, value in done.items() if isinstance(value, list)}
    first = {name: calls[: limits.APPLICATION_NAMED] for name, calls in lists.items()}
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
