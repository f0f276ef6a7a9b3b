"""Slots (lua/slots.lua) on a real server: who gets one, who waits, who is next, and what is left when somebody dies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from redis import Redis

from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.broker.attempts import CallId
from acts_celery.worker.store.connections import connect, connect_async
from acts_celery.worker.store.keys import Keys
from acts_celery.worker.store.slots import SlotKeeper, Slots, Slotted

from .backend import settings_for

T = TypeVar("T")
LIMITS = {"activity:a": 2}


class House:
    """The slots of one prefix, asked from plain code."""

    def __init__(self, server: EmbeddedServer, prefix: str) -> None:
        self.settings = settings_for(server, key_prefix=prefix)
        self.redis = Redis.from_url(server.redis_url, decode_responses=True)
        self.prefix = prefix

    def acquire(self, *calls: CallId, limits: dict[str, int] = LIMITS) -> Slotted:
        return self._do(lambda slots: slots.acquire([(call, limits) for call in calls]))

    def release(self, *calls: CallId, limits: dict[str, int] = LIMITS) -> Slotted:
        return self._do(lambda slots: slots.release([(call, limits) for call in calls]))

    def reconcile(self) -> None:
        with connect(self.settings) as redis:
            SlotKeeper(redis, prefix=self.prefix).reconcile()

    def keys(self, run: str) -> Keys:
        return Keys(self.prefix, run)

    def begin(self, run: str, status: str = "running") -> None:
        self.redis.hset(self.keys(run).state, "status", status)

    def enter(self, call: CallId, entry: str) -> None:
        """What the call's ledger says."""
        self.redis.hset(self.keys(call.run).calls, call.member, entry)

    def published(self, run: str) -> list[str]:
        found: Any = self.redis.zrange(self.keys(run).published, 0, -1)
        return list(found)

    def grow_old(self, taken_ms: float = 1) -> None:
        """Let all slots have been taken long ago, or at another time."""
        for key in self.redis.scan_iter(f"{self.prefix}:*:holders:*"):
            holders: Any = self.redis.zrange(key, 0, -1)
            self.redis.zadd(key, dict.fromkeys(holders, taken_ms))

    def names(self) -> set[str]:
        """Every key there is, without those of runs."""
        return set(self.redis.scan_iter(f"{self.prefix}:{{slots}}*"))

    def _do(self, act: Callable[[Slots], Awaitable[T]]) -> T:
        async def doing() -> T:
            async with connect_async(self.settings) as redis:
                return await act(Slots(redis, prefix=self.prefix))

        return asyncio.run(doing())


@pytest.fixture
def house(server: EmbeddedServer, request: pytest.FixtureRequest) -> House:
    return House(server, f"slots.{abs(hash(request.node.name))}")


def call(number: int, run: str = "r", instance: str | None = None) -> CallId:
    return CallId(run, instance or f"i{number}", 0)


def test_no_more_calls_get_a_slot_than_there_are_and_the_next_is_handed_one(house: House) -> None:
    first, second, third, fourth = (call(number) for number in range(4))
    assert house.acquire(first, second, third).granted == (True, True, False)
    assert house.acquire(fourth) == Slotted((False,), ())
    assert house.release(second).handed == (third,)
    assert house.acquire(third).granted == (True,)
    assert house.release(first, third).handed == (fourth,)


def test_asking_or_giving_back_twice_changes_nothing(house: House) -> None:
    first, second, third, fourth = (call(number) for number in range(4))
    assert house.acquire(first, first, second).granted == (True, True, True)
    house.acquire(third)
    house.acquire(fourth)
    assert house.acquire(third).granted == (False,)
    assert house.release(first).handed == (third,)
    assert house.release(first).handed == ()
    assert house.release(second).handed == (fourth,)


def test_runs_take_turns(house: House) -> None:
    limits = {"activity:a": 1}
    house.acquire(call(0, "wide"), limits=limits)
    house.acquire(*(call(number, "wide") for number in range(1, 5)), limits=limits)
    house.acquire(call(0, "small"), call(1, "small"), limits=limits)
    order, held = [], call(0, "wide")
    while handed := house.release(held, limits=limits).handed:
        (held,) = handed
        order.append(held.run)
    assert order == ["wide", "small", "wide", "small", "wide", "wide"]


def test_a_limit_that_was_raised_goes_to_those_who_wait_before_a_newcomer(house: House) -> None:
    house.acquire(*(call(number) for number in range(4)))
    slotted = house.acquire(call(4), limits={"activity:a": 3})
    assert slotted == Slotted((False,), (call(2),))


def test_a_call_that_two_names_limit_holds_both_or_none(house: House) -> None:
    limits = {"run:r": 2, "activity:a": 1}
    assert house.acquire(call(0), call(1), limits=limits).granted == (True, False)
    assert house.acquire(call(2), limits={"run:r": 2}).granted == (True,), "who waits takes no room"
    assert house.acquire(call(3), limits={"run:r": 2}).granted == (False,)
    assert set(house.release(call(0), limits=limits).handed) == {call(3), call(1)}
    assert house.acquire(call(1), limits=limits).granted == (False,), "its run has no room"
    assert house.release(call(3), limits={"run:r": 2}).handed == (call(1),)
    assert house.acquire(call(1), limits=limits).granted == (True,)


def test_a_lane_may_have_any_name(house: House) -> None:
    odd, other = call(0, instance="a\x1fb:\x1f1"), call(1)
    house.acquire(odd, limits={"activity:a": 1})
    house.acquire(other, limits={"activity:a": 1})
    assert house.release(odd, limits={"activity:a": 1}).handed == (other,)
    house.acquire(odd, limits={"activity:a": 1})
    assert house.release(other, limits={"activity:a": 1}).handed == (odd,)


def test_nothing_is_left_of_a_name_when_its_last_call_has_gone(house: House) -> None:
    house.acquire(call(0), call(1), call(2))
    assert house.names()
    house.release(call(0), call(1))
    house.release(call(2))
    assert house.names() == set()


@pytest.mark.parametrize("entry", ["done", "failed", "skipped"])
def test_the_slot_of_a_call_that_has_ended_is_handed_on(house: House, entry: str) -> None:
    house.begin("r")
    house.acquire(call(0), call(1), call(2))
    house.enter(call(0), entry)
    house.enter(call(1), "running:1:0:somebody")
    house.reconcile()
    assert house.published("r") == ["i2"], "its lane is to be published"
    house.enter(call(2), "sent:1:0:somebody")
    house.reconcile()
    assert house.release(call(1)).handed == ()


def test_slots_are_handed_on_until_one_has_a_use_for_them(house: House) -> None:
    house.begin("r")
    house.acquire(*(call(number) for number in range(9)))
    for number in range(8):
        house.enter(call(number), "skipped")
    house.reconcile()
    assert "i8" in house.published("r")
    assert house.redis.zcard(f"{house.prefix}:{{slots}}:holders:activity:a") == 1


@pytest.mark.parametrize("status", ["completed", "cancelled", None])
def test_a_run_that_is_over_neither_holds_nor_waits(house: House, status: str | None) -> None:
    house.begin("other")
    if status is not None:
        house.begin("r", status)
    house.acquire(*(call(number) for number in range(4)))
    house.enter(call(0), "running:1:0:somebody")
    house.acquire(call(0, "other"))
    house.reconcile()
    assert house.published("other") == ["i0"]
    assert house.release(call(0, "other")).handed == ()
    assert house.names() == set()


def test_lanes_of_a_paused_run_wait_for_their_run_and_not_for_a_slot(house: House) -> None:
    house.begin("r", "paused")
    house.acquire(*(call(number) for number in range(5)))
    for number in range(2):
        house.enter(call(number), "running:1:0:somebody")
    house.reconcile()
    assert house.redis.lrange(house.keys("r").backlog, 0, -1) == ["i2", "i3", "i4"]
    assert house.release(call(0), call(1)).handed == ()


@pytest.mark.parametrize("entry", [None, "lost:1:0:"])
def test_a_call_that_was_given_a_slot_and_does_not_begin_has_its_lane_published(
    house: House, entry: str | None
) -> None:
    house.begin("r")
    house.acquire(call(0))
    if entry is not None:
        house.enter(call(0), entry)
    house.reconcile()
    assert house.published("r") == [], "not before its time"
    house.grow_old()
    house.reconcile()
    assert house.published("r") == ["i0"]
    assert house.acquire(call(0)).granted == (True,)


def test_a_slot_that_was_taken_before_the_clock_was_set_back_does_not_count_as_fresh(house: House) -> None:
    house.begin("r")
    house.acquire(call(0), call(1))
    house.enter(call(1), "running:1:0:somebody")
    house.grow_old((time.time() + 86_400) * 1000)
    house.reconcile()
    assert house.published("r") == ["i0"]


def test_a_call_at_work_keeps_its_slot_however_long_it_takes(house: House) -> None:
    house.begin("r")
    house.acquire(call(0), call(1), call(2))
    house.enter(call(0), "running:1:0:somebody")
    house.enter(call(1), "sent:1:0:somebody")
    house.grow_old()
    house.reconcile()
    assert house.published("r") == []
    assert house.acquire(call(2)).granted == (False,)
