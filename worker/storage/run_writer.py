"""Writing a run down: a checked plan becomes the run's keys in Redis.

The run is listed first, then its keys are written, and it is started by one last command, so that half
of it never counts as a run; what a writer that died here has left, the sweep removes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, count, islice
from types import MappingProxyType
from typing import Any, Final

from redis import Redis
from redis.client import Pipeline

from acts_celery.broker_config import Settings, is_cluster
from acts_celery.protocol import Plan
from acts_celery.protocol.engine.loop import Loop, LoopLimits
from acts_celery.protocol.graph.lanes import Lane
from acts_celery.worker.messaging.attempts import lane_token
from acts_celery.worker.messaging.packing import pack

from .audit import Deed
from .definition import FORMAT, approve_ms, gather_counts, pack_definition, pack_lane, promises_due
from .due import DueRuns
from .keys import Keys, active_runs, due_runs
from .leases import PUBLISHED_SECONDS
from .loop_entries import LOOP
from .retention import delete_run

_PUBLISHED_MS: Final = int(PUBLISHED_SECONDS * 1000)
_COMMANDS: Final = 1_000
"""How many commands in one pipeline, and how many values in one command."""

Command = Callable[[Pipeline], Any]
Fields = dict[Any, Any]
"""Of a stream's entry, as redis-py takes them."""


class RunWriter:
    """Writes runs down. All of it raises `RedisError`."""

    def __init__(self, redis: Redis, settings: Settings) -> None:
        self._redis = redis
        self._settings = settings

    def write(
        self,
        plan: Plan,
        keys: Keys,
        milliseconds: int,
        order: Deed,
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> list[str]:
        """Write a run down and start it; `more` are fields of its state. Returns the lanes to be published."""
        try:
            commands = self._listing(keys, milliseconds), self._writing(plan, keys, milliseconds, order, more)
            # The nodes of a cluster take what is sent together in any order, and the run is to be listed first.
            for group in commands if is_cluster(self._settings.require_redis()) else [chain(*commands)]:
                self._execute(group)
        except BaseException:
            delete_run(self._redis, keys)
            raise
        return self._lanes(plan)[0]

    def mark_unpublished(self, keys: Keys, lanes: Sequence[str]) -> None:
        """Have the next sweep publish lanes, since it cannot be done now."""
        self._execute(_marking(keys.published, batch, 0, is_known=True) for batch in _batches(lanes))
        DueRuns(self._redis, keys.prefix).note(keys.run)

    def _listing(self, keys: Keys, milliseconds: int) -> Iterator[Command]:
        """The commands that list a run, so that what a client that dies leaves of it is found."""
        yield lambda p: p.zadd(active_runs(self._settings.key_prefix), {keys.run: milliseconds})
        yield lambda p: p.zadd(due_runs(self._settings.key_prefix), {keys.run: milliseconds + _PUBLISHED_MS})

    def _writing(
        self, plan: Plan, keys: Keys, milliseconds: int, order: Deed, more: Mapping[str, Any]
    ) -> Iterator[Command]:
        """The commands that write a run down; the last ones start it."""
        instances = plan.context.instances
        due = milliseconds + _PUBLISHED_MS
        yield lambda p: p.set(keys.definition, pack_definition(plan))
        for batch in _batches(instances):
            yield _pushing(keys.instances, batch)
        ids = (f"{milliseconds}-{sequence}" for sequence in count())
        last: dict[str, str] = {}
        for (lane, fields), id_ in zip(_entries(plan), ids, strict=False):
            yield _adding(keys.log, id_, {"l": lane, "p": last.get(lane, "0-0"), **fields})
            last[lane] = id_
        for lanes in _batches(list(last)):
            yield _setting(keys.lanes, {lane: f"{last[lane]}:0" for lane in lanes})
        if gathers := gather_counts(lane.gathers for lane in plan.lanes.values()):
            yield _setting(keys.gathers, dict(gathers))
        is_request = plan.submission.is_request
        published, backlog = self._lanes(plan)
        for lanes in _batches(published):
            yield _marking(keys.published, lanes, due)
        for lanes in _batches(backlog):
            yield _pushing(keys.backlog, lanes)
        state: dict[Any, Any] = {
            "format": FORMAT,
            "status": "running" if plan.size or is_request else "completed",
            "total": plan.size,
            "remaining": plan.size + is_request,
            **({"loop": Loop(LoopLimits()).name, "loop:lane": LOOP} if is_request else {}),
            "submitted": milliseconds,
            "look": due,
            **approve_ms(plan.submission.config),
            **(promises_due(plan.submission.config, milliseconds) if _waits_for_promises(plan) else {}),
            **more,
        }
        id_ = next(ids)
        yield _adding(keys.log, id_, {"s": state["status"], "w": order.pack()})
        yield _adding(keys.statuses, id_, {"s": state["status"]})
        yield lambda p: p.hset(keys.state, mapping=state)

    def _lanes(self, plan: Plan) -> tuple[list[str], list[str]]:
        """The lanes with something to do, the global one first: those published at once, and those that follow."""
        lanes = [lane_token(instance) for instance, lane in plan.lanes.items() if _has_work(lane)]
        lanes.sort(key=bool)
        lanes += [LOOP] if plan.submission.is_request else []
        window = self._settings.publish_window
        return lanes[:window], lanes[window:]

    def _execute(self, commands: Iterator[Command]) -> None:
        """Send the commands in pipelines of bounded size, in order."""
        while batch := list(islice(commands, _COMMANDS)):
            with self._redis.pipeline(transaction=False) as pipeline:
                for command in batch:
                    command(pipeline)
                pipeline.execute()


def _waits_for_promises(plan: Plan) -> bool:
    return any(lane.promised_places for lane in plan.lanes.values())


def _has_work(lane: Lane) -> bool:
    """Whether there are calls to run, or gather calls wait there for something."""
    return bool(lane.calls) or (lane.gathers is not None and bool(lane.gathers.waiting))


def _entries(plan: Plan) -> Iterator[tuple[str, Fields]]:
    """The lanes and fields of a submission's entries: the messages in order, each lane's record with its first."""
    is_template = plan.submission.is_template
    records = {lane_token(instance): pack_lane(lane, is_template=is_template) for instance, lane in plan.lanes.items()}
    for message in plan.context.messages:
        lane = lane_token(message.get("_instance"))
        record = {"k": records.pop(lane)} if lane in records else {}
        yield lane, {**record, "m": pack(message)}
    for lane, left in records.items():
        yield lane, {"k": left}


def _adding(stream: str, id_: str, fields: Fields) -> Command:
    return lambda p: p.xadd(stream, fields, id=id_)


def _setting(hash_: str, values: dict[Any, Any]) -> Command:
    return lambda p: p.hset(hash_, mapping=values)


def _marking(published: str, lanes: Sequence[str], due: int, *, is_known: bool = False) -> Command:
    return lambda p: p.zadd(published, dict.fromkeys(lanes, due), xx=is_known)


def _pushing(list_: str, values: Sequence[str]) -> Command:
    return lambda p: p.rpush(list_, *values)


def _batches(values: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(values), _COMMANDS):
        yield values[start : start + _COMMANDS]
