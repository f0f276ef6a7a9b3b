"""A driver for the pure core: a log in memory, and calls carried out in any order the core allows.

Given a source of randomness it starts, finishes, delivers twice, loses and starts again as a real backend might; the
log drops what it holds already, and a lane can forget everything and read the log anew at any moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from acts_celery.protocol import Context, Plan
from acts_celery.protocol.calls.call import Call, call_of
from acts_celery.protocol.engine.call_statuses import GatherWaits
from acts_celery.protocol.engine.events import (
    CallDecided,
    CallEnded,
    CallHeld,
    CallsUndone,
    ElementEnded,
    Event,
    Failure,
    FanOut,
    FanOutBegun,
    Hold,
    MessageAdded,
    Outcome,
    Ruling,
    Start,
    Status,
    Success,
    Verdict,
    effective_events,
)
from acts_celery.protocol.engine.execution import Execution
from acts_celery.protocol.plan.waits import LaneWaits
from acts_celery.protocol.run_rules import RunRules
from acts_celery.protocol.state.fold import Fold

Function = Callable[[Mapping[str, Any], Mapping[str, Any]], Any]
"""An activity: parameters and context in; a value, an `Output` or a data message out, or an exception."""


@dataclass(frozen=True)
class Entry:
    """One commit of the log: a call of a lane ended so, with these messages."""

    lane: str | None
    outcome: Outcome


@dataclass(frozen=True)
class Sent:
    """A fire-and-forget call as whoever carries it out receives it."""

    lane: str | None
    index: int
    parameters: Mapping[str, Any]
    context: Mapping[str, Any]


@dataclass(frozen=True)
class Result:
    """What a run leaves behind."""

    statuses: Mapping[str | None, Mapping[int, Status]]
    data: Mapping[str | None, Mapping[str, Any]]
    log: tuple[Entry, ...]
    started: tuple[tuple[str | None, int], ...]
    """Every start, in order; a call may have several."""
    sent: tuple[Sent, ...]
    """What was sent and forgotten, in order."""

    @property
    def messages(self) -> list[Mapping[str, Any]]:
        """The messages that the calls appended, in order."""
        return [message for entry in self.log for message in entry.outcome.messages]

    def outcome(self, index: int, lane: str | None = None) -> Outcome:
        """How a call ended."""
        (outcome,) = [e.outcome for e in self.log if e.lane == lane and e.outcome.index == index]
        return outcome


@dataclass
class _LaneState:
    """What a worker holds in memory of a lane; lost when it dies."""

    execution: Execution
    shared: Fold
    """The global values; the global lane's own."""
    fold: Fold
    gather_waits: GatherWaits | None = None
    results: dict[int, Success | Failure] = field(default_factory=dict)
    """Calls carried out whose results are on their way."""

    def take(self, lane: str | None, event: Event) -> bool:
        """Take in what the log says of this lane or of the global one; says whether it was news."""
        fold = self.shared if lane is None else self.fold
        if isinstance(event, MessageAdded | CallEnded | ElementEnded) and event.message is not None:
            fold.append(event.message, f"result of call {event.call}")
        if self.gather_waits is not None and isinstance(event, CallEnded):
            self.gather_waits.end(event.call)
        return self.execution.apply(event)


class Driver:
    """Drives every lane of a plan to its end. Without `random`: in the order listed, one call at a time."""

    def __init__(
        self,
        plan: Plan,
        functions: Mapping[str, Function],
        *,
        random: Random | None = None,
        date: str = "now",
        rules: RunRules | None = None,
    ) -> None:
        self.rules = rules or RunRules()
        self.held_calls: list[tuple[str | None, Hold]] = []
        """What was held, also what a rule approved at once."""
        self.log: list[Entry] = []
        self.events: list[tuple[str | None, Event]] = []
        """All that the log says, in order, each with its lane."""
        self.started: list[tuple[str | None, int]] = []
        self.sent: list[Sent] = []
        self._plan = plan
        self._functions = functions
        self._random = random
        self._date = date
        self._timed: list[tuple[str | None, int]] = []
        """The calls that wait for a moment."""
        self._gathers = [call.index for call in plan.calls if call.gather]
        self._lanes = {instance: self._read(instance) for instance in plan.lanes}

    def run(self) -> Result:
        """Go on until every call has ended."""
        while moves := self._moves():
            if self._random is None:
                moves[0]()
            else:
                self._random.choice(moves)()
                self._mischief(self._random)
        assert all(lane.execution.is_finished for lane in self._lanes.values()), self.statuses
        return Result(self.statuses, self._data(), tuple(self.log), tuple(self.started), tuple(self.sent))

    @property
    def statuses(self) -> dict[str | None, dict[int, Status]]:
        """The statuses of all lanes' calls."""
        return {instance: lane.execution.statuses for instance, lane in self._lanes.items()}

    def _moves(self) -> list[Callable[[], None]]:
        """What can be done next, after everything that is ready in any lane has been started."""
        while any(self._decide(instance) for instance in self._lanes):
            pass
        moves: list[Callable[[], None]] = [partial(self._end_wait, *one) for one in self._timed]
        for instance, lane in self._lanes.items():
            moves += [partial(self._deliver, instance, index) for index in sorted(lane.results)]
        return moves

    def _decide(self, instance: str | None) -> bool:
        """Carry out what a lane can decide now; says whether there was anything."""
        decisions = self._lanes[instance].execution.decide(self._date)
        for decision in decisions:
            if isinstance(decision, Outcome):
                self._commit(instance, decision)
            elif isinstance(decision, FanOut):
                self.append(instance, FanOutBegun(decision.call.index, decision.snapshot))
            elif isinstance(decision, Start):
                self._start(instance, decision)
            elif isinstance(decision, Hold):
                self.held(instance, decision)
        return bool(decisions)

    def held(self, instance: str | None, hold: Hold) -> None:
        """A call waits for a person, and here nobody comes; or for a moment, which comes."""
        self.held_calls.append((instance, hold))
        if hold.rule:
            self.append(instance, hold.event)
        if hold.until_ms is not None:
            self.append(instance, CallHeld(hold.call.index, hold.snapshot, until_ms=hold.until_ms))
            self._timed.append((instance, hold.call.index))

    def _end_wait(self, instance: str | None, index: int) -> None:
        self._timed.remove((instance, index))
        self.append(instance, CallDecided(index, Ruling(Verdict.ANSWERED, answer=self._date)))

    def _start(self, instance: str | None, start: Start) -> None:
        lane, index = self._lanes[instance], start.call.index
        self.started.append((instance, index))
        assert lane.execution.record(index, Status.RUNNING)
        context = lane.execution.scoped(start.call)
        if start.call.is_fire_and_forget:
            self.sent.append(Sent(instance, index, start.parameters, context))
            lane.results[index] = Success(None)
            return
        try:
            lane.results[index] = Success(self.carried_out(instance, start, context))
        except Exception as error:
            lane.results[index] = Failure(type(error).__name__, "".join(map(str, error.args)))

    def carried_out(self, instance: str | None, start: Start, context: Mapping[str, Any]) -> Any:
        """What the code of a call gives."""
        return self._functions[start.call.runner.name](start.parameters, context)

    def _deliver(self, instance: str | None, index: int) -> None:
        lane = self._lanes[instance]
        self._commit(instance, lane.execution.finish(index, lane.results.pop(index), self._date))

    def _commit(self, instance: str | None, outcome: Outcome) -> None:
        """What the log's atomic script does, once for each call; then whoever reads the log takes note."""
        self.log.append(Entry(instance, outcome))
        for event in outcome.events:
            self.append(instance, event)
        for call in self._gathers:
            self._lanes[None].execution.reconsider(call)

    def append(self, instance: str | None, event: Event) -> None:
        """The log says so, and whoever reads it takes note."""
        self.events.append((instance, event))
        assert self._lanes[instance].take(instance, event)
        if instance is None:
            for other, lane in self._lanes.items():
                if other is not None:
                    lane.take(None, event)

    def _read(self, instance: str | None) -> _LaneState:
        """A lane from the context and the log, as a worker that knows nothing yet reads it."""
        lane, shared = self._plan.lanes[instance], Fold()
        fold = shared if instance is None else Fold(shared)
        for position, message in enumerate(self._plan.submission.context):
            if message.get("_instance") in (None, instance):
                (fold if message.get("_instance") else shared).append(message, f"message {position}")
        plan = self._plan
        execution = Execution.of(plan, lane, fold, self._gathered, rules=self.rules)
        state = _LaneState(
            execution, shared, fold, GatherWaits(lane.gathers, fold) if lane.gathers is not None else None
        )
        for lane_of, event in self._counting():
            if lane_of in (None, instance):
                state.take(lane_of, event)
        return state

    def _counting(self) -> list[tuple[str | None, Event]]:
        """What the log says, without what counts no more (SPEC R11.8)."""
        counts: dict[int, bool] = {}
        for lane in self._plan.lanes:
            numbers = [number for number, (lane_of, _) in enumerate(self.events) if lane_of == lane]
            counts |= zip(numbers, effective_events([self.events[number][1] for number in numbers]), strict=True)
        return [said for number, said in enumerate(self.events) if counts[number]]

    def undo(self, undone: Mapping[str | None, set[int]], keeping: Mapping[str | None, set[int]]) -> None:
        """Have calls carried out again, of some only the elements that failed; what is at work goes on."""
        for lane, calls in undone.items():
            self._timed = [one for one in self._timed if one[0] != lane or one[1] not in calls]
            if calls:
                self.events.append((lane, CallsUndone(tuple(calls), tuple(keeping[lane] & calls))))
                self.log = [
                    entry for entry in self.log if entry.lane != lane or self._stays(entry, lane, undone, keeping)
                ]
        before = self._lanes
        self._lanes = {instance: self._read(instance) for instance in self._plan.lanes}
        for instance, state in before.items():
            for index, result in state.results.items():
                assert self._lanes[instance].execution.record(index, Status.RUNNING)
                self._lanes[instance].results[index] = result

    @staticmethod
    def _stays(
        entry: Entry, lane: str | None, undone: Mapping[str | None, set[int]], keeping: Mapping[str | None, set[int]]
    ) -> bool:
        call = call_of(entry.outcome.index)
        is_kept = call in keeping[lane] and entry.outcome.index != call and entry.outcome.status is not Status.FAILED
        return call not in undone[lane] or is_kept

    def joins(self) -> list[LaneWaits]:
        """How the lanes hang together, the global one first."""
        found = {
            lane.instance: LaneWaits(lane.instance, [lane.graph], [lane.gathers] if lane.gathers else [])
            for lane in self._plan.lanes.values()
        }
        return [found.pop(None, LaneWaits(None, [])), *found.values()]

    def _gathered(self, call: Call) -> dict[str, Fold] | None:
        """The values of all instances, once each has settled what a gather call reads."""
        lanes = {name: lane for name, lane in self._lanes.items() if name is not None}
        if not all(
            lane.gather_waits is not None and lane.gather_waits.is_settled(call.index) for lane in lanes.values()
        ):
            return None
        return {name: lane.fold for name, lane in lanes.items()}

    def _mischief(self, random: Random) -> None:
        """Now and then a worker forgets everything and reads the log anew, or a call's end is reported twice."""
        instance = random.choice(list(self._lanes))
        dice = random.random()
        if dice < 0.1:
            self._lanes[instance] = self._read(instance)
        elif dice < 0.3 and self.log:
            entry = random.choice(self.log)
            before = self.statuses
            assert not self._lanes[entry.lane].execution.record(entry.outcome.index, random.choice(list(Status)))
            *_, end = entry.outcome.events
            assert not self._lanes[entry.lane].execution.apply(end)
            assert self.statuses == before

    def _data(self) -> dict[str | None, dict[str, Any]]:
        """The values every reader sees, read anew; those held in memory must be the same."""
        context = Context(self._plan.submission.context)
        for entry in self.log:
            for message in entry.outcome.messages:
                context.append(message)
        for instance, lane in self._lanes.items():
            assert lane.fold.snapshot() == context.data(instance)
        return {instance: context.data(instance) for instance in (None, *context.instances)}
