"""The list of the runs: those under way and, for as long as they are kept, those that have ended."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from math import inf
from typing import TYPE_CHECKING, Any, Final, Self

from redis import Redis
from redis.asyncio import Redis as AsyncioRedis

from ...broker_config import Settings
from ...protocol.engine.events import Failure, Success
from ...protocol.engine.loop import Loop, LoopLimits
from ...protocol.messages import file_parts, is_file, picture_type, with_changed
from ...protocol.state.labels import TRUSTED, Labels, marks_of
from ..backoff import batches
from ..broker.attempts import Attempt, CallId, Tokens, TracePlace, place_of_run
from ..broker.messages import Delivery, TaskMessage, delivery_task
from .connections import GroupedCommands
from .definition import FORMAT
from .keys import Condition, Keys, Kind, active_runs, ended_runs, owned_children, owned_runs
from .loop_entries import follow
from .scripts import AsyncScript
from .slots import Budget

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


def budgets_of(run: str, limits: LoopLimits, parent: bytes | None, *spent: bytes | None) -> tuple[Budget, ...]:
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
_MOST_OWNED_AT_ONCE: Final = 20
_DEEPEST: Final = 100


def owner_of(redis: Redis, prefix: str, run: str) -> str | None:
    """The owner of a run; of a child run that of the run above it. None where there is none, or no such run. Raises
    `RedisError`.
    """
    for _ in range(_DEEPEST):
        fields: Any = redis.hmget(Keys(prefix, run).state, OWNER, PARENT)
        owner, parent = (field.decode() if field is not None else None for field in fields)
        if owner is not None or (above := Parent.read(parent)) is None:
            return owner
        run = above.call.run
    return None


def top_of(redis: Redis, prefix: str, run: str) -> str:
    """The run above a child run that nothing stands above; a run itself, where it is no child. Raises `RedisError`."""
    for _ in range(_DEEPEST):
        field: Any = redis.hget(Keys(prefix, run).state, PARENT)
        if (above := Parent.read(field)) is None:
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
        pipeline.zrange(index, 0, _MOST_OWNED_AT_ONCE - 1)
        _, oldest = pipeline.execute()
    with redis.pipeline(transaction=False) as pipeline:
        for name in oldest:
            pipeline.exists(Keys(keys.prefix, name.decode()).state)
        found = pipeline.execute()
    absent = [name for name, is_there in zip(oldest, found, strict=True) if not is_there and name.decode() != keys.run]
    if absent:
        under_way: Any = redis.zmscore(active_runs(keys.prefix), absent)  # one may be about to be written down
        if gone := [name for name, since in zip(absent, under_way, strict=True) if since is None]:
            redis.zrem(index, *gone)


_AT_ONCE: Final = 200
_LOOKED_AFTER: Final = 20

State = dict[str, str]
"""The fields of a run's state (see commit.lua)."""


class RunList:
    """The runs of a backend. All of it raises `RedisError`."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix

    def newest(self, owner: str | None = None, fields: Sequence[str] = ()) -> Iterator[tuple[str, State]]:
        """Every run and its state, or some `fields` of it, the newest first; of an `owner` its own."""
        asked = tuple(dict.fromkeys((*fields, OWNER, "status"))) if fields else ()
        for page in batches(self._ids(owner), _AT_ONCE):
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
                read = {key.decode(): value.decode("utf-8", "replace") for key, value in state.items()}
                if read and owner in (None, read.get(OWNER)):  # not one that is half written, or whose time is over
                    yield run, read

    def count_foreign(self) -> int:
        """How many runs under way are of a format that is not read."""
        found, names = 0, (name for name, _ in self._redis.zscan_iter(active_runs(self._prefix), count=_AT_ONCE))
        for page in batches(names, _AT_ONCE):
            with self._redis.pipeline(transaction=False) as pipeline:
                for name in page:
                    pipeline.hget(Keys(self._prefix, name.decode()).state, "format")
                found += sum(number is not None and int(number) != FORMAT for number in pipeline.execute())
        return found

    def note_ended(self, submitted: Mapping[str, float]) -> None:
        """List runs that have ended, and no longer the oldest ones that are kept no more."""
        key = ended_runs(self._prefix)
        with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.zadd(key, dict(submitted))
            pipeline.zrange(key, 0, _LOOKED_AFTER + len(submitted) - 1)
            _, oldest = pipeline.execute()
        with self._redis.pipeline(transaction=False) as pipeline:
            for name in oldest:
                pipeline.exists(Keys(self._prefix, name.decode()).state)
            kept = pipeline.execute()
        if gone := [name for name, is_kept in zip(oldest, kept, strict=True) if not is_kept]:
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

    def _listed(self, key: str) -> Iterator[tuple[float, str]]:
        """By time and id, not by position: some leave the list meanwhile."""
        last, passed = inf, set[str]()  # those of the last time
        while True:
            found: Any = self._redis.zrevrangebyscore(
                key, last, "-inf", start=0, num=len(passed) + _AT_ONCE, withscores=True
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

    def __init__(self, redis: AsyncioRedis, settings: Settings) -> None:
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
