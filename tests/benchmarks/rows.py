"""The rows: what is measured, beside whom, and what is to be reached.

A ratio says how many times as good as the peer we are; of times and sizes the smaller one is the better one.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from redis import Redis

from tests.benchmarks.contests import Bench, Contest, Goal, Line
from tests.benchmarks.jobs import BRIEF, MODEL_SECONDS, SLOWLY, TICKS, Figures, latency
from tests.benchmarks.sides import (
    CELERY,
    CELERY_THREADS,
    DASK,
    DBOS,
    LANGGRAPH,
    OURS,
    TASKIQ,
    Running,
    Side,
    SideFailed,
    running,
)
from tests.benchmarks.sides import worker as worker_of
from tests.benchmarks.surroundings import server, url_of
from tests.benchmarks.wire import Wire
from tests.models.server import Reply, model_server, streamed

_RATE: Final = "per second"
_AHEAD: Final = Goal(1, is_strict=True)
_MIB: Final = 1024 * 1024
_READINGS: Final = 20
_BETWEEN_SECONDS: Final = 1
"""Between small runs beside a large one, which they should not slow down."""
_AT_REST_BYTES: Final = 1_000
_COMMIT: Final = """
redis.call("XADD", KEYS[1], "*", "m", ARGV[2])
return redis.call("HSET", KEYS[2], ARGV[1], ARGV[2])
"""


@dataclass(frozen=True)
class Row:
    """Something to measure: its name on the command line, its title, and what gives its lines."""

    name: str
    title: str
    measure: Callable[[Bench], Iterator[Line]]


_ONE_CALL: Final = Contest(
    "one_call",
    2_000,
    [(CELERY, _RATE, Goal(4)), (TASKIQ, _RATE, _AHEAD), (DASK, _RATE, _AHEAD), (DBOS, _RATE, _AHEAD)],
)
_FAR: Final = replace(_ONE_CALL, goals=[(CELERY, _RATE, Goal(8))], delay_seconds=0.002)
_DELEGATES: Final = Contest("delegates", 500, [(CELERY, _RATE, Goal(5))])


def _delegates(bench: Bench) -> Iterator[Line]:
    """The throughput; then what crosses the wire of a worker that serves nothing but delegates."""
    yield from _DELEGATES(bench)
    size = bench.size(_DELEGATES.size)
    with (
        running(_ours("--processes", "1", "-Q", "instances,reports")) as ours,
        Wire(_port(ours)) as wire,
        worker_of(_ours("--processes", "1", "-Q", "delegates"), ours.at(url_of(wire.port)), ours.log),
    ):
        bench.started.append(ours.started)

        def carried() -> Figures:
            received, sent = wire.received_bytes, wire.sent_bytes
            ours.do("delegates", size)
            return {"received": (wire.received_bytes - received) / size, "sent": (wire.sent_bytes - sent) / size}

        found = bench.repeated("bytes on the wire", carried)
    most = 1.3 * len(BRIEF) + 600
    yield Line("its worker receives for each", "bytes", found["received"], goal=Goal(most, is_most=True))
    yield Line("its worker sends for each", "bytes", found["sent"])


def _distance(bench: Bench) -> Iterator[Line]:
    yield from _FAR(bench)
    with server() as port, Wire(port, delay_seconds=_FAR.delay_seconds) as wire, Redis(port=wire.port) as redis:
        pings = latency(bench.size(200), lambda _: redis.ping(), lambda _: True)
    yield Line("a ping takes", "ms", pings["p50"])


def _requests(bench: Bench) -> Iterator[Line]:
    """Models are behind a server of our own, which costs the same processors."""
    size, ticks = bench.size(1_000), bench.size(30)
    with model_server(_reply) as model:
        side = replace(OURS, settings=(("ACTS_MODEL", "openai:m"), ("ACTS_MODEL_BASE_URL", model.url)))
        with bench.warm(side, "ticks", ticks) as ours:
            seconds = bench.repeated("delegates", partial(ours.do, "requests", size))["seconds"]
            ms = bench.repeated("ticks", partial(ours.do, "ticks", ticks))["ms"]
    what = f"{size:,} delegates whose model takes {MODEL_SECONDS} s"
    yield Line(what, "s", seconds, goal=Goal(8, is_strict=True, is_most=True))
    yield Line("a tick of a loop with one call", "ms", ms, goal=Goal(25, is_strict=True, is_most=True))


def _reply(asked: Any) -> Reply:
    """What the model server answers."""
    text = json.dumps(asked["messages"])
    if SLOWLY in text:
        return replace(streamed(json.dumps({"output": "ok"})), delay_seconds=MODEL_SECONDS)
    last, tick = int(re.findall(TICKS + r"(\d+)", text)[0]), text.count("# Tick ")
    call = {"_tool": "add_one", "number": tick, "_outputPath": f"†state.s{tick}"}
    return streamed(json.dumps({"calls": [call] if tick < last else [], "output": last if tick == last else None}))


def _workers(bench: Bench) -> Iterator[Line]:
    """Each worker process has four calls at work at a time, and as many to do as the one that is alone."""
    alone = None
    for count in (1, 2, 4, 8)[: bench.size(4)]:
        size = bench.size(80) * count
        with bench.warm(_ours("--processes", str(count), "--concurrency", "4"), "waiting", size) as ours:
            rate = bench.repeated(f"{count} processes", partial(ours.do, "waiting", size))[_RATE]
        if alone is None:
            alone = rate
            yield Line("1 process", "/s", rate)
        else:
            yield Line(f"{count} processes", "/s", rate, f"1 process, {count} times", count * alone, Goal(0.9))


def _commits(bench: Bench) -> Iterator[Line]:
    size = bench.size(_ONE_CALL.size)
    with bench.warm(OURS, "one_call", size) as ours, Redis(port=_port(ours)) as redis:
        commit = redis.register_script(_COMMIT)

        def both() -> Figures:
            start = time.perf_counter()
            for number in range(size):
                commit(["raw:log", "raw:ledger"], [number, "x" * 100])
            commits = size / (time.perf_counter() - start)
            redis.delete("raw:log", "raw:ledger")
            return {"commits": commits, "ours": ours.do("one_call", size)[_RATE]}

        found = bench.repeated("beside raw commits", both)
    yield Line("", "/s", found["ours"], "raw commits", found["commits"], Goal(1))


def _memory(bench: Bench) -> Iterator[Line]:
    size = bench.size(10_000)
    with bench.warm(OURS, "one_call", size) as ours, Redis(port=_port(ours)) as redis:
        before = _used_bytes(redis)
        ours.do("one_call", size)
        payload = sum(len(f"{n}{n + 1}") for n in range(size))
        beyond = (_used_bytes(redis) - before - payload) / size
    yield Line(f"for each of {size:,}", "bytes", beyond, goal=Goal(600, is_most=True))
    if bench.is_full:
        yield from _large(bench)


def _large(bench: Bench) -> Iterator[Line]:
    """Large runs, once each since they take long, and runs of ten instances beside the larger one."""
    few, many = bench.size(10_000), bench.size(100_000)
    with (
        bench.warm(OURS, "one_call", few) as ours,
        ours.another_client() as other,
        Redis(port=_port(ours)) as redis,
        ThreadPoolExecutor(1) as pool,
    ):

        def seconds(side: Running, size: int) -> float:
            return size / side.do("one_call", size)[_RATE]

        alone = statistics.median(seconds(other, 10) for _ in range(10))
        bench.say(f"{few:,} instances")
        sooner = seconds(ours, few)
        bench.say(f"{many:,} instances")
        large = pool.submit(seconds, ours, many)
        beside = []
        while not wait([large], timeout=_BETWEEN_SECONDS).done:
            beside.append(seconds(other, 10))
        worker = max(map(_peak_mib, ours.worker_pids))
        client, server = _peak_mib(ours.client.pid), _used_bytes(redis) / _MIB
    times = many // few
    yield Line(f"{few:,} instances", "s", sooner)
    yield Line(f"{many:,} instances", "s", large.result(), f"{few:,}, {times} times", times * sooner, Goal(0.9))
    yield Line("10 instances", "s", alone)
    if beside:
        yield Line(f"10 instances beside {many:,}", "s", statistics.median(beside))
    yield Line("a process of the worker at most", "MiB", worker)
    yield Line("the client at most", "MiB", client)
    yield Line("the server with all of this ended", "MiB", server)


def _start(bench: Bench) -> Iterator[Line]:
    """From the start of a process: to its end, and to its word that it takes tasks."""
    acts = str(OURS.folder / "acts")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "small.json"
        call = {"_tool": "add_one", "number": 1, "_outputPath": "†state.sum"}
        file.write_text(json.dumps({"solution": {"calls": [call]}}), encoding="utf-8")
        command = [acts, "run", str(file), "--activities", "tests.benchmarks.activities", "--json"]

        def run() -> Figures:
            start = time.perf_counter()
            done = subprocess.run(command, capture_output=True, check=False)
            seconds = time.perf_counter() - start
            if done.returncode or json.loads(done.stdout)["global"]["state"]["sum"] != 2:
                raise SideFailed(f"acts run: {(done.stderr or done.stdout).decode()[-500:]}")
            return {"seconds": seconds}

        seconds = bench.repeated("acts run", run)["seconds"]
    yield Line("`acts run` of a file with one call", "s", seconds, goal=Goal(1, is_strict=True, is_most=True))
    with running(OURS) as ours:

        def ready() -> Figures:
            start = time.perf_counter()
            with worker_of(OURS, ours.environment, ours.log):
                return {"seconds": time.perf_counter() - start}

        seconds = bench.repeated("acts worker", ready)["seconds"]
    yield Line("`acts worker` takes tasks", "s", seconds, goal=Goal(1.2, is_strict=True, is_most=True))


def _ours(*options: str) -> Side:
    return replace(OURS, worker=(*OURS.worker, *options))


def _used_bytes(redis: Redis) -> int:
    """What the server holds, but for its connections: it counts what they hold once a second, so at rest."""
    before = None
    for _ in range(_READINGS):
        found: Any = redis.info("memory")
        used = int(found["used_memory"]) - int(found["mem_clients_normal"])
        if before is not None and abs(used - before) < _AT_REST_BYTES:
            return used
        before = used
        time.sleep(1)
    raise SideFailed(f"the server's memory has not come to rest within {_READINGS} s")


def _peak_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


def _port(side: Running) -> int:
    assert side.port is not None
    return side.port


ROWS: Final = (
    Row("one-call", "one call for each of 2,000 instances", _ONE_CALL),
    Row(
        "chain",
        "a chain of five for each of 400 instances",
        Contest("chain", 400, [(CELERY, _RATE, Goal(6)), (LANGGRAPH, _RATE, _AHEAD)]),
    ),
    Row(
        "diamond",
        "1 -> 10 -> 1 calls for each of 200 instances",
        Contest("diamond", 200, [(CELERY, _RATE, Goal(6))]),
    ),
    Row(
        "one-by-one",
        "one call, from submitting it to its result",
        Contest(
            "one_by_one",
            200,
            [(CELERY, "p50", Goal(1)), (CELERY, "p99", Goal(1))],
            units={"p50": "ms", "p99": "ms"},
        ),
    ),
    Row(
        "waiting",
        "500 calls that wait 100 ms",
        Contest("waiting", 500, [(CELERY_THREADS, _RATE, Goal(2.5)), (TASKIQ, _RATE, Goal(1))]),
    ),
    Row("delegates", "500 delegates, 1 KB in scope of 200 KB", _delegates),
    Row(
        "forgotten",
        "5,000 calls sent and forgotten",
        Contest(
            "forgotten",
            5_000,
            [(CELERY, _RATE, Goal(2)), (CELERY, "executed", None)],
            units={_RATE: "/s", "executed": "/s"},
        ),
    ),
    Row(
        "distance",
        "one call for each of 2,000 instances, Redis 2 ms away",
        _distance,
    ),
    Row("requests", "requests to a model server", _requests),
    Row("workers", "calls that wait 100 ms, four at a time in each worker process", _workers),
    Row("commits", "one call for each of 2,000 instances, beside one client that commits one by one", _commits),
    Row("memory", "what is left in Redis of an instance with one call", _memory),
    Row("start", "from nothing", _start),
)
