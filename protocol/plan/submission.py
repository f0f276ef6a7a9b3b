"""A submission: reading it, and checking its shape and limits (SPEC R7.1, R10.2).

Reading goes on after an error, so that all errors are listed at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, count
from typing import Any, Final

from ..calls.call import Call, completed
from ..calls.declarations import read_tools
from ..calls.tools import Tool
from ..calls.trust import ENDORSES, endorsement_problems
from ..errors import ExpressionError, Problem, Rejected, Speller, UnknownName, pointer, unparsed
from ..limits import CONTROL, SUBMISSION_LIKENESS, Limits, exceeded, has_control_characters, size_of, value_problems
from ..messages import Message, inner_message
from ..paths import strings
from ..references import Reference
from ..schemas import compiled, schema_problem
from ..schemas.algebra import Algebra, types_of
from ..schemas.costs import EXCEEDED, reading
from ..state.context import Context, may_carry_data, message_problems, mode_of
from ..templates import expressions_in, standing_in
from .config import config_problems, settings_of
from .documents import is_call
from .graph import Writers
from .lanes import Unresolvable

# The output of a solution before anything runs: values that its schema forbids, expressions that can never be read
# (SPEC R4.9, R7.1), and schemas that no output fits (SPEC R12.3).

_NO_CALL: Final = -1


def misfit_problems(output: Any, schema: Any, *at: str | int) -> Iterator[Problem]:
    """Problems of an output by a valid schema, where references count as any value; null is no output."""
    if output is not None:
        for problem in compiled(schema).problems(standing_in(output), lenient=True):
            yield Problem(pointer(*at) + problem.pointer, problem.message, problem.cause)


def null_problems(schema: Any, *at: str | int) -> Iterator[Problem]:
    """A problem where a valid schema admits null alone, so that no answer could end its request (SPEC R12.3)."""
    if not compiled(schema).problems(None) and types_of(Algebra().made_of(schema)) == {"null"}:
        yield Problem(pointer(*at), "admits null alone, which means that there is no output yet: admit other values")


def output_problems(
    output: Any, context: Context, calls: Iterable[Call], *at: str | int, is_in_loop: bool = False
) -> Iterator[Problem]:
    """Expressions in an output that do not parse, or that neither the context nor a global call satisfies (SPEC R6.3).

    In a loop no call brings an error in time (SPEC R13.1).
    """
    writers: Writers | None = None
    for place, text in strings(output):
        try:
            expressions = expressions_in(text)
        except ExpressionError as error:
            yield unparsed(error, *at, *place)
            continue
        for expression in expressions:
            if writers is None:
                own = [call for call in calls if call.instance is None]
                writers = Writers(own, failing=() if is_in_loop else own)
            if not any(all(_may_be(one, context, writers) for one in group) for group in expression.alternatives):
                yield Problem(
                    pointer(*at, *place),
                    f"unresolvable reference {expression}: it is not in the context and no global call writes it",
                    Unresolvable(_NO_CALL, pointer(*place), expression, None),
                )


def _may_be(place: Reference, context: Context, writers: Writers) -> bool:
    return context.fold().exists(place) or next(writers.lines(place), None) is not None


# Request definitions: delegates that a model solves, in a submission or a file (SPEC R9.1).

_DEFINITION_KEYS: Final = ("context", "schema", "tools", "solution", "config", "description", ENDORSES)


def definition_problems(definition: Any, *at: str | int) -> Iterator[Problem]:
    """Problems of a delegate's request definition (SPEC R9.1)."""
    if not isinstance(definition, dict):
        yield Problem(pointer(*at), "a request definition must be an object with a context and a schema")
        return
    speller = Speller(likeness=SUBMISSION_LIKENESS)
    for key in sorted(map(str, definition.keys() - _DEFINITION_KEYS)):
        hint = speller.hint(key, _DEFINITION_KEYS) or f"; it has {', '.join(_DEFINITION_KEYS[:-1])}"
        yield Problem(pointer(*at, key), f"unknown property of a request definition{hint}")
    context = definition.get("context", [])
    if not isinstance(context, list):
        yield Problem(pointer(*at, "context"), "must be a list of messages")
    else:
        for index, message in enumerate(context):
            yield from message_problems(message, *at, "context", index)
        declared, found = read_tools(context, definition.get("tools"))
        found += _workflow_shape(definition, has_tools=bool(declared.places))
        yield from (replace(problem, pointer=pointer(*at) + problem.pointer) for problem in found)
    yield from config_problems(definition.get("config"), *at, "config")
    yield from endorsement_problems(definition, *at)
    schema = definition.get("schema")
    if schema is not None and (problem := schema_problem(schema, *at, "schema")) is not None:
        yield problem
    elif schema is not None:
        yield from null_problems(schema, *at, "schema")


def _workflow_shape(definition: Mapping[str, Any], *, has_tools: bool) -> Iterator[Problem]:
    """Problems of the shape of a definition's solution (SPEC R9.4)."""
    if (solution := definition.get("solution")) is None:
        return
    yield from _solution_calls(solution)[1]
    yield from _unknown_in_solution(solution)
    if has_tools:
        text = "a definition has a solution, which runs without a model, or tools, which a model calls: leave one out"
        yield Problem(pointer("solution"), text)


def workflow_calls(definition: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The calls of a workflow's definition, of whatever shape it is: those that are objects, older names replaced."""
    context, solution = definition.get("context"), definition.get("solution")
    messages = context if isinstance(context, list) else []
    calls, _ = _solution_calls(solution) if solution is not None else plan_calls(messages)
    return [completed(call, {}) for _, call in calls if isinstance(call, Mapping)]


def delegates_called(definition: Mapping[str, Any]) -> list[str]:
    """The delegates that the calls of a workflow's definition name."""
    named = (call.get("_delegate") for call in workflow_calls(definition))
    return sorted({name for name in named if isinstance(name, str)})


# Shapes in which a submission can be handed in (INTERFACE).
#
# A call alone, a solution alone, and a list of messages with calls among them; data, tools and plans as the content of
# chat messages. Each is read as the submission that it means; errors name the places of what was handed in.

_CALLS: Final = ("solution", "calls")
_CONTEXT: Final = ("context",)
_SOLUTION: Final = ("calls", "output", "meta", "advisors")
"""The properties of a solution; the last two are advice of the model that wrote it, which nothing reads (SPEC R15)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The places of the parts of a submission in the value that was handed in."""

    calls: Sequence[str] | None = None
    """The places of its calls; None where they are where a submission has them."""
    messages: Sequence[str] = ()
    """The places of its messages; none where they are where a submission has them."""

    def place(self, at: str) -> str:
        """The place in the value that was handed in, for a place in the submission (JSON pointers)."""
        for inside, places in ((pointer(*_CALLS), self.calls or ()), (pointer(*_CONTEXT), self.messages)):
            index, _, below = at.removeprefix(f"{inside}/").partition("/")
            if at.startswith(f"{inside}/") and index.isdecimal() and int(index) < len(places):
                return places[int(index)] + (f"/{below}" if below else "")
        if self.calls is None:
            return at
        return at.removeprefix(pointer("solution")) if at.startswith(pointer("solution", "output")) else ""

    def rejected(self, problems: Iterable[Problem]) -> Rejected:
        """The problems at their places."""
        return Rejected(replace(problem, pointer=self.place(problem.pointer)) for problem in problems)


WHOLE: Final = Shape()
"""The shape of a submission that was handed in as such."""


def shaped(value: Any) -> tuple[Any, Shape]:
    """The submission that is meant, and the shape in which it was handed in.

    A value of no known shape is returned unchanged; reading it finds the problem.
    """
    if isinstance(value, list):
        calls = {index: each for index, each in enumerate(value) if is_call(each)}
        context, places = _unwrapped({index: each for index, each in enumerate(value) if index not in calls})
        solution = {"solution": {"calls": [*calls.values()]}} if calls else {}
        return {"context": context, **solution}, Shape([*map(pointer, calls)], places)
    if is_call(value):
        return {"solution": {"calls": [value]}}, Shape([""])
    if isinstance(value, dict) and value.keys() <= {*_SOLUTION} and isinstance(value.get("calls"), list):
        return {"solution": value}, Shape([pointer("calls", index) for index in range(len(value["calls"]))])
    messages = value.get("context") if isinstance(value, dict) else None
    if isinstance(messages, list) and any(map(inner_message, messages)):
        context, places = _unwrapped(dict(enumerate(messages)), *_CONTEXT)
        return {**value, "context": context}, Shape(messages=places)
    return value, WHOLE


def _unwrapped(messages: Mapping[int, Any], *at: str) -> tuple[list[Any], list[str]]:
    """Messages, those that are the content of a chat message in its place, and where each was handed in."""
    inner = {
        index: content
        for index, each in messages.items()
        if (content := inner_message(each)) is not None and each.keys() == {"role", "content"}
    }
    places = [pointer(*at, index, *(["content"] if index in inner else [])) for index in messages]
    return [inner.get(index, each) for index, each in messages.items()], places


Pointer = tuple[str | int, ...]
_OUTPUT: Final = ("solution", "output")
_KEYS = frozenset({"context", "solution", "tools", "delegates", "schema", "config"})

_DECLARING: Final = ("schema", "tool")
_WITH_CALLS = '{"solution": {"calls": […]}}'
_BARE_CALLS = f"calls belong in the solution: write {_WITH_CALLS}"
_OF_A_TOOL = 'a property of a tool: its schema belongs in {"tools": {NAME: {"type": "object", "properties": {…}}}}'
_NOTHING_TO_RUN = "nothing to run: give a solution, a plan message in the context, or a schema for a model to answer"
_UNKNOWN_IN_SOLUTION = "unknown property; a solution has calls and output"
_UNKNOWN_KEY = f"unknown property; a submission has {', '.join(sorted(_KEYS))}"


@dataclass(frozen=True)
class Submission:
    """A submission. `calls` are the solution's, or the plan messages' where there is no solution."""

    context: Sequence[Message]
    calls: Sequence[tuple[Pointer, Any]]
    is_template: bool
    tools: Mapping[str, Tool]
    delegates: Mapping[str, Any]
    output: Any
    schema: Any
    config: Mapping[str, Any]
    is_whole: bool
    """True where every call, and every message that may carry data, could be read."""
    first: int = 0
    """The index of the first call: the calls of an amendment follow those of the run."""
    declared: Mapping[str, Pointer] = field(default_factory=dict)
    """Declared tool -> its place, in order; one that is not in `tools` is a bare name (SPEC R12.2)."""
    is_request: bool = False
    """True for a request for the loop: it has a schema, and no solution (SPEC R12.1)."""
    is_in_loop: bool = False
    """True for the calls of a loop's tick, whose errors come when all of them have ended (SPEC R13.1)."""
    shape: Shape = WHOLE
    """The shape in which the submission was handed in."""
    indexes: Sequence[int] = ()
    """The indexes of the calls, where they are not `first` and those that follow."""

    @property
    def numbered(self) -> Iterator[tuple[int, Pointer, Any]]:
        """The calls with their indexes and places."""
        return (
            (index, at, raw) for index, (at, raw) in zip(self.indexes or count(self.first), self.calls, strict=False)
        )

    @cached_property
    def is_lazy(self) -> bool:
        """Whether the calls wait until their plan is approved (SPEC R10.2, R13.7).

        The last plan message with a mode decides, otherwise the settings.
        """
        plans = (message for message in self.context if message.get("type") == "plan")
        modes = [mode for plan in plans if (mode := mode_of(plan)) is not None]
        return (modes[-1] if modes else self.config.get("mode")) == "lazy"

    def place(self, index: int) -> Pointer:
        """The place of a call in the submission."""
        return self._places[index]

    def text(self, index: int) -> Any:
        """A call as it is written."""
        return self._texts[index]

    @cached_property
    def _texts(self) -> dict[int, Any]:
        return {index: raw for index, _, raw in self.numbered}

    @cached_property
    def _places(self) -> dict[int, Pointer]:
        return {index: at for index, at, _ in self.numbered}

    @cached_property
    def instances(self) -> tuple[str, ...]:
        """The instances that occur in the context, in order (SPEC R10.1)."""
        if isinstance(self.context, Context):
            return self.context.instances
        return tuple(dict.fromkeys(m["_instance"] for m in self.context if isinstance(m.get("_instance"), str)))


def read_submission(value: Any, limits: Limits) -> tuple[Submission, list[Problem]]:
    """The submission, and all problems of its shape. Raises `Rejected` where it cannot be read at all."""
    value, problems = within_limits(value, limits)
    return read_parts(value, limits, problems)


def within_limits(value: Any, limits: Limits) -> tuple[dict[str, Any], list[Problem]]:
    """The parts of a submission that may be read, and a problem for each limit that is exceeded.

    Raises `Rejected` where nothing may be read.
    """
    if not isinstance(value, dict):
        shape = "a submission must be an object with a context, and a solution or a plan message"
        raise Rejected([Problem("", f"{shape}, or a list of messages and calls")])
    problems = list(value_problems(dict.fromkeys(value), limits)) or [
        _unknown_key(str(key)) for key in value if key not in _KEYS
    ]
    context = value.get("context", [])
    if not isinstance(context, list):
        raise Rejected([*problems, Problem("/context", "must be a list of messages")])
    if too_many := list(_count_problems(context, value.get("solution"), limits)):
        raise Rejected([*problems, *too_many])
    unfit = {at: found for at, part in _parts(value) if (found := list(_part_problems(part, limits, *at)))}
    problems += chain.from_iterable(unfit.values())
    if not all(at[0] == "context" and _can_be_missed(context[int(at[1])]) for at in unfit):
        raise Rejected(problems)
    context = [_stand_in(m) if ("context", index) in unfit else m for index, m in enumerate(context)]
    value = {**value, "context": context}
    problems += _size_problems(value, limits)
    if reading(*_schemas(value)).is_too_large(limits.schema_work):
        raise Rejected([*problems, Problem("", f"{EXCEEDED}: they are too large to be read")])
    return value, problems


def _unknown_key(key: str) -> Problem:
    if key.startswith("_"):
        return Problem(pointer(key), _OF_A_TOOL)
    return Problem(pointer(key), _BARE_CALLS if key == "calls" else _UNKNOWN_KEY, UnknownName(key, tuple(_KEYS)))


def read_parts(
    value: Mapping[str, Any], limits: Limits, problems: Iterable[Problem] = ()
) -> tuple[Submission, list[Problem]]:
    """The submission of a value within the limits, and the problems of its shape besides the given ones."""
    problems = [*problems]
    context = value["context"]
    messages, message_problems_ = _messages(context)
    problems += message_problems_
    declared, tool_problems = read_tools(context, value.get("tools"))
    problems += tool_problems
    delegates: Any = value.get("delegates") if value.get("delegates") is not None else {}
    problems += _delegate_problems(delegates)
    problems += _request_problems(value)
    solution = value.get("solution")
    if solution is not None:
        calls, call_problems = _solution_calls(solution)
        problems += _unknown_in_solution(solution)
    else:  # beside a request's schema a plan is context
        calls, call_problems = plan_calls(context) if value.get("schema") is None else ([], [])
    problems += call_problems
    is_request = solution is None and value.get("schema") is not None
    if solution is None and not calls and not call_problems and not is_request:
        problems.append(Problem("", _NOTHING_TO_RUN))
    if len(calls) > limits.solution_calls:
        (*list_of_calls, _), _ = calls[limits.solution_calls]
        raise Rejected(
            [
                *problems,
                Problem(
                    pointer(*list_of_calls), f"more than {limits.solution_calls} calls (ACTS_LIMIT_SOLUTION_CALLS)"
                ),
            ]
        )
    written: Mapping[str, Any] = solution if isinstance(solution, dict) else {}
    config: Any = value.get("config")
    submission = Submission(
        context=messages,
        calls=calls,
        is_template=solution is None and not is_request,
        is_request=is_request,
        tools=declared.tools,
        declared=declared.places,
        delegates=delegates if isinstance(delegates, dict) else {},
        output=written.get("output"),
        schema=value.get("schema"),
        config=settings_of(config) if isinstance(config, dict) else {},
        is_whole=len(messages) == len(context) and not call_problems,
    )
    return submission, problems


def _parts(value: Mapping[str, Any]) -> Iterator[tuple[Pointer, Any]]:
    """The parts that have limits of their own: each message, each call, each of the other properties."""
    for index, message in enumerate(value.get("context", ())):
        yield ("context", index), message
    solution = value.get("solution")
    if isinstance(solution, dict) and isinstance(solution.get("calls"), list):
        yield from ((("solution", key), item) for key, item in solution.items() if key != "calls")
        yield from ((("solution", "calls", index), call) for index, call in enumerate(solution["calls"]))
    else:
        yield ("solution",), solution
    yield from (((key,), value.get(key)) for key in ("tools", "delegates", "schema", "config"))


def _part_problems(part: Any, limits: Limits, *at: str | int) -> Iterator[Problem]:
    is_one_message = at[0] in ("context", "solution")
    return value_problems(part, limits if is_one_message else limits.for_all, *at)


def _count_problems(context: Sequence[Any], solution: Any, limits: Limits) -> Iterator[Problem]:
    """Problems of too many messages, instances or calls."""
    calls = solution.get("calls") if isinstance(solution, dict) else None
    instances = {m["_instance"] for m in context if isinstance(m, dict) and isinstance(m.get("_instance"), str)}
    for place, what, number, name in (
        ("/context", "messages", len(context), "messages"),
        ("/context", "instances", len(instances), "instances"),
        ("/solution/calls", "calls", len(calls) if isinstance(calls, list) else 0, "solution_calls"),
    ):
        if number > getattr(limits, name):
            yield Problem(place, exceeded(f"{number} {what}", limits, name))


def _size_problems(value: Mapping[str, Any], limits: Limits) -> Iterator[Problem]:
    total = 0
    for at, part in _parts(value):
        size = size_of(part)
        total += size
        if size > limits.message_bytes and at[0] in ("context", "solution"):
            yield Problem(pointer(*at), exceeded(f"{size} bytes", limits, "message_bytes"))
    if total > limits.submission_bytes:
        yield Problem("", exceeded(f"{total} bytes in all", limits, "submission_bytes"))


def _schemas(value: Mapping[str, Any]) -> Iterator[Any]:
    """The values that are schemas, or hold some."""
    yield from (value.get(key) for key in ("schema", "tools", "delegates"))
    yield from (message.get(key) for message in value["context"] if isinstance(message, dict) for key in _DECLARING)


def _messages(context: Sequence[Any]) -> tuple[list[Message], list[Problem]]:
    """The well-formed messages with stand-ins for others that cannot carry data, and all problems."""
    messages: list[Message] = []
    problems: list[Problem] = []
    for index, message in enumerate(context):
        found = list(message_problems(message, "context", index))
        problems += found
        if not found:
            messages.append(message)
        elif not may_carry_data(message):
            messages.append(_stand_in(message))
    return messages, problems


def _can_be_missed(message: Any) -> bool:
    """Whether a submission can be checked without a message that exceeds a limit."""
    return not may_carry_data(message) and message.get("type") not in ("plan", "tool")


def _stand_in(message: Message) -> Message:
    """A message that keeps only the instance of a malformed one without data (SPEC R10.1)."""
    instance = message.get("_instance")
    is_name = isinstance(instance, str) and instance and not any(value_problems(instance, Limits()))
    return {"type": "meta", **({"_instance": instance} if is_name else {})}


def _delegate_problems(delegates: Any) -> Iterator[Problem]:
    if not isinstance(delegates, dict):
        yield Problem("/delegates", "must be an object of delegate name to request definition")
        return
    for name, definition in delegates.items():
        if has_control_characters(name):
            yield Problem(pointer("delegates", name), CONTROL)
        yield from definition_problems(definition, "delegates", name)


def _request_problems(value: Mapping[str, Any]) -> Iterator[Problem]:
    schema = value.get("schema")
    if schema is not None and (problem := schema_problem(schema, "schema")) is not None:
        yield problem
    elif schema is not None:
        solution = value.get("solution")
        yield from misfit_problems(solution.get("output") if isinstance(solution, dict) else None, schema, *_OUTPUT)
        if solution is None:
            yield from null_problems(schema, "schema")
    yield from config_problems(value.get("config"), "config")


def _solution_calls(solution: Any) -> tuple[list[tuple[Pointer, Any]], list[Problem]]:
    if not isinstance(solution, dict):
        return [], [Problem("/solution", 'must be an object {"calls": […], "output": …}')]
    calls, unknown = solution.get("calls", []), [key for key in solution if key not in _SOLUTION]
    if "calls" not in solution and unknown:
        return [], [Problem("/solution", f'has no "calls", but {", ".join(sorted(unknown))}')]
    if not isinstance(calls, list):
        return [], [Problem("/solution/calls", "must be a list of calls")]
    return [(("solution", "calls", index), call) for index, call in enumerate(calls)], []


def _unknown_in_solution(solution: Any) -> Iterator[Problem]:
    """Properties that a solution does not have; one without calls is a problem as a whole."""
    for key in solution if isinstance(solution, dict) and "calls" in solution else ():
        if key not in _SOLUTION:
            yield Problem(pointer("solution", key), _UNKNOWN_IN_SOLUTION, UnknownName(key, _SOLUTION[:2]))


def plan_calls(context: Sequence[Any]) -> tuple[list[tuple[Pointer, Any]], list[Problem]]:
    """The templates of all plan messages: `{"type": "plan", "calls": […]}`, or inside a property `plan`."""
    found: list[tuple[Pointer, Any]] = []
    problems: list[Problem] = []
    for index, message in enumerate(context):
        if not isinstance(message, dict) or message.get("type") != "plan":
            continue
        at: Pointer = ("context", index)
        calls: Any = message
        for key in ("plan", "calls"):
            if isinstance(calls, dict) and key in calls:
                at, calls = (*at, key), calls[key]
        if isinstance(calls, list):
            found.extend(((*at, position), call) for position, call in enumerate(calls))
        else:
            problems.append(Problem(pointer(*at), "a plan needs a list of calls"))
    return found, problems
