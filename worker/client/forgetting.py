"""What is sent and forgotten, and waits for nothing, is decided by whoever submits it: no lane is driven for it.

Such a call has ended, for its run, once its task stands in the outbox (SPEC R5.1). Who submits knows all that it is
given, so the core decides it here as it does for a lane runner, and what it decides is written down with the run. Where
the task is not published then, the sweep publishes it. A lane in which there is anything else to do is left to the
workers as a whole, as are all lanes beyond what is published at once. Only the queue of the background is filled from
here: who submits may have no right to another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from acts_celery.broker_config import Settings
from acts_celery.protocol import Plan
from acts_celery.protocol.calls.approvals import read_approvals
from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.calls.tools import Executor
from acts_celery.protocol.engine.decisions import Start
from acts_celery.protocol.engine.execution import Execution
from acts_celery.protocol.graph.lanes import Lane
from acts_celery.protocol.language.errors import Conflict
from acts_celery.protocol.schemas.elsewhere import OffloadedChecks
from acts_celery.protocol.schemas.work import METER, STEP_WORK, Meter
from acts_celery.worker.lanes.remote import Remote
from acts_celery.worker.process.limits import limits_of
from acts_celery.worker.registry.activities import Registry
from acts_celery.worker.storage.clock import date_now
from acts_celery.worker.wire.attempts import Attempt, CallId
from acts_celery.worker.wire.task_messages import TaskMessage
from acts_celery.worker.wire.tokens import Tokens

WINDOWS: Final = 10
"""So many windows of calls of a submission are published at once: what others send stands behind no more of them. The
lanes beyond follow by the window, as all others do.
"""
_MOST_BYTES: Final = 2**24
"""Of their tasks."""
_AT_ONCE: Final = 250
"""How many calls are decided before what they hold is counted."""
_MOST_WORK: Final = 10 * STEP_WORK
"""Units that checking what they are given may take here."""


Sent = Sequence[tuple[CallId, TaskMessage]]
"""The calls of a lane, and their tasks."""
Given = Callable[[CallId], Attempt]
"""The attempt at a call, as it is given away."""


@dataclass(slots=True)
class Forgotten:
    """What is sent with a submission."""

    lanes: dict[str | None, Sent] = field(default_factory=dict)
    """The lanes that have ended with it."""
    work: int = 0
    """What validation has taken (see `schemas.work`)."""

    @property
    def tasks(self) -> list[TaskMessage]:
        """All tasks."""
        return [task for calls in self.lanes.values() for _, task in calls]


class Forgetting:
    """Decides which lanes have ended when they are submitted."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self._settings = settings
        self._registry = registry
        self._remote = Remote(settings, registry)
        self._limits = limits_of(settings)

    def decide(self, plan: Plan, run: str, tokens: Tokens, trace: str = "") -> Forgotten:
        """What can be sent of a plan, as that run; `trace` is its place in one (see `Attempt`)."""
        found, meter = Forgotten(), Meter()
        most, calls, free_bytes = WINDOWS * self._settings.publish_window, 0, _MOST_BYTES
        before = METER.set(meter)

        def given(call: CallId) -> Attempt:
            return tokens.given(Attempt(call, trace=trace))

        try:
            for instance, lane in plan.lanes.items():
                if calls + len(lane.calls) > most or meter.units >= _MOST_WORK or not self._may_end(plan, lane):
                    continue
                if sent := self._sent(plan, lane, run, given, free_bytes):
                    found.lanes[instance] = sent
                    calls += len(sent)
                    free_bytes -= sum(len(task.body) for _, task in sent)
        finally:
            METER.reset(before)
        found.work = meter.units
        return found

    def _may_end(self, plan: Plan, lane: Lane) -> bool:
        """Whether a lane has calls for the background only, and neither a gather call nor the output needs it."""
        is_read = lane.instance is None and plan.submission.output is not None
        return lane.gathers is None and not is_read and all(map(self._is_sent, lane.calls))

    def _is_sent(self, call: Call) -> bool:
        """Whether a call is one that goes to the background, for all that is known here."""
        is_known = call.runner.executor is Executor.ACTIVITY and call.runner.name in self._registry.activities
        return is_known and call.is_fire_and_forget and self._remote.queue(call) == self._settings.queue_background

    def _sent(self, plan: Plan, lane: Lane, run: str, given: Given, most_bytes: int) -> Sent:
        """The tasks of a lane's calls; none where not all of them can begin, or they are too large together."""
        approvals, fold = read_approvals(plan.submission.config), plan.context.fold(lane.instance)
        execution = Execution.of(plan, lane, fold, approvals=approvals, limits=self._limits)
        sent: list[tuple[CallId, TaskMessage]] = []
        while len(sent) < len(lane.calls):
            with (checks := OffloadedChecks()):
                decisions = execution.decide(date_now(), most=_AT_ONCE)
            starts = [decision for decision in decisions if isinstance(decision, Start)]
            if checks.asked or not starts or len(starts) < len(decisions):
                return []
            for start in starts:
                call = CallId(run, lane.instance, start.call.index)
                try:
                    task = self._remote.activity_task(start, given(call), execution, plan.contracts)
                except Conflict:
                    return []
                most_bytes -= len(task.body)
                if most_bytes < 0 or len(task.body) > self._limits.call_bytes:
                    return []
                sent.append((call, task))
        return sent
