"""Amendments: other calls in place of those of a run that have not begun (SPEC R11.1).

An amendment is `{"calls": […]}` or `{"solution": {"calls": […]}}`, with `tools` and `delegates` as in a submission. Its
calls are checked like those of a submission whose context is all that the run's log holds; calls at work are writers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from protocol.calls.call import Call
from protocol.language.errors import Problem, Rejected, pointer
from protocol.language.messages import Message

from .checking import RejectedCalls, Surroundings, check_calls
from .layout import Layout
from .submission import read_submission

_KEYS: Final = frozenset({"calls", "solution", "tools", "delegates"})


@dataclass(frozen=True)
class SoFar:
    """A run as an amendment finds it."""

    messages: Sequence[Message]
    """Every message of its log, in order."""
    begun: Mapping[str | None, Sequence[Call]]
    """The calls at work, by instance."""
    first: int
    """The index that the first new call gets: behind all that are there."""
    is_template: bool = False
    """Whether calls run once for each instance, as a plan's do."""
    tools: Mapping[str, Any] = field(default_factory=dict)
    """What its calls have named so far, with the schemas."""
    delegates: Mapping[str, Any] = field(default_factory=dict)


def check_amendment(value: Any, so_far: SoFar, known: Surroundings) -> Layout:
    """The layout of the new calls alone. Raises `Rejected` with every error, its pointers into the amendment."""
    if not isinstance(value, dict) or ("calls" in value) is ("solution" in value):
        raise Rejected([Problem("", 'an amendment must be an object with "calls", or with a "solution" that has them')])
    unknown = [
        Problem(pointer(key), f"unknown property; an amendment has {', '.join(sorted(_KEYS))}")
        for key in value
        if key not in _KEYS
    ]
    whole = {
        "context": list(so_far.messages),
        "solution": value.get("solution", {"calls": value.get("calls")}),
        "tools": _joined(so_far.tools, value.get("tools")),
        "delegates": _joined(so_far.delegates, value.get("delegates")),
    }
    try:
        submission, problems = read_submission(whole, known.limits)
        submission = replace(submission, is_template=so_far.is_template, first=so_far.first)
        return check_calls(submission, [*unknown, *problems], known, begun=so_far.begun)
    except RejectedCalls as rejected:
        raise RejectedCalls((placed(problem, value) for problem in rejected.errors), rejected.scene) from None
    except Rejected as rejected:
        raise Rejected(placed(problem, value) for problem in rejected.errors) from None


def placed(problem: Problem, value: Mapping[str, Any]) -> Problem:
    """A problem of the submission that was made of an amendment, at its place in the amendment."""
    return problem if "solution" in value else replace(problem, pointer=problem.pointer.removeprefix("/solution"))


def _joined(own: Mapping[str, Any], given: Any) -> Any:
    """What the run has and what is given; anything but an object stays as it is, to be found wrong."""
    return {**own, **given} if isinstance(given, dict) else dict(own) if given is None else given
