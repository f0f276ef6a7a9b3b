"""Admission: which of a lane's calls may begin now, where the number of calls at work is limited.

A limit is set by `@activity(max_concurrency=…)`, `@delegate(…, max_concurrency=…)`, the `config` of a request
definition or of a submission, or `ACTS_LIMIT_RUN_CONCURRENCY`. It holds for calls whose end is awaited: what is sent
and forgotten is out of sight. Where nothing is limited, nothing is asked.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

from broker_config import Settings
from protocol.calls import Call
from protocol.execution import Start
from protocol.tools import Executor

from .activities import Activity, Delegate, Registry
from .definition import Definition
from .lane import LaneView
from .messages import TaskMessage, lane_task
from .slots import SlotCall, Slots

MAX_CONCURRENCY = "max_concurrency"
"""The property of a `config` that limits how many calls are at work at a time."""


class Admission:
    """The calls of one drive at the door."""

    def __init__(
        self,
        slots: Slots,
        lane: LaneView,
        registry: Registry,
        settings: Settings,
        publish: Callable[[Sequence[TaskMessage]], Awaitable[None]],
    ) -> None:
        self._slots = slots
        self._run = lane.run.run
        self._instance = lane.instance
        self._registry = registry
        self._settings = settings
        self._publish = publish
        definition = lane.run.definition
        self._limits = {call.index: limits for call in lane.calls if (limits := self._limits_of(call, definition))}

    async def admit(self, starts: Sequence[Start]) -> list[Start]:
        """Those of the starts that have a slot, or need none. The others wait until the lane is published for them."""
        limited = [start for start in starts if start.call.index in self._limits]
        if not limited:
            return list(starts)
        slotted = await self._slots.acquire(
            [(self._slot_call(start.call.index), self._limits[start.call.index]) for start in limited]
        )
        granted = {start.call.index for start, is_granted in zip(limited, slotted.granted, strict=True) if is_granted}
        await self._wake({(call.run, call.instance) for call in slotted.handed})
        return [start for start in starts if start.call.index in granted or start.call.index not in self._limits]

    async def release(self, indexes: Iterable[int]) -> frozenset[int]:
        """Give back the slots of calls that have ended or rest. Returns calls of this lane that waited and have one."""
        held = [(self._slot_call(index), self._limits[index]) for index in indexes if index in self._limits]
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

    def _slot_call(self, index: int) -> SlotCall:
        return SlotCall(self._run, self._instance, index)

    def _limits_of(self, call: Call, definition: Definition) -> Mapping[str, int]:
        """The names that limit a call, and how many calls of each may be at work."""
        if call.is_fire_and_forget:
            return {}
        name = call.runner.name
        limits = {f"run:{self._run}": definition.config.get(MAX_CONCURRENCY, self._settings.limit_run_concurrency)}
        if call.runner.executor is Executor.ACTIVITY:
            limits[f"activity:{name}"] = _limit_of(self._registry.activities.get(name))
        elif call.runner.executor is Executor.DELEGATE and name in definition.delegates:
            limits[f"delegate:{name}"] = (definition.delegates[name].get("config") or {}).get(MAX_CONCURRENCY)
        elif call.runner.executor is Executor.DELEGATE:
            limits[f"delegate:{name}"] = _limit_of(self._registry.delegates.get(name))
        return {name: limit for name, limit in limits.items() if limit is not None}


def _limit_of(code: Activity | Delegate | None) -> int | None:
    return code.policy.max_concurrency if code is not None else None
