"""Progress: what happens in one run - a message, a call that ended, a change of the run's status - and waiting for it.

Nothing here polls: a caller that waits blocks on a stream of the run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from redis import Redis

from acts_celery.broker_config import Settings, is_cluster
from acts_celery.protocol.calls.elements import element_of
from acts_celery.protocol.engine.events import (
    CallDecided,
    CallEnded,
    CallHeld,
    ChildStarted,
    ElementEnded,
    FanOutBegun,
)
from acts_celery.protocol.engine.loop_events import Answered, Asked, LoopEnded, OutputGrew, TickClosed
from acts_celery.protocol.engine.statuses import Status
from acts_celery.worker.backoff import Backoff
from acts_celery.worker.errors import RunNotFound
from acts_celery.worker.storage.connections import PASSING, redis_errors
from acts_celery.worker.storage.entries import Entry, RunStatusChanged, read_entry
from acts_celery.worker.storage.keys import ENDED, Keys

from .streams import AT_ONCE, Found, Streams, read_streams

_BLOCK_MS: Final = 5_000
_BACKOFF: Final = Backoff(0.1, 2.0)
_FAILOVER_SECONDS: Final = 60
"""Sentinels replace a master that is silent for 30 seconds, unless they are told otherwise."""


EventKind = Literal["run", "call", "held", "decided", "each", "element", "child", "tick", "text"]


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened: a call ended (`kind` "call"), waits for a person ("held"), was decided on ("decided"; the
    status says how), begins to be carried out for so many `elements` ("each"), one of them ended ("element"), is to be
    answered by a `child` run ("child"), or the run's status changed ("run").

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
    child: str | None = None
    """The child run that answers the call."""
    run: str | None = None
    """Of an event in a child run, that run; its index, tick and id are those of that run."""
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
        return self.run is None and self.kind == "run" and self.status in ENDED


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
            for _ in self._after(self._streams(self._keys.statuses, newest.id), deadline, is_over=False):
                pass

    def entries(self, after: str, *, timeout_seconds: float | None = None) -> Iterator[Entry]:
        """The entries of the log behind an id, as they come, until the run has ended. Raises `TimeoutError`."""
        for _, entry in self._entries(self._streams(self._keys.log, after), timeout_seconds):
            yield entry

    def events(
        self, after: str, *, has_children: bool = False, timeout_seconds: float | None = None
    ) -> Iterator[Event]:
        """Every event behind an id, as it happens, until the run has ended; also those of child runs that begin behind
        it. Raises `TimeoutError`.
        """
        streams = self._streams(self._keys.log, after, has_children=has_children)
        for run, entry in self._entries(streams, timeout_seconds):
            if (event := event_of(entry, run)) is not None:
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

    def _streams(self, stream: str, after: str, *, has_children: bool = False) -> Streams:
        is_on_several = has_children and is_cluster(self._settings.require_redis())
        return Streams(self._keys, stream, after, has_children=has_children, is_cluster=is_on_several)

    def _entries(self, streams: Streams, timeout_seconds: float | None) -> Iterator[tuple[str | None, Entry]]:
        deadline, is_over = Deadline(self._run, timeout_seconds), self._newest().run_status in ENDED
        return self._after(streams, deadline, is_over=is_over)

    def _after(self, streams: Streams, deadline: Deadline, *, is_over: bool) -> Iterator[tuple[str | None, Entry]]:
        """The entries of streams, as they come, until the run has ended, each with the child run that it is of. What
        child runs have comes before the end. Raises `TimeoutError`.
        """
        end: Entry | None = None
        while not streams.is_over:
            found = self._wait(streams, deadline, blocks=not is_over)
            for run, entry in streams.take(found):
                is_end = run is None and entry.run_status in ENDED
                if is_end and (streams.may_be_last(entry) or entry.id == self._newest().id):
                    end, is_over = entry, True
                    streams.leave_own()
                    break
                yield run, entry
            if not found and (is_over or self._newest().run_status in ENDED):
                break
        if end is not None:
            yield None, end

    def _wait(self, streams: Streams, deadline: Deadline, *, blocks: bool) -> Found:
        """The next entries; none where none came for a while. A server that fails over is waited for."""
        pauses = deadline.pauses(self._settings)
        with redis_errors(self._settings):
            while True:
                block = deadline.block_ms() if blocks else None
                try:
                    for seen, block_ms in streams.readings(block):
                        if found := read_streams(self._redis.xread(seen, block=block_ms, count=AT_ONCE)):
                            return found
                    return []
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

    def pauses(self, settings: Settings) -> Iterator[float]:
        """How long to wait before each further try of a reading, in seconds, while a server may be failing over; an
        embedded one does not come back.
        """
        if settings.is_embedded:
            return
        gone = time.monotonic() + _FAILOVER_SECONDS
        if self._at is not None:
            gone = min(gone, self._at)
        for wait_seconds in _BACKOFF.waits():
            if (left := gone - time.monotonic()) <= 0:
                return
            yield min(wait_seconds, left)


def event_of(entry: Entry, run: str | None = None) -> Event | None:
    """The event that an entry of the log tells of, or of that of a child run."""
    event = _event_of(entry)
    return replace(event, run=run) if event is not None and run is not None else event


def _event_of(entry: Entry) -> Event | None:
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
        case ChildStarted() as event:
            return Event(id_, "child", Status.RUNNING.value, instance, event.call, child=event.run)
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
