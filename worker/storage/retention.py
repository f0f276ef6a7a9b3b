"""Retention: every key that a run may have, to be given its expiry, measured or deleted."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from redis import Redis
from redis.exceptions import RedisError

from acts_celery.worker.process.figures import figures

from .formats import FORMAT
from .keys import ENDED, Keys, active_runs, due_runs, ended_runs
from .run_list import RunList
from .scripts import Script

logger = logging.getLogger(__name__)


def expire_runs(redis: Redis, prefix: str, runs: Sequence[Keys], seconds: int) -> None:
    """Give every key of runs that are over its expiry, and list them no more among those under way.

    Calls may be added to one at the same time (SPEC R11.7): it is listed again then. However many they are, it takes
    the same few round trips. Raises `RedisError`.
    """
    script = Script(redis, "expire")
    with redis.pipeline(transaction=False) as pipeline:
        for keys in runs:
            script.add(pipeline, keys, {"seconds": seconds})
        answers = pipeline.execute()
    over = [keys for keys, answer in zip(runs, answers, strict=True) if script.read(answer)["is_over"]]
    if not over:
        return
    names = [keys.run for keys in over]
    listed: Any = redis.zmscore(active_runs(prefix), names)
    submitted = {name: at for name, at in zip(names, listed, strict=True) if at is not None}
    if submitted:
        RunList(redis, prefix).note_ended(submitted)  # first: each is in one of the lists at any time
    redis.zrem(active_runs(prefix), *names)
    redis.zrem(due_runs(prefix), *names)
    with redis.pipeline(transaction=False) as pipeline:
        for keys in over:
            pipeline.hget(keys.state, "status")
        statuses = pipeline.execute()
    for name, status in zip(names, statuses, strict=True):
        if name in submitted and status is not None and status.decode() in ENDED:
            figures().run_ended(status.decode())
    again = {
        name: submitted[name]
        for name, status in zip(names, statuses, strict=True)
        if name in submitted and status is not None and status.decode() not in ENDED
    }
    if again:
        redis.zadd(active_runs(prefix), again)


@dataclass(frozen=True, slots=True)
class Holding:
    """What a run holds, or held."""

    status: str | None
    """None where there is no such run."""
    bytes: int
    """That its keys take in the server's memory, as the server estimates it (`MEMORY USAGE`)."""
    outstanding: int
    """Calls that it has sent and not awaited, and that are not done."""
    is_deleted: bool

    @classmethod
    def read(cls, answer: dict[str, Any]) -> Self:
        """The answer of delete.lua."""
        return cls(answer.get("status"), answer["bytes"], answer["outstanding"], answer["is_deleted"])


def measure_runs(redis: Redis, runs: Sequence[Keys]) -> list[Holding]:
    """What runs hold. Raises `RedisError`."""
    return _ask(redis, runs, {"deletes": False})


def delete_runs(
    redis: Redis, prefix: str, runs: Sequence[Keys], *, keeps_outstanding: bool, foreign: bool = False
) -> list[Holding]:
    """Delete those of the runs that are over; with `keeps_outstanding` none with a call that was sent and forgotten and
    is not done, with `foreign` also those under way that are of a format that is not read. Raises `RedisError`, and
    then some may have been deleted.
    """
    request: dict[str, Any] = {"deletes": True, "keeps_outstanding": keeps_outstanding}
    found = _ask(redis, runs, request | ({"reads": FORMAT} if foreign else {}))
    gone = [keys.run for keys, held in zip(runs, found, strict=True) if held.is_deleted]
    if gone:
        for listed in (active_runs(prefix), due_runs(prefix), ended_runs(prefix)):
            redis.zrem(listed, *gone)
    return found


def _ask(redis: Redis, runs: Sequence[Keys], request: dict[str, Any]) -> list[Holding]:
    script = Script(redis, "delete")
    with redis.pipeline(transaction=False) as pipeline:
        for keys in runs:
            script.add(pipeline, keys, request)
        return [Holding.read(script.read(answer)) for answer in pipeline.execute()]


def discard_run(redis: Redis, keys: Keys) -> None:
    """Delete what there is of a run that was not written whole, as far as the server can be reached."""
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
