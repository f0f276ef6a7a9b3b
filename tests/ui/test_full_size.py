"""A run of 100,000 instances: the first answers come at once, and the server's memory does not grow with it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.worker.backend import Backend

from .sites import READER, Site

pytestmark = pytest.mark.nightly

INSTANCES = 100_000
FIRST_SECONDS = 2.0
MOST_KIB = 150_000


def resident_kib(pid: int) -> int:
    """What a process has in memory."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1])


def test_a_run_of_100_000_instances_looks_like_one(backend: Backend, site: Site) -> None:
    plan = {"type": "plan", "calls": [{"_tool": "echo", "value": "†state.n", "_outputPath": "†state.a"}]}
    instances = [{"type": "state", "_instance": f"i{number}", "n": number} for number in range(INSTANCES)]
    run = backend.client.submit([plan, *instances]).id
    backend.client.run(run).pause()
    site.get("/api/runs", READER)
    before = resident_kib(site.process.pid)
    parts = ("", "/plan", "/calls/0", "/instances", "/instance?name=i7", "/log?instance=i7", "/held")
    for part in parts:
        began = time.monotonic()
        answer = site.get(f"/api/runs/{run}{part}", READER)
        assert answer.status_code == 200
        assert time.monotonic() - began < FIRST_SECONDS, part
        assert len(answer.content) < 1_000_000
    while site.get(f"/api/runs/{run}/plan", READER).json()["reading"] is not None:
        time.sleep(0.02)
    assert resident_kib(site.process.pid) - before < MOST_KIB
    backend.client.run(run).cancel()
