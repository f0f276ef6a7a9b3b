"""taskiq with taskiq-redis: a stream as broker, its own result backend."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from tests.benchmarks.jobs import PAUSE_SECONDS, Figures, latency, rate, serve

_URL = os.environ["BENCH_URL"]
broker = RedisStreamBroker(url=_URL).with_result_backend(RedisAsyncResultBackend(redis_url=_URL))


@broker.task("add_one")
async def add_one(number: int) -> int:
    return number + 1


@broker.task("pause")
async def pause(number: int) -> int:
    await asyncio.sleep(PAUSE_SECONDS)
    return number


async def _all(task: Any, size: int) -> list[Any]:
    sent = [await task.kiq(number) for number in range(size)]
    return [await _result(one) for one in sent]


async def _one(number: int) -> Any:
    return await _result(await add_one.kiq(number))


async def _result(sent: Any) -> Any:
    # It asks for results, by default five times a second: as often as this costs it least in these jobs.
    return (await sent.wait_result(check_interval=0.001)).return_value


def main() -> None:
    with asyncio.Runner() as runner:
        runner.run(broker.startup())

        def one_call(size: int) -> Figures:
            return rate(size, lambda: runner.run(_all(add_one, size)), [n + 1 for n in range(size)])

        def waiting(size: int) -> Figures:
            return rate(size, lambda: runner.run(_all(pause, size)), list(range(size)))

        def one_by_one(size: int) -> Figures:
            return latency(size, lambda number: runner.run(_one(number)), lambda number: number + 1)

        serve({"one_call": one_call, "waiting": waiting, "one_by_one": one_by_one})
        runner.run(broker.shutdown())


if __name__ == "__main__":
    main()
