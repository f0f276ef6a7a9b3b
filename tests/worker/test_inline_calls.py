"""Calls in line: what has come of each is taken once."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from acts_celery.protocol.engine.events import Success
from acts_celery.worker import fairness as quarantine
from acts_celery.worker.broker.attempts import Attempt, CallId, Result
from acts_celery.worker.fairness import FairScheduling, Quarantine
from acts_celery.worker.runner.starting import InlineCalls
from acts_celery.worker.runner.step import Mailbox


def test_of_very_many_calls_that_end_one_by_one_each_is_taken_once() -> None:
    """A wait does not look at all that is at work."""

    async def calling() -> float:
        services: Any = SimpleNamespace(turns=FairScheduling())
        mailbox = Mailbox()
        inline = InlineCalls(services, "run", mailbox)
        ends = [asyncio.Event() for _ in range(5_000)]

        async def ending(index: int) -> Result:
            await ends[index].wait()
            return Success(index)

        for index in range(len(ends)):
            inline.watch(ending(index), Attempt(CallId("run", None, index)))
        await asyncio.sleep(0)
        begun = time.process_time()
        for index, end in enumerate(ends[:500]):
            end.set()
            ((attempt, result),) = await inline.wait()
            mailbox.take()  # as a runner does in each of its steps
            assert (attempt.id.index, result) == (index, Success(index))
        took = time.process_time() - begun
        inline.dismiss()
        return took

    assert asyncio.run(calling()) < 1.0, "it was 11 s"


def test_nobody_waits_for_a_turn_whose_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of which nothing comes, since it has ended elsewhere, would keep its runner in the lane for good."""
    monkeypatch.setattr(quarantine, "ALONE_SECONDS", 0.01)

    async def asking() -> list[tuple[int, ...]]:
        turns, resting = Quarantine(), []
        mailboxes = [Mailbox(turns, run) for run in ("first", "second")]
        for mailbox in mailboxes:
            mailbox.refuse(0, asks=True)
        for mailbox in mailboxes:
            await mailbox.wait()
            resting.append(tuple(index for each in mailboxes for index in each.resting))
        return resting

    assert asyncio.run(asking()) == [(0,), ()]
