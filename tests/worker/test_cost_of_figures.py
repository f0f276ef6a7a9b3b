"""What figures cost: one call for each of 2,000 instances takes a worker hardly longer with them than without.

What else the machine does makes a round longer and never shorter, so the quickest rounds are compared.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from acts_celery.broker_config import EmbeddedServer

from .backend import Backend, Meeting, settings_apart
from .figures import free_port

pytestmark = pytest.mark.nightly
INSTANCES = 2_000
ROUNDS = 12
MOST_DEARER = 1.03
CONTEXT = [{"type": "state", "_instance": f"n{number}", "a": number} for number in range(INSTANCES)]
PLAN = {"type": "plan", "calls": [{"_tool": "add", "a": "†state.a", "b": 1, "_outputPath": "†state.b"}]}


def work(backend: Backend, pid: int) -> float:
    """Seconds of processor time that a worker takes for the run."""
    before = processor_seconds(pid)
    backend.wait(backend.client.submit([*CONTEXT, PLAN]).id)
    return processor_seconds(pid) - before


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_worker_with_figures_takes_at_most_three_in_a_hundred_more_than_one_without(
    server: EmbeddedServer, meeting: Meeting, tmp_path: Path
) -> None:
    plain, counting = (Backend(settings_apart(server, name), meeting, tmp_path) for name in ("plain", "counting"))
    with plain.worker() as first, counting.worker("--metrics-port", str(free_port())) as second:
        sides = [(plain, first.pid), (counting, second.pid)]
        for side in sides:
            work(*side)
        rounds = [[work(*side) for side in sides] for _ in range(ROUNDS)]
    cheap, dear = (min(times) for times in zip(*rounds, strict=True))
    print(f"{dear / cheap:.3f} times as long with figures: {rounds}")
    assert dear <= MOST_DEARER * cheap, rounds
