"""Writing a run down: a checked plan becomes the run's keys in Redis.

The run is listed first, then its keys are written, in parts, and it is started by one last command, so that half of it
never counts as a run; what a writer that died here has left, the sweep removes. Another may take over from a writer
that does not get on: what the first one still sends is refused (lua/keys.lua).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, count
from types import MappingProxyType
from typing import Any, Final, Self

from redis import Redis
from redis.exceptions import RedisError

from ...broker_config import Settings
from ...protocol import Plan
from ...protocol.engine.events import Status
from ...protocol.engine.loop import Loop
from ...protocol.engine.outcomes import output_fault
from ...protocol.plan.lanes import Lane
from .. import limits
from ..backoff import batches
from ..broker.attempts import CallId, lane_token, owner_token
from ..broker.messages import TaskMessage, pack, pack_task
from ..errors import InfrastructureError
from ..process import figures
from .commits import PUBLISHED_MS, DueRuns, approve_ms, promises_due
from .definition import FORMAT, gather_counts, pack_definition, pack_lane
from .entries import LOOP
from .held_calls import AuditRecord
from .keys import (
    ENDED_STATUSES,
    Condition,
    Field,
    Keys,
    Kind,
    active_runs,
    due_runs,
    ended_runs,
)
from .run_list import OWNER, RunList, note_owned
from .scripts import Script

# Retention: every key that a run may have, to be given its expiry, measured or deleted.

logger = logging.getLogger(__name__)


def expire_runs(redis: Redis, prefix: str, runs: Sequence[Keys], seconds: int) -> None:
    """Give every key of runs that are over its expiry, and list them no more among those under way.

    Calls may be added to one at the same time (SPEC R11.7): it is listed again then. However many they are, it takes
    the same few round trips. Raises `RedisError`.
    """
    script = Script(redis, "keys", "expire")
    with redis.pipeline(transaction=False) as pipeline:
        for keys in runs:
            script.add(pipeline, keys, {"seconds": seconds})
        answers = pipeline.execute()
    over = [keys for keys, answer in zip(runs, answers, strict=True) if script.read(answer)["is_over"]]
    if not over:
        return
    names = [keys.run for keys in over]
    listed: Any = redis.zmscore(active_runs(prefix), names)
    submitted = {name: at for name, at in zip(names, listed, strict=True) if at is not None}
    if submitted:
        RunList(redis, prefix).note_ended(submitted)  # first: each is in one of the lists at any time
    redis.zrem(active_runs(prefix), *names)
    redis.zrem(due_runs(prefix), *names)
    with redis.pipeline(transaction=False) as pipeline:
        for keys in over:
            pipeline.hget(keys.state, "status")
        statuses = pipeline.execute()
    for name, status in zip(names, statuses, strict=True):
        if name in submitted and status is not None and status.decode() in ENDED_STATUSES:
            figures().run_ended(status.decode())
    again = {
        name: submitted[name]
        for name, status in zip(names, statuses, strict=True)
        if name in submitted and status is not None and status.decode() not in ENDED_STATUSES
    }
    if again:
        redis.zadd(active_runs(prefix), again)


@dataclass(frozen=True, slots=True)
class Holding:
    """What a run holds, or held."""

    status: str | None
    """None where there is no such run."""
    bytes: int
    """That its keys take in the server's memory, as the server estimates it (`MEMORY USAGE`)."""
    outstanding: int
    """Calls that it has sent and not awaited, and that are not done."""
    is_deleted: bool

    @classmethod
    def read(cls, answer: dict[str, Any]) -> Self:
        """The answer of keys.lua."""
        return cls(answer.get("status"), answer["bytes"], answer["outstanding"], answer["is_deleted"])


def measure_runs(redis: Redis, runs: Sequence[Keys]) -> list[Holding]:
    """What runs hold. Raises `RedisError`."""
    return _ask(redis, runs, {"deletes": False})


def delete_runs(
    redis: Redis, prefix: str, runs: Sequence[Keys], *, keeps_outstanding: bool, foreign: bool = False
) -> list[Holding]:
    """Delete those of the runs that are over; with `keeps_outstanding` none with a call that was sent and forgotten and
    is not done, with `foreign` also those under way that are of a format that is not read. Raises `RedisError`, and
    then some may have been deleted.
    """
    request: dict[str, Any] = {"deletes": True, "keeps_outstanding": keeps_outstanding}
    found = _ask(redis, runs, request | ({"reads": FORMAT} if foreign else {}))
    gone = [keys.run for keys, held in zip(runs, found, strict=True) if held.is_deleted]
    if gone:
        for listed in (active_runs(prefix), due_runs(prefix), ended_runs(prefix)):
            redis.zrem(listed, *gone)
    return found


def _ask(redis: Redis, runs: Sequence[Keys], request: dict[str, Any]) -> list[Holding]:
    script = Script(redis, "keys", "delete")
    with redis.pipeline(transaction=False) as pipeline:
        for keys in runs:
            script.add(pipeline, keys, request)
        return [Holding.read(script.read(answer)) for answer in pipeline.execute()]


def discard_run(redis: Redis, keys: Keys) -> None:
    """Delete what there is of a run that was not written whole, as far as the server can be reached."""
    try:
        redis.unlink(*keys.all)
        unlist(redis, keys)
        redis.zrem(ended_runs(keys.prefix), keys.run)
    except RedisError as error:
        logger.warning("run %s could not be deleted: %s", keys.run, error)


def unlist(redis: Redis, keys: Keys) -> None:
    """Take a run from the lists of those under way. Raises `RedisError`."""
    redis.zrem(active_runs(keys.prefix), keys.run)
    redis.zrem(due_runs(keys.prefix), keys.run)


Value = str | bytes | int
Command = list[Value]
Sent = Mapping[str | None, Sequence[tuple[CallId, TaskMessage]]]
"""Lanes that have ended with the submission, since all their calls are sent and forgotten: of each the calls, and their
tasks.
"""
NOTHING: Final[Sent] = MappingProxyType({})


class TakenOver(InfrastructureError):
    """Another writes this run down, or has: this writer did not get on."""


@dataclass(frozen=True, slots=True)
class Written:
    """A run that was written down."""

    lanes: Sequence[str]
    """Those to be published."""
    since: str
    """The id of its first status."""


class RunWriter:
    """Writes runs down. All of it raises `RedisError`."""

    def __init__(self, redis: Redis, settings: Settings) -> None:
        self._redis = redis
        self._settings = settings
        self._script = Script(redis, "keys", "write")

    def write(
        self,
        plan: Plan,
        keys: Keys,
        milliseconds: int,
        order: AuditRecord,
        more: Mapping[str, Any] = MappingProxyType({}),
        sent: Sent = NOTHING,
        files: Mapping[str, bytes] = MappingProxyType({}),
    ) -> Written:
        """Write a run down and start it; `more` are fields of its state, `sent` goes into its outbox, `files` are what
        its messages show, by their digests.

        Raises `TakenOver`, and then has left nothing of its own.
        """
        who, since = owner_token(), ""
        try:
            self._list(keys, milliseconds, more.get(OWNER))
            stored: Iterator[Command] = (["HSET", keys.files, *each] for each in files.items())
            commands = chain(stored, self._writing(plan, keys, milliseconds, order, more, sent))
            for number, part in enumerate(_parts(commands)):
                if not self._send(keys, who, number, part):
                    raise TakenOver(f"run {keys.run} is written by another client, which has taken over: look for it")
                since = since or next((str(command[2]) for command in part if command[1] == keys.statuses), "")
        except TakenOver:
            raise
        except BaseException:
            self._give_up(keys, who)
            raise
        if sent:
            with suppress(RedisError):  # the run has begun; it is looked at a little later then
                self._redis.zadd(due_runs(keys.prefix), {keys.run: milliseconds + limits.SENT_MS}, lt=True)
        return Written(self._lanes(plan, sent)[0], since)

    def mark_unpublished(self, keys: Keys, lanes: Sequence[str]) -> None:
        """Have the next sweep publish lanes, since it cannot be done now."""
        for batch in batches(lanes, limits.RUN_WRITER_AT_ONCE):
            self._redis.zadd(keys.published, dict.fromkeys(batch, 0), xx=True)
        DueRuns(self._redis, keys.prefix).note(keys.run)

    def _list(self, keys: Keys, milliseconds: int, owner: str | None) -> None:
        """List a run, so that what a client that dies leaves of it is found."""
        with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.zadd(active_runs(keys.prefix), {keys.run: milliseconds})
            pipeline.zadd(due_runs(keys.prefix), {keys.run: milliseconds + PUBLISHED_MS})
            pipeline.execute()
        if owner is not None:
            note_owned(self._redis, keys, owner, milliseconds)

    def _send(self, keys: Keys, who: str, number: int, part: Sequence[Sequence[str | bytes]]) -> bool:
        """Write a part; whether the run is still this writer's."""
        written = self._script(keys, {"who": who, "part": number, "commands": part})
        return bool(written["is_written"])

    def _give_up(self, keys: Keys, who: str) -> None:
        """Delete what this writer has written, as far as the server can be reached, and nothing of another's."""
        try:
            if self._send(keys, who, -1, ()):
                unlist(self._redis, keys)
        except RedisError as error:
            logger.warning("run %s could not be deleted: %s", keys.run, error)

    def _writing(
        self, plan: Plan, keys: Keys, milliseconds: int, order: AuditRecord, more: Mapping[str, Any], sent: Sent
    ) -> Iterator[Command]:
        """The commands that write a run down; the last ones start it."""
        instances = plan.context.instances
        due = milliseconds + PUBLISHED_MS
        yield ["SET", keys.definition, pack_definition(plan)]
        for batch in batches(instances, limits.RUN_WRITER_AT_ONCE):
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
        for lanes in batches(last, limits.RUN_WRITER_AT_ONCE):
            yield _setting(keys.lanes, {lane: f"{last[lane]}:0" for lane in lanes})
        if gathers := gather_counts(lane.gathers for lane in plan.lanes.values()):
            yield _setting(keys.gathers, dict(gathers))
        published, backlog = self._lanes(plan, sent)
        for lanes in batches(published, limits.RUN_WRITER_AT_ONCE):
            marks: Iterator[Value] = chain.from_iterable((due, lane) for lane in lanes)
            yield ["ZADD", keys.published, *marks]
        for lanes in batches(backlog, limits.RUN_WRITER_AT_ONCE):
            yield ["RPUSH", keys.backlog, *lanes]
        state: dict[str, Any] = {
            "format": FORMAT,
            "status": first if left else ended,
            **({"output_fault": fault} if fault is not None else {}),
            **({"plan": 1} if plan.waits_for_approval else {}),
            "total": plan.size,
            "remaining": left,
            **(dict.fromkeys((f"n:{Status.SENT.value}", "sent"), plan.size + is_request - left) if sent else {}),
            **({"loop": Loop().name, "loop:lane": LOOP} if is_request else {}),
            "submitted": milliseconds,
            **({} if left else {"finished": milliseconds}),
            "look": milliseconds + limits.SENT_MS if sent else due,
            **approve_ms(plan.submission.config),
            **(promises_due(plan.submission.config, milliseconds) if _waits_for_promises(plan) else {}),
            **more,
        }
        yield _setting(keys.state, state)

    def _lanes(self, plan: Plan, sent: Sent) -> tuple[list[str], list[str]]:
        """The lanes with something to do, the global one first: those published at once, and those that follow."""
        with_work = (instance for instance, lane in plan.lanes.items() if instance not in sent and _has_work(lane))
        lanes = list(map(lane_token, with_work))
        lanes.sort(key=bool)
        lanes += [LOOP] if plan.submission.is_request else []
        window = 0 if plan.waits_for_approval else self._settings.publish_window
        return lanes[:window], lanes[window:]


def _waits_for_promises(plan: Plan) -> bool:
    return any(lane.promised_places for lane in plan.lanes.values())


def _output_fault(plan: Plan, sent: Sent) -> str | None:
    """What stands against the output where no global call runs, of which the last one would say so (SPEC R4.9)."""
    lane = plan.lanes.get(None)
    if lane is not None and lane.calls and None not in sent:
        return None
    return output_fault(plan.submission.output, plan.context.fold(), plan.submission.schema)


def _has_work(lane: Lane) -> bool:
    """Whether there are calls to run, or gather calls wait there for something."""
    return bool(lane.calls) or (lane.gathers is not None and bool(lane.gathers.waiting))


def _entries(plan: Plan) -> Iterator[tuple[str, dict[str, bytes]]]:
    """The lanes and fields of a submission's entries: the messages in order, each lane's record with its first."""
    is_template = plan.submission.is_template
    records = {lane_token(instance): pack_lane(lane, is_template=is_template) for instance, lane in plan.lanes.items()}
    for message in plan.context.messages:
        lane = lane_token(message.get("_instance"))
        record = {"k": records.pop(lane)} if lane in records else {}
        yield lane, {**record, "m": pack(message)}
    for lane, left in records.items():
        yield lane, {"k": left}


def _becoming(keys: Keys, id_: str, entry: Mapping[bytes, Value]) -> Iterator[Command]:
    """A change of the run's status."""
    yield _adding(keys.log, id_, entry)
    yield _adding(keys.statuses, id_, {"s": entry[Field.STATUS]})


def _sending(keys: Keys, sent: Sent, milliseconds: int) -> Iterator[Command]:
    """What is sent and forgotten has ended and goes into the outbox (see commit.lua)."""
    tasks = {call.member: task for calls in sent.values() for call, task in calls}
    for members in batches(tasks, limits.RUN_WRITER_AT_ONCE):
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
    """The commands in parts of bounded size; numbers as Redis has them, not as Lua would."""
    part: list[list[str | bytes]] = []
    words = size = 0
    for command in commands:
        part.append([value if isinstance(value, (str, bytes)) else str(value) for value in command])
        words += len(command)
        size += sum(map(len, part[-1]))
        if words >= limits.PART_WORDS or size >= limits.RUN_WRITER_PART_BYTES:
            yield part
            part, words, size = [], 0, 0
    if part:
        yield part
