"""What is due: the index of runs in which something is, and until when a run waits for people and promises. Recovery
costs as much as the index holds, whatever the number of runs is.

It lies beside the runs, on a shard of its own, so it is kept in steps that may be interrupted. A run is noted when
something becomes due in it sooner than the index says (`look` in the run's state; see commit.lua), and put off or
removed only by a sweep that has looked at it, unless it was noted meanwhile. What is missed nevertheless is found by
the sweep's slow round over all runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from redis import Redis

from .clock import server_ms
from .keys import due_runs
from .scripts import Script
from .set_aside import readable

PUBLISHED_SECONDS: Final = 5.0
"""How long a published task may not have begun, though its queue is empty, before it counts as lost."""
PUBLISHED_MS: Final = int(PUBLISHED_SECONDS * 1000)
SENT_MS: Final = 1_000
"""How long what was sent and forgotten may lie in the outbox before it is looked after: most is done by then."""
_TAKEN_MS: Final = 10_000
"""After so long another sweep looks at what was taken by one that died."""


class DueRuns:
    """The index, as a sweep and clients use it. All of it raises `RedisError`."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._key = due_runs(prefix)
        self._settle = Script(redis, "due")

    def note(self, run: str) -> None:
        """Have the next sweep look at a run."""
        self._redis.zadd(self._key, {run: 0})

    def note_until(self, run: str, delay_ms: int) -> None:
        """Have a sweep look at a run after a delay, where none is to do so before."""
        self._redis.zadd(self._key, {run: server_ms(self._redis) + delay_ms}, lt=True)

    def take(self, most: int, until_ms: int) -> dict[str, float]:
        """Runs in which something was due by a time, each with the mark that is to be given back."""
        found: Any = self._redis.zrangebyscore(self._key, "-inf", until_ms, start=0, num=most)
        mark = server_ms(self._redis) + _TAKEN_MS + 0.5  # no other writer gives a fraction: it is seen who has written
        if found:
            self._redis.zadd(self._key, dict.fromkeys(found, mark), xx=True)
        return dict.fromkeys(
            readable(self._key, found, bytes.decode, lambda run: self._redis.zrem(self._key, run)), mark
        )

    def settle(self, taken: Mapping[str, float], next_ms: Mapping[str, int]) -> None:
        """Say when to look at the runs again; where nothing is said, nothing will be due."""
        runs = [(run, mark, next_ms.get(run, 0)) for run, mark in taken.items()]
        self._settle(self._key, {"runs": runs})


def approve_ms(config: Mapping[str, Any]) -> dict[str, int]:
    """The field of a run's state that says how long a held call waits for a person (SPEC R14.3)."""
    return {"approve_ms": int(config["approve_seconds"] * 1000)} if "approve_seconds" in config else {}


def promises_due(config: Mapping[str, Any], now_ms: int) -> dict[str, int]:
    """The fields of a run's state that say until when it waits for what is promised (SPEC R11.6)."""
    if "promise_seconds" not in config:
        return {}
    wait_ms = int(config["promise_seconds"] * 1000)
    return {"promise_ms": wait_ms, "promises_due": now_ms + wait_ms}
