"""A submission: what is handed in, read and held against shape and limits (SPEC R7.1, R10.2).

Reading is lenient in one way only: it goes on after an error, so that all of them can be told at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgpack

from .errors import Problem, Rejected, pointer
from .limits import Limits, value_problems
from .messages import Message, message_problems
from .tools import Tool, read_tools

Pointer = tuple[str | int, ...]
_KEYS = frozenset({"context", "solution", "tools", "delegates", "schema", "config"})


@dataclass(frozen=True)
class Submission:
    """What was handed in. `calls` are those of the solution, or of the plan messages where there is no solution."""

    context: Sequence[Message]
    calls: Sequence[tuple[Pointer, Any]]
    is_template: bool
    tools: Mapping[str, Tool] = field(default_factory=dict)
    delegates: Mapping[str, Any] = field(default_factory=dict)
    output: Any = None
    schema: Any = None
    config: Mapping[str, Any] = field(default_factory=dict)

    @property
    def instances(self) -> tuple[str, ...]:
        """The instances that occur in the context, in order (SPEC R10.1)."""
        return tuple(dict.fromkeys(m["_instance"] for m in self.context if isinstance(m.get("_instance"), str)))


def decode(data: bytes) -> Any:
    """The value of a submission's bytes, JSON (UTF-8) or msgpack. Raises `Rejected`."""
    if not data.strip():
        raise Rejected([Problem("", "the submission is empty")])
    if 0x80 <= data[0] <= 0x8F or data[0] in (0xDE, 0xDF):
        return _decode_msgpack(data)
    try:
        return json.loads(data, parse_constant=_refuse_constant)
    except RecursionError:
        raise Rejected([Problem("", f"nested deeper than {Limits().depth} levels")]) from None
    except UnicodeDecodeError as error:
        raise Rejected([Problem("", f"not UTF-8: byte {error.start} cannot be decoded")]) from None
    except ValueError as error:
        raise Rejected([Problem("", f"not JSON: {error}")]) from None


def read_submission(value: Any, limits: Limits) -> tuple[Submission, list[Problem]]:
    """The submission and everything that is wrong with its shape. Raises `Rejected` where it has none at all."""
    if not isinstance(value, dict):
        raise Rejected([Problem("", "a submission must be an object with a context, and a solution or a plan message")])
    problems = [Problem(pointer(key), _unknown_key(key)) for key in value if key not in _KEYS]
    context = value.get("context", [])
    if not isinstance(context, list):
        raise Rejected([*problems, Problem("/context", "must be a list of messages")])
    problems += _limit_problems(value, context, limits)
    if problems and any("nested deeper" in problem.message for problem in problems):
        raise Rejected(problems)
    for index, message in enumerate(context):
        problems.extend(message_problems(message, "context", index))
    context = [message for message in context if isinstance(message, dict)]
    tools, tool_problems = read_tools(value.get("context", []), value.get("tools"))
    problems += tool_problems
    delegates = value.get("delegates") or {}
    problems.extend(_delegate_problems(delegates))
    solution = value.get("solution")
    calls, call_problems = _solution_calls(solution) if solution is not None else _plan_calls(value.get("context", []))
    problems += call_problems
    if solution is None and not calls and not call_problems:
        problems.append(Problem("", _nothing_to_run(value)))
    if len(calls) > limits.solution_calls:
        problems.append(Problem("/solution/calls", f"more than {limits.solution_calls} calls"))
    submission = Submission(
        context=context,
        calls=calls,
        is_template=solution is None,
        tools=tools,
        delegates=delegates if isinstance(delegates, dict) else {},
        output=solution.get("output") if isinstance(solution, dict) else None,
        schema=value.get("schema"),
        config=value.get("config") or {},
    )
    return submission, problems


def _decode_msgpack(data: bytes) -> Any:
    try:
        return msgpack.unpackb(data, strict_map_key=True)
    except (ValueError, msgpack.exceptions.UnpackException, RecursionError) as error:
        raise Rejected([Problem("", f"not msgpack: {error or type(error).__name__}")]) from None


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _unknown_key(key: Any) -> str:
    return f"unknown property; a submission has {', '.join(sorted(_KEYS))}"


def _nothing_to_run(value: Mapping[str, Any]) -> str:
    if "schema" in value:
        return (
            "a request for the loop (schema without solution) is not supported yet: give a solution or a plan message"
        )
    return "nothing to run: give a solution, or a plan message in the context"


def _limit_problems(value: Mapping[str, Any], context: Sequence[Any], limits: Limits) -> list[Problem]:
    problems: list[Problem] = []
    for key in _KEYS - {"context", "solution"}:
        problems.extend(value_problems(value.get(key), limits, key))
    solution = value.get("solution")
    if isinstance(solution, dict) and isinstance(solution.get("calls"), list):
        for key, item in solution.items():
            if key != "calls":
                problems.extend(value_problems(item, limits, "solution", key))
        for index, call in enumerate(solution["calls"]):
            problems.extend(_sized_problems(call, limits, "solution", "calls", index))
    else:
        problems.extend(value_problems(solution, limits, "solution"))
    for index, message in enumerate(context):
        problems.extend(_sized_problems(message, limits, "context", index))
    return problems


def _sized_problems(value: Any, limits: Limits, *at: str | int) -> Iterator[Problem]:
    found = False
    for problem in value_problems(value, limits, *at):
        found = True
        yield problem
    if not found and (size := len(msgpack.packb(value))) > limits.message_bytes:
        yield Problem(pointer(*at), f"{size} bytes, where {limits.message_bytes} are allowed")


def _delegate_problems(delegates: Any) -> Iterator[Problem]:
    if not isinstance(delegates, dict):
        yield Problem("/delegates", "must be an object of delegate name to request definition")
        return
    for name, definition in delegates.items():
        yield from definition_problems(definition, "delegates", name)


def definition_problems(definition: Any, *at: str | int) -> Iterator[Problem]:
    """What is wrong with a delegate's request definition (SPEC R9.1)."""
    if not isinstance(definition, dict):
        yield Problem(pointer(*at), "a request definition must be an object with a context and a schema")
        return
    context = definition.get("context", [])
    if not isinstance(context, list):
        yield Problem(pointer(*at, "context"), "must be a list of messages")
    else:
        for index, message in enumerate(context):
            yield from message_problems(message, *at, "context", index)
    if not isinstance(definition.get("schema", {}), (dict, bool)):
        yield Problem(pointer(*at, "schema"), "must be a JSON Schema")


def _solution_calls(solution: Any) -> tuple[list[tuple[Pointer, Any]], list[Problem]]:
    if not isinstance(solution, dict):
        return [], [Problem("/solution", 'must be an object {"calls": […], "output": …}')]
    calls = solution.get("calls", [])
    if not isinstance(calls, list):
        return [], [Problem("/solution/calls", "must be a list of calls")]
    return [(("solution", "calls", index), call) for index, call in enumerate(calls)], []


def _plan_calls(context: Sequence[Any]) -> tuple[list[tuple[Pointer, Any]], list[Problem]]:
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
