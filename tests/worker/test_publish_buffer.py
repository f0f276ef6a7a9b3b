"""Publishing waits for a slow broker, and keeps little while it is away (worker/broker/consumer.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from acts_celery import InfrastructureError
from acts_celery.worker.broker import consumer as module
from acts_celery.worker.broker.consumer import PublishBuffer
from acts_celery.worker.broker.messages import TaskMessage


def tasks(count: int, size: int) -> list[TaskMessage]:
    return [TaskMessage("t", "q", b"x" * size, "") for _ in range(count)]


def test_a_broker_that_is_slow_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AWAY_SECONDS", 0.2)
    sent: list[int] = []

    async def send(batch: Sequence[TaskMessage]) -> None:
        await asyncio.sleep(0.1)
        sent.append(len(batch))

    async def hand_in() -> None:
        buffer = PublishBuffer(send)
        await asyncio.gather(*(buffer.publish(tasks(1, 2**20)) for _ in range(6)))
        assert sent == [1] * 6, "each by itself, and all of them before a lane goes on"

    asyncio.run(hand_in())


def test_small_tasks_go_together_and_large_ones_by_themselves() -> None:
    sent: list[list[int]] = []

    async def send(batch: Sequence[TaskMessage]) -> None:
        sent.append([len(task.body) for task in batch])

    async def hand_in() -> None:
        buffer = PublishBuffer(send)
        await asyncio.gather(*(buffer.publish(tasks(2, size)) for size in (10, 10, 2**20, 10)))

    asyncio.run(hand_in())
    assert sent == [[10, 10, 10, 10, 2**20, 2**20], [10, 10]]


def test_of_large_tasks_little_is_kept_while_the_broker_is_away() -> None:
    sent: list[int] = []
    is_away = True

    async def send(batch: Sequence[TaskMessage]) -> None:
        if is_away:
            raise InfrastructureError("away")
        sent.append(len(batch))

    async def hand_in() -> None:
        nonlocal is_away
        buffer = PublishBuffer(send)
        for _ in range(10):
            await buffer.publish(tasks(1, 20 * 2**20))
        is_away = False
        await asyncio.gather(*buffer._batcher._sending)

    asyncio.run(asyncio.wait_for(hand_in(), 20))
    assert sum(sent) == 3
