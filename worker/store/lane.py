"""A lane as one worker sees it: its part of the log, folded into values and statuses.

What the global lane holds is shared by all lanes of a run in this process (`RunView`); a `LaneView` adds the instance's
own part. Both are only ever fed from the log, in order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...protocol import Limits
from ...protocol.calls.call import Call, call_of
from ...protocol.engine import events
from ...protocol.engine.call_statuses import GatherWaits
from ...protocol.engine.execution import Execution
from ...protocol.engine.outcomes import LaneConfig, output_fault
from ...protocol.plan.config import fails_unknown, is_simulation
from ...protocol.plan.graph import Graph
from ...protocol.plan.waits import Gathers, Waits
from ...protocol.state.fold import Fold
from ...protocol.state.labels import Labels, marks_of
from ...protocol.state.operations import read_operation
from ..broker.attempts import Attempt, Tokens, pack_progress
from .definition import (
    PLACES,
    LaneRecord,
    Said,
    SaidHere,
    StoredPlan,
    places_in,
    unpack_definition,
    unpack_lane,
    writers_of,
)
from .entries import Entry, RunStatusChanged, id_key, moment_ms, with_effective_events
from .log import MessageLog, Opened
from .state import RunState

# Gatherings: what gather calls wait for in the lane of an instance, as the log has it (SPEC R10.4, R11.7).
#
# A gather call waits for the calls that were there when it came. Where calls are added while it waits, the records of
# the lanes keep those before them, and each gather call is laid out by the records of its time.


class GatheredFolds:
    """The values of all instances, and the calls for which they were gathered.

    Apart from the lane, which holds the execution that asks for it: in a circle they would outlive their use.
    """

    def __init__(self, added_sources: Labels) -> None:
        self._added_sources = added_sources
        self.calls: frozenset[int] = frozenset()
        self.trusted: frozenset[int] = frozenset()
        """The calls for which nothing was there that others wrote: their results need no second reading."""
        self._folds: Mapping[str, Fold] = {}

    def of(self, call: Call) -> Mapping[str, Fold] | None:
        """The values of all instances, where they were read for a call."""
        return self._folds if call.index in self.calls else None

    def take(self, calls: Sequence[Call], folds: Mapping[str, Fold]) -> None:
        """Hold these, and no others."""
        self.calls, self._folds = frozenset(call.index for call in calls), folds
        if not self._added_sources and not any(fold.all_marks for fold in folds.values()):
            self.trusted |= self.calls


Found = tuple[str, str, int | None, Mapping[str, Any] | frozenset[int]]
"""A fact in a run's log for an instance: an id, the instance, the call that wrote it, and the message; or the
calls of which nothing before counts.
"""


class FoldsOfInstances:
    """The values of all instances, as far as gather calls read them, and whatever others wrote: that may have kept a
    value from being there.
    """

    def __init__(self, shared: Fold, calls: Iterable[Call], instances: Iterable[str]) -> None:
        self._kinds = {place.kind for call in calls for place in (*call.scopes, *call.read)}
        self.by_instance = {instance: Fold(shared) for instance in instances}

    def take(self, id_: str, instance: str, call: int | None, message: Mapping[str, Any] | frozenset[int]) -> None:
        """Take in the next one of the log."""
        if isinstance(message, frozenset):
            self.by_instance[instance].withdraw(message)
            return
        operation = read_operation(message, f"message {id_}")
        if operation is not None and (operation.place.kind in self._kinds or marks_of(message)):
            self.by_instance[instance].append(message, f"message {id_}", call)


def gathers_of(
    definition: StoredPlan, record: LaneRecord, instance: str, shared: LaneRecord, gone: Container[int]
) -> Gathers | None:
    """The waits of gather calls, except those that are gone, in a lane; `shared` is the record of the global one."""
    by_amendment = {each.amendment: each for each in _from_first(definition, record)}
    found: Gathers | None = None
    known: set[int] = set()
    for each in _from_first(definition, shared):
        calls = definition.lane_calls(each, None)
        new = {call.index for call in calls if call.gather} - known
        known |= new
        own = by_amendment.get(each.amendment)
        gathering = [call for call in calls if call.index in new - each.begun and call.index not in gone]
        if own is None:  # none of them waits in the lane, or it was read before it was written anew
            continue
        one = gathers_among(definition, gathering, own, definition.lane_calls(own, instance), calls)
        if one is not None:
            found = one if found is None else found.beside(one)
    return found


def gathers_among(
    definition: StoredPlan, gathering: Sequence[Call], record: LaneRecord, calls: Sequence[Call], shared: Sequence[Call]
) -> Gathers | None:
    """The waits of gather calls, by a lane's record, with these calls of the lane and these global ones."""
    if not gathering or record.gathers is None:
        return None
    held, promised, required = (frozenset(places_in(record.gathers.get(name, ()))) for name in PLACES)
    writers = writers_of(calls, shared, definition.failing((*calls, *shared)))
    waits = Waits(gathering, writers, are_guests=True)
    return Gathers(tuple(gathering), waits.graph(held, promised, required), held, promised, required)


def _from_first(definition: StoredPlan, record: LaneRecord) -> Iterator[LaneRecord]:
    """A record and those that it keeps, the first one first."""
    if record.before:
        yield from _from_first(definition, unpack_lane(record.before, definition.tools))
    yield record


class RunGone(Exception):
    """The run's keys are not there: it was never submitted here, or its retention is over. Or another one has its id:
    it was deleted, and that was submitted.
    """


@dataclass(frozen=True)
class LaneWork:
    """The work in a lane."""

    calls: tuple[Call, ...]
    graph: Graph
    awaited: frozenset[int]
    """The global calls that calls of the lane wait for, or gather calls in it."""
    said: Said
    """The trust in the calls (SPEC R16.1)."""
    gathers: Gathers | None = None
    tick: int | None = None
    """Which tick of a loop brought it."""
    replaced: frozenset[int] = frozenset()
    """The calls that others replace."""

    @cached_property
    def by_index(self) -> Mapping[int, Call]:
        """The calls by their index."""
        return {call.index: call for call in self.calls}


class RunView:
    """The parts of a run that its lanes share: the definition, the global values, the statuses of global calls."""

    def __init__(self, run: str, definition: StoredPlan, tokens: Tokens, limits: Limits) -> None:
        self.run = run
        self.limits = limits
        self.tokens = tokens
        self.state = RunState(definition)
        """The state of the run as far as it was read: the global lane, and what lanes share."""
        self.size = 0
        """The bytes of the definition, of the entries and of the files."""
        self._about: defaultdict[int, list[Entry]] = defaultdict(list)
        """What the global lane of a loop says of each call: each tick opens that lane again, for the calls that it has
        brought.
        """
        self.undone: list[Entry] = []
        """The entries of that lane by which calls were undone."""
        self.laid_out = "0-0"
        """The entry that says what that lane is."""
        self.files: Mapping[str, bytes] = {}
        """The files in its messages, by their digests."""
        self.born = ""
        """When it was submitted, which tells it from another one under its id."""
        self.trace = ""
        """Its place in a trace, where it is not the root of its own."""
        self.priority = 0
        self.sends_much = False
        """Whether a remote call of it was given something large."""
        self._work: dict[bytes, LaneWork] = {}
        """The work for each record that lanes share."""

    @classmethod
    async def open(
        cls, log: MessageLog, run: str, limits: Limits, instance: str | None, said_here: SaidHere | None = None
    ) -> tuple[RunView, Opened]:
        """Read the shared part of a run, and one lane of it; `said_here` as in `StoredPlan`. Raises `RunGone`."""
        shared = await log.shared(run, instance, has_files=True)
        definition, tokens, entries, lane, trace, priority, files = shared
        if definition is None:
            raise RunGone(run)
        view = cls(run, unpack_definition(definition, said_here), tokens, limits)
        view.trace, view.born, view.priority = trace, lane.born, priority
        view.size += len(definition)
        view.feed(entries)
        view.files = files
        view.size += sum(map(len, files.values()))
        return view, lane

    async def catch_up(self, log: MessageLog) -> None:
        """Read the new entries of the global lane. Raises `RunGone`."""
        entries = self.entries_of(await log.open(self.run, None, after=self.seen))
        self.feed(entries)
        self.files = await log.with_files(self.run, self.files, entries)

    def entries_of(self, opened: Opened) -> Sequence[Entry]:
        """The entries that were read of a lane of this run. Raises `RunGone` where it is one of another run under its
        id.
        """
        if opened.born != self.born:
            raise RunGone(self.run)
        return opened.entries

    @property
    def definition(self) -> StoredPlan:
        """The definition, as amended."""
        return self.state.definition

    @property
    def is_loop(self) -> bool:
        """Whether a model is asked again and again what the run does next."""
        return self.definition.request is not None

    @property
    def fold(self) -> Fold:
        """The global values."""
        return self.state.shared.fold

    @property
    def seen(self) -> str:
        """The last entry of the global lane that was read."""
        return self.state.shared.last

    @property
    def calls(self) -> tuple[Call, ...]:
        """The global calls."""
        return self.definition.lane_calls(self.state.shared.record, None)

    @property
    def has_gathers(self) -> bool:
        """Whether some global call reads in every instance (SPEC R10.4)."""
        return any(call.gather for call in self.calls)

    def has_ended(self, index: int) -> bool:
        """Whether a global call has."""
        return self.state.shared.end(index) is not None

    def work(self, record: LaneRecord, instance: str | None) -> LaneWork:
        """The work in a lane with this record; lanes with the same templates share it."""
        if (work := self._work.get(record.data)) is not None:
            return work
        work = self._make_work(record, instance)
        if self.definition.are_same_everywhere(record):
            self._work[record.data] = work
        return work

    def _make_work(self, record: LaneRecord, instance: str | None) -> LaneWork:
        calls, global_record = self.definition.lane_calls(record, instance), self.state.shared.record
        shared = self.calls if instance is not None else ()
        graph = self.definition.graph(calls, record, shared)
        stand_ins = {**global_record.stand_ins, **record.stand_ins}
        graph = graph.with_stand_ins(stand_ins) if stand_ins else graph
        gathers = None
        if instance is not None and any(call.gather for call in shared):
            gathers = gathers_of(self.definition, record, instance, global_record, global_record.begun)
        awaited = graph.awaited | (gathers.graph.awaited if gathers is not None else frozenset())
        awaited &= self.state.shared.known.keys() if instance is not None else frozenset()
        said = self.definition.said_of(calls)
        return LaneWork(calls, graph, awaited, said, gathers, record.tick, frozenset(stand_ins))

    def feed(self, entries: Iterable[Entry]) -> None:
        """Take in entries of the global lane; those seen before are passed over."""
        for entry in entries:
            if id_key(entry.id) <= id_key(self.seen):
                continue
            self.size += entry.size
            entry = self.state.apply(entry)
            if entry.record is not None:
                self._work.clear()
                self.laid_out = entry.id
            if self.is_loop and entry.undone is not None:
                self.undone.append(entry)
            elif self.is_loop and entry.call is not None:
                self._about[call_of(entry.call)].append(entry)

    def said_of(self, calls: Iterable[int]) -> list[Entry]:
        """The entries of a loop's global lane that are about some calls, and those by which calls were undone."""
        about = (entry for index in calls for entry in self._about.get(index, ()))
        return sorted((*about, *self.undone), key=lambda entry: id_key(entry.id))


class LaneView:
    """One lane: the values its reader sees, and the state of its calls."""

    def __init__(
        self,
        run: RunView,
        instance: str | None,
        entries: Iterable[Entry] | None,
        mark: float | None = None,
        unsettled: Mapping[int, int] | None = None,
    ) -> None:
        """Without `entries` it is the global lane of a loop, as the run's view has it."""
        self.run = run
        self.instance = instance
        self.seen = "0-0"
        self.size = 0
        """The bytes of what was read of it."""
        self.global_seen = run.seen
        self.mark = mark
        """The mark of the lane's published task, read before the calls at work."""
        is_kept, entries = entries is None, list(entries or ())
        undone = [entry.undone.calls for entry in (run.undone if is_kept else entries) if entry.undone is not None]
        self.was_retried = bool(undone)
        """Whether calls were undone that calls of the lane may wait for, also such as had begun."""
        self.given_back: dict[int, int] = {}
        """Since when calls wait for code that admits them, by the log's first note of that, in ms (SPEC R17.3)."""
        self.progress: dict[int, bytes] = {}
        """The last progress that calls have reported, for their next attempts."""
        self._again = Counter(call for calls in undone for call in calls)
        record, first = (run.state.shared.record, run.laid_out) if is_kept else self._record(entries)
        self._first = first
        """The entry that says what the lane is; what was given up before is waited for anew."""
        work = run.work(record, instance)
        self.calls, self.by_index, self.awaited = work.calls, work.by_index, work.awaited
        self.fold = run.fold.copy() if is_kept else Fold(run.fold) if instance is not None else Fold()
        definition = run.definition
        self._gathered = GatheredFolds(run.state.added_sources)
        terms = LaneConfig(
            *(definition.tools, definition.returns, instance, work.said.all, definition.refuses_untrusted),
            added=work.said.added,
            added_sources=run.state.added_sources,
            approvals=definition.approvals,
            rules=run.state.rules,
            limits=run.limits,
            defers_errors=work.tick is not None,
            is_simulated=is_simulation(definition.config),
            fails_unknown=fails_unknown(definition.config),
        )
        self.execution = Execution(self.calls, work.graph, self.fold, terms, self._gathered.of)
        self._gather_waits = GatherWaits(work.gathers, self.fold) if work.gathers is not None else None
        self._relabels = run.state.relabels or work.said.relabels
        self._settled: set[int] = set()
        """The gather calls of which the log knows that they are settled here."""
        self._unsettled = unsettled
        if is_kept:
            self._recall()
        else:
            self.feed(with_effective_events(entries))
        self.note_global()

    def _record(self, entries: Sequence[Entry]) -> tuple[LaneRecord, str]:
        """What the lane is, and the entry that says so."""
        for entry in reversed(entries):
            if entry.record is not None:
                return self.run.state.read_record(entry.record, self.instance)[0], entry.id
        return LaneRecord(), "0-0"

    def _recall(self) -> None:
        """Take in what the run's view knows of the lane and of its calls; the fold has what they have written."""
        for entry in with_effective_events(self.run.said_of(self.by_index)):
            self._note(entry, is_folded=True)
        self.seen, self.size = self.run.seen, self.run.size

    @classmethod
    async def open(cls, log: MessageLog, run: RunView, instance: str | None, opened: Opened | None = None) -> LaneView:
        """Read a lane; where it was amended, what it shares with others may be newer than the view. `opened` is the
        lane as it was read with the view. Raises `RunGone`.

        The mark is read first and the entries last: what a call at work was begun after is known, and the mark (see
        commit.lua) cannot belong to a loss that was not read.
        """
        has_gathers = instance is None and run.has_gathers
        # Read before the entries: where no lane is left, what the calls wait for is among them. Of calls that came, or
        # were undone, after the view nothing was counted then.
        counted = id_key(run.seen)
        unsettled = await log.unsettled(run.run) if has_gathers else None
        is_kept = instance is None and run.is_loop
        if opened is None or has_gathers:
            opened = await log.open(run.run, instance, after=run.seen if is_kept else "0-0")
        entries = run.entries_of(opened)
        laid_out = [id_key(entry.id) for entry in entries[not is_kept :] if entry.replaces_plan]
        if is_kept:
            run.feed(entries)
            run.files = await log.with_files(run.run, run.files, entries)
        elif laid_out or run.is_loop:  # what ticks have brought may be newer than the view
            await run.catch_up(log)
        is_newer = not has_gathers or max(laid_out, default=counted) > counted
        if instance is None and run.has_gathers and (laid_out or run.is_loop) and is_newer:
            return await cls.open(log, run, instance)
        view = cls(run, instance, None if is_kept else entries, opened.mark, unsettled)
        if opened.open_calls:
            running = await log.at_work(run.run, instance, view.execution.unended, opened.now_ms)
            if not await view.catch_up(log):
                return await cls.open(log, run, instance)
            view.note_running(running)
        return view

    def again(self, index: int) -> int:
        """How often a call had ended and was to be run again; for an element the number of its call."""
        return self._again[call_of(index)]

    def is_of_now(self, attempt: Attempt) -> bool:
        """Whether an attempt belongs to the current execution of the call, and not to one that was undone."""
        return attempt.again == self.again(attempt.id.index)

    def note_running(self, calls: Iterable[int]) -> None:
        """Take in which calls are at work; those that have ended meanwhile stay so."""
        for index in calls:
            self.execution.record(index, events.Status.RUNNING)

    def note_global(self) -> None:
        """Take in what the run's view has learnt: global calls that have ended, and values that may have come."""
        self.global_seen = self.run.seen
        self.execution.receive()
        self._note_given_up(self.run.state.gave_up)
        for index in self.awaited:
            if (end := self.run.state.shared.end(index)) is not None:
                marks = end.labels, end.chosen, end.choosing
                self.execution.end(index, end.status, *marks, by_field=end.is_by_field)
                if self._gather_waits is not None:
                    self._gather_waits.end(index)

    def apply(self, outcome: events.Outcome) -> None:
        """Take in an outcome of our own as if it were in the log already; it is about to be."""
        if self.execution.status(outcome.index) in events.FINAL:
            return
        for event in outcome.events:
            self._take(event, f"result of call {call_of(outcome.index)}")

    def output_fault(self) -> str | None:
        """The fault of the run's output (see `output_fault`); empty for none, None where it is not known here.

        It is known in the global lane when all its calls have ended.
        """
        if self.instance is not None or not self.execution.is_finished:
            return None
        definition = self.run.definition
        return output_fault(definition.output, self.fold, definition.schema) or ""

    @property
    def is_finished(self) -> bool:
        """Whether every call of the lane has ended."""
        return self.execution.is_finished

    @property
    def waits_for_global(self) -> bool:
        """Whether some call of this lane waits for a global call, or for a promised value that may come globally."""
        if self.instance is None:
            return False  # its own entries wake it
        promised = (*self.execution.promised, *(self._gather_waits.promised if self._gather_waits is not None else ()))
        return bool(promised) or not all(map(self.run.has_ended, self.awaited))

    async def catch_up(self, log: MessageLog) -> bool:
        """Read what has come since, where everything of our own is in the log; False if the lane was amended, or
        calls of it are tried again. Raises `RunGone`.
        """
        entries = self.run.entries_of(await log.open(self.run.run, self.instance, after=self.seen))
        if any(entry.replaces_plan for entry in entries):
            return False
        self.feed(entries)
        self.run.files = await log.with_files(self.run.run, self.run.files, entries)
        if self.waits_for_global:
            await self.run.catch_up(log)
            self.note_global()
        return True

    def feed(self, entries: Iterable[Entry]) -> None:
        """Take in entries of the lane, the next ones."""
        for entry in entries:
            self._note(entry)
            self.seen = entry.id
            self.size += entry.size

    def _note(self, entry: Entry, *, is_folded: bool = False) -> None:
        event = entry.event
        if isinstance(event, events.PromisesGivenUp):
            self._note_given_up(entry.id)
        elif isinstance(event, events.CallGivenBack):
            self.given_back.setdefault(event.call, moment_ms(entry.id))
        elif isinstance(event, events.CallProgressed):
            self.progress[event.call] = pack_progress(event.progress)
        elif event is not None and not isinstance(event, RunStatusChanged):
            self._take(event, f"message {entry.id}", is_folded=is_folded)

    def _take(self, event: events.Event, source: str, *, is_folded: bool = False) -> None:
        if isinstance(event, events.WriteEvent) and not is_folded:
            call = self.by_index.get(-1 if event.call is None else event.call) if self._relabels else None
            if call is not None:
                event = events.relabelled(
                    event, call, self.execution.trust_of(call), self.fold, self.run.state.added_sources
                )
            if event.message is not None:
                self.fold.append(event.message, source)
        self.execution.apply(event)
        if self._gather_waits is not None:
            self._gather_waits.apply(event)

    def _note_given_up(self, id_: str) -> None:
        """Note that the run has given up, with an entry, what was promised."""
        if id_key(id_) > id_key(self._first):
            self._take(events.PromisesGivenUp(), "")

    def newly_settled(self) -> list[int]:
        """The gather calls that have nothing to wait for here any more, and of which the log does not know it yet."""
        if self._gather_waits is None:
            return []
        left = (one for one in self._gather_waits.waiting if one not in self._settled and not self.run.has_ended(one))
        return [index for index in left if self._gather_waits.is_settled(index)]

    def note_settled(self, calls: Iterable[int]) -> None:
        """Note that the log knows that gather calls are settled here."""
        self._settled.update(calls)

    def gathering(self, ended: Iterable[int] = ()) -> list[Call]:
        """The gather calls of the global lane that can be decided, or are among those whose results have come, once
        `gather` has read for them.
        """
        left, loaded = self._unsettled, self._gathered.calls
        if left is None:
            return []
        begun = (call for index in ended if (call := self.execution.call(index)) is not None and call.gather)
        calls = [*self.execution.gathering, *(call for call in begun if call.index not in self._gathered.trusted)]
        return [call for call in calls if not left.get(call.index) and call.index not in loaded]

    async def gather(self, log: MessageLog, calls: Sequence[Call]) -> None:
        """Read the values of all instances, as far as calls read them."""
        folds = FoldsOfInstances(self.fold, calls, await log.instances(self.run.run))
        async for found in log.messages(self.run.run):
            folds.take(*found)
        self._gathered.take(calls, folds.by_instance)

    def gather_from(self, instances: Iterable[str], found: Iterable[Found], calls: Sequence[Call]) -> None:
        """Take the values of all instances from messages that were read of the log already."""
        folds = FoldsOfInstances(self.fold, calls, instances)
        for one in found:
            folds.take(*one)
        self._gathered.take(calls, folds.by_instance)

    def let_go(self) -> None:
        """Keep no longer what was gathered."""
        self._gathered.take((), {})
