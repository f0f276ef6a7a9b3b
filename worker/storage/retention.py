"""Retention: every key that a run may have, to be given its expiry or deleted."""

from __future__ import annotations

import logging

from redis import Redis
from redis.exceptions import RedisError

from .keys import Keys, active_runs, due_runs

logger = logging.getLogger(__name__)


def expire_run(redis: Redis, keys: Keys, seconds: int) -> None:
    """Give every key of a run its expiry, and list it no more among those under way. Raises `RedisError`."""
    with redis.pipeline(transaction=False) as pipeline:
        for name in keys.all:
            pipeline.expire(name, seconds)
        pipeline.execute()
    _unlist(redis, keys)


def delete_run(redis: Redis, keys: Keys) -> None:
    """Delete what there is of a run, as far as the server can be reached."""
    try:
        redis.unlink(*keys.all)
        _unlist(redis, keys)
    except RedisError as error:
        logger.warning("run %s could not be deleted: %s", keys.run, error)


def _unlist(redis: Redis, keys: Keys) -> None:
    redis.zrem(active_runs(keys.prefix), keys.run)
    redis.zrem(due_runs(keys.prefix), keys.run)
