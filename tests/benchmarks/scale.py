"""What one run of very many instances costs, as `python -m tests.benchmarks scale`.

A client of its own process submits it, another one submits a run of ten instances right behind it; told are seconds,
the memory of the client, of the server and of the workers, and how long a run of ten takes with and without the large
one before it. Memory is resident, in MiB. Linux only, as it reads /proc. Nothing here is asserted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from redis import Redis

from tests.benchmarks.surroundings import server, worker
from worker import Client, Run
from worker.loading import load

_ACTIVITIES: Final = "tests.benchmarks.activities"
_MIB: Final = 1024 * 1024
_DEADLINE_SECONDS: Final = 1_800.0
_FEW: Final = 10

Figures = dict[str, float]


def measure(instances: int, workers: int) -> Figures:
    """Everything, on a server and workers of its own."""
    load(_ACTIVITIES)
    with ExitStack() as stack:
        url = stack.enter_context(server())
        environment = {**os.environ, "ACTS_BROKER_URL": url, "ACTS_REDIS_URL": url, "ACTS_ACTIVITIES": _ACTIVITIES}
        redis = stack.enter_context(Redis.from_url(url))
        client = stack.enter_context(Client(broker=url, redis=url))
        before = _used(redis)
        submitter = stack.enter_context(_submitter(instances, environment))
        figures = _read(submitter)  # the large run lies there now, and nobody works on it yet
        figures["server: MiB of the large run, submitted"] = _used(redis) - before
        figures["server: tasks published at once"] = float(redis.llen("instances"))
        processes = [
            stack.enter_context(worker(["-m", "celery", "-A", "worker", "worker", "-n", f"w{n}@%h"], environment))
            for n in range(workers)
        ]
        figures["seconds: ten instances behind the large run"] = _seconds(lambda: _finish(_few(client)))
        figures |= _read(submitter)
        submitter.wait()
        figures["server: MiB of the large run, ended"] = _used(redis) - before
        for number, process in enumerate(processes):
            figures[f"worker {number}: MiB at most"] = _memory(process.pid, "VmHWM")
            figures[f"worker {number}: MiB after it"] = _memory(process.pid, "VmRSS")
        figures["seconds: ten instances alone"] = min(_seconds(lambda: _finish(_few(client))) for _ in range(5))
        return {name: round(value, 3) for name, value in figures.items()}


def table(figures: Mapping[str, float]) -> Iterator[str]:
    """For people."""
    for name, value in figures.items():
        yield f"{name:55}{value:>12,.2f}"


def _few(client: Client) -> Run:
    return _submit(client, _FEW)


def _submit(client: Client, instances: int) -> Run:
    return client.submit(context=_context(instances))


def _context(instances: int) -> Iterable[dict[str, Any]]:
    yield {"type": "plan", "calls": [{"_tool": "echo", "value": "†input.value", "_outputPath": "†state.v"}]}
    for number in range(instances):
        yield {"type": "input", "_instance": f"i{number}", "value": "x"}


def _finish(run: Run) -> None:
    status = run.wait(timeout_seconds=_DEADLINE_SECONDS).status
    assert status == "completed", status


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _used(redis: Redis) -> float:
    found: Any = redis.info("memory")
    return float(found["used_memory"]) / _MIB


def _memory(pid: int | str, what: str) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(what))


def _submitter(instances: int, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.benchmarks.scale", str(instances)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)


def _read(process: subprocess.Popen[bytes]) -> Figures:
    assert process.stdout is not None
    return dict(json.loads(process.stdout.readline()))


def _tell(figures: Figures) -> None:
    print(json.dumps(figures), flush=True)


def submit_and_wait(instances: int) -> None:
    """The client's process: two lines of figures, one when it has submitted and one when it has the result."""
    load(_ACTIVITIES)
    with Client() as client:
        document = {"context": list(_context(instances))}
        figures = {"client: MiB with the submission made": _memory("self", "VmRSS")}
        plan = None

        def check() -> None:
            nonlocal plan
            plan = client.check(document)

        figures["seconds: check"] = _seconds(check)
        figures["client: MiB checked"] = _memory("self", "VmRSS")
        run = None

        def submit() -> None:
            nonlocal run
            assert plan is not None
            run = client.run_of(client._dispatcher.submit(plan))

        figures["seconds: submit, checked"] = _seconds(submit)
        figures["client: MiB submitted"] = _memory("self", "VmHWM")
        _tell(figures)
        assert run is not None
        submitted: Run = run
        start = time.perf_counter()
        events = sum(1 for _ in submitted.follow(timeout_seconds=_DEADLINE_SECONDS))
        figures = {"seconds: work, followed": time.perf_counter() - start, "events": events}
        figures["seconds: status"] = _seconds(submitted.status)
        figures["seconds: follow, all there"] = _seconds(lambda: sum(1 for _ in submitted.follow()))
        figures["client: MiB followed"] = _memory("self", "VmRSS")
        figures["seconds: result"] = _seconds(submitted.result)
        figures["client: MiB at most"] = _memory("self", "VmHWM")
        _tell(figures)


if __name__ == "__main__":
    submit_and_wait(int(sys.argv[1]))
