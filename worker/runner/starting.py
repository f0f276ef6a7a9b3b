"""How a claimed call is begun: in line, as a run of its own, or as a message that carries it away."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from redis.exceptions import RedisError

from ...broker_config import Settings
from ...protocol import Message, Output
from ...protocol.calls.call import Call
from ...protocol.calls.tools import Executor
from ...protocol.engine.costs import Cost, Estimate
from ...protocol.engine.events import Failure, Outcome, Start, Status, Success
from ...protocol.engine.execution import Execution
from ...protocol.engine.loop import PRICE_REMEDY, LoopLimits
from ...protocol.errors import Conflict
from ...protocol.state.scopes import TooLarge
from .. import limits
from ..broker.attempts import Attempt, CallId, Result, Retry, lost
from ..broker.messages import TaskMessage, lane_task, pack, unpack
from ..limits import most_of
from ..registry.activities import Activity
from ..registry.models import KnownModels, ProviderLimit, likely_tokens
from ..store.commits import Claim
from ..store.definition import StoredPlan
from ..store.lane import LaneView, RunView
from ..store.log import MessageLog
from ..store.run_list import FileGone
from ..store.run_writer import TakenOver
from ..store.slots import Reservation, Shortfall, budget_member
from .calls import CANCELLED_ITSELF, activity_for, invoke
from .once import OnceCalls, Untold
from .remote import Started
from .rooms import agent
from .step import Mailbox, WorkerContext

# What calls that ask a model take from a loop's budget (SPEC R13.3): reserved before they are sent, charged when they
# have ended. A request that does not fit what is left waits as long as others may give something back.

logger = logging.getLogger(__name__)

_FREE: Final = Cost()


class CallBudget:
    """The tokens of one run's calls."""

    def __init__(self, log: MessageLog, settings: Settings, definition: StoredPlan, models: KnownModels) -> None:
        self._log = log
        self._models = models
        self._settings = settings
        self._limits = LoopLimits.of(definition.config, most_of(settings)) if definition.has_budget else None

    @property
    def is_limited(self) -> bool:
        """Whether they are counted while they run; where they are not, the log alone says what they have cost."""
        return self._limits is not None and self._limits.counts_spending

    async def reserve(self, attempt: Attempt, message: TaskMessage) -> Failure | Retry | None:
        """Reserve what a request may cost; else why it is not sent. An attempt that was lost is charged whole."""
        estimate = await self.estimate(message)
        if self._limits is not None and self._limits.money is not None and estimate.nanodollars is None:
            return Failure("LimitReached", f"no price is known of its model, which config.money needs: {PRICE_REMEDY}")
        whole = Cost.of_request(None, estimate, attempt.losses)
        shortfall = await self._take(attempt.id, attempt.again, whole, Cost.of_request(None, estimate))
        if shortfall is None:
            return None
        failure = Failure("LimitReached", shortfall.text)
        return (
            Retry(failure, limits.STARTING_WAIT_SECONDS)
            if waits(shortfall, attempt.failures, self._settings)
            else failure
        )

    async def pay(self, attempt: Attempt, message: TaskMessage) -> Cost | Failure:
        """Charge all that a request may cost whose end nobody hears of (SPEC R13.3); else why it is not sent."""
        cost = Cost.of_request(None, await self.estimate(message))
        if self.is_limited:
            if (refused := await self.reserve(attempt, message)) is not None:
                return refused.failure if isinstance(refused, Retry) else refused
            await self._take(attempt.id, attempt.again, cost)
        return cost

    async def charge(self, id_: CallId, again: int, outcome: Outcome) -> None:
        """Put what a call has cost in the place of what it has reserved; `again` as in `Attempt`."""
        await self._take(id_, again, Cost.read(outcome.cost) if outcome.cost is not None else Cost())

    async def estimate(self, message: TaskMessage) -> Estimate:
        """Estimate a call's request, in money, too, where that is limited. The first time loads the prices."""
        call = unpack(message.body)
        asked = self._models.with_fallbacks(call["config"].get("model"))
        counts_money = self._limits is not None and self._limits.money is not None
        return await asyncio.to_thread(agent().estimate, call, asked, counts_money=counts_money)

    async def _take(self, id_: CallId, again: int, cost: Cost, reserved: Cost = _FREE) -> Shortfall | None:
        """Charge a call; what it has taken before it was run again stays charged."""
        assert self._limits is not None
        member = budget_member(id_, again)
        budgets = await self._log.budgets(id_.run, self._limits)
        taken = {"tokens": cost.tokens, "open": reserved.tokens}
        money = {"money": cost.nanodollars, "open_money": reserved.nanodollars}
        return await self._log.reserve(budgets, Reservation(member, **taken, **money))


def waits(shortfall: Shortfall, failures: int, settings: Settings) -> bool:
    """Whether a request is tried again that does not fit what is left, after so many attempts."""
    return shortfall.may_pass and failures * limits.STARTING_WAIT_SECONDS < settings.model_request_seconds


# Results that are kept: a call of a pure activity that is given what another call was given has its result. Each owner
# of runs has results of their own, and only those are kept that were taken.


@dataclass(frozen=True, slots=True)
class Cached(Success):
    """A result that was kept."""

    of: str = ""
    """The call that has made it, as its idempotency key."""

    @property
    def reason(self) -> str:
        """The reason in the log for its call."""
        return f"from the cache: the result of the call {self.of}"


Invocation = Callable[[], Coroutine[Any, Any, Result]]


class ResultCache:
    """The results of pure activities, as the calls of one lane find and leave them."""

    def __init__(self, log: MessageLog, run: str) -> None:
        self._log = log
        self._run = run
        self._owner: asyncio.Task[str | None] | None = None
        self._new: dict[int, tuple[bytes, bytes, float]] = {}
        """Results of calls that have not been taken yet: digest, what is to be kept, and for how long."""

    async def find_or_run(self, activity: Activity, given: Sequence[Any], attempt: Attempt, run: Invocation) -> Result:
        """The result that is kept for a call's parameters, else the result of `run`."""
        try:
            if self._owner is None:
                self._owner = asyncio.ensure_future(self._log.owner(self._run))
            owner = await asyncio.shield(self._owner)
            digest = hashlib.sha256(pack([owner, activity.name, activity.version, *given])).digest()
            kept = await self._log.cached(digest)
        except (RedisError, LookupError):
            self._owner = None
            return await run()
        if kept is not None:
            return Cached(_unpacked(kept["result"]), of=kept["of"])
        result = await run()
        seconds = activity.policy.cache_seconds
        if isinstance(result, Success) and seconds is not None:
            packed = pack({"of": attempt.id.idempotency_key, "result": _packed(result.value)})
            if len(packed) <= limits.HEAVY_BYTES // 2:
                self._new[attempt.id.index] = digest, packed, seconds
        return result

    async def keep(self, ended: Iterable[Outcome]) -> None:
        """Keep the results of calls that have ended, and are done."""
        for outcome in ended if self._new else ():
            new = self._new.pop(outcome.index, None)
            if new is not None and outcome.status is Status.DONE:
                try:
                    await self._log.cache(*new)
                except RedisError as error:
                    logger.warning("a result is not kept: %s", error)


def _packed(value: Any) -> Mapping[str, Any]:
    match value:
        case Output(path, inner):
            return {"path": path, "value": inner}
        case Message(content):
            return {"message": content}
    return {"value": value}


def _unpacked(said: Mapping[str, Any]) -> Any:
    match said:
        case {"path": path, "value": value}:
            return Output(path, value)
        case {"message": content}:
            return Message(content)
    return said["value"]


# Inline calls: those that a lane runner runs itself, concurrently.

Found = Result | Started | Untold
"""The possible outcomes of an attempt in line."""
_Ended = tuple[Found, int]
"""The result of an attempt, and how long it took in ms."""


class InlineCalls:
    """The calls of one lane that are at work in this process."""

    def __init__(self, services: WorkerContext, run: str, mailbox: Mailbox) -> None:
        self._services = services
        self._run = run
        self._mailbox = mailbox
        self._tasks: dict[asyncio.Task[_Ended], tuple[Attempt, str | None]] = {}
        """Each with the version of the code that it runs, where that is an activity's."""
        self._done: list[asyncio.Task[_Ended]] = []
        """Tasks that have ended since `wait`."""
        self.cache = ResultCache(services.log, run)
        self._begun: list[int] = []
        """Calls with a rate whose functions have begun since `take_begun`."""

    def __bool__(self) -> bool:
        return bool(self._tasks)

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """The attempts at work."""
        return tuple(attempt for attempt, _ in self._tasks.values())

    def begin(
        self,
        activity: Activity,
        function: Callable[[], Any],
        attempt: Attempt,
        *,
        is_once: bool,
        given: Sequence[Any] | None = None,
    ) -> None:
        """Run an attempt; `function` is the activity's with its arguments, `given` all that these are made of, if a
        result for that may be kept.
        """
        run = partial(
            invoke,
            function if activity.policy.rate is None else self._noted(function, attempt.id.index),
            attempt,
            name=activity.name,
            is_async=activity.is_async,
            policy=activity.policy.of(once=is_once),
            limits=self._services.limits,
            threads=self._services.threads,
        )
        working = run() if given is None else self.cache.find_or_run(activity, given, attempt, run)
        self.watch(working, attempt, activity.version)

    def _noted(self, function: Callable[[], Any], index: int) -> Callable[[], Any]:
        """Have it noted when a function begins, which may have to wait for a thread."""
        loop = asyncio.get_running_loop()

        def note() -> None:
            self._begun.append(index)
            self._mailbox.ring()

        def noted() -> Any:
            loop.call_soon_threadsafe(note)
            return function()

        return noted

    def take_begun(self) -> list[int]:
        """The calls with a rate whose functions have begun since the last time."""
        begun, self._begun = self._begun, []
        return begun

    def watch(self, working: Coroutine[Any, Any, Found], attempt: Attempt, version: str | None = None) -> None:
        """Take note of an attempt that a coroutine is at work on; `version` is that of an activity's code."""
        task = asyncio.ensure_future(self._services.turns.take(self._run, _timed(working), is_new=False))
        self._tasks[task] = attempt, version
        task.add_done_callback(self._ring)

    async def wait(self) -> list[tuple[Attempt, Found]]:
        """Wait for a call to end, or for something in the mailbox. What has ended, in the order of the plan."""
        if not self._done:
            await self._mailbox.wait()
        done, self._done = self._done, []
        ended = list[tuple[Attempt, Found]]()
        for task in done:
            result, took_ms = task.result() if not task.cancelled() else (CANCELLED_ITSELF, 0)
            attempt, version = self._tasks.pop(task)
            worker = self._services.worker if version is not None else None
            ended.append((replace(attempt, took_ms=took_ms, worker=worker, version=version), result))
        return sorted(ended, key=lambda pair: pair[0].id.index)

    def dismiss(self) -> None:
        """Stop what is at work."""
        for task in self._tasks:
            task.cancel()

    def _ring(self, task: asyncio.Task[_Ended]) -> None:
        self._done.append(task)
        self._mailbox.ring()


async def _timed(working: Coroutine[Any, Any, Found]) -> _Ended:
    begun = time.monotonic()
    result = await working
    return result, int((time.monotonic() - begun) * 1000)


class Starter:
    """Begins the calls of one lane."""

    def __init__(
        self,
        services: WorkerContext,
        view: RunView,
        instance: str | None,
        inline: InlineCalls,
        has_turn: Callable[[int], bool],
    ) -> None:
        """`has_turn` says whether a call has its turn in the quarantine."""
        self._services = services
        self._view = view
        self._instance = instance
        self._inline = inline
        self._has_turn = has_turn
        self.once = OnceCalls(services, view.run, instance, inline.watch)
        self._budget = CallBudget(services.log, services.settings, view.definition, services.models)
        self._models = services.limited_models
        self.weights: dict[int, int | Failure] = {}
        """By calls that wait for a limit of their model's provider, or have to: their tokens, or why they fail."""

    def is_paid_ahead(self, call: Call) -> bool:
        """Whether a call of a loop asks a model and is forgotten: what it costs is not told."""
        is_forgotten = call.is_fire_and_forget and self._definition.request is not None
        return is_forgotten and not self._is_for_child(call) and self._services.remote.asks(call, self._definition)

    async def pay(self, start: Start, again: int, execution: Execution) -> Cost | Failure:
        """Charge a call that `is_paid_ahead`; else why it is not sent. Raises `RedisError`."""
        attempt = Attempt(CallId(self._view.run, self._instance, start.call.index), again=again)
        message = self.message(start, attempt, execution)
        try:
            return message if isinstance(message, Failure) else await self._budget.pay(attempt, message)
        except TooLarge as error:
            return Failure("TooLarge", str(error))

    async def weigh(self, start: Start, execution: Execution) -> int | Failure:
        """The tokens that a call's request probably takes of what its model's provider allows in a minute; else why it
        is not sent. Raises `RedisError`.
        """
        self.weights[start.call.index] = weight = await self._weight(start, execution)
        return weight

    async def _weight(self, start: Start, execution: Execution) -> int | Failure:
        limit = self.limit_of(start.call)
        if limit is None or limit.tokens is None:
            return 0
        await self._read_pictures(start, execution)
        message = self.message(start, Attempt(CallId(self._view.run, self._instance, start.call.index)), execution)
        if isinstance(message, Failure):
            return message
        try:
            tokens = likely_tokens(await self._budget.estimate(message))
        except TooLarge as error:
            return Failure("TooLarge", str(error))
        refusal = limit.refusal(tokens)
        return tokens if refusal is None else Failure("LimitReached", refusal)

    def limit_of(self, call: Call) -> ProviderLimit | None:
        """What the provider of the model that a call asks allows in a minute; None where nothing is limited."""
        if self._models is None or self._is_for_child(call) or not self._services.remote.asks(call, self._definition):
            return None
        return ProviderLimit.of(self._models.find(self._services.remote.config(call, self._definition).get("model")))

    def claim(self, start: Start, execution: Execution) -> Claim:
        """The claim of a call before it begins: it begins again if nothing is heard of it for so long."""
        settings, remote, call = self._services.settings, self._services.remote, start.call
        total = self._services.registry.total_seconds(call)
        if remote.leaves(call) and not self._is_for_child(call):
            claim = Claim(call.index, settings.sweep_interval_seconds, remote.queue(call), total_seconds=total)
        else:
            alone = self._has_turn(call.index)
            claim = Claim(call.index, settings.lease_seconds, alone=alone, total_seconds=total)
        if not self.is_once(call, execution):
            return claim
        begins, not_done = self.once.beginning(start, execution), self.once.not_done.get(call.index)
        return replace(claim, begins=begins, not_done=not_done)

    def is_once(self, call: Call, execution: Execution) -> bool:
        """Whether a call runs at most once (SPEC R4.11). A run that answers one is begun once in any case."""
        return execution.is_once(call) and not self._is_for_child(call)

    async def begin(
        self, start: Start, attempt: Attempt, execution: Execution, at: str | None
    ) -> TaskMessage | Result | None:
        """Begin a claimed call: in line (None), or as the message that carries it away; or what has come of it already.
        The execution has read its lane up to the entry `at`; None where it was without entries that others wrote.

        Raises `RedisError`.
        """
        call = start.call
        if attempt.losses >= self._services.settings.limit_attempts and not self.is_once(call, execution):
            return lost(attempt.losses)
        if self._is_for_child(call):
            self._inline.watch(self._begin_child(start, attempt, execution), attempt)
            return None
        if not self._services.remote.leaves(call):
            return self._begin_inline(start, attempt, execution)
        if isinstance(weight := self.weights.pop(call.index, 0), Failure):
            return weight
        is_shown = call.runner.executor is not Executor.ACTIVITY
        if is_shown:
            await self._read_pictures(start, execution)
        if is_shown and at is not None and execution.sees_what_is_there(start):
            message = self.message(start, replace(attempt, seen=(at, self._view.seen)), execution)
        else:
            message = self.message(start, attempt, execution)
        if isinstance(message, TaskMessage) and self._is_charged(call):
            return await self._budget.reserve(attempt, message) or message
        return message

    async def _read_pictures(self, start: Start, execution: Execution) -> None:
        """Read the pictures of tools that a call shows: they are beside the log, and not in its entries."""
        view = self._view
        try:
            shown = self._services.remote.pictures(start, execution, self._definition)
        except (Conflict, TooLarge):
            return  # which its message says
        if missing := [digest for _, digest in shown if digest not in view.files]:
            view.files = {**view.files, **await self._services.log.files(view.run, missing)}

    def message(self, start: Start, attempt: Attempt, execution: Execution) -> TaskMessage | Failure:
        """The message that carries a call away, or why it cannot be sent."""
        given = self._view.tokens.given(attempt)
        try:
            files = self._view.files
            message = self._services.remote.message(start, given, execution, self._definition, files)
        except (Conflict, TooLarge, FileGone) as error:
            return Failure(type(error).__name__, str(error))
        if (size := len(message.body)) > (most := self._services.limits.call_bytes):
            text = f"its message has {size} bytes, where {most} are allowed (ACTS_LIMIT_CALL_BYTES)"
            return Failure("TooLarge", text)
        self._view.sends_much |= size >= limits.HEAVY_BYTES
        return replace(message, priority=attempt.priority) if attempt.priority else message

    async def charge(self, ended: Sequence[Outcome], lane: LaneView) -> None:
        """Charge the loop's tokens with what the calls that have ended have asked models. Raises `RedisError`."""
        for outcome in ended if self._budget.is_limited else ():
            call = lane.execution.call(outcome.index)
            if call is not None and self._is_charged(call) and not self._is_for_child(call):
                id_ = CallId(self._view.run, self._instance, outcome.index)
                await self._budget.charge(id_, lane.again(outcome.index), outcome)

    @property
    def _definition(self) -> StoredPlan:
        return self._view.definition

    def _is_for_child(self, call: Call) -> bool:
        return self._services.children.answers(call, self._definition)

    def _is_charged(self, call: Call) -> bool:
        """Whether what a call asks a model has to fit what is left of its loop's tokens."""
        return self._budget.is_limited and self._services.remote.asks(call, self._definition)

    def _begin_inline(self, start: Start, attempt: Attempt, execution: Execution) -> Failure | Retry | None:
        name, services = start.call.runner.name, self._services
        mark = self._definition.contracts.get(name)
        activity = activity_for(
            services.activity(name), name, services.worker, start.call.properties, start.parameters, mark
        )
        if isinstance(activity, Retry):
            return activity
        call = start.call
        try:
            context = execution.scoped(call)
        except Conflict as conflict:
            return Failure("Conflict", str(conflict))
        function = activity.bind(call.properties, start.parameters, context)
        is_once = self.is_once(call, execution)
        given = None
        if activity.policy.cache_seconds is not None and not is_once:
            given = (start.parameters, context, call.properties if activity.takes_call else None)
        self._inline.begin(activity, function, attempt, is_once=is_once, given=given)
        return None

    async def _begin_child(self, start: Start, attempt: Attempt, execution: Execution) -> Result | Started:
        """Have the run started that answers a call, and its lanes published."""
        try:
            started = await self._services.children.start(start, attempt, execution, self._definition)
        except Conflict as conflict:
            return Failure("Conflict", str(conflict))
        except (RedisError, TakenOver) as error:  # one that is taken over finds the other's run the next time
            return Retry(Failure("Unavailable", str(error)), limits.CHILD_RETRY_SECONDS)
        if isinstance(started, Started):
            queue = self._services.settings.queue_instances
            run, priority = started.run, attempt.priority
            await self._services.publish(
                [lane_task(run, lane or None, queue, priority=priority) for lane in started.lanes]
            )
        return started
