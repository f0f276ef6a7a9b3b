"""Progress: what happens in one run - a message, a call that ended, a change of the run's status - and waiting for it.

Nothing here polls: a caller that waits blocks on a stream of the run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from redis import Redis

from acts_celery.broker_config import Settings
from acts_celery.protocol.calls.elements import element_of
from acts_celery.protocol.engine.events import CallDecided, CallEnded, CallHeld, ElementEnded, FanOutBegun
from acts_celery.protocol.engine.loop_events import Answered, Asked, LoopEnded, OutputGrew, TickClosed
from acts_celery.protocol.engine.statuses import Status
from acts_celery.worker.backoff import Backoff
from acts_celery.worker.errors import RunNotFound
from acts_celery.worker.storage.connections import PASSING, redis_errors
from acts_celery.worker.storage.entries import Entry, RunStatusChanged, read_entry
from acts_celery.worker.storage.keys import ENDED, Keys

AT_ONCE: Final = 200
_BLOCK_MS: Final = 5_000
_BACKOFF: Final = Backoff(0.1, 2.0)
_FAILOVER_SECONDS: Final = 60
"""Sentinels replace a master that is silent for 30 seconds, unless they are told otherwise."""


EventKind = Literal["run", "call", "held", "decided", "each", "element", "tick", "text"]


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened: a call ended (`kind` "call"), waits for a person ("held"), was decided on ("decided"; the
    status says how), begins to be carried out for so many `elements` ("each"), one of them ended ("element"), or the
    run's status changed ("run").

    Of a loop also: a tick was "asked", "answered", or has "ended" (`kind` "tick"), and an output that is a text has
    come so far ("text"). Each event has an `id` of its own; they come in the order of their ids.
    """

    id: str
    kind: EventKind
    status: str
    instance: str | None = None
    index: int | None = None
    elements: int | None = None
    element: int | None = None
    tick: int | None = None
    """Of a loop, where the event is about one."""
    text: str | None = None
    """What has come of the output, which stands `at` so many characters behind its beginning; what came before, up to
    there, stays. Where a † comes in it, what follows is known with the end of the tick alone.
    """
    at: int | None = None
    calls: int | None = None
    """How many calls the answer of a tick has."""
    model: str | None = None
    """What has answered a tick."""
    usage: Mapping[str, Any] | None = None
    """What that has cost: `input`, `output`, `cached` tokens, as the provider says."""
    errors: int | None = None
    """How many errors a tick has had when it has ended; of an answer, what is invalid in it."""
    reason: str | None = None
    """Why the output of a tick was set aside."""
    output: Any = None
    """The output, with the end of the tick that brought it."""

    @property
    def is_end(self) -> bool:
        """Whether the run has ended with it."""
        return self.kind == "run" and self.status in ENDED


class Progress:
    """The progress of one run. All of it raises `RunNotFound` and `InfrastructureError`."""

    def __init__(self, run: str, redis: Redis, settings: Settings) -> None:
        self._run = run
        self._redis = redis
        self._settings = settings
        self._keys = Keys(settings.key_prefix, run)

    def wait(self, deadline: Deadline) -> None:
        """Block until the run has ended. Raises `TimeoutError`."""
        newest = self._newest()
        if newest.run_status not in ENDED:
            for _ in self._after(self._keys.statuses, newest.id, deadline, is_over=False):
                pass

    def entries(self, after: str, *, timeout_seconds: float | None = None) -> Iterator[Entry]:
        """The entries of the log behind an id, as they come, until the run has ended. Raises `TimeoutError`."""
        deadline, is_over = Deadline(self._run, timeout_seconds), self._newest().run_status in ENDED
        yield from self._after(self._keys.log, after, deadline, is_over=is_over)

    def events(self, after: str, *, timeout_seconds: float | None = None) -> Iterator[Event]:
        """Every event behind an id, as it happens, until the run has ended. Raises `TimeoutError`."""
        for entry in self.entries(after, timeout_seconds=timeout_seconds):
            if (event := event_of(entry)) is not None:
                yield event

    def submitted(self) -> str:
        """The id with which the submission was complete."""
        return self._status(self._redis.xrange, min="-").id

    def status_at(self, at: str) -> str:
        """The run's status as of an id; within the submission it is about to run."""
        with redis_errors(self._settings):
            found: Any = self._redis.xrevrange(self._keys.statuses, max=at, count=1)
        return found[0][1][b"s"].decode() if found else "running"

    def _newest(self) -> Entry:
        """The last change of the run's status; there is one from the submission on."""
        return self._status(self._redis.xrevrange, max="+")

    def _status(self, read: Any, **bound: str) -> Entry:
        with redis_errors(self._settings):
            found = read(self._keys.statuses, **bound, count=1)
        if not found:
            raise RunNotFound(self._run)
        return read_entry(*found[0])

    def _after(self, stream: str, seen: str, deadline: Deadline, *, is_over: bool) -> Iterator[Entry]:
        """The entries of a stream behind an id, as they come, until the run has ended. Raises `TimeoutError`."""
        while True:
            found = self._wait(stream, seen, deadline, blocks=not is_over)
            for entry in found:
                yield entry
                if entry.run_status in ENDED and (is_newest(entry, found) or entry.id == self._newest().id):
                    return
            if found:
                seen = found[-1].id
            elif is_over or self._newest().run_status in ENDED:
                return

    def _wait(self, stream: str, seen: str, deadline: Deadline, *, blocks: bool) -> list[Entry]:
        """The next entries behind an id; none where none came for a while. A server that fails over is waited for."""
        pauses = deadline.pauses()
        with redis_errors(self._settings):
            while True:
                block = deadline.block_ms() if blocks else None
                try:
                    return read_stream(self._redis.xread({stream: seen}, block=block, count=AT_ONCE))
                except PASSING:
                    pause = next(pauses, None)
                    if pause is None:
                        raise
                    time.sleep(pause)


class Deadline:
    """How long to wait for the end of a run; without a time, for ever."""

    def __init__(self, run: str, timeout_seconds: float | None) -> None:
        self._run = run
        self._at = time.monotonic() + timeout_seconds if timeout_seconds is not None else None

    def block_ms(self) -> int:
        """How long one reading may block. Raises `TimeoutError`."""
        if self._at is None:
            return _BLOCK_MS
        left = int((self._at - time.monotonic()) * 1000)
        if left <= 0:
            raise TimeoutError(f"run {self._run} has not ended in time; it goes on")
        return min(_BLOCK_MS, left)

    def pauses(self) -> Iterator[float]:
        """How long to wait before each further try of a reading, in seconds, while a server may be failing over."""
        gone = time.monotonic() + _FAILOVER_SECONDS
        if self._at is not None:
            gone = min(gone, self._at)
        for wait_seconds in _BACKOFF.waits():
            if (left := gone - time.monotonic()) <= 0:
                return
            yield min(wait_seconds, left)


def event_of(entry: Entry) -> Event | None:
    """The event that an entry of the log tells of."""
    id_, instance = entry.id, entry.instance
    if entry.tick is not None:
        return _loop_event(entry)
    match entry.event:
        case RunStatusChanged() as event:
            return Event(id_, "run", event.status)
        case CallEnded() as event:
            return Event(id_, "call", event.status.value, instance, event.call)
        case CallHeld() as event:
            return Event(id_, "held", Status.HELD.value, instance, event.call)
        case CallDecided() as event:
            return Event(id_, "decided", event.ruling.verdict.value, instance, event.call)
        case FanOutBegun() as event:
            return Event(id_, "each", Status.RUNNING.value, instance, event.call, entry.elements)
        case ElementEnded() as event:
            element = element_of(event.element)
            return Event(id_, "element", event.status.value, instance, event.call, element=element)
    return None


def _loop_event(entry: Entry) -> Event | None:
    """The event of an entry of a loop: the first thing that it says, with the output where the loop has ended by it."""
    id_, tick = entry.id, entry.tick
    match entry.loop:
        case (Asked(), *_):
            return Event(id_, "tick", "asked", tick=tick)
        case (OutputGrew() as event, *_):
            return Event(id_, "text", "written", tick=tick, text=event.text, at=event.at)
        case (Answered() as event, *_):
            said, calls = event.message, len(event.message["solution"]["calls"])
            paid = {"model": said["model"], "usage": said["usage"]}
            return Event(id_, "tick", "answered", tick=tick, calls=calls, errors=len(event.errors), **paid)
        case (TickClosed() as event, *ends):
            output = next((end.output for end in ends if isinstance(end, LoopEnded)), None)
            why = event.set_aside
            return Event(id_, "tick", "ended", tick=tick, errors=event.errors, reason=why, output=output)
    return None


def is_newest(entry: Entry, page: Sequence[Entry]) -> bool:
    """Whether nothing stood behind an entry when its page was read, as far as the page tells."""
    return entry is page[-1] and len(page) < AT_ONCE


def read_stream(found: Any) -> list[Entry]:
    """The entries of one stream, from what `XREAD` answers."""
    if not found:
        return []
    streams = found.items() if isinstance(found, dict) else found
    return [read_entry(id_, fields) for _, entries in streams for id_, fields in _flat(entries)]


def _flat(entries: Any) -> Any:
    """redis-py's RESP3 answer has one list more around the entries than its RESP2 answer."""
    return entries[0] if entries and isinstance(entries[0], list) else entries
