"""Limits of concurrency: slots, and who gets the next one."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis import Redis

from acts_celery import ActivitiesError, Client, activity
from acts_celery.broker_config import EmbeddedServer
from acts_celery.protocol import Rejected
from acts_celery.protocol.engine.costs import Estimate
from acts_celery.worker import fairness as lane_admission
from acts_celery.worker.broker.attempts import CallId
from acts_celery.worker.broker.consumer import lane_of
from acts_celery.worker.broker.messages import lane_task
from acts_celery.worker.fairness import FairPlaces, FairScheduling, FairSemaphore, LaneAdmission, may_hold_another
from acts_celery.worker.limits import STUCK_SECONDS
from acts_celery.worker.registry.models import likely_tokens
from acts_celery.worker.runner.deciding import definition_slots
from acts_celery.worker.store.connections import connect, connect_async
from acts_celery.worker.store.entries import id_key
from acts_celery.worker.store.keys import Keys
from acts_celery.worker.store.slots import KEYED, Limit, Rate, SlotKeeper, Slots, Slotted, Taken, Wanted, count_waiting

from .backend import Backend, Meeting, settings_apart, settings_for
from .test_house_faults import AppendedServer

# Slots (lua/slots.lua) on a real server: who gets one, who waits, who is next, and what is left when somebody dies.

T = TypeVar("T")
LIMITS = {"activity:a": 2}


class House:
    """The slots of one prefix, asked from plain code."""

    def __init__(self, server: EmbeddedServer, prefix: str) -> None:
        self.settings = settings_for(server, key_prefix=prefix)
        self.redis = Redis.from_url(server.redis_url, decode_responses=True)
        self.prefix = prefix

    def acquire(self, *calls: CallId, limits: Mapping[str, Limit] = LIMITS, key: str = "") -> Slotted:
        return self._do(lambda slots: slots.acquire([Wanted(call, limits, key) for call in calls]))

    def release(self, *calls: CallId, limits: Mapping[str, Limit] = LIMITS) -> Slotted:
        return self._do(lambda slots: slots.release([(call, limits, True) for call in calls]))

    def begun(self, *calls: CallId, limits: Mapping[str, Limit]) -> Slotted:
        return self._do(lambda slots: slots.begin([(call, limits) for call in calls]))

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


def wait_past(redis: Redis, milliseconds: int) -> None:
    """Return when the server has that much later."""
    redis.blpop(["nobody-writes-here"], milliseconds / 1000)


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


# Rates and keys.

HOURLY = {"rate:a": Rate(2, 3_600_000)}


def test_a_slot_of_a_rate_counts_until_its_window_is_over_and_not_until_its_call_ends(house: House) -> None:
    first, second, third = (call(number) for number in range(3))
    assert house.acquire(first, second, third, limits=HOURLY).granted == (True, True, False)
    assert house.begun(first, limits=HOURLY).handed == ()
    assert house.release(first, limits=HOURLY).handed == (), "it has begun, and counts"
    begun = f"{house.prefix}:{{slots}}:begun:rate:a"
    members: Any = house.redis.zrange(begun, 0, -1)
    (member,) = members
    house.redis.zadd(begun, {member: (time.time() - 3_601) * 1000})
    assert house.release(second, limits=HOURLY).handed == (third,)


def test_the_next_call_that_waits_for_a_rate_is_handed_its_slot_when_it_is_due(house: House) -> None:
    limits = {"rate:a": Rate(1, 100)}
    first, second = call(0), call(1)

    async def waiting() -> tuple[CallId, ...]:
        handed = asyncio.Queue[tuple[CallId, ...]]()

        async def wake(calls: Collection[CallId]) -> None:
            handed.put_nowait(tuple(calls))

        async with connect_async(house.settings) as redis:
            slots = Slots(redis, prefix=house.prefix, wake=wake)
            await slots.acquire([Wanted(first, limits), Wanted(second, limits)])
            await slots.begin([(first, limits)])
            began = monotonic()
            found = await asyncio.wait_for(handed.get(), 10)
            assert monotonic() - began >= 0.1
            return found

    assert asyncio.run(waiting()) == (second,)


def test_the_sweep_hands_on_what_is_due_where_no_process_does(house: House) -> None:
    limits = {"rate:a": Rate(1, 50)}
    house.begin("r")
    house.acquire(call(0), call(1), limits=limits)
    house.enter(call(0), "running:1:0:me/5/lathe")
    house.reconcile()  # its worker has reported it
    wait_past(house.redis, 60)
    house.reconcile()
    assert house.published("r") == ["i1"]


@pytest.mark.parametrize(
    ("entry", "has_begun"),
    [
        ("sent:1:0:me/5/lathe", False),
        ("sent:1:0:me/5/", False),
        ("running:1:0:me/5/", True),
        ("running:1:0:me", False),
        ("lost:1:0:me", True),
        (None, False),
    ],
)
def test_a_call_has_begun_when_its_worker_says_so_or_may_have_died_before_it_did(
    house: House, entry: str | None, has_begun: bool
) -> None:
    house.begin("r")
    house.acquire(call(0), limits=HOURLY)
    if entry is not None:
        house.enter(call(0), entry)
    house.grow_old()
    house.reconcile()
    assert house.redis.zcard(f"{house.prefix}:{{slots}}:begun:rate:a") == has_begun


def test_what_was_noted_before_the_clock_was_set_back_does_not_count_for_longer_than_a_window(house: House) -> None:
    house.acquire(call(0), call(1), limits=HOURLY)
    house.begun(call(0), call(1), limits=HOURLY)
    begun = f"{house.prefix}:{{slots}}:begun:rate:a"
    members: Any = house.redis.zrange(begun, 0, -1)
    house.redis.zadd(begun, dict.fromkeys(members, (time.time() + 86_400) * 1000))
    house.acquire(call(2), limits=HOURLY)
    due = house.redis.zscore(f"{house.prefix}:{{slots}}:due", "rate:a")
    assert due is not None
    assert due < (time.time() + 3_700) * 1000


def test_a_key_has_limits_of_its_own_and_nothing_is_left_of_one_that_nobody_uses(house: House) -> None:
    base, rate = f"activity:a{KEYED}", f"rate:a{KEYED}"

    def limits(key: str) -> dict[str, Limit]:
        return {base + key: 1, rate + key: Rate(1, 20)}

    assert house.acquire(call(0), limits=limits("x"), key="x").granted == (True,)
    assert house.acquire(call(1), limits=limits("x"), key="x").granted == (False,)
    assert house.acquire(call(2), limits=limits("y"), key="y").granted == (True,)
    house.begun(call(0), call(2), limits={base: 1, rate: 1})
    assert house.release(call(0), limits={base: 1, rate: 1}).handed == (call(1),), "who has a key need not know it"
    house.release(call(1), call(2), limits={base: 1, rate: 1})
    left = {name for name in house.names() if house.redis.pttl(name) < 0}
    assert left == set(), "all else expires"


def test_a_window_outlives_a_restart_of_the_server(tmp_path: Path) -> None:
    with EmbeddedServer() as server:
        house = House(server, "restarted")
        house.redis.config_set("appendonly", "yes")
        house.acquire(call(0), call(1), limits=HOURLY)
        house.begun(call(0), call(1), limits=HOURLY)
        house.redis.config_set("auto-aof-rewrite-percentage", 0)
        while house.redis.info("persistence")["aof_rewrite_in_progress"]:
            wait_past(house.redis, 10)
        shutil.copytree(server.directory / "appendonlydir", tmp_path / "appendonlydir")
    with AppendedServer(tmp_path) as restarted:
        assert House(restarted, "restarted").acquire(call(2), limits=HOURLY).granted == (False,)


@settings(max_examples=settings().max_examples // 5)
@given(
    most=st.integers(1, 3),
    taken=st.lists(st.tuples(st.sampled_from(["come", "begin", "wait"]), st.integers(0, 9)), max_size=40),
)
def test_in_no_window_begin_more_calls_than_a_rate_has_slots(
    server: EmbeddedServer, most: int, taken: list[tuple[str, int]]
) -> None:
    window_ms = 15
    limits = {"rate:a": Rate(most, window_ms)}
    house = House(server, f"rates.{secrets.token_hex(6)}")

    async def live() -> list[float]:
        began, granted = list[float](), set[CallId]()
        async with connect_async(house.settings) as redis:
            slots = Slots(redis, prefix=house.prefix)
            for what, number in taken:
                one = CallId(f"r{number % 2}", None, number)
                if what == "come":
                    granted |= {one} if (await slots.acquire([Wanted(one, limits)])).granted[0] else set()
                elif what == "begin" and one in granted:
                    granted.remove(one)
                    began.append(monotonic())
                    await slots.begin([(one, limits)])
                elif what == "wait":
                    await asyncio.sleep(number / 1000)
        return began

    began = asyncio.run(live())
    for at, moment in enumerate(began):
        within = [other for other in began[at:] if other - moment < window_ms / 1000]
        assert len(within) <= most


# What a model's provider allows: requests, and the tokens that they take.


class Provider(House):
    """The limit of one model."""

    def __init__(self, server: EmbeddedServer, rate: Rate) -> None:
        super().__init__(server, f"provider.{secrets.token_hex(6)}")
        self.limits: dict[str, Limit] = {"model:m": rate}

    def ask(self, one: CallId, tokens: int, *, lost: bool = False) -> bool:
        wanted = Wanted(one, self.limits, tokens=tokens, lost=lost)
        return self._do(lambda slots: slots.acquire([wanted])).granted[0]

    def end(self, one: CallId, taken: Taken | None = None, *, has_begun: bool = True) -> tuple[CallId, ...]:
        told = {one: taken} if taken is not None else {}
        return self._do(lambda slots: slots.release([(one, self.limits, has_begun)], told)).handed


def test_a_request_counts_with_what_it_may_take_and_then_with_what_it_has_taken(server: EmbeddedServer) -> None:
    provider = Provider(server, Rate(10, 3_600_000, tokens=100))
    first, second, third = (call(number) for number in range(3))
    assert provider.ask(first, 60)
    assert not provider.ask(second, 60)
    assert provider.end(first, Taken(30)) == (second,)
    assert not provider.ask(third, 20), "10 are left"
    assert provider.end(second) == (), "nobody knows what it has taken"
    assert provider.end(third) == ()


def test_a_large_request_is_not_overtaken_by_small_ones(server: EmbeddedServer) -> None:
    provider = Provider(server, Rate(10, 3_600_000, tokens=100))
    assert provider.ask(call(0), 50)
    assert not provider.ask(call(1), 80)
    assert not provider.ask(call(2, "other"), 1)
    with connect(provider.settings) as redis:
        assert count_waiting(redis, provider.prefix) == {"model:m": 2}
    assert provider.end(call(0), has_begun=False) == (call(1), call(2, "other"))


def test_what_was_not_sent_takes_nothing_and_the_tokens_of_one_that_has_ended_count_from_when_it_was_heard(
    server: EmbeddedServer,
) -> None:
    provider = Provider(server, Rate(1, 60_000))
    assert provider.ask(call(0), 0)
    assert provider.end(call(0), has_begun=False) == ()
    assert provider.ask(call(1), 0)
    provider.end(call(1), Taken(5, ago_ms=59_000))
    found: Any = provider.redis.zrange(f"{provider.prefix}:{{slots}}:begun:model:m", 0, -1, withscores=True)
    ((_, began),) = found
    assert 58_000 < time.time() * 1000 - began < 90_000


def test_an_attempt_that_was_lost_counts_and_the_next_waits_for_a_slot_of_its_own(server: EmbeddedServer) -> None:
    provider = Provider(server, Rate(2, 3_600_000, tokens=100))
    assert provider.ask(call(0), 40)
    assert provider.ask(call(0), 40, lost=True)
    assert not provider.ask(call(1), 1), "two have begun"
    assert not provider.ask(call(0), 40, lost=True)
    assert not provider.ask(call(0), 40)
    begun = f"{provider.prefix}:{{slots}}:begun:model:m"
    assert [str(member).rpartition(":")[2] for member in provider.redis.zrange(begun, 0, -1)] == ["40", "40"]


def test_one_that_can_never_begin_is_handed_a_slot_so_that_it_is_refused_and_holds_nobody_up(
    server: EmbeddedServer,
) -> None:
    provider = Provider(server, Rate(10, 3_600_000, tokens=100))
    assert provider.ask(call(0), 60)
    assert not provider.ask(call(1), 90)
    provider.limits = {"model:m": Rate(10, 3_600_000, tokens=70)}
    assert not provider.ask(call(2), 10)
    assert provider.ask(call(1), 90)
    assert provider.end(call(1), has_begun=False) == (call(2),)


@settings(max_examples=settings().max_examples // 5)
@given(
    most=st.integers(1, 3),
    taken=st.lists(
        st.tuples(st.sampled_from(["come", "end", "wait"]), st.integers(0, 9), st.integers(1, 10)), max_size=40
    ),
)
def test_in_no_window_more_is_taken_than_a_provider_allows_and_all_have_their_turn(
    server: EmbeddedServer, most: int, taken: list[tuple[str, int, int]]
) -> None:
    window_ms, tokens = 15, 12
    provider = Provider(server, Rate(most, window_ms, tokens=tokens))

    async def live() -> None:
        waiting, held, ended = dict[CallId, int](), dict[CallId, int](), list[tuple[float, int]]()

        async def ask(slots: Slots, one: CallId, weight: int) -> bool:
            if not (await slots.acquire([Wanted(one, provider.limits, tokens=weight)])).granted[0]:
                waiting[one] = weight
                return False
            held[one] = waiting.pop(one, weight)
            now = monotonic()
            recent = [own for at, own in ended if now - at < window_ms / 1000]
            assert len(held) + len(recent) <= most
            assert sum(held.values()) + sum(recent) <= tokens
            return True

        async def end(slots: Slots, one: CallId, own: int) -> None:
            ended.append((monotonic(), own))
            del held[one]
            await slots.release([(one, provider.limits, True)], {one: Taken(own)})

        async with connect_async(provider.settings) as redis:
            slots = Slots(redis, prefix=provider.prefix)
            for what, number, weight in taken:
                one = CallId(f"r{number % 2}", None, number)
                if what == "come" and one not in held:
                    await ask(slots, one, waiting.get(one, weight))
                elif what == "end" and one in held:
                    await end(slots, one, min(weight, held[one]))
                elif what == "wait":
                    await asyncio.sleep(number / 1000)
            began = monotonic()
            while waiting or held:
                for one in [*held]:
                    await end(slots, one, held[one])
                for one, weight in [*waiting.items()]:
                    await ask(slots, one, weight)
                await asyncio.sleep(0.002)
                assert monotonic() - began < 20, f"nobody is handed a slot, and {waiting} wait"

    asyncio.run(live())
    assert {name for name in provider.names() if provider.redis.pttl(name) < 0} == set(), "all else expires"


def test_the_likely_tokens_of_a_request_are_those_known_and_a_part_of_the_bytes_that_are_new() -> None:
    assert likely_tokens(Estimate(1_000 + 400, output=400)) == 300 + 400
    assert likely_tokens(Estimate(9_000 + 1_000 + 400, output=400), 9_000) == 9_000 + 300 + 400


# Limits on how many calls are at work at a time hold over all workers and runs, and survive a worker's death.

LANES = 6


@pytest.fixture(scope="module")
def limited(server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """Two workers."""
    running = _backend("limited", server, meeting, tmp_path_factory)
    with running.worker(), running.worker():
        yield running


@pytest.fixture
def mortal(server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory) -> Backend:
    """No worker yet."""
    return _backend("mortal", server, meeting, tmp_path_factory)


def _backend(name: str, server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory) -> Backend:
    settings = settings_apart(server, name, lease_seconds=1.5, sweep_interval_seconds=0.2)
    return Backend(settings, meeting, tmp_path_factory.mktemp(name))


def wait_until(backend: Backend, key: str, happened: Callable[[], bool]) -> None:
    """Return when something is so; the server tells of each write to the key."""
    backend.redis.config_set("notify-keyspace-events", "KA")
    with backend.redis.pubsub() as writes:  # type: ignore[no-untyped-call]  # redis is typed but here
        writes.subscribe(f"__keyspace@0__:{key}")
        while not happened():
            assert writes.get_message(timeout=20) is not None, f"nothing more happens to {key}"
    backend.redis.config_set("notify-keyspace-events", "")


def wait_until_waiting(backend: Backend, name: str, run: str, size: int) -> None:
    """Return when so many calls of a run wait for a slot."""
    key = f"{backend.settings.key_prefix}:{{slots}}:waiting:{name}\x1f{run}"
    wait_until(backend, key, lambda: backend.redis.zcard(key) == size)


def wait_until_free(backend: Backend) -> None:
    """Return when nobody holds a slot or waits for one, and nothing is left of any."""
    key = f"{backend.settings.key_prefix}:{{slots}}"
    backend.redis.config_set("notify-keyspace-events", "KA")
    with backend.redis.pubsub() as writes:  # type: ignore[no-untyped-call]  # redis is typed but here
        writes.psubscribe(f"__keyspace@0__:{key}*")
        while list(backend.redis.scan_iter(f"{key}*")):
            assert writes.get_message(timeout=20) is not None, "something is left"
    backend.redis.config_set("notify-keyspace-events", "")


def slots(backend: Backend, act: Callable[[Slots], Awaitable[Slotted]]) -> Slotted:
    async def asking() -> Slotted:
        async with connect_async(backend.settings) as redis:
            return await act(Slots(redis, prefix=backend.settings.key_prefix))

    return asyncio.run(asking())


def lanes(count: int = LANES) -> list[dict[str, Any]]:
    return [{"type": "state", "_instance": f"i{number}", "mark": number} for number in range(count)]


def plan(tool: str, **parameters: Any) -> dict[str, Any]:
    call = {"_tool": tool, "value": "†state.mark", "_outputPath": "†state.seen", **parameters}
    return {"type": "plan", "calls": [call]}


def seen(result: Any, count: int = LANES) -> list[Any]:
    return [result.data(f"i{number}")["state"]["seen"] for number in range(count)]


def test_an_activity_is_not_at_work_more_often_than_allowed(limited: Backend, meeting: Meeting) -> None:
    run = limited.client.submit([plan("waitInCrowd", gate="crowd"), *lanes()])
    for _ in range(2):
        meeting.take("at:crowd")
    wait_until_waiting(limited, "activity:waitInCrowd", run.id, LANES - 2)
    assert meeting.count("at:crowd") == 0
    assert run.status()["calls"] == {"running": 2, "waiting": LANES - 2}
    meeting.open_gate("crowd")
    assert seen(limited.wait(run.id)) == list(range(LANES))
    wait_until_free(limited)


def test_a_run_has_no_more_calls_at_work_than_its_config_says(limited: Backend, meeting: Meeting) -> None:
    document = {
        "context": [plan("waitAtGate", gate="together"), *lanes()],
        "config": {"max_concurrency": 3},
    }
    run = limited.client.submit_document(document)
    for _ in range(3):
        meeting.take("at:together")
    wait_until_waiting(limited, f"run:{run.id}", run.id, LANES - 3)
    assert meeting.count("at:together") == 0
    meeting.open_gate("together")
    assert seen(limited.wait(run.id)) == list(range(LANES))


def test_a_config_can_only_tighten_what_the_operator_has_set(server: EmbeddedServer, meeting: Meeting) -> None:
    strict = settings_apart(server, "strict", limit_run_concurrency=2)
    value: dict[str, Any] = {"context": [*lanes(1), plan("echo")], "config": {"max_concurrency": 3}}
    with Client(strict) as client:
        with pytest.raises(Rejected) as refused:
            client.check(value)
        assert str(refused.value) == "/config/max_concurrency: 3, where at most 2 are allowed"
        for limit in (2, 1, None):
            value["config"]["max_concurrency"] = limit
            assert client.check(value).size == 1


def test_a_delegate_is_not_at_work_more_often_than_allowed(limited: Backend, meeting: Meeting) -> None:
    calls = [
        {"_tool": "ask", "_delegate": "alone", "_instance": f"i{number}", "_outputPath": "†state.seen"}
        for number in range(LANES)
    ]
    run = limited.client.submit(lanes(), {"calls": calls}, tools={"ask": {"_delegate": {}}})
    meeting.take("at:alone")
    wait_until_waiting(limited, "delegate:alone", run.id, LANES - 1)
    assert meeting.count("at:alone") == 0
    meeting.open_gate("alone")
    assert limited.wait(run.id).status == "completed"


def test_a_request_definition_says_how_many_are_at_work(limited: Backend) -> None:
    calls = [
        {"_tool": "ask", "_delegate": "translator", "_instance": f"i{number}", "_outputPath": "†state.seen"}
        for number in range(LANES)
    ]
    definition = {"context": [{"type": "system", "message": "from Bonjour"}], "config": {"max_concurrency": 1}}
    name = definition_slots("translator", definition)
    assert name != definition_slots("translator", definition | {"config": {"max_concurrency": 2}})
    somebody, limit = CallId("another-run", None, 0), {name: 1}
    keys = Keys("limited", somebody.run)
    limited.redis.hset(keys.state, "status", "running")
    limited.redis.hset(keys.calls, "\x1f0", "running:1:0:somebody")
    assert slots(limited, lambda asked: asked.acquire([Wanted(somebody, limit)])).granted == (True,)
    run = limited.client.submit(
        lanes(), {"calls": calls}, tools={"ask": {"_delegate": {}}}, delegates={"translator": definition}
    )
    wait_until_waiting(limited, name, run.id, LANES)
    limited.redis.hset(keys.calls, "\x1f0", "done")
    assert limited.wait(run.id).status == "completed"
    wait_until_free(limited)


def test_the_calls_of_one_lane_follow_each_other_through_one_slot(limited: Backend) -> None:
    calls = [
        {"_tool": "add", "a": "†input.n", "_outputPath": "†state.x0"},
        *({"_tool": "add", "a": f"†state.x{n}", "_outputPath": f"†state.x{n + 1}"} for n in range(4)),
        *({"_tool": "add", "a": n, "_outputPath": f"†state.y{n}"} for n in range(4)),
    ]
    document = {
        "context": [{"type": "input", "n": 0}],
        "solution": {"calls": calls},
        "config": {"max_concurrency": 1},
    }
    result = limited.wait(limited.client.submit_document(document).id)
    assert (result.status, result.data()["state"]["x4"], result.data()["state"]["y3"]) == ("completed", 5, 4)


def test_runs_take_turns_at_what_is_limited(limited: Backend, meeting: Meeting) -> None:
    wide = limited.client.submit([plan("waitInCrowd", gate="turns"), *lanes(20)])
    wait_until_waiting(limited, "activity:waitInCrowd", wide.id, 18)
    small = limited.client.submit([plan("waitInCrowd", gate="turns"), *lanes(2)])
    wait_until_waiting(limited, "activity:waitInCrowd", small.id, 2)
    meeting.open_gate("turns")
    for run in (wide, small):
        limited.wait(run.id)
    ended = [list(run.follow())[-1] for run in (small, wide)]
    assert id_key(ended[0].id) < id_key(ended[1].id)


def test_a_slot_outlives_the_worker_that_dies_at_work_in_it(mortal: Backend, meeting: Meeting) -> None:
    calls = [
        {"_tool": "hangOnceAlone", "name": f"slot-{mark}", "_instance": f"i{mark}", "_outputPath": "†state.seen"}
        for mark in range(2)
    ]
    with mortal.worker() as victim:
        run = mortal.client.submit(lanes(2), {"calls": calls})
        wait_until_waiting(mortal, "activity:hangOnceAlone", run.id, 1)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
    meeting.open_gate("never:slot-0")
    meeting.open_gate("never:slot-1")
    with mortal.worker():
        assert mortal.wait(run.id).status == "completed"
    wait_until_free(mortal)


def paced(meeting: Meeting, name: str, count: int) -> list[float]:
    """When calls have begun, in order."""
    return sorted(meeting.take(f"paced:{name}") for _ in range(count))


def most_within(moments: list[float], seconds: float) -> int:
    return max(sum(0 <= other - moment < seconds for other in moments) for moment in moments)


def paced_plan(tool: str, **parameters: Any) -> dict[str, Any]:
    return {"type": "plan", "calls": [{"_tool": tool, "_outputPath": "†state.seen", **parameters}]}


def test_no_more_calls_begin_than_a_rate_allows_for_each_value_of_its_key(limited: Backend, meeting: Meeting) -> None:
    runs = [limited.client.submit([paced_plan("pace", customer=name), *lanes(8)]) for name in ("x", "y", "x")]
    for run in runs:
        assert limited.wait(run.id).status == "completed"
    wide, narrow = paced(meeting, "x", 16), paced(meeting, "y", 8)
    assert most_within(wide, 1.0) <= 5
    assert most_within(narrow, 1.0) <= 5
    assert narrow[-1] < wide[-1], "a value of the key waits for no other"
    wait_until_free(limited)


def test_a_small_run_does_not_wait_for_all_of_a_large_one_at_the_same_rate(limited: Backend) -> None:
    large = limited.client.submit([paced_plan("pace", customer="fair"), *lanes(60)])
    small = limited.client.submit([paced_plan("pace", customer="fair"), *lanes(4)])
    assert limited.wait(small.id).status == "completed"
    assert large.status()["status"] == "running"
    large.cancel()


def test_a_rate_holds_for_calls_that_go_to_a_queue_or_are_forgotten(limited: Backend, meeting: Meeting) -> None:
    far = limited.client.submit([paced_plan("paceFar", name="far"), *lanes(7)])
    forgotten = {"type": "plan", "calls": [{"_tool": "pace", "customer": "forgotten"}]}
    sent = limited.client.submit([forgotten, *lanes(7)])
    for run in (far, sent):
        assert limited.wait(run.id).status == "completed"
    assert most_within(paced(meeting, "far", 7), 1.0) <= 5
    moments = paced(meeting, "forgotten", 7)
    assert moments[-1] - moments[0] > 0.8
    wait_until_free(limited)


def test_each_element_of_a_list_counts_for_the_value_of_its_own(limited: Backend, meeting: Meeting) -> None:
    names = [*["wide each"] * 6, "narrow each"]
    call = {"_tool": "pace", "customer": "†state.names", "_each": "customer", "_outputPath": "†state.seen"}
    limited.run([call], [{"type": "state", "names": names}])
    moments = paced(meeting, "wide each", 6)
    assert most_within(moments, 1.0) <= 5
    assert meeting.take("paced:narrow each") < moments[-1]
    wait_until_free(limited)


def test_a_function_that_waits_for_a_thread_has_not_begun(mortal: Backend, meeting: Meeting) -> None:
    gates = [{"_tool": "waitAtGate", "gate": "threads", "_outputPath": f"†state.g{n}"} for n in range(2)]
    calls = [{"_tool": "paceInThread", "name": "threads", "_outputPath": f"†state.p{n}"} for n in range(4)]
    with mortal.worker("--concurrency", "2"):
        run = mortal.client.submit([], {"calls": [*gates, *calls]})
        for _ in gates:
            meeting.take("at:threads")
        wait_until_waiting(mortal, "rate:paceInThread", run.id, 2)
        wait_past(mortal.redis, 1_300)
        meeting.open_gate("threads")
        assert mortal.wait(run.id).status == "completed"
    assert most_within(paced(meeting, "threads", 4), 1.0) <= 2


def test_what_waits_for_a_rate_is_said(limited: Backend) -> None:
    run = limited.client.submit([paced_plan("hourly", n=1), *lanes(2)])
    key = f"{limited.settings.key_prefix}:{{slots}}"
    wait_until(limited, f"{key}:due", lambda: limited.redis.zcard(f"{key}:due") == 1)
    (waiting,) = run.status()["waiting_for"]
    assert waiting["for"] == "rate"
    assert "the rate of hourly (1 in 3600 s): the next one may begin in 3" in waiting["reason"]
    lane = str(waiting["call"]).partition(":")[2]
    (writer,) = run.explain_absence("†state.seen", instance=lane).writers
    assert "the rate of hourly" in str(writer.reason)
    assert count_waiting(limited.redis, limited.settings.key_prefix) == {"rate:hourly": 1}
    run.cancel()
    limited.redis.delete(f"{key}:begun:rate:hourly")  # it would expire
    wait_until_free(limited)


def test_a_rate_holds_through_the_death_of_a_worker_that_has_begun_a_call(mortal: Backend, meeting: Meeting) -> None:
    calls = [
        {"_tool": "hangOncePaced", "name": f"paced-{mark}", "_instance": f"i{mark}", "_outputPath": "†state.seen"}
        for mark in range(3)
    ]
    with mortal.worker() as victim:
        run = mortal.client.submit(lanes(3), {"calls": calls})
        first = meeting.take("paced:hanging")
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
    for mark in range(3):
        meeting.open_gate(f"never:paced-{mark}")
    with mortal.worker():
        assert mortal.wait(run.id).status == "completed"
    moments = [first, *paced(meeting, "hanging", meeting.count("paced:hanging"))]
    assert len(moments) >= 4, "the one that was lost begins again"
    assert most_within(moments, 1.0) == 1
    wait_until_free(mortal)


@pytest.mark.nightly
def test_a_rate_holds_while_processes_of_four_workers_of_two_are_killed(mortal: Backend, meeting: Meeting) -> None:
    with ExitStack() as stack:
        workers = [stack.enter_context(mortal.worker("--processes", "2")) for _ in range(4)]
        runs = [mortal.client.submit([paced_plan("hurry", customer="acme"), *lanes(60)]) for _ in range(3)]
        moments = [meeting.take("paced:acme") for _ in range(20)]
        for number in range(8):
            pid = workers[number % 4].pid
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
            os.kill(int(children[-1]), signal.SIGKILL)
            moments += [meeting.take("paced:acme") for _ in range(15)]
        assert [mortal.wait(run.id).status for run in runs] == ["completed"] * 3
    moments += paced(meeting, "acme", meeting.count("paced:acme"))
    assert len(moments) >= 180
    assert most_within(moments, 1.0) <= 10


def test_where_nothing_is_limited_nothing_is_asked(limited: Backend) -> None:
    limited.redis.config_resetstat()
    limited.run([{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}])
    commands: Any = limited.redis.info("commandstats")
    assert "cmdstat_zpopmin" not in commands
    wait_until_free(limited)


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "2"])
def test_a_limit_that_is_no_count_is_a_structural_error(limited: Backend, limit: Any) -> None:
    document = {
        "solution": {"calls": [{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}]},
        "config": {"max_concurrency": limit},
        "delegates": {"d": {"config": {"max_concurrency": limit}}},
    }
    with pytest.raises(Rejected) as rejected:
        limited.client.check(document)
    assert {problem.pointer for problem in rejected.value.errors} == {
        "/config/max_concurrency",
        "/delegates/d/config/max_concurrency",
    }


def test_an_activity_that_may_never_be_at_work_cannot_be_registered() -> None:
    with pytest.raises(ActivitiesError, match="max_concurrency is 0"):
        activity("idle", max_concurrency=0)


# No run takes all places of a worker, all of its threads, or its event loop.


def test_a_run_that_is_alone_may_hold_all_but_a_ninth_and_others_find_places_free() -> None:
    own = 0
    while may_hold_another(own, own, 256):
        own += 1
    assert 220 <= own < 256
    assert may_hold_another(0, own, 256)
    assert not may_hold_another(0, 256, 256)
    assert all(may_hold_another(held, held, 4) for held in range(4)), "of a few places all may be held"


class Worker:
    """A consumer with so many places, its clock, and what it has begun."""

    def __init__(self, most: int, patch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        patch.setattr(lane_admission, "monotonic", lambda: self.now)
        self.due: list[Callable[[], None]] = []
        self.lanes = LaneAdmission(lambda: most, lambda seconds, do: self.due.append(do))
        self.begun: list[tuple[str, int]] = []
        self.dropped: list[tuple[str, int]] = []
        self.given_back: dict[tuple[str, int], Callable[[], None]] = {}

    def take(self, run: str, number: int) -> None:
        lane = run, number

        def begin(given_back: Callable[[], None]) -> None:
            self.begun.append(lane)
            self.given_back[lane] = given_back

        self.lanes.take(run, str(number), begin, lambda: self.dropped.append(lane))

    def end(self, run: str, number: int) -> None:
        self.given_back[run, number]()
        while self.due:
            self.due.pop()()


def test_lanes_beyond_a_runs_share_stand_aside_and_others_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(64, monkeypatch)
    for number in range(100):
        worker.take("wide", number)
    share = len(worker.begun)
    assert 50 <= share < 64
    worker.take("small", 0)
    assert worker.begun[-1] == ("small", 0)
    worker.end("wide", 0)
    assert worker.begun[-1] == ("wide", share), "in their order"


@pytest.mark.parametrize("was_lost", [False, True])
def test_a_lane_is_the_same_whether_it_was_lost_before_or_not(was_lost: bool) -> None:
    message = lane_task("run", "①", "queue", was_lost=was_lost)
    task = SimpleNamespace(headers={"task": message.task}, payload=[[message.body], {}, {}])
    assert lane_of(task) == ("run", "①"), "else it would be begun beyond the share of its run"


def test_nothing_more_is_taken_while_lanes_that_stand_aside_may_soon_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(64, monkeypatch)
    for number in range(64):
        worker.take("wide", number)
    assert worker.lanes.is_closed
    worker.now += STUCK_SECONDS
    assert not worker.lanes.is_closed, "they have stood there for a while"
    for number in range(64):
        worker.end("wide", number)
    assert not worker.lanes.is_closed
    assert len(worker.begun) == 64


def test_what_is_behind_is_taken_where_places_are_given_back_too_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(64, monkeypatch)
    for number in range(100):
        worker.take("wide", number)
    is_closed = []
    for number in range(20):
        worker.now += STUCK_SECONDS / 4
        worker.end("wide", number)
        is_closed.append(worker.lanes.is_closed)
    assert is_closed == [True] * 3 + [False] * 17, "a run that trickles does not keep others waiting in the queue"


def test_a_lane_that_stands_aside_already_is_dropped_when_it_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(64, monkeypatch)
    for number in range(64):
        worker.take("wide", number)
    worker.take("wide", 63)
    assert worker.dropped == [("wide", 63)]


async def _held(places: FairSemaphore, run: str, entered: list[str], leave: asyncio.Event) -> None:
    async with places.one(run):
        entered.append(run)
        await leave.wait()


def test_a_run_does_not_hold_the_last_threads_and_all_are_served() -> None:
    async def work() -> None:
        places, entered, leave = FairSemaphore(64), list[str](), asyncio.Event()
        wide = [asyncio.ensure_future(_held(places, "wide", entered, leave)) for _ in range(200)]
        await asyncio.sleep(0)
        cancelled = wide.pop()
        cancelled.cancel()
        await asyncio.sleep(0)
        assert 50 <= len(entered) < 64
        small = asyncio.ensure_future(_held(places, "small", entered, leave))
        await asyncio.sleep(0)
        assert entered[-1] == "small"
        leave.set()
        await asyncio.gather(small, *wide)
        assert entered.count("wide") == 199
        async with asyncio.timeout(1), places.one("other"):
            pass

    asyncio.run(work())


def _busy(seconds: float) -> None:
    until = monotonic() + seconds
    while monotonic() < until:
        pass


async def _heavy(steps: int) -> int:
    for _ in range(steps):
        _busy(0.05)
        await asyncio.sleep(0)
    return steps


async def _light(steps: int) -> float:
    began = monotonic()
    for _ in range(steps):
        await asyncio.sleep(0)
    return monotonic() - began


def test_what_others_wait_for_is_a_step_of_a_heavy_run_and_not_all_its_lanes() -> None:
    async def work() -> tuple[float, float]:
        turns = FairScheduling()
        heavy = [asyncio.ensure_future(turns.take("heavy", _heavy(3))) for _ in range(20)]
        await asyncio.sleep(0)
        beside = await turns.take("light", _light(20))
        began = monotonic()
        assert await asyncio.gather(*heavy) == [3] * 20
        return beside, monotonic() - began

    beside, left = asyncio.run(work())
    assert left > 5 * beside, f"20 steps of a light run took {beside:.2f} s, and the heavy one {left:.2f} s more"


def test_a_lane_that_has_begun_a_call_goes_on_before_others_begin_theirs() -> None:
    async def work() -> int:
        turns, begun, most = FairScheduling(), 0, 0

        async def lane() -> None:
            nonlocal begun, most
            await asyncio.sleep(0)  # it is read, as all are before one begins
            _busy(0.03)
            turns.begin()
            begun, most = begun + 1, max(most, begun + 1)
            await asyncio.sleep(0)
            _busy(0.03)
            begun -= 1

        lanes = [asyncio.ensure_future(turns.take("heavy", lane())) for _ in range(50)]
        await asyncio.gather(*lanes, turns.take("light", _light(200)))
        return most

    assert asyncio.run(work()) < 10, "each holds in memory what its call is given"


def test_errors_and_cancellations_pass_through() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise KeyError("x")

    async def tidy(told: list[str]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            told.append("left")

    async def work() -> None:
        turns, told = FairScheduling(), list[str]()
        with pytest.raises(KeyError):
            await turns.take("a", fail())
        task = asyncio.ensure_future(turns.take("a", tidy(told)))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert told == ["left"]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await turns.take("a", tidy(told))

    asyncio.run(work())


def test_lanes_that_stand_aside_begin_with_the_next_message_where_what_was_to_look_after_them_was_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worker = Worker(1, monkeypatch)
    for number in range(3):
        worker.take("run", number)
    worker.given_back["run", 0]()
    worker.due.clear()  # as Celery does with a lost connection
    worker.take("run", 1)  # published again
    assert worker.begun == [("run", 0), ("run", 1)]


def test_a_place_goes_to_the_keys_that_wait_in_turn() -> None:
    places = FairPlaces[str](lambda: 1)
    assert places.take("a")
    for key, name in (("b", "b1"), ("b", "b2"), ("c", "c1")):
        places.wait(key, name, name)
    served = []
    key = "a"
    for _ in range(3):
        places.give_back(key)
        found = places.next()
        assert found is not None
        key, name = found
        served.append(name)
    assert served == ["b1", "c1", "b2"]
