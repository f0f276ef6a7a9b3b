"""How single calls of a run stand, folded from its log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from acts_celery.protocol.engine.costs import CURRENCY, Cost
from acts_celery.protocol.engine.statuses import CallStatus, Status
from acts_celery.worker.storage.codes import Code
from acts_celery.worker.storage.condition import Condition
from acts_celery.worker.storage.entries import moment_ms
from acts_celery.worker.storage.lane_state import CallState, Elements, End, LaneState
from acts_celery.worker.storage.run_state import RunState
from acts_celery.worker.wire.attempts import call_name

from .timings import Timing, Waits, timing_of

_NONE: Final[Mapping[Any, Any]] = MappingProxyType({})

CANCELLED: Final = "the run was cancelled"
"""Why a call that had not begun was skipped."""
UNKNOWN: Final = "Unknown"
"""The type of the error of a call that was at work when its run was ended: nobody heard of its end (SPEC R4.11)."""
STOPPED: Final = "Stopped"
"""That of a call whose attempts had failed when its run was ended, and that was to be tried again."""


def cut_short(reason: str, condition: Condition | None = None) -> dict[str, str]:
    """The error of a call that had begun when its run was ended for a reason, in that condition if it is known."""
    if condition is not None and condition.is_between and condition.failures:
        return {"type": STOPPED, "message": f"{reason} after attempt {condition.attempt} failed: there is no other"}
    return {"type": UNKNOWN, "message": f"{reason}, while it was at work: its end is not known"}


@dataclass(frozen=True, slots=True)
class CallResult:
    """The state of one call of one instance. `id` is stable: it is the call's idempotency key within the run."""

    id: str
    index: int
    tool: str
    instance: str | None
    status: CallStatus
    error: Mapping[str, Any] | None = None
    reason: str | None = None
    tick: int | None = None
    """Which tick of a loop brought it (SPEC R13.9)."""
    child: str | None = None
    """The run that has answered it, or is to (SPEC R9.3)."""
    elements: Elements | None = None
    """Of a call that is carried out for each element, and has begun."""
    timing: Timing | None = None
    """When it began and ended, where it has."""
    worker: str | None = None
    """Which worker has carried it out (SPEC R11.9); None before that, and where none has: it was sent and forgotten,
    answered by a person, skipped, or is carried out for each element by several.
    """
    version: str | None = None
    """Which version of its code that was; None where a model has answered, too."""
    cost: Mapping[str, Any] | None = None
    """What asking models for it has cost: `requests`, `tokens` that were charged, `usage`, `seconds`, `money` and
    `currency` where the price is known, the `model` of a single request, `calls`, how many its run has started (SPEC
    R13.3).
    """
    stale: bool = False
    """Whether it has read what a retry may have written otherwise since (SPEC R11.8)."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON; `tick` is there in a loop only, `child` if a child run answers the call, `elements` if it has
        `_each`, `timing` if it has begun or ended, `cost` where a model was asked,
        `stale` where it is.
        """
        tick = {"tick": self.tick} if self.tick is not None else {}
        child = {"child": self.child} if self.child is not None else {}
        timing = {"timing": self.timing.to_dict()} if self.timing is not None else {}
        return {
            "id": self.id,
            "index": self.index,
            "tool": self.tool,
            "instance": self.instance,
            "status": self.status,
            "error": dict(self.error) if self.error is not None else None,
            "reason": self.reason,
            "worker": self.worker,
            "version": self.version,
            **tick,
            **child,
            **({"elements": self.elements.to_dict()} if self.elements is not None else {}),
            **timing,
            **({"cost": dict(self.cost)} if self.cost is not None else {}),
            **({"stale": True} if self.stale else {}),
        }


class LaneCalls:
    """The calls of a run's lanes, where the run has this status and these calls, by instance and index, are at work,
    in that condition. With `waits` they say for how long they waited for a worker.
    """

    def __init__(
        self,
        run: RunState,
        codes: Mapping[int, Code],
        status: str,
        at_work: Mapping[tuple[str | None, int], Condition] = _NONE,
        *,
        waits: bool = False,
    ) -> None:
        self._run = run
        self._codes = codes
        self._at_work = at_work
        self._waits = Waits(run.definition, run.shared.record) if waits else None
        self.stop_reason = CANCELLED if status == "cancelled" else run.exceeded
        """Why the calls were skipped that had not ended when the run was; None where it ended with its last call."""
        reason = self.stop_reason
        self._stopped = End("", Status.SKIPPED, None, reason, None) if reason is not None else None

    def of(self, instance: str | None) -> Iterator[CallResult]:
        """Those of an instance, or the global ones."""
        lane = self._run.lanes[instance]
        before = self._waits.of(lane.record, instance) if self._waits is not None and lane.records else _NONE
        ticks = lane.ticks
        for index, call in lane.known.items():
            state, condition = lane.call(index), self._at_work.get((instance, index))
            is_begun = condition is not None or state.child is not None or state.elements is not None
            end = state.end or (self._cut_short(condition) if is_begun else self._stopped)
            timing = Timing(attempts=condition.attempt) if end is None and condition is not None else None
            if state.end is not None:
                ready_ms = self._ready(lane, state.since_ms, before.get(index))
                timing = timing_of(state.end.id, state.end.spent, since_ms=ready_ms)
            code = self._codes.get(end.code) if end is not None and end.code is not None else None
            yield CallResult(
                id=call_name(index, instance),
                index=index,
                tool=call.tool,
                instance=instance,
                status=(end.status if end is not None else _under_way(state, is_begun)).value,
                error=end.error if end is not None else None,
                reason=end.reason if end is not None else None,
                tick=ticks.get(index),
                child=state.child,
                elements=state.elements,
                timing=timing,
                worker=code.worker if code is not None else None,
                version=code.version if code is not None else None,
                cost=_shown_cost(state.cost),
                stale=state.is_stale,
            )

    def _cut_short(self, condition: Condition | None) -> End | None:
        """How a call has ended that had begun when the run was ended; None where it was not."""
        reason = self.stop_reason
        return End("", Status.FAILED, cut_short(reason, condition), reason, None) if reason is not None else None

    def _ready(self, lane: LaneState, since_ms: int, before: Iterable[int] | None) -> int | None:
        """When all that a call waited for had ended; None where that is not asked for."""
        if before is None:
            return None
        ends = (lane.end(index) or self._run.shared.end(index) for index in before)
        return max((since_ms, *(moment_ms(end.id) for end in ends if end is not None)))


def _shown_cost(cost: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """What a call has cost, for readers: an amount in the currency, where its price is known."""
    if cost is None or "nanodollars" not in cost:
        return cost
    kept = {key: value for key, value in cost.items() if key != "nanodollars"}
    return {**kept, "money": Cost.read(cost).money, "currency": CURRENCY}


def _under_way(call: CallState, is_begun: bool) -> Status:
    """How a call stands that has not ended."""
    if is_begun:
        return Status.RUNNING
    return Status.HELD if call.is_held else Status.WAITING
