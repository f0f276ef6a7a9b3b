"""Remote calls: what leaves a lane's task, and what runs it elsewhere.

The first half runs where the log is and makes messages of calls; the second half runs on delegate, activity and
background workers and sees nothing but its message.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from redis import Redis

from ...broker_config import EXECUTE_ACTIVITY, EXECUTE_BACKGROUND, EXECUTE_DELEGATE, Settings
from ...protocol import Limits, Message, Output, Plan, Rejected
from ...protocol.calls.call import Call
from ...protocol.calls.declarations import (
    child_context,
    delegate_context,
    has_own_run,
    input_problems,
    input_schema,
    is_workflow,
    workflow_document,
)
from ...protocol.calls.outputs import Alternative, chosen, names_of
from ...protocol.calls.tools import ANONYMOUS, Executor
from ...protocol.calls.trust import NOTHING, OperatorTrust, ToolTrust
from ...protocol.engine.costs import dollars_of
from ...protocol.engine.events import Failure, Start, Success
from ...protocol.engine.execution import UNTRUSTED, Execution
from ...protocol.engine.loop import LoopLimits
from ...protocol.limits import MAX_OUTPUT_TOKENS
from ...protocol.messages import digests, is_promise, pictures_in, render_data, sent_bytes
from ...protocol.paths import MISSING
from ...protocol.plan.config import SAMPLING
from ...protocol.requests.data_blocks import Budget, shown_pictures
from ...protocol.requests.rendering import ResultRequest, result_request, result_schema
from ...protocol.trust import Flow, doubt
from ..broker.attempts import Attempt, Result, Retry, Tokens
from ..broker.messages import (
    WRITTEN,
    ActivityCall,
    DelegateCall,
    Delivery,
    TaskMessage,
    Untrusted,
    given_back,
    pack_message,
    unknown_code,
)
from ..errors import ActivitiesError, RunBroken, RunNotFound
from ..limits import MOST_RETRIES, most_of
from ..registry.activities import Policy, Registry
from ..registry.models import KnownModels, ProviderLimit, Reported, picture_fields, picture_message
from ..registry.request_definitions import with_approval
from ..store.definition import BUDGET, StoredPlan, digest_of_plan
from ..store.held_calls import Actor, AuditRecord
from ..store.keys import ENDED_STATUSES
from ..store.run_list import ANSWER_SCHEMA, DELEGATE, TRACE, Parent, RunList, child_id, filled, note_child
from ..store.run_store import RunStore
from ..store.run_writer import RunWriter
from ..store.scripts import server_ms
from ..store.slots import Budget as RunBudget
from .calls import Threads, activity_for, invoke
from .checking import Checker
from .rooms import AskedModels


class Remote:
    """Decides which calls leave the lane's task, and makes their messages."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self._settings = settings
        self._registry = registry
        self._models = KnownModels(settings, registry)
        self.sends_whole_requests = False
        """Whether a worker that asks models has said that it cannot read the log."""

    def leaves(self, call: Call) -> bool:
        """Whether the call goes to a task of its own."""
        if call.runner.executor is not Executor.ACTIVITY or call.is_fire_and_forget:
            return True
        activity = self._registry.activities.get(call.runner.name)
        return activity is not None and activity.queue is not None

    def received(self, call: Call, attempt: Attempt, result: Result, definition: StoredPlan) -> Result:
        """The part of a result that is believed: another process has sent it, and may claim what its code may not.

        A delegate in code may choose its place, as an activity does, and a model one of those that it was shown
        (SPEC R4.4); an attempt is followed by another only as often as the code's policy grants.
        """
        if isinstance(result, Retry) and not result.is_given_back and attempt.failures >= self._most_retries(call):
            return result.failure
        if call.runner.executor is Executor.ACTIVITY:
            return result
        if not self.asks(call, definition):
            return _without_message(result)
        groups = call.alternatives
        if isinstance(result, Success) and len(groups) > 1:  # it was shown them
            if isinstance(result.value, Output):
                return result
            if (choice := chosen(result.value, names_of(map(Alternative, groups)))) is not None:
                return replace(result, value=choice)
        return _plain(result)

    def _most_retries(self, call: Call) -> int:
        policy = self._registry.policy_of(call)
        return policy.retries if policy is not None else MOST_RETRIES

    def queue(self, call: Call) -> str:
        """The queue of a call that leaves."""
        if call.runner.executor is Executor.ACTIVITY:
            activity = self._registry.activities.get(call.runner.name)
            if activity is not None and activity.queue is not None:
                return activity.queue
        return self._settings.queue_background if call.is_fire_and_forget else self._settings.queue_delegates

    def message(
        self, start: Start, attempt: Attempt, execution: Execution, definition: StoredPlan, files: Mapping[str, bytes]
    ) -> TaskMessage:
        """The task that runs the call; with the files that its context shows, of these. Raises `Conflict` where
        a scope cannot be read, `FileGone`.
        """
        call = start.call
        if call.runner.executor is Executor.ACTIVITY:
            return self.activity_task(start, attempt, execution, definition.contracts)
        most = {"max_output_tokens": MAX_OUTPUT_TOKENS} if definition.request is not None else {}
        asked, config = self._asked(start, execution, definition), self.config(call, definition)
        context, shown = list(asked.context), self.pictures(start, execution, definition)
        known = {digest: picture_fields(files[digest]) for _, digest in shown if digest in files}
        room = int(self._settings.limit_call_bytes) // 2 - sent_bytes(context)
        if (message := picture_message(shown, known, room)) is not None:
            context.insert(len(context) - asked.is_rendered, message)  # a latent call comes last
        body = DelegateCall(
            attempt=attempt,
            delegate=self._delegate_name(call, definition),
            context=filled(context, files),
            schema=asked.schema,
            config={**most, **config, **about(asked)},
            awaited=not call.is_fire_and_forget,
            untrusted=_untrusted(start, execution),
            definition=call.runner.name,
            once=execution.is_once(call),
            admitted=ProviderLimit.of(self._models.find(config.get("model"))) is not None,
        )
        return self._task(EXECUTE_DELEGATE, body, call)

    def pictures(self, start: Start, execution: Execution, definition: StoredPlan) -> list[tuple[str, str]]:
        """The places, and digests, of the pictures of tools that the model that a call asks is shown."""
        call = start.call
        if not self.asks(call, definition) or not self._models.see_pictures(self.config(call, definition).get("model")):
            return []
        given = [*execution.scoped_messages(call), render_data("input", dict(start.parameters))]
        return list(shown_pictures(given, Budget()))

    @staticmethod
    def config(call: Call, definition: StoredPlan) -> dict[str, Any]:
        """The settings of the request that a call is."""
        own = definition.delegates.get(call.runner.name, {}) if call.runner.executor is Executor.DELEGATE else {}
        return request_config(definition.config, own.get("config") or {})

    def _asked(self, start: Start, execution: Execution, definition: StoredPlan) -> ResultRequest:
        """The input of a delegate in code, or of a model."""
        call = start.call
        if not self.asks(call, definition):
            return ResultRequest(delegate_context([], execution.scoped_messages(call), start.parameters), None, {})
        return result_request(
            call,
            start.parameters,
            execution.scoped_messages(call),
            execution.alternatives(call),
            tool=definition.tools.get(call.tool),
            definition=definition.delegates.get(call.runner.name, {}),
            show_bytes=definition.config.get("show_bytes"),
        )

    def asks(self, call: Call, definition: StoredPlan) -> bool:
        """Whether a remote call is a request of its own to a model."""
        if call.runner.executor is Executor.ACTIVITY:
            return False
        if is_workflow(definition.delegates.get(call.runner.name, {})):
            return False
        name = self._delegate_name(call, definition)
        return name in ("", ANONYMOUS) and name not in self._registry.delegates

    def request(
        self,
        attempt: Attempt,
        messages: Sequence[Mapping[str, Any]],
        schema: Any,
        config: Mapping[str, Any],
        **about: Any,
    ) -> TaskMessage:
        """The task that asks a model for a loop's tick (SPEC R13.9); `about` are other fields of `DelegateCall`."""
        body = DelegateCall(attempt, "", messages, schema, config, awaited=True, is_tick=True, **about)
        return TaskMessage(EXECUTE_DELEGATE, self._settings.queue_delegates, pack_message(body), f"{attempt.id} model")

    def activity_task(
        self, start: Start, attempt: Attempt, execution: Execution, contracts: Mapping[str, str]
    ) -> TaskMessage:
        """The task that runs a call of an activity; `contracts` are the marks of those that the run's calls were
        checked under. Raises `Conflict` where a scope cannot be read.
        """
        call, context = start.call, execution.scoped(start.call)
        name, once, untrusted = call.runner.name, execution.is_once(call), _untrusted(start, execution)
        mark, properties = contracts.get(name, ""), dict(call.properties)
        body = ActivityCall(attempt, name, properties, start.parameters, context, mark, untrusted, once)
        return self._task(EXECUTE_BACKGROUND if call.is_fire_and_forget else EXECUTE_ACTIVITY, body, call)

    def _task(self, task: str, body: ActivityCall | DelegateCall, call: Call) -> TaskMessage:
        shown = f"{body.attempt.id} {call.runner.name}"
        return TaskMessage(task, self.queue(call), pack_message(body), shown, call.is_fire_and_forget)

    def _delegate_name(self, call: Call, definition: StoredPlan) -> str:
        """The code that runs it, or nothing where a model solves it; a submission's own definition comes first."""
        name = call.runner.name
        return "" if name in definition.delegates or call.runner.executor is Executor.LATENT else name


_LIMITS: Final = frozenset({"max_output_tokens", "request_seconds"})
_SETTINGS: Final = ("model", *SAMPLING, *sorted(_LIMITS))
_OF_ONE_MODEL: Final = frozenset(SAMPLING) - {"temperature"}
"""The settings that a definition with its own model does not take from the submission: its model may not have them."""


def about(asked: ResultRequest) -> dict[str, Any]:
    """The parts of a request for a result besides context and schema, as settings that travel with it."""
    said: dict[str, Any] = {
        "tool": {asked.tool.name: dict(asked.tool.declaration)} if asked.tool is not None else None,
        "choices": asked.choices,
        "is_rendered": asked.is_rendered,
    }
    return {key: value for key, value in said.items() if value}


ABOUT: Final = ("tool", "choices", "is_rendered")


def request_config(outer: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a request: its definition's own, which only tighten the submission's limits (SPEC R13.3)."""
    if own.get("model") is not None:
        outer = {key: value for key, value in outer.items() if key not in _OF_ONE_MODEL}
    config = {key: each[key] for each in (outer, own) for key in _SETTINGS if each.get(key) is not None}
    for key in _LIMITS & config.keys():
        config[key] = min(each[key] for each in (outer, own) if each.get(key) is not None)
    return config


class RemoteExecutor:
    """Runs remote calls; it has no connection to the log. `deliver` sends parts of an answer before the end."""

    def __init__(
        self,
        registry: Registry,
        models: AskedModels,
        limits: Limits,
        threads: Threads,
        deliver: Callable[[Delivery], Awaitable[None]],
        operator: OperatorTrust,
        worker: str = "acts",
    ) -> None:
        self._worker = worker
        self._operator = operator
        self._deliver = deliver
        self._registry = registry
        self._models = models
        self._limits = limits
        self._threads = threads

    def version(self, message: ActivityCall | DelegateCall) -> str | None:
        """Which version of the code runs a call; None where a model does."""
        if isinstance(message, ActivityCall):
            activity = self._registry.activities.get(message.activity)
            return activity.version if activity is not None else None
        delegate = self._registry.delegates.get(message.delegate)
        return delegate.version if delegate is not None else None

    async def activity(self, message: ActivityCall) -> Result:
        """Run an activity's call."""
        name = message.activity
        known = self._registry.activities.get(name)
        activity = activity_for(known, name, self._worker, message.call, message.parameters, message.mark)
        if isinstance(activity, Retry):
            return activity
        said = ToolTrust.together((activity.contract.tool.trust, self._operator.of(name)))
        if (refused := self._refused(message, said)) is not None:
            return refused
        function = activity.bind(message.call, message.parameters, message.context)
        begins_at_once = activity.policy.rate is not None and not activity.is_async  # it is reported as begun
        result = await invoke(
            partial(self._threads.run_at_once, function) if begins_at_once else function,
            message.attempt,
            name=message.activity,
            is_async=begins_at_once or activity.is_async,
            policy=activity.policy.of(once=message.once or said.once),
            limits=self._limits,
            threads=self._threads,
        )
        return _labelled(result, said)

    def _refused(self, message: ActivityCall | DelegateCall, said: ToolTrust = NOTHING) -> Failure | None:
        """Why a call is not run that the labels of this worker would hold, and those of its run's worker did
        not; `said` is what is known here of its code.
        """
        if (untrusted := message.untrusted) is None:
            return None
        trust = ToolTrust.together((said, *map(self._operator.of, (untrusted.tool, untrusted.code))))
        flow = Flow(untrusted.chosen, untrusted.given, untrusted.chosen.union(*untrusted.given.values()))
        given = message.parameters if isinstance(message, ActivityCall) else None
        if (found := doubt(trust, flow, given, lambda: untrusted.hosts)) is None:
            return None
        text = f"{found}; {self._worker} says that {untrusted.code!r} has effects, and the worker of the run does not"
        return Failure(UNTRUSTED, f"{text}: give both the same code and the same ACTS_TRUST, then retry")

    async def delegate(self, message: DelegateCall) -> Result:
        """Run a delegate's call: with the registered code, or with the model."""
        if (refused := self._refused(message)) is not None:
            return refused
        delegate = self._registry.delegates.get(message.delegate)
        if delegate is not None:
            function, context = delegate.function, [dict(item) for item in message.context]
            result = await invoke(
                lambda: function(context),
                message.attempt,
                name=message.delegate,
                is_async=delegate.is_async,
                policy=delegate.policy.of(once=message.once),
                limits=self._limits,
                threads=self._threads,
            )
            return _labelled(_without_message(result), self._operator.of(message.delegate))
        if message.delegate and message.delegate != ANONYMOUS:
            return given_back(unknown_code("delegate", message.delegate, self._worker))
        paid: list[Mapping[str, Any]] = []

        send = partial(self._send_part, message.attempt)
        result = await invoke(
            lambda: self._models.answer(message, send, paid.append),
            message.attempt,
            name=message.delegate or "model",
            is_async=True,
            policy=Policy(),
            limits=self._limits,
            threads=self._threads,
        )
        result = replace(result, cost=paid[0]) if paid and not isinstance(result, Retry) else result
        return _labelled(result, self._operator.of(message.definition)) if message.definition else result

    async def _send_part(self, attempt: Attempt, text: str, reported: Reported | None) -> None:
        """Send what has been written so far of an answer, and what was reported of its usage."""
        said: dict[str, Any] = {WRITTEN: text}
        if reported is not None:
            said |= {"usage": reported.usage.to_dict(), "nanodollars": reported.nanodollars}
        await self._deliver(Delivery(attempt, Success(said)))


def _plain(result: Result) -> Result:
    """The result of a model that was shown no alternatives: a value, which names no path (SPEC R4.4)."""
    if isinstance(result, Success) and isinstance(result.value, Output):
        return Failure("OutputError", "a model that was shown no alternatives returns a value, and no Output")
    return _without_message(result)


def _without_message(result: Result) -> Result:
    """The result of a delegate: a value or an `Output`; whole messages are for activities (SPEC R4.5, R13.10)."""
    if isinstance(result, Success) and isinstance(result.value, Message):
        return Failure("OutputError", "a delegate returns a value or an Output, and no Message")
    return result


def _untrusted(start: Start, execution: Execution) -> Untrusted | None:
    (flow, hosts), own = execution.undecided_by(start), start.call
    said = Untrusted(own.tool, own.runner.name, flow.chosen, flow.given, hosts)
    return said if said.chosen or said.given else None


def _labelled(result: Result, said: ToolTrust) -> Result:
    """A result with the sources that the worker knows which has made it."""
    if isinstance(result, Success) and said.result:
        return replace(result, labels=said.result, fields=said.fields)
    return replace(result, labels=said.result) if isinstance(result, Failure) and said.result else result


# Child runs: a delegate that declares tools is a loop of its own (SPEC R9.3, R13.10), one with calls a workflow (SPEC
# R9.4), which runs them without a model.
#
# The runner of such a call writes the child down, with a log of its own and what the call's scopes and parameters give
# it, and leaves. The child's end answers the call; no worker waits meanwhile.


@dataclass(frozen=True, slots=True)
class Started:
    """A child run that answers a call."""

    run: str
    lanes: tuple[str, ...] = ()
    """The lanes to be published."""


_Above = tuple[Parent | None, tuple[RunBudget, ...], dict[str, float]]


class Children:
    """Starts the child runs of calls."""

    def __init__(self, redis: Redis, settings: Settings, checker: Checker) -> None:
        self._redis = redis
        self._settings = settings
        self._checker = checker
        self._writer = RunWriter(redis, settings)

    @staticmethod
    def answers(call: Call, definition: StoredPlan) -> bool:
        """Whether a call is answered by a run of its own."""
        is_delegate = call.runner.executor is Executor.DELEGATE
        return is_delegate and has_own_run(definition.delegates.get(call.runner.name, {}))

    async def start(
        self, start: Start, attempt: Attempt, execution: Execution, definition: StoredPlan
    ) -> Started | Success | Failure:
        """Start the run that answers a call, or take up the one that was started before. Raises `Conflict`,
        `RedisError`.
        """
        own = definition.delegates[start.call.runner.name]
        if (alternatives := execution.alternatives(start.call)) and not is_workflow(own):
            own = {**own, "schema": result_schema(own.get("schema", {}), alternatives)}
        given, labels = execution.scoped_messages(start.call), execution.labels_given(start.call)
        parts = own.get("context", []), given, start.parameters, labels
        context = child_context(*parts, has_instances=is_workflow(own))
        return await asyncio.to_thread(self._start, attempt, start.call.runner.name, own, context, definition)

    def _start(
        self,
        attempt: Attempt,
        delegate: str,
        own: Mapping[str, Any],
        context: list[dict[str, Any]],
        definition: StoredPlan,
    ) -> Started | Success | Failure:
        above, budgets, left = self._above(attempt.id.run, definition, is_workflow=is_workflow(own))
        most, depth = self._settings.limit_child_depth, above.depth + 1 if above is not None else 1
        if depth > most:
            return Failure("TooDeep", f"child runs can be nested {most} deep, and not deeper (ACTS_LIMIT_CHILD_DEPTH)")
        prefix = self._settings.key_prefix
        child = RunStore.open(self._redis, prefix, child_id(attempt.id, attempt.again))
        status = child.status()  # an attempt before may have written it, whose worker was lost
        if status is not None:
            return child.answer(status) if status in ENDED_STATUSES else Started(child.run)
        if spent := next((key for key, number in left.items() if number <= 0), None):
            return Failure("LimitReached", f"config.{spent} has nothing left for a child run")
        if is_workflow(own) and (misfit := _misfit(own, context)) is not None:
            return misfit
        try:
            plan = self._plan(own, context, definition, left)
        except Rejected as rejected:
            return Failure("InvalidRequest", "; ".join(map(str, rejected.errors)))
        with suppress(ActivitiesError):  # without the operator's list it waits for a person
            plan = with_approval(plan, self._settings, RunList(self._redis, self._settings.key_prefix).is_approved)
        about = {"approved_plan": digest_of_plan(plan)} if plan.is_approved else {}
        order = AuditRecord("submitted", Actor(f"call {attempt.id.idempotency_key}", "workers"), about)
        fields = Parent(attempt.id, attempt.number, depth, budgets).to_fields(attempt.priority)
        fields |= {TRACE: attempt.place.pack(), DELEGATE: delegate}
        if not plan.submission.is_request:
            if (shortfall := child.reserve(budgets, plan.size)) is not None:
                return Failure("LimitReached", shortfall.text)
            fields |= {ANSWER_SCHEMA: json.dumps(own["schema"])} if "schema" in own else {}
        files = self._files(plan, RunStore.open(self._redis, prefix, attempt.id.run))
        now_ms = server_ms(self._redis)
        note_child(self._redis, child.keys, attempt.id.run, now_ms)
        lanes = self._writer.write(plan, child.run, now_ms, order, fields, files=files).lanes
        status = child.status() if not plan.size else None  # what has no calls has ended
        return child.answer(status) if status in ENDED_STATUSES else Started(child.run, tuple(lanes))

    async def answer(self, parent: Parent, run: str, tokens: Tokens) -> TaskMessage | None:
        """The message that brings the result of a workflow that has ended to the call that waits for it; None where
        the run is gone. If this process dies, the sweep sends it. Raises `RedisError`.
        """
        child = RunStore.open(self._redis, self._settings.key_prefix, run)
        try:
            status = await asyncio.to_thread(child.status)
            result = await asyncio.to_thread(child.answer, status or "")
        except (RunNotFound, RunBroken):
            return None
        return parent.answer(run, result, tokens, self._settings.queue_instances)

    def _above(self, run: str, definition: StoredPlan, *, is_workflow: bool) -> _Above:
        """Whose child the run is itself, what its child runs take from, and what is left for one now (SPEC R13.3).

        All workflows below a plan have together what one run may have: those that call each other would be without end.
        """
        store = RunStore.open(self._redis, self._settings.key_prefix, run)
        above = store.parent()
        if not definition.has_budget:
            own = (RunBudget(run, None, int(self._settings.limit_calls)),) if is_workflow else ()
            return above, (is_workflow and above is not None and above.budgets) or own, {}
        budgets, free = store.budgets(LoopLimits.of(definition.config, most_of(self._settings)))
        left: dict[str, float] = {**free}
        if "money" in left:
            left["money"] = float(dollars_of(int(left["money"])))
        if (due := store.loop_ends_ms()) is not None:
            left["seconds"] = (due - server_ms(self._redis)) / 1000
        return above, budgets, left

    def _files(self, plan: Plan, parent: RunStore) -> dict[str, bytes]:
        """The files that a child may show: those that its context, and its delegates', name of its parent's, and the
        pictures of tools that it is given.
        """
        own = (each.get("context", ()) for each in plan.submission.delegates.values())
        messages = plan.context.messages
        named = list({*digests(messages, *own), *(digest for _, digest in pictures_in([*messages]))})
        return parent.files(named)

    def _plan(
        self, own: Mapping[str, Any], context: list[dict[str, Any]], definition: StoredPlan, left: Mapping[str, float]
    ) -> Plan:
        """The child's request, checked. Raises `Rejected`. What a delegate declares of its input promises nothing: its
        model bridges the gap to what it is given (SPEC R9.2).
        """
        config = child_config(definition.config, own.get("config") or {}, left, self._settings)
        value = {
            "context": [message for message in context if not is_promise(message)],
            "schema": own.get("schema", {}),
            "tools": own.get("tools", {}),
            "delegates": definition.delegates,
            "config": config,
        }
        budget: dict[str, Any] = {key: config[key] for key in BUDGET if key in config}
        if is_workflow(own):  # its limits are those of the loop above it: a plan has none of its own
            others = {key: each for key, each in config.items() if key not in (*BUDGET, "seconds")}
            value = {**workflow_document(own), **{key: value[key] for key in ("context", "delegates")}}
            value["config"] = others
        approved, operator = definition.config.get("approve", ()), definition.submitted_with
        plan = self._checker.check_submission(
            value, definition.delegates, allow=definition.allow, approved=approved, operator=operator
        )
        if plan.submission.is_request or not left:
            return plan
        return replace(plan, submission=replace(plan.submission, config={**plan.submission.config, **budget}))


def _misfit(own: Mapping[str, Any], context: Sequence[Mapping[str, Any]]) -> Failure | None:
    """Why a workflow is not started: what it is given does not fit the input that it declares (SPEC R9.4)."""
    problems = input_problems(context) if input_schema(own.get("context", ())) is not MISSING else ()
    return Failure("InvalidParameters", "; ".join(map(str, problems))) if problems else None


def child_config(
    parent: Mapping[str, Any], own: Mapping[str, Any], left: Mapping[str, float], settings: Settings
) -> dict[str, Any]:
    """The settings of a child: its own, tightened by what its parent has left and what the operator allows."""
    config = {key: value for key, value in own.items() if value is not None}
    for key in ("calls", "tokens", "seconds", "money"):
        limits = [one for one in (config.get(key), left.get(key), most_of(settings).get(key)) if one is not None]
        if limits:
            config[key] = min(limits)
    if (ticks := most_of(settings)["ticks"]) is not None and "ticks" in config:
        config["ticks"] = min(config["ticks"], ticks)
    for key in ("model", "approve_seconds", "unknown"):
        if key in parent:
            config.setdefault(key, parent[key])
    if approve := [*dict.fromkeys((*parent.get("approve", ()), *config.get("approve", ())))]:
        config["approve"] = approve
    return config
