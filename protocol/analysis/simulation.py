"""Simulation: a checked plan run by the engine, without code, on values made up from the schemas (SPEC R6.7).

Every call succeeds at once with a made-up result (`sample_values`) and chooses its first alternative, unless `choices`
say otherwise. The engine decides the rest (skips, conflicts, refused parameters) as in a real run. The same plan always
gives the same simulation.

Of very many instances only the first are run: they differ in their data alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, Final

from .. import limits
from ..calls.built_in import chooses
from ..calls.call import Call, list_schema
from ..calls.outputs import Output
from ..calls.tools import Tool
from ..engine.call_statuses import GatherWaits
from ..engine.events import Outcome, Status, Success
from ..engine.execution import Execution
from ..engine.outcomes import LaneConfig
from ..paths import nest
from ..plan.checked_plan import CheckedPlan, Promised
from ..plan.lanes import Lane
from ..schemas import compiled
from ..state.context import Context
from ..state.fold import Fold
from .sample_values import DemandedShapes, sample

DATE: Final = "2026-01-01T00:00:00Z"
"""The date in every message: a simulation knows no clock."""
_NOTHING: Final = {"type": "meta"}
"""Takes the place of a message that no lane here can see, so that the others keep their numbers."""


@dataclass(frozen=True, slots=True)
class SimulatedCall:
    """How one call ended in one instance."""

    index: int
    tool: str
    instance: str | None
    status: Status
    reason: str | None = None
    error: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The end of the call as the document of a run has it."""
        return asdict(self) | {"status": self.status.value}


@dataclass(frozen=True, slots=True)
class Simulation:
    """The data that a run would leave for each reader (None is the global one), and how its calls would end."""

    data: Mapping[str | None, Mapping[str, Any]]
    calls: tuple[SimulatedCall, ...]
    unfit: tuple[str, ...] = ()
    """The tools for which no result could be made up that fits their own `_output`: it was not applied."""
    left_out: int = 0
    """How many instances have calls that were not run, beyond `limits.SIMULATION_MOST_CALLS`."""

    @property
    def skipped(self) -> tuple[int, ...]:
        """The calls that were skipped in any instance."""
        return tuple(dict.fromkeys(call.index for call in self.calls if call.status is Status.SKIPPED))


@dataclass(frozen=True, slots=True)
class BranchEffect:
    """The calls that are skipped where one call chooses an alternative and all others choose their first."""

    call: int
    alternative: str
    skipped: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """The effect as data."""
        return {"call": self.call, "alternative": self.alternative, "skipped": list(self.skipped)}


def simulate(plan: CheckedPlan, choices: Mapping[int, int] | None = None) -> Simulation:
    """Run a plan on made-up values; `choices` has the alternatives (from 0) that calls take instead of their first."""
    return _Run(plan, choices or {}).to_end()


def branch_effects(plan: CheckedPlan, usual: Simulation) -> Iterator[BranchEffect]:
    """Every alternative of every call that has several, and what is skipped where it is chosen.

    `usual` is the simulation in which all choose their first. Ends after `limits.MOST_ALTERNATIVES`, or where all
    simulations together would run more than `limits.SIMULATION_MOST_TRIED` calls.
    """
    left = limits.SIMULATION_MOST_TRIED
    effort = len(usual.calls) + len(plan.submission.context) // limits.MESSAGES_PER_CALL
    run = {call.index for call in usual.calls}
    concerned = (chosen for chosen in alternatives(plan) if chosen[0].index in run)
    for call, number in islice(concerned, limits.MOST_ALTERNATIVES):
        skipped = usual.skipped
        if number > 0 or chooses(call):
            if (left := left - effort) < 0:
                return
            skipped = simulate(plan, {call.index: number}).skipped
        yield BranchEffect(call.index, _path(call, number), skipped)


def alternatives(plan: CheckedPlan) -> Iterator[tuple[Call, int]]:
    """The calls that choose between places to write to, each with the numbers of its alternatives."""
    for call in plan.calls:
        if len(call.alternatives) > 1:
            yield from ((call, number) for number in range(len(call.alternatives)))


class _Run:
    """One simulation: a context that grows, and an execution for each lane."""

    def __init__(self, plan: CheckedPlan, choices: Mapping[int, int]) -> None:
        self._choices = choices
        self._shapes = DemandedShapes(plan)
        self._results: dict[int, Success] = {}
        self._unfit: list[str] = []
        self._tools = {name: self._applicable(tool) for name, tool in plan.tools.items()}
        self._lanes = _first_lanes(plan)
        self._left_out = plan.lanes.keys() - self._lanes.keys()
        seen = (_NOTHING if m.get("_instance") in self._left_out else m for m in plan.submission.context)
        self._context = Context.trusted(seen)
        for promised in plan.promised:
            if promised.instance not in self._left_out:
                self._context.append(_kept(promised))
        forced = frozenset(choices)
        self._executions = {
            name: Execution(
                lane.calls,
                lane.graph,
                self._context.fold(name),
                LaneConfig(self._tools, instance=name, simulated=forced),
                self._gathered,
            )
            for name, lane in self._lanes.items()
        }
        self._gather_waits: dict[str | None, GatherWaits] = {
            name: GatherWaits(lane.gathers, self._context.fold(name))
            for name, lane in self._lanes.items()
            if name is not None and lane.gathers is not None
        }
        self._unsettled = {
            call.index: {name for name, waits in self._gather_waits.items() if not waits.is_settled(call.index)}
            for call in plan.calls
            if call.gather
        }
        """Gather call -> the instances in which it has still something to wait for (SPEC R10.4)."""
        self._awaiting = defaultdict[int, list[str | None]](list)
        """Global call -> the instances that wait for it."""
        for name, lane in self._lanes.items():
            for index in lane.awaited if name is not None else ():
                self._awaiting[index].append(name)
        self._undecided = dict.fromkeys(self._lanes)
        self._started: list[tuple[str | None, Call]] = []
        self._ends: dict[tuple[str | None, int], Outcome] = {}

    def to_end(self) -> Simulation:
        """Run until nothing is left to decide."""
        while self._decide() or self._finish():
            pass
        calls = tuple(self._call(instance, call) for instance, lane in self._lanes.items() for call in lane.calls)
        data = {instance: self._context.data(instance) for instance in (None, *self._context.instances)}
        ordered = tuple(sorted(calls, key=lambda call: call.index))
        return Simulation(data, ordered, tuple(self._unfit), len(self._left_out))

    def _applicable(self, tool: Tool) -> Tool:
        """The tool, without its `_output` where no made-up value fits that."""
        schema = tool.output_schema
        if schema is None or not compiled(schema).problems(sample(schema)):
            return tool
        self._unfit.append(tool.name)
        return replace(tool, is_held=False)

    def _result(self, call: Call, here: Fold) -> Success:
        """The made-up result of a call, the same in all instances; `here` are the values so far."""
        if call.output is None:
            return Success(None)
        if call.index not in self._results:
            number = self._choices.get(call.index, 0)
            chosen, tool = call.output.alternatives[number], self._tools.get(call.tool)
            declared = tool.output_schema if tool is not None else None
            if call.each:
                declared = list_schema(True if declared is None else declared)
            value = self._shapes.value(call, chosen, here, declared)
            self._results[call.index] = Success(Output(_path(call, number), value))
        return self._results[call.index]

    def _decide(self) -> bool:
        """Start what can be started, in the first lane where something may be decided."""
        if not self._undecided:
            return False
        instance = next(iter(self._undecided))
        decisions = self._executions[instance].decide(DATE)
        if not decisions:
            del self._undecided[instance]
        for decision in decisions:
            if isinstance(decision, Outcome):
                self._commit(instance, decision)
            else:
                self._executions[instance].record(decision.call.index, Status.RUNNING)
                self._started.append((instance, decision.call))
        return True

    def _finish(self) -> bool:
        """Finish the calls at work, in the order they began, if there are any."""
        at_work, self._started = self._started, []
        for instance, call in at_work:
            result = self._result(call, self._context.fold(instance))
            self._commit(instance, self._executions[instance].finish(call.index, result, DATE))
        return bool(at_work)

    def _commit(self, instance: str | None, outcome: Outcome) -> None:
        for message in outcome.messages:
            self._context.append(message)
        self._ends[instance, outcome.index] = outcome
        others = self._awaiting[outcome.index] if instance is None else ()
        for name in (instance, *others):
            for event in outcome.events:
                self._executions[name].apply(event)
            self._undecided[name] = None
            self._settle(name, outcome.index)

    def _settle(self, instance: str | None, ended: int) -> None:
        """Note which gather calls have nothing to wait for in a lane any more, now that a call has ended."""
        if (waits := self._gather_waits.get(instance)) is None:
            return
        waits.end(ended)
        for index, unsettled in self._unsettled.items():
            if instance in unsettled and waits.is_settled(index):
                unsettled.discard(instance)
                if not unsettled:
                    self._executions[None].reconsider(index)
                    self._undecided[None] = None

    def _gathered(self, call: Call) -> dict[str, Fold] | None:
        """The values of all instances that are run, once none has anything left that the call waits for."""
        if self._unsettled[call.index]:
            return None
        return {name: self._context.fold(name) for name in self._context.instances}

    def _call(self, instance: str | None, call: Call) -> SimulatedCall:
        end = self._ends.get((instance, call.index))
        if end is None:
            return SimulatedCall(call.index, call.tool, instance, Status.WAITING)
        return SimulatedCall(call.index, call.tool, instance, end.status, end.reason, end.error)


def _kept(promised: Promised) -> dict[str, Any]:
    """The message that keeps a promise, with a value that its schema admits (SPEC R6.3)."""
    instance = {} if promised.instance is None else {"_instance": promised.instance}
    return {"type": "input", **instance, "data": nest(sample(promised.schema), promised.place.path)}


def _first_lanes(plan: CheckedPlan) -> dict[str | None, Lane]:
    """The lanes that are run, the global one first, and of the others at least one."""
    left = limits.SIMULATION_MOST_CALLS
    found: dict[str | None, Lane] = {}
    for lane in sorted(plan.lanes.values(), key=lambda lane: lane.instance is not None):
        left -= len(lane.calls)
        if left < 0 and found.keys() - {None}:
            break
        found[lane.instance] = lane
    return found


def _path(call: Call, number: int) -> str:
    """An alternative of a call's output path (from 0), as a result names it."""
    assert call.output is not None
    return " && ".join(map(str, call.output.alternatives[number]))
