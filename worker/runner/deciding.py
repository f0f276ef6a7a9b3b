"""Deciding: what results mean and what is ready, as far as it fits one step of a lane."""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from ...protocol.calls.call import Call, call_of
from ...protocol.calls.tools import Executor
from ...protocol.engine.costs import Cost
from ...protocol.engine.events import Decision, Failure, FanOut, Hold, Outcome, Start, Status, Success
from ...protocol.schemas.validation import OffloadedChecks
from ..broker.attempts import Attempt, CallId, Result, Retry
from ..broker.messages import lane_task, pack, rest_of
from ..limits import BYTES_A_STEP, OUTCOMES_A_STEP
from ..registry.activities import Activity, Delegate
from ..store.commits import Delegated, Rest
from ..store.entries import CallTiming
from ..store.held_calls import pack_hold
from ..store.lane import LaneView
from ..store.scripts import ExecutedBy, date_now
from .remote import Started
from .starting import Starter
from .step import Mailbox, Step, WorkerContext

logger = logging.getLogger(__name__)


class Decider:
    """Decides for one lane runner. The lane is the log's, plus outcomes about to be committed."""

    def __init__(self, services: WorkerContext, starter: Starter, mailbox: Mailbox) -> None:
        self._services = services
        self._starter = starter
        self._mailbox = mailbox
        self.results: deque[tuple[Attempt, Result | Started]] = deque()
        """Results of calls that are not in the log yet, in order: each is judged by what those before it leave."""
        self._of_results = OffloadedChecks()
        """Checks of results that are heavy to make."""
        self._of_calls = OffloadedChecks()
        """Checks of calls to be started that are heavy to make."""
        self._unpaid: list[Start] = []
        """Calls that are to be forgotten, whose requests to a model have to be paid before they are sent."""
        self._paid: dict[int, Cost | Failure] = {}
        """What has been paid for them, or why they are not sent."""
        self._now_ms: int | None = None
        """The server's time, as far as results need it that were given back."""
        self._resumed_ms = 0
        """When the run last went on: as long as it was paused no call waited for code that admits it."""
        self._code_came_ms = 0
        """When a worker last began."""

    @property
    def is_left(self) -> bool:
        """Whether something could not be decided yet."""
        return bool(self.results or self._of_calls.asked or self._unpaid)

    async def judge(self, lane: LaneView, is_over: Callable[[], bool]) -> None:
        """Have those verdicts found, in the validator's process, without which the step before could not go on; and the
        time, where calls were given back. Have paid what is to be paid.
        """
        run = lane.run.run
        for start in [] if is_over() else self._unpaid:
            index = start.call.index
            self._paid[index] = await self._starter.pay(start, lane.again(index), lane.execution)
        self._unpaid.clear()
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
                step.spent[index] = CallTiming(attempt.took_ms, attempt.number)
                if attempt.seen is not None:
                    step.seen[index] = attempt.seen
                if attempt.worker is not None:
                    step.codes[index] = ExecutedBy(attempt.worker, attempt.version)
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
        """Add what can be started now, and what is to wait for a person, or runs for each element; outcomes
        that need no execution join the others.
        """
        now = date_now()
        while not (self._of_calls.asked or self._unpaid or step.is_full):
            with self._of_calls:
                decisions = lane.execution.decide(now, most=OUTCOMES_A_STEP - len(step))
            if not decisions:
                break
            self._of_calls.found.clear()
            for decision in decisions:
                if step.load >= BYTES_A_STEP and _is_written(decision):
                    lane.execution.reconsider(decision.call.index)
                    continue
                if isinstance(decision, Start) and self._is_unpaid(decision.call):
                    self._unpaid.append(decision)
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
        """End a call that is sent and forgotten: it has ended when its message is in the outbox (SPEC R5.1).

        Any other call stays to be started.
        """
        if not start.call.is_fire_and_forget:
            return start
        index, execution = start.call.index, lane.execution
        paid = self._paid.pop(index, None)
        if isinstance(paid, Failure):
            return execution.finish(index, paid, now)
        attempt = Attempt(CallId(lane.run.run, lane.instance, index), trace=lane.run.trace)
        message = self._starter.message(start, attempt, execution)
        if isinstance(message, Failure):
            return execution.finish(index, message, now)
        step.sendings[index] = message
        step.load += len(message.body)
        return execution.finish(index, Success(None, paid.pack() if paid is not None else None), now)

    def _is_unpaid(self, call: Call) -> bool:
        return call.index not in self._paid and self._starter.is_paid_ahead(call)

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
    """Whether a commit holds all that a call is given: it is to wait for a person, runs for each element, or
    is sent and forgotten.
    """
    return not isinstance(decision, Outcome) and (not isinstance(decision, Start) or decision.call.is_fire_and_forget)


# Admission: which of a lane's calls may begin now, where the number of calls at work is limited.
#
# A limit is set by `@activity(max_concurrency=…)`, `@delegate(…, max_concurrency=…)`, the `config` of a request
# definition or of a submission, or `ACTS_LIMIT_RUN_CONCURRENCY`. It holds for calls whose end is awaited: what is sent
# and forgotten is out of sight. Where nothing is limited, nothing is asked.

MAX_CONCURRENCY = "max_concurrency"
"""The property of a `config` that limits how many calls are at work at a time."""


class Admission:
    """The calls of one lane runner at the door."""

    def __init__(self, services: WorkerContext, lane: LaneView, refuse: Callable[[Iterable[int]], None]) -> None:
        """`refuse` is called with the calls that have no slot."""
        self._slots = services.slots
        self._refuse = refuse
        self._run = lane.run.run
        self._definition = lane.run.definition
        self._instance = lane.instance
        self._registry = services.registry
        self._settings = services.settings
        self._publish = services.publish

    async def admit(self, starts: Sequence[Start]) -> list[Start]:
        """Choose the starts that have a slot, or need none. The others wait until the lane is published for them."""
        limited = self._limited(start.call for start in starts)
        if not limited:
            return list(starts)
        slotted = await self._slots.acquire(limited)
        refused = {call.index for (call, _), is_granted in zip(limited, slotted.granted, strict=True) if not is_granted}
        self._refuse(refused)
        await self._wake({(call.run, call.instance) for call in slotted.handed})
        return [start for start in starts if start.call.index not in refused]

    async def release(self, calls: Iterable[Call]) -> frozenset[int]:
        """Give back the slots of calls that have ended or rest. Returns calls of this lane that waited and have one."""
        held = self._limited(calls)
        if not held:
            return frozenset()
        own, lanes = set(), set()
        for call in (await self._slots.release(held)).handed:
            if (call.run, call.instance) == (self._run, self._instance):
                own.add(call.index)
            else:
                lanes.add((call.run, call.instance))
        await self._wake(lanes)
        return frozenset(own)

    async def _wake(self, lanes: Collection[tuple[str, str | None]]) -> None:
        """Publish the lanes of calls that were handed a slot."""
        if lanes:
            queue = self._settings.queue_instances
            await self._publish([lane_task(run, instance, queue) for run, instance in lanes])

    def _limited(self, calls: Iterable[Call]) -> list[tuple[CallId, Mapping[str, int]]]:
        """Choose the calls that are limited, each with its limits."""
        limits = [(call, self._limits_of(call)) for call in calls]
        return [(CallId(self._run, self._instance, call.index), names) for call, names in limits if names]

    def _limits_of(self, call: Call) -> Mapping[str, int]:
        """The names that limit a call, and how many calls of each may be at work."""
        if call.is_fire_and_forget:
            return {}
        name, definition = call.runner.name, self._definition
        own = definition.config.get(MAX_CONCURRENCY)
        limits = {f"run:{self._run}": _tightest(own, self._settings.limit_run_concurrency)}
        if call.runner.executor is Executor.ACTIVITY:
            limits[f"activity:{name}"] = _limit_of(self._registry.activities.get(name))
        elif call.runner.executor is Executor.DELEGATE and name in definition.delegates:
            own = (definition.delegates[name].get("config") or {}).get(MAX_CONCURRENCY)
            if own is not None:
                limits[definition_slots(name, definition.delegates[name])] = own
        elif call.runner.executor is Executor.DELEGATE:
            limits[f"delegate:{name}"] = _limit_of(self._registry.delegates.get(name))
        return {name: limit for name, limit in limits.items() if limit is not None}


def definition_slots(name: str, definition: Mapping[str, Any]) -> str:
    """What the slots of a request definition are called: runs share them where the whole definition is the same, so a
    submission's own takes none from an operator's of that name.
    """
    return f"delegate:{name}:{hashlib.sha256(pack(definition)).hexdigest()[:12]}"


def _tightest(*limits: int | None) -> int | None:
    """What holds of several limits: a config can only tighten what the operator has set (SPEC R4.2a)."""
    return min((limit for limit in limits if limit is not None), default=None)


def _limit_of(code: Activity | Delegate | None) -> int | None:
    return code.policy.max_concurrency if code is not None else None
