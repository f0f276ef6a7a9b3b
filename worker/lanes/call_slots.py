"""Admission: which of a lane's calls may begin now, where the number of calls at work is limited.

A limit is set by `@activity(max_concurrency=…)`, `@delegate(…, max_concurrency=…)`, the `config` of a request
definition or of a submission, or `ACTS_LIMIT_RUN_CONCURRENCY`. It holds for calls whose end is awaited: what is sent
and forgotten is out of sight. Where nothing is limited, nothing is asked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.calls.tools import Executor
from acts_celery.protocol.engine.decisions import Start
from acts_celery.worker.registry.activities import Activity, Delegate
from acts_celery.worker.storage.lane import LaneView
from acts_celery.worker.wire.attempts import CallId
from acts_celery.worker.wire.packing import pack
from acts_celery.worker.wire.task_messages import lane_task

from .services import Services

MAX_CONCURRENCY = "max_concurrency"
"""The property of a `config` that limits how many calls are at work at a time."""


class Admission:
    """The calls of one lane runner at the door."""

    def __init__(self, services: Services, lane: LaneView, refuse: Callable[[Iterable[int]], None]) -> None:
        """`refuse` is told which calls have no slot."""
        self._slots = services.slots
        self._refuse = refuse
        self._run = lane.run.run
        self._definition = lane.run.definition
        self._instance = lane.instance
        self._registry = services.registry
        self._settings = services.settings
        self._publish = services.publish

    async def admit(self, starts: Sequence[Start]) -> list[Start]:
        """Those of the starts that have a slot, or need none. The others wait until the lane is published for them."""
        limited = self._limited(start.call for start in starts)
        if not limited:
            return list(starts)
        slotted = await self._slots.acquire(limited)
        refused = {call.index for (call, _), is_granted in zip(limited, slotted.granted, strict=True) if not is_granted}
        self._refuse(refused)
        await self._wake({(call.run, call.instance) for call in slotted.handed})
        return [start for start in starts if start.call.index not in refused]

    async def release(self, calls: Iterable[Call]) -> frozenset[int]:
        """Give back the slots of calls that have ended or rest. Returns calls of this lane that waited and have one."""
        held = self._limited(calls)
        if not held:
            return frozenset()
        own, lanes = set(), set()
        for call in (await self._slots.release(held)).handed:
            if (call.run, call.instance) == (self._run, self._instance):
                own.add(call.index)
            else:
                lanes.add((call.run, call.instance))
        await self._wake(lanes)
        return frozenset(own)

    async def _wake(self, lanes: Collection[tuple[str, str | None]]) -> None:
        """Publish the lanes of calls that were handed a slot."""
        if lanes:
            queue = self._settings.queue_instances
            await self._publish([lane_task(run, instance, queue) for run, instance in lanes])

    def _limited(self, calls: Iterable[Call]) -> list[tuple[CallId, Mapping[str, int]]]:
        """Those of the calls that are limited, each with its limits."""
        limits = [(call, self._limits_of(call)) for call in calls]
        return [(CallId(self._run, self._instance, call.index), names) for call, names in limits if names]

    def _limits_of(self, call: Call) -> Mapping[str, int]:
        """The names that limit a call, and how many calls of each may be at work."""
        if call.is_fire_and_forget:
            return {}
        name, definition = call.runner.name, self._definition
        own = definition.config.get(MAX_CONCURRENCY)
        limits = {f"run:{self._run}": _tightest(own, self._settings.limit_run_concurrency)}
        if call.runner.executor is Executor.ACTIVITY:
            limits[f"activity:{name}"] = _limit_of(self._registry.activities.get(name))
        elif call.runner.executor is Executor.DELEGATE and name in definition.delegates:
            own = (definition.delegates[name].get("config") or {}).get(MAX_CONCURRENCY)
            if own is not None:
                limits[definition_slots(name, definition.delegates[name])] = own
        elif call.runner.executor is Executor.DELEGATE:
            limits[f"delegate:{name}"] = _limit_of(self._registry.delegates.get(name))
        return {name: limit for name, limit in limits.items() if limit is not None}


def definition_slots(name: str, definition: Mapping[str, Any]) -> str:
    """What the slots of a request definition are called: runs share them where the whole definition is the same, so a
    submission's own takes none from an operator's of that name.
    """
    return f"delegate:{name}:{hashlib.sha256(pack(definition)).hexdigest()[:12]}"


def _tightest(*limits: int | None) -> int | None:
    """What holds of several limits: a config can only tighten what the operator has set (SPEC R4.2a)."""
    return min((limit for limit in limits if limit is not None), default=None)


def _limit_of(code: Activity | Delegate | None) -> int | None:
    return code.policy.max_concurrency if code is not None else None
