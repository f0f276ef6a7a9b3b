"""The scheduler: takes up lanes when a task says so, and lets a `LaneRunner` do what can be done there.

A process has at most one runner for a lane, also while it is still being opened: what arrives for the lane - a remote
result, a wake-up - waits for the opening and is handed to the runner, so many results cost one reading. A lane that was
left stays in memory for a while: the next remote result needs to read only what has come since. A task that drives a
lane reads all of it, since it may come from the sweep, after calls were lost. A lane that was lost itself may be what
its worker died of: such lanes are driven one after the other until they get on, and counted (see lua/drive.lua). A run
that is a request has one lane more, its loop, with a runner of its own kind.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final

from celery import Task, signals, states
from celery.app import trace
from celery.app.task import Context

from .. import limits
from ..backoff import Backoff
from ..broker.messages import MESSAGE_FORMAT, RETURNED, DelegateCall, Delivery, TaskMessage
from ..errors import OtherFormat
from ..logs import lane_at_work, note_trace
from ..process import count_refusal
from ..store.keys import LOOP
from ..store.lane import LaneView, RunGone
from ..store.loop_view import LoopView
from .lane_runner import LaneRunner
from .rooms import LoopDriver, agent
from .step import Publish, Recent, Views, WorkerContext

logger = logging.getLogger(__name__)

LaneId = tuple[str, str | None]
Runner = LaneRunner | LoopDriver
View = LaneView | LoopView


class Scheduler:
    """Runs any number of lanes concurrently, all on one event loop."""

    def __init__(self, services: WorkerContext) -> None:
        self._services = services
        self._views = Views(services.log, services.limits, services.checker.trust_of)
        self._runners: dict[LaneId, Runner] = {}
        self._openings: dict[LaneId, asyncio.Event] = {}
        """Lanes that are being read, each with what is set when that has ended."""
        self._left = Recent[LaneId, View](
            limits.LANES_KEPT, most_bytes=limits.LANES_KEPT_BYTES, longest_seconds=limits.LANES_KEPT_SECONDS
        )
        """The views of lanes that were left: a result that comes soon needs no reading."""
        self._suspect = asyncio.Lock()
        """Held for a lane that was lost, from before it is read until it gets on or is left."""
        self._gets_on: dict[LaneId, asyncio.Event] = {}
        """Set when such a lane has written something, claimed a call, or left."""

    async def drive(
        self, run: str, instance: str | None, *, was_lost: bool = False, is_redelivered: bool = False
    ) -> list[str]:
        """Do everything in a lane that can be done now; returns the calls that failed, each with its error's type.

        `was_lost`: the lane was driven before, and gave no sign of life; `is_redelivered`: the broker says so. Raises
        `OtherFormat`.
        """
        with _task_of((run, instance)):
            if not was_lost:
                return await self._services.turns.take(run, self._drive((run, instance)))
            return await self._drive_suspect((run, instance), is_redelivered)
        return []

    async def _drive_suspect(self, lane: LaneId, is_redelivered: bool) -> list[str]:
        run, services = lane[0], self._services
        async with self._suspect:
            if lane in self._runners:
                await self._drive(lane)
                return []
            drive = await services.log.note_drive(*lane, is_redelivered=is_redelivered)
            if drive.is_over:
                logger.warning("run %.200r is over: a lane of it that was lost is not driven again", run)
                self.cancel(run)
            if not drive.is_driven:
                return []
            gets_on = self._gets_on[lane] = asyncio.Event()
            driven = asyncio.ensure_future(services.turns.take(run, self._drive(lane)))
            driven.add_done_callback(lambda _: gets_on.set())
            await gets_on.wait()
            del self._gets_on[lane]
        return await driven

    async def _drive(self, lane: LaneId) -> list[str]:
        if (runner := await self._present(lane)) is not None:
            runner.look_again()
            return []
        if isinstance(self._left.get(lane), LaneView):
            self._left.pop(lane)
        return await self._run(lane, None)

    async def deliver(self, delivery: Delivery) -> None:
        """Commit the result of a remote call, and see to it that its lane goes on.

        One without the token of its attempt is refused: its sender was never given the call. Raises `OtherFormat`.
        """
        lane = delivery.attempt.id.run, delivery.attempt.id.instance
        with _task_of(lane):
            if not await self._admits(delivery) and not await self._admits(delivery, afresh=True):
                logger.error(
                    "a result of %.200s is refused: it does not have the token of the attempt", delivery.attempt.id
                )
                count_refusal("results")
                return
            child = delivery.child
            if child is not None and not await self._services.log.is_answered_by(delivery.attempt.id, child):
                return  # the sweep sends it again where the call has only not been marked yet
            await self._services.turns.take(lane[0], self._hand_over(lane, delivery))

    async def with_request(self, call: DelegateCall) -> DelegateCall | None:
        """Add to the call of a tick the request that it names; None where the log does not have that, or not as the
        last one, and for a call without the token of its attempt. Raises `FileGone`, `RedisError`.
        """
        lane = call.attempt.id.run, LOOP
        runner = await self._present(lane)
        if isinstance(runner, LaneRunner):
            return None
        try:
            view = await self._view(lane) if runner is None else runner.view
        except RunGone:
            return None
        if runner is None:
            self._left.put(lane, view, view.size)
        if not isinstance(view, LoopView) or view.digest != call.asked or not view.tokens.admit(call.attempt):
            return None
        messages = await view.read_request(self._services.log)
        return replace(call, asked="", context=messages, schema=view.schema, provider_data={**view.provider_data})

    async def _admits(self, delivery: Delivery, *, afresh: bool = False) -> bool:
        """Whether a result comes from the worker that was given the attempt, in the run that has its id now. What is
        kept of the run is read `afresh` where it may be a deleted one's. The call itself says which child run it has.
        """
        attempt = delivery.attempt
        if afresh:
            self._views.forget(attempt.id.run)
        tokens = (await self._views.run(attempt.id.run)).tokens
        return tokens.admit(attempt) and (delivery.child is not None or tokens.is_of_run(attempt))

    async def _hand_over(self, lane: LaneId, delivery: Delivery) -> None:
        while (runner := await self._present(lane)) is not None:
            if await runner.deliver(delivery):
                return
        await self._run(lane, delivery)

    def cancel(self, run: str) -> None:
        """A run is over before all of its calls have ended: its runners stop."""
        for (driven, _), runner in self._runners.items():
            if driven == run:
                runner.stop()

    def leave(self) -> None:
        """This process is to end: begin nothing more, and leave each lane to others when its calls here have ended."""
        self._services.leaving.set()
        for runner in self._runners.values():
            if isinstance(runner, LaneRunner):
                runner.wake()

    async def _present(self, lane: LaneId) -> Runner | None:
        """The lane's runner; waits for one that is being opened."""
        while (opening := self._openings.get(lane)) is not None:
            await opening.wait()
        return self._runners.get(lane)

    async def _run(self, lane: LaneId, delivery: Delivery | None) -> list[str]:
        """Run a lane that has no runner until nothing more can be done here; returns the calls that failed."""
        runner = await self._open(lane)
        if delivery is not None:
            runner.deliver(delivery)
        try:
            if not (view := await runner.run()).is_finished:
                self._left.put(lane, view, view.size)
        finally:
            del self._runners[lane]
        if isinstance(runner, LaneRunner) and runner.is_over and not runner.is_stopped:
            self.cancel(lane[0])
        if runner.next_lane is not None:  # in the same turn, whose time it takes
            following = lane[0], runner.next_lane or None
            with _task_of(following):
                await self._drive(following)
        return runner.failed

    async def _open(self, lane: LaneId) -> Runner:
        """Read the lane, and put its runner in place before any other coroutine that waits for it goes on."""
        opening = self._openings[lane] = asyncio.Event()
        try:
            view = await self._view(lane)
            if isinstance(view, LaneView):
                made: Runner = LaneRunner(self._services, view)
                note_trace(view.run.trace)
            else:
                made = agent().make_driver(self._services, view)
                note_trace(view.trace)
            self._runners[lane] = made
            made.gets_on = self._gets_on.get(lane)
            return made
        finally:
            del self._openings[lane]
            opening.set()

    async def _view(self, lane: LaneId) -> View:
        try:
            return await self._read(lane)
        except RunGone:  # another one may have its id, of which nothing is kept here
            self._views.forget(lane[0])
            return await self._read(lane)

    async def _read(self, lane: LaneId) -> View:
        left = self._left.pop(lane)
        if left is not None and await left.catch_up(self._services.log):
            return left
        (run, instance), services = lane, self._services
        if instance == LOOP and (await self._views.run(run)).definition.request is not None:
            return await LoopView.open_run(services.log, run, services.settings, services.checker.trust_of)
        view, opened = await self._views.lane(run, instance)
        return await LaneView.open(self._services.log, view, instance, opened)


@contextmanager
def _task_of(lane: LaneId) -> Iterator[None]:
    """While a lane is worked on; a task of a run that is not there is dropped, with one line in the log."""
    with lane_at_work(*lane):
        try:
            yield
        except RunGone:
            logger.warning("run %.200r is not in the log (any more): its task is dropped", lane[0])


# Running a coroutine as Celery's tracer runs a function: with its signals, its errors and its one line in the log.


Begin = Callable[[Mapping[str, Any]], Coroutine[Any, Any, None]]
"""Makes a task's coroutine of its request."""
Ended = tuple[int, Any, float]
"""The result of Celery's tracers: whether it failed; the result's text, or the error; and how many seconds it took."""


def shown_arguments(request: Mapping[str, Any]) -> str:
    """A message's text about its arguments, bounded."""
    return str(request.get("argsrepr") or "-")[: limits.LONGEST_SHOWN]


async def traced(task: Task, request: dict[str, Any], begin: Begin) -> Ended:
    """Run a task whose result is not stored. Never raises."""
    began, id_ = time.monotonic(), request["id"]
    about = {"task_id": id_, "task": task, "args": request["args"], "kwargs": request["kwargs"]}
    _send(signals.task_prerun, task, request, about)
    state, failed, value = states.SUCCESS, 0, None
    try:
        await begin(request)
    except BaseException as error:  # a pool's task ends in one way or another, whatever is raised in it
        state, failed = states.FAILURE, 1
        value = trace.TraceInfo(state, error).handle_error_state(task, Context(request))
    seconds = time.monotonic() - began
    if not failed:
        signals.task_success.send(sender=task, result=None)
        trace.info(
            trace.LOG_SUCCESS,
            {
                "id": id_,
                "name": task.name,
                "return_value": "None",
                "runtime": seconds,
                "args": shown_arguments(request),
                "kwargs": "-",
            },
        )
    _send(signals.task_postrun, task, request, {**about, "retval": value, "state": state})
    return failed, value if failed else "None", seconds


def _send(signal: Any, task: Task, request: dict[str, Any], about: dict[str, Any]) -> None:
    """Send a signal to its listeners, which find the request where Celery's tracer leaves it."""
    if not signal.receivers:
        return
    task.request_stack.push(Context(request))
    try:
        signal.send(sender=task, **about)
    finally:
        task.request_stack.pop()


# Returns: tasks that this version of ours does not read go back to their queue, for a worker that does.
#
# While an upgrade is rolled out, old workers and new ones take from the same queues. A run is written down in a format
# (`store.definition`); messages say theirs in a header from the second one on. A worker that does not read one
# publishes the task anew a little later, and later each time. After a minute it is dropped, since nobody seems to be
# there who reads it; the workers of its version publish what was published for a run again.


_DELAY: Final = Backoff(0.05, 1.0, jitter=True)


def require_message_format(request: Mapping[str, Any]) -> None:
    """Raise `OtherFormat` where a message says that it has another format than ours."""
    number = request.get(MESSAGE_FORMAT, limits.MESSAGE_VERSION)
    if number != limits.MESSAGE_VERSION and isinstance(number, int):
        raise OtherFormat(f"the message has format {number} and this version reads {limits.MESSAGE_VERSION}")


def task_of(name: str, request: Mapping[str, Any], arguments: Sequence[object]) -> TaskMessage | None:
    """The task of a request of Celery, to be published again; None for a foreign one."""
    queue = (request["delivery_info"] or {}).get("routing_key")
    times, number = request.get(RETURNED, 0), request.get(MESSAGE_FORMAT)
    if not isinstance(queue, str) or len(arguments) != 1 or not isinstance(arguments[0], bytes):
        return None
    times, number = (value if isinstance(value, int) else None for value in (times, number))
    return TaskMessage(name, queue, arguments[0], shown_arguments(request), returned=times or 0, format=number)


class Returns:
    """The lanes and calls that this process gives back. Use it on the event loop."""

    def __init__(self, publish: Publish) -> None:
        self._publish = publish
        self._leaving = asyncio.Event()
        self._waiting: set[asyncio.Task[None]] = set()

    def give_back(self, task: TaskMessage, reason: OtherFormat) -> None:
        """Give back a task, for this reason; one that was given back for a minute is dropped."""
        if task.returned >= limits.MOST_RETURNS:
            logger.warning("a task of %r is dropped, since no worker reads it: %s", task.queue, reason)
            return
        if not task.returned:
            logger.warning("a task of %r is left to other workers: %s", task.queue, reason)
        waiting = asyncio.ensure_future(self._publish_later(task, at_once=len(self._waiting) >= limits.RETURNS_WAITING))
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)

    def leave(self) -> None:
        """This process is to end: all go back now."""
        self._leaving.set()

    async def finish(self) -> None:
        """Wait until all have gone back."""
        self._leaving.set()
        if self._waiting:
            await asyncio.wait(self._waiting)

    async def _publish_later(self, task: TaskMessage, *, at_once: bool) -> None:
        if not at_once:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._leaving.wait(), _DELAY.seconds(task.returned + 1))
        await self._publish([replace(task, returned=task.returned + 1)])
