"""The loop: the state machine of a request and its ticks, without I/O (SPEC R13.1, R13.5).

A loop changes only by the events that its log holds, so it can be rebuilt from the log at any moment. `stage` says what
the log has come to, `TRANSITIONS` what may come next; what it may spend is in `loop_limits`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from acts_celery.protocol.language.errors import ProtocolError

from .costs import Cost, Estimate
from .loop_events import (
    Answered,
    Approved,
    Asked,
    LoopEnded,
    LoopEvent,
    LoopExtended,
    OutputGrew,
    PartCame,
    Planned,
    Started,
    TickClosed,
    TickError,
    UsageCame,
)


class BrokenLog(ProtocolError):
    """A log holds an event that cannot follow those before it."""


class Stage(StrEnum):
    """What the log has come to in the current tick."""

    NEW = "new"
    """Its request is to be composed."""
    ASKED = "asked"
    """The request is in the log, its answer is not."""
    OPEN = "open"
    """The answer is being written, and calls of it run (SPEC R13.8)."""
    PLANNED = "planned"
    """The solution is in the log, and waits for a person's approval (in lazy mode, SPEC R13.7)."""
    APPROVED = "approved"
    """Its calls may run, and do not yet."""
    RAN = "ran"
    """The solution is in the log, and its calls run."""
    ENDED = "ended"
    """An output was accepted, or a limit was reached."""


_S = Stage
TRANSITIONS: Final[Mapping[Stage, Mapping[type[Any], Stage | None]]] = {
    _S.NEW: {Asked: _S.ASKED, LoopEnded: _S.ENDED, LoopExtended: _S.NEW},
    _S.ASKED: {
        PartCame: _S.OPEN,
        OutputGrew: _S.ASKED,
        UsageCame: _S.ASKED,
        Answered: _S.RAN,
        LoopEnded: _S.ENDED,
        LoopExtended: _S.ASKED,
    },
    _S.OPEN: {
        PartCame: _S.OPEN,
        OutputGrew: _S.OPEN,
        UsageCame: _S.OPEN,
        Answered: _S.RAN,
        LoopEnded: _S.ENDED,
        LoopExtended: _S.OPEN,
    },
    _S.PLANNED: {Planned: _S.PLANNED, Approved: _S.APPROVED, LoopEnded: _S.ENDED, LoopExtended: _S.PLANNED},
    _S.APPROVED: {Started: _S.RAN, LoopEnded: _S.ENDED, LoopExtended: _S.APPROVED},
    _S.RAN: {Planned: _S.PLANNED, TickClosed: _S.NEW, LoopEnded: _S.ENDED, LoopExtended: _S.RAN},
    _S.ENDED: {LoopExtended: None},
}
"""To which stage an event leads; None is the one in which the loop ended. Another event breaks the log."""

_FREE: Final = Cost()
_NO_ESTIMATE: Final = Estimate(0)


@dataclass(frozen=True, slots=True)
class Tick:
    """One tick of a loop, as far as it has come."""

    number: int
    estimate: Estimate = _NO_ESTIMATE
    """What its request may cost, reported usage aside (SPEC R13.3)."""
    reported: UsageCame | None = None
    """What was reported of its request while that was under way."""
    digest: str = ""
    repeats: Mapping[str, Any] | None = None
    """What the tick before has come to, as its request has it."""
    text: str = ""
    """What of its answer has come while that is being written."""
    output: str = ""
    """What of its output, where that is a text."""
    solution: Mapping[str, Any] | None = None
    """The message of its solution."""
    invalid: tuple[TickError, ...] = ()
    """What is wrong with it."""
    plan: Planned | None = None
    """Its calls, where they wait for an approval, or were approved."""
    cost: Cost = _FREE
    """What its requests have cost."""
    known: int | None = None
    """The tokens of its last request and the answer to it, where the next one goes on from these (SPEC R13.3)."""
    first: int = 0
    """The index of its first call."""
    runs: int = 0
    """How many of them run, over all instances."""
    errors: int = 0
    """How many errors it has caused."""
    set_aside: str | None = None
    """Why its output was not accepted."""


@dataclass(frozen=True, slots=True)
class Loop:
    """The state of a loop: what its log says, in order."""

    stage: Stage = Stage.NEW
    ticks: tuple[Tick, ...] = (Tick(0),)
    ended: LoopEnded | None = None
    """How it has ended."""
    added_ticks: int = 0
    """How many a person has added to its limit."""
    granted: int = 0
    """Ticks below that one were added by a person."""
    _before_end: Stage = Stage.NEW
    _delegated: Cost = _FREE
    _delegated_calls: int = 0

    @property
    def tick(self) -> Tick:
        """The current tick."""
        return self.ticks[-1]

    @property
    def last(self) -> Tick | None:
        """The tick before the current one."""
        return self.ticks[-2] if len(self.ticks) > 1 else None

    @property
    def name(self) -> str:
        """The stage and the tick, as the run's state has them."""
        return f"{self.stage}:{self.tick.number}"

    @property
    def spent(self) -> int:
        """The tokens of that."""
        return self.cost.tokens

    @property
    def cost(self) -> Cost:
        """What the ticks have cost, and what their calls have asked for."""
        return sum((tick.cost for tick in self.ticks), self._delegated)

    @property
    def open_cost(self) -> Cost:
        """What the request may have cost at most that is in the log and whose answer is not."""
        return self._lost(1) if self.is_asking else _FREE

    @property
    def delegated(self) -> tuple[Cost, int]:
        """What its calls have asked models for, and how many calls their child runs have started."""
        return self._delegated, self._delegated_calls

    @property
    def own_cost(self) -> Cost:
        """What its own requests have cost."""
        return sum((tick.cost for tick in self.ticks), _FREE)

    @property
    def known(self) -> int | None:
        """The tokens of the last request and its answer, with which the next one begins; None where nobody knows."""
        return self.last.known if self.last is not None else None

    @property
    def claimed(self) -> Cost:
        """The same, and what the one may take whose answer is being written."""
        return self.own_cost + (self.open_cost if self.stage is Stage.OPEN else _FREE)

    @property
    def calls(self) -> int:
        """How many calls its solutions have started, and those of the child runs that have answered them."""
        return self.own_calls + self._delegated_calls

    @property
    def own_calls(self) -> int:
        """How many calls its solutions have started."""
        return sum(tick.runs for tick in self.ticks)

    @property
    def is_asking(self) -> bool:
        """Whether a request is in the log, and its answer is not."""
        return self.stage in (Stage.ASKED, Stage.OPEN)

    @property
    def request(self) -> int:
        """The index of the current request among the calls of the loop's lane."""
        return self.tick.number

    @property
    def answered(self) -> list[int]:
        """The indexes of all requests whose answers are in the log."""
        return [tick.number for tick in self.ticks if tick.solution is not None]

    def charge(self, cost: Cost, calls: int = 0) -> Loop:
        """A call has ended for which models were asked: by a delegate, or by a child run that started so many calls."""
        return replace(self, _delegated=self._delegated + cost, _delegated_calls=self._delegated_calls + calls)

    def apply(self, event: LoopEvent) -> Loop:
        """The loop behind an event of its log. Raises `BrokenLog` where it cannot follow those before it."""
        kind, following = type(event), TRANSITIONS[self.stage]
        if kind not in following:
            raise BrokenLog(f"the log of a loop is broken: {kind.__name__} follows where it is {self.name}")
        return replace(_CHANGES[kind](self, event), stage=following[kind] or self._before_end)

    def _in_tick(self, **changes: Any) -> Loop:
        return replace(self, ticks=(*self.ticks[:-1], replace(self.tick, **changes)))

    def _ask(self, event: Asked) -> Loop:
        estimate = Estimate(event.estimate, event.nanodollars, event.config.get("max_output_tokens", 0))
        return self._in_tick(estimate=estimate, reported=None, repeats=event.repeats, digest=event.digest)

    def _take_part(self, event: PartCame) -> Loop:
        return self._in_tick(text=self.tick.text + event.text, first=event.first, runs=event.runs)

    def _grow(self, event: OutputGrew) -> Loop:
        return self._in_tick(output=self.tick.output[: event.at] + event.text)

    def _report(self, event: UsageCame) -> Loop:
        return self._in_tick(reported=event)

    def _answer(self, event: Answered) -> Loop:
        cost = self.tick.cost + Cost.read(event.cost)
        said = {"solution": event.message, "invalid": tuple(event.errors), "cost": cost, "known": event.known}
        return self._in_tick(**said, first=event.first, runs=event.runs)

    def _plan(self, event: Planned) -> Loop:
        return self._in_tick(plan=event)

    def _approve(self, _: Approved) -> Loop:
        return self

    def _start(self, event: Started) -> Loop:
        return self._in_tick(first=event.first, runs=event.runs, invalid=(*self.tick.invalid, *event.errors))

    def _close(self, event: TickClosed) -> Loop:
        closed = self._in_tick(errors=event.errors, set_aside=event.set_aside)
        return replace(closed, ticks=(*closed.ticks, Tick(self.tick.number + 1)))

    def _end(self, event: LoopEnded) -> Loop:
        lost = self._lost(event.lost) if event.lost else _FREE
        return replace(self._in_tick(cost=self.tick.cost + lost), ended=event, _before_end=self.stage)

    def _lost(self, attempts: int) -> Cost:
        """What so many attempts at the request may have cost at most whose answers are not known."""
        said = self.tick.reported
        usage, amount = (said.usage, said.nanodollars) if said is not None else (None, None)
        return Cost.of_request(usage, self.tick.estimate, attempts - 1, amount=amount)

    def _extend(self, event: LoopExtended) -> Loop:
        ticks = event.ticks
        return replace(self, ended=None, added_ticks=self.added_ticks + ticks, granted=self.tick.number + ticks)


_CHANGES: Final[Mapping[type[Any], Callable[[Loop, Any], Loop]]] = {
    Asked: Loop._ask,
    PartCame: Loop._take_part,
    OutputGrew: Loop._grow,
    UsageCame: Loop._report,
    Answered: Loop._answer,
    Planned: Loop._plan,
    Approved: Loop._approve,
    Started: Loop._start,
    TickClosed: Loop._close,
    LoopEnded: Loop._end,
    LoopExtended: Loop._extend,
}
