"""Calls that run at most once: their beginnings in the log, and who says how one has ended (SPEC R4.11).

The commit that claims such a call writes its beginning into the log, before any code of it runs. One that began and
brought no result - its worker died, it took too long, its result cannot be kept - is not claimed again. Its activity is
asked how it has ended, where it has a function for that; else, or if that cannot say it, a person is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any

from ...protocol.calls.call import Call
from ...protocol.calls.tools import Executor
from ...protocol.engine.events import CallBegun, Evidence, Snapshot, Start, Status, Success
from ...protocol.engine.execution import Execution
from ...protocol.errors import Conflict
from ...protocol.state.scopes import TooLarge
from ..broker.attempts import Attempt, CallId, Retry
from ..store.held_calls import pack_begun
from .calls import invoke
from .step import WorkerContext


@dataclass(frozen=True, slots=True)
class Untold:
    """The answer of an activity about a call whose end is not known, without a result."""

    said: str
    is_not_done: bool = False
    """Whether the call has done nothing, and begins again."""


Watch = Callable[[Coroutine[Any, Any, Success | Untold], Attempt], None]
"""Takes note of an attempt, whose result the coroutine finds."""


class OnceCalls:
    """The calls of one lane that run at most once."""

    def __init__(self, services: WorkerContext, run: str, instance: str | None, watch: Watch) -> None:
        self._services = services
        self._run = run
        self._instance = instance
        self._watch = watch
        self._claimed: dict[int, Snapshot] = {}
        """The parameters and scopes with which calls are claimed."""
        self.not_done: dict[int, int] = {}
        """The attempts that did nothing, as their activities say, by call."""

    def beginning(self, start: Start, execution: Execution) -> bytes:
        """The log's entry for the beginning of a call that is about to be claimed."""
        try:
            snapshot = execution.snapshot(start)
        except (Conflict, TooLarge):  # it fails for that when it begins
            snapshot = Snapshot(start.parameters, {})
        self._claimed[start.call.index] = snapshot
        return pack_begun(start.call.tool, snapshot, self._id(start.call).idempotency_key, self._services.worker)

    def begin(self, call: Call, attempt: Attempt, execution: Execution) -> None:
        """Take in that the log says that a claimed call has begun."""
        self.not_done.pop(call.index, None)
        if (snapshot := self._claimed.pop(call.index, None)) is not None:
            since_ms = int(time.time() * 1000)
            evidence = Evidence("", attempt.id.idempotency_key, attempt.number, self._services.worker, since_ms)
            execution.apply(CallBegun(call.index, snapshot, evidence))

    def doubt(self, call: Call, number: int, said: str, execution: Execution) -> bool:
        """Look for the end of an attempt at a call, which is not known. Says whether its activity is asked: the answer
        comes as the result of the attempt. Else the next decision has a person asked.
        """
        self._claimed.pop(call.index, None)
        is_for_code = call.runner.executor is Executor.ACTIVITY
        activity = self._services.activity(call.runner.name) if is_for_code else None
        begun = execution.begun(call.index)
        if activity is None or activity.settled is None or begun is None:
            execution.note_unknown(call.index, said)
            return False
        function = activity.bind_settled(begun.evidence.key, call.properties, begun.snapshot.parameters)
        execution.record(call.index, Status.RUNNING)
        attempt = Attempt(self._id(call), max(1, number))
        self._watch(self._answer(activity.name, function, attempt, said), attempt)
        return True

    async def _answer(self, name: str, function: Callable[[], Any], attempt: Attempt, said: str) -> Success | Untold:
        """Ask an activity about an attempt."""
        activity = self._services.registry.activities[name]
        answer = await invoke(
            function,
            attempt,
            name=name,
            is_async=activity.is_settled_async,
            policy=replace(activity.policy, retries=0, once=False),
            limits=self._services.limits,
            threads=self._services.threads,
        )
        if not isinstance(answer, Success):
            failure = answer.failure if isinstance(answer, Retry) else answer
            return Untold(f"{said}; its activity was asked, and failed: {failure.type}: {failure.message}")
        match answer.value:
            case ["done", value]:
                return Success(value)
            case ["not done"]:
                return Untold(said, is_not_done=True)
        return Untold(f"{said}; its activity was asked, and cannot say it")

    def _id(self, call: Call) -> CallId:
        return CallId(self._run, self._instance, call.index)
