"""Built-in tools: what runs without anybody's code, and is known whatever is registered (SPEC R4.12).

`choose` writes its `value` to the first of its alternatives whose schema in `cases` admits it, else to the last. The
engine does that itself, when the call is ready. `wait` ends after some seconds, or at a moment, and occupies no worker
until then. Its result is the moment at which it ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from .. import limits
from ..errors import OutputError, Problem, pointer, segments
from ..schemas import Schema, compiled, schema_problem
from ..schemas.costs import EXCEEDED
from .call import Call
from .outputs import Output
from .tools import Executor, Tool

CHOOSE: Final = "choose"
VALUE: Final = "value"
CASES: Final = "cases"
WAIT: Final = "wait"
SECONDS: Final = "seconds"
UNTIL: Final = "until"
BUILT_IN: Final[Mapping[str, Mapping[str, Any]]] = {
    CHOOSE: {
        "type": "object",
        "description": "Writes `value` to the first place of `_outputPath` (A || B) whose schema in `cases` admits it, "
        "or to the last place.",
        "properties": {
            VALUE: {"description": "The value to test and to write."},
            CASES: {
                "type": "array",
                "items": {"type": ["object", "boolean"]},
                "description": "One JSON Schema for each place, in order. You can leave out the last.",
            },
        },
        "required": [VALUE, CASES],
        "additionalProperties": False,
    },
    WAIT: {
        "type": "object",
        "description": "Waits for some seconds, or until a moment; not at all if that is past. The result is the "
        "moment at which it ended.",
        "properties": {
            SECONDS: {"type": "number", "minimum": 0, "maximum": limits.LONGEST_WAIT_SECONDS},
            UNTIL: {"type": "string", "description": "A moment in ISO 8601, such as 2026-12-01T09:00:00Z."},
        },
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
    },
}
"""The schemas of their calls, which a declared tool of the same name may narrow."""
_TOOLS: Final = {name: Tool(name, schema) for name, schema in BUILT_IN.items()}


def is_built_in(call: Call) -> bool:
    """Whether a call runs without anybody's code."""
    return call.runner.executor is Executor.ACTIVITY and call.runner.name in BUILT_IN


def chooses(call: Call) -> bool:
    """Whether the engine itself chooses among the alternatives of a call."""
    return is_built_in(call) and call.runner.name == CHOOSE


def waits(call: Call) -> bool:
    """Whether a call ends at a moment, and no code runs it."""
    return is_built_in(call) and call.runner.name == WAIT


def unfit_parameters(call: Call, parameters: Mapping[str, Any]) -> list[Problem]:
    """Problems of the resolved parameters of a call of a built-in tool, whatever the declaration of its tool admits."""
    given = {**call.with_parameters(parameters), "_tool": call.runner.name}
    return _TOOLS[call.runner.name].problems(given, is_secret=True)


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
    name = call.runner.name
    if not is_built_in(call):
        return
    if tool is None or tool.declaration is not BUILT_IN[name]:
        for problem in _TOOLS[name].problems({**call.standing_in(), "_tool": name}, lenient=True):
            yield problem if problem.pointer else replace(problem, message=f"{call.tool}: {problem.message}")
    yield from _choice_problems(call) if chooses(call) else _wait_problems(call)


def _wait_problems(call: Call) -> Iterator[Problem]:
    if call.each:
        yield Problem("/_each", f"{WAIT} waits once: leave _each out")
    if call.output is None:
        text = (
            "nothing could wait for it: add an _outputPath, and list it in the _after of the calls that should follow"
        )
        yield Problem("", text)
    until = call.parameters.get(UNTIL)
    if isinstance(until, str) and not any(at == pointer(UNTIL) for at, _ in call.reads) and moment_ms(until) is None:
        yield Problem(pointer(UNTIL), NO_MOMENT)


def _choice_problems(call: Call) -> Iterator[Problem]:
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


# Moments: when a call of `wait` ends. A moment is a number of milliseconds since 1970, and in texts ISO 8601 with an
# offset from UTC: without one nobody knows which moment is meant.

NO_MOMENT: Final = "must be a moment in ISO 8601 with its offset from UTC, such as 2026-12-01T09:00:00Z"
_MOMENT: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?(?:[Zz]|([+-])(\d\d):?(\d\d)?)", re.ASCII
)
_DAYS: Final = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def due_ms(parameters: Mapping[str, Any], date: str) -> int:
    """The moment at which a call with these resolved parameters ends that is ready at a date. Raises `OutputError`."""
    now_ms = moment_ms(date) or 0
    if SECONDS in parameters:
        return now_ms + int(parameters[SECONDS] * 1000)
    found = moment_ms(parameters[UNTIL])
    if found is None:
        raise OutputError(NO_MOMENT)
    if found - now_ms > limits.LONGEST_WAIT_SECONDS * 1000:
        raise OutputError(f"must be at most {limits.LONGEST_WAIT_SECONDS} seconds ahead")
    return found


def moment_ms(text: str) -> int | None:
    """The moment that a text names; None where it names none."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, hours, minutes = (int(found[at] or 0) for at in (*range(1, 7), 9, 10))
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    most = _DAYS[month - 1] + (is_leap and month == 2) if 1 <= month <= 12 else 0
    if not (1 <= day <= most and max(hour, hours) < 24 and max(minute, minutes, second) < 60):
        return None
    before = year - 1
    days = before * 365 + before // 4 - before // 100 + before // 400 - limits.DAYS_UNTIL_1970
    days += sum(_DAYS[: month - 1]) + (is_leap and month > 2) + day - 1
    offset = (hours * 60 + minutes) * (-1 if found[8] == "-" else 1)
    milliseconds = second * 1000 + int((found[7] or "").ljust(3, "0")[:3])
    return ((days * 24 + hour) * 60 + minute - offset) * 60_000 + milliseconds
