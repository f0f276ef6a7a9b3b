"""Presence: a process that sees the log says there once a second that it lives, and which lanes it drives.

A claim has its lease once; nobody renews it. When it runs out the sweep looks who has made it: what a driver holds that
is present is at work. So a call costs nothing while it runs, and a driver that has ended, however, is in no record any
more. Where a coroutine blocks the event loop, only the call that blocks it is at work: the others go on elsewhere.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from redis import Redis
from redis.exceptions import RedisError

from acts_celery.worker.process.duties import Duty
from acts_celery.worker.process.watchdog import LoopWatchdog
from acts_celery.worker.storage.clock import server_ms
from acts_celery.worker.storage.keys import Keys, processes
from acts_celery.worker.wire.attempts import owner_token
from acts_celery.worker.wire.packing import pack

from .sidecar import Sidecar, Voice

_NOTICE_SECONDS: Final = 1.0
"""After so long at most it is known here that a run was cancelled."""


class Presence:
    """What this process drives; said three times in a lease's length.

    Going round, it also looks whether the runs were cancelled, those of remote calls at work too, and calls
    `on_cancelled`.
    """

    def __init__(
        self,
        redis: Redis,
        *,
        prefix: str,
        lease_seconds: float,
        on_cancelled: Callable[[str], None],
        remote_runs: Callable[[], Iterable[str]] = tuple,
        watchdog: LoopWatchdog | None = None,
        sidecar: Sidecar | None = None,
    ) -> None:
        self._redis = redis
        self._prefix = prefix
        self._on_cancelled = on_cancelled
        self._remote_runs = remote_runs
        self._watchdog = watchdog
        self._sidecar = sidecar
        self._name = owner_token()
        self._drivers: dict[str, set[str]] = defaultdict(set)
        self._is_said = self._is_connected = False
        self._lock = threading.Lock()
        self._duty = Duty(
            "saying that this process lives",
            self.beat,
            thread="acts-presence",
            interval_seconds=min(lease_seconds / 3, _NOTICE_SECONDS),
            passing=(RedisError,),
        )
        if sidecar is not None:
            sidecar.note(Voice.PRESENCE)
        self._duty.start()

    def close(self) -> None:
        """Say nothing any more."""
        self._duty.stop()

    def enter(self, run: str, owner: str) -> None:
        """A driver of a lane is at work from now on."""
        with self._lock:
            self._drivers[run].add(owner)

    def leave(self, run: str, owner: str) -> None:
        """It is not any more."""
        with self._lock:
            self._drivers[run].discard(owner)
            if not self._drivers[run]:
                del self._drivers[run]

    def beat(self) -> None:
        """Say what is at work now that the loop can serve. Raises `RedisError`."""
        self._say()
        if self._sidecar is not None:
            self._sidecar.note(Voice.PRESENCE)

    def _say(self) -> None:
        with self._lock:
            holds = {run: sorted(owners) for run, owners in self._drivers.items()}
        drives, key = bool(holds), processes(self._prefix)
        runs = list({**holds, **dict.fromkeys(self._remote_runs())})
        if not runs and not self._is_said:
            if not self._is_connected:
                self._is_connected = self._redis.ping()  # the connection is there, should the server be full later
            return
        blocked = self._watchdog.blocked() if self._watchdog is not None else None
        if blocked is not None:
            id_ = blocked.attempt.id if blocked.attempt is not None else None
            holds = {id_.run: [id_.member]} if id_ is not None and id_.run in holds else {}
        said = pack({"at": server_ms(self._redis), "holds": holds}) if drives else b""
        with self._redis.pipeline(transaction=False) as pipeline:
            for run in runs:
                pipeline.hget(Keys(self._prefix, run).state, "status")
            if said:
                pipeline.hset(key, self._name, said)
            elif self._is_said:
                pipeline.hdel(key, self._name)
            statuses = pipeline.execute()[: len(runs)]
        self._is_said = drives
        for run, status in zip(runs, statuses, strict=True):
            if status == b"cancelled":
                self._on_cancelled(run)
