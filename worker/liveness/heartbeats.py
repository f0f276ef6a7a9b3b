"""Heartbeats: what a process that sees only the broker says of its calls while it lives.

Once a second it reports all remote calls it has at work in one small message, and those that have ended since. The
process that consumes likewise reports what it has taken from the broker and not begun: remote calls that wait for a
free thread or pool process. Where as many messages are taken as can be begun (`worker_prefetch_multiplier` 1, our
setting), there are none. The sweep reads that before it judges who is dead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from typing import Final

from celery import bootsteps
from celery.worker import WorkController, state

from acts_celery.broker_config import EXECUTE_ACTIVITY, EXECUTE_BACKGROUND, EXECUTE_DELEGATE, Settings
from acts_celery.protocol import Limits
from acts_celery.worker.broker.failures import retry_while_unavailable
from acts_celery.worker.errors import InfrastructureError, MalformedMessage
from acts_celery.worker.fairness.quarantine import Quarantine, alone_from
from acts_celery.worker.process.batching import Batcher, on_threads
from acts_celery.worker.process.duties import Duty
from acts_celery.worker.process.limits import limits_of
from acts_celery.worker.process.silence import watch_connections
from acts_celery.worker.process.watchdog import LoopWatchdog
from acts_celery.worker.wire.attempts import Attempt, Result, current_attempt
from acts_celery.worker.wire.messages import attempt_in
from acts_celery.worker.wire.reports import LONGEST_WHY, AttemptRef, Completion, Probe, Report, Unanswered

from .report_queue import ReportQueue
from .sidecar import Sidecar, Voice

_LONGEST_INTERVAL_SECONDS: Final = 1.0
_MOST_UNANSWERED: Final = 100
"""Of how many requests to models a report says that they were not answered; more are like these."""
_MOST_BYTES: Final = 32 * 1024
"""What a report may say of errors: more is said in another one."""
_REMOTE: Final = (EXECUTE_ACTIVITY, EXECUTE_BACKGROUND, EXECUTE_DELEGATE)


def report_interval_seconds(settings: Settings) -> float:
    """How often a process reports what it has at work."""
    return min(settings.lease_seconds / 3, _LONGEST_INTERVAL_SECONDS)


class Heartbeat:
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
        """What waits for its turn in the quarantine: it was taken, and has not begun."""
        self._at_work: dict[AttemptRef, bool] = {}
        """What is at work, and whether that was reported."""
        self._ended: list[AttemptRef] = []
        """What has ended since the last report and was in one."""
        self._unanswered: dict[AttemptRef, tuple[Unanswered, float]] = {}
        """What is not reported yet of requests to models, each with the time of its next try."""
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
        noted = Unanswered(ref, type(error).__name__, " ".join(str(error).split())[:LONGEST_WHY], tries, 0)
        with self._lock:
            if ref in self._at_work:
                self._unanswered[ref] = noted, time.monotonic() + wait_seconds

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
            waiting = [self._unanswered.pop(ref) for ref in begun if ref in self._unanswered][:_MOST_UNANSWERED]
        if begun or ended or reserved:
            unanswered = (one._replace(wait_ms=int(max(again - now, 0) * 1000)) for one, again in waiting)
            self._queue.send(Report(begun=begun, ended=ended, reserved=reserved, unanswered=tuple(unanswered)))
            with self._lock:
                del self._ended[: len(ended)]

    def _send(self, reports: Sequence[Report]) -> None:
        for report in _merged(reports):
            send = partial(self._queue.send, report)
            retry_while_unavailable(send) if report.completed else send()


def _merged(reports: Sequence[Report]) -> Iterator[Report]:
    """The same in few, as much at a time as a report may say."""
    merged, free = Report(), _MOST_BYTES
    for report in reports:
        size = sum(len(text.encode()) for one in report.completed for text in one.error or ())
        if free < min(size, _MOST_BYTES):
            yield merged
            merged, free = Report(), _MOST_BYTES
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
            partial(self._report, ReportQueue(parent.app, settings), limits_of(settings)),
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
