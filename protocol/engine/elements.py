"""Elements: what each execution of a call with `_each` is given and has come to, and what the call comes to by them
(SPEC R4.10).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.calls.contract import CONTRACT_CHANGED
from acts_celery.protocol.calls.elements import element_index, element_of, elements_of, list_problems
from acts_celery.protocol.language.errors import shortened
from acts_celery.protocol.language.limits import Limits, exceeded, size_of, value_problems

from .decisions import Failure, Success
from .statuses import Status

_NAMED: Final = 10
"""How many failed elements a call's reason names."""


@dataclass
class Elements:
    """The elements of one call that is carried out for each."""

    calls: Mapping[int, Call]
    """By their numbers (see `calls.elements`): the call itself under the number of the element."""
    given: list[dict[str, Any]]
    results: list[Any]
    """In order; None where there is none yet, or no more."""
    left: int
    failed: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    """The errors of those that have failed."""

    @classmethod
    def of(cls, call: Call, parameters: Mapping[str, Any]) -> Elements:
        """Those of a call with resolved parameters without `unfit`."""
        given = elements_of(call, parameters)
        numbers = (element_index(call.index, element) for element in range(len(given)))
        calls = {number: replace(call, index=number) for number in numbers}
        return cls(calls, given, [None] * len(given), len(given))

    def parameters(self, index: int) -> dict[str, Any]:
        """What an element is carried out with."""
        return self.given[_at(index)]

    def end(self, index: int, status: Status, value: Any, error: Mapping[str, Any] | None) -> None:
        """Take note of how an element has ended."""
        self.left -= 1
        self.results[_at(index)] = value
        if status is Status.FAILED:
            self.failed[_at(index)] = error or {}

    def result(self, limits: Limits) -> Success | Failure:
        """What the call comes to when all have ended: the results in order, null for those that failed. It has failed
        where all have.
        """
        if self.failed and len(self.failed) == len(self.results):
            if all(error.get("type") == CONTRACT_CHANGED for error in self.failed.values()):
                return Failure(CONTRACT_CHANGED, self.reason or "", is_for_no_alternative=True)
            return Failure("ElementsFailed", self.reason or "")
        if (size := size_of(self.results)) > limits.call_bytes:
            return Failure("TooLarge", exceeded(f"the results have {size} bytes", limits, "call_bytes"))
        problem = next(value_problems(self.results, limits), None)
        return Success(self.results) if problem is None else Failure("TooLarge", problem.message)

    @property
    def reason(self) -> str | None:
        """Which elements have failed, if any."""
        if not self.failed:
            return None
        first, *_ = named = sorted(self.failed)[:_NAMED]
        more = ", …" if len(self.failed) > _NAMED else ""
        error = self.failed[first]
        told = f"{error.get('type')}: {shortened(str(error.get('message')), 200)}"
        count = f"{len(self.failed)} of {len(self.results)} elements failed"
        return f"{count} ({', '.join(map(str, named))}{more}); element {first}: {told}"


def unfit(call: Call, parameters: Mapping[str, Any], limits: Limits) -> Failure | None:
    """Why resolved parameters have no elements, or too many."""
    if problems := list(list_problems(call, parameters)):
        return Failure("InvalidParameters", "; ".join(map(str, problems)))
    if (size := len(parameters[call.each[0]])) > limits.elements:
        return Failure("TooLarge", exceeded(f"_each is given {size} elements", limits, "elements"))
    return None


def _at(index: int) -> int:
    element = element_of(index)
    assert element is not None
    return element
