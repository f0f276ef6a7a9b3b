"""Workers that are told to end: what has begun may end, what has not goes on elsewhere, nothing is done twice."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from itertools import islice, pairwise
from typing import Any

import pytest

from acts_celery import Run
from acts_celery.worker.store.keys import Keys

from .backend import DEADLINE_SECONDS, Backend, heard, status_of

MOST_PAUSE_MS = 5_000


def chain(gate: str, length: int) -> list[dict[str, Any]]:
    """A call that waits at a gate, and calls of which each reads the one before."""
    first = {"_tool": "waitAtGate", "gate": gate, "value": 0, "_outputPath": "†state.s0"}
    rest = ({"_tool": "add", "a": f"†state.s{n}", "_outputPath": f"†state.s{n + 1}"} for n in range(length))
    return [first, *rest]


def attempts(run: Run) -> set[int | None]:
    """How often each call was begun."""
    return {
        call.timing.attempts for call in run.wait(timeout_seconds=DEADLINE_SECONDS).calls if call.timing is not None
    }


@pytest.mark.parametrize("pool", ["coroutines", "prefork"])
def test_a_worker_that_is_to_end_lets_a_call_end_and_leaves_those_behind_it_to_others(own: Backend, pool: str) -> None:
    with own.worker("--pool", pool, "--concurrency", "1") as first:  # of several processes another one may say it first
        run = own.client.submit(solution={"calls": chain(f"leaving-{pool}", 3)})
        own.meeting.take(f"at:leaving-{pool}")
        first.send_signal(signal.SIGTERM)
        heard(own, "no call of a run begins here any more; those at work have")
        own.meeting.open_gate(f"leaving-{pool}")
        assert first.wait(DEADLINE_SECONDS) == 0
    assert own.redis.llen(own.queue("instances")) == 1
    left = run.result()
    assert [status_of(left, index) for index in range(4)] == ["done", *["waiting"] * 3]
    with own.worker():
        assert own.wait(run.id).data()["state"]["s3"] == 3
    assert attempts(run) == {1}


def test_what_takes_too_long_is_ended_and_begins_again_elsewhere(own: Backend) -> None:
    with own.worker(ACTS_STOP_SECONDS="0.2") as first:
        run = own.client.submit(solution={"calls": chain("endless", 1)})
        own.meeting.take("at:endless")
        first.send_signal(signal.SIGTERM)
        assert first.wait(DEADLINE_SECONDS) == 0
    heard(own, "stopped at once")
    own.meeting.open_gate("endless")
    with own.worker():
        assert own.wait(run.id).data()["state"]["s1"] == 1
    assert attempts(run) == {1, 2}


def test_lanes_that_stand_aside_go_back_to_their_queue(own: Backend) -> None:
    """A run's lanes beyond its share of the places: the worker has taken them, and has not begun them."""
    places = 24
    context = [{"type": "state", "_instance": f"i{n}", "n": n} for n in range(places * 2)]
    calls = [{"_tool": "waitAtGate", "_instance": "*", "gate": "aside", "_outputPath": "†state.at"}]
    with own.worker("--concurrency", str(places)) as first:
        run = own.client.submit(context, {"calls": calls})
        own.meeting.take("at:aside")
        first.send_signal(signal.SIGTERM)
        heard(own, "arm shutdown")
        heard(own, "go back to their queue")
        with own.worker():
            own.meeting.open_gate("aside")
            assert own.wait(run.id).status == "completed"
        assert first.wait(DEADLINE_SECONDS) == 0
    assert attempts(run) == {1}


@pytest.mark.parametrize("instances", [500, pytest.param(2_000, marks=pytest.mark.nightly)])
def test_all_workers_are_restarted_under_load_and_nothing_is_lost_or_done_twice(own: Backend, instances: int) -> None:
    context = [{"type": "state", "_instance": f"i{n}", "n": n} for n in range(instances)]
    calls = [
        {"_tool": "rest", "_instance": "*", "mark": "†state.n", "_outputPath": "†state.a"},
        {"_tool": "remoteAdd", "_instance": "*", "a": "†state.a", "b": 1, "_outputPath": "†state.b"},
        {"_tool": "add", "_instance": "*", "a": "†state.b.sum", "_outputPath": "†state.c"},
    ]
    with ExitStack() as stack:
        crew = [stack.enter_context(own.worker()) for _ in range(3)]
        run = own.client.submit(context, {"calls": calls})
        written = run.follow()
        for place, old in enumerate(crew):
            assert len(list(islice(written, instances // 2))) == instances // 2
            new = stack.enter_context(own.worker())
            old.send_signal(signal.SIGTERM)
            assert old.wait(DEADLINE_SECONDS) == 0
            crew[place] = new
        result = own.wait(run.id)
    assert result.status == "completed"
    assert {result.data(f"i{n}")["state"]["c"] - n for n in range(instances)} == {2}
    assert attempts(run) == {1}
    assert longest_pause_ms(own, run.id) < MOST_PAUSE_MS


def longest_pause_ms(backend: Backend, run: str) -> int:
    """The longest time in which nothing was written to a run's log, between its first entry and its last."""
    entries: Any = backend.redis.xrange(Keys(backend.settings.key_prefix, run).log)
    times = [int(id_.split(b"-")[0]) for id_, _ in entries]
    return max(later - earlier for earlier, later in pairwise(times))
