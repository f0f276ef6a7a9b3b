"""Heartbeats: what a process that sees only the broker says of its calls while it lives.

Once a second it reports all remote calls it has at work in one small message, and those that have ended since. The
process that consumes likewise reports what it has taken from the broker and not begun: remote calls that wait for a
free thread or pool process. Where as many messages are taken as can be begun (`worker_prefetch_multiplier` 1, our
setting), there are none. The sweep reads that before it judges who is dead.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from functools import cached_property, partial
from itertools import islice
from typing import Final

from celery import Celery, bootsteps
from celery.worker import WorkController, state
from redis import Redis
from redis.exceptions import RedisClusterException, RedisError

from ...broker_config import (
    EXECUTE_ACTIVITY,
    EXECUTE_BACKGROUND,
    EXECUTE_DELEGATE,
    Settings,
    celery_configuration,
    load,
)
from ...protocol import Limits
from .. import limits
from ..broker.attempts import REPORTER, Attempt, Result, current_attempt, owner_token
from ..broker.messages import AttemptRef, Completion, Probe, Progressed, Report, Unanswered, attempt_in, unpack
from ..broker.transport import BackendConnection, ReportQueue, retry_while_unavailable
from ..errors import InfrastructureError, MalformedMessage
from ..fairness import Quarantine, alone_from
from ..logs import JsonFormatter, MaskedFormatter, Masking
from ..outages import Batcher, Duty, Outage, on_threads, watch_connections
from ..store.connections import connect_once
from ..store.living import Processes
from .sidecar import LoopWatchdog, Sidecar, Voice

logger = logging.getLogger(__name__)

_REMOTE: Final = (EXECUTE_ACTIVITY, EXECUTE_BACKGROUND, EXECUTE_DELEGATE)


def report_interval_seconds(settings: Settings) -> float:
    """How often a process reports what it has at work."""
    return min(settings.lease_seconds / 3, limits.LONGEST_REPORT_INTERVAL_SECONDS)


class HeartbeatWriter:
    """Speaks for the remote calls of one process."""

    def __init__(
        self,
        queue: ReportQueue,
        *,
        interval_seconds: float,
        watchdog: LoopWatchdog | None = None,
        quarantine: Quarantine | None = None,
        limit_attempts: int = 5,
        sidecar: Sidecar | None = None,
    ) -> None:
        self._queue = queue
        self._sidecar = sidecar
        self._watchdog = watchdog
        self._quarantine = quarantine or Quarantine()
        self._alone_from = alone_from(limit_attempts)
        self._waiting: set[AttemptRef] = set()
        """The attempts that wait for their turn in the quarantine: they were taken, and have not begun."""
        self._at_work: dict[AttemptRef, bool] = {}
        """The attempts at work, and whether that was reported."""
        self._ended: list[AttemptRef] = []
        """The attempts that have ended since the last report and were in one."""
        self._unanswered: dict[AttemptRef, tuple[Unanswered, float]] = {}
        """The unanswered requests to models that are not reported yet, each with the time of its next try."""
        self._progress: dict[AttemptRef, bytes] = {}
        """The progress of calls that is not reported yet."""
        self._lock = threading.Lock()
        self._duty = Duty(
            "reporting the calls at work",
            self.beat,
            thread="acts-heartbeat",
            interval_seconds=interval_seconds,
            passing=(InfrastructureError,),
        )
        self._sending = ThreadPoolExecutor(1, thread_name_prefix="acts-reports")
        self._at_once = Batcher[Report, None](on_threads(self._sending, self._send))

    def stop(self) -> None:
        """Report nothing any more."""
        self._duty.stop()
        self._sending.shutdown()

    @asynccontextmanager
    async def at_work(self, attempt: Attempt) -> AsyncIterator[None]:
        """While the block lasts, the attempt is at work here; then its result has been sent.

        A repeated one is reported before it begins: a call that kills its worker at once would otherwise never be seen
        to begin, and be sent again for ever. Raises `InfrastructureError` where that is not possible.
        """
        ref = AttemptRef.of(attempt)
        REPORTER.set(self.progressed)
        async with self._turn(attempt, ref) if attempt.losses >= self._alone_from else nullcontext():
            if attempt.is_repeated:
                await self._at_once.send(Report(begun=(ref,)))
            with self._lock:
                if not self._at_work and self._sidecar is not None:
                    self._sidecar.note(Voice.REPORTS)  # nothing was to be reported until now
                self._at_work[ref] = attempt.is_repeated
                self._duty.start()
            is_sent = False
            try:
                with self._sidecar.at_work(ref) if self._sidecar is not None else nullcontext():
                    yield
                is_sent = True
            finally:
                self._end(ref, is_sent=is_sent)

    @asynccontextmanager
    async def _turn(self, attempt: Attempt, ref: AttemptRef) -> AsyncIterator[None]:
        """Wait for the attempt's turn, where its workers may have died of it; it is reported as taken until then."""
        with self._lock:
            self._waiting.add(ref)
            self._duty.start()
        try:
            async with AsyncExitStack() as turn:
                with self._sidecar.at_work(ref, is_begun=False) if self._sidecar is not None else nullcontext():
                    await turn.enter_async_context(self._quarantine.turn(attempt.id.run))
                with self._lock:
                    self._waiting.discard(ref)
                yield
        finally:
            with self._lock:
                self._waiting.discard(ref)

    def _end(self, ref: AttemptRef, *, is_sent: bool) -> None:
        """Take note that an attempt is at work here no more."""
        with self._lock:
            was_reported = self._at_work.pop(ref, False)
            self._unanswered.pop(ref, None)
            self._progress.pop(ref, None)
            if was_reported and is_sent:
                self._ended.append(ref)

    async def came_out(self, probe: Probe) -> None:
        """Report that a probe was taken from its queue. Raises `InfrastructureError`."""
        await self._at_once.send(Report(probes=(probe,)))

    async def complete(self, attempt: Attempt, result: Result) -> None:
        """Report what came of a fire-and-forget call; waits minutes for a broker that is away or full.

        Raises `InfrastructureError`.
        """
        await self._at_once.send(Report(completed=(Completion.of(attempt, result),)))

    def unanswered(self, error: Exception, tries: int, wait_seconds: float) -> None:
        """Have the next report say that a model has not answered the current attempt, and is asked again."""
        attempt = current_attempt()
        if attempt is None:
            return
        ref = AttemptRef.of(attempt)
        noted = Unanswered(ref, type(error).__name__, " ".join(str(error).split())[: limits.LONGEST_WHY], tries, 0)
        with self._lock:
            if ref in self._at_work:
                self._unanswered[ref] = noted, time.monotonic() + wait_seconds

    def progressed(self, attempt: Attempt, packed: bytes) -> None:
        """Have the next report say how far an attempt that is at work here has come."""
        ref = AttemptRef.of(attempt)
        with self._lock:
            if ref in self._at_work:
                self._progress[ref] = packed

    def beat(self) -> None:
        """Report what is at work now and served by the loop, and what has ended since. Raises `InfrastructureError`."""
        self._report()
        if self._sidecar is not None:
            self._sidecar.note(Voice.REPORTS)

    def _report(self) -> None:
        blocked = self._watchdog.blocked() if self._watchdog is not None else None
        now = time.monotonic()
        with self._lock:
            begun, reserved = tuple(self._at_work), tuple(self._waiting)
            if blocked is not None:
                reserved = ()
                blocking = AttemptRef.of(blocked.attempt) if blocked.attempt is not None else None
                begun = tuple(ref for ref in begun if ref == blocking)
            self._at_work.update(dict.fromkeys(begun, True))
            ended = tuple(self._ended)
            most = limits.UNANSWERED_IN_A_REPORT
            oldest = islice((one for one in self._progress.items() if one[0] in self._at_work), most)
            progressed = tuple(Progressed(*one) for one in oldest)
            waiting = [self._unanswered.pop(ref) for ref in begun if ref in self._unanswered][:most]
        if begun or ended or reserved:
            unanswered = tuple(one._replace(wait_ms=int(max(again - now, 0) * 1000)) for one, again in waiting)
            said = Report(begun=begun, ended=ended, reserved=reserved, unanswered=unanswered, progressed=progressed)
            self._queue.send(said)
            with self._lock:
                del self._ended[: len(ended)]
                for one in progressed:
                    if self._progress.get(one.ref) is one.said:
                        del self._progress[one.ref]

    def _send(self, reports: Sequence[Report]) -> None:
        for report in _merged(reports):
            send = partial(self._queue.send, report)
            retry_while_unavailable(send) if report.completed else send()


def _merged(reports: Sequence[Report]) -> Iterator[Report]:
    """Merge reports into few, each as large as a report may be."""
    merged, free = Report(), limits.ERROR_BYTES_IN_A_REPORT
    for report in reports:
        size = sum(len(text.encode()) for one in report.completed for text in one.error or ())
        if free < min(size, limits.ERROR_BYTES_IN_A_REPORT):
            yield merged
            merged, free = Report(), limits.ERROR_BYTES_IN_A_REPORT
        merged += report
        free -= size
    yield merged


class ReservedStep(bootsteps.StartStopStep):  # type: ignore[misc]  # celery has no types
    """Reports that the worker has begun, and what is reserved: in every worker, from the process that consumes."""

    def __init__(self, parent: WorkController, **options: object) -> None:
        super().__init__(parent, **options)
        self._duty: Duty | None = None
        self._started = 1

    def start(self, parent: WorkController) -> None:
        """Called by the worker when it starts."""
        settings: Settings = parent.app.conf.acts_settings
        watch_connections()
        self._duty = Duty(
            "reporting the calls that are reserved",
            partial(self._report, ReportQueue(parent.app, settings), limits.limits_of(settings)),
            thread="acts-reserved",
            interval_seconds=report_interval_seconds(settings),
            passing=(InfrastructureError,),
        )
        self._duty.start()

    def stop(self, parent: WorkController) -> None:
        """Called by the worker when it stops."""
        if self._duty is not None:
            self._duty.stop()

    def _report(self, queue: ReportQueue, limits: Limits) -> None:
        reserved = tuple(_reserved(limits))
        if reserved or self._started:
            queue.send(Report(reserved=reserved, started=self._started))
            self._started = 0


def _reserved(limits: Limits) -> Iterator[AttemptRef]:
    """The remote calls that were taken and not begun."""
    for request in list(state.requests.values()):  # at once: the consumer goes on meanwhile
        if request.name in _REMOTE and request not in state.active_requests:
            try:
                yield AttemptRef.of(attempt_in(request.args[0] if request.args else None, limits))
            except MalformedMessage:
                pass  # it is refused when it is begun


# Presence: a process that sees the log says there once a second that it lives, and which lanes it drives.
#
# A claim has its lease once; nobody renews it. When it runs out the sweep looks who has made it: what a driver holds
# that is present is at work. So a call costs nothing while it runs, and a driver that has ended, however, is in no
# record any more. Where a coroutine blocks the event loop, only the call that blocks it is at work: the others go on
# elsewhere.


class Presence:
    """Reports what this process drives, three times in a lease's length.

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
        self._processes = Processes(redis, prefix)
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
            interval_seconds=min(lease_seconds / 3, limits.NOTICE_SECONDS),
            passing=(RedisError,),
        )
        if sidecar is not None:
            sidecar.note(Voice.PRESENCE)
        self._duty.start()

    def close(self) -> None:
        """Say nothing any more."""
        self._duty.stop()

    def enter(self, run: str, owner: str) -> None:
        """Note that a driver of a lane is at work."""
        with self._lock:
            self._drivers[run].add(owner)

    def leave(self, run: str, owner: str) -> None:
        """Note that a driver of a lane has left."""
        with self._lock:
            self._drivers[run].discard(owner)
            if not self._drivers[run]:
                del self._drivers[run]

    def beat(self) -> None:
        """Say what is at work now that the loop can serve. Raises `RedisError`."""
        self._report()
        if self._sidecar is not None:
            self._sidecar.note(Voice.PRESENCE)

    def _report(self) -> None:
        with self._lock:
            holds = {run: sorted(owners) for run, owners in self._drivers.items()}
        drives, runs = bool(holds), list({**holds, **dict.fromkeys(self._remote_runs())})
        if not runs and not self._is_said:
            if not self._is_connected:
                self._is_connected = self._processes.ping()  # the connection is there, should the server be full later
            return
        blocked = self._watchdog.blocked() if self._watchdog is not None else None
        if blocked is not None:
            id_ = blocked.attempt.id if blocked.attempt is not None else None
            holds = {id_.run: [id_.member]} if id_ is not None and id_.run in holds else {}
        statuses = self._processes.note(self._name, runs, holds if drives else None, withdraws=self._is_said)
        self._is_said = drives
        for run, status in zip(runs, statuses, strict=True):
            if status == "cancelled":
                self._on_cancelled(run)


# What a sidecar reports for its worker process, in the words of `presence` and `heartbeats`.
#
# To the log: that the process is there. That covers whatever its drivers have claimed, since a claim names the process.
# By the broker: which remote calls it has at work. Connections are made when they are needed, and given back.


class Reporter:
    """Reports for one process, known in claims by `process`; `worker` is its name in the log."""

    def __init__(self, pid: int, process: str, worker: str, *, sees_log: bool) -> None:
        self._sees_log = sees_log
        self._settings = load(env_file=None)
        _write_log(self._settings)
        self._pid = pid
        self._process = process
        self._worker = worker
        self._is_silent = False
        self._to_log = Outage(logger, f"reporting to the log that process {pid} is there")
        self._by_broker = Outage(logger, f"reporting the calls at work in process {pid}")

    def report(self, no_presence_seconds: float, no_reports_seconds: float, at_work: Iterable[bytes]) -> None:
        """Report what the process has not reported for so long; 0 for what it has. Failures are logged."""
        taken = [(bool(is_begun), AttemptRef(*ref)) for is_begun, *ref in map(unpack, at_work)]
        refs = [ref for is_begun, ref in taken if is_begun]
        if not self._is_silent and (taken or (no_presence_seconds and self._redis is not None)):
            self._is_silent = True
            named = ", ".join(f"{ref.run}:{ref.call}" for ref in refs[: limits.SILENT_CALLS_NAMED])
            logger.warning(
                "worker %s, process %d, has not reported for %.0f s and is alive: its calls stay with it. Code that "
                "holds Python's lock (GIL) does this, or a lost connection%s",
                self._worker,
                self._pid,
                max(no_presence_seconds, no_reports_seconds),
                f". Remote calls at work: {named}" if named else "",
            )
        if no_presence_seconds and self._redis is not None:
            try:
                calls = [(ref.run, f"{ref.lane}\x1f{ref.call}") for ref in refs[: limits.SILENT_CALLS_WRITTEN]]
                own = (self._process, self._worker, self._pid)
                Processes(self._redis, self._settings.key_prefix).note_silent(*own, no_presence_seconds, calls)
                self._to_log.succeeded()
            except (RedisError, RedisClusterException) as error:
                self._to_log.failed(error)
        if no_reports_seconds and taken:
            try:
                self._reports.send(
                    Report(begun=tuple(refs), reserved=tuple(ref for is_begun, ref in taken if not is_begun))
                )
                self._by_broker.succeeded()
            except InfrastructureError as error:
                self._by_broker.failed(error)

    def rest(self) -> None:
        """The process reports by itself again, or has ended."""
        if not self._is_silent:
            return
        self._is_silent = False
        if self._redis is not None:
            try:
                Processes(self._redis, self._settings.key_prefix).withdraw(self._process)
            except (RedisError, RedisClusterException) as error:
                logger.warning("what was reported for process %d stays until it runs out: %s", self._pid, error)
            self._redis.close()
        self._app.pool.force_close_all()

    @cached_property
    def _redis(self) -> Redis | None:
        settings = self._settings
        if not self._sees_log or settings.effective_redis_url is None:
            return None
        return connect_once(settings, settings.effective_redis_url, timeout_seconds=settings.lease_seconds / 3)

    @cached_property
    def _app(self) -> Celery:
        """An application that only publishes, and waits no longer than for the log."""
        app = Celery("acts-sidecar", set_as_current=False)
        app.conf.update(celery_configuration(self._settings))
        seconds = self._settings.lease_seconds / 3
        if "socket_timeout" in app.conf.broker_transport_options:
            short = {"socket_timeout": seconds, "socket_connect_timeout": seconds}
        else:
            short = {"read_timeout": seconds, "write_timeout": seconds, "connect_timeout": seconds}
        app.conf.broker_transport_options = {**app.conf.broker_transport_options, **short}
        app.amqp.Connection = BackendConnection
        return app

    @cached_property
    def _reports(self) -> ReportQueue:
        return ReportQueue(self._app, self._settings)


def _write_log(settings: Settings) -> None:
    """Write the log where the worker writes its own."""
    own = logging.Formatter("[%(asctime)s: %(levelname)s/sidecar] %(message)s")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(MaskedFormatter(JsonFormatter() if settings.log_format == "json" else own, Masking(settings)))
    logging.getLogger().addHandler(handler)
