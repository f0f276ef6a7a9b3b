"""What calls cost that wait for a moment: `python -m tests.benchmarks waits` (SPEC R4.12).

Runs of `CALLS` such calls go through a server and a worker of their own. Measured are what waiting adds
to the server's memory, and a sweep when nothing is due and when `DUE` calls are. Nothing here is asserted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from redis import Redis

from acts_celery import Client, Run
from acts_celery.broker_config import EmbeddedServer, Settings
from acts_celery.worker.broker.consumer import Publisher
from acts_celery.worker.broker.transport import ReportQueue
from acts_celery.worker.recovery.sweep import Sweeper
from acts_celery.worker.runner.application import make_client_application
from acts_celery.worker.store.connections import connect
from acts_celery.worker.store.keys import Keys, due_runs
from tests.worker.backend import Backend, Meeting, meeting_url, settings_for

CALLS: Final = 100_000
"""In each run."""
DUE: Final = 1_000
SWEEPS: Final = 11
_FAR: Final = "2036-01-01T00:00:00Z"


def measure(runs: int) -> Iterator[str]:
    """Have so many runs wait, and say what that takes."""
    with EmbeddedServer() as server, TemporaryDirectory() as folder:
        backend = Backend(settings_for(server), Meeting(meeting_url(server)), Path(folder))
        found = [_submit(backend.client, number) for number in range(runs)]
        keys = [Keys(backend.settings.key_prefix, run.id) for run in found]
        before = _memory(backend.redis)
        with backend.worker():
            begun = time.monotonic()
            while (waiting := sum(backend.redis.zcard(one.waits) for one in keys)) < runs * CALLS:
                print(f"\r{waiting:,} wait", end="", file=sys.stderr, flush=True)
                time.sleep(0.5)
            seconds = time.monotonic() - begun
        taken = _memory(backend.redis) - before
        calls = runs * CALLS
        yield f"{calls:,} calls wait, begun in {seconds:.0f} s: {taken / 1e6:,.0f} MB, {taken / calls:.0f} bytes each"
        sweeper = _sweeper(backend.settings)
        sweeper.sweep()
        yield f"a sweep, nothing due: {median(_swept(sweeper) for _ in range(SWEEPS)):.0f} ms"
        times = []
        for _ in range(SWEEPS):
            _end_some(backend, keys[0])
            times.append(_swept(sweeper))
        yield f"a sweep, {DUE:,} calls due: {median(times):.0f} ms"


def _submit(client: Client, number: int) -> Run[Any]:
    """A run whose calls wait for long."""
    calls = [{"_tool": "wait", "until": _FAR, "_outputPath": f"†state.w{index}"} for index in range(CALLS)]
    return client.submit(solution={"calls": calls}, name=f"waits {number}")


def _memory(redis: Redis) -> int:
    redis.memory_purge()
    return int(redis.info("memory")["used_memory"])


def _sweeper(settings: Settings) -> Sweeper:
    """A sweeper that sweeps when it is told to."""
    app = make_client_application(settings)
    return Sweeper(connect(settings), Publisher(app), ReportQueue(app, settings), settings)


def _end_some(backend: Backend, run: Keys) -> None:
    """Have the moment come of some calls of a run."""
    members: Any = backend.redis.zrange(run.waits, 0, DUE - 1)
    backend.redis.zadd(run.waits, dict.fromkeys(members, 1), xx=True)
    backend.redis.zadd(due_runs(backend.settings.key_prefix), {run.run: 0})


def _swept(sweeper: Sweeper) -> float:
    """Sweep; how long that took, in ms."""
    begun = time.perf_counter()
    sweeper.sweep()
    return (time.perf_counter() - begun) * 1000
