"""What a run has come to, folded from its journals: the shape that `acts run --json` prints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from protocol.calls.call import Call
from protocol.engine.execution import Status
from protocol.engine.solution_output import holds_references, output_fault, resolve_output
from protocol.state.fold import Fold
from worker.storage.definition import Definition
from worker.storage.lane import amended, id_key, known_calls
from worker.storage.log import Entry

CANCELLED: Final = "the run was cancelled"
"""Why a call that had not ended was skipped."""


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

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "id": self.id,
            "index": self.index,
            "tool": self.tool,
            "instance": self.instance,
            "status": self.status,
            "error": dict(self.error) if self.error is not None else None,
            "reason": self.reason,
        }


@dataclass(frozen=True)
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
    """Why the run has failed although no call did: its output cannot be read (SPEC R4.9)."""

    def data(self, instance: str | None = None) -> Mapping[str, Any]:
        """Kind to folded value, as a reader in the instance (or a global one) sees it. Raises `KeyError`."""
        return self.global_data if instance is None else self.instances[instance]

    def to_dict(self) -> dict[str, Any]:
        """The shape of `acts run --json`; `conflicts` and `reason` are there only where there are any."""
        conflicts = {"conflicts": list(self.conflicts)} if self.conflicts else {}
        reason = {"reason": self.reason} if self.reason is not None else {}
        return {
            "run": self.run,
            "status": self.status,
            "output": self.output,
            "global": dict(self.global_data),
            "instances": {instance: dict(data) for instance, data in self.instances.items()},
            "calls": [call.to_dict() for call in self.calls],
            **conflicts,
            **reason,
        }


@dataclass(frozen=True)
class LaneHistory:
    """A lane's journal, and the calls its ledger says are under way."""

    instance: str | None
    entries: Sequence[Entry]
    running: frozenset[int] = frozenset()


def assemble(
    run: str,
    status: str,
    definition: Definition,
    shared: LaneHistory,
    lanes: Iterable[LaneHistory],
    *,
    at: str | None = None,
) -> Result:
    """Fold the journals of a run; with `at`, only what was there up to that id. `status` is the run's, then.

    What was under way at a past moment is not in the log: such calls count as waiting.
    """
    moment = _Moment(status, at)
    definition = amended(definition, shared.entries)
    global_fold = Fold()
    calls = list(_read_lane(definition, shared, global_fold, moment))
    conflicts = [str(conflict) for conflict in global_fold.conflicts()]
    instances: dict[str, Mapping[str, Any]] = {}
    for lane in lanes:
        assert lane.instance is not None
        fold = Fold(global_fold)
        calls.extend(_read_lane(definition, lane, fold, moment))
        instances[lane.instance] = fold.snapshot()
        conflicts.extend(str(conflict) for conflict in fold.conflicts())
    output, reason = _output(definition.output, status, global_fold)
    return Result(
        run=run,
        status="failed" if reason is not None else status,
        output=output,
        reason=reason,
        global_data=global_fold.snapshot(),
        instances=instances,
        calls=sorted(calls, key=lambda call: call.index),
        conflicts=tuple(dict.fromkeys(conflicts)),
    )


def _output(output: Any, status: str, fold: Fold) -> tuple[Any, str | None]:
    """The output with its references read when all calls have ended, and why that is not possible (SPEC R4.9)."""
    if status not in ("completed", "failed"):
        return (None if holds_references(output) else output), None
    reason = output_fault(output, fold)
    return (resolve_output(output, fold) if reason is None else None), reason


@dataclass(frozen=True, slots=True)
class _Moment:
    """When a run is looked at: the run's status then, and the last id that counts (None for now)."""

    status: str
    at: str | None

    def has_come(self, entry: Entry) -> bool:
        return self.at is None or id_key(entry.id) <= id_key(self.at)


def _read_lane(definition: Definition, lane: LaneHistory, fold: Fold, moment: _Moment) -> Iterator[CallResult]:
    """Feed a lane's messages to its fold, and say how its calls stand."""
    ended: dict[int, Entry] = {}
    for entry in lane.entries:
        if entry.message is not None and moment.has_come(entry):
            fold.append(entry.message, f"message {entry.id}")
        if entry.call is not None:
            ended[entry.call] = entry  # of several messages the last: with it the call has ended
    for call in known_calls(definition, _records(lane, moment), lane.instance).values():
        outcome = ended.get(call.index)
        yield _call_result(call, lane, outcome if outcome is not None and moment.has_come(outcome) else None, moment)


def _records(lane: LaneHistory, moment: _Moment) -> list[Entry]:
    """The entries that say which calls there are: those of the submission, and of the amendments up to the moment."""
    records = [entry for entry in lane.entries if entry.record is not None]
    return [*records[:1], *filter(moment.has_come, records[1:])]


def _call_result(call: Call, lane: LaneHistory, outcome: Entry | None, moment: _Moment) -> CallResult:
    status, reason = Status.WAITING, None
    if outcome is not None and outcome.status is not None:
        status, reason = outcome.status, outcome.reason
    elif moment.status == "cancelled":
        status, reason = Status.SKIPPED, CANCELLED
    elif moment.at is None and call.index in lane.running:
        status = Status.RUNNING
    return CallResult(
        id=f"{call.index}" if lane.instance is None else f"{call.index}:{lane.instance}",
        index=call.index,
        tool=call.tool,
        instance=lane.instance,
        status=status.value,
        error=outcome.error if outcome is not None else None,
        reason=reason,
    )
