"""How a claimed call is begun: in line, as a run of its own, or as a message that carries it away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from redis.exceptions import RedisError

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.calls.tools import Executor
from acts_celery.protocol.engine.decisions import Failure, Outcome, Start
from acts_celery.protocol.engine.execution import Execution
from acts_celery.protocol.language.errors import Conflict
from acts_celery.protocol.state.allowance import TooLarge
from acts_celery.worker.models.known import KnownModels
from acts_celery.worker.storage.commits import Claim
from acts_celery.worker.storage.definition import Definition
from acts_celery.worker.storage.files import FileGone
from acts_celery.worker.storage.lane import LaneView, RunView
from acts_celery.worker.storage.run_writer import TakenOver
from acts_celery.worker.wire.attempts import Attempt, CallId, Result, Retry, lost
from acts_celery.worker.wire.task_messages import TaskMessage, lane_task

from .call_budget import CallBudget
from .children import Started
from .fitting import fitting
from .inline_calls import InlineCalls
from .services import Services

HEAVY_BYTES: Final = 2**16
"""What is as large as this takes one of the process's few places for it, in which runs take turns."""
_UNAVAILABLE_SECONDS: Final = 1.0


class Starter:
    """Begins the calls of one lane."""

    def __init__(
        self,
        services: Services,
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
        self._budget = CallBudget(
            services.log, services.settings, view.definition, KnownModels(services.settings, services.checker.registry)
        )

    def claim(self, call: Call) -> Claim:
        """What is claimed of a call before it is begun: it begins again where nothing is heard of it for so long."""
        settings, remote = self._services.settings, self._services.remote
        if remote.leaves(call) and not self._is_for_child(call):
            return Claim(call.index, settings.sweep_interval_seconds, remote.queue(call))
        return Claim(call.index, settings.lease_seconds, alone=self._has_turn(call.index))

    async def begin(
        self, start: Start, attempt: Attempt, execution: Execution, at: str | None
    ) -> TaskMessage | Result | None:
        """Begin a claimed call: in line (None), or as the message that carries it away; or what has come of it already.
        The execution has read its lane up to the entry `at`; None where it was without entries that others wrote.

        Raises `RedisError`.
        """
        if attempt.losses >= self._services.settings.limit_attempts:
            return lost(attempt.losses)
        call = start.call
        if self._is_for_child(call):
            self._inline.watch(self._begin_child(start, attempt, execution), attempt)
            return None
        if not self._services.remote.leaves(call):
            return self._begin_inline(start, attempt, execution)
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
        """The message that carries a call away, or why there is none."""
        given = self._view.tokens.given(attempt)
        try:
            files = self._view.files
            message = self._services.remote.message(start, given, execution, self._definition, files)
        except (Conflict, TooLarge, FileGone) as error:
            return Failure(type(error).__name__, str(error))
        if (size := len(message.body)) > (most := self._services.limits.call_bytes):
            text = f"its message has {size} bytes, where {most} are allowed (ACTS_LIMIT_CALL_BYTES)"
            return Failure("TooLarge", text)
        self._view.sends_much |= size >= HEAVY_BYTES
        return message

    async def charge(self, ended: Sequence[Outcome], lane: LaneView) -> None:
        """Charge the loop's tokens with what the calls that have ended have asked models. Raises `RedisError`."""
        for outcome in ended if self._budget.is_limited else ():
            call = lane.execution.call(outcome.index)
            if call is not None and self._is_charged(call) and not self._is_for_child(call):
                id_ = CallId(self._view.run, self._instance, outcome.index)
                await self._budget.charge(id_, lane.again(outcome.index), outcome)

    @property
    def _definition(self) -> Definition:
        return self._view.definition

    def _is_for_child(self, call: Call) -> bool:
        return self._services.children.answers(call, self._definition)

    def _is_charged(self, call: Call) -> bool:
        """Whether what a call asks a model has to fit what is left of its loop's tokens."""
        return self._budget.is_limited and self._services.remote.asks(call, self._definition)

    def _begin_inline(self, start: Start, attempt: Attempt, execution: Execution) -> Failure | Retry | None:
        name, services = start.call.runner.name, self._services
        mark = self._definition.contracts.get(name)
        activity = fitting(
            services.activity(name), name, services.worker, start.call.properties, start.parameters, mark
        )
        if isinstance(activity, Retry):
            return activity
        try:
            function = activity.bind(start.call.properties, start.parameters, execution.scoped(start.call))
        except Conflict as conflict:
            return Failure("Conflict", str(conflict))
        self._inline.begin(activity, function, attempt)
        return None

    async def _begin_child(self, start: Start, attempt: Attempt, execution: Execution) -> Result | Started:
        """Have the run started that answers a call, and its lanes published."""
        try:
            started = await self._services.children.start(start, attempt, execution, self._definition)
        except Conflict as conflict:
            return Failure("Conflict", str(conflict))
        except (RedisError, TakenOver) as error:  # one that is taken over finds the other's run the next time
            return Retry(Failure("Unavailable", str(error)), _UNAVAILABLE_SECONDS)
        if isinstance(started, Started):
            queue = self._services.settings.queue_instances
            await self._services.publish([lane_task(started.run, lane or None, queue) for lane in started.lanes])
        return started
