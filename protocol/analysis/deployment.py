"""Deployment: which calls of runs under way the contracts of new code will not admit (SPEC R17.2).

A call *will* be refused, should it begin, where no value of what is not known yet could put it right. It *may* be where
some value that may come does not fit. What may come is what the writers promise, as far as the call's own tool admits
it: otherwise the call fails by its tool, and not by its code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, cast

from .. import limits
from ..calls.call import Call, elements_of, list_problems
from ..calls.declarations import Contract
from ..calls.tools import ANONYMOUS, BESIDE, Executor, Tool
from ..errors import Conflict, Unresolved, pointer
from ..messages import ERROR
from ..paths import MISSING
from ..plan.graph import Writers
from ..plan.lanes import Lane
from ..references import Expression, Reference
from ..schemas import Schema, compiled
from ..schemas.algebra import EVERYTHING, NOTHING, Algebra, Values, described
from ..schemas.validation import holds_expression
from ..state.fold import Fold
from ..templates import Template, assumed_meaning
from .type_flow import Results

Refuses = Callable[[Call, Mapping[str, Any], str], str | None]
"""Why code does not admit a call with resolved parameters that was checked under the contract of a mark."""
_OF_EACH_PARAMETER: Final = frozenset(
    ("$defs", "$schema", *BESIDE, "additionalProperties", "description", "properties", "required", "title", "type")
)
"""Keywords of contracts that speak of each parameter by itself."""


@dataclass(frozen=True)
class Checked:
    """The tools, contracts and schemas that the calls of a run were checked against."""

    tools: Mapping[str, Tool]
    returns: Mapping[str, Tool]
    delegates: Mapping[str, Any]
    contracts: Mapping[str, str]
    """The marks of the activities' contracts."""


@dataclass(frozen=True)
class Coming:
    """Code that is to come: the activities that it has, and what there is no code for any more."""

    contracts: Mapping[str, Contract]
    gone: frozenset[str] = frozenset()
    refuses: Mapping[str, Refuses] = field(default_factory=dict)
    """How the code itself decides on parameters that are known, by the activity, where that is known."""


Verdict = tuple[bool, str] | None
"""Whether a refusal is certain, and why; None where nothing is refused."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call that the new code will refuse, or may refuse, or that a person will have to decide on."""

    index: int | None
    """None where the model of a loop may still write it."""
    instance: str | None
    tool: str
    code: str
    """The activity or the delegate."""
    is_certain: bool
    reason: str
    is_hold: bool = False
    """True where it is held for a person, by a label that the run does not know yet (SPEC R16.1)."""

    def to_dict(self) -> dict[str, Any]:
        """The refusal as data."""
        refused = "held" if self.is_hold else "will" if self.is_certain else "may"
        fields = {name: getattr(self, name) for name in ("index", "instance", "tool", "code")}
        return fields | {"refused": refused, "reason": self.reason}


@dataclass(frozen=True)
class LanePart:
    """The open calls of one lane."""

    instance: str | None
    fold: Fold
    calls: Sequence[Call]
    """The calls of the lane that have not ended."""
    shared: Sequence[Call] = ()
    """The calls of the global lane that have not ended, where that is another lane."""
    given: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """The parameters of calls that were resolved already: of held ones, and of those that run for each element."""
    ended: Mapping[int, Collection[int]] = field(default_factory=dict)
    """Call that runs for each element -> the numbers, from 0, of the elements that have ended."""
    at_work: Collection[int] = ()
    """The calls that code is at work on: they begin again only where their worker is lost."""


class Forecast:
    """Holds the calls of one run against code that is to come."""

    def __init__(self, checked: Checked, coming: Coming) -> None:
        self._checked = checked
        self._coming = coming
        self._algebra = Algebra(limits.DEPLOYMENT_BUDGET)
        self._results = Results(checked.tools, checked.returns, checked.delegates, self._algebra)
        self._writers: dict[tuple[int, ...], tuple[Sequence[Call], Writers]] = {}
        """The identities of calls -> these calls, so that they keep their identities, and who writes where."""
        self._settled: dict[tuple[int, int, Expression], bool] = {}
        self._of_values: dict[tuple[Any, ...], Verdict] = {}
        self._of_results: dict[tuple[str, str], Verdict] = {}
        self._admitted: dict[tuple[str, str], Values] = {}

    def concerns(self, call: Call) -> bool:
        """Whether the code of a call changes."""
        name = call.runner.name
        if call.runner.executor is Executor.DELEGATE:
            return name in self._coming.gone and name not in self._checked.delegates and name != ANONYMOUS
        if call.runner.executor is not Executor.ACTIVITY:
            return False
        contract, mark = self._coming.contracts.get(name), self._checked.contracts.get(name)
        return name in self._coming.gone or (contract is not None and mark is not None and not contract.is_of(mark))

    def of(self, part: LanePart) -> Iterator[Refusal]:
        """The calls of a lane that will be refused, or may be."""
        for call in filter(self.concerns, part.calls):
            if (found := self._of_call(call, part)) is not None:
                is_certain, reason = found
                is_certain = is_certain and call.index not in part.at_work
                yield Refusal(call.index, part.instance, call.tool, call.runner.name, is_certain, reason)

    def _writing(self, part: LanePart) -> Writers:
        """The open calls that may still write for a lane; lanes with the same ones share it."""
        calls = (*part.calls, *part.shared)
        key = tuple(map(id, calls))
        if key not in self._writers:
            self._writers[key] = calls, Writers(part.calls, Writers(part.shared) if part.shared else None)
        return self._writers[key][1]

    def _of_call(self, call: Call, part: LanePart) -> Verdict:
        name = call.runner.name
        if name in self._coming.gone:
            return True, f"there is no code named {name!r} any more"
        contract = self._coming.contracts[name]
        case = _Case(call, part, self._writing(part), contract, self._checked.contracts[name])
        found = self._of_parameters(case)
        if (found is not None and found[0]) or call.output is None:
            return found
        if (call.tool, name) not in self._of_results:  # what the run expects of the result (SPEC R4.6)
            self._of_results[call.tool, name] = self._of_result(call, contract)
        of_result = self._of_results[call.tool, name]
        return of_result if found is None or (of_result is not None and of_result[0]) else found

    def _of_parameters(self, case: _Case) -> Verdict:
        call, contract = case.call, case.contract
        given = case.part.given.get(call.index)
        if given is None:
            given = {key: self._evaluated(case, value) for key, value in call.parameters.items()}
        for parameters in _executions(case, given):
            with_them = call.with_parameters(parameters)
            if (refuses := self._coming.refuses.get(contract.name)) and not holds_expression(parameters):
                why = refuses(call, parameters, case.mark)
            else:
                problems = contract.problems(with_them, case.mark, lenient=holds_expression(parameters))
                why = "; ".join(map(str, problems)) or None
            tool = self._checked.tools.get(call.tool)
            if why is not None and (
                tool is None or not tool.problems(with_them, lenient=True, written=call.properties)
            ):
                return True, why  # else its own tool refuses it, whatever code there is
        return self._of_unknown(case, given) if holds_expression(given) else None

    def _evaluated(self, case: _Case, value: Any) -> Any:
        """A value in which the expressions and templates that are known are replaced."""
        match value:
            case dict():
                return {key: self._evaluated(case, item) for key, item in value.items()}
            case list():
                return [self._evaluated(case, item) for item in value]
            case str():
                found, fold = assumed_meaning(value), case.part.fold
                try:
                    match found:
                        case Expression() if self._is_known(case, found):
                            return fold.read(found)
                        case Template(parts) if all(isinstance(p, str) or self._is_known(case, p) for p in parts):
                            return "".join(part if isinstance(part, str) else fold.text(part) for part in parts)
                except (Unresolved, Conflict):
                    pass
                return found
        return value

    def _is_known(self, case: _Case, expression: Expression) -> bool:
        """Whether an expression can be read now, and no open call may write there any more."""
        key = id(case.writers), case.call.index, expression
        if key not in self._settled:
            places = expression.references
            is_readable = bool(places) and not case.call.gather and all(place.kind != ERROR for place in places)
            self._settled[key] = is_readable and not any(map(case.open_writers, places))
        return self._settled[key]

    def _of_unknown(self, case: _Case, given: Mapping[str, Any]) -> Verdict:
        """Whether a parameter that is not known yet need not fit."""
        if not case.contract.schema.keys() <= _OF_EACH_PARAMETER:
            return False, "what it takes hangs on several parameters at once, and not all are known yet"
        doubt: Verdict = None
        for key, value in given.items():
            found = self._of_value(case, key, value) if holds_expression(value) else None
            if found is not None and found[0]:
                return found
            doubt = doubt or found
        return doubt

    def _of_value(self, case: _Case, key: str, value: Any) -> Verdict:
        """Whether a parameter need not fit; asked once for all instances in which the same places have values."""
        if not isinstance(value, Expression):
            return self._compared(case, key, value)
        is_there = tuple(map(case.part.fold.exists, value.references))
        kept = id(case.writers), case.call.index, key, is_there
        if kept not in self._of_values:
            self._of_values[kept] = self._compared(case, key, value)
        return self._of_values[kept]

    def _compared(self, case: _Case, key: str, value: Any) -> Verdict:
        wanted = case.contract.tool.compiled.excerpt_at((key,))
        if wanted is None:
            return None
        tool, name = self._checked.tools.get(case.call.tool), (case.call.tool, key)
        if name not in self._admitted:  # what the call's own tool admits
            schema = compiled(tool.of_values).excerpt_at((key,)) if tool is not None else None
            self._admitted[name] = self._algebra.made_of(schema) if schema is not None else EVERYTHING
        coming = self._coming_values(case, value) if key not in case.call.each else EVERYTHING
        given, taken = self._algebra.both(coming, self._admitted[name]), self._algebra.made_of(wanted)
        why = f"{pointer(key)}: the value is {described(given)}, and only {described(taken)} is accepted"
        if not self._algebra.fit(given, taken):
            return True, why
        return None if self._algebra.covered(given, wanted) else (False, why)

    def _coming_values(self, case: _Case, value: Any) -> Values:
        """All values that a parameter may have."""
        if isinstance(value, Expression):
            return self._of_expression(case, value)
        return self._algebra.made_of(self._schema(case, value))

    def _schema(self, case: _Case, value: Any) -> Schema:
        match value:
            case Expression():
                return cast("Schema", self._of_expression(case, value).schema.to_json_schema())
            case Template():
                return {"type": "string"}
            case dict() if holds_expression(value):
                below = {key: self._schema(case, item) for key, item in value.items()}
                return {"type": "object", "properties": below, "required": [*below], "additionalProperties": False}
            case list() if holds_expression(value):
                items = [self._schema(case, item) for item in value]
                return {"type": "array", "prefixItems": items, "items": False, "minItems": len(items)}
        return {"const": value}

    def _of_expression(self, case: _Case, expression: Expression) -> Values:
        """All that an expression may read; everything where that is not known."""
        found, part = NOTHING, case.part
        for place in expression.references:
            writers = case.open_writers(place)
            is_there = case.call.gather or place.kind == ERROR or part.fold.exists(place)
            if is_there or not 0 < len(writers) <= limits.MOST_WRITERS:
                return EVERYTHING
            for writer in (one for one in (*part.calls, *part.shared) if one.index in writers):
                for source in self._results.effects(writer, place):
                    found = Values(found.schema.union(source.values.schema))
        return found if expression.references else EVERYTHING

    def _of_result(self, call: Call, contract: Contract) -> Verdict:
        """Find a result that the run expects of the call and the new code does not promise."""
        tool = self._checked.tools.get(call.tool)
        if tool is None or tool.compiled_output is None:
            tool = self._checked.returns.get(contract.name)
        if tool is None or tool.compiled_output is None:
            return None
        expected, promised = tool.compiled_output.document, contract.tool.compiled_output
        if promised is None:
            return False, "it no longer declares a result, and the run depends on one"
        given = self._algebra.made_of(promised.document)
        wanted = self._algebra.made_of(expected)
        if self._algebra.covered(given, expected):
            return None
        is_certain = contract.tool.output_schema is not None and not self._algebra.fit(given, wanted)
        return is_certain, f"/_output: it returns {described(given)}, and the run expects {described(wanted)}"


@dataclass(frozen=True, slots=True)
class _Case:
    """A call that is checked against new code."""

    call: Call
    part: LanePart
    writers: Writers
    contract: Contract
    mark: str
    """The mark of the contract that the call was checked under."""

    def open_writers(self, place: Reference) -> set[int]:
        """The other open calls that may write at a place, below or above it."""
        return {index for line in self.writers.lines(place) for index in line.calls} - {self.call.index}


def _executions(case: _Case, given: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The parameters that a call runs with, as far as they are known: once, or for each element that has not ended."""
    call = case.call
    if not call.each or any(isinstance(given.get(name), Expression) for name in call.each):
        yield given
    elif not list(list_problems(call, given)):
        ended = case.part.ended.get(call.index, ())
        yield from (one for number, one in enumerate(elements_of(call, given)) if number not in ended)


# PlanCost: how much a run will take, known before it starts (SPEC R6.7).
#
# The cost is for a run without failures in which every call runs: what the sweep publishes again and what a limit
# of concurrency or a pause publishes later is added to it, and skipped calls are subtracted. How often instances that
# wait for global calls are woken depends on timing, so it has a bound of its own.


@dataclass(frozen=True, slots=True)
class PlanCost:
    """The cost of a run, over all instances."""

    calls: int
    """Calls that run; passing thoughts do not."""
    lanes: int
    """Instances that have calls, and the global calls as one more."""
    tasks: int
    """Celery tasks published: one for each lane, one for each background send, and two (there and back) for each
    delegate request, each model request and each call to a queue of its activity's own."""
    wake_ups: int
    """The most tasks that come on top: a lane that waits for global calls can be woken by each that a call awaits."""
    queued_activities: int
    """Awaited calls of activities with a queue of their own."""
    delegate_requests: int
    model_requests: int
    """Latent calls whose result a model has yet to give."""
    background_sends: int
    depth: int
    """The longest chain of calls that wait for each other: the waves."""
    width: int
    """The most calls that can run at the same time, over all instances."""

    def to_dict(self) -> dict[str, Any]:
        """The cost as data."""
        return asdict(self)


def cost_of(lanes: Iterable[Lane], queued: Container[str] = (), joined: Mapping[int, int] | None = None) -> PlanCost:
    """The cost of running the lanes; `queued` are the activities with a queue of their own, `joined` the levels of all
    calls where gather calls join the lanes.

    Lanes of one graph are looked at once, and counted as often as they are.
    """
    lanes = tuple(lane for lane in lanes if lane.calls)
    shared = next((lane for lane in lanes if lane.instance is None), None)
    known = shared.graph.levels({}) if shared is not None else {}
    alike = Counter(id(lane.graph) for lane in lanes)
    global_calls = frozenset(call.index for call in shared.calls) if shared is not None else frozenset[int]()
    awaited: frozenset[int] = frozenset()
    waiting = 0
    counts, levels = Counter[str](), Counter[int]()
    for lane in {id(lane.graph): lane for lane in lanes}.values():
        times = alike[id(lane.graph)]
        level = joined if joined is not None else lane.graph.levels({} if lane is shared else known)
        if lane is not shared and (waited_for := lane.graph.awaited & global_calls):
            waiting += times
            awaited |= waited_for
        for call in lane.calls:
            if not call.is_thought:
                counts["calls"] += times
                counts[_sort_of(call, queued)] += times
                levels[level[call.index]] += times
    return PlanCost(
        calls=counts["calls"],
        lanes=len(lanes),
        tasks=len(lanes) + counts["sent"] + 2 * (counts["delegate"] + counts["model"] + counts["queued"]),
        wake_ups=waiting * len(awaited),
        queued_activities=counts["queued"],
        delegate_requests=counts["delegate"],
        model_requests=counts["model"],
        background_sends=counts["sent"],
        depth=len(levels),
        width=max(levels.values(), default=0),
    )


def _sort_of(call: Call, queued: Container[str]) -> str:
    """Which tasks a call takes besides its lane's."""
    if call.is_fire_and_forget:
        return "sent"
    match call.runner.executor:
        case Executor.DELEGATE:
            return "delegate"
        case Executor.LATENT:
            return "model" if call.given is MISSING else "own"
        case Executor.ACTIVITY:
            return "queued" if call.runner.name in queued else "own"
