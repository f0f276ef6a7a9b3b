"""Turn a checked plan into a run, and one Celery task per lane.

The run is written (`store.run_writer`), then the first tasks are published, a window of them (see lua/run.lua). A task
that is lost on the way, or that the broker does not take, is published by the sweep.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from redis import Redis
from redis.exceptions import NoPermissionError, RedisError

from ...broker_config import Settings
from ...protocol import Plan, Problem, Rejected
from ...protocol.calls.call import Call, read_approvals
from ...protocol.calls.tools import Executor
from ...protocol.engine.events import Start
from ...protocol.engine.execution import Execution
from ...protocol.errors import Conflict
from ...protocol.limits import MOST_URGENT
from ...protocol.plan.lanes import Lane
from ...protocol.schemas.costs import METER, STEP_WORK, Meter
from ...protocol.schemas.validation import OffloadedChecks
from .. import limits
from ..broker.attempts import Attempt, CallId, Tokens, place_of_run
from ..broker.consumer import Publisher
from ..broker.messages import TaskMessage, lane_task
from ..errors import InfrastructureError, RunBroken
from ..registry.activities import Registry
from ..registry.request_definitions import with_approval
from ..runner.remote import Remote
from ..store.connections import read_tokens
from ..store.definition import digest_of_plan
from ..store.held_calls import audit_record
from ..store.run_list import RunList, owner_fields
from ..store.run_store import RunStore
from ..store.run_writer import RunWriter, TakenOver
from ..store.scripts import ServerClock, date_now
from ..store.servers import new_run_id
from ..store.sweeps import ProbeTable
from .submitting import NO_LABEL, Label, admitted

# Calls that are sent and forgotten and wait for nothing are decided by the client: no lane is driven for them.
#
# For its run such a call has ended once its task is in the outbox (SPEC R5.1). The client knows all its parameters, so
# the core decides it here as it does for a lane runner, and the decision is written with the run. If the task is not
# published then, the sweep publishes it. A lane with any other call is left to the workers as a whole, as are all lanes
# beyond those published at once. Only the background queue is filled from here: a client may have no right to others.

_MOST_WORK: Final = 10 * STEP_WORK
"""How many units of work checking the calls' parameters may take here."""


Sent = Sequence[tuple[CallId, TaskMessage]]
"""Calls of a lane with their tasks."""


@dataclass(slots=True)
class SentInline:
    """The calls that are sent with a submission."""

    lanes: dict[str | None, Sent] = field(default_factory=dict)
    """The calls of each lane that has ended with it."""
    work: int = 0
    """How much work validation has taken (see `schemas.costs`)."""

    @property
    def tasks(self) -> list[TaskMessage]:
        """The tasks of all lanes."""
        return [task for calls in self.lanes.values() for _, task in calls]


class InlineFireAndForget:
    """Decides which lanes have ended with their submission, since all their calls are sent and forgotten."""

    def __init__(self, settings: Settings, registry: Registry) -> None:
        self._settings = settings
        self._registry = registry
        self._remote = Remote(settings, registry)
        self._limits = limits.limits_of(settings)

    def decide(self, plan: Plan, run: str, tokens: Tokens, trace: str = "") -> SentInline:
        """Make the tasks of the lanes of a plan that can end here; `trace` is the run's place in a trace."""
        found, meter = SentInline(), Meter()
        most, calls = limits.DISPATCHER_WINDOWS * self._settings.publish_window, 0
        free_bytes = limits.DISPATCHER_MOST_BYTES
        before = METER.set(meter)
        try:
            for instance, lane in plan.lanes.items():
                if calls + len(lane.calls) > most or meter.units >= _MOST_WORK or not self._may_end(plan, lane):
                    continue
                if sent := self._sent(plan, lane, run, tokens, trace, free_bytes):
                    found.lanes[instance] = sent
                    calls += len(sent)
                    free_bytes -= sum(len(task.body) for _, task in sent)
        finally:
            METER.reset(before)
        found.work = meter.units
        return found

    def _may_end(self, plan: Plan, lane: Lane) -> bool:
        """Tell whether a lane has only calls for the background, and neither a gather call nor the output needs it."""
        is_read = lane.instance is None and plan.submission.output is not None
        return lane.gathers is None and not is_read and all(map(self._is_sent, lane.calls))

    def _is_sent(self, call: Call) -> bool:
        """Tell whether a call goes to the background, as far as this client knows."""
        is_code = call.runner.executor is Executor.ACTIVITY and call.is_fire_and_forget
        activity = self._registry.activities.get(call.runner.name) if is_code else None
        is_free = activity is not None and activity.policy.rate is None  # else a worker asks whether it may begin
        return is_free and self._remote.queue(call) == self._settings.queue_background

    def _sent(self, plan: Plan, lane: Lane, run: str, tokens: Tokens, trace: str, most_bytes: int) -> Sent:
        """Make the tasks of a lane's calls; none unless all calls can begin, and the tasks fit into so many bytes."""
        approvals, fold = read_approvals(plan.submission.config), plan.context.fold(lane.instance)
        execution = Execution.of(plan, lane, fold, approvals=approvals, limits=self._limits)
        sent: list[tuple[CallId, TaskMessage]] = []
        while len(sent) < len(lane.calls):
            with (checks := OffloadedChecks()):
                decisions = execution.decide(date_now(), most=limits.DISPATCHER_AT_ONCE)
            starts = [decision for decision in decisions if isinstance(decision, Start)]
            if checks.asked or not starts or len(starts) < len(decisions):
                return []
            for start in starts:
                call = CallId(run, lane.instance, start.call.index)
                try:
                    attempt = tokens.given(Attempt(call, trace=trace, ends_ms=self._registry.ends_ms(start.call)))
                    task = self._remote.activity_task(start, attempt, execution, plan.contracts)
                except Conflict:
                    return []
                most_bytes -= len(task.body)
                if most_bytes < 0 or len(task.body) > self._limits.call_bytes:
                    return []
                sent.append((call, task))
        return sent


# Publishing lanes: the sweep publishes those that the broker does not take.

logger = logging.getLogger(__name__)


def publish_lanes(
    publisher: Publisher,
    settings: Settings,
    run: str,
    lanes: Iterable[str],
    forgotten: Iterable[TaskMessage] = (),
    *,
    has: str | None = None,
    priority: int = 0,
) -> bool:
    """Publish lanes by their tokens, and tasks that are sent and forgotten; tells whether the broker took them. With
    `has`, the end of a warning about the run, it does not raise `InfrastructureError`.
    """
    try:
        driving = (lane_task(run, lane or None, settings.queue_instances, priority=priority) for lane in lanes)
        publisher.publish(chain(driving, forgotten))
    except InfrastructureError as error:
        if has is None:
            raise
        logger.warning("run %s %s, its tasks are published by the workers within seconds: %s", run, has, error)
        return False
    return True


# Claims: the first client that submits an id claims it while it writes the run, so two at a time do not write one run.


class IdTaken(Rejected):
    """The id already belongs to a different submission, or to a run of somebody else."""

    code = "id_taken"

    def __init__(self, run: str) -> None:
        """Make the error for a run id that another run has."""
        text = f"the id {run!r} belongs to another submission: use another id, or submit the same document"
        super().__init__([Problem("", text)])


def claimed(redis: Redis, prefix: str, run: str, label: Label) -> bool:
    """Claim an id to write a run under it; False where a run has it already, and is there now.

    Raises `IdTaken` where that run is another submission's, `RunBroken` where the server has lost a part of
    it, `InfrastructureError` where the client that has claimed the id does not get on, `RedisError`.
    """
    runs, store = RunList(redis, prefix), RunStore.open(redis, prefix, run)
    until = time.monotonic() + limits.CLAIM_SECONDS
    while time.monotonic() < until:
        status, digest = store.fields("status", "digest")
        if status is None:
            if not runs.claim(run, label.digest):
                time.sleep(limits.SUBMITTING_LOOK_SECONDS)
            elif store.status() is None:
                return True
            else:
                runs.release(run)
        elif digest != label.digest:
            raise IdTaken(run)
        elif (lost := store.lost_parts()) is not None:  # else it was deleted meanwhile
            if lost:
                raise RunBroken(run, lost)
            return False
    raise InfrastructureError(f"the id {run!r} is being submitted by another client, which has not finished; try again")


class StartedRun(NamedTuple):
    """The run of a submission."""

    run: str
    since: str | None
    """The id of its first status, if there is more to come."""
    is_new: bool
    """Whether the submission began it; otherwise it was there under the label's id."""


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
    ) -> StartedRun:
        """Write a run with its files, start it, publish its tasks.

        If a run of the label's id is there already, it is returned, and nothing is done. Raises `IdTaken` if that run
        is another submission's, `OverLimit` if the token's owner may not begin the run.
        """
        if label.id is not None and plan.allow is not None:  # one that may call other tools is another submission
            digest = hashlib.sha256(f"{label.digest} {sorted(plan.allow)}".encode()).hexdigest()
            label = replace(label, digest=digest)
        plan = with_approval(plan, self._settings, RunList(self._redis, self._settings.key_prefix).is_approved)
        milliseconds = self._clock.milliseconds()
        at_ms = label.at_ms if label.at_ms is not None and label.at_ms > milliseconds else None
        if at_ms is not None and plan.waits_for_approval:
            text = "a plan that waits for an approval begins with that, and at no time: leave `at` out"
            raise Rejected([Problem("", text)])
        if label.priority:
            self._require_priority(label.priority)
        run, prefix = label.id or new_run_id(self._redis, milliseconds), self._settings.key_prefix
        if label.id is not None and not claimed(self._redis, prefix, run, label):
            return StartedRun(run, None, is_new=False)
        about = {"approved_plan": digest_of_plan(plan)} if plan.is_approved else {}
        order = audit_record(self._settings, "submitted", **about)
        try:
            trace = place_of_run(run, label.trace).pack() if label.trace is not None else ""
            forgotten = self._forgotten(plan, run, str(milliseconds), trace) if at_ms is None else SentInline()
            more: dict[str, Any] = {**owner_fields(self._settings), **label.fields()}
            more |= {"work": forgotten.work} if forgotten.work else {}
            more |= {"at": at_ms} if at_ms is not None else {}
            with admitted(self._redis, self._settings, plan.size) as limits:
                more |= limits
                written = self._writer.write(plan, run, milliseconds, order, more, forgotten.lanes, files)
        except TakenOver:
            if label.id is None or claimed(self._redis, prefix, run, label):
                raise
            return StartedRun(run, None, is_new=False)
        finally:
            if label.id is not None:
                RunList(self._redis, prefix).release(run)
        order.write_line(run)
        self._publish(run, written.lanes, forgotten.tasks, label.priority)
        return StartedRun(run, written.since if written.lanes else None, is_new=True)

    def _require_priority(self, priority: int) -> None:
        """Have the sweep look at the bands of priorities. Raises `Rejected` for a priority that there is not."""
        if type(priority) is not int or not 0 <= priority <= MOST_URGENT:
            text = f"priority={priority!r:.80} must be a whole number from 0 to {MOST_URGENT}, the most urgent"
            raise Rejected([Problem("", text)])
        ProbeTable(self._redis, self._settings.key_prefix).use_bands()

    def _forgotten(self, plan: Plan, run: str, born: str, trace: str) -> SentInline:
        """Decide what is sent with the run, which was submitted at `born`; nothing if this client may not read the
        secret that messages need.
        """
        begins = not plan.submission.is_request and not plan.waits_for_approval
        if begins and any(call.is_fire_and_forget for call in plan.calls):
            with suppress(NoPermissionError):
                tokens = read_tokens(self._redis, self._settings.key_prefix).of_run(born)
                return InlineFireAndForget(self._settings, self._registry).decide(plan, run, tokens, trace)
        return SentInline()

    def _publish(self, run: str, lanes: Sequence[str], forgotten: Sequence[TaskMessage], priority: int) -> None:
        """Publish the first tasks, or have the sweep publish them if the broker does not take them."""
        has = "is submitted"
        forgotten = [replace(task, priority=priority) for task in forgotten] if priority else forgotten
        if not publish_lanes(self._publisher, self._settings, run, lanes, forgotten, has=has, priority=priority):
            with suppress(RedisError):
                self._writer.mark_unpublished(run, lanes)
