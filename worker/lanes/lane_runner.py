"""A lane runner: ask the core what is ready, claim it, carry it out, commit, ask again.

Calls in line run concurrently on the event loop; remote ones are published and not waited for. Every commit is one
round trip that also claims the calls that come next, so a chain of five costs five, and no broker hop.

A call whose attempt failed rests until it is due again. That stands in the run's records and holds nothing up: a runner
stays for the next attempt only where it comes soon, else the sweep publishes the lane when the time has come.

A runner may find that others have written to its lane (`Advance.is_fresh`): it then reads the lane anew, so that
what is folded is always in the log's order. As long as it has not left, it holds a lease of its own, so that a lane
with something left to do is never without one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from typing import Final, TypeGuard

from acts_celery.protocol.engine.decisions import Decision, Failure, FanOut, Hold, Outcome, Start, Success
from acts_celery.protocol.engine.events import CallHeld, FanOutBegun
from acts_celery.protocol.engine.execution import Execution
from acts_celery.protocol.engine.statuses import Status
from acts_celery.protocol.schemas.elsewhere import OffloadedChecks
from acts_celery.protocol.schemas.work import METER, STEP_WORK, Meter
from acts_celery.worker.liveness.leases import runner_lease
from acts_celery.worker.storage.clock import date_now
from acts_celery.worker.storage.commits import Advance, Claim, Delegated, Held, Rest
from acts_celery.worker.storage.held_calls import pack_hold
from acts_celery.worker.storage.lane import LaneView, RunGone
from acts_celery.worker.storage.loop_entries import LOOP
from acts_celery.worker.storage.spent import Spent
from acts_celery.worker.wire.attempts import Attempt, CallId, Result, Retry, owner_token
from acts_celery.worker.wire.messages import Delivery
from acts_celery.worker.wire.packing import pack
from acts_celery.worker.wire.task_messages import TaskMessage, lane_task

from .call_slots import Admission
from .children import Started
from .inline_calls import InlineCalls
from .mailbox import Mailbox
from .services import Services
from .starting import HEAVY_BYTES, Starter

logger = logging.getLogger(__name__)

_UNDER_WAY: Final = ("running", "paused")
_MOST_FAILED: Final = 10
"""How many failed calls the end of a lane's task can name."""
_MOST: Final = 250
"""How many outcomes, and how many claims, go into one commit: its script holds up the server for as long as it runs."""
_MOST_BYTES: Final = 2**20
"""A commit that holds so much takes nothing more along."""


class LaneRunner:
    """One process's time with one lane."""

    def __init__(self, services: Services, lane: LaneView) -> None:
        self._services = services
        self._lane = lane
        """The lane as the log has it, plus outcomes about to be committed."""
        self._admission = Admission(services.slots, lane, services.registry, services.settings, services.publish)
        self._owner = owner_token()
        self._mark = runner_lease(lane.instance, self._owner)
        self._is_marked = False
        self._inline = InlineCalls(services, lane.run.run)
        self._mailbox = Mailbox()
        self._results: deque[tuple[Attempt, Result | Started]] = deque()
        """What has come of calls and is not in the log yet, in order: each is judged by what those before it leave."""
        self._starter = Starter(services, lane.run, lane.instance, self._inline)
        self._sendings: dict[int, TaskMessage] = {}
        """What is to be sent and forgotten: it goes into the outbox with its outcome, and to its queue after that."""
        self._spent: dict[int, Spent] = {}
        """What the calls took whose outcomes are not in the log yet."""
        self._load = 0
        """The bytes of what the next commit holds."""
        self._worked = 0
        """What the meter said when the step began."""
        self._meter = Meter()
        self._of_results = OffloadedChecks()
        """By which results are judged that are heavy to check."""
        self._of_calls = OffloadedChecks()
        """The same, of calls that are to be started."""
        self._takes_up = True
        self.gets_on: asyncio.Event | None = None
        """To be set when something was committed: the lane is not what its last worker died of."""
        self.failed: list[str] = []
        """The calls that have failed here, each with its error's type."""
        self.follows: str | None = None
        """The lane that goes on when this one is left, in the same task: one that is woken alone needs no message."""
        self.is_stopped = False
        """Whether it was said from outside that the run is over."""
        self._run_status = "running"
        """As the last commit reported it, or a task that says that there is something new."""

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

    def stop(self) -> None:
        """The run is over: leave, and take everything along that is at work here."""
        self._run_status = "cancelled"
        self.is_stopped = True
        self._mailbox.ring()

    async def run(self) -> LaneView:
        """Go on until nothing more can be done here. Returns the lane as the log has it then."""
        METER.set(self._meter)
        self._services.leases.hold(self._lane.run.run, self._mark)
        try:
            while await self._step() or self._mailbox.has_news or await self._stays() or self._mailbox.has_news:
                pass
        finally:
            self._inline.dismiss()
            self._mailbox.close()
            self._services.leases.drop(self._lane.run.run, [self._mark])
        return self._lane

    @property
    def _execution(self) -> Execution:
        return self._lane.execution

    def _status(self, index: int) -> Status:
        return self._execution.status(index) if self._execution.call(index) is not None else Status.DONE

    async def _step(self) -> bool:
        """Commit what has ended, start what is ready; else wait for what is running, else leave."""
        await self._judge()
        await self._take_news()
        self._load, self._worked = 0, self._meter.units
        if self.is_over:
            self._results.clear()  # nothing more is taken
        outcomes, rests, delegated = self._take_results()
        await self._starter.charge(outcomes, self._execution)
        await self._gather()
        starts, holds = self._decide(outcomes) if self._run_status == "running" else ([], [])
        is_left = self._results or self._of_calls.asked
        is_all = not is_left and not self._is_full(len(outcomes) + len(starts) + len(holds))
        starts = await self._admission.admit(starts)
        if starts:
            self._services.turns.begin()
        settled = self._lane.newly_settled()
        if outcomes or rests or delegated or starts or holds or settled:
            indexes = (*(outcome.index for outcome in outcomes), *(rest.index for rest in rests))
            ended = [call for index in indexes if (call := self._execution.call(index)) is not None]
            async with self._place(starts):
                await self._commit(outcomes, rests, delegated, starts, settled, holds, is_all=is_all)
            for index in await self._admission.release(ended):
                self._execution.reconsider(index)
            return True
        if not is_all:
            return True
        self._mailbox.give_receipts(committed=True)
        if self.is_over:
            return False
        if self._lane.waits_for_global and await self._park():
            return True
        if self._inline or (self._mailbox.resting and self._run_status == "running"):
            self._results += await self._inline.wait(self._mailbox.wait())
            return True
        return False

    async def _judge(self) -> None:
        """Have those verdicts found, in the validator's process, without which the step before could not go on."""
        for verdicts in (self._of_results, self._of_calls):
            for check in verdicts.asked:
                async with self._services.validator.place(self._lane.run.run):
                    if not self.is_over:
                        verdicts.found[check] = await self._services.validator.verdict(check)
            verdicts.asked.clear()

    async def _gather(self) -> None:
        """Read the values of all instances for the calls that need them, once each has what they wait for."""
        if self._run_status == "running" and (calls := self._lane.gathering):
            await self._lane.gather(self._services.log, calls)

    def _decide(self, outcomes: list[Outcome]) -> tuple[list[Start], list[Hold | FanOut]]:
        """What can be started now, and what is to wait for a person, or is carried out for each element, as far as it
        fits a commit; outcomes that need no execution join the others.
        """
        starts: list[Start] = []
        holds: list[Hold | FanOut] = []
        now = date_now()
        while not self._of_calls.asked and not self._is_full(count := len(outcomes) + len(starts) + len(holds)):
            with self._of_calls:
                decisions = self._execution.decide(now, most=_MOST - count)
            if not decisions:
                break
            self._of_calls.found.clear()
            for decision in decisions:
                if self._load >= _MOST_BYTES and _is_written(decision):
                    self._execution.reconsider(decision.call.index)
                    continue
                if isinstance(decision, Start):
                    decision = self._forget(decision, now)
                if isinstance(decision, Start):
                    starts.append(decision)
                elif isinstance(decision, Outcome):
                    self._lane.apply(decision)
                    outcomes.append(decision)
                else:
                    holds.append(decision)
                    self._load += len(pack_hold(decision))
        return starts, holds

    def _forget(self, start: Start, now: str) -> Start | Outcome:
        """What comes of a call that is sent and forgotten: it has ended when its message is in the outbox (SPEC R5.1).

        Any other call stays to be started.
        """
        if not start.call.is_fire_and_forget:
            return start
        message = self._starter.message(start, Attempt(self._id(start.call.index)), self._execution)
        if isinstance(message, Failure):
            return self._execution.finish(start.call.index, message, now)
        self._sendings[start.call.index] = message
        self._load += len(message.body)
        return self._execution.finish(start.call.index, Success(None), now)

    def _take_results(self) -> tuple[list[Outcome], list[Rest], list[Delegated]]:
        """Make outcomes of the results, and take each in before the next is looked at."""
        outcomes: list[Outcome] = []
        rests: list[Rest] = []
        delegated: list[Delegated] = []
        while self._results and not self._is_full(len(outcomes) + len(rests) + len(delegated)):
            attempt, result = self._results.popleft()
            index = attempt.id.index
            if self._status(index) not in (Status.WAITING, Status.RUNNING):
                self._inline.let_go(index)
                continue
            if (call := self._execution.call(index)) is not None and not isinstance(result, Started):
                result = self._services.remote.received(call, attempt, result)
            if isinstance(result, Started):
                delegated.append(Delegated(index, attempt.number, result.run))
            elif isinstance(result, Retry):
                rests.append(Rest(index, attempt.number, result.delay_seconds))
                self._inline.let_go(index)  # from now on its lease says when it is due
                self._rest(index, result.delay_seconds)
            else:
                with self._of_results:
                    outcome = self._outcome(index, result)
                if self._of_results.asked:  # it is judged when they are there
                    self._results.appendleft((attempt, result))
                    break
                self._of_results.found.clear()
                self._lane.apply(outcome)
                outcomes.append(outcome)
                self._spent[index] = Spent(attempt.took_ms, attempt.number)
                self._load += sum(len(pack(part)) for part in (*outcome.messages, outcome.value))
        return outcomes, rests, delegated

    def _place(self, starts: Sequence[Start]) -> AbstractAsyncContextManager[None]:
        """What is held while a commit is under way, and what it starts is sent: a place, where that is much."""
        leaving = [start for start in starts if self._services.remote.leaves(start.call)]
        view = self._lane.run
        view.sends_much = view.sends_much or any(len(pack(start.parameters)) >= HEAVY_BYTES for start in leaving)
        if self._load < HEAVY_BYTES and not (leaving and view.sends_much):
            return nullcontext()
        return self._services.heavy.one(self._lane.run.run)

    def _is_full(self, count: int) -> bool:
        """Whether a commit that holds so many takes nothing more along."""
        return count >= _MOST or self._load >= _MOST_BYTES or self._meter.units - self._worked >= STEP_WORK

    def _rest(self, index: int, delay_seconds: float) -> None:
        """Let a call rest; one that is soon due is tried again here."""
        self._execution.record(index, Status.RUNNING)
        if delay_seconds <= self._services.settings.sweep_interval_seconds:
            self._mailbox.remind(index, delay_seconds)

    async def _commit(
        self,
        outcomes: Sequence[Outcome],
        rests: Sequence[Rest],
        delegated: Sequence[Delegated],
        starts: Sequence[Start],
        settled: Sequence[int],
        holds: Sequence[Hold | FanOut],
        *,
        is_all: bool,
    ) -> None:
        advance = await self._advance(
            outcomes=outcomes,
            rests=rests,
            delegated=delegated,
            settled=settled,
            claims=[self._starter.claim(start.call) for start in starts],
            holds=[Held(hold.call.index, pack_hold(hold), isinstance(hold, FanOut)) for hold in holds],
            leaves=is_all and not (self._inline or self._mailbox.resting or starts or self._lane.waits_for_global),
        )
        self._spent.clear()
        self._inline.let_go(*(outcome.index for outcome in outcomes), *(one.index for one in delegated))
        self._note_failures(outcomes, advance)
        sent = self._sent(outcomes, advance)
        if advance.status not in _UNDER_WAY:
            if sent:
                await self._services.publish(sent)
            return
        if advance.woken == (LOOP,) and self._lane.run.definition.request is not None:
            self.follows, advance = LOOP, replace(advance, woken=())
        woken = self._woken(advance)
        is_ours = all(advance.accepted)
        messages = await self._start(starts, advance) if is_ours else []
        self._hold(holds, advance)
        self._lane.let_go()
        if is_ours:
            self._lane.note_settled(settled)
        if woken or sent or messages:
            await self._services.publish([*woken, *sent, *messages])
        if not is_ours:
            await self._reload()
            self._reconsider(starts, advance)
        elif not advance.is_fresh:
            await self._reload()
        else:
            self._lane.seen = advance.last_id
            await self._note_global(advance)

    def _hold(self, holds: Sequence[Hold | FanOut], advance: Advance) -> None:
        """Take in which calls are held now, or spread; those of a run that was paused meanwhile are when it goes on."""
        for hold, is_held in zip(holds, advance.held, strict=True):
            if is_held and isinstance(hold, FanOut):
                self._execution.apply(FanOutBegun(hold.call.index, hold.snapshot))
            elif is_held:
                self._execution.apply(CallHeld(hold.call.index, hold.snapshot))
            elif advance.status == "paused":
                self._execution.reconsider(hold.call.index)

    def _note_failures(self, outcomes: Sequence[Outcome], advance: Advance) -> None:
        taken = zip(outcomes, advance.accepted, strict=False)  # of a run that is gone nothing is said
        failed = [outcome for outcome, is_ours in taken if is_ours and outcome.status is Status.FAILED]
        for outcome in failed[: _MOST_FAILED - len(self.failed)]:
            self.failed.append(f"{self._id(outcome.index)}: {(outcome.error or {}).get('type')}")

    def _sent(self, outcomes: Sequence[Outcome], advance: Advance) -> list[TaskMessage]:
        """What is in the outbox since this commit."""
        tasks = [self._sendings.pop(outcome.index, None) for outcome in outcomes]
        return [task for task, is_ours in zip(tasks, advance.accepted, strict=True) if task is not None and is_ours]

    def _reconsider(self, starts: Sequence[Start], advance: Advance) -> None:
        """Decide anew about calls claimed with values that are not in the log: it has another's."""
        for start, attempt in zip(starts, advance.attempts, strict=True):
            if attempt:
                self._execution.record(start.call.index, Status.WAITING)

    async def _start(self, starts: Sequence[Start], advance: Advance) -> list[TaskMessage]:
        """Begin the claimed calls. Returns the messages that are still to be published."""
        messages: list[TaskMessage] = []
        size = 0
        for start, attempt in zip(starts, self._attempts(starts, advance), strict=True):
            if advance.status == "paused":
                self._execution.reconsider(start.call.index)
                continue
            self._execution.record(start.call.index, Status.RUNNING)
            if attempt is None:
                continue
            begun = await self._starter.begin(start, attempt, self._execution)
            if begun is None:
                continue
            if not isinstance(begun, TaskMessage):
                self._results.append((attempt, begun))
                continue
            messages.append(begun)
            size += len(begun.body)
            if size >= _MOST_BYTES:
                await self._services.publish(messages)
                messages, size = [], 0
        return messages

    def _attempts(self, starts: Sequence[Start], advance: Advance) -> list[Attempt | None]:
        """The attempts that were granted; None where a call is in other hands, or rests."""
        granted = zip(starts, advance.attempts, advance.failures, advance.repeated, strict=True)
        return [
            Attempt(self._id(start.call.index), number, failures, is_repeated) if number else None
            for start, number, failures, is_repeated in granted
        ]

    def _id(self, index: int) -> CallId:
        return CallId(self._lane.run.run, self._lane.instance, index)

    async def _take_news(self) -> None:
        """Take in what came while something else was done."""
        news = self._mailbox.take()
        if news.is_told:
            self._run_status = "running"
            self._takes_up = True
            await self._reload()
        for index in news.due:
            self._execution.record(index, Status.WAITING)
        if any(self._status(delivery.attempt.id.index) is Status.WAITING for delivery in news.deliveries):
            await self._reload()  # begun by another runner, after outcomes that are to be judged by and not known here
        self._results += [(delivery.attempt, delivery.result) for delivery in news.deliveries]

    async def _stays(self) -> bool:
        """Take back the runner's lease and the task's mark before leaving; news in the lane are a reason to stay."""
        if not (self._is_marked or self._takes_up):
            return False
        await self._let_out(await self._advance(leaves=True))
        if self._is_marked:
            self.look_again()
        return True

    async def _park(self) -> bool:
        """Let a global call wake the lane, also while calls run in line; says whether it has come already."""
        advance = await self._advance(park=True, leaves=not self._inline)
        await self._let_out(advance)
        if not advance.is_fresh:
            await self._reload()
            return True
        return await self._note_global(advance)

    async def _advance(
        self,
        *,
        outcomes: Sequence[Outcome] = (),
        rests: Sequence[Rest] = (),
        delegated: Sequence[Delegated] = (),
        settled: Sequence[int] = (),
        claims: Sequence[Claim] = (),
        holds: Sequence[Held] = (),
        park: bool = False,
        leaves: bool = False,
    ) -> Advance:
        """One commit; raises `RunGone`."""
        lane = self._lane
        advance = await self._services.log.advance(
            lane.run.run,
            lane.instance,
            seen=lane.seen,
            global_seen=lane.global_seen,
            owner=self._owner,
            outcomes=outcomes,
            missed=self._missed(outcomes),
            waking=self._waking(outcomes),
            rests=rests,
            delegated=delegated,
            settled=settled,
            claims=claims,
            holds=holds,
            sendings=self._sendings,
            attempts=self._spent,
            park=park,
            leaves=leaves,
            takes_up=lane.mark if self._takes_up else None,
            output_fault=lane.output_fault() if outcomes else None,
            work=self._meter.read(),
        )
        self._takes_up = False
        self._run_status = advance.status
        if advance.status == "gone":
            raise RunGone(lane.run.run)
        if self.gets_on is not None:
            self.gets_on.set()
        nothing_new = advance.is_fresh and (lane.instance is None or advance.global_id == lane.global_seen)
        self._is_marked = not (leaves and nothing_new)
        return advance

    def _outcome(self, index: int, result: Success | Failure) -> Outcome:
        """Make an outcome of a result. Whatever is wrong with the result is the call's failure, not the runner's."""
        try:
            return self._execution.finish(index, result, date_now())
        except Exception as error:
            logger.exception("the result of call %d of run %s makes no outcome", index, self._lane.run.run)
            failure = Failure(type(error).__name__, "its result cannot be taken")
            return self._execution.finish(index, failure, date_now())

    async def _note_global(self, advance: Advance) -> bool:
        """Read what is new in the global lane, where there is anything new; says so."""
        if self._lane.instance is None or advance.global_id in (self._lane.global_seen, "0-0"):
            return False
        view = self._lane.run
        if view.seen != advance.global_id:
            view.feed(await self._services.log.read(view.run, None, after=view.seen))
        self._lane.note_global()
        return True

    async def _reload(self) -> None:
        """Another process wrote to the lane: read it anew, so that everything is applied in the log's order."""
        view = self._lane.run
        view.feed(await self._services.log.read(view.run, None, after=view.seen))
        self._lane = await LaneView.open(self._services.log, view, self._lane.instance)
        ours = (*self._inline.attempts, *(attempt for attempt, _ in self._results))
        for index in (*(attempt.id.index for attempt in ours), *self._mailbox.resting):
            self._execution.record(index, Status.RUNNING)

    def _missed(self, outcomes: Iterable[Outcome]) -> dict[int, list[str]]:
        """The promised places that calls had to do without."""
        found = ((outcome.index, self._execution.missed(outcome)) for outcome in outcomes)
        return {index: [str(place) for place in places] for index, places in found if places}

    def _waking(self, outcomes: Iterable[Outcome]) -> frozenset[int]:
        if self._lane.instance is not None:
            return frozenset()
        if self._lane.run.definition.request is not None:  # calls that wait may have come since the lane was read
            return frozenset(outcome.index for outcome in outcomes)
        return self._lane.run.definition.awaited & {outcome.index for outcome in outcomes}

    async def _let_out(self, advance: Advance) -> None:
        """Publish the lanes whose turn came when this one's task was taken up (see window.lua)."""
        if advance.woken:
            await self._services.publish(self._woken(advance))

    def _woken(self, advance: Advance) -> list[TaskMessage]:
        queue = self._services.settings.queue_instances
        return [lane_task(self._lane.run.run, lane or None, queue, advance.among) for lane in advance.woken]


def _is_written(decision: Decision) -> TypeGuard[Start | Hold | FanOut]:
    """Whether a commit holds all that a call is given: it is to wait for a person, is carried out for each element, or
    is sent and forgotten.
    """
    return not isinstance(decision, Outcome) and (not isinstance(decision, Start) or decision.call.is_fire_and_forget)
