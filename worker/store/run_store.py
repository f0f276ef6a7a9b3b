"""One run in Redis, for threads: its state, its log, and what people do to it (lua/control.lua)."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple, Self

from redis import Redis

from ...protocol.engine.events import Failure, Success
from ...protocol.engine.loop import LoopLimits, RequestRecorded, entries_quoted, with_quotes
from ...protocol.state.labels import TRUSTED, marks_of
from .. import limits
from ..backoff import batches
from ..broker.attempts import CallId, lane_token
from ..broker.messages import TaskMessage, unpack_task
from ..errors import RunBroken, RunNotFound, WorkerError
from . import run_list
from .commits import PUBLISHED_MS, DueRuns
from .definition import StoredPlan, require_format, unpack_definition
from .entries import Entry, LoopStep, id_key, loop_alarm, read_entry, read_flat
from .held_calls import AuditRecord
from .keys import Condition, Keys, Kind, is_at_work
from .scripts import ExecutedBy, Script, codes_of
from .slots import SPENT, Budget, Reservation, Shortfall, left_of, sum_fields
from .state import RunState

RawEntry = tuple[bytes, dict[bytes, bytes]]
"""An entry of a log as Redis has it: `entries.read_entry` takes it."""


class Head(NamedTuple):
    """The parts of a run, besides its state, files and log, that a copy of it has, too."""

    definition: bytes
    instances: Sequence[str]
    codes: Mapping[str, int]
    """The number of each code, by its packed form (see `scripts.ExecutedBy`)."""


class FirstRead(NamedTuple):
    """The parts of a run that one round trip reads: most runs have no more."""

    status: str | None
    has_begun_calls: bool
    """Whether calls may have begun that have not ended."""
    has_sent: bool
    """Whether the run has sent calls that it does not wait for."""
    deleted: str | None
    definition: bytes | None
    instances: Any
    """The first page of the instances: `RunStore.instances` takes it."""
    entries: Any
    """The first page of the log: `RunStore.entries` takes it."""
    codes: dict[int, ExecutedBy]


@dataclass(frozen=True, slots=True)
class Background:
    """The calls, and elements, that a run has sent without waiting for them, counted by how they are."""

    outstanding: int
    done: int
    dead: int

    def to_dict(self) -> dict[str, int]:
        """The counts in JSON."""
        return {"outstanding": self.outstanding, "done": self.done, "dead": self.dead}


class RunStore:
    """All that Redis has of one run. Every method raises `RedisError`."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self.redis = redis
        self.keys = keys

    @classmethod
    def open(cls, redis: Redis, prefix: str, run: str) -> Self:
        """Make the store of a run by its id; nothing is read."""
        return cls(redis, Keys(prefix, run))

    def other(self, run: str) -> Self:
        """Make the store of another run of the same backend."""
        return type(self)(self.redis, Keys(self.keys.prefix, run))

    @property
    def run(self) -> str:
        """The run's id."""
        return self.keys.run

    # The state.

    def state(self) -> run_list.State:
        """Read all fields of the run's state; there are none if there is no such run."""
        return run_list.decoded_state(self.redis.hgetall(self.keys.state))

    def require_state(self) -> run_list.State:
        """Read all fields of the run's state. Raises `RunNotFound`, `OtherFormat`."""
        state = self.state()
        if not state:
            raise RunNotFound(self.run)
        require_format(int(state["format"]))
        return state

    def fields(self, *names: str) -> list[str | None]:
        """Read some fields of the run's state."""
        return run_list.texts_of(self.redis.hmget(self.keys.state, names))

    def status(self) -> str | None:
        """Read the run's status; None if there is no such run."""
        return self.fields("status")[0]

    def priority(self) -> int:
        """Read the run's priority."""
        [found] = self.fields(run_list.PRIORITY)
        return int(found or 0)

    def parent(self) -> run_list.Parent | None:
        """Read which call the run answers; None if it is no child."""
        return run_list.Parent.read(self.fields(run_list.PARENT)[0])

    def children(self) -> list[str]:
        """List the child runs that calls of the run wait for."""
        found: Any = self.redis.smembers(self.keys.children)
        return sorted(run.decode() for run in found)

    def held(self) -> list[CallId]:
        """List the calls that wait for a person, in the order in which they were held."""
        found: Any = self.redis.zrange(self.keys.held, 0, -1)
        return [CallId.of_member(self.run, member.decode()) for member in found]

    def count_held(self) -> int:
        """Count the calls that wait for a person."""
        found: Any = self.redis.zcard(self.keys.held)
        return int(found)

    def waiting_lanes(self, most: int) -> list[str]:
        """List some of the lanes that wait for a global call."""
        found: Any = self.redis.zrange(self.keys.parked, 0, most - 1)
        return [lane.decode() for lane in found]

    def is_at_work(self, call: CallId) -> bool:
        """Look whether a call is at work."""
        entry: Any = self.redis.hget(self.keys.calls, call.member)
        return is_at_work(entry)

    def background(self) -> Background | None:
        """Count what the run has sent without waiting for it; None where that is nothing."""
        with self.redis.pipeline(transaction=True) as pipeline:
            pipeline.hget(self.keys.state, "sent")
            pipeline.hlen(self.keys.outbox)
            pipeline.scard(self.keys.dead_calls)
            sent, outstanding, dead = pipeline.execute()
        return None if sent is None else Background(outstanding, max(0, int(sent) - outstanding - dead), dead)

    def has_lane(self, instance: str | None) -> bool:
        """Tell whether the log has entries of an instance."""
        return bool(self.redis.hexists(self.keys.lanes, lane_token(instance)))

    def count_instances(self) -> int:
        """Count the run's instances."""
        found: Any = self.redis.llen(self.keys.instances)
        return int(found)

    def count_entries(self) -> int:
        """Count the entries of the log."""
        found: Any = self.redis.xlen(self.keys.log)
        return int(found)

    def extent(self) -> tuple[str, int, int]:
        """Read the id of the newest entry, how many instances there are, and after how many ms the run expires."""
        with self.redis.pipeline(transaction=False) as pipeline:
            pipeline.xrevrange(self.keys.log, count=1)
            pipeline.llen(self.keys.instances)
            pipeline.pttl(self.keys.state)
            newest, instances, left_ms = pipeline.execute()
        return newest[0][0].decode() if newest else "0-0", instances, left_ms

    def files(self, digests: Sequence[str]) -> dict[str, bytes]:
        """Read files, and pictures of tools, by their digests; a missing one is left out."""
        found = dict[str, bytes]()
        for key in (self.keys.files, self.keys.pictures) if digests else ():
            contents: Any = self.redis.hmget(key, digests)
            found |= {digest: content for digest, content in zip(digests, contents, strict=True) if content is not None}
        return found

    def lost_parts(self) -> list[str] | None:
        """List the keys that the run needs and the server has lost; None if there is no such run."""
        parts = {"definition": self.keys.definition, "log": self.keys.log, "statuses": self.keys.statuses}
        with self.redis.pipeline(transaction=False) as pipeline:
            pipeline.hexists(self.keys.state, "status")
            for key in parts.values():
                pipeline.exists(key)
            is_there, *found = pipeline.execute()
        return [name for name, exists in zip(parts, found, strict=True) if not exists] if is_there else None

    def all_files(self) -> Iterator[tuple[str, bytes, bool]]:
        """Read each file, and each picture of a tool, by its digest; the third value tells whether it is a picture."""
        for key in (self.keys.files, self.keys.pictures):
            for digest, content in self.redis.hscan_iter(key):
                yield digest.decode(), content, key == self.keys.pictures

    def picture_digests(self) -> set[str]:
        """List the digests of the pictures of tools."""
        found: Any = self.redis.hkeys(self.keys.pictures)
        return {digest.decode() for digest in found}

    def outbox(self) -> Iterator[tuple[CallId, Condition, TaskMessage]]:
        """Read the calls that were sent and forgotten and are not done, each with its condition and its task."""
        conditions: Any = self.redis.hgetall(self.keys.outbox)
        tasks: Any = self.redis.hgetall(self.keys.outbox_tasks)
        for member, task in tasks.items():
            if (condition := Condition.read(conditions.get(member))) is not None:
                yield CallId.of_member(self.run, member.decode()), condition, unpack_task(task)

    def count_outbox(self) -> int:
        """Count the calls that were sent and forgotten and are not done."""
        found: Any = self.redis.hlen(self.keys.outbox)
        return int(found)

    def budgets(self, limits: LoopLimits) -> tuple[tuple[Budget, ...], dict[str, int]]:
        """Read the budgets that calls of the run's loop take from, the nearest first, and what is left of them."""
        parent, *spent = self.fields(run_list.PARENT, *SPENT)
        budgets = run_list.budgets_of(self.run, limits, parent, *spent)
        taken: Any = self.redis.hmget(self.other(budgets[-1].run).keys.budget, sum_fields(budgets))
        return budgets, left_of(budgets, taken)

    def reserve(self, budgets: Sequence[Budget], calls: int) -> Shortfall | None:
        """Have the run take so many calls of each of these budgets, or say what is lacking in one of them."""
        if not budgets:
            return None
        taken = Reservation(self.run, calls=calls)
        answer = Script(self.redis, "budget")(self.other(budgets[-1].run).keys, taken.to_request(budgets))
        return taken.shortfall(budgets, answer)

    def answer(self, status: str) -> Success | Failure:
        """Read what the run, a child that has ended with this status, answers: also one that has lost its plan, so that
        its call does not wait for ever. Raises `RunNotFound`, `OtherFormat`.
        """
        labels, (loop, schema) = TRUSTED, self.fields("loop", run_list.ANSWER_SCHEMA)
        if loop is not None:
            return run_list.result_of(status, self.entries())
        try:
            run = RunState(self.definition(), self.instances())
        except RunBroken as broken:
            return Failure("ChildFailed", str(broken))
        for entry in self.entries():
            run.apply(entry)
            labels |= marks_of(entry.message).labels if entry.message is not None else TRUSTED
        return run_list.workflow_result(status, run, json.loads(schema) if schema is not None else None, labels)

    def loop_ends_ms(self) -> float | None:
        """Read when the time of the run's loop is over, if it is limited."""
        found: Any = self.redis.zscore(self.keys.leases, loop_alarm())
        return found if found is None else float(found)

    # The log.

    def definition(self) -> StoredPlan:
        """Read what the run is; do not change it. Raises `RunNotFound`, `RunBroken`, `OtherFormat`."""
        return unpack_definition(self._definition())

    def head(self) -> Head:
        """Read what a copy of the run begins with. Raises `RunNotFound`, `RunBroken`."""
        codes = {code.pack(): number for number, code in self.codes().items()}
        return Head(self._definition(), self.instances(), codes)

    def _definition(self) -> bytes:
        data: Any = self.redis.get(self.keys.definition)
        if data is None:
            raise self.missing()
        assert isinstance(data, bytes)
        return data

    def missing(self) -> WorkerError:
        """Say why a part of the run is not there: there is no such run, or the server has lost the part."""
        lost = self.lost_parts()
        return RunBroken(self.run, lost) if lost else RunNotFound(self.run)

    def first_read(self, *, after_status: str | None = None, block_ms: int = 0) -> FirstRead:
        """Read the run in one round trip, as far as most runs go; with `after_status`, the id of a change of its
        status, wait for the next change, for so long at most.
        """
        with self.redis.pipeline(transaction=False) as pipeline:
            if after_status is not None:
                pipeline.xread({self.keys.statuses: after_status}, block=block_ms, count=1)
            pipeline.hmget(self.keys.state, "status", "running", "between", "sent", "deleted")
            pipeline.get(self.keys.definition)
            pipeline.lrange(self.keys.instances, 0, limits.LOG_INSTANCES_AT_ONCE - 1)
            pipeline.xrange(self.keys.log, count=limits.HISTORY_PAGE)
            pipeline.hgetall(self.keys.codes)
            state, definition, instances, entries, codes = pipeline.execute()[-5:]
        status, running, between, sent, deleted = run_list.texts_of(state)
        has_begun = bool(int(running or 0) or int(between or 0))
        return FirstRead(status, has_begun, sent is not None, deleted, definition, instances, entries, codes_of(codes))

    def instances(self, first: Any = None) -> list[str]:
        """Read the run's instances, in the order of the context; `first` is their first page, where it was read."""
        found: list[str] = []
        page = first
        while True:
            if page is None:
                page = self.redis.lrange(self.keys.instances, len(found), len(found) + limits.LOG_INSTANCES_AT_ONCE - 1)
            found += [instance.decode() for instance in page]
            if len(page) < limits.LOG_INSTANCES_AT_ONCE:
                return found
            page = None

    def entries(self, *, after: str = "0-0", until: str = "+", first: Any = None) -> Iterator[Entry]:
        """Read the entries behind an id and up to another, in order; `first` is the first page, where it was read.

        Raises `RunBroken` where a run has no log.
        """
        for id_, fields in self.raw(after=after, until=until, first=first):
            yield read_entry(id_, fields)

    def whole(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """The entries, requests of a loop among them with all that they show."""
        for page in batches(entries, limits.HISTORY_PAGE):
            asked = (event for entry in page for event in entry.loop if isinstance(event, RequestRecorded))
            ids = [*dict.fromkeys(id_ for request in asked for id_ in entries_quoted(request))]
            with self.redis.pipeline(transaction=False) as pipeline:
                for id_ in ids:
                    pipeline.xrange(self.keys.log, id_, id_)
                read = [read_entry(*raw) for raws in pipeline.execute() for raw in raws]
            found = {entry.id: entry.message for entry in read}
            for entry in page:
                events = (
                    with_quotes(one, found.get) if isinstance(one, RequestRecorded) else one for one in entry.loop
                )
                yield entry._replace(loop=tuple(events)) if entry.loop else entry

    def raw(self, *, after: str = "0-0", until: str = "+", first: Any = None) -> Iterator[RawEntry]:
        """Read entries like `entries`, each as Redis has it."""
        is_whole = after == "0-0" and until == "+"
        after, page = f"({after}", first
        while True:
            if page is None:
                page = self.redis.xrange(self.keys.log, min=after, max=until, count=limits.HISTORY_PAGE)
            if is_whole and not page:
                raise self.missing()
            is_whole = False
            yield from page
            if len(page) < limits.HISTORY_PAGE:
                return
            after, page = f"({page[-1][0].decode()}", None

    def entry(self, id_: str) -> dict[bytes, bytes]:
        """Read the fields of one entry of the log."""
        found: Any = self.redis.xrange(self.keys.log, id_, id_)
        return dict(found[0][1])

    def span(self) -> tuple[str, str] | None:
        """Read the ids of the run's first status and of its newest entry; None if there is no such run."""
        with self.redis.pipeline(transaction=False) as pipeline:
            pipeline.xrange(self.keys.statuses, count=1)
            pipeline.xrevrange(self.keys.log, count=1)
            first, newest = pipeline.execute()
        return (first[0][0].decode(), newest[0][0].decode()) if first and newest else None

    def backwards(self, until: str) -> Iterator[Entry]:
        """Read everything up to an id, the newest first."""
        while True:
            page: Any = self.redis.xrevrange(self.keys.log, until, count=limits.HISTORY_PAGE)
            for id_, fields in page:
                yield read_entry(id_, fields)
            if len(page) < limits.HISTORY_PAGE:
                return
            until = f"({page[-1][0].decode()}"

    def newest_entries(self, most: int, *, before: str | None = None) -> list[RawEntry]:
        """Read the newest entries of the log, the last one first; with an id those before it."""
        found: Any = self.redis.xrevrange(self.keys.log, f"({before}" if before is not None else "+", count=most)
        return list(found)

    def status_entries(self, most: int) -> list[RawEntry]:
        """Read the entries that changed the run's status last, the newest last."""
        found: Any = self.redis.xrevrange(self.keys.statuses, count=most)
        with self.redis.pipeline(transaction=False) as pipeline:
            for id_, _ in reversed(found):
                pipeline.xrange(self.keys.log, id_, id_)
            return [entry for page in pipeline.execute() for entry in page]

    def status_at(self, at: str) -> str:
        """Read the status that the run had at an id; during the submission that is `running`."""
        found: Any = self.redis.xrevrange(self.keys.statuses, max=at, count=1)
        return read_entry(*found[0]).run_status or "" if found else "running"

    def codes(self) -> dict[int, ExecutedBy]:
        """Read which workers have run the calls, by the numbers that entries have."""
        return codes_of(self.redis.hgetall(self.keys.codes))

    @cached_property
    def _lane(self) -> Script:
        return Script(self.redis, "lane", is_raw=True)

    def lane(self, instance: str | None) -> list[Entry]:
        """Read all of one lane, in order, and nothing of the others."""
        return self._whole(instance, self._lane(self.keys, _newest(instance)))

    def lanes(self, instances: Sequence[str]) -> Iterator[tuple[str, list[Entry]]]:
        """Read all of several lanes, in a few round trips for all that are short."""
        for some in batches(instances, limits.LOG_LANES_AT_ONCE):
            pages = self._lane.run_all((self.keys, _newest(instance)) for instance in some)
            for instance, page in zip(some, pages, strict=True):
                yield instance, self._whole(instance, page)

    def _whole(self, instance: str | None, page: dict[str, Any]) -> list[Entry]:
        """A lane in order, whose newest entries have been read."""
        found: list[Entry] = []
        while True:
            found += [read_flat(id_, flat) for id_, flat in page["entries"]]
            if not page["before"]:
                return found[::-1]
            page = self._lane(self.keys, _newest(instance) | {"from": page["before"]})

    def past(self, instance: str | None, at: str | None) -> list[Entry]:
        """Read the entries of the global lane and of an instance's, in order, as of an id or now."""
        entries = (entry for lane in dict.fromkeys((None, instance)) for entry in self.lane(lane))
        past = (entry for entry in entries if at is None or id_key(entry.id) <= id_key(at))
        return sorted(past, key=lambda entry: id_key(entry.id))

    # Calls that have begun.

    def open_calls(self, *, without: Container[Kind] = (Kind.HELD,)) -> frozenset[tuple[str | None, int]]:
        """Read the instances and indexes of the calls that have begun and not ended, `without` those of some kinds; a
        held call has not begun.
        """
        calls = self.redis.hscan_iter(self.keys.calls, count=limits.CALLS_AT_ONCE)
        return frozenset(
            self._name(member)
            for member, entry in calls
            if (found := Condition.read(entry)) is not None and found.kind not in without
        )

    def at_work(self, *, is_over: bool = False) -> dict[tuple[str | None, int], Condition]:
        """Read the calls that are at work, by instance and index. One that was lost with its worker and has not begun
        again is among them. Where the run is over: those that were when it was ended, and those that were between two
        attempts.
        """
        members = (member for member, _ in self.redis.zscan_iter(self.keys.leases, count=limits.CALLS_AT_ONCE))
        calls = (member for member in members if b"@" not in member.rpartition(b"\x1f")[2])
        found = dict[tuple[str | None, int], Condition]()
        while page := list(islice(calls, limits.CALLS_AT_ONCE)):
            entries: Any = self.redis.hmget(self.keys.calls, page)
            for call, entry in zip(page, entries, strict=True):
                condition = Condition.read(entry)
                if condition is not None and (
                    condition.is_at_work or condition.kind is Kind.LOST or (is_over and condition.is_between)
                ):
                    found[self._name(call)] = condition
        return found

    def begun(self) -> dict[str, str]:
        """Read which calls have begun and not ended, by their members, each with its condition."""
        at_work = self.at_work(is_over=True).items()
        return {CallId(self.run, *place).member: str(condition) for place, condition in at_work}

    def _name(self, member: bytes) -> tuple[str | None, int]:
        id_ = CallId.of_member(self.run, member.decode())
        return id_.instance, id_.index

    # What people do to it. What becomes due is marked, so that the sweep publishes it should the client die first.

    def note_due(self) -> None:
        """Have the next sweep look at the run."""
        DueRuns(self.redis, self.keys.prefix).note(self.run)

    def set_status(self, wanted: str, who: AuditRecord, *, window: int, approves: str | None = None) -> dict[str, Any]:
        """Pause, resume or cancel the run; `window` is how many of its lanes may lie in the queue."""
        request = {"wanted": wanted, "most": limits.AT_ONCE, "window": window, **_ordered(who)}
        return self._control("set_status", request if approves is None else request | {"approves": approves})

    def send(
        self, messages: Sequence[tuple[str, bytes]], who: AuditRecord, *, window: int, most_bytes: int
    ) -> dict[str, Any]:
        """Add packed messages, each with its lane, all of them or none."""
        DueRuns(self.redis, self.keys.prefix).note_until(self.run, PUBLISHED_MS)
        request = {"messages": messages, "window": window, "most_bytes": most_bytes, **_ordered(who)}
        return self._control("send", request)

    def decide(
        self, call: CallId, ruling: bytes, who: AuditRecord, *, shown: str, rule: bytes | None = None
    ) -> dict[str, Any]:
        """Decide on a held call, if it is held by the entry `shown`, and give a rule with that."""
        DueRuns(self.redis, self.keys.prefix).note_until(self.run, PUBLISHED_MS)
        given = {"rule": rule} if rule is not None else {}
        request = {"member": call.member, "ruling": ruling, "shown": shown, **given, **_ordered(who)}
        return self._control("decide", request)

    def revoke(self, rule: str, who: AuditRecord) -> dict[str, Any]:
        """Revoke a rule of the run."""
        return self._control("revoke", {"rule": rule, **_ordered(who)})

    def move(self, call: CallId, moment_ms: int, who: AuditRecord) -> dict[str, Any]:
        """Move the moment that a call waits for."""
        answer = self._control("move", {"member": call.member, "moment": moment_ms, **_ordered(who)})
        DueRuns(self.redis, self.keys.prefix).note_sooner({self.run: moment_ms})
        return answer

    def waits(self) -> list[tuple[CallId, int]]:
        """List the calls that wait for a moment, and that in ms: the soonest first, `MOST_WAITS` of them."""
        found: Any = self.redis.zrange(self.keys.waits, 0, limits.MOST_WAITS - 1, withscores=True)
        return [(CallId.of_member(self.run, member.decode()), int(due)) for member, due in found]

    def _control(self, action: str, request: Mapping[str, Any]) -> dict[str, Any]:
        return Script(self.redis, "control", action)(self.keys, request)

    def amend(self, requests: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Take steps of an amendment, in one round trip (lua/amend.lua)."""
        return Script(self.redis, "amend").run_all((self.keys, request) for request in requests)

    def take_loop_step(self, step: LoopStep, *, most_bytes: int) -> dict[str, Any]:
        """Write a step of the run's loop, if nothing has come that it was decided without (lua/loop.lua)."""
        return Script(self.redis, "loop")(self.keys, step.to_request(PUBLISHED_MS, most_bytes, refuses=True))


def _ordered(who: AuditRecord) -> dict[str, Any]:
    return {"who": who.pack(), "published_ms": PUBLISHED_MS}


def _newest(instance: str | None) -> dict[str, Any]:
    """The request for the newest entries of a lane."""
    return {
        "lane": lane_token(instance),
        "after": "0-0",
        "from": b"",
        "most": limits.HISTORY_PAGE,
        "most_bytes": limits.PAGE_BYTES,
    }
