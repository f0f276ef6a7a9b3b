"""Retry failed calls of a run in the same run, with the calls that were skipped for them and, on request, those that
have read what they may write now (SPEC R11.8).

An entry of the log says from when on the ends of these calls, and what they had written, no longer count (see
`store.keys`). Everything else that has ended stays, and the entry says which of it is stale. If a value is given by
hand, the failed calls are done with it, and the log says who gave it. The run is paused meanwhile, as for an amendment,
and opened again if it had ended (SPEC R11.7). If the client dies on the way, the same retry can be started again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

from redis import Redis

from ...broker_config import Settings
from ...protocol import Problem, Rejected
from ...protocol.calls.call import call_of
from ...protocol.engine.events import CallsUndone, Outcome, Status, Success
from ...protocol.limits import one_message_problems
from ...protocol.plan.graph import Graph
from ...protocol.plan.waits import Gathers, LaneWaits, RetryReach, Waits
from ...protocol.state.operations import read_operation
from .. import limits
from ..backoff import batches
from ..broker.attempts import CallId, call_name, lane_token
from ..broker.messages import pack
from ..errors import BeingAmended, InstanceNotFound, NothingToRetry
from ..limits import limits_of
from ..store.connections import read_tokens
from ..store.definition import AmendmentLayer, LaneRecord, pack_amended_lane, writers_of
from ..store.entries import Entry, id_key
from ..store.held_calls import Actor, audit_record
from ..store.keys import Kind
from ..store.lane import Found, LaneView, RunView, gathers_among
from ..store.run_store import RunStore
from ..store.scripts import date_now
from ..store.state import LaneState
from ..store.waiting import DeadLetters
from .amendment import AmendmentSteps
from .submitting import admitted

# What a retry undoes, over all lanes of a run (SPEC R11.8), and which calls that leaves stale.


@dataclass(slots=True)
class RetryLane:
    """A lane, and what a retry undoes in it."""

    state: LaneState
    before: set[int]
    """The calls that a client has undone here which died before its retry was finished."""
    begun: set[int] = field(default_factory=set)
    """The calls at work: they have read what was there when they began."""
    failed: set[int] = field(default_factory=set)
    """The calls to be retried: they, or some of their elements, have failed."""
    undone: set[int] = field(default_factory=set)
    """All calls that run again, or are decided anew."""
    keeping: set[int] = field(default_factory=set)
    """The undone calls that repeat only their failed elements (SPEC R4.10)."""
    stale: set[int] = field(default_factory=set)
    """The calls that have read what may change now, and do not run again."""

    @property
    def instance(self) -> str | None:
        """The lane's instance, or None."""
        return self.state.instance

    @property
    def held(self) -> set[int]:
        """The calls that wait for a person or a moment, and have read their parameters."""
        return {index for index, call in self.state.calls.items() if call.is_set_aside and not call.is_unknown}

    @property
    def have_read(self) -> set[int]:
        """The calls that have read data, or were decided by it."""
        ended = (index for index, end in self.state.ended.items() if end.status is not Status.LATENT)
        return {*ended, *self.begun, *self.held}

    @property
    def waiting(self) -> set[int]:
        """The calls that have not begun."""
        return {*self.state.open} - self.begun

    @property
    def with_failed_elements(self) -> set[int]:
        """The calls that are done, except for elements that have failed."""
        found = ((index, self.state.call(index).elements) for index in self.state.of_status(Status.DONE))
        return {index for index, elements in found if elements is not None and elements.failed}

    @property
    def rescued(self) -> set[int]:
        """The calls that have failed, and have written the error to the last of their alternatives."""
        return {index for index, end in self.state.ended.items() if end.is_rescued}

    def parts(self, index: int) -> list[int]:
        """List the elements of a call that are undone with it."""
        ended, keeps = self.state.elements(index), index in self.keeping
        return sorted(part for part, status in ended.items() if status is Status.FAILED or not keeps)

    def sent(self, undone: Iterable[int]) -> list[int]:
        """Pick the calls and elements that were sent and forgotten themselves."""
        return [one for one in undone if self._is_sent(one)]

    def _is_sent(self, index: int) -> bool:
        call = self.state.call(call_of(index))
        if call.elements is not None:
            return call.elements.statuses.get(index) is Status.SENT
        return call.end is not None and call.end.status is Status.SENT


@dataclass(frozen=True, slots=True)
class RetryScope:
    """How far a retry goes beyond failed calls."""

    downstream: bool = False
    """Retry the readers of what is written anew, and what is stale from before."""
    effects: bool = False
    """Do so also for calls with effects, and for those that were sent and forgotten."""

    @classmethod
    def named(cls, name: str) -> Self:
        """Read a scope from its name."""
        return cls("--downstream" in name, "--effects" in name)

    @property
    def name(self) -> str:
        """The name of the amendment in the run's state."""
        return f"retry{' --downstream' * self.downstream}{' --effects' * self.effects}"

    def __or__(self, other: RetryScope) -> RetryScope:
        """Go as far as either scope."""
        return RetryScope(self.downstream or other.downstream, self.effects or other.effects)

    def takes(self, view: RunView, lane: RetryLane) -> set[int]:
        """List the calls of a lane that run again if one that they depend on does."""
        if not self.downstream:
            return lane.state.of_status(Status.SKIPPED)
        return lane.held | {index for index in lane.state.ended if self._takes(view, lane, index)}

    def _takes(self, view: RunView, lane: RetryLane, index: int) -> bool:
        end, call = lane.state.end(index), lane.state.known.get(index)
        if end is None or call is None or end.status is Status.LATENT:
            return False
        if end.status is Status.SKIPPED or self.effects:
            return True
        return end.status is not Status.SENT and not view.definition.has_effects(call)


@dataclass(frozen=True, slots=True)
class Retried:
    """The calls that a retry has changed, by their ids (see `CallResult`)."""

    calls: tuple[str, ...]
    """The failed calls that run again, or are done with a value given by hand."""
    skipped: tuple[str, ...]
    """The calls that were skipped for a failed one and are decided anew."""
    downstream: tuple[str, ...] = ()
    """The other calls that run again, since what they have read may change."""
    stale: tuple[str, ...] = ()
    """The calls that do not run again although what they have read may change."""

    def to_dict(self) -> dict[str, list[str]]:
        """Convert to JSON."""
        return {
            "retried": list(self.calls),
            "reconsidered": list(self.skipped),
            "downstream": list(self.downstream),
            "stale": list(self.stale),
        }


class RetryPlan:
    """The calls that a retry undoes in a run, and those that become stale; the lanes, the global one first, name the
    chosen calls.
    """

    def __init__(self, view: RunView, lanes: Sequence[RetryLane], scope: RetryScope) -> None:
        self.view = view
        self.lanes = lanes
        self.scope = scope
        shared = lanes[0]
        self._gathers = frozenset(call.index for call in view.calls if call.gather)
        """The gather calls of the lanes as they are now: one that an amendment has left behind is not undone."""
        self._left_behind = {index for index, call in shared.state.known.items() if call.gather} - self._gathers
        graphs = _LaneGraphs(view)
        self._joins = {lane.instance: graphs.of(lane.state) for lane in lanes}
        self._extend()
        left = self._gathers - (shared.state.ended.keys() - shared.undone) - shared.begun
        self.unsettled = {
            lane.instance: sorted({*self._joins[lane.instance].gathering(left, lane.undone | self._shared)})
            for lane in lanes[1:]
        }
        """The gather calls that have something to wait for again, by the lane where that is."""

    def _extend(self) -> None:
        """Add to the chosen calls what depends on them, as far as the retry goes, and find what becomes stale."""
        view, lanes = self.view, self.lanes
        replaced = {lane.instance: view.work(lane.state.record, lane.instance).replaced for lane in lanes}
        again = {lane.instance: self.scope.takes(view, lane) - replaced[lane.instance] for lane in lanes}
        reach = RetryReach(
            lanes=[*self._joins.values()],
            gathers=self._gathers | self._left_behind,
            again={**again, None: again[None] - self._left_behind},
            readers={lane.instance: lane.have_read - replaced[lane.instance] for lane in lanes},
        )
        chosen = {lane.instance: lane.undone | lane.before for lane in lanes}
        extended = reach.extended(chosen, {lane.instance: lane.keeping for lane in lanes})
        for lane in lanes:
            lane.undone = extended.calls[lane.instance] - lane.before
            lane.keeping = extended.keeping[lane.instance]
            found = extended.stale[lane.instance]
            lane.stale = {index for index in found if not lane.state.call(index).is_stale}

    @property
    def _shared(self) -> set[int]:
        """The global calls that are undone."""
        return self.lanes[0].undone | self.lanes[0].before

    @property
    def unsettled_gathers(self) -> list[str]:
        """The gather calls that have something to wait for again in any lane."""
        return [str(index) for index in sorted({index for found in self.unsettled.values() for index in found})]

    def concerns(self, lane: RetryLane) -> bool:
        """Tell whether an entry must be written in a lane, if only since its calls wait for others again."""
        if lane.undone or lane.stale:
            return True
        if lane is self.lanes[0]:
            return bool(self.unsettled_gathers)
        waits = bool(self._shared) and bool(self._joins[lane.instance].within(self._shared, lane.waiting))
        return waits or bool(self.unsettled[lane.instance])

    @property
    def retried(self) -> Retried:
        """The calls that the retry changes."""

        def names(of: Callable[[RetryLane], set[int]]) -> tuple[str, ...]:
            return tuple(call_name(index, lane.instance) for lane in self.lanes for index in sorted(of(lane)))

        return Retried(
            names(lambda lane: lane.failed),
            names(lambda lane: (lane.undone - lane.failed) & lane.state.of_status(Status.SKIPPED)),
            names(lambda lane: lane.undone - lane.failed - lane.state.of_status(Status.SKIPPED)),
            names(lambda lane: lane.stale),
        )


class _LaneGraphs:
    """Makes the graphs of lanes, as they are and as they were before amendments."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._shared = tuple(view.state.shared.known.values())
        """Every global call that the run has ever had."""
        self._known: dict[bytes, tuple[Graph, Gathers | None]] = {}
        """The graph for each record that lanes share."""
        self._over: dict[tuple[bytes, ...], Graph] = {}
        """The graph over all records of a lane, by these."""

    def of(self, lane: LaneState) -> LaneWaits:
        """Make the graphs of a lane."""
        found = [self._read(record, lane.instance) for record in lane.records or [LaneRecord()]]
        if len(self._view.state.shared.records) > 1 and self._view.definition.request is None:
            found.append((self._read_all(lane), None))
        gathers = [gathers for _, gathers in found if gathers is not None]
        return LaneWaits(lane.instance, [graph for graph, _ in found], gathers)

    def _read(self, record: LaneRecord, instance: str | None) -> tuple[Graph, Gathers | None]:
        view, definition = self._view, self._view.definition
        if len(view.state.shared.records) < 2:
            work = view.work(record, instance)
            return work.graph, work.gathers
        if (known := self._known.get(record.data)) is not None:
            return known
        calls, shared = definition.lane_calls(record, instance), self._shared if instance is not None else ()
        graph = definition.graph(calls, record, shared)
        stand_ins = {**view.state.shared.record.stand_ins, **record.stand_ins}
        graph = graph.with_stand_ins(stand_ins) if stand_ins else graph
        gathering = [call for call in shared if call.gather]
        found = graph, gathers_among(definition, gathering, record, calls, shared)
        if definition.are_same_everywhere(record):
            self._known[record.data] = found
        return found

    def _read_all(self, lane: LaneState) -> Graph:
        """Make the graph of all calls that a lane has had: one may have read calls that had ended when it was added."""
        key = tuple(record.data for record in lane.records)
        if (known := self._over.get(key)) is not None:
            return known
        definition, own = self._view.definition, tuple(lane.known.values())
        waits = Waits(own, writers_of(own, (), definition.failing(own)))
        found = waits.graph(frozenset(waits.uncertain))
        if all(map(definition.are_same_everywhere, lane.records)):
            self._over[key] = found
        return found


def new_record(view: RunView, lane: RetryLane) -> bytes:
    """Make the lane's newest record, with the undone calls that an amendment has left behind since."""
    records, definition = lane.state.records or [LaneRecord()], view.definition
    left = lane.undone - {call.index for call in definition.lane_calls(records[-1], lane.instance)}
    if not left:
        return records[-1].data or pack_amended_lane(records[-1])
    layers = []
    for record, following in zip(reversed(records[:-1]), reversed(records[1:]), strict=True):
        calls = tuple(call for call in definition.lane_calls(record, lane.instance) if call.index in left)
        left -= {call.index for call in calls}
        first = int((following.amendment or ":0").rpartition(":")[2])
        if calls:
            layers.append(AmendmentLayer(calls, first, record.held, record.promised, record.required, record.unseen))
    return pack_amended_lane(replace(records[-1], kept=(*records[-1].kept, *layers)))


_HAVE_READ_NOTHING: Final = (Kind.HELD, Kind.RETRY)
"""The conditions of calls that will read their parameters anew. A held call is undone as one that has ended; a lost one
may still bring a result.
"""


@dataclass(frozen=True, slots=True)
class Choice:
    """The failed calls to be retried: of an index, of an instance, or all; or to be done with the result `given`."""

    scope: RetryScope
    call: int | None = None
    instance: str | None = None
    given: Success | None = None

    def of(self, lane: RetryLane, indexes: set[int]) -> set[int]:
        """Pick the chosen calls from some calls of a lane."""
        if self.instance not in (None, lane.instance):
            return set()
        return indexes if self.call is None else indexes & {self.call}


class Retrier:
    """Retries calls of one run."""

    def __init__(self, run: str, redis: Redis, settings: Settings) -> None:
        self._run = run
        self._redis = redis
        self._settings = settings
        self._store = RunStore.open(redis, settings.key_prefix, run)
        self._steps = AmendmentSteps(run, redis, settings)
        self._by = str(Actor.of(settings))

    def retry(self, choice: Choice, *, resume: Callable[[], None]) -> Retried:
        """Retry calls, and `resume` the run unless it was paused.

        Raises `NothingToRetry` and, if the value given does not fit, `protocol.Rejected`, and then the run is as
        before; `RunNotFound`, `RunOver`, `InstanceNotFound`, `BeingAmended`, `OverLimit`.
        """
        given = choice.given
        if given is not None and (problems := [*one_message_problems(given.value, limits_of(self._settings))]):
            raise Rejected(problems)
        submitted, _ = self._begun(choice)
        with admitted(self._redis, self._settings, more_of=self._run), self._steps.listed(submitted):
            return self._carry_out(choice, resume)

    def planned(self, choice: Choice) -> Retried:
        """Find out what `retry` would do now. Raises as it does."""
        return self._begun(choice)[1].retried

    def _begun(self, choice: Choice) -> tuple[int, RetryPlan]:
        """Find out when the run was submitted, and what a retry would undo."""
        submitted, by = self._steps.opened("nothing of it can be retried")
        return submitted, self._planned(choice, by)

    def _carry_out(self, choice: Choice, resume: Callable[[], None]) -> Retried:
        with self._steps.begun(resume, adds=True) as found:
            plan = self._planned(choice, found["by"])
            requests = list(self._requests(plan, choice.given))
        done = plan.retried
        did = "retried" if choice.given is None else "given by hand"
        order = audit_record(self._settings, did, calls=done.calls[: limits.RETRYING_MOST_NAMED])
        self._steps.do("plan", by=plan.scope.name, adds=True, deed=order.pack(), gathers=plan.unsettled_gathers)
        withdrawn = (CallId(self._run, of["lane"] or None, one) for of in requests for one in of["withdrawn"])
        DeadLetters(self._redis, self._settings).forget_calls(withdrawn)
        self._steps.do_all("undo", requests)
        self._steps.end(order, resume)
        return done

    def _planned(self, choice: Choice, by: str) -> RetryPlan:
        """Find what is to be undone; `by` names an amendment that a client which died has begun.

        Raises `BeingAmended` if that is no retry, `NothingToRetry`.
        """
        if by and not by.startswith(RetryScope().name):
            raise BeingAmended(f"run {self._run} is only partly amended: finish that first, or cancel the run")
        view, before = self._read(choice, by)
        scope = choice.scope | RetryScope.named(by)
        lanes = [RetryLane(lane, before=before[lane.instance]) for lane in view.state.lanes.values()]
        begun = defaultdict[str | None, set[int]](set)
        for instance, index in self._store.open_calls(without=_HAVE_READ_NOTHING):
            begun[instance].add(index)
        for lane in lanes:
            lane.begun = begun[lane.instance] & lane.state.known.keys()
            failed = lane.state.of_status(Status.FAILED)
            parts = lane.with_failed_elements if choice.given is None else set()
            rescued = lane.rescued if choice.call is not None else set()
            lane.failed = choice.of(lane, failed | parts | rescued)
            lane.keeping = lane.failed - failed - rescued
            stale = {index for index, call in lane.state.calls.items() if call.is_stale and scope.downstream}
            lane.undone = lane.failed | choice.of(lane, stale & scope.takes(view, lane))
        if not any(lane.undone for lane in lanes) and not by:
            raise NothingToRetry(self._why_nothing(lanes, choice))
        return RetryPlan(view, lanes, scope)

    def _read(self, choice: Choice, by: str) -> tuple[RunView, Mapping[str | None, set[int]]]:
        """Read the run as far as the retry may reach, and which calls of each lane a client that died has undone."""
        if not by and (view := self._read_one(choice)) is not None:
            return view, defaultdict(set)
        view = self._view(self._store.instances())
        [since] = self._store.fields("amending:since")
        undone = defaultdict[str | None, set[int]](set)
        for entry in self._store.entries():
            view.state.apply(entry)
            if since is not None and entry.undone is not None and id_key(entry.id) > id_key(since):
                undone[entry.instance].update(entry.undone.calls)
        return view, undone

    def _read_one(self, choice: Choice) -> RunView | None:
        """Read the chosen instance alone; None if the retry may reach others, which gather calls alone connect."""
        if choice.instance is None or not self._store.has_lane(choice.instance):
            return None
        view = self._view([choice.instance])
        lanes = (entry for lane in (None, choice.instance) for entry in self._store.lane(lane))
        view.state.feed(sorted(lanes, key=lambda entry: id_key(entry.id)))
        gathers = any(call.gather for call in view.state.shared.known.values())
        return None if gathers or view.definition.request is not None else view

    def _view(self, instances: Sequence[str]) -> RunView:
        """Make a view of the run, with nothing of its log read yet."""
        definition, tokens = self._store.definition(), read_tokens(self._redis, self._settings.key_prefix)
        view = RunView(self._run, definition, tokens, limits_of(self._settings))
        for instance in instances:
            view.state.lane(instance)
        return view

    def _why_nothing(self, lanes: Sequence[RetryLane], choice: Choice) -> str:
        """Explain why there is nothing to retry. Raises `InstanceNotFound`."""
        run, names = self._run, [lane.instance for lane in lanes if lane.instance is not None]
        if choice.instance is not None and choice.instance not in names:
            raise InstanceNotFound(run, choice.instance, names)
        where = f" in {choice.instance}" if choice.instance is not None else ""
        if choice.call is None:
            return f"no call of run {run}{where} has failed: there is nothing to retry"
        mine = [lane for lane in lanes if choice.instance in (None, lane.instance)]
        known = [lane for lane in mine if choice.call in lane.state.known]
        if not known:
            return f"run {run} has no call {choice.call}{where}: see `acts show {run} --all`"
        ends = [lane.state.end(choice.call) for lane in known]
        found = sorted({end.status.value if end is not None else "not over" for end in ends})
        if any(lane.state.call(choice.call).is_stale for lane in known):
            return f"call {choice.call} of run {run}{where} has not failed and is stale: --downstream does it again"
        return f"call {choice.call} of run {run}{where} is {' or '.join(found)}: only failed calls are retried"

    def _requests(self, plan: RetryPlan, given: Success | None) -> Iterator[dict[str, Any]]:
        """Make the steps that write a retry, the global lane first. Raises `Rejected` for a value that does not fit."""
        for lane in plan.lanes:
            if not plan.concerns(lane):
                continue
            common = {
                "lane": lane_token(lane.instance),
                "detail": pack({"by": self._by}),
                "keeping": sorted(lane.keeping),
                "unsettled": plan.unsettled.get(lane.instance, []),
                "undone": [],
                "record": b"",
                "given": [],
            }
            undone = sorted(lane.undone)
            parts = [part for index in undone for part in lane.parts(index)]
            for some in batches(parts, limits.UNDONE_AT_ONCE):
                yield {**common, "parts": some, "withdrawn": lane.sent(some)}
            first, last = undone[: -limits.UNDONE_AT_ONCE], undone[-limits.UNDONE_AT_ONCE :]
            for some in batches(first, limits.UNDONE_AT_ONCE):
                yield {**common, "undone": some, "withdrawn": lane.sent(some)}
            outcomes = self._given(plan.view, lane, given) if given is not None else []
            record = new_record(plan.view, lane) if undone else b""
            ends = {"undone": last, "withdrawn": lane.sent(last), "record": record, "given": outcomes}
            yield {**common, **ends, "stale": sorted(lane.stale)}

    def _given(self, view: RunView, lane: RetryLane, given: Success) -> list[dict[str, Any]]:
        """Find the outcomes of a lane's failed calls with a result that is given by hand."""
        entries = self._store.lane(lane.instance)
        undoing = Entry(lane.state.last, CallsUndone(tuple(lane.undone)), record=new_record(view, lane))
        shown = LaneView(view, lane.instance, [*entries, undoing])
        outcomes = []
        gathering = [call for index in lane.failed if (call := lane.state.known[index]).gather]
        if gathering:  # what the value hangs on lies in all instances
            shown.gather_from(self._store.instances(), self._messages(), gathering)
        for index in sorted(lane.failed):
            outcome = shown.execution.finish(index, given, date_now())
            if (reason := _refusal(outcome, given)) is not None:
                raise Rejected([Problem("", f"call {call_name(index, lane.instance)} cannot have the value: {reason}")])
            shown.apply(outcome)
            outcomes.append(self._written(outcome))
        return outcomes

    def _messages(self) -> Iterator[Found]:
        """Read the messages of instances, and what was undone of them."""
        for entry in self._store.entries():
            if (instance := entry.instance) is None:
                continue
            if entry.undone is not None:
                yield entry.id, instance, None, frozenset(entry.undone.calls)
            elif entry.message is not None:
                yield entry.id, instance, entry.call, entry.message

    def _written(self, outcome: Outcome) -> dict[str, Any]:
        labels = {"labels": sorted(outcome.labels)} if outcome.labels else {}
        labels |= {"chosen": sorted(outcome.chosen)} if outcome.chosen else {}
        return {
            "call": outcome.index,
            "status": outcome.status.value,
            "detail": pack({"by": self._by, **labels}),
            "messages": [pack({**message, "_by": self._by}) for message in outcome.messages],
        }


def _refusal(outcome: Outcome, given: Success) -> str | None:
    """Explain why an outcome is not the value given: the call fails with it, or writes the failure (SPEC R4.4)."""
    if outcome.status is Status.FAILED:
        return str((outcome.error or {}).get("message"))
    for message in outcome.messages:
        operation = read_operation(message, "the value given")
        if operation is not None and operation.value != given.value:
            return str(operation.value["message"])
    return None
