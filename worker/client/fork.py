"""Forks: a new run that begins where another one was at some moment (SPEC R11.2).

The log up to an id is copied with its ids, page by page, so a fork's past can be read like that of the run it came
from; what is known of lanes and calls, and the counters, follow from it. What had not ended then is executed anew, what
was sent and forgotten is not. It is written in the order in which the dispatcher writes a run: half of it
never counts as a run.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from redis import Redis

from ...broker_config import Settings
from ...protocol.engine.events import MessageAdded
from ...protocol.engine.loop import Loop
from ...protocol.engine.outcomes import output_fault
from ...protocol.plan.waits import Gathers
from ..backoff import batches
from ..broker.attempts import CallId, lane_token
from ..broker.messages import pack
from ..errors import BeingAmended, RunNotFound
from ..limits import ENTRIES_AT_ONCE, FORK_LANES_AT_ONCE
from ..store.commits import DueRuns, approve_ms, promises_due
from ..store.definition import FORMAT, gather_counts, unpack_definition
from ..store.entries import LOOP, id_key, read_entry
from ..store.held_calls import audit_record
from ..store.keys import ENDED_STATUSES, FAN_OUT_KIND, Condition, Field, Keys, Kind, active_runs, make_run_id
from ..store.lane import gathers_of
from ..store.log import History
from ..store.run_list import OWNER, note_owned
from ..store.run_writer import discard_run
from ..store.scripts import server_ms
from ..store.slots import SPENT
from ..store.state import LaneState, RunState
from .submitting import admitted, owner_fields

SETTLED: Final = "settled"
"""What stands in `calls` of a gather call in the lanes of instances, where it waits for nothing (see commit.lua)."""
_EACH: Final = str(FAN_OUT_KIND)
"""How calls stand that are carried out for each element: they count as running from their beginning to their end."""


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
        The tasks are not published: resume it, or leave that to the workers' sweep. Raises `RunNotFound`, `OverLimit`.
        """
        at, data = self._moment(at)
        milliseconds = server_ms(self._redis)
        keys = Keys(self._keys.prefix, make_run_id(milliseconds))
        try:
            self._redis.zadd(active_runs(keys.prefix), {keys.run: milliseconds})
            if (owner := owner_fields(self._settings).get(OWNER)) is not None:
                note_owned(self._redis, keys, owner, milliseconds)
            self._redis.set(keys.definition, data)
            for some in batches(self._history.instances(), ENTRIES_AT_ONCE):
                self._redis.rpush(keys.instances, *some)
            if codes := self._redis.hgetall(self._keys.codes):
                self._redis.hset(keys.codes, mapping=codes)  # type: ignore[arg-type]  # redis wants it invariant
            for old, new in ((self._keys.files, keys.files), (self._keys.pictures, keys.pictures)):
                if files := self._redis.hgetall(old):
                    self._redis.hset(new, mapping=files)  # type: ignore[arg-type]  # as above
            run = RunState(unpack_definition(data))
            self._copy_log(keys, run, at)
            counts = self._write_lanes(keys, run)
            if run.loop is not None:
                self._write_loop(keys, run, run.loop)
            with admitted(self._redis, self._settings, counts["total"]) as limits:
                self._start(keys, counts, at, milliseconds, run, limits, is_paused=is_paused)
        except BaseException:
            discard_run(self._redis, keys)
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
            found: Any = self._redis.xrevrange(self._keys.log, max=until, count=ENTRIES_AT_ONCE)
            for id_, entry in found:
                event = read_entry(id_, entry).event
                if not isinstance(event, MessageAdded) or event.call is None:
                    return at if until == at and id_ == found[0][0] else id_.decode()
            until = f"({found[-1][0].decode()}"

    def _copy_log(self, keys: Keys, run: RunState, at: str) -> None:
        """Copy everything but the end of the run."""
        entries = self._history.raw(until=at)
        while page := list(islice(entries, ENTRIES_AT_ONCE)):
            with self._redis.pipeline(transaction=False) as pipeline:
                for id_, raw in page:
                    entry = read_entry(id_, raw)
                    if entry.run_status in ENDED_STATUSES:
                        continue
                    copied: dict[Any, Any] = dict(raw)
                    pipeline.xadd(keys.log, copied, id=id_)
                    if entry.run_status is not None:
                        pipeline.xadd(keys.statuses, {"s": entry.run_status}, id=id_)
                    run.apply(entry)
                pipeline.execute()

    def _write_lanes(self, keys: Keys, run: RunState) -> Counter[str]:
        """Write what is known of lanes and calls; how many calls there are, of each status, and for each element."""
        counts: Counter[str] = Counter()
        guests = _guests(run)
        gathered = [call.index for call in run.shared.known.values() if call.gather and run.shared.end(call.index)]
        for lane in run.lanes.values():
            self._hold(keys, lane)
        if gathers := gather_counts(guests.values()):
            numbers: dict[Any, Any] = dict(gathers)
            self._redis.hset(keys.gathers, mapping=numbers)
        remaining = iter(run.lanes.values())
        while batch := list(islice(remaining, FORK_LANES_AT_ONCE)):
            with self._redis.pipeline(transaction=False) as pipeline:
                for lane in batch:
                    token, ended = lane_token(lane.instance), lane.ended
                    if lane.last == "0-0":
                        continue
                    settled = gathered if lane.instance is not None else ()
                    conditions = _conditions(lane) | dict.fromkeys(settled, SETTLED)
                    begun = sum(":" in condition for condition in conditions.values())
                    pipeline.hset(keys.lanes, token, f"{lane.last}:{begun}")
                    members = ((CallId(keys.run, lane.instance, call).member, how) for call, how in conditions.items())
                    while page := dict(islice(members, ENTRIES_AT_ONCE)):
                        pipeline.hset(keys.calls, mapping=page)  # type: ignore[arg-type]  # redis wants it invariant
                    if lane.left or (lane.instance in guests and guests[lane.instance].waiting):
                        pipeline.rpush(keys.backlog, token)
                    counts.update(end.status.value for end in ended.values())
                    counts["total"] += len(lane.known)
                    counts[_EACH] += list(conditions.values()).count(_EACH)
                pipeline.execute()
        return counts

    def _write_loop(self, keys: Keys, run: RunState, loop: Loop) -> None:
        """Write what is known of a loop's lane; a request that was not answered is asked anew (SPEC R13.5)."""
        self._redis.hset(keys.lanes, LOOP, f"{run.loop_last}:0")
        answered = {CallId(keys.run, LOOP, request).member: "done" for request in loop.answered}
        if answered:
            self._redis.hset(keys.calls, mapping=answered)  # type: ignore[arg-type]  # redis wants it invariant
        spent, calls = loop.delegated
        drawn: dict[str, Any] = {  # see budget.lua; its calls have asked for so much before
            keys.run: f"0:0:{loop.own_calls}:0",
            "@before": f"{spent.tokens}:0:{calls}:0:{spent.nanodollars}:0",
            "=tokens": spent.tokens,
            "=money": spent.nanodollars,
            "=calls": loop.own_calls + calls,
        }
        self._redis.hset(keys.budget, mapping=drawn)  # type: ignore[arg-type]  # as above
        if loop.ended is None:
            self._redis.rpush(keys.backlog, LOOP)

    def _hold(self, keys: Keys, lane: LaneState) -> None:
        """Hold what waited for a person. What was decided of a call that had not ended was said of the other run's
        execution: here it is asked for anew, with the same snapshot; what was carried out for each element begins anew.
        """
        held = {index: call for index, call in lane.calls.items() if call.held is not None and call.end is None}
        if again := [index for index, call in held.items() if call.elements is not None]:
            self._append(keys, lane, {Field.UNDONE: pack(again)})
        for index, call in held.items():
            if call.is_decided:
                before: Any = self._redis.xrange(keys.log, str(call.held), str(call.held))
                self._append(keys, lane, {Field.CALL: index, Field.HELD: before[0][1][Field.HELD]})
            member = CallId(keys.run, lane.instance, index).member
            self._redis.zadd(keys.held, {member: server_ms(self._redis)})

    def _append(self, keys: Keys, lane: LaneState, said: Mapping[bytes, Any]) -> None:
        """Append an entry to a lane, here and there."""
        written: dict[Any, Any] = {Field.LANE: lane_token(lane.instance), Field.BEFORE: lane.last, **said}
        id_: Any = self._redis.xadd(keys.log, written)
        lane.apply(read_entry(id_, {name: _encoded(value) for name, value in written.items()}))

    def _amended(self, at: str) -> dict[str, str]:
        """The amendments that are part of the past."""
        field: Any = self._redis.hget(self._keys.state, "amended")
        past = [f"{since}:{until} " for since, until in _amendments(field) if id_key(until) <= id_key(at)]
        return {"amended": "".join(past)} if past else {}

    def _start(
        self,
        keys: Keys,
        counts: Counter[str],
        at: str,
        milliseconds: int,
        run: RunState,
        limits: Mapping[str, Any],
        *,
        is_paused: bool,
    ) -> None:
        """The last command makes a run of it."""
        total, begun = counts.pop("total", 0), counts.pop(_EACH, 0)
        end = run.loop.ended if run.loop is not None else None
        remaining = total - counts.total() + (run.loop is not None and end is None)
        status, faults = "paused" if is_paused or run.waits_for_approval else "running", _faults(run)
        if not remaining:
            is_failed = end.status == "failed" if end is not None else bool(counts["failed"])
            status = "failed" if is_failed or faults else "completed"
        has_given_up = id_key(run.gave_up) > id_key(run.amended)
        state: dict[Any, Any] = {
            "format": FORMAT,
            "status": status,
            **({"plan": 1} if run.waits_for_approval and remaining else {}),
            "total": total,
            "remaining": remaining,
            **({"running": begun} if begun else {}),
            "submitted": milliseconds,
            **({} if remaining else {"finished": milliseconds}),
            **owner_fields(self._settings),
            **limits,
            "forked_from": self._keys.run,
            "forked_at": at,
            **self._amended(at),
            **faults,
            **_loop_fields(run, counts["failed"]),
            **approve_ms(run.definition.config),
            **({} if has_given_up else promises_due(run.definition.config, milliseconds)),
            **{f"n:{how}": number for how, number in counts.items() if number},
        }
        order = audit_record(self._settings, "forked", run=self._keys.run, at=at)
        id_ = self._redis.xadd(keys.log, {Field.STATUS: status, Field.AUDIT: order.pack()})
        self._redis.xadd(keys.statuses, {"s": status}, id=id_)
        self._redis.hset(keys.state, mapping=state)
        order.write_line(keys.run)
        DueRuns(self._redis, keys.prefix).note(keys.run)


def _encoded(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _conditions(lane: LaneState) -> dict[int, str]:
    """What stands in `calls` of the calls of a lane: how they have ended, and of those that are held, or carried out
    for each element, that they are.
    """
    found: dict[int, str] = {}
    for index, call in lane.calls.items():
        found |= {element: status.value for element, status in lane.elements(index).items()}
        if call.end is not None:
            found[index] = call.end.status.value
        elif call.is_held:
            found[index] = str(Condition(Kind.HELD, holder=str(call.held)))
        elif call.elements is not None:
            found[index] = _EACH
    return found


def _faults(run: RunState) -> dict[str, str]:
    """Why the run will have failed although no call has, as fields of its state."""
    fault = output_fault(run.definition.output, run.shared.fold, run.definition.schema)
    missed = {"missed": ", ".join(run.missed)} if run.missed else {}
    return missed | ({"output_fault": fault} if fault else {})


def _loop_fields(run: RunState, failed: int) -> dict[str, Any]:
    """What the run's state says of its loop."""
    if run.loop is None:
        return {}
    own = run.loop.own_cost
    found: dict[str, Any] = {
        "loop": run.loop.name,
        **dict(zip(SPENT, (own.tokens, own.nanodollars), strict=True)),
        "loop:cost": json.dumps(run.loop.cost.to_dict()),
    }
    if (end := run.loop.ended) is None:
        return found | {"loop:lane": LOOP}
    return found | {"loop:forgiven": failed} | ({"loop:fault": end.reason} if end.reason else {})


def _guests(run: RunState) -> dict[str | None, Gathers]:
    """The gather calls that have not ended, in the lanes of instances."""
    definition, shared = run.definition, run.shared
    calls = definition.lane_calls(shared.record, None)
    if not any(call.gather for call in calls):
        return {}
    gone = shared.record.begun | shared.ended.keys()
    found: dict[str | None, Gathers] = {}
    for instance, lane in run.lanes.items():
        if instance is None:
            continue
        if (gathers := gathers_of(definition, lane.record, instance, shared.record, gone)) is not None:
            found[instance] = gathers
    return found


def _amendments(field: bytes | None) -> list[tuple[str, str]]:
    """For each amendment of a run the last id before it, and its own last (see amend.lua)."""
    pairs = (field or b"").decode().split()
    return [(since, until) for since, _, until in (pair.partition(":") for pair in pairs)]
