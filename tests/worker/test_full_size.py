"""What must not grow or wait, at full size, with real processes and by the clock.

Each of these is held by counts, too, in `test_scheduler` and `test_liveness`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acts_celery.broker_config import EmbeddedServer, load
from tests.chaos.server import Server

from .backend import ACTIVITIES, MODEL, Backend, Meeting, meeting_url, settings_for
from .test_liveness import wait_for_sweep

pytestmark = pytest.mark.nightly
DELAY_SECONDS = 15
OUTAGE_SECONDS = 4
WATCHED_SWEEPS = 20


@pytest.fixture
def server() -> Iterator[EmbeddedServer]:
    with EmbeddedServer() as running:
        yield running


@pytest.fixture
def backend(server: EmbeddedServer, tmp_path: Path) -> Backend:
    """A server of our own; every setting at its default."""
    return Backend(settings_for(server), Meeting(meeting_url(server)), tmp_path)


def test_four_times_as_many_remote_calls_of_one_instance_take_at_most_five_times_as_long(backend: Backend) -> None:
    def taken(count: int) -> float:
        calls = [{"_tool": "remoteAdd", "a": n, "b": 0, "_outputPath": f"†state.p{n}"} for n in range(count)]
        begun = time.monotonic()
        assert backend.run(calls).status == "completed"
        return time.monotonic() - begun

    with backend.worker("-Q", "instances"), backend.worker("-Q", "lathe"):
        taken(50)
        # The machine may be busy with others now and then.
        assert any(taken(2_000) <= 5 * taken(500) for _ in range(3))


def test_a_broker_that_is_away_for_seconds_costs_no_call_in_line_and_loses_nothing(
    backend: Backend, tmp_path: Path
) -> None:
    broker = Server(tmp_path / "broker")
    broker.start()
    try:
        log = backend.settings.require_redis()
        settings = load(env_file=None, broker_url=broker.url, redis_url=log, activities=(str(ACTIVITIES),), model=MODEL)
        parted = Backend(settings, backend.meeting, tmp_path)
        waiting = [
            {"_tool": "waitAtGate", "gate": f"line-{n}", "value": n, "_outputPath": f"†state.p{n}"} for n in range(5)
        ]
        after = [{"_tool": "remoteAdd", "a": f"†state.p{n}", "b": 0, "_outputPath": f"†state.q{n}"} for n in range(5)]
        with parted.worker("-Q", "instances"), parted.worker("-Q", "lathe"):
            run = parted.client.submit(solution={"calls": [*waiting, *after]})
            for n in range(5):
                parted.meeting.take(f"at:line-{n}")
            broker.kill()
            for n in range(5):
                parted.meeting.open_gate(f"line-{n}")
            threading.Event().wait(OUTAGE_SECONDS)  # how long it is away is what is tried
            assert run.status()["calls"].get("done") == 5
            broker.start()
            assert parted.wait(run.id).status == "completed"
        assert [parted.meeting.count(f"at:line-{n}") for n in range(5)] == [0] * 5, "none began again"
    finally:
        broker.stop()


def test_a_coroutine_that_blocks_its_loop_delays_no_other_instance_where_a_worker_is_idle(backend: Backend) -> None:
    others = 19
    plan = {
        "type": "plan",
        "calls": [{"_tool": "restOrBlock", "mark": "†state.mark", "others": others, "_outputPath": "†state.seen"}],
    }
    with backend.worker("-Q", "instances"):
        run = backend.client.submit(
            [plan, *({"type": "state", "_instance": f"i{n}", "mark": n} for n in range(others + 1))]
        )
        backend.meeting.take("blocking")
        with backend.worker("-Q", "instances"):
            begun = time.monotonic()
            ended = (event for event in run.follow() if event.kind == "call")
            for _ in range(others):
                assert next(ended).status == "done"
            seconds = time.monotonic() - begun
            backend.meeting.open_gate("blocking")
            assert backend.wait(run.id).status == "completed"
    print(f"neighbours of a blocked loop ended after {seconds:.1f} s")
    assert seconds < DELAY_SECONDS
    assert "restOrBlock, call" in backend.log.read_text(), "a warning names the activity"


def test_runs_that_are_paused_cost_next_to_nothing(backend: Backend, server: EmbeddedServer) -> None:
    def shares() -> tuple[float, float]:
        """The parts of a core that the worker and the server use while the sweep looks so many times."""
        while backend.redis.llen("instances") or backend.redis.zcard("acts:due"):
            assert wait_for_sweep(backend), "their tasks are taken, and each is looked at once"
        before, begun = (cpu_seconds(worker.pid), server_seconds(backend)), time.monotonic()
        for _ in range(WATCHED_SWEEPS):
            assert wait_for_sweep(backend)
        after, seconds = (cpu_seconds(worker.pid), server_seconds(backend)), time.monotonic() - begun
        return (after[0] - before[0]) / seconds, (after[1] - before[1]) / seconds

    def pause(count: int) -> None:
        for _ in range(count):
            call = {"_tool": "echo", "value": 1, "_outputPath": "†state.a"}
            backend.client.submit(solution={"calls": [call]}).pause()

    pause(1)
    with backend.worker("-Q", "instances") as worker:
        few = shares()
    pause(3_000)
    with backend.worker("-Q", "instances") as worker:
        many = shares()
    print(f"1 paused run: {few}, 3,001: {many} of a core (worker, server)")
    assert many[0] - few[0] < 0.03
    assert many[1] - few[1] < 0.02


def cpu_seconds(pid: int) -> float:
    """What a process has used of processors so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def server_seconds(backend: Backend) -> float:
    """What the server has used so far."""
    found: Any = backend.redis.info("cpu")
    return float(found["used_cpu_user"]) + float(found["used_cpu_sys"])
