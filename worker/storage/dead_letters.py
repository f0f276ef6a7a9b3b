"""Dead letters: fire-and-forget calls that failed for good, kept for operators (SPEC R5.3).

A letter holds everything needed to send its call again. There is one for a call, by its id, however often its death is
told; where there are more than `ACTS_LIMIT_DEAD_LETTERS` the oldest go, and none is kept longer than an ended run
(`ACTS_RETENTION_SECONDS`).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from redis import Redis

from acts_celery.broker_config import Settings
from acts_celery.worker.batches import batches
from acts_celery.worker.errors import LetterNotFound
from acts_celery.worker.wire.attempts import CallId
from acts_celery.worker.wire.packing import pack, unpack
from acts_celery.worker.wire.task_messages import TaskMessage, pack_task, unpack_task

from .audit import audit_record
from .condition import Condition, Kind
from .connections import redis_errors
from .due import DueRuns
from .fields import AUDIT
from .keys import Keys, active_runs

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 500


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
        """As `acts dead list --json` prints it."""
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
        """What the call was sent with: its parameters, its scopes."""
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
        """All of them, or those of a run, the oldest first."""
        with redis_errors(self._settings):
            ids: Any = self._redis.zrange(self._times, 0, -1)
        if run is not None:
            ids = [id_ for id_ in ids if id_.decode().startswith(f"{run}:")]
        pages = map(self._read, batches(ids, _AT_ONCE))
        return [letter for page in pages for letter in page if run in (None, letter.call.run)]

    def count(self) -> int:
        """How many there are."""
        with redis_errors(self._settings):
            found: Any = self._redis.zcard(self._times)
        return int(found)

    def get(self, id_: str) -> DeadLetter:
        """One letter. Raises `LetterNotFound`."""
        found = self._read([id_.encode()])
        if not found:
            raise LetterNotFound(f"no dead letter {id_!r}: `acts dead list` shows those there are")
        return found[0]

    def resend(self, ids: Iterable[str]) -> None:
        """Have calls sent again by a worker, within a second or so. Raises `LetterNotFound`.

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
        """Forget calls for ever. Raises `LetterNotFound`."""
        letters = [self.get(id_) for id_ in ids]
        self.forget_calls(letter.call for letter in letters)
        self._tell("dropped", letters)

    def counts(self) -> Counter[str]:
        """How many each run has."""
        with redis_errors(self._settings):
            ids: Any = self._redis.zrange(self._times, 0, -1)
        return Counter(id_.decode().partition(":")[0] for id_ in ids)

    def forget_runs(self, runs: Set[str]) -> None:
        """Forget those of runs that are deleted."""
        with redis_errors(self._settings):
            ids: Any = self._redis.zrange(self._times, 0, -1)
            names = [id_ for id_ in ids if id_.decode().partition(":")[0] in runs]
            for page in batches(names, _AT_ONCE):
                self._redis.hdel(self._letters, *page)
                self._redis.zrem(self._times, *page)

    def forget_instances(self, run: str, instances: Set[str]) -> int:
        """Forget those of instances of a run; returns how many there were."""
        found = [letter.call for letter in self.list(run) if letter.call.instance in instances]
        self.forget_calls(found)
        return len(found)

    def forget_calls(self, calls: Iterable[CallId]) -> None:
        """Forget those of calls, such as are carried out again."""
        for names in batches((call.idempotency_key for call in calls), _AT_ONCE):
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
                self._redis.xadd(log, {AUDIT: done.pack()}, nomkstream=True)
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
