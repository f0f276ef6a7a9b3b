"""The results of single calls of a run, folded from its log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from ...protocol.engine.costs import CURRENCY, Cost
from ...protocol.engine.events import CallHeld, CallStatus, Ruling, Snapshot, Status
from ...protocol.engine.execution import UNBROUGHT
from ...protocol.errors import pointer
from ...protocol.messages import TEXT_TYPES
from ..broker.attempts import call_name
from ..store.definition import LaneRecord
from ..store.entries import CallTiming, Entry, id_key, moment_ms
from ..store.held_calls import AuditRecord
from ..store.keys import Condition
from ..store.run_store import RunStore
from ..store.scripts import ExecutedBy, iso_date
from ..store.state import CallState, Elements, End, LaneState, RunState
from .progress import Event, event_of

# When a call began and ended, what it waited for a worker, and how often it was tried.
#
# The log has the server's time in the ids of its entries: the end of each call, and so the end of all that it waited
# for. For how long it was at work is written with its end (`worker.store.entries`).

_SECOND: Final = 1000


@dataclass(frozen=True, slots=True)
class Timing:
    """The times of one call, as far as the log has them: in ms, moments by the server's clock."""

    ended_ms: int | None = None
    took_ms: int | None = None
    """How long its last attempt was at work."""
    ready_ms: int | None = None
    """When everything that it waited for had ended, a person's decision included."""
    attempts: int | None = None
    """How many attempts began."""

    @property
    def began_ms(self) -> int | None:
        """When its last attempt began."""
        return self.ended_ms - self.took_ms if self.ended_ms is not None and self.took_ms is not None else None

    @property
    def waited_ms(self) -> int | None:
        """How long it could have run and had not begun: in a queue, for a slot, for its next attempt."""
        if self.began_ms is None or self.ready_ms is None:
            return None
        return max(self.began_ms - self.ready_ms, 0)

    def to_dict(self) -> dict[str, Any]:
        """Write the times as JSON; unknown ones are null."""
        return {
            "began": _date(self.began_ms),
            "ended": _date(self.ended_ms),
            "seconds": _seconds(self.took_ms),
            "waited_seconds": _seconds(self.waited_ms),
            "attempts": self.attempts,
        }


def timing_of(id_: str, spent: CallTiming | None, *, since_ms: int | None = None) -> Timing:
    """Make the timing of a call that has ended with that entry; `since_ms` is when it could begin, where known."""
    took_ms, attempts = (spent.took_ms, spent.attempts) if spent is not None else (None, None)
    return Timing(moment_ms(id_), took_ms, since_ms, attempts)


def _date(moment_ms: int | None) -> str | None:
    if moment_ms is None:
        return None
    date = datetime.fromtimestamp(moment_ms / _SECOND, UTC)
    return date.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _seconds(span_ms: int | None) -> float | None:
    return span_ms / _SECOND if span_ms is not None else None


_NONE: Final[Mapping[Any, Any]] = MappingProxyType({})
_BEGUN: Final = (Status.RUNNING, Status.UNKNOWN)

CANCELLED: Final = "the run was cancelled"
"""Why a call that had not begun was skipped."""
UNKNOWN: Final = "Unknown"
"""The type of the error of a call that was at work when its run was ended: nobody heard of its end (SPEC R4.11)."""
STOPPED: Final = "Stopped"
"""The type of the error of a call that waited for its next attempt when its run was ended."""


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
    """The elements of a call that runs for each of them, and has begun."""
    timing: Timing | None = None
    """When it began and ended, where it has."""
    worker: str | None = None
    """The worker that has run it (SPEC R11.9); None before that, and where no single worker has: it was sent and
    forgotten, answered by a person, skipped, or runs for each element.
    """
    version: str | None = None
    """The version of its code that has run; None also where a model has answered."""
    cost: Mapping[str, Any] | None = None
    """The cost of asking models for it: `requests`, `tokens` that were charged, `usage`, `seconds`, `money` and
    `currency` where the price is known, the `model` of a single request, `calls`, how many its run has started (SPEC
    R13.3).
    """
    stale: bool = False
    """Whether the call has read values that a retry may have changed since (SPEC R11.8)."""
    until: str | None = None
    """The moment that it waits for (SPEC R4.12)."""
    not_taken: bool = False
    """That another branch was taken: it was skipped, and nothing that it waited for has failed (SPEC R6.6)."""
    rule: str | None = None
    """The rule of the run that approved it, so that nobody was asked (SPEC R16.8)."""
    progress: Mapping[str, Any] | None = None
    """How far it has come, before it has ended: `done`, `total` and `text`, as far as its code says them."""

    def to_dict(self) -> dict[str, Any]:
        """Write the call as JSON; `tick` is there in a loop only, `child` if a child run answers it, `elements` if
        it has `_each`, `timing` if it has begun or ended, `cost` where a model was asked, `stale` and
        `not_taken` where it is, `until` while it waits for a moment, `progress` where its code has reported it, `rule`
        where one let it start.
        """
        always = {
            "id": self.id,
            "index": self.index,
            "tool": self.tool,
            "instance": self.instance,
            "status": self.status,
            "error": dict(self.error) if self.error is not None else None,
            "reason": self.reason,
            "worker": self.worker,
            "version": self.version,
        }
        return always | present(
            tick=self.tick,
            child=self.child,
            elements=self.elements.to_dict() if self.elements is not None else None,
            timing=self.timing.to_dict() if self.timing is not None else None,
            cost=dict(self.cost) if self.cost is not None else None,
            stale=self.stale or None,
            until=self.until,
            not_taken=self.not_taken or None,
            rule=self.rule,
            progress=dict(self.progress) if self.progress is not None else None,
        )


def has_begun_calls(state: Mapping[str, str]) -> bool:
    """Whether there may be calls of a run, by its state, that have begun and not ended."""
    return int(state.get("running", 0)) > 0 or int(state.get("between", 0)) > 0


def present(**values: Any) -> dict[str, Any]:
    """Leave out the values that are None."""
    return {name: value for name, value in values.items() if value is not None}


class LaneCalls:
    """The calls of a run's lanes, where the run has this status and these calls, by instance and index, are at work,
    in that condition. With `waits` they say for how long they waited for a worker.
    """

    def __init__(
        self,
        run: RunState,
        codes: Mapping[int, ExecutedBy],
        status: str,
        at_work: Mapping[tuple[str | None, int], Condition] = _NONE,
        *,
        waits: bool = False,
    ) -> None:
        self._run = run
        self._codes = codes
        self._at_work = at_work
        self._waits = waits
        self._before: dict[int, Mapping[int, tuple[int, ...]]] = {}
        """The calls that each call waits for, by the identity of records that many lanes share."""
        self.stop_reason = CANCELLED if status == "cancelled" else run.exceeded
        """Why the calls were skipped that had not ended when the run was; None where it ended with its last call."""
        reason = self.stop_reason
        self._stopped = End("", Status.SKIPPED, None, reason, None) if reason is not None else None

    def of(self, instance: str | None) -> Iterator[CallResult]:
        """Yield the calls of an instance, or the global ones."""
        lane = self._run.lanes[instance]
        before = self._calls_before(lane.record, instance) if self._waits and lane.records else _NONE
        ticks, not_taken = lane.ticks, self._not_taken(lane, instance)
        for index, call in lane.known.items():
            state, condition = lane.call(index), self._at_work.get((instance, index))
            is_begun = condition is not None or state.begun is not None or state.status in _BEGUN
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
                status=_status(state, end, condition).value,
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
                until=iso_date(state.until_ms) if state.is_set_aside and state.until_ms is not None else None,
                not_taken=index in not_taken,
                rule=state.rule or None,
                progress=state.progress.to_dict() if end is None and state.progress is not None else None,
            )

    def _not_taken(self, lane: LaneState, instance: str | None) -> Set[int]:
        """Find the calls of a lane that were skipped since no call brings what they read, though nothing that they
        waited for has failed: another branch was taken (SPEC R6.6).
        """
        ends = lane.ended
        skipped = {index for index, end in ends.items() if is_unbrought(end.status, end.reason)}
        if not skipped or not lane.records:
            return skipped
        lost = {index for index, end in ends.items() if end.status in _WITHOUT_RESULT} - skipped
        if instance is not None:
            lost |= self._shared_lost
        before = self._calls_before(lane.record, instance) if lost else {}
        while lost:  # what waited for these was skipped for them
            lost = {index for index in skipped if not lost.isdisjoint(before.get(index, ()))}
            skipped = skipped - lost
        return skipped

    @cached_property
    def _shared_lost(self) -> Set[int]:
        """The calls for all instances that failed, or were skipped for one that did."""
        shared = self._run.shared
        lost = {index for index, end in shared.ended.items() if end.status in _WITHOUT_RESULT}
        return lost - self._not_taken(shared, None)

    def _calls_before(self, record: LaneRecord, instance: str | None) -> Mapping[int, tuple[int, ...]]:
        """Map each call of a lane to the calls that it waits for. A call that reads in every instance is left out: it
        waits for other lanes.
        """
        if (known := self._before.get(id(record))) is not None:
            return known
        definition = self._run.definition
        calls = definition.lane_calls(record, instance)
        shared = definition.lane_calls(self._run.shared.record, None) if instance is not None else ()
        graph = definition.graph(calls, record, shared)
        found = {call.index: graph.before(call.index) for call in calls if not call.gather}
        if definition.are_same_everywhere(record):
            self._before[id(record)] = found
        return found

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


_WITHOUT_RESULT: Final = (Status.FAILED, Status.SKIPPED)


def is_unbrought(status: Status | None, reason: str | None) -> bool:
    """Say whether a call was skipped since no call brings what it reads."""
    return status is Status.SKIPPED and UNBROUGHT in (reason or "")


def _status(state: CallState, end: End | None, condition: Condition | None) -> Status:
    if end is not None:
        return end.status
    return Status.RUNNING if condition is not None else state.status


def _shown_cost(cost: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The cost of a call, for readers: an amount in the currency, where its price is known."""
    if cost is None or "nanodollars" not in cost:
        return cost
    kept = {key: value for key, value in cost.items() if key != "nanodollars"}
    return {**kept, "money": Cost.read(cost).money, "currency": CURRENCY}


# What a person changed of a held call: old and new parameters, scopes, other calls in its place (SPEC R14.2).

_NOTHING: Final = Snapshot({}, {})


class Changes:
    """Finds what decisions have changed in the entries of a log, which are given in order."""

    def __init__(self) -> None:
        self._held: dict[tuple[str | None, int | None], Snapshot] = {}

    def of(self, entry: Entry) -> dict[str, Any]:
        """Say what the decision in an entry changed; {} for another entry.

        `parameters` is a list of {pointer, old, new}, each of the two left out where there is none; `scopes` is
        {old: the kinds that were shown, new}; `calls` are those that stand in for it.
        """
        where = entry.instance, entry.call
        if isinstance(entry.event, CallHeld) and entry.given is not None:
            self._held[where] = entry.given
        if entry.ruling is None:
            return {}
        return dict(_changed(entry.ruling, self._held.pop(where, _NOTHING)))


def _changed(ruling: Ruling, shown: Snapshot) -> Iterator[tuple[str, Any]]:
    if ruling.parameters is not None:
        yield "parameters", list(_differences(shown.parameters, ruling.parameters))
    if ruling.scopes is not None:
        texts = (message["type"] for message in shown.messages if message["type"] in TEXT_TYPES)
        kinds = dict.fromkeys([*texts, *shown.scopes])
        yield "scopes", {"old": list(kinds), "new": list(ruling.scopes)}
    if ruling.amendment is not None:
        solution = ruling.amendment.get("solution", ruling.amendment)
        yield "calls", solution.get("calls", [])


def _differences(old: Any, new: Any, *at: str) -> Iterator[dict[str, Any]]:
    """Yield the differences of two values: within objects key by key, lists as a whole."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in dict.fromkeys([*old, *new]):
            if key in old and key in new:
                yield from _differences(old[key], new[key], *at, key)
            else:
                yield {"pointer": pointer(*at, key), **({"old": old[key]} if key in old else {"new": new[key]})}
    elif type(old) is not type(new) or old != new:
        yield {"pointer": pointer(*at), "old": old, "new": new}


# What a reader of a run's log is shown of its entries: messages, who did what, and the ends of calls.


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The call that has ended with an entry of the log."""

    index: int
    status: CallStatus
    timing: Timing
    reason: str | None = None
    """Why it was skipped."""
    call: Mapping[str, Any] | None = None
    """The call as it was written, where the entry has no message that tells it."""
    code: ExecutedBy | None = None
    """The worker that has run it, and the version of its code (SPEC R11.9)."""

    def to_dict(self) -> dict[str, Any]:
        """Write the end as JSON."""
        call = {"call": dict(self.call), "reason": self.reason} if self.call is not None else {}
        code = {"worker": self.code.worker, "version": self.code.version} if self.code is not None else {}
        return {"index": self.index, "status": self.status, "timing": self.timing.to_dict(), **code, **call}


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One message of the log; where no message is, what was done to the run from outside, or how a call has ended."""

    id: str
    instance: str | None
    message: Mapping[str, Any]
    audit: AuditRecord | None = None
    end: CallEnd | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    """The changes that a decision on a held call has made (see `Changes`); `audit` says who decided."""
    tick: Event | None = None
    """That a tick of the loop was asked, answered, or has ended; with an answer, `message` is its solution."""

    def to_dict(self) -> dict[str, Any]:
        """Write the entry as JSON; `end`, `tick` and `audit`, with its `changes`, are there where it says them."""
        tick = self.tick.to_dict() if self.tick is not None else {}
        changes = {"changes": dict(self.changes)} if self.changes else {}
        return {"id": self.id, "instance": self.instance, "message": dict(self.message) or None} | present(
            end=self.end.to_dict() if self.end is not None else None,
            tick={name: value for name, value in tick.items() if name not in ("id", "kind")} or None,
            audit=self.audit.to_dict() | changes if self.audit is not None else None,
        )


class LogReading:
    """Reads a log and chooses what is shown of it, of one instance or of all: entries with a message; with `audit` also
    those that say who did what.

    With `every` also those that say no more than that a call has ended: it was sent and forgotten, a passing thought (a
    latent call without a path), or skipped; with `ticks` those that say that a tick was asked, or has ended.
    """

    def __init__(
        self, history: RunStore, instance: str | None, *, audit: bool, every: bool, ticks: bool = False
    ) -> None:
        """Raises `RunNotFound`, `RedisError`."""
        self.seen = "0-0"
        """The id of the last entry that was read."""
        self._history = history
        self._codes: dict[int, ExecutedBy] = {}
        self._instance = instance
        self._changes = Changes() if audit else None
        self._has_ticks = ticks
        self._run = RunState(history.definition()) if every else None
        if self._run is not None:
            self._run.feed(history.lane(None))
        self._read = id_key(self._run.shared.last) if self._run is not None else (0, 0)
        """The id up to which the global lane was read."""

    def past(self) -> Iterator[LogEntry]:
        """Yield what is shown of the log so far. Raises `RedisError`."""
        entries = self._history.entries() if self._instance is None else self._history.lane(self._instance)
        for entry in entries:
            self.seen = entry.id
            yield from self._shown(entry)

    def shown(self, entry: Entry) -> list[LogEntry]:
        """List what is shown of an entry that came later; pass it every entry, in order."""
        shown = list(self._shown(entry))
        return shown if self._instance in (None, entry.instance) else []

    def _shown(self, entry: Entry) -> Iterator[LogEntry]:
        run = self._run
        is_new = entry.instance is not None or id_key(entry.id) > self._read
        if run is not None and entry.tick is None and is_new:
            run.apply(entry)
        audit = entry.audit if self._changes is not None else None
        changes = self._changes.of(entry) if self._changes is not None else {}
        end = _end(entry, run, self._code(entry))
        tick = _tick(entry) if self._has_ticks else None
        has_end = end is not None and end.call is not None
        if entry.message is not None or audit is not None or has_end or tick is not None:
            yield LogEntry(entry.id, entry.instance, entry.message or {}, audit, end, changes, tick)

    def _code(self, entry: Entry) -> ExecutedBy | None:
        """The worker and version of code that have run the call that ends with an entry."""
        if entry.code is not None and entry.code not in self._codes:
            self._codes = self._history.codes()
        return self._codes.get(entry.code) if entry.code is not None else None


def _tick(entry: Entry) -> Event | None:
    event = event_of(entry)
    return event if event is not None and event.kind == "tick" else None


def _end(entry: Entry, run: RunState | None, code: ExecutedBy | None) -> CallEnd | None:
    if (end := entry.end) is None:
        return None
    raw = None
    if entry.message is None and run is not None:
        raw = run.lane(entry.instance).known[end.call].raw
    return CallEnd(end.call, end.status.value, timing_of(entry.id, entry.spent), end.reason, raw, code)
