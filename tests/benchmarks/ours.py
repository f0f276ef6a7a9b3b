"""Our side's client: every job by way of `acts_celery.Client`, as the README shows it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, Final

from redis import Redis

from acts_celery import Client, Result
from tests.benchmarks.jobs import BRIEF, CONTEXT, SLOWLY, TICKS, Figures, expect, latency, publishing, rate, serve

Call = Mapping[str, Any]

_WIDTH: Final = 10
_ADD_ONE: Final = {"_tool": "add_one", "number": "†input.number", "_outputPath": "†state.sum"}
_CHAIN: Final = [
    {"_tool": "add_one", "number": source, "_outputPath": target}
    for source, target in pairwise(["†input.number", *(f"†state.step{n}" for n in range(4)), "†state.sum"])
]
_DIAMOND: Final[list[Call]] = [
    {"_tool": "add_one", "number": "†input.number", "_outputPath": "†state.top"},
    *({"_tool": "add_one", "number": "†state.top", "_outputPath": f"†state.side{n}"} for n in range(_WIDTH)),
    {"_tool": "total", "numbers": [f"†state.side{n}" for n in range(_WIDTH)], "_outputPath": "†state.sum"},
]


def one_call(size: int) -> Figures:
    return rate(size, lambda: _sums(size, [_ADD_ONE]), [n + 1 for n in range(size)])


def chain(size: int) -> Figures:
    return rate(size, lambda: _sums(size, _CHAIN), [n + 5 for n in range(size)])


def diamond(size: int) -> Figures:
    return rate(size, lambda: _sums(size, _DIAMOND), [_WIDTH * (n + 2) for n in range(size)])


def waiting(size: int) -> Figures:
    call = {"_tool": "pause", "number": "†input.number", "_outputPath": "†state.sum"}
    return rate(size, lambda: _sums(size, [call]), list(range(size)))


def one_by_one(size: int) -> Figures:
    def work(number: int) -> object:
        call = {"_tool": "add_one", "number": number, "_outputPath": "†state.sum"}
        return _client().submit(solution={"calls": [call]}).wait().data()["state"]["sum"]

    return latency(size, work, lambda number: number + 1)


def delegates(size: int) -> Figures:
    """One request that holds much delegates many times, and each delegate is to see little of it."""
    tools = {"ask": {"properties": {"number": {"type": "integer"}, "_delegate": {"const": "reader"}}}}
    calls = [
        {"_tool": "ask", "number": n, "_scopes": ["†state.brief"], "_outputPath": f"†data.answer{n}"}
        for n in range(size)
    ]

    def work() -> list[Any]:
        run = _client().submit([{"type": "state", **CONTEXT}], {"calls": calls}, tools=tools)
        answers = _ended(run.wait()).data()["data"]
        return [answers[f"answer{n}"] for n in range(size)]

    return rate(size, work, [[n, len(BRIEF)] for n in range(size)])


def forgotten(size: int) -> Figures:
    """A run has ended when all is sent."""

    def publish(key: str) -> None:
        _run(size, [{"_tool": "note", "number": "†input.number", "key": key}])

    with Redis.from_url(_client().settings.require_redis()) as redis:

        def take(key: str) -> int:
            found: Any = redis.blpop([key])
            return int(found[1])

        return publishing(size, publish, take)


def requests(size: int) -> Figures:
    """Each instance has one delegate, whose model takes its time."""
    speaker = {"context": [{"type": "text", "message": SLOWLY}], "schema": {"type": "string"}}
    call = {"_tool": "say", "_delegate": "speaker", "_scopes": ["input"], "_outputPath": "†state.said"}
    context = [{"type": "input", "_instance": f"i{n}", "number": n} for n in range(size)]

    def work() -> list[Any]:
        run = _client().submit([{"type": "plan", "calls": [call]}, *context], delegates={"speaker": speaker})
        instances = _ended(run.wait()).instances
        return [instances[f"i{n}"]["state"]["said"] for n in range(size)]

    return {"seconds": size / rate(size, work, ["ok"] * size)["per second"]}


def ticks(size: int) -> Figures:
    """A loop whose model answers at once, with one call in each tick."""
    context = [{"type": "text", "message": f"{TICKS}{size}"}]
    document = {"context": context, "schema": {"const": size}, "tools": ["add_one"], "config": {"ticks": size + 1}}
    run = _client().submit_document(document)
    expect(_ended(run.wait()).output, size)
    solved = [int(entry.id.partition("-")[0]) for entry in run.log() if entry.message["type"] == "solution"]
    return {"ms": statistics.median(after - before for before, after in pairwise(solved))}


def _sums(size: int, calls: Sequence[Call]) -> list[Any]:
    """What the calls have come to in each of `size` instances."""
    instances = _run(size, calls).instances
    return [instances[f"i{n}"]["state"]["sum"] for n in range(size)]


def _run(size: int, calls: Sequence[Call]) -> Result:
    def context() -> Iterator[dict[str, Any]]:
        yield {"type": "plan", "calls": calls}
        for number in range(size):
            yield {"type": "input", "_instance": f"i{number}", "number": number}

    return _ended(_client().submit(context()).wait())


def _ended(result: Result) -> Result:
    expect(result.status, "completed")
    return result


@cache
def _client() -> Client:
    return Client()


if __name__ == "__main__":
    serve(
        {
            job.__name__: job
            for job in (one_call, chain, diamond, waiting, one_by_one, delegates, forgotten, requests, ticks)
        }
    )
