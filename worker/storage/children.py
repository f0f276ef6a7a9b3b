"""Child runs: how a run and the call that it is to answer know each other (SPEC R9.3, R13.10).

The call stands as `child` in its run's `calls` (lua/advance.lua), with the child's id; the child's state says whose
call it is. A child that has ended answers once; what is lost on the way, the sweep sends again as long as the call
waits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from protocol.engine.execution import Failure, Success
from worker.messaging.attempts import Attempt, CallId
from worker.messaging.messages import Delivery, TaskMessage, delivery_task
from worker.messaging.tokens import Tokens

if TYPE_CHECKING:
    from .entries import Entry

PARENT = "parent"
"""The field of a child's state."""


@dataclass(frozen=True, slots=True)
class Parent:
    """The call that a run is to answer."""

    call: CallId
    attempt: int
    depth: int
    """How many runs stand above the child."""

    def to_fields(self) -> dict[str, Any]:
        """The fields of the child's state."""
        call = self.call
        return {PARENT: json.dumps([call.run, call.instance, call.index, self.attempt, self.depth])}

    @classmethod
    def read(cls, field: bytes | str | None) -> Self | None:
        """The inverse, of the field's value; None where a run is no child."""
        if field is None:
            return None
        run, instance, index, attempt, depth = json.loads(field)
        return cls(CallId(run, instance, index), attempt, depth)

    def waits_for(self, entry: bytes | None, child: str) -> bool:
        """Whether the call, by its entry in `calls`, waits for that child, or is about to."""
        if entry is None:
            return False
        condition, _, rest = entry.partition(b":")
        return condition == b"running" or (condition == b"child" and rest.rpartition(b":")[2] == child.encode())

    def answer(self, result: Success | Failure, tokens: Tokens, queue: str) -> TaskMessage:
        """The task that brings the child's result to the call."""
        return delivery_task(Delivery(tokens.given(Attempt(self.call, self.attempt)), result), queue)


def child_result(status: str, end: Mapping[str, Any] | None) -> Success | Failure:
    """What a child that has ended answers; `end` is what its loop ended with."""
    end = end or {}
    if status == "completed":
        return Success(end.get("output"))
    return Failure("ChildFailed", end.get("reason") or f"its run is {status}")


def child_id(call: CallId, generation: int = 0) -> str:
    """The run that answers a call: the same for whoever starts it. A call that is retried by hand has another one."""
    begun, _, _ = call.run.partition("-")
    text = "\x1f".join((call.run, call.member, str(generation)))
    return f"{begun}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def end_of(entries: Iterable[Entry]) -> Mapping[str, Any] | None:
    """What the loop of a run ended with last, by its log."""
    ends = [entry.loop.end for entry in entries if entry.loop is not None and entry.loop.end is not None]
    return ends[-1] if ends else None
