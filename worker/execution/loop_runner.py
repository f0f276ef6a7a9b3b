"""A loop runner: ask the model, run its calls, look at its output, ask again (SPEC R13.1).

What comes next is decided from the log alone (`loop_view`), and written in one step that counts only where nothing has
come that it was decided without (lua/loop.lua). So any number of processes may drive a loop, any of them may die at any
moment, and each step is taken once. The request of a tick is in the log before it is asked; asking is a remote call of
the loop's lane, claimed, lost and found like any other, and holds no worker.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from acts_celery.protocol import Rejected
from acts_celery.protocol.engine.execution import Failure, Success
from acts_celery.protocol.engine.loop import Stage
from acts_celery.protocol.engine.loop_events import LoopEnded
from acts_celery.protocol.engine.loop_limits import charge_tokens
from acts_celery.protocol.requests import Request
from acts_celery.protocol.state.allowance import TooLarge
from acts_celery.worker.backoff import Backoff
from acts_celery.worker.messaging.attempts import Attempt, CallId, Result, Retry, owner_token
from acts_celery.worker.messaging.messages import WRITTEN, Delivery, tick_answer
from acts_celery.worker.messaging.task_messages import TaskMessage, lane_task
from acts_celery.worker.storage.children import Parent, child_result
from acts_celery.worker.storage.commits import Advance, Claim, Rest
from acts_celery.worker.storage.keys import ENDED
from acts_celery.worker.storage.lane import RunGone
from acts_celery.worker.storage.loop_entries import LOOP, LoopStep
from acts_celery.worker.storage.pools import Draw, Lack, Pool

from .budget import WAIT_SECONDS, waits
from .loop_requests import config_of, next_request, request_of
from .loop_view import LoopView
from .mailbox import Mailbox
from .services import Services
from .ticks import (
    last_errors,
    note_choice,
    note_closing,
    note_part,
    note_solution,
    note_start,
    read_beyond,
    read_end,
    read_part,
    read_solution,
    read_tick,
    written_calls,
)

_BACKOFF: Final = Backoff(0.05, 5.0)
_LOST: Final = Failure("WorkerLost", "the worker that asked the model was lost")


class LoopRunner:
    """One process's time with one run's loop."""

    def __init__(self, services: Services, view: LoopView) -> None:
        self._services = services
        self._view = view
        self._owner = owner_token()
        self._mailbox = Mailbox()
        self._results: list[tuple[Attempt, Result]] = []
        """Answers that are not in the log yet."""
        self.gets_on: asyncio.Event | None = None
        """To be set when something was committed: the loop is not what its last worker died of."""
        self.failed: list[str] = []  # its requests are told by the calls that they lead to
        self.follows: str | None = None
        """The lane that goes on when this one is left, in the same task: one that is woken alone needs no message."""
        self._is_stopped = False
        self._is_told = True
        """Whether a task has said that there is something to do, and its mark was not read yet."""
        self._mark: float | None = None
        """Of the published task: the loop is found by the sweep until it is taken back (see advance.lua)."""
        self._has_to_look = True
        """Whether to see whether the request is at work: it is claimed then, unless it is."""
        self._sent: tuple[int, int] | None = None
        """The tick and the attempt that were sent last: what a runner has claimed it gets again when it claims."""
        self._refused: tuple[str, str] | None = None
        """The last id and the stage by which a step was decided that was refused."""
        self._parts_read = (-1, 0)
        """Of a tick how many calls the part had that was read last. The next one has half as many more, since reading
        takes as long as the part is."""
        self._refusals = 0
        self._has_left = False
        self._now_ms = 0
        """The server's time at the last look, where the loop's time is limited."""
        self._has_alarm = False
        """Whether the loop is looked at again when its time is over."""

    def deliver(self, delivery: Delivery) -> asyncio.Future[bool]:
        """Hand in an answer. The receipt: whether it is in the log, or the runner failed before."""
        return self._mailbox.deliver(delivery)

    def look_again(self) -> None:
        """A task says that there is something new."""
        self._mailbox.look_again()

    def stop(self) -> None:
        """The run was cancelled: leave."""
        self._is_stopped = True
        self._mailbox.ring()

    async def run(self) -> LoopView:
        """Go on until nothing more can be done here. Returns the loop as the log has it then."""
        try:
            while await self._step() or self._mailbox.has_news or await self._stays() or self._mailbox.has_news:
                pass
        finally:
            self._mailbox.close()
        return self._view

    async def _step(self) -> bool:
        """Take what has come, and the next step; says whether there may be another one."""
        await self._take_news()
        view, loop = self._view, self._view.loop
        if self._refused == (view.seen, loop.name):
            return await self._wait_for_others()
        if self._is_stopped or view.status in ENDED or loop.stage is Stage.ENDED:
            self._results.clear()
        elif self._results:
            return await self._take_result()
        elif (limit := view.limits.time_limit(view.ran_seconds(self._now_ms))) is not None:
            return await self._fail(limit)
        elif loop.stage in (Stage.NEW, Stage.CHOSEN) and view.status == "running":
            return await self._compose()
        elif loop.is_asking and view.status == "running" and self._has_to_look:
            return await self._ask()
        elif loop.stage is Stage.APPROVED and view.status == "running" and not view.has_added_gathers:
            return await self._start()
        elif loop.stage is Stage.RAN and not view.open:
            return await self._close()
        self._mailbox.give_receipts(committed=True)
        if self._mailbox.resting and view.status == "running":
            await self._mailbox.wait()
            return True
        if view.limits.seconds is not None and not self._has_alarm and view.status == "running":
            await self._take(self._begin())
            return True
        return False

    async def _take_news(self) -> None:
        """Take in what came while something else was done, and what the log says."""
        news = self._mailbox.take()
        self._results += [(delivery.attempt, delivery.result) for delivery in news.deliveries]
        self._has_to_look = self._has_to_look or news.is_told or bool(news.due)
        log, view = self._services.log, self._view
        if news.is_told or self._is_told:
            self._is_told, self._has_left, self._has_alarm = False, False, False
            self._mark, _ = await asyncio.gather(log.mark(view.run, LOOP), view.catch_up(log))
        else:
            await view.catch_up(log)
        if view.limits.seconds is not None:
            self._now_ms = await log.now_ms()

    async def _wait_for_others(self) -> bool:
        """A step was refused though nothing has come: the run is being amended, or a call that was added gathers. Wait
        with an answer in hand, else leave: the end of that wakes the loop.
        """
        if not self._results:
            return False
        self._refused, self._refusals = None, self._refusals + 1
        self._mailbox.remind(self._view.loop.request, _BACKOFF.seconds(self._refusals + 1))
        await self._mailbox.wait()
        return True

    async def _stays(self) -> bool:
        """Take back the task's mark before leaving; what is new in the log is a reason to stay."""
        return not self._has_left and not (await self._advance(leaves=True)).is_fresh

    # Asking.

    async def _compose(self) -> bool:
        """Write down the next request, or that a limit keeps it from being asked."""
        view, loop = self._view, self._view.loop
        if view.parent is not None and not await self._services.log.is_awaited(view.parent, view.run):
            return await self._fail("the call that it was to answer does not wait for it any more")
        if (limit := view.limits.tick_limit(loop)) is not None:
            return await self._fail("; ".join((*last_errors(view), limit)))
        asks = self._asks
        try:
            if loop.stage is Stage.CHOSEN:  # proving which references fit may take a second: the loop should turn
                request = await asyncio.to_thread(next_request, view, asks)
            else:
                request = next_request(view, asks)
        except (Rejected, TooLarge) as error:
            return await self._fail(f"TooLarge: {error}")
        times = request.repeats["times"] if request.repeats is not None else 1
        if (limit := view.limits.repeat_limit(loop, times)) is not None:
            return await self._fail(limit)
        if (limit := view.limits.token_limit(loop, request.estimate)) is not None:
            return await self._fail(limit)
        step = self._begin()
        step.note(request)
        await self._take(step)
        self._has_to_look = True
        return True

    @property
    def _asks(self) -> Request:
        return request_of(self._view, self._services.checker)

    async def _ask(self) -> bool:
        """Claim the current request, unless it is at work, and send it."""
        view, index = self._view, self._view.loop.request
        queue = self._services.settings.queue_delegates
        claim = Claim(index, self._services.settings.sweep_interval_seconds, queue)
        advance = await self._advance(claims=[claim], leaves=True)
        self._has_to_look = False
        number, failures = advance.attempts[0], advance.failures[0]
        if not number or (index, number) == self._sent:
            return True
        self._sent = index, number
        attempt = Attempt(CallId(view.run, LOOP, index), number, failures, advance.repeated[0])
        if view.loop.stage is Stage.OPEN:
            self._results.append((replace(attempt, number=number - 1), _LOST))
            return True
        if attempt.losses >= self._services.settings.limit_attempts:
            return await self._fail(f"the workers that asked the model were lost {attempt.losses} times")
        estimate = view.loop.tick.estimate
        if (limit := view.limits.token_limit(view.loop, estimate, attempt.losses)) is not None:
            return await self._fail(limit)
        if (lack := await self._draw(estimate * (attempt.losses + 1), is_open=True)) is not None:
            if waits(lack, failures, self._services.settings):
                return await self._rest(attempt, WAIT_SECONDS)
            return await self._fail(lack.text)
        await self._services.publish([self._request(view.tokens.given(attempt))])
        return True

    def _request(self, attempt: Attempt) -> TaskMessage:
        view, config = self._view, config_of(self._view)
        if (most := view.limits.seconds) is not None:
            left = max(most - view.ran_seconds(self._now_ms), 1)
            config["request_seconds"] = min(config.get("request_seconds", left), left)
        streams = not self._asks.is_template
        return self._services.remote.request(attempt, view.asked, view.schema, config, streams=streams)

    # The answer.

    async def _take_result(self) -> bool:
        """Take in what the model has answered, or has written so far."""
        loop = self._view.loop
        attempt, result = self._results[0]
        if not loop.is_asking or attempt.id.index != loop.request:
            self._results.pop(0)  # it is in the log already, or came too late
            return True
        if isinstance(result, Success):
            said = tick_answer(result.value)
            return await (self._take_part(said[WRITTEN]) if WRITTEN in said else self._conclude(said, attempt.losses))
        if loop.stage is Stage.OPEN:  # calls of it run already
            failure = result.failure if isinstance(result, Retry) else result
            return await self._conclude({"error": {"type": failure.type, "message": failure.message}}, attempt.losses)
        if isinstance(result, Retry):
            await self._rest(attempt, result.delay_seconds)
            self._results.pop(0)
            return True
        return await self._fail(f"{result.type}: {result.message}")

    async def _take_part(self, text: str) -> bool:
        """Let the calls begin that have been written, while the answer goes on (SPEC R13.8)."""
        view = self._view
        written, (tick, read) = written_calls(text), self._parts_read
        read = read if tick == view.loop.tick.number else 0
        is_worth_it = written >= read + max(1, read // 2) and view.limits.call_limit(view.loop, written) is None
        self._parts_read = (view.loop.tick.number, written if is_worth_it else read)
        layout = read_part(self._asks, text, view, self._services.checker) if is_worth_it else None
        if layout is None or await self._draw(calls=layout.size - view.loop.tick.runs) is not None:
            self._results.pop(0)
            return True
        step = self._begin()
        note_part(step, view, text, layout)
        await self._take(step)
        return True

    async def _conclude(self, said: Mapping[str, Any], losses: int) -> bool:
        """Write down the answer, and the calls that come of it."""
        view, loop = self._view, self._view.loop
        if view.has_added_gathers:
            return await self._wait_for_others()
        tick = loop.tick
        charged = charge_tokens(said.get("usage"), tick.estimate, losses)
        limit: str | None
        if (beyond := read_beyond(said, view)) is not None:
            solved, limit = beyond
        else:
            read = read_end if loop.stage is Stage.OPEN else read_tick
            solved = read(self._asks, said, view, self._services.checker)
            limit = view.limits.call_limit(loop, solved.runs) or view.limits.spending_limit(loop, charged)
        if (lack := await self._draw(charged, calls=0 if limit else solved.runs - tick.runs)) is not None:
            await self._draw(charged)
            limit = lack.text
        if solved.choice is not None and limit is None:
            step = self._begin()
            note_choice(step, said, solved.choice, charged=charged)
            await self._take(step)
            return True
        step = self._begin()
        note_solution(step, view, said, solved, charged=charged, limit=limit, is_lazy=self._asks.is_lazy)
        if limit is not None:
            step.note(LoopEnded("failed", limit, None))
        await self._take(step)
        return True

    async def _rest(self, attempt: Attempt, delay_seconds: float) -> bool:
        """Ask again later."""
        await self._advance(rests=[Rest(attempt.id.index, attempt.number, delay_seconds)])
        if delay_seconds <= self._services.settings.sweep_interval_seconds:
            self._mailbox.remind(attempt.id.index, delay_seconds)
        return True

    async def _draw(self, tokens: int | None = None, *, is_open: bool = False, calls: int = 0) -> Lack | None:
        """Take what the current tick costs from what the loops above it have left, where this is a child run, and its
        calls also from what the loop itself has.
        """
        view, loop, log = self._view, self._view.loop, self._services.log
        draw = Draw(view.run, calls=loop.own_calls + calls, tick=loop.tick.number)
        own = Pool(view.run, None, view.limits.calls)
        if calls and (lack := await log.draw([own], draw)) is not None:
            return lack
        if tokens is not None:
            draw = replace(draw, tokens=loop.own_tokens + tokens, open=tokens if is_open else 0)
        return await log.draw(view.parent.pools if view.parent is not None else (), draw)

    async def _start(self) -> bool:
        """Write the calls of an approved plan into their lanes (SPEC R13.7)."""
        view, plan = self._view, self._view.loop.tick.plan
        assert plan is not None
        solved = read_solution(self._asks, {"calls": plan.calls, "output": None}, view, self._services.checker)
        step = self._begin()
        note_start(step, view, solved)
        await self._take(step)
        return True

    # The end of a tick.

    async def _close(self) -> bool:
        """Append the errors of the tick, and look at its output."""
        step = self._begin()
        note_closing(step, self._view)
        await self._take(step)
        return True

    async def _fail(self, reason: str) -> bool:
        """End the run with a reason; everything is kept."""
        step = self._begin()
        step.note(LoopEnded("failed", reason, None))
        await self._take(step)
        return True

    # The log.

    def _begin(self) -> LoopStep:
        view = self._view
        step = LoopStep(view.loop, view.seen)
        if view.limits.seconds is not None:
            left = view.limits.seconds - view.ran_seconds(self._now_ms)
            step.alarm_ms, self._has_alarm = self._now_ms + math.ceil(max(left, 0) * 1000), True
        return step

    async def _take(self, step: LoopStep) -> None:
        """Write a step down, if the log is still as it was read. Raises `RunGone`."""
        taken = await self._services.log.take_loop_step(self._view.run, step)
        if taken.status == "gone":
            raise RunGone(self._view.run)
        self._refused = None if taken.is_taken else (step.seen, step.loop.name)
        if self.gets_on is not None:
            self.gets_on.set()
        if taken.is_taken and step.answers:
            self._results.clear()  # a request that is asked anew, by `acts resume --ticks`, has another answer
        if taken.mark is not None:
            self._mark, self._has_left = taken.mark, False
        if len(taken.woken) == 1 and self.follows in (None, *taken.woken):
            (self.follows,) = taken.woken
        else:
            await self._publish(taken.woken)
        if taken.is_taken and step.after.ended is not None and self._view.parent is not None:
            await self._answer(self._view.parent, step.after.ended.status)

    async def _answer(self, parent: Parent, status: str) -> None:
        """Bring the result to the call that waits for it; what dies here, the sweep sends again."""
        await self._view.catch_up(self._services.log)  # with the costs of the last step
        loop = self._view.loop
        drawn = Draw(self._view.run, loop.own_tokens, calls=loop.own_calls, tick=loop.tick.number + 1)
        await self._services.log.draw(parent.pools, drawn)
        result = child_result(status, loop)
        queue = self._services.settings.queue_instances
        await self._services.publish([parent.answer(self._view.run, result, self._view.tokens, queue)])

    async def _advance(
        self, *, claims: Sequence[Claim] = (), rests: Sequence[Rest] = (), leaves: bool = False
    ) -> Advance:
        """Claim, rest or leave (see advance.lua). Raises `RunGone`."""
        view, mark = self._view, self._mark
        self._mark = None
        advance = await self._services.log.advance(
            view.run,
            LOOP,
            seen=view.own_seen,
            global_seen=view.global_seen,
            owner=self._owner,
            claims=claims,
            rests=rests,
            leaves=leaves,
            takes_up=mark,
            status=view.status,
        )
        if advance.status == "gone":
            raise RunGone(view.run)
        is_fresh = advance.is_fresh and advance.global_id == view.global_seen
        self._has_left = leaves and is_fresh
        await self._publish(advance.woken)
        return replace(advance, is_fresh=is_fresh)

    async def _publish(self, lanes: Sequence[str]) -> None:
        if lanes:
            queue = self._services.settings.queue_instances
            await self._services.publish([lane_task(self._view.run, lane or None, queue) for lane in lanes])
