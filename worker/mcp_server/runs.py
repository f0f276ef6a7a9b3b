"""The runs that somebody may see: found by id, name or `latest` among them, read as the pages read them, and steered in
the name of whoever asks.
"""

from __future__ import annotations

from asyncio import to_thread
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from redis import Redis

from acts_celery.broker_config import Settings
from acts_celery.protocol import Plan
from acts_celery.protocol.language.paths import MISSING
from acts_celery.worker.client.async_client import AsyncClient, AsyncRun
from acts_celery.worker.client.labels import label_of
from acts_celery.worker.client.overview import Overview
from acts_celery.worker.client.ownership import id_of_key
from acts_celery.worker.client.readable_run import ReadableRun
from acts_celery.worker.errors import NotPossibleNow
from acts_celery.worker.page import Page
from acts_celery.worker.page.opened import Query
from acts_celery.worker.page.overview import runs
from acts_celery.worker.storage.connections import connect, redis_errors
from acts_celery.worker.web.reading import Reader

from .principals import Principal

_MOST_LOOKED_AT: Final = 5_000
"""Runs that are looked at for one that is named by less than its id."""


class NoValue(NotPossibleNow):
    """There is no value at a place."""


class Runs:
    """All runs, of which each principal sees its own. Make it in the event loop that serves."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._redis: Redis = connect(settings)
        self._page = Page(self._redis, settings)
        self._reader = Reader(self._page)
        self._clients: dict[str, AsyncClient] = {}

    async def close(self) -> None:
        """Close the connections."""
        self._reader.close()
        for client in self._clients.values():
            await client.close()
        self._redis.close()

    def client(self, principal: Principal) -> AsyncClient:
        """What acts in somebody's name."""
        if principal.name not in self._clients:
            self._clients[principal.name] = AsyncClient(self.settings.acting_for(principal.name, principal.identity))
        return self._clients[principal.name]

    async def find(self, principal: Principal, text: str) -> str:
        """The id of the run that a text means, among those that somebody may see. Raises `RunNotFound`."""
        prefix = self.settings.key_prefix

        def found() -> str:
            with redis_errors(self.settings):
                overview = Overview(
                    self._redis, prefix, owner=principal.only, asker=principal.owner, most_looked_at=_MOST_LOOKED_AT
                )
                return overview.find(text)

        return await self._reader.call("", found)

    async def run(self, principal: Principal, text: str) -> AsyncRun:
        """The run that a text means."""
        return self.client(principal).run_of(await self.find(principal, text))

    async def listed(self, principal: Principal, query: Mapping[str, str]) -> Any:
        """The runs that somebody may see, as the page lists them."""

        def found() -> Any:
            with redis_errors(self.settings):
                return runs(self._redis, self.settings, Query(query), owner=principal.only)

        return await self._reader.call("", found)

    async def page(self, run: str, what: str = "", query: Mapping[str, str] | None = None) -> Any:
        """What the page says of a run that `find` has found."""
        return await self._reader.answer(f"runs/{run}/{what}" if what else f"runs/{run}", query or {})

    async def value(self, run: str, path: str, instance: str | None) -> Any:
        """The value at a path of a run. Raises `NoValue`."""

        def found() -> Any:
            readable = ReadableRun(run, self._redis, self.settings)
            explained = readable.explain(path, instance=instance)
            if explained.value is MISSING:
                raise NoValue(explained.conflict or f"nothing is at {path}: `explain` says why")
            return explained.value

        return await self._reader.call(run, found)

    async def output(self, run: str) -> Any:
        """The whole output of a run; None before its end."""
        return await self._reader.call(run, lambda: self._page.output(run))

    async def ended(self, principal: Principal, run: str, seconds: float) -> None:
        """Wait for a run's end, and no longer than so many seconds."""
        with suppress(TimeoutError):
            await self.client(principal).run_of(run).ended(seconds)

    async def submit(
        self,
        principal: Principal,
        value: Any,
        *,
        key: str | None,
        name: str | None,
        tags: tuple[str, ...],
        allow: list[str] | None,
    ) -> tuple[AsyncRun, Plan]:
        """Submit a document in somebody's name, who owns the run. Raises `Rejected`."""
        client = self.client(principal)
        plan = await client.check_submission(value, allow=allow)
        id_ = id_of_key(principal.owner, key) if key is not None else None
        label = await to_thread(label_of, value, id=id_, name=name, tags=tags)
        return await client.submit_plan(plan, label), plan
