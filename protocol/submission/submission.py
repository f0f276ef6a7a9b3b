"""A submission: what is handed in, read and held against shape and limits (SPEC R7.1, R10.2).

Reading is lenient in one way only: it goes on after an error, so that all of them are listed at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count
from typing import Any, Final

from acts_celery.protocol.calls.declarations import read_tools
from acts_celery.protocol.calls.tools import Tool
from acts_celery.protocol.language.errors import Problem, Rejected, UnknownName, pointer
from acts_celery.protocol.language.limits import (
    CONTROL,
    Limits,
    exceeded,
    has_control_characters,
    size_of,
    value_problems,
)
from acts_celery.protocol.language.messages import Message
from acts_celery.protocol.schemas import schema_problem
from acts_celery.protocol.schemas.work import EXCEEDED, reading
from acts_celery.protocol.state.shapes import may_carry_data, message_problems, mode_of

from .config import config_problems, settings_of
from .definitions import definition_problems
from .output import misfit_problems, null_problems
from .shapes import WHOLE, Shape

Pointer = tuple[str | int, ...]
_OUTPUT: Final = ("solution", "output")
_KEYS = frozenset({"context", "solution", "tools", "delegates", "schema", "config"})

_DECLARING: Final = ("schema", "tool")
_WITH_CALLS = '{"solution": {"calls": […]}}'
_BARE_CALLS = f"calls stand in the solution: write {_WITH_CALLS}"
_OF_A_TOOL = 'a property of a tool: its schema stands in {"tools": {NAME: {"type": "object", "properties": {…}}}}'
_NOTHING_TO_RUN = "nothing to run: give a solution, a plan message in the context, or a schema for a model to answer"
_UNKNOWN_KEY = f"unknown property; a submission has {', '.join(sorted(_KEYS))}"


@dataclass(frozen=True)
class Submission:
    """What was handed in. `calls` are those of the solution, or of the plan messages where there is no solution."""

    context: Sequence[Message]
    calls: Sequence[tuple[Pointer, Any]]
    is_template: bool
    tools: Mapping[str, Tool]
    delegates: Mapping[str, Any]
    output: Any
    schema: Any
    config: Mapping[str, Any]
    is_whole: bool
    """Whether every call handed in, and every message that may carry data, could be taken up."""
    first: int = 0
    """The index of the first call: those of an amendment come behind the calls that are there."""
    beside: Mapping[str, Any] = field(default_factory=dict)
    """What a solution holds besides its calls and its output: it means nothing."""
    declared: Mapping[str, Pointer] = field(default_factory=dict)
    """Where each declared tool stands, in order; one that is not in `tools` is a bare name (SPEC R12.2)."""
    is_request: bool = False
    """Whether it is a request for the loop: a schema, and no solution (SPEC R12.1)."""
    is_in_loop: bool = False
    """Whether its calls are those of a loop's tick: their errors come when all of them have ended (SPEC R13.1)."""
    shape: Shape = WHOLE
    """The shape in which it was handed in."""
    indexes: Sequence[int] = ()
    """Those of the calls, where they do not follow each other from `first` on."""

    @property
    def numbered(self) -> Iterator[tuple[int, Pointer, Any]]:
        """The calls with their indexes and places."""
        return (
            (index, at, raw) for index, (at, raw) in zip(self.indexes or count(self.first), self.calls, strict=False)
        )

    @cached_property
    def is_lazy(self) -> bool:
        """Whether its calls wait for the approval of their plan: by the last plan message that says a mode, else by the
        settings (SPEC R10.2, R13.7).
        """
        plans = (message for message in self.context if message.get("type") == "plan")
        modes = [mode for plan in plans if (mode := mode_of(plan)) is not None]
        return (modes[-1] if modes else self.config.get("mode")) == "lazy"

    def place(self, index: int) -> Pointer:
        """Where a call stands."""
        return self._places[index]

    @cached_property
    def _places(self) -> dict[int, Pointer]:
        return {index: at for index, at, _ in self.numbered}

    @cached_property
    def instances(self) -> tuple[str, ...]:
        """The instances that occur in the context, in order (SPEC R10.1)."""
        return tuple(dict.fromkeys(m["_instance"] for m in self.context if isinstance(m.get("_instance"), str)))


def read_submission(value: Any, limits: Limits) -> tuple[Submission, list[Problem]]:
    """The submission and everything that is wrong with its shape. Raises `Rejected` where it has none at all."""
    value, problems = within_limits(value, limits)
    return read_parts(value, limits, problems)


def within_limits(value: Any, limits: Limits) -> tuple[dict[str, Any], list[Problem]]:
    """What may be read of a submission, and everything in it that exceeds a limit. Raises `Rejected` where nothing may
    be.
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
    """The submission that a value is which was held against the limits, with these problems and those of its shape."""
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
        beside={key: part for key, part in written.items() if key not in ("calls", "output")},
    )
    return submission, problems


def _parts(value: Mapping[str, Any]) -> Iterator[tuple[Pointer, Any]]:
    """What limits are applied to one by one: each message, each call, each of the other properties."""
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
    """Whether there is more of something than is to be looked at."""
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
    """What is read as schemas, or holds some."""
    yield from (value.get(key) for key in ("schema", "tools", "delegates"))
    yield from (message.get(key) for message in value["context"] if isinstance(message, dict) for key in _DECLARING)


def _messages(context: Sequence[Any]) -> tuple[list[Message], list[Problem]]:
    """The messages that are well formed, what stands for those that cannot carry data, and what is wrong."""
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
    """Whether a submission can be looked at without a message that cannot travel."""
    return not may_carry_data(message) and message.get("type") not in ("plan", "tool")


def _stand_in(message: Message) -> Message:
    """What is left of a malformed message that carries no data: that its instance occurs (SPEC R10.1)."""
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
    calls = solution.get("calls", [])
    if "calls" not in solution and solution.keys() - {"output"}:
        return [], [Problem("/solution", f'has no "calls", but {", ".join(sorted(solution.keys() - {"output"}))}')]
    if not isinstance(calls, list):
        return [], [Problem("/solution/calls", "must be a list of calls")]
    return [(("solution", "calls", index), call) for index, call in enumerate(calls)], []


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
