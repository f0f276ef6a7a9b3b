"""Deployments: the runs of which calls may still begin, held against code that is not deployed yet (SPEC R17.2).

A run is read only where a contract that its calls were checked under changes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from redis import Redis

from acts_celery.protocol.analysis.deployment import Checked, Coming, Forecast, Part, Refusal
from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.calls.elements import call_of, element_of
from acts_celery.protocol.calls.tools import Tool
from acts_celery.protocol.calls.trust import said_of
from acts_celery.protocol.engine.events import CallDecided, CallEnded, CallHeld, CallsUndone, FanOutBegun
from acts_celery.protocol.engine.loop import Stage
from acts_celery.protocol.state.labels import marks_of
from acts_celery.protocol.trust.proof import Proof, Way
from acts_celery.worker.errors import OtherFormat, RunNotFound
from acts_celery.worker.registry.activities import Activity, Registry
from acts_celery.worker.storage.condition import Condition, Kind
from acts_celery.worker.storage.definition import Definition
from acts_celery.worker.storage.entries import Entry
from acts_celery.worker.storage.history import History
from acts_celery.worker.storage.keys import ENDED, Keys
from acts_celery.worker.storage.lane_state import LaneState
from acts_celery.worker.storage.run_list import RunList
from acts_celery.worker.storage.run_state import RunState
from acts_celery.worker.storage.trust import SaidHere, Trusts
from acts_celery.worker.wire.attempts import CallId
from acts_celery.worker.wire.packing import unpack
from acts_celery.worker.wire.task_messages import unpack_task

from .collecting import collecting_seldom

_AT_ONCE: Final = 1_000
_Where = tuple[str | None, int]


@dataclass(frozen=True, slots=True)
class RunRefusal:
    """A call of a run that will be refused, or may be."""

    run: str
    refusal: Refusal

    def to_dict(self) -> dict[str, Any]:
        """As `acts check --runs --json` prints it."""
        return {"run": self.run, **self.refusal.to_dict()}


def coming(registry: Registry, gone: Iterable[str]) -> Coming:
    """The code that is registered, and the names that there is no code for any more."""
    activities = registry.activities
    gone = frozenset(gone)
    contracts = {name: activity.contract for name, activity in activities.items() if name not in gone}
    return Coming(contracts, gone, {name: _refuses(activities[name]) for name in contracts})


def _refuses(activity: Activity) -> Any:
    def refuses(call: Call, parameters: Mapping[str, Any], mark: str) -> str | None:
        return "; ".join(map(str, activity.misfits(call.properties, parameters, mark))) or None

    return refuses


class Deployments:
    """Says what becomes of the calls of all runs when code is deployed."""

    def __init__(self, redis: Redis, prefix: str, code: Coming, said_here: SaidHere) -> None:
        """`said_here` is what the code that is to come, and the operator here, say of calls (SPEC R16.1)."""
        self._redis = redis
        self._prefix = prefix
        self._code = code
        self._said_here = said_here
        self.unread: list[str] = []
        """Runs of another format."""
        self.looked_at = 0
        """How many runs have not ended, or have calls that were sent and forgotten and are not done."""

    def refusals(self) -> Iterator[RunRefusal]:
        """The calls that may still begin and then will be refused, or may be. Raises `RedisError`."""
        for run, state in RunList(self._redis, self._prefix).newest():
            if state["status"] in ENDED and not self._has_more(run, state):
                continue
            self.looked_at += 1
            try:
                with collecting_seldom():
                    refusals = list(self._of_run(Keys(self._prefix, run)))
                yield from (RunRefusal(run, refusal) for refusal in refusals)
            except OtherFormat:
                self.unread.append(run)
            except RunNotFound:
                continue

    def _has_more(self, run: str, state: Mapping[str, str]) -> bool:
        """Whether calls of a run that has ended were sent and forgotten and are not done."""
        return "sent" in state and bool(self._redis.hlen(Keys(self._prefix, run).outbox))

    def _of_run(self, keys: Keys) -> Iterator[Refusal]:
        history = History(self._redis, keys)
        definition = history.definition()
        run = RunState(definition)
        run.feed(history.lane(None))
        if not (self._code.gone or self._changes(run.definition)):
            return
        reading = _Reading(RunState(definition, history.instances()))
        for entry in history.entries():
            reading.take(entry)
        definition = reading.run.definition
        forecast = Forecast(
            Checked(definition.tools, definition.returns, definition.delegates, definition.contracts), self._code
        )
        yield from self._of_model(reading.run)
        yield from self._of_outbox(keys, reading, forecast)
        at_work = self._at_work(keys)
        shared = [reading.run.shared.known[index] for index in reading.run.shared.open]
        for instance, lane in reading.run.lanes.items():
            if lane.left:
                yield from forecast.of(reading.part(instance, lane, shared, at_work.get(instance, ())))
        yield from self._held(replace(definition, said_here=self._said_here), reading)

    def _held(self, definition: Definition, reading: _Reading) -> Iterator[Refusal]:
        """The calls that labels may hold which their run does not know."""
        ways: dict[int, list[Way]] = {}
        shared = reading.run.shared.known
        for instance, lane in reading.run.lanes.items():
            calls = {**shared, **lane.known}
            said = definition.said_of(calls.values()) if lane.left and id(lane.known) not in ways else None
            if said is not None and said.added:
                before, after = (
                    set(_proof(calls, reading.marked, trust).ways) for trust in (definition.trust, said.all)
                )
                ways[id(lane.known)] = sorted(after - before, key=lambda way: (way.effect, str(way)))
            for way in ways.get(id(lane.known), ()):
                call = lane.known.get(way.effect)
                if call is not None and lane.end(call.index) is None and not lane.call(call.index).is_decided:
                    what = f"{way.parameter!r} comes from" if way.parameter is not None else "it runs by the say of"
                    reason = f"it is held by a label of the new code: {what} {way.source.label}, which others write to"
                    yield Refusal(call.index, instance, call.tool, call.runner.name, False, reason, is_hold=True)

    def _changes(self, definition: Definition) -> bool:
        """Whether a contract that a run's calls were checked under changes."""
        marks = definition.contracts
        return any(not one.is_of(marks[name]) for name, one in self._code.contracts.items() if name in marks)

    def _at_work(self, keys: Keys) -> dict[str | None, set[int]]:
        """The calls that code is at work on now, by instance."""
        found = defaultdict[str | None, set[int]](set)
        for member, entry in self._redis.hscan_iter(keys.calls, count=_AT_ONCE):
            condition = Condition.read(entry)
            if condition is not None and (
                condition.kind in (Kind.RUNNING, Kind.CHILD)
                or (condition.kind is Kind.SENT and condition.holder.endswith("/"))
            ):
                id_ = CallId.of_member(keys.run, member.decode())
                found[id_.instance].add(id_.index)
        return found

    def _of_model(self, run: RunState) -> Iterator[Refusal]:
        """What the model of a loop may still call, and there is no code for any more."""
        request = run.definition.request
        if request is None or run.loop is None or run.loop.stage is Stage.ENDED:
            return
        for said in request["tools"]:
            declared = {said: {}} if isinstance(said, str) else said
            for name, declaration in declared.items():
                tool = Tool(name, declaration)
                codes = (*tool.choices("_activity"), *tool.choices("_delegate")) or (name,)
                for code in sorted({*codes} & self._code.gone):
                    reason = "the model of this loop may call it, and there is no code under the name any more"
                    yield Refusal(None, None, name, code, is_certain=False, reason=reason)

    def _of_outbox(self, keys: Keys, reading: _Reading, forecast: Forecast) -> Iterator[Refusal]:
        """The calls that were sent and forgotten, and are not done."""
        tasks: Any = self._redis.hgetall(keys.outbox_tasks)
        conditions: Any = self._redis.hgetall(keys.outbox)
        for member, task in tasks.items():
            if member not in conditions:
                continue  # since when it is given back
            condition = Condition.read(conditions[member])
            id_ = CallId.of_member(keys.run, member.decode())
            call = reading.run.lane(id_.instance).known.get(id_.index)
            if call is None or condition is None or not forecast.concerns(call):
                continue
            body = unpack(unpack_task(task).body)
            at_work = {id_.index} if condition.kind is Kind.RUNNING else set[int]()
            lane = reading.run.lane(id_.instance)
            part = Part(id_.instance, lane.fold, [call], given={id_.index: body["parameters"]}, at_work=at_work)
            yield from forecast.of(part)


@dataclass
class _Reading:
    """A run, and the parameters of its calls that were resolved already."""

    run: RunState
    given: dict[_Where, Mapping[str, Any]] = field(default_factory=dict)
    marked: list[Mapping[str, Any]] = field(default_factory=list)
    """The messages that name sources."""

    def take(self, entry: Entry) -> None:
        """Take in the next entry of the log."""
        self.run.apply(entry)
        if entry.message is not None and marks_of(entry.message):
            self.marked.append(entry.message)
        instance = entry.instance
        match entry.event:
            case CallHeld(call, snapshot) | FanOutBegun(call, snapshot):
                self.given[instance, call] = snapshot.parameters
            case CallDecided(call, ruling) if ruling.parameters is not None:
                self.given[instance, call] = ruling.parameters
            case CallEnded(call):
                self.given.pop((instance, call), None)
            case CallsUndone(calls, keeping):
                for call in {*calls} - {*keeping}:
                    self.given.pop((instance, call), None)

    def part(self, instance: str | None, lane: LaneState, shared: list[Call], at_work: Iterable[int]) -> Part:
        """The open calls of a lane."""
        calls = [lane.known[index] for index in lane.open]
        given = {call.index: self.given[instance, call.index] for call in calls if (instance, call.index) in self.given}
        ended = {index: [_number(one) for one in lane.elements(index)] for index in given}
        above = shared if instance is not None else []
        at_work = {*at_work}
        for index, numbers in ended.items():
            elements = lane.call(index).elements
            begun = {_number(one) for one in at_work if element_of(one) is not None and call_of(one) == index}
            if elements is not None and elements.total == len({*numbers, *begun}):
                at_work.add(index)  # all that have not ended have begun
        return Part(instance, lane.fold, calls, above, given, ended, at_work)


def _proof(calls: Mapping[int, Call], marked: Sequence[Mapping[str, Any]], said: Trusts) -> Proof:
    """Over all instances at once: what one of them may read, each may."""
    return Proof([*calls.values()], marked, lambda call: said_of(said, call.tool, call.runner.name), is_template=True)


def _number(element: int) -> int:
    number = element_of(element)
    assert number is not None
    return number
