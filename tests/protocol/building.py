"""Short ways to say what the tests are about: calls, submissions, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from acts_celery.protocol import Context, Plan, Problem, Rejected, check_submission, parse
from acts_celery.protocol.engine.execution import Execution
from acts_celery.protocol.state.fold import Fold

from .driver import Driver, Function, Result

DATE = "2026-11-21T00:00:00Z"
ANY: dict[str, Any] = {"type": "object"}
"""The schema of a tool that admits everything."""


def call(tool: str = "give", to: str | None = None, **properties: Any) -> dict[str, Any]:
    """A call; `to` is its output path."""
    output = {} if to is None else {"_outputPath": to}
    return {"_tool": tool, **properties, **output}


def submission(
    *calls: Any, context: Sequence[Any] = (), tools: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """A submission with a solution. Every tool that is not declared admits everything, and its calls' code."""
    named: dict[str, Any] = {}
    for raw in calls:
        if isinstance(raw, dict) and isinstance(raw.get("_tool"), str):
            code: dict[str, Any] = {key: {} for key in ("_activity", "_delegate") if key in raw}
            named[raw["_tool"]] = {**ANY, **named.get(raw["_tool"], {}), **code}
    return {
        "context": list(context),
        "solution": {"calls": list(calls), "output": None},
        "tools": {**named, **(tools or {})},
        **more,
    }


def plan_submission(
    *calls: Any, context: Sequence[Any] = (), tools: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """A submission whose context holds a plan of these calls."""
    value = submission(*calls, context=context, tools=tools, **more)
    del value["solution"]
    value["context"].append({"type": "plan", "calls": list(calls)})
    return value


def checked(*calls: Any, **parts: Any) -> Plan:
    """The plan of a submission that is valid; keywords of `check_submission` go through."""
    parts, options = _split(parts)
    return check_submission(submission(*calls, **parts), **options)


def problems(value: Any, **options: Any) -> tuple[Problem, ...]:
    """What is wrong with a submission; it must be rejected."""
    with pytest.raises(Rejected) as rejected:
        check_submission(value, **options)
    return rejected.value.errors


def problems_of(*calls: Any, **parts: Any) -> tuple[Problem, ...]:
    """What is wrong with a submission of these calls."""
    parts, options = _split(parts)
    return problems(submission(*calls, **parts), **options)


def pointers(found: Sequence[Problem]) -> list[str]:
    """Where the problems are."""
    return [problem.pointer for problem in found]


def run(*calls: Any, functions: Mapping[str, Function] | None = None, date: str = DATE, **parts: Any) -> Result:
    """Run a submission of these calls, one call at a time in the order listed; `give` gives its parameter `value`."""
    return run_plan(checked(*calls, **parts), functions=functions, date=date)


def run_plan(plan: Plan, *, functions: Mapping[str, Function] | None = None, date: str = DATE) -> Result:
    """Run a checked plan, one call at a time in the order listed."""
    return Driver(plan, {**FUNCTIONS, **(functions or {})}, date=date).run()


def executing(plan: Plan) -> tuple[Execution, Fold]:
    """The global lane of a plan before anything was decided, and its values."""
    fold = Fold()
    for position, message in enumerate(plan.submission.context):
        fold.append(message, f"message {position}")
    return Execution.of(plan, plan.lanes[None], fold), fold


def statuses(result: Result, instance: str | None = None) -> list[str]:
    """The statuses of a lane's calls, in the order listed."""
    return [status.value for _, status in sorted(result.statuses[instance].items())]


def written(path: str, value: Any, method: str | None = None, **more: Any) -> dict[str, Any]:
    """A message as a call writes it; the value is nested at the path as R4.3 says."""
    kind, *keys = path.removeprefix("†").split(".")
    data = value
    for key in reversed(keys):
        data = {key: data}
    message = {"type": "data", "kind": kind, "data": data, "_call": {"_tool": "t", "_outputPath": path}, "_date": "d"}
    return {**message, **({} if method is None else {"_outputMethod": method}), **more}


def value_at(context: Context, reference: str, instance: str | None = None) -> Any:
    """The value of a reference, or `MISSING`."""
    return context.fold(instance).value(parse(reference).references[0])


def without_errors(data: Mapping[str, Any]) -> dict[str, Any]:
    """A reader's values without the errors: what those of several calls merge to hangs on their order."""
    return {kind: value for kind, value in data.items() if kind != "error"}


def _split(parts: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parts of the submission, and the options of the check."""
    options = ("activities", "model", "strict_meta", "limits", "registered", "allow")
    renamed = {"delegates" if key == "registered" else key: parts[key] for key in options if key in parts}
    return {key: part for key, part in parts.items() if key not in options}, renamed


def give(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    """Give back the parameter `value`, null where there is none."""
    return parameters.get("value")


def see(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    """Give back the context."""
    return dict(context)


def echo(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    """Give back all parameters."""
    return dict(parameters)


def fail(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    """Raise what the parameter `because` says."""
    raise LookupError(parameters.get("because", "no reason"))


FUNCTIONS: dict[str, Function] = {"give": give, "see": see, "echo": echo, "fail": fail}
