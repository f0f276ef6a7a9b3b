"""The world: what happens to a run of a plan, from its submission until every call has ended."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from random import Random
from typing import Any

from acts_celery.protocol import Conflict, Context, Plan
from acts_celery.protocol.engine.events import Failure, Hold, Ruling, Start, Status, Success
from acts_celery.protocol.plan.waits import LaneWaits, RetryReach
from acts_celery.protocol.run_rules import RunRule

from .log import DATE, Lane, Log, Result, standing
from .process import Process, Task
from .views import LaneView

Settle = Callable[[Lane, int], Ruling]
"""Says what became of a call whose end is not known: a person who has looked."""
Answer = Callable[[Hold], tuple[Ruling, RunRule | None]]
"""Decides on a held call: a person, who may give a rule with the approval."""
Carry = Callable[[Start, Lane, int, Mapping[str, Any]], "Success | Failure"]
"""Carries a call out: the start, its lane, the attempt (from 0) and its context."""
MOST_STEPS = 10_000


class World:
    """A run, its worker processes, the broker, and the dice."""

    def __init__(
        self,
        plan: Plan,
        carry: Carry,
        random: Random,
        *,
        processes: int = 2,
        misfortunes: int = 6,
        faulty: Collection[tuple[Lane, int]] = (),
        settle: Settle | None = None,
    ) -> None:
        self.plan, self.random = plan, random
        self.faulty = faulty
        """The calls that fail at their first attempt, and are retried where they have ended by that."""
        self.stale = set[tuple[Lane, int]]()
        self.retries = 0
        self.given: dict[Lane, list[Mapping[str, Any]]] = {}
        for message in plan.submission.context:
            self.given.setdefault(message.get("_instance"), []).append(message)
        shared = {call.index for call in plan.lanes[None].calls} if None in plan.lanes else set[int]()
        self.awaited = {
            lane: (plan.lanes[lane].graph.awaited & shared if lane is not None else frozenset[int]())
            for lane in plan.lanes
        }
        self.log = Log(
            {lane: [] for lane in (None, *plan.lanes)},
            frozenset[int]().union(*self.awaited.values()),
            plan.size,
            published=dict.fromkeys(plan.lanes, 0),
        )
        self._queue: list[Lane] = list(plan.lanes)
        self._remote: list[tuple[Lane, Result]] = []
        self._attempts: dict[tuple[Lane, int], int] = {}
        self._carry, self._misfortunes, self._owners = carry, misfortunes, 0
        self._settle = settle
        self.answer: Answer | None = None
        """Who decides on what is held; nobody is there by default."""
        self._processes = [Process(self) for _ in range(processes)]

    def run(self) -> None:
        """Go on until every call has ended and nobody has anything left to do."""
        happen = (self._die, self._fail, self._repeat, self._forget, self._hurry, self._suspect, self._suspect)
        for _ in range(MOST_STEPS):
            if self._misfortunes and self.random.random() < 0.12:
                self._misfortunes -= 1
                self.random.choice(happen)()
            elif self.faulty and self.random.random() < 0.05:
                self._retry(downstream=self.random.random() < 0.5)
            elif not self._move():
                if self.log.unknown:
                    self._ask()
                elif self.log.held:
                    self._answer_one()
                elif not self.log.is_finished:
                    self._sweep()
                elif not self._retry(downstream=True):
                    return
        raise AssertionError("does not come to an end")

    # What drives ask of it.

    @property
    def has_people(self) -> bool:
        """Whether somebody decides on what is held."""
        return self.answer is not None

    def next_owner(self) -> int:
        """A name for a drive."""
        self._owners += 1
        return self._owners

    def loses_an_answer(self) -> bool:
        """Whether the answer of a script gets lost, so that it is sent again."""
        is_lost = self._misfortunes > 0 and self.random.random() < 0.02
        self._misfortunes -= is_lost
        return is_lost

    def publish(self, lanes: Iterable[Lane]) -> None:
        """Publish tasks."""
        self._queue += lanes

    def running(self, lane: Lane) -> list[int]:
        """The calls of a lane that somebody is at work on."""
        return [index for other, index in self.log.holders if other == lane]

    def carry_out(self, view: LaneView, start: Start) -> Result | None:
        """Carry out a claimed call: the result of one in line or sent and forgotten; None where it went elsewhere."""
        lane, index = view.lane, start.call.index
        attempt = self._attempts[lane, index] = self._attempts.get((lane, index), -1) + 1
        again = view.again[index]
        try:
            context = view.execution.scoped(start.call)
        except Conflict as conflict:  # others have written since it was decided
            return Result(index, Failure("Conflict", str(conflict)), attempt, again)
        value = self._carry(start, lane, attempt, context)
        if start.call.is_fire_and_forget:
            return Result(index, Success(None), attempt, again)
        if not attempt and (lane, index) in self.faulty:
            value = Failure("Wrong", "at first")
        result = Result(index, value, attempt, again)
        if self.random.random() < 0.3:
            self._remote.append((lane, result))
            return None
        return result

    def compare(self, view: LaneView) -> None:
        """What is held of a lane must be what the log gives, and nothing that could be done may be left undone."""
        if self.random.random() < 0.85 or view.seen != len(self.log.journals[view.lane]):
            return
        rebuilt = LaneView(view.run, view.lane, self.log.journals[view.lane], self.running(view.lane))
        mine, theirs = _running(view), _running(rebuilt)
        if view.global_seen != view.run.seen or not theirs <= mine:
            return
        for index in mine - theirs:
            rebuilt.execution.record(index, Status.RUNNING)
        assert rebuilt.execution.statuses == view.execution.statuses
        assert rebuilt.execution.decide(DATE) == []
        assert rebuilt.fold.snapshot() == view.fold.snapshot()
        for entry in standing(self.log.journals[view.lane])[-2:]:
            late = self.random.choice(list(Status))
            assert not rebuilt.execution.record(entry.outcome.index, late), "what has ended has ended"
        assert rebuilt.execution.statuses == view.execution.statuses

    def context(self) -> Context:
        """The context with everything in the log."""
        context = Context(self.plan.submission.context)
        for journal in self.log.journals.values():
            for entry in standing(journal):
                for message in entry.outcome.messages:
                    context.append(message)
        return context

    # What happens.

    def _move(self) -> bool:
        """Something goes on: a task is taken up, a result comes, a call ends, a task takes a few steps."""
        tasks = [(process, task) for process in self._processes for task in process.tasks]
        calls = [(task, index) for _, task in tasks for index in _in_line(task)]
        ready = [(process, task) for process, task in tasks if task.can_go]
        queued, remote = len(self._queue), len(self._remote)
        if self.log.unknown and self.random.random() < 0.1:
            self._ask()
            return True
        if self.log.held and self.random.random() < 0.2:
            self._answer_one()
            return True
        if self.log.rules and self.random.random() < 0.03:
            self.log.revoke(self.random.choice(sorted(self.log.rules)))
        if not (queued or remote or calls or ready):
            return False
        place = self.random.randrange(queued + remote + len(calls) + len(ready))
        if place < queued:
            self.random.choice(self._processes).take_up(self._queue.pop(place))
        elif place < queued + remote:
            self.random.choice(self._processes).deliver(*self._remote.pop(place - queued))
        elif place < queued + remote + len(calls):
            task, index = calls[place - queued - remote]
            assert task.drive is not None
            task.drive.ended.append(index)
        else:
            self._steps(*ready[place - queued - remote - len(calls)])
        return True

    def _ask(self) -> None:
        """A person says of a call what became of it; the client may be killed before it publishes the lane."""
        lane, index = self.random.choice(sorted(self.log.unknown, key=str))
        assert self._settle is not None
        self.log.settle(lane, index, self._settle(lane, index))
        self._publish_or_die(lane)

    def _answer_one(self) -> None:
        """A person decides on a call that is held; the client may be killed before it publishes the lane."""
        lane, index = self.random.choice(sorted(self.log.held, key=str))
        assert self.answer is not None
        self.log.decide(lane, index, *self.answer(self.log.held[lane, index]))
        self._publish_or_die(lane)

    def _retry(self, *, downstream: bool) -> bool:
        """What `acts retry --effects` does, with `--downstream` or without; says whether there was anything to do."""
        log, lanes = self.log, self.log.journals
        failed = {call for call, entry in log.standing().items() if call in self.faulty and not entry.attempt}
        chosen = failed | (self.stale & log.ends.keys() if downstream else set())
        if not chosen:
            return False
        ended = {call: status for call, status in log.ends.items() if status is not Status.LATENT}
        again = [call for call, status in ended.items() if downstream or status is Status.SKIPPED]
        reach = RetryReach(self._joins, (), _by_lane(lanes, again), _by_lane(lanes, [*ended, *log.begun]))
        found = reach.extended(_by_lane(lanes, chosen), _by_lane(lanes, ()))
        for joins in self._joins:
            lane = joins.instance
            calls, stale = found.calls[lane], found.stale[lane]
            waiting = {index for index in self._indexes(lane) if (lane, index) not in {**log.ends, **log.begun}}
            self.stale -= {(lane, index) for index in calls}
            self.stale |= {(lane, index) for index in stale}
            if calls or stale or joins.within(found.calls[None], waiting):
                log.undo(lane, calls, stale)
                self._publish_or_die(lane)
        self.retries += 1
        return True

    @property
    def _joins(self) -> list[LaneWaits]:
        """How the lanes hang together, the global one first."""
        graphs = {lane: [self.plan.lanes[lane].graph] if lane in self.plan.lanes else [] for lane in self.log.journals}
        return [LaneWaits(lane, graph) for lane, graph in graphs.items()]

    def _indexes(self, lane: Lane) -> list[int]:
        return [call.index for call in self.plan.lanes[lane].calls] if lane in self.plan.lanes else []

    def _steps(self, process: Process, task: Task) -> None:
        process.step(task)
        while self.random.random() < 0.5 and task in process.tasks and task.can_go:
            process.step(task)

    def _die(self) -> None:
        """A process is killed, with all that it was working at."""
        self._processes[self.random.randrange(len(self._processes))] = Process(self)

    def _fail(self) -> None:
        """A task fails where it stands."""
        process = self.random.choice(self._processes)
        if process.tasks:
            process.fail(self.random.choice(process.tasks))

    def _repeat(self) -> None:
        """What is under way is delivered twice."""
        self._remote += self.random.sample(self._remote, min(len(self._remote), 2))
        self._queue += self._queue[:1]

    def _forget(self) -> None:
        """What is under way is lost."""
        if self._remote:
            self._remote.pop()
        if self._queue:
            self._queue.pop()

    def _hurry(self) -> None:
        """A task has lain in the queue for so long that it counts as lost."""
        if self.log.published:
            self._queue.append(self.random.choice(sorted(self.log.published, key=str)))

    def _suspect(self) -> None:
        """One who is alive has given no sign of life in time: what he has is given to others as well."""
        calls, drivers = sorted(self.log.holders, key=str), sorted(self.log.drivers, key=str)
        for lane, index in self.random.sample(calls, min(len(calls), 2)):
            self.log.lose_call(lane, index)
            self._publish_or_die(lane)
        for lane, owner in self.random.sample(drivers, min(len(drivers), 1)):
            self.log.lose_driver(lane, owner)
            self._publish_or_die(lane)

    def _publish_or_die(self, lane: Lane) -> None:
        """The sweep has marked a lane; it may be killed before it publishes it."""
        if self.random.random() < 0.7:
            self._queue.append(lane)

    def _sweep(self) -> None:
        """Everything is quiet: whoever has given no sign of life is dead, and what is published is lost."""
        drives = [task.drive for process in self._processes for task in process.tasks if task.drive is not None]
        alive = {drive.owner: drive for drive in drives}
        for (lane, index), owner in list(self.log.holders.items()):
            if owner not in alive or index not in alive[owner].running:
                self.log.lose_call(lane, index)
        for lane, owner in list(self.log.drivers):
            if owner not in alive:
                self.log.lose_driver(lane, owner)
        for lane, laid_out in self.plan.lanes.items():
            is_left = any((lane, call.index) not in self.log.ends for call in laid_out.calls)
            is_known = lane in self.log.published or lane in self.log.parked
            assert is_known or not is_left, f"nobody will ever look at {lane} again"
        self._queue += sorted(self.log.published, key=str)


def _in_line(task: Task) -> list[int]:
    """The calls that a task has at work and that have not ended."""
    return [] if task.drive is None else [index for index in task.drive.running if index not in task.drive.ended]


def _by_lane(lanes: Iterable[Lane], calls: Iterable[tuple[Lane, int]]) -> dict[Lane, set[int]]:
    found = {lane: set[int]() for lane in lanes}
    for lane, index in calls:
        found[lane].add(index)
    return found


def _running(view: LaneView) -> set[int]:
    return {index for index, status in view.execution.statuses.items() if status is Status.RUNNING}
