"""The sweep: what was begun or published and not ended in time is published again (DESIGN "Sweep").

It also ends the life of runs: when a run is over, its keys get their expiry. Every instance worker sweeps; a lock in
Redis lets one at a time, and not for long: a worker that stops in the middle keeps no other one waiting.

After all workers lost contact with the servers, nothing at work is declared lost for half a lease, in which who lives
is heard of again: heartbeats may have been missed. When they last had contact is noted in Redis (lua/sweep_seen.lua),
so a worker that alone could not reach them pauses nothing.

A run whose keys are broken is passed over with a line in the log; the others are looked after.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import Any, Final

from celery import bootsteps
from celery.worker import WorkController
from redis import Redis
from redis.client import Pipeline
from redis.exceptions import LockError, RedisError, ResponseError

from acts_celery.broker_config import Settings
from acts_celery.worker.errors import InfrastructureError, QueueRefused
from acts_celery.worker.messaging.duties import Duty
from acts_celery.worker.messaging.heartbeats import Reports, report_interval_seconds
from acts_celery.worker.messaging.messages import Closing, Probe, Report, Sign
from acts_celery.worker.messaging.publisher import Publisher
from acts_celery.worker.messaging.refusals import count_refusal
from acts_celery.worker.messaging.task_messages import lane_task
from acts_celery.worker.messaging.tokens import Tokens
from acts_celery.worker.storage.children import Parent, result_of
from acts_celery.worker.storage.connections import PASSING, connect
from acts_celery.worker.storage.definition import FORMAT
from acts_celery.worker.storage.due import DueRuns
from acts_celery.worker.storage.history import History
from acts_celery.worker.storage.keys import ENDED, Keys, active_runs, due_runs, probes, recovery
from acts_celery.worker.storage.leases import PUBLISHED_SECONDS
from acts_celery.worker.storage.retention import delete_run, expire_runs
from acts_celery.worker.storage.scripts import Script
from acts_celery.worker.storage.secret import read_tokens
from acts_celery.worker.storage.set_aside import UNREADABLE, move_other_types, readable
from acts_celery.worker.storage.slots import SlotKeeper
from acts_celery.worker.storage.unanswered import MOST_UNANSWERED

from .hold_hook import TELLING_SECONDS, HoldHook
from .outbox import Outbox
from .probes import Probes

logger = logging.getLogger(__name__)

_SUBMITTING_SECONDS: Final = 600.0
"""How long a client may write at a run before it counts as dead, and what it has written is removed."""
_AT_ONCE: Final = 500
_RUNS_AT_ONCE: Final = 100
_ROUND: Final = 20
"""How many of all runs each sweep looks at, whatever is due."""
_BROKEN_SECONDS: Final = 60.0
"""How long a run whose keys are broken is left alone."""
_NEVER: Final = -1
"""Redis' answer for a key that does not expire."""


_OF_CALLS: Final = ("begun", "ended", "held")
_SIGNS: Final = (*_OF_CALLS, "closed", "unanswered")
"""What reports say of calls."""


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


class Sweeper:
    """Looks after the runs under way, every `sweep_interval_seconds`, in a thread of its own."""

    def __init__(self, redis: Redis, publisher: Publisher, reports: Reports, settings: Settings) -> None:
        self._redis = redis
        self._publisher = publisher
        self._reports = reports
        self._settings = settings
        self._script = Script(redis, "sweep")
        self._signs = Script(redis, "signs")
        self._outbox = Outbox(redis, publisher, settings)
        self._hook = HoldHook(redis, settings) if settings.hold_webhook_url is not None else None
        self._probes = Probes(redis, publisher, settings.key_prefix)
        self._slots = SlotKeeper(redis, prefix=settings.key_prefix)
        self._seen = Script(redis, "sweep_seen")
        self._lock = redis.lock(
            f"{settings.key_prefix}:sweeping",
            timeout=settings.sweep_interval_seconds,
            blocking=False,
            thread_local=False,
        )
        self._due = DueRuns(redis, settings.key_prefix)
        self._taken: Mapping[str, int] = {}
        """For each queue the time before which everything published there was taken, in milliseconds."""
        self._awaited: set[str] = set()
        """Queues from which a probe is awaited in this sweep."""
        self._suspended = False
        """Whether heartbeats may have been missed: then nothing at work is declared lost."""
        self._cursor = 0
        """Where the slow round over all runs is."""
        self._broken: set[str] = set()
        """The runs whose keys are broken, as far as that was said already."""
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
        if self._hook is not None:
            self._hook.stop()

    def take_turn(self) -> None:
        """Sweep, if there is anything to look after and no other worker is at it or has just been.

        Raises `InfrastructureError` and `RedisError`.
        """
        oldest: Any = self._redis.zrange(active_runs(self._settings.key_prefix), 0, 0, withscores=True)
        if not oldest:
            return
        if self._lock.acquire():
            since_ms = oldest[0][1]
            self.sweep(since_ms=int(since_ms) if isfinite(since_ms) else 0)
            self._keep_turn(0.9)
        elif self._redis.pttl(self._lock.name) == _NEVER:  # no worker sets it so, and none could sweep any more
            self._redis.delete(self._lock.name)

    def sweep(self, since_ms: int = 0) -> None:
        """Look after every run once; before `since_ms` there was none. Raises as `take_turn`.

        A part that finds what it cannot read keeps no other from its work; what it has raised is raised at the end.
        """
        failed: list[Exception] = []
        for part in (
            self._drain_heartbeats,
            partial(self._note_contact, since_ms),
            self._reconcile_slots,
            self._look_at_due,
            self._go_round,
            self._send_probes,
        ):
            try:
                part()
            except (ResponseError, *UNREADABLE) as error:
                if isinstance(error, PASSING):
                    raise
                failed.append(error)
        if failed:
            move_other_types(self._redis, _types(self._settings.key_prefix))
            raise failed[0]

    def _reconcile_slots(self) -> None:
        """Have looked at what holds slots and has ended."""
        for run in self._slots.reconcile():
            self._due.note(run)

    def _look_at_due(self) -> None:
        """Look after the runs in which something is due."""
        self._taken = self._probes.taken()
        while taken := self._due.take(_RUNS_AT_ONCE):
            listed: Any = self._redis.zmscore(active_runs(self._settings.key_prefix), list(taken))
            runs = {
                run: submitted / 1000 for run, submitted in zip(taken, listed, strict=True) if submitted is not None
            }
            self._due.settle(taken, self._sweep_runs(runs))
            self._keep_turn()

    def _send_probes(self) -> None:
        """Send probes through the queues from which one is awaited."""
        self._probes.send(self._awaited)
        self._awaited.clear()

    def _go_round(self) -> None:
        """Look at a few of all runs, in turn: what an interrupted step left out of the index is put there again."""
        listed: Any = self._redis.zscan(active_runs(self._settings.key_prefix), self._cursor, count=_ROUND)
        self._cursor, found = listed
        key, submitted = active_runs(self._settings.key_prefix), dict(found)
        names = readable(key, submitted, bytes.decode, partial(self._redis.zrem, key))
        runs = {run: submitted[run.encode()] / 1000 for run in names}
        due = {run: next_ms for run, next_ms in self._sweep_runs(runs).items() if next_ms}
        if due:
            self._redis.zadd(due_runs(self._settings.key_prefix), due, lt=True)

    def _keep_turn(self, intervals: float = 1.0) -> None:
        """Keep the others from sweeping; where the lock has run out meanwhile, two sweep at a time and do no harm."""
        try:
            self._lock.extend(intervals * self._settings.sweep_interval_seconds, replace_ttl=True)
        except LockError:
            self._lock.acquire()

    def _note_contact(self, since_ms: int) -> None:
        """Note that the servers were reached, and find whether heartbeats may have been missed before."""
        settings = self._settings
        gap_seconds = max(3.5 * settings.sweep_interval_seconds, settings.lease_seconds / 2)
        pause_ms = int(settings.lease_seconds * 1000 / 2)
        request = {"gap_ms": int(gap_seconds * 1000), "pause_ms": pause_ms, "since": since_ms}
        self._suspended = self._seen(recovery(settings.key_prefix), request)["is_suspended"]

    def _drain_heartbeats(self) -> None:
        """Take note of the reports that have come in."""
        for page in self._reports.pages():
            self._take_note(page)
            self._keep_turn()

    def _take_note(self, reports: Iterable[Report]) -> None:
        heard: dict[str, dict[str, list[Any]]] = defaultdict(lambda: {what: [] for what in _SIGNS})
        came_out: list[Probe] = []
        for report in reports:
            _sort_by_run(report, heard)
            came_out += report.probes
        self._drop_forged(heard)
        if came_out:
            self._probes.note(came_out)
        for run, signs in heard.items():
            with self._passing_over(run):
                self._outbox.bury(run, signs["closed"])
        runs = [(run, part) for run, signs in heard.items() for part in _parts(signs)]
        with self._redis.pipeline(transaction=False) as pipeline:
            for run, part in runs:
                keys = Keys(self._settings.key_prefix, run)
                request = {
                    **self._patience,
                    "lease_ms": int(self._settings.lease_seconds * 1000),
                    "instances": self._settings.queue_instances,
                    **{what: [sign[1:4] for sign in part[what]] for what in _OF_CALLS},
                    "closed": [(*closing.sign[1:4], _delay_ms(closing)) for closing in part["closed"]],
                    "unanswered": [
                        (*one.sign[1:4], one.tries, one.wait_ms, one.type, one.why) for one in part["unanswered"]
                    ],
                    "most_unanswered": MOST_UNANSWERED,
                }
                self._signs.add(pipeline, keys, request)
            answers = pipeline.execute(raise_on_error=False)
        for (run, _), answer in zip(runs, answers, strict=True):
            self._heed(run, answer)

    def _drop_forged(self, heard: Mapping[str, dict[str, list[Any]]]) -> None:
        """Leave out what is said of attempts without their token: its sender was never given the call."""
        if not heard:
            return
        tokens = read_tokens(self._redis, self._settings.key_prefix)
        refused = 0
        for signs in heard.values():
            for what, said in signs.items():
                signs[what] = [one for one in said if _is_admitted(tokens, getattr(one, "sign", one))]
                refused += len(said) - len(signs[what])
        if refused:
            logger.error("%d reports of calls are refused: they have not the token of the attempt", refused)
            count_refusal("reports", refused)

    def _sweep_runs(self, runs: Mapping[str, float]) -> dict[str, int]:
        """Look after runs, given with the time of their submission in seconds, until nothing is left to judge.

        Returns when to look at each again, in milliseconds, where something will be due.
        """
        later = int(time.time() * 1000 + _BROKEN_SECONDS * 1000)
        again = dict.fromkeys(runs, later)
        while runs:
            with self._redis.pipeline(transaction=False) as pipeline:
                for run in runs:
                    self._judge(self._keys(run), pipeline)
                answers = pipeline.execute(raise_on_error=False)
            left: dict[str, float] = {}
            over: list[str] = []
            for run, answer in zip(runs, answers, strict=True):
                with self._passing_over(run):
                    if not self._heed(run, answer):
                        continue
                    found = Found(**self._script.read(answer))
                    self._publish(run, found)
                    if not found.is_all:
                        left[run] = runs[run]
                    if found.forgotten:
                        self._awaited |= self._outbox.sweep(run, self._patience)
                    elif found.status is None:
                        self._remove_unfinished(self._keys(run), runs[run])
                    elif found.status in ENDED:
                        if self._answer(run, found):
                            continue
                        over.append(run)
                    again[run] = found.next_ms
            self._expire(over)
            runs = left
        return again

    def _publish(self, run: str, found: Found) -> None:
        """Publish what was found lost or due, and tell of what waits for a person."""
        if found.lost:
            logger.warning("run %r: %d tasks or calls gave no sign of life; they go on elsewhere", run, found.lost)
        self._awaited.update(found.awaited)
        if self._hook is not None:
            self._hook.tell(run, found.pending_webhooks)
        queue = self._settings.queue_instances
        self._publisher.publish(
            lane_task(run, lane or None, queue, was_lost=lane in found.suspects)
            for lane in (*found.lanes, *found.let_out)
        )

    def _keys(self, run: str) -> Keys:
        return Keys(self._settings.key_prefix, run)

    def _expire(self, runs: Iterable[str]) -> None:
        """See to it that what is over does not stay for ever; a run that is broken keeps no other from its end."""
        prefix, seconds = self._settings.key_prefix, self._settings.retention_seconds
        try:
            expire_runs(self._redis, prefix, [self._keys(run) for run in runs], seconds)
        except (ResponseError, *UNREADABLE):
            for run in runs:
                with self._passing_over(run):
                    expire_runs(self._redis, prefix, [self._keys(run)], seconds)

    @contextmanager
    def _passing_over(self, run: str) -> Iterator[None]:
        """Pass a run over whose keys are broken. Raises what is wrong with the server instead."""
        try:
            yield
        except (ResponseError, *UNREADABLE) as error:
            self._heed(run, error)
        except QueueRefused as error:
            logger.error("run %r: %s", run, error)

    def _heed(self, run: str, answer: object) -> bool:
        """Whether that is an answer; a run's broken keys are logged once. Raises what is wrong with the server."""
        if not isinstance(answer, Exception):
            return True
        if not isinstance(answer, (ResponseError, *UNREADABLE)) or isinstance(answer, PASSING):
            raise answer
        if run not in self._broken:
            self._broken.add(run)
            count_refusal("runs")
            logger.error("run %r is passed over, its keys are broken: %.200r", run, str(answer))
        return False

    @property
    def _patience(self) -> dict[str, Any]:
        """What all scripts of a sweep judge by (see sweep.lua)."""
        lease, soon = self._settings.lease_seconds, self._settings.sweep_interval_seconds
        times = {
            "published_ms": PUBLISHED_SECONDS,
            "heard_ms": lease * 2 / 3,
            "report_ms": report_interval_seconds(self._settings) + soon,
            "soon_ms": soon,
        }
        return {"taken": self._taken, "suspended": self._suspended} | {
            name: int(seconds * 1000) for name, seconds in times.items()
        }

    def _judge(self, keys: Keys, pipeline: Pipeline) -> None:
        request = {
            **self._patience,
            "most": _AT_ONCE,
            "instances": self._settings.queue_instances,
            "window": self._settings.publish_window,
            "format": FORMAT,
            "tells": self._hook is not None,
            "most_told": self._hook.room if self._hook is not None else 0,
            "telling_ms": int(TELLING_SECONDS * 1000),
        }
        self._script.add(pipeline, keys, request)

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
            delete_run(self._redis, keys)


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
            )
            self._sweeper.start()

    def stop(self, parent: WorkController) -> None:
        """Called by the worker when it stops."""
        if self._sweeper is not None:
            self._sweeper.stop()


def _types(prefix: str) -> dict[str, str]:
    """The keys beside the runs that a sweep reads, and their types."""
    return {active_runs(prefix): "zset", due_runs(prefix): "zset", probes(prefix): "hash", recovery(prefix): "hash"}


def _sort_by_run(report: Report, heard: Mapping[str, Mapping[str, list[Any]]]) -> None:
    for what in _OF_CALLS:
        for sign in getattr(report, what):
            heard[sign.run][what].append(sign)
    for closing in report.closed:
        heard[closing.sign.run]["closed"].append(closing)
    for unanswered in report.unanswered:
        heard[unanswered.sign.run]["unanswered"].append(unanswered)


def _is_admitted(tokens: Tokens, sign: Sign) -> bool:
    return tokens.agree(tokens.of(*sign[:4]), sign.token)


def _parts(signs: Mapping[str, list[Any]]) -> Iterator[dict[str, list[Any]]]:
    """What is said of a run, in parts that a script takes note of without holding up the server."""
    for start in range(0, max(map(len, signs.values())), _AT_ONCE):
        yield {what: of_them[start : start + _AT_ONCE] for what, of_them in signs.items()}


def _delay_ms(closing: Closing) -> int:
    return -1 if closing.delay_seconds is None else int(closing.delay_seconds * 1000)
