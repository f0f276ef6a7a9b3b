"""Visibility: which calls can ever see a value, proven from the submission alone (SPEC R8).

A call is given its parameters and its scopes, and nothing else. It *sees* a place directly where a parameter reads at,
above or below it, or a scope covers any of it. What comes of such a call may tell of the value, so whoever reads its
results or errors, and theirs in turn, is listed apart as *derived*.

A delegate gets its own messages, those scopes and those parameters (`delegates.delegate_context`); its context is made
of nothing else, and a call inside it reads that context only. So its inner calls can narrow what it was given and never
widen it: what this module says of the call bounds everything the delegate does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .calls import Call
from .errors import ExpressionError
from .paths import MISSING
from .plan import Plan
from .readers import Readers
from .references import DAGGER, Reference, parse
from .tools import Executor


@dataclass(frozen=True, slots=True)
class Sight:
    """A call that can see a value: `how` names the parameters and scopes (or, derived, the results) it comes by."""

    index: int
    tool: str
    executor: Executor
    name: str
    """Under which name the executor is registered."""
    how: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "index": self.index,
            "tool": self.tool,
            "executor": self.executor.value,
            "name": self.name,
            "how": list(self.how),
        }


@dataclass(frozen=True, slots=True)
class Visibility:
    """Who can see a place: `direct` its value itself, `derived` what was made from it."""

    place: Reference
    direct: tuple[Sight, ...]
    derived: tuple[Sight, ...]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "path": str(self.place),
            "direct": [sight.to_dict() for sight in self.direct],
            "derived": [sight.to_dict() for sight in self.derived],
        }


_ERRORS: Final = Reference("error")
"""Where a call that fails says why, in words that may tell of what it was given (SPEC R7.2)."""


def who_sees(plan: Plan, path: str) -> Visibility:
    """The calls that can ever see a value at, above or below a place. Raises `ExpressionError` where it is none."""
    expression = parse(path if path.startswith(DAGGER) else DAGGER + path)
    if len(expression.references) != 1:
        raise ExpressionError(path, 0, "one reference")
    place = expression.references[0]
    calls = {call.index: call for call in plan.calls if _is_executed(call)}
    direct = {index: how for index, call in calls.items() if (how := tuple(_ways(call, place)))}
    derived = _derived(plan, calls, direct)
    return Visibility(place, _sights(calls, direct), _sights(calls, derived))


def _is_executed(call: Call) -> bool:
    """Whether anybody is handed the call: a thought and a result that is there already are not."""
    return not call.is_thought and call.given is MISSING


def _ways(call: Call, place: Reference) -> Iterator[str]:
    """How a call comes by a place: the value itself, or of one joined by `&&` whether it is there."""
    for at, expression in call.reads:
        if any(group[-1].overlaps(place) for group in expression.alternatives):
            yield f"parameter {at}"
        elif any(reference.overlaps(place) for reference in expression.references):
            yield f"parameter {at} (only whether it is there)"
    for scope in call.scopes:
        if scope.overlaps(place):
            yield f"scope {scope}" if scope.path else f"scope {scope.kind}"


def _derived(plan: Plan, calls: Mapping[int, Call], direct: Collection[int]) -> dict[int, tuple[str, ...]]:
    """The calls that read what those calls write, and so on; each with the first result it comes by."""
    readers = Readers(calls.values())
    found: dict[int, tuple[str, ...]] = {}
    queue = deque(direct)
    done: set[tuple[str | None, Reference]] = set()
    while queue:
        writer = calls[queue.popleft()]
        for place in (*writer.output.references, _ERRORS) if writer.output is not None else ():
            if (writer.instance, place) in done:
                continue
            done.add((writer.instance, place))
            for index in sorted(readers.at(place, but=writer.index)):
                if index not in found and index not in direct and _reaches(plan, writer, calls[index]):
                    found[index] = (f"{place} of call {writer.index}",)
                    queue.append(index)
    return found


def _reaches(plan: Plan, writer: Call, reader: Call) -> bool:
    """Whether what the one writes is ever in sight of the other (SPEC R3.6, R10)."""
    is_everywhere = plan.submission.is_template and reader.instance is None
    return writer.instance is None or reader.instance == writer.instance or is_everywhere


def _sights(calls: Mapping[int, Call], found: Mapping[int, tuple[str, ...]]) -> tuple[Sight, ...]:
    return tuple(
        Sight(index, calls[index].tool, calls[index].runner.executor, calls[index].runner.name, found[index])
        for index in sorted(found)
    )
