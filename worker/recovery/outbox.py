"""The outbox: what is sent and forgotten is kept in the log until it is done (SPEC R5.1, lua/outbox.lua).

It is written by the commit that records a call as sent, so that nothing sent is ever lost. The sweep sends again what
died with a worker and what is due to be tried again, also when the run has ended, and makes dead letters of the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from redis import Redis

from acts_celery.broker_config import Settings
from acts_celery.protocol.engine.decisions import Failure
from acts_celery.worker.broker.publisher import Publisher
from acts_celery.worker.storage.clock import date_now
from acts_celery.worker.storage.condition import Condition
from acts_celery.worker.storage.dead_letters import DeadLetter, DeadLetters
from acts_celery.worker.storage.keys import Keys, awaiting_code
from acts_celery.worker.storage.scripts import Script
from acts_celery.worker.storage.secret import read_tokens
from acts_celery.worker.storage.set_aside import UNREADABLE, drop_entry, readable
from acts_celery.worker.wire.attempts import Attempt, CallId, lost
from acts_celery.worker.wire.giving_back import rest_of
from acts_celery.worker.wire.reports import Completion
from acts_celery.worker.wire.task_messages import TaskMessage, unpack_task, with_attempt

from .thresholds import Thresholds

_AT_ONCE: Final = 200


class Outbox:
    """Looks after the outboxes of runs."""

    def __init__(self, redis: Redis, publisher: Publisher, settings: Settings) -> None:
        self._redis = redis
        self._publisher = publisher
        self._settings = settings
        self._letters = DeadLetters(redis, settings)
        self._script = Script(redis, "outbox", is_raw=True)
        self._end = Script(redis, "outbox_end")
        self._given_back = Script(redis, "outbox_given_back")

    def sweep(self, run: str, thresholds: Thresholds) -> set[str]:
        """Send again what was lost or is due in a run.

        Returns the queues from which a probe is awaited.
        """
        keys = Keys(self._settings.key_prefix, run)
        request = {**asdict(thresholds), "most": _AT_ONCE, "limit_attempts": self._settings.limit_attempts}
        found = self._script(keys, request)
        for member in found["broken"]:
            drop_entry(keys.outbox, member, partial(self._remove, keys))
        if found["send"]:
            self._send(keys, found["send"])
        for member, number, failures, _, task in found["dead"]:
            failure = lost(number - failures - 1)
            try:
                self._letters.add(_letter(run, member, task, (failure.type, failure.message), number - 1))
            except UNREADABLE:
                drop_entry(keys.outbox, member, partial(self._remove, keys))
            else:
                self._remove(keys, member, number - 1)
        return {queue.decode() for queue in found["awaited"]}

    def _send(self, keys: Keys, calls: Sequence[Sequence[Any]]) -> None:
        tokens = read_tokens(self._redis, self._settings.key_prefix)
        known = {member: how for member, *how in calls}

        def task_of(member: bytes) -> TaskMessage:
            number, failures, is_repeated, task = known[member]
            call = CallId.of_member(keys.run, member.decode())
            token = tokens.given(Attempt(call, number)).token
            return with_attempt(unpack_task(task), number, failures, is_repeated=is_repeated, token=token)

        self._publisher.publish(list(readable(keys.outbox_tasks, known, task_of, partial(self._remove, keys))))

    def judged(self, run: str, completion: Completion) -> Completion:
        """What comes of a call: one that was given back is tried again, or has failed where it was so for too long
        (SPEC R17.3).
        """
        ref, error = completion.ref, completion.error
        if not completion.is_given_back or error is None:
            return completion
        member = CallId(run, ref.lane or None, ref.call).member
        keys = Keys(self._settings.key_prefix, run)
        found = self._given_back(keys, {"member": member, "attempt": ref.attempt})
        since, now = int(found.get("since", found["now"])), int(found["now"])
        wait_seconds = self._settings.contract_wait_seconds
        rest = rest_of(Failure(*error), since, now, wait_seconds, code_came_ms=int(found["code_came"]))
        if isinstance(rest, Failure):
            return Completion(ref, (rest.type, rest.message))
        self._redis.zadd(awaiting_code(keys.prefix), {run: now})
        return completion._replace(delay_seconds=rest)

    def bury(self, run: str, completions: Sequence[Completion]) -> None:
        """Make dead letters of calls that failed for good; they stay in the outbox until that is noted there."""
        keys = Keys(self._settings.key_prefix, run)
        for completion in completions:
            if completion.error is None or completion.delay_seconds is not None:
                continue
            member = CallId(run, completion.ref.lane or None, completion.ref.call).member.encode()
            entry: Any = self._redis.hget(keys.outbox, member)
            task: Any = self._redis.hget(keys.outbox_tasks, member)
            found = Condition.read(entry)
            if found is not None and found.attempt == completion.ref.attempt:
                self._letters.add(_letter(run, member, task, completion.error, completion.ref.attempt))

    def _remove(self, keys: Keys, member: bytes, attempts: int = 0) -> None:
        """Take out a call that is dead, unless it was sent again and has fewer attempts by now."""
        self._end(keys, {"member": member, "attempts": attempts})


def _letter(run: str, member: bytes, task: bytes, error: tuple[str, str], attempts: int) -> DeadLetter:
    return DeadLetter(CallId.of_member(run, member.decode()), unpack_task(task), *error, attempts, date_now())
