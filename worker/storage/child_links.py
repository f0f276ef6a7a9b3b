"""Child runs: how a run and the call that it is to answer know each other (SPEC R9.3, R13.10).

The call stands as `child` in its run's `calls` (lua/commit.lua), with the child's id; the child's state says whose
call it is. A child that has ended answers once; what is lost on the way, the sweep sends again as long as the call
waits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from acts_celery.protocol.engine.decisions import Failure, Success
from acts_celery.protocol.engine.loop import Loop
from acts_celery.protocol.engine.loop_limits import LoopLimits
from acts_celery.protocol.state.labels import TRUSTED, Labels, marks_of
from acts_celery.worker.wire.attempts import Attempt, CallId
from acts_celery.worker.wire.messages import Delivery, delivery_task
from acts_celery.worker.wire.task_messages import TaskMessage
from acts_celery.worker.wire.tokens import Tokens
from acts_celery.worker.wire.traces import TracePlace, place_of_run

from .budgets import Budget
from .condition import Condition, Kind
from .loop_entries import follow

if TYPE_CHECKING:
    from .entries import Entry

PARENT = "parent"
"""The field of a child's state."""
DELEGATE = "delegate"
"""The field of a child's state that has the name of the delegate that it is."""
TRACE = "trace"
"""The field of a run's state that has the span under which the run was submitted: a caller's, or a child's call."""


@dataclass(frozen=True, slots=True)
class Parent:
    """The call that a run is to answer."""

    call: CallId
    attempt: int
    depth: int
    """How many runs stand above the child."""
    budgets: tuple[Budget, ...] = ()
    """What the child takes from, the nearest first (SPEC R13.3)."""

    def to_fields(self) -> dict[str, Any]:
        """The fields of the child's state."""
        call = self.call
        budgets = [[budget.run, budget.tokens, budget.calls, budget.money] for budget in self.budgets]
        return {PARENT: json.dumps([call.run, call.instance, call.index, self.attempt, self.depth, budgets])}

    @classmethod
    def read(cls, field: bytes | str | None) -> Self | None:
        """The inverse, of the field's value; None where a run is no child."""
        if field is None:
            return None
        run, instance, index, attempt, depth, *more = json.loads(field)
        return cls(CallId(run, instance, index), attempt, depth, tuple(Budget(*one) for one in (more or [[]])[0]))

    def waits_for(self, entry: bytes | None, child: str) -> bool:
        """Whether the call, by its entry in `calls`, waits for that child, or is about to."""
        found = Condition.read(entry)
        return found is not None and (found.kind is Kind.RUNNING or _is_child(found, child))

    def answer(self, child: str, result: Success | Failure, tokens: Tokens, queue: str) -> TaskMessage:
        """The task that brings the child's result to the call."""
        return delivery_task(Delivery(tokens.given(Attempt(self.call, self.attempt)), result, child), queue)


def place_under(run: str, above: bytes | None) -> str:
    """A run's place in a trace by that field; empty where it is the root of a trace of its own."""
    found = TracePlace.unpack(above.decode()) if above is not None else None
    return place_of_run(run, found).pack() if found is not None else ""


def is_answered_by(entry: bytes | None, child: str) -> bool:
    """Whether a call, by its entry in `calls`, is to be answered by that child and no other."""
    found = Condition.read(entry)
    return found is not None and _is_child(found, child)


def _is_child(condition: Condition, child: str) -> bool:
    return condition.kind is Kind.CHILD and condition.holder == child


def budgets_of(run: str, limits: LoopLimits, parent: bytes | None, *spent: bytes | None) -> tuple[Budget, ...]:
    """What the calls of a loop take from, by the fields of its state: its own budget, and those above it."""
    tokens, money = (int(each or 0) for each in spent)
    above = Parent.read(parent)
    return Budget.of(run, limits, tokens, money), *(above.budgets if above is not None else ())


def child_result(status: str, loop: Loop, labels: Labels) -> Success | Failure:
    """What a child that has ended answers; its loop says what it has cost. `labels` are the sources of all in its
    log.
    """
    end, spent = loop.ended, {**loop.cost.pack(), "calls": loop.calls}
    if status == "completed":
        return Success(end.output if end is not None else None, spent, labels)
    reason = (end.reason if end is not None else None) or f"its run is {status}"
    return Failure("ChildFailed", reason, spent, labels=labels)


def child_id(call: CallId, again: int = 0) -> str:
    """The run that answers a call: the same for all starters. A call that is carried out again (see `Attempt`) has
    another one.
    """
    begun, _, _ = call.run.partition("-")
    text = "\x1f".join((call.run, call.member, str(again)))
    return f"{begun}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def result_of(status: str, entries: Iterable[Entry]) -> Success | Failure:
    """What a child that has ended answers, by its log."""
    loop, labels = Loop(), TRUSTED
    for entry in entries:
        loop = follow(loop, entry)
        labels |= marks_of(entry.message).labels if entry.message is not None else TRUSTED
    return child_result(status, loop, labels)
