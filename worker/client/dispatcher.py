"""The dispatcher: a checked plan becomes a run, and one Celery task per lane.

It is written down (`storage.run_writer`), then the first tasks are published, a window of them (see lua/window.lua). A
task that gets lost on the way, or that the broker does not take, is published by the sweep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from redis import Redis
from redis.exceptions import NoPermissionError, RedisError

from acts_celery.broker_config import Settings
from acts_celery.protocol import Plan
from acts_celery.worker.broker.publisher import Publisher
from acts_celery.worker.registry.activities import Registry
from acts_celery.worker.storage.audit import audit_record
from acts_celery.worker.storage.clock import ServerClock
from acts_celery.worker.storage.keys import Keys, make_run_id
from acts_celery.worker.storage.run_writer import RunWriter, TakenOver
from acts_celery.worker.storage.secret import read_tokens
from acts_celery.worker.wire.task_messages import TaskMessage
from acts_celery.worker.wire.traces import place_of_run

from .admission import admitted
from .forgetting import Forgetting, Forgotten
from .labels import NO_LABEL, Label, claimed, release
from .ownership import owner_fields
from .publishing import publish_lanes


class Dispatcher:
    """Starts runs."""

    def __init__(self, redis: Redis, publisher: Publisher, settings: Settings, registry: Registry) -> None:
        self._redis = redis
        self._clock = ServerClock(redis)
        self._writer = RunWriter(redis, settings)
        self._publisher = publisher
        self._settings = settings
        self._registry = registry

    def submit(
        self, plan: Plan, label: Label = NO_LABEL, files: Mapping[str, bytes] = MappingProxyType({})
    ) -> tuple[str, str | None]:
        """Write the run down with its files, start it, publish its tasks. Returns its id, and the id of its first
        status where it goes on from there.

        A label's id that a run has already stands for that run: nothing is done then. Raises `protocol.Rejected` where
        that run is another submission's, `OverLimit` where who has shown a token may not begin it.
        """
        milliseconds = self._clock.milliseconds()
        keys = Keys(self._settings.key_prefix, label.id or make_run_id(milliseconds))
        if label.id is not None and not claimed(self._redis, keys, label):
            return keys.run, None
        order = audit_record(self._settings, "submitted")
        try:
            trace = place_of_run(keys.run, label.trace).pack() if label.trace is not None else ""
            forgotten = self._forgotten(plan, keys.run, str(milliseconds), trace)
            more: dict[str, Any] = {**label.fields(), **owner_fields(self._settings)}
            more |= {"work": forgotten.work} if forgotten.work else {}
            with admitted(self._redis, self._settings, plan.size) as limits:
                more |= limits
                written = self._writer.write(plan, keys, milliseconds, order, more, forgotten.lanes, files)
        except TakenOver:
            if label.id is None or claimed(self._redis, keys, label):
                raise
            return keys.run, None
        finally:
            release(self._redis, keys, label)
        order.write_line(keys.run)
        self._publish(keys, written.lanes, forgotten.tasks)
        return keys.run, written.since if written.lanes else None

    def _forgotten(self, plan: Plan, run: str, born: str, trace: str) -> Forgotten:
        """What is sent with the run itself, which is born then. Nothing where the secret that its messages need may not
        be read.
        """
        begins = not plan.submission.is_request and not plan.waits_for_approval
        if begins and any(call.is_fire_and_forget for call in plan.calls):
            with suppress(NoPermissionError):
                tokens = read_tokens(self._redis, self._settings.key_prefix).of_run(born)
                return Forgetting(self._settings, self._registry).decide(plan, run, tokens, trace)
        return Forgotten()

    def _publish(self, keys: Keys, lanes: Sequence[str], forgotten: Sequence[TaskMessage]) -> None:
        """Publish the first tasks. The run has begun: where the broker does not take them, the sweep publishes them."""
        if not publish_lanes(self._publisher, self._settings, keys.run, lanes, forgotten, has="is submitted"):
            with suppress(RedisError):
                self._writer.mark_unpublished(keys, lanes)
