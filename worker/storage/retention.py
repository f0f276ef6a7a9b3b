"""Retention: every key that a run may have, to be given its expiry or deleted."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any, Final

from redis import Redis
from redis.exceptions import RedisError

from .keys import Keys, active_runs, due_runs

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 500


def expire_run(redis: Redis, keys: Keys, seconds: int) -> None:
    """Give every key of a run its expiry, and list it no more among those under way. Raises `RedisError`."""
    names = list(_names(redis, keys))
    for start in range(0, len(names), _AT_ONCE):
        with redis.pipeline(transaction=False) as pipeline:
            for name in names[start : start + _AT_ONCE]:
                pipeline.expire(name, seconds)
            pipeline.execute()
    _unlist(redis, keys)


def delete_run(redis: Redis, keys: Keys, *, instances: Iterable[str] = ()) -> None:
    """Delete what there is of a run, as far as the server can be reached; `instances` where they may not be written."""
    try:
        names = list(dict.fromkeys((*_names(redis, keys), *_lane_names(keys, instances))))
        for start in range(0, len(names), _AT_ONCE):
            redis.unlink(*names[start : start + _AT_ONCE])
        _unlist(redis, keys)
    except RedisError as error:
        logger.warning("run %s could not be deleted: %s", keys.run, error)


def _unlist(redis: Redis, keys: Keys) -> None:
    redis.zrem(active_runs(keys.prefix), keys.run)
    redis.zrem(due_runs(keys.prefix), keys.run)


def _names(redis: Redis, keys: Keys) -> Iterator[str]:
    """Every key that a run may have; the list of its instances comes last, as it is needed to find the others."""
    yield from (keys.definition, keys.state, keys.events, keys.leases, keys.parked, keys.published, keys.backlog)
    yield from (keys.outbox, keys.outbox_tasks, keys.outbox_due)
    instances: Any = redis.lrange(keys.instances, 0, -1)
    yield from _lane_names(keys, ["", *(instance.decode() for instance in instances)])
    yield keys.instances


def _lane_names(keys: Keys, lanes: Iterable[str]) -> Iterator[str]:
    for lane in lanes:
        yield keys.journal(lane)
        yield keys.ledger(lane)
