"""The dispatcher: a checked plan becomes a run, and one Celery task per lane.

It is written down (`store.run_writer`), then the first tasks are published, a window of them (see lua/run.lua). A
task that gets lost on the way, or that the broker does not take, is published by the sweep.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

from redis import Redis
from redis.exceptions import NoPermissionError, RedisError

from ...broker_config import Settings
from ...protocol import Plan
from ...protocol.calls.call import Call, read_approvals
from ...protocol.calls.tools import Executor
from ...protocol.engine.events import Start
from ...protocol.engine.execution import Execution
from ...protocol.errors import Conflict
from ...protocol.plan.lanes import Lane
from ...protocol.schemas.costs import METER, STEP_WORK, Meter
from ...protocol.schemas.validation import OffloadedChecks
from ..broker.attempts import Attempt, CallId, Tokens, place_of_run
from ..broker.consumer import Publisher
from ..broker.messages import TaskMessage, lane_task
from ..errors import InfrastructureError
from ..limits import DISPATCHER_AT_ONCE, DISPATCHER_MOST_BYTES, DISPATCHER_WINDOWS, limits_of
from ..registry.activities import Registry
from ..runner.remote import Remote
from ..store.connections import read_tokens
from ..store.held_calls import audit_record
from ..store.keys import make_run_id
from ..store.run_list import RunList, owner_fields
from ..store.run_writer import RunWriter, TakenOver
from ..store.scripts import ServerClock, date_now
from .submitting import NO_LABEL, Label, admitted, claimed

# What is sent and forgotten, and waits for nothing, is decided by whoever submits it: no lane is driven for it.
#
# Such a call has ended, for its run, once its task stands in the outbox (SPEC R5.1). Who submits knows all that it is
# given, so the core decides it here as it does for a lane runner, and what it decides is written down with the run.
# Where the task is not published then, the sweep publishes it. A lane in which there is anything else to do is left to
# the workers as a whole, as are all lanes beyond what is published at once. Only the queue of the background is filled
# from here: who submits may have no right to another one.

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
        most, calls, free_bytes = DISPATCHER_WINDOWS * self._settings.publish_window, 0, DISPATCHER_MOST_BYTES
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
                decisions = execution.decide(date_now(), most=DISPATCHER_AT_ONCE)
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


# Publishing lanes that stand in the log: where the broker does not take them, the workers' sweep publishes them.

logger = logging.getLogger(__name__)


def publish_lanes(
    publisher: Publisher,
    settings: Settings,
    run: str,
    lanes: Iterable[str],
    forgotten: Iterable[TaskMessage] = (),
    *,
    has: str | None = None,
) -> bool:
    """Publish lanes by their tokens, and what is sent and forgotten; says whether they are. Without `has`, what the run
    `has` come to by now, raises `InfrastructureError`.
    """
    try:
        driving = (lane_task(run, lane or None, settings.queue_instances) for lane in lanes)
        publisher.publish(chain(driving, forgotten))
    except InfrastructureError as error:
        if has is None:
            raise
        logger.warning("run %s %s, its tasks are published by the workers within seconds: %s", run, has, error)
        return False
    return True


class Dispatcher:
    """Starts runs."""

    def __init__(self, redis: Redis, publisher: Publisher, settings: Settings, registry: Registry) -> None:
        self._redis = redis
        self._clock = ServerClock(redis)
        self._writer = RunWriter(redis, settings)
        self._publisher = publisher
        self._settings = settings
        self._registry = registry

    def submit(
        self, plan: Plan, label: Label = NO_LABEL, files: Mapping[str, bytes] = MappingProxyType({})
    ) -> tuple[str, str | None]:
        """Write the run down with its files, start it, publish its tasks. Returns its id, and the id of its first
        status where it goes on from there.

        A label's id that a run has already stands for that run: nothing is done then. Raises `protocol.Rejected` where
        that run is another submission's, `OverLimit` where who has shown a token may not begin it.
        """
        milliseconds = self._clock.milliseconds()
        run, prefix = label.id or make_run_id(milliseconds), self._settings.key_prefix
        if label.id is not None and not claimed(self._redis, prefix, run, label):
            return run, None
        order = audit_record(self._settings, "submitted")
        try:
            trace = place_of_run(run, label.trace).pack() if label.trace is not None else ""
            forgotten = self._forgotten(plan, run, str(milliseconds), trace)
            more: dict[str, Any] = {**label.fields(), **owner_fields(self._settings)}
            more |= {"work": forgotten.work} if forgotten.work else {}
            with admitted(self._redis, self._settings, plan.size) as limits:
                more |= limits
                written = self._writer.write(plan, run, milliseconds, order, more, forgotten.lanes, files)
        except TakenOver:
            if label.id is None or claimed(self._redis, prefix, run, label):
                raise
            return run, None
        finally:
            if label.id is not None:
                RunList(self._redis, prefix).release(run)
        order.write_line(run)
        self._publish(run, written.lanes, forgotten.tasks)
        return run, written.since if written.lanes else None

    def _forgotten(self, plan: Plan, run: str, born: str, trace: str) -> Forgotten:
        """What is sent with the run itself, which is born then. Nothing where the secret that its messages need may not
        be read.
        """
        begins = not plan.submission.is_request and not plan.waits_for_approval
        if begins and any(call.is_fire_and_forget for call in plan.calls):
            with suppress(NoPermissionError):
                tokens = read_tokens(self._redis, self._settings.key_prefix).of_run(born)
                return Forgetting(self._settings, self._registry).decide(plan, run, tokens, trace)
        return Forgotten()

    def _publish(self, run: str, lanes: Sequence[str], forgotten: Sequence[TaskMessage]) -> None:
        """Publish the first tasks. The run has begun: where the broker does not take them, the sweep publishes them."""
        if not publish_lanes(self._publisher, self._settings, run, lanes, forgotten, has="is submitted"):
            with suppress(RedisError):
                self._writer.mark_unpublished(run, lanes)
