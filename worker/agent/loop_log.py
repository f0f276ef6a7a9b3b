"""Writing the log of a loop: its steps, and the claims of its requests (see lua/loop.lua and lua/commit.lua)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from ...protocol.engine.costs import Cost, is_all
from ...protocol.engine.loop import LoopEnded, Stage, UsageCame
from ...protocol.limits import size_of
from ...protocol.plan.checked_plan import CheckedPlan
from ...protocol.requests.reading import Unreadable
from ...protocol.requests.streaming import GrowingAnswer
from ..broker.attempts import owner_token
from ..broker.messages import WRITTEN, lane_task
from ..limits import LOOP_LOG_SMALL_BYTES
from ..runner.step import WorkerContext
from ..store.commits import Claim, Commit, Committed, Rest
from ..store.entries import LoopStep
from ..store.keys import LOOP
from ..store.lane import RunGone
from ..store.log import MessageLog
from ..store.loop_view import LoopView
from ..store.slots import Budget, Reservation, Shortfall
from . import ticks


class LoopLog:
    """The log of one loop, as its runner reads and writes it. Raises `RunGone`."""

    def __init__(self, services: WorkerContext, view: LoopView) -> None:
        self._services = services
        self._view = view
        self._owner = owner_token()
        self._mark: float | None = None
        """The mark of the published task: the sweep finds the loop until it is cleared (see commit.lua)."""
        self._refused: tuple[str, str] | None = None
        """The last id and the stage of the step that was refused last."""
        self._now_ms = 0
        """The server's time at the last look, where the loop's time is limited."""
        self.has_alarm = False
        """Whether the loop is checked again when its time is over."""
        self.has_left = False
        """Whether the mark was cleared, and nothing has come since."""
        self.next_lane: str | None = None
        """The lane that goes on when this one is left, in the same task: one that is woken alone needs no message."""

    @property
    def ran_seconds(self) -> float:
        """The time that the run has been running."""
        return self._view.ran_seconds(self._now_ms)

    @property
    def is_refused(self) -> bool:
        """Whether the last step was refused, though nothing has come since: another one would be, too."""
        return self._refused == (self._view.seen, self._view.loop.name)

    def try_again(self) -> None:
        """Forget that the last step was refused: the reason may be over."""
        self._refused = None

    async def read(self, *, is_told: bool) -> None:
        """Read the new entries of the log; `is_told` where a task, which has a mark, says that there are some."""
        log, view = self._services.log, self._view
        if is_told:
            self.has_left, self.has_alarm = False, False
            self._mark, _ = await asyncio.gather(log.mark(view.run, LOOP), view.catch_up(log))
        else:
            await view.catch_up(log)
        if view.limits.seconds is not None:
            self._now_ms = await log.now_ms()

    def begin(self) -> LoopStep:
        """A new step after all that was read."""
        step = LoopStep(self._view.loop, self._view.seen)
        if (most := self._view.limits.seconds) is not None:
            step.alarm_ms, self.has_alarm = self._now_ms + math.ceil(max(most - self.ran_seconds, 0) * 1000), True
        return step

    async def take(self, step: LoopStep) -> bool:
        """Write a step; false where the log was not as it had been read any more."""
        taken = await self._services.log.take_loop_step(self._view.run, step)
        if taken.status == "gone":
            raise RunGone(self._view.run)
        self._refused = None if taken.is_taken else (step.seen, step.loop.name)
        if taken.mark is not None:
            self._mark, self.has_left = taken.mark, False
        if len(taken.woken) == 1 and self.next_lane in (None, *taken.woken):
            (self.next_lane,) = taken.woken
        else:
            await self._publish(taken.woken)
        return taken.is_taken

    async def commit(
        self, *, claims: Sequence[Claim] = (), rests: Sequence[Rest] = (), leaves: bool = False
    ) -> Committed:
        """Claim requests, put them off, or leave the loop."""
        view, mark = self._view, self._mark
        self._mark = None
        commit = Commit(
            instance=LOOP,
            seen=view.own_seen,
            global_seen=view.global_seen,
            owner=self._owner,
            claims=claims,
            rests=rests,
            leaves=leaves,
            clears_mark=mark,
            status=view.status,
            born=view.born,
        )
        committed = await self._services.log.commit(view.run, commit)
        if committed.status == "gone":
            raise RunGone(view.run)
        is_current = committed.is_current and committed.global_id == view.global_seen
        self.has_left = leaves and is_current
        await self._publish(committed.woken)
        return committed._replace(is_current=is_current)

    async def _publish(self, lanes: Sequence[str]) -> None:
        if lanes:
            queue = self._services.settings.queue_instances
            run, priority = self._view.run, self._view.priority
            await self._services.publish([lane_task(run, lane or None, queue, priority=priority) for lane in lanes])


# The budget of a loop (SPEC R13.3): it takes a request's tokens before that is sent, calls before they are written.

_FREE: Final = Cost()


class LoopBudget:
    """The budget of one loop: it takes calls from its own, and as a child run calls and tokens from those above."""

    def __init__(self, log: MessageLog, view: LoopView) -> None:
        self._log = log
        self._view = view

    async def reserve(self, losses: int) -> Shortfall | None:
        """Reserve the most that the current request may take, before it is sent; `losses` attempts at it were lost."""
        lost = Cost.of_request(None, self._view.loop.tick.estimate, losses)
        return await self._take(lost, reserved=lost)

    async def charge(self, cost: Cost | None = None, *, calls: int = 0) -> Shortfall | None:
        """Take more calls of the current tick before they are written, and its cost where it has ended."""
        return await self._take(cost, calls=calls)

    async def give_back(self) -> None:
        """Return all that the loop, which has ended, has reserved and not needed."""
        await self._take(Cost(), ticks=1)

    async def _take(
        self, cost: Cost | None, *, reserved: Cost = _FREE, calls: int = 0, ticks: int = 0
    ) -> Shortfall | None:
        view, loop = self._view, self._view.loop
        above = view.parent.budgets if view.parent is not None else ()
        if not above and not calls:
            return None  # the log has all that it has taken
        own = Budget(view.run, None, view.limits.calls)
        taken = Reservation(view.run, calls=loop.own_calls + calls, tick=loop.tick.number + ticks)
        if above and cost is not None:
            whole = loop.own_cost + cost
            taken = replace(taken, tokens=whole.tokens, money=whole.nanodollars)
            taken = replace(taken, open=reserved.tokens, open_money=reserved.nanodollars)
        return await self._log.reserve((own, *above), taken)


# The answers of a model, whole or in parts, as steps of its loop (SPEC R13.1, R13.8).

T = TypeVar("T")


class Answers:
    """The answers to one loop's requests, read into steps."""

    def __init__(
        self, view: LoopView, services: WorkerContext, budget: LoopBudget, begin: Callable[[], LoopStep]
    ) -> None:
        self._view = view
        self._services = services
        self._checker = services.checker
        self._budget = budget
        self._begin = begin
        self._read = (-1, 0)
        """The last tick of which a part was read, and the calls of that part. The next part has half as many more: the
        time of reading grows with the part.
        """

    async def part(self, reply: Mapping[str, Any]) -> LoopStep | None:
        """The step that begins the calls written so far, and logs an output that is a text and the reported usage; None
        where that is not worth a step.
        """
        view, request = self._view, ticks.request_of(self._view, self._checker)
        try:
            growing, layout = await self.apart(len(reply[WRITTEN]), partial(self._read_part, reply[WRITTEN]))
        except Unreadable:
            return None
        step, calls = self._begin(), growing.text_of_calls
        has_begun = layout is not None and await self._budget.charge(calls=layout.size - view.loop.tick.runs) is None
        if layout is not None and has_begun:
            ticks.note_part(step, view, calls, layout)
        has_said = request.may_be_text and ticks.note_output(step, growing.output)
        is_reported = _note_usage(step, reply)
        return step if has_begun or has_said or is_reported else None

    async def apart(self, size: int, work: Callable[[], T]) -> T:
        """The result of work that grows with something of that size; on a thread, unless that is small."""
        if size <= LOOP_LOG_SMALL_BYTES:
            return work()
        return await self._services.validator.in_thread(self._view.run, work)

    def _read_part(self, text: str) -> tuple[GrowingAnswer, CheckedPlan | None]:
        """The part of an answer that has been written, and the calls of it that run. Raises `Unreadable`."""
        growing = GrowingAnswer()
        written = len(growing.feed(text))
        return growing, self._begun(growing.text_of_calls, written)

    def _begun(self, text: str, written: int) -> CheckedPlan | None:
        """The calls that run of a part with so many calls; None where reading it is not worth it."""
        view, loop, (tick, before) = self._view, self._view.loop, self._read
        before = before if tick == loop.tick.number else 0
        is_worth_it = written >= before + max(1, before // 2) and view.limits.call_limit(loop, written) is None
        self._read = (loop.tick.number, written if is_worth_it else before)
        return (
            ticks.read_part(ticks.request_of(view, self._checker), text, view, self._checker) if is_worth_it else None
        )

    async def whole(self, reply: Mapping[str, Any], losses: int) -> LoopStep:
        """The step that logs the answer and its calls; before it `losses` attempts were lost."""
        view, loop, limits = self._view, self._view.loop, self._view.limits
        request = ticks.request_of(view, self._checker)
        usage, amount = reply.get("usage"), reply.get("nanodollars")
        if usage is None and (before := loop.tick.reported) is not None:
            usage, amount = before.usage, before.nanodollars
        paid = {"seconds": reply.get("seconds", 0.0), "amount": amount}
        cost = Cost.of_request(usage, loop.tick.estimate, losses, **paid)
        solved, limit = await self.apart(size_of(reply), partial(self._solved, reply))
        limit = limit or limits.call_limit(loop, solved.runs) or limits.spending_limit(loop, cost)
        calls = 0 if limit else solved.runs - loop.tick.runs
        if (shortfall := await self._budget.charge(cost, calls=calls)) is not None:
            await self._budget.charge(cost)
            limit = shortfall.text
        step = self._begin()
        ticks.note_solution(step, view, reply, solved, cost=cost, limit=limit, is_lazy=request.is_lazy)
        if limit is not None:
            step.note(LoopEnded("failed", limit, None))
        return step

    def _solved(self, reply: Mapping[str, Any]) -> tuple[ticks.Solved, str | None]:
        """A whole answer as it was read, and the reason why none of its calls starts, where it has too many of them."""
        if (beyond := ticks.read_beyond(reply, self._view)) is not None:
            return beyond
        read = ticks.read_end if self._view.loop.stage is Stage.OPEN else ticks.read_tick
        return read(ticks.request_of(self._view, self._checker), reply, self._view, self._checker), None


def _note_usage(step: LoopStep, reply: Mapping[str, Any]) -> bool:
    """Log the usage that was reported before the answer is whole; false where nothing is new."""
    usage = reply.get("usage")
    if usage is None or is_all(usage):
        return False
    event = UsageCame(usage, reply.get("nanodollars"))
    if is_new := event != step.after.tick.reported:
        step.note(event)
    return is_new
