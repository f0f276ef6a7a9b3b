"""Fair scheduling: no run keeps the event loop of a process to itself.

Whatever a lane does between two waits holds the loop: validation, resolving, packing. Here each such step is timed. The
lanes of a run whose turn is over stand in line until the loop has gone round; where another run has done something
lately, for as long as they have worked. So what others wait for is a step or two of it, however many lanes it has, and
a run that is alone loses nothing. Who has begun a call goes on before who has not: it holds what the call is given.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Coroutine, Generator
from dataclasses import dataclass, field
from time import monotonic
from types import coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")

_TURN_SECONDS: Final = 0.02
"""How long the lanes of a run may work before others have their turn."""
_ALONE_SECONDS: Final = 0.2
"""How long they may where no other run has done anything lately: so long one that comes waits."""
_LATELY_SECONDS: Final = 0.5
_AT_ONCE: Final = 32
"""How many lanes go on when a turn begins; each that has made its step lets the next one in."""


@dataclass(slots=True)
class _Turn:
    """Of one run."""

    began: float = 0.0
    used: float = 0.0
    is_over: bool = False
    begun: deque[asyncio.Future[None]] = field(default_factory=deque)
    """Those that wait and have begun a call."""
    new: deque[asyncio.Future[None]] = field(default_factory=deque)
    """All others that wait."""
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
        """Of the run that worked last."""
        self._when = 0.0
        """When it did."""
        self._other = 0.0
        """When the run before it did."""
        self._has_begun = False
        """Whether what makes a step has begun a call in it."""

    async def take(self, run: str, work: Coroutine[Any, Any, T], *, is_new: bool = True) -> T:
        """What a coroutine returns that works for a run; one that is not new carries out a call that has begun."""
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
        """Note that what makes a step now has begun a call: from now on it goes before those that have not."""
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
        if turn.used > _TURN_SECONDS:
            self._use_up(turn, ended)
        if not turn.is_over:
            turn.let_in(1)

    def _use_up(self, turn: _Turn, ended: float) -> None:
        # In the turn itself no other had a chance to work.
        is_alone = (turn.began or ended) - self._other > _LATELY_SECONDS
        if not turn.is_over and turn.used > (_ALONE_SECONDS if is_alone else _TURN_SECONDS):
            turn.is_over = True
            asyncio.get_running_loop().call_later(0 if is_alone else turn.used, self._begin, turn)

    def _begin(self, turn: _Turn) -> None:
        turn.is_over = False
        turn.used = 0.0
        turn.began = monotonic()
        turn.let_in(_AT_ONCE)
