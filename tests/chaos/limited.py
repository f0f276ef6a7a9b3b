"""What the calls of a workload with limits do, and how many of them may begin, or be at work, at a time."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import time
from dataclasses import dataclass
from typing import Any, Final

from acts_celery import Answer, Usage, activity, model
from tests.chaos.activities import recorded

LANES: Final = ("x", "y")
"""The values of the limits' key."""


WORDS: Final = {"«one»": "«eins»", "«two»": "«zwei»", "«three»": "«drei»"}
"""What models are asked to translate."""
MODEL: Final = "scribe:scribe"
ASKED: Final = "model/"
"""What the marks of requests to it begin with; the tokens follow."""
REQUESTS_A_MINUTE: Final = 40
TOKENS_A_MINUTE: Final = 100_000


@dataclass(frozen=True)
class Limit:
    """How many calls with one value of the key may begin in a window, and how many of them be at work."""

    begin: int | None = None
    window_seconds: float = 0.0
    at_work: int | None = None


LIMITS: Final = {
    "limitedHere": Limit(10, 1.0),
    "limitedInThread": Limit(8, 2.0, at_work=4),
    "limitedElsewhere": Limit(6, 1.0),
    "crowd": Limit(at_work=3),
}
"""The limits of each activity."""


@activity("limitedHere", rate="10/s", key="lane")
async def limited_here(mark: str, value: int, seconds: float, lane: str) -> int:
    """A coroutine in the instance's own task."""
    with recorded(mark):
        await asyncio.sleep(seconds)
        return value + 1


@activity("limitedInThread", rate="8/2s", max_concurrency=4, key="lane")
def limited_in_thread(mark: str, value: int, seconds: float, lane: str) -> int:
    """Limited in two ways."""
    with recorded(mark):
        time.sleep(seconds)
        return value + 1


@activity("limitedElsewhere", rate="6/s", key="lane", queue="chaos")
def limited_elsewhere(mark: str, value: int, seconds: float, lane: str) -> int:
    """In a task of its own, on whichever worker takes it."""
    with recorded(mark):
        time.sleep(seconds)
        return value + 1


@activity(max_concurrency=3, key="lane")
def crowd(mark: str, value: int, seconds: float, lane: str) -> int:
    """At work in so many threads of all workers at most."""
    with recorded(mark):
        time.sleep(seconds)
        return value + 1


@model("scribe")
async def scribe(messages: list[dict[str, Any]], schema: Any, config: dict[str, Any]) -> Answer:
    """Translate the word in the request. It takes fewer tokens than it may have."""
    text, tokens = json.dumps(messages, ensure_ascii=False), random.randrange(500, 4_000)
    with recorded(f"{ASKED}{tokens}/{secrets.token_hex(4)}"):
        await asyncio.sleep(random.random())
        answer = next(WORDS[word] for word in WORDS if word in text)
        return Answer(json.dumps({"output": answer}, ensure_ascii=False), "scribe", Usage(tokens - 10, 10))
