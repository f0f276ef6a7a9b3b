"""Demands: what is admitted at a place of a call, by its tool and by what its activity takes (SPEC R4.1, R4.1a).

Both have to be met. An activity converts what it is given, so it admits more than its signature says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from protocol.calls.call import Call
from protocol.calls.tools import Executor
from protocol.language.errors import Problem, segments
from protocol.language.references import Path

from .cases import Shape
from .fitting import misfit


@dataclass(frozen=True, slots=True)
class Parameter:
    """A place in the calls of a tool that one activity runs, if any does."""

    tool: str
    activity: str | None
    path: Path


@dataclass(frozen=True, slots=True)
class Demand:
    """What must be met at a place: by whatever is `admitted`, and said in the words of what is `written`."""

    written: Shape
    admitted: Shape
    whose: str = ""
    """Who demands it, where it is not the tool: ` the signature of …`."""

    def problems(self, value: Any) -> list[Problem]:
        """What there is against a value."""
        found = self.admitted.problems(value)
        return (self.written.problems(value) or found) if found else []

    def misfit(self, given: Shape) -> str | None:
        """Why no value of a shape can meet it, or None where one might."""
        why = misfit(given, self.admitted)
        return (misfit(given, self.written) or why) if why is not None else None


def parameter_at(call: Call, at: str) -> Parameter:
    """The parameter, or the place in one, that a JSON pointer into a call leads to."""
    value: Any = call.raw
    path: Path = ()
    for segment in segments(at):
        key = int(segment) if isinstance(value, list) else segment
        value, path = value[key], (*path, key)
    is_activity = call.runner.executor is Executor.ACTIVITY
    return Parameter(call.tool, call.runner.name if is_activity else None, path)
