"""Simulation: a checked plan run in the pure engine, on values made up from the schemas (SPEC R6.7).

Nothing is carried out. Every call succeeds at once with a value that its `_output` schema admits (`samples`) and, where
that leaves it open, that others need (`moulds`). It chooses its first alternative unless told otherwise; what is
decided from there on (skips, conflicts, refused parameters) is decided by the very code that decides it in a real run.
The same plan always gives the same simulation.

Of very many instances only the first are run: they differ in their data alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from .calls import Call
from .context import Context
from .errors import Conflict
from .execution import Execution, Outcome, Start, Status, Success
from .lanes import Lane
from .layout import Layout
from .moulds import Mould, cast, moulds_of, of_elements, suits
from .operations import Method
from .outputs import Output
from .references import Reference
from .samples import PLACEHOLDER, sample
from .schemas import compiled
from .tools import Executor, Tool

DATE: Final = "2026-01-01T00:00:00Z"
"""The date in every message: a simulation knows no clock."""
MOST_CALLS: Final = 5_000
"""Calls run in one simulation, unless those that are global, or of the first instance, are more."""
MOST_ALTERNATIVES: Final = 64
MOST_TRIED: Final = 10_000
"""Calls run in one `branch_effects` over all alternatives."""

_MESSAGES_PER_CALL: Final = 5
"""As many messages are read in the time of one call."""
_NOTHING: Final = {"type": "meta"}
"""Stands for a message that nobody here can see: the others keep their numbers."""


@dataclass(frozen=True, slots=True)
class SimulatedCall:
    """What became of one call in one instance."""

    index: int
    tool: str
    instance: str | None
    status: Status
    reason: str | None = None
    error: Mapping[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """As a run's document has it."""
        return {
            "index": self.index,
            "tool": self.tool,
            "instance": self.instance,
            "status": self.status.value,
            "reason": self.reason,
            "error": dict(self.error) if self.error is not None else None,
        }


@dataclass(frozen=True, slots=True)
class Simulation:
    """What a run would leave behind: data by reader (None is the global one), and the calls' ends."""

    data: Mapping[str | None, Mapping[str, Any]]
    calls: tuple[SimulatedCall, ...]
    unfit: tuple[str, ...] = ()
    """The tools whose made-up results do not fit their own `_output`, so that it was not applied."""
    left_out: int = 0
    """How many instances have calls that were not run, beyond `MOST_CALLS`."""

    @property
    def skipped(self) -> tuple[int, ...]:
        """The calls that were skipped in any instance."""
        return tuple(dict.fromkeys(call.index for call in self.calls if call.status is Status.SKIPPED))


@dataclass(frozen=True, slots=True)
class BranchEffect:
    """What follows where a call chooses one alternative, all others choosing their first."""

    call: int
    alternative: str
    skipped: tuple[int, ...]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {"call": self.call, "alternative": self.alternative, "skipped": list(self.skipped)}


def simulate(plan: Layout, choices: Mapping[int, int] | None = None) -> Simulation:
    """Run a plan on made-up values; `choices` says of some calls which of their alternatives (from 0) they take."""
    return _Run(plan, choices or {}, moulds_of(plan)).to_end()


def branch_effects(plan: Layout, usual: Simulation) -> Iterator[BranchEffect]:
    """Every alternative of every call that has several, and what is skipped where it is chosen.

    `usual` is the simulation in which all choose their first. Ends after `MOST_ALTERNATIVES`, or where all simulations
    together would run more than `MOST_TRIED` calls.
    """
    left = MOST_TRIED
    moulds = moulds_of(plan)
    effort = len(usual.calls) + len(plan.submission.context) // _MESSAGES_PER_CALL
    run = {call.index for call in usual.calls}
    concerned = (chosen for chosen in alternatives(plan) if chosen[0].index in run)
    for call, number in islice(concerned, MOST_ALTERNATIVES):
        skipped = usual.skipped
        if number > 0:
            if (left := left - effort) < 0:
                return
            skipped = _Run(plan, {call.index: number}, moulds).to_end().skipped
        yield BranchEffect(call.index, _path(call, number), skipped)


def alternatives(plan: Layout) -> Iterator[tuple[Call, int]]:
    """The calls that choose between places to write to, each with the numbers of its alternatives."""
    for call in plan.calls:
        groups = call.output.alternatives if call.output is not None else ()
        if len(groups) > 1:
            yield from ((call, number) for number in range(len(groups)))


class _Run:
    """One simulation: a context that grows, and an execution for each lane."""

    def __init__(self, plan: Layout, choices: Mapping[int, int], moulds: Mapping[int, Sequence[Mould]]) -> None:
        self._plan = plan
        self._choices = choices
        self._moulds = moulds
        self._lanes = _simulated(plan)
        self._left_out = plan.lanes.keys() - self._lanes.keys()
        seen = (_NOTHING if m.get("_instance") in self._left_out else m for m in plan.submission.context)
        self._context = Context(seen)
        self._values: dict[int, Any] = {}
        self._unfit: list[str] = []
        tools = {name: self._applicable(tool) for name, tool in plan.tools.items()}
        self._executions = {
            instance: Execution(lane.calls, lane.graph, self._context.fold(instance), tools, instance=instance)
            for instance, lane in self._lanes.items()
        }
        self._awaiting = self._waits_for_global_calls()
        self._ends: dict[tuple[str | None, int], Outcome] = {}

    def to_end(self) -> Simulation:
        """Decide and carry out until nothing is left to decide."""
        while self._step():
            pass
        calls = tuple(self._call(instance, call) for instance, lane in self._lanes.items() for call in lane.calls)
        data = {instance: self._context.data(instance) for instance in (None, *self._context.instances)}
        unfit = tuple(self._unfit)
        return Simulation(data, tuple(sorted(calls, key=lambda call: call.index)), unfit, len(self._left_out))

    def _waits_for_global_calls(self) -> dict[int, list[Execution]]:
        """Global call -> the executions of instances that wait for it."""
        found: dict[int, list[Execution]] = {}
        shared = {call.index for call in self._lanes[None].calls} if None in self._lanes else set()
        for instance, lane in self._lanes.items():
            for index in lane.graph.awaited & shared if instance is not None else ():
                found.setdefault(index, []).append(self._executions[instance])
        return found

    def _step(self) -> bool:
        is_anything_new = False
        for instance, execution in self._executions.items():
            while decisions := execution.decide(DATE):
                is_anything_new = True
                for decision in decisions:
                    self._commit(instance, self._carried_out(execution, decision))
        return is_anything_new

    def _carried_out(self, execution: Execution, decision: Start | Outcome) -> Outcome:
        if isinstance(decision, Outcome):
            return decision
        call = decision.call
        execution.record(call.index, Status.RUNNING)
        return execution.finish(call.index, Success(self._result(call)), DATE)

    def _commit(self, instance: str | None, outcome: Outcome) -> None:
        for message in outcome.messages:
            self._context.append(message)
        self._ends[instance, outcome.index] = outcome
        others = self._awaiting.get(outcome.index, ()) if instance is None else ()
        for execution in (self._executions[instance], *others):
            execution.record(outcome.index, outcome.status)

    def _call(self, instance: str | None, call: Call) -> SimulatedCall:
        end = self._ends.get((instance, call.index))
        if end is None:
            return SimulatedCall(call.index, call.tool, instance, Status.WAITING)
        return SimulatedCall(call.index, call.tool, instance, end.status, end.reason, end.error)

    def _result(self, call: Call) -> Any:
        """What the call is taken to return."""
        if call.output is None:
            return None
        if call.index not in self._values:
            self._values[call.index] = self._made_up(call)
        return Output(_path(call, self._choices.get(call.index, 0)), self._values[call.index])

    def _made_up(self, call: Call) -> Any:
        schema = self._schema(call)
        value = sample(schema) if schema is not None else None
        adds_to_list = call.method is Method.CONCAT and self._is_list(call)
        moulds = self._moulds.get(call.index, ())
        if adds_to_list or call.method is Method.PUSH:
            moulds = [of_elements(mould) for mould in moulds]
        if schema is not None and (isinstance(value, (dict, list)) or all(suits(value, mould) for mould in moulds)):
            return value
        moulded: Any = {} if call.method in (Method.MERGE, Method.ASSIGN) else PLACEHOLDER
        for mould in moulds:
            moulded = cast(moulded, mould)
        if adds_to_list:
            moulded = [moulded]
        return value if schema is not None and compiled(schema).problems(moulded) else moulded

    def _is_list(self, call: Call) -> bool:
        assert call.output is not None
        fold = self._context.fold(call.instance)
        try:
            return any(isinstance(fold.value(place), list) for place in call.output.references)
        except Conflict:
            return False

    def _schema(self, call: Call) -> Any:
        """What is known of the result: the tool's `_output`, the schema of a delegate, that of the place written."""
        tool = self._plan.tools.get(call.tool)
        if tool is not None and tool.output_schema is not None:
            return tool.output_schema
        definition = self._plan.submission.delegates.get(call.runner.name)
        if call.runner.executor is Executor.DELEGATE and isinstance(definition, Mapping) and definition.get("schema"):
            return definition["schema"]
        assert call.output is not None
        place = call.output.references[0]
        if call.method is not Method.SET or not place.path:
            return None
        return _part(self._context.fold(call.instance).schema(place.kind), place)

    def _applicable(self, tool: Tool) -> Tool:
        """The tool; without its `_output` where what is made up does not fit that."""
        schema = tool.output_schema
        if schema is None or not compiled(schema).problems(sample(schema)):
            return tool
        self._unfit.append(tool.name)
        declaration = {key: value for key, value in tool.declaration.items() if key != "_output"}
        if isinstance(declaration.get("properties"), Mapping):
            declaration["properties"] = {k: v for k, v in declaration["properties"].items() if k != "_output"}
        return Tool(tool.name, declaration)


def _simulated(plan: Layout) -> dict[str | None, Lane]:
    """The lanes that are run, the global one first."""
    lanes = sorted(plan.lanes.values(), key=lambda lane: lane.instance is not None)
    left = MOST_CALLS
    found: dict[str | None, Lane] = {}
    for lane in lanes:
        left -= len(lane.calls)
        if left < 0 and found.keys() - {None}:
            break
        found[lane.instance] = lane
    return found


def _path(call: Call, number: int) -> str:
    assert call.output is not None
    return " && ".join(map(str, call.output.alternatives[number]))


def _part(schema: Any, place: Reference) -> Any:
    for segment in place.path:
        if not isinstance(schema, Mapping) or not isinstance(schema.get("properties"), Mapping):
            return None
        schema = schema["properties"].get(str(segment))
    return schema if isinstance(schema, Mapping) and "$ref" not in str(schema) else None
