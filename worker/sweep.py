"""The sweep: what was begun or published and not ended in time is published again (DESIGN "Sweep").

It also ends the life of runs: when a run is over, its keys get their expiry. Every instance worker sweeps; a lock in
Redis lets one at a time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Final

from celery import bootsteps
from celery.worker import WorkController
from redis import Redis
from redis.exceptions import RedisError

from broker_config import Settings

from .connections import connect
from .errors import InfrastructureError
from .keys import Keys, active_runs
from .leases import PUBLISHED_SECONDS
from .log import read_script
from .messages import lane_task
from .publisher import Publisher
from .runs import ENDED
from .slots import SlotKeeper

logger = logging.getLogger(__name__)

_SUBMITTING_SECONDS: Final = 600.0
"""How long a client may write at a run before it counts as dead, and what it has written is removed."""
_AT_ONCE: Final = 1_000


class Sweeper:
    """Looks after the runs under way, every `sweep_interval_seconds`, in a thread of its own."""

    def __init__(self, redis: Redis, publisher: Publisher, settings: Settings) -> None:
        self._redis = redis
        self._publisher = publisher
        self._settings = settings
        self._script = redis.register_script(read_script("window", "sweep"))
        self._slots = SlotKeeper(redis, prefix=settings.key_prefix)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="acts-sweep", daemon=True)

    def start(self) -> None:
        """Begin to sweep."""
        self._thread.start()

    def stop(self) -> None:
        """End the sweeping; returns when it has ended."""
        self._stopped.set()
        self._thread.join()

    def sweep(self) -> None:
        """Look after every run once."""
        runs: Any = self._redis.zscan_iter(active_runs(self._settings.key_prefix))
        is_queue_busy = None
        for run, submitted in runs:
            if is_queue_busy is None:
                self._slots.mend()
                is_queue_busy = self._publisher.waiting(self._settings.queue_instances) > 0
            self._sweep_run(run.decode(), submitted / 1000, is_queue_busy=is_queue_busy)

    def _run(self) -> None:
        lock = f"{self._settings.key_prefix}:sweeping"
        interval = self._settings.sweep_interval_seconds
        while not self._stopped.wait(interval):
            try:
                if self._redis.set(lock, "1", nx=True, px=int(interval * 900)):
                    self.sweep()
            except (RedisError, InfrastructureError) as error:
                logger.warning("the sweep failed and will be tried again: %s", error)

    def _sweep_run(self, run: str, submitted_seconds: float, *, is_queue_busy: bool) -> None:
        keys = Keys(self._settings.key_prefix, run)
        window = self._settings.publish_window
        status, lost, let_out = self._script(
            keys=[keys.state, keys.leases, keys.published, keys.backlog, keys.parked],
            args=[_AT_ONCE, int(PUBLISHED_SECONDS * 1000), int(is_queue_busy), keys.ledger(""), window],
        )
        if lost:
            logger.warning("run %s: %d lanes had no sign of life and are published again", run, len(lost))
        queue = self._settings.queue_instances
        self._publisher.publish(lane_task(run, lane.decode() or None, queue) for lane in (*lost, *let_out))
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
            self._sweeper = Sweeper(connect(settings), Publisher(parent.app), settings)
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


def _names(redis: Redis, keys: Keys) -> Iterator[str]:
    """Every key that a run may have; the list of its instances comes last, as it is needed to find the others."""
    yield from (keys.definition, keys.state, keys.events, keys.leases, keys.parked, keys.published, keys.backlog)
    instances: Any = redis.lrange(keys.instances, 0, -1)
    yield from _lane_names(keys, ["", *(instance.decode() for instance in instances)])
    yield keys.instances


def _lane_names(keys: Keys, lanes: Iterable[str]) -> Iterator[str]:
    for lane in lanes:
        yield keys.journal(lane)
        yield keys.ledger(lane)
