"""Limits on how many calls are at work at a time hold over all workers and runs, and survive a worker's death."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from acts_celery import ActivitiesError, Client, activity
from acts_celery.broker_config import EmbeddedServer
from acts_celery.protocol import Rejected
from acts_celery.worker.broker.attempts import CallId
from acts_celery.worker.runner.deciding import definition_slots
from acts_celery.worker.store.connections import connect_async
from acts_celery.worker.store.entries import id_key
from acts_celery.worker.store.keys import Keys
from acts_celery.worker.store.slots import Slots, Slotted

from .backend import Backend, Meeting, settings_apart

LANES = 6


@pytest.fixture(scope="module")
def limited(server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    """Two workers."""
    running = _backend("limited", server, meeting, tmp_path_factory)
    with running.worker(), running.worker():
        yield running


@pytest.fixture
def mortal(server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory) -> Backend:
    """No worker yet."""
    return _backend("mortal", server, meeting, tmp_path_factory)


def _backend(name: str, server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory) -> Backend:
    settings = settings_apart(server, name, lease_seconds=1.5, sweep_interval_seconds=0.2)
    return Backend(settings, meeting, tmp_path_factory.mktemp(name))


def wait_until(backend: Backend, key: str, happened: Callable[[], bool]) -> None:
    """Return when something is so; the server tells of each write to the key."""
    backend.redis.config_set("notify-keyspace-events", "KA")
    with backend.redis.pubsub() as writes:  # type: ignore[no-untyped-call]  # redis is typed but here
        writes.subscribe(f"__keyspace@0__:{key}")
        while not happened():
            assert writes.get_message(timeout=20) is not None, f"nothing more happens to {key}"
    backend.redis.config_set("notify-keyspace-events", "")


def wait_until_waiting(backend: Backend, name: str, run: str, size: int) -> None:
    """Return when so many calls of a run wait for a slot."""
    key = f"{backend.settings.key_prefix}:{{slots}}:waiting:{name}\x1f{run}"
    wait_until(backend, key, lambda: backend.redis.zcard(key) == size)


def wait_until_free(backend: Backend) -> None:
    """Return when nobody holds a slot or waits for one."""
    key = f"{backend.settings.key_prefix}:{{slots}}"
    wait_until(backend, key, lambda: not list(backend.redis.scan_iter(f"{key}*")))


def slots(backend: Backend, act: Callable[[Slots], Awaitable[Slotted]]) -> Slotted:
    async def asking() -> Slotted:
        async with connect_async(backend.settings) as redis:
            return await act(Slots(redis, prefix=backend.settings.key_prefix))

    return asyncio.run(asking())


def lanes(count: int = LANES) -> list[dict[str, Any]]:
    return [{"type": "state", "_instance": f"i{number}", "mark": number} for number in range(count)]


def plan(tool: str, **parameters: Any) -> dict[str, Any]:
    call = {"_tool": tool, "value": "†state.mark", "_outputPath": "†state.seen", **parameters}
    return {"type": "plan", "calls": [call]}


def seen(result: Any, count: int = LANES) -> list[Any]:
    return [result.data(f"i{number}")["state"]["seen"] for number in range(count)]


def test_an_activity_is_not_at_work_more_often_than_allowed(limited: Backend, meeting: Meeting) -> None:
    run = limited.client.submit([plan("waitInCrowd", gate="crowd"), *lanes()])
    for _ in range(2):
        meeting.take("at:crowd")
    wait_until_waiting(limited, "activity:waitInCrowd", run.id, LANES - 2)
    assert meeting.count("at:crowd") == 0
    assert run.status()["calls"] == {"running": 2, "waiting": LANES - 2}
    meeting.open_gate("crowd")
    assert seen(limited.wait(run.id)) == list(range(LANES))
    wait_until_free(limited)


def test_a_run_has_no_more_calls_at_work_than_its_config_says(limited: Backend, meeting: Meeting) -> None:
    document = {
        "context": [plan("waitAtGate", gate="together"), *lanes()],
        "config": {"max_concurrency": 3},
    }
    run = limited.client.submit_document(document)
    for _ in range(3):
        meeting.take("at:together")
    wait_until_waiting(limited, f"run:{run.id}", run.id, LANES - 3)
    assert meeting.count("at:together") == 0
    meeting.open_gate("together")
    assert seen(limited.wait(run.id)) == list(range(LANES))


def test_a_config_can_only_tighten_what_the_operator_has_set(server: EmbeddedServer, meeting: Meeting) -> None:
    strict = settings_apart(server, "strict", limit_run_concurrency=2)
    value: dict[str, Any] = {"context": [*lanes(1), plan("echo")], "config": {"max_concurrency": 3}}
    with Client(strict) as client:
        with pytest.raises(Rejected) as refused:
            client.check(value)
        assert str(refused.value) == "/config/max_concurrency: 3, where at most 2 are allowed"
        for limit in (2, 1, None):
            value["config"]["max_concurrency"] = limit
            assert client.check(value).size == 1


def test_a_delegate_is_not_at_work_more_often_than_allowed(limited: Backend, meeting: Meeting) -> None:
    calls = [
        {"_tool": "ask", "_delegate": "alone", "_instance": f"i{number}", "_outputPath": "†state.seen"}
        for number in range(LANES)
    ]
    run = limited.client.submit(lanes(), {"calls": calls}, tools={"ask": {"_delegate": {}}})
    meeting.take("at:alone")
    wait_until_waiting(limited, "delegate:alone", run.id, LANES - 1)
    assert meeting.count("at:alone") == 0
    meeting.open_gate("alone")
    assert limited.wait(run.id).status == "completed"


def test_a_request_definition_says_how_many_are_at_work(limited: Backend) -> None:
    calls = [
        {"_tool": "ask", "_delegate": "translator", "_instance": f"i{number}", "_outputPath": "†state.seen"}
        for number in range(LANES)
    ]
    definition = {"context": [{"type": "system", "message": "from Bonjour"}], "config": {"max_concurrency": 1}}
    name = definition_slots("translator", definition)
    assert name != definition_slots("translator", definition | {"config": {"max_concurrency": 2}})
    somebody, limit = CallId("another-run", None, 0), {name: 1}
    keys = Keys("limited", somebody.run)
    limited.redis.hset(keys.state, "status", "running")
    limited.redis.hset(keys.calls, "\x1f0", "running:1:0:somebody")
    assert slots(limited, lambda asked: asked.acquire([(somebody, limit)])).granted == (True,)
    run = limited.client.submit(
        lanes(), {"calls": calls}, tools={"ask": {"_delegate": {}}}, delegates={"translator": definition}
    )
    wait_until_waiting(limited, name, run.id, LANES)
    limited.redis.hset(keys.calls, "\x1f0", "done")
    assert limited.wait(run.id).status == "completed"
    wait_until_free(limited)


def test_the_calls_of_one_lane_follow_each_other_through_one_slot(limited: Backend) -> None:
    calls = [
        {"_tool": "add", "a": "†input.n", "_outputPath": "†state.x0"},
        *({"_tool": "add", "a": f"†state.x{n}", "_outputPath": f"†state.x{n + 1}"} for n in range(4)),
        *({"_tool": "add", "a": n, "_outputPath": f"†state.y{n}"} for n in range(4)),
    ]
    document = {
        "context": [{"type": "input", "n": 0}],
        "solution": {"calls": calls},
        "config": {"max_concurrency": 1},
    }
    result = limited.wait(limited.client.submit_document(document).id)
    assert (result.status, result.data()["state"]["x4"], result.data()["state"]["y3"]) == ("completed", 5, 4)


def test_runs_take_turns_at_what_is_limited(limited: Backend, meeting: Meeting) -> None:
    wide = limited.client.submit([plan("waitInCrowd", gate="turns"), *lanes(20)])
    wait_until_waiting(limited, "activity:waitInCrowd", wide.id, 18)
    small = limited.client.submit([plan("waitInCrowd", gate="turns"), *lanes(2)])
    wait_until_waiting(limited, "activity:waitInCrowd", small.id, 2)
    meeting.open_gate("turns")
    for run in (wide, small):
        limited.wait(run.id)
    ended = [list(run.follow())[-1] for run in (small, wide)]
    assert id_key(ended[0].id) < id_key(ended[1].id)


def test_a_slot_outlives_the_worker_that_dies_at_work_in_it(mortal: Backend, meeting: Meeting) -> None:
    calls = [
        {"_tool": "hangOnceAlone", "name": f"slot-{mark}", "_instance": f"i{mark}", "_outputPath": "†state.seen"}
        for mark in range(2)
    ]
    with mortal.worker() as victim:
        run = mortal.client.submit(lanes(2), {"calls": calls})
        wait_until_waiting(mortal, "activity:hangOnceAlone", run.id, 1)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
    meeting.open_gate("never:slot-0")
    meeting.open_gate("never:slot-1")
    with mortal.worker():
        assert mortal.wait(run.id).status == "completed"
    wait_until_free(mortal)


def test_where_nothing_is_limited_nothing_is_asked(limited: Backend) -> None:
    limited.redis.config_resetstat()
    limited.run([{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}])
    commands: Any = limited.redis.info("commandstats")
    assert "cmdstat_zpopmin" not in commands
    wait_until_free(limited)


@pytest.mark.parametrize("limit", [0, -1, 1.5, True, "2"])
def test_a_limit_that_is_no_count_is_a_structural_error(limited: Backend, limit: Any) -> None:
    document = {
        "solution": {"calls": [{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}]},
        "config": {"max_concurrency": limit},
        "delegates": {"d": {"config": {"max_concurrency": limit}}},
    }
    with pytest.raises(Rejected) as rejected:
        limited.client.check(document)
    assert {problem.pointer for problem in rejected.value.errors} == {
        "/config/max_concurrency",
        "/delegates/d/config/max_concurrency",
    }


def test_an_activity_that_may_never_be_at_work_cannot_be_registered() -> None:
    with pytest.raises(ActivitiesError, match="max_concurrency is 0"):
        activity("idle", max_concurrency=0)
