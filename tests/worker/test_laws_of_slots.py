"""Whatever calls come and go, slots are neither exceeded nor left idle while somebody waits, and everybody gets one."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis

from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.broker.attempts import CallId
from acts_celery.worker.store.connections import connect_async
from acts_celery.worker.store.slots import Slots, Slotted

from .backend import settings_for

Step = tuple[str, Any, Any]
NAMES = {"activity:a": 1, "activity:b": 2, "delegate:c": 3}
RUNS = {"x": 2, "y": 4}
_ENOUGH = 200
"""Steps within which all that have come can have gone."""
LIMITS = NAMES | {f"run:{run}": limit for run, limit in RUNS.items()}


def _holder(call: CallId) -> str:
    """How a call is named among those that hold a slot."""
    return f"{call.run}\x1f{call.member}"


@dataclass
class House:
    """The slots, and what they are to be: who works, who waits, whom nobody has woken yet."""

    redis: Redis
    prefix: str
    slots: Slots
    working: dict[CallId, Mapping[str, int]] = field(default_factory=dict)
    waiting: dict[CallId, Mapping[str, int]] = field(default_factory=dict)
    woken: list[CallId] = field(default_factory=list)

    async def come(self, call: CallId, limits: Mapping[str, int]) -> None:
        if call in self.working:
            return
        self.woken = [woken for woken in self.woken if woken != call]
        slotted = await self.slots.acquire([(call, limits)])
        (is_granted,) = slotted.granted
        self.waiting.pop(call, None)
        (self.working if is_granted else self.waiting)[call] = limits
        self.take(slotted)

    async def go(self, call: CallId) -> None:
        self.take(await self.slots.release([(call, self.working.pop(call))]))

    async def answer(self, position: int) -> None:
        """A lane that was published comes."""
        call = self.woken[position % len(self.woken)]
        await self.come(call, self.waiting[call])

    def take(self, slotted: Slotted) -> None:
        assert all(call in self.waiting for call in slotted.handed)
        self.woken.extend(slotted.handed)

    async def verify(self) -> None:
        key = f"{self.prefix}:{{slots}}"
        async with self.redis.pipeline(transaction=False) as pipeline:
            for name in LIMITS:
                pipeline.zrange(f"{key}:holders:{name}", 0, -1)
                pipeline.exists(f"{key}:turns:{name}")
            found = await pipeline.execute()
        for (name, limit), members, waits in zip(LIMITS.items(), found[::2], found[1::2], strict=True):
            held = {member.decode() for member in members}
            at_work = {_holder(call) for call, limits in self.working.items() if name in limits}
            assert at_work <= held <= at_work | set(map(_holder, self.woken))
            assert len(held) <= limit, "more than are allowed"
            assert not waits or len(held) == limit, "a slot is idle though somebody waits"


calls = st.builds(
    CallId, st.sampled_from(sorted(RUNS)), st.none() | st.sampled_from(["①", "a\x1fb"]), st.integers(0, 5)
)
limits = st.tuples(st.booleans(), st.sampled_from([None, *NAMES])).filter(any)
steps = st.lists(
    st.tuples(st.just("come"), calls, limits)
    | st.tuples(st.just("go"), st.integers(0, 99), st.none())
    | st.tuples(st.just("answer"), st.integers(0, 99), st.none()),
    min_size=20,
    max_size=50,
)


@settings(max_examples=settings().max_examples // 5)
@given(steps)
def test_slots_are_never_exceeded_never_idle_and_no_call_waits_for_ever(
    server: EmbeddedServer, taken: list[Step]
) -> None:
    asyncio.run(_live_through(server, taken))


async def _live_through(server: EmbeddedServer, taken: list[Step]) -> None:
    prefix = f"law.{secrets.token_hex(6)}"
    known: dict[CallId, Mapping[str, int]] = {}
    async with connect_async(settings_for(server, key_prefix=prefix)) as redis:
        house = House(redis, prefix, Slots(redis, prefix=prefix))
        for what, which, how in taken:
            if what == "come":
                in_run, name = how
                wanted = ({f"run:{which.run}": LIMITS[f"run:{which.run}"]} if in_run else {}) | (
                    {name: NAMES[name]} if name else {}
                )
                await house.come(which, known.setdefault(which, wanted))
            elif what == "go" and house.working:
                await house.go([*house.working][which % len(house.working)])
            elif what == "answer" and house.woken:
                await house.answer(which)
            await house.verify()
        for _ in range(_ENOUGH):
            if house.woken:
                await house.answer(0)
            elif house.working:
                await house.go(next(iter(house.working)))
            await house.verify()
            if not (house.woken or house.working):
                break
        assert house.waiting == {}
        assert [key async for key in redis.scan_iter(f"{prefix}*")] == []
