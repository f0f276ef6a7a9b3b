"""The runs of an owner: who has submitted, forked or imported them with a token.

A run's state says whose it is. The index of an owner only finds them: a run is in it before it is written down, and may
be in it when it is gone.
"""

from __future__ import annotations

from typing import Any, Final

from redis import Redis

from .child_links import PARENT, Parent
from .keys import Keys, active_runs, owned_children, owned_runs

OWNER: Final = "owner"
"""The field of the state. What was submitted without a token has none."""
_LOOKED_AFTER: Final = 20
_DEEPEST: Final = 100


def owner_of(redis: Redis, prefix: str, run: str) -> str | None:
    """The owner of a run; of a child run that of the run above it. None where there is none, or no such run. Raises
    `RedisError`.
    """
    for _ in range(_DEEPEST):
        fields: Any = redis.hmget(Keys(prefix, run).state, OWNER, PARENT)
        owner, parent = (field.decode() if field is not None else None for field in fields)
        if owner is not None or (above := Parent.read(parent)) is None:
            return owner
        run = above.call.run
    return None


def top_of(redis: Redis, prefix: str, run: str) -> str:
    """The run above a child run that nothing stands above; a run itself, where it is no child. Raises `RedisError`."""
    for _ in range(_DEEPEST):
        field: Any = redis.hget(Keys(prefix, run).state, PARENT)
        if (above := Parent.read(field)) is None:
            break
        run = above.call.run
    return run


def note_owned(redis: Redis, keys: Keys, owner: str, milliseconds: int) -> None:
    """Note a run that is about to be written down, and no longer the oldest ones that are kept no more. Raises
    `RedisError`.
    """
    _note(redis, owned_runs(keys.prefix, owner), keys, milliseconds)


def note_child(redis: Redis, keys: Keys, above: str, milliseconds: int) -> None:
    """Note a child run of a run, likewise, where that has an owner: its calls are the owner's. Raises `RedisError`."""
    if (owner := owner_of(redis, keys.prefix, above)) is not None:
        _note(redis, owned_children(keys.prefix, owner), keys, milliseconds)


def _note(redis: Redis, index: str, keys: Keys, milliseconds: int) -> None:
    with redis.pipeline(transaction=False) as pipeline:
        pipeline.zadd(index, {keys.run: milliseconds})
        pipeline.zrange(index, 0, _LOOKED_AFTER - 1)
        _, oldest = pipeline.execute()
    with redis.pipeline(transaction=False) as pipeline:
        for name in oldest:
            pipeline.exists(Keys(keys.prefix, name.decode()).state)
        found = pipeline.execute()
    absent = [name for name, is_there in zip(oldest, found, strict=True) if not is_there and name.decode() != keys.run]
    if absent:
        under_way: Any = redis.zmscore(active_runs(keys.prefix), absent)  # one may be about to be written down
        if gone := [name for name, since in zip(absent, under_way, strict=True) if since is None]:
            redis.zrem(index, *gone)
