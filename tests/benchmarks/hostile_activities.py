"""What the runs of `tests.benchmarks.hostile` call: plain work for the small run, and what a hostile one may misuse."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from acts_celery import activity

LONG_SECONDS = 120.0
"""Longer than anything is measured."""


@activity
async def add_one(number: int) -> int:
    return number + 1


@activity
def add_one_plain(number: int) -> int:
    return number + 1


@activity
async def repeat(text: str, times: int) -> list[Any]:
    return [text] * times


@activity
async def take(call: dict[str, Any], context: dict[str, Any]) -> int:
    return len(call)


@activity("take_far", queue="far")
async def take_far(call: dict[str, Any], context: dict[str, Any]) -> int:
    return len(call)


@activity
def rest_plain() -> int:
    time.sleep(LONG_SECONDS)
    return 0


@activity
async def rest() -> int:
    await asyncio.sleep(LONG_SECONDS)
    return 0
