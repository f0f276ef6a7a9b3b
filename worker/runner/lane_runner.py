"""A lane runner: ask the core what is ready, claim it, run it, commit, ask again.

Calls in line run concurrently on the event loop; remote ones are published and not waited for. Every commit is one
round trip that also claims the calls that come next, so a chain of five costs five, and no broker hop.

A call whose attempt failed rests until it is due again. The run's records say so, and nothing waits for it: a runner
stays for the next attempt only where it comes soon, else the sweep publishes the lane when the time has come.

A runner may find that others have written to its lane (`Committed.is_current`): it then reads the lane anew, so that
what is folded is always in the log's order. As long as it has not left, it holds a lease of its own, so that a lane
with something left to do is never without one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from typing import Any, Final

from ...protocol.engine.events import FanOut, FanOutBegun, Hold, Outcome, Start, Status
from ...protocol.engine.execution import Execution
from ...protocol.schemas.costs import METER, Meter
from .. import limits
from ..broker.attempts import NOT_KNOWN, REPORTER, Attempt, CallId, Result, owner_token
from ..broker.messages import Delivery, TaskMessage, lane_task, pack
from ..store.commits import END_UNKNOWN, Commit, Committed
from ..store.keys import LOOP
from ..store.lane import LaneView, RunGone
from ..store.run_list import Parent
from .deciding import WAITS, Admission, Decider
from .starting import InlineCalls, Starter
from .step import Mailbox, Step, WorkerContext, count_ended

logger = logging.getLogger(__name__)

_UNDER_WAY: Final = ("running", "paused", "scheduled")


class LaneRunner:
    """One process's time with one lane."""

    def __init__(self, services: WorkerContext, lane: LaneView) -> None:
        self._services = services
        self._lane = lane
        """The lane as the log has it, plus outcomes about to be committed."""
        self._mailbox = Mailbox(services.quarantine, lane.run.run)
        self._owner = owner_token()
        self._is_marked = False
        self._inline = InlineCalls(services, lane.run.run, self._mailbox)
        self._starter = Starter(services, lane.run, lane.instance, self._inline, self._mailbox.has_turn)
        self._admission = Admission(services, lane, self._mailbox.end_turns, self._starter)
        self._decider = Decider(services, self._starter, self._mailbox, self._admission)
        self._meter = Meter()
        self._clears_mark = True
        self.gets_on: asyncio.Event | None = None
        """To be set when something was committed: the lane is not what its last worker died of."""
        self.failed: list[str] = []
        """The calls that have failed here, each with its error's type."""
        self.next_lane: str | None = None
        """The lane that goes on when this one is left, in the same task: one that is woken alone needs no message."""
        self.is_stopped = False
        """Whether `stop` was called: the run is over."""
        self._unbegun = set[int]()
        """Calls that were claimed and not begun, of which the result is not in the log yet."""
        self._run_status = "running"
        """The run's status by the last commit, or by a task that says that there is something new."""

    def deliver(self, delivery: Delivery) -> asyncio.Future[bool]:
        """Hand in the result of a remote call. The receipt: whether it is in the log, or the runner failed before."""
        return self._mailbox.deliver(delivery)

    def look_again(self) -> None:
        """A task says that there is something new in the lane."""
        self._mailbox.look_again()

    @property
    def is_over(self) -> bool:
        """Whether the run is, as far as it is known here."""
        return self._run_status not in _UNDER_WAY

    def wake(self) -> None:
        """Look at what is so now, though nothing has come."""
        self._mailbox.ring()

    def stop(self) -> None:
        """The run is over: leave, and take everything along that is at work here."""
        self._run_status = "cancelled"
        self.is_stopped = True
        self._mailbox.ring()

    async def run(self) -> LaneView:
        """Go on until nothing more can be done here. Returns the lane as the log has it then."""
        METER.set(self._meter)
        REPORTER.set(self._services.log.note_progress)
        self._services.presence.enter(self._lane.run.run, self._owner)
        try:
            while (
                await self._step()
                or self._mailbox.has_news
                or await self._release_or_continue()
                or self._mailbox.has_news
            ):
                pass
        finally:
            self._inline.dismiss()
            self._mailbox.close()
            self._services.presence.leave(self._lane.run.run, self._owner)
        return self._lane

    @property
    def _execution(self) -> Execution:
        return self._lane.execution

    def _status(self, index: int) -> Status:
        return self._execution.status(index) if self._execution.call(index) is not None else Status.DONE

    async def _step(self) -> bool:
        """Commit what has ended, start what is ready; else wait for what is running, else leave."""
        await self._decider.judge(self._lane, lambda: self.is_over)
        await self._take_news()
        step, results = Step.begin(self._meter), self._decider.results
        if self.is_over:
            results.clear()  # nothing more is taken
        await self._gather(attempt.id.index for attempt, _ in results)
        self._decider.take_results(self._lane, step)
        await self._starter.charge(step.outcomes, self._lane)
        await self._gather()
        if self._run_status == "running" and not self._services.leaving.is_set():
            self._decider.decide(self._lane, step)
        is_all = not self._decider.is_left and not step.is_full
        step.starts = await self._admission.admit(step.starts, self._execution)
        if step.starts:
            self._services.turns.begin()
        step.settled = self._lane.newly_settled()
        if not step.is_empty:
            indexes = (
                *(outcome.index for outcome in step.outcomes),
                *(rest.index for rest in step.rests),
                *step.unknown,
            )
            ended = [call for index in indexes if (call := self._execution.call(index)) is not None]
            async with self._place(step):
                is_settled = await self._commit(step, is_all=is_all)
            self._mailbox.end_turns((*indexes, *(one.index for one in step.delegated)))
            unused = {rest.index for rest in step.rests if rest.is_given_back} | self._unbegun.intersection(indexes)
            self._unbegun -= unused
            handed = await self._admission.release(ended, unused, step.outcomes)
            for index in handed:
                self._execution.reconsider(index)
            if is_settled and is_all and not handed:
                return await self._wait_for_calls()
            return True
        if not is_all:
            return True
        self._mailbox.give_receipts(committed=True)
        if self.is_over:
            return False
        if self._services.leaving.is_set():
            return await self._requeue()
        if self._lane.waits_for_global and await self._park():
            return True
        if self._inline or (self._mailbox.resting and self._run_status == "running"):
            results += await self._inline.wait()
            return True
        return await self._check_lost_calls()

    async def _requeue(self) -> bool:
        """Wait for the calls at work here, then publish the lane anew for another worker: this one ends."""
        if self._inline:
            self._decider.results += await self._inline.wait()
            return True
        if self._run_status == "running" and not self._lane.is_finished:
            await self._publish_woken(await self._write(requeue=True))
        return False

    async def _check_lost_calls(self) -> bool:
        """Read the lane anew and say whether a call at work elsewhere was lost, where calls of it were retried.

        A lost call that waits for retried ones cannot begin at once, so the runner that was published for it leaves:
        this one has to find the loss.
        """
        if not (self._lane.was_retried and Status.RUNNING in self._execution.statuses.values()):
            return False
        before = self._execution.statuses
        await self._reload()
        return self._execution.statuses != before

    async def _gather(self, ended: Iterable[int] = ()) -> None:
        """Read the values of all instances for the calls that need them, once each has what they wait for."""
        if self._run_status == "running" and (calls := self._lane.gathering(ended)):
            await self._lane.gather(self._services.log, calls)

    def _place(self, step: Step) -> AbstractAsyncContextManager[None]:
        """Hold a place while a large commit is under way, and while what it starts is sent."""
        leaving = [start for start in step.starts if self._services.remote.leaves(start.call)]
        view = self._lane.run
        view.sends_much = view.sends_much or any(len(pack(start.parameters)) >= limits.HEAVY_BYTES for start in leaving)
        if step.load < limits.HEAVY_BYTES and not (leaving and view.sends_much):
            return nullcontext()
        return self._services.heavy.one(self._lane.run.run)

    async def _wait_for_calls(self) -> bool:
        """Go on once a call has ended, where a step that was settled leaves nothing to be decided before that: one that
        finds nothing is as long as any other. Returns False where the run is over.
        """
        if self.is_over and not self._mailbox.has_news:
            self._mailbox.give_receipts(committed=True)
            return False
        if self._inline and not (self.is_over or self._lane.waits_for_global or self._services.leaving.is_set()):
            self._decider.results += await self._inline.wait()
        return True

    async def _commit(self, step: Step, *, is_all: bool) -> bool:
        """Commit a step, and take in the answer. Returns whether the calls that it has begun are all that is left to
        wait for here, as far as it shows.
        """
        outcomes, starts = step.outcomes, step.starts
        committed = await self._write(
            endings=step.endings(self._execution, self._waking(outcomes)),
            rests=step.rests,
            delegated=step.delegated,
            settled=step.settled,
            claims=[self._starter.claim(start, self._execution) for start in starts],
            holds=step.held(),
            output_fault=self._lane.output_fault() if outcomes else None,
            leaves=is_all and not self._waits_after(step),
        )
        await self._inline.cache.keep(self._note_ends(outcomes, committed))
        sent = step.sent(committed)
        if committed.status not in _UNDER_WAY:
            if sent or committed.parent is not None:
                await self._services.publish([*sent, *await self._answers(committed.parent)])
            return True
        if committed.woken == (LOOP,) and self._lane.run.definition.request is not None:
            self.next_lane, committed = LOOP, committed._replace(woken=())
        woken = self._woken(committed)
        is_ours = all(committed.accepted)
        messages = await self._start(starts, committed) if is_ours else []
        is_held = self._hold(step.holds, committed)
        self._lane.let_go()
        if is_ours:
            self._lane.note_settled(step.settled)
        if woken or sent or messages:
            await self._services.publish([*woken, *sent, *messages])
        if not is_ours:
            await self._reload()
            self._reconsider(starts, committed)
        elif not (committed.is_current and is_held):
            await self._reload()
        else:
            self._lane.seen = committed.last_id
            is_news = await self._note_global(committed)
            is_begun = all(number > 0 for number in committed.attempts) and committed.status == "running"
            return is_begun and not (is_news or self._decider.results or self._mailbox.resting) and step.is_plain
        return False

    async def _answers(self, parent: str | None) -> list[TaskMessage]:
        """The message that answers the call which this run, a workflow that has ended, is to answer (SPEC R9.4)."""
        run, above = self._lane.run, Parent.read(parent)
        answer = await self._services.children.answer(above, run.run, run.tokens) if above is not None else None
        return [replace(answer, priority=run.priority)] if answer is not None else []

    def _waits_after(self, step: Step) -> bool:
        """Whether something is left to do or to wait for here once the calls of a step have been started."""
        ruled = any(isinstance(hold, Hold) and hold.rule for hold in step.holds)
        waits = self._inline or self._mailbox.resting or step.starts or ruled or self._lane.waits_for_global
        return bool(waits) or self._services.leaving.is_set()

    def _hold(self, holds: Sequence[Hold | FanOut], committed: Committed) -> bool:
        """Note which calls are held now, or run for each element; in a run that was paused they are decided again.
        Returns False where the log says otherwise of a call whose end was not known, or the run's rules have changed.
        """
        is_all = True
        for hold, is_held in zip(holds, committed.held, strict=True):
            if is_held and isinstance(hold, FanOut):
                self._execution.apply(FanOutBegun(hold.call.index, hold.snapshot))
            elif is_held and isinstance(hold, Hold):
                self._execution.apply(hold.event)
            elif committed.status == "paused":
                self._execution.reconsider(hold.call.index)
            else:
                is_all = is_all and not (isinstance(hold, Hold) and (hold.evidence or hold.rules is not None))
        return is_all

    def _note_ends(self, outcomes: Sequence[Outcome], committed: Committed) -> list[Outcome]:
        ended = count_ended(outcomes, committed, self._execution)
        failed = [outcome for outcome in ended if outcome.status is Status.FAILED]
        for outcome in failed[: limits.FAILED_CALLS_KEPT - len(self.failed)]:
            self.failed.append(f"{self._id(outcome.index)}: {(outcome.error or {}).get('type')}")
        return ended

    def _reconsider(self, starts: Sequence[Start], committed: Committed) -> None:
        """Decide anew about calls claimed with values that are not in the log: it has another's."""
        for start, attempt in zip(starts, committed.attempts, strict=True):
            if attempt:
                self._execution.record(start.call.index, Status.WAITING)

    async def _start(self, starts: Sequence[Start], committed: Committed) -> list[TaskMessage]:
        """Begin the claimed calls. Returns the messages that are still to be published."""
        messages: list[TaskMessage] = []
        size = 0
        at = committed.last_id if committed.is_current else None
        for start, number, attempt in zip(starts, committed.attempts, self._attempts(starts, committed), strict=True):
            if committed.status == "paused":
                self._execution.reconsider(start.call.index)
                continue
            self._execution.record(start.call.index, Status.RUNNING)
            if number <= END_UNKNOWN:
                self._decider.unknown[start.call.index] = END_UNKNOWN - number
                self._starter.once.doubt(start.call, END_UNKNOWN - number, NOT_KNOWN, self._execution)
                continue
            if attempt is None:
                self._mailbox.refuse(start.call.index, asks=number == limits.WAITS_ALONE)
                continue
            self._starter.once.begin(start.call, attempt, self._execution)
            begun = await self._begin(start, attempt, at)
            if isinstance(begun, TaskMessage):
                messages.append(begun)
                size += len(begun.body)
            elif begun is not None:
                self._decider.results.append((attempt, begun))
            if size >= limits.BYTES_A_STEP:
                await self._services.publish(messages)
                messages, size = [], 0
        return messages

    async def _begin(self, start: Start, attempt: Attempt, at: str | None) -> TaskMessage | Result | None:
        """Begin a claimed call (see `Starter.begin`), unless it has to wait for a slot anew."""
        if attempt.is_repeated and not await self._admission.admits_again(start.call):
            self._unbegun.add(start.call.index)
            return WAITS
        begun = await self._starter.begin(start, attempt, self._execution, at)
        if begun is not None and not isinstance(begun, TaskMessage) and not attempt.is_repeated:
            self._unbegun.add(start.call.index)
        return begun

    def _attempts(self, starts: Sequence[Start], committed: Committed) -> list[Attempt | None]:
        """The attempts that were granted; None where a call is in other hands, or rests."""
        ids = (self._id(start.call.index) for start in starts)
        granted = zip(ids, committed.attempts, committed.failures, committed.repeated, committed.ends_ms, strict=True)
        lane = self._lane
        return [
            Attempt(
                *(id_, number, failures, is_lost),
                again=lane.again(id_.index),
                trace=lane.run.trace,
                priority=lane.run.priority,
                progress=lane.progress.get(id_.index, b"") if number > 1 else b"",
                ends_ms=ends_ms,
            )
            if number > 0
            else None
            for id_, number, failures, is_lost, ends_ms in granted
        ]

    def _id(self, index: int) -> CallId:
        return CallId(self._lane.run.run, self._lane.instance, index)

    async def _take_news(self) -> None:
        """Take in the results, due calls and tasks that came while a commit or a call was under way."""
        news = self._mailbox.take()
        if news.is_told:
            self._run_status = "running"
            self._clears_mark = True
            await self._reload()
        for index in news.due:
            self._execution.record(index, Status.WAITING)
        if begun := self._inline.take_begun():
            calls = [call for index in begun if (call := self._execution.call(index)) is not None]
            for index in await self._admission.note_begun(calls):
                self._execution.reconsider(index)
        if any(map(self._is_unknown, news.deliveries)):
            await self._reload()  # begun by another runner, after outcomes that are to be judged by and not known here
        for delivery in news.deliveries:
            index, attempt = delivery.attempt.id.index, delivery.attempt
            if delivery.child is not None:  # a call that is run again waits for another one
                attempt = replace(attempt, again=self._lane.again(index))
            self._decider.results.append((attempt, delivery.result))

    def _is_unknown(self, delivery: Delivery) -> bool:
        """Whether a result belongs to a call that is not known here to have begun: it waits, or for a person."""
        attempt = delivery.attempt
        is_newer = attempt.again > self._lane.again(attempt.id.index)
        return is_newer or self._status(attempt.id.index) in (Status.WAITING, Status.HELD)

    async def _release_or_continue(self) -> bool:
        """Take back the runner's lease and the task's mark before leaving; news in the lane are a reason to stay."""
        if not (self._is_marked or self._clears_mark):
            return False
        await self._publish_woken(await self._write(leaves=True))
        if self._is_marked:
            self.look_again()
        return True

    async def _park(self) -> bool:
        """Let a global call wake the lane, also while calls run in line; says whether it has come already."""
        committed = await self._write(park=True, leaves=not self._inline)
        await self._publish_woken(committed)
        if not committed.is_current:
            await self._reload()
            return True
        return await self._note_global(committed)

    async def _write(self, **parts: Any) -> Committed:
        """One commit, of these parts (see `Commit`). Raises `RunGone`."""
        lane = self._lane
        commit = Commit(
            instance=lane.instance,
            seen=lane.seen,
            global_seen=lane.global_seen,
            owner=self._owner,
            clears_mark=lane.mark if self._clears_mark else None,
            work=self._meter.read(),
            born=lane.run.born,
            **parts,
        )
        committed = await self._services.log.commit(lane.run.run, commit)
        self._clears_mark = False
        self._run_status = committed.status
        if committed.status == "gone":
            raise RunGone(lane.run.run)
        if self.gets_on is not None:
            self.gets_on.set()
        nothing_new = committed.is_current and (lane.instance is None or committed.global_id == lane.global_seen)
        self._is_marked = not (commit.requeue or (commit.leaves and nothing_new))
        return committed

    async def _note_global(self, committed: Committed) -> bool:
        """Read what is new in the global lane; returns whether there was anything."""
        if self._lane.instance is None or committed.global_id in (self._lane.global_seen, "0-0"):
            return False
        view = self._lane.run
        if view.seen != committed.global_id:
            await view.catch_up(self._services.log)
        self._lane.note_global()
        return True

    async def _reload(self) -> None:
        """Another process wrote to the lane: read it anew, so that everything is applied in the log's order."""
        view = self._lane.run
        await view.catch_up(self._services.log)
        self._lane = await LaneView.open(self._services.log, view, self._lane.instance)
        ours = (*self._inline.attempts, *(attempt for attempt, _ in self._decider.results))
        ours = tuple(filter(self._lane.is_of_now, ours))
        for index in (*(attempt.id.index for attempt in ours), *self._mailbox.resting):
            self._execution.record(index, Status.RUNNING)

    def _waking(self, outcomes: Iterable[Outcome]) -> frozenset[int]:
        if self._lane.instance is not None:
            return frozenset()
        if self._lane.run.definition.request is not None:  # calls that wait may have come since the lane was read
            return frozenset(outcome.index for outcome in outcomes)
        return self._lane.run.definition.awaited & {outcome.index for outcome in outcomes}

    async def _publish_woken(self, committed: Committed) -> None:
        """Publish the lanes whose turn came when this one's task was taken up (see run.lua)."""
        if committed.woken:
            await self._services.publish(self._woken(committed))

    def _woken(self, committed: Committed) -> list[TaskMessage]:
        queue, view = self._services.settings.queue_instances, self._lane.run
        return [
            lane_task(view.run, lane or None, queue, committed.queued, priority=view.priority)
            for lane in committed.woken
        ]
