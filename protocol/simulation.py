"""Simulation: a checked plan run in the pure engine, on values made up from the schemas (SPEC R6.7).

Nothing is carried out. Every call succeeds at once with a value that its `_output` schema admits (`samples`), and
chooses its first alternative unless told otherwise; what is decided from there on (skips, conflicts, refused
parameters) is decided by the very code that decides it in a real run. The same plan always gives the same simulation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .calls import Call
from .context import Context
from .errors import Conflict, segments
from .execution import Execution, Outcome, Start, Status, Success
from .operations import Method
from .outputs import Output
from .paths import MISSING, nest
from .plan import Plan
from .references import Path, Reference
from .samples import PLACEHOLDER, sample
from .schemas import compiled
from .tools import Executor, Tool

DATE: Final = "2026-01-01T00:00:00Z"
"""The date in every message: a simulation knows no clock."""
MOST_ALTERNATIVES: Final = 64
MOST_CALLS: Final = 200_000
"""Calls run in one `branch_effects` over all alternatives."""


Key = tuple[str, ...]
_Reads = dict[int, list[tuple[Path, Any]]]
"""Call index to where inside its result others read, and the schema of what reads there."""


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


def simulate(plan: Plan, choices: Mapping[int, int] | None = None) -> Simulation:
    """Run a plan on made-up values; `choices` says of some calls which of their alternatives (from 0) they take."""
    return _Run(plan, choices or {}, _read_below(plan)).to_end()


def branch_effects(plan: Plan) -> Iterator[BranchEffect]:
    """Every alternative of every call that has several, and what is skipped where it is chosen.

    Ends after `MOST_ALTERNATIVES`, or where all simulations together would run more than `MOST_CALLS`.
    """
    most = min(MOST_ALTERNATIVES, MOST_CALLS // max(plan.size, 1))
    read = _read_below(plan)
    for call in plan.calls:
        if call.output is None or len(call.output.alternatives) < 2:
            continue
        for number, group in enumerate(call.output.alternatives):
            if not most:
                return
            most -= 1
            yield BranchEffect(call.index, _path(group), _Run(plan, {call.index: number}, read).to_end().skipped)


class _Run:
    """One simulation: a context that grows, and an execution for each lane."""

    def __init__(self, plan: Plan, choices: Mapping[int, int], read: _Reads) -> None:
        self._plan = plan
        self._choices = choices
        self._context = Context(plan.submission.context)
        self._values: dict[int, Any] = {}
        self._unfit: list[str] = []
        tools = {name: self._applicable(tool) for name, tool in plan.tools.items()}
        self._read = read
        self._executions = {
            instance: Execution(lane.calls, lane.graph, self._context.fold(instance), tools, instance=instance)
            for instance, lane in sorted(plan.lanes.items(), key=lambda item: item[0] is not None)
        }
        self._ends: dict[tuple[str | None, int], Outcome] = {}

    def to_end(self) -> Simulation:
        """Decide and carry out until nothing is left to decide."""
        while self._step():
            pass
        calls = tuple(self._call(instance, call) for instance, lane in self._plan.lanes.items() for call in lane.calls)
        data = {instance: self._context.data(instance) for instance in (None, *self._context.instances)}
        return Simulation(data, tuple(sorted(calls, key=lambda call: call.index)), tuple(self._unfit))

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
        concerned = self._executions.values() if instance is None else (self._executions[instance],)
        for execution in concerned:
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
        number = self._choices.get(call.index, 0)
        return Output(_path(call.output.alternatives[number]), self._values[call.index])

    def _made_up(self, call: Call) -> Any:
        schema = self._schema(call)
        if schema is not None:
            return sample(schema)
        if call.method in (Method.MERGE, Method.ASSIGN):
            value: Any = {}
        else:
            value = PLACEHOLDER
        for path, wanted in self._read.get(call.index, ()):
            value = _with(value, path, sample(wanted) if wanted is not None else PLACEHOLDER)
        return [value] if call.method is Method.CONCAT and self._is_list(call) else value

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


def _path(group: tuple[Reference, ...]) -> str:
    return " && ".join(map(str, group))


def _part(schema: Any, place: Reference) -> Any:
    for segment in place.path:
        if not isinstance(schema, Mapping) or not isinstance(schema.get("properties"), Mapping):
            return None
        schema = schema["properties"].get(str(segment))
    return schema if isinstance(schema, Mapping) and "$ref" not in str(schema) else None


def _read_below(plan: Plan) -> _Reads:
    """The paths at and inside each call's result at which others read, and the schema of the parameter, where known.

    A value made up without a schema of its own takes the shape that its readers ask for.
    """
    read: dict[Key, dict[int, list[tuple[Reference, Any]]]] = {}
    for call in plan.calls:
        places = [
            (place, _parameter_schema(plan, call, at))
            for at, expression in call.reads
            for place in expression.references
        ]
        for place, wanted in (*places, *((scope, None) for scope in call.slices)):
            for length in range(1, len(place.key) + 1):
                read.setdefault(place.key[:length], {}).setdefault(call.index, []).append((place, wanted))
    found: _Reads = {}
    targets = {call.index: call.output.references for call in plan.calls if call.output is not None}
    for writer, reader in plan.edges:
        for target in targets.get(writer, ()):
            for place, wanted in read.get(target.key, {}).get(reader, ()):
                found.setdefault(writer, []).append((place.path[len(target.path) :], wanted))
    return found


def _parameter_schema(plan: Plan, call: Call, at: str) -> Any:
    """What the call's tool says of the place of an expression; None where it says nothing that stands by itself."""
    tool = plan.tools.get(call.tool)
    path: Path = tuple(int(key) if key.isdecimal() else key for key in segments(at))
    parts = tool.compiled.parts(path) if tool is not None else ()
    return next((part for part in parts if isinstance(part, Mapping) and part and "$ref" not in str(part)), None)


def _with(value: Any, path: Path, leaf: Any) -> Any:
    """The value with a leaf at a path, unless there is one already; what is in the way makes room."""
    if not path:
        return leaf if value in (MISSING, PLACEHOLDER) else value
    if not isinstance(value, dict):
        return nest(leaf, path)
    return {**value, str(path[0]): _with(value.get(str(path[0]), MISSING), path[1:], leaf)}
