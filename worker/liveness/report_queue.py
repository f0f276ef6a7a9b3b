"""The queue of reports: any process adds to it, the sweep reads it a page at a time."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, Final

from celery import Celery
from kombu.utils.json import loads

from acts_celery.broker_config import Settings, reports_queue
from acts_celery.worker.broker.failures import broker_failures
from acts_celery.worker.errors import MalformedMessage
from acts_celery.worker.process.limits import limits_of
from acts_celery.worker.wire.reports import Report, pack_report, unpack_report

logger = logging.getLogger(__name__)

_FAILURE: Final = "the broker takes or gives no reports"
_OUTDATED_SECONDS: Final = 600
"""A report of calls at work is of no use when it is that old: a broker that can drops it."""
_PAGE: Final = 100
"""How many reports are read at a time."""


class ReportQueue:
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
                expiration=None if report.completed else _OUTDATED_SECONDS,  # a completion is reported once
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
