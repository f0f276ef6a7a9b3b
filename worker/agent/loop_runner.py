"""A loop runner: ask the model, run its calls, judge its output, ask again (SPEC R13.1).

Each step is decided from the log alone (`loop_view`), and counts only if no entry has come that it was decided without
(`loop_log`). So any number of processes may drive a loop, any of them may die at any
moment, and each step is taken once. The request of a tick is in the log before it is asked; asking is a remote call of
the loop's lane, claimed, lost and found like any other, and holds no worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from ...protocol import Rejected
from ...protocol.engine.costs import Estimate
from ...protocol.engine.events import Failure, Success
from ...protocol.engine.loop import LoopEnded, RequestRecorded, Stage
from ...protocol.limits import size_of
from ...protocol.requests import Request
from ...protocol.state.scopes import TooLarge
from .. import limits
from ..backoff import Backoff
from ..broker.attempts import Attempt, CallId, Result, Retry
from ..broker.messages import NOT_READ, WRITTEN, Delivery, tick_answer
from ..registry.models import KnownModels, ProviderLimit, Unreachable, likely_tokens, picture_fields
from ..runner.deciding import publish_lanes
from ..runner.starting import waits
from ..runner.step import Mailbox, WorkerContext
from ..store.commits import Claim, Rest
from ..store.entries import LoopStep
from ..store.keys import ENDED_STATUSES, LOOP
from ..store.loop_view import LoopView
from ..store.run_list import FileGone, Parent, child_result
from ..store.slots import Slotted, Taken, Wanted, model_slots
from . import ticks
from .loop_log import Answers, LoopBudget, LoopLog

_BACKOFF: Final = Backoff(0.05, 5.0)
_LOST: Final = Failure("WorkerLost", "the worker that asked the model was lost")


class LoopRunner:
    """The loop of one run, as long as one process drives it."""

    def __init__(self, services: WorkerContext, view: LoopView) -> None:
        self._services = services
        self._view = view
        self._log = LoopLog(services, view)
        self._models = KnownModels(services.settings, services.checker.registry)
        self._budget = LoopBudget(services.log, view)
        self._answers = Answers(view, services, self._budget, self._log.begin)
        self._mailbox = Mailbox()
        self._mailbox.look_again()  # the task that opens the loop says so
        self._results: list[tuple[Attempt, Result]] = []
        """Answers that are not in the log yet."""
        self.gets_on: asyncio.Event | None = None
        """Set when a step was committed: the loop is not the reason why its last worker died."""
        self.failed: list[str] = []  # its requests are reported by the calls that they lead to
        self._is_stopped = False
        self._has_to_look = True
        """Whether to claim the request, unless it is at work."""
        self._sent: tuple[int, int] | None = None
        """The request and the attempt that were sent last: a runner that claims again gets its own claim."""
        self._whole: tuple[int, int] | None = None
        """The request and the attempt that were sent with all messages."""
        self._refusals = 0
        self._limit = ProviderLimit.of(self._models.find(view.definition.config.get("model")))
        self._is_unsent = False
        """Whether the current request is claimed here, and no attempt at it was sent."""
        self._told: Mapping[str, Any] = {}
        """What the answer to it tells of its usage."""

    @property
    def next_lane(self) -> str | None:
        """The lane that goes on when this one is left, in the same task."""
        return self._log.next_lane

    def deliver(self, delivery: Delivery) -> asyncio.Future[bool]:
        """Hand in an answer. The future gives whether it is in the log; false where the runner failed before."""
        return self._mailbox.deliver(delivery)

    def look_again(self) -> None:
        """Read the log again: a task says that there is something new."""
        self._mailbox.look_again()

    @property
    def view(self) -> LoopView:
        """The loop as this runner has read it."""
        return self._view

    def stop(self) -> None:
        """Leave the loop: the run was cancelled."""
        self._is_stopped = True
        self._mailbox.ring()

    async def run(self) -> LoopView:
        """Take steps until none is left to take here. Returns the loop as the log has it then."""
        mailbox = self._mailbox
        try:
            while await self._step() or mailbox.has_news or await self._release_or_continue() or mailbox.has_news:
                pass
        finally:
            self._mailbox.close()
        return self._view

    async def _step(self) -> bool:
        """Take in all that has come, and take the next step; false where no other one can follow."""
        news = self._mailbox.take()
        self._results += [(delivery.attempt, delivery.result) for delivery in news.deliveries]
        self._has_to_look = self._has_to_look or news.is_told or bool(news.due)
        await self._log.read(is_told=news.is_told)
        view, stage = self._view, self._view.loop.stage
        if self._log.is_refused:
            return await self._wait_for_others()
        if self._is_stopped or view.status in ENDED_STATUSES or stage is Stage.ENDED:
            self._results.clear()
        elif self._results:
            await self._take_result()
            return True
        elif (limit := view.limits.time_limit(self._log.ran_seconds)) is not None:
            await self._fail(limit, int(view.loop.is_asking))
            return True
        elif stage in _STEPS and (view.status == "running" or stage is Stage.RAN) and await _STEPS[stage](self):
            return True  # a paused run begins nothing: what ends a tick is written all the same
        self._mailbox.give_receipts(committed=True)
        if self._mailbox.resting and view.status == "running":
            await self._mailbox.wait()
            return True
        if view.limits.seconds is not None and not self._log.has_alarm and view.status == "running":
            await self._take(self._log.begin())
            return True
        return False

    async def _wait_for_others(self) -> bool:
        """Wait with an answer in hand, else leave, after a step was refused though nothing has come: the run is being
        amended, or a call that was added gathers, and the end of that wakes the loop.
        """
        if not self._results:
            return False
        self._log.try_again()
        self._refusals += 1
        self._mailbox.remind(self._view.loop.request, _BACKOFF.seconds(self._refusals + 1))
        await self._mailbox.wait()
        return True

    async def _release_or_continue(self) -> bool:
        """Clear the task's mark before leaving; true where new entries of the log are a reason to stay."""
        return not self._log.has_left and not (await self._log.commit(leaves=True)).is_current

    # The step of each stage; false where there was none to take.

    async def _compose(self) -> bool:
        """Log the next request, or the limit that keeps it from being sent."""
        view, loop = self._view, self._view.loop
        if view.parent is not None and not await self._services.log.is_awaited(view.parent, view.run):
            return await self._fail("the call that it should answer no longer waits")
        if (limit := view.limits.tick_limit(loop)) is not None:
            return await self._fail("; ".join((*ticks.last_errors(view), limit)))
        asks = self._asks
        try:
            try:
                request = await self._composed(asks)
            except ticks.PicturesUnknown as unknown:
                await self._read_pictures(unknown.digests)
                request = await self._composed(asks)
        except (Rejected, TooLarge) as error:
            return await self._fail(f"TooLarge: {error}")
        times = request.repeats["times"] if request.repeats is not None else 1
        estimate = Estimate(request.estimate, request.nanodollars)
        limit = view.limits.repeat_limit(loop, times) or view.limits.request_limit(loop, estimate)
        if limit is not None:
            return await self._fail(limit)
        step = self._log.begin()
        step.note(request)
        await self._take(step)
        self._has_to_look = True
        return True

    async def _composed(self, asks: Request) -> RequestRecorded:
        compose = partial(ticks.next_request, self._view, asks, self._models)
        if self._view.limits.money is not None:  # loading prices may take a second
            return await asyncio.to_thread(compose)
        return await self._answers.apart(sum(size_of(message) for message in self._view.unshown.values()), compose)

    async def _read_pictures(self, named: Sequence[str]) -> None:
        """Read the pictures of tools with these digests into the view, as far as they can be shown."""
        found = await self._services.log.files(self._view.run, named)
        self._view.pictures |= {digest: picture_fields(found[digest]) if digest in found else None for digest in named}

    async def _ask(self) -> bool:
        """Claim the current request, unless it is at work, and send it."""
        if not self._has_to_look:
            return False
        view, index, settings = self._view, self._view.loop.request, self._services.settings
        if self._limit is not None and (refusal := self._limit.refusal(self._tokens)) is not None:
            self._is_unsent = True
            return await self._fail(refusal)
        if not await self._is_admitted():
            self._has_to_look = False
            return False
        claim = Claim(index, settings.sweep_interval_seconds, settings.queue_delegates)
        claimed = await self._log.commit(claims=[claim], leaves=True)
        self._has_to_look = False
        number, failures = claimed.attempts[0], claimed.failures[0]
        if not number or (index, number) == self._sent:
            return True
        self._sent = index, number
        attempt = Attempt(CallId(view.run, LOOP, index), number, failures, claimed.repeated[0], trace=view.trace)
        attempt = replace(attempt, priority=view.priority)
        if view.loop.stage is Stage.OPEN:
            self._results.append((replace(attempt, number=number - 1), _LOST))
            return True
        self._is_unsent = not attempt.is_repeated
        if attempt.losses >= settings.limit_attempts:
            text = f"the workers that asked the model were lost {attempt.losses} times"
            return await self._fail(text, attempt.losses)
        if (limit := view.limits.request_limit(view.loop, view.loop.tick.estimate, attempt.losses)) is not None:
            return await self._fail(limit, attempt.losses)
        if (shortfall := await self._budget.reserve(attempt.losses)) is None:
            if not attempt.is_repeated or await self._is_admitted(lost=True):
                return await self._send(attempt)
            await self._rest(attempt, 0, is_given_back=True)
        elif waits(shortfall, failures, settings):
            await self._rest(attempt, limits.STARTING_WAIT_SECONDS)
        else:
            await self._fail(shortfall.text, attempt.losses)
        return True

    # What the model's provider allows in a minute, where that is limited: a request holds a slot until it has ended.

    @property
    def _tokens(self) -> int:
        """The tokens that the current request probably takes, with its answer."""
        return likely_tokens(self._view.loop.tick.estimate, self._view.loop.known or 0)

    async def _is_admitted(self, *, lost: bool = False) -> bool:
        """Whether the current request has a slot, or needs none; else it waits, and the loop is published when it has
        one. An attempt that was `lost` has used up its slot.
        """
        if self._limit is None:
            return True
        call = CallId(self._view.run, LOOP, self._view.loop.request)
        wanted = Wanted(call, model_slots(*self._limit), tokens=self._tokens, lost=lost)
        slotted = await self._services.slots.acquire([wanted])
        await self._hand_on(slotted)
        return slotted.granted[0]

    async def _give_back(self, *, has_begun: bool) -> None:
        """Give back the slot of the current request."""
        if self._limit is not None:
            call = CallId(self._view.run, LOOP, self._view.loop.request)
            held = [(call, model_slots(*self._limit), has_begun)]
            await self._hand_on(await self._services.slots.release(held, {call: Taken.of(self._told)}))
            self._told, self._is_unsent = {}, False

    async def _hand_on(self, slotted: Slotted) -> None:
        """Wake the lanes that were handed a slot."""
        if slotted.handed:
            await publish_lanes(self._services.publish, self._services.settings.queue_instances, slotted.handed)

    async def _start(self) -> bool:
        """Write the calls of an approved plan into their lanes (SPEC R13.7)."""
        view, plan = self._view, self._view.loop.tick.plan
        if view.has_added_gathers or plan is None:
            return False
        solution = {"calls": plan.calls, "output": None}
        asks = replace(self._asks, has_texts=False)  # its texts were read when it came
        read = partial(ticks.read_solution, asks, solution, view, self._services.checker)
        solved = await self._answers.apart(size_of(solution), read)
        step = self._log.begin()
        ticks.note_start(step, view, solved)
        await self._take(step)
        return True

    async def _close(self) -> bool:
        """Append the errors of the tick, and judge its output."""
        if self._view.open:
            return False
        step, solution = self._log.begin(), self._view.loop.tick.solution
        await self._answers.apart(size_of(solution), partial(ticks.note_closing, step, self._view, self._asks))
        await self._take(step)
        return True

    async def _fail(self, reason: str, lost: int = 0) -> bool:
        """End the run with a reason; everything is kept. `lost` attempts at its request may have cost something."""
        step = self._log.begin()
        step.note(LoopEnded("failed", reason, None, lost))
        await self._take(step)
        return True

    # The answers of the model.

    async def _take_result(self) -> None:
        """Take in an answer of the model, or a part of one."""
        loop = self._view.loop
        attempt, result = self._results[0]
        if not loop.is_asking or attempt.id.index != loop.request:
            self._results.pop(0)  # it is in the log already, or came too late
        elif isinstance(result, Success):
            reply = tick_answer(result.value)
            await (self._take_part(reply) if WRITTEN in reply else self._conclude(reply, attempt.losses))
        elif loop.stage is Stage.OPEN:  # calls of it run already
            failure = result.failure if isinstance(result, Retry) else result
            await self._conclude({"error": {"type": failure.type, "message": failure.message}}, attempt.losses)
        elif isinstance(result, Retry):
            await self._rest(attempt, result.delay_seconds)
            self._results.pop(0)
        elif result.type == NOT_READ and (attempt.id.index, attempt.number) != self._whole:
            self._results.pop(0)
            self._services.remote.sends_whole_requests = True
            await self._send(replace(attempt, took_ms=None, worker=None, version=None))  # it has not run yet
        else:
            lost = attempt.losses + (result.type == Unreachable.__name__)  # it may have answered, and was not heard
            await self._fail(f"{result.type}: {result.message}", lost)

    async def _take_part(self, reply: Mapping[str, Any]) -> None:
        if (step := await self._answers.part(reply)) is not None:
            await self._take(step)
        else:
            self._results.pop(0)

    async def _conclude(self, reply: Mapping[str, Any], losses: int) -> None:
        self._told = reply
        if self._view.has_added_gathers:
            await self._wait_for_others()
        else:
            await self._take(await self._answers.whole(reply, losses))

    @property
    def _asks(self) -> Request:
        return ticks.request_of(self._view, self._services.checker)

    async def _send(self, attempt: Attempt) -> bool:
        """Send the request to the worker that asks the model. It reads the messages in the log, so a
        conversation crosses the broker once, not with each tick; if it cannot read the log, they are sent along.
        """
        view, config = self._view, ticks.config_of(self._view, self._asks)
        if (most := view.limits.seconds) is not None:
            left = max(most - self._log.ran_seconds, 1)
            config["request_seconds"] = min(config.get("request_seconds", left), left)
        about: dict[str, Any] = {"streams": not self._asks.is_lazy or self._asks.may_be_text, "asked": view.digest}
        about["admitted"] = self._limit is not None
        messages, schema = list[Mapping[str, Any]](), None
        if self._services.remote.sends_whole_requests:
            try:
                messages, schema = await view.read_request(self._services.log), view.schema
            except FileGone as error:
                return await self._fail(str(error))
            about |= {"asked": "", "provider_data": view.provider_data}
            self._whole = attempt.id.index, attempt.number
        self._is_unsent = False
        given = view.tokens.given(attempt)
        message = self._services.remote.request(given, messages, schema, config, **about)
        await self._services.publish([replace(message, priority=given.priority)])
        return True

    async def _rest(self, attempt: Attempt, delay_seconds: float, *, is_given_back: bool = False) -> None:
        """Put the request off."""
        await self._log.commit(rests=[Rest(attempt.id.index, attempt.number, delay_seconds, is_given_back)])
        await self._give_back(has_begun=not (self._is_unsent or is_given_back))
        if delay_seconds <= self._services.settings.sweep_interval_seconds:
            self._mailbox.remind(attempt.id.index, delay_seconds)

    async def _take(self, step: LoopStep) -> None:
        """Write a step, if the log is still as it was read."""
        is_taken = await self._log.take(step)
        if is_taken and step.answers:
            await self._give_back(has_begun=not self._is_unsent)
        if self.gets_on is not None:
            self.gets_on.set()
        if is_taken and step.answers:
            self._results.clear()  # a request that is asked anew, by `acts resume --ticks`, has another answer
        if is_taken and step.after.ended is not None and self._view.parent is not None:
            await self._answer(self._view.parent, step.after.ended.status)

    async def _answer(self, parent: Parent, status: str) -> None:
        """Send the result to the call that waits for it; if this process dies, the sweep sends it again."""
        view, services = self._view, self._services
        await view.catch_up(services.log)  # with the costs of the last step
        await self._budget.give_back()
        queue = services.settings.queue_instances
        result = child_result(status, view.loop, view.labels)
        await services.publish([parent.answer(view.run, result, view.tokens, queue, view.priority)])


_STEPS: Final[Mapping[Stage, Callable[[LoopRunner], Awaitable[bool]]]] = {
    Stage.NEW: LoopRunner._compose,
    Stage.ASKED: LoopRunner._ask,
    Stage.OPEN: LoopRunner._ask,
    Stage.APPROVED: LoopRunner._start,
    Stage.RAN: LoopRunner._close,
}
"""The step of each stage. A plan waits for a person, and so does a loop that is over."""
