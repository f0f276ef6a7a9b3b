"""The sweep: reads the heartbeats, then looks after the runs in which something is due (docs/internals/recovery.md).

Every instance worker sweeps; a lock in Redis lets one at a time, and not for long: a worker that stops in the middle
keeps no other one waiting.

After all workers lost contact with the servers, nothing at work is declared lost for half a lease, in which who lives
is heard of again: heartbeats may have been missed. When they last had contact is noted in Redis (lua/recovery.lua),
so a worker that alone could not reach them pauses nothing.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from math import isfinite
from typing import Any

from celery import bootsteps
from celery.worker import WorkController
from redis import Redis
from redis.exceptions import RedisError

from ...broker_config import Settings, queue_names, redis_url_of
from ...broker_config.configuration import queue_prefix
from .. import limits
from ..broker import messages
from ..broker.attempts import Tokens, read_progress
from ..broker.consumer import Publisher
from ..broker.queue_order import BAND, BAND_SUFFIXES
from ..broker.transport import ReportQueue
from ..errors import InfrastructureError, QueueRefused
from ..outages import Duty
from ..process import count_refusal
from ..store.commits import DueRuns
from ..store.connections import PASSING, connect, connect_once, eviction_warning, read_tokens, require_servers
from ..store.living import QueueNotes
from ..store.run_list import RunList
from ..store.scripts import server_ms
from ..store.servers import ServerAway
from ..store.slots import SlotKeeper
from ..store.sweeps import ProbeTable, QueueProbes, ReportedCalls, SweepTurns, Thresholds
from .overdue import BROKEN, BrokenRuns, Outbox, RunReaper, thresholds_of

# Probes: messages that prove, when they come out of a queue, that what was published there before was taken.
#
# So what the broker has lost is found also where a queue never runs empty. A worker that takes a probe tells so in a
# report, with the probe's token: who never had the probe cannot say so. It proves nothing about what workers do with
# what they have taken: they speak for that themselves.

logger = logging.getLogger(__name__)


class Probes:
    """The probes of all queues. All of it raises `RedisError`, and `send` also `InfrastructureError`."""

    def __init__(self, redis: Redis, publisher: Publisher, prefix: str) -> None:
        self._redis = redis
        self._publisher = publisher
        self._prefix = prefix
        self._table = ProbeTable(redis, prefix)

    def note(self, came_out: Iterable[messages.Probe]) -> None:
        """Note what came out; what was not sent by a sweep is not believed."""
        known = self._table.read()
        tokens = read_tokens(self._redis, self._prefix)
        for queue, published_ms, token in came_out:
            if not tokens.agree(tokens.of_probe(queue, published_ms), token):
                logger.error("a report of a probe of %.200r is refused: it does not have its token", queue)
                count_refusal("reports")
            elif queue in known and known[queue].consumed_until < published_ms <= known[queue].sent:
                known[queue] = QueueProbes(published_ms, 0, known[queue].sent)
                self._table.write(queue, known[queue])

    def consumed_until(self) -> Mapping[str, int]:
        """For each queue the time before which everything published was taken, in ms: in all its bands."""
        known = self._table.read()
        names = {queue.partition(BAND)[0] for queue in known}
        bands = self._bands()
        return {name: min(known.get(f"{name}{band}", QueueProbes()).consumed_until for band in bands) for name in names}

    def _bands(self) -> Sequence[str]:
        """The ends of the names of a queue's bands; the lowest has none, and is alone where nothing has a priority."""
        return BAND_SUFFIXES if self._table.has_bands() else BAND_SUFFIXES[:1]

    def send(self, queues: Iterable[str]) -> None:
        """Send probes through queues, unless one is under way there that may still come."""
        now = server_ms(self._redis)
        known = self._table.read()
        tokens, bands = read_tokens(self._redis, self._prefix), self._bands()
        for queue in (f"{name}{band}" for name in queues for band in bands):
            consumed_until, asked, sent = known.get(queue, QueueProbes())
            if not asked or now - sent >= max(limits.LATE_MS, sent - asked):
                self._table.write(queue, QueueProbes(consumed_until, asked or now, now))
                try:
                    self._publisher.publish(
                        [messages.probe_task(messages.Probe(queue, now, tokens.of_probe(queue, now)))]
                    )
                except QueueRefused as error:
                    logger.error("no probe can be sent: %s", error)


# Reading heartbeats: what workers report that see only the broker goes into the runs' records.
#
# A report about an attempt counts only with the attempt's token: its sender was given the call.

_Reported = dict[str, list[Any]]
"""The parts of reports that are about one run's calls, by field."""


class HeartbeatReader:
    """Reads the reports of workers that see only the broker."""

    def __init__(self, redis: Redis, settings: Settings, outbox: Outbox, probes: Probes, broken: BrokenRuns) -> None:
        self._redis = redis
        self._settings = settings
        self._outbox = outbox
        self._probes = probes
        self._broken = broken
        self._calls = ReportedCalls(redis, settings)
        self._due = DueRuns(redis, settings.key_prefix)

    def read(self, reports: Iterable[messages.Report], thresholds: Thresholds) -> list[messages.Completion]:
        """Note what reports say; a run whose keys are broken is passed over. Returns what has to be reported again,
        since the server of the run is away. Raises `RedisError`.
        """
        reported: dict[str, _Reported] = defaultdict(lambda: {what: [] for what in messages.OF_CALLS})
        reports = list(reports)
        for report in reports:
            for what in messages.OF_CALLS:
                for one in getattr(report, what):
                    reported[messages.ref_of(one).run][what].append(one)
        if reported:
            self._drop_forged(reported)
        if came_out := list(chain.from_iterable(report.probes for report in reports)):
            self._probes.note(came_out)
        completed = {run: of_run["completed"] for run, of_run in reported.items()}
        for run, of_run in reported.items():
            with self._broken.passing_over(run):
                of_run["completed"] = [self._outbox.judged(run, one) for one in of_run["completed"]]
                self._outbox.dead_letter(run, of_run["completed"])
        parts = [(run, part) for run, of_run in reported.items() for part in _parts(of_run)]
        away = set[str]()
        for (run, _), answer in zip(parts, self._calls.note(parts, thresholds), strict=True):
            if not self._broken.is_answer(run, answer) and isinstance(answer, ServerAway):
                away.add(run)
        if any(report.started for report in reports):
            self._wake_given_back()
        return [one for run in away for one in completed[run]]

    def _wake_given_back(self) -> None:
        """Have what was given back tried again: a worker has begun, and its code may admit it (SPEC R17.3).

        A forged report does the same, which costs a try.
        """
        for run, answer in self._calls.wake_given_back():
            if self._broken.is_answer(run, answer):
                self._due.note(run)

    def _drop_forged(self, reported: Mapping[str, _Reported]) -> None:
        """Drop what is reported of attempts without their token, or of a run that was deleted and whose id another one
        has.
        """
        tokens = read_tokens(self._redis, self._settings.key_prefix)
        refused = 0
        for (run, of_run), submitted in zip(reported.items(), self._calls.submitted(reported), strict=True):
            own = tokens.of_run(submitted) if submitted is not None else None
            for what, all_of_it in of_run.items():
                shown = [one for one in all_of_it if _admits(tokens, messages.ref_of(one))]
                refused += len(all_of_it) - len(shown)
                of_run[what] = [one for one in shown if own is None or own.admit_seal(run, messages.ref_of(one).seal)]
                if late := len(shown) - len(of_run[what]):
                    logger.warning(
                        "%d reports of calls are passed over: run %.200s was deleted and is another", late, run
                    )
        if refused:
            logger.error("%d reports of calls are refused: they do not have the token of the attempt", refused)
            count_refusal("reports", refused)


def _admits(tokens: Tokens, ref: messages.AttemptRef) -> bool:
    return tokens.admit_shown(ref.run, ref.lane, ref.call, ref.attempt, ref.token)


def _in_request(one: messages.AboutCall) -> tuple[Any, ...]:
    """A part of a report as the script takes it (see reports.lua)."""
    match one:
        case messages.AttemptRef(_, lane, call, attempt):
            return lane, call, attempt
        case messages.Completion(messages.AttemptRef(_, lane, call, attempt), error, delay_seconds, is_given_back):
            delay_ms = -1 if delay_seconds is None else int(delay_seconds * 1000)
            return lane, call, attempt, delay_ms, error is not None, is_given_back
        case messages.Unanswered(messages.AttemptRef(_, lane, call, attempt), type_, why, tries, wait_ms):
            return lane, call, attempt, tries, wait_ms, type_, why
        case messages.Progressed(messages.AttemptRef(_, lane, call, attempt), said):
            return lane, call, attempt, said if read_progress(said) is not None else b""


def _parts(of_run: _Reported) -> Iterator[_Reported]:
    """Split the reports about a run into parts that the script takes."""
    for start in range(0, max(map(len, of_run.values())), limits.REPORTED_CALLS_AT_ONCE):
        some = slice(start, start + limits.REPORTED_CALLS_AT_ONCE)
        yield {what: [_in_request(one) for one in all_of_it[some]] for what, all_of_it in of_run.items()}


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
        self._heartbeats = HeartbeatReader(redis, settings, outbox, self._probes, broken)
        self._runs = RunReaper(redis, publisher, settings, outbox, broken)
        self._slots = SlotKeeper(redis, prefix=settings.key_prefix)
        self._due = DueRuns(redis, settings.key_prefix)
        self._turns = SweepTurns(redis, settings.key_prefix, settings.sweep_interval_seconds)
        self._thresholds = thresholds_of(settings)
        """The thresholds of this sweep."""
        self._failed: list[Exception] = []
        """Why parts of this sweep have failed."""
        self._cursor = 0
        """Where the slow round over all runs is."""
        self._idle_turns = 0
        """Turns since there was a run."""
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
        since_ms = self._turns.oldest_run_ms()
        if since_ms is None:
            if self._idle_turns % limits.IDLE_TURNS == 0:
                self._read_heartbeats()
                self._slots.reconcile()  # a worker that was killed may have left one when the last run ended
            self._idle_turns += 1
            return
        self._idle_turns = 0
        if self._turns.begin():
            self.sweep(since_ms=int(since_ms) if isfinite(since_ms) else 0)
            self._turns.extend(0.9)

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
            self._turns.move_other_types()
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
            if waiting := self._heartbeats.read(page, self._thresholds):
                self._reports.send(messages.Report(completed=tuple(waiting)))
            self._turns.extend(1)

    def _set_thresholds(self, since_ms: int = 0) -> None:
        """Note that the servers were reached, and find whether heartbeats may have been missed before."""
        settings = self._settings
        gap_seconds = max(3.5 * settings.sweep_interval_seconds, settings.lease_seconds / 2)
        gap, lease_ms = {"gap_ms": int(gap_seconds * 1000), "since_ms": since_ms}, int(settings.lease_seconds * 1000)
        suspended = self._turns.note_contact(**gap, pause_ms=lease_ms // 2)
        paused = tuple(self._turns.paused(**gap, pause_ms=lease_ms))  # results that went round come first
        self._thresholds = replace(self._thresholds, suspended=suspended, paused=paused)
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
        self._cursor, submitted = self._turns.some_runs(self._cursor)
        again = self._look_after({run: at_ms / 1000 for run, at_ms in submitted.items()})
        self._due.note_sooner({run: next_ms for run, next_ms in again.items() if next_ms})

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
            self._turns.extend(1)
        return again

    def _send_probes(self) -> None:
        """Send probes through the queues from which one is awaited."""
        self._probes.send(self._runs.take_awaited())

    def _note_queues(self) -> None:
        """Note what is in the queues, for those who may not read them."""
        if self._queues is not None:
            self._queues.note()


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
            require_servers(settings)
            log, names = connect(settings), (*queue_names(settings), *parent.app.conf.acts_runtimes.registry.queues())
            url = redis_url_of(settings.require_broker())
            queues = None
            if url is not None:
                broker = connect_once(settings, url, timeout_seconds=limits.QUEUE_NOTES_TIMEOUT_SECONDS)
                queues = QueueNotes(log, broker, settings.key_prefix, queue_prefix(settings), names)
            self._sweeper = Sweeper(log, Publisher(parent.app), reports, settings, queues)
            self._sweeper.start()

    def stop(self, parent: WorkController) -> None:
        """Called by the worker when it stops."""
        if self._sweeper is not None:
            self._sweeper.stop()
