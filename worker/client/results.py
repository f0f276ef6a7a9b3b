"""What a run has come to, folded from its log: the shape that `acts run --json` prints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.engine.execution import Status
from acts_celery.protocol.engine.loop import Loop, Tick
from acts_celery.protocol.engine.solution_output import holds_references, output_fault, resolve_output
from acts_celery.protocol.state.fold import Fold
from acts_celery.worker.messaging.attempts import call_name
from acts_celery.worker.storage.definition import Definition
from acts_celery.worker.storage.entries import Entry
from acts_celery.worker.storage.held_calls import unpack_hold
from acts_celery.worker.storage.lane import id_key, known_calls, ticks_of
from acts_celery.worker.storage.loop_entries import follow

from .display import counted, html
from .timings import Timing, Waits, milliseconds, timing_of

_NONE: Final[Mapping[Any, Any]] = MappingProxyType({})

CANCELLED: Final = "the run was cancelled"
"""Why a call that had not ended was skipped."""

End = tuple[Status, Mapping[str, Any] | None, str | None]
"""How a call has ended: its status, error and reason."""


@dataclass(slots=True)
class Elements:
    """How the elements of a call with `_each` stand (SPEC R4.10)."""

    total: int
    ended: int = 0
    """Those that failed included."""
    failed: int = 0


@dataclass(frozen=True, slots=True)
class CallResult:
    """How one call of one instance stands. `id` is stable: it is the call's idempotency key within the run."""

    id: str
    index: int
    tool: str
    instance: str | None
    status: str
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
    cost: Mapping[str, Any] | None = None
    """What asking models for it has cost: `tokens` that were charged, and where they are known `model`, `usage` and
    `seconds`, or `calls`, how many its run has started (SPEC R13.3).
    """

    def to_dict(self) -> dict[str, Any]:
        """As JSON; `tick` is there in a loop only, `child` where a run of its own answers the call, `elements` where
        it is carried out for each, `timing` where it has begun or ended, `cost` where a model was asked.
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
            **tick,
            **child,
            **({"elements": asdict(self.elements)} if self.elements is not None else {}),
            **timing,
            **({"cost": dict(self.cost)} if self.cost is not None else {}),
        }


@dataclass(frozen=True, slots=True)
class TickResult:
    """What one tick of a loop has come to (SPEC R13.5)."""

    tick: int
    model: str | None = None
    usage: Mapping[str, Any] | None = None
    calls: tuple[int, ...] = ()
    """The indexes of the calls that it brought."""
    errors: int = 0
    set_aside: str | None = None
    """Why its output was not accepted."""

    def to_dict(self) -> dict[str, Any]:
        """As JSON; `set_aside` is there only where there is a reason."""
        return {
            "tick": self.tick,
            "model": self.model,
            "usage": dict(self.usage) if self.usage is not None else None,
            "calls": list(self.calls),
            "errors": self.errors,
            **({"set_aside": self.set_aside} if self.set_aside is not None else {}),
        }


@dataclass(frozen=True, repr=False)
class Result:
    """A run's status, values and calls at some moment."""

    run: str
    status: str
    output: Any
    global_data: Mapping[str, Any]
    instances: Mapping[str, Mapping[str, Any]]
    calls: Sequence[CallResult]
    conflicts: Sequence[str] = field(default=())
    """Operations that could not be applied (SPEC R3.4), as text."""
    reason: str | None = None
    """Why the run has failed although no call did: its output cannot be read (SPEC R4.9), what was promised has not
    come (SPEC R11.6), or its loop has reached a limit (SPEC R13.3).
    """
    ticks: Sequence[TickResult] | None = None
    """The ticks of its loop that were answered, where it is a request."""

    def data(self, instance: str | None = None) -> Mapping[str, Any]:
        """Kind to folded value, as a reader in the instance (or a global one) sees it. Raises `KeyError`."""
        return self.global_data if instance is None else self.instances[instance]

    def __repr__(self) -> str:
        return f"<Result of {self.run}: {self.status}, {counted(call.status for call in self.calls) or 'no calls'}>"

    def _repr_html_(self) -> str:
        return html(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """The shape of `acts run --json`; `ticks`, `conflicts` and `reason` are there only where there are any."""
        ticks = {"ticks": [tick.to_dict() for tick in self.ticks]} if self.ticks is not None else {}
        conflicts = {"conflicts": list(self.conflicts)} if self.conflicts else {}
        reason = {"reason": self.reason} if self.reason is not None else {}
        return {
            "run": self.run,
            "status": self.status,
            "output": self.output,
            "global": dict(self.global_data),
            "instances": {instance: dict(data) for instance, data in self.instances.items()},
            "calls": [call.to_dict() for call in self.calls],
            **ticks,
            **conflicts,
            **reason,
        }


class Assembly:
    """A result in the making: it is fed with a run's log, now or as of a past id, and keeps no entry.

    What was under way at a past moment is not in the log: such calls count as waiting.
    """

    def __init__(self, run: str, definition: Definition, instances: Iterable[str], *, at: str | None = None) -> None:
        self._run = run
        self._definition = definition
        self._at = id_key(at) if at is not None else None
        shared = Fold()
        self._lanes: dict[str | None, _Lane] = {None: _Lane(shared)}
        self._lanes.update((instance, _Lane(Fold(shared))) for instance in instances)
        self._missed: tuple[str, ...] = ()
        self._loop = Loop()
        self._exceeded: str | None = None
        """Why the run was ended: it took more than a run may."""

    def feed(self, entry: Entry) -> None:
        """Take in the next entry; of what came after the moment only what the lanes were submitted with counts."""
        if entry.run_status is not None and (self._at is None or id_key(entry.id) <= self._at):
            self._exceeded = entry.reason
        if not entry.is_of_lane:
            return
        has_come = self._at is None or id_key(entry.id) <= self._at
        if entry.tick is not None:
            self._loop = follow(self._loop, entry) if has_come else self._loop
            return
        lane = self._lanes[entry.instance]
        if entry.record is not None and (has_come or not lane.records):
            lane.records.append(entry.record)
        if entry.lays_out and has_come:
            lane.laid_out_ms = milliseconds(entry.id)
        if not has_come:
            return
        if entry.amendment is not None:
            self._definition = self._definition.amended(entry.amendment)
        self._missed = self._missed or entry.missed
        if entry.message is not None:
            lane.fold.append(entry.message, f"message {entry.id}")
        if entry.call is not None and entry.status is not None:
            reason = entry.reason if entry.by is None else f"given by hand by {entry.by}"
            lane.ended[entry.call] = (entry.status, entry.error, reason)
            lane.timings[entry.call] = timing_of(entry, since_ms=lane.decided.get(entry.call, lane.laid_out_ms))
            lane.cost[entry.call] = entry.cost or lane.cost.get(entry.call)
        elif entry.call is not None and (entry.snapshot is not None or entry.ruling is not None):
            lane.held[entry.call] = entry.snapshot is not None
            lane.decided[entry.call] = milliseconds(entry.id)
        if entry.call is not None and entry.child is not None:
            lane.children[entry.call] = entry.child
        if entry.call is not None and entry.spread is not None:
            lane.elements[entry.call] = Elements(unpack_hold(entry.spread).elements)
        elif entry.call in lane.elements and entry.part is not None:
            lane.elements[entry.call].ended += 1
            lane.elements[entry.call].failed += entry.part.status is Status.FAILED
            if entry.cost is not None:
                before = lane.cost.get(entry.call) or {}
                lane.cost[entry.call] = {"tokens": before.get("tokens", 0) + entry.cost["tokens"]}
        for index in entry.undone:
            lane.children.pop(index, None)
            lane.elements.pop(index, None)
            lane.ended.pop(index, None)
            lane.held.pop(index, None)
            lane.decided.pop(index, None)
            lane.timings.pop(index, None)

    def result(
        self, status: str, at_work: Mapping[tuple[str | None, int], int] = _NONE, *, waits: bool = False
    ) -> Result:
        """The result, where the run has this status and these calls, by instance and index, are at work, each at that
        attempt. With `waits` it says for how long calls waited for a worker.
        """
        shared = self._lanes[None].fold
        folds = {instance: lane.fold for instance, lane in self._lanes.items()}
        conflicts = [str(conflict) for fold in folds.values() for conflict in fold.conflicts()]
        output, reason = _output(self._definition.output, status, shared)
        if (end := self._loop.ended) is not None:
            output, reason = end.output, end.reason
        if self._missed and status in ("completed", "failed"):
            seconds = self._definition.config["promise_seconds"]
            reason = f"{', '.join(self._missed)}: promised, and not there within {seconds:g} s"
        reason = self._exceeded or reason
        calls = sorted(self._calls(status, at_work, waits), key=lambda call: call.index)
        return Result(
            run=self._run,
            status="failed" if reason is not None else status,
            output=output,
            reason=reason,
            global_data=shared.snapshot(),
            instances={instance: fold.snapshot() for instance, fold in folds.items() if instance is not None},
            calls=calls,
            conflicts=tuple(dict.fromkeys(conflicts)),
            ticks=self._ticks_of(calls) if self._definition.request is not None else None,
        )

    def _ticks_of(self, calls: Iterable[CallResult]) -> tuple[TickResult, ...]:
        brought = defaultdict[int | None, list[int]](list)
        for call in calls:
            brought[call.tick].append(call.index)
        answered = (tick for tick in self._loop.ticks if tick.solution is not None)
        return tuple(_tick_result(tick, dict.fromkeys(brought[tick.number])) for tick in answered)

    def _stopped(self, status: str) -> End | None:
        """How a call has ended that had not when the run was."""
        reason = CANCELLED if status == "cancelled" else self._exceeded
        return (Status.SKIPPED, None, reason) if reason is not None else None

    def _calls(
        self, status: str, at_work: Mapping[tuple[str | None, int], int], with_waits: bool
    ) -> Iterator[CallResult]:
        waits = Waits(self._definition, self._lanes[None].records) if with_waits else None
        for instance, lane in self._lanes.items():
            before = waits.of(lane.records[-1], instance) if waits is not None and lane.records else _NONE
            ticks = ticks_of(self._definition, lane.records)
            for call in known_calls(self._definition, lane.records, instance).values():
                child = lane.children.get(call.index)
                elements = lane.elements.get(call.index)
                is_at_work = (instance, call.index) in at_work or child is not None or elements is not None
                held = Status.HELD if lane.held.get(call.index) else Status.WAITING
                under_way = Status.RUNNING if is_at_work else held
                end = lane.ended.get(call.index) or self._stopped(status)
                found = _call_result(call, instance, end, under_way)
                timing = lane.timings.get(call.index)
                if end is None and (attempts := at_work.get((instance, call.index))) is not None:
                    timing = Timing(attempts=attempts)
                elif timing is not None:
                    timing = replace(timing, ready_ms=self._ready(lane, timing, before.get(call.index)))
                cost = lane.cost.get(call.index)
                yield replace(
                    found, tick=ticks.get(call.index), child=child, elements=elements, timing=timing, cost=cost
                )

    def _ready(self, lane: _Lane, timing: Timing, before: Iterable[int] | None) -> int | None:
        """When all that a call waited for had ended; None where that is not asked for."""
        if before is None or timing.ready_ms is None:
            return None
        known = (lane.timings.get(index) or self._lanes[None].timings.get(index) for index in before)
        return max((timing.ready_ms, *(one.ended_ms for one in known if one is not None and one.ended_ms is not None)))


@dataclass(slots=True)
class _Lane:
    """What is known of one lane so far."""

    fold: Fold
    records: list[bytes] = field(default_factory=list)
    ended: dict[int, End] = field(default_factory=dict)
    held: dict[int, bool] = field(default_factory=dict)
    """The calls that were held, and whether nothing was decided yet."""
    children: dict[int, str] = field(default_factory=dict)
    """The runs that answer calls."""
    elements: dict[int, Elements] = field(default_factory=dict)
    """How those of calls with `_each` stand."""
    timings: dict[int, Timing] = field(default_factory=dict)
    """`ready_ms` says no more than when it was laid out or decided on."""
    decided: dict[int, int] = field(default_factory=dict)
    """When calls were held, or it was decided on them."""
    laid_out_ms: int = 0
    """When it was last said what is to be done in the lane."""
    cost: dict[int, Mapping[str, Any] | None] = field(default_factory=dict)
    """What asking models for calls has cost."""


def _output(output: Any, status: str, fold: Fold) -> tuple[Any, str | None]:
    """The output with its references read when all calls have ended, and why that is not possible (SPEC R4.9)."""
    if status not in ("completed", "failed"):
        return (None if holds_references(output) else output), None
    reason = output_fault(output, fold)
    return (resolve_output(output, fold) if reason is None else None), reason


def _tick_result(tick: Tick, calls: Iterable[int]) -> TickResult:
    assert tick.solution is not None
    paid = {key: tick.solution[key] for key in ("model", "usage")}
    return TickResult(tick.number, **paid, calls=tuple(calls), errors=tick.errors, set_aside=tick.set_aside)


def _call_result(call: Call, instance: str | None, end: End | None, under_way: Status) -> CallResult:
    status, error, reason = end or (under_way, None, None)
    return CallResult(
        id=call_name(call.index, instance),
        index=call.index,
        tool=call.tool,
        instance=instance,
        status=status.value,
        error=error,
        reason=reason,
    )
