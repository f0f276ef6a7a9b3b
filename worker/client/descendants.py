"""The child runs below a run: which there are, and what in them waits for a person (SPEC R9.3, R14.1)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from redis import Redis

from acts_celery.worker.errors import NotHeld, RunNotFound
from acts_celery.worker.storage.child_links import PARENT, Parent
from acts_celery.worker.storage.held_calls import HeldCall, read_held
from acts_celery.worker.storage.keys import Keys


class Descendants:
    """The child runs that calls of a run wait for, and those below them. All of it raises `RedisError`."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys

    def held(self) -> Iterator[HeldCall]:
        """Their calls that wait for a person."""
        for keys in self._holding():
            with suppress(RunNotFound):  # it was deleted meanwhile
                yield from read_held(self._redis, keys)

    def count_held(self) -> int:
        """How many calls that is."""
        return sum(self._holding().values())

    def split(self, call: str | int) -> tuple[str | None, str | int]:
        """The child run that the id of a held call names, and the call's id there; None for a call of the run itself.

        Raises `NotHeld` where the run that is named is none of them.
        """
        run, slash, own = str(call).partition("/")
        if not slash or ":" in run:  # an instance may have a slash in its name
            return None, call
        above: str | None = run
        while above is not None and above != self._keys.run:
            field: Any = self._redis.hget(self._of(above).state, PARENT)
            parent = Parent.read(field)
            above = parent.call.run if parent is not None else None
        if above is None or run == self._keys.run:
            raise NotHeld(f"run {run} is no child run of {self._keys.run}: see `acts held` for what waits for a person")
        return run, own

    def _holding(self) -> dict[Keys, int]:
        """Those with calls that wait for a person, and how many; of one depth the older ones first."""
        found: dict[Keys, int] = {}
        level = [self._keys]
        while level:
            with self._redis.pipeline(transaction=False) as pipeline:
                for keys in level:
                    pipeline.smembers(keys.children)
                    pipeline.zcard(keys.held)
                answers: list[Any] = pipeline.execute()
            found |= {keys: held for keys, held in zip(level, answers[1::2], strict=True) if held}
            level = [self._of(run.decode()) for children in answers[::2] for run in sorted(children)]
        found.pop(self._keys, None)
        return found

    def _of(self, run: str) -> Keys:
        return Keys(self._keys.prefix, run)
