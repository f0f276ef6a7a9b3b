"""The list of the runs: those under way and, for as long as they are kept, those that have ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import merge
from math import inf
from typing import Any, Final

from redis import Redis

from acts_celery.worker.batches import batches

from .formats import FORMAT
from .keys import Keys, active_runs, ended_runs, owned_runs
from .owned_runs import OWNER

_AT_ONCE: Final = 200
_LOOKED_AFTER: Final = 20

State = dict[str, str]
"""The fields of a run's state (see commit.lua)."""


class RunList:
    """The runs of a backend. All of it raises `RedisError`."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix

    def newest(self, owner: str | None = None, fields: Sequence[str] = ()) -> Iterator[tuple[str, State]]:
        """Every run and its state, or some `fields` of it, the newest first; of an `owner` its own."""
        asked = tuple(dict.fromkeys((*fields, OWNER, "status"))) if fields else ()
        for page in batches(self._ids(owner), _AT_ONCE):
            with self._redis.pipeline(transaction=False) as pipeline:
                for run in page:
                    key = Keys(self._prefix, run).state
                    pipeline.hmget(key, asked) if asked else pipeline.hgetall(key)
                states = pipeline.execute()
            if asked:
                names = [name.encode() for name in asked]
                states = [
                    {name: value for name, value in zip(names, values, strict=True) if value is not None}
                    for values in states
                ]
            for run, state in zip(page, states, strict=True):
                read = {key.decode(): value.decode("utf-8", "replace") for key, value in state.items()}
                if read and owner in (None, read.get(OWNER)):  # not one that is half written, or whose time is over
                    yield run, read

    def count_foreign(self) -> int:
        """How many runs under way are of a format that is not read."""
        found, names = 0, (name for name, _ in self._redis.zscan_iter(active_runs(self._prefix), count=_AT_ONCE))
        for page in batches(names, _AT_ONCE):
            with self._redis.pipeline(transaction=False) as pipeline:
                for name in page:
                    pipeline.hget(Keys(self._prefix, name.decode()).state, "format")
                found += sum(number is not None and int(number) != FORMAT for number in pipeline.execute())
        return found

    def note_ended(self, submitted: Mapping[str, float]) -> None:
        """List runs that have ended, and no longer the oldest ones that are kept no more."""
        key = ended_runs(self._prefix)
        with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.zadd(key, dict(submitted))
            pipeline.zrange(key, 0, _LOOKED_AFTER + len(submitted) - 1)
            _, oldest = pipeline.execute()
        with self._redis.pipeline(transaction=False) as pipeline:
            for name in oldest:
                pipeline.exists(Keys(self._prefix, name.decode()).state)
            kept = pipeline.execute()
        if gone := [name for name, is_kept in zip(oldest, kept, strict=True) if not is_kept]:
            self._redis.zrem(key, *gone)

    def _ids(self, owner: str | None) -> Iterator[str]:
        """The ids of both lists, by the time of submission; one that ends meanwhile may be in both. Of an owner
        those of its index.
        """
        seen = set[str]()
        both = (active_runs(self._prefix), ended_runs(self._prefix))
        keys = both if owner is None else (owned_runs(self._prefix, owner),)
        lists = (self._listed(key) for key in keys)
        for _, run in merge(*lists, key=lambda pair: -pair[0]):
            if run not in seen:
                seen.add(run)
                yield run

    def _listed(self, key: str) -> Iterator[tuple[float, str]]:
        """By time and id, not by position: some leave the list meanwhile."""
        last, passed = inf, set[str]()  # those of the last time
        while True:
            found: Any = self._redis.zrevrangebyscore(
                key, last, "-inf", start=0, num=len(passed) + _AT_ONCE, withscores=True
            )
            page = [pair for name, score in found if (pair := (score, name.decode()))[1] not in passed]
            if not page:
                return
            yield from page
            if page[-1][0] != last:
                last, passed = page[-1][0], set()
            passed |= {run for score, run in page if score == last}
