"""acts-celery beside Celery alone, on one server, in turns: `make bench` or `python -m tests.benchmarks`.

Prints medians in units per second and the ratio of each pair of runs. Absolute figures are this machine's; compare the
ratios. Nothing here is asserted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from broker_config import EmbeddedServer
from tests.benchmarks.jobs import JOBS, Job
from worker import Client
from worker.loading import load

_ACTIVITIES = "tests.benchmarks.activities"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="timed runs of each job on each side (default 3)")
    parser.add_argument("--workers", type=int, default=2, help="worker processes on each side (default 2)")
    parser.add_argument("--json", action="store_true", help="machine output")
    arguments = parser.parse_args()
    load(_ACTIVITIES)
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer())
        from tests.benchmarks.bare_celery import app

        backend = server.broker_url.replace("redis+socket", "redis+socket")
        app.conf.update(broker_url=server.broker_url, result_backend=backend)
        environment = {
            **os.environ,
            "ACTS_BROKER_URL": server.broker_url,
            "ACTS_REDIS_URL": server.redis_url,
            "ACTS_ACTIVITIES": _ACTIVITIES,
            "BENCH_BROKER": server.broker_url,
            "BENCH_BACKEND": backend,
        }
        for number in range(arguments.workers):
            ours = ["-m", "celery", "-A", "worker", "worker", "-n", f"ours{number}@%h"]
            theirs = ["-m", "celery", "-A", "tests.benchmarks.bare_celery", "worker", "-Q", "bare", "-P", "threads"]
            theirs += ["-c", "128", "-n", f"theirs{number}@%h"]
            stack.enter_context(_worker(ours, environment))
            stack.enter_context(_worker(theirs, environment))
        client = stack.enter_context(Client(broker=server.broker_url, redis=server.redis_url))
        rows = [_measure(job, client, arguments.rounds) for job in JOBS]
    print(json.dumps(rows, indent=1) if arguments.json else _table(rows))


@contextmanager
def _worker(command: list[str], environment: dict[str, str]) -> Iterator[None]:
    quiet = ["--loglevel", "ERROR", "--without-mingle", "--without-gossip"]
    process = subprocess.Popen(
        [sys.executable, *command, *quiet], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _measure(job: Job, client: Client, rounds: int) -> dict[str, object]:
    """Both sides in turn, after a warm-up that also waits for the workers."""
    warm = min(job.size, 20)
    job.ours(client, warm)
    job.theirs(warm)
    pairs = [
        (_seconds(lambda: job.ours(client, job.size)), _seconds(lambda: job.theirs(job.size))) for _ in range(rounds)
    ]
    return {
        "job": f"{job.size} {job.unit}, {job.name}",
        "ours_per_second": round(job.size / statistics.median(ours for ours, _ in pairs)),
        "celery_per_second": round(job.size / statistics.median(theirs for _, theirs in pairs)),
        "ratio": round(statistics.median(theirs / ours for ours, theirs in pairs), 2),
    }


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _table(rows: list[dict[str, object]]) -> str:
    lines = [f"{'':45}{'acts-celery':>14}{'Celery alone':>14}{'ratio':>8}"]
    lines += [
        f"{row['job']!s:45}{row['ours_per_second']!s:>12}/s{row['celery_per_second']!s:>12}/s{row['ratio']!s:>8}"
        for row in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
