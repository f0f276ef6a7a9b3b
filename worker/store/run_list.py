"""Runs: what Redis has of one beside its log, and the lists of those under way and of those that are kept."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import chain, product
from math import inf
from typing import TYPE_CHECKING, Any, Final, Self

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.lock import Lock

from ...broker_config import Settings
from ...protocol.engine.events import Failure, Success
from ...protocol.engine.loop import Loop, LoopLimits
from ...protocol.messages import file_parts, is_file, picture_type, with_changed
from ...protocol.state.labels import TRUSTED, Labels, marks_of
from ..backoff import batches
from ..broker.attempts import Attempt, CallId, Tokens, TracePlace, lane_token, place_of_run
from ..broker.messages import Delivery, TaskMessage, delivery_task, unpack_task
from ..limits import (
    CLAIM_SECONDS,
    HELD_SECONDS,
    LOOKED_AFTER,
    LOOKED_AT,
    MOST_OWNED_AT_ONCE,
    RUN_LIST_AT_ONCE,
    RUN_LIST_DEEPEST,
    SUBMITTING_WAIT_SECONDS,
)
from .connections import GroupedCommands
from .definition import FORMAT
from .entries import follow, loop_alarm
from .keys import (
    Condition,
    Keys,
    Kind,
    active_runs,
    admission,
    claim,
    ended_runs,
    owned_children,
    owned_runs,
    recovery,
)
from .scripts import AsyncScript, Script
from .slots import SPENT, Budget, left_of, sum_fields

if TYPE_CHECKING:
    from .entries import Entry


# Child runs: how a run and the call that it is to answer know each other (SPEC R9.3, R13.10).
#
# The call stands as `child` in its run's `calls` (lua/commit.lua), with the child's id; the child's state says whose
# call it is. A child that has ended answers once; what is lost on the way, the sweep sends again as long as the call
# waits.

PARENT = "parent"
"""The field of a child's state."""
DELEGATE = "delegate"
"""The field of a child's state that has the name of the delegate that it is."""
TRACE = "trace"
"""The field of a run's state that has the span under which the run was submitted: a caller's, or a child's call."""


@dataclass(frozen=True, slots=True)
class Parent:
    """The call that a run is to answer."""

    call: CallId
    attempt: int
    depth: int
    """How many runs stand above the child."""
    budgets: tuple[Budget, ...] = ()
    """What the child takes from, the nearest first (SPEC R13.3)."""

    def to_fields(self) -> dict[str, Any]:
        """The fields of the child's state."""
        call = self.call
        budgets = [[budget.run, budget.tokens, budget.calls, budget.money] for budget in self.budgets]
        return {PARENT: json.dumps([call.run, call.instance, call.index, self.attempt, self.depth, budgets])}

    @classmethod
    def read(cls, field: bytes | str | None) -> Self | None:
        """The inverse, of the field's value; None where a run is no child."""
        if field is None:
            return None
        run, instance, index, attempt, depth, *more = json.loads(field)
        return cls(CallId(run, instance, index), attempt, depth, tuple(Budget(*one) for one in (more or [[]])[0]))

    def waits_for(self, entry: bytes | None, child: str) -> bool:
        """Whether the call, by its entry in `calls`, waits for that child, or is about to."""
        found = Condition.read(entry)
        return found is not None and (found.kind is Kind.RUNNING or _is_child(found, child))

    def answer(self, child: str, result: Success | Failure, tokens: Tokens, queue: str) -> TaskMessage:
        """The task that brings the child's result to the call."""
        return delivery_task(Delivery(tokens.given(Attempt(self.call, self.attempt)), result, child), queue)


def place_under(run: str, above: bytes | None) -> str:
    """A run's place in a trace by that field; empty where it is the root of a trace of its own."""
    found = TracePlace.unpack(above.decode()) if above is not None else None
    return place_of_run(run, found).pack() if found is not None else ""


def is_answered_by(entry: bytes | None, child: str) -> bool:
    """Whether a call, by its entry in `calls`, is to be answered by that child and no other."""
    found = Condition.read(entry)
    return found is not None and _is_child(found, child)


def _is_child(condition: Condition, child: str) -> bool:
    return condition.kind is Kind.CHILD and condition.holder == child


def budgets_of(
    run: str, limits: LoopLimits, parent: bytes | str | None, *spent: bytes | str | None
) -> tuple[Budget, ...]:
    """What the calls of a loop take from, by the fields of its state: its own budget, and those above it."""
    tokens, money = (int(each or 0) for each in spent)
    above = Parent.read(parent)
    return Budget.of(run, limits, tokens, money), *(above.budgets if above is not None else ())


def child_result(status: str, loop: Loop, labels: Labels) -> Success | Failure:
    """What a child that has ended answers; its loop says what it has cost. `labels` are the sources of all in its
    log.
    """
    end, spent = loop.ended, {**loop.cost.pack(), "calls": loop.calls}
    if status == "completed":
        return Success(end.output if end is not None else None, spent, labels)
    reason = (end.reason if end is not None else None) or f"its run is {status}"
    return Failure("ChildFailed", reason, spent, labels=labels)


def child_id(call: CallId, again: int = 0) -> str:
    """The run that answers a call: the same for all starters. A call that is carried out again (see `Attempt`) has
    another one.
    """
    begun, _, _ = call.run.partition("-")
    text = "\x1f".join((call.run, call.member, str(again)))
    return f"{begun}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def result_of(status: str, entries: Iterable[Entry]) -> Success | Failure:
    """What a child that has ended answers, by its log."""
    loop, labels = Loop(), TRUSTED
    for entry in entries:
        loop = follow(loop, entry)
        labels |= marks_of(entry.message).labels if entry.message is not None else TRUSTED
    return child_result(status, loop, labels)


# The runs of an owner: who has submitted, forked or imported them with a token.
#
# A run's state says whose it is. The index of an owner only finds them: a run is in it before it is written down, and
# may be in it when it is gone.

OWNER: Final = "owner"
"""The field of the state. What was submitted without a token has none."""


def owner_fields(settings: Settings) -> dict[str, str]:
    """Make the fields of the state of a run that begins under these settings: it belongs to who has shown a token."""
    return {OWNER: settings.identity.name} if settings.identity is not None else {}


def owner_of(redis: Redis, prefix: str, run: str) -> str | None:
    """The owner of a run; of a child run that of the run above it. None where there is none, or no such run. Raises
    `RedisError`.
    """
    for _ in range(RUN_LIST_DEEPEST):
        owner, parent = RunStore.open(redis, prefix, run).fields(OWNER, PARENT)
        if owner is not None or (above := Parent.read(parent)) is None:
            return owner
        run = above.call.run
    return None


def top_of(redis: Redis, prefix: str, run: str) -> str:
    """The run above a child run that nothing stands above; a run itself, where it is no child. Raises `RedisError`."""
    for _ in range(RUN_LIST_DEEPEST):
        if (above := RunStore.open(redis, prefix, run).parent()) is None:
            break
        run = above.call.run
    return run


def note_owned(redis: Redis, keys: Keys, owner: str, milliseconds: int) -> None:
    """Note a run that is about to be written down, and no longer the oldest ones that are kept no more. Raises
    `RedisError`.
    """
    _note(redis, owned_runs(keys.prefix, owner), keys, milliseconds)


def note_child(redis: Redis, keys: Keys, above: str, milliseconds: int) -> None:
    """Note a child run of a run, likewise, where that has an owner: its calls are the owner's. Raises `RedisError`."""
    if (owner := owner_of(redis, keys.prefix, above)) is not None:
        _note(redis, owned_children(keys.prefix, owner), keys, milliseconds)


def _note(redis: Redis, index: str, keys: Keys, milliseconds: int) -> None:
    with redis.pipeline(transaction=False) as pipeline:
        pipeline.zadd(index, {keys.run: milliseconds})
        pipeline.zrange(index, 0, MOST_OWNED_AT_ONCE - 1)
        _, oldest = pipeline.execute()
    if absent := [name.decode() for name in _absent(redis, keys.prefix, oldest) if name.decode() != keys.run]:
        under_way = RunList(redis, keys.prefix).submitted(absent)  # one may be about to be written down
        if gone := [name for name in absent if name not in under_way]:
            redis.zrem(index, *gone)


def _absent(redis: Redis, prefix: str, names: Sequence[bytes]) -> list[bytes]:
    """Those of these runs that are not there."""
    with redis.pipeline(transaction=False) as pipeline:
        for name in names:
            pipeline.exists(Keys(prefix, name.decode()).state)
        found = pipeline.execute()
    return [name for name, is_there in zip(names, found, strict=True) if not is_there]


State = dict[str, str]
"""The fields of a run's state (see commit.lua)."""
RawEntry = tuple[bytes, dict[bytes, bytes]]
"""An entry of a log as it lies there: `entries.read_entry` takes it."""


class RunStore:
    """One run: what Redis has of it beside its log (see `log.History`). All of it raises `RedisError`."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys

    @classmethod
    def open(cls, redis: Redis, prefix: str, run: str) -> Self:
        """Make one for a run by its id."""
        return cls(redis, Keys(prefix, run))

    def state(self) -> State:
        """Read all fields of the run's state; there are none where there is no such run."""
        return _decoded(self._redis.hgetall(self._keys.state))

    def fields(self, *names: str) -> list[str | None]:
        """Read some fields of the run's state."""
        return _texts(self._redis.hmget(self._keys.state, names))

    def status(self) -> str | None:
        """Read the run's status; None where there is no such run."""
        return self.fields("status")[0]

    def parent(self) -> Parent | None:
        """Read whose call the run is to answer; None where it is no child."""
        return Parent.read(self.fields(PARENT)[0])

    def children(self) -> list[str]:
        """List the child runs that calls of the run wait for."""
        found: Any = self._redis.smembers(self._keys.children)
        return sorted(run.decode() for run in found)

    def lost_parts(self) -> list[str] | None:
        """List what the server has lost of the run, without which it never runs; None where there is no such run."""
        parts = {"definition": self._keys.definition, "log": self._keys.log, "statuses": self._keys.statuses}
        with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.hexists(self._keys.state, "status")
            for key in parts.values():
                pipeline.exists(key)
            is_there, *found = pipeline.execute()
        return [name for name, exists in zip(parts, found, strict=True) if not exists] if is_there else None

    def held(self) -> list[CallId]:
        """List the calls that wait for a person, the first of them first."""
        found: Any = self._redis.zrange(self._keys.held, 0, -1)
        return [CallId.of_member(self._keys.run, member.decode()) for member in found]

    def has_lane(self, instance: str | None) -> bool:
        """Whether the log has entries of an instance."""
        return bool(self._redis.hexists(self._keys.lanes, lane_token(instance)))

    def count_instances(self) -> int:
        """Count the run's instances."""
        found: Any = self._redis.llen(self._keys.instances)
        return int(found)

    def count_entries(self) -> int:
        """Count the entries of the log."""
        found: Any = self._redis.xlen(self._keys.log)
        return int(found)

    def extent(self) -> tuple[str, int, int]:
        """Read the id of the newest entry, how many instances there are, and after how many ms the run expires."""
        with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.xrevrange(self._keys.log, count=1)
            pipeline.llen(self._keys.instances)
            pipeline.pttl(self._keys.state)
            newest, instances, left_ms = pipeline.execute()
        return newest[0][0].decode() if newest else "0-0", instances, left_ms

    def entry(self, id_: str) -> dict[bytes, bytes]:
        """Read an entry of the log as it lies there."""
        found: Any = self._redis.xrange(self._keys.log, id_, id_)
        return dict(found[0][1])

    def span(self) -> tuple[str, str] | None:
        """Read the ids of the run's first status and of its newest entry; None where there is no such run."""
        with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.xrange(self._keys.statuses, count=1)
            pipeline.xrevrange(self._keys.log, count=1)
            first, newest = pipeline.execute()
        return (first[0][0].decode(), newest[0][0].decode()) if first and newest else None

    def newest_entries(self, most: int, *, before: str | None = None) -> list[RawEntry]:
        """Read the newest entries of the log, the last one first; with an id those before it."""
        found: Any = self._redis.xrevrange(self._keys.log, f"({before}" if before is not None else "+", count=most)
        return list(found)

    def status_entries(self, most: int) -> list[RawEntry]:
        """Read the entries that changed the run's status last, the newest last."""
        found: Any = self._redis.xrevrange(self._keys.statuses, count=most)
        with self._redis.pipeline(transaction=False) as pipeline:
            for id_, _ in reversed(found):
                pipeline.xrange(self._keys.log, id_, id_)
            return [entry for page in pipeline.execute() for entry in page]

    def files(self, digests: Sequence[str]) -> dict[str, bytes]:
        """Read those of these files that the run has, and of the pictures of its tools."""
        found = dict[str, bytes]()
        for key in (self._keys.files, self._keys.pictures) if digests else ():
            contents: Any = self._redis.hmget(key, digests)
            found |= {digest: content for digest, content in zip(digests, contents, strict=True) if content is not None}
        return found

    def all_files(self) -> Iterator[tuple[str, bytes, bool]]:
        """Read each file that the run has by its digest, and each picture of its tools; says whether it is one."""
        for key in (self._keys.files, self._keys.pictures):
            for digest, content in self._redis.hscan_iter(key):
                yield digest.decode(), content, key == self._keys.pictures

    def picture_digests(self) -> set[str]:
        """List the pictures of the run's tools."""
        found: Any = self._redis.hkeys(self._keys.pictures)
        return {digest.decode() for digest in found}

    def outbox(self) -> Iterator[tuple[CallId, Condition, TaskMessage]]:
        """Read the calls that were sent and forgotten and are not done, how each stands, and its task."""
        conditions: Any = self._redis.hgetall(self._keys.outbox)
        tasks: Any = self._redis.hgetall(self._keys.outbox_tasks)
        for member, task in tasks.items():
            if (condition := Condition.read(conditions.get(member))) is not None:
                yield CallId.of_member(self._keys.run, member.decode()), condition, unpack_task(task)

    def count_outbox(self) -> int:
        """Count the calls that were sent and forgotten and are not done."""
        found: Any = self._redis.hlen(self._keys.outbox)
        return int(found)

    def amend(self, requests: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Take steps of an amendment, in one round trip (lua/amend.lua)."""
        return Script(self._redis, "amend").run_all((self._keys, request) for request in requests)

    def budgets(self, limits: LoopLimits) -> tuple[tuple[Budget, ...], dict[str, int]]:
        """Read what the calls of the run's loop take from, the nearest first, and what is left of it."""
        parent, *spent = self.fields(PARENT, *SPENT)
        budgets = budgets_of(self._keys.run, limits, parent, *spent)
        taken: Any = self._redis.hmget(Keys(self._keys.prefix, budgets[-1].run).budget, sum_fields(budgets))
        return budgets, left_of(budgets, taken)

    def loop_ends_ms(self) -> float | None:
        """Read when the time of the run's loop is over, where that is limited."""
        found: Any = self._redis.zscore(self._keys.leases, loop_alarm())
        return found if found is None else float(found)


async def wait_for_entry(redis: AsyncRedis, prefix: str, run: str, *, after: str, block_ms: int) -> None:
    """Wait until the log of a run has an entry behind an id, for so long at most. Raises `RedisError`."""
    await redis.xread({Keys(prefix, run).log: after}, count=1, block=block_ms)


def _texts(values: Any) -> list[str | None]:
    return [value.decode("utf-8", "replace") if value is not None else None for value in values]


def _decoded(state: Any) -> State:
    return {key.decode(): value.decode("utf-8", "replace") for key, value in state.items()}


class RunList:
    """The runs of a backend. All of it raises `RedisError`."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix

    def under_way(self) -> dict[str, float]:
        """List the runs under way, each with the time of its submission in ms."""
        listed: Any = self._redis.zrange(active_runs(self._prefix), 0, -1, withscores=True)
        return {name.decode("utf-8", "replace"): submitted for name, submitted in listed}

    def submitted(self, runs: Iterable[str]) -> dict[str, float]:
        """Look up those of these runs that are under way, each with the time of its submission in ms."""
        names = list(runs)
        found: Any = self._redis.zmscore(active_runs(self._prefix), names) if names else ()
        return {run: submitted for run, submitted in zip(names, found, strict=True) if submitted is not None}

    def add(self, run: str, submitted_ms: float) -> None:
        """List a run as under way."""
        self._redis.zadd(active_runs(self._prefix), {run: submitted_ms})

    def holding(self, runs: Sequence[str], instances: Sequence[str]) -> list[tuple[str, ...]]:
        """Find out which of these instances each run has."""
        with self._redis.pipeline(transaction=False) as pipeline:
            for run, instance in product(runs, instances):
                pipeline.lpos(Keys(self._prefix, run).instances, instance)
            places = iter(pipeline.execute())
        return [tuple(instance for instance in instances if next(places) is not None) for _ in runs]

    def beginning_with(self, text: str) -> list[str]:
        """List the runs of which the ids begin with a text of letters and digits."""
        lists = (active_runs(self._prefix), ended_runs(self._prefix))
        found = (self._redis.zscan_iter(key, match=f"{text}*", count=LOOKED_AT) for key in lists)
        return sorted({name.decode() for name, _ in chain.from_iterable(found)})

    def owned(self, owner: str, *, since_ms: float = -inf) -> Iterator[str]:
        """List the runs in an owner's index, the newest first, or those submitted since a time."""
        return (run for _, run in self._listed(owned_runs(self._prefix, owner), since_ms))

    def owned_children(self, owner: str, *, since_ms: float) -> Iterator[str]:
        """List the child runs below an owner's runs that were submitted since a time, the newest first."""
        return (run for _, run in self._listed(owned_children(self._prefix, owner), since_ms))

    def admission(self, owner: str) -> Lock:
        """Make the lock under which a run of an owner with limits is written down."""
        key = admission(self._prefix, owner)
        lock: Lock = self._redis.lock(key, HELD_SECONDS, blocking_timeout=SUBMITTING_WAIT_SECONDS)
        return lock

    def claim(self, run: str, digest: str) -> bool:
        """Claim an id to write a run under it; False where another client has claimed it."""
        return bool(self._redis.set(claim(self._prefix, run), digest, nx=True, ex=CLAIM_SECONDS))

    def release(self, run: str) -> None:
        """Give back the claim to an id."""
        self._redis.delete(claim(self._prefix, run))

    def count_under_way(self) -> int:
        """Count the runs under way."""
        found: Any = self._redis.zcard(active_runs(self._prefix))
        return int(found)

    def count_ended(self) -> int:
        """Count the runs that have ended and are kept."""
        found: Any = self._redis.zcard(ended_runs(self._prefix))
        return int(found)

    def ended_since(self, submitted_ms: float) -> list[str]:
        """List the runs that have ended and are kept, and were submitted at a time or later."""
        found: Any = self._redis.zrangebyscore(ended_runs(self._prefix), submitted_ms, inf)
        return [name.decode() for name in found]

    def last_sweep(self) -> float | None:
        """Read when a sweep last reached both servers, in ms; None where none has."""
        found: Any = self._redis.hget(recovery(self._prefix), "heard")
        return float(found) if found is not None else None

    def fields(self, runs: Iterable[str], *names: str) -> list[list[str | None]]:
        """Read some fields of the state of each of several runs."""
        with self._redis.pipeline(transaction=False) as pipeline:
            for run in runs:
                pipeline.hmget(Keys(self._prefix, run).state, names)
            return [_texts(found) for found in pipeline.execute()]

    def loads(self, runs: Sequence[str], *names: str) -> list[tuple[list[str | None], int, float | None, int, int]]:
        """Read of each run some fields of its state, how many calls are held, since when the oldest is, in ms, and how
        many lanes its backlog and how many calls its outbox has.
        """
        with self._redis.pipeline(transaction=False) as pipeline:
            for run in runs:
                keys = Keys(self._prefix, run)
                pipeline.hmget(keys.state, names)
                pipeline.zcard(keys.held)
                pipeline.zrange(keys.held, 0, 0, withscores=True)
                pipeline.llen(keys.backlog)
                pipeline.hlen(keys.outbox)
            found = iter(pipeline.execute())
        return [
            (_texts(fields), held, oldest[0][1] if oldest else None, backlog, sent)
            for fields, held, oldest, backlog, sent in zip(found, found, found, found, found, strict=True)
        ]

    def note_traced(self, run: str, finished: str) -> None:
        """Note that a run was exported as spans up to its end, unless it is gone."""
        Script(self._redis, "keys", "note_traced")(Keys(self._prefix, run), {"finished": finished})

    def newest(self, owner: str | None = None, fields: Sequence[str] = ()) -> Iterator[tuple[str, State]]:
        """Every run and its state, or some `fields` of it, the newest first; of an `owner` its own."""
        asked = tuple(dict.fromkeys((*fields, OWNER, "status"))) if fields else ()
        for page in batches(self._ids(owner), RUN_LIST_AT_ONCE):
            with self._redis.pipeline(transaction=False) as pipeline:
                for run in page:
                    key = Keys(self._prefix, run).state
                    pipeline.hmget(key, asked) if asked else pipeline.hgetall(key)
                states = pipeline.execute()
            if asked:
                names = [name.encode() for name in asked]
                states = [
                    {name: value for name, value in zip(names, values, strict=True) if value is not None}
                    for values in states
                ]
            for run, state in zip(page, states, strict=True):
                read = _decoded(state)
                if read and owner in (None, read.get(OWNER)):  # not one that is half written, or whose time is over
                    yield run, read

    def count_foreign(self) -> int:
        """How many runs under way are of a format that is not read."""
        found, names = (
            0,
            (name for name, _ in self._redis.zscan_iter(active_runs(self._prefix), count=RUN_LIST_AT_ONCE)),
        )
        for page in batches(names, RUN_LIST_AT_ONCE):
            formats = self.fields(map(bytes.decode, page), "format")
            found += sum(number is not None and int(number) != FORMAT for [number] in formats)
        return found

    def note_ended(self, submitted: Mapping[str, float]) -> None:
        """List runs that have ended, and no longer the oldest ones that are kept no more."""
        key = ended_runs(self._prefix)
        with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.zadd(key, dict(submitted))
            pipeline.zrange(key, 0, LOOKED_AFTER + len(submitted) - 1)
            _, oldest = pipeline.execute()
        if gone := _absent(self._redis, self._prefix, oldest):
            self._redis.zrem(key, *gone)

    def _ids(self, owner: str | None) -> Iterator[str]:
        """The ids of both lists, by the time of submission; one that ends meanwhile may be in both. Of an owner
        those of its index.
        """
        seen = set[str]()
        both = (active_runs(self._prefix), ended_runs(self._prefix))
        keys = both if owner is None else (owned_runs(self._prefix, owner),)
        lists = (self._listed(key) for key in keys)
        for _, run in merge(*lists, key=lambda pair: -pair[0]):
            if run not in seen:
                seen.add(run)
                yield run

    def _listed(self, key: str, since_ms: float = -inf) -> Iterator[tuple[float, str]]:
        """Read a list from its end, by time and id and not by position: some leave it meanwhile."""
        last, passed = inf, set[str]()  # those of the last time
        while True:
            found: Any = self._redis.zrevrangebyscore(
                key, last, since_ms, start=0, num=len(passed) + RUN_LIST_AT_ONCE, withscores=True
            )
            page = [pair for name, score in found if (pair := (score, name.decode()))[1] not in passed]
            if not page:
                return
            yield from page
            if page[-1][0] != last:
                last, passed = page[-1][0], set()
            passed |= {run for score, run in page if score == last}


# Files beside a run's log, by their digests, and the messages that show them (see `protocol.language.files`).
#
# A request in the log names its files; what is published has them, so whoever asks the model needs no log.


class FileGone(Exception):
    """A file that a request shows is not there any more."""


def filled(messages: Iterable[Mapping[str, Any]], contents: Mapping[str, bytes]) -> list[Mapping[str, Any]]:
    """Messages with their files in base64. Raises `FileGone`."""
    found = [*messages]
    for part in file_parts(found):
        if part.get("digest") not in contents:
            raise FileGone(f"the file {part['file']!r} is not there: its run has none of that digest")

    def with_data(part: Any) -> Any:
        return {**part, "data": base64.b64encode(contents[part["digest"]]).decode()} if is_file(part) else part

    return [with_changed(message, with_data) for message in found]


class PictureKeeper:
    """Keeps the pictures that tools answer beside the logs of their runs, for the tasks of one event loop."""

    def __init__(self, redis: AsyncRedis, settings: Settings) -> None:
        self._script = AsyncScript(GroupedCommands(redis), "keep_picture")
        self._settings = settings

    async def keep(self, run: str, content: bytes) -> str:
        """Keep a picture; returns why it is not kept, or nothing. Raises `RedisError`."""
        settings = self._settings
        if picture_type(content) is None:
            return "it is no PNG, JPEG, GIF or WebP"
        if len(content) > (most := int(settings.limit_file_bytes)):
            return f"it has {len(content)} bytes, where {most} are allowed (ACTS_LIMIT_FILE_BYTES)"
        most = int(settings.limit_run_bytes) // 2  # the rest is for its log: what is full fails
        request = {"digest": hashlib.sha256(content).hexdigest(), "content": content, "most_bytes": most}
        answer = await self._script(Keys(settings.key_prefix, run), request)
        return {"kept": "", "full": f"its run would have more than {most} bytes (half of ACTS_LIMIT_RUN_BYTES)"}.get(
            answer["answer"], "the run is over"
        )
