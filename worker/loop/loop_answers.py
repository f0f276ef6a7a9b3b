"""What a model has answered, or has written so far, as steps of its loop (SPEC R13.1, R13.8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

from acts_celery.protocol.engine.costs import Cost, is_all
from acts_celery.protocol.engine.loop import Stage
from acts_celery.protocol.engine.loop_events import LoopEnded, UsageCame
from acts_celery.protocol.language.limits import size_of
from acts_celery.protocol.requests.answer_texts import Unreadable
from acts_celery.protocol.requests.growing import GrowingAnswer
from acts_celery.protocol.submission.layout import Layout
from acts_celery.worker.lanes.services import Services
from acts_celery.worker.storage.loop_entries import LoopStep
from acts_celery.worker.wire.messages import WRITTEN

from .loop_budget import LoopBudget
from .loop_requests import request_of
from .loop_view import LoopView
from .ticks import (
    Solved,
    note_output,
    note_part,
    note_solution,
    read_beyond,
    read_end,
    read_part,
    read_tick,
)

T = TypeVar("T")

_SMALL_BYTES: Final = 10_000
"""Of an answer that takes some milliseconds to read."""
_LOG_BYTES_PER_BYTE: Final = 20
"""The log is folded for it, which takes less."""


class Answers:
    """What comes of the answers to one loop's requests."""

    def __init__(self, view: LoopView, services: Services, budget: LoopBudget, begin: Callable[[], LoopStep]) -> None:
        self._view = view
        self._services = services
        self._checker = services.checker
        self._budget = budget
        self._begin = begin
        self._read = (-1, 0)
        """Of a tick how many calls the part had that was read last. The next one has half as many more, since reading
        takes as long as the part is.
        """

    async def part(self, said: Mapping[str, Any]) -> LoopStep | None:
        """Let the calls begin that have been written, while the answer goes on, and write down what there is of an
        output that is a text, and what was reported of the usage; None where there is nothing worth it.
        """
        view, request = self._view, request_of(self._view, self._checker)
        try:
            growing, layout = await self.apart(len(said[WRITTEN]), partial(self._read_part, said[WRITTEN]))
        except Unreadable:
            return None
        step, calls = self._begin(), growing.text_of_calls
        has_begun = layout is not None and await self._budget.charge(calls=layout.size - view.loop.tick.runs) is None
        if layout is not None and has_begun:
            note_part(step, view, calls, layout)
        has_said = request.may_say and note_output(step, growing.output)
        is_reported = _note_usage(step, said)
        return step if has_begun or has_said or is_reported else None

    async def apart(self, size: int, work: Callable[[], T]) -> T:
        """What some work returns that grows with an answer of that size and with the log: done beside the event loop,
        unless it is little.
        """
        if size + self._view.size // _LOG_BYTES_PER_BYTE <= _SMALL_BYTES:
            return work()
        return await self._services.validator.in_thread(self._view.run, work)

    def _read_part(self, text: str) -> tuple[GrowingAnswer, Layout | None]:
        """An answer of which so much has been written, and the calls that run of it. Raises `Unreadable`."""
        growing = GrowingAnswer()
        written = len(growing.feed(text))
        return growing, self._begun(growing.text_of_calls, written)

    def _begun(self, text: str, written: int) -> Layout | None:
        """The calls that run of an answer of which so many are written; None where reading it is not worth it."""
        view, loop, (tick, before) = self._view, self._view.loop, self._read
        before = before if tick == loop.tick.number else 0
        is_worth_it = written >= before + max(1, before // 2) and view.limits.call_limit(loop, written) is None
        self._read = (loop.tick.number, written if is_worth_it else before)
        return read_part(request_of(view, self._checker), text, view, self._checker) if is_worth_it else None

    async def whole(self, said: Mapping[str, Any], losses: int) -> LoopStep:
        """Write down the answer, and the calls that come of it; before it so many attempts were lost."""
        view, loop, limits = self._view, self._view.loop, self._view.limits
        request = request_of(view, self._checker)
        usage, amount = said.get("usage"), said.get("nanodollars")
        if usage is None and (before := loop.tick.reported) is not None:
            usage, amount = before.usage, before.nanodollars
        paid = {"seconds": said.get("seconds", 0.0), "amount": amount}
        cost = Cost.of_request(usage, loop.tick.estimate, losses, **paid)
        solved, limit = await self.apart(size_of(said), partial(self._solved, said))
        limit = limit or limits.call_limit(loop, solved.runs) or limits.spending_limit(loop, cost)
        calls = 0 if limit else solved.runs - loop.tick.runs
        if (shortfall := await self._budget.charge(cost, calls=calls)) is not None:
            await self._budget.charge(cost)
            limit = shortfall.text
        step = self._begin()
        note_solution(step, view, said, solved, cost=cost, limit=limit, is_lazy=request.is_lazy)
        if limit is not None:
            step.note(LoopEnded("failed", limit, None))
        return step

    def _solved(self, said: Mapping[str, Any]) -> tuple[Solved, str | None]:
        """What a whole answer comes to, and why none of its calls starts, where it has too many of them."""
        if (beyond := read_beyond(said, self._view)) is not None:
            return beyond
        read = read_end if self._view.loop.stage is Stage.OPEN else read_tick
        return read(request_of(self._view, self._checker), said, self._view, self._checker), None


def _note_usage(step: LoopStep, said: Mapping[str, Any]) -> bool:
    """Write down what was reported of the usage before the answer is whole; whether that is anything new."""
    usage = said.get("usage")
    if usage is None or is_all(usage):
        return False
    event = UsageCame(usage, said.get("nanodollars"))
    if is_new := event != step.after.tick.reported:
        step.note(event)
    return is_new
