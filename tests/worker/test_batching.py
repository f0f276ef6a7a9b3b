"""What is handed in at the same time is sent together (worker/outages.py)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from acts_celery.worker.outages import Batcher, on_threads


def test_one_goes_at_once_and_what_comes_meanwhile_goes_together_in_order() -> None:
    batches: list[list[int]] = []
    has_begun, may_go_on = threading.Event(), threading.Event()

    def send(batch: Sequence[int]) -> None:
        batches.append(list(batch))
        has_begun.set()
        assert may_go_on.wait(20)

    async def hand_in() -> None:
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher[int, None](on_threads(executor, send))
            first = asyncio.ensure_future(batcher.send(0))
            await asyncio.to_thread(has_begun.wait, 20)
            others = [asyncio.ensure_future(batcher.send(number)) for number in range(1, 251)]
            await asyncio.sleep(0)
            may_go_on.set()
            await asyncio.gather(first, *others)

    asyncio.run(hand_in())
    assert batches == [[0], list(range(1, 101)), list(range(101, 201)), list(range(201, 251))]


def test_all_of_a_batch_hear_that_it_failed_and_the_next_one_is_sent() -> None:
    def send(batch: Sequence[str]) -> None:
        if "bad" in batch:
            raise OSError("no way")

    async def hand_in() -> list[BaseException | None]:
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher[str, None](on_threads(executor, send))
            found = await asyncio.gather(*map(batcher.send, ("bad", "beside")), return_exceptions=True)
            await batcher.send("later")
            return found

    assert [str(error) for error in asyncio.run(hand_in())] == ["no way", "no way"]


def test_who_hands_in_hears_that_no_thread_can_be_had() -> None:
    async def hand_in() -> None:
        executor = ThreadPoolExecutor(1)
        executor.shutdown()
        batcher = Batcher[int, None](on_threads(executor, lambda _: None))
        with pytest.raises(RuntimeError, match="after shutdown"):
            await batcher.send(1)

    asyncio.run(asyncio.wait_for(hand_in(), 20))


def test_a_task_that_is_cancelled_keeps_no_other_waiting() -> None:
    sent: list[int] = []

    async def hand_in() -> None:
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher[int, None](on_threads(executor, sent.extend))
            leaving, staying = (asyncio.ensure_future(batcher.send(number)) for number in range(2))
            await asyncio.sleep(0)
            leaving.cancel()
            await staying
            with pytest.raises(asyncio.CancelledError):
                await leaving

    asyncio.run(hand_in())
    assert sent == [0, 1]


def test_what_is_cancelled_before_its_batch_goes_out_is_not_sent() -> None:
    sent: list[int] = []

    async def hand_in() -> None:
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher[int, None](on_threads(executor, sent.extend))
            leaving, staying = batcher.hand_in(0), batcher.hand_in(1)
            leaving.cancel()
            await staying

    asyncio.run(hand_in())
    assert sent == [1]
