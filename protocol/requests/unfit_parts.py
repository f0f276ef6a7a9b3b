"""Takes out the parts of an answer that cannot be kept, each by itself: one call is refused, the others run.

An integer beyond 64 bits, a value of too many levels, NaN (SPEC R4.1, R13.2). The log and the model see a likeness.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from acts_celery.protocol.language.errors import Problem, pointer, shortened
from acts_celery.protocol.language.limits import Limits, scalar_problem, value_problems


def with_likenesses(value: Mapping[str, Any], limits: Limits) -> tuple[Mapping[str, Any], list[Problem]]:
    """A solution in which a likeness stands for each call, and for an output, that cannot be kept, and what is wrong
    with those: an integer beyond 64 bits, too many levels.
    """
    if next(value_problems(value, limits), None) is None:
        return value, []
    calls, problems = value.get("calls"), list[Problem]()

    def kept(part: Any, *where: str | int) -> Any:
        inside = [part] if len(where) == 1 else [[part]]  # as deep as it stands
        if (unfit := next(value_problems(inside, limits), None)) is None:
            return part
        problems.append(replace(unfit, pointer=pointer("solution", *where) + unfit.pointer[2 * len(where) :]))
        likeness = _likeness(part, limits.depth - len(where))
        if next(value_problems(likeness, limits), None) is None:
            return likeness
        tool = _likeness(part.get("_tool"), 0) if isinstance(part, dict) else None
        return {"_tool": tool}

    found = {**value, **({"output": kept(value["output"], "output")} if "output" in value else {})}
    if isinstance(calls, list):
        found["calls"] = [kept(call, "calls", at) for at, call in enumerate(calls)]
    return found, problems


def _likeness(value: Any, levels: int) -> Any:
    """A value with a text for each part that cannot be kept."""
    if isinstance(value, dict):
        pairs = ((str(key).encode(errors="replace").decode(), part) for key, part in value.items())
        return {key: _likeness(part, levels - 1) for key, part in pairs} if levels > 0 else "{…}"
    if isinstance(value, list):
        return [_likeness(part, levels - 1) for part in value] if levels > 0 else "[…]"
    return value if scalar_problem(value) is None else shortened(str(value).encode(errors="replace").decode())
