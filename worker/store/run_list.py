"""The lists of runs, parents and owners of runs, and the files of their messages (one run: `run_store`)."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import chain, product
from math import inf
from typing import TYPE_CHECKING, Any, Final, Self

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.lock import Lock

from ...broker_config import Settings
from ...protocol.engine.costs import Cost
from ...protocol.engine.events import Failure, Status, Success
from ...protocol.engine.loop import Loop, LoopLimits
from ...protocol.engine.outcomes import output_fault, resolve_output
from ...protocol.messages import file_parts, is_file, picture_type, with_changed
from ...protocol.schemas import compiled
from ...protocol.state.labels import TRUSTED, Labels, marks_of
from .. import limits
from ..backoff import batches
from ..broker.attempts import Attempt, CallId, Tokens, TracePlace, place_of_run
from ..broker.messages import Delivery, TaskMessage, delivery_task
from .connections import GroupedCommands
from .definition import FORMAT
from .entries import follow
from .keys import (
    Condition,
    Keys,
    Kind,
    active_runs,
    admission,
    approved_plans,
    claim,
    ended_runs,
    owned_children,
    owned_runs,
    recovery,
)
from .scripts import AsyncScript, Script, server_ms
from .servers import ServerAway, unless_away
from .slots import Budget

if TYPE_CHECKING:
    from .entries import Entry
    from .state import RunState


# Child runs: how a run and the call that it answers know each other (SPEC R9.3, R13.10).
#
# The call's condition is `child` in its run's `calls` (lua/commit.lua), with the child's id; the child's state names
# the call. A child that has ended answers once; the sweep sends an answer again that was lost, as long as the call
# waits.

PARENT = "parent"
"""The field of a child's state that names the call which it answers."""
DELEGATE = "delegate"
"""The field of a child's state that has the name of its delegate."""
ANSWER_SCHEMA = "answer_schema"
"""The field of a workflow's state that has the schema of its result, as JSON."""
PRIORITY = "priority"
"""The field of a run's state that has its priority, unless that is 0."""
TRACE = "trace"
"""The field of a run's state that has the span which it was submitted under."""


@dataclass(frozen=True, slots=True)
class Parent:
    """The call that a child run answers."""

    call: CallId
    attempt: int
    depth: int
    """How many runs are above the child."""
    budgets: tuple[Budget, ...] = ()
    """The budgets that the child takes from, the nearest first (SPEC R13.3)."""

    def to_fields(self, priority: int = 0) -> dict[str, Any]:
        """Make the fields of the child's state; it has the priority of the call's run."""
        call = self.call
        budgets = [[budget.run, budget.tokens, budget.calls, budget.money] for budget in self.budgets]
        place = json.dumps([call.run, call.instance, call.index, self.attempt, self.depth, budgets])
        return {PARENT: place, **({PRIORITY: priority} if priority else {})}

    @classmethod
    def read(cls, field: bytes | str | None) -> Self | None:
        """Read the field's value; None if a run is no child."""
        if field is None:
            return None
        run, instance, index, attempt, depth, *more = json.loads(field)
        return cls(CallId(run, instance, index), attempt, depth, tuple(Budget(*one) for one in (more or [[]])[0]))

    def waits_for(self, entry: bytes | None, child: str) -> bool:
        """Tell whether the call, by its entry in `calls`, waits for a child, or is about to."""
        found = Condition.read(entry)
        return found is not None and (found.kind is Kind.RUNNING or _is_child(found, child))

    def answer(
        self, child: str, result: Success | Failure, tokens: Tokens, queue: str, priority: int = 0
    ) -> TaskMessage:
        """Make the task that brings the child's result to the call; both runs have the same priority."""
        attempt = tokens.given(Attempt(self.call, self.attempt, priority=priority))
        return delivery_task(Delivery(attempt, result, child), queue)


def place_under(run: str, above: bytes | None) -> str:
    """Make a run's place in a trace from the field `TRACE`; empty if it is the root of a trace."""
    found = TracePlace.unpack(above.decode()) if above is not None else None
    return place_of_run(run, found).pack() if found is not None else ""


def is_answered_by(entry: bytes | None, child: str) -> bool:
    """Tell whether a call, by its entry in `calls`, is to be answered by this child and no other."""
    found = Condition.read(entry)
    return found is not None and _is_child(found, child)


def _is_child(condition: Condition, child: str) -> bool:
    return condition.kind is Kind.CHILD and condition.holder == child


def budgets_of(
    run: str, limits: LoopLimits, parent: bytes | str | None, *spent: bytes | str | None
) -> tuple[Budget, ...]:
    """Make the budgets that the calls of a loop take from, by fields of its state: its own, and those above it."""
    tokens, money = (int(each or 0) for each in spent)
    above = Parent.read(parent)
    return Budget.of(run, limits, tokens, money), *(above.budgets if above is not None else ())


def child_result(status: str, loop: Loop, labels: Labels) -> Success | Failure:
    """Make the answer of a child that has ended, with its cost; `labels` are the sources of everything in its log."""
    end, spent = loop.ended, {**loop.cost.pack(), "calls": loop.calls}
    if status == "completed":
        return Success(end.output if end is not None else None, spent, labels)
    reason = (end.reason if end is not None else None) or f"its run is {status}"
    return Failure("ChildFailed", reason, spent, labels=labels)


def workflow_result(status: str, run: RunState, schema: Any, labels: Labels) -> Success | Failure:
    """Make the answer of a workflow that has ended, with its cost: its output, else the folded `state` (SPEC R9.4).
    `schema` is the result's, `labels` are the sources of everything in its log.
    """
    definition, fold = run.definition, run.shared.fold
    calls = [call for lane in run.lanes.values() for call in lane.calls.values()]
    cost = sum((Cost.read(call.cost) for call in calls if call.cost), Cost())
    below = sum(call.cost.get("calls", 0) for call in calls if call.cost)
    spent = {**cost.pack(), "calls": sum(len(lane.known) for lane in run.lanes.values()) + below}
    reason = _why_failed(status, run)
    if reason is None:
        output = definition.output
        value = fold.snapshot().get("state", {}) if output is None else resolve_output(output, fold)
        problems = compiled(schema).problems(value, known=()) if schema is not None else []
        if not problems:
            return Success(value, spent, labels)
        reason = "its result does not fit its schema: " + "; ".join(map(str, problems))
    return Failure("ChildFailed", reason, spent, labels=labels)


def _why_failed(status: str, run: RunState) -> str | None:
    """Say why a workflow has no result; None where it has one."""
    if status == "completed":
        return None
    failed = (call.end for lane in run.lanes.values() for call in lane.calls.values() if call.end is not None)
    error = next((end.error for end in failed if end.status is Status.FAILED and end.error is not None), None)
    if run.exceeded is not None:
        return run.exceeded
    if status == "failed" and error is not None:
        return f"{error.get('type')}: {error.get('message')}"
    fault = output_fault(run.definition.output, run.shared.fold, run.definition.schema) if status == "failed" else None
    return fault or f"its run is {status}"


def child_id(call: CallId, again: int = 0) -> str:
    """Make the id of the run that answers a call, the same for everybody who starts it. A call that was undone and runs
    again (see `Attempt`) has another one.
    """
    begun, _, _ = call.run.partition("-")
    text = "\x1f".join((call.run, call.member, str(again)))
    return f"{begun}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def result_of(status: str, entries: Iterable[Entry]) -> Success | Failure:
    """Make the answer of a child that has ended from its log."""
    loop, labels = Loop(), TRUSTED
    for entry in entries:
        loop = follow(loop, entry)
        labels |= marks_of(entry.message).labels if entry.message is not None else TRUSTED
    return child_result(status, loop, labels)


# The runs of an owner, who has submitted, forked or imported them with a token.
#
# A run's state names its owner. An owner's index only finds runs: a run is in it before it is written, and may be in it
# when it is gone.

OWNER: Final = "owner"
"""The field of a run's state that names its owner. A run that was submitted without a token has none."""


def owner_fields(settings: Settings) -> dict[str, str]:
    """Make the field of the state of a run that begins under these settings; none without a token."""
    return {OWNER: settings.identity.name} if settings.identity is not None else {}


def owner_of(redis: Redis, prefix: str, run: str) -> str | None:
    """Read the owner of a run, or of the run above a child run; None if there is no owner, or no such run. Raises
    `RedisError`.
    """
    for _ in range(limits.DEEPEST_CHILD):
        [[owner, parent]] = RunList(redis, prefix).fields([run], OWNER, PARENT)
        if owner is not None or (above := Parent.read(parent)) is None:
            return owner
        run = above.call.run
    return None


def top_of(redis: Redis, prefix: str, run: str) -> str:
    """Find the topmost run above a child run; the run itself if it is no child. Raises `RedisError`."""
    for _ in range(limits.DEEPEST_CHILD):
        [[parent]] = RunList(redis, prefix).fields([run], PARENT)
        if (above := Parent.read(parent)) is None:
            break
        run = above.call.run
    return run


def note_owned(redis: Redis, keys: Keys, owner: str, milliseconds: int) -> None:
    """Add a run that is about to be written to its owner's index, and remove some old ones that are gone. Raises
    `RedisError`.
    """
    _note(redis, owned_runs(keys.prefix, owner), keys, milliseconds)


def note_child(redis: Redis, keys: Keys, above: str, milliseconds: int) -> None:
    """Add a child run to the index of the owner of the run above it, if there is one. Raises `RedisError`."""
    if (owner := owner_of(redis, keys.prefix, above)) is not None:
        _note(redis, owned_children(keys.prefix, owner), keys, milliseconds)


def _note(redis: Redis, index: str, keys: Keys, milliseconds: int) -> None:
    with redis.pipeline(transaction=False) as pipeline:
        pipeline.zadd(index, {keys.run: milliseconds})
        pipeline.zrange(index, 0, limits.RUNS_CHECKED - 1)
        _, oldest = pipeline.execute()
    if absent := [name.decode() for name in _absent(redis, keys.prefix, oldest) if name.decode() != keys.run]:
        under_way = RunList(redis, keys.prefix).submitted(absent)  # one may be about to be written down
        if gone := [name for name in absent if name not in under_way]:
            redis.zrem(index, *gone)


def _absent(redis: Redis, prefix: str, names: Sequence[bytes]) -> list[bytes]:
    """Pick the runs that are not there."""
    with redis.pipeline(transaction=False) as pipeline:
        for name in names:
            pipeline.exists(Keys(prefix, name.decode()).state)
        found = unless_away(pipeline.execute(raise_on_error=False))
    return [name for name, is_there in zip(names, found, strict=True) if is_there == 0]


LeftOut = Callable[[str], object]
"""Called with why runs are left out of a list."""
State = dict[str, str]
"""The fields of a run's state (see commit.lua)."""


def texts_of(values: Any) -> list[str | None]:
    """Decode the values of some fields of a state."""
    return [value.decode("utf-8", "replace") if value is not None else None for value in values]


def decoded_state(state: Any) -> State:
    """Decode all fields of a state."""
    return {key.decode(): value.decode("utf-8", "replace") for key, value in state.items()}


class RunList:
    """The runs of a backend. Every method raises `RedisError`."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix

    def under_way(self) -> dict[str, float]:
        """List the runs under way, each with the time of its submission in ms."""
        listed: Any = self._redis.zrange(active_runs(self._prefix), 0, -1, withscores=True)
        return {name.decode("utf-8", "replace"): submitted for name, submitted in listed}

    def submitted(self, runs: Iterable[str]) -> dict[str, float]:
        """Pick the runs that are under way, each with the time of its submission in ms."""
        names = list(runs)
        found: Any = self._redis.zmscore(active_runs(self._prefix), names) if names else ()
        return {run: submitted for run, submitted in zip(names, found, strict=True) if submitted is not None}

    def add(self, run: str, submitted_ms: float) -> None:
        """List a run as under way."""
        self._redis.zadd(active_runs(self._prefix), {run: submitted_ms})

    def holding(self, runs: Sequence[str], instances: Sequence[str]) -> list[tuple[str, ...]]:
        """Find out which of some instances each run has."""
        with self._redis.pipeline(transaction=False) as pipeline:
            for run, instance in product(runs, instances):
                pipeline.lpos(Keys(self._prefix, run).instances, instance)
            places = iter(pipeline.execute())
        return [tuple(instance for instance in instances if next(places) is not None) for _ in runs]

    def beginning_with(self, text: str) -> list[str]:
        """List the runs with an id that begins with a text of letters, digits and hyphens."""
        lists = (active_runs(self._prefix), ended_runs(self._prefix))
        found = (self._redis.zscan_iter(key, match=f"{text}*", count=limits.LOOKED_AT) for key in lists)
        return sorted({name.decode() for name, _ in chain.from_iterable(found)})

    def owned(self, owner: str, *, since_ms: float = -inf) -> Iterator[str]:
        """List the runs in an owner's index, the newest first, or those submitted since a time."""
        return (run for _, run in self._listed(owned_runs(self._prefix, owner), since_ms))

    def owned_children(self, owner: str, *, since_ms: float) -> Iterator[str]:
        """List the child runs below an owner's runs that were submitted since a time, the newest first."""
        return (run for _, run in self._listed(owned_children(self._prefix, owner), since_ms))

    def admission(self, owner: str) -> Lock:
        """Make the lock under which a run of an owner with limits is written."""
        key = admission(self._prefix, owner)
        lock: Lock = self._redis.lock(key, limits.HELD_SECONDS, blocking_timeout=limits.SUBMITTING_WAIT_SECONDS)
        return lock

    def claim(self, run: str, digest: str) -> bool:
        """Claim an id to write a run under it; False if another client has claimed it."""
        return bool(self._redis.set(claim(self._prefix, run), digest, nx=True, ex=limits.CLAIM_SECONDS))

    def release(self, run: str) -> None:
        """Give back the claim to an id."""
        self._redis.delete(claim(self._prefix, run))

    def approve_plan(self, digest: str, record: bytes) -> None:
        """Approve all runs of the plan of a digest from now on; the record says who did (SPEC R9.5)."""
        self._redis.hset(approved_plans(self._prefix), digest, record)

    def is_approved(self, digest: str) -> bool:
        """Look whether all runs of the plan of a digest were approved."""
        return bool(self._redis.hexists(approved_plans(self._prefix), digest))

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
        """Read when a sweep last reached both servers, in ms; None if none has."""
        found: Any = self._redis.hget(recovery(self._prefix), "heard")
        return float(found) if found is not None else None

    def note_restored(self) -> int:
        """Note of every run under way that the log was restored from a backup, and does not know what was begun after
        that (SPEC R4.11). Returns how many runs these are.
        """
        names: Any = self._redis.zrange(active_runs(self._prefix), 0, -1)
        keys, now_ms = [Keys(self._prefix, name.decode()) for name in names], server_ms(self._redis)
        for page in batches(keys, limits.RUNS_AT_ONCE):
            there = [one for one in page if self._redis.exists(one.state)]
            with self._redis.pipeline(transaction=False) as pipeline:
                for one in there:
                    pipeline.hset(one.state, "restored", now_ms)
                pipeline.execute()
        return len(keys)

    def state(self, run: str) -> State:
        """Read the state of a run; empty where there is none, or not all of it."""
        found = decoded_state(self._redis.hgetall(Keys(self._prefix, run).state))
        return found if "status" in found else {}

    def fields(self, runs: Iterable[str], *names: str) -> list[list[str | None]]:
        """Read some fields of the state of each of several runs."""
        with self._redis.pipeline(transaction=False) as pipeline:
            for run in runs:
                pipeline.hmget(Keys(self._prefix, run).state, names)
            return [texts_of(found) for found in pipeline.execute()]

    def loads(self, runs: Sequence[str], *names: str) -> list[tuple[list[str | None], int, float | None, int, int]]:
        """Read for each run some fields of its state, how many calls are held, since when the oldest is, in ms, and how
        many lanes its backlog and how many calls its outbox has. A run whose server is away has no field.
        """
        with self._redis.pipeline(transaction=False) as pipeline:
            for run in runs:
                keys = Keys(self._prefix, run)
                pipeline.hmget(keys.state, names)
                pipeline.zcard(keys.held)
                pipeline.zrange(keys.held, 0, 0, withscores=True)
                pipeline.llen(keys.backlog)
                pipeline.hlen(keys.outbox)
            found = iter(unless_away(pipeline.execute(raise_on_error=False)))
        return [
            (texts_of(fields or [None] * len(names)), held, oldest[0][1] if oldest else None, backlog, sent)
            for fields, held, oldest, backlog, sent in zip(found, found, found, found, found, strict=True)
        ]

    def held_below(self, run: str) -> dict[str, int]:
        """Count the held calls of each child run that calls of a run wait for, and of those below it; of one depth the
        older runs come first.
        """
        found, level = dict[str, int](), [run]
        while level:
            with self._redis.pipeline(transaction=False) as pipeline:
                for name in level:
                    keys = Keys(self._prefix, name)
                    pipeline.smembers(keys.children)
                    pipeline.zcard(keys.held)
                answers: list[Any] = pipeline.execute()
            found |= {name: held for name, held in zip(level, answers[1::2], strict=True) if held}
            level = [child.decode() for children in answers[::2] for child in sorted(children)]
        found.pop(run, None)
        return found

    def note_traced(self, run: str, finished: str) -> None:
        """Note that a run was exported as spans up to its end, unless it is gone."""
        Script(self._redis, "keys", "note_traced")(Keys(self._prefix, run), {"finished": finished})

    def newest(
        self, owner: str | None = None, fields: Sequence[str] = (), left_out: LeftOut | None = None
    ) -> Iterator[tuple[str, State]]:
        """List every run, or an owner's runs, the newest first, each with its state or some fields of it. Where one of
        several servers is away, `left_out` is called with that, and its runs are left out; else `ServerAway` is raised.
        """
        asked = tuple(dict.fromkeys((*fields, OWNER, "status"))) if fields else ()
        told = set[str]()
        for page in batches(self._ids(owner), limits.RUNS_AT_ONCE):
            with self._redis.pipeline(transaction=False) as pipeline:
                for run in page:
                    key = Keys(self._prefix, run).state
                    pipeline.hmget(key, asked) if asked else pipeline.hgetall(key)
                answers = pipeline.execute(raise_on_error=left_out is None)
            if left_out is not None:
                for why in {str(one) for one in answers if isinstance(one, ServerAway)} - told:
                    told.add(why)
                    left_out(f"{why}: its runs are left out")
            for run, state in zip(page, unless_away(answers), strict=True):
                if asked and state is not None:
                    pairs = zip(asked, state, strict=True)
                    state = {name.encode(): value for name, value in pairs if value is not None}
                read = decoded_state(state or {})
                if read and owner in (None, read.get(OWNER)):  # not one that is half written, or whose time is over
                    yield run, read

    def count_foreign(self) -> int:
        """Count the runs under way of a format that is not read."""
        found, scanned = 0, self._redis.zscan_iter(active_runs(self._prefix), count=limits.RUNS_AT_ONCE)
        for page in batches((name.decode() for name, _ in scanned), limits.RUNS_AT_ONCE):
            formats = self.fields(page, "format")
            found += sum(number is not None and int(number) != FORMAT for [number] in formats)
        return found

    def note_ended(self, submitted: Mapping[str, float]) -> None:
        """List runs as ended, and remove some old ones that are gone."""
        key = ended_runs(self._prefix)
        with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.zadd(key, dict(submitted))
            pipeline.zrange(key, 0, limits.RUNS_CHECKED + len(submitted) - 1)
            _, oldest = pipeline.execute()
        if gone := _absent(self._redis, self._prefix, oldest):
            self._redis.zrem(key, *gone)

    def _ids(self, owner: str | None) -> Iterator[str]:
        """List all runs, or an owner's, the newest first; one that ends meanwhile may be in both lists."""
        both = (active_runs(self._prefix), ended_runs(self._prefix))
        keys = both if owner is None else (owned_runs(self._prefix, owner),)
        seen = set[str]()
        for _, run in merge(*map(self._listed, keys), key=lambda pair: -pair[0]):
            if run not in seen:
                seen.add(run)
                yield run

    def _listed(self, key: str, since_ms: float = -inf) -> Iterator[tuple[float, str]]:
        """Read a list from its end, by time and id: by position, runs that leave it meanwhile would hide others."""
        last, passed = inf, set[str]()  # those of the last time
        while True:
            found: Any = self._redis.zrevrangebyscore(
                key, last, since_ms, start=0, num=len(passed) + limits.RUNS_AT_ONCE, withscores=True
            )
            page = [pair for name, score in found if (pair := (score, name.decode()))[1] not in passed]
            if not page:
                return
            yield from page
            if page[-1][0] != last:
                last, passed = page[-1][0], set()
            passed |= {run for score, run in page if score == last}


# The files of a run, by their digests, and the messages that show them.
#
# A request in the log names its files. They are put in where the model is asked, or before, if that worker has no log.


class FileGone(Exception):
    """Raised when a file that a request shows is not there any more."""


def filled(messages: Iterable[Mapping[str, Any]], contents: Mapping[str, bytes]) -> list[Mapping[str, Any]]:
    """Put their files into messages, in base64. Raises `FileGone`."""
    found = [*messages]
    for part in file_parts(found):
        if part.get("digest") not in contents:
            raise FileGone(f"the file {part['file']!r} is not there: its run has none of that digest")

    def with_data(part: Any) -> Any:
        return {**part, "data": base64.b64encode(contents[part["digest"]]).decode()} if is_file(part) else part

    return [with_changed(message, with_data) for message in found]


class PictureKeeper:
    """Keeps the pictures that tools answer, for the tasks of one event loop."""

    def __init__(self, redis: AsyncRedis, settings: Settings) -> None:
        self._script = AsyncScript(GroupedCommands(redis), "keep_picture")
        self._settings = settings

    async def keep(self, run: str, content: bytes) -> str:
        """Keep a picture of a run; returns why it is not kept, or an empty text. Raises `RedisError`."""
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
