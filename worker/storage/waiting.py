"""What calls of a run wait for that is no call of it: a queue that nobody serves, code that fits, a slot, another try,
a person, that the run goes on (SPEC R17.3).

It is read from a few keys, however many calls there are, and names a few of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from redis import Redis

from acts_celery.protocol.engine.events import CallGivenBack
from acts_celery.protocol.engine.loop import Stage
from acts_celery.worker.batches import batches
from acts_celery.worker.wire.attempts import CallId, call_name

from .clock import server_ms
from .condition import Condition, Kind
from .entries import moment_ms, read_entry
from .keys import Keys, active_runs, probes, processes
from .living import silent_processes
from .set_aside import UNREADABLE
from .slots import slot_call, slots_key

T = TypeVar("T")

GIVEN_BACK: Final = "given_back"
"""Field of a run's state: the entry of the call that was given back last (see commit_claims.lua)."""
_MOST: Final = 200
"""Calls that are looked at."""
_MOST_TOLD: Final = 20
_RUNS_AT_ONCE: Final = 50
_LIES_MS: Final = 5_000
"""A message that lies in its queue for so long is told of."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A call, and what it waits for."""

    call: str | None
    """Its id within the run; None where all of them wait."""
    for_: str
    """`queue`, `code`, `slot`, `attempt`, `worker`, `person`, `promise`, `resume` or `version`."""
    reason: str

    def to_dict(self) -> dict[str, str | None]:
        """As JSON."""
        return {"call": self.call, "for": self.for_, "reason": self.reason}


def read_waiting(redis: Redis, keys: Keys) -> list[Waiting]:
    """What calls of a run that has not ended wait for, as far as it is told. Raises `RedisError`."""
    with redis.pipeline(transaction=False) as pipeline:
        pipeline.zrange(keys.leases, 0, _MOST - 1)
        pipeline.hmget(keys.state, "status", GIVEN_BACK, "approve_ms", "amending", "plan", "loop")
        pipeline.zrange(keys.held, 0, _MOST_TOLD - 1, withscores=True)
        pipeline.hgetall(probes(keys.prefix))
        pipeline.hgetall(slots_key(keys.prefix))
        pipeline.hgetall(processes(keys.prefix))
        *own, taken, limits, living = pipeline.execute(raise_on_error=False)
    for answer in own:
        if isinstance(answer, Exception):
            raise answer
    members, (status, given_back, approve_ms, amending, plan, loop), held = own
    # These are everybody's: one that somebody has broken is mended by the sweep, and tells nothing until then.
    taken, limits, living = ({} if isinstance(shared, Exception) else shared for shared in (taken, limits, living))
    calls = [member for member in members if b"@" not in member.rpartition(b"\x1f")[2]]
    if not calls and not limits and not held and status != b"paused":
        return []
    now_ms = server_ms(redis)
    is_planned = plan is not None or (loop is not None and loop.decode().partition(":")[0] == Stage.PLANNED)
    found = [
        *_paused(keys.run, status, is_planned=is_planned, is_amended=amending is not None),
        *(_slots(redis, keys, limits, now_ms) if limits else ()),
        *_people(keys.run, held, approve_ms, now_ms),
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
    return found[:_MOST_TOLD]


def lies_in(condition: Condition) -> tuple[int, str] | None:
    """Since when (ms) the message of a call lies in which queue; None where it was taken, or has none."""
    if condition.kind is not Kind.SENT:
        return None
    _, since, queue = condition.holder.split("/", 2)
    return (int(since), queue) if queue else None


@dataclass(frozen=True, slots=True)
class Deserted:
    """A queue from which nobody takes, although calls lie there."""

    queue: str
    calls: int
    """Those that were seen."""
    run: str
    """Of one of them."""


def deserted(redis: Redis, prefix: str, served: Collection[str]) -> list[Deserted]:
    """The queues but for those that are served in which calls of runs lie, as far as they are found in so many runs.

    Where a probe is awaited from no other queue, nothing is looked at. Raises `RedisError`.
    """
    sent: Any = redis.hgetall(probes(prefix))
    asked = {queue.decode() for queue, known in sent.items() if known.split(b":")[1:2] != [b"0"]} - {*served}
    if not asked:
        return []
    listed: Any = redis.zrange(active_runs(prefix), 0, _MOST - 1)
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
    for some in batches(runs, _RUNS_AT_ONCE):
        with redis.pipeline(transaction=False) as pipeline:
            for keys in some:
                pipeline.zrange(keys.leases, 0, _MOST - 1)
                pipeline.hvals(keys.outbox)
            answers = pipeline.execute()
            begun = [(keys, calls) for keys, calls in zip(some, answers[::2], strict=True) if calls]
            for keys, calls in begun:
                pipeline.hmget(keys.calls, calls)
            conditions = pipeline.execute()
        yield from ((keys.run, entry) for keys, sent in zip(some, answers[1::2], strict=True) for entry in sent)
        yield from ((keys.run, entry) for (keys, _), found in zip(begun, conditions, strict=True) for entry in found)


def _of_condition(id_: CallId, condition: Condition, taken: Mapping[bytes, bytes], now_ms: int) -> Iterator[Waiting]:
    if (lies := lies_in(condition)) is not None and now_ms - lies[0] > _LIES_MS:
        since, queue = lies
        until = int(taken.get(queue.encode(), b"0").partition(b":")[0])
        if until < since:
            seconds = (now_ms - since) // 1000
            text = f"its message lies in the queue {queue} for {seconds} s, and nobody has taken what came after it"
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
            seconds = (now_ms - moment_ms(entry.id)) // 1000
            text = f"for {seconds} s no worker's code admits it: {entry.event.reason}"
            yield Waiting(call_name(entry.event.call, entry.instance), "code", text)


def _paused(run: str, status: bytes | None, *, is_planned: bool, is_amended: bool) -> Iterator[Waiting]:
    if status != b"paused":
        return
    if is_amended:
        text = "it is being amended: if who does that has died, hand the same amendment in again"
    elif is_planned:
        text = f"its plan waits for a person: `acts held {run}` shows it, then `acts approve {run} --plan DIGEST`"
    else:
        text = f"it is paused: `acts resume {run}`"
    yield Waiting(None, "resume", text)


def _people(run: str, held: Iterable[tuple[bytes, float]], approve_ms: bytes | None, now_ms: int) -> Iterator[Waiting]:
    """The calls that wait for a person, the one that has waited longest first."""
    for member, since in held:
        text = f"for {(now_ms - int(since)) // 1000} s for a person: `acts held {run}` shows it and what decides"
        if approve_ms is not None:
            text += f"; it is rejected in {max(0, int(since) + int(approve_ms) - now_ms) // 1000} s"
        yield Waiting(CallId.of_member(run, member.decode()).name, "person", text)


def _slots(redis: Redis, keys: Keys, found: Mapping[bytes, bytes], now_ms: int) -> Iterator[Waiting]:
    """The calls that wait for a slot, and who holds it; what cannot be read there is left to the sweep."""
    slots = slots_key(keys.prefix)
    limits = dict(_readable(found.items(), lambda pair: (pair[0].decode(), pair[1].decode())))
    with redis.pipeline(transaction=False) as pipeline:
        for name in limits:
            pipeline.zrange(f"{slots}:waiting:{name}\x1f{keys.run}", 0, _MOST_TOLD - 1, withscores=True)
            pipeline.zrange(f"{slots}:holders:{name}", 0, 2)
        answers = [answer if isinstance(answer, list) else [] for answer in pipeline.execute(raise_on_error=False)]
    for (name, limit), waiting, holders in zip(limits.items(), answers[::2], answers[1::2], strict=True):
        held = ", ".join(_readable(holders, lambda holder: _held_by(holder.decode(), keys.run))) or "nobody"
        for call, since in _readable(waiting, lambda pair: (slot_call(pair[0].decode()).name, int(pair[1]))):
            text = f"for {(now_ms - since) // 1000} s it waits for a slot of {name} (limit {limit}), held by {held}"
            yield Waiting(call, "slot", text)


def _readable(values: Iterable[Any], read: Callable[[Any], T]) -> Iterator[T]:
    """What can be read of values that a stranger may have written."""
    for value in values:
        try:
            made = read(value)
        except UNREADABLE:
            continue
        yield made


def _held_by(holder: str, run: str) -> str:
    call = slot_call(holder)
    return f"call {call.name}" if call.run == run else f"call {call.name} of run {call.run}"
