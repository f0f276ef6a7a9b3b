"""What the benchmarks run: as little as possible, so that what is measured is the way there and back."""

from __future__ import annotations

import asyncio

from worker import activity


@activity
async def echo(value: str) -> str:
    return value


@activity
async def pause(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds
