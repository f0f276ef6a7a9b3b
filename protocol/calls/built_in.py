"""Built-in tools: what runs without anybody's code, and is known whatever is registered (SPEC R4.12).

`choose` writes its `value` to the first of its alternatives whose schema in `cases` admits it, else to the last. The
engine does that itself, when the call is ready.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from ..errors import OutputError, Problem, pointer, segments
from ..schemas import Schema, compiled, schema_problem
from ..schemas.costs import EXCEEDED
from .call import Call
from .outputs import Output
from .tools import Executor, Tool

CHOOSE: Final = "choose"
VALUE: Final = "value"
CASES: Final = "cases"
BUILT_IN: Final[Mapping[str, Mapping[str, Any]]] = {
    CHOOSE: {
        "type": "object",
        "description": "Writes `value` to the first of the places of `_outputPath` (A || B) whose schema in `cases` "
        "admits it, else to the last.",
        "properties": {
            VALUE: {"description": "What is looked at, and written."},
            CASES: {
                "type": "array",
                "items": {"type": ["object", "boolean"]},
                "description": "A JSON Schema for each place, in their order; the last may be left out.",
            },
        },
        "required": [VALUE, CASES],
        "additionalProperties": False,
    },
}
"""What a call of each takes, unless a tool of that name says more."""
_TOOLS: Final = {name: Tool(name, schema) for name, schema in BUILT_IN.items()}


def chooses(call: Call) -> bool:
    """Whether the engine itself chooses among the alternatives of a call."""
    return call.runner.executor is Executor.ACTIVITY and call.runner.name == CHOOSE


def chosen_output(call: Call, parameters: Mapping[str, Any]) -> Output:
    """The value of a call that chooses, bound to one of its alternatives. Raises `OutputError` where it would take too
    long to find out which.
    """
    value, groups = parameters[VALUE], call.alternatives
    taken = (group for group, case in zip(groups, parameters[CASES], strict=False) if _admits(case, value))
    return Output(" && ".join(map(str, next(taken, groups[-1]))), value)


def _admits(case: Schema, value: Any) -> bool:
    problems = compiled(case).problems(value, known=())
    if any(EXCEEDED in problem.message for problem in problems):
        raise OutputError(problems[0].message)
    return not problems


def built_in_problems(call: Call, tool: Tool | None) -> Iterator[Problem]:
    """Problems of a call of a built-in tool, beyond what the schema of its own tool says."""
    if not chooses(call):
        return
    if tool is None or tool.declaration is not BUILT_IN[CHOOSE]:
        for problem in _TOOLS[CHOOSE].problems({**call.standing_in(), "_tool": CHOOSE}, lenient=True):
            named = problem if problem.pointer else replace(problem, message=f"{call.tool}: {problem.message}")
            yield named
    if call.each:
        yield Problem("/_each", f"{CHOOSE} writes one value: let a call of it follow for each, or use an activity")
    if call.output is None:
        text = f"{CHOOSE} writes to one of several places: add an _outputPath, such as †state.yes || †state.no"
        yield Problem("", text)
    read = dict.fromkeys(at for at, _ in call.reads if segments(at)[0] == CASES)
    for at in read:
        yield Problem(at, f"a schema in {CASES} holds no reference: put what is compared into {VALUE}")
    cases = call.parameters.get(CASES)
    if isinstance(cases, list) and not read:
        yield from _case_problems(call, cases)


def _case_problems(call: Call, cases: list[Any]) -> Iterator[Problem]:
    for index, case in enumerate(cases):
        if isinstance(case, dict) and (problem := schema_problem(case, CASES, index)) is not None:
            yield problem
    number = len(call.alternatives)
    if number and len(cases) not in (number, number - 1):
        text = f"has {len(cases)} schemas for {number} places: one for each place of _outputPath, or all but the last"
        yield Problem(pointer(CASES), text)
