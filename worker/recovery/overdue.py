"""Looking after runs: what was begun or published in them and not ended in time is published again (lua/sweep.lua).

It also ends the life of runs: when a run is over, its keys get their expiry.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from redis import Redis

from acts_celery.broker_config import Settings
from acts_celery.worker.broker.publisher import Publisher
from acts_celery.worker.storage.child_links import Parent, result_of
from acts_celery.worker.storage.clock import server_ms
from acts_celery.worker.storage.formats import FORMAT
from acts_celery.worker.storage.history import History
from acts_celery.worker.storage.keys import ENDED, Keys
from acts_celery.worker.storage.living import SilentProcess, read_living
from acts_celery.worker.storage.retention import discard_run, expire_runs
from acts_celery.worker.storage.scripts import Script
from acts_celery.worker.storage.secret import read_tokens
from acts_celery.worker.wire.attempts import CallId
from acts_celery.worker.wire.task_messages import lane_task

from .broken_runs import BROKEN, BrokenRuns
from .hold_hook import TELLING_SECONDS, HoldHook
from .outbox import Outbox
from .thresholds import Thresholds

logger = logging.getLogger(__name__)

_SUBMITTING_SECONDS: Final = 600.0
"""How long a client may write at a run before it counts as dead, and what it has written is removed."""
_AT_ONCE: Final = 500
_MOST_NAMED: Final = 10
_BROKEN_MS: Final = 60_000
"""How long a run whose keys are broken is left alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the script finds in a run; the fields are its answer's (see sweep.lua)."""

    status: str | None = None
    parent: str | None = None
    lanes: list[str]
    suspects: list[str]
    let_out: list[str]
    lost: int
    is_all: bool
    forgotten: int
    next_ms: int
    awaited: list[str]
    pending_webhooks: list[str]
    waiting_for_silent: list[tuple[str, str]]


class RunKeeper:
    """Looks after runs. All of it raises `RedisError` and `InfrastructureError`."""

    def __init__(
        self, redis: Redis, publisher: Publisher, settings: Settings, outbox: Outbox, broken: BrokenRuns
    ) -> None:
        self._redis = redis
        self._publisher = publisher
        self._settings = settings
        self._outbox = outbox
        self._broken = broken
        self._script = Script(redis, "sweep")
        self._hook = HoldHook(redis, settings) if settings.hold_webhook_url is not None else None
        self._awaited: set[str] = set()
        self._silent: dict[str, SilentProcess] = {}
        """Processes that live and report nothing, by their names in claims."""
        self._told: dict[str, set[str]] = {}
        """Which runs' waiting for which of them the log has named."""

    def stop(self) -> None:
        """Call no web hook any more."""
        if self._hook is not None:
            self._hook.stop()

    def take_awaited(self) -> set[str]:
        """The queues from which a probe is awaited since this was asked."""
        awaited, self._awaited = self._awaited, set()
        return awaited

    def look_after(self, runs: Mapping[str, float], thresholds: Thresholds) -> tuple[dict[str, int], dict[str, float]]:
        """Look after runs, given with the time of their submission in seconds.

        Returns when to look at each again, in milliseconds, where something will be due; and those of the runs in which
        more is left to judge now.
        """
        again = dict.fromkeys(runs, server_ms(self._redis) + _BROKEN_MS)
        left: dict[str, float] = {}
        over: list[str] = []
        for run, answer in zip(runs, self._judge(runs, thresholds), strict=True):
            with self._broken.passing_over(run):
                if not self._broken.is_answer(run, answer):
                    continue
                found = Found(**self._script.read(answer))
                self._publish(run, found)
                self._tell_of_silent(run, found.waiting_for_silent)
                if not found.is_all:
                    left[run] = runs[run]
                answers = found.status in ENDED and self._answer(run, found)
                if found.forgotten:
                    self._awaited |= self._outbox.sweep(run, thresholds)
                elif found.status is None:
                    self._remove_unfinished(self._keys(run), runs[run])
                elif answers:
                    continue
                elif found.status in ENDED:
                    over.append(run)
                again[run] = found.next_ms
        self._expire(over)
        return again, left

    def _keys(self, run: str) -> Keys:
        return Keys(self._settings.key_prefix, run)

    def _judge(self, runs: Iterable[str], thresholds: Thresholds) -> list[Any]:
        """What the script answers of each run, or the error that its keys have raised.

        Who lives is read each time: a sweep may take longer than a lease.
        """
        living = read_living(self._redis, self._settings.key_prefix, thresholds.lease_ms)
        self._silent = {one.process: one for one in living.silent}
        self._told = {process: told for process, told in self._told.items() if process in self._silent}
        request = {
            **asdict(thresholds),
            "most": _AT_ONCE,
            "instances": self._settings.queue_instances,
            "window": self._settings.publish_window,
            "format": FORMAT,
            "tells": self._hook is not None,
            "most_told": self._hook.room if self._hook is not None else 0,
            "telling_ms": int(TELLING_SECONDS * 1000),
            "silent": {one.process: one.until_ms for one in living.silent},
            "silences": [one.since_ms for one in living.silent],
        }
        with self._redis.pipeline(transaction=False) as pipeline:
            for run in runs:
                self._script.add(pipeline, self._keys(run), request | {"holders": living.holders.get(run, {})})
            return pipeline.execute(raise_on_error=False)

    def _tell_of_silent(self, run: str, waiting: Iterable[tuple[str, str]]) -> None:
        """Have the log say once which calls of a run wait for a process that lives and reports nothing."""
        names: dict[str, list[str]] = defaultdict(list)
        for member, process in waiting:
            if "@" not in member.rpartition("\x1f")[2]:
                names[process].append(CallId.of_member(run, member).name)
        for process, calls in names.items():
            silent, told = self._silent.get(process), self._told.setdefault(process, set())
            if silent is not None and run not in told:
                told.add(run)
                logger.warning(
                    "run %r: calls %s wait for %s; they are not begun elsewhere", run, _listed(calls), silent
                )

    def _publish(self, run: str, found: Found) -> None:
        """Publish what was found lost or due, and call the web hook for what waits for a person."""
        if found.lost:
            logger.warning(
                "run %r: %d tasks or calls were lost with their worker; they go on elsewhere", run, found.lost
            )
        self._awaited.update(found.awaited)
        if self._hook is not None:
            self._hook.tell(run, found.pending_webhooks)
        queue = self._settings.queue_instances
        self._publisher.publish(
            lane_task(run, lane or None, queue, was_lost=lane in found.suspects)
            for lane in (*found.lanes, *found.let_out)
        )

    def _expire(self, runs: Iterable[str]) -> None:
        """See to it that what is over does not stay for ever; a run that is broken keeps no other from its end."""
        prefix, seconds = self._settings.key_prefix, self._settings.retention_seconds
        try:
            expire_runs(self._redis, prefix, [self._keys(run) for run in runs], seconds)
        except BROKEN:
            for run in runs:
                with self._broken.passing_over(run):
                    expire_runs(self._redis, prefix, [self._keys(run)], seconds)

    def _answer(self, run: str, found: Found) -> bool:
        """Send the result of a child run again, where the call waits for it still; says so (SPEC R9.3)."""
        parent = Parent.read(found.parent)
        if parent is None or found.status is None:
            return False
        keys = self._keys(run)
        above = self._keys(parent.call.run)
        run_status: Any = self._redis.hget(above.state, "status")
        entry: Any = self._redis.hget(above.calls, parent.call.member)
        if run_status not in (b"running", b"paused") or not parent.waits_for(entry, keys.run):
            return False
        result = result_of(found.status, History(self._redis, keys).entries())
        tokens = read_tokens(self._redis, keys.prefix)
        self._publisher.publish([parent.answer(keys.run, result, tokens, self._settings.queue_instances)])
        return True

    def _remove_unfinished(self, keys: Keys, submitted_seconds: float) -> None:
        """Remove a run whose client died while it wrote; one that may still be at it is left alone."""
        now: Any = self._redis.time()
        if now[0] - submitted_seconds > _SUBMITTING_SECONDS:
            discard_run(self._redis, keys)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else "")
