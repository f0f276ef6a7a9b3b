"""Probes: messages that prove, when they come out of a queue, that what was published there before was taken.

So what the broker has lost is found also where a queue never runs empty. A worker that takes a probe tells so in a
report, with the probe's token: who never had the probe cannot say so. It proves nothing about what workers do with what
they have taken: they speak for that themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from redis import Redis

from acts_celery.worker.broker.publisher import Publisher
from acts_celery.worker.errors import QueueRefused
from acts_celery.worker.process.refusals import count_refusal
from acts_celery.worker.storage.clock import server_ms
from acts_celery.worker.storage.keys import probes
from acts_celery.worker.storage.secret import read_tokens
from acts_celery.worker.storage.set_aside import readable
from acts_celery.worker.wire.reports import Probe, probe_task

logger = logging.getLogger(__name__)

_LATE_MS: Final = 2_000
"""A probe that has not come out for so long may be lost, and another is sent; the wait doubles."""

_AHEAD_MS: Final = 10_000
"""The clocks of a cluster's nodes may differ by so much."""


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
            if not asked or now - sent >= max(_LATE_MS, sent - asked):
                self._write(queue, _Known(consumed_until, asked or now, now))
                try:
                    self._publisher.publish([probe_task(Probe(queue, now, tokens.of_probe(queue, now)))])
                except QueueRefused as error:
                    logger.error("no probe can be sent: %s", error)

    def _read(self) -> dict[str, _Known]:
        """What is known of each queue. What was noted before the clock was set back says nothing of what came since."""
        found: Any = self._redis.hgetall(self._key)
        latest = server_ms(self._redis) + _AHEAD_MS if found else 0

        def read(queue: bytes) -> tuple[str, _Known]:
            known = _Known(*map(int, found[queue].split(b":")))
            return queue.decode(), known if max(known) <= latest else _Known()

        return dict(readable(self._key, found, read, lambda queue: self._redis.hdel(self._key, queue)))

    def _write(self, queue: str, known: _Known) -> None:
        self._redis.hset(self._key, queue, ":".join(map(str, known)))
