"""Answers: what a model has written, as calls that may run, an output, and errors (SPEC R12.6, R13.2).

Whatever a provider promised, an answer is held against the composed schema, and then as any solution. A call that is
invalid does not run, nor does what depends on it; the others do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import groupby
from typing import Any, Final

from ..calls.call import Call, completed
from ..calls.tools import Tool
from ..errors import Problem, Rejected, pointer, segments
from ..limits import (
    ANSWERS_MOST_MENDED,
    ANSWERS_ROUNDS,
    ANSWERS_SHOWN,
    BYTES_PER_ERROR,
    MOST_EARLY_INSTANCES,
    MOST_REPEATED_BYTES,
    exceeded,
    plain,
    size_of,
    value_problems,
)
from ..messages import EVERYWHERE, Message
from ..paths import MISSING
from ..plan.checked_plan import CheckedPlan
from ..plan.checking import RejectedCalls, check_calls
from ..plan.graph import Writers, sees
from ..plan.submission import misfit_problems
from ..references import Reference
from ..schemas import CompiledSchema
from ..schemas.validation import Checker
from ..state.context import Context
from .invalid_calls import (
    call_in_text,
    dependents,
    path_slips,
    slips_in,
    with_json_meant,
    with_likenesses,
    with_reference_meant,
)
from .reading import (
    ANSWER_KEYS,
    ARGUMENTS,
    Unreadable,
    arguments_problem,
    bare_calls,
    find_answer,
    missing,
    output_problem,
    with_texts_read,
    without_nulls,
)
from .receipts import with_places
from .schema import Explain, Request, advice_findings, compose, compose_leniently, judge_advice

# Early results: latent calls that a model has answered together with what they refer to (SPEC R4.8a, R12.4).
#
# The author of a call with its result knows what calls with results listed before it write, and nothing else that is
# not there yet.


def premature(layout: CheckedPlan) -> Iterator[Problem]:
    """Latent calls whose result was written before what they refer to is there."""
    answered = [call for call in layout.calls if call.given is not MISSING]
    others = _Sight([call for call in layout.calls if call.given is MISSING])
    known = _Sight(answered)
    for call in answered:
        instances = layout.context.instances[:MOST_EARLY_INSTANCES] if call.instance == EVERYWHERE else (call.instance,)
        folds = [layout.context.fold(instance) for instance in instances]
        for place in call.read:
            mine, theirs = known.writing(place, call), others.writing(place, call)
            if not (mine or theirs):
                continue
            is_before = any(one < call.index for one in (*mine, *theirs))
            does_wait = is_before or not all(fold.exists(place) for fold in folds)
            if does_wait and theirs:
                text = f"its result was written before call {theirs[0]}, which it refers to, has run: leave _output out"
            elif does_wait and mine and mine[0] > call.index:
                text = f"it refers to the result of call {mine[0]}, which has to be listed before it"
            else:
                continue
            yield Problem(pointer(*layout.submission.place(call.index), "_output"), text)
            break


class _Sight:
    """Finds the calls that write at a place that another call reads."""

    def __init__(self, calls: Sequence[Call]) -> None:
        self._calls = calls
        self._writers: dict[str | None, Writers] = {}

    def writing(self, place: Reference, reader: Call) -> list[int]:
        """The first of those at, below and above the place, in the order listed."""
        at = reader.instance
        if at not in self._writers:
            self._writers[at] = Writers(call for call in self._calls if sees(reader, call))
        lines = self._writers[at].lines(place)
        return sorted(one for line in lines for one in line.calls[:2] if one != reader.index)


_TWICE: Final = "the function output is called twice with different values: call it once"
_NOT_LOOKED_AT: Final = "not checked, because too many of the other calls are invalid: correct those first"


@dataclass(frozen=True, slots=True)
class AnswerError:
    """An error in an answer. `call` is the call that it is about, as written, None for the rest; `pointer` leads into
    the answer.
    """

    call: Mapping[str, Any] | None
    type: str
    message: str
    pointer: str

    def to_dict(self) -> dict[str, Any]:
        """The data of the error message that the log gets (SPEC R13.2)."""
        error = {"type": self.type, "message": self.message, "pointer": self.pointer}
        return {"call": None if self.call is None else dict(self.call), "error": error}


@dataclass(frozen=True)
class Answer:
    """The meaning of a model's answer: calls, an output, errors."""

    solution: Mapping[str, Any]
    """The answer as a solution, always with `calls` and `output`; without parts that only the provider's format
    requires.
    """
    layout: CheckedPlan
    """Plan of the calls that may run. Their indexes are consecutive from the index of the first call."""
    positions: tuple[int, ...]
    """Position of each of those calls among the solution's calls."""
    output: Any
    """The output, references in it unresolved; None if it is missing or invalid."""
    errors: tuple[AnswerError, ...] = ()
    findings: tuple[str, ...] = ()
    """Findings: worth knowing, but no errors."""

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls that may run."""
        return self.layout.calls


def read_answer(
    request: Request,
    answer: str | Mapping[str, Any],
    messages: Sequence[Message] | None = None,
    *,
    first: int = 0,
    begun: Mapping[str | None, Sequence[Call]] | None = None,
    explain: Explain | None = None,
) -> Answer:
    """Read what a model answered, as text or as a value. Never raises for what a model has written.

    `messages` are those of the run's log so far, by default the request's context; `first` is the index that its first
    call gets, and `begun` are calls at work that may still write, by instance. `explain` is by default the request's.
    """
    errors: list[AnswerError] = []
    value: Mapping[str, Any] = {"calls": [], "output": None}
    try:
        value = _read_object(request, answer)
    except Unreadable as error:
        text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False, default=repr)
        why = f"the answer cannot be read: {error}. It begins: {text[:ANSWERS_SHOWN]}"
        errors = [AnswerError(None, "InvalidAnswer", why, "")]
    context = Context.of(request.submission.context if messages is None else messages)
    return _Reading(request, context, first, begun, explain or request.explain).answer(value, *errors)


def _read_object(request: Request, answer: str | Mapping[str, Any]) -> dict[str, Any]:
    """The answer as an object; parts of it may be unfit to be stored. Raises `Unreadable`."""
    if isinstance(answer, str):
        return find_answer(answer, is_lenient=True)
    value = plain(answer, request.known.limits)
    if isinstance(value, dict) and value.keys() & set(ANSWER_KEYS):
        return value
    if (calls := bare_calls(value)) is None:
        raise Unreadable(missing())
    return {"calls": calls}


@dataclass(frozen=True)
class _Reading:
    """Reads the parts of one answer."""

    request: Request
    context: Context
    first: int
    begun: Mapping[str | None, Sequence[Call]] | None
    explain: Explain

    def answer(self, value: Mapping[str, Any], *errors: AnswerError) -> Answer:
        """The answer that a value is."""
        limits = self.request.known.limits
        value, unfit = with_likenesses(value, limits)
        read, unread = with_texts_read(value, "solution") if self.request.has_texts else (value, [])
        value, unfit_texts = with_likenesses(read, limits)
        if value is not read and (problem := next(value_problems(value, limits), None)) is not None:
            errors = (*errors, AnswerError(None, "InvalidAnswer", str(problem), ""))
            value, unread, unfit, unfit_texts = {"calls": [], "output": None}, [], [], []
        value = without_nulls(self.request, with_places(self.request, value, self.first))
        found = [*errors, *(self._error(problem, value) for problem in self._shape_problems(value))]
        calls = value.get("calls")
        left = dict(enumerate(calls if isinstance(calls, list) else []))
        output = value.get("output")
        problems = [problem for problem in (*unfit, *unfit_texts, *unread) if _call_of(problem) is not None]
        problems += slips_in(self.request, self.context, left, output, self._at_work)
        problems += path_slips(self.request, left)
        problems += call_in_text(self.request, output) if isinstance(output, str) else ()
        if output is not None and not any(_call_of(problem) == "output" for problem in problems):
            problems += self._output_problems(output)
        output = None if any(_call_of(problem) == "output" for problem in problems) else output
        problems += self._foreign(left)
        layout: CheckedPlan | None = None
        for left_rounds in reversed(range(ANSWERS_ROUNDS)):
            refused = {_call_of(problem) for problem in problems}
            gone = {index: call for index, call in left.items() if index in refused}
            left = {index: call for index, call in left.items() if index not in refused}
            if gone and (found_now := list(dependents(self.request, self.context, left, gone))):
                problems += found_now
                refused = {_call_of(problem) for problem in found_now}
                left = {index: call for index, call in left.items() if index not in refused}
            layout, found_now = self._tried(left, output)
            if layout is None and left_rounds == 0:
                found_now = [Problem(pointer("solution", "calls", index), _NOT_LOOKED_AT) for index in left]
                layout, left, output = self._laid_out({}, None), {}, None
            problems += found_now
            about = {_call_of(problem) for problem in found_now}
            output = None if "output" in about else output
            if None in about:  # nothing can be said of single calls
                layout, left, output = self._laid_out({}, None), {}, None
            if layout is not None:
                break
        assert layout is not None
        listed = _listed(sorted(dict.fromkeys(problems), key=_place), value)
        found += [
            self._error(each, value, is_mended=number < ANSWERS_MOST_MENDED) for number, each in enumerate(listed)
        ]
        solution = {**value, "calls": calls if isinstance(calls, list) else [], "output": value.get("output")}
        findings = tuple(advice_findings(self.request, value))
        return Answer(solution, layout, tuple(left), output, tuple(found), findings)

    @property
    def _at_work(self) -> Iterator[Call]:
        for calls in (self.begun or {}).values():
            yield from calls

    def _tried(self, calls: Mapping[int, Any], output: Any) -> tuple[CheckedPlan | None, list[Problem]]:
        """Plan of the calls if all may run; else the problems."""
        layout: CheckedPlan | None = None
        seen: CheckedPlan | None = None
        try:
            layout = seen = self._laid_out(calls, output)
            problems = list(premature(layout))
        except Rejected as rejected:
            seen = rejected.plan if isinstance(rejected, RejectedCalls) else None
            problems = list(rejected.errors)
        about = {_call_of(problem) for problem in problems}
        for index, call in calls.items():
            if index not in about:
                problems += self._call_problems(index, call)
        if not problems:
            return layout, []
        return None, list(self.explain(RejectedCalls(problems, seen) if seen is not None else Rejected(problems)))

    def _laid_out(self, calls: Mapping[int, Any], output: Any) -> CheckedPlan:
        """The calls as they would run. Raises `Rejected` with what is wrong with any of them."""
        submission = replace(
            self.request.submission,
            context=self.context,
            calls=[(("solution", "calls", index), call) for index, call in calls.items()],
            output=output,
            first=self.first,
            indexes=[self.first + position for position in calls],
            is_template=self.request.is_lazy,
            is_request=False,
            is_in_loop=True,
            is_whole=True,
            tools=self.request.tools,
        )
        return check_calls(submission, [], self.request.known, begun=self.begun)

    def _foreign(self, calls: Mapping[int, Any]) -> Iterator[Problem]:
        """Problems of calls that cannot be checked: of tools that the request does not declare (SPEC R12.2), or too
        large.
        """
        limits = self.request.known.limits
        for index, call in calls.items():
            at = ("solution", "calls", index)
            name = call.get("_tool") if isinstance(call, dict) else None
            broken = call.get(ARGUMENTS) if self.request.is_native and isinstance(call, dict) else None
            if isinstance(broken, str):
                yield Problem(pointer(*at), arguments_problem(broken) or "its arguments are written twice")
            elif size_of(call) > limits.message_bytes:
                yield Problem(pointer(*at), exceeded(f"{size_of(call)} bytes", limits, "message_bytes"))
            elif isinstance(name, str) and name and name not in self.request.tools:
                known = ", ".join(self.request.tools) or "none"
                yield Problem(pointer(*at, "_tool"), f"the request declares no tool {name!r}; it declares: {known}")

    def _shape_problems(self, value: Mapping[str, Any]) -> Iterator[Problem]:
        """Problems of the answer outside its calls and its output."""
        composed = compose(self.request)
        expected = composed["properties"]
        for key in value.keys() - expected.keys():
            if key == ARGUMENTS and self.request.is_native:
                yield Problem(pointer("solution", key), output_problem(str(value[key])) or _TWICE)
                continue
            yield Problem(pointer("solution", key), f"unknown property; an answer has {', '.join(expected)}")
        for key in expected.keys() - set(ANSWER_KEYS):
            if key not in value:
                yield Problem(pointer("solution"), f"{key!r} is missing")
        if not isinstance(value.get("calls", []), list):
            yield Problem(pointer("solution", "calls"), "must be a list of calls")
        for key in expected.keys() & value.keys() - {"calls", "output"}:
            schema = CompiledSchema({**expected[key], "$defs": composed.get("$defs", {})})
            yield from schema.problems(value[key], "solution", key)
        yield from judge_advice(self.request, value)

    def _error(self, problem: Problem, value: Mapping[str, Any], *, is_mended: bool = False) -> AnswerError:
        """A problem as an error, its pointer into the answer; it may say how to mend a text that holds JSON."""
        about, place = _call_of(problem), problem.pointer.removeprefix("/solution")
        at = segments(problem.pointer)
        if isinstance(about, int):
            call = value["calls"][about]
            if not isinstance(call, dict):
                return AnswerError(None, "InvalidCall", problem.message, place)
            found = with_reference_meant(call, at[3:]) or (with_json_meant(call, at[3:]) if is_mended else None)
            is_known = isinstance(call.get("_tool"), str) and call["_tool"] in self.request.tools
            check = partial(self._composed_problems, about)
            return AnswerError(call, "InvalidCall", _corrected(problem, found if is_known else None, check), place)
        if about == "output":
            found = with_json_meant(value["output"], at[2:]) if is_mended else None
            return AnswerError(None, "InvalidOutput", _corrected(problem, found, self._output_problems), place)
        return AnswerError(None, "InvalidAnswer", problem.message, place)

    def _composed_problems(self, index: int, call: Any, *, is_offer: bool = True) -> Sequence[Problem]:
        """Problems of a call by the composed schema; what is filled in anyway may be written, too (SPEC R12.4)."""
        inputs = self.request.tools[call["_tool"]].inputs
        checker = _call_checkers(self.request, is_offer=is_offer)[call["_tool"]]
        return checker.problems(inputs.unasked(call) if inputs else call, "solution", "calls", index)

    def _call_problems(self, index: int, call: Any) -> Sequence[Problem]:
        """Problems of a call that a submission may have: it has a property that its tool does not offer, or a reference
        where the composed schema takes none.
        """
        tool = self.request.tools[call["_tool"]]
        offered = as_offered(tool, call)
        if not (found := self._composed_problems(index, offered)):
            return []
        for path in (offered.get("_outputPath"), *tool.spellings(call.get("_outputPath"))):
            spelled = {**offered, "_outputPath": path} if "_outputPath" in offered else offered
            found = min(found, self._composed_problems(index, spelled, is_offer=False), key=len)
        return [problem for problem in found if not _is_of_meta_property(problem, offered)]

    def _output_problems(self, output: Any) -> Sequence[Problem]:
        """Problems of an output by the request's schema."""
        return list(misfit_problems(output, self.request.schema, "solution", "output"))


def _corrected(problem: Problem, found: tuple[Any, str] | None, check: Callable[[Any], Iterable[Problem]]) -> str:
    """The text of `found`, a value as it was meant and what is wrong in the answer, if that value has no problem at the
    place; else the problem's own text (SPEC R12.6b).
    """
    if found is None or any(one.pointer == problem.pointer for one in check(found[0])):
        return problem.message
    return found[1]


# One grammar: what a model may write in a call is what a submission may say (SPEC R12.4).
#
# A call that the rules of submissions admit is held against the composed schema as that would have it: it says nothing
# that is said anyway, and what it says of meta-properties, in whatever spelling, those rules have judged.


def as_offered(tool: Tool, call: Mapping[str, Any]) -> dict[str, Any]:
    """A valid call under the names of today, without the meta-properties that change nothing: those that equal what its
    tool pins, and a `_gather` of false.
    """
    pinned = {**tool.constants, "_gather": False}
    properties = completed(call, {})
    return {key: value for key, value in properties.items() if key not in pinned or value != pinned[key]}


def _is_of_meta_property(problem: Problem, call: Mapping[str, Any]) -> bool:
    name = next(iter(segments(problem.pointer)[3:]), "")
    return name.startswith("_") and name in call


@lru_cache(maxsize=16)
def _call_checkers(request: Request, *, is_offer: bool) -> Mapping[str, Checker]:
    """Checkers for the calls of each tool, from the composed schema."""
    compiled = CompiledSchema(compose(request) if is_offer else compose_leniently(request))
    places = (("properties", "calls", "items", "anyOf", index) for index in range(len(request.tools)))
    return {name: compiled.checker(place) for name, place in zip(request.tools, places, strict=True)}


def _call_of(problem: Problem) -> int | str | None:
    """Position of the call that a problem is about, or `output`."""
    at = segments(problem.pointer)
    if at[:2] == ("solution", "calls") and len(at) > 2:
        return int(at[2])
    return "output" if at[:2] == ("solution", "output") else None


def _listed(problems: Iterable[Problem], value: Mapping[str, Any]) -> Iterator[Problem]:
    """The first of the problems of each call, and as many others as may be listed; the last one counts the rest."""
    left = MOST_REPEATED_BYTES
    for about, group in groupby(problems, _call_of):
        found, size = list(group), BYTES_PER_ERROR
        if isinstance(about, int) and len(found) > 1:
            size += size_of(value["calls"][about])
        kept = found[: 1 + left // size]
        left -= size * (len(kept) - 1)
        if len(found) > len(kept):
            text = f"{kept[-1].message}; {len(found) - len(kept)} more errors are not listed"
            kept[-1] = replace(kept[-1], message=text)
        yield from kept


def _place(problem: Problem) -> tuple[int, str]:
    about = _call_of(problem)
    return (about if isinstance(about, int) else 1_000_000_000, problem.pointer)


def joined_messages(errors: Iterable[AnswerError]) -> str:
    """The messages of errors in one line."""
    return "; ".join(f"{error.pointer or '/'}: {error.message}" for error in errors)
