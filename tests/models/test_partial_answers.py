"""Which parts of an answer are sent on while it is written (SPEC R13.8)."""

from __future__ import annotations

import asyncio
from itertools import pairwise

from acts_celery import Usage
from acts_celery.worker.agent.asking import PartialAnswers
from acts_celery.worker.registry.models import Reported, Words


def test_r13_8_the_first_calls_are_sent_one_by_one_and_many_in_growing_numbers() -> None:
    sent: list[int] = []

    async def send(text: str, _: object) -> None:
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


def test_r13_12_words_are_sent_as_an_output_until_a_call_or_other_words_come_in_their_place() -> None:
    sent: list[str] = []

    async def write() -> None:
        came = asyncio.Event()

        async def send(text: str, _: object) -> None:
            sent.append(text)
            came.set()

        with PartialAnswers(send) as on_text:
            for piece in (Words('{"calls": [], "output": "He'), Words('{"calls": [], "output": "I look'), call):
                on_text(piece)
                await came.wait()
                came.clear()

    call = '{"calls": [{"_tool": "a"}'
    asyncio.run(asyncio.wait_for(write(), 60))
    assert sent == ['{"calls": [], "output": "He', '{"calls": [], "output": "I look', call]


def test_r13_3_what_was_reported_is_sent_at_once_and_with_each_part_also_where_nobody_wants_the_text() -> None:
    reported = Reported(Usage(100, 1, is_whole=False), 7)
    sent: list[tuple[str, Reported | None]] = []

    async def write(*, tells_text: bool) -> None:
        came = asyncio.Event()

        async def send(text: str, said: Reported | None) -> None:
            sent.append((text, said))
            came.set()

        with PartialAnswers(send, tells_text=tells_text) as on_text:
            on_text(reported)
            await came.wait()
            came.clear()
            on_text(call)
            await (came.wait() if tells_text else asyncio.sleep(0))

    call = '{"calls": [{"_tool": "a"}'
    for tells_text in (True, False):
        asyncio.run(asyncio.wait_for(write(tells_text=tells_text), 60))
    assert sent == [("", reported), (call, reported), ("", reported)]
