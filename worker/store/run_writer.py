"""Write, copy, expire, measure and delete the keys of runs.

A run is listed first, at the latest with the first part of its keys, which are written in parts, and one last command
starts it, so half of it never counts as a run; the sweep removes what a writer that died has left. Another may take
over from a writer that does not get on: what the first one still sends is refused (lua/keys.lua).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, count
from types import MappingProxyType
from typing import Any, Final

from redis import Redis, RedisCluster
from redis.exceptions import RedisError

from ...broker_config import Settings
from ...protocol import Plan
from ...protocol.engine.events import Status
from ...protocol.engine.loop import Loop
from ...protocol.engine.outcomes import output_fault
from ...protocol.plan.config import is_simulation
from ...protocol.plan.lanes import Lane
from ...protocol.run_rules import RunRule
from .. import limits
from ..backoff import batches
from ..broker.attempts import CallId, lane_token, owner_token
from ..broker.messages import TaskMessage, pack, pack_task, unpack
from ..errors import InfrastructureError
from ..process import metrics
from .commits import PUBLISHED_MS, DueRuns, approve_ms, promises_due
from .definition import FORMAT, gather_counts, pack_definition, pack_lane
from .entries import Entry, read_entry
from .held_calls import AuditRecord
from .keys import (
    ENDED_STATUSES,
    LOOP,
    SCHEDULED,
    Condition,
    Field,
    Fields,
    Keys,
    Kind,
    active_runs,
    due_runs,
    ended_runs,
)
from .run_list import OWNER, RunList, note_owned, owner_fields
from .run_store import Head, RawEntry
from .scripts import Script, server_ms
from .servers import Servers

# Retention: every key that a run may have is given its expiry, measured or deleted.

logger = logging.getLogger(__name__)


def expire_runs(redis: Redis, prefix: str, runs: Sequence[str], seconds: int) -> None:
    """Give every key of runs that are over its expiry, and list them no more among those under way.

    If calls are added to one at the same time (SPEC R11.7), it is listed again. Raises `RedisError`.
    """
    answers = Script(redis, "keys", "expire").run_all((Keys(prefix, run), {"seconds": seconds}) for run in runs)
    over = [run for run, answer in zip(runs, answers, strict=True) if answer["is_over"]]
    if not over:
        return
    listed = RunList(redis, prefix)
    submitted = listed.submitted(over)
    if submitted:
        listed.note_ended(submitted)  # first: each is in one of the lists at any time
    _unlist(redis, prefix, over)
    for run, [status] in zip(over, listed.fields(over, "status"), strict=True):
        if run in submitted and status in ENDED_STATUSES:
            metrics().run_ended(status)
        elif run in submitted and status is not None:
            listed.add(run, submitted[run])


@dataclass(frozen=True, slots=True)
class Holding:
    """The size of a run that is, or was, in Redis."""

    status: str | None
    """The run's status; None if there is no such run."""
    bytes: int
    """How much its keys take in the server's memory, as the server estimates it (`MEMORY USAGE`)."""
    outstanding: int
    """How many calls were sent and forgotten and are not done."""
    is_deleted: bool


def measure_runs(redis: Redis, prefix: str, runs: Sequence[str]) -> list[Holding]:
    """Measure runs. Raises `RedisError`."""
    return _delete(redis, prefix, runs, {"deletes": False})


def delete_runs(
    redis: Redis, prefix: str, runs: Sequence[str], *, keeps_outstanding: bool, foreign: bool = False
) -> list[Holding]:
    """Delete runs that are over; with `keeps_outstanding` not those with a call that was sent and forgotten and is not
    done, with `foreign` also those under way of a format that is not read. Raises `RedisError`, and then some may have
    been deleted.
    """
    request: dict[str, Any] = {"deletes": True, "keeps_outstanding": keeps_outstanding}
    found = _delete(redis, prefix, runs, request | ({"reads": FORMAT} if foreign else {}))
    if gone := [run for run, held in zip(runs, found, strict=True) if held.is_deleted]:
        _unlist(redis, prefix, gone)
        redis.zrem(ended_runs(prefix), *gone)
    return found


def _delete(redis: Redis, prefix: str, runs: Sequence[str], request: dict[str, Any]) -> list[Holding]:
    answers = Script(redis, "keys", "delete").run_all((Keys(prefix, run), request) for run in runs)
    return [Holding(each.get("status"), each["bytes"], each["outstanding"], each["is_deleted"]) for each in answers]


def discard_run(redis: Redis, prefix: str, run: str) -> None:
    """Delete a run that was not written whole, as far as the server can be reached."""
    try:
        redis.unlink(*Keys(prefix, run).all)
        _unlist(redis, prefix, [run])
        redis.zrem(ended_runs(prefix), run)
    except RedisError as error:
        logger.warning("run %s could not be deleted: %s", run, error)


def _list(redis: Redis, keys: Keys, submitted_ms: int, owner: str | None) -> None:
    """List a run that is about to be written, so the sweep finds what a client leaves of it that dies."""
    with redis.pipeline(transaction=False) as pipeline:
        for command in _listing(keys, submitted_ms):
            pipeline.execute_command(*command)  # type: ignore[no-untyped-call]  # redis has none here
        pipeline.execute()
    if owner is not None:
        note_owned(redis, keys, owner, submitted_ms)


def _listing(keys: Keys, submitted_ms: int) -> Sequence[Command]:
    """Make the commands that list a run."""
    lists = (active_runs(keys.prefix), submitted_ms), (due_runs(keys.prefix), submitted_ms + PUBLISHED_MS)
    return [["ZADD", key, at, keys.run] for key, at in lists]


def _unlist(redis: Redis, prefix: str, runs: Sequence[str]) -> None:
    """Take runs from the lists of those under way."""
    redis.zrem(active_runs(prefix), *runs)
    redis.zrem(due_runs(prefix), *runs)


class RunCopy:
    """A run that is written from a log that there is already: a fork, or an import. All of it raises `RedisError`.

    Half of it never counts as a run: its state is written last, and what a process that dies in between has left, the
    sweep removes.
    """

    def __init__(self, redis: Redis, prefix: str, run: str) -> None:
        self.run = run
        self._redis = redis
        self._keys = Keys(prefix, run)
        self._last = dict[str, str]()
        """The last entry of each lane."""

    @contextmanager
    def begun(self, submitted_ms: int, settings: Settings) -> Iterator[None]:
        """List the run, which is written in this block; if the block raises, nothing of the run stays."""
        try:
            _list(self._redis, self._keys, submitted_ms, owner_fields(settings).get(OWNER))
            yield
        except BaseException:
            discard_run(self._redis, self._keys.prefix, self.run)
            raise

    def set_head(self, head: Head) -> None:
        """Write the run's definition, instances and codes."""
        self._redis.set(self._keys.definition, head.definition)
        self._push(self._keys.instances, head.instances)
        self._set(self._keys.codes, head.codes.items())

    def add_file(self, digest: str, content: bytes, is_picture: bool = False) -> None:
        """Add a file that its messages show, or a picture that a tool has answered."""
        self._redis.hset(self._keys.pictures if is_picture else self._keys.files, digest, content)

    def append(self, entries: Iterable[tuple[bytes, Fields]]) -> None:
        """Append entries to its log under their own ids."""
        for page in batches(entries, limits.AT_ONCE):
            with self._redis.pipeline(transaction=False) as pipeline:
                for id_, fields in page:
                    self._append(pipeline, id_, fields)
                    self._note(pipeline, id_, fields)
                pipeline.execute()

    def add(self, fields: Fields) -> str:
        """Append a new entry to its log; returns its id."""
        id_: Any = self._append(self._redis, b"*", fields)
        self._note(self._redis, id_, fields)
        return str(id_.decode())

    def set_calls(self, conditions: Iterable[tuple[str, str]], *, was_at_work: bool = False) -> None:
        """Write the conditions of calls, by their members; with `was_at_work` they were at work when the run ended."""
        for some in batches(conditions, limits.CALLS_AT_ONCE):
            self._redis.hset(self._keys.calls, mapping=dict(some))
            if was_at_work:
                self._redis.zadd(self._keys.leases, {member: 0 for member, _ in some})

    def set_work(
        self,
        *,
        lanes: Iterable[str],
        held: Mapping[str, int | None],
        gathers: Mapping[Any, int],
        budget: Mapping[str, Any],
    ) -> None:
        """Write what is left to do: lanes to be published, calls that wait for a person or for a moment in ms, in how
        many lanes gather calls have something to wait for, and what the run's loop has taken (lua/budget.lua).
        """
        now_ms = server_ms(self._redis)
        for some in batches(held, limits.VALUES_A_COMMAND):
            for key, is_timed in ((self._keys.held, False), (self._keys.waits, True)):
                if scores := {one: held[one] or now_ms for one in some if (held[one] is not None) is is_timed}:
                    self._redis.zadd(key, scores)
        self._push(self._keys.backlog, lanes)
        self._set(self._keys.gathers, gathers.items())
        self._set(self._keys.budget, budget.items())

    def finish(self, state: Mapping[str, Any], open_calls: Mapping[str, int] = MappingProxyType({})) -> None:
        """Start the run with this state; `open_calls` says how many calls of each lane have begun and not ended."""
        self._set(self._keys.lanes, ((lane, f"{id_}:{open_calls.get(lane, 0)}") for lane, id_ in self._last.items()))
        whole: dict[Any, Any] = {**state}
        self._redis.hset(self._keys.state, mapping=whole)

    def _append(self, to: Redis, id_: bytes, fields: Fields) -> Any:
        return to.xadd(self._keys.log, dict(fields), id=id_)  # type: ignore[arg-type]  # redis wants an invariant dict

    def _note(self, to: Redis, id_: bytes, fields: Fields) -> None:
        """Note an entry as the last one of its lane, or as a change of the run's status."""
        if Field.LANE in fields:
            self._last[fields[Field.LANE].decode()] = id_.decode()
        elif Field.STATUS in fields:
            to.xadd(self._keys.statuses, {"s": fields[Field.STATUS]}, id=id_)

    def _push(self, list_: str, values: Iterable[str]) -> None:
        for some in batches(values, limits.VALUES_A_COMMAND):
            self._redis.rpush(list_, *some)

    def _set(self, hash_: str, values: Iterable[tuple[Any, Any]]) -> None:
        for some in batches(values, limits.VALUES_A_COMMAND):
            self._redis.hset(hash_, mapping=dict(some))


class LogRewrite:
    """The log of a run that is over, written anew without some instances and put in the place of the old one.

    Redis marks a deleted entry of a stream and keeps its bytes, in memory and in snapshots: so all others are copied
    (lua/keys.lua).
    """

    def __init__(self, redis: Redis, prefix: str, run: str, instances: Sequence[str]) -> None:
        self._redis = redis
        self._keys = Keys(prefix, run)
        self._instances = list(instances)
        self._lanes = dict.fromkeys(map(lane_token, instances))
        self._last = "0-0"
        self._rules: list[bytes] = []
        """Rules that have lost values."""

    def write(self, entries: Iterable[RawEntry], kept: Callable[[Entry], object]) -> int:
        """Write the log anew, and call `kept` with each entry that stays. Returns how many are left out."""
        log, left_out = self._keys.log_kept, 0
        self._redis.unlink(log)
        for page in batches(entries, limits.AT_ONCE):
            with self._redis.pipeline(transaction=False) as pipeline:
                for id_, fields in page:
                    self._last = id_.decode()
                    if fields.get(Field.LANE, b"").decode() in self._lanes:
                        left_out += 1
                    else:
                        kept(read_entry(id_, fields))
                        pipeline.xadd(log, dict(self._without_values(id_, fields)), id=id_)  # type: ignore[arg-type]  # redis wants it invariant
                pipeline.expire(log, limits.DELETING_KEPT_SECONDS)
                pipeline.execute()
        return left_out

    def _without_values(self, id_: bytes, fields: Fields) -> Fields:
        """The fields of an entry that stays: a rule that names values of a call of these instances loses them, and is
        revoked with that (SPEC R16.8).
        """
        rule = RunRule.read(unpack(fields[Field.RULE])) if Field.RULE in fields else None
        if rule is None or rule.call.partition(":")[2] not in self._instances or not rule.has_values:
            return fields
        self._rules.append(id_)
        return {**fields, Field.RULE: pack(rule.without_values().to_dict())}

    def replace(self, files: Iterable[str], deleted: Sequence[str], order: AuditRecord) -> bool:
        """Put it in the place of the log, and delete these files and the instances' calls in the outbox; `deleted` is
        every instance of the run that is deleted by then. Returns False, and has done nothing, where something was
        added to the run meanwhile.
        """
        outbox: Any = self._redis.hkeys(self._keys.outbox)
        request = {
            "instances": self._instances,
            "lanes": [*self._lanes],
            "last": self._last,
            "calls": [call for call in outbox if call.decode().rpartition("\x1f")[0] in self._lanes],
            "files": list(files),
            "rules": self._rules,
            "deleted": json.dumps(deleted, ensure_ascii=False),
            "who": order.pack(),
        }
        if Script(self._redis, "keys", "forget")(self._keys, request)["is_done"]:
            return True
        self._redis.unlink(self._keys.log_kept)
        return False


Value = str | bytes | int
Command = list[Value]
Sent = Mapping[str | None, Sequence[tuple[CallId, TaskMessage]]]
"""The calls, with their tasks, of lanes that have ended with the submission, since all their calls are sent and
forgotten.
"""
NOTHING: Final[Sent] = MappingProxyType({})


class TakenOver(InfrastructureError):
    """Raised when another client writes this run, or has: this writer did not get on."""


@dataclass(frozen=True, slots=True)
class Written:
    """A run that was written."""

    lanes: Sequence[str]
    """The lanes to be published."""
    since: str
    """The id of the run's first status."""


class RunWriter:
    """Writes runs. All of it raises `RedisError`."""

    def __init__(self, redis: Redis, settings: Settings) -> None:
        self._redis = redis
        self._settings = settings
        self._script = Script(redis, "keys", "write")

    def write(
        self,
        plan: Plan,
        run: str,
        milliseconds: int,
        order: AuditRecord,
        more: Mapping[str, Any] = MappingProxyType({}),
        sent: Sent = NOTHING,
        files: Mapping[str, bytes] = MappingProxyType({}),
    ) -> Written:
        """Write a run and start it; `more` are fields of its state, with `at` the sweep starts it at that time in ms;
        `sent` goes into its outbox, `files` are the files that its messages show, by their digests.

        Raises `TakenOver`, and then has left nothing of its own.
        """
        who, since, keys = owner_token(), "", self._keys(run)
        try:
            lists = self._list(keys, milliseconds, more.get(OWNER))
            stored: Iterator[Command] = (["HSET", keys.files, *each] for each in files.items())
            commands = chain(stored, self._writing(plan, keys, milliseconds, order, more, sent))
            for number, part in enumerate(_parts(chain(lists, commands))):
                if not self._send(keys, who, number, part):
                    raise TakenOver(f"run {keys.run} is written by another client, which has taken over: look for it")
                since = since or next((str(command[2]) for command in part if command[1] == keys.statuses), "")
        except TakenOver:
            raise
        except BaseException:
            self._give_up(keys, who)
            raise
        due_ms = milliseconds + limits.SENT_MS if sent else more.get("at")
        if due_ms is not None:
            with suppress(RedisError):  # the run is written; it is looked at a little later then
                self._redis.zadd(due_runs(keys.prefix), {keys.run: due_ms}, lt=True)
        return Written(self._lanes(plan, sent, is_later="at" in more)[0], since)

    def _list(self, keys: Keys, milliseconds: int, owner: str | None) -> Sequence[Command]:
        """List the run that is about to be written, or make the commands that list it with its first part."""
        if owner is not None or isinstance(self._redis, RedisCluster | Servers):  # the lists may be elsewhere there
            _list(self._redis, keys, milliseconds, owner)
            return ()
        return _listing(keys, milliseconds)

    def mark_unpublished(self, run: str, lanes: Sequence[str]) -> None:
        """Have the next sweep publish lanes that the broker has not taken."""
        for batch in batches(lanes, limits.VALUES_A_COMMAND):
            self._redis.zadd(self._keys(run).published, dict.fromkeys(batch, 0), xx=True)
        DueRuns(self._redis, self._settings.key_prefix).note(run)

    def _keys(self, run: str) -> Keys:
        return Keys(self._settings.key_prefix, run)

    def _send(self, keys: Keys, who: str, number: int, part: Sequence[Sequence[str | bytes]]) -> bool:
        """Write a part; tells whether the run is still this writer's."""
        written = self._script(keys, {"who": who, "part": number, "commands": part})
        return bool(written["is_written"])

    def _give_up(self, keys: Keys, who: str) -> None:
        """Delete what this writer has written, as far as the server can be reached, and nothing of another's."""
        try:
            if self._send(keys, who, -1, ()):
                _unlist(self._redis, keys.prefix, [keys.run])
        except RedisError as error:
            logger.warning("run %s could not be deleted: %s", keys.run, error)

    def _writing(
        self, plan: Plan, keys: Keys, milliseconds: int, order: AuditRecord, more: Mapping[str, Any], sent: Sent
    ) -> Iterator[Command]:
        """Make the commands that write a run; the last one starts it."""
        instances = plan.context.instances
        due = milliseconds + PUBLISHED_MS
        yield ["SET", keys.definition, pack_definition(plan)]
        for batch in batches(instances, limits.VALUES_A_COMMAND):
            yield ["RPUSH", keys.instances, *batch]
        ids, log = (f"{milliseconds}-{sequence}" for sequence in count()), keys.log
        last: dict[str, str] = {}
        for (lane, fields), id_ in zip(_entries(plan), ids, strict=False):
            yield _adding(log, id_, {"l": lane, "p": last.get(lane, "0-0"), **fields})
            last[lane] = id_
        is_request = plan.submission.is_request
        fault = _output_fault(plan, sent)
        ended = "completed" if fault is None else "failed"
        first = "paused" if plan.waits_for_approval else "running" if plan.size or is_request else ended
        first = SCHEDULED if "at" in more and first == "running" else first
        yield from _becoming(keys, next(ids), {Field.STATUS: first, Field.AUDIT: order.pack()})
        for call in (call for calls in sent.values() for call, _ in calls):
            lane, id_ = lane_token(call.instance), next(ids)
            place: dict[bytes, Value] = {Field.LANE: lane, Field.BEFORE: last[lane], Field.CALL: call.index}
            yield _adding(log, id_, {**place, Field.ENDED: Status.SENT.value})
            last[lane] = id_
        yield from _sending(keys, sent, milliseconds)
        left = plan.size + is_request - sum(map(len, sent.values()))
        if sent and not left:
            yield from _becoming(keys, next(ids), {Field.STATUS: ended})
        for lanes in batches(last, limits.VALUES_A_COMMAND):
            yield _setting(keys.lanes, {lane: f"{last[lane]}:0" for lane in lanes})
        if gathers := gather_counts(lane.gathers for lane in plan.lanes.values()):
            yield _setting(keys.gathers, dict(gathers))
        published, backlog = self._lanes(plan, sent, is_later="at" in more)
        for lanes in batches(published, limits.VALUES_A_COMMAND):
            marks: Iterator[Value] = chain.from_iterable((due, lane) for lane in lanes)
            yield ["ZADD", keys.published, *marks]
        for lanes in batches(backlog, limits.VALUES_A_COMMAND):
            yield ["RPUSH", keys.backlog, *lanes]
        state: dict[str, Any] = {
            "format": FORMAT,
            "status": first if left else ended,
            **({"output_fault": fault} if fault is not None else {}),
            **({"plan": 1} if plan.waits_for_approval else {}),
            **({"simulation": 1} if is_simulation(plan.submission.config) else {}),
            "total": plan.size,
            "remaining": left,
            **(dict.fromkeys((f"n:{Status.SENT.value}", "sent"), plan.size + is_request - left) if sent else {}),
            **({"loop": Loop().name, "loop:lane": LOOP} if is_request else {}),
            "submitted": milliseconds,
            **({} if left else {"finished": milliseconds}),
            "look": milliseconds + limits.SENT_MS if sent else more.get("at", due),
            **approve_ms(plan.submission.config),
            **(promises_due(plan.submission.config, more.get("at", milliseconds)) if _waits_for_promises(plan) else {}),
            **more,
        }
        yield _setting(keys.state, state)

    def _lanes(self, plan: Plan, sent: Sent, *, is_later: bool) -> tuple[list[str], list[str]]:
        """List the lanes with something to do, the global one first: those published at once, none if the run begins
        later, and those that follow.
        """
        with_work = (instance for instance, lane in plan.lanes.items() if instance not in sent and _has_work(lane))
        lanes = list(map(lane_token, with_work))
        lanes.sort(key=bool)
        lanes += [LOOP] if plan.submission.is_request else []
        window = 0 if plan.waits_for_approval or is_later else self._settings.publish_window
        return lanes[:window], lanes[window:]


def _waits_for_promises(plan: Plan) -> bool:
    return any(lane.promised_places for lane in plan.lanes.values())


def _output_fault(plan: Plan, sent: Sent) -> str | None:
    """Find out why the output cannot be read, if no global call runs: else the last one does that (SPEC R4.9)."""
    lane = plan.lanes.get(None)
    if lane is not None and lane.calls and None not in sent:
        return None
    return output_fault(plan.submission.output, plan.context.fold(), plan.submission.schema)


def _has_work(lane: Lane) -> bool:
    """Tell whether a lane has calls to run, or gather calls wait for something in it."""
    return bool(lane.calls) or (lane.gathers is not None and bool(lane.gathers.waiting))


def _entries(plan: Plan) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Make the lanes and fields of a submission's entries: the messages in order, each lane's record in its first."""
    is_template = plan.submission.is_template
    records = {lane_token(instance): pack_lane(lane, is_template=is_template) for instance, lane in plan.lanes.items()}
    for message in plan.context.messages:
        lane = lane_token(message.get("_instance"))
        record = {"k": records.pop(lane)} if lane in records else {}
        yield lane, {**record, "m": pack(message)}
    for lane, left in records.items():
        yield lane, {"k": left}


def _becoming(keys: Keys, id_: str, entry: Mapping[bytes, Value]) -> Iterator[Command]:
    """Make the commands that change the run's status."""
    yield _adding(keys.log, id_, entry)
    yield _adding(keys.statuses, id_, {"s": entry[Field.STATUS]})


def _sending(keys: Keys, sent: Sent, milliseconds: int) -> Iterator[Command]:
    """Make the commands that end calls which are sent and forgotten, and put them into the outbox (see commit.lua)."""
    tasks = {call.member: task for calls in sent.values() for call, task in calls}
    for members in batches(tasks, limits.VALUES_A_COMMAND):
        sending = (Condition(Kind.SENT, 1, 0, f"{milliseconds}/{tasks[member].queue}") for member in members)
        marks: Iterator[Value] = chain.from_iterable((milliseconds + limits.SENT_MS, member) for member in members)
        yield _setting(keys.calls, dict.fromkeys(members, Status.SENT.value))
        yield _setting(keys.outbox, dict(zip(members, map(str, sending), strict=True)))
        yield ["ZADD", keys.outbox_due, *marks]
    outbox_tasks = keys.outbox_tasks
    for member, task in tasks.items():
        yield ["HSET", outbox_tasks, member, pack_task(task)]


def _adding(stream: str, id_: str, fields: Mapping[Any, Value]) -> Command:
    return ["XADD", stream, id_, *chain.from_iterable(fields.items())]


def _setting(hash_: str, values: Mapping[Any, Any]) -> Command:
    return ["HSET", hash_, *chain.from_iterable(values.items())]


def _parts(commands: Iterator[Command]) -> Iterator[list[list[str | bytes]]]:
    """Split commands into parts of bounded size, with numbers written as Redis does, not Lua."""
    part: list[list[str | bytes]] = []
    words = size = 0
    for command in commands:
        part.append([value if isinstance(value, (str, bytes)) else str(value) for value in command])
        words += len(command)
        size += sum(map(len, part[-1]))
        if words >= limits.PART_WORDS or size >= limits.PART_BYTES:
            yield part
            part, words, size = [], 0, 0
    if part:
        yield part
