"""Places: so many at a time, shared among runs, so that none of them takes the last ones."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from acts_celery.worker.messaging.shares import may_hold_another


class Places:
    """Places on one event loop. Waiting lanes are served in order within their run, and the runs in turn."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = Counter[str]()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def one(self, run: str) -> AsyncIterator[None]:
        """Hold a place for a run; wait for one."""
        if run in self._waiting or not self._may_hold(run):
            await self._wait(run)
        else:
            self._held[run] += 1
        try:
            yield
        finally:
            self._give_back(run)

    def _may_hold(self, run: str) -> bool:
        return may_hold_another(self._held[run], self._held.total(), self._most)

    async def _wait(self, run: str) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(run, deque()).append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self._give_back(run)
            raise

    def _give_back(self, run: str) -> None:
        self._held[run] -= 1
        if not self._held[run]:
            del self._held[run]
        for name in list(self._waiting):
            self._serve(name)

    def _serve(self, run: str) -> None:
        """Give a place to the first of a run that waits, if it may have one."""
        line = self._waiting[run]
        while line and line[0].done():
            line.popleft()
        if line and self._may_hold(run):
            self._held[run] += 1
            line.popleft().set_result(None)
            self._waiting.move_to_end(run)
        if not line:
            del self._waiting[run]
