"""Celery alone: its canvas and its result backend, with its defaults."""

from __future__ import annotations

import os
import time
from functools import cache
from typing import Any

from celery import Celery, chain, group
from redis import Redis

from tests.benchmarks.jobs import (
    BRIEF,
    CONTEXT,
    PAUSE_SECONDS,
    Figures,
    latency,
    publishing,
    rate,
    serve,
)

_URL = os.environ["BENCH_URL"]
app = Celery("bare_celery", broker=_URL, backend=_URL)


@app.task(name="add_one")
def add_one(number: int) -> int:
    return number + 1


@app.task(name="total")
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(name="pause")
def pause(number: int) -> int:
    time.sleep(PAUSE_SECONDS)  # the work itself: a call that waits
    return number


@app.task(name="read")
def read(context: dict[str, Any], number: int) -> list[int]:
    return [number, len(context["brief"])]


@app.task(name="note", ignore_result=True)
def note(number: int, key: str) -> None:
    _redis().rpush(key, number)


def one_call(size: int) -> Figures:
    return rate(size, lambda: _group(add_one.s(n) for n in range(size)), [n + 1 for n in range(size)])


def chains(size: int) -> Figures:
    def work() -> list[Any]:
        results = [chain(add_one.s(n), *[add_one.s()] * 4).apply_async() for n in range(size)]
        return [result.get() for result in results]

    return rate(size, work, [n + 5 for n in range(size)])


def diamond(size: int) -> Figures:
    def work() -> list[Any]:
        results = [(add_one.s(n) | group([add_one.s()] * 10) | total.s()).apply_async() for n in range(size)]
        return [result.get() for result in results]

    return rate(size, work, [10 * (n + 2) for n in range(size)])


def waiting(size: int) -> Figures:
    return rate(size, lambda: _group(pause.s(n) for n in range(size)), list(range(size)))


def one_by_one(size: int) -> Figures:
    return latency(size, lambda n: add_one.delay(n).get(), lambda n: n + 1)


def delegates(size: int) -> Figures:
    """Each message holds the whole context: a task sees what it is given."""
    work = [read.s(CONTEXT, n) for n in range(size)]
    return rate(size, lambda: _group(work), [[n, len(BRIEF)] for n in range(size)])


def forgotten(size: int) -> Figures:
    def publish(key: str) -> None:
        for number in range(size):
            note.delay(number, key)

    def take(key: str) -> int:
        found: Any = _redis().blpop([key])
        return int(found[1])

    return publishing(size, publish, take)


@cache
def _redis() -> Redis:
    return Redis.from_url(_URL)


def _group(signatures: Any) -> Any:
    return group(signatures).apply_async().get()


if __name__ == "__main__":
    serve({"chain": chains, **{j.__name__: j for j in (one_call, diamond, waiting, one_by_one, delegates, forgotten)}})
