"""Driving a lane: ask the core what is ready, claim it, carry it out, commit, ask again (DESIGN "Instance task").

Calls in line run concurrently on the event loop; remote ones are published and the driver does not wait for them. The
driver ends when nothing is left that it can do. Every commit is one round trip that also claims the calls that come
next, so a chain of five costs five, and no broker hop.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Executor as Threads
from datetime import UTC, datetime

from broker_config import Settings
from protocol import Limits
from protocol.errors import Conflict
from protocol.execution import Execution, Failure, Outcome, Start, Status, Success

from .activities import Registry
from .invocation import invoke
from .lane import LaneView, RunGone
from .leases import Leases
from .log import Advance, Claim, MessageLog
from .messages import CallId, Delivery, TaskMessage, lane_task
from .remote import Remote
from .views import Views

logger = logging.getLogger(__name__)

Publish = Callable[[Sequence[TaskMessage]], Awaitable[None]]


class Driver:
    """Drives lanes, one `drive` or `deliver` at a time each, all on one event loop."""

    def __init__(
        self,
        log: MessageLog,
        *,
        settings: Settings,
        registry: Registry,
        limits: Limits,
        publish: Publish,
        threads: Threads,
        leases: Leases,
    ) -> None:
        self._log = log
        self._settings = settings
        self._registry = registry
        self._limits = limits
        self._publish = publish
        self._threads = threads
        self._leases = leases
        self._remote = Remote(settings, registry)
        self._views = Views(log)

    async def drive(self, run: str, instance: str | None) -> None:
        """Do everything in a lane that can be done now."""
        await self._carry_on(run, instance, None)

    async def deliver(self, delivery: Delivery) -> None:
        """Commit the result of a remote call, and carry on with its lane."""
        await self._carry_on(delivery.id.run, delivery.id.instance, delivery)

    async def _carry_on(self, run: str, instance: str | None, delivery: Delivery | None) -> None:
        try:
            view = await self._views.run(run)
            lane = await LaneView.open(self._log, view, instance)
            await _Drive(self, lane).run(delivery)
        except RunGone:
            logger.warning("run %s is not in the log (any more): its task is dropped", run)


class _Drive:
    """One driver's time with one lane."""

    def __init__(self, driver: Driver, lane: LaneView) -> None:
        self._driver = driver
        self._log = driver._log
        self._lane = lane
        self._owner = secrets.token_hex(6)
        self._running: dict[asyncio.Task[Success | Failure], int] = {}
        self._finished: list[Outcome] = []

    async def run(self, delivery: Delivery | None = None) -> None:
        """Go on until nothing more can be done here."""
        if delivery is not None and self._status(delivery.id.index) not in (Status.WAITING, Status.RUNNING):
            delivery = None
        if delivery is not None:
            self._finished.append(self._execution.finish(delivery.id.index, delivery.result, _now()))
        try:
            while await self._step():
                pass
        finally:
            for task in self._running:
                task.cancel()
            self._driver._leases.drop(self._lane.run.run, self._lane.instance, self._running.values())

    @property
    def _execution(self) -> Execution:
        return self._lane.execution

    def _status(self, index: int) -> Status:
        return self._execution.statuses.get(index, Status.DONE)

    async def _step(self) -> bool:
        """Commit what has ended, start what is ready; else wait for what is running, else leave."""
        for outcome in self._finished:
            self._lane.apply(outcome)
        starts: list[Start] = []
        while decisions := self._execution.decide(_now()):
            for decision in decisions:
                if isinstance(decision, Start):
                    starts.append(decision)
                else:
                    self._lane.apply(decision)
                    self._finished.append(decision)
        if self._finished or starts:
            await self._commit(starts)
            return True
        if self._running:
            await self._wait()
            return True
        return await self._park()

    async def _commit(self, starts: Sequence[Start]) -> None:
        outcomes, self._finished = self._finished, []
        claims = [Claim(start.call.index, self._lease_seconds(start)) for start in starts]
        advance = await self._log.advance(
            self._lane.run.run,
            self._lane.instance,
            seen=self._lane.seen,
            global_seen=self._lane.global_seen,
            owner=self._owner,
            outcomes=outcomes,
            waking=self._waking(outcomes),
            claims=claims,
        )
        if advance.status == "gone":
            raise RunGone(self._lane.run.run)
        woken = [self._lane_task(lane or None) for lane in advance.woken]
        messages = self._start(starts, advance)
        if woken or messages:
            await self._driver._publish([*woken, *messages])
        if not advance.is_fresh or not all(advance.accepted):
            await self._reload()
        else:
            self._lane.seen = advance.journal_id
            await self._note_global(advance)

    def _start(self, starts: Sequence[Start], advance: Advance) -> list[TaskMessage]:
        """Carry out the claimed calls: in line, or as messages to be published."""
        messages: list[TaskMessage] = []
        for start, attempt in zip(starts, advance.attempts or [0] * len(starts), strict=True):
            index = start.call.index
            self._execution.record(index, Status.RUNNING)
            if attempt == 0:
                continue
            if attempt > self._driver._settings.limit_attempts:
                self._give_up(index, attempt)
                continue
            try:
                if self._driver._remote.leaves(start.call):
                    messages.append(
                        self._driver._remote.message(start, self._id(index), self._execution, self._lane.run.definition)
                    )
                    if start.call.is_fire_and_forget:
                        self._finished.append(Outcome(index, Status.SENT))
                else:
                    self._run_in_line(start)
            except Conflict as conflict:
                self._finished.append(self._execution.finish(index, Failure("Conflict", str(conflict)), _now()))
        return messages

    def _run_in_line(self, start: Start) -> None:
        call = start.call
        activity = self._driver._registry.activities.get(call.runner.name)
        if activity is None:
            unknown = Failure(
                "UnknownActivity", f"this worker has no activity {call.runner.name!r}: see ACTS_ACTIVITIES"
            )
            self._finished.append(self._execution.finish(call.index, unknown, _now()))
            return
        function = activity.bind(call.properties, start.parameters, self._execution.scoped(call))
        task = asyncio.ensure_future(
            invoke(
                function,
                name=activity.name,
                is_async=activity.is_async,
                policy=activity.policy,
                limits=self._driver._limits,
                threads=self._driver._threads,
            )
        )
        self._running[task] = call.index
        self._driver._leases.hold(self._lane.run.run, self._lane.instance, call.index)

    async def _wait(self) -> None:
        done, _ = await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)
        ended = [(self._running.pop(task), task.result()) for task in done]
        self._driver._leases.drop(self._lane.run.run, self._lane.instance, [index for index, _ in ended])
        for index, result in sorted(ended, key=lambda pair: pair[0]):
            self._finished.append(self._execution.finish(index, result, _now()))

    async def _park(self) -> bool:
        """Leave the lane; one that waits for a global call is parked, unless that has come meanwhile."""
        if not self._lane.waits_for_global:
            return False
        advance = await self._log.advance(
            self._lane.run.run,
            self._lane.instance,
            seen=self._lane.seen,
            global_seen=self._lane.global_seen,
            owner=self._owner,
            park=True,
        )
        if not advance.is_fresh:
            await self._reload()
            return True
        return await self._note_global(advance)

    async def _note_global(self, advance: Advance) -> bool:
        """Read what is new in the global lane, where there is anything new; says so."""
        if self._lane.instance is None or advance.global_id in (self._lane.global_seen, "0-0"):
            return False
        view = self._lane.run
        if view.seen != advance.global_id:
            view.feed(await self._log.read(view.run, None, after=view.seen))
        self._lane.note_global()
        return True

    async def _reload(self) -> None:
        """Somebody else wrote to the lane: read it anew, so that everything is applied in the log's order."""
        view = self._lane.run
        view.feed(await self._log.read(view.run, None, after=view.seen))
        self._lane = await LaneView.open(self._log, view, self._lane.instance)
        for index in self._running.values():
            self._execution.record(index, Status.RUNNING)
        for outcome in self._finished:
            self._execution.record(outcome.index, Status.RUNNING)

    def _waking(self, outcomes: Iterable[Outcome]) -> frozenset[int]:
        if self._lane.instance is not None:
            return frozenset()
        return self._lane.run.definition.awaited & {outcome.index for outcome in outcomes}

    def _give_up(self, index: int, attempt: int) -> None:
        lost = Failure("WorkerLost", f"its workers were lost {attempt - 1} times; it is not tried again")
        self._finished.append(self._execution.finish(index, lost, _now()))

    def _lease_seconds(self, start: Start) -> float:
        remote = self._driver._remote
        if remote.leaves(start.call) and not start.call.is_fire_and_forget:
            return remote.lease_seconds(start.call)
        return self._driver._settings.lease_seconds

    def _lane_task(self, instance: str | None) -> TaskMessage:
        return lane_task(self._lane.run.run, instance, self._driver._settings.queue_instances)

    def _id(self, index: int) -> CallId:
        return CallId(self._lane.run.run, self._lane.instance, index)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
