"""Which processes live, as `acts:processes` has it: each says once a second what it drives (see `liveness.presence`).

For one that lives and cannot say so its sidecar does: a *silent* process. Whatever it has claimed is at work.
"""

from __future__ import annotations

import socket
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from redis import Redis

from acts_celery.worker.wire.packing import pack, unpack

from .clock import iso_date, server_ms
from .keys import processes
from .set_aside import UNREADABLE, readable

_SHOWN_MS: Final = 15_000
"""How old a report may be that people are shown."""

Calls = Iterable[tuple[str, str]]
"""Runs and members of calls."""


@dataclass(frozen=True, slots=True)
class SilentProcess:
    """A process that is alive and has reported nothing for some time. Times are in ms of the server's clock."""

    process: str
    """What the owners of its claims begin with (see `wire.attempts.owner_token`)."""
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
    """What processes that live hold."""

    holders: Mapping[str, Mapping[str, int]]
    """By run and holder - an owner, or a call - until when in ms."""
    silent: Sequence[SilentProcess]


def report_silent(redis: Redis, prefix: str, process: str, worker: str, pid: int, seconds: float, calls: Calls) -> None:
    """Say that a process on this host lives that has been silent for so long. Raises `RedisError`."""
    now = server_ms(redis)
    silent = [process, worker, socket.gethostname(), pid, now - int(seconds * 1000), list(calls)]
    redis.hset(processes(prefix), process, pack({"at": now, "holds": {}, "silent": silent}))


def withdraw_silent(redis: Redis, prefix: str, process: str) -> None:
    """Take that back: it says so itself, or is dead. Raises `RedisError`."""
    redis.hdel(processes(prefix), process)


def read_living(redis: Redis, prefix: str, lease_ms: int) -> Living:
    """What those hold that have said in time that they live; what others have said is removed. Raises `RedisError`."""
    key = processes(prefix)
    found: Any = redis.hgetall(key)
    now = server_ms(redis) if found else 0
    holders: dict[str, dict[str, int]] = defaultdict(dict)
    silent: list[SilentProcess] = []

    def read(name: bytes) -> None:
        said = unpack(found[name])
        until = int(said["at"]) + lease_ms
        if not now <= until <= now + 2 * lease_ms:  # said too long ago, or by a clock that was ahead
            redis.hdel(key, name)
            return
        for run, owners in said["holds"].items():
            holders[run].update(dict.fromkeys(owners, until))
        if "silent" in said:
            silent.append(_silent(said, until))

    for _ in readable(key, found, read, lambda name: redis.hdel(key, name)):
        pass
    return Living(holders, silent)


def silent_processes(found: Mapping[bytes, bytes], now_ms: int) -> list[SilentProcess]:
    """The silent processes in what stands in `acts:processes`, for people; what cannot be read is left out."""
    silent = []
    for entry in found.values():
        try:
            said = unpack(entry)
            if "silent" in said and abs(now_ms - int(said["at"])) < _SHOWN_MS:
                silent.append(_silent(said, now_ms))
        except UNREADABLE:
            continue
    return silent


def _silent(said: Any, until_ms: int) -> SilentProcess:
    process, worker, host, pid, since_ms, calls = said["silent"]
    remote = frozenset((str(run), str(member)) for run, member in calls)
    return SilentProcess(str(process), str(worker), str(host), int(pid), int(since_ms), remote, until_ms)
