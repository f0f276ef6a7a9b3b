"""Retention: every key that a run may have, to be given its expiry or deleted."""

from __future__ import annotations

import logging
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from .keys import ENDED, Keys, active_runs, due_runs, ended_runs
from .run_list import RunList
from .scripts import Script

logger = logging.getLogger(__name__)


def expire_run(redis: Redis, keys: Keys, seconds: int) -> None:
    """Give every key of a run that is over its expiry, and list it no more among those under way.

    Calls may be added to it at the same time (SPEC R11.7): it is listed again then. Raises `RedisError`.
    """
    script = Script(redis, "run", "expire")
    if not script(keys=[keys.state, *keys.all], args=[seconds]):
        return
    submitted: Any = redis.zscore(active_runs(keys.prefix), keys.run)
    if submitted is not None:
        RunList(redis, keys.prefix).note_ended(keys.run, submitted)  # first: it is in one of the lists at any time
    unlist(redis, keys)
    status: Any = redis.hget(keys.state, "status")
    if submitted is not None and status is not None and status.decode() not in ENDED:
        redis.zadd(active_runs(keys.prefix), {keys.run: submitted})


def delete_run(redis: Redis, keys: Keys) -> None:
    """Delete what there is of a run, as far as the server can be reached."""
    try:
        redis.unlink(*keys.all)
        unlist(redis, keys)
        redis.zrem(ended_runs(keys.prefix), keys.run)
    except RedisError as error:
        logger.warning("run %s could not be deleted: %s", keys.run, error)


def unlist(redis: Redis, keys: Keys) -> None:
    """Take a run from the lists of those under way. Raises `RedisError`."""
    redis.zrem(active_runs(keys.prefix), keys.run)
    redis.zrem(due_runs(keys.prefix), keys.run)
