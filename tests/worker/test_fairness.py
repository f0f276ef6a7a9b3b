"""No run takes all places of a worker, all of its threads, or its event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from types import SimpleNamespace

import pytest

from acts_celery.worker import fairness as lane_admission
from acts_celery.worker.broker.consumer import lane_of
from acts_celery.worker.broker.messages import lane_task
from acts_celery.worker.fairness import FairPlaces, FairScheduling, FairSemaphore, LaneAdmission, may_hold_another


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
    worker.now += lane_admission.STUCK_SECONDS
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
        worker.now += lane_admission.STUCK_SECONDS / 4
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
