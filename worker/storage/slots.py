"""Slots: how many calls of a name may be at work at a time, over all runs and workers (lua/slots.lua).

A drive acquires a slot before it claims a call and gives it back when the outcome is in the log. A call that gets none
waits in Redis, not in a worker: its lane is left, and published again when a slot is handed to it. What a worker that
died has left is put right by `reconcile`, which the sweep calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from acts_celery.worker.batches import batches
from acts_celery.worker.wire.attempts import CallId, lane_token

from .clock import server_ms
from .condition import Condition, Kind
from .grouping import GroupedCommands
from .keys import Keys
from .scripts import AsyncScript, Script
from .set_aside import readable

_UNCLAIMED_MS: Final = 5_000
"""How long a call may hold a slot and not have begun before its lane is published again."""
_AT_ONCE: Final = 1_000
"""How many calls or lanes in one command: the server does nothing else meanwhile."""

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Slotted:
    """What came of a request for slots."""

    granted: tuple[bool, ...]
    handed: tuple[CallId, ...]
    """Calls that had waited and hold a slot now: their lanes are to be published."""


class Slots:
    """The slots, as a worker's drives use them."""

    def __init__(self, redis: AsyncRedis, *, prefix: str) -> None:
        self._key = slots_key(prefix)
        self._script = AsyncScript(GroupedCommands(redis), "slots")

    async def acquire(self, wanted: Sequence[tuple[CallId, Mapping[str, int]]]) -> Slotted:
        """Ask for slots for calls, each with the names it needs and their limits; who gets none waits from now on."""
        calls = [{"call": _text(call), "run": call.run, "names": [*names.items()]} for call, names in wanted]
        answers = [await self._ask(acquire=some) for some in batches(calls, _AT_ONCE)]
        return Slotted(
            tuple(is_granted for answer in answers for is_granted in answer.granted),
            tuple(call for answer in answers for call in answer.handed),
        )

    async def release(self, held: Iterable[tuple[CallId, Iterable[str]]]) -> Slotted:
        """Give back what calls hold, or would hold; doing it twice does no harm."""
        return await self._ask(release=[(name, _text(call)) for call, names in held for name in names])

    async def _ask(self, **request: Sequence[Any]) -> Slotted:
        return _read(await self._script(self._key, _request(**request)))


class SlotKeeper:
    """Puts right what workers that died have left behind."""

    def __init__(self, redis: Redis, *, prefix: str) -> None:
        self._redis = redis
        self._prefix = prefix
        self._key = slots_key(prefix)
        self._script = Script(redis, "slots")

    def reconcile(self) -> set[str]:
        """Take slots from calls that have ended, and see to it that those handed over are taken.

        A lane to be published is marked as a lost one; the sweep publishes it, when it looks at the runs that are
        returned. One command where nothing is limited.
        """
        marked: set[str] = set()
        while self._reconcile_once(marked):
            pass
        return marked

    def _reconcile_once(self, marked: set[str]) -> bool:
        """One round; says whether slots were handed on, maybe to calls that have ended too."""
        found: Any = self._redis.hkeys(self._key)
        names = [*readable(self._key, found, bytes.decode, lambda name: self._redis.hdel(self._key, name))]
        if not names:
            return False
        with self._redis.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.zrange(f"{self._key}:holders:{name}", 0, -1, withscores=True)
                pipeline.lrange(f"{self._key}:turns:{name}", 0, -1)
            answers = pipeline.execute()
        holders = {
            (name, call): since
            for name, calls in zip(names, answers[::2], strict=True)
            for call, since in self._holders(name, dict(calls))
        }
        turns = [
            (name, run) for name, runs in zip(names, answers[1::2], strict=True) for run in self._turns(name, runs)
        ]
        statuses = self._run_statuses({call.run for _, call in holders} | {run for _, run in turns})
        drop = [pair for pair in turns if statuses[pair[1]] != b"running"]
        self._put_back([pair for pair in drop if statuses[pair[1]] == b"paused"])
        release, late = self._judge(holders, statuses)
        self._mark(late)
        marked.update(call.run for call in late)
        if not drop and not release:
            return False
        handed = _read(self._script(self._key, _request(drop=drop, release=release))).handed
        self._mark(handed)
        marked.update(call.run for call in handed)
        return bool(handed)

    def _holders(self, name: str, calls: Mapping[bytes, float]) -> Iterator[tuple[CallId, float]]:
        key = f"{self._key}:holders:{name}"
        return readable(
            key, calls, lambda call: (slot_call(call.decode()), calls[call]), partial(self._redis.zrem, key)
        )

    def _turns(self, name: str, runs: Iterable[bytes]) -> Iterator[str]:
        key = f"{self._key}:turns:{name}"
        return readable(key, runs, bytes.decode, partial(self._redis.lrem, key, 0))

    def _run_statuses(self, runs: Iterable[str]) -> dict[str, bytes | None]:
        names = list(runs)
        with self._redis.pipeline(transaction=False) as pipeline:
            for run in names:
                pipeline.hget(Keys(self._prefix, run).state, "status")
            return dict(zip(names, map(_found, pipeline.execute(raise_on_error=False)), strict=True))

    def _judge(
        self, holders: Mapping[tuple[str, CallId], float], statuses: Mapping[str, bytes | None]
    ) -> tuple[list[Pair], list[CallId]]:
        """Slots in which no call is at work or will be, and calls that were given one long ago and have not begun."""
        calls = list(dict.fromkeys(call for _, call in holders))
        with self._redis.pipeline(transaction=False) as pipeline:
            for call in calls:
                pipeline.hget(Keys(self._prefix, call.run).calls, call.member)
            entries = map(_found, pipeline.execute(raise_on_error=False))
        now_ms = server_ms(self._redis)
        found = dict(zip(calls, entries, strict=True))
        idle, late = [], []
        for (name, call), since in holders.items():
            condition, status = Condition.read(found[call]), statuses[call.run]
            is_at_work = condition is not None and condition.is_at_work
            begins = found[call] is None or (condition is not None and condition.kind in (Kind.LOST, Kind.RETRY))
            # One that was taken in the future was taken before the clock was set back.
            is_late = not 0 <= now_ms - since <= _UNCLAIMED_MS and not is_at_work
            has_ended = not (is_at_work or begins) or status not in (b"running", b"paused")
            if has_ended or (is_late and status == b"paused"):
                idle.append((name, _text(call)))
            if is_late and not has_ended:
                late.append(call)
        return idle, late

    def _mark(self, calls: Iterable[CallId]) -> None:
        """Have the sweep publish the calls' lanes, unless their tasks are on the way."""
        with self._redis.pipeline(transaction=False) as pipeline:
            for call in calls:
                pipeline.zadd(Keys(self._prefix, call.run).published, {lane_token(call.instance): 0}, nx=True)
            pipeline.execute()

    def _put_back(self, paused: Iterable[Pair]) -> None:
        """Let lanes of paused runs that wait for a slot wait for their run's going on instead."""
        for name, run in paused:
            waiting: Any = self._redis.zrange(f"{self._key}:waiting:{name}\x1f{run}", 0, -1)
            lanes = list(dict.fromkeys(lane_token(slot_call(call.decode()).instance) for call in waiting))
            for some in batches(lanes, _AT_ONCE):
                self._redis.rpush(Keys(self._prefix, run).backlog, *some)


def _found(answer: Any) -> Any:
    """An answer; nothing where a run's keys are broken. Raises what is wrong with the server."""
    if isinstance(answer, Exception):
        if "WRONGTYPE" not in str(answer):
            raise answer
        return None
    return answer


def slots_key(prefix: str) -> str:
    """The key of the slots, with which those beside it begin."""
    return prefix + ":{slots}"


def _text(call: CallId) -> str:
    """How holders and waiters are named."""
    return f"{call.run}\x1f{call.member}"


def slot_call(text: str) -> CallId:
    """The call that holds a slot, or waits for one."""
    run, member = text.split("\x1f", 1)
    return CallId.of_member(run, member)


def _request(**parts: Sequence[Any]) -> dict[str, Sequence[Any]]:
    request: dict[str, Sequence[Any]] = {"drop": (), "release": (), "acquire": ()}
    return request | parts


def _read(found: Mapping[str, Any]) -> Slotted:
    return Slotted(tuple(found["granted"]), tuple(map(slot_call, found["handed"])))
