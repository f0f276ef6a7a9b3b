"""Remote calls: what leaves a lane's task, and what carries it out elsewhere.

The first half runs where the log is and makes messages of calls; the second half runs on delegate, activity and
background workers and sees nothing but its message.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from acts_celery.broker_config import EXECUTE_ACTIVITY, EXECUTE_BACKGROUND, EXECUTE_DELEGATE, Settings
from acts_celery.protocol import Limits, Message, Output
from acts_celery.protocol.calls.alternatives import Alternative, chosen, names_of
from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.calls.delegates import delegate_context
from acts_celery.protocol.calls.operator_trust import OperatorTrust
from acts_celery.protocol.calls.tools import ANONYMOUS, Executor
from acts_celery.protocol.calls.trust import NOTHING, ToolTrust
from acts_celery.protocol.engine.decisions import Failure, Start, Success
from acts_celery.protocol.engine.execution import UNTRUSTED, Execution
from acts_celery.protocol.engine.loop_limits import MAX_OUTPUT_TOKENS
from acts_celery.protocol.language.files import sent_bytes
from acts_celery.protocol.language.messages import render_data
from acts_celery.protocol.requests.data_blocks import Budget, shown_pictures
from acts_celery.protocol.requests.results import ResultRequest, result_request
from acts_celery.protocol.trust.effects import doubt
from acts_celery.protocol.trust.flow import Flow
from acts_celery.worker.models.configured import Models
from acts_celery.worker.models.content_parts import described, picture_message
from acts_celery.worker.models.delegates import about, request_config, solve
from acts_celery.worker.models.http_client import TRACEPARENT
from acts_celery.worker.models.known import KnownModels
from acts_celery.worker.models.partial_answers import PartialAnswers
from acts_celery.worker.models.request import Reported
from acts_celery.worker.models.tick_requests import ask_for_tick
from acts_celery.worker.process.open_telemetry import header_to_send
from acts_celery.worker.registry.activities import Policy, Registry
from acts_celery.worker.storage.definition import Definition
from acts_celery.worker.storage.files import filled
from acts_celery.worker.wire.attempts import Attempt, Result, Retry
from acts_celery.worker.wire.giving_back import given_back, unknown_code
from acts_celery.worker.wire.messages import WRITTEN, ActivityCall, DelegateCall, Delivery, Untrusted, pack_message
from acts_celery.worker.wire.task_messages import TaskMessage

from .fitting import fitting
from .invocation import invoke
from .threads import Threads

_MOST_RETRIES: Final = 1_000
"""Of a call whose code is not known here: a request to a model, an activity that another worker has."""


class Remote:
    """Decides which calls leave the lane's task, and makes their messages."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self._settings = settings
        self._registry = registry
        self._models = KnownModels(settings, registry)

    def leaves(self, call: Call) -> bool:
        """Whether the call goes to a task of its own."""
        if call.runner.executor is not Executor.ACTIVITY or call.is_fire_and_forget:
            return True
        activity = self._registry.activities.get(call.runner.name)
        return activity is not None and activity.queue is not None

    def received(self, call: Call, attempt: Attempt, result: Result, definition: Definition) -> Result:
        """A result as far as it is believed: another process has sent it, and may say what its code may not.

        A delegate's is a value, and a model's may be the choice of one of several places; an attempt is followed by
        another only as often as the code's policy grants.
        """
        if isinstance(result, Retry) and not result.is_given_back and attempt.failures >= self._most_retries(call):
            return result.failure
        if call.runner.executor is Executor.ACTIVITY:
            return result
        groups = call.alternatives
        if isinstance(result, Success) and len(groups) > 1 and self.asks(call, definition):  # it was shown them
            if isinstance(result.value, Output):
                return result
            if (choice := chosen(result.value, names_of(map(Alternative, groups)))) is not None:
                return replace(result, value=choice)
        return _plain(result)

    def _most_retries(self, call: Call) -> int:
        name = call.runner.name
        is_activity = call.runner.executor is Executor.ACTIVITY
        code = self._registry.activities.get(name) if is_activity else self._registry.delegates.get(name)
        return code.policy.retries if code is not None else _MOST_RETRIES

    def queue(self, call: Call) -> str:
        """The queue of a call that leaves."""
        if call.runner.executor is Executor.ACTIVITY:
            activity = self._registry.activities.get(call.runner.name)
            if activity is not None and activity.queue is not None:
                return activity.queue
        return self._settings.queue_background if call.is_fire_and_forget else self._settings.queue_delegates

    def message(
        self,
        start: Start,
        attempt: Attempt,
        execution: Execution,
        definition: Definition,
        files: Mapping[str, bytes],
    ) -> TaskMessage:
        """The task that carries the call out; with the files that its context shows, of these. Raises `Conflict` where
        a scope cannot be read, `FileGone`.
        """
        call = start.call
        if call.runner.executor is Executor.ACTIVITY:
            return self.activity_task(start, attempt, execution, definition.contracts)
        is_delegate = call.runner.executor is Executor.DELEGATE
        own = definition.delegates.get(call.runner.name, {}) if is_delegate else {}
        most = {"max_output_tokens": MAX_OUTPUT_TOKENS} if definition.request is not None else {}
        asked = self._asked(start, execution, definition)
        config = request_config(definition.config, own.get("config") or {})
        context, shown = list(asked.context), self.pictures(start, execution, definition)
        known = {digest: described(files[digest]) for _, digest in shown if digest in files}
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
            untrusted=_untrusted(call, execution),
            definition=call.runner.name,
        )
        return self._task(EXECUTE_DELEGATE, body, call)

    def pictures(self, start: Start, execution: Execution, definition: Definition) -> list[tuple[str, str]]:
        """The places, and digests, of the pictures of tools that the model that a call asks is shown."""
        call = start.call
        own = definition.delegates.get(call.runner.name, {}) if call.runner.executor is Executor.DELEGATE else {}
        name = request_config(definition.config, own.get("config") or {}).get("model")
        if not self.asks(call, definition) or not self._models.see_pictures(name):
            return []
        given = [*execution.scoped_messages(call), render_data("input", dict(start.parameters))]
        return list(shown_pictures(given, Budget()))

    def _asked(self, start: Start, execution: Execution, definition: Definition) -> ResultRequest:
        """What a delegate in code, or a model, is given."""
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

    def asks(self, call: Call, definition: Definition) -> bool:
        """Whether a remote call is a request of its own to a model."""
        if call.runner.executor is Executor.ACTIVITY:
            return False
        name = self._delegate_name(call, definition)
        return name in ("", ANONYMOUS) and name not in self._registry.delegates

    def request(
        self,
        attempt: Attempt,
        messages: Sequence[Mapping[str, Any]],
        schema: Any,
        config: Mapping[str, Any],
        *,
        streams: bool,
        provider_data: Mapping[str, str],
    ) -> TaskMessage:
        """The task that asks a model for a loop's tick (SPEC R13.9)."""
        said: dict[str, Any] = {"streams": streams, "provider_data": provider_data}
        body = DelegateCall(attempt, "", messages, schema, config, awaited=True, is_tick=True, **said)
        return TaskMessage(EXECUTE_DELEGATE, self._settings.queue_delegates, pack_message(body), f"{attempt.id} model")

    def activity_task(
        self, start: Start, attempt: Attempt, execution: Execution, contracts: Mapping[str, str]
    ) -> TaskMessage:
        """The task that carries out a call of an activity; `contracts` are the marks of those that the run's calls were
        checked under. Raises `Conflict` where a scope cannot be read.
        """
        call, context = start.call, execution.scoped(start.call)
        task = EXECUTE_BACKGROUND if call.is_fire_and_forget else EXECUTE_ACTIVITY
        name, properties = call.runner.name, dict(call.properties)
        mark, untrusted = contracts.get(name, ""), _untrusted(call, execution)
        body = ActivityCall(attempt, name, properties, start.parameters, context, mark, untrusted)
        return self._task(task, body, call)

    def _task(self, task: str, body: ActivityCall | DelegateCall, call: Call) -> TaskMessage:
        shown = f"{body.attempt.id} {call.runner.name}"
        return TaskMessage(task, self.queue(call), pack_message(body), shown, call.is_fire_and_forget)

    def _delegate_name(self, call: Call, definition: Definition) -> str:
        """The code that runs it, or nothing where a model solves it; a submission's own definition comes first."""
        name = call.runner.name
        return "" if name in definition.delegates or call.runner.executor is Executor.LATENT else name


class RemoteExecutor:
    """Carries out remote calls; it has no connection to the log. `deliver` sends what is told before the end."""

    def __init__(
        self,
        registry: Registry,
        models: Models,
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
        """Which version of the code carries a call out; None where a model does."""
        if isinstance(message, ActivityCall):
            activity = self._registry.activities.get(message.activity)
            return activity.version if activity is not None else None
        delegate = self._registry.delegates.get(message.delegate)
        return delegate.version if delegate is not None else None

    async def activity(self, message: ActivityCall) -> Result:
        """Carry out an activity's call."""
        name = message.activity
        known = self._registry.activities.get(name)
        activity = fitting(known, name, self._worker, message.call, message.parameters, message.mark)
        if isinstance(activity, Retry):
            return activity
        said = ToolTrust.together((activity.contract.tool.trust, self._operator.of(name)))
        if (refused := self._refused(message.untrusted, said)) is not None:
            return refused
        result = await invoke(
            activity.bind(message.call, message.parameters, message.context),
            message.attempt,
            name=message.activity,
            is_async=activity.is_async,
            policy=activity.policy,
            limits=self._limits,
            threads=self._threads,
        )
        return _labelled(result, said)

    def _refused(self, untrusted: Untrusted | None, said: ToolTrust = NOTHING) -> Failure | None:
        """Why a call is not carried out that the labels of this worker would hold, and those of its run's worker did
        not; `said` is what is known here of its code.
        """
        if untrusted is None:
            return None
        names = (untrusted.tool, untrusted.code)
        trust = ToolTrust.together((said, *map(self._operator.of, names)))
        labels = untrusted.chosen.union(*untrusted.given.values())
        found = doubt(trust, Flow(untrusted.chosen, untrusted.given, labels))
        if found is None:
            return None
        text = f"{found}; {self._worker} says that {untrusted.code!r} has effects, and the worker of the run does not"
        return Failure(UNTRUSTED, f"{text}: give both the same code and the same ACTS_TRUST, then retry")

    async def delegate(self, message: DelegateCall) -> Result:
        """Carry out a delegate's call: with the registered code, or with the model."""
        if (refused := self._refused(message.untrusted)) is not None:
            return refused
        context = [dict(item) for item in message.context]
        delegate = self._registry.delegates.get(message.delegate)
        if delegate is not None:
            function = delegate.function
            result = await invoke(
                lambda: function(context),
                message.attempt,
                name=message.delegate,
                is_async=delegate.is_async,
                policy=delegate.policy,
                limits=self._limits,
                threads=self._threads,
            )
            return _labelled(_plain(result), self._operator.of(message.delegate))
        if message.delegate and message.delegate != ANONYMOUS:
            return given_back(unknown_code("delegate", message.delegate, self._worker))
        paid: list[Mapping[str, Any]] = []

        async def ask() -> Any:
            TRACEPARENT.set(header_to_send())
            if message.is_tick:
                parts = PartialAnswers(partial(self._send_part, message.attempt), tells_text=message.streams)
                asked = (context, message.schema, message.config)
                return await ask_for_tick(self._models, *asked, parts, message.provider_data)
            return await solve(self._models, context, message.schema, message.config, paid.append)

        result = await invoke(
            ask,
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
    """The result of a delegate: a value, which names no path (SPEC R4.4, R13.10)."""
    if isinstance(result, Success) and isinstance(result.value, (Output, Message)):
        return Failure("OutputError", f"a delegate returns a value, and no {type(result.value).__name__}")
    return result


def _untrusted(call: Call, execution: Execution) -> Untrusted | None:
    flow = execution.undecided_by(call)
    return Untrusted(call.tool, call.runner.name, flow.chosen, flow.given) if flow.chosen or flow.given else None


def _labelled(result: Result, said: ToolTrust) -> Result:
    """A result with the sources that the worker knows which has made it."""
    return replace(result, labels=said.result) if said.result and not isinstance(result, Retry) else result
