"""Priorities of runs: what is urgent is taken first of what waits in a queue, and nothing waits for ever."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery import Run
from acts_celery.protocol import Rejected

from .backend import Backend

RUNS = 60


def submitted(backend: Backend, number: int, priority: int, tool: str) -> list[Run[Any]]:
    calls = [{"_tool": tool, "value": priority, "_outputPath": "†state.a"}]
    return [backend.client.submit([], {"calls": calls}, priority=priority) for _ in range(number)]


def ends(runs: list[Run[Any]]) -> list[str]:
    """The ids of the entries with which runs have ended, which are in the order of their times."""
    return [next(event.id for event in run.follow() if event.is_end) for run in runs]


def overtakes(backend: Backend, tool: str) -> None:
    """Assert that of what waits for one worker the urgent runs end first, but not all of them."""
    low = submitted(backend, RUNS, 0, tool)
    high = submitted(backend, RUNS, 9, tool)
    with backend.worker("--concurrency", "1"):
        for run in (*low, *high):
            backend.wait(run.id)
    ended = {priority: ends(runs) for priority, runs in ((0, low), (9, high))}
    first = sorted(ended[0] + ended[9])[:RUNS]
    assert len([id_ for id_ in ended[9] if id_ in first]) > RUNS * 3 / 4
    if tool == "echo":  # else results of the lowest priority wait behind lanes of it
        assert min(ended[0]) < max(ended[9]), "those of the lowest priority have their turns"


@pytest.mark.parametrize("tool", ["echo", "echoFar"])
def test_urgent_runs_overtake_those_that_wait_and_none_starves(own: Backend, tool: str) -> None:
    overtakes(own, tool)


def test_a_run_says_its_priority_and_a_wrong_one_is_refused(backend: Backend) -> None:
    [run] = submitted(backend, 1, 7, "echo")
    assert run.status()["priority"] == 7
    for wrong in (10, -1, True, "high"):
        with pytest.raises(Rejected, match="from 0 to 9"):
            backend.client.submit([], {"calls": []}, priority=wrong)  # type: ignore[arg-type]  # the point of it
