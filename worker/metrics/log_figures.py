"""What is in the log now: runs under way and their calls, what waits for people, dead letters, the sweep, memory.

A reading costs as much as the runs under way; what has ended is counted by its number alone. It takes up to 10,000 of
those under way, new ones first, then those that were read longest ago, and three seconds at most. Where there are more,
the sums hold figures of earlier readings, and `oldest_seconds` says how old these may be.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from redis import Redis
from redis.cluster import RedisCluster

from acts_celery.broker_config import Settings
from acts_celery.worker.batches import batches
from acts_celery.worker.storage.clock import server_ms
from acts_celery.worker.storage.dead_letters import DeadLetters
from acts_celery.worker.storage.keys import ENDED, Keys, active_runs, ended_runs, recovery

_MOST_READ: Final = 10_000
_AT_ONCE: Final = 500
_SECONDS: Final = 3.0
"""How long a reading of runs may take; the next one goes on."""
_FIELDS: Final = ("status", "remaining", "running", "bytes")


@dataclass(frozen=True, slots=True)
class RunFigures:
    """One run under way."""

    status: str
    waiting: int
    running: int
    held: int
    held_since_ms: float | None
    """Since when its oldest held call waits for a person."""
    sent: int
    """What was sent and forgotten and is not done yet."""
    backlog: int
    """Lanes whose turn to be published has not come yet."""
    written_bytes: int

    @classmethod
    def read(cls, found: Sequence[Any]) -> RunFigures | None:
        """Of what Redis answers; None where the run has gone meanwhile."""
        (status, remaining, running, written), held, oldest, backlog, sent = found
        if status is None:
            return None
        is_over = status.decode() in ENDED
        running, held = _number(running), 0 if is_over else held
        waiting = 0 if is_over else max(0, _number(remaining) - running - held)
        since = oldest[0][1] if oldest and held else None
        return cls(status.decode(), waiting, running, held, since, sent, backlog, _number(written))


@dataclass(frozen=True, slots=True)
class LogFigures:
    """All of a backend."""

    runs: Counter[str]
    """Those under way, by status."""
    unread: int
    """How many of them no reading has taken yet."""
    oldest_seconds: float
    """How long ago the oldest of the figures was read."""
    kept: int
    """How many have ended and are kept."""
    calls: Counter[str] = field(default_factory=Counter)
    """Of the runs under way those that have not ended, by status."""
    backlog: Mapping[str, int] = field(default_factory=dict)
    """Lanes that are not in the queue yet, by the queue that they will be in."""
    written_bytes: int = 0
    held_seconds: float = 0.0
    """How long the oldest held call waits; 0 where none is held."""
    dead_letters: int = 0
    sweep_seconds: float = 0.0
    """How long no sweep has reached both servers, while runs were under way."""
    memory_bytes: int = 0
    """What the log's server has in use, whatever it is for; that of all nodes of a cluster."""
    most_memory_bytes: int = 0
    """What it may have in use (`maxmemory`); 0 for no limit."""


class LogReader:
    """Reads them. All of it raises `RedisError` and `InfrastructureError`."""

    def __init__(self, redis: Redis, settings: Settings, *, most_read: int = _MOST_READ) -> None:
        self._redis = redis
        self._prefix = settings.key_prefix
        self._queue = settings.queue_instances
        self._letters = DeadLetters(redis, settings)
        self._most_read = most_read
        self._runs: dict[str, tuple[int, RunFigures]] = {}
        """When each run under way was read last, in ms, and what was found; that of the oldest reading first."""

    def read(self) -> LogFigures:
        """As it is now."""
        now = server_ms(self._redis)
        listed: Any = self._redis.zrange(active_runs(self._prefix), 0, -1, withscores=True)
        submitted = {name.decode("utf-8", "replace"): at for name, at in listed}
        self._read_runs(submitted, now)
        known = [found for _, found in self._runs.values()]
        held = [found.held_since_ms for found in known if found.held_since_ms is not None]
        calls = Counter[str]()
        for found in known:
            calls.update(waiting=found.waiting, running=found.running, held=found.held, sent=found.sent)
        kept: Any = self._redis.zcard(ended_runs(self._prefix))
        memory, most = self._memory()
        return LogFigures(
            runs=Counter(found.status for found in known),
            unread=len(submitted) - len(known),
            oldest_seconds=(now - min((read for read, _ in self._runs.values()), default=now)) / 1000,
            kept=kept,
            calls=calls,
            backlog={self._queue: sum(found.backlog for found in known)},
            written_bytes=sum(found.written_bytes for found in known),
            held_seconds=max(0.0, (now - min(held)) / 1000) if held else 0.0,
            dead_letters=self._letters.count(),
            sweep_seconds=self._sweep_seconds(submitted.values(), now),
            memory_bytes=memory,
            most_memory_bytes=most,
        )

    def _read_runs(self, listed: Iterable[str], now: int) -> None:
        """Read as many as may be."""
        names = dict.fromkeys(listed)
        self._runs = {name: found for name, found in self._runs.items() if name in names}
        new = [name for name in names if name not in self._runs]
        turn = [*new, *self._runs][: self._most_read]
        until = time.monotonic() + _SECONDS
        for page in batches(turn, _AT_ONCE):
            if time.monotonic() > until:
                break
            with self._redis.pipeline(transaction=False) as pipeline:
                for name in page:
                    self._ask(pipeline, Keys(self._prefix, name))
                answers = pipeline.execute()
            for number, name in enumerate(page):
                self._runs.pop(name, None)
                if (found := RunFigures.read(answers[number * 5 : number * 5 + 5])) is not None:
                    self._runs[name] = now, found

    def _ask(self, pipeline: Any, keys: Keys) -> None:
        pipeline.hmget(keys.state, *_FIELDS)
        pipeline.zcard(keys.held)
        pipeline.zrange(keys.held, 0, 0, withscores=True)
        pipeline.llen(keys.backlog)
        pipeline.hlen(keys.outbox)

    def _sweep_seconds(self, submitted: Iterable[float], now: int) -> float:
        """None sweeps where no run is under way, so that is no silence."""
        since = min(submitted, default=None)
        if since is None:
            return 0.0
        heard: Any = self._redis.hget(recovery(self._prefix), "heard")
        return max(0.0, (now - max(since, float(heard or 0))) / 1000)

    def _memory(self) -> tuple[int, int]:
        if isinstance(self._redis, RedisCluster):
            nodes: Any = self._redis.info("memory", target_nodes=RedisCluster.PRIMARIES)
            said = [*nodes.values()]
        else:
            said = [self._redis.info("memory")]
        return sum(one["used_memory"] for one in said), sum(one.get("maxmemory", 0) for one in said)


def _number(found: bytes | None) -> int:
    return int(found or 0)
