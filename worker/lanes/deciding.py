"""Deciding: what results mean and what is ready, as far as it fits one step of a lane."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TypeGuard

from acts_celery.protocol.calls.elements import call_of
from acts_celery.protocol.engine.decisions import Decision, Failure, FanOut, Hold, Outcome, Start, Success
from acts_celery.protocol.engine.statuses import Status
from acts_celery.protocol.schemas.elsewhere import OffloadedChecks
from acts_celery.worker.storage.clock import date_now
from acts_celery.worker.storage.codes import Code
from acts_celery.worker.storage.commits import Delegated, Rest
from acts_celery.worker.storage.held_calls import pack_hold
from acts_celery.worker.storage.lane import LaneView
from acts_celery.worker.storage.spent import Spent
from acts_celery.worker.wire.attempts import Attempt, CallId, Result, Retry
from acts_celery.worker.wire.giving_back import rest_of
from acts_celery.worker.wire.packing import pack

from .children import Started
from .mailbox import Mailbox
from .services import Services
from .starting import Starter
from .step import MOST, MOST_BYTES, Step

logger = logging.getLogger(__name__)


class Decider:
    """Decides for one lane runner. The lane is the log's, plus outcomes about to be committed."""

    def __init__(self, services: Services, starter: Starter, mailbox: Mailbox) -> None:
        self._services = services
        self._starter = starter
        self._mailbox = mailbox
        self.results: deque[tuple[Attempt, Result | Started]] = deque()
        """What has come of calls and is not in the log yet, in order: each is judged by what those before it leave."""
        self._of_results = OffloadedChecks()
        """By which results are judged that are heavy to check."""
        self._of_calls = OffloadedChecks()
        """The same, of calls that are to be started."""
        self._now_ms: int | None = None
        """The server's time, as far as results need it that were given back."""
        self._resumed_ms = 0
        """When the run last went on: as long as it was paused no call waited for code that admits it."""
        self._code_came_ms = 0
        """When a worker last began."""

    @property
    def is_left(self) -> bool:
        """Whether something could not be decided yet."""
        return bool(self.results or self._of_calls.asked)

    async def judge(self, run: str, is_over: Callable[[], bool]) -> None:
        """Have those verdicts found, in the validator's process, without which the step before could not go on; and the
        time, where calls were given back.
        """
        if any(isinstance(result, Retry) and result.is_given_back for _, result in self.results):
            self._now_ms = await self._services.log.now_ms()
            self._resumed_ms, self._code_came_ms = await self._services.log.resumed_and_code_came_ms(run)
        for verdicts in (self._of_results, self._of_calls):
            for check in verdicts.asked:
                async with self._services.validator.place(run):
                    if not is_over():
                        verdicts.found[check] = await self._services.validator.verdict(check)
            verdicts.asked.clear()

    def take_results(self, lane: LaneView, step: Step) -> None:
        """Make outcomes of the results, and take each in before the next is looked at."""
        execution = lane.execution
        while self.results and not step.is_full:
            attempt, result = self.results.popleft()
            index = attempt.id.index
            call = execution.call(index)
            if call is None or execution.status(index) not in (Status.WAITING, Status.RUNNING):
                continue
            if not lane.is_of_now(attempt):
                continue
            if not isinstance(result, Started):
                result = self._services.remote.received(call, attempt, result, lane.run.definition)
            if isinstance(result, Retry) and result.is_given_back:
                if self._now_ms is None:
                    self.results.appendleft((attempt, result))
                    break
                failure = self._given_back(lane, step, attempt, result.failure, self._now_ms)
                if failure is None:
                    continue
                result = failure
            if isinstance(result, Started):
                step.delegated.append(Delegated(index, attempt.number, result.run))
            elif isinstance(result, Retry):
                step.rests.append(Rest(index, attempt.number, result.delay_seconds))
                self._rest(lane, index, result.delay_seconds)
            else:
                with self._of_results:
                    outcome = _outcome(lane, index, result)
                if self._of_results.asked:  # it is judged when they are there
                    self.results.appendleft((attempt, result))
                    break
                self._of_results.found.clear()
                lane.apply(outcome)
                step.outcomes.append(outcome)
                step.spent[index] = Spent(attempt.took_ms, attempt.number)
                if attempt.seen is not None:
                    step.seen[index] = attempt.seen
                if attempt.worker is not None:
                    step.codes[index] = Code(attempt.worker, attempt.version)
                step.load += sum(len(pack(part)) for part in (*outcome.messages, outcome.value))
        self._now_ms = None

    def _given_back(
        self, lane: LaneView, step: Step, attempt: Attempt, failure: Failure, now_ms: int
    ) -> Failure | None:
        """Let a call rest that was given back, or have it fail. Other workers are to have it, so it is not tried again
        here before the sweep publishes its lane.
        """
        index, call = attempt.id.index, call_of(attempt.id.index)
        since_ms = lane.given_back.get(call)
        wait_seconds = self._services.settings.contract_wait_seconds
        waits_since_ms = now_ms if since_ms is None else max(since_ms, self._resumed_ms)
        rest = rest_of(failure, waits_since_ms, now_ms, wait_seconds, code_came_ms=self._code_came_ms)
        if isinstance(rest, Failure):
            return rest
        note = failure.message if since_ms is None else ""
        step.rests.append(Rest(index, attempt.number, rest, is_given_back=True, note=note))
        lane.given_back.setdefault(call, now_ms)
        lane.execution.record(index, Status.RUNNING)
        return None

    def decide(self, lane: LaneView, step: Step) -> None:
        """Add what can be started now, and what is to wait for a person, or is carried out for each element; outcomes
        that need no execution join the others.
        """
        now = date_now()
        while not self._of_calls.asked and not step.is_full:
            with self._of_calls:
                decisions = lane.execution.decide(now, most=MOST - len(step))
            if not decisions:
                break
            self._of_calls.found.clear()
            for decision in decisions:
                if step.load >= MOST_BYTES and _is_written(decision):
                    lane.execution.reconsider(decision.call.index)
                    continue
                if isinstance(decision, Start):
                    decision = self._forget(lane, decision, step, now)
                if isinstance(decision, Start):
                    step.starts.append(decision)
                elif isinstance(decision, Outcome):
                    lane.apply(decision)
                    step.outcomes.append(decision)
                else:
                    step.holds.append(decision)
                    step.load += len(pack_hold(decision))

    def _forget(self, lane: LaneView, start: Start, step: Step, now: str) -> Start | Outcome:
        """What comes of a call that is sent and forgotten: it has ended when its message is in the outbox (SPEC R5.1).

        Any other call stays to be started.
        """
        if not start.call.is_fire_and_forget:
            return start
        index, execution = start.call.index, lane.execution
        attempt = Attempt(CallId(lane.run.run, lane.instance, index), trace=lane.run.trace)
        message = self._starter.message(start, attempt, execution)
        if isinstance(message, Failure):
            return execution.finish(index, message, now)
        step.sendings[index] = message
        step.load += len(message.body)
        return execution.finish(index, Success(None), now)

    def _rest(self, lane: LaneView, index: int, delay_seconds: float) -> None:
        """Let a call rest; one that is soon due is tried again here."""
        lane.execution.record(index, Status.RUNNING)
        if delay_seconds <= self._services.settings.sweep_interval_seconds:
            self._mailbox.remind(index, delay_seconds)


def _outcome(lane: LaneView, index: int, result: Success | Failure) -> Outcome:
    """Make an outcome of a result. Whatever is wrong with the result is the call's failure, not the runner's."""
    try:
        return lane.execution.finish(index, result, date_now())
    except Exception as error:
        logger.exception("the result of call %d of run %s makes no outcome", index, lane.run.run)
        failure = Failure(type(error).__name__, "its result cannot be taken", labels=result.labels)
        return lane.execution.finish(index, failure, date_now())


def _is_written(decision: Decision) -> TypeGuard[Start | Hold | FanOut]:
    """Whether a commit holds all that a call is given: it is to wait for a person, is carried out for each element, or
    is sent and forgotten.
    """
    return not isinstance(decision, Outcome) and (not isinstance(decision, Start) or decision.call.is_fire_and_forget)
