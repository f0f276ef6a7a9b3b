"""Deciding: what results mean and what is ready, as far as it fits one step of a lane."""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeGuard

from ...protocol.calls.call import Call, call_of
from ...protocol.calls.tools import Executor
from ...protocol.engine.costs import Cost
from ...protocol.engine.events import Decision, Failure, FanOut, Hold, Outcome, Start, Status, Success
from ...protocol.engine.execution import Execution
from ...protocol.schemas.validation import OffloadedChecks
from ..broker.attempts import Attempt, CallId, Retry
from ..broker.messages import lane_task, pack, rest_of
from ..limits import BYTES_A_STEP, OUTCOMES_A_STEP
from ..store.commits import Delegated, Rest
from ..store.entries import CallTiming
from ..store.held_calls import pack_hold
from ..store.lane import LaneView
from ..store.scripts import ExecutedBy, date_now
from ..store.slots import KEYED, RATE, Limit, Rate, Taken, Wanted, model_slots
from .once import Untold
from .remote import Started
from .starting import Cached, Found, Starter
from .step import Mailbox, Publish, Step, WorkerContext

logger = logging.getLogger(__name__)


class Decider:
    """Decides for one lane runner. The lane is the log's, plus outcomes about to be committed."""

    def __init__(self, services: WorkerContext, starter: Starter, mailbox: Mailbox, admission: Admission) -> None:
        self._services = services
        self._starter = starter
        self._mailbox = mailbox
        self._admission = admission
        self.results: deque[tuple[Attempt, Found]] = deque()
        """Results of calls that are not in the log yet, in order: each is judged by what those before it leave."""
        self._of_results = OffloadedChecks()
        """Checks of results that are heavy to make."""
        self._of_calls = OffloadedChecks()
        """Checks of calls to be started that are heavy to make."""
        self.unknown: dict[int, int] = {}
        """The attempts whose end is not known, by call (SPEC R4.11)."""
        self._unpaid: list[Start] = []
        """Calls that are to be forgotten, and before that have to pay for a request to a model, or need a slot."""
        self._paid: dict[int, Cost | Failure | None] = {}
        """The amount paid for each of them, nothing where it has a slot, or why it is not sent."""
        self._refused: set[int] = set()
        """Calls to be forgotten that wait for a slot."""
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
        time, where calls were given back. Have paid what is to be paid, and ask for slots of what is to be forgotten.
        """
        run = lane.run.run
        for start in [] if is_over() else self._unpaid:
            index = start.call.index
            if not await self._admission.admit([start], lane.execution):
                self._refused.add(index)
            elif isinstance(weight := self._starter.weights.pop(index, None), Failure):
                self._paid[index] = weight
            elif self._starter.is_paid_ahead(start.call):
                self._paid[index] = await self._starter.pay(start, lane.again(index), lane.execution)
            else:
                self._paid[index] = None
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
        """Make outcomes of the results, and take each in before the next one."""
        execution = lane.execution
        while self.results and not step.is_full:
            attempt, result = self.results.popleft()
            index = attempt.id.index
            call = execution.call(index)
            if call is None or execution.status(index) not in (Status.WAITING, Status.RUNNING, Status.UNKNOWN):
                continue
            if not lane.is_of_now(attempt):
                continue
            if isinstance(result, Untold) or (isinstance(result, Failure) and result.is_unknown):
                self._doubt(lane, step, call, attempt, result)
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
                step.rests.append(Rest(index, attempt.number, result.delay_seconds, progress=result.progress))
                if result.progress:
                    lane.progress[index] = result.progress
                self._rest(lane, index, result.delay_seconds)
            else:
                with self._of_results:
                    outcome = _outcome(lane, index, result)
                if self._of_results.asked:  # it is judged when they are there
                    self.results.appendleft((attempt, result))
                    break
                self._of_results.found.clear()
                if isinstance(result, Cached) and outcome.status is Status.DONE:
                    outcome = replace(outcome, reason=result.reason)
                lane.apply(outcome)
                step.outcomes.append(outcome)
                step.spent[index] = CallTiming(attempt.took_ms, attempt.number)
                if attempt.seen is not None:
                    step.seen[index] = attempt.seen
                if attempt.worker is not None:
                    step.codes[index] = ExecutedBy(attempt.worker, attempt.version)
                step.load += sum(len(pack(part)) for part in (*outcome.messages, outcome.value))
        self._now_ms = None

    def _doubt(self, lane: LaneView, step: Step, call: Call, attempt: Attempt, result: Failure | Untold) -> None:
        """Take in that nobody knows how an attempt at a call has ended that runs at most once, or what its
        activity says of that.
        """
        execution, once = lane.execution, self._starter.once
        if execution.status(call.index) is Status.UNKNOWN:
            return  # a person is asked already
        index = call.index
        if isinstance(result, Failure):
            self.unknown[index] = attempt.number
            once.doubt(call, attempt.number, result.message, execution)
        elif result.is_not_done:
            once.not_done[index] = number = self.unknown.pop(index, attempt.number)
            step.rests.append(Rest(index, number, 0.0))  # the number of an attempt that is not lost
            self._rest(lane, index, 0.0)
        else:
            execution.note_unknown(index, result.said)

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
                if isinstance(decision, Start) and decision.call.index in self._refused:
                    self._refused.remove(decision.call.index)
                    continue
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
                    if isinstance(decision, Hold) and decision.evidence is not None:
                        step.unknown[decision.call.index] = self.unknown.pop(decision.call.index, 0)
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
        ends_ms = self._services.registry.ends_ms(start.call)  # nobody hears when it begins
        run, id_ = lane.run, CallId(lane.run.run, lane.instance, index)
        attempt = Attempt(id_, trace=run.trace, priority=run.priority, ends_ms=ends_ms)
        message = self._starter.message(start, attempt, execution)
        if isinstance(message, Failure):
            return execution.finish(index, message, now)
        step.sendings[index] = message
        step.load += len(message.body)
        return execution.finish(index, Success(None, paid.pack() if paid is not None else None), now)

    def _is_unpaid(self, call: Call) -> bool:
        is_asked_ahead = call.is_fire_and_forget and self._admission.is_limited(call)
        return call.index not in self._paid and (is_asked_ahead or self._starter.is_paid_ahead(call))

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


# Admission: which of a lane's calls may begin now, where it is limited how many are at work, or begin within a time.
#
# A limit is set by `@activity(max_concurrency=…, rate=…, key=…)`, `@delegate(…, max_concurrency=…)`, the `config` of a
# request definition or of a submission, or `ACTS_LIMIT_RUN_CONCURRENCY`. It holds for calls whose end is awaited: what
# is sent and forgotten is out of sight, but for its first attempt, which counts for a rate when it is sent. Where
# nothing is limited, nothing is asked.

MAX_CONCURRENCY = "max_concurrency"
"""The property of a `config` that limits how many calls are at work at a time."""
WAITS: Final = Retry(Failure("Unavailable", "it waits for what its model's provider allows in a minute"), 0.0)
"""The result of a call that is to be claimed again when it has a slot."""


class Admission:
    """The calls of one lane runner at the door."""

    def __init__(
        self, services: WorkerContext, lane: LaneView, refuse: Callable[[Iterable[int]], None], starter: Starter
    ) -> None:
        """`refuse` is called with the calls that have no slot."""
        self._starter = starter
        self._slots = services.slots
        self._refuse = refuse
        self._run = lane.run.run
        self._definition = lane.run.definition
        own = self._definition.config.get(MAX_CONCURRENCY)
        self._most = _tightest(own, services.settings.limit_run_concurrency)
        """How many calls of the run may be at work."""
        self._instance = lane.instance
        self._registry = services.registry
        self._settings = services.settings
        self._publish = services.publish

    async def admit(self, starts: Sequence[Start], execution: Execution) -> list[Start]:
        """Choose the starts that have a slot, or need none. The others wait until the lane is published for them."""
        limited = [
            await self._wanted(start, limits, execution) for start in starts if (limits := self._limits_of(start.call))
        ]
        if not limited:
            return list(starts)
        slotted = await self._slots.acquire(limited)
        refused = {one.call.index for one, is_granted in zip(limited, slotted.granted, strict=True) if not is_granted}
        self._refuse(refused)
        await self._wake(slotted.handed)
        return [start for start in starts if start.call.index not in refused]

    async def admits_again(self, call: Call) -> bool:
        """Whether a call may begin of which an attempt was lost, which may have asked a model, and counts."""
        limit, weight = self._starter.limit_of(call), self._starter.weights.get(call.index, 0)
        if limit is None or not isinstance(weight, int):
            return True
        slotted = await self._slots.acquire([Wanted(self._id(call), model_slots(*limit), tokens=weight, lost=True)])
        await self._wake(slotted.handed)
        return slotted.granted[0]

    def is_limited(self, call: Call) -> bool:
        """Whether a call needs a slot."""
        return bool(self._limits_of(call))

    async def note_begun(self, calls: Iterable[Call]) -> frozenset[int]:
        """Note that calls have begun in this process: the windows of their rates run from now on. Returns as `release`
        does.
        """
        limited = ((call, self._limits_of(call)) for call in calls)
        begun = [(self._id(call), names) for call, names in limited if any(name.startswith(RATE) for name in names)]
        return await self._hand_on((await self._slots.begin(begun)).handed) if begun else frozenset()

    async def release(
        self, calls: Iterable[Call], unused: Collection[int], outcomes: Iterable[Outcome]
    ) -> frozenset[int]:
        """Give back the slots of calls that have ended or rest; those of `unused` have not begun. Returns calls of this
        lane that waited and have one.
        """
        held = [(self._id(call), names, call.index not in unused) for call in calls if (names := self._limits_of(call))]
        if not held:
            return frozenset()
        taken = {
            CallId(self._run, self._instance, outcome.index): Taken.of(outcome.cost)
            for outcome in outcomes
            if outcome.cost is not None
        }
        return await self._hand_on((await self._slots.release(held, taken)).handed)

    async def _hand_on(self, handed: Collection[CallId]) -> frozenset[int]:
        """Wake the lanes of other calls that were handed a slot."""
        own = {call for call in handed if (call.run, call.instance) == (self._run, self._instance)}
        await self._wake({*handed} - own)
        return frozenset(call.index for call in own)

    async def _wake(self, calls: Collection[CallId]) -> None:
        """Publish the lanes of calls that were handed a slot."""
        if calls:
            await publish_lanes(self._publish, self._settings.queue_instances, calls)

    def _id(self, call: Call) -> CallId:
        return CallId(self._run, self._instance, call.index)

    async def _wanted(self, start: Start, limits: Mapping[str, Limit], execution: Execution) -> Wanted:
        """The slots that a call needs, with its own key in their names."""
        if (limit := self._starter.limit_of(start.call)) is not None:
            weight = await self._starter.weigh(start, execution)
            if isinstance(weight, Failure):  # it ends with that when it begins
                others = limits.keys() - model_slots(*limit).keys()
                return Wanted(self._id(start.call), {name: limits[name] for name in others})
            return Wanted(self._id(start.call), limits, tokens=weight)
        activity = self._registry.activities.get(start.call.runner.name)
        if activity is None or not any(name.endswith(KEYED) for name in limits):
            return Wanted(self._id(start.call), limits)
        key = activity.key_of(start.parameters)
        named = {name + key if name.endswith(KEYED) else name: limit for name, limit in limits.items()}
        return Wanted(self._id(start.call), named, key)

    def _limits_of(self, call: Call) -> Mapping[str, Limit]:
        """The names that limit a call, and how many calls of each may be at work, or begin; those of activities with a
        key end in `KEYED`.
        """
        name, definition = call.runner.name, self._definition
        is_code = call.runner.executor is Executor.ACTIVITY
        limits = self._limits_of_activity(name) if is_code else {}
        if (of_model := self._starter.limit_of(call)) is not None:
            limits |= model_slots(*of_model)
        if call.is_fire_and_forget:
            return {name: limit for name, limit in limits.items() if isinstance(limit, Rate)}
        if self._most is not None:
            limits[f"run:{self._run}"] = self._most
        if call.runner.executor is Executor.DELEGATE and name in definition.delegates:
            own = (definition.delegates[name].get("config") or {}).get(MAX_CONCURRENCY)
            if own is not None:
                limits[definition_slots(name, definition.delegates[name])] = own
        elif call.runner.executor is Executor.DELEGATE:
            code = self._registry.delegates.get(name)
            if code is not None and code.policy.max_concurrency is not None:
                limits[f"delegate:{name}"] = code.policy.max_concurrency
        return limits

    def _limits_of_activity(self, name: str) -> dict[str, Limit]:
        limits: dict[str, Limit] = {}
        if (activity := self._registry.activities.get(name)) is None:
            return limits
        policy = activity.policy
        of = name if policy.key is None else name + KEYED
        if policy.max_concurrency is not None:
            limits[f"activity:{of}"] = policy.max_concurrency
        if policy.rate_limit is not None:
            limits[RATE + of] = Rate(*policy.rate_limit)
        return limits


async def publish_lanes(publish: Publish, queue: str, calls: Iterable[CallId]) -> None:
    """Publish the lanes of calls, each once."""
    lanes = {(call.run, call.instance) for call in calls}
    await publish([lane_task(run, instance, queue) for run, instance in lanes])


def definition_slots(name: str, definition: Mapping[str, Any]) -> str:
    """The name of a request definition's slots: runs share them where the whole definition is the same, so a
    submission's own takes none from an operator's of that name.
    """
    return f"delegate:{name}:{hashlib.sha256(pack(definition)).hexdigest()[:12]}"


def _tightest(*limits: int | None) -> int | None:
    """The limit that holds of several: a config can only tighten what the operator has set (SPEC R4.2a)."""
    return min((limit for limit in limits if limit is not None), default=None)
