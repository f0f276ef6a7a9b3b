"""Leases: a sign of life for every call that this process has at work (DESIGN "Sweep")."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable

from redis.exceptions import RedisError

from .log import MessageLog

logger = logging.getLogger(__name__)


class Leases:
    """The calls at work in this process; their leases are renewed three times in their length."""

    def __init__(self, log: MessageLog, lease_seconds: float) -> None:
        self._log = log
        self._lease_seconds = lease_seconds
        self._held: dict[tuple[str, str | None], set[int]] = defaultdict(set)
        self._renewal: asyncio.Task[None] | None = None

    def hold(self, run: str, instance: str | None, index: int) -> None:
        """A call is at work from now on."""
        self._held[run, instance].add(index)
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.get_running_loop().create_task(self._renew())

    def drop(self, run: str, instance: str | None, indexes: Iterable[int]) -> None:
        """These calls have ended."""
        held = self._held[run, instance]
        held.difference_update(indexes)
        if not held:
            del self._held[run, instance]

    async def _renew(self) -> None:
        while self._held:
            await asyncio.sleep(self._lease_seconds / 3)
            try:
                await self._log.renew({lane: tuple(calls) for lane, calls in self._held.items()}, self._lease_seconds)
            except RedisError as error:
                logger.warning("leases could not be renewed: %s", error)
