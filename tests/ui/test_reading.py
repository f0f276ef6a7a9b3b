"""Answers are made in threads, of which one run has a few."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any

from acts_celery.worker.ui.access import Reader

DEADLINE_SECONDS = 30


class Gate:
    """A page on which one run takes until it is let through."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.begun = 0

    def answer(self, path: str, query: Mapping[str, str], owner: str | None = None) -> Any:
        if path.startswith("runs/slow"):
            self.begun += 1
            assert self.gate.wait(DEADLINE_SECONDS)
        return {"path": path}


def test_a_run_that_takes_long_keeps_nobody_waiting_who_looks_at_another() -> None:
    page = Gate()

    async def look() -> None:
        reader = Reader(page)
        slow = [asyncio.create_task(reader.answer(f"runs/slow/{part}", {})) for part in range(100)]
        others = [reader.answer(path, {}) for path in ("runs/quick/plan", "runs", "runs/another")]
        async with asyncio.timeout(DEADLINE_SECONDS):
            assert [each["path"] for each in await asyncio.gather(*others)] == [
                "runs/quick/plan",
                "runs",
                "runs/another",
            ]
        assert page.begun <= 4
        page.gate.set()
        assert len(await asyncio.gather(*slow)) == 100
        assert await reader.body("runs", {}) == b'{"path":"runs"}'
        reader.close()

    asyncio.run(look())
