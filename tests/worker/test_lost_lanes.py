"""A lane that is lost again and again ends its run: nothing else ends a submission that kills its worker."""

from __future__ import annotations

import itertools
from contextlib import suppress
from pathlib import Path

from acts_celery.broker_config import EmbeddedServer

from .backend import Backend, Meeting, settings_apart

ATTEMPTS = 2
FAULTY = """
import os, signal
from acts_celery import activity
from acts_celery.worker.execution.scheduler import Scheduler

view = Scheduler._view


async def faulty(self, lane):
    if lane[1] == "poison":
        {fault}
    return await view(self, lane)


Scheduler._view = faulty


@activity
def double(number: int) -> int:
    return 2 * number
"""
"""Code of a worker that cannot even read a lane of this name: it stands for whatever nobody has thought of."""


def submitted(backend: Backend, *instances: str) -> str:
    """A run with these lanes."""
    states = [{"type": "state", "_instance": instance, "n": number} for number, instance in enumerate(instances)]
    call = {"_tool": "double", "number": "†state.n", "_outputPath": "†state.m"}
    return backend.client.submit([{"type": "plan", "calls": [call]}, *states]).id


def backend_with(fault: str, server: EmbeddedServer, meeting: Meeting, folder: Path) -> Backend:
    """A backend whose workers have a fault."""
    (folder / "faulty.py").write_text(FAULTY.format(fault=fault))
    how = {"lease_seconds": 1.5, "sweep_interval_seconds": 0.2, "limit_attempts": ATTEMPTS}
    settings = settings_apart(server, folder.name, activities=(str(folder / "faulty.py"),), **how)
    return Backend(settings, meeting, folder)


def test_a_run_that_kills_each_of_its_workers_fails_and_its_neighbour_completes(
    server: EmbeddedServer, meeting: Meeting, tmp_path: Path
) -> None:
    backend = backend_with("os.kill(os.getpid(), signal.SIGKILL)", server, meeting, tmp_path)
    poison = submitted(backend, "poison", "fine")
    others = [submitted(backend, "a", "b") for _ in range(30)]
    deaths, result = 0, None
    while result is None:
        with backend.worker() as worker:
            while result is None and worker.poll() is None:
                with suppress(TimeoutError):
                    result = backend.client.run(poison).wait(timeout_seconds=0.5)
            deaths += worker.poll() is not None
        assert deaths <= ATTEMPTS + 1, "one before it is suspected, one for each attempt"
    assert result.status == "failed"
    assert (result.reason or "").startswith(
        f"lane poison was driven {ATTEMPTS + 1} times, and each time its worker died"
    )
    with backend.worker():
        assert {backend.wait(run).status for run in others} == {"completed"}


def test_a_run_whose_lane_fails_in_the_worker_each_time_fails(
    server: EmbeddedServer, meeting: Meeting, tmp_path: Path
) -> None:
    backend = backend_with("raise RuntimeError('no')", server, meeting, tmp_path)
    with backend.worker():
        result = backend.wait(submitted(backend, "poison", "fine"))
    assert result.status == "failed"
    assert (result.reason or "").startswith("lane poison was driven")
    assert result.data("fine")["state"]["m"] == 2


def test_a_lane_that_gets_on_is_not_counted(server: EmbeddedServer, meeting: Meeting, tmp_path: Path) -> None:
    """A worker is killed more often than lanes may be lost, each time while a call of the lane is at work."""
    how = {"lease_seconds": 1.5, "sweep_interval_seconds": 0.2, "limit_attempts": 4}
    backend = Backend(settings_apart(server, "gets-on", **how), meeting, tmp_path)
    calls = [{"_tool": "waitAtGate", "gate": f"on{n}", "value": n, "_outputPath": f"†state.v{n}"} for n in range(6)]
    for earlier, later in itertools.pairwise(calls):
        later["value"] = earlier["_outputPath"]
    run = backend.client.submit(solution={"calls": calls}).id
    for number in range(6):
        with backend.worker() as worker:
            meeting.take(f"at:on{number}")
            worker.kill()
            worker.wait()
        meeting.open_gate(f"on{number}")
    with backend.worker():
        assert backend.wait(run).status == "completed"
