"""What the runs of `tests.benchmarks.hostile` call: plain work for the small run, and what a hostile one may misuse."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from acts_celery import activity, model

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


@activity
def floats(count: int) -> list[float]:
    return [number + 0.5 for number in range(count)]


@activity
async def same(value: Any) -> Any:
    return value


@model("chatty")
def chatty(messages: list[dict[str, Any]], schema: Any, config: dict[str, Any]) -> dict[str, Any]:
    """As many calls as it may think of, each of which reads what the next one writes, and the last is invalid."""
    calls = [
        {"_tool": "add_one", "number": f"†state.p{number + 1}", "_outputPath": f"†state.p{number}"}
        for number in range(3_200)
    ]
    return {"calls": [*calls, {"_tool": "add_one", "number": "x", "_outputPath": "†state.p3200"}], "output": None}


@model("odd")
def odd(messages: list[dict[str, Any]], schema: Any, config: dict[str, Any]) -> str:
    """What no model should answer."""
    return '{"calls": [{"_tool": {}, "_outputPath": 1e400}], "output": ' + "[" * 100_000


@model("slips")
def slips(messages: list[dict[str, Any]], schema: Any, config: dict[str, Any]) -> dict[str, Any]:
    """A list of texts that read as references and are none."""
    return _same([["{{a}}"] * 50_000])


@model("templates")
def templates(messages: list[dict[str, Any]], schema: Any, config: dict[str, Any]) -> dict[str, Any]:
    """A text that reads the same again and again."""
    return _same("†{state.a}" * 70_000)


def _same(value: Any) -> dict[str, Any]:
    return {"calls": [{"_tool": "same", "value": value, "_outputPath": "†state.r"}], "output": None}


@model("terse")
def terse(messages: list[dict[str, Any]], schema: Any, config: dict[str, Any]) -> Any:
    """A text, at once."""
    return "x" if "calls" not in str(schema) else {"calls": [], "output": "x"}


@model("forgetful")
def forgetful(messages: list[dict[str, Any]], schema: Any, config: dict[str, Any]) -> dict[str, Any]:
    """Requests to another model, one for each element of a list, whose answers nobody waits for."""
    call = {"_tool": "write", "_each": "n", "n": "†data.n"}
    return {"calls": [call] * 20, "output": None}
