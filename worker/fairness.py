"""Fair scheduling: no run keeps the event loop of a process to itself.

Whatever a lane does between two waits holds the loop: validation, resolving, packing. Here each such step is timed. The
lanes of a run whose turn is over wait until the loop has gone round; where another run has done something lately, they
wait for as long as they have worked. So others wait for a step or two of a run, however many lanes it has, and a run
that is alone loses nothing. A lane that has begun a call goes on before one that has not: it holds the call's input.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Hashable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from types import coroutine
from typing import Any, Generic, NamedTuple, TypeVar

from . import limits

T = TypeVar("T")


@dataclass(slots=True)
class _Turn:
    """The turn of one run."""

    began: float = 0.0
    used: float = 0.0
    is_over: bool = False
    begun: deque[asyncio.Future[None]] = field(default_factory=deque)
    """Lanes that wait and have begun a call."""
    new: deque[asyncio.Future[None]] = field(default_factory=deque)
    """Lanes that wait and have begun none."""
    lanes: int = 0

    def let_in(self, most: int) -> None:
        """Let lanes go on that wait."""
        while most and (line := self.begun or self.new):
            waiter = line.popleft()
            if not waiter.done():
                waiter.set_result(None)
                most -= 1


class FairScheduling:
    """The turns of all runs that a process has at work."""

    def __init__(self) -> None:
        self._turns: dict[str, _Turn] = {}
        self._last: _Turn | None = None
        """The turn of the run that worked last."""
        self._when = 0.0
        """When a run worked last."""
        self._other = 0.0
        """When another run than the last one worked last."""
        self._has_begun = False
        """Whether the step under way has begun a call."""

    async def take(self, run: str, work: Coroutine[Any, Any, T], *, is_new: bool = True) -> T:
        """Run a coroutine that works for a run in that run's turns; one that is not new runs a call that has begun."""
        turn = self._turns.get(run)
        if turn is None:
            turn = self._turns[run] = _Turn()
        turn.lanes += 1
        try:
            return await self._taken(turn, work, is_new)
        finally:
            turn.lanes -= 1
            if not turn.lanes:
                del self._turns[run]

    def begin(self) -> None:
        """Note that the step under way has begun a call: its lane now goes before those that have not."""
        self._has_begun = True

    @coroutine
    def _taken(self, turn: _Turn, work: Coroutine[Any, Any, T], is_new: bool) -> Generator[Any, Any, T]:
        """Drive a coroutine step by step; in between its run's turn may be over.

        What costs a microsecond here costs several for each call.
        """
        error: BaseException | None = None
        send = work.send
        while True:
            if turn.is_over or turn.begun or (is_new and turn.new):
                try:
                    yield from self._wait(turn, turn.new if is_new else turn.begun)
                except BaseException as raised:
                    error = raised
            began = monotonic()
            self._has_begun = False
            try:
                awaited = send(None) if error is None else work.throw(error)
            except StopIteration as end:
                self._worked(turn, began)
                value: T = end.value
                return value
            except BaseException:
                self._worked(turn, began)
                raise
            self._worked(turn, began)
            is_new = is_new and not self._has_begun
            error = None
            try:
                yield awaited
            except BaseException as raised:  # it is the coroutine's to deal with, its cancellation too
                error = raised

    def _wait(self, turn: _Turn, line: deque[asyncio.Future[None]]) -> Generator[Any, Any, None]:
        """Stand in line until the turn has begun and those before have gone on."""
        while True:
            waiter = asyncio.get_running_loop().create_future()
            line.append(waiter)
            yield from waiter
            if not turn.is_over:
                return

    def _worked(self, turn: _Turn, began: float) -> None:
        """Note a step."""
        ended = monotonic()
        if self._last is not turn:
            self._other = self._when
            self._last = turn
        self._when = ended
        turn.used += ended - began
        if turn.used > limits.TURN_SECONDS:
            self._use_up(turn, ended)
        if not turn.is_over:
            turn.let_in(1)

    def _use_up(self, turn: _Turn, ended: float) -> None:
        # In the turn itself no other had a chance to work.
        is_alone = (turn.began or ended) - self._other > limits.LATELY_SECONDS
        if not turn.is_over and turn.used > (limits.TURN_ALONE_SECONDS if is_alone else limits.TURN_SECONDS):
            turn.is_over = True
            asyncio.get_running_loop().call_later(0 if is_alone else turn.used, self._begin, turn)

    def _begin(self, turn: _Turn) -> None:
        turn.is_over = False
        turn.used = 0.0
        turn.began = monotonic()
        turn.let_in(limits.LANES_AT_A_TURN)


# Places that are shared fairly among keys, such as runs: none takes the last ones, and they are served in turn.
#
# A key that is alone may hold eight ninths of the places, less where others hold some, so who comes finds places free.


def may_hold_another(own: int, held: int, most: int) -> bool:
    """Whether a key that has `own` of the `held` places may have one more; there are `most`."""
    free = most - held
    return free > 0 and (own == 0 or most < limits.FEW_PLACES or own < limits.SHARE_OF_FREE_PLACES * (free - 1))


class FairPlaces(Generic[T]):
    """The places that keys hold, and what waits for one. `most` is how many places there are."""

    def __init__(self, most: Callable[[], int]) -> None:
        self._most = most
        self._held = Counter[str]()
        self._held_in_all = 0
        self._waiting: OrderedDict[str, OrderedDict[Hashable, T]] = OrderedDict()
        """The items that wait, by key and in the order in which they came."""

    def take(self, key: str) -> bool:
        """Take a place for a key, where it may have another one and nobody waits for that."""
        return key not in self._waiting and self._take(key)

    def give_back(self, key: str) -> None:
        """Give a place back; `next` hands it on."""
        self._held_in_all -= 1
        self._held[key] -= 1
        if not self._held[key]:
            del self._held[key]

    def wait(self, key: str, name: Hashable, waiter: T) -> None:
        """Have a waiter wait behind the others of its key."""
        self._waiting.setdefault(key, OrderedDict())[name] = waiter

    def is_waiting(self, key: str, name: Hashable) -> bool:
        """Whether a waiter of that name waits already."""
        return name in self._waiting.get(key, ())

    def next(self) -> tuple[str, T] | None:
        """Give a place to the next waiter that may have it; returns its key and the waiter."""
        for key, line in self._waiting.items():
            if self._take(key):
                _, waiter = line.popitem(last=False)
                self._waiting.move_to_end(key)
                if not line:
                    del self._waiting[key]
                return key, waiter
        return None

    def first_of_each(self) -> Iterator[T]:
        """The item that has waited longest, for each key."""
        return (next(iter(line.values())) for line in self._waiting.values())

    def count_waiting(self) -> int:
        """Count what waits."""
        return sum(map(len, self._waiting.values()))

    def empty(self) -> list[tuple[str, T]]:
        """Remove all waiters; returns each with its key."""
        kept = [(key, waiter) for key, line in self._waiting.items() for waiter in line.values()]
        self._waiting.clear()
        return kept

    def _take(self, key: str) -> bool:
        may = may_hold_another(self._held[key], self._held_in_all, self._most())
        if may:
            self._held[key] += 1
            self._held_in_all += 1
        return may


class FairSemaphore:
    """A semaphore of one event loop, shared fairly among keys."""

    def __init__(self, most: int) -> None:
        self._places = FairPlaces[asyncio.Future[None]](lambda: most)

    @asynccontextmanager
    async def one(self, key: str) -> AsyncIterator[None]:
        """Hold a place for a key; wait for one."""
        if not self._places.take(key):
            await self._wait(key)
        try:
            yield
        finally:
            self._give_back(key)

    async def _wait(self, key: str) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._places.wait(key, waiter, waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                self._give_back(key)
            raise

    def _give_back(self, key: str) -> None:
        self._places.give_back(key)
        while (served := self._places.next()) is not None:
            served_key, waiter = served
            if waiter.cancelled():
                self._places.give_back(served_key)
            else:
                waiter.set_result(None)


# Lane admission: lanes of one run leave places of a worker for those of others, also in the queue.
#
# A queue is first in, first out, and a run has up to `ACTS_PUBLISH_WINDOW` lanes in it. Where their calls are long,
# they would take every place of a worker, and everything behind them would wait for their end. So a lane beyond its
# run's share is put aside in this process' memory until a place is given back; after a while the worker takes what is
# behind it in the queue. A lane that is put aside is published and not begun: if the process dies, the sweep finds it
# like any other.


Begin = Callable[[Callable[[], None]], object]
"""Begins a lane, and calls what it is given once the lane has ended."""


class _Aside(NamedTuple):
    """A lane that yields, since when, and what begins it."""

    lane: str | None
    since: float
    begin: Begin


class LaneAdmission:
    """The lanes that a worker has begun, by run, and those that it has put aside. `most` is the number of places."""

    def __init__(self, most: Callable[[], int], later: Callable[[float, Callable[[], None]], object]) -> None:
        self._later = later
        self._places = FairPlaces[_Aside](most)

    @property
    def is_closed(self) -> bool:
        """Whether to take nothing more: a lane that was put aside may begin soon, or too many were."""
        now = monotonic()
        may_begin_soon = any(now - lane.since < limits.STUCK_SECONDS for lane in self._places.first_of_each())
        return may_begin_soon or self._places.count_waiting() >= limits.LANES_ASIDE

    def take(self, run: str, lane: str | None, begin: Begin, drop: Callable[[], object]) -> None:
        """Begin a lane, or put it aside; one that was put aside already is dropped.

        Lanes that were put aside come first: a timer for them is lost with a connection to the broker.
        """
        self._serve()
        if self._places.take(run):
            self._begin(run, begin)
        elif self._places.is_waiting(run, lane):
            drop()
        else:
            self._places.wait(run, lane, _Aside(lane, monotonic(), begin))
            self._later(limits.STUCK_SECONDS, _nothing)  # the consumer looks again then

    def leave(self) -> list[tuple[str, str | None]]:
        """Remove the lanes that were put aside; returns each with its run."""
        return [(run, lane.lane) for run, lane in self._places.empty()]

    def _begin(self, run: str, begin: Begin) -> None:
        begin(partial(self._give_back, run))

    def _give_back(self, run: str) -> None:
        self._places.give_back(run)
        if self._places.count_waiting():
            self._later(0, self._serve)

    def _serve(self) -> None:
        """Begin the yielding lanes that may begin."""
        while (served := self._places.next()) is not None:
            run, lane = served
            self._begin(run, lane.begin)


def _nothing() -> None:
    """Wake the consumer."""


# Quarantine: calls that were at work when workers died begin again one at a time in each process (SPEC R4.11).
#
# A process that dies takes everything with it that is at work in it, and nobody knows which call has killed it. Each of
# these calls has lost an attempt. Most deaths are nobody's fault, so after the first one all of them begin again at
# once. From the second one on, and where another death would be its last, a call begins only while no other such call
# is at work in the process: the one that kills its worker dies alone, and the others end.
#
# A call that takes longer than `limits.QUARANTINE_SECONDS` lets the next one begin, so that long calls do not wait for
# each other for hours. Calls that were never lost, or once, are not held up and hold nobody up.


def alone_from(limit_attempts: int) -> int:
    """From how many deaths on a call begins alone, where so many end it."""
    return max(1, min(limits.HARMLESS_DEATHS + 1, limit_attempts - 1))


class Quarantine:
    """The turns of one process's event loop, which the runs take one after the other."""

    def __init__(self) -> None:
        self._places = FairPlaces[Turn](lambda: 1)

    def ask(self, run: str, begin: Callable[[], None]) -> Turn:
        """Ask for a turn for a call of a run; `begin` is called when it has come, perhaps at once."""
        turn = Turn(self._give_back, run, begin)
        if self._places.take(run):
            turn.come()
        else:
            self._places.wait(run, turn, turn)
        return turn

    @asynccontextmanager
    async def turn(self, run: str) -> AsyncIterator[None]:
        """Wait for a turn, and have it until the block is left or its time is over."""
        come = asyncio.Event()
        turn = self.ask(run, come.set)
        try:
            await come.wait()
            yield
        finally:
            turn.cancel()

    def _give_back(self, run: str) -> None:
        self._places.give_back(run)
        while (served := self._places.next()) is not None:
            run, turn = served
            if not turn.is_over:
                turn.come()
                return
            self._places.give_back(run)


class Turn:
    """A call's turn: asked for, come, over."""

    def __init__(self, give_back: Callable[[str], None], run: str, begin: Callable[[], None]) -> None:
        self._give_back = give_back
        self._run = run
        self._begin = begin
        self._end: asyncio.TimerHandle | None = None
        self.is_over = False

    @property
    def is_to_come(self) -> bool:
        """Whether the call is to wait for it."""
        return self._end is None and not self.is_over

    @property
    def has_come(self) -> bool:
        """Whether the call may begin now."""
        return self._end is not None and not self.is_over

    def come(self) -> None:
        """Let the call begin."""
        self._end = asyncio.get_running_loop().call_later(limits.QUARANTINE_SECONDS, self.cancel)
        self._begin()

    def cancel(self) -> None:
        """End the turn: the call has ended, or does not begin."""
        had_come, self.is_over = self.has_come, True
        if self._end is not None:
            self._end.cancel()
        if had_come:
            self._give_back(self._run)
