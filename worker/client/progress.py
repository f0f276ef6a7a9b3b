"""Progress: the events of one run - a call that ended, a change of the run's status - and waiting for them.

Nothing here polls: who waits blocks on the run's progress stream.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from redis import Redis

from broker_config import Settings
from worker.errors import RunNotFound
from worker.storage.connections import redis_errors
from worker.storage.keys import ENDED, Keys

_AT_ONCE: Final = 500
_BLOCK_MS: Final = 5_000


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened: a call ended (`kind` "call"), or the run's status changed (`kind` "run")."""

    id: str
    kind: str
    status: str
    instance: str | None = None
    index: int | None = None
    messages: int = 0

    @property
    def is_end(self) -> bool:
        """Whether the run has ended with it; nothing comes behind."""
        return self.kind == "run" and self.status in ENDED


class Progress:
    """The progress stream of one run. All of it raises `RunNotFound` and `InfrastructureError`."""

    def __init__(self, run: str, redis: Redis, settings: Settings) -> None:
        self._run = run
        self._redis = redis
        self._settings = settings
        self._keys = Keys(settings.key_prefix, run)

    def newest(self) -> Event:
        """The last event; there is one from the submission on."""
        with redis_errors(self._settings):
            found: Any = self._redis.xrevrange(self._keys.events, count=1)
        if not found:
            raise RunNotFound(self._run)
        return _read_event(*found[0])

    def after(self, seen: str, *, timeout_seconds: float | None = None) -> Iterator[Event]:
        """Events behind an id, as they happen, until the run has ended. Raises `TimeoutError`."""
        deadline = time.monotonic() + timeout_seconds if timeout_seconds is not None else None
        while True:
            events = self._wait(seen, deadline)
            for event in events:
                yield event
                if event.is_end:
                    return
            if events:
                seen = events[-1].id
            elif self.newest().is_end:
                return

    def status_at(self, at: str) -> str:
        """The run's status as of an id, as its events tell it; before the first of them it is about to run."""
        until = at
        while found := self._before(until):
            for event in found:
                if event.kind == "run":
                    return event.status
            until = f"({found[-1].id}"
        return "running"

    def _before(self, until: str) -> list[Event]:
        """Events up to an id, the newest first."""
        found: Any = self._redis.xrevrange(self._keys.events, max=until, count=_AT_ONCE)
        return [_read_event(id_, fields) for id_, fields in found]

    def _wait(self, seen: str, deadline: float | None) -> list[Event]:
        """The next events behind an id; none after some seconds in which there were none."""
        block = _BLOCK_MS
        if deadline is not None:
            left = int((deadline - time.monotonic()) * 1000)
            if left <= 0:
                raise TimeoutError(f"run {self._run} has not ended in time; it goes on")
            block = min(block, left)
        with redis_errors(self._settings):
            found: Any = self._redis.xread({self._keys.events: seen}, block=block, count=_AT_ONCE)
        if not found:
            return []
        streams = found.items() if isinstance(found, dict) else found
        return [_read_event(id_, fields) for _, entries in streams for id_, fields in _flat(entries)]


def _flat(entries: Any) -> Any:
    """redis-py's RESP3 answer has one list more around the entries than its RESP2 answer."""
    return entries[0] if entries and isinstance(entries[0], list) else entries


def _read_event(id_: bytes, fields: Mapping[bytes, bytes]) -> Event:
    status = fields[b"s"].decode()
    if b"c" not in fields:
        return Event(id_.decode(), "run", status)
    instance = fields[b"l"].decode() or None
    return Event(id_.decode(), "call", status, instance, int(fields[b"c"]), int(fields[b"n"]))
