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
from worker.registry.loading import load

_ACTIVITIES: Final = "tests.benchmarks.activities"
_MIB: Final = 1024 * 1024
_DEADLINE_SECONDS: Final = 1_800.0
_FEW: Final = 10
_MANY: Final = 500

Figure = tuple[str, float]


def measure(instances: int, workers: int) -> Iterator[Figure]:
    """Everything, on a server and workers of its own, figure by figure as they are known."""
    load(_ACTIVITIES)
    with ExitStack() as stack:
        url = stack.enter_context(server())
        environment = {**os.environ, "ACTS_BROKER_URL": url, "ACTS_REDIS_URL": url, "ACTS_ACTIVITIES": _ACTIVITIES}
        redis = stack.enter_context(Redis.from_url(url))
        client = stack.enter_context(Client(broker=url, redis=url))
        before = _used(redis)
        submitter = stack.enter_context(_submitter(instances, environment))
        told = _read(submitter)  # the large run lies there now, and nobody works on it yet
        large = client.run(told.pop("run"))
        yield from told.items()
        yield "server: MiB of the large run, submitted", _used(redis) - before
        yield "server: tasks published at once", float(redis.llen("instances"))
        processes = [
            stack.enter_context(worker(["-m", "celery", "-A", "worker", "worker", "-n", f"w{n}@%h"], environment))
            for n in range(workers)
        ]
        next(event for event in large.follow() if event.kind == "call")
        yield "seconds: ten instances behind the large run", _seconds(lambda: _finish(_submit(client, _FEW)))
        yield from _read(submitter).items()
        submitter.wait()
        yield "server: MiB of the large run, ended", _used(redis) - before
        for number, process in enumerate(processes):
            yield f"worker {number}: MiB at most", _memory(process.pid, "VmHWM")
            yield f"worker {number}: MiB after it", _memory(process.pid, "VmRSS")
        yield "seconds: ten instances alone", min(_seconds(lambda: _finish(_submit(client, _FEW))) for _ in range(5))
        for limit in (None, _MANY, 4):
            name = f"seconds: {_MANY} instances, {'no limit' if limit is None else f'at most {limit} calls at work'}"
            yield name, _seconds(lambda: _finish(_submit(client, _MANY, limit)))  # noqa: B023  # called at once


def table(figures: Iterable[Figure]) -> Iterator[str]:
    """For people, line by line as it is measured."""
    for name, value in figures:
        yield f"{name:65}{value:>12,.2f}"


def _submit(client: Client, instances: int, limit: int | None = None) -> Run:
    config = {} if limit is None else {"max_concurrency": limit}
    return client.submit_document({"context": list(_context(instances)), "config": config})


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


def _read(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    assert process.stdout is not None
    return dict(json.loads(process.stdout.readline()))


def submit_and_wait(instances: int) -> None:
    """The client's process: two lines of figures, one when it has submitted and one when it has the result."""
    load(_ACTIVITIES)
    with Client() as client:
        document = {"context": list(_context(instances))}
        figures: dict[str, Any] = {"client: MiB with the submission made": _memory("self", "VmRSS")}
        start = time.perf_counter()
        run = client.submit_document(document)
        figures["run"] = run.id
        figures["seconds: check and submit"] = time.perf_counter() - start
        figures["client: MiB at most, submitting"] = _memory("self", "VmHWM")
        print(json.dumps(figures), flush=True)
        start, busy = time.perf_counter(), time.process_time()
        status = run.wait(timeout_seconds=_DEADLINE_SECONDS).status
        figures = {"seconds: waited for the result": time.perf_counter() - start}
        assert status == "completed", status
        figures["client: processor seconds, waiting for it"] = time.process_time() - busy
        figures["seconds: status"] = _seconds(run.status)
        figures["seconds: follow, all there"] = _seconds(lambda: sum(1 for _ in run.follow()))
        figures["seconds: result"] = _seconds(run.result)
        figures["client: MiB at most"] = _memory("self", "VmHWM")
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    submit_and_wait(int(sys.argv[1]))
