"""The server's clock: what is due is judged by it, whatever a client's own clock says."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from redis import Redis

_ASKED_SECONDS: Final = 10.0
"""So long the server is not asked again: clocks hardly drift in that time."""


def server_ms(redis: Redis) -> int:
    """The server's time now, in milliseconds since the epoch. Raises `RedisError`."""
    found: Any = redis.time()
    seconds, microseconds = found
    return int(seconds * 1000 + microseconds // 1000)


class ServerClock:
    """Tells the server's time, and asks it now and then."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._asked = float("-inf")
        self._ahead = 0.0

    def milliseconds(self) -> int:
        """Since the epoch. Raises `RedisError`."""
        if time.monotonic() - self._asked > _ASKED_SECONDS:
            now = server_ms(self._redis)
            self._asked = time.monotonic()
            self._ahead = now / 1000 - self._asked
        return int((time.monotonic() + self._ahead) * 1000)


def date_now() -> str:
    """This process's time as messages have it."""
    return iso_date(time.time_ns() // 1_000_000)


@lru_cache(1)
def iso_date(milliseconds: int) -> str:
    """A moment as `date_of` writes it; many calls end in one millisecond."""
    return date_of(datetime.fromtimestamp(milliseconds / 1000, UTC))


def date_of(moment: datetime) -> str:
    """A moment, in UTC, as everything of ours writes it: ISO 8601, milliseconds, Z."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
