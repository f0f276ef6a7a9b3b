"""Threads of plain functions: those that hang are counted, told of, and bounded."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from acts_celery.worker.runner import calls as threads
from acts_celery.worker.runner.calls import StuckThreads, Threads


def test_functions_that_outlive_their_calls_are_told_of_and_so_many_are_the_last(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(threads, "MOST_LEFT_BEHIND", 3)
    caplog.set_level(logging.WARNING)

    async def running() -> None:
        hung, pool = threading.Event(), Threads(2)
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await pool.run(hung.wait, timeout_seconds=0.01)
        with pytest.raises(StuckThreads, match=r"3 functions that outlived their calls .* restart the worker"):
            await pool.run(int, timeout_seconds=1)
        hung.set()
        while True:
            try:
                assert await pool.run(int, timeout_seconds=1) == 0
                break
            except StuckThreads:
                await asyncio.sleep(0)  # until they have ended
        pool.close()

    asyncio.run(running())
    assert [record.getMessage().split()[0] for record in caplog.records] == ["1", "2"]
