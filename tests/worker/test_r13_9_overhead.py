"""What a loop costs besides its model: the time of a tick whose answer comes at once (SPEC R13.9)."""

from __future__ import annotations

from itertools import pairwise
from statistics import median

import pytest

from acts_celery.broker_config import EmbeddedServer

from .backend import Backend, Meeting
from .loops import Asked, answer, loop_settings

pytestmark = pytest.mark.nightly
MOST_MS = 25
TICKS = 30


def test_r13_9_a_tick_costs_less_than_twenty_five_milliseconds_beside_its_model(
    server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory
) -> None:
    loops = Backend(loop_settings(server, "overhead"), meeting, tmp_path_factory.mktemp("overhead"))
    calls = [{"_tool": "add", "a": tick, "b": 1, "_outputPath": f"†state.s{tick}"} for tick in range(TICKS)]
    with loops.worker():
        best = min(_tick_ms(loops, calls) for _ in range(5))
    assert best < MOST_MS, f"a tick takes {best:.0f} ms"


def _tick_ms(loops: Backend, calls: list[dict[str, object]]) -> float:
    """The median time from one solution to the next: its call runs, the next request is written down and asked."""
    asked = Asked(loops, *map(answer, calls), answer(output=1), config={"ticks": TICKS + 1})
    assert asked.result().status == "completed"
    ids = [int(entry.id.partition("-")[0]) for entry in asked.run.log() if entry.message["type"] == "solution"]
    return median(after - before for before, after in pairwise(ids))
