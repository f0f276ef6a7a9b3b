"""Replacing a held call by other calls (SPEC R14.2): a decision that is carried out as an amendment.

The calls run where the held one would, and stand in for it: they see what is there, what calls at work write and each
other; what waited for it waits for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from acts_celery.protocol import Problem, Rejected
from acts_celery.protocol.language.errors import pointer
from acts_celery.worker.storage.audit import AuditRecord
from acts_celery.worker.wire.attempts import CallId


@dataclass(frozen=True, slots=True)
class Replacement:
    """The held call that the calls of an amendment stand in for."""

    call: CallId
    ruling: bytes
    """The decision, as the log has it."""
    who: AuditRecord
    refuse: Callable[[], None]
    """Raises where the call waits for no person (any more)."""


def placed_calls(value: Mapping[str, Any], instance: str | None) -> dict[str, Any]:
    """The amendment with its calls in the instance of the call that they stand in for.

    Raises `Rejected` where they are not to run there. What else is wrong with them, the check of the amendment says.
    """
    solution = value.get("solution")
    of, at = (solution, ("solution",)) if isinstance(solution, dict) else (value, ())
    calls = of.get("calls")
    if not isinstance(calls, list):
        return dict(value)
    if problems := list(_misplaced(calls, instance, at)):
        raise Rejected(problems)
    own = {} if instance is None else {"_instance": instance}
    moved = {**of, "calls": [{**call, **own} if isinstance(call, dict) else call for call in calls]}
    return {**value, "solution": moved} if at else moved


def _misplaced(calls: list[Any], instance: str | None, at: tuple[str, ...]) -> Iterator[Problem]:
    if not calls:
        yield Problem(pointer(*at, "calls"), "no call would replace the held call: reject it instead")
    for index, call in enumerate(calls):
        if not isinstance(call, dict):
            continue
        if call.get("_gather"):
            yield Problem(
                pointer(*at, "calls", index, "_gather"), "a call that replaces a held call cannot have _gather"
            )
        if call.get("_instance", instance) != instance:
            where = "globally" if instance is None else f"in instance {instance!r}"
            yield Problem(
                pointer(*at, "calls", index, "_instance"),
                f"the held call runs {where}: the calls that replace it must run there, too",
            )
