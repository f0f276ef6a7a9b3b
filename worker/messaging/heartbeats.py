"""Reports: signs of life of calls that are carried out where the log is not seen (DESIGN "Sweep").

A process that carries out remote calls sees only the broker. So each reports there, once a second, all calls it has
at work, in one small message; the sweep reads them before it judges who is dead.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, Final

from celery import Celery
from kombu.utils.json import loads

from acts_celery.broker_config import Settings, reports_queue
from acts_celery.worker.errors import InfrastructureError, MalformedMessage

from .attempts import Attempt, Result, current_attempt
from .batching import Batcher, on_threads
from .broker import broker_failures, retry_while_unavailable
from .duties import Duty
from .limits import limits_of
from .messages import (
    LONGEST_WHY,
    Closing,
    Probe,
    Report,
    Sign,
    Unanswered,
    closing_of,
    pack_report,
    sign_of,
    unpack_report,
)
from .pulse import Pulse

logger = logging.getLogger(__name__)

_FAILURE: Final = "the broker takes or gives no reports"
_LONGEST_INTERVAL_SECONDS: Final = 1.0
_SIGN_OF_LIFE_SECONDS: Final = 600
"""A sign of life is of no use when it is that old: a broker that can drops it."""
_PAGE: Final = 100
"""How many reports are read at a time."""
_MOST_UNANSWERED: Final = 100
"""Of how many requests to models a report says that they were not answered; more are like these."""
_MOST_BYTES: Final = 32 * 1024
"""What a report may say of errors: more is said in another one."""


def report_interval_seconds(settings: Settings) -> float:
    """How often a process tells what it has at work."""
    return min(settings.lease_seconds / 3, _LONGEST_INTERVAL_SECONDS)


class Reports:
    """The reports' queue. May be used from any thread."""

    def __init__(self, app: Celery, settings: Settings) -> None:
        self._app = app
        self._queue = reports_queue(settings)
        self._limits = limits_of(settings)

    def send(self, report: Report) -> None:
        """Add a report. Raises `InfrastructureError`."""
        with broker_failures(_FAILURE), self._app.producer_or_acquire() as producer:
            producer.publish(
                pack_report(report),
                exchange="",
                routing_key=self._queue.name,
                content_type="application/msgpack",
                content_encoding="binary",
                # What is told of an end is told once.
                expiration=None if report.closed else _SIGN_OF_LIFE_SECONDS,
                retry=False,
            )

    def pages(self) -> Iterator[list[Report]]:
        """The reports that there are now, a page at a time. Raises `InfrastructureError`.

        A page is removed when the next one is asked for: what a reader had that died, another one reads.
        """
        with broker_failures(_FAILURE), self._app.connection_or_acquire() as connection:
            queue = self._queue(connection.default_channel)
            page_of = _peeked if connection.transport.driver_type == "redis" else _taken
            left = queue.queue_declare().message_count
            while left > 0:
                with page_of(queue, min(left, _PAGE)) as bodies:
                    yield [report for body in bodies if (report := self._read(body)) is not None]
                left = left - _PAGE if len(bodies) == min(left, _PAGE) else 0

    def _read(self, body: object) -> Report | None:
        try:
            return unpack_report(body, self._limits)
        except MalformedMessage as error:
            logger.error("a report is refused: %s", error)
            return None


@contextmanager
def _peeked(queue: Any, most: int) -> Iterator[list[object]]:
    """The oldest messages of a queue in Redis; they stay in it until the block has ended well.

    What is taken from there in the usual way would come back after the visibility timeout only, an hour.
    """
    channel = queue.channel
    with channel.conn_or_acquire() as client:
        key = f"{channel.global_keyprefix}{queue.name}"  # kombu prefixes neither LRANGE nor LREM
        found = client.lrange(key, -most, -1)[::-1]
        yield [_body(channel, item) for item in found]
        with client.pipeline(transaction=False) as pipeline:
            for item in found:
                pipeline.lrem(key, -1, item)
            pipeline.execute()


def _body(channel: Any, item: bytes) -> object:
    """The body of a message as it lies in Redis, or None: a stranger may have put it there."""
    try:
        return channel.Message(loads(item.decode()), channel=channel).body
    except Exception:
        return None


@contextmanager
def _taken(queue: Any, most: int) -> Iterator[list[object]]:
    """The oldest messages of a queue; acknowledged when the block has ended well, else the broker has them again."""
    messages = list(takewhile(lambda message: message is not None, (queue.get(no_ack=False) for _ in range(most))))
    try:
        yield [message.body for message in messages]
    except BaseException:
        for message in messages:
            message.requeue()
        raise
    for message in messages:
        message.ack()


class Reporter:
    """Speaks for the remote calls of one process."""

    def __init__(self, reports: Reports, *, interval_seconds: float, pulse: Pulse | None = None) -> None:
        self._reports = reports
        self._pulse = pulse
        self._at_work: set[Sign] = set()
        self._reported: set[Sign] = set()
        self._ended: list[Sign] = []
        self._unanswered: dict[Sign, tuple[Unanswered, float]] = {}
        """What is not reported yet of requests to models, each with the time of its next try."""
        self._lock = threading.Lock()
        self._duty = Duty(
            "reporting the calls at work",
            self.report,
            thread="acts-reports",
            interval_seconds=interval_seconds,
            passing=(InfrastructureError,),
        )
        self._telling = ThreadPoolExecutor(1, thread_name_prefix="acts-tell")
        self._begun = Batcher[Sign, None](on_threads(self._telling, self._tell_begun))
        self._closed = Batcher[Closing, None](on_threads(self._telling, self._tell_closed))
        self._probes = Batcher[Probe, None](on_threads(self._telling, self._tell_probes))

    def stop(self) -> None:
        """Report nothing any more."""
        self._duty.stop()
        self._telling.shutdown()

    @contextmanager
    def at_work(self, attempt: Attempt) -> Iterator[None]:
        """While the block lasts, it is at work here; then its result has been sent."""
        sign = sign_of(attempt)
        with self._lock:
            self._at_work.add(sign)
            if attempt.is_repeated:
                self._reported.add(sign)
            self._duty.start()
        try:
            yield
        except BaseException:
            self._leave(sign)
            raise
        if self._leave(sign):
            with self._lock:
                self._ended.append(sign)

    async def announce(self, attempt: Attempt) -> None:
        """Report a repeated attempt before it begins: a call that kills its worker at once would otherwise never be
        seen to begin, and be sent again for ever. Raises `InfrastructureError`.
        """
        if attempt.is_repeated:
            await self._begun.send(sign_of(attempt))

    async def came_out(self, probe: Probe) -> None:
        """Tell that a probe was taken from its queue. Raises `InfrastructureError`."""
        await self._probes.send(probe)

    async def close(self, attempt: Attempt, result: Result) -> None:
        """Tell what came of a fire-and-forget call; waits minutes for a broker that is away or full.

        Raises `InfrastructureError`.
        """
        await self._closed.send(closing_of(attempt, result))

    def unanswered(self, error: Exception, tries: int, wait_seconds: float) -> None:
        """Have the next report say that a model has not answered the current attempt, and is asked again."""
        attempt = current_attempt()
        if attempt is None:
            return
        sign = sign_of(attempt)
        told = Unanswered(sign, type(error).__name__, " ".join(str(error).split())[:LONGEST_WHY], tries, 0)
        with self._lock:
            if sign in self._at_work:
                self._unanswered[sign] = told, time.monotonic() + wait_seconds

    def report(self) -> None:
        """Report what is at work now and served by the loop, and what has ended since. Raises `InfrastructureError`."""
        blocked = self._pulse.blocked() if self._pulse is not None else None
        with self._lock:
            begun = tuple(self._at_work)
            if blocked is not None:
                blocking = sign_of(blocked.attempt) if blocked.attempt is not None else None
                begun = tuple(sign for sign in begun if sign == blocking)
            ended, self._ended = self._ended, []
            self._reported.update(begun)
            unanswered = [self._unanswered.pop(sign) for sign in begun if sign in self._unanswered][:_MOST_UNANSWERED]
        now = time.monotonic()
        told = (one._replace(wait_ms=int(max(again - now, 0) * 1000)) for one, again in unanswered)
        if begun or ended:
            self._reports.send(Report(begun, tuple(ended), unanswered=tuple(told)))

    def _tell_begun(self, signs: Sequence[Sign]) -> None:
        self._reports.send(Report(begun=tuple(signs)))

    def _tell_probes(self, probes: Sequence[Probe]) -> None:
        self._reports.send(Report(probes=tuple(probes)))

    def _tell_closed(self, closings: Sequence[Closing]) -> None:
        for part in _parts(closings):
            report = Report(closed=part)
            retry_while_unavailable(lambda: self._reports.send(report))  # noqa: B023  # called at once

    def _leave(self, sign: Sign) -> bool:
        """It is not at work here any more; says whether it had been reported."""
        with self._lock:
            self._at_work.discard(sign)
            self._unanswered.pop(sign, None)
            was_reported = sign in self._reported
            self._reported.discard(sign)
        return was_reported


def _parts(closings: Sequence[Closing]) -> Iterator[tuple[Closing, ...]]:
    """The same, as many at a time as a report may say."""
    part: list[Closing] = []
    free = _MOST_BYTES
    for closing in closings:
        size = sum(len(text.encode()) for text in closing.error or ())
        if part and free < size:
            yield tuple(part)
            part, free = [], _MOST_BYTES
        part.append(closing)
        free -= size
    yield tuple(part)
