"""Check runs against code that is not deployed yet (SPEC R17.2), and list and find runs.

The log of a run is read only if a contract that its calls were checked under changes.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from redis import Redis

from ...protocol.analysis.deployment import Checked, Coming, Forecast, LanePart, Refusal
from ...protocol.calls.call import Call, call_of, element_of
from ...protocol.calls.tools import Tool
from ...protocol.calls.trust import tool_trust_of
from ...protocol.engine.loop import Stage
from ...protocol.errors import Speller, some_of
from ...protocol.state.labels import marks_of
from ...protocol.trust import TrustProof, Way
from .. import limits
from ..broker.messages import unpack
from ..errors import AmbiguousRun, OtherFormat, RunNotFound
from ..registry.activities import Activity, Registry
from ..store.definition import FORMAT, SaidHere, StoredPlan, Trusts
from ..store.entries import Entry
from ..store.keys import ENDED_STATUSES, Kind
from ..store.run_list import OWNER, PARENT, LeftOut, RunList, State, owner_of
from ..store.run_store import RunStore
from ..store.scripts import date_of, server_ms
from ..store.state import LaneState, RunState
from .results import FOREIGN, RunStatus, counts_of, run_status
from .submitting import ID, LATEST, collecting_seldom


@dataclass(frozen=True, slots=True)
class RunRefusal:
    """A call of a run that the new code will refuse, or may refuse."""

    run: str
    refusal: Refusal

    def to_dict(self) -> dict[str, Any]:
        """Convert to what `acts check --runs --json` prints."""
        return {"run": self.run, **self.refusal.to_dict()}


def coming(registry: Registry, gone: Iterable[str]) -> Coming:
    """Describe the code that is registered; there is no code for the names in `gone` any more."""
    activities = registry.activities
    gone = frozenset(gone)
    contracts = {name: activity.contract for name, activity in activities.items() if name not in gone}
    return Coming(contracts, gone, {name: _refuses(activities[name]) for name in contracts})


def _refuses(activity: Activity) -> Any:
    def refuses(call: Call, parameters: Mapping[str, Any], mark: str) -> str | None:
        return "; ".join(map(str, activity.misfits(call.properties, parameters, mark))) or None

    return refuses


class Deployments:
    """Finds the calls of all runs that code to be deployed would refuse."""

    def __init__(self, redis: Redis, prefix: str, code: Coming, said_here: SaidHere) -> None:
        """Take in `said_here` what the new code, and the operator here, say of calls (SPEC R16.1)."""
        self._redis = redis
        self._prefix = prefix
        self._code = code
        self._said_here = said_here
        self.unread: list[str] = []
        """The runs of another format, which were not read."""
        self.looked_at = 0
        """How many runs have not ended, or have calls that were sent and forgotten and are not done."""

    def refusals(self) -> Iterator[RunRefusal]:
        """Find the calls that may still begin and would be refused then, or may be. Raises `RedisError`."""
        for run, state in RunList(self._redis, self._prefix).newest():
            if state["status"] in ENDED_STATUSES and not self._has_more(run, state):
                continue
            self.looked_at += 1
            try:
                with collecting_seldom():
                    refusals = list(self._of_run(run))
                yield from (RunRefusal(run, refusal) for refusal in refusals)
            except OtherFormat:
                self.unread.append(run)
            except RunNotFound:
                continue

    def _has_more(self, run: str, state: Mapping[str, str]) -> bool:
        """Tell whether a run that has ended has calls that were sent and forgotten and are not done."""
        return "sent" in state and bool(RunStore.open(self._redis, self._prefix, run).count_outbox())

    def _of_run(self, name: str) -> Iterator[Refusal]:
        history = RunStore.open(self._redis, self._prefix, name)
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
        yield from self._of_outbox(name, reading, forecast)
        at_work = self._at_work(history)
        shared = [reading.run.shared.known[index] for index in reading.run.shared.open]
        for instance, lane in reading.run.lanes.items():
            if lane.left:
                yield from forecast.of(reading.part(instance, lane, shared, at_work.get(instance, ())))
        yield from self._held(replace(definition, said_here=self._said_here), reading)

    def _held(self, definition: StoredPlan, reading: _Reading) -> Iterator[Refusal]:
        """Find the calls that would be held by labels of the new code which their run does not know."""
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

    def _changes(self, definition: StoredPlan) -> bool:
        """Tell whether a contract that a run's calls were checked under changes."""
        marks = definition.contracts
        return any(not one.is_of(marks[name]) for name, one in self._code.contracts.items() if name in marks)

    def _at_work(self, history: RunStore) -> dict[str | None, set[int]]:
        """List the calls that code is at work on now, by instance."""
        found = defaultdict[str | None, set[int]](set)
        for (instance, index), how in history.at_work().items():
            if how.kind in (Kind.RUNNING, Kind.CHILD) or (how.kind is Kind.SENT and how.holder.endswith("/")):
                found[instance].add(index)
        return found

    def _of_model(self, run: RunState) -> Iterator[Refusal]:
        """Find the tools that the model of a loop may still call and that there is no code for any more."""
        request = run.definition.request
        if request is None or run.loop is None or run.loop.stage is Stage.ENDED:
            return
        for said in request["tools"]:
            declared = {said: {}} if isinstance(said, str) else said
            for name, declaration in declared.items():
                tool = Tool(name, declaration)
                codes = (*tool.choices("_activity"), *tool.choices("_delegate")) or (name,)
                for code in sorted({*codes} & self._code.gone):
                    reason = "the model of this loop may call it, and no code of that name is left"
                    yield Refusal(None, None, name, code, is_certain=False, reason=reason)

    def _of_outbox(self, name: str, reading: _Reading, forecast: Forecast) -> Iterator[Refusal]:
        """Find what is refused of the calls that were sent and forgotten, and are not done."""
        for id_, condition, task in RunStore.open(self._redis, self._prefix, name).outbox():
            lane = reading.run.lane(id_.instance)
            call = lane.known.get(id_.index)
            if call is None or not forecast.concerns(call):
                continue
            parameters = unpack(task.body)["parameters"]
            at_work = {id_.index} if condition.kind is Kind.RUNNING else set[int]()
            yield from forecast.of(
                LanePart(id_.instance, lane.fold, [call], given={id_.index: parameters}, at_work=at_work)
            )


@dataclass
class _Reading:
    """A run, and its messages that name sources."""

    run: RunState
    marked: list[Mapping[str, Any]] = field(default_factory=list)

    def take(self, entry: Entry) -> None:
        """Take in the next entry of the log."""
        self.run.apply(entry)
        if entry.message is not None and marks_of(entry.message):
            self.marked.append(entry.message)

    def part(self, instance: str | None, lane: LaneState, shared: list[Call], at_work: Iterable[int]) -> LanePart:
        """Describe the open calls of a lane for a forecast."""
        calls = [lane.known[index] for index in lane.open]
        resolved = ((call.index, lane.call(call.index).parameters) for call in calls)
        given = {index: parameters for index, parameters in resolved if parameters is not None}
        ended = {index: [_number(one) for one in lane.elements(index)] for index in given}
        above = shared if instance is not None else []
        at_work = {*at_work}
        for index, numbers in ended.items():
            elements = lane.call(index).elements
            begun = {_number(one) for one in at_work if element_of(one) is not None and call_of(one) == index}
            if elements is not None and elements.total == len({*numbers, *begun}):
                at_work.add(index)  # all that have not ended have begun
        return LanePart(instance, lane.fold, calls, above, given, ended, at_work)


def _proof(calls: Mapping[int, Call], marked: Sequence[Mapping[str, Any]], said: Trusts) -> TrustProof:
    """Prove what calls may reach, over all instances at once: what one of them may read, each may."""
    return TrustProof(
        [*calls.values()],
        marked,
        lambda call: tool_trust_of(said, call.tool, call.runner.name),
        is_template=True,
        has_more=True,
    )


def _number(element: int) -> int:
    number = element_of(element)
    assert number is not None
    return number


# The index of runs: which there are, their statuses, and which one a person means.


@dataclass(frozen=True, slots=True)
class Summary:
    """A run as `acts runs` lists it."""

    run: str
    name: str | None
    tags: tuple[str, ...]
    status: RunStatus
    calls: Mapping[str, int]
    submitted: datetime
    finished: datetime | None
    age_seconds: float
    """Seconds since its submission."""
    duration_seconds: float
    """Seconds from its submission to its end, or to now."""
    cost: Mapping[str, Any] | None = None
    """The cost of its loop so far, from `Cost.to_dict` (SPEC R13.12); None if it is no request."""

    def to_dict(self) -> dict[str, Any]:
        """Convert to what `acts runs --json` prints."""
        finished = date_of(self.finished) if self.finished is not None else None
        found = asdict(self) | {"submitted": date_of(self.submitted), "finished": finished}
        return {key: value for key, value in found.items() if key != "cost" or value is not None}


@dataclass(frozen=True, slots=True)
class RunFilter:
    """A filter of runs; a field that is None lets every run pass."""

    status: RunStatus | None = None
    name: str | None = None
    """The run's name, or one of its tags."""
    older_than_seconds: float | None = None
    """How many seconds ago the run has ended, at least."""
    tags: frozenset[str] = frozenset()
    """Tags that the run has, all of them."""

    @property
    def is_of_labels(self) -> bool:
        """Whether the name or the tags of a run can keep it from passing."""
        return self.name is not None or bool(self.tags)

    def admits_labels(self, state: State) -> bool:
        """Tell whether a run passes by its name and its tags, which its state has."""
        return self._admits(state.get("name"), state["tags"].split("\n") if state.get("tags") else ())

    def admits(self, run: Summary) -> bool:
        """Tell whether a run passes."""
        return (
            self.status in (None, run.status)
            and self._admits(run.name, run.tags)
            and (self.older_than_seconds is None or self._is_older(run, self.older_than_seconds))
        )

    def _admits(self, name: str | None, tags: Sequence[str]) -> bool:
        return (self.name is None or self.name in (name, *tags)) and self.tags.issubset(tags)

    def _is_older(self, run: Summary, seconds: float) -> bool:
        return run.finished is not None and run.age_seconds - run.duration_seconds >= seconds


class RunIndex:
    """Lists and finds the runs of a backend. All of it raises `RedisError`."""

    def __init__(
        self,
        redis: Redis,
        prefix: str,
        *,
        owner: str | None = None,
        asker: str | None = None,
        most_looked_at: int = limits.DEPLOYMENTS_MOST_LOOKED_AT,
    ) -> None:
        """Take an `owner` to see only its runs. The `asker` owns the runs that a name can mean: the `owner` if there is
        one, None for those that nobody owns. A run is looked for among the newest `most_looked_at`, unless by its id.
        """
        self._redis = redis
        self._prefix = prefix
        self._owner = owner
        self._asker = owner if owner is not None else asker
        self._most_looked_at = most_looked_at

    def runs(self, which: RunFilter = RunFilter(), left_out: LeftOut | None = None) -> Iterator[Summary]:
        """List the runs that pass a filter, the newest first; `left_out` is as in `RunList.newest`. Of those that
        another name or tag keeps from passing only these two are read.
        """
        if not which.is_of_labels:
            yield from (summary for summary, _ in self.with_states(left_out) if which.admits(summary))
            return
        now_ms, runs = server_ms(self._redis), RunList(self._redis, self._prefix)
        for run, labels in runs.newest(self._owner, ("name", "tags"), left_out):
            if which.admits_labels(labels) and (state := runs.state(run)):
                summary = _summary(run, state, now_ms)
                if which.admits(summary):
                    yield summary

    def with_states(self, left_out: LeftOut | None = None) -> Iterator[tuple[Summary, State]]:
        """List every run, the newest first, with the fields of its state; `left_out` is as in `RunList.newest`."""
        now_ms = server_ms(self._redis)
        for run, state in RunList(self._redis, self._prefix).newest(self._owner, left_out=left_out):
            yield _summary(run, state, now_ms), state

    def find(self, text: str) -> str:
        """Find the id of the run that a text means: an id, the beginning of one, `latest` or the newest of a name.

        Anybody may choose a name, so ids come first, and a name means only a run of the asker's own (SPEC R14.4).
        Raises `RunNotFound`, `AmbiguousRun`.
        """
        if ID.match(text) and self._is_there(text):
            return text
        if text == LATEST:
            return self._latest()
        alike: list[str] = []
        named: list[tuple[str, str | None]] = []
        others: set[str] = set()
        for run, state in self._looked_at():
            if run.startswith(text):
                alike.append(run)
            if state.get("name") == text:
                named.append((run, self._owner_of(run, state)))
            others.update((run, *filter(None, [state.get("name")])))
        if alike and named and len(text) < limits.DEPLOYMENTS_SURE and alike != [named[0][0]]:
            runs = some_of(dict.fromkeys((*alike, *(run for run, _ in named))), limits.MOST_NAMED)
            raise AmbiguousRun(f"{text!r} is a run's name and the beginning of an id: say which run, {runs}")
        if len(alike) > 1:
            raise AmbiguousRun(f"{len(alike)} runs begin with {text!r}: {some_of(alike, limits.MOST_NAMED)}")
        if alike:
            return alike[0]
        if not named:
            raise RunNotFound(text, Speller().hint(text, {LATEST, *others}))
        owners = {owner for _, owner in named}
        if owners == {self._asker}:
            return named[0][0]
        shown = [run if owner == self._asker else _of(run, owner) for run, owner in named]
        runs = some_of(shown, limits.MOST_NAMED)
        if len(owners) > 1:
            raise AmbiguousRun(f"runs of several owners have the name {text!r}, so give an id: {runs}")
        raise RunNotFound(text, f" of your own: somebody else's has the name, so give its id: {runs}")

    def _latest(self) -> str:
        foreign = None
        for run, state in self._looked_at():
            if (owner := self._owner_of(run, state)) == self._asker:
                return run
            foreign = foreign or _of(run, owner)
        raise RunNotFound(LATEST, f" of your own: the newest is {foreign}" if foreign else ": there is none yet")

    def _looked_at(self) -> Iterator[tuple[str, State]]:
        found = RunList(self._redis, self._prefix).newest(self._owner, ("name", PARENT))
        return islice(found, self._most_looked_at)

    def _owner_of(self, run: str, state: State) -> str | None:
        """Find the owner of a run; a child run belongs to the owner of the run above it."""
        return owner_of(self._redis, self._prefix, run) if PARENT in state else state.get(OWNER)

    def _is_there(self, run: str) -> bool:
        if self._owner is not None:
            return owner_of(self._redis, self._prefix, run) == self._owner
        return RunStore.open(self._redis, self._prefix, run).status() is not None


def _of(run: str, owner: str | None) -> str:
    return f"{run} (of {owner})" if owner is not None else f"{run} (of nobody)"


def _summary(run: str, state: Mapping[str, str], now_ms: int) -> Summary:
    submitted = int(float(state.get("submitted", now_ms)))
    finished = int(float(state["finished"])) if "finished" in state else None
    tags = tuple(state["tags"].split("\n")) if state.get("tags") else ()
    return Summary(
        run=run,
        name=state.get("name"),
        tags=tags,
        status=run_status(state["status"]) if int(state.get("format", FORMAT)) == FORMAT else FOREIGN,
        calls=counts_of(state) if "total" in state else {},
        submitted=_moment(submitted),
        finished=_moment(finished) if finished is not None else None,
        age_seconds=max(0, now_ms - submitted) / 1000,
        duration_seconds=max(0, (finished or now_ms) - submitted) / 1000,
        cost=json.loads(state["loop:cost"]) if "loop:cost" in state else None,
    )


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
