"""The routes: the front and its assets, the answers, what follows a run, and the deeds."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from typing import Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, ValidationError
from redis import Redis
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp

from ...broker_config import Settings
from ...broker_config.settings import UI_RIGHTS
from ...broker_config.tokens import AccessToken, Right
from ...protocol.paths import MISSING
from ...protocol.plan.submission import decode
from ..client.client import Client
from ..client.retrying import Retried
from ..client.run import ReadableRun, Run
from ..limits import limits_of
from ..store.connections import connect
from . import Page
from .access import Access, Bodies, Guard, Reader, Refused, Site, Visitor, encoded
from .following import WATCHED, EventStream, Following
from .opened import Query
from .server import WebServer

# Deeds: what can be done to a run from its page. Each is a method of the client, and takes a right of the token.
#
# The bodies are read strictly: a key that is not known is refused, so that nothing that was asked for is left out.

_NAMED: Final = 100
"""How many calls of each kind an answer names; it counts all."""


class Deed(BaseModel):
    """What is asked for in one request."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
    right: ClassVar[Right]

    def carry_out(self, run: Run) -> dict[str, Any]:
        """Do it; return what the answer says besides the status of the run."""
        raise NotImplementedError


class Approve(Deed):
    """Let a held call run, as it was shown, with other parameters or narrower scopes."""

    right = "decide"
    call: int | str
    parameters: dict[str, Any] | None = None
    scopes: list[str] | None = None
    shown: str | None = None

    def carry_out(self, run: Run) -> dict[str, Any]:
        """Approve it."""
        return {"id": run.approve(self.call, parameters=self.parameters, scopes=self.scopes, shown=self.shown)}


class Reject(Deed):
    """End a held call with an error."""

    right = "decide"
    call: int | str
    reason: str
    shown: str | None = None

    def carry_out(self, run: Run) -> dict[str, Any]:
        """Reject it."""
        return {"id": run.reject(self.call, self.reason, shown=self.shown)}


class Answer(Deed):
    """Answer a question: the value is the result of its call."""

    right = "decide"
    call: int | str
    value: Any
    shown: str | None = None

    def carry_out(self, run: Run) -> dict[str, Any]:
        """Answer it."""
        return {"id": run.answer(self.call, self.value, shown=self.shown)}


class ApprovePlan(Deed):
    """Let the calls of a plan run, by its digest."""

    right = "decide"
    plan: str

    def carry_out(self, run: Run) -> dict[str, Any]:
        """Approve it."""
        run.approve_plan(self.plan)
        return {}


class _OnFailed(Deed):
    """Which failed calls are meant."""

    right = "control"
    call: int | None = None
    instance: str | None = None


class Retry(_OnFailed):
    """Carry out failed calls again; `dry` says what would come of it, and changes nothing."""

    downstream: bool = False
    effects: bool = False
    dry: bool = False

    def carry_out(self, run: Run) -> dict[str, Any]:
        """Retry them."""
        if self.effects and not self.downstream:
            raise Refused(400, "BadBody", "effects says what downstream carries out again: give both")
        retry = run.would_retry if self.dry else run.retry
        return _named(retry(call=self.call, instance=self.instance, downstream=self.downstream, effects=self.effects))


class Skip(_OnFailed):
    """Take failed calls as done with a value."""

    value: Any = None

    def carry_out(self, run: Run) -> dict[str, Any]:
        """Skip them."""
        return _named(run.retry(call=self.call, instance=self.instance, skip=True, value=self.value))


class Pause(Deed):
    """Begin no more calls."""

    right = "control"

    def carry_out(self, run: Run) -> dict[str, Any]:
        """Pause the run."""
        run.pause()
        return {}


class Resume(Deed):
    """Go on; with more ticks for a loop."""

    right = "control"
    ticks: int | None = None

    def carry_out(self, run: Run) -> dict[str, Any]:
        """Resume the run."""
        run.resume(ticks=self.ticks)
        return {}


class Cancel(Deed):
    """End the run now."""

    right = "control"

    def carry_out(self, run: Run) -> dict[str, Any]:
        """Cancel the run."""
        run.cancel()
        return {}


class Fork(Deed):
    """A new run that goes on from a moment of this one."""

    right = "control"
    at: str | None = None
    paused: bool = False

    def carry_out(self, run: Run) -> dict[str, Any]:
        """Fork the run."""
        fork = run.fork(Query({"at": self.at or ""}).moment("at"), paused=self.paused)
        return {"run": fork.id, "status": fork.status()["status"]}


DEEDS: Final[Mapping[str, type[Deed]]] = {
    "approve": Approve,
    "reject": Reject,
    "answer": Answer,
    "approve_plan": ApprovePlan,
    "retry": Retry,
    "skip": Skip,
    "pause": Pause,
    "resume": Resume,
    "cancel": Cancel,
    "fork": Fork,
}
"""Every deed, by the last part of its path."""


def read_deed(name: str, body: Any) -> Deed:
    """The deed of a name that a body asks for. Raises `Refused`."""
    try:
        return DEEDS[name].model_validate(body)
    except ValidationError as error:
        wrong = (f"{'/'.join(map(str, each['loc'])) or 'the body'}: {each['msg']}" for each in error.errors())
        raise Refused(400, "BadBody", f"{name} is not asked for in this way: {'; '.join(wrong)}") from None


def _named(done: Retried) -> dict[str, Any]:
    """What a retry has done, or would do."""
    lists = done.to_dict()
    named: dict[str, Any] = {name: calls[:_NAMED] for name, calls in lists.items()}
    return named | {"counts": {name: len(calls) for name, calls in lists.items()}}


PAGES: Final = Site(
    guarded="/api/",
    url_setting="ACTS_UI_URL",
    how_to_enter="open the link that `acts ui` has printed, or send Authorization: Bearer TOKEN",
    where_from="`acts ui` prints a link with a new one at each start, unless ACTS_UI_TOKENS says who may enter",
)
_FRONT: Final = "page.html"
_TYPES: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_DEED_THREADS: Final = 8
_BESIDE_VIEWERS: Final = 200


def most_connections(settings: Settings) -> int:
    """How many connections there may be: viewers have theirs as long as they look."""
    return settings.ui_viewers + _BESIDE_VIEWERS


class Pages:
    """What is served under some settings to those who have a token. Make it in the event loop that serves."""

    def __init__(self, settings: Settings, tokens: Sequence[AccessToken], host: str) -> None:
        self._settings = settings
        self._source = settings.for_reading
        self._host = host
        self._redis: Redis = connect(self._source)
        self._page = Page(self._redis, self._source)
        self._reader = Reader(self._page)
        self._deeds = ThreadPoolExecutor(_DEED_THREADS, "acts-ui-deeds")
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
            Route("/api/runs/{run}/{deed}", self._deed, methods=["POST"]),
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
        self._deeds.shutdown(wait=False, cancel_futures=True)
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

    async def _deed(self, request: Request) -> Response:
        name, visitor = request.path_params["deed"], _visitor(request)
        if name not in DEEDS:
            raise Refused(404, "NoSuchDeed", f"there is no such deed; there are {', '.join(DEEDS)}")
        visitor.require(DEEDS[name].right)
        run = await self._seen(request, request.path_params["run"])
        limits = limits_of(self._settings)
        async with self._bodies.read(request, visitor.name) as data:

            def done() -> bytes:
                deed = read_deed(name, decode(data, limits) if data.strip() else {})
                return encoded(self._carried_out(deed, visitor, run))

            return _json(await asyncio.get_running_loop().run_in_executor(self._deeds, done))

    def _carried_out(self, deed: Deed, visitor: Visitor, run: str) -> dict[str, Any]:
        found = self._clients[visitor.name].run(run)
        more = deed.carry_out(found)
        return {"run": run, "status": found.status()["status"], **more}

    async def _seen(self, request: Request, run: str) -> str:
        """A run that is asked for; who sees only runs of its own is told of no other. Raises `RunNotFound`."""
        if (only := _visitor(request).only) is None:
            return run
        return await self._reader.call("", lambda: self._page.find(run, only))


def _visitor(request: Request) -> Visitor:
    found: Visitor = request.state.visitor
    return found


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
