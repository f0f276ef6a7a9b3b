"""Leases: a sign of life for everything that this process has at work (DESIGN "Sweep").

They are renewed from a thread of their own, as long as the event loop turns that serves what is at work. Where a
coroutine blocks it, only that call's lease is renewed: the others go on elsewhere.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from redis import Redis
from redis.exceptions import RedisError

from acts_celery.worker.process.duties import Duty
from acts_celery.worker.process.watchdog import LoopWatchdog
from acts_celery.worker.storage.clock import server_ms
from acts_celery.worker.storage.keys import Keys
from acts_celery.worker.wire.attempts import lane_token

_AT_ONCE: Final = 500
"""How many leases one command renews: the server does nothing else meanwhile."""
_NOTICE_SECONDS: Final = 1.0
"""After so long at most it is known here that a run was cancelled."""

logger = logging.getLogger(__name__)


def runner_lease(instance: str | None, owner: str) -> str:
    """The lease of a driver (see commit.lua)."""
    return f"{lane_token(instance)}\x1f@{owner}"


class Leases:
    """What is at work in this process; renewed three times in a lease's length, as long as it is held.

    Going round, it also looks whether the runs were cancelled, and calls `on_cancelled`.
    """

    def __init__(
        self,
        redis: Redis,
        *,
        prefix: str,
        lease_seconds: float,
        on_cancelled: Callable[[str], None],
        watchdog: LoopWatchdog | None = None,
    ) -> None:
        self._redis = redis
        self._prefix = prefix
        self._lease_seconds = lease_seconds
        self._on_cancelled = on_cancelled
        self._watchdog = watchdog
        self._held: dict[str, set[str]] = defaultdict(set)
        self._lock = threading.Lock()
        self._duty = Duty(
            "renewing leases",
            self.renew,
            thread="acts-leases",
            interval_seconds=min(lease_seconds / 3, _NOTICE_SECONDS),
            passing=(RedisError,),
        )
        self._duty.start()

    def close(self) -> None:
        """Renew nothing any more."""
        self._duty.stop()

    def hold(self, run: str, lease: str) -> None:
        """This is at work from now on; the first renewal comes after a third of the lease."""
        with self._lock:
            self._held[run].add(lease)

    def drop(self, run: str, leases: Iterable[str]) -> None:
        """These are not at work here any more."""
        with self._lock:
            self._held[run].difference_update(leases)
            if not self._held[run]:
                del self._held[run]

    def renew(self) -> None:
        """Renew everything held now that the loop can serve; what was ended or declared lost elsewhere stays so."""
        with self._lock:
            held = {run: tuple(leases) for run, leases in self._held.items()}
        blocked = self._watchdog.blocked() if self._watchdog is not None else None
        if blocked is not None:
            id_ = blocked.attempt.id if blocked.attempt is not None else None
            held = {id_.run: (id_.member,)} if id_ is not None and id_.member in held.get(id_.run, ()) else {}
        if not held:
            return
        until = server_ms(self._redis) + int(self._lease_seconds * 1000)
        with self._redis.pipeline(transaction=False) as pipeline:
            for run, leases in held.items():
                for start in range(0, len(leases), _AT_ONCE):
                    page = dict.fromkeys(leases[start : start + _AT_ONCE], until)
                    pipeline.zadd(Keys(self._prefix, run).leases, page, xx=True)
            pipeline.execute()
            for run in held:
                pipeline.hget(Keys(self._prefix, run).state, "status")
            statuses = pipeline.execute()
        for run, status in zip(held, statuses, strict=True):
            if status == b"cancelled":
                self._on_cancelled(run)
