"""Progress: what happens in one run - a message, a call that ended, a change of the run's status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from redis import Redis

from acts_celery.broker_config import Settings
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
from acts_celery.worker.errors import RunNotFound
from acts_celery.worker.storage.connections import redis_errors
from acts_celery.worker.storage.entries import Entry, RunStatusChanged, read_entry
from acts_celery.worker.storage.keys import ENDED, Keys

from .streams import Arrivals, Blocking, Deadline, blocking

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
        self._arrivals = Arrivals(run, Blocking(redis), settings, sleep=Blocking.sleep)

    def wait(self, deadline: Deadline) -> None:
        """Block until the run has ended. Raises `TimeoutError`."""
        for _ in blocking(self._arrivals.end(deadline)):
            pass

    def entries(self, after: str) -> Iterator[Entry]:
        """The entries of the log behind an id, as they come, until the run has ended."""
        for _, entry in blocking(self._arrivals.entries(after, Deadline(self._run, None))):
            yield entry

    def events(
        self, after: str, *, has_children: bool = False, timeout_seconds: float | None = None
    ) -> Iterator[Event]:
        """Every event behind an id, as it happens, until the run has ended; also those of child runs that begin behind
        it. Raises `TimeoutError`.
        """
        deadline = Deadline(self._run, timeout_seconds)
        for run, entry in blocking(self._arrivals.entries(after, deadline, has_children=has_children)):
            if (event := event_of(entry, run)) is not None:
                yield event

    def submitted(self) -> str:
        """The id with which the submission was complete."""
        with redis_errors(self._settings):
            found: Any = self._redis.xrange(self._keys.statuses, count=1)
        if not found:
            raise RunNotFound(self._run)
        return read_entry(*found[0]).id

    def status_at(self, at: str) -> str:
        """The run's status as of an id; within the submission it is about to run."""
        with redis_errors(self._settings):
            found: Any = self._redis.xrevrange(self._keys.statuses, max=at, count=1)
        return found[0][1][b"s"].decode() if found else "running"


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
