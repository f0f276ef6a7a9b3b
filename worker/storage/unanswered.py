"""Requests to models that were not answered yet and are made again, as the sweep has noted them (see heartbeats.lua).

What stands here is a moment's: it is removed when the call has ended, and at most so many calls of a run stand here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import msgpack
from redis import Redis

from acts_celery.worker.wire.attempts import CallId

from .clock import server_ms
from .condition import Condition, Kind
from .keys import Keys
from .loop_entries import LOOP

MOST_UNANSWERED: Final = 100


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A request that is made again."""

    call: str | None
    """The call's id within the run; None where it is the request of the run's own loop."""
    type: str
    message: str
    tries: int
    """How many have failed."""
    again_in_seconds: float
    """How long it is until the next try; 0 where that is under way."""


def read_unanswered(redis: Redis, keys: Keys) -> list[Unanswered]:
    """The requests of a run that were not answered yet, the soonest first. Raises `RedisError`."""
    found: Any = redis.hgetall(keys.unanswered)
    if not found:
        return []
    entries: Any = redis.hmget(keys.calls, list(found))
    now_ms, told = server_ms(redis), list[Unanswered]()
    for (member, packed), entry in zip(found.items(), entries, strict=True):
        attempt, tries, at_ms, type_, why = msgpack.unpackb(packed, unicode_errors="replace")
        condition = Condition.read(entry)
        if condition is not None and (condition.kind, condition.attempt) == (Kind.RUNNING, attempt):
            id_ = CallId.of_member(keys.run, member.decode())
            name = None if id_.instance == LOOP else id_.name
            told.append(Unanswered(name, type_, why, tries, max(at_ms - now_ms, 0) / 1000))
    return sorted(told, key=lambda one: one.again_in_seconds)
