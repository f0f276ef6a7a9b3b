"""Progress: what happens in one run - a message, a call that ended, a change of the run's status."""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeVar, cast

from redis import Redis

from ...broker_config import Settings, is_cluster
from ...protocol.calls.call import element_of
from ...protocol.engine.loop import Answered, LoopEnded, OutputGrew, RequestRecorded, TickClosed
from .. import limits
from ..backoff import Backoff
from ..errors import RunNotFound
from ..store.connections import PASSING, redis_errors
from ..store.entries import Entry, read_entry
from ..store.keys import ENDED_STATUSES, Keys

# What comes in a run: the streams that are read, of the run and, where that is wanted, of the child runs below it; and
# reading them as it comes, until the run has ended, for threads and event loops alike.
#
# Nothing here polls: a caller that waits blocks on a stream of the run. On a cluster the streams of several runs lie on
# several nodes: those of child runs are looked at twice a second there.

T = TypeVar("T")

_ID: Final = re.compile(r"\d{1,19}(-\d{1,19})?\Z", re.ASCII)
_BACKOFF: Final = Backoff(0.1, 2.0)

Found = Sequence[tuple[str, Sequence[Entry]]]
"""The entries that were read, by their streams."""


class Streams:
    """One stream of a run and how far it was read; with the logs of child runs as soon as it tells of them."""

    def __init__(
        self, keys: Keys, stream: str, after: str, *, has_children: bool = False, is_cluster: bool = False
    ) -> None:
        if not _ID.match(after):
            raise ValueError(f"{after!r} is no id of an event, such as 1763683200000-0")
        self.has_children = has_children
        self._keys = keys
        self._own = stream
        self._is_cluster = is_cluster
        self._seen = {stream: after}
        self._runs: dict[str, str] = {}
        """The child runs, by their logs."""
        self._later: deque[str] = deque()
        """The logs of those that are read when others have ended."""
        self._last: str | None = None
        """The last entry of the run's own stream, where there was none behind it when it was read."""

    def readings(self, block_ms: int | None) -> Iterator[tuple[dict[Any, Any], int | None]]:
        """What is read, one after the other until there is something: streams with the last ids that were seen, and
        for how long that may block.
        """
        if not self._runs or not self._is_cluster:
            yield dict(self._seen), block_ms
            return
        yield from (({stream: seen}, None) for stream, seen in self._seen.items())
        if block_ms is not None:
            yield {self._own: self._seen[self._own]}, min(block_ms, limits.LOOK_MS)

    def take(self, found: Found) -> Iterator[tuple[str | None, Entry]]:
        """The entries that were read, each with the child run that it is of."""
        for stream, entries in found:
            if stream == self._own:
                self._last = entries[-1].id if len(entries) < limits.PROGRESS_AT_ONCE else None
            for entry in entries:
                self._seen[stream] = entry.id
                if self.has_children and entry.child is not None:
                    log = Keys(self._keys.prefix, entry.child).log
                    self._runs[log] = entry.child
                    self._later.append(log)
                yield self._runs.get(stream), entry
                if stream in self._runs and entry.run_status in ENDED_STATUSES:
                    self._seen.pop(stream)
                    break
        self._read_more()

    def may_be_last(self, entry: Entry) -> bool:
        """Whether nothing stood behind an entry of the run's own when it was read."""
        return entry.id == self._last

    def leave_own(self) -> None:
        """From now on read child runs alone."""
        self._seen.pop(self._own)
        self._read_more()

    def _read_more(self) -> None:
        while self._later and len(self._seen) < limits.CLIENT_PROGRESS_MOST:
            self._seen.setdefault(self._later.popleft(), "0-0")

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to be read."""
        return not self._seen


class Arrivals:
    """What comes in one run. All of it raises `RunNotFound`, `InfrastructureError` and, when its time is over,
    `TimeoutError`.
    """

    def __init__(
        self, run: str, redis: Any, settings: Settings, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        """`redis` is a client for event loops, or `Blocking`; redis-py has no type that says so."""
        self._run = run
        self._redis = redis
        self._settings = settings
        self._keys = Keys(settings.key_prefix, run)
        self._sleep = sleep

    async def end(self, deadline: Deadline) -> AsyncIterator[Entry]:
        """The changes of the run's status that are still to come."""
        newest = await self._newest()
        if newest.run_status not in ENDED_STATUSES:
            async for _, entry in self._after(self._streams(self._keys.statuses, newest.id), deadline, is_over=False):
                yield entry

    async def entries(
        self, after: str, deadline: Deadline, *, has_children: bool = False
    ) -> AsyncIterator[tuple[str | None, Entry]]:
        """The entries of the log behind an id; with the child runs that begin behind it, each with that which it is of.
        What child runs have comes before the end. Raises `ValueError` for what is no id.
        """
        streams = self._streams(self._keys.log, after, has_children=has_children)
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
        """The next entries; none where none came for a while. A server that fails over is waited for."""
        pauses = deadline.pauses(self._settings)
        with redis_errors(self._settings):
            while True:
                block = deadline.block_ms() if blocks else None
                try:
                    for seen, block_ms in streams.readings(block):
                        if found := read_streams(
                            await self._redis.xread(seen, block=block_ms, count=limits.PROGRESS_AT_ONCE)
                        ):
                            return found
                    return []
                except PASSING:
                    pause = next(pauses, None)
                    if pause is None:
                        raise
                    await self._sleep(pause)

    async def _newest(self) -> Entry:
        """The last change of the run's status; there is one from the submission on, as long as the run is kept."""
        with redis_errors(self._settings):
            found = await self._redis.xrevrange(self._keys.statuses, count=1)
        if not found:
            raise RunNotFound(self._run)
        return read_entry(*found[0])

    def _streams(self, stream: str, after: str, *, has_children: bool = False) -> Streams:
        is_on_several = has_children and is_cluster(self._settings.require_redis())
        return Streams(self._keys, stream, after, has_children=has_children, is_cluster=is_on_several)


class Blocking:
    """A client for threads in the place of one for event loops: its coroutines block, and never wait for a loop."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def xread(self, *arguments: Any, **options: Any) -> Any:
        """As the client's."""
        return self._redis.xread(*arguments, **options)

    async def xrevrange(self, *arguments: Any, **options: Any) -> Any:
        """As the client's."""
        return self._redis.xrevrange(*arguments, **options)

    @staticmethod
    async def sleep(seconds: float) -> None:
        """Let time go by."""
        time.sleep(seconds)  # noqa: ASYNC251  # no event loop waits for it


def blocking(found: AsyncIterator[T]) -> Iterator[T]:
    """The same for a thread, of what is read by `Blocking`."""
    while True:
        try:
            found.__anext__().__await__().__next__()
        except StopIteration as item:
            yield item.value
        except StopAsyncIteration:
            return


class Deadline:
    """How long to wait for the end of a run; without a time, for ever."""

    def __init__(self, run: str, timeout_seconds: float | None) -> None:
        self._run = run
        self._at = time.monotonic() + timeout_seconds if timeout_seconds is not None else None

    def block_ms(self) -> int:
        """How long one reading may block. Raises `TimeoutError`."""
        if self._at is None:
            return limits.PROGRESS_BLOCK_MS
        left = int((self._at - time.monotonic()) * 1000)
        if left <= 0:
            raise TimeoutError(f"run {self._run} has not ended in time; it goes on")
        return min(limits.PROGRESS_BLOCK_MS, left)

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


def read_streams(found: Any) -> Found:
    """What `XREAD` answers."""
    if not found:
        return []
    streams = found.items() if isinstance(found, dict) else found
    return [(name.decode(), [read_entry(*entry) for entry in _flat(entries)]) for name, entries in streams]


def _flat(entries: Any) -> Any:
    """redis-py's RESP3 answer has one list more around the entries than its RESP2 answer."""
    return entries[0] if entries and isinstance(entries[0], list) else entries


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
        return self.run is None and self.kind == "run" and self.status in ENDED_STATUSES


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
    if entry.tick is not None:
        return _loop_event(entry)
    if entry.run_status is not None:
        return Event(entry.id, "run", entry.run_status)
    if entry.kind is None:
        return None
    element, ruling = entry.element_end, entry.ruling if entry.end is None else None
    status = element.status if element is not None else ruling.verdict if ruling is not None else entry.status
    return Event(
        entry.id,
        cast(EventKind, entry.kind),
        str(status),
        entry.instance,
        entry.call,
        elements=entry.elements or None,
        element=element_of(element.element) if element is not None else None,
        child=entry.child,
    )


def _loop_event(entry: Entry) -> Event | None:
    """The event of an entry of a loop: the first thing that it says, with the output where the loop has ended by it."""
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
