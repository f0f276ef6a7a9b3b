"""What acts-celery costs: `make bench` or `python -m tests.benchmarks [core|backend|scale]`.

`backend`, the default: beside Celery alone, on one server, in turns. Prints medians in units per second and the ratio
of each pair of runs. `core`: how the cost of the pure core grows, see `tests.benchmarks.core`. `scale`: what one run of
very many instances costs, and how long a small one behind it takes, see `tests.benchmarks.scale`. Absolute figures are
this machine's; compare the ratios. Nothing here is asserted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack

from tests.benchmarks import core, scale
from tests.benchmarks.jobs import JOBS, Job
from tests.benchmarks.surroundings import server, worker
from worker import Client
from worker.registry.loading import load

_ACTIVITIES = "tests.benchmarks.activities"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument(
        "part", nargs="?", choices=("core", "backend", "scale"), default="backend", help="what to measure"
    )
    parser.add_argument("--rounds", type=int, default=3, help="timed runs of each job on each side (default 3)")
    parser.add_argument("--workers", type=int, default=2, help="worker processes on each side (default 2)")
    parser.add_argument("--instances", type=int, default=100_000, help="scale: of the large run (default 100,000)")
    parser.add_argument("--json", action="store_true", help="machine output")
    parser.add_argument("--only", default="", help="core: only what has this text in its name")
    arguments = parser.parse_args()
    if arguments.part == "core":
        _core(arguments)
    elif arguments.part == "scale":
        figures = scale.measure(arguments.instances, arguments.workers)
        if arguments.json:
            print(json.dumps(dict(figures), indent=1))
        else:
            for line in scale.table(figures):
                print(line, flush=True)
    else:
        _backend(arguments)


def _core(arguments: argparse.Namespace) -> None:
    rows, counts = core.measure(arguments.rounds, arguments.only), core.constructions()
    imported = core.import_ratio()
    if arguments.json:
        print(
            json.dumps(
                {"measured": [row.to_dict() for row in rows], "constructions": counts, "import": imported}, indent=1
            )
        )
    else:
        for line in core.table(rows, counts):
            print(line, flush=True)
        print(f"import of protocol, by an empty interpreter: {imported}", flush=True)


def _backend(arguments: argparse.Namespace) -> None:
    load(_ACTIVITIES)
    with ExitStack() as stack:
        address = stack.enter_context(server())
        from tests.benchmarks.bare_celery import app

        app.conf.update(broker_url=address, result_backend=address)
        environment = {
            **os.environ,
            "ACTS_BROKER_URL": address,
            "ACTS_REDIS_URL": address,
            "ACTS_ACTIVITIES": _ACTIVITIES,
            "BENCH_BROKER": address,
            "BENCH_BACKEND": address,
        }
        for number in range(arguments.workers):
            ours = ["-m", "celery", "-A", "worker", "worker", "-n", f"ours{number}@%h"]
            theirs = ["-m", "celery", "-A", "tests.benchmarks.bare_celery", "worker", "-Q", "bare", "-P", "threads"]
            theirs += ["-c", "128", "-n", f"theirs{number}@%h"]
            stack.enter_context(worker(ours, environment))
            stack.enter_context(worker(theirs, environment))
        client = stack.enter_context(Client(broker=address, redis=address))
        rows = [_measure(job, client, arguments.rounds) for job in JOBS]
    print(json.dumps(rows, indent=1) if arguments.json else _table(rows))


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
