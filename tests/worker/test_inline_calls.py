"""The leases of calls in line: each is held until what has come of its call is in the log."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

from acts_celery.protocol.engine.decisions import Success
from acts_celery.worker.fairness.fair_scheduling import FairScheduling
from acts_celery.worker.lanes.inline_calls import InlineCalls
from acts_celery.worker.wire.attempts import Attempt, CallId, Result


class Held(set[str]):
    """The leases that are held."""

    def hold(self, run: str, lease: str) -> None:
        self.add(lease)

    def drop(self, run: str, leases: list[str]) -> None:
        self.difference_update(leases)


async def made() -> Result:
    return Success(1)


def test_a_lease_is_held_until_what_has_come_of_the_call_is_in_the_log() -> None:
    async def calling() -> None:
        held = Held()
        services: Any = SimpleNamespace(turns=FairScheduling(), leases=held)
        inline = InlineCalls(services, "run")
        attempts = [Attempt(CallId("run", None, index)) for index in range(3)]
        members = [attempt.id.member for attempt in attempts]
        for attempt in attempts:
            inline.watch(made(), attempt)
        assert held == {*members}
        ended: list[Any] = []
        while len(ended) < 3:
            ended += await inline.wait(asyncio.get_running_loop().create_future())
        assert held == {*members}, "nothing is in the log yet"
        inline.let_go(0, 7)
        assert held == {*members[1:]}
        inline.dismiss()
        assert held == set()

    asyncio.run(calling())


def test_of_very_many_calls_that_end_one_by_one_each_is_taken_once() -> None:
    """A wait does not look at all that is at work."""

    async def calling() -> float:
        services: Any = SimpleNamespace(turns=FairScheduling(), leases=Held())
        inline = InlineCalls(services, "run")
        ends = [asyncio.Event() for _ in range(5_000)]

        async def ending(index: int) -> Result:
            await ends[index].wait()
            return Success(index)

        for index in range(len(ends)):
            inline.watch(ending(index), Attempt(CallId("run", None, index)))
        await asyncio.sleep(0)
        begun = time.process_time()
        never = asyncio.get_running_loop().create_future()
        for index, end in enumerate(ends[:500]):
            end.set()
            ((attempt, result),) = await inline.wait(asyncio.shield(never))
            assert (attempt.id.index, result) == (index, Success(index))
        took = time.process_time() - begun
        inline.dismiss()
        return took

    assert asyncio.run(calling()) < 1.0, "it was 11 s"
