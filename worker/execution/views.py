"""The runs that this process has open: their shared parts are read once, not once for each lane."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

from acts_celery.protocol import Limits
from acts_celery.worker.storage.lane import RunView
from acts_celery.worker.storage.log import MessageLog

_MOST: Final = 64


class Views:
    """The most recently used runs' views."""

    def __init__(self, log: MessageLog, limits: Limits) -> None:
        self._log = log
        self._limits = limits
        self._views: OrderedDict[str, asyncio.Future[RunView]] = OrderedDict()

    def has(self, run: str) -> bool:
        """Whether the view of a run is open, or being opened."""
        return run in self._views

    async def run(self, run: str) -> RunView:
        """The view of a run; those who ask at the same time wait for one reading. Raises `RunGone`."""
        opening = self._views.get(run)
        if opening is None:
            opening = self._views[run] = asyncio.ensure_future(RunView.open(self._log, run, self._limits))
            while len(self._views) > _MOST:
                self._views.popitem(last=False)
        self._views.move_to_end(run)
        try:
            return await asyncio.shield(opening)
        except Exception:
            self._views.pop(run, None)
            raise
