"""The web application: the page and its assets, the answers, streams that follow a run, submissions and actions."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from itertools import chain
from typing import Annotated, Any, Final, NoReturn

from fastapi import Query
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ...broker_config import Settings
from ...broker_config.settings import UI_RIGHTS
from ...broker_config.tokens import AccessToken
from ...protocol import Rejected
from ...protocol.paths import MISSING
from ...protocol.plan.documents import decode
from .. import limits
from ..actions import ACTIONS, Action
from ..backoff import Backoff
from ..client.async_client import AsyncClient, AsyncRun
from ..client.client import Client
from ..client.deployments import RunIndex
from ..client.run import ReadableRun
from ..client.submitting import id_taken, label_of
from ..errors import BadBody, RunNotFound
from ..fairness import FairSemaphore
from ..store.connections import connect, connect_async_client
from ..store.keys import ENDED_STATUSES
from ..store.log import wait_for_entry
from . import Page
from .access import (
    Access,
    Bodies,
    Guard,
    Reader,
    Refused,
    Shares,
    Site,
    Visitor,
    document,
    encoded,
    problem_details,
    refusal,
)
from .api import (
    SUBMISSION,
    ActionDone,
    Handler,
    HttpApi,
    IdempotencyKey,
    LastEventId,
    ListOfRuns,
    ResultQuery,
    RunOverview,
    RunResult,
    RunsQuery,
    RunState,
    ServerSentEvents,
    SubmissionQuery,
    SubmittedRun,
)
from .opened import Query as Asked
from .opened import within
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


class LogReader:
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
        self._logs: set[LogReader] = set()
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

    def read(self, name: str, coming: AsyncGenerator[ViewerEvent, None]) -> LogReader:
        """Read what comes in the log of a run, for the token of that name. Raises `Refused` where too many follow runs;
        what reading raises is an event `error`.
        """
        self._take(name)
        reader = LogReader(name, coming)
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

    def leave(self, viewer: Viewer | LogReader) -> None:
        """Take a viewer away; with the last one of a run its reader ends."""
        viewer.leave()
        if isinstance(viewer, LogReader):
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
# when the server stops; that of a log also with the run.

_HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    # nginx would hold events back.
    (b"x-accel-buffering", b"no"),
)
_HEARTBEAT: Final = b": alive\n\n"


class EventStream(ServerSentEvents):
    """The response that a viewer of a run gets, or a reader of its log."""

    def __init__(self, following: Following, viewer: Viewer | LogReader) -> None:
        super().__init__()
        self._following = following
        self._viewer = viewer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until it is over."""
        going = asyncio.create_task(_leaves_with_client(self._viewer, receive))
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


async def _leaves_with_client(viewer: Viewer | LogReader, receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    viewer.leave()


def _sent(told: ViewerEvent | None) -> bytes:
    """Write an event. JSON on one line has no line end in it, so no data is taken for another event."""
    if told is None:
        return _HEARTBEAT
    id_ = b"" if told.id is None else b"id: %s\n" % told.id.encode()
    return b"%sevent: %s\ndata: %s\n\n" % (id_, told.event.encode(), told.data)


# What a reader of a log is told: its events, or that the run has ended.


async def _events_of(run: AsyncRun, after: str) -> AsyncGenerator[ViewerEvent, None]:
    async for event in run.follow(after=after):
        about = {name: value for name, value in asdict(event).items() if value is not None}
        yield ViewerEvent(event.kind, encoded(about), id=event.id)


async def _end_of(run: AsyncRun) -> AsyncGenerator[ViewerEvent, None]:
    await run.ended()
    yield ViewerEvent("ended", b"")


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
        self._log: Redis = connect(settings)
        self._waiting = AsyncClient(self._source)
        self._bodies = Bodies(int(settings.limit_call_bytes), "ACTS_LIMIT_CALL_BYTES")
        self._submissions = Bodies(int(settings.limit_submission_bytes), "ACTS_LIMIT_SUBMISSION_BYTES")
        self._checking = FairSemaphore(limits.SUBMISSIONS_AT_ONCE)
        self._assets = _read_assets()
        self._access = Access(tokens, PAGES)
        self.following = Following(self._source, self._reader, self._access.shares(settings.ui_viewers, WATCHED))

    @property
    def application(self) -> ASGIApp:
        """The routes, behind their guard."""
        api = HttpApi()
        api.add_route("/", self._front)
        api.add_route("/health", self._health)
        api.add_route("/assets/{name}", self._asset)
        api.add_route("/api/me", self._me)
        api.add_route("/api/whole", self._whole)
        submitted = {200: SubmittedRun, 201: SubmittedRun}
        api.offer("POST", "/api/runs", self._submit, submitted, name="submit", body=SUBMISSION)
        api.offer("GET", "/api/runs", self._runs, {200: ListOfRuns}, name="list_runs")
        api.offer("GET", "/api/runs/{run}", self._run, {200: RunOverview}, name="get_run")
        api.offer("GET", "/api/runs/{run}/result", self._result, {200: RunResult, 202: RunState}, name="get_result")
        api.offer("GET", "/api/runs/{run}/events", self._events, {200: None}, name="follow")
        for name, action in SERVED.items():
            handler, body = self._act(action), action.parameters.model_json_schema()
            summary = action.summary or action.help
            path = f"/api/runs/{{run}}/{name}"
            api.offer("POST", path, handler, {200: ActionDone}, name=name, summary=summary, body=body)
        api.add_route("/api/runs/{run}/changes", self._changes)
        api.add_route("/api/runs/{run}/{action}", self._no_action, methods=["POST"])
        api.add_route("/api/{path:path}", self._answer)
        most = most_connections(self._settings)
        return Guard(
            api.routed, access=self._access, site=PAGES, host=self._host, url=self._settings.ui_url, most_requests=most
        )

    async def close(self) -> None:
        """End what follows runs, and the connections."""
        await self.following.close()
        self._reader.close()
        self._actions.shutdown(wait=False, cancel_futures=True)
        for client in self._clients.values():
            client.close()
        await self._waiting.close()
        self._log.close()
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
        asked = Asked(request.query_params)
        run = await self._seen(request, asked.required("run"))
        body = await self._reader.call(run, lambda: self._value(run, asked))
        return _json(body, {"Content-Disposition": 'attachment; filename="value.json"'})

    def _value(self, run: str, asked: Asked) -> bytes:
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
        run = await self._seen(request, request.path_params["run"])
        return EventStream(self.following, await self.following.join(run, _visitor(request).name))

    async def _submit(
        self, request: Request, asked: Annotated[SubmissionQuery, Query()], idempotency_key: IdempotencyKey = None
    ) -> Response:
        """Submit a run, which begins at once: 201, or 200 where the same document was submitted under the same id. With
        an `Idempotency-Key` a request whose answer was lost can be repeated.
        """
        visitor = _visitor(request)
        visitor.require("submit")
        async with self._submissions.read(request, visitor.name) as data, self._checking.one(visitor.name):

            def submitted() -> tuple[int, dict[str, str], bytes]:
                document, client = self._decoded(data), self._clients[visitor.name]
                plan = client.check_submission(document, allow=asked.allow)
                label = label_of(document, id=idempotency_key, name=asked.name, tags=asked.tag)
                run = client.submit_plan(plan, label)
                if not run.is_new and visitor.only is not None:
                    self._require_own(run.id, visitor.only)
                findings = within((each.to_dict() for each in plan.findings), limits.FINDINGS_BYTES)
                status, place = 201 if run.is_new else 200, {"Location": f"/api/runs/{run.id}"}
                return status, place, encoded(run.status() | {"findings": findings})

            status, headers, body = await asyncio.get_running_loop().run_in_executor(self._actions, submitted)
        return _json(body, headers, status=status)

    def _require_own(self, run: str, owner: str) -> None:
        """Raise `IdTaken` where a run that was there under an id is not the owner's."""
        try:
            RunIndex(self._log, self._settings.key_prefix, owner=owner).find(run)
        except RunNotFound:
            raise id_taken(run) from None

    async def _runs(self, request: Request, asked: Annotated[RunsQuery, Query()]) -> Response:
        """List runs, the newest first, a page at a time."""
        query = {name: str(value) for name, value in asked.model_dump(exclude_none=True).items()}
        return _json(await self._reader.body("runs", query, _visitor(request).only))

    async def _run(self, request: Request, run: str) -> Response:
        """Show a run at a glance. RUN is its id, the beginning of it, its name, or `latest`."""
        return _json(await self._reader.body(f"runs/{run}", {}, _visitor(request).only))

    async def _result(self, request: Request, run: str, asked: Annotated[ResultQuery, Query()]) -> Response:
        """Give the result of a run that has ended: 200, also where it has failed. One that goes on is waited for if
        there is a `timeout`; if it goes on then, too, the answer is 202 with its status: ask again.
        """
        found = await self._found(request, run)
        if asked.timeout:
            reader = self.following.read(_visitor(request).name, _end_of(self._waiting.run_of(found)))
            going = asyncio.create_task(_leaves_with_client(reader, request.receive))
            try:
                await reader.next(asked.timeout)
            finally:
                going.cancel()
                self.following.leave(reader)
        status, body = await self._reader.call(found, lambda: self._read_result(found))
        return _json(body, status=status)

    def _read_result(self, run: str) -> tuple[int, bytes]:
        reading = ReadableRun(run, self._redis, self._source)
        status = reading.status()
        if status["status"] not in ENDED_STATUSES:
            return 202, encoded(status)
        if (calls := sum(status["calls"].values())) > limits.RESULT_MOST_CALLS:
            text = f"the run has {calls} calls, and one answer {limits.RESULT_MOST_CALLS} at most"
            raise Refused(413, "TooLarge", f"{text}: GET /api/runs/{run}/instances has them by pages, `acts show` all")
        return 200, encoded(reading.result().to_dict())

    async def _events(self, request: Request, run: str, last_event_id: LastEventId = None) -> Any:
        """Follow a run from its beginning, or behind the event with the id `Last-Event-ID`, until it has ended: each
        server-sent event has an `id`, its kind as `event`, and JSON as `data`. The last one has the kind `run` and a
        status such as `completed`. While nothing happens a comment comes every 15 seconds.
        """
        after = Asked({"Last-Event-ID": last_event_id or "0-0"}).moment("Last-Event-ID") or "0-0"
        found = await self._found(request, run)
        reading = self._waiting.run_of(found)
        return EventStream(self.following, self.following.read(_visitor(request).name, _events_of(reading, after)))

    def _act(self, action: Action) -> Handler:
        """Make the handler of an action."""

        async def act(request: Request, run: str) -> Response:
            visitor = _visitor(request)
            visitor.require(action.right)
            found = await self._seen(request, run)
            async with self._bodies.read(request, visitor.name) as data:

                def done() -> bytes:
                    given = action.read(self._decoded(data) if data.strip() else {})
                    steered = self._clients[visitor.name].run(found)
                    more = _counted(action.do(steered, **given))
                    about = {} if "status" in more else {"status": steered.status()["status"]}
                    return encoded({"run": found, **about, **more})

                return _json(await asyncio.get_running_loop().run_in_executor(self._actions, done))

        return act

    async def _no_action(self, _: Request) -> Response:
        raise Refused(404, "NoSuchDeed", f"there is no such deed; there are {', '.join(SERVED)}")

    def _decoded(self, data: bytes) -> Any:
        """The value of a body. Raises `BadBody`."""
        try:
            return decode(data, limits.limits_of(self._settings))
        except Rejected as error:
            raise BadBody(str(error)) from None

    async def _found(self, request: Request, run: str) -> str:
        """The id of the run that a text means, among those that the visitor may see. Raises `RunNotFound`."""
        return await self._reader.call("", lambda: self._page.find(run, _visitor(request).only))

    async def _seen(self, request: Request, run: str) -> str:
        """Check that the visitor may see a run; others do not exist for them. Raises `RunNotFound`."""
        return run if _visitor(request).only is None else await self._found(request, run)


def _visitor(request: Request) -> Visitor:
    found: Visitor = request.state.visitor
    return found


def _counted(done: dict[str, Any]) -> dict[str, Any]:
    """Shorten what an action has done, or would do: of many calls the first ones, and how many there are."""
    lists = {name: value for name, value in done.items() if isinstance(value, list)}
    first = {name: calls[: limits.APPLICATION_NAMED] for name, calls in lists.items()}
    return done | first | ({"counts": {name: len(calls) for name, calls in lists.items()}} if lists else {})


def _json(body: bytes, headers: Mapping[str, str] | None = None, *, status: int = 200) -> Response:
    return Response(body, status, headers, "application/json")


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
