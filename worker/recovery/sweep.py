"""The sweep: reads the heartbeats, then looks after the runs in which something is due (docs/architecture.md,
"When a process dies").

Every instance worker sweeps; a lock in Redis lets one at a time, and not for long: a worker that stops in the middle
keeps no other one waiting.

After all workers lost contact with the servers, nothing at work is declared lost for half a lease, in which who lives
is heard of again: heartbeats may have been missed. When they last had contact is noted in Redis (lua/sweep_seen.lua),
so a worker that alone could not reach them pauses nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import isfinite
from typing import Any, Final

from celery import bootsteps
from celery.worker import WorkController
from redis import Redis
from redis.exceptions import LockError, RedisError

from acts_celery.broker_config import Settings, queue_names, redis_url_of
from acts_celery.broker_config.configuration import queue_prefix
from acts_celery.worker.broker.publisher import Publisher
from acts_celery.worker.errors import InfrastructureError
from acts_celery.worker.liveness.report_queue import ReportQueue
from acts_celery.worker.process.duties import Duty
from acts_celery.worker.storage.clock import server_ms
from acts_celery.worker.storage.connections import PASSING, connect, connect_once, eviction_warning
from acts_celery.worker.storage.due import DueRuns
from acts_celery.worker.storage.keys import active_runs, awaiting_code, due_runs, probes, processes, recovery
from acts_celery.worker.storage.queue_notes import QueueNotes
from acts_celery.worker.storage.scripts import Script
from acts_celery.worker.storage.set_aside import move_other_types, readable
from acts_celery.worker.storage.slots import SlotKeeper

from .broken_runs import BROKEN, BrokenRuns
from .outbox import Outbox
from .overdue import RunKeeper
from .probes import Probes
from .reported import Heartbeats
from .thresholds import Thresholds

logger = logging.getLogger(__name__)

_RUNS_AT_ONCE: Final = 100
_ROUND: Final = 20
"""How many of all runs each sweep looks at, whatever is due."""
_IDLE_TURNS: Final = 60
"""While there is no run, the reports are read in one of so many turns: workers that begin send some."""
_BROKER_SECONDS: Final = 5.0
_NEVER: Final = -1
"""Redis' answer for a key that does not expire."""
_LONGEST_TURNS: Final = 10
"""A turn that is said to last so many intervals was taken by a clock that has been set back since."""


class Sweeper:
    """Sweeps every `sweep_interval_seconds`, in a thread of its own."""

    def __init__(
        self,
        redis: Redis,
        publisher: Publisher,
        reports: ReportQueue,
        settings: Settings,
        queues: QueueNotes | None = None,
    ) -> None:
        self._redis = redis
        self._queues = queues
        self._reports = reports
        self._settings = settings
        broken, outbox = BrokenRuns(), Outbox(redis, publisher, settings)
        self._probes = Probes(redis, publisher, settings.key_prefix)
        self._heartbeats = Heartbeats(redis, settings, outbox, self._probes, broken)
        self._runs = RunKeeper(redis, publisher, settings, outbox, broken)
        self._slots = SlotKeeper(redis, prefix=settings.key_prefix)
        self._seen = Script(redis, "sweep_seen")
        self._due = DueRuns(redis, settings.key_prefix)
        self._lock = redis.lock(
            f"{settings.key_prefix}:sweeping",
            timeout=settings.sweep_interval_seconds,
            blocking=False,
            thread_local=False,
        )
        self._thresholds = Thresholds.of(settings)
        """What this sweep judges by."""
        self._failed: list[Exception] = []
        """Why parts of this sweep have failed."""
        self._cursor = 0
        """Where the slow round over all runs is."""
        self._idle_turns = 0
        self._is_policy_known = False
        """Whether the server was asked whether it throws keys away."""
        self._duty = Duty(
            "the sweep",
            self.take_turn,
            thread="acts-sweep",
            interval_seconds=settings.sweep_interval_seconds,
            passing=(RedisError, InfrastructureError),
        )

    def start(self) -> None:
        """Begin to sweep."""
        self._duty.start()

    def stop(self) -> None:
        """End the sweeping; returns when it has ended."""
        self._duty.stop(waits=True)
        self._runs.stop()

    def take_turn(self) -> None:
        """Sweep, if there is anything to look after and no other worker is at it or has just been.

        Raises `InfrastructureError` and `RedisError`.
        """
        if not self._is_policy_known:
            self._is_policy_known = True
            if (warning := eviction_warning(self._redis, self._settings)) is not None:
                logger.warning("%s", warning)
        oldest: Any = self._redis.zrange(active_runs(self._settings.key_prefix), 0, 0, withscores=True)
        if not oldest:
            self._idle_turns += 1
            if self._idle_turns % _IDLE_TURNS == 0:
                self._read_heartbeats()
            return
        if self._lock.acquire():
            since_ms = oldest[0][1]
            self.sweep(since_ms=int(since_ms) if isfinite(since_ms) else 0)
            self._keep_turn(0.9)
            return
        left: Any = self._redis.pttl(self._lock.name)
        if left == _NEVER or left > _LONGEST_TURNS * 1000 * self._settings.sweep_interval_seconds:
            self._redis.delete(self._lock.name)  # no worker sets it so, and none could sweep any more

    def sweep(self, since_ms: int = 0) -> None:
        """Look after every run once; before `since_ms` there was none. Raises as `take_turn`.

        A part that finds what it cannot read keeps no other from its work; what it has raised is raised at the end.
        """
        self._failed.clear()
        for part in (
            self._read_heartbeats,
            partial(self._set_thresholds, since_ms),
            self._reconcile_slots,
            self._look_at_due,
            self._go_round,
            self._send_probes,
            self._note_queues,
        ):
            self._do(part)
        if self._failed:
            move_other_types(self._redis, _types(self._settings.key_prefix))
            raise self._failed[0]

    def _do(self, part: Callable[[], None]) -> None:
        """Do a part of a sweep, and note why it failed."""
        try:
            part()
        except BROKEN as error:
            if isinstance(error, PASSING):
                raise
            self._failed.append(error)

    def _read_heartbeats(self) -> None:
        """Take note of the reports that have come in."""
        for page in self._reports.pages():
            self._heartbeats.note(page, self._thresholds)
            self._keep_turn()

    def _set_thresholds(self, since_ms: int = 0) -> None:
        """Note that the servers were reached, and find whether heartbeats may have been missed before."""
        settings = self._settings
        gap_seconds = max(3.5 * settings.sweep_interval_seconds, settings.lease_seconds / 2)
        pause_ms = int(settings.lease_seconds * 1000 / 2)
        request = {"gap_ms": int(gap_seconds * 1000), "pause_ms": pause_ms, "since": since_ms}
        suspended = self._seen(recovery(settings.key_prefix), request)["is_suspended"]
        self._thresholds = replace(self._thresholds, suspended=suspended)
        self._thresholds = replace(self._thresholds, consumed_until=self._probes.consumed_until())

    def _reconcile_slots(self) -> None:
        """Take back the slots of calls that have ended, and look at the runs whose turn has come."""
        for run in self._slots.reconcile():
            self._due.note(run)

    def _look_at_due(self) -> None:
        """Look after the runs in which something is due. What becomes due meanwhile is the next sweep's: where there
        are many runs, the first are due again before the last was looked at, and what follows has its turn, too.
        """
        until_ms = server_ms(self._redis)
        while taken := self._due.take(_RUNS_AT_ONCE, until_ms):
            listed: Any = self._redis.zmscore(active_runs(self._settings.key_prefix), list(taken))
            runs = {
                run: submitted / 1000 for run, submitted in zip(taken, listed, strict=True) if submitted is not None
            }
            self._due.settle(taken, self._look_after(runs))

    def _go_round(self) -> None:
        """Look at a few of all runs, in turn: what an interrupted step left out of the index is put there again."""
        key = active_runs(self._settings.key_prefix)
        listed: Any = self._redis.zscan(key, self._cursor, count=_ROUND)
        self._cursor, found = listed
        submitted: Mapping[bytes, float] = dict(found)
        names = readable(key, submitted, bytes.decode, partial(self._redis.zrem, key))
        runs = {run: submitted[run.encode()] / 1000 for run in names}
        again = self._look_after(runs)
        if due := {run: next_ms for run, next_ms in again.items() if next_ms}:
            self._redis.zadd(due_runs(self._settings.key_prefix), due, lt=True)

    def _look_after(self, runs: Mapping[str, float]) -> dict[str, int]:
        """Look after runs until nothing is left to judge in them; when to look at each again, in milliseconds.

        Heartbeats are read after each step: with much to do a sweep takes longer than a lease, and what is reported in
        the meantime counts.
        """
        again: dict[str, int] = {}
        while runs:
            found, runs = self._runs.look_after(runs, self._thresholds)
            again |= found
            self._do(self._read_heartbeats)
            self._do(self._set_thresholds)
            self._keep_turn()
        return again

    def _send_probes(self) -> None:
        """Send probes through the queues from which one is awaited."""
        self._probes.send(self._runs.take_awaited())

    def _note_queues(self) -> None:
        """Note what lies in the queues, for those who may not read them."""
        if self._queues is not None:
            self._queues.note()

    def _keep_turn(self, intervals: float = 1.0) -> None:
        """Keep the others from sweeping; where the lock has run out meanwhile, two sweep at a time and do no harm."""
        try:
            self._lock.extend(intervals * self._settings.sweep_interval_seconds, replace_ttl=True)
        except LockError:
            self._lock.acquire()


class SweepStep(bootsteps.StartStopStep):  # type: ignore[misc]  # celery has no types
    """Sweeps in every worker that serves the instances' queue."""

    requires = frozenset({"celery.worker.components:Pool"})

    def __init__(self, parent: WorkController, **options: object) -> None:
        super().__init__(parent, **options)
        self._sweeper: Sweeper | None = None

    def start(self, parent: WorkController) -> None:
        """Called by the worker when it starts."""
        settings: Settings = parent.app.conf.acts_settings
        if settings.queue_instances in parent.app.amqp.queues.consume_from:
            reports = ReportQueue(parent.app, settings)
            log, names = connect(settings), (*queue_names(settings), *parent.app.conf.acts_runtimes.registry.queues())
            url = redis_url_of(settings.require_broker())
            queues = None
            if url is not None:
                broker = connect_once(settings, url, timeout_seconds=_BROKER_SECONDS)
                queues = QueueNotes(log, broker, settings.key_prefix, queue_prefix(settings), names)
            self._sweeper = Sweeper(log, Publisher(parent.app), reports, settings, queues)
            self._sweeper.start()

    def stop(self, parent: WorkController) -> None:
        """Called by the worker when it stops."""
        if self._sweeper is not None:
            self._sweeper.stop()


def _types(prefix: str) -> dict[str, str]:
    """The keys beside the runs that a sweep reads, and their types."""
    hashes = (probes(prefix), recovery(prefix), processes(prefix))
    indexes = (active_runs(prefix), due_runs(prefix), awaiting_code(prefix))
    return {**dict.fromkeys(indexes, "zset"), **dict.fromkeys(hashes, "hash")}
