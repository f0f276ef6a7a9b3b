"""What the log says of a run: its definition as amended, its status, its lanes, its loop.

It is fed with the whole log in order, or with single lanes, the global one first: what lanes share is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from acts_celery.protocol.calls.call import Call, make_call
from acts_celery.protocol.calls.tools import Executor, Runner
from acts_celery.protocol.calls.trust import NOTHING, said_of
from acts_celery.protocol.engine.events import CallEnded, PromisesGivenUp
from acts_celery.protocol.engine.loop import Loop
from acts_celery.protocol.state.fold import Fold
from acts_celery.protocol.state.labels import TRUSTED, Labels

from .definition import Definition, LaneRecord, unpack_lane
from .entries import Entry, RunStatusChanged, id_key
from .lane_state import LaneState
from .loop_entries import follow
from .trust import Ended, relabelled


class RunState:
    """A run as far as its log was read, now or as of a past id `at`."""

    def __init__(
        self,
        definition: Definition,
        instances: Iterable[str] = (),
        *,
        at: str | None = None,
    ) -> None:
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
        self.missed: tuple[str, ...] = ()
        """What was promised, did not come, and could not be done without (SPEC R11.6)."""
        self.gave_up = "0-0"
        """The entry with which the run gave up what was promised and had not come."""
        self.amended = "0-0"
        """The entry of its last amendment."""
        self.loop = Loop() if definition.request is not None else None
        """Of a run that is a request."""
        self.loop_last = "0-0"
        """The last entry of the loop's lane."""
        self.relabels = False
        """Whether this process knows of sources of results that the run does not: what the log holds gets them."""
        self.added_sources = TRUSTED
        """Those of results in any lane, where the run has gather calls: these may have read in lanes that are not open
        here.
        """
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
            lane.lay_out(*self.read_record(entry.record, entry.instance))
            self.relabels |= self.definition.said_of(lane.known.values()).relabels
            if entry.instance is None and any(call.gather for call in lane.known.values()):
                self.added_sources = _added_sources(self.definition)
                self.relabels |= bool(self.added_sources)
        if self.relabels:
            entry = self._relabelled(entry, lane)
        lane.apply(entry)
        event = entry.event
        if isinstance(event, CallEnded):
            self.missed = self.missed or event.missed
        elif isinstance(event, PromisesGivenUp):
            self.gave_up = entry.id
        return entry

    def _relabelled(self, entry: Entry, lane: LaneState) -> Entry:
        event, call = entry.event, lane.known.get(-1 if entry.call is None else entry.call)
        if call is None or not isinstance(event, Ended):
            return entry
        trust = said_of(self.definition.said_of([call]).all, call.tool, call.runner.name)
        event = relabelled(event, call, trust, lane.fold, self.added_sources)
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


def _added_sources(definition: Definition) -> Labels:
    """The sources of results that a run does not know, and the code and operator of this process do: of its templates
    and of the activities that its calls were checked with.
    """
    if definition.said_here is None:
        return TRUSTED
    templates = (call for version in definition.versions for call in version)
    checked = (make_call(0, {"_tool": name}, {}, Runner(Executor.ACTIVITY, name)) for name in definition.contracts)
    added = definition.said_of((*templates, *checked)).added
    return TRUSTED.union(*(one.result - definition.trust.get(name, NOTHING).result for name, one in added.items()))
