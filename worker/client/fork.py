"""Forks: a new run that begins where another one was at some moment (SPEC R11.2).

The log up to an id is copied with its ids, page by page, so a fork's past can be read like that of the run it came
from; what is known of lanes and calls, and the counters, follow from it. What had not ended then is executed anew, what
was sent and forgotten is not. It is written in the order in which the dispatcher writes a run: half of it
never counts as a run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from redis import Redis

from acts_celery.broker_config import Settings
from acts_celery.protocol.calls.elements import call_of
from acts_celery.protocol.engine.loop import Loop
from acts_celery.protocol.engine.solution_output import output_fault
from acts_celery.protocol.graph.gathering import Gathers
from acts_celery.protocol.state.fold import Fold
from acts_celery.worker.errors import BeingAmended, RunNotFound
from acts_celery.worker.messaging.attempts import CallId, lane_token
from acts_celery.worker.messaging.packing import pack
from acts_celery.worker.storage.audit import deed
from acts_celery.worker.storage.budgets import TOKENS
from acts_celery.worker.storage.clock import server_ms
from acts_celery.worker.storage.condition import FAN_OUT, Condition, Kind
from acts_celery.worker.storage.definition import (
    FORMAT,
    Definition,
    LaneRecord,
    approve_ms,
    gather_counts,
    promises_due,
    unpack_definition,
    unpack_lane,
)
from acts_celery.worker.storage.due import DueRuns
from acts_celery.worker.storage.entries import Entry, read_entry
from acts_celery.worker.storage.history import History
from acts_celery.worker.storage.keys import ENDED, Keys, active_runs, make_run_id
from acts_celery.worker.storage.lane import id_key, known_calls
from acts_celery.worker.storage.loop_entries import LOOP, follow
from acts_celery.worker.storage.retention import delete_run

_LANES_AT_ONCE: Final = 200
_ENTRIES_AT_ONCE: Final = 2_000


@dataclass(slots=True)
class _Lane:
    """A lane as far as it was copied."""

    last: str = "0-0"
    records: list[bytes] = field(default_factory=list)
    ended: dict[int, str] = field(default_factory=dict)
    held: dict[int, _Hold] = field(default_factory=dict)
    """The calls that were held and had not ended."""
    spread: set[int] = field(default_factory=set)
    """Those that were carried out for each element and had not ended."""
    parts: dict[int, str] = field(default_factory=dict)
    """The elements that had ended."""

    def undo_elements(self, calls: Collection[int]) -> None:
        """Calls begin anew, with all of their elements."""
        self.spread.difference_update(calls)
        self.parts = {index: how for index, how in self.parts.items() if call_of(index) not in calls}

    def take_in(self, entry: Entry) -> None:
        """Take in the next entry of the lane."""
        self.last = entry.id
        if entry.record is not None:
            self.records.append(entry.record)
        for index in entry.undone:
            self.ended.pop(index, None)
        if entry.undone:
            self.undo_elements(entry.undone)
        if entry.call is None:
            return
        if entry.status is not None:
            self.ended[entry.call] = entry.status.value
            self.held.pop(entry.call, None)
            self.spread.discard(entry.call)
        elif entry.spread is not None:
            self.spread.add(entry.call)
        elif entry.part is not None:
            self.parts[entry.part.index] = entry.part.status.value
        elif entry.snapshot is not None:
            self.held[entry.call] = _Hold(entry.id, entry.snapshot)
        elif entry.ruling is not None:
            self.held[entry.call].is_decided = True


@dataclass(slots=True)
class _Hold:
    """What a call was held with, and in which entry."""

    id: str
    snapshot: bytes
    is_decided: bool = False


@dataclass(slots=True)
class _Copied:
    """What was found in the log while it was copied."""

    definition: Definition
    lanes: dict[str | None, _Lane] = field(default_factory=lambda: defaultdict(_Lane))
    shared: Fold = field(default_factory=Fold)
    """What global messages say."""
    missed: tuple[str, ...] = ()
    gave_up: bool = False
    loop: Loop | None = None
    """Of a run that is a request."""
    loop_last: str = "0-0"

    def __post_init__(self) -> None:
        if self.definition.request is not None:
            self.loop = Loop()

    def take_in(self, entry: Entry) -> None:
        """Take in the next entry of a lane."""
        if entry.tick is not None and self.loop is not None:
            self.loop, self.loop_last = follow(self.loop, entry), entry.id
            return
        self.lanes[entry.instance].take_in(entry)
        if entry.amendment is not None:
            self.definition = self.definition.amended(entry.amendment)
            self.gave_up = False
        if entry.message is not None and entry.instance is None:
            self.shared.append(entry.message, f"message {entry.id}")
        self.missed = self.missed or entry.missed
        self.gave_up = self.gave_up or entry.gives_up

    @property
    def has_loop_left(self) -> bool:
        """Whether a loop goes on: it is one more that remains (see loop.lua)."""
        return self.loop is not None and self.loop.ended is None

    def loop_fields(self, failed: int) -> dict[str, Any]:
        """What the run's state says of its loop."""
        if self.loop is None:
            return {}
        loop = {"loop": self.loop.name, TOKENS: self.loop.own_tokens}
        end = self.loop.ended
        fields = loop | ({"loop:lane": LOOP} if end is None else {"loop:forgiven": failed})
        return fields | ({"loop:fault": end.reason} if end is not None and end.reason else {})

    @property
    def faults(self) -> dict[str, str]:
        """Why the run will have failed although no call has, as fields of its state."""
        fault = output_fault(self.definition.output, self.shared)
        missed = {"missed": ", ".join(self.missed)} if self.missed else {}
        return missed | ({"output_fault": fault} if fault else {})


class Forker:
    """Copies one run's past into new runs."""

    def __init__(self, run: str, redis: Redis, settings: Settings) -> None:
        self._redis = redis
        self._settings = settings
        self._keys = Keys(settings.key_prefix, run)
        self._history = History(redis, self._keys)

    def fork(self, at: str | None = None, *, is_paused: bool = False) -> str:
        """Write down a new run that is as this one was at an id, now where none is given. Returns the new run's id.

        An id within the submission stands for all of it, one in the midst of a call's result or of an amendment for the
        moment before.
        The tasks are not published: resume it, or leave that to the workers' sweep. Raises `RunNotFound`.
        """
        at, data = self._moment(at)
        milliseconds = server_ms(self._redis)
        keys = Keys(self._keys.prefix, make_run_id(milliseconds))
        try:
            self._redis.zadd(active_runs(keys.prefix), {keys.run: milliseconds})
            self._redis.set(keys.definition, data)
            found = self._history.instances()
            for start in range(0, len(found), _ENTRIES_AT_ONCE):
                self._redis.rpush(keys.instances, *found[start : start + _ENTRIES_AT_ONCE])
            copied = self._copy_log(keys, unpack_definition(data), at)
            counts = self._write_lanes(keys, copied.lanes, copied.definition)
            if copied.loop is not None:
                self._write_loop(keys, copied, copied.loop)
            self._start(keys, counts, at, milliseconds, copied, is_paused=is_paused)
        except BaseException:
            delete_run(self._redis, keys)
            raise
        return keys.run

    def _moment(self, at: str | None) -> tuple[str, bytes]:
        """The id at which to fork, one that everything lies before or behind; and the run's definition."""
        with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.hmget(self._keys.state, "amending", "amended")
            pipeline.get(self._keys.definition)
            pipeline.xrange(self._keys.statuses, count=1)
            pipeline.xrevrange(self._keys.log, count=1)
            (amending, amendments), definition, first, newest = pipeline.execute()
        if not newest or not first or definition is None:
            raise RunNotFound(self._keys.run)
        if amending is not None:
            raise BeingAmended(f"run {self._keys.run} is amended in part: fork it when that is finished")
        now, submitted = newest[0][0].decode(), first[0][0].decode()
        moment = max(submitted, min(at or now, now, key=id_key), key=id_key)
        for since, until in _amendments(amendments):
            if id_key(since) < id_key(moment) < id_key(until):
                moment = since
        return self._whole(moment), definition

    def _whole(self, at: str) -> str:
        """The id, or the last one before a call's result that it cuts in two; such a result lies together."""
        until = at
        while True:
            found: Any = self._redis.xrevrange(self._keys.log, max=until, count=_ENTRIES_AT_ONCE)
            for id_, fields in found:
                if b"m" not in fields or b"c" not in fields or b"s" in fields or b"i" in fields:
                    return at if until == at and id_ == found[0][0] else id_.decode()
            until = f"({found[-1][0].decode()}"

    def _copy_log(self, keys: Keys, definition: Definition, at: str) -> _Copied:
        """Copy everything but the end of the run."""
        copied = _Copied(definition)
        entries = self._history.raw(until=at)
        while page := list(islice(entries, _ENTRIES_AT_ONCE)):
            with self._redis.pipeline(transaction=False) as pipeline:
                for id_, fields in page:
                    entry = read_entry(id_, fields)
                    if entry.run_status in ENDED:
                        continue
                    pipeline.xadd(keys.log, fields, id=id_)  # type: ignore[arg-type]  # redis wants an invariant dict
                    if entry.run_status is not None:
                        pipeline.xadd(keys.statuses, {"s": entry.run_status}, id=id_)
                    if not entry.is_of_lane:
                        continue
                    copied.take_in(entry)
                pipeline.execute()
        return copied

    def _write_lanes(self, keys: Keys, lanes: Mapping[str | None, _Lane], definition: Definition) -> Counter[str]:
        """Write what is known of lanes and calls; how many calls there are, and how many of each status."""
        counts: Counter[str] = Counter()
        guests = _guests(lanes, definition)
        for instance, lane in lanes.items():
            self._write_held(keys, instance, lane)
        if gathers := gather_counts(guests.values()):
            numbers: dict[Any, Any] = dict(gathers)
            self._redis.hset(keys.gathers, mapping=numbers)
        remaining = iter(lanes.items())
        while batch := list(islice(remaining, _LANES_AT_ONCE)):
            with self._redis.pipeline(transaction=False) as pipeline:
                for instance, lane in batch:
                    token = lane_token(instance)
                    size = len(known_calls(definition, lane.records, instance))
                    pipeline.hset(keys.lanes, token, f"{lane.last}:{len(lane.held) + len(lane.spread)}")
                    known = {**dict.fromkeys(lane.spread, str(FAN_OUT)), **lane.parts, **lane.ended}
                    ended = ((CallId(keys.run, instance, call).member, how) for call, how in known.items())
                    while page := dict(islice(ended, _ENTRIES_AT_ONCE)):
                        pipeline.hset(keys.calls, mapping=page)  # type: ignore[arg-type]  # redis wants it invariant
                    waits = instance in guests and guests[instance].waiting
                    if len(lane.ended) < size or waits:
                        pipeline.rpush(keys.backlog, token)
                    counts.update(lane.ended.values())
                    counts["total"] += size
                pipeline.execute()
        return counts

    def _write_loop(self, keys: Keys, copied: _Copied, loop: Loop) -> None:
        """Write what is known of a loop's lane; a request that was not answered is asked anew (SPEC R13.5)."""
        self._redis.hset(keys.lanes, LOOP, f"{copied.loop_last}:0")
        answered = {CallId(keys.run, LOOP, request).member: "done" for request in loop.answered}
        if answered:
            self._redis.hset(keys.calls, mapping=answered)  # type: ignore[arg-type]  # redis wants it invariant
        drawn = {keys.run: f"0:0:{loop.own_calls}:0", "=calls": loop.own_calls}  # see budget.lua
        self._redis.hset(keys.budget, mapping=drawn)  # type: ignore[arg-type]  # as above
        if copied.has_loop_left:
            self._redis.rpush(keys.backlog, LOOP)

    def _write_held(self, keys: Keys, instance: str | None, lane: _Lane) -> None:
        """Hold what waited for a person. What was decided of a call that had not ended was said of the other run's
        execution: here it is asked for anew, with the same snapshot; what was carried out for each element begins anew.
        """
        if again := [call for call in lane.held if call in lane.spread]:
            lane.undo_elements(again)
            undoing: dict[Any, Any] = {"l": lane_token(instance), "p": lane.last, "u": pack(again)}
            lane.last = _text(self._redis.xadd(keys.log, undoing))
        for call, hold in lane.held.items():
            if hold.is_decided:
                fields: dict[Any, Any] = {"l": lane_token(instance), "p": lane.last, "c": call, "h": hold.snapshot}
                hold.id = lane.last = _text(self._redis.xadd(keys.log, fields))
            member = CallId(keys.run, instance, call).member
            self._redis.hset(keys.calls, member, str(Condition(Kind.HELD, holder=hold.id)))
            self._redis.zadd(keys.held, {member: server_ms(self._redis)})

    def _amended(self, at: str) -> dict[str, str]:
        """The amendments that are part of the past."""
        field: Any = self._redis.hget(self._keys.state, "amended")
        past = [f"{since}:{until} " for since, until in _amendments(field) if id_key(until) <= id_key(at)]
        return {"amended": "".join(past)} if past else {}

    def _start(
        self, keys: Keys, counts: Counter[str], at: str, milliseconds: int, copied: _Copied, *, is_paused: bool
    ) -> None:
        """The last command makes a run of it."""
        total = counts.pop("total", 0)
        remaining = total - counts.total() + copied.has_loop_left
        status = "paused" if is_paused else "running"
        if not remaining:
            end = copied.loop.ended if copied.loop is not None else None
            is_failed = end.status == "failed" if end is not None else bool(counts["failed"])
            status = "failed" if is_failed or copied.faults else "completed"
        state: dict[Any, Any] = {
            "format": FORMAT,
            "status": status,
            "total": total,
            "remaining": remaining,
            "submitted": milliseconds,
            **({} if remaining else {"finished": milliseconds}),
            "forked_from": self._keys.run,
            "forked_at": at,
            **self._amended(at),
            **copied.faults,
            **copied.loop_fields(counts["failed"]),
            **approve_ms(copied.definition.config),
            **({} if copied.gave_up else promises_due(copied.definition.config, milliseconds)),
            **{f"n:{how}": number for how, number in counts.items() if number},
        }
        order = deed(self._settings, "forked", run=self._keys.run, at=at)
        id_ = self._redis.xadd(keys.log, {"s": status, "w": order.pack()})
        self._redis.xadd(keys.statuses, {"s": status}, id=id_)
        self._redis.hset(keys.state, mapping=state)
        order.tell(keys.run)
        DueRuns(self._redis, keys.prefix).note(keys.run)


def _text(id_: Any) -> str:
    """An entry's id, as redis-py gives it."""
    return id_.decode() if isinstance(id_, bytes) else str(id_)


def _guests(lanes: Mapping[str | None, _Lane], definition: Definition) -> dict[str | None, Gathers]:
    """The gather calls that have not ended, in the lanes of instances."""
    shared = lanes.get(None)
    if shared is None or not shared.records:
        return {}
    record = unpack_lane(shared.records[-1], definition.tools)
    calls = definition.lane_calls(record, None)
    if not any(call.gather for call in calls):
        return {}
    gone = record.begun | shared.ended.keys()
    found: dict[str | None, Gathers] = {}
    for instance, lane in lanes.items():
        own = unpack_lane(lane.records[-1], definition.tools) if lane.records else LaneRecord()
        gathers = definition.gathers(definition.lane_calls(own, instance), own, calls, gone)
        if instance is not None and gathers is not None:
            found[instance] = gathers
    return found


def _amendments(field: bytes | None) -> list[tuple[str, str]]:
    """For each amendment of a run the last id before it, and its own last (see amend.lua)."""
    pairs = (field or b"").decode().split()
    return [(since, until) for since, _, until in (pair.partition(":") for pair in pairs)]
