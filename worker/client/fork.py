"""Forks: a new run that begins where another one was at some moment (SPEC R11.2).

The log up to an id is copied with its ids, page by page, so a fork's past can be read like any other; the state of
lanes and calls, and the counters, follow from it. Calls that had not ended then run anew; calls that were sent and
forgotten do not. Of calls that run at most once and that the other run has begun, then or since, a person
is asked (SPEC R4.11).
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, Final

from redis import Redis

from ...broker_config import Settings
from ...protocol.calls.call import call_of, element_of
from ...protocol.engine.events import MessageAdded
from ...protocol.engine.outcomes import output_fault
from ...protocol.plan.waits import Gathers
from ..broker.attempts import CallId, lane_token
from ..broker.messages import pack
from ..errors import BeingAmended, RunNotFound
from ..store.commits import DueRuns, approve_ms, promises_due
from ..store.definition import FORMAT, gather_counts, unpack_definition
from ..store.entries import id_key, read_entry
from ..store.held_calls import audit_record
from ..store.keys import ENDED_STATUSES, FAN_OUT_KIND, LOOP, Condition, Field, Fields, Kind
from ..store.lane import gathers_of
from ..store.run_list import owner_fields
from ..store.run_store import RunStore
from ..store.run_writer import RunCopy
from ..store.scripts import server_ms
from ..store.servers import new_run_id
from ..store.slots import SPENT
from ..store.state import CallState, LaneState, RunState
from .submitting import admitted

SETTLED: Final = "settled"
"""The condition of a gather call in the lane of an instance where it waits for nothing (see commit.lua)."""
_EACH: Final = str(FAN_OUT_KIND)
"""The condition of a call that is run for each element: it counts as running from its beginning to its end."""
_LOST: Final = "lost"
"""Counts calls that run at most once and were begun in the other run."""


class Forker:
    """Copies one run's past into new runs."""

    def __init__(self, run: str, redis: Redis, settings: Settings) -> None:
        self._run = run
        self._redis = redis
        self._settings = settings
        self._store = RunStore.open(redis, settings.key_prefix, run)

    def fork(self, at: str | None = None, *, is_paused: bool = False) -> str:
        """Write a new run that is as this one was at an id, or is now. Returns the new run's id.

        An id within the submission means the end of it, one within a call's result or an amendment the moment before.
        The tasks are not published: resume it, or leave that to the workers' sweep. Raises `RunNotFound`, `OverLimit`,
        `IsSimulation`.
        """
        at, amended = self._moment(at)
        head = self._store.head()
        run = RunState(unpack_definition(head.definition))
        run.definition.require_real(self._run)
        now_ms = server_ms(self._redis)
        copy = RunCopy(self._redis, self._settings.key_prefix, new_run_id(self._redis, now_ms))
        with copy.begun(now_ms, self._settings):
            copy.set_head(head)
            for file in self._store.all_files():
                copy.add_file(*file)
            copy.append(self._past(run, at))
            rules = self._without_rules(copy, run)
            counts, open_calls = self._write_calls(copy, run)
            is_behind = self._store.fields("imported") != [None] and _has_once(run)  # its own backend has gone on
            with admitted(self._redis, self._settings, counts["total"]) as limits:
                state = _state(run, counts, now_ms, is_paused=is_paused) | owner_fields(self._settings) | limits
                order = audit_record(self._settings, "forked", run=self._run, at=at)
                copy.add({Field.STATUS: state["status"].encode(), Field.AUDIT: order.pack()})
                asks = {**({"restored": now_ms} if is_behind else {}), **rules}
                copy.finish(state | {"forked_from": self._run, "forked_at": at, **amended, **asks}, open_calls)
            order.write_line(copy.run)
            DueRuns(self._redis, self._settings.key_prefix).note(copy.run)
        return copy.run

    def _moment(self, at: str | None) -> tuple[str, dict[str, str]]:
        """Find the id at which to fork, and the field of the state with the amendments before it (see amend.lua)."""
        amending, amended = self._store.fields("amending", "amended")
        if (span := self._store.span()) is None:
            raise RunNotFound(self._run)
        if amending is not None:
            raise BeingAmended(f"run {self._run} is only partly amended: finish that, then fork it")
        submitted, now = span
        moment = max(submitted, min(at or now, now, key=id_key), key=id_key)
        past = ""
        for amendment in (amended or "").split():
            since, _, until = amendment.partition(":")
            if id_key(since) < id_key(moment) < id_key(until):
                moment = since
            elif id_key(until) <= id_key(moment):
                past += f"{amendment} "
        return self._before_result(moment), {"amended": past} if past else {}

    def _before_result(self, at: str) -> str:
        """Find the last id before a call's result that `at` cuts in two, or `at`; a result's messages lie together."""
        for number, entry in enumerate(self._store.backwards(at)):
            if not isinstance(entry.event, MessageAdded) or entry.event.call is None:
                return entry.id if number else at
        return at

    def _past(self, run: RunState, at: str) -> Iterator[tuple[bytes, Fields]]:
        """Read the log up to an id into `run`, without the end of the run."""
        for id_, fields in self._store.raw(until=at):
            entry = read_entry(id_, fields)
            if entry.run_status not in ENDED_STATUSES:
                run.apply(entry)
                yield id_, fields

    def _without_rules(self, copy: RunCopy, run: RunState) -> dict[str, str]:
        """Revoke the rules in the fork: what a person was shown was of the other run (SPEC R16.8). Returns the field of
        the state that says so.
        """
        order = audit_record(self._settings, "forked", run=self._run)
        for rule in list(run.rules.given):
            self._append(copy, run.shared, {Field.REVOKED: rule.encode(), Field.AUDIT: order.pack()})
            run.rules.revoke(run.shared.last, rule)
        return {"rules": run.rules.last} if run.rules.last else {}

    def _write_calls(self, copy: RunCopy, run: RunState) -> tuple[Counter[str], dict[str, int]]:
        """Write the condition of each call, and what is left to do.

        Returns how many calls there are, of each status, and run for each element; and how many of each lane are open.
        """
        counts, open_calls = Counter[str](), dict[str, int]()
        gathering = _gathering(run)
        settled = [call.index for call in run.shared.known.values() if call.gather and run.shared.end(call.index)]
        lanes, held = list[str](), dict[str, int | None]()
        begun = self._begun() if _has_once(run) else {}

        def conditions() -> Iterator[tuple[str, str]]:
            for lane in run.lanes.values():
                if lane.last == "0-0":
                    continue
                self._hold(copy, lane)
                token = lane_token(lane.instance)
                found = _conditions(lane)
                for index, fields in begun.get(token, {}).items():
                    if index not in found and lane.end(call_of(index)) is None:
                        found[index] = str(Condition(Kind.LOST, 1))
                        counts[_LOST] += element_of(index) is None
                        self._append(copy, lane, fields)
                if lane.instance is not None:
                    found |= dict.fromkeys(settled, SETTLED)
                open_calls[token] = sum(":" in condition for condition in found.values())
                if lane.left or (lane.instance in gathering and gathering[lane.instance].waiting):
                    lanes.append(token)
                for index, one in _held(lane).items():
                    held[CallId(copy.run, lane.instance, index).member] = one.until_ms
                counts.update(end.status.value for end in lane.ended.values())
                counts["total"] += len(lane.known)
                counts[_EACH] += list(found.values()).count(_EACH)
                counts[Kind.UNKNOWN] += sum(call.is_unknown for call in lane.calls.values())
                yield from ((CallId(copy.run, lane.instance, call).member, how) for call, how in found.items())
            if run.loop is not None:  # a request that was not answered is made anew (SPEC R13.5)
                yield from ((CallId(copy.run, LOOP, request).member, "done") for request in run.loop.answered)

        copy.set_calls(conditions())
        if run.loop is not None and run.loop.ended is None:
            lanes.append(LOOP)
        copy.set_work(lanes=lanes, held=held, gathers=gather_counts(gathering.values()), budget=_budget(copy.run, run))
        return counts, open_calls

    def _hold(self, copy: RunCopy, lane: LaneState) -> None:
        """Ask anew about calls that wait for a person, or were decided on and had not ended.

        What was decided was about the other run's execution: the call is held with the same snapshot, and what was run
        for each element begins anew.
        """
        held = _held(lane)
        if again := [index for index in held if lane.call(index).elements is not None]:
            self._append(copy, lane, {Field.UNDONE: pack(again)})
        for index, call in held.items():
            if call.is_decided:
                assert call.held is not None
                held_again = {Field.CALL: str(index).encode(), Field.HELD: self._store.entry(call.held)[Field.HELD]}
                self._append(copy, lane, held_again)

    @staticmethod
    def _append(copy: RunCopy, lane: LaneState, fields: Fields) -> None:
        """Append an entry to a lane of the fork."""
        place = {Field.LANE: lane_token(lane.instance).encode(), Field.BEFORE: lane.last.encode()}
        written = {**place, **fields}
        lane.apply(read_entry(copy.add(written).encode(), written))

    def _begun(self) -> dict[str, dict[int, Fields]]:
        """The entries of the run's whole log about the beginnings of calls that run at most once, by lane and call;
        the last attempt counts.
        """
        found = defaultdict[str, dict[int, Fields]](dict)
        for _, fields in self._store.raw():
            if Field.BEGUN in fields:
                kept = {name: fields[name] for name in (Field.CALL, Field.BEGUN, Field.ATTEMPT)}
                found[fields[Field.LANE].decode()][int(fields[Field.CALL])] = kept
        return found


def _has_once(run: RunState) -> bool:
    """Whether calls of a run may run at most once."""
    return any(said.once for said in run.definition.trust.values())


def _held(lane: LaneState) -> dict[int, CallState]:
    """The calls that have not ended and wait for a person or a moment, or did."""
    return {index: call for index, call in lane.calls.items() if call.held is not None and call.end is None}


def _conditions(lane: LaneState) -> dict[int, str]:
    """The condition of each call of a lane that has ended, is held, or is run for each element."""
    found: dict[int, str] = {}
    for index, call in lane.calls.items():
        found |= {element: status.value for element, status in lane.elements(index).items()}
        if call.end is not None:
            found[index] = call.end.status.value
        elif call.is_set_aside:
            kind = Kind.UNKNOWN if call.is_unknown else Kind.HELD
            found[index] = str(Condition(kind, holder=str(call.held)))
        elif call.elements is not None:
            found[index] = _EACH
    return found


def _gathering(run: RunState) -> dict[str | None, Gathers]:
    """The gather calls that have not ended, in the lanes of instances."""
    definition, shared = run.definition, run.shared
    if not any(call.gather for call in definition.lane_calls(shared.record, None)):
        return {}
    gone = shared.record.begun | shared.ended.keys()
    found = (
        (lane, gathers_of(definition, lane.record, lane.instance, shared.record, gone))
        for lane in run.lanes.values()
        if lane.instance is not None
    )
    return {lane.instance: gathers for lane, gathers in found if gathers is not None}


def _budget(name: str, run: RunState) -> dict[str, Any]:
    """The spending of a run's loop, as the fork of that name counts it (lua/budget.lua)."""
    if run.loop is None:
        return {}
    spent, calls = run.loop.delegated
    return {  # its calls have asked for so much before
        name: f"0:0:{run.loop.own_calls}:0",
        "@before": f"{spent.tokens}:0:{calls}:0:{spent.nanodollars}:0",
        "=tokens": spent.tokens,
        "=money": spent.nanodollars,
        "=calls": run.loop.own_calls + calls,
    }


def _state(run: RunState, counts: Counter[str], now_ms: int, *, is_paused: bool) -> dict[str, Any]:
    """The fields of a fork's state, but for whose it is and where it came from."""
    counts, fault = Counter(counts), output_fault(run.definition.output, run.shared.fold, run.definition.schema)
    total, begun = counts.pop("total", 0), counts.pop(_EACH, 0) + counts.pop(_LOST, 0)
    unknown = counts.pop(Kind.UNKNOWN, 0)
    end = run.loop.ended if run.loop is not None else None
    remaining = total - counts.total() + (run.loop is not None and end is None)
    status = "paused" if is_paused or run.waits_for_approval else "running"
    if not remaining:
        is_failed = end.status == "failed" if end is not None else bool(counts["failed"])
        status = "failed" if is_failed or fault or run.missed else "completed"
    has_given_up = id_key(run.gave_up) > id_key(run.amended)
    return {
        "format": FORMAT,
        "status": status,
        **({"plan": 1} if run.waits_for_approval and remaining else {}),
        "total": total,
        "remaining": remaining,
        **({"running": begun} if begun else {}),
        **({"unknown": unknown} if unknown else {}),
        "submitted": now_ms,
        **({} if remaining else {"finished": now_ms}),
        **({"missed": ", ".join(run.missed)} if run.missed else {}),
        **({"output_fault": fault} if fault else {}),
        **_loop_fields(run, counts["failed"]),
        **approve_ms(run.definition.config),
        **({} if has_given_up else promises_due(run.definition.config, now_ms)),
        **{f"n:{how}": number for how, number in counts.items() if number},
    }


def _loop_fields(run: RunState, failed: int) -> dict[str, Any]:
    """The fields of a fork's state about its loop."""
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
