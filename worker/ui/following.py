"""Following runs: one reader of the log for all who look at one run.

A reader waits for entries of the log, reads the run's overview, and hands it to each viewer, at most twice a second. A
viewer holds the newest overview alone: whoever reads slowly misses what came between, and takes no memory.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

from redis.asyncio import Redis
from starlette.types import Receive, Scope, Send

from ...broker_config import Settings
from .. import limits
from ..backoff import Backoff
from ..store.connections import connect_async_client
from ..store.run_list import wait_for_entry
from .access import Reader, Refused, Shares, document, encoded, refusal

WATCHED: Final = "pages that follow runs"
_PASSING: Final = ("expires", "duration_seconds")
_BACKOFF: Final = Backoff(0.5, 10.0)


@dataclass(frozen=True, slots=True)
class Told:
    """What a viewer is told: `changed` with the overview, `unavailable` with an error, or `gone`."""

    event: str
    data: bytes = field(compare=False)
    known: bytes = b""
    """What is compared: two times that go on by themselves tell nobody anything."""


class Viewer:
    """Somebody who looks at a run."""

    def __init__(self, run: str, name: str = "") -> None:
        self.run = run
        self.name = name
        self.is_over = False
        self._newest: Told | None = None
        self._came = asyncio.Event()

    def tell(self, told: Told) -> None:
        """Hand over what is new; what was not taken before is dropped."""
        self._newest = told
        self._came.set()

    def leave(self) -> None:
        """Let `next` end."""
        self.is_over = True
        self._came.set()

    async def next(self, timeout_seconds: float) -> Told | None:
        """What is new; None where nothing was for so long, or where it is over."""
        try:
            await asyncio.wait_for(self._came.wait(), timeout_seconds)
        except TimeoutError:
            return None
        self._came.clear()
        newest, self._newest = self._newest, None
        return newest


@dataclass(slots=True)
class _Followed:
    """A run that somebody looks at."""

    viewers: set[Viewer] = field(default_factory=set)
    newest: Told | None = None
    task: asyncio.Task[None] | None = None

    def tell(self, told: Told) -> None:
        """Tell all of what is new to them."""
        if told != self.newest:
            self.newest = told
            for viewer in self.viewers:
                viewer.tell(told)


class Following:
    """The runs that are looked at. Use it in one event loop; `settings` say where runs are read."""

    def __init__(self, settings: Settings, reader: Reader, shares: Shares | None = None) -> None:
        """`shares` are what each token's name may have of the viewers; without it any may have all."""
        self._settings = settings
        self._reader = reader
        self._shares = shares or Shares(settings.ui_viewers, WATCHED)
        self._redis: Redis = connect_async_client(settings)
        self._runs: dict[str, _Followed] = {}
        self._is_closed = False

    @property
    def viewers(self) -> int:
        """How many look at runs."""
        return sum(len(followed.viewers) for followed in self._runs.values())

    async def join(self, run: str, name: str = "") -> Viewer:
        """Somebody of that name looks at a run. Raises `Refused` where too many do, or he at too many; what
        `Page.answer` raises where there is none.
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
        """Look no longer; the last one takes the reader with him."""
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
        """End all, and the connections."""
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
        """Tell the viewers of a run what is new, until it is gone."""
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
                    followed.tell(Told("gone", encoded(document(refused))))
                    return
                followed.tell(Told("unavailable", (data := encoded(document(refused))), data))
                failures += 1
                await asyncio.sleep(_BACKOFF.seconds(failures))


def _changed(overview: Any) -> Told:
    return Told(
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
    """The response that tells a viewer of a run."""

    def __init__(self, following: Following, viewer: Viewer) -> None:
        self._following = following
        self._viewer = viewer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until it is over."""
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


def _sent(told: Told | None) -> bytes:
    """JSON on one line has no end of a line in it, so nothing of the data is taken for another event."""
    return _HEARTBEAT if told is None else b"event: %s\ndata: %s\n\n" % (told.event.encode(), told.data)
