"""What figures cost: one call for each of 2,000 instances takes a worker hardly longer with them than without.

Rounds with and without figures differ by more than that on a machine that has other work. So what a worker has noted is
noted once more, by itself, and the time for it is compared with what a round takes.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import process_time

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.telemetry.process_figures import ProcessFigures

from .backend import Backend, Meeting, settings_apart
from .figures import free_port, page, value

pytestmark = pytest.mark.nightly
INSTANCES = 2_000
ROUNDS = 5
MOST_SHARE = 0.01
"""Of the processor time. Among all else that a worker does the same takes up to three times as long."""
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


def noted(commits: int) -> float:
    """Seconds of processor time for noting what a worker notes of the run, and for showing it once."""
    registry = CollectorRegistry()
    figures = ProcessFigures(registry, ["instances"])
    began = process_time()
    for number in range(INSTANCES):
        figures.task_taken("instances")
        figures.waited("instances", "", 0.02)
        figures.attempt_began("add")
        figures.attempt_ended("add", "done", 0.01)
        figures.call_ended("add", "done")
        figures.task_answered("instances")
        for _ in range(commits * (number + 1) // INSTANCES - commits * number // INSTANCES):
            figures.committed(0.02)
    generate_latest(registry)
    return process_time() - began


def test_a_worker_takes_at_most_three_in_a_hundred_of_its_time_for_figures(
    server: EmbeddedServer, meeting: Meeting, tmp_path: Path
) -> None:
    backend, port = Backend(settings_apart(server, "counting"), meeting, tmp_path), free_port()
    with backend.worker("--metrics-port", str(port)) as worker:
        seconds = min(work(backend, worker.pid) for _ in range(ROUNDS))
        found = page(f"http://127.0.0.1:{port}/metrics")
    assert value(found, "acts_calls_total", tool="add", status="done") == ROUNDS * INSTANCES
    commits = int(value(found, "acts_commit_seconds_count")) // ROUNDS
    share = min(noted(commits) for _ in range(ROUNDS)) / seconds
    print(f"{share:.4f} of {seconds:.2f} s, with {commits} commits")
    assert share <= MOST_SHARE
