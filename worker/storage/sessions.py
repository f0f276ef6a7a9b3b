"""Which process has a run's session with an MCP server, and what processes tell each other about it.

A session with a server may be a child of one process. So the first process that calls a server for a run claims the
session (session.lua), and the others send it their calls: each process has a list of messages that it takes from. A
process that has not said for a while that it lives has lost all its sessions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from redis.asyncio import Redis

from .audit import AuditRecord
from .fields import AUDIT
from .grouping import GroupedCommands
from .keys import Keys, session_messages, session_process
from .scripts import AsyncScript

LEASE_SECONDS: Final = 10.0
_WAIT_SECONDS: Final = 5
_KEPT_SECONDS: Final = 3_600
"""So long messages are kept that nobody takes."""


@dataclass(frozen=True)
class Claim:
    """Who has a run's session with a server."""

    process: str
    number: int
    """Which session of the run with that server it is, from 1."""
    why: str
    """Why the one before is over."""
    is_new: bool


class SessionTable:
    """The sessions of all runs, for the tasks of one event loop."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix
        self._commands = GroupedCommands(redis)
        self._session = AsyncScript(self._commands, "session")

    async def claim(
        self,
        run: str,
        server: str,
        process: str,
        *,
        dead: str = "",
        ended: int = 0,
        why: str = "",
        gives_up: bool = False,
    ) -> Claim:
        """Have `process` have a session, unless another one has it that is not `dead`.

        `ended` is the number of its own that is over, and `why`; with `gives_up` it takes no other one.
        """
        request = {
            "server": server,
            "process": process,
            "dead": dead,
            "ended": ended,
            "why": why,
            "gives_up": gives_up,
        }
        answer = await self._session(Keys(self._prefix, run), request)
        return Claim(answer["process"], answer["number"], answer["why"], answer["is_new"])

    async def note(self, run: str, record: AuditRecord) -> None:
        """Write into the log of a run, where there is one still."""
        await self._commands.execute("XADD", Keys(self._prefix, run).log, "NOMKSTREAM", "*", AUDIT, record.pack())

    async def statuses(self, runs: Sequence[str]) -> list[str | None]:
        """How runs stand; None for one that is gone."""
        states = [Keys(self._prefix, run).state for run in runs]
        found = await asyncio.gather(*(self._commands.execute("HGET", state, "status") for state in states))
        return [None if status is None else status.decode() for status in found]

    async def begin(self, process: str) -> None:
        """A process lives from now on, for `LEASE_SECONDS`."""
        await self._commands.execute("SET", session_process(self._prefix, process), b"", "EX", int(LEASE_SECONDS))

    async def keep(self, process: str) -> bool:
        """It lives on; False where it had said so too long ago."""
        key = session_process(self._prefix, process)
        return bool(await self._commands.execute("EXPIRE", key, int(LEASE_SECONDS)))

    async def end(self, process: str) -> None:
        """It lives no more. Raises `RedisError`, `TimeoutError`."""
        async with asyncio.timeout(_WAIT_SECONDS):
            for key in (session_process(self._prefix, process), session_messages(self._prefix, process)):
                await self._redis.delete(key)  # not with others: what groups them may have ended

    async def is_live(self, process: str) -> bool:
        """Whether it has said in time that it lives."""
        return bool(await self._commands.execute("EXISTS", session_process(self._prefix, process)))

    async def send(self, process: str, message: bytes) -> None:
        """Send a message to a process, which may come twice."""
        key = session_messages(self._prefix, process)
        await asyncio.gather(
            self._commands.execute("RPUSH", key, message), self._commands.execute("EXPIRE", key, _KEPT_SECONDS)
        )

    async def withdraw(self, process: str, message: bytes) -> bool:
        """Take a message back; False where it was taken already."""
        return bool(await self._commands.execute("LREM", session_messages(self._prefix, process), 0, message))

    async def receive(self, process: str) -> bytes | None:
        """The next message for a process; None where there is none for some seconds. Raises `RedisError`,
        `TimeoutError`.
        """
        async with asyncio.timeout(3 * _WAIT_SECONDS):
            found: Any = await self._redis.blpop([session_messages(self._prefix, process)], timeout=_WAIT_SECONDS)
        return None if found is None else bytes(found[1])
