"""The sweep: what was begun or published and not ended in time is published again (DESIGN "Sweep").

It also ends the life of runs: when a run is over, its keys get their expiry. Every instance worker sweeps; a lock in
Redis lets one at a time.

Nobody is judged while nobody could be heard: whoever could not reach the servers for a while sees to it that for the
length of a lease no sweep takes silence for death.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

from celery import bootsteps
from celery.worker import WorkController
from redis import Redis
from redis.client import Pipeline
from redis.exceptions import RedisError

from broker_config import Settings, queue_names
from worker.errors import InfrastructureError
from worker.messaging.heartbeats import Reports
from worker.messaging.messages import Closing, Report, lane_task
from worker.messaging.outages import Outage
from worker.messaging.publisher import Publisher
from worker.storage.connections import connect
from worker.storage.definition import FORMAT
from worker.storage.keys import ENDED, Keys, active_runs
from worker.storage.leases import PUBLISHED_SECONDS
from worker.storage.scripts import pack_request, read_script
from worker.storage.slots import SlotKeeper

from .outbox import Outbox

logger = logging.getLogger(__name__)

_SUBMITTING_SECONDS: Final = 600.0
"""How long a client may write at a run before it counts as dead, and what it has written is removed."""
_AT_ONCE: Final = 500
_RUNS_AT_ONCE: Final = 100


class Sweeper:
    """Looks after the runs under way, every `sweep_interval_seconds`, in a thread of its own.

    `queues` are those in which remote calls may lie, beside the settings' own.
    """

    def __init__(
        self, redis: Redis, publisher: Publisher, reports: Reports, settings: Settings, *, queues: Iterable[str] = ()
    ) -> None:
        self._redis = redis
        self._publisher = publisher
        self._reports = reports
        self._settings = settings
        self._queues = tuple(dict.fromkeys((*queue_names(settings), *queues)))
        self._script = redis.register_script(read_script("window", "sweep"))
        self._signs = redis.register_script(read_script("signs"))
        self._outbox = Outbox(redis, publisher, settings)
        self._slots = SlotKeeper(redis, prefix=settings.key_prefix)
        self._grace = f"{settings.key_prefix}:grace"
        self._lock = redis.lock(
            f"{settings.key_prefix}:sweeping", timeout=settings.lease_seconds, blocking=False, thread_local=False
        )
        self._reached = time.monotonic()
        """When the servers were last reached."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="acts-sweep", daemon=True)

    def start(self) -> None:
        """Begin to sweep."""
        self._thread.start()

    def stop(self) -> None:
        """End the sweeping; returns when it has ended."""
        self._stopped.set()
        self._thread.join()

    def take_turn(self) -> None:
        """Sweep, if there is anything to look after and nobody else is at it or has just been.

        Raises `InfrastructureError` and `RedisError`.
        """
        settings = self._settings
        is_needed = self._redis.exists(active_runs(settings.key_prefix))
        silent_seconds = time.monotonic() - self._reached
        if silent_seconds > max(3 * settings.sweep_interval_seconds, settings.lease_seconds / 2):
            self._redis.set(self._grace, "1", px=int(settings.lease_seconds * 1000))
        if is_needed and self._lock.acquire():
            self.sweep(lambda: self._lock.extend(settings.lease_seconds, replace_ttl=True))
            self._lock.extend(settings.sweep_interval_seconds * 0.9, replace_ttl=True)
        self._reached = time.monotonic()

    def sweep(self, between: Callable[[], object] = lambda: None) -> None:
        """Look after every run once; `between` is called now and then. Raises as `take_turn`."""
        self._hear()
        if self._redis.exists(self._grace):
            return
        self._slots.mend()
        idle = {queue: True for queue in self._queues if self._publisher.waiting(queue) == 0}
        runs = iter(self._redis.zscan_iter(active_runs(self._settings.key_prefix)))
        while batch := dict(islice(runs, _RUNS_AT_ONCE)):
            self._sweep_runs({run.decode(): submitted / 1000 for run, submitted in batch.items()}, idle)
            between()

    def _run(self) -> None:
        outage = Outage(logger, "the sweep")
        while not self._stopped.wait(self._settings.sweep_interval_seconds):
            try:
                self.take_turn()
            except (RedisError, InfrastructureError) as error:
                outage.failed(error)
            else:
                outage.succeeded()

    def _hear(self) -> None:
        """Take note of the reports that have come in."""
        heard: dict[str, dict[str, list[Any]]] = defaultdict(lambda: {"begun": [], "ended": [], "closed": []})
        for report in self._reports.read():
            _sort_by_run(report, heard)
        for run, signs in heard.items():
            self._outbox.bury(run, signs["closed"])
        with self._redis.pipeline(transaction=False) as pipeline:
            for run, signs in heard.items():
                keys = Keys(self._settings.key_prefix, run)
                request = {
                    "ledgers": keys.ledger(""),
                    "lease_ms": int(self._settings.lease_seconds * 1000),
                    "published_ms": int(PUBLISHED_SECONDS * 1000),
                    "instances": self._settings.queue_instances,
                    "begun": [sign[1:] for sign in signs["begun"]],
                    "ended": [sign[1:] for sign in signs["ended"]],
                    "closed": [(*closing.sign[1:], _delay_ms(closing)) for closing in signs["closed"]],
                }
                names = [keys.leases, keys.outbox, keys.outbox_tasks, keys.outbox_due]
                self._signs(keys=names, args=[pack_request(request)], client=pipeline)
            pipeline.execute()

    def _sweep_runs(self, runs: Mapping[str, float], idle: Mapping[str, bool]) -> None:
        """Look after runs, given with the time of their submission in seconds, until nothing is left to judge."""
        while runs:
            with self._redis.pipeline(transaction=False) as pipeline:
                for run in runs:
                    self._judge(Keys(self._settings.key_prefix, run), idle, pipeline)
                found = dict(zip(runs, pipeline.execute(), strict=True))
            for run, (status, lanes, let_out, lost, _, forgotten) in found.items():
                if lost:
                    logger.warning("run %s: %d tasks or calls gave no sign of life; they go on elsewhere", run, lost)
                queue = self._settings.queue_instances
                self._publisher.publish(lane_task(run, lane.decode() or None, queue) for lane in (*lanes, *let_out))
                if forgotten:
                    self._outbox.sweep(run, idle)
                else:
                    self._end(Keys(self._settings.key_prefix, run), runs[run], status)
            runs = {run: runs[run] for run, (*_, is_all, _) in found.items() if not is_all}

    def _judge(self, keys: Keys, idle: Mapping[str, bool], pipeline: Pipeline) -> None:
        request = {
            "most": _AT_ONCE,
            "published_ms": int(PUBLISHED_SECONDS * 1000),
            "soon_ms": int(self._settings.sweep_interval_seconds * 1000),
            "instances": self._settings.queue_instances,
            "idle": idle,
            "ledgers": keys.ledger(""),
            "window": self._settings.publish_window,
            "format": FORMAT,
        }
        names = [keys.state, keys.leases, keys.published, keys.backlog, keys.parked, keys.outbox_due]
        self._script(keys=names, args=[pack_request(request)], client=pipeline)

    def _end(self, keys: Keys, submitted_seconds: float, status: bytes | None) -> None:
        """See to it that what is over, or was never begun, does not stay for ever."""
        if status is None:
            self._remove_unfinished(keys, submitted_seconds)
        elif status.decode() in ENDED:
            self._retire(keys)

    def _remove_unfinished(self, keys: Keys, submitted_seconds: float) -> None:
        """Remove a run whose client died while it wrote; one that may still be at it is left alone."""
        now: Any = self._redis.time()
        if now[0] - submitted_seconds > _SUBMITTING_SECONDS:
            forget(self._redis, keys)

    def _retire(self, keys: Keys) -> None:
        """Give every key of an ended run its expiry."""
        names = list(_names(self._redis, keys))
        for start in range(0, len(names), _AT_ONCE):
            with self._redis.pipeline(transaction=False) as pipeline:
                for name in names[start : start + _AT_ONCE]:
                    pipeline.expire(name, self._settings.retention_seconds)
                pipeline.execute()
        self._redis.zrem(active_runs(self._settings.key_prefix), keys.run)


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
            self._sweeper = Sweeper(
                connect(settings),
                Publisher(parent.app),
                Reports(parent.app, settings),
                settings,
                queues=[queue.name for queue in parent.app.conf.task_queues],
            )
            self._sweeper.start()

    def stop(self, parent: WorkController) -> None:
        """Called by the worker when it stops."""
        if self._sweeper is not None:
            self._sweeper.stop()


def forget(redis: Redis, keys: Keys, *, instances: Iterable[str] = ()) -> None:
    """Remove what there is of a run, as far as the server can be reached; `instances` where they may not be written."""
    try:
        names = list(dict.fromkeys((*_names(redis, keys), *_lane_names(keys, instances))))
        for start in range(0, len(names), _AT_ONCE):
            redis.unlink(*names[start : start + _AT_ONCE])
        redis.zrem(active_runs(keys.prefix), keys.run)
    except RedisError as error:
        logger.warning("run %s could not be removed: %s", keys.run, error)


def _sort_by_run(report: Report, heard: Mapping[str, Mapping[str, list[Any]]]) -> None:
    for what, signs in (("begun", report.begun), ("ended", report.ended)):
        for sign in signs:
            heard[sign.run][what].append(sign)
    for closing in report.closed:
        heard[closing.sign.run]["closed"].append(closing)


def _delay_ms(closing: Closing) -> int:
    return -1 if closing.delay_seconds is None else int(closing.delay_seconds * 1000)


def _names(redis: Redis, keys: Keys) -> Iterator[str]:
    """Every key that a run may have; the list of its instances comes last, as it is needed to find the others."""
    yield from (keys.definition, keys.state, keys.events, keys.leases, keys.parked, keys.published, keys.backlog)
    yield from (keys.outbox, keys.outbox_tasks, keys.outbox_due)
    instances: Any = redis.lrange(keys.instances, 0, -1)
    yield from _lane_names(keys, ["", *(instance.decode() for instance in instances)])
    yield keys.instances


def _lane_names(keys: Keys, lanes: Iterable[str]) -> Iterator[str]:
    for lane in lanes:
        yield keys.journal(lane)
        yield keys.ledger(lane)
