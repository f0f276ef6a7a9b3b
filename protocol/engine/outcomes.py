"""Outcomes: what the result of a call means: the messages to append, or the error (SPEC R4.4-R4.6, R4.10, R7.2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ..calls import outputs
from ..calls.built_in import is_built_in
from ..calls.call import NONE, Approvals, Call, asks, element_index, element_of, elements_of, list_problems
from ..calls.declarations import CONTRACT_CHANGED
from ..calls.tools import Executor, Tool
from ..calls.trust import NOTHING, ToolTrust, tool_trust_of
from ..errors import Conflict, ExpressionError, OutputError, Problem, Unresolved, json_text, shortened
from ..limits import OUTCOMES_NAMED, Limits, exceeded, size_of, value_problems
from ..messages import error_message
from ..paths import MISSING, copied, lookup, strings
from ..references import DAGGER, Expression, Reference, parse
from ..run_rules import RunRules
from ..schemas import compiled
from ..state.fold import Fold
from ..state.labels import TRUSTED, Labels
from ..state.operations import Method
from ..state.scopes import Allowance, TooLarge
from ..templates import evaluated, expressions_in
from .events import Failure, Outcome, Status, Success
from .loop import TickError

# Elements: what each execution of a call with `_each` is given and has come to, and what the call comes to by them
# (SPEC R4.10).


@dataclass
class Elements:
    """Elements of a call with `_each`: their parameters, and their results so far."""

    calls: Mapping[int, Call]
    """Elements by number (see `calls.call`), each as the call itself under that number."""
    given: list[dict[str, Any]]
    results: list[Any]
    """Results in order; None for an element without one."""
    left: int
    failed: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    """Errors of the failed elements."""
    answered: ToolTrust = NOTHING
    """Sources that came with the answers, for an element each."""

    @classmethod
    def of(cls, call: Call, parameters: Mapping[str, Any]) -> Elements:
        """Make the elements of a call from resolved parameters without `unfit`."""
        given = elements_of(call, parameters)
        numbers = (element_index(call.index, element) for element in range(len(given)))
        calls = {number: replace(call, index=number) for number in numbers}
        return cls(calls, given, [None] * len(given), len(given))

    def parameters(self, index: int) -> dict[str, Any]:
        """Parameters of an element."""
        return self.given[_at(index)]

    def end(
        self, index: int, status: Status, value: Any, error: Mapping[str, Any] | None, answered: ToolTrust = NOTHING
    ) -> None:
        """Record how an element has ended."""
        self.left -= 1
        self.answered = ToolTrust.together((self.answered, answered)) if answered else self.answered
        self.results[_at(index)] = value
        if status is Status.FAILED:
            self.failed[_at(index)] = error or {}

    def result(self, limits: Limits) -> Success | Failure:
        """Result of the call when all elements have ended: their results in order, null for those that failed. The call
        has failed if all have.
        """
        if self.failed and len(self.failed) == len(self.results):
            if all(error.get("type") == CONTRACT_CHANGED for error in self.failed.values()):
                return Failure(CONTRACT_CHANGED, self.reason or "", is_for_no_alternative=True)
            return Failure("ElementsFailed", self.reason or "")
        if (size := size_of(self.results)) > limits.call_bytes:
            return Failure("TooLarge", exceeded(f"the results have {size} bytes", limits, "call_bytes"))
        problem = next(value_problems(self.results, limits), None)
        return Success(self.results) if problem is None else Failure("TooLarge", problem.message)

    @property
    def reason(self) -> str | None:
        """Which elements have failed, if any."""
        if not self.failed:
            return None
        first, *_ = named = sorted(self.failed)[:OUTCOMES_NAMED]
        more = ", …" if len(self.failed) > OUTCOMES_NAMED else ""
        error = self.failed[first]
        told = f"{error.get('type')}: {shortened(str(error.get('message')), 200)}"
        count = f"{len(self.failed)} of {len(self.results)} elements failed"
        return f"{count} ({', '.join(map(str, named))}{more}); element {first}: {told}"


def invalid_parameters(problems: Iterable[Problem]) -> Failure:
    """The failure of a call whose resolved parameters have these problems."""
    return Failure("InvalidParameters", "; ".join(map(str, problems)))


def unfit(call: Call, parameters: Mapping[str, Any], limits: Limits) -> Failure | None:
    """Why resolved parameters have no elements, or too many."""
    if problems := list(list_problems(call, parameters)):
        return invalid_parameters(problems)
    if (size := len(parameters[call.each[0]])) > limits.elements:
        return Failure("TooLarge", exceeded(f"_each is given {size} elements", limits, "elements"))
    return None


def _at(index: int) -> int:
    element = element_of(index)
    assert element is not None
    return element


_DEFAULT: Final = Limits()


@dataclass(frozen=True)
class LaneConfig:
    """Everything besides the order of calls that decides how the calls of a lane run and end."""

    tools: Mapping[str, Tool]
    returns: Mapping[str, Tool] = field(default_factory=dict)
    """Tools made from activities, by name: their promises on results count where a call's own tool promises nothing."""
    instance: str | None = None
    trust: Mapping[str, ToolTrust] = field(default_factory=dict)
    """Trust of tools and code, by name (SPEC R16.1)."""
    refuses_untrusted: bool = False
    """Whether a call with effects fails, and is not held, if untrusted data would decide on it (SPEC R16.4)."""
    added: Mapping[str, ToolTrust] = field(default_factory=dict)
    """Part of `trust` that was added after the run was submitted: calls may have begun without it."""
    added_sources: Labels = TRUSTED
    """Sources of results in any lane by the trust in `added`: the log may lack them."""
    fails_unknown: bool = False
    """Whether a call whose end is not known fails, and no person is asked (SPEC R4.11)."""
    approvals: Approvals = NONE
    """Which calls are held."""
    rules: RunRules = field(default_factory=RunRules)
    """Which calls start that would be held for what others wrote (SPEC R16.8)."""
    limits: Limits = _DEFAULT
    """Limits for what one call is given."""
    defers_errors: bool = False
    """Whether the error of a failed call goes only into its outcome: in a loop the message is written at the end of the
    tick (SPEC R13.1).
    """
    simulated: frozenset[int] | None = None
    """The calls for which a simulation chooses the place; None outside simulations."""
    is_simulated: bool = False
    """Whether models answer calls, and no code runs (SPEC R12.10)."""

    def records(self, call: Call) -> bool:
        """Whether a call is only recorded, since the run is a simulation: one with effects, one that would be sent and
        forgotten, and one that code alone could answer.
        """
        is_for_code = call.runner.executor is Executor.ACTIVITY and not (asks(call) or is_built_in(call))
        trust = self.trust_of(call)
        return self.is_simulated and (call.is_fire_and_forget or is_for_code or trust.effects or trust.once)

    def trust_of(self, call: Call) -> ToolTrust:
        """Trust of a call, by its tool and its code."""
        return tool_trust_of(self.trust, call.tool, call.runner.name)

    def outcome(self, call: Call, result: Success | Failure, date: str, fold: Fold) -> Outcome:
        """Outcome of a result, with the values in `fold` as they are now."""
        if isinstance(result, Failure) and result.is_for_no_alternative:
            return self.failed(call, result, date)
        if element_of(call.index) is not None:
            return self._element_outcome(call, result, date)
        if call.output is None:
            return Outcome(call.index, Status.SENT) if isinstance(result, Success) else self.failed(call, result, date)
        if isinstance(result, Failure):
            return self._rescued(call, call.output, result, date, fold)
        try:
            possible = outputs.possible_writes(call.output, result.value)
        except OutputError as problem:
            return self.failed(call, Failure("OutputError", str(problem)), date)
        try:
            self._verify_result(call, result, possible[0])
            return self._done(call, outputs.admitted_writes(call, possible, fold), date)
        except OutputError as problem:
            return self._rescued(call, call.output, Failure("OutputError", str(problem)), date, fold)
        except Conflict as problem:
            return self.failed(call, Failure("Conflict", str(problem)), date)

    def failed(self, call: Call, failure: Failure, date: str) -> Outcome:
        """The outcome of a call, or an element, that has failed."""
        error = _error(failure)
        if (element := element_of(call.index)) is not None:
            error["element"] = element
        message = error_message(call.raw, error, date=date, instance=self.instance)
        return Outcome(call.index, Status.FAILED, () if self.defers_errors else (message,), error=error)

    def invalid(self, call: Call, parameters: Mapping[str, Any], date: str) -> Outcome | None:
        """Outcome of a call whose resolved parameters its tool refuses, or whose lists have no elements to run for;
        None if the parameters are valid.
        """
        if call.each and element_of(call.index) is None:
            failure = unfit(call, parameters, self.limits)
            return self.failed(call, failure, date) if failure is not None else None
        tool = self.tools.get(call.tool)
        if tool is None:
            return None
        is_latent = call.runner.executor is Executor.LATENT
        given = call.with_parameters(parameters)
        problems = tool.problems(given, is_secret=True, is_latent=is_latent, written=call.properties)
        if not problems:
            return None
        return self.failed(call, invalid_parameters(problems), date)

    def _element_outcome(self, call: Call, result: Success | Failure, date: str) -> Outcome:
        """Outcome of an element's result: it is written with those of the others."""
        if isinstance(result, Failure) or call.output is None:
            return self.failed(call, result, date) if isinstance(result, Failure) else Outcome(call.index, Status.SENT)
        if isinstance(result.value, (outputs.Output, outputs.Message)):
            text = f"an element of _each gives a value, and no {type(result.value).__name__}"
            return self.failed(call, Failure("OutputError", text), date)
        try:
            self._verify_result(call, result, [outputs.Write(call.written[0], result.value)])
        except OutputError as problem:
            return self.failed(call, Failure("OutputError", str(problem)), date)
        return Outcome(call.index, Status.DONE, value=result.value)

    def _verify_result(self, call: Call, result: Success, writes: list[outputs.Write]) -> None:
        """Check a result against the tool's `_output`, or the activity's annotation (SPEC R4.6); for a call with
        `_each` element by element. Raises `OutputError`.
        """
        tool = self.tools.get(call.tool)
        if (tool is None or tool.compiled_output is None) and call.runner.executor is Executor.ACTIVITY:
            tool = self.returns.get(call.runner.name)
        if call.each and element_of(call.index) is None:
            writes = list(outputs.element_writes(writes[0]))
        if tool is not None:
            outputs.verify_result(tool, result.value, writes)

    def _rescued(self, call: Call, output: Expression, failure: Failure, date: str, fold: Fold) -> Outcome:
        """Outcome of an exception: a result for the last of several alternatives, if that admits it (SPEC R4.4)."""
        writes = outputs.failure_writes(output, _error(failure))
        if not writes:
            return self.failed(call, failure, date)
        try:
            call = _fitting(call, writes, fold)
            outputs.verify_writes(call, writes, fold)
        except (OutputError, Conflict):
            return self.failed(call, failure, date)
        return replace(self._done(call, writes, date), is_rescued=True)

    def _done(self, call: Call, writes: list[outputs.Write], date: str) -> Outcome:
        return Outcome(
            call.index, Status.DONE, outputs.written_messages(call, writes, date=date, instance=self.instance)
        )


def _fitting(call: Call, writes: list[outputs.Write], fold: Fold) -> Call:
    """The call as it writes an exception: by `set` where its own method does not fit one (SPEC R4.4)."""
    try:
        outputs.verify_writes(call, writes, fold)
    except Conflict:
        properties = {key: value for key, value in call.properties.items() if key != "_outputMethod"}
        return replace(call, method=Method.SET, properties=properties)
    return call


def _error(failure: Failure) -> dict[str, Any]:
    """The error as readers see it: bounded, and fit to be stored, for an exception's text may hold anything."""
    return {"type": _printable(failure.type), "message": _printable(shortened(failure.message, 4_000))}


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def is_among(answer: Any, trust: ToolTrust, fold: Fold) -> bool:
    """Whether an answer is one of the values at a place to which nobody else wrote (SPEC R16.8)."""
    place = parse(str(trust.endorses)).references[0]
    left: list[tuple[tuple[str | int, ...], Any]] = [((), fold.root(place.kind))]
    for segment in place.path:
        if segment == "*":
            lists = ((path, value) for path, value in left if isinstance(value, list))
            left = [((*path, index), part) for path, value in lists for index, part in enumerate(value)]
        else:
            left = [((*path, segment), lookup(value, (segment,))) for path, value in left]
    wanted = json_text(answer)
    found = (path for path, value in left if value is not MISSING and json_text(copied(value)) == wanted)
    return any(not fold.marks(Reference(place.kind, path)) for path in found)


# The output of a solution: references in it are read when all calls have ended, as a global reader (SPEC R4.9); that
# of a loop's tick is accepted, or set aside (SPEC R13.1).


def resolve_output(output: Any, fold: Fold) -> Any:
    """The output with its expressions and templates replaced by values; `fold` holds the global values at the end.

    It is measured before anything is copied or joined, by the same limits for all who read it. Raises `Unresolved` or
    `Conflict`, naming the reference.
    """
    try:
        return evaluated(output, Allowance(fold, _DEFAULT))
    except TooLarge:
        most = f"{_DEFAULT.call_bytes} bytes, or {_DEFAULT.containers} objects and lists"
        raise Unresolved(f"it comes to more than {most}") from None


def output_fault(output: Any, fold: Fold, schema: Any = None) -> str | None:
    """Why the output cannot be read, naming the reference, or what its schema says against what was read; None where
    all is well. What holds no reference was held against the schema when it was submitted (SPEC R7.1).
    """
    if not holds_references(output):
        return None
    try:
        found = resolve_output(output, fold)
    except (Unresolved, Conflict, ExpressionError) as error:
        return f"the output cannot be read: {error}"
    problems = compiled(schema).problems(found, "output", known=()) if schema is not None else []
    return "the output does not fit its schema: " + "; ".join(map(str, problems)) if problems else None


def holds_references(output: Any) -> bool:
    """Whether an output has to be resolved: it holds expressions, templates, or what may be escaped (SPEC R2.2)."""
    return any(DAGGER in text for _, text in strings(output))


def output_labels(output: Any, fold: Fold) -> Labels:
    """The sources of all that an output reads, where its expressions can be read (SPEC R16.2)."""
    labels = TRUSTED
    for _, text in strings(output):
        with suppress(ExpressionError):
            for expression in expressions_in(text):
                labels = labels.union(*(fold.marks(place).labels for place in expression.references))
    return labels


@dataclass(frozen=True, slots=True)
class OutputVerdict:
    """Verdict on an output when its tick's calls have ended: accepted, or set aside for these errors."""

    output: Any = None
    errors: tuple[TickError, ...] = ()
    set_aside: str | None = None

    @property
    def is_accepted(self) -> bool:
        """Whether the run is completed with it."""
        return self.output is not None and self.set_aside is None


def judge_output(
    output: Any, schema: Any, fold: Fold, errors: Iterable[TickError], empty: Callable[[], Sequence[str]] = tuple
) -> OutputVerdict:
    """Look at a solution's output once its calls have ended (SPEC R4.9, R12.5, R13.1); `fold` holds the global values,
    `errors` are those of its tick, and `empty` names the places that have to be filled first.
    """
    if output is None:
        return OutputVerdict()
    pointers = [error.pointer for error in errors]
    if any(pointer.startswith("/calls") for pointer in pointers):
        return OutputVerdict(output, set_aside="a call of the same answer failed or was invalid")
    if pointers:
        return OutputVerdict(output, set_aside="the answer is invalid")
    try:
        found = resolve_output(output, fold)
    except (Unresolved, Conflict, ExpressionError) as error:
        return _unfit(output, [TickError("InvalidOutput", f"the output cannot be read: {error}", "/output")])
    problems = compiled(schema).problems(found, known=())
    if problems:
        return _unfit(found, [TickError("InvalidOutput", p.message, f"/output{p.pointer}") for p in problems])
    if places := empty():
        text = f"required places of the state are still empty: {'; '.join(places)}"
        return _unfit(found, [TickError("Unfilled", text, "/output")])
    return OutputVerdict(found)


def _unfit(output: Any, errors: list[TickError]) -> OutputVerdict:
    return OutputVerdict(output, tuple(errors), "; ".join(f"{error.pointer}: {error.message}" for error in errors))
