"""What the benchmarks run: as little as possible, so that what is measured is the way there and back."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

from redis import Redis

from acts_celery import activity, delegate
from acts_celery.broker_config import load
from tests.benchmarks.jobs import PAUSE_SECONDS


@activity
async def add_one(number: int) -> int:
    return number + 1


@activity
async def total(numbers: list[int]) -> int:
    return sum(numbers)


@activity
async def pause(number: int) -> int:
    await asyncio.sleep(PAUSE_SECONDS)
    return number


@activity
def note(number: int, key: str) -> None:
    _redis().rpush(key, number)


@delegate("reader")
async def read(context: list[dict[str, Any]]) -> list[int]:
    """The number that it is asked about, and how long the brief is."""
    seen = {key: value for message in context for key, value in message.items()}
    return [seen["number"], len(seen["brief"])]


@cache
def _redis() -> Redis:
    return Redis.from_url(load().require_redis(), max_connections=load().concurrency)
