"""The one answer to what calls of a run wait for that is no call of it: a queue that nobody serves, code that fits, a
slot, a rate, another attempt, a person, a moment, a promised value, that the run goes on (SPEC R17.3).

A few keys are read, however many calls there are, and a few calls are named. The lanes of a run are read only where
something was promised in it.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

import msgpack
from redis import Redis
from redis.exceptions import RedisError

from ...broker_config import Settings
from ...protocol.engine.events import CallGivenBack
from ...protocol.engine.loop import Stage
from ...protocol.references import Reference
from .. import limits
from ..backoff import batches
from ..broker.attempts import CallId, call_name, read_progress
from ..broker.messages import TaskMessage, pack, pack_task, unpack, unpack_task
from ..errors import InfrastructureError, LetterNotFound
from .commits import DueRuns
from .connections import connect, redis_errors
from .definition import places_in
from .entries import moment_ms, read_entry
from .held_calls import audit_record
from .keys import LOOP, SCHEDULED, Condition, Field, Keys, Kind, active_runs, probes, processes
from .living import silent_processes
from .run_list import RunList
from .run_store import RunStore
from .scripts import UNREADABLE, iso_date, server_ms
from .slots import KEYED, MODEL, RATE, slot_call, slots_key
from .state import LaneState, RunState

T = TypeVar("T")

GIVEN_BACK: Final = "given_back"
"""Field of a run's state: the entry of the call that was given back last (see commit.lua)."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A call, and what it waits for."""

    call: str | None
    """Its id within the run; None where all of them wait."""
    for_: str
    """`queue`, `code`, `slot`, `rate`, `attempt`, `worker`, `person`, `moment`, `promise`, `resume` or `version`."""
    reason: str

    def to_dict(self) -> dict[str, str | None]:
        """The reason in JSON."""
        return {"call": self.call, "for": self.for_, "reason": self.reason}


def read_waiting(store: RunStore, run: RunState | None = None) -> list[Waiting]:
    """Say what calls of a run that has not ended wait for. Calls that wait for promised values are looked for in the
    lanes of `run`, or without it in the global lane and a few others. Raises `RedisError`.
    """
    redis, keys = store.redis, store.keys
    with redis.pipeline(transaction=False) as pipeline:
        pipeline.zrange(keys.leases, 0, limits.CALLS_LOOKED_AT - 1)
        pipeline.hmget(keys.state, "status", GIVEN_BACK, "approve_ms", "amending", "plan", "loop", "promises_due", "at")
        pipeline.zrange(keys.held, 0, limits.MOST_TOLD - 1, withscores=True)
        pipeline.zrange(keys.waits, 0, limits.MOST_TOLD - 1, withscores=True)
        pipeline.hgetall(probes(keys.prefix))
        pipeline.hgetall(slots_key(keys.prefix))
        pipeline.hgetall(processes(keys.prefix))
        *own, taken, limited, living = pipeline.execute(raise_on_error=False)
    for answer in own:
        if isinstance(answer, Exception):
            raise answer
    members, (status, given_back, approve_ms, amending, plan, loop, promises_due, at), held, timed = own
    # These are everybody's: one that somebody has broken is mended by the sweep, and tells nothing until then.
    taken, limited, living = ({} if isinstance(shared, Exception) else shared for shared in (taken, limited, living))
    calls = [member for member in members if b"@" not in member.rpartition(b"\x1f")[2]]
    if (
        not calls
        and not limited
        and not held
        and not timed
        and status not in (b"paused", b"scheduled")
        and promises_due is None
    ):
        return []
    now_ms = server_ms(redis)
    is_planned = plan is not None or (loop is not None and loop.decode().partition(":")[0] == Stage.PLANNED)
    found = [
        *_paused(keys.run, status, is_planned=is_planned, is_amended=amending is not None),
        *_scheduled(keys.run, status, at),
        *(_slots(redis, keys, limited, now_ms) if limited else ()),
        *_people(keys.run, held, approve_ms, now_ms),
        *_moments(keys.run, timed),
    ]
    if calls:
        with redis.pipeline(transaction=False) as pipeline:
            pipeline.hmget(keys.calls, calls)
            if given_back is not None:
                pipeline.xrange(keys.log, given_back, given_back)
            conditions, *given = pipeline.execute()
        found += _given_back(redis, keys, [entry for page in given for entry in page], now_ms)
        known = {one.call for one in found}
        silent = silent_processes(living, now_ms)
        for member, condition in zip(calls, map(Condition.read, conditions), strict=True):
            id_ = CallId.of_member(keys.run, member.decode())
            if condition is not None and id_.name not in known:
                held = (one for one in silent if one.holds(id_.run, id_.member, condition.holder))
                if condition.kind is Kind.RUNNING and (blocked := next(held, None)) is not None:
                    found.append(
                        Waiting(id_.name, "worker", f"it is at work in {blocked}: it, or another call, blocks it")
                    )
                else:
                    found += _of_condition(id_, condition, taken, now_ms)
    promises = _promises(store, run, int(promises_due) - now_ms) if promises_due is not None else ()
    return [*found[: limits.MOST_TOLD], *promises]


def _promises(store: RunStore, run: RunState | None, left_ms: int) -> Iterator[Waiting]:
    """The calls that wait for what a schema has promised, as the log says it (SPEC R6.3, R11.6)."""
    if run is None:
        run = RunState(store.definition())
        for instance in (None, *store.waiting_lanes(limits.WAITING_MOST_LANES)):
            run.feed(store.lane(instance))
    for lane in run.lanes.values():
        missing = missing_in(lane, run)
        for index in lane.open if missing else ():
            call = lane.known[index]
            places = [place for place in missing if call.readers_of(place) or any(map(place.overlaps, call.scopes))]
            if places and not lane.call(index).is_set_aside:
                text = f"for {', '.join(map(str, places))}, which is promised and has not come: see `acts send`"
                reason = f"{text}; the wait ends in {max(0, left_ms) // 1000} s"
                yield Waiting(call_name(index, lane.instance), "promise", reason)


def missing_in(lane: LaneState, run: RunState) -> list[Reference]:
    """List the promised places that calls of a lane read and that have not come, unless the run waits for them no
    more.
    """
    if moment_ms(run.gave_up) >= lane.laid_out_ms:
        return []
    named = places_in(lane.record.promised | lane.record.required)
    return [place for place in sorted(named, key=str) if not lane.fold.exists(place)]


def lies_in(condition: Condition) -> tuple[int, str] | None:
    """Since when (ms) the message of a call has been in which queue; None where it was taken, or is missing."""
    if condition.kind is not Kind.SENT:
        return None
    _, since, queue = condition.holder.split("/", 2)
    return (int(since), queue) if queue else None


@dataclass(frozen=True, slots=True)
class Deserted:
    """A queue with calls that no worker reads."""

    queue: str
    calls: int
    """How many calls were seen."""
    run: str
    """The run of one of them."""


def deserted(redis: Redis, prefix: str, served: Collection[str]) -> list[Deserted]:
    """The queues but for those that are served in which calls of runs lie, as far as they are found in so many runs.

    Where a probe is awaited from no other queue, nothing is looked at. Raises `RedisError`.
    """
    sent: Any = redis.hgetall(probes(prefix))
    asked = {queue.decode() for queue, known in sent.items() if known.split(b":")[1:2] != [b"0"]} - {*served}
    if not asked:
        return []
    listed: Any = redis.zrange(active_runs(prefix), 0, limits.CALLS_LOOKED_AT - 1)
    found = Counter[str]()
    of: dict[str, str] = {}
    for run, entry in _messages(redis, [Keys(prefix, run.decode()) for run in listed]):
        condition = Condition.read(entry)
        queue = condition.holder.split("/", 2)[-1] if condition is not None and condition.kind is Kind.SENT else ""
        if queue in asked:
            found[queue] += 1
            of.setdefault(queue, run)
    return [Deserted(queue, number, of[queue]) for queue, number in sorted(found.items())]


def _messages(redis: Redis, runs: Sequence[Keys]) -> Iterator[tuple[str, bytes]]:
    """The conditions of calls of some runs, and of what they have sent and forgotten, each with its run."""
    for some in batches(runs, limits.WAITING_RUNS_AT_ONCE):
        with redis.pipeline(transaction=False) as pipeline:
            for keys in some:
                pipeline.zrange(keys.leases, 0, limits.CALLS_LOOKED_AT - 1)
                pipeline.hvals(keys.outbox)
            answers = pipeline.execute()
            begun = [(keys, calls) for keys, calls in zip(some, answers[::2], strict=True) if calls]
            for keys, calls in begun:
                pipeline.hmget(keys.calls, calls)
            conditions = pipeline.execute()
        yield from ((keys.run, entry) for keys, sent in zip(some, answers[1::2], strict=True) for entry in sent)
        yield from ((keys.run, entry) for (keys, _), found in zip(begun, conditions, strict=True) for entry in found)


def _of_condition(id_: CallId, condition: Condition, taken: Mapping[bytes, bytes], now_ms: int) -> Iterator[Waiting]:
    if (lies := lies_in(condition)) is not None and now_ms - lies[0] > limits.LONG_IN_QUEUE_MS:
        since, queue = lies
        until = int(taken.get(queue.encode(), b"0").partition(b":")[0])
        if until < since:
            seconds = (now_ms - since) // 1000
            text = f"its message has been in the queue {queue} for {seconds} s, and no worker has taken a later one"
            yield Waiting(id_.name, "queue", f"{text}: see `acts doctor`")
    elif condition.kind is Kind.RETRY:
        left = max(0, int(condition.holder) - now_ms) / 1000
        failed = f"attempt {condition.failures} has failed" if condition.failures else "a worker has given it back"
        yield Waiting(id_.name, "attempt", f"{failed}, and the next attempt begins in {left:.0f} s")
    elif (losses := condition.attempt - condition.failures - 1) > 0 and condition.kind in (Kind.RUNNING, Kind.LOST):
        yield Waiting(id_.name, "attempt", f"its workers were lost {losses} times: see their logs")


def _given_back(redis: Redis, keys: Keys, entries: Iterable[Any], now_ms: int) -> Iterator[Waiting]:
    """The call that was given back last, where it is still."""
    for entry_id, fields in entries:
        entry = read_entry(entry_id, fields)
        if not isinstance(entry.event, CallGivenBack):
            continue
        call = CallId(keys.run, entry.instance, entry.event.call)
        found: Any = redis.hget(keys.calls, call.member)
        condition = Condition.read(found)
        if condition is not None and condition.kind in (Kind.RETRY, Kind.EACH, Kind.SENT):
            text = f"no worker's code admits it{_so_far(now_ms - moment_ms(entry.id))}: {entry.event.reason}"
            yield Waiting(call_name(entry.event.call, entry.instance), "code", text)


def _paused(run: str, status: bytes | None, *, is_planned: bool, is_amended: bool) -> Iterator[Waiting]:
    if status != b"paused":
        return
    if is_amended:
        text = "it is being amended: if its client has died, submit the same amendment again"
    elif is_planned:
        text = f"its plan waits for a person: `acts held {run}` shows it, then `acts approve {run} --plan DIGEST`"
    else:
        text = f"it is paused: `acts resume {run}`"
    yield Waiting(None, "resume", text)


def _scheduled(run: str, status: bytes | None, at: bytes | None) -> Iterator[Waiting]:
    if status == SCHEDULED.encode() and at is not None:
        text = f"it begins at {iso_date(int(at))}: `acts resume {run}` begins it now"
        yield Waiting(None, "moment", text)


def _people(run: str, held: Iterable[tuple[bytes, float]], approve_ms: bytes | None, now_ms: int) -> Iterator[Waiting]:
    """The calls that wait for a person, the one that has waited longest first."""
    for member, since in held:
        text = f"for a person: `acts held {run}` shows it{_so_far(now_ms - int(since))}"
        if approve_ms is not None:
            text += f"; it is rejected in {max(0, int(since) + int(approve_ms) - now_ms) // 1000} s"
        yield Waiting(CallId.of_member(run, member.decode()).name, "person", text)


def _moments(run: str, timed: Iterable[tuple[bytes, float]]) -> Iterator[Waiting]:
    """The calls that wait for a moment, the soonest first."""
    for member, due in timed:
        name = CallId.of_member(run, member.decode()).name
        text = f"it ends at {iso_date(int(due))}: `acts move {run} {name}` moves that"
        yield Waiting(name, "moment", text)


def _slots(redis: Redis, keys: Keys, found: Mapping[bytes, bytes], now_ms: int) -> Iterator[Waiting]:
    """The calls that wait for a slot, and who holds it, or until when its rate is used up; what cannot be read there is
    left to the sweep.
    """
    slots = slots_key(keys.prefix)
    limited = dict(_readable(found.items(), lambda pair: (pair[0].decode(), pair[1].decode())))
    with redis.pipeline(transaction=False) as pipeline:
        for name in limited:
            pipeline.zrange(f"{slots}:waiting:{name}\x1f{keys.run}", 0, limits.MOST_TOLD - 1, withscores=True)
        waits = zip(limited.items(), pipeline.execute(raise_on_error=False), strict=True)
        told = [(*limit, waiting) for limit, waiting in waits if isinstance(waiting, list) and waiting][
            : limits.MOST_TOLD
        ]
        for name, _, _ in told:
            pipeline.zrange(f"{slots}:holders:{name}", 0, 2)
            pipeline.zscore(f"{slots}:due", name)
        answers = pipeline.execute(raise_on_error=False)
    for (name, limit, waiting), holders, due in zip(told, answers[::2], answers[1::2], strict=True):
        what, for_ = _limit_text(name, limit), "rate" if name.startswith((RATE, MODEL)) else "slot"
        if for_ == "rate":
            soon = f"in {max(0, due - now_ms) / 1000:.1f} s" if isinstance(due, float) else "as soon as one has begun"
            more = f": the next one may begin {soon}"
        else:
            held = _readable(
                holders if isinstance(holders, list) else (), lambda holder: _held_by(holder.decode(), keys.run)
            )
            more = f", held by {', '.join(held) or 'nobody'}"
        for call, since in _readable(waiting, lambda pair: (slot_call(pair[0].decode()), int(pair[1]))):
            who = call.name if call.instance != LOOP else None
            yield Waiting(who, for_, f"for {what}{more}{_so_far(now_ms - since)}")


def _so_far(waited_ms: int) -> str:
    """How long a call has waited, where that is a second or more."""
    return f" ({waited_ms // 1000} s so far)" if waited_ms >= 1000 else ""


def _limit_text(name: str, limit: str) -> str:
    """A limit in words."""
    name, has_key, _ = name.partition(KEYED)
    each = " for each value of its key" if has_key else ""
    if not name.startswith((RATE, MODEL)):
        return f"a slot of {name} (limit {limit}{each})"
    most, window_ms, *tokens = limit.split("/")
    if name.startswith(MODEL):
        allowed = [f"{most} requests"] * (tokens != [most]) + [f"{each} tokens" for each in tokens]
        return f"the limit of the model {name.removeprefix(MODEL)} ({' and '.join(allowed)} a minute)"
    return f"the rate of {name.removeprefix(RATE)} ({most} in {int(window_ms) / 1000:g} s{each})"


def _readable(values: Iterable[Any], read: Callable[[Any], T]) -> Iterator[T]:
    """The values that can be read, where a stranger may have written them."""
    for value in values:
        try:
            made = read(value)
        except UNREADABLE:
            continue
        yield made


def _held_by(holder: str, run: str) -> str:
    call = slot_call(holder)
    return f"call {call.name}" if call.run == run else f"call {call.name} of run {call.run}"


# Requests to models that were not answered yet and are made again, as the sweep has noted them (see reports.lua).
#
# An entry is removed when its call has ended, and there are at most so many of a run.


def read_unanswered(store: RunStore) -> list[dict[str, Any]]:
    """List the requests of a run that are made again, the soonest first: of each the `call` (None: the loop's own), the
    error's `type` and `message`, how many `tries` have failed, `again_in_seconds`. Raises `RedisError`.
    """
    found: Any = store.redis.hgetall(store.keys.unanswered)
    if not found:
        return []
    entries: Any = store.redis.hmget(store.keys.calls, list(found))
    now_ms, requests = server_ms(store.redis), list[dict[str, Any]]()
    for (member, packed), entry in zip(found.items(), entries, strict=True):
        attempt, tries, at_ms, type_, why = msgpack.unpackb(packed, unicode_errors="replace")
        condition = Condition.read(entry)
        if condition is not None and (condition.kind, condition.attempt) == (Kind.RUNNING, attempt):
            id_ = CallId.of_member(store.run, member.decode())
            call, again = None if id_.instance == LOOP else id_.name, max(at_ms - now_ms, 0) / 1000
            requests.append({"call": call, "type": type_, "message": why, "tries": tries, "again_in_seconds": again})
    return sorted(requests, key=lambda one: float(one["again_in_seconds"]))


def read_progress_of(store: RunStore) -> list[dict[str, Any]]:
    """List the calls at work of a run that have reported their progress: of each the `call`, and `done`, `total` and
    `text` as far as it has said them. Raises `RedisError`.
    """
    found: Any = store.redis.hgetall(store.keys.progress)
    if not found:
        return []
    entries: Any = store.redis.hmget(store.keys.calls, list(found))
    reported = list[dict[str, Any]]()
    for (member, packed), entry in zip(found.items(), entries, strict=True):
        attempt, _, said = packed.partition(b":")
        condition, progress = Condition.read(entry), read_progress(said)
        is_at_work = condition is not None and condition.is_at_work and condition.attempt == int(attempt)
        if progress is not None and is_at_work:
            reported.append({"call": CallId.of_member(store.run, member.decode()).name, **progress.to_dict()})
    return reported


# Calls that are sent and not awaited (SPEC R5.1), on a backend that is about to be ended.


def await_background(
    settings: Settings, deadline: float | None, say: Callable[[str], None] = lambda _: None
) -> Sequence[DeadLetter]:
    """Wait until everything sent and not awaited is done or dead; returns what is dead.

    Waits until `deadline` (of `time.monotonic`), and says after some seconds what it waits for. Blocks on an event of
    the server's for each look at the outboxes. Raises `InfrastructureError` where time is over or the server is gone.
    """
    begun = time.monotonic()
    until = begun + limits.BACKGROUND_SECONDS if deadline is None else deadline
    has_said = False
    try:
        with connect(settings) as redis, redis.pubsub() as changes:
            redis.config_set("notify-keyspace-events", "Khg")
            changes.psubscribe(f"__keyspace@0__:{Keys(settings.key_prefix, '*').outbox}")
            runs = RunList(redis, settings.key_prefix)
            while left := sum(sent for *_, sent in runs.loads([*runs.under_way()], "status")):
                now = time.monotonic()
                if now >= until:
                    raise InfrastructureError(
                        f"{left} calls that were sent and forgotten were not done in time; they end now, with the "
                        f"embedded backend"
                    )
                if now - begun >= limits.BACKGROUND_QUIET_SECONDS and not has_said:
                    has_said = True
                    say(f"waiting for {left} calls that were sent and not awaited")
                patience = limits.BACKGROUND_LOOK_SECONDS if has_said else limits.BACKGROUND_QUIET_SECONDS
                changes.get_message(timeout=min(until - now, patience))
            return DeadLetters(redis, settings).list()
    except RedisError as error:
        raise InfrastructureError(f"the embedded server ended: {error}") from error


# Dead letters: fire-and-forget calls that failed for good, kept for operators (SPEC R5.3).
#
# A letter holds everything needed to send its call again. There is one for each call id, however often the death
# is reported. Beyond `ACTS_LIMIT_DEAD_LETTERS` the oldest are dropped, and none is kept longer than an ended run
# (`ACTS_RETENTION_SECONDS`).

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A fire-and-forget call that failed for good."""

    call: CallId
    task: TaskMessage
    error_type: str
    error_message: str
    attempts: int
    """How many executions were begun."""
    date: str
    """When it was given up (ISO 8601, UTC)."""

    @property
    def id(self) -> str:
        """The call's idempotency key."""
        return self.call.idempotency_key

    def to_dict(self) -> dict[str, Any]:
        """The JSON that `acts dead list --json` prints."""
        return {
            "id": self.id,
            "run": self.call.run,
            "instance": self.call.instance,
            "index": self.call.index,
            "activity": self.body.get("activity"),
            "delegate": self.body.get("delegate"),
            "task": self.task.task,
            "queue": self.task.queue,
            "error": {"type": self.error_type, "message": self.error_message},
            "attempts": self.attempts,
            "date": self.date,
        }

    @property
    def body(self) -> dict[str, Any]:
        """The message with which the call was sent: its parameters, its scopes."""
        fields: dict[str, Any] = unpack(self.task.body)
        return {name: value for name, value in fields.items() if name != "attempt"}


class DeadLetters:
    """All dead letters of a backend. Every method raises `InfrastructureError` where the log cannot be reached."""

    def __init__(self, redis: Redis, settings: Settings) -> None:
        self._redis = redis
        self._settings = settings
        self._letters = settings.key_prefix + ":{dead}:letters"
        self._times = settings.key_prefix + ":{dead}:times"
        self._due = DueRuns(redis, settings.key_prefix)

    def list(self, run: str | None = None) -> Sequence[DeadLetter]:
        """List the letters, or those of a run, the oldest first."""
        with redis_errors(self._settings):
            ids: Any = self._redis.zrange(self._times, 0, -1)
        if run is not None:
            ids = [id_ for id_ in ids if id_.decode().startswith(f"{run}:")]
        pages = map(self._read, batches(ids, limits.AT_ONCE))
        return [letter for page in pages for letter in page if run in (None, letter.call.run)]

    def count(self) -> int:
        """Count the letters."""
        with redis_errors(self._settings):
            found: Any = self._redis.zcard(self._times)
        return int(found)

    def get(self, id_: str) -> DeadLetter:
        """Read one letter. Raises `LetterNotFound`."""
        found = self._read([id_.encode()])
        if not found:
            raise LetterNotFound(f"no dead letter {id_!r}: `acts dead list` shows those there are")
        return found[0]

    def resend(self, ids: Iterable[str]) -> None:
        """Send calls again; a worker does so within a second or so. Raises `LetterNotFound`.

        They have all their attempts again; one that fails again has a dead letter again.
        """
        for letter in [self.get(id_) for id_ in ids]:
            keys, call = Keys(self._settings.key_prefix, letter.call.run), letter.call
            with redis_errors(self._settings):
                with self._redis.pipeline(transaction=True) as pipeline:
                    pipeline.hset(keys.outbox, call.member, str(Condition(Kind.RETRY, holder=f"0/{letter.task.queue}")))
                    pipeline.hset(keys.outbox_tasks, call.member, pack_task(letter.task))
                    pipeline.zadd(keys.outbox_due, {call.member: 0})
                    pipeline.srem(keys.dead_calls, call.member)
                    pipeline.execute()
                seconds: Any = self._redis.time()[0]
                self._redis.zadd(active_runs(self._settings.key_prefix), {call.run: seconds * 1000}, nx=True)
                self._due.note(call.run)
            self.forget_calls([letter.call])
            self._tell("resent", [letter])

    def drop(self, ids: Iterable[str]) -> None:
        """Delete dead letters for good. Raises `LetterNotFound`."""
        letters = [self.get(id_) for id_ in ids]
        self.forget_calls(letter.call for letter in letters)
        self._tell("dropped", letters)

    def counts(self) -> Counter[str]:
        """Count the letters of each run."""
        with redis_errors(self._settings):
            ids: Any = self._redis.zrange(self._times, 0, -1)
        return Counter(id_.decode().partition(":")[0] for id_ in ids)

    def forget_runs(self, runs: Set[str]) -> None:
        """Forget the letters of runs that are deleted."""
        with redis_errors(self._settings):
            ids: Any = self._redis.zrange(self._times, 0, -1)
            names = [id_ for id_ in ids if id_.decode().partition(":")[0] in runs]
            for page in batches(names, limits.AT_ONCE):
                self._redis.hdel(self._letters, *page)
                self._redis.zrem(self._times, *page)

    def forget_instances(self, run: str, instances: Set[str]) -> int:
        """Forget the letters of instances of a run; returns how many there were."""
        found = [letter.call for letter in self.list(run) if letter.call.instance in instances]
        self.forget_calls(found)
        return len(found)

    def forget_calls(self, calls: Iterable[CallId]) -> None:
        """Forget the letters of calls, such as are run again."""
        for names in batches((call.idempotency_key for call in calls), limits.AT_ONCE):
            with redis_errors(self._settings), self._redis.pipeline(transaction=True) as pipeline:
                pipeline.hdel(self._letters, *names)
                pipeline.zrem(self._times, *names)
                pipeline.execute()

    def _tell(self, did: str, letters: Sequence[DeadLetter]) -> None:
        """Note who did it, also in the logs of the runs that there are still."""
        for letter in letters:
            done = audit_record(self._settings, did, call=letter.call.index, instance=letter.call.instance)
            log = Keys(self._settings.key_prefix, letter.call.run).log
            with redis_errors(self._settings):
                self._redis.xadd(log, {Field.AUDIT: done.pack()}, nomkstream=True)
            done.write_line(letter.call.run)

    def add(self, letter: DeadLetter) -> None:
        """Keep a letter, unless the call has one already."""
        fields = [letter.call.run, letter.call.instance, letter.call.index, pack_task(letter.task)]
        packed = pack([*fields, letter.error_type, letter.error_message, letter.attempts, letter.date])
        milliseconds = datetime.fromisoformat(letter.date).timestamp() * 1000
        with self._redis.pipeline(transaction=True) as pipeline:
            pipeline.hsetnx(self._letters, letter.id, packed)
            pipeline.zadd(self._times, {letter.id: milliseconds}, nx=True)
            pipeline.zrangebyscore(self._times, 0, milliseconds - self._settings.retention_seconds * 1000)
            pipeline.expire(self._letters, self._settings.retention_seconds)
            pipeline.expire(self._times, self._settings.retention_seconds)
            pipeline.zcard(self._times)
            *_, expired, _, _, count = pipeline.execute()
        if expired:
            self._redis.zrem(self._times, *expired)
            self._redis.hdel(self._letters, *expired)
            count -= len(expired)
        if (excess := count - self._settings.limit_dead_letters) > 0:
            oldest: Any = self._redis.zpopmin(self._times, excess)
            self._redis.hdel(self._letters, *(id_ for id_, _ in oldest))
            logger.warning("%d dead letters were dropped to make room (ACTS_LIMIT_DEAD_LETTERS)", excess)

    def _read(self, ids: Sequence[bytes]) -> Sequence[DeadLetter]:
        with redis_errors(self._settings):
            found: Any = self._redis.hmget(self._letters, ids)
        return [_unpack(packed) for packed in found if packed is not None]


def _unpack(packed: bytes) -> DeadLetter:
    run, instance, index, task, error_type, error_message, attempts, date = unpack(packed)
    return DeadLetter(CallId(run, instance, index), unpack_task(task), error_type, error_message, attempts, date)
