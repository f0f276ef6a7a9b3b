"""The connections of a process to MCP servers, by event loop: those that all runs share, and those that runs have."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from redis.exceptions import RedisError

from acts_celery.broker_config import Settings
from acts_celery.worker.storage.audit import Actor
from acts_celery.worker.storage.connections import connect_async
from acts_celery.worker.storage.files import PictureKeeper
from acts_celery.worker.storage.sessions import SessionTable
from acts_celery.worker.wire.attempts import current_attempt

from .connections import Connection, Opening
from .declarations import Declaration
from .errors import McpRefused
from .sessions import RunSessions


class Connections:
    """The connections of a process, by event loop: a forked process, and another loop, has its own."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _OfLoop] = WeakKeyDictionary()

    async def call(self, name: str, tool: Declaration, arguments: Mapping[str, Any]) -> Any:
        """Carry out a tool of a server for the current call, in the session of its run. Raises an `errors` of ours."""
        attempt = current_attempt()
        if self._settings.mcp[name].stateless or attempt is None:
            return await self.to(name).call(tool, arguments, partial(self._keep, attempt.id.run if attempt else ""))
        if self._settings.effective_redis_url is None:
            raise McpRefused(
                f"each run has its own session with MCP server {name}, and which worker has that stands in the log, "
                'which this worker does not see: set ACTS_REDIS_URL here, or say "stateless": true in ACTS_MCP where '
                "the server's calls need no session"
            )
        own = self._own()
        if own.sessions is None:
            table = SessionTable(connect_async(self._settings), self._settings.key_prefix)
            actor = Actor.of(self._settings)
            own.sessions = RunSessions(table, self._settings.mcp, self._make(own), self._keep, actor)
        return await own.sessions.call(attempt.id.run, name, tool, arguments)

    def to(self, name: str) -> Connection:
        """The connection to a server that no run has for itself, on the running loop."""
        own = self._own()
        if name not in own.shared:
            own.shared[name] = Connection(name, self._settings.mcp[name], self._most_bytes)
        return own.shared[name]

    async def close(self) -> None:
        """End the sessions of the running loop."""
        own = self._by_loop.pop(asyncio.get_running_loop(), None) or _OfLoop()
        await asyncio.gather(*(connection.close() for connection in own.shared.values()))
        if own.sessions is not None:
            await own.sessions.close()

    async def _keep(self, run: str, content: bytes) -> str:
        """Keep a picture beside the log of a run; returns why it is not kept, or nothing."""
        if not run or self._settings.effective_redis_url is None:
            return "the worker that has called the server does not see the log (ACTS_REDIS_URL)"
        own = self._own()
        if own.pictures is None:
            own.pictures = PictureKeeper(connect_async(self._settings), self._settings)
        try:
            return await own.pictures.keep(run, content)
        except RedisError as error:
            return f"the log did not take it: {type(error).__name__}"

    def _own(self) -> _OfLoop:
        return self._by_loop.setdefault(asyncio.get_running_loop(), _OfLoop())

    def _make(self, own: _OfLoop) -> Callable[[str], Connection]:
        def make(name: str) -> Connection:
            server = self._settings.mcp[name]
            return Connection(name, server, self._most_bytes, own.openings[name], reopens=False)

        return make

    @property
    def _most_bytes(self) -> int:
        """A message of a server may have what one call may be given."""
        return int(self._settings.limit_call_bytes)


@dataclass
class _OfLoop:
    """What belongs to one event loop."""

    shared: dict[str, Connection] = field(default_factory=dict)
    sessions: RunSessions | None = None
    pictures: PictureKeeper | None = None
    openings: dict[str, Opening] = field(default_factory=lambda: defaultdict(Opening))
