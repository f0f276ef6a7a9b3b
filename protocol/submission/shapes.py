"""Shapes of what is handed in: a submission, or what stands for one (INTERFACE).

A call alone, a solution alone, and a list of messages with calls among them. Each is read as the submission that it
means; errors name the places of what was handed in.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from acts_celery.protocol.language.errors import Problem, Rejected, pointer

_CALLS: Final = ("solution", "calls")
_CONTEXT: Final = ("context",)
_SOLUTION: Final = frozenset({"calls", "output"})


@dataclass(frozen=True, slots=True)
class Shape:
    """Where the parts of a submission stand in what was handed in."""

    calls: Sequence[str] | None = None
    """The places of its calls; None where they are where a submission has them."""
    messages: Sequence[str] = ()
    """The places of its messages."""

    def place(self, at: str) -> str:
        """The place, as a JSON pointer, of what stands there in the submission."""
        if self.calls is None:
            return at
        for inside, places in ((pointer(*_CALLS), self.calls), (pointer(*_CONTEXT), self.messages)):
            index, _, below = at.removeprefix(f"{inside}/").partition("/")
            if at.startswith(f"{inside}/") and index.isdecimal() and int(index) < len(places):
                return places[int(index)] + (f"/{below}" if below else "")
        return at.removeprefix(pointer("solution")) if at.startswith(pointer("solution", "output")) else ""

    def rejected(self, problems: Iterable[Problem]) -> Rejected:
        """The problems at their places."""
        return Rejected(replace(problem, pointer=self.place(problem.pointer)) for problem in problems)


WHOLE: Final = Shape()
"""Every part stands where a submission has it."""


def shaped(value: Any) -> tuple[Any, Shape]:
    """The submission that is meant, and the shape in which it was handed in. What has none of these shapes is given
    back as it is, to be found wrong.
    """
    if isinstance(value, list):
        calls = {index: each for index, each in enumerate(value) if _is_call(each)}
        messages = {index: each for index, each in enumerate(value) if index not in calls}
        solution = {"solution": {"calls": [*calls.values()]}} if calls else {}
        return {"context": [*messages.values()], **solution}, Shape([*map(pointer, calls)], [*map(pointer, messages)])
    if _is_call(value):
        return {"solution": {"calls": [value]}}, Shape([""])
    if isinstance(value, dict) and value.keys() <= _SOLUTION and isinstance(value.get("calls"), list):
        return {"solution": value}, Shape([pointer("calls", index) for index in range(len(value["calls"]))])
    return value, WHOLE


def _is_call(value: Any) -> bool:
    return isinstance(value, dict) and "_tool" in value
