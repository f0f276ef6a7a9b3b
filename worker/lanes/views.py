"""The runs that this process has open: their shared parts are read once, not once for each lane."""

from __future__ import annotations

import asyncio
from typing import Final

from acts_celery.protocol import Limits
from acts_celery.worker.storage.lane import RunView
from acts_celery.worker.storage.log import MessageLog, Opened
from acts_celery.worker.storage.trust import SaidHere

from .recent import Recent

_MOST: Final = 64
_MOST_BYTES: Final = 64 * 2**20


class Views:
    """The most recently used runs' views."""

    def __init__(self, log: MessageLog, limits: Limits, said_here: SaidHere) -> None:
        """`said_here` is what this process says of the calls of all runs (SPEC R16.1)."""
        self._log = log
        self._limits = limits
        self._said_here = said_here
        self._views = Recent[str, asyncio.Future[RunView]](_MOST, most_bytes=_MOST_BYTES)

    async def run(self, run: str) -> RunView:
        """The view of a run; those who ask at the same time wait for one reading. Raises `RunGone`."""
        return (await self.lane(run, None))[0]

    async def lane(self, run: str, instance: str | None) -> tuple[RunView, Opened | None]:
        """The view of a run, and a lane of it where that was read with the view. Raises `RunGone`."""
        read: list[Opened] = []
        opening = self._views.get(run)
        if opening is None:
            opening = asyncio.ensure_future(self._open(run, instance, read))
            self._views.put(run, opening, 0)
        try:
            view = await asyncio.shield(opening)
        except Exception:
            self._views.pop(run)
            raise
        self._views.put(run, opening, min(view.size, _MOST_BYTES))  # the largest one is kept while it is in use
        return view, read[0] if read else None

    def forget(self, run: str) -> None:
        """Keep the view of a run no longer."""
        self._views.pop(run)

    async def _open(self, run: str, instance: str | None, read: list[Opened]) -> RunView:
        view, lane = await RunView.open(self._log, run, self._limits, instance, self._said_here)
        read.append(lane)
        return view
