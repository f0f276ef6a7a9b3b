"""The sweep: reads the heartbeats, then looks after the runs in which something is due (docs/architecture.md,
"When a process dies").

Every instance worker sweeps; a lock in Redis lets one at a time, and not for long: a worker that stops in the middle
keeps no other one waiting.

After all workers lost contact with the servers, nothing at work is declared lost for half a lease, in which who lives
is heard of again: heartbeats may have been missed. When they last had contact is noted in Redis (lua/recovery.lua),
so a worker that alone could not reach them pauses nothing.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from itertools import chain
from math import isfinite
from typing import Any, NamedTuple, cast

from celery import bootsteps
from celery.worker import WorkController
from redis import Redis
from redis.exceptions import LockError, RedisError

from ...broker_config import Settings, queue_names, redis_url_of
from ...broker_config.configuration import queue_prefix
from .. import limits
from ..broker.attempts import Tokens
from ..broker.consumer import Publisher
from ..broker.messages import (
    OF_CALLS,
    AboutCall,
    AttemptRef,
    Completion,
    Probe,
    Report,
    Unanswered,
    probe_task,
    ref_of,
)
from ..errors import InfrastructureError, QueueRefused
from ..outages import Duty
from ..process import count_refusal
from ..store.commits import DueRuns
from ..store.connections import PASSING, connect, connect_once, eviction_warning, read_tokens
from ..store.keys import Keys, active_runs, awaiting_code, due_runs, probes, processes, recovery
from ..store.living import QueueNotes
from ..store.run_list import RunList
from ..store.scripts import Script, move_other_types, readable, server_ms
from ..store.slots import SlotKeeper
from .heartbeats import ReportQueue
from .overdue import BROKEN, BrokenRuns, Outbox, RunKeeper, Thresholds

# Probes: messages that prove, when they come out of a queue, that what was published there before was taken.
#
# So what the broker has lost is found also where a queue never runs empty. A worker that takes a probe tells so in a
# report, with the probe's token: who never had the probe cannot say so. It proves nothing about what workers do with
# what they have taken: they speak for that themselves.

logger = logging.getLogger(__name__)


class _Known(NamedTuple):
    """What is known of one queue; times in milliseconds of the server's clock."""

    consumed_until: int = 0
    """Before then everything was taken."""
    asked: int = 0
    """When the first probe was sent since one has come out; 0 where none is under way."""
    sent: int = 0
    """When the last one was sent."""


class Probes:
    """The probes of all queues. All of it raises `RedisError`, and `send` also `InfrastructureError`."""

    def __init__(self, redis: Redis, publisher: Publisher, prefix: str) -> None:
        self._redis = redis
        self._publisher = publisher
        self._prefix = prefix
        self._key = probes(prefix)

    def note(self, came_out: Iterable[Probe]) -> None:
        """Note what came out; what was not sent by a sweep is not believed."""
        known = self._read()
        tokens = read_tokens(self._redis, self._prefix)
        for queue, published_ms, token in came_out:
            if not tokens.agree(tokens.of_probe(queue, published_ms), token):
                logger.error("a report of a probe of %.200r is refused: it does not have its token", queue)
                count_refusal("reports")
            elif queue in known and known[queue].consumed_until < published_ms <= known[queue].sent:
                known[queue] = _Known(published_ms, 0, known[queue].sent)
                self._write(queue, known[queue])

    def consumed_until(self) -> Mapping[str, int]:
        """For each queue the time before which everything published was taken, in milliseconds."""
        return {queue: known.consumed_until for queue, known in self._read().items()}

    def send(self, queues: Iterable[str]) -> None:
        """Send probes through queues, unless one is under way there that may still come."""
        now = server_ms(self._redis)
        known = self._read()
        tokens = read_tokens(self._redis, self._prefix)
        for queue in queues:
            consumed_until, asked, sent = known.get(queue, _Known())
            if not asked or now - sent >= max(limits.LATE_MS, sent - asked):
                self._write(queue, _Known(consumed_until, asked or now, now))
                try:
                    self._publisher.publish([probe_task(Probe(queue, now, tokens.of_probe(queue, now)))])
                except QueueRefused as error:
                    logger.error("no probe can be sent: %s", error)

    def _read(self) -> dict[str, _Known]:
        """What is known of each queue. What was noted before the clock was set back says nothing of what came since."""
        found: Any = self._redis.hgetall(self._key)
        latest = server_ms(self._redis) + limits.AHEAD_MS if found else 0

        def read(queue: bytes) -> tuple[str, _Known]:
            known = _Known(*map(int, found[queue].split(b":")))
            return queue.decode(), known if max(known) <= latest else _Known()

        return dict(readable(self._key, found, read, lambda queue: self._redis.hdel(self._key, queue)))

    def _write(self, queue: str, known: _Known) -> None:
        self._redis.hset(self._key, queue, ":".join(map(str, known)))


# Taking note of heartbeats: what workers report that see only the broker goes into the runs' records.
#
# What a report says of an attempt counts only with the attempt's token: its sender was given the call.


_Noted = dict[str, list[Any]]
"""What reports say of one run's calls, by field."""


class Heartbeats:
    """Takes note of reports."""

    def __init__(self, redis: Redis, settings: Settings, outbox: Outbox, probes: Probes, broken: BrokenRuns) -> None:
        self._redis = redis
        self._settings = settings
        self._outbox = outbox
        self._probes = probes
        self._broken = broken
        self._script = Script(redis, "reports", "heartbeats")
        self._code_came = Script(redis, "reports", "code_came")
        self._due = DueRuns(redis, settings.key_prefix)

    def note(self, reports: Iterable[Report], thresholds: Thresholds) -> None:
        """Take note of reports; a run whose keys are broken is passed over. Raises `RedisError`."""
        noted: dict[str, _Noted] = defaultdict(lambda: {what: [] for what in OF_CALLS})
        reports = list(reports)
        for report in reports:
            for what in OF_CALLS:
                for one in getattr(report, what):
                    noted[ref_of(one).run][what].append(one)
        if noted:
            self._drop_forged(noted)
        if came_out := list(chain.from_iterable(report.probes for report in reports)):
            self._probes.note(came_out)
        for run, of_run in noted.items():
            with self._broken.passing_over(run):
                of_run["completed"] = [self._outbox.judged(run, one) for one in of_run["completed"]]
                self._outbox.bury(run, of_run["completed"])
        parts = [(run, part) for run, of_run in noted.items() for part in _parts(of_run)]
        with self._redis.pipeline(transaction=False) as pipeline:
            for run, part in parts:
                keys = Keys(self._settings.key_prefix, run)
                request = {
                    **asdict(thresholds),
                    "instances": self._settings.queue_instances,
                    **{what: [_in_request(one) for one in said] for what, said in part.items()},
                    "most_unanswered": limits.WAITING_MOST_UNANSWERED,
                }
                self._script.add(pipeline, keys, request)
            answers = pipeline.execute(raise_on_error=False)
        for (run, _), answer in zip(parts, answers, strict=True):
            self._broken.is_answer(run, answer)
        if any(report.started for report in reports):
            self._try_again()

    def _try_again(self) -> None:
        """Have what was given back tried again: a worker has begun, and its code may admit it (SPEC R17.3).

        Whoever writes reports can say so, too; that costs a try.
        """
        prefix = self._settings.key_prefix
        index = awaiting_code(prefix)
        self._redis.zremrangebyrank(index, 0, -limits.MOST_AWAITING - 1)
        while found := cast(list[tuple[bytes, float]], self._redis.zpopmax(index, limits.REPORTS_AT_ONCE)):
            runs = list(readable(index, dict(found), bytes.decode, partial(self._redis.zrem, index)))
            with self._redis.pipeline(transaction=False) as pipeline:
                for run in runs:
                    self._code_came.add(pipeline, Keys(prefix, run), {"most": limits.REPORTS_AT_ONCE})
                answers = pipeline.execute(raise_on_error=False)
            for run, answer in zip(runs, answers, strict=True):
                if self._broken.is_answer(run, answer):
                    self._due.note(run)

    def _drop_forged(self, noted: Mapping[str, _Noted]) -> None:
        """Leave out what is said of attempts without their token, or of a run that was deleted and whose id another one
        has.
        """
        tokens = read_tokens(self._redis, self._settings.key_prefix)
        with self._redis.pipeline(transaction=False) as pipeline:
            for run in noted:
                pipeline.hget(Keys(self._settings.key_prefix, run).state, "submitted")
            born = pipeline.execute(raise_on_error=False)
        refused = 0
        for (run, of_run), submitted in zip(noted.items(), born, strict=True):
            own = tokens.of_run(submitted.decode()) if isinstance(submitted, bytes) else None
            for what, said in of_run.items():
                shown = [one for one in said if _admits(tokens, ref_of(one))]
                refused += len(said) - len(shown)
                of_run[what] = [one for one in shown if own is None or own.admit_seal(run, ref_of(one).seal)]
                if late := len(shown) - len(of_run[what]):
                    logger.warning(
                        "%d reports of calls are passed over: run %.200s was deleted and is another", late, run
                    )
        if refused:
            logger.error("%d reports of calls are refused: they do not have the token of the attempt", refused)
            count_refusal("reports", refused)


def _admits(tokens: Tokens, ref: AttemptRef) -> bool:
    return tokens.admit_shown(ref.run, ref.lane, ref.call, ref.attempt, ref.token)


def _in_request(one: AboutCall) -> tuple[Any, ...]:
    """What the script is given of it (see reports.lua)."""
    match one:
        case AttemptRef(_, lane, call, attempt):
            return lane, call, attempt
        case Completion(AttemptRef(_, lane, call, attempt), error, delay_seconds, is_given_back):
            delay_ms = -1 if delay_seconds is None else int(delay_seconds * 1000)
            return lane, call, attempt, delay_ms, error is not None, is_given_back
        case Unanswered(AttemptRef(_, lane, call, attempt), type_, why, tries, wait_ms):
            return lane, call, attempt, tries, wait_ms, type_, why


def _parts(of_run: _Noted) -> Iterator[_Noted]:
    """What is said of a run, as much at a time as the script is given."""
    for start in range(0, max(map(len, of_run.values())), limits.REPORTS_AT_ONCE):
        yield {what: said[start : start + limits.REPORTS_AT_ONCE] for what, said in of_run.items()}


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
        self._seen = Script(redis, "recovery", "hear")
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
            if self._idle_turns % limits.IDLE_TURNS == 0:
                self._read_heartbeats()
            return
        if self._lock.acquire():
            since_ms = oldest[0][1]
            self.sweep(since_ms=int(since_ms) if isfinite(since_ms) else 0)
            self._keep_turn(0.9)
            return
        left: Any = self._redis.pttl(self._lock.name)
        if left == limits.SWEEP_NEVER or left > limits.LONGEST_TURNS * 1000 * self._settings.sweep_interval_seconds:
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
        while taken := self._due.take(limits.SWEEP_RUNS_AT_ONCE, until_ms):
            submitted = RunList(self._redis, self._settings.key_prefix).submitted(taken)
            self._due.settle(taken, self._look_after({run: at / 1000 for run, at in submitted.items()}))

    def _go_round(self) -> None:
        """Look at a few of all runs, in turn: what an interrupted step left out of the index is put there again."""
        key = active_runs(self._settings.key_prefix)
        listed: Any = self._redis.zscan(key, self._cursor, count=limits.SWEEP_ROUND)
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
                broker = connect_once(settings, url, timeout_seconds=limits.BROKER_SECONDS)
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
