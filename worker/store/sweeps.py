"""The store of recovery: whose turn it is to sweep, probes, reports of calls, what is lost or due in runs, and
their outboxes.

Each step is a script (lua/recovery.lua, lua/reports.lua, lua/sweep.lua, lua/outbox.lua): a process that dies leaves it
whole or not begun, and two sweeps at a time do no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from redis import Redis
from redis.exceptions import LockError

from ...broker_config import Settings
from ...protocol.engine.events import Failure, Success
from .. import limits
from ..broker.attempts import CallId
from .commits import DueRuns
from .definition import FORMAT
from .held_calls import Actor, AuditRecord, HeldCall, read_held
from .keys import Condition, Keys, active_runs, awaiting_code, due_runs, probes, processes, recovery
from .living import Living
from .run_list import Parent
from .run_store import RunStore
from .run_writer import discard_run, expire_runs
from .scripts import Script, date_now, drop_entry, move_other_types, readable, server_ms
from .servers import others_reached, position_in

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """How long each thing may be silent in one sweep, in ms; the scripts' requests have these names."""

    lease_ms: int
    """A call at work, or the driver of a lane."""
    published_ms: int
    """A published task, before it counts as lost where its queue has been consumed."""
    heard_ms: int
    """A worker that has taken a remote call's message, until it reports that."""
    report_ms: int
    """A worker between two reports that a sweep reads."""
    soon_ms: int
    """The time until the next sweep."""
    consumed_until: Mapping[str, int] = field(default_factory=dict)
    """For each queue the time before which everything published there was taken: a probe came out."""
    suspended: bool = False
    """Heartbeats may have been missed: nothing at work is declared lost."""
    paused: Sequence[int] = ()
    """The servers of a log that has several of which the same holds."""

    def is_suspended(self, log: Redis, run: str) -> bool:
        """Whether nothing at work in a run is declared lost."""
        return self.suspended or (bool(self.paused) and position_in(log, run) in self.paused)


class SweepTurns:
    """The turns of the workers that sweep, and what all of them note beside the runs. All of it raises `RedisError`."""

    def __init__(self, redis: Redis, prefix: str, interval_seconds: float) -> None:
        self._redis = redis
        self._prefix = prefix
        self._interval_seconds = interval_seconds
        self._hear = Script(redis, "recovery", "hear")
        self._lock = redis.lock(f"{prefix}:sweeping", timeout=interval_seconds, blocking=False, thread_local=False)

    def oldest_run_ms(self) -> float | None:
        """Read when the oldest run under way was submitted; None where there is none."""
        found: Any = self._redis.zrange(active_runs(self._prefix), 0, 0, withscores=True)
        return float(found[0][1]) if found else None

    def begin(self) -> bool:
        """Begin a turn, unless another worker has one; one that would never end is ended for the next."""
        if self._lock.acquire():
            return True
        left: Any = self._redis.pttl(self._lock.name)
        if left == limits.NEVER_EXPIRES or left > limits.LONGEST_TURNS * 1000 * self._interval_seconds:
            self._redis.delete(self._lock.name)  # no worker sets it so, and none could sweep any more
        return False

    def extend(self, intervals: float) -> None:
        """Keep the others from sweeping for so long; where the turn is over, two sweep at a time and do no harm."""
        try:
            self._lock.extend(intervals * self._interval_seconds, replace_ttl=True)
        except LockError:
            self._lock.acquire()

    def note_contact(self, *, gap_ms: int, pause_ms: int, since_ms: int) -> bool:
        """Note that both servers were reached; returns whether recovery is suspended (see recovery.lua)."""
        return self._is_suspended(0, gap_ms, pause_ms, since_ms)

    def paused(self, *, gap_ms: int, pause_ms: int, since_ms: int) -> Iterator[int]:
        """Note which others of several servers were reached; yields those of which recovery is suspended."""
        for position in others_reached(self._redis):
            if self._is_suspended(position, gap_ms, pause_ms, since_ms):
                yield position

    def _is_suspended(self, position: int, gap_ms: int, pause_ms: int, since_ms: int) -> bool:
        request = {"gap_ms": gap_ms, "pause_ms": pause_ms, "since": since_ms}
        is_suspended: bool = self._hear(recovery(self._prefix, position), request)["is_suspended"]
        return is_suspended

    def some_runs(self, cursor: int) -> tuple[int, dict[str, float]]:
        """List a few of the runs under way, each with when it was submitted in ms, and the cursor of the next few."""
        key = active_runs(self._prefix)
        listed: Any = self._redis.zscan(key, cursor, count=limits.RUNS_A_SWEEP_VISITS)
        cursor, found = listed
        submitted: dict[bytes, float] = dict(found)
        names = readable(key, submitted, bytes.decode, partial(self._redis.zrem, key))
        return cursor, {name: submitted[name.encode()] for name in names}

    def move_other_types(self) -> None:
        """Set aside the keys beside the runs that have another type than a sweep expects."""
        hashes = (probes(self._prefix), recovery(self._prefix), processes(self._prefix))
        indexes = (active_runs(self._prefix), due_runs(self._prefix), awaiting_code(self._prefix))
        move_other_types(self._redis, {**dict.fromkeys(indexes, "zset"), **dict.fromkeys(hashes, "hash")})


class QueueProbes(NamedTuple):
    """The probes of one queue; times in ms of the server's clock."""

    consumed_until: int = 0
    """Before then everything was taken."""
    asked: int = 0
    """When the first probe was sent since one has come out; 0 where none is under way."""
    sent: int = 0
    """When the last one was sent."""


class ProbeTable:
    """The probes of all queues. All of it raises `RedisError`."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix
        self._key = probes(prefix)

    def read(self) -> dict[str, QueueProbes]:
        """Read them by queue. What was noted before the clock was set back says nothing of what came since."""
        found: Any = self._redis.hgetall(self._key)
        latest = server_ms(self._redis) + limits.AHEAD_MS if found else 0

        def read(queue: bytes) -> tuple[str, QueueProbes]:
            known = QueueProbes(*map(int, found[queue].split(b":")))
            return queue.decode(), known if max(known) <= latest else QueueProbes()

        return dict(readable(self._key, found, read, lambda queue: self._redis.hdel(self._key, queue)))

    def use_bands(self) -> None:
        """Note that messages have priorities from now on, so that each band of a queue is read by itself."""
        self._redis.hsetnx(recovery(self._prefix), "bands", 1)

    def has_bands(self) -> bool:
        """Whether messages may have priorities."""
        return bool(self._redis.hexists(recovery(self._prefix), "bands"))

    def write(self, queue: str, known: QueueProbes) -> None:
        """Write those of a queue."""
        self._redis.hset(self._key, queue, ":".join(map(str, known)))


class ReportedCalls:
    """The reports about calls of workers that see only the broker. All of it raises `RedisError`."""

    def __init__(self, redis: Redis, settings: Settings) -> None:
        self._redis = redis
        self._settings = settings
        self._note = Script(redis, "reports", "heartbeats")
        self._code_came = Script(redis, "reports", "code_came")

    def submitted(self, runs: Iterable[str]) -> list[str | None]:
        """Read when each run was submitted; None of one that is gone or broken."""
        with self._redis.pipeline(transaction=False) as pipeline:
            for run in runs:
                pipeline.hget(Keys(self._settings.key_prefix, run).state, "submitted")
            found = pipeline.execute(raise_on_error=False)
        return [value.decode() if isinstance(value, bytes) else None for value in found]

    def note(self, reported: Iterable[tuple[str, Mapping[str, Any]]], thresholds: Thresholds) -> list[Any]:
        """Note what is reported of each run, as the script takes it (see reports.lua); returns for each its answer, or
        the error of its keys.
        """
        common = {
            **asdict(thresholds),
            "instances": self._settings.queue_instances,
            "most_unanswered": limits.UNANSWERED_OF_A_RUN,
        }
        prefix = self._settings.key_prefix
        return self._note.try_all((Keys(prefix, run), {**common, **of_run}) for run, of_run in reported)

    def wake_given_back(self) -> Iterator[tuple[str, Any]]:
        """Have the calls that were given back tried again now; yields each run with its answer, or the error of its
        keys.
        """
        prefix = self._settings.key_prefix
        index = awaiting_code(prefix)
        self._redis.zremrangebyrank(index, 0, -limits.RUNS_AWAITING_CODE - 1)
        while found := cast(list[tuple[bytes, float]], self._redis.zpopmax(index, limits.REPORTED_CALLS_AT_ONCE)):
            runs = list(readable(index, dict(found), bytes.decode, partial(self._redis.zrem, index)))
            request = {"most": limits.REPORTED_CALLS_AT_ONCE}
            yield from zip(runs, self._code_came.try_all((Keys(prefix, run), request) for run in runs), strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptRun:
    """The findings in a run; the fields are those of the script's answer (see sweep.lua)."""

    status: str | None = None
    parent: str | None = None
    priority: int = 0
    lanes: list[str]
    suspects: list[str]
    let_out: list[str]
    lost: int
    is_all: bool
    forgotten: int
    next_ms: int
    awaited: list[str]
    pending_webhooks: list[str]
    waiting_for_silent: list[tuple[str, str]]


class RunSweep:
    """Finds what is lost or due in runs, and ends the life of those that are over. All of it raises `RedisError`."""

    def __init__(self, redis: Redis, settings: Settings) -> None:
        self._redis = redis
        self._settings = settings
        self._sweep = Script(redis, "sweep")

    def take(
        self, runs: Iterable[str], thresholds: Thresholds, living: Living, *, most_webhooks: int | None
    ) -> list[Any]:
        """Mark what is lost or due in each run as published again; returns for each an answer for `read`, or the error
        of its keys. `most_webhooks` says of how many held calls a web hook can be told; None where there is none.
        """
        request = {
            **asdict(thresholds),
            "most": limits.AT_ONCE,
            "date": date_now(),
            "instances": self._settings.queue_instances,
            "window": self._settings.publish_window,
            "format": FORMAT,
            "tells": most_webhooks is not None,
            "most_told": most_webhooks or 0,
            "telling_ms": int(limits.POSTING_SECONDS * 1000),
            "silent": {one.process: one.until_ms for one in living.silent},
            "silences": [one.since_ms for one in living.silent],
        }
        return self._sweep.try_all(
            (
                self._keys(run),
                request
                | {"holders": living.holders.get(run, {}), "suspended": thresholds.is_suspended(self._redis, run)},
            )
            for run in runs
        )

    def read(self, answer: bytes) -> SweptRun:
        """Read an answer of `take`. Raises one of `UNREADABLE`."""
        return SweptRun(**self._sweep.read(answer))

    def expire(self, runs: Iterable[str]) -> None:
        """Give the keys of runs that are over their expiry."""
        expire_runs(self._redis, self._settings.key_prefix, list(runs), self._settings.retention_seconds)

    def remove_unfinished(self, run: str, submitted_seconds: float) -> None:
        """Remove a run whose client died while it wrote; one that may still be at it is left alone."""
        if server_ms(self._redis) / 1000 - submitted_seconds > limits.SUBMITTING_SECONDS:
            discard_run(self._redis, self._settings.key_prefix, run)

    def is_awaited(self, parent: Parent, child: str) -> bool:
        """Whether the call that a child run is to answer still waits for it."""
        above = self._keys(parent.call.run)
        status = RunStore(self._redis, above).status()
        entry: Any = self._redis.hget(above.calls, parent.call.member)
        return status in ("running", "paused") and parent.waits_for(entry, child)

    def cancel_abandoned(self, parent: Parent, child: str) -> bool:
        """Cancel a workflow whose call belongs to a run that has ended otherwise than by cancelling, such as for a
        limit (SPEC R9.4); tell whether it was. A loop looks for itself.
        """
        run = RunStore(self._redis, self._keys(child))
        if RunStore(self._redis, self._keys(parent.call.run)).status() in ("running", "paused"):
            return False
        if run.fields("loop") != [None]:
            return False
        order = AuditRecord("cancelled", Actor(f"the end of run {parent.call.run}", "workers"))
        run.set_status("cancelled", order, window=self._settings.publish_window)
        return True

    def result(self, child: str, status: str) -> Success | Failure:
        """Read what a child run that has ended answers."""
        return RunStore(self._redis, self._keys(child)).answer(status)

    def _keys(self, run: str) -> Keys:
        return Keys(self._settings.key_prefix, run)


class OutboxTable:
    """The outboxes of runs: calls that were sent and forgotten and are not done. All of it raises `RedisError`."""

    def __init__(self, redis: Redis, settings: Settings) -> None:
        self._redis = redis
        self._settings = settings
        self._look_after = Script(redis, "outbox", "look_after", is_raw=True)
        self._take_dead = Script(redis, "outbox", "take_dead")
        self._note_given_back = Script(redis, "outbox", "note_given_back")

    def take_due(self, run: str, thresholds: Thresholds) -> dict[str, Any]:
        """Mark what was lost, or is due, as sent again; returns what the script answers (see outbox.lua), without the
        entries that cannot be read, which are set aside.
        """
        request = {**asdict(thresholds), "most": limits.OUTBOX_AT_ONCE, "limit_attempts": self._settings.limit_attempts}
        request["suspended"] = thresholds.is_suspended(self._redis, run)
        found = self._look_after(self._keys(run), request)
        for member in found["broken"]:
            self.set_aside(run, member)
        return found

    def readable(self, run: str, members: Collection[bytes], read: Callable[[bytes], T]) -> Iterator[T]:
        """Read the task of each call; one that `read` cannot read is removed."""
        return readable(self._keys(run).outbox_tasks, members, read, partial(self.remove, run))

    def set_aside(self, run: str, member: bytes) -> None:
        """Remove an entry that cannot be read, and say so in the log."""
        drop_entry(self._keys(run).outbox, member, partial(self.remove, run))

    def remove(self, run: str, member: bytes, attempts: int = 0) -> None:
        """Remove a call that is dead, unless it was sent again and has fewer attempts by now."""
        self._take_dead(self._keys(run), {"member": member, "attempts": attempts})

    def task(self, run: str, member: bytes, attempt: int) -> bytes | None:
        """Read the task of a call that this attempt has been sent with last; None where another one was sent since."""
        keys = self._keys(run)
        entry: Any = self._redis.hget(keys.outbox, member)
        task: Any = self._redis.hget(keys.outbox_tasks, member)
        found = Condition.read(entry)
        return bytes(task) if found is not None and found.attempt == attempt else None

    def note_given_back(self, call: CallId, attempt: int) -> tuple[int, int, int]:
        """Note that no code has come yet that admits a call; returns since when in ms, the server's time, and when a
        worker last began (SPEC R17.3).
        """
        found = self._note_given_back(self._keys(call.run), {"member": call.member, "attempt": attempt})
        return int(found.get("since", found["now"])), int(found["now"]), int(found["code_came"])

    def note_awaiting_code(self, run: str, now_ms: int) -> None:
        """List a run in which a call is to be tried again when a worker begins."""
        self._redis.zadd(awaiting_code(self._settings.key_prefix), {run: now_ms})

    def _keys(self, run: str) -> Keys:
        return Keys(self._settings.key_prefix, run)


class PendingWebhooks:
    """The held calls that are still to be posted to the operator's web hook. All of it raises `RedisError`."""

    def __init__(self, redis: Redis, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix
        self._due = DueRuns(redis, prefix)

    def call(self, run: str, member: str) -> HeldCall | None:
        """Read a held call; None where it waits no more. Raises `RunNotFound`."""
        return next(read_held(self._redis, Keys(self._prefix, run), only=member), None)

    def remove(self, run: str, member: str) -> None:
        """Remove a call that was posted, or waits no more."""
        self._redis.zrem(Keys(self._prefix, run).pending_webhooks, member)

    def put_off(self, call: HeldCall, delay_ms: Callable[[int], int]) -> None:
        """Have a call posted again after a delay, which follows from how long it has been held in ms."""
        now = server_ms(self._redis)
        delay = delay_ms(now - call.since_ms)
        pending = Keys(self._prefix, call.id.run).pending_webhooks
        self._redis.zadd(pending, {call.id.member: now + delay}, xx=True)
        self._due.note_until(call.id.run, delay)
