"""Progress: what happens in one run - a message, a call that ended, a change of the run's status."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Literal, TypeVar, cast

from ...broker_config import Settings, is_spread
from ...protocol.calls.call import Call, call_of, element_of
from ...protocol.engine.events import CallProgressed
from ...protocol.engine.loop import Answered, LoopEnded, OutputGrew, RequestRecorded, TickClosed
from .. import limits
from ..backoff import Backoff
from ..errors import NotPossibleNow, RunNotFound, RunTimeout
from ..store.connections import PASSING, redis_errors
from ..store.entries import Entry, id_key
from ..store.keys import ENDED_STATUSES
from ..store.log import Found, Streams, newest_status
from ..store.run_store import RunStore
from ..store.state import RunState

# Reading what comes in a run until it has ended, for threads and event loops alike.
#
# Nothing here polls: a caller that waits blocks on a stream of the run.

T = TypeVar("T")

_BACKOFF: Final = Backoff(0.1, 2.0)
_BEGINNING: Final = "0-0"
"""The id behind which all of a log is."""


class Arrivals:
    """The entries that arrive in one run, read by a client for event loops, or one for threads: its coroutines then
    never wait for a loop. All of it raises `RunNotFound`, `InfrastructureError` and, when its time is over,
    `RunTimeout`.
    """

    def __init__(self, run: str, redis: Any, settings: Settings, *, blocks: bool = False) -> None:
        """`redis` is a client for event loops, or where this `blocks` one for threads; no type of redis-py is both."""
        self._run = run
        self._redis = redis
        self._settings = settings
        self._blocks = blocks

    async def end(self, deadline: Deadline) -> AsyncIterator[Entry]:
        """Yield the changes of the run's status that are still to come."""
        newest = await self._newest()
        if newest.run_status not in ENDED_STATUSES:
            streams = self._streams(newest.id, statuses=True)
            async for _, entry in self._after(streams, deadline, is_over=False):
                yield entry

    async def entries(
        self, after: str, deadline: Deadline, *, has_children: bool = False
    ) -> AsyncIterator[tuple[str | None, Entry]]:
        """Yield the entries of the log behind an id; with `has_children` also those of child runs that begin behind it,
        each with that run. What child runs have comes before the end. Raises `ValueError` for what is no id.
        """
        is_on_several = has_children and is_spread(self._settings.require_redis())
        streams = self._streams(after, has_children=has_children, is_spread=is_on_several)
        is_over = (await self._newest()).run_status in ENDED_STATUSES
        async for found in self._after(streams, deadline, is_over=is_over):
            yield found

    async def _after(
        self, streams: Streams, deadline: Deadline, *, is_over: bool
    ) -> AsyncIterator[tuple[str | None, Entry]]:
        end: Entry | None = None
        while not streams.is_over:
            found = await self._next(streams, deadline, blocks=not is_over)
            for run, entry in streams.take(found):
                is_end = run is None and entry.run_status in ENDED_STATUSES
                if is_end and (streams.may_be_last(entry) or entry.id == (await self._newest()).id):
                    end, is_over = entry, True
                    streams.leave_own()
                    break
                yield run, entry
            if not found and (is_over or (await self._newest()).run_status in ENDED_STATUSES):
                break
        if end is not None:
            yield None, end

    async def _next(self, streams: Streams, deadline: Deadline, *, blocks: bool) -> Found:
        """Read the next entries; none where none came for a while. A server that fails over is waited for."""
        pauses = deadline.pauses(self._settings)
        with redis_errors(self._settings):
            while True:
                try:
                    return await streams.read(deadline.block_ms() if blocks else None)
                except PASSING:
                    pause = next(pauses, None)
                    if pause is None:
                        raise
                    if self._blocks:
                        time.sleep(pause)  # noqa: ASYNC251  # no event loop waits for it
                    else:
                        await asyncio.sleep(pause)

    def _streams(self, after: str, **options: bool) -> Streams:
        return Streams(self._redis, self._settings.key_prefix, self._run, after, **options)

    async def _newest(self) -> Entry:
        """Read the last change of the run's status: there is one from the submission on, as long as the run is kept."""
        with redis_errors(self._settings):
            found = await newest_status(self._redis, self._settings.key_prefix, self._run)
        if found is None:
            raise RunNotFound(self._run)
        return found


def blocking(found: AsyncIterator[T]) -> Iterator[T]:
    """Iterate in a thread over what `Arrivals` reads by a client for threads."""
    while True:
        try:
            found.__anext__().__await__().__next__()
        except StopIteration as item:
            yield item.value
        except StopAsyncIteration:
            return


class Deadline:
    """A limit to waiting for the end of a run; None is no limit."""

    def __init__(self, run: str, timeout_seconds: float | None) -> None:
        self._run = run
        self._at = time.monotonic() + timeout_seconds if timeout_seconds is not None else None

    def block_ms(self) -> int:
        """Say how long one reading may block. Raises `RunTimeout`."""
        if self._at is None:
            return limits.PROGRESS_BLOCK_MS
        left = min(limits.PROGRESS_BLOCK_MS, (self._at - time.monotonic()) * 1000)
        if left < 1:
            raise RunTimeout(f"run {self._run} has not ended in time; it continues: see `acts status {self._run}`")
        return int(left)

    def pauses(self, settings: Settings) -> Iterator[float]:
        """How long to wait before each further try of a reading, in seconds, while a server may be failing over; an
        embedded one does not come back.
        """
        if settings.is_embedded:
            return
        gone = time.monotonic() + limits.FAILOVER_SECONDS
        if self._at is not None:
            gone = min(gone, self._at)
        for wait_seconds in _BACKOFF.waits():
            if (left := gone - time.monotonic()) <= 0:
                return
            yield min(wait_seconds, left)


EventKind = Literal["run", "call", "begun", "held", "decided", "each", "element", "child", "progress", "tick", "text"]


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened: a call ended (`kind` "call"), has "begun" (only where it runs at most once), waits for a
    person ("held"), was decided on ("decided"; the status says how), begins to run for so many `elements` ("each"), one
    of them ended ("element"), is to be answered by a `child` run ("child"), reports its "progress", or the run's
    status changed ("run").

    Of a loop also: a tick was "asked", "answered", or has "ended" (`kind` "tick"), and an output that is a text has
    come so far ("text"). Each event has an `id` of its own; they come in the order of their ids.
    """

    id: str
    kind: EventKind
    status: str
    instance: str | None = None
    index: int | None = None
    tool: str | None = None
    """The tool of the call that the event is about."""
    elements: int | None = None
    element: int | None = None
    child: str | None = None
    """The child run that answers the call."""
    run: str | None = None
    """The child run in which it happened, if any; index, tick and id are then the child run's."""
    tick: int | None = None
    """The tick of a loop that the event is about."""
    done: float | None = None
    """How much of `total` a call has done, as its code reports."""
    total: float | None = None
    text: str | None = None
    """The text of a report of progress; of a loop what has come of the output, which is `at` so many characters behind
    its beginning; what came before, up to there, stays. Where a † comes in it, what follows is known with the end of
    the tick alone.
    """
    at: int | None = None
    calls: int | None = None
    """How many calls the answer of a tick has."""
    model: str | None = None
    """The model that answered a tick."""
    usage: Mapping[str, Any] | None = None
    """The usage: `input`, `output`, `cached` tokens, as the provider says."""
    errors: int | None = None
    """How many errors a tick has had when it has ended; of an answer, what is invalid in it."""
    reason: str | None = None
    """Why the output of a tick was set aside."""
    output: Any = None
    """The output, with the end of the tick that brought it."""

    def to_dict(self) -> dict[str, Any]:
        """Write the event as JSON: what it says, without what is None."""
        said = ((one.name, getattr(self, one.name)) for one in fields(self))
        return {name: value for name, value in said if value is not None}

    @property
    def is_end(self) -> bool:
        """Whether the run has ended with it."""
        return self.run is None and self.kind == "run" and self.status in ENDED_STATUSES


class EventReader:
    """Makes the events of a run and its child runs, with the tools of their calls: an index means one tool in a run,
    which the definition says or the record of a lane. What reads raises `InfrastructureError`.
    """

    def __init__(self, store: RunStore, settings: Settings, after: str) -> None:
        """Take the id behind which the entries of the run are read."""
        self._store = store
        self._settings = settings
        self._after = after
        self._states: dict[str | None, RunState | None] = {}
        self._tools: dict[str | None, dict[int, str]] = {}
        self._laid_out: Mapping[int, Call] = {}
        """The calls of the last record, which most lanes of a plan share."""

    def of(self, entries: Iterable[tuple[str | None, Entry]]) -> Iterator[Event]:
        """Make the events of entries, each with its run; what is missing for them is read."""
        for run, entry in entries:
            if self.needs(run):
                self.prepare(run)
            if (event := self.read(entry, run)) is not None:
                yield event if self.is_complete(event) else self.complete(event)

    def needs(self, run: str | None) -> bool:
        """Say whether a run, None for the run itself, is to be `prepared` before its entries are read."""
        return run not in self._states

    def prepare(self, run: str | None) -> None:
        """Read the definition of a run. Where it is gone, or cannot be read, its events name no tools."""
        self._tools[run], self._states[run] = {}, None
        with redis_errors(self._settings), suppress(NotPossibleNow):
            definition = self._store_of(run).definition()
            self._states[run] = RunState(definition)
            self._tools[run] = {call.index: call.tool for calls in definition.versions for call in calls}
            if run is None and self._after != _BEGINNING:
                self._read_lane(run, None)

    def read(self, entry: Entry, run: str | None) -> Event | None:
        """Make the event of an entry, if it is one; the call of a lane that began before has no tool yet."""
        self._lay_out(entry, run)
        event = event_of(entry, run)
        if event is None or event.index is None:
            return event
        return replace(event, tool=self._tools[run].get(event.index) or None)

    def is_complete(self, event: Event) -> bool:
        """Say whether an event has the tool that it can have."""
        return event.index is None or self._states[event.run] is None or event.index in self._tools[event.run]

    def complete(self, event: Event) -> Event:
        """Add the tool of a call from the log of its lane."""
        assert event.index is not None
        with redis_errors(self._settings):
            self._read_lane(event.run, event.instance)
        return replace(event, tool=self._tools[event.run].setdefault(event.index, "") or None)

    def _read_lane(self, run: str | None, instance: str | None) -> None:
        for entry in self._store_of(run).lane(instance):
            self._lay_out(entry, run)

    def _lay_out(self, entry: Entry, run: str | None) -> None:
        """Take in the calls that an entry brings to a lane."""
        state = self._states[run]
        if state is None:
            return
        if entry.amendment is not None and id_key(entry.id) > id_key(state.amended):
            state.definition, state.amended = state.definition.amended(entry.amendment), entry.id
        if entry.record is not None:
            _, calls = state.read_record(entry.record, entry.instance)
            if calls is not self._laid_out:
                self._laid_out = calls
                self._tools[run] |= {index: call.tool for index, call in calls.items()}

    def _store_of(self, run: str | None) -> RunStore:
        return self._store if run is None else RunStore.open(self._store.redis, self._store.keys.prefix, run)


def event_of(entry: Entry, run: str | None = None) -> Event | None:
    """Make the event of an entry of the log, or None; `run` is the child run that it is of."""
    event = _event_of(entry)
    return replace(event, run=run) if event is not None and run is not None else event


def _event_of(entry: Entry) -> Event | None:
    if entry.tick is not None:
        return _loop_event(entry)
    if entry.run_status is not None:
        return Event(entry.id, "run", entry.run_status)
    if entry.kind is None:
        return None
    element, ruling = entry.element_end, entry.ruling if entry.end is None else None
    status = element.status if element is not None else ruling.verdict if ruling is not None else entry.status
    call = element.element if element is not None else entry.call
    reported = entry.event.progress.to_dict() if isinstance(entry.event, CallProgressed) else {}
    return Event(
        entry.id,
        cast(EventKind, entry.kind),
        str(status),
        entry.instance,
        call_of(call) if call is not None else None,
        elements=entry.elements or None,
        element=element_of(call) if call is not None else None,
        child=entry.child,
        **reported,
    )


def _loop_event(entry: Entry) -> Event | None:
    """Make the event of the first thing that an entry of a loop says, with the output if the loop has ended."""
    id_, tick = entry.id, entry.tick
    match entry.loop:
        case (RequestRecorded(), *_):
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
