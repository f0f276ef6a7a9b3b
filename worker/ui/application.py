"""The pages: the front and its assets, the answers that it asks for, and streams that follow a run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import chain
from typing import Any, Final, NoReturn

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from ...broker_config import Settings
from ...broker_config.settings import UI_RIGHTS
from ...broker_config.tokens import AccessToken
from ...protocol.paths import MISSING
from .. import limits
from ..backoff import Backoff
from ..client.run import ReadableRun
from ..store.connections import connect, connect_async_client
from ..store.log import wait_for_entry
from . import Page
from .access import Access, Reader, Refused, Shares, Site, Visitor, document, encoded, problem_details, refusal
from .opened import Query

# Following runs: one reader of the log for everybody who looks at one run.
#
# A reader waits for entries of the log, reads the overview of the run, and hands it to each viewer, at most twice a
# second. A viewer holds the newest overview alone: a slow viewer misses what came between, and takes no memory.

WATCHED: Final = "pages that follow runs"
_PASSING: Final = ("expires", "duration_seconds")
_BACKOFF: Final = Backoff(0.5, 10.0)


@dataclass(frozen=True, slots=True)
class ViewerEvent:
    """An event for viewers: `changed` with the overview, `unavailable` with an error, or `gone`; for readers of a log
    one of its events, which has an `id`.
    """

    event: str
    data: bytes = field(compare=False)
    known: bytes = b""
    """The part of the data that is compared: two times in it change by themselves."""
    id: str | None = None


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


class LogFollower:
    """A client that reads what comes in the log of one run, each thing once and in order."""

    def __init__(self, name: str, coming: AsyncGenerator[ViewerEvent, None]) -> None:
        self.name = name
        self.is_over = False
        self._events: asyncio.Queue[ViewerEvent | None] = asyncio.Queue(1)
        self.task = asyncio.create_task(self._read(coming))

    async def next(self, timeout_seconds: float) -> ViewerEvent | None:
        """Wait for the next event; None where none came for so long, or where it is over."""
        try:
            found = await asyncio.wait_for(self._events.get(), timeout_seconds)
        except TimeoutError:
            return None
        self.is_over = self.is_over or found is None
        return found

    def leave(self) -> None:
        """End the reading, and let `next` end. The client of Redis loses a cancellation now and then."""
        self.is_over = True
        if not self._events.full():
            self._events.put_nowait(None)
        if not self.task.done():
            self.task.cancel()
            asyncio.get_running_loop().call_later(limits.CANCEL_SECONDS, self.leave)

    async def _read(self, coming: AsyncGenerator[ViewerEvent, None]) -> None:
        try:
            async with aclosing(coming):
                async for event in coming:
                    await self._events.put(event)
        except Exception as error:
            await self._events.put(ViewerEvent("error", encoded(problem_details(refusal(error)))))
        await self._events.put(None)


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
    """The runs that have viewers, and what reads their logs. Use it in one event loop; `settings` say where runs are
    read.
    """

    def __init__(self, settings: Settings, reader: Reader, shares: Shares | None = None) -> None:
        """`shares` limit how many viewers each token may have; without it a token may have all."""
        self._settings = settings
        self._reader = reader
        self._shares = shares or Shares(settings.ui_viewers, WATCHED)
        self._redis: AsyncRedis = connect_async_client(settings)
        self._runs: dict[str, _Followed] = {}
        self._logs: set[LogFollower] = set()
        self._taken = 0
        """How many follow runs, or are about to."""
        self._is_closed = False

    async def join(self, run: str, name: str = "") -> Viewer:
        """Add a viewer to a run, for the token of that name. Raises `Refused` where there are too many viewers, and
        what `Page.answer` raises where there is no such run.
        """
        self._take(name)
        try:
            overview = await self._reader.answer(f"runs/{run}", {})
            self._refuse_if_closed()
        except BaseException:
            self._give_back(name)
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

    def read(self, name: str, coming: AsyncGenerator[ViewerEvent, None]) -> LogFollower:
        """Read what comes in the log of a run, for the token of that name. Raises `Refused` where too many follow runs;
        what reading raises is an event `error`.
        """
        self._take(name)
        reader = LogFollower(name, coming)
        self._logs.add(reader)
        return reader

    def _take(self, name: str) -> None:
        self._refuse_if_closed()
        if self._taken >= (most := self._settings.ui_viewers):
            self._refuse(f"{most} pages and clients follow runs already (ACTS_UI_VIEWERS)")
        self._shares.take(name)
        self._taken += 1

    def _give_back(self, name: str) -> None:
        self._shares.give_back(name)
        self._taken -= 1

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            self._refuse("acts ui is stopping")

    def _refuse(self, why: str) -> NoReturn:
        raise Refused(503, "TooManyViewers", f"{why}: try again later", {"Retry-After": "10"})

    def leave(self, viewer: Viewer | LogFollower) -> None:
        """Take a viewer away; with the last one of a run its reader ends."""
        viewer.leave()
        if isinstance(viewer, LogFollower):
            if viewer in self._logs:
                self._logs.remove(viewer)
                self._give_back(viewer.name)
            return
        followed = self._runs.get(viewer.run)
        if followed is None or viewer not in followed.viewers:
            return
        followed.viewers.remove(viewer)
        self._give_back(viewer.name)
        if not followed.viewers:
            del self._runs[viewer.run]
            if followed.task is not None:
                followed.task.cancel()

    async def close(self) -> None:
        """End all readers and viewers, and the connections."""
        self._is_closed = True
        tasks = {followed.task for followed in self._runs.values() if followed.task is not None}
        tasks |= {reader.task for reader in self._logs}
        for reader in [*self._logs]:
            reader.leave()
        for viewer in [*chain.from_iterable(followed.viewers for followed in self._runs.values())]:
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


# A stream of server-sent events for one viewer of a run, or one reader of its log: what is new, and a comment now and
# then, by which a proxy and the client see that it is alive. It ends when the client goes, when the run is gone, and
# when the server stops; one that reads a log also ends with the run.

_HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    # nginx would hold events back.
    (b"x-accel-buffering", b"no"),
)
_HEARTBEAT: Final = b": alive\n\n"


class EventStream(Response):
    """The response that a viewer of a run gets, or a reader of its log."""

    media_type = "text/event-stream"

    def __init__(self, following: Following, viewer: Viewer | LogFollower) -> None:
        super().__init__()
        self._following = following
        self._viewer = viewer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until it is over."""
        going = asyncio.create_task(leave_with_client(self._viewer, receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
            while not self._viewer.is_over:
                told = await self._viewer.next(limits.HEARTBEAT_SECONDS)
                if told is not None or not self._viewer.is_over:
                    await send({"type": "http.response.body", "body": _sent(told), "more_body": True})
                if told is not None and told.event == "gone":
                    break
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._following.leave(self._viewer)
            going.cancel()


async def leave_with_client(viewer: Viewer | LogFollower, receive: Receive) -> None:
    """Let a viewer leave when its client goes."""
    while (await receive())["type"] != "http.disconnect":
        pass
    viewer.leave()


def _sent(told: ViewerEvent | None) -> bytes:
    """Write an event. JSON on one line has no line end in it, so no data is taken for another event."""
    if told is None:
        return _HEARTBEAT
    id_ = b"" if told.id is None else b"id: %s\n" % told.id.encode()
    return b"%sevent: %s\ndata: %s\n\n" % (id_, told.event.encode(), told.data)


# The routes.

PAGES: Final = Site(
    guarded="/api/",
    url_setting="ACTS_UI_URL",
    how_to_enter="open the link that `acts ui` has printed, or send Authorization: Bearer TOKEN",
    where_from="`acts ui` prints a link with a new one at each start, unless ACTS_UI_TOKENS says who may enter",
)
_FRONT: Final = "page.html"
_TYPES: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript"}


class Pages:
    """The pages under some settings, for those who have a token. Make it in the event loop that serves."""

    def __init__(self, settings: Settings, tokens: Sequence[AccessToken]) -> None:
        self._settings = settings
        self._source = settings.for_reading
        self._redis: Redis = connect(self._source)
        self._page = Page(self._redis, self._source)
        self._reader = Reader(self._page)
        self._assets = _read_assets()
        self._access = Access(tokens, PAGES)
        self.following = Following(self._source, self._reader, self._access.shares(settings.ui_viewers, WATCHED))

    @property
    def routes(self) -> list[Route]:
        """The pages, and the answers that they ask for."""
        return [
            Route("/", self._front),
            Route("/health", self._health),
            Route("/assets/{name}", self._asset),
            Route("/api/me", self._me),
            Route("/api/whole", self._whole),
            Route("/api/runs/{run}/changes", self._changes),
            Route("/api/{path:path}", self._answer),
        ]

    async def close(self) -> None:
        """End what follows runs, and the connections."""
        await self.following.close()
        self._reader.close()
        self._redis.close()

    async def _front(self, _: Request) -> Response:
        return self._assets[_FRONT]

    async def _health(self, _: Request) -> Response:
        return json_response(b'{"status":"ok"}')

    async def _asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._assets:
            raise Refused(404, "NoSuchAsset", "there is no such file")
        return self._assets[name]

    async def _me(self, request: Request) -> Response:
        visitor = visitor_of(request)
        return json_response(
            encoded({"name": visitor.name, "may": [right for right in UI_RIGHTS if right in visitor.rights]})
        )

    async def _answer(self, request: Request) -> Response:
        only = visitor_of(request).only
        return json_response(await self._reader.body(request.path_params["path"], dict(request.query_params), only))

    async def _whole(self, request: Request) -> Response:
        """A whole value, as a file to be saved."""
        asked = Query(request.query_params)
        run = await self._found(request, asked.required("run"))
        body = await self._reader.call(run, lambda: self._value(run, asked))
        return json_response(body, {"Content-Disposition": 'attachment; filename="value.json"'})

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

    async def _changes(self, request: Request) -> Any:
        run = await self._found(request, request.path_params["run"])
        return EventStream(self.following, await self.following.join(run, visitor_of(request).name))

    async def _found(self, request: Request, run: str) -> str:
        """The id of the run that a text means: an id, the beginning of one, a name or `latest`. A run that the visitor
        may not see does not exist for them. Raises `RunNotFound`, `AmbiguousRun`.
        """
        visitor = visitor_of(request)
        asker = visitor.identity.name if visitor.identity is not None else None
        return await self._reader.call(run, lambda: self._page.find(run, visitor.only, asker=asker))


def visitor_of(request: Request) -> Visitor:
    """Who asks."""
    found: Visitor = request.state.visitor
    return found


def json_response(body: bytes, headers: Mapping[str, str] | None = None, *, status: int = 200) -> Response:
    """An answer in JSON."""
    return Response(body, status, headers, "application/json")


def _read_assets() -> dict[str, Response]:
    """The front and what it loads, by name: nothing else is served from a disk."""
    found = {}
    for file in files("acts_celery.worker.ui").joinpath("assets").iterdir():
        if (kind := _TYPES.get(file.name.rpartition(".")[2])) is not None:
            found[file.name] = Response(file.read_bytes(), media_type=kind)
    return found
