"""The input of a call: its parameters, its scopes, and for a delegate or a model the messages.

What was held, and what a child run was given, is in a log, and is shown as it is there. What a delegate or a model was
sent is made again from the log up to where it had been read then: the end of the call says that. Of other calls it is
made from the values as they were before the first message of the call's result, as `acts explain` does it. `exact` says
whether it is what was given, and not only nearly so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ...protocol.analysis.findings import arrows
from ...protocol.analysis.provenance import Waiver
from ...protocol.calls.call import Call
from ...protocol.calls.declarations import delegate_context
from ...protocol.calls.outputs import Alternative, alternative
from ...protocol.calls.tools import ANONYMOUS, Executor
from ...protocol.engine.costs import Cost
from ...protocol.engine.events import FINAL, CallBegun, Ruling, Snapshot, Status, narrowed
from ...protocol.engine.loop import Answered, Loop, RequestRecorded, Started, Tick
from ...protocol.errors import ProtocolError
from ...protocol.plan.graph import Graph, places_read
from ...protocol.requests.rendering import result_request
from ...protocol.state.fold import Fold
from ...protocol.state.scopes import all_messages, scoped, scoped_messages
from .. import limits
from ..broker.attempts import Seen
from ..client.explanations import why_unasked
from ..errors import NoLoop, NoSuchCall, NoSuchTick
from ..store.definition import LaneRecord, StoredPlan
from ..store.entries import Entry, follow, id_key, moment_ms
from ..store.keys import LOOP
from ..store.lane import gathers_of
from ..store.state import RunState
from .drawing import NOT_TAKEN, WORST_FIRST, Node, draw, layers_of
from .opened import CallCounters, OpenedRun, RunCounters, shown, within

_MADE_AGAIN: Final = (
    "The log does not keep what this call was sent: this is made again from the values just before its result."
)
_AS_READ: Final = (
    "Made again from the log up to where it had been read when this was sent: it is exactly what was sent."
)
_OF_NOW: Final = "The call has not ended: this is what it would be given by the values as they are now."
_GATHERS: Final = "The call reads in every instance: what it was given is not kept, and is not made again here."
_HELD: Final = "It is in the log: the call was held with it."
_BEGUN: Final = "It is in the log: the call has begun with it."
_CHILD: Final = "A run of its own answers the call: its log holds what it was given."


@dataclass(frozen=True, slots=True)
class Given:
    """The input of a call."""

    snapshot: Snapshot
    is_exact: bool
    note: str
    alternatives: tuple[Alternative, ...] = ()
    """The places among which the model chooses, where there are several."""


def sent(run: OpenedRun) -> dict[str, Any]:
    """The answer `runs/RUN/sent`. Raises `NoSuchCall`, `InstanceNotFound`, `BadQuery`."""
    name = run.query.required("call")
    text, _, instance = name.partition(":")
    run.require_instance(instance or None)
    index = int(text) if text.isascii() and text.isdigit() and len(text) <= 15 else -1
    entries = run.entries(None, instance or None)
    reading = _Reading(run, entries, instance or None, {index})
    if (call := reading.calls.get(index)) is None:
        text = f"run {run.store.run} has no call {name[:200]!r}: calls are named by their index, as 3 or 3:instance"
        raise NoSuchCall(text)
    given, definition = reading.given.get(index), reading.definition
    if (seen := reading.shown.get(index)) is not None and not (given is not None and given.is_exact):
        given, definition = reading.as_of(call, seen)
    child = reading.children.get(index)
    if child is not None:
        context = _child_messages(run, child)
        given = Given(given.snapshot if given is not None else Snapshot({}, {}), bool(context), _CHILD)
        return _answer(name, given, context, None, child)
    if given is None:
        return _answer(name, Given(Snapshot({}, {}), False, reading.why.get(index, _GATHERS)), [], None, None)
    messages, schema = _asked(call, given, definition)
    return _answer(name, given, messages, schema, None)


def given_to(
    run: OpenedRun, entries: Sequence[Entry], instance: str | None, calls: set[int]
) -> dict[int, tuple[Call, Mapping[str, Any] | None, Sequence[Waiver]]]:
    """Some calls of a lane, each with its resolved parameters where they are known, and why nobody was asked about it,
    although others' data reached it.
    """
    reading = _Reading(run, entries, instance, calls)
    given, waivers = {index: one.snapshot.parameters for index, one in reading.given.items()}, reading.unasked
    return {index: (reading.calls[index], given.get(index), waivers.get(index, ())) for index in calls}


class _Reading:
    """The entries of a lane and of the global one, read for what some calls were given."""

    def __init__(self, run: OpenedRun, entries: Sequence[Entry], instance: str | None, wanted: set[int]) -> None:
        self._run, self._entries, self._instance = run, entries, instance
        self.given: dict[int, Given] = {}
        self.why: dict[int, str] = {}
        self.children: dict[int, str] = {}
        self.unasked: dict[int, Sequence[Waiver]] = {}
        self.shown: dict[int, Seen] = {}
        """How far the log had been read with what a call was sent, where the log says it."""
        state = RunState(run.definition, [instance] if instance is not None else [])
        lane = state.lane(instance)
        self._seen = set[int]()
        for entry in entries:
            index = entry.call
            if entry.instance == instance and index in wanted and index is not None:
                self._look(entry, index, lane.known.get(index), state)
            if entry.undone is not None and entry.instance == instance:
                self._seen -= set(entry.undone.calls)
                for again in entry.undone.calls:
                    self.given.pop(again, None)
                    self.children.pop(again, None)
                    self.shown.pop(again, None)
                    self.unasked.pop(again, None)
            state.apply(entry)
        self.calls: Mapping[int, Call] = lane.known
        self.definition: StoredPlan = state.definition
        for index in wanted - self._seen - self.given.keys():
            if index in lane.known and lane.end(index) is None:
                self._make(index, lane.known[index], lane.fold, _OF_NOW)

    def as_of(self, call: Call, seen: Seen) -> tuple[Given | None, StoredPlan]:
        """The input of a call that was sent when the log had been read so far, and the run's definition then."""
        own, shared = map(id_key, seen)
        state = RunState(self._run.definition)
        lane = state.lane(self._instance)
        state.feed(
            entry
            for entry in self._entries
            if id_key(entry.id) <= (own if entry.instance == self._instance else shared)
        )
        self._make(call.index, call, lane.fold, _AS_READ, is_exact=True)
        return self.given.get(call.index), state.definition

    def _look(self, entry: Entry, index: int, call: Call | None, state: RunState) -> None:
        is_end, seen, fold = entry.end is not None, entry.seen, state.lane(self._instance).fold
        if entry.given is not None:
            note = _BEGUN if isinstance(entry.event, CallBegun) else _HELD
            self.given[index] = Given(entry.given, True, note, _alternatives(call, fold))
        elif entry.ruling is not None and not is_end and call is not None and index in self.given:
            held = self.given[index]
            self.given[index] = replace(held, snapshot=_ruled(held.snapshot, call, entry.ruling))
        elif entry.child is not None:
            self.children[index] = entry.child
        if is_end and seen is not None and max(map(id_key, seen)) < id_key(entry.id):
            self.shown[index] = seen
        is_result = is_end or entry.message is not None
        if is_result and index not in self._seen and call is not None:
            self._seen.add(index)
            if entry.status is not Status.SKIPPED:
                self.unasked[index] = why_unasked(state, (self._instance, index), fold)
            if index not in self.given:
                self._make(index, call, fold, _MADE_AGAIN)

    def _make(self, index: int, call: Call, fold: Fold, note: str, *, is_exact: bool = False) -> None:
        if call.gather:
            self.why[index] = _GATHERS
            return
        try:
            parameters = call.resolved(fold)
            is_latent = call.runner.executor is Executor.LATENT
            messages = all_messages(fold, call.scopes) if is_latent else scoped_messages(fold, call.scopes)
            snapshot = Snapshot(parameters, scoped(fold, call.scopes), messages)
            self.given[index] = Given(snapshot, is_exact, note, _alternatives(call, fold))
        except ProtocolError as error:
            self.why[index] = f"It was given nothing: {error}"


def _ruled(snapshot: Snapshot, call: Call, ruling: Ruling) -> Snapshot:
    """The parameters and scopes of a held call, once a person has decided."""
    if ruling.scopes is not None:
        snapshot = narrowed(snapshot, call, ruling.scopes)
    if ruling.parameters is None:
        return snapshot
    return Snapshot(ruling.parameters, snapshot.scopes, snapshot.messages)


def _alternatives(call: Call | None, fold: Fold) -> tuple[Alternative, ...]:
    groups = call.output.alternatives if call is not None and call.output is not None else ()
    return (
        tuple(alternative(group, call.method, fold) for group in groups) if call is not None and len(groups) > 1 else ()
    )


def _asked(call: Call, given: Given, definition: StoredPlan) -> tuple[Sequence[Any], Any]:
    """The messages that a delegate or a model is sent, and the schema of its answer."""
    name, snapshot = call.runner.name, given.snapshot
    if call.runner.executor is Executor.ACTIVITY:
        return (), None
    is_asked = call.runner.executor is Executor.LATENT or name in definition.delegates or name == ANONYMOUS
    if not is_asked:
        return delegate_context([], snapshot.messages, snapshot.parameters), None
    own = definition.delegates.get(name, {}) if call.runner.executor is Executor.DELEGATE else {}
    request = result_request(
        call,
        snapshot.parameters,
        snapshot.messages,
        given.alternatives,
        tool=definition.tools.get(call.tool),
        definition=own,
        show_bytes=definition.config.get("show_bytes"),
    )
    return request.messages, request.schema


def _child_messages(run: OpenedRun, child: str) -> list[Any]:
    """The context of a child run as its log has it; nothing where it is gone."""
    entries = run.store.other(child).lane(None)
    return [entry.message for entry in entries if entry.message is not None and entry.call is None]


def _answer(name: str, given: Given, messages: Sequence[Any], schema: Any, child: str | None) -> dict[str, Any]:
    return {
        "call": name,
        "messages": (listed := within(map(shown, messages))),
        "more": len(messages) - len(listed),
        "parameters": shown(dict(given.snapshot.parameters)),
        "scopes": {kind: shown(value) for kind, value in given.snapshot.scopes.items()},
        "schema": shown(schema),
        "exact": given.is_exact,
        "note": given.note,
        "child": child,
    }


# The plan of a run, drawn once for all instances: its calls in layers, with counts, and what each reads of others.


_OF_BEGUN: Final = (Status.RUNNING, Status.UNKNOWN)


class Counts:
    """The statuses of each call, counted over all instances, now."""

    def __init__(self, run: OpenedRun) -> None:
        """Raises `RedisError`."""
        self._counters = run.counters
        self.has_stopped = run.has_stopped
        self.at_work = run.store.at_work(is_over=run.has_stopped) if run.has_begun_calls else {}
        self._running = Counter(
            index
            for instance, index in self.at_work
            if (lane := run.counters.lanes.get(instance)) is not None and index not in lane.statuses
        )

    def of(self, call: CallCounters) -> dict[str, int]:
        """Count the lanes of a call by its status there."""
        counts = Counter(call.counts)
        counts[Status.RUNNING] = self.running(call)
        counts[Status.WAITING] = max(0, call.total - counts.total())
        if self.has_stopped:
            for status in [status for status in counts if status not in FINAL]:
                counts[stopped(status)] += counts.pop(status)
        not_taken = self._counters.not_taken(call)
        counts[Status.SKIPPED] -= not_taken
        found = {status.value: counts[status] for status in Status if counts[status] > 0}
        return found | ({NOT_TAKEN: not_taken} if not_taken else {})

    def running(self, call: CallCounters) -> int:
        """In how many instances a call is at work, or was when its run was ended as it stood."""
        return call.counts[Status.RUNNING] + self._running[call.call.index]

    def had_begun(self, instance: str | None, index: int) -> bool:
        """Whether a call of an instance is at work, or its end is not known."""
        return self._standing(instance, index) in _OF_BEGUN

    def status(self, instance: str | None, index: int) -> str:
        """The status of a call of an instance, as people read it."""
        if self._counters.is_not_taken(instance, index):
            return NOT_TAKEN
        found = self._standing(instance, index)
        return (stopped(found) if self.has_stopped else found).value

    def _standing(self, instance: str | None, index: int) -> Status:
        return self._counters.status(self._counters.lanes[instance], instance, index, self.at_work)


def stopped(status: Status) -> Status:
    """The status of a call that had not ended when its run was ended (SPEC R4.11)."""
    if status in FINAL:
        return status
    return Status.FAILED if status in _OF_BEGUN else Status.SKIPPED


def plan(run: OpenedRun) -> dict[str, Any]:
    """The answer `runs/RUN/plan`. Raises `NoLoop`, `NoSuchTick`."""
    counters, tick = run.counters, _plan_tick(run)
    calls = [call for call in counters.calls.values() if tick is None or call.tick == tick]
    calls.sort(key=lambda call: call.call.index)
    counts = Counts(run)
    described = {call.call.index: described_call(call, counts) for call in calls}
    pairs = _edges(counters, tick, described.keys())
    layers = layers_of(described, pairs)
    found = list(arrows([call.call for call in calls], pairs))
    edges = within(
        {
            "from": arrow.writer,
            "to": arrow.reader,
            "path": ", ".join(_texts(arrow.places))[: limits.SENT_LONGEST],
            "kind": arrow.kind.value,
        }
        for arrow in found[: limits.MOST_EDGES]
    )
    listed = within(list(described.values())[: limits.SENT_MOST_LISTED])
    return {
        "tick": tick,
        "ticks": sorted({call.tick for call in counters.calls.values() if call.tick is not None}),
        "layers": layers,
        "calls": listed,
        "more": len(described) - len(listed) + len(counters.further),
        "edges": edges,
        "more_edges": len(found) - len(edges),
        "svg": draw(layers, {index: Node.of(call) for index, call in described.items()}, edges),
        "reading": counters.reading,
    }


def described_call(call: CallCounters, counts: Counts) -> dict[str, Any]:
    """A call as the plan lists it."""
    one = call.call
    return {
        "index": one.index,
        "tick": call.tick,
        "tool": one.tool,
        "kind": one.runner.executor.value,
        "note": one.is_thought,
        "instances": call.total,
        "counts": counts.of(call),
        **read_and_written(one),
        "child": call.has_child,
        "fire_and_forget": one.is_fire_and_forget,
        "gather": one.gather,
        "each": bool(one.each),
    }


def read_and_written(call: Call) -> dict[str, list[str]]:
    """The places that a call may write, and those that it reads."""
    return {"writes": _texts(call.written), "reads": _texts(places_read(call))}


def _texts(places: Iterable[object]) -> list[str]:
    return [str(place)[: limits.SENT_LONGEST] for place in list(places)[: limits.MOST_PLACES]]


def _plan_tick(run: OpenedRun) -> int | None:
    """The tick that is asked for, or the last of a loop that has brought calls; None in a run that is no loop."""
    asked = run.query.number("tick")
    if run.definition.request is None:
        if asked is not None:
            raise NoLoop(f"run {run.store.run} is not a request: it has no ticks")
        return None
    ticks = {call.tick for call in run.counters.calls.values() if call.tick is not None}
    if asked is None:
        return max(ticks, default=0)
    _, _, now = run.state.get("loop", ":0").partition(":")
    if asked > int(now or 0):
        raise NoSuchTick(f"run {run.store.run} has no tick {asked}, its last is {now}")
    return asked


def _edges(counters: RunCounters, tick: int | None, shown: Iterable[int]) -> list[tuple[int, int]]:
    """Pairs of a call and a reader of it, of those shown: of lanes that are not alike a few are looked at."""
    found = set[tuple[int, int]]()
    among = set(shown)
    shared = counters.shared.get(tick, LaneRecord())
    for instance, record in counters.examples.get(tick, {}).values():
        for graph in _graphs(counters, instance, record, shared):
            for writer, readers in graph.readers.items():
                found.update((writer, reader) for reader in readers & among if writer in among)
    return sorted(found)


def _graphs(counters: RunCounters, instance: str | None, record: LaneRecord, shared: LaneRecord) -> Iterator[Graph]:
    definition = counters.definition
    above: Sequence[Call] = definition.lane_calls(shared, None) if instance is not None else ()
    yield definition.graph(definition.lane_calls(record, instance), record, above)
    if instance is not None and any(call.gather for call in above):
        gathers = gathers_of(definition, record, instance, shared, shared.begun)
        if gathers is not None:
            yield gathers.graph


# A loop as a conversation: what a model was asked, what it answered, what that cost, and what its calls brought.


def conversation(run: OpenedRun) -> dict[str, Any]:
    """The answer `runs/RUN/conversation`: all ticks, or one with more of its texts. Raises `NoLoop`, `NoSuchTick`."""
    if run.definition.request is None:
        raise NoLoop(f"run {run.store.run} is not a request: it asks no model and has no ticks")
    wanted = run.query.number("tick")
    loop, said = Loop(), dict[int, dict[str, Any]]()
    for entry in run.store.whole(run.store.lane(LOOP)):
        loop = follow(loop, entry)
        _take(said, entry)
    asked = [tick for tick in loop.ticks if tick.number in said]
    if wanted is not None and wanted not in said:
        raise NoSuchTick(f"run {run.store.run} has asked {len(asked)} times: there is no tick {wanted}, the first is 0")
    chosen = [tick for tick in asked if wanted in (None, tick.number)]
    most = max(limits.SENT_LEAST_BYTES, min(limits.SHOW_BYTES, limits.ALL_BYTES // max(1, 4 * len(chosen))))
    brought = _brought(run)
    return {
        "ticks": [_tick(tick, said[tick.number], brought.get(tick.number, []), most) for tick in chosen],
        "ended": {"status": loop.ended.status, "reason": loop.ended.reason} if loop.ended is not None else None,
    }


def _take(said: dict[int, dict[str, Any]], entry: Entry) -> None:
    """Take from an entry of the loop what it says of its tick."""
    for event in entry.loop:
        if isinstance(event, RequestRecorded):
            tick = said.setdefault(entry.tick or 0, {"asked": [], "errors": [], "began": entry.id, "model": None})
            tick["asked"] += event.messages
            tick["config"] = event.config
        elif isinstance(event, (Answered, Started)) and entry.tick in said:
            said[entry.tick]["errors"] += [error.to_dict() for error in event.errors]
            said[entry.tick]["ended"] = entry.id


def _tick(tick: Tick, said: Mapping[str, Any], calls: list[dict[str, Any]], most: int) -> dict[str, Any]:
    solution = tick.solution or {}
    took_ms = moment_ms(said["ended"]) - moment_ms(said["began"]) if "ended" in said else None
    part = tick.text or tick.output
    return {
        "tick": tick.number,
        "model": solution.get("model") or said.get("config", {}).get("model"),
        "asked": [
            shown(message, max(limits.SENT_LEAST_BYTES, most // max(1, len(said["asked"]))))
            for message in said["asked"]
        ],
        "answer": shown(solution.get("solution"), most),
        **({"writing": shown(part, most)} if tick.solution is None and part else {}),
        "usage": solution.get("usage"),
        "cost": tick.cost.to_dict() if tick.cost != Cost() else None,
        "seconds": took_ms / 1000 if took_ms is not None else None,
        "errors": shown(said["errors"], most) if said["errors"] else [],
        "set_aside": tick.set_aside,
        "calls": calls[: limits.SENT_MOST_CALLS],
        "more": max(0, len(calls) - limits.SENT_MOST_CALLS),
    }


def _brought(run: OpenedRun) -> dict[int, list[dict[str, Any]]]:
    """List the calls of each tick with their statuses, and the child runs of global ones."""
    counts, found = Counts(run), dict[int, list[dict[str, Any]]]()
    shared = run.lanes(None).shared
    for index, counters in sorted(run.counters.calls.items()):
        if counters.tick is None:
            continue
        statuses = counts.of(counters)
        worst = next((status for status in WORST_FIRST if status in statuses), "waiting")
        about = {"index": index, "tool": counters.call.tool, "status": worst, "counts": statuses}
        found.setdefault(counters.tick, []).append(about | {"child": shared.call(index).child})
    return found
