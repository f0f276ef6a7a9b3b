"""A lane that is lost again and again ends its run: nothing else ends a submission that kills its worker."""

from __future__ import annotations

import itertools
from contextlib import suppress
from pathlib import Path

import pytest

from acts_celery.broker_config import EmbeddedServer

from .backend import FIXTURES, Backend, Meeting, settings_apart

ATTEMPTS = 2
FAULTY = FIXTURES / "faulty_lanes.py"


def submitted(backend: Backend, *instances: str) -> str:
    """A run with these lanes."""
    states = [{"type": "state", "_instance": instance, "n": number} for number, instance in enumerate(instances)]
    call = {"_tool": "doubled", "number": "†state.n", "_outputPath": "†state.m"}
    return backend.client.submit([{"type": "plan", "calls": [call]}, *states]).id


def backend_with(server: EmbeddedServer, meeting: Meeting, folder: Path) -> Backend:
    """A backend whose workers may have a fault."""
    how = {"lease_seconds": 1.5, "sweep_interval_seconds": 0.2, "limit_attempts": ATTEMPTS}
    return Backend(settings_apart(server, folder.name, activities=(str(FAULTY),), **how), meeting, folder)


def test_a_run_that_kills_each_of_its_workers_fails_and_its_neighbour_completes(
    server: EmbeddedServer, meeting: Meeting, tmp_path: Path
) -> None:
    backend = backend_with(server, meeting, tmp_path)
    poison = submitted(backend, "poison", "fine")
    others = [submitted(backend, "a", "b") for _ in range(30)]
    deaths, result = 0, None
    while result is None:
        with backend.worker(LANE_FAULT="dies") as worker:
            while result is None and worker.poll() is None:
                with suppress(TimeoutError):
                    result = backend.client.run(poison).wait(timeout_seconds=0.5)
            deaths += worker.poll() is not None
        assert deaths <= ATTEMPTS + 1, "one before it is suspected, one for each attempt"
    assert result.status == "failed"
    assert (result.reason or "").startswith(
        f"lane poison was driven {ATTEMPTS + 1} times, and each time its worker died"
    )
    with backend.worker(LANE_FAULT="dies"):
        assert {backend.wait(run).status for run in others} == {"completed"}


@pytest.mark.nightly
def test_a_run_whose_lane_fails_in_the_worker_each_time_fails(
    server: EmbeddedServer, meeting: Meeting, tmp_path: Path
) -> None:
    backend = backend_with(server, meeting, tmp_path)
    with backend.worker(LANE_FAULT="fails"):
        result = backend.wait(submitted(backend, "poison", "fine"))
    assert result.status == "failed"
    assert (result.reason or "").startswith("lane poison was driven")
    assert result.data("fine")["state"]["m"] == 2


@pytest.mark.nightly
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
