"""A run lets a window of its lanes into the queue at a time, and comes to its end all the same."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.store.entries import id_key
from acts_celery.worker.store.keys import Keys

from .backend import Backend, Meeting, settings_apart

WINDOW = 4
LANES = 30


@pytest.fixture(scope="module")
def narrow(server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory) -> Backend:
    settings = settings_apart(
        server, "narrow", publish_window=WINDOW, lease_seconds=600, sweep_interval_seconds=300
    )  # no lane is looked after that was lost
    return Backend(settings, meeting, tmp_path_factory.mktemp("narrow"))


def echo(value: Any, path: str, **meta: Any) -> dict[str, Any]:
    return {"_tool": "echo", "value": value, "_outputPath": path, **meta}


def context() -> list[dict[str, Any]]:
    return [{"type": "state", "_instance": f"i{number}", "mark": number} for number in range(LANES)]


def test_a_submission_publishes_a_window_and_the_rest_follows_as_lanes_are_taken_up(narrow: Backend) -> None:
    plan = {"type": "plan", "calls": [echo("†state.mark", "†state.seen")]}
    run = narrow.client.submit([plan, *context()])
    keys = Keys("narrow", run.id)
    assert narrow.redis.llen(narrow.queue("narrow-instances")) == WINDOW
    assert narrow.redis.zcard(keys.published) == WINDOW
    assert narrow.redis.llen(keys.backlog) == LANES - WINDOW
    with narrow.worker():
        result = narrow.wait(run.id)
    assert [result.data(f"i{number}")["state"]["seen"] for number in range(LANES)] == list(range(LANES))
    assert not narrow.redis.exists(keys.published, keys.backlog)


def test_a_run_submitted_behind_a_wide_one_does_not_wait_for_all_of_it(narrow: Backend) -> None:
    wide = narrow.client.submit([{"type": "plan", "calls": [echo("†state.mark", "†state.seen")]}, *context()])
    small = narrow.client.submit(solution={"calls": [echo(1, "†state.a")]})
    with narrow.worker("--concurrency", "1"):
        narrow.wait(wide.id)
    ended = [list(run.follow())[-1] for run in (small, wide)]
    assert [event.status for event in ended] == ["completed", "completed"]
    assert id_key(ended[0].id) < id_key(ended[1].id)


def test_lanes_that_wait_for_a_global_call_are_woken_window_by_window(narrow: Backend, meeting: Meeting) -> None:
    calls = [
        {"_tool": "waitAtGate", "gate": "global", "value": 7, "_outputPath": "†state.shared"},
        *(echo("†state.shared", "†state.seen", _instance=f"i{number}") for number in range(LANES)),
    ]
    with narrow.worker():
        run = narrow.client.submit(context(), {"calls": calls})
        meeting.take("at:global")
        meeting.open_gate("global")
        result = narrow.wait(run.id)
    assert {result.data(f"i{number}")["state"]["seen"] for number in range(LANES)} == {7}


def test_a_run_that_is_resumed_goes_on_through_the_window(narrow: Backend) -> None:
    plan = {"type": "plan", "calls": [echo("†state.mark", "†state.seen")]}
    run = narrow.client.submit([plan, *context()])
    keys = Keys("narrow", run.id)
    run.pause()
    narrow.redis.delete(narrow.queue("narrow-instances"), keys.published)
    narrow.redis.zadd(keys.published, {"i0": 0, "i1": 0})
    narrow.redis.lpush(keys.backlog, "i3", "i2")
    run.resume()
    assert narrow.redis.llen(narrow.queue("narrow-instances")) == narrow.redis.zcard(keys.published) == WINDOW
    with narrow.worker():
        assert narrow.wait(run.id).status == "completed"
