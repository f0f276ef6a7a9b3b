"""A stream of server-sent events for one viewer of a run: what is new, and a comment now and then, by which a proxy and
the client see that it is alive. It ends when the client goes, when the run is gone, and when the server stops.
"""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.types import Receive, Scope, Send

from .following import Following, Told, Viewer

HEARTBEAT_SECONDS: Final = 15.0
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
                told = await self._viewer.next(HEARTBEAT_SECONDS)
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
