"""Which processes live, as `acts:processes` has it: each says once a second what it drives (see `recovery.heartbeats`).

For one that lives and cannot say so its sidecar does: a *silent* process. Whatever it has claimed is at work.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from .. import limits
from ..broker.messages import SENT, TASKS, pack, unpack
from ..broker.queue_order import BAND_SUFFIXES
from .connections import GroupedCommands
from .held_calls import AuditRecord
from .keys import Field, Keys, processes, queue_notes, session_messages, session_process
from .scripts import UNREADABLE, AsyncScript, iso_date, readable, server_ms
from .servers import unless_away

Calls = Iterable[tuple[str, str]]
"""Runs and members of calls."""


@dataclass(frozen=True, slots=True)
class SilentProcess:
    """A process that is alive and has reported nothing for some time. Times are in ms of the server's clock."""

    process: str
    """The beginning of the owners of its claims (see `broker.attempts.owner_token`)."""
    worker: str
    host: str
    pid: int
    since_ms: int
    remote: frozenset[tuple[str, str]]
    """The runs and members of remote calls at work in it."""
    until_ms: int
    """Until when it counts as alive."""

    def __str__(self) -> str:
        named = f"worker {self.worker} (process {self.pid} on {self.host})"
        return f"{named}, which is alive and has reported nothing since {iso_date(self.since_ms)}"

    def holds(self, run: str, member: str, holder: str) -> bool:
        """Whether a call that is `running` with that holder is at work in it."""
        return (run, member) in self.remote or (holder.startswith(self.process) and "/" not in holder)


class Living(NamedTuple):
    """The claims and queues that living processes hold."""

    holders: Mapping[str, Mapping[str, int]]
    """By run and holder - an owner, or a call - until when in ms."""
    silent: Sequence[SilentProcess]


class Processes:
    """The processes of a backend that say what they drive. All of it raises `RedisError`."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix
        self._key = processes(prefix)

    def ping(self) -> bool:
        """Have a connection to the server."""
        return bool(self._redis.ping())

    def note(
        self, process: str, runs: Sequence[str], holds: Mapping[str, Sequence[str]] | None, *, withdraws: bool
    ) -> list[str | None]:
        """Write what a process drives by run; where that is None and it `withdraws`, remove what it wrote before.
        Returns the statuses of runs, read with it, as far as their servers are there.
        """
        written = pack({"at": server_ms(self._redis), "holds": holds}) if holds is not None else b""
        with self._redis.pipeline(transaction=False) as pipeline:
            for run in runs:
                pipeline.hget(Keys(self._prefix, run).state, "status")
            if written:
                pipeline.hset(self._key, process, written)
            elif withdraws:
                pipeline.hdel(self._key, process)
            answers = pipeline.execute(raise_on_error=False)
        statuses = unless_away(answers[: len(runs)])
        if failed := [answer for answer in answers[len(runs) :] if isinstance(answer, Exception)]:
            raise failed[0]
        return [status.decode() if status is not None else None for status in statuses]

    def note_silent(self, process: str, worker: str, pid: int, seconds: float, calls: Calls) -> None:
        """Write that a process on this host lives that has been silent for so long."""
        now = server_ms(self._redis)
        silent = [process, worker, socket.gethostname(), pid, now - int(seconds * 1000), list(calls)]
        self._redis.hset(self._key, process, pack({"at": now, "holds": {}, "silent": silent}))

    def withdraw(self, process: str) -> None:
        """Remove what was written of a silent process: it reports by itself again, or is dead."""
        self._redis.hdel(self._key, process)

    def read(self, lease_ms: int) -> Living:
        """Read what those hold that have said in time that they live; remove what others have written."""
        found: Any = self._redis.hgetall(self._key)
        now = server_ms(self._redis) if found else 0
        holders: dict[str, dict[str, int]] = defaultdict(dict)
        silent: list[SilentProcess] = []

        def read(name: bytes) -> None:
            written = unpack(found[name])
            until = int(written["at"]) + lease_ms
            if not now <= until <= now + 2 * lease_ms:  # written too long ago, or by a clock that was ahead
                self._redis.hdel(self._key, name)
                return
            for run, owners in written["holds"].items():
                holders[run].update(dict.fromkeys(owners, until))
            if "silent" in written:
                silent.append(_silent(written, until))

        for _ in readable(self._key, found, read, lambda name: self._redis.hdel(self._key, name)):
            pass
        return Living(holders, silent)

    def silent(self) -> list[SilentProcess]:
        """List the silent processes, for people."""
        found: Any = self._redis.hgetall(self._key)
        return silent_processes(found, server_ms(self._redis))


def silent_processes(found: Mapping[bytes, bytes], now_ms: int) -> list[SilentProcess]:
    """List the silent processes in the hash `processes`, for people; what cannot be read is left out."""
    silent = []
    for entry in found.values():
        try:
            written = unpack(entry)
            if "silent" in written and abs(now_ms - int(written["at"])) < limits.SILENCE_SHOWN_MS:
                silent.append(_silent(written, now_ms))
        except UNREADABLE:
            continue
    return silent


def _silent(written: Any, until_ms: int) -> SilentProcess:
    process, worker, host, pid, since_ms, calls = written["silent"]
    remote = frozenset((str(run), str(member)) for run, member in calls)
    return SilentProcess(str(process), str(worker), str(host), int(pid), int(since_ms), remote, until_ms)


# Notes about queues, for a reader that may count messages but not read them: `acts metrics` with its own Redis user.
#
# A message holds what a call is given, so a process that only draws figures sees no more than a queue's length. The
# worker that sweeps notes in the log how old the oldest message is, and how many tasks travel in one.


class QueuedMessage(NamedTuple):
    """The parts that are read of a message in a queue."""

    tag: str
    tasks: int
    sent: float | None

    @classmethod
    def read(cls, raw: bytes) -> QueuedMessage:
        """Read a message; a process that may write to the queue may write anything."""
        try:
            said = json.loads(raw)
            headers, tag = said["headers"], str(said["properties"]["delivery_tag"])
            tasks, sent = headers.get(TASKS, 1), headers.get(SENT)
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return cls("", 1, None)
        is_number = isinstance(tasks, int) and not isinstance(tasks, bool) and 0 < tasks <= limits.MOST_TASKS
        is_time = isinstance(sent, int | float) and 0 <= sent <= limits.LATEST_SECOND
        return cls(tag, tasks if is_number else 1, sent if is_time else None)


@dataclass(frozen=True, slots=True)
class QueueNote:
    """The notes about one queue."""

    at: float
    """When, in seconds since 1970."""
    sent: float | None
    """When its oldest message was sent; None where there was none, or it does not say."""
    mean_tasks: float
    """How many tasks were in one of its oldest messages."""

    @classmethod
    def read(cls, field: bytes | None) -> Self | None:
        """The note in a field, or None if it cannot be read."""
        try:
            at, sent, mean = json.loads(field or b"null")
            return cls(float(at), float(sent) if sent is not None else None, float(mean))
        except (ValueError, TypeError, RecursionError):
            return None


def read_queue_note(redis: Redis, key_prefix: str, queue: str) -> QueueNote | None:
    """Read what was noted of a queue; None where that is nothing. Raises `RedisError`."""
    field: Any = redis.hget(queue_notes(key_prefix), queue)
    return QueueNote.read(field)


class QueueList:
    """A queue in Redis: a list to whose left messages are put, and from whose right they are taken. Every
    method raises `RedisError`.
    """

    def __init__(self, redis: Redis, key: str) -> None:
        self._redis = redis
        self._key = key

    def count(self) -> int:
        """Count the messages, of all priorities."""
        with self._redis.pipeline(transaction=False) as pipeline:
            for suffix in BAND_SUFFIXES:
                pipeline.llen(f"{self._key}{suffix}")
            return sum(pipeline.execute())

    def ends(self, left: int, right: int) -> tuple[int, list[bytes], list[bytes]]:
        """Read at one moment how many messages there are, and so many of either end."""
        with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.llen(self._key)
            pipeline.lrange(self._key, 0, left - 1)
            pipeline.lrange(self._key, -right, -1)
            length, newest, oldest = pipeline.execute()
        return length, newest, oldest

    def part(self, start: int, most: int) -> list[bytes]:
        """Read some messages, from a place on that is counted from the left."""
        found: Any = self._redis.lrange(self._key, start, start + most - 1)
        return list(found)


class QueueNotes:
    """Notes what is in queues, every few seconds. `broker` is where they are, with names that begin with `prefix`."""

    def __init__(self, log: Redis, broker: Redis, key_prefix: str, prefix: str, names: Iterable[str]) -> None:
        self._log = log
        self._broker = broker
        self._key = queue_notes(key_prefix)
        self._keys = {name: f"{prefix}{name}" for name in names}
        self._next = 0.0

    def note(self) -> None:
        """Note it, if that was some seconds ago. Raises `RedisError`."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + limits.QUEUE_NOTES_SECONDS
        with self._broker.pipeline(transaction=False) as pipeline:
            for key in self._keys.values():
                pipeline.lrange(key, -limits.QUEUE_SAMPLE, -1)
            ends: Any = pipeline.execute(raise_on_error=False)
        notes: dict[Any, Any] = {}
        for name, end in zip(self._keys, ends, strict=True):
            if isinstance(end, Exception):  # a queue that this user may not read, or a key that is none
                continue
            oldest = [QueuedMessage.read(raw) for raw in end]
            mean = sum(message.tasks for message in oldest) / len(oldest) if oldest else 1.0
            notes[name] = json.dumps([time.time(), oldest[-1].sent if oldest else None, mean])
        if notes:
            self._log.hset(self._key, mapping=notes)


# Which process has a run's session with an MCP server, and what processes tell each other about it.
#
# A session with a server may be a child of one process. So the first process that calls a server for a run claims the
# session (session.lua), and the others send it their calls: each process has a list of messages that it takes from. A
# process that has not said for a while that it lives has lost all its sessions.


@dataclass(frozen=True)
class Claim:
    """The process that has a run's session with a server."""

    process: str
    number: int
    """Which session of the run with that server it is, from 1."""
    why: str
    """Why the one before is over."""
    is_new: bool


class SessionTable:
    """The sessions of all runs, for the tasks of one event loop."""

    def __init__(self, redis: AsyncRedis, prefix: str) -> None:
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
        request = {"server": server, "process": process, "dead": dead, "ended": ended, "why": why, "gives_up": gives_up}
        answer = await self._session(Keys(self._prefix, run), request)
        return Claim(answer["process"], answer["number"], answer["why"], answer["is_new"])

    async def note(self, run: str, record: AuditRecord) -> None:
        """Write into the log of a run, where there is one still."""
        await self._commands.execute("XADD", Keys(self._prefix, run).log, "NOMKSTREAM", "*", Field.AUDIT, record.pack())

    async def statuses(self, runs: Sequence[str]) -> list[str | None]:
        """How runs stand; None for one that is gone."""
        states = [Keys(self._prefix, run).state for run in runs]
        found = await asyncio.gather(*(self._commands.execute("HGET", state, "status") for state in states))
        return [None if status is None else status.decode() for status in found]

    async def begin(self, process: str) -> None:
        """Say that a process lives, for `limits.LEASE_SECONDS`."""
        await self._commands.execute(
            "SET", session_process(self._prefix, process), b"", "EX", int(limits.LEASE_SECONDS)
        )

    async def keep(self, process: str) -> bool:
        """Say that a process still lives; False where it had said so too long ago."""
        key = session_process(self._prefix, process)
        return bool(await self._commands.execute("EXPIRE", key, int(limits.LEASE_SECONDS)))

    async def end(self, process: str) -> None:
        """Remove what a process that ends has said. Raises `RedisError`, `TimeoutError`."""
        async with asyncio.timeout(limits.SESSION_WAIT_SECONDS):
            for key in (session_process(self._prefix, process), session_messages(self._prefix, process)):
                await self._redis.delete(key)  # not with others: what groups them may have ended

    async def is_live(self, process: str) -> bool:
        """Whether a process has said in time that it lives."""
        return bool(await self._commands.execute("EXISTS", session_process(self._prefix, process)))

    async def send(self, process: str, message: bytes) -> None:
        """Send a message to a process, which may come twice."""
        key = session_messages(self._prefix, process)
        await asyncio.gather(
            self._commands.execute("RPUSH", key, message),
            self._commands.execute("EXPIRE", key, limits.SESSION_MESSAGES_SECONDS),
        )

    async def withdraw(self, process: str, message: bytes) -> bool:
        """Take a message back; False where it was taken already."""
        return bool(await self._commands.execute("LREM", session_messages(self._prefix, process), 0, message))

    async def receive(self, process: str) -> bytes | None:
        """The next message for a process; None if none comes for some seconds. Raises `RedisError`,
        `TimeoutError`.
        """
        async with asyncio.timeout(3 * limits.SESSION_WAIT_SECONDS):
            found: Any = await self._redis.blpop(
                [session_messages(self._prefix, process)], timeout=limits.SESSION_WAIT_SECONDS
            )
        return None if found is None else bytes(found[1])
