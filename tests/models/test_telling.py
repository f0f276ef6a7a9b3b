"""What is told of an answer while it is written (SPEC R13.8)."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from acts_celery.worker.models.telling import Telling


def test_r13_8_the_first_calls_are_told_of_one_by_one_and_many_in_growing_numbers() -> None:
    told: list[int] = []

    async def tell(text: str) -> None:
        told.append(text.count("_tool"))

    async def write(calls: int) -> None:
        with Telling(tell) as hear:
            hear('{"calls": [')
            for index in range(calls):
                hear(f'{{"_tool": "a", "n": {index}}},')
                await asyncio.sleep(0)

    asyncio.run(write(200))
    assert told[:8] == list(range(1, 9))
    assert all(after >= before + before // 4 for before, after in pairwise(told))
    assert sum(told) < 6 * 200, "all that is told is in proportion to the answer"
