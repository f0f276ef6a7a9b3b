"""The runs that this process has open: their shared parts are read once, not once for each lane."""

from __future__ import annotations

import asyncio
from typing import Final

from acts_celery.protocol import Limits
from acts_celery.worker.storage.lane import RunView
from acts_celery.worker.storage.log import MessageLog

from .recent import Recent

_MOST: Final = 64
_MOST_BYTES: Final = 64 * 2**20


class Views:
    """The most recently used runs' views."""

    def __init__(self, log: MessageLog, limits: Limits) -> None:
        self._log = log
        self._limits = limits
        self._views = Recent[str, asyncio.Future[RunView]](_MOST, most_bytes=_MOST_BYTES)

    def has(self, run: str) -> bool:
        """Whether the view of a run is open, or being opened."""
        return run in self._views

    async def run(self, run: str) -> RunView:
        """The view of a run; those who ask at the same time wait for one reading. Raises `RunGone`."""
        opening = self._views.get(run)
        if opening is None:
            opening = asyncio.ensure_future(RunView.open(self._log, run, self._limits))
            self._views.put(run, opening, 0)
        try:
            view = await asyncio.shield(opening)
        except Exception:
            self._views.pop(run)
            raise
        self._views.put(run, opening, min(view.size, _MOST_BYTES))  # the largest one is kept while it is in use
        return view
