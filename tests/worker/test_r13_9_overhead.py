"""What a loop costs besides its model: the time of a tick whose answer comes at once (SPEC R13.9)."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

from acts_celery.broker_config import EmbeddedServer
from tests.benchmarks import conversation

from .backend import Backend, Meeting
from .loops import Asked, answer, loop_settings

MOST_MS = 25
TICKS = 30
MOST_TIMES = 10
MOST_TIMES_IN_LOG = 1.3


def test_r13_9_what_crosses_redis_and_what_is_kept_grow_with_what_is_new_and_not_with_the_conversation(
    tmp_path: Path,
) -> None:
    with EmbeddedServer() as server:
        found = conversation.hold(server, tmp_path, ticks=100)
    assert found.sent + found.received < MOST_TIMES * found.said
    assert found.log < MOST_TIMES_IN_LOG * found.said


@pytest.mark.parametrize("is_apart", [False, True])
def test_r13_9_a_worker_that_cannot_read_the_log_is_sent_the_whole_request(
    server: EmbeddedServer, meeting: Meeting, tmp_path: Path, *, is_apart: bool
) -> None:
    loops = Backend(loop_settings(server, f"apart-{is_apart}"), meeting, tmp_path)
    names = loops.settings.queue_instances, loops.settings.queue_delegates
    with loops.worker("-Q", names[0] if is_apart else ",".join(names)), loops.worker("-Q", names[1]):
        asked = Asked(loops, *(answer(add(tick)) for tick in range(3)), answer(output="†state.s2"), config={"ticks": 9})
        assert asked.result().output == 3
    (first, *others) = [request["messages"] for request in asked.requests]
    assert all(after[: len(before)] == before for before, after in pairwise([first, *others]))
    assert len(others[-1]) > len(first)


def add(tick: int) -> dict[str, object]:
    """A call that adds one."""
    return {"_tool": "add", "a": tick, "b": 1, "_outputPath": f"†state.s{tick}"}


@pytest.mark.nightly
def test_r13_9_a_tick_costs_less_than_twenty_five_milliseconds_beside_its_model(
    server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory
) -> None:
    loops = Backend(loop_settings(server, "overhead"), meeting, tmp_path_factory.mktemp("overhead"))
    calls = [*map(add, range(TICKS))]
    with loops.worker():
        best = min(_tick_ms(loops, calls) for _ in range(5))
    assert best < MOST_MS, f"a tick takes {best:.0f} ms"


def _tick_ms(loops: Backend, calls: list[dict[str, object]]) -> float:
    """The median time from one solution to the next: its call runs, the next request is written down and asked."""
    asked = Asked(loops, *map(answer, calls), answer(output=1), config={"ticks": TICKS + 1})
    assert asked.result().status == "completed"
    ids = [int(entry.id.partition("-")[0]) for entry in asked.run.log() if entry.message["type"] == "solution"]
    return median(after - before for before, after in pairwise(ids))
