"""The state of one lane, folded from the log: the one fold that results, forks, amendments, retries, explanations and
the loop read.

A new kind of entry is one class of events, one line in `entries`, and one line in the table below. Readers that keep no
state of a lane, such as traces, read each entry by what `Entry` says of its call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ...protocol.calls.call import Call, call_of, element_of, make_call
from ...protocol.calls.tools import Executor, Runner
from ...protocol.calls.trust import NOTHING, ToolTrust, tool_trust_of
from ...protocol.engine import events
from ...protocol.engine.costs import Cost
from ...protocol.engine.loop import Loop
from ...protocol.run_rules import RunRules
from ...protocol.state.fold import Fold
from ...protocol.state.labels import TRUSTED, Labels
from .definition import LaneRecord, StoredPlan, unpack_lane
from .entries import CallTiming, Entry, RunStatusChanged, follow, id_key, moment_ms


@dataclass(slots=True)
class Elements:
    """How the elements of a call with `_each` stand (SPEC R4.10)."""

    total: int
    ended: int = 0
    """How many have ended, failed ones included."""
    failed: int = 0
    statuses: dict[int, events.Status] = field(default_factory=dict)
    """Ends of the elements that have ended, by number (see `protocol.calls.call`)."""
    codes: set[int | None] = field(default_factory=set)
    """The numbers of who has run them (see `scripts.ExecutedBy`)."""
    begun: dict[int, CallState] = field(default_factory=dict)
    """Elements that run at most once and have begun, and not ended, by number."""

    def without_failed(self) -> Elements:
        """The elements without those that failed, which are run again."""
        left = Elements(self.total)
        left.statuses |= ((at, status) for at, status in self.statuses.items() if status is not events.Status.FAILED)
        left.ended = len(left.statuses)
        return left

    def to_dict(self) -> dict[str, int]:
        """The counts in JSON; `unknown` only where the end of an element is not known."""
        unknown = sum(one.is_unknown for one in self.begun.values())
        counts = {"total": self.total, "ended": self.ended, "failed": self.failed}
        return counts | {"unknown": unknown} if unknown else counts


@dataclass(frozen=True, slots=True)
class End:
    """How a call has ended."""

    id: str
    """The id of the entry about its end."""
    status: events.Status
    error: Mapping[str, Any] | None
    reason: str | None
    spent: CallTiming | None
    code: int | None = None
    """The number of who has run it, with which version of the code (see `scripts.ExecutedBy`)."""
    is_rescued: bool = False
    """Whether the call has failed and has written that to the last of its alternatives (SPEC R4.4)."""
    labels: Labels = TRUSTED
    """The sources of what it has read and of its result (SPEC R16.2)."""
    chosen: Labels = TRUSTED
    """Sources that had a say in whether it ran."""
    choosing: Labels = TRUSTED
    """Sources that had a say in that, or in at which of its places it has written."""
    is_by_field: bool = False
    """Whether the fields of its result have labels of their own (SPEC R16.8)."""


@dataclass(slots=True)
class CallState:
    """The state of one call that has begun, or ended, by the log."""

    end: End | None = None
    begun: str | None = None
    """The entry with which its last attempt has begun, where it runs at most once."""
    held: str | None = None
    """The entry since which it waits for a person or a moment, or did."""
    evidence: events.Evidence | None = None
    """The evidence, if it waits, or did, because its end is not known (SPEC R4.11)."""
    is_decided: bool = False
    decided_ms: int | None = None
    """When it was held, or decided on: the later one."""
    given: events.Snapshot | None = None
    """The parameters and scopes with which it waits for a person or a moment, or runs for each, until it has ended."""
    ruling: events.Ruling | None = None
    """The decision on it."""
    until_ms: int | None = None
    """The moment that it waits for, or did."""
    progress: events.Progress | None = None
    """The last progress that its code has reported."""
    child: str | None = None
    """The run that answers it, or is to."""
    elements: Elements | None = None
    """Where it runs for each, and has begun."""
    cost: Mapping[str, Any] | None = None
    """The cost of asking models for it, also before it was tried again."""
    since_ms: int = 0
    """When its lane was laid out, or it was decided on: before that it could not begin."""
    rule: str = ""
    """The rule of the run that approved it, where no person was asked (SPEC R16.8)."""
    is_stale: bool = False
    """Whether the call has read what others, run again since, may have written otherwise (SPEC R11.8)."""

    @property
    def is_set_aside(self) -> bool:
        """Whether the call waits for a person or a moment, and nobody is at work on it."""
        return self.held is not None and not self.is_decided and self.end is None

    @property
    def is_held(self) -> bool:
        """Whether the call waits for a person."""
        return self.is_set_aside and self.until_ms is None

    @property
    def is_unknown(self) -> bool:
        """Whether the call has begun, its end is not known, and nobody has said it."""
        return self.is_held and self.evidence is not None

    @property
    def status(self) -> events.Status:
        """How it is as far as the log says; one that waits may be at work."""
        if self.end is not None:
            return self.end.status
        if self.child is not None or self.elements is not None:
            return events.Status.RUNNING
        if self.is_unknown:
            return events.Status.UNKNOWN
        return events.Status.HELD if self.is_held else events.Status.WAITING

    @property
    def parameters(self) -> Mapping[str, Any] | None:
        """The parameters that it will run with, where they are known before it has ended."""
        if self.ruling is not None and self.ruling.parameters is not None:
            return self.ruling.parameters
        return self.given.parameters if self.given is not None else None


_UNKNOWN: Final = CallState()


class LaneState:
    """One lane, as far as its log was read; fed in order."""

    def __init__(self, instance: str | None, fold: Fold) -> None:
        self.instance = instance
        self.fold = fold
        self.records: list[LaneRecord] = []
        """The records of the lane, the newest last."""
        self.known: Mapping[int, Call] = {}
        """Every call that it has ever had."""
        self.last_index = -1
        """The highest index of these."""
        self.has_gathers = False
        """Whether one of them reads in every instance (SPEC R10.4)."""
        self.calls: dict[int, CallState] = {}
        """The calls that have begun, or ended."""
        self.left = 0
        """How many of the calls that it has ever had have not ended."""
        self.set_aside = 0
        """How many of them wait for a person or a moment."""
        self.last = "0-0"
        self.laid_out_ms = 0
        """When it was last said what is to be done here."""

    @property
    def record(self) -> LaneRecord:
        """The newest record of the lane."""
        return self.records[-1] if self.records else LaneRecord()

    @property
    def open(self) -> Iterator[int]:
        """The calls that have not ended."""
        return (index for index in self.known if self.end(index) is None) if self.left else iter(())

    @property
    def ended(self) -> dict[int, End]:
        """The calls that have ended."""
        return {index: call.end for index, call in self.calls.items() if call.end is not None}

    @property
    def ticks(self) -> dict[int, int]:
        """The ticks of a loop by the calls that they have brought."""
        ticked = [record for record in self.records if record.tick is not None]
        return {call.index: record.tick for record in ticked if record.tick is not None for call in record.calls}

    def call(self, index: int) -> CallState:
        """The state of a call; do not change it."""
        return self.calls.get(index, _UNKNOWN)

    def end(self, index: int) -> End | None:
        """How a call has ended, where it has."""
        return self.call(index).end

    def elements(self, index: int) -> Mapping[int, events.Status]:
        """How each element of a call has ended that has, by its number."""
        elements = self.call(index).elements
        return elements.statuses if elements is not None else {}

    def of_status(self, status: events.Status) -> set[int]:
        """The calls that have ended so."""
        return {index for index, end in self.ended.items() if end.status is status}

    def lay_out(self, record: LaneRecord, calls: Mapping[int, Call]) -> None:
        """Take in what the lane is from now on; `calls` are those of the record."""
        self.records.append(record)
        self.last_index = max(self.last_index, max(calls, default=-1))
        self.has_gathers = self.has_gathers or any(call.gather for call in calls.values())
        if not self.known:
            self.known = calls
            self.left += len(calls)
            return
        self.left += sum(index not in self.known for index in calls)
        self.known = {**self.known, **calls}

    def apply(self, entry: Entry) -> None:
        """Take in the next entry of the lane, but for a record (see `lay_out`)."""
        self.last = entry.id
        if entry.replaces_plan:
            self.laid_out_ms = moment_ms(entry.id)
        if entry.message is not None:
            self.fold.append(entry.message, f"message {entry.id}", entry.call)
        if (change := _CHANGES.get(type(entry.event))) is not None:
            change(self, entry, entry.event)

    def _state(self, index: int) -> CallState:
        found = self.calls.get(index)
        if found is None:
            found = self.calls[index] = CallState(since_ms=self.laid_out_ms)
        return found

    def _begun_state(self, index: int) -> CallState:
        """The state of a call, or of an element that has begun."""
        call = self._state(call_of(index))
        if element_of(index) is None or call.elements is None:
            return call
        return call.elements.begun.setdefault(index, CallState(since_ms=self.laid_out_ms))

    def _end(self, entry: Entry, event: events.CallEnded) -> None:
        call = self._state(event.call)
        self.set_aside -= call.is_set_aside
        self.left -= call.end is None
        reason = event.reason if entry.by is None else f"given by hand by {entry.by}"
        of_elements = call.elements.codes if call.elements is not None else set()
        code = next(iter(of_elements)) if len(of_elements) == 1 else entry.code
        said = event.is_rescued, event.labels, event.chosen, event.choosing, event.is_by_field
        call.end = End(entry.id, event.status, event.error, reason, entry.spent, code, *said)
        call.given = call.ruling = None
        call.since_ms = call.decided_ms or self.laid_out_ms
        call.cost = _together(call.cost, event.cost) if event.cost is not None else call.cost

    def _begin(self, entry: Entry, event: events.CallBegun) -> None:
        self._begun_state(event.call).begun = entry.id

    def _hold(self, entry: Entry, event: events.CallHeld) -> None:
        call = self._begun_state(event.call)
        self.set_aside += element_of(event.call) is None and not (call.is_set_aside or event.rule)
        call.held, call.is_decided, call.decided_ms = entry.id, bool(event.rule), moment_ms(entry.id)
        call.given, call.ruling, call.until_ms = event.snapshot, event.ruling, event.until_ms
        call.evidence, call.rule = event.evidence, event.rule

    def _move(self, _: Entry, event: events.WaitMoved) -> None:
        self._state(event.call).until_ms = event.until_ms

    def _decide(self, entry: Entry, event: events.CallDecided) -> None:
        call = self._begun_state(event.call)
        self.set_aside -= element_of(event.call) is None and call.is_set_aside
        call.is_decided, call.decided_ms, call.ruling = True, moment_ms(entry.id), event.ruling

    def _progress(self, _: Entry, event: events.CallProgressed) -> None:
        if element_of(event.call) is None:
            self._state(event.call).progress = event.progress

    def _start_child(self, entry: Entry, event: events.ChildStarted) -> None:
        self._state(event.call).child = event.run

    def _fan_out(self, entry: Entry, event: events.FanOutBegun) -> None:
        call = self._state(event.call)
        call.elements, call.given, call.ruling = Elements(entry.elements), event.snapshot, None

    def _end_element(self, entry: Entry, event: events.ElementEnded) -> None:
        call = self._state(event.call)
        if (elements := call.elements) is None:
            return
        elements.begun.pop(event.element, None)
        elements.ended += 1
        elements.failed += event.status is events.Status.FAILED
        elements.statuses[event.element] = event.status
        elements.codes.add(entry.code)
        if event.cost is not None:
            call.cost = _together(call.cost, event.cost)

    def _undo(self, entry: Entry, event: events.CallsUndone) -> None:
        self.fold.withdraw(frozenset(event.calls))
        for index in event.calls:
            before = self.calls.pop(index, _UNKNOWN)
            self.set_aside -= before.is_set_aside
            self.left += before.end is not None
            elements = before.elements.without_failed() if index in event.keeping and before.elements else None
            if before.cost is not None or elements is not None:
                self.calls[index] = CallState(cost=before.cost, elements=elements, since_ms=self.laid_out_ms)
        for index in event.stale:
            self._state(index).is_stale = True


_CHANGES: Final[Mapping[Any, Callable[[LaneState, Entry, Any], None]]] = {
    events.CallEnded: LaneState._end,
    events.ElementEnded: LaneState._end_element,
    events.CallBegun: LaneState._begin,
    events.CallHeld: LaneState._hold,
    events.WaitMoved: LaneState._move,
    events.CallProgressed: LaneState._progress,
    events.CallDecided: LaneState._decide,
    events.FanOutBegun: LaneState._fan_out,
    events.ChildStarted: LaneState._start_child,
    events.CallsUndone: LaneState._undo,
}


def _together(before: Mapping[str, Any] | None, cost: Mapping[str, Any]) -> Mapping[str, Any]:
    """The cost of a call, its elements or attempts together."""
    if before is None:
        return cost
    calls = sum(each.get("calls", 0) for each in (before, cost))
    return {**(Cost.read(before) + Cost.read(cost)).pack(), **({"calls": calls} if calls else {})}


# What the log says of a run: its definition as amended, its status, its lanes, its loop.
#
# It is fed with the whole log in order, or with single lanes, the global one first: what lanes share is there.


class RunState:
    """A run as far as its log was read, now or as of a past id `at`."""

    def __init__(self, definition: StoredPlan, instances: Iterable[str] = (), *, at: str | None = None) -> None:
        self.definition = definition
        self.shared = LaneState(None, Fold())
        """The global lane."""
        self.lanes: dict[str | None, LaneState] = {None: self.shared}
        for instance in instances:
            self.lane(instance)
        self.status = ""
        self.waits_for_approval = definition.is_lazy
        """Whether its plan is still to be approved (SPEC R10.2)."""
        self.exceeded: str | None = None
        """Why the run was ended: it took more than a run may."""
        self.rules = RunRules()
        """The rules in force (SPEC R16.8)."""
        self.missed: tuple[str, ...] = ()
        """The promised places that did not come and were needed (SPEC R11.6)."""
        self.gave_up = "0-0"
        """The entry with which the run gave up what was promised and had not come."""
        self.amended = "0-0"
        """The entry of its last amendment."""
        self.loop = Loop() if definition.request is not None else None
        """The loop; None of a run that is no request."""
        self.loop_last = "0-0"
        """The last entry of the loop's lane."""
        self.relabels = False
        """Whether this process knows of sources of results that the run does not: what the log holds gets them."""
        self.added_sources = TRUSTED
        """The sources of results in any lane, where the run has gather calls: lanes not open here count, too."""
        self._named: dict[tuple[str, Runner], Call] = {}
        """A call of each tool and runner that is known: what is trusted of calls depends on these."""
        self._at = id_key(at) if at is not None else None
        self._laid_out: dict[tuple[bytes, bool], tuple[LaneRecord, Mapping[int, Call]]] = {}
        """The records that are the same for all instances, read once: they name templates, and no amendment changes
        those.
        """

    def lane(self, instance: str | None) -> LaneState:
        """The lane of an instance, or the global one."""
        found = self.lanes.get(instance)
        if found is None:
            found = self.lanes[instance] = LaneState(instance, Fold(self.shared.fold))
        return found

    def feed(self, entries: Iterable[Entry]) -> None:
        """Take in the next entries."""
        for entry in entries:
            self.apply(entry)

    def apply(self, entry: Entry) -> Entry:
        """Take in the next entry, and return it as it was taken; of what came after the moment only what the lanes were
        submitted with counts.
        """
        if self._at is not None and id_key(entry.id) > self._at:
            if entry.record is not None and not (lane := self.lane(entry.instance)).records:
                lane.lay_out(*self.read_record(entry.record, entry.instance))
            return entry
        if not entry.is_of_lane:
            if isinstance(entry.event, RunStatusChanged):
                self.status, self.exceeded = entry.event.status, entry.event.reason
                self.waits_for_approval &= entry.event.status == "paused"
            return entry
        if self.loop is not None:
            self.loop = follow(self.loop, entry)
        if entry.tick is not None:
            self.loop_last = entry.id
            return entry
        lane = self.lane(entry.instance)
        if entry.amendment is not None:
            self.definition = self.definition.amended(entry.amendment)
            self.amended = entry.id
        if entry.record is not None:
            record, calls = self.read_record(entry.record, entry.instance)
            lane.lay_out(record, calls)
            self._named |= {(call.tool, call.runner): call for call in calls.values()}
            self.relabels |= self.definition.said_of(self._named.values()).relabels
            if entry.instance is None and lane.has_gathers:
                self.added_sources = _added_sources(self.definition)
                self.relabels |= bool(self.added_sources)
        if self.relabels:
            entry = self._relabelled(entry, lane)
        lane.apply(entry)
        event = entry.event
        if isinstance(event, events.CallEnded):
            self.missed = self.missed or event.missed
        elif isinstance(event, events.PromisesGivenUp):
            self.gave_up = entry.id
        elif isinstance(event, events.RuleGiven):
            self.rules.give(entry.id, event.rule)
        elif isinstance(event, events.RuleRevoked):
            self.rules.revoke(entry.id, event.revoked)
        if entry.message is not None and entry.instance is None and entry.call is None:
            self.rules.words.hear(entry.message)
        return entry

    def _relabelled(self, entry: Entry, lane: LaneState) -> Entry:
        event, call = entry.event, lane.known.get(-1 if entry.call is None else entry.call)
        if call is None or not isinstance(event, events.WriteEvent):
            return entry
        trust = tool_trust_of(self.definition.said_of([call]).all, call.tool, call.runner.name)
        event = events.relabelled(event, call, trust, lane.fold, self.added_sources)
        return entry._replace(event=event, message=event.message)

    def read_record(self, data: bytes, instance: str | None) -> tuple[LaneRecord, Mapping[int, Call]]:
        """A lane's record, and its calls by their index."""
        key = data, instance is None
        if (found := self._laid_out.get(key)) is not None:
            return found
        record = unpack_lane(data, self.definition.tools)
        calls = {call.index: call for call in self.definition.lane_calls(record, instance)}
        if self.definition.are_same_everywhere(record):
            self._laid_out[key] = record, calls
        return record, calls


def _added_sources(definition: StoredPlan) -> Labels:
    """The sources of results that a run does not know, and the code and operator of this process do: of its templates
    and of the activities that its calls were checked with.
    """
    if definition.said_here is None:
        return TRUSTED
    templates = (call for version in definition.versions for call in version)
    checked = (make_call(0, {"_tool": name}, {}, Runner(Executor.ACTIVITY, name)) for name in definition.contracts)
    added = definition.said_of((*templates, *checked)).added
    return TRUSTED.union(*(_gained(one, definition.trust.get(name, NOTHING)) for name, one in added.items()))


def _gained(now: ToolTrust, before: ToolTrust) -> Labels:
    """Sources that results have now and had not before, or not for as many of their fields."""
    return now.result if now.fields != before.fields else now.result - before.result
