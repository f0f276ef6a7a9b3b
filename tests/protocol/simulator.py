"""A backend in memory, run by dice: a log, worker processes with stale views, and every misfortune they may meet.

The log does what the real one's atomic script does: an outcome is taken once for each call, a call is claimed by one
owner at a time as long as he gives signs of life. A process drives lanes as the real driver does: it applies its own
outcomes before they are in the log, and reads the lane anew when others have written there. Each `yield` is a moment
at which anything else may happen, the death of the process included; what is known of a lane then is what the log says.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from protocol import Context, Plan
from protocol.execution import FINAL, Execution, Failure, Outcome, Start, Status, Success
from protocol.resolution import Fold

Lane = str | None
Carry = Callable[[Start, Lane, int, Mapping[str, Any]], "Success | Failure"]
"""Carries a call out: the start, its lane, the attempt (from 0) and its context."""
Steps = Generator[None, None, None]
DATE = "2026-11-21T00:00:00Z"
MOST_STEPS = 5_000


@dataclass(frozen=True, slots=True)
class Entry:
    """A call's end in a lane's journal, by which attempt, with its messages."""

    outcome: Outcome
    attempt: int


@dataclass(frozen=True, slots=True)
class Result:
    """What carrying out a call has given, on its way to the log."""

    index: int
    value: Success | Failure
    attempt: int


@dataclass(frozen=True, slots=True)
class Holder:
    """Who is at work on a call."""

    owner: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Advance:
    """What came of a commit."""

    is_fresh: bool
    accepted: bool
    """Whether all outcomes were news to the log."""
    claimed: tuple[bool, ...]
    has_global_news: bool


@dataclass
class Log:
    """The journals and ledgers of all lanes, and the signs of life."""

    journals: dict[Lane, list[Entry]]
    ends: dict[tuple[Lane, int], Status] = field(default_factory=dict)
    holders: dict[tuple[Lane, int], Holder] = field(default_factory=dict)
    published: set[Lane] = field(default_factory=set)
    """Lanes with a task that nobody has taken up."""
    drivers: set[tuple[Lane, int]] = field(default_factory=set)
    parked: set[Lane] = field(default_factory=set)

    def advance(
        self,
        lane: Lane,
        drive: Drive,
        *,
        entries: Iterable[Entry] = (),
        claims: Iterable[int] = (),
        park: bool = False,
        leaves: bool = False,
    ) -> tuple[Advance, list[Lane]]:
        """One commit, all of it or nothing; also says which lanes it wakes."""
        journal, shared, owner = self.journals[lane], self.journals[None], drive.owner
        is_fresh, accepted, woken = len(journal) == drive.view.seen, True, list[Lane]()
        for entry in entries:
            call = lane, entry.outcome.index
            if call in self.ends:
                accepted = False
                continue
            journal.append(entry)
            self.ends[call] = entry.outcome.status
            self.holders.pop(call, None)
            if lane is None and self.parked:
                woken += sorted(self.parked, key=str)
                self.published |= self.parked
                self.parked.clear()
        claimed = []
        for index in claims:
            holder = self.holders.get((lane, index))
            claimed.append((lane, index) not in self.ends and (holder is None or holder.owner == owner))
            if claimed[-1]:
                self.holders[lane, index] = Holder(owner, 0)
        global_news = lane is not None and len(shared) != drive.view.global_seen
        nothing_new = is_fresh and not global_news
        if park and nothing_new:
            self.parked.add(lane)
        self.published.discard(lane)
        (self.drivers.discard if leaves and nothing_new else self.drivers.add)((lane, owner))
        drive.is_marked = not (leaves and nothing_new)
        return Advance(is_fresh, accepted, tuple(claimed), global_news), woken

    def lose(self, lane: Lane, index: int) -> None:
        """Somebody's lease on a call runs out: it may be claimed anew, and its lane is published again."""
        if self.holders.pop((lane, index), None) is not None:
            self.published.add(lane)


class RunView:
    """What the lanes of a run share in a process: the global values and the statuses of global calls."""

    def __init__(self, world: World) -> None:
        self.fold, self.statuses, self.seen = Fold(), dict[int, Status](), 0
        for message in world.given.get(None, ()):
            self.fold.append(message, "context")
        self.catch_up(world)

    def catch_up(self, world: World) -> None:
        """Read on in the global journal."""
        journal = world.log.journals[None]
        for entry in journal[self.seen :]:
            _append(self.fold, entry.outcome)
            self.statuses[entry.outcome.index] = entry.outcome.status
        self.seen = len(journal)


class LaneView:
    """One lane: the values its reader sees, and the state of its calls, read from the log from the beginning."""

    def __init__(self, world: World, run: RunView, lane: Lane) -> None:
        laid_out = world.plan.lanes[lane]
        self.run, self.lane, self.seen, self.global_seen = run, lane, 0, run.seen
        self.fold = Fold(run.fold) if lane is not None else Fold()
        for message in world.given.get(lane, ()):
            self.fold.append(message, "context")
        self.execution = Execution(laid_out.calls, laid_out.graph, self.fold, world.plan.tools, instance=lane)
        self.awaited = world.awaited[lane]
        for entry in world.log.journals[lane]:
            self.apply(entry.outcome)
        self.seen = len(world.log.journals[lane])
        for other, index in world.log.holders:
            if other == lane:
                self.execution.record(index, Status.RUNNING)
        self.note_global()

    def apply(self, outcome: Outcome) -> None:
        """Take in the end of a call."""
        _append(self.fold, outcome)
        assert self.execution.record(outcome.index, outcome.status), "no call ends twice"

    def note_global(self) -> None:
        """Take in what the run's view has learnt of global calls."""
        self.global_seen = self.run.seen
        for index in self.awaited & self.run.statuses.keys():
            self.execution.record(index, self.run.statuses[index])

    @property
    def waits_for_global(self) -> bool:
        """Whether a global call has still to come for some call of the lane."""
        return not self.awaited <= self.run.statuses.keys()


class Drive:
    """One driver's time with one lane."""

    def __init__(self, process: Process, lane: Lane) -> None:
        self.world, self.process, self.lane = process.world, process, lane
        self.view = LaneView(process.world, process.run_view(), lane)
        self.owner = self.world.next_owner()
        self.is_marked = self.has_news = self.is_told = self.is_waiting = False
        self.running: dict[int, Result] = {}
        """Calls in line, whose results come when the dice say so."""
        self.results: list[Result] = []
        self.pending: list[Entry] = []
        self.steps = self._run()

    @property
    def can_go(self) -> bool:
        """Whether there is something to do here."""
        return not self.is_waiting or self.has_news

    def look_again(self) -> None:
        """Somebody says that there is something new in the lane."""
        self.is_told = self.has_news = True

    def take(self, result: Result) -> None:
        """A call has been carried out."""
        self.running.pop(result.index, None)
        self.results.append(result)
        self.has_news = True

    def _run(self) -> Steps:
        while True:
            self.has_news = False
            if self.is_told:
                self.is_told = False
                yield from self._reload()
            starts = self._decide()
            if self.pending or starts:
                yield from self._commit(starts)
                continue
            self.world.compare(self.view)
            if self.view.waits_for_global and (yield from self._park()):
                pass
            elif self.running:
                self.is_waiting = True
                yield
                self.is_waiting = False
            elif not self.has_news:
                if not self.is_marked:
                    return
                self.world.log.advance(self.lane, self, leaves=True)
                yield
                if self.is_marked:
                    self.look_again()

    def _decide(self) -> list[Start]:
        """Apply what has ended, one after the other; say what can begin."""
        execution, starts = self.view.execution, list[Start]()
        results, self.results = self.results, []
        for result in results:
            if execution.status(result.index) not in FINAL:
                self._apply(execution.finish(result.index, result.value, DATE), result.attempt)
        while decisions := execution.decide(DATE):
            for decision in decisions:
                if isinstance(decision, Start):
                    starts.append(decision)
                else:
                    self._apply(decision, 0)
        return starts

    def _apply(self, outcome: Outcome, attempt: int) -> None:
        self.view.apply(outcome)
        self.pending.append(Entry(outcome, attempt))

    def _commit(self, starts: list[Start]) -> Steps:
        entries, self.pending = self.pending, []
        leaves = not self.running and not starts and not self.view.waits_for_global
        yield
        advance, woken = self.world.log.advance(
            self.lane, self, entries=entries, claims=[start.call.index for start in starts], leaves=leaves
        )
        yield
        self.world.queue += woken
        if not advance.accepted:
            # what is about to begin may rest on a result that is not the one in the log
            yield from self._reload()
            for start in starts:
                holder = self.world.log.holders.get((self.lane, start.call.index))
                if holder is not None and holder.owner == self.owner:
                    self.view.execution.record(start.call.index, Status.WAITING)
            return
        self.view.seen += len(entries)
        for start, is_claimed in zip(starts, advance.claimed, strict=True):
            self.view.execution.record(start.call.index, Status.RUNNING)
            if is_claimed:
                self.world.carry_out(self, start)
        if not advance.is_fresh:
            yield from self._reload()
        elif advance.has_global_news:
            yield from self._note_global()

    def _park(self) -> Generator[None, None, bool]:
        yield
        advance, _ = self.world.log.advance(self.lane, self, park=True, leaves=not self.running)
        yield
        if not advance.is_fresh:
            yield from self._reload()
        elif advance.has_global_news:
            yield from self._note_global()
        return not advance.is_fresh or advance.has_global_news

    def _note_global(self) -> Steps:
        yield
        self.view.run.catch_up(self.world)
        self.view.note_global()

    def _reload(self) -> Steps:
        yield
        self.view.run.catch_up(self.world)
        self.view = LaneView(self.world, self.view.run, self.lane)
        for index in (*self.running, *(result.index for result in self.results)):
            self.view.execution.record(index, Status.RUNNING)


class Process:
    """A worker process: its drives, one for a lane, and what they share. It dies by being forgotten."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.drives: dict[Lane, Drive] = {}
        self._run_view: RunView | None = None

    def run_view(self) -> RunView:
        """The shared part of the run, read once."""
        if self._run_view is None:
            self._run_view = RunView(self.world)
        return self._run_view

    def drive(self, lane: Lane) -> Drive:
        """The drive of a lane, begun where there is none."""
        drive = self.drives.get(lane)
        if drive is None:
            drive = self.drives[lane] = Drive(self, lane)
        else:
            drive.look_again()
        return drive

    def step(self, drive: Drive) -> None:
        """Let a drive go on to its next moment."""
        try:
            next(drive.steps)
        except StopIteration:
            del self.drives[drive.lane]


class World:
    """A run of a plan, from its submission until every call has ended."""

    def __init__(self, plan: Plan, carry: Carry, random: Random, *, processes: int = 2, misfortunes: int = 6) -> None:
        self.plan, self.random = plan, random
        self.given: dict[Lane, list[Mapping[str, Any]]] = {}
        for message in plan.submission.context:
            self.given.setdefault(message.get("_instance"), []).append(message)
        shared = {call.index for call in plan.lanes[None].calls} if None in plan.lanes else set[int]()
        self.awaited = {
            lane: (plan.lanes[lane].graph.awaited & shared if lane is not None else frozenset[int]())
            for lane in plan.lanes
        }
        self.log = Log({lane: [] for lane in (None, *plan.lanes)}, published=set(plan.lanes))
        self.queue: list[Lane] = list(plan.lanes)
        self.unacknowledged: list[Lane] = []
        """Lanes whose task somebody had taken up who died: the broker delivers it again, some time."""
        self.remote: list[tuple[Lane, Result]] = []
        self.attempts: dict[tuple[Lane, int], int] = {}
        self._carry, self._misfortunes, self._owners = carry, misfortunes, 0
        self._processes = [Process(self) for _ in range(processes)]

    def run(self) -> None:
        """Go on until every call has ended and nobody has anything left to do."""
        for _ in range(MOST_STEPS):
            moves = self._moves()
            if self._misfortunes and self.random.random() < 0.15:
                self._misfortunes -= 1
                self.random.choice((self._die, self._repeat, self._forget, self._suspect, self._suspect))()
            elif moves:
                self.random.choice(moves)()
            elif len(self.log.ends) == self.plan.size:
                return
            else:
                self._sweep()
        raise AssertionError("does not come to an end")

    def next_owner(self) -> int:
        """A name for a drive."""
        self._owners += 1
        return self._owners

    def carry_out(self, drive: Drive, start: Start) -> None:
        """Begin a claimed call: in the drive's process, elsewhere, or sent and forgotten."""
        lane, index = drive.lane, start.call.index
        attempt = self.attempts[lane, index] = self.attempts.get((lane, index), -1) + 1
        context = drive.view.execution.scoped(start.call)
        result = Result(index, self._carry(start, lane, attempt, context), attempt)
        if start.call.is_fire_and_forget:
            drive.take(Result(index, Success(None), attempt))
        elif self.random.random() < 0.3:
            self.remote.append((lane, result))
        else:
            drive.running[index] = result

    def compare(self, view: LaneView) -> None:
        """What is held of a lane must be what the log gives, and nothing that could be done may be left undone."""
        if self.random.random() < 0.7 or view.seen != len(self.log.journals[view.lane]):
            return
        rebuilt = LaneView(self, view.run, view.lane)
        mine, theirs = _running(view), _running(rebuilt)
        if view.global_seen != view.run.seen or not theirs <= mine:
            return
        for index in mine - theirs:
            rebuilt.execution.record(index, Status.RUNNING)
        assert rebuilt.execution.statuses == view.execution.statuses
        assert rebuilt.execution.decide(DATE) == []
        assert rebuilt.fold.snapshot() == view.fold.snapshot()
        for entry in self.log.journals[view.lane][-2:]:
            late = self.random.choice(list(Status))
            assert not rebuilt.execution.record(entry.outcome.index, late), "what has ended has ended"
        assert rebuilt.execution.statuses == view.execution.statuses

    def context(self) -> Context:
        """The context with everything in the log."""
        context = Context(self.plan.submission.context)
        for journal in self.log.journals.values():
            for entry in journal:
                for message in entry.outcome.messages:
                    context.append(message)
        return context

    def _moves(self) -> list[Callable[[], None]]:
        moves: list[Callable[[], None]] = [partial(self._take_up, place) for place in range(len(self.queue))]
        moves += [partial(self._deliver, place) for place in range(len(self.remote))]
        for process in self._processes:
            for drive in process.drives.values():
                moves += [partial(drive.take, result) for result in drive.running.values()]
                if drive.can_go:
                    moves += [partial(process.step, drive)]
        return moves

    def _take_up(self, place: int) -> None:
        self.random.choice(self._processes).drive(self.queue.pop(place))

    def _deliver(self, place: int) -> None:
        lane, result = self.remote.pop(place)
        self.random.choice(self._processes).drive(lane).take(result)

    def _die(self) -> None:
        place = self.random.randrange(len(self._processes))
        self.unacknowledged += self._processes[place].drives
        self._processes[place] = Process(self)

    def _repeat(self) -> None:
        """What is under way elsewhere is delivered twice."""
        self.remote += self.random.sample(self.remote, min(len(self.remote), 2))
        self.queue += self.queue[:1]

    def _forget(self) -> None:
        """What is under way elsewhere is lost with whoever has it."""
        if self.remote:
            self.remote.pop()
        if self.queue:
            self.unacknowledged.append(self.queue.pop())

    def _suspect(self) -> None:
        """One who is alive has given no sign of life in time: his calls are given to others as well."""
        for lane, index in self.random.sample(sorted(self.log.holders, key=str), min(len(self.log.holders), 2)):
            self.log.lose(lane, index)
            self.queue.append(lane)

    def _sweep(self) -> None:
        """Everything is quiet: whoever has given no sign of life is dead."""
        alive = {drive.owner: drive for process in self._processes for drive in process.drives.values()}
        for (lane, index), holder in list(self.log.holders.items()):
            if holder.owner not in alive or index not in alive[holder.owner].running:
                self.log.lose(lane, index)
        for lane, owner in list(self.log.drivers):
            if owner not in alive:
                self.log.drivers.discard((lane, owner))
                self.log.published.add(lane)
        left = {lane for lane in self.plan.lanes if any((lane, i) not in self.log.ends for i in self._indexes(lane))}
        for lane in left - self.log.parked:
            assert lane in self.log.published.union(self.unacknowledged), f"nobody will ever look at {lane} again"
        self.queue += sorted(self.log.published.union(self.unacknowledged), key=str)
        self.unacknowledged.clear()

    def _indexes(self, lane: Lane) -> list[int]:
        return [call.index for call in self.plan.lanes[lane].calls]


def _append(fold: Fold, outcome: Outcome) -> None:
    for message in outcome.messages:
        fold.append(message, f"result of call {outcome.index}")


def _running(view: LaneView) -> set[int]:
    return {index for index, status in view.execution.statuses.items() if status is Status.RUNNING}
