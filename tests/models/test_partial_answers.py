"""Which parts of an answer are sent on while it is written (SPEC R13.8)."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from acts_celery.worker.models.partial_answers import PartialAnswers


def test_r13_8_the_first_calls_are_sent_one_by_one_and_many_in_growing_numbers() -> None:
    sent: list[int] = []

    async def send(text: str) -> None:
        sent.append(text.count("_tool"))

    async def write(calls: int) -> None:
        with PartialAnswers(send) as on_text:
            on_text('{"calls": [')
            for index in range(calls):
                on_text(f'{{"_tool": "a", "n": {index}}},')
                await asyncio.sleep(0)

    asyncio.run(write(200))
    assert sent[:8] == list(range(1, 9))
    assert all(after >= before + before // 4 for before, after in pairwise(sent))
    assert sum(sent) < 6 * 200, "all that is sent is in proportion to the answer"
