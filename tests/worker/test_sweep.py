"""Tasks on their way: envelopes, what a broker loses, and how many of a run wait."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import os
import signal
import weakref
from collections import Counter
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from hypothesis import given
from hypothesis import strategies as st
from kombu import Consumer, Queue
from redis import Redis

from acts_celery import Client, InfrastructureError, OtherFormat, Run
from acts_celery.broker_config import (
    EXECUTE_BACKGROUND,
    EXECUTE_DELEGATE,
    EXECUTE_INSTANCE,
    SEVERAL,
    EmbeddedServer,
    SecretUrl,
    Settings,
)
from acts_celery.worker.broker import transport
from acts_celery.worker.broker.attempts import CallId
from acts_celery.worker.broker.consumer import InFlight, Publisher, keep_once
from acts_celery.worker.broker.messages import TaskMessage, lane_task, pack, unpack
from acts_celery.worker.broker.queue_order import BANDS, BandLines, QueueOrder, band_of
from acts_celery.worker.broker.transport import BackendConnection, ReportQueue, enveloped
from acts_celery.worker.limits import IDLE_TURNS, MOST_BYTES_IN_HAND
from acts_celery.worker.recovery.sweep import Sweeper
from acts_celery.worker.runner.application import make_client_application
from acts_celery.worker.store.connections import connect, connect_async
from acts_celery.worker.store.definition import FORMAT
from acts_celery.worker.store.entries import id_key
from acts_celery.worker.store.held_calls import audit_record
from acts_celery.worker.store.keys import Keys, active_runs
from acts_celery.worker.store.run_writer import discard_run
from acts_celery.worker.store.slots import Slots, Wanted

from .backend import Backend, Meeting, meeting_url, settings_apart, settings_for
from .test_run_writer import StallingWriter

# What is lost on the way or dies at work is found and run again, and ended runs expire (DESIGN "Sweep").


@pytest.fixture(scope="module")
def swept(server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory) -> Backend:
    """Settings for workers that look after their runs often."""
    settings = settings_apart(server, "swept", lease_seconds=1.5, sweep_interval_seconds=0.2)
    return Backend(settings, meeting, tmp_path_factory.mktemp("swept"))


@pytest.fixture
def another_worker(swept: Backend) -> Iterator[None]:
    with swept.worker():
        yield


@pytest.fixture
def sweeper(swept: Backend) -> Iterator[Sweeper]:
    """One that sweeps when it is told to, in this process."""
    swept.redis.delete(swept.queue("swept-instances"))
    swept.redis.delete("swept:recovery")  # no worker swept meanwhile, so recovery would pause
    with connect(swept.settings) as redis:
        yield sweeper_of(swept.settings, redis)


def sweeper_of(settings: Settings, redis: Redis) -> Sweeper:
    app = make_client_application(settings)
    return Sweeper(redis, Publisher(app), ReportQueue(app, settings), settings)


def echo(value: Any, path: str, **meta: Any) -> dict[str, Any]:
    return {"_tool": "echo", "value": value, "_outputPath": path, **meta}


def queue_length(backend: Backend) -> int:
    found: Any = backend.redis.llen(backend.queue(backend.settings.queue_instances))
    return int(found)


def test_a_task_that_was_lost_is_published_again(swept: Backend, sweeper: Sweeper) -> None:
    run = swept.client.submit(solution={"calls": [echo(1, "†state.a")]})
    assert queue_length(swept) == 1
    swept.redis.delete(swept.queue("swept-instances"))
    sweeper.sweep()
    assert queue_length(swept) == 0, "not before its time"
    swept.redis.zadd(Keys("swept", run.id).published, {"": 1})
    with swept.worker():
        assert swept.wait(run.id).data() == {"state": {"a": 1}}


def test_calls_of_a_worker_that_was_killed_are_run_again_and_committed_once(swept: Backend, meeting: Meeting) -> None:
    context = [{"type": "state", "_instance": mark, "mark": mark} for mark in "①②"]
    calls = [
        echo("†state.mark", "†state.before", _instance="①"),
        {"_tool": "hangOnce", "name": "killed", "_instance": "①", "_outputPath": "†state.attempt"},
        echo("†state.attempt", "†state.after", _instance="①"),
        {"_tool": "hangOnce", "name": "killed-too", "_instance": "②", "_outputPath": "†state.attempt"},
    ]
    with swept.worker() as victim:
        run = swept.client.submit(context, {"calls": calls})
        assert meeting.take("hanging:killed-too") == victim.pid
        assert meeting.take("hanging:killed") == victim.pid
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
    with swept.worker():
        result = swept.wait(run.id)
    assert result.status == "completed"
    assert result.data("①")["state"] == {"mark": "①", "before": "①", "attempt": 2, "after": 2}
    assert result.data("②")["state"] == {"mark": "②", "attempt": 2}
    assert meeting.attempts("killed") == 2
    written = [entry for entry in run.log() if "_call" in entry.message]
    assert len(written) == 4


def test_a_call_that_takes_longer_than_its_lease_is_not_run_twice(
    swept: Backend, another_worker: None, meeting: Meeting
) -> None:
    run = swept.client.submit(solution={"calls": [{"_tool": "waitAtGate", "gate": "long", "_outputPath": "†state.a"}]})
    meeting.take("at:long")
    leases = Keys("swept", run.id).leases
    first: Any = swept.redis.zscore(leases, "\x1f0")
    # That a lease is extended is a write to the key: the server tells us of it.
    swept.redis.config_set("notify-keyspace-events", "Kz")
    with swept.redis.pubsub() as writes:  # type: ignore[no-untyped-call]  # redis is typed but here
        writes.subscribe(f"__keyspace@0__:{leases}")
        seen = [writes.get_message(timeout=20) for _ in range(4)]
    swept.redis.config_set("notify-keyspace-events", "")
    assert all(seen)
    last: Any = swept.redis.zscore(leases, "\x1f0")
    assert last - first > 1_000
    meeting.open_gate("long")
    assert swept.wait(run.id).status == "completed"
    assert meeting.count("at:long") == 0


def test_a_call_whose_workers_die_again_and_again_fails(swept: Backend, sweeper: Sweeper) -> None:
    run = swept.client.submit(solution={"calls": [echo(1, "†state.a")]})
    swept.redis.delete(swept.queue("swept-instances"))
    keys = Keys("swept", run.id)
    swept.redis.hset(keys.calls, "\x1f0", f"running:{swept.settings.limit_attempts}:0:somebody")
    swept.redis.hset(keys.state, "running", 1)
    swept.redis.zadd(keys.leases, {"\x1f0": 1})
    swept.redis.zadd(keys.published, {"": 1})
    with swept.worker():
        result = swept.wait(run.id)
    error = result.calls[0].error
    assert error is not None
    assert (result.status, error["type"]) == ("failed", "WorkerLost")
    assert run.status()["calls"] == {"failed": 1}


def test_a_run_that_is_just_being_written_is_not_taken_for_an_ended_one(
    swept: Backend, sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = swept.client.check({"solution": {"calls": [echo(1, "†state.a")]}})
    keys = Keys("swept", "half-written")
    order, now = audit_record(swept.settings, "submitted"), int(swept.redis.time()[0]) * 1000
    monkeypatch.setattr("acts_celery.worker.limits.PART_WORDS", 1)
    writer = StallingWriter(swept, lambda number: sweeper.sweep(), prefix="swept")
    writer.write(plan, keys.run, now, order)
    sweeper.sweep()
    looked_after = swept.redis.zscore(active_runs("swept"), keys.run)
    lifetimes = {swept.redis.ttl(name) for name in swept.keys(keys.run)}
    discard_run(swept.redis, keys.prefix, keys.run)
    assert looked_after is not None
    assert lifetimes == {-1}


def test_a_sweep_that_cannot_publish_says_so_as_any_other_error(swept: Backend) -> None:
    with EmbeddedServer() as broker:
        settings = swept.settings.model_copy(update={"key_prefix": "full", "broker_url": SecretUrl(broker.broker_url)})
        with Client(settings) as client, connect(settings) as redis, Redis.from_url(broker.redis_url) as full:
            run = client.submit(solution={"calls": [echo(1, "†state.a")]})
            full.config_set("maxmemory", 1)
            redis.zadd(Keys("full", run.id).published, {"": 0})
            with pytest.raises(InfrastructureError):
                sweeper_of(settings, redis).sweep()


def test_a_slot_that_outlives_the_last_run_is_taken_back_by_a_sweep_without_runs(server: EmbeddedServer) -> None:
    settings = settings_for(server, key_prefix="sweep.slots-of-nobody")
    with connect(settings) as redis:
        taken = [CallId("ended", f"i{number}", 0) for number in range(2)]

        async def take(call: CallId) -> None:
            async with connect_async(settings) as other:
                await Slots(other, prefix=settings.key_prefix).acquire([Wanted(call, {"activity:a": 2})])

        asyncio.run(take(taken[0]))
        sweeper = sweeper_of(settings, redis)
        sweeper.take_turn()
        assert not [*redis.scan_iter(f"{settings.key_prefix}:{{slots}}*")]
        asyncio.run(take(taken[1]))
        for _ in range(IDLE_TURNS):
            sweeper.take_turn()
        assert not [*redis.scan_iter(f"{settings.key_prefix}:{{slots}}*")]


def test_an_ended_run_expires_and_is_no_longer_looked_after(swept: Backend, sweeper: Sweeper) -> None:
    context = [{"type": "state", "_instance": mark, "mark": mark} for mark in "①②③"]
    plan = {"type": "plan", "calls": [echo("†state.mark", "†state.seen")]}
    with swept.worker():
        run = swept.client.submit([plan, *context])
        swept.wait(run.id)
    swept.redis.delete("swept:recovery")  # on a busy machine recovery may pause
    sweeper.sweep()
    assert swept.redis.zscore(active_runs("swept"), run.id) is None
    names = swept.keys(run.id)
    assert len(names) >= 7
    lifetimes = {name: swept.redis.ttl(name) for name in names}
    assert {name for name, seconds in lifetimes.items() if not 0 < seconds <= 7 * 86_400} == set()


def test_a_run_under_way_does_not_expire(swept: Backend, sweeper: Sweeper) -> None:
    run = swept.client.submit(solution={"calls": [echo(1, "†state.a")]})
    sweeper.sweep()
    assert swept.redis.zscore(active_runs("swept"), run.id) is not None
    assert {swept.redis.ttl(name) for name in swept.keys(run.id)} == {-1}
    with swept.worker():
        swept.wait(run.id)


def test_r12_7_a_run_with_a_staged_plan_is_refused_and_holds_nothing_up(swept: Backend) -> None:
    run = swept.client.submit(solution={"calls": [echo(1, "†state.a")]})
    keys = Keys("swept", run.id)
    written: Any = swept.redis.get(keys.definition)
    swept.redis.set(keys.definition, pack(unpack(written) | {"config": {"plan": "staged"}}))
    with swept.worker():
        swept.run([echo(2, "†state.a")])  # its task lay behind the other one
    with pytest.raises(OtherFormat, match="staged plan"):
        run.result()
    run.cancel()
    assert run.status()["status"] == "cancelled"
    run.delete()


@pytest.mark.parametrize("other", [FORMAT - 1, FORMAT + 1])
def test_a_run_that_another_version_wrote_down_is_left_to_it(swept: Backend, sweeper: Sweeper, other: int) -> None:
    run = swept.client.submit(solution={"calls": [echo(1, "†state.a")]})
    keys = Keys("swept", run.id)
    written: Any = swept.redis.get(keys.definition)
    swept.redis.set(keys.definition, pack(unpack(written) | {"format": other}))
    swept.redis.hset(keys.state, "format", other)
    with swept.worker():
        swept.run([echo(2, "†state.a")])  # its task lay behind the other one
        with pytest.raises(OtherFormat, match=f"format {other} and this version reads {FORMAT}"):
            run.result()
        swept.redis.zadd(keys.published, {"": 1})
        sweeper.sweep()
        told = run.status()
        assert (told["status"], told["calls"], told["waiting_for"][0]["for"]) == ("foreign", {}, "version")
        for order in (run.cancel, run.pause, run.resume, lambda: run.amend([])):
            with pytest.raises(OtherFormat):
                order()
        swept.redis.set(keys.definition, written)
        swept.redis.hset(keys.state, "format", FORMAT)
        assert swept.wait(run.id).status == "completed"


# A run lets a window of its lanes into the queue at a time, and comes to its end all the same.

WINDOW = 4
LANES = 30


@pytest.fixture(scope="module")
def narrow(server: EmbeddedServer, meeting: Meeting, tmp_path_factory: pytest.TempPathFactory) -> Backend:
    settings = settings_apart(
        server, "narrow", publish_window=WINDOW, lease_seconds=600, sweep_interval_seconds=300
    )  # no lane is looked after that was lost
    return Backend(settings, meeting, tmp_path_factory.mktemp("narrow"))


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


# Tasks on their way: envelopes, fire and forget, what a broker loses.

# Tasks that travel together in one message are tasks of their own, and none is lost with the others.

INSTANCES = [f"n{number}" for number in range(40)]
TOGETHER = 2
"""How many lanes share a message where forty are published."""
DEADLINE_SECONDS = 20


@pytest.fixture
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with EmbeddedServer() as server:
        yield Backend(settings_for(server), Meeting(meeting_url(server)), tmp_path_factory.mktemp("envelopes"))


@pytest.fixture
def app(backend: Backend) -> Celery:
    return make_client_application(backend.settings)


def submit(backend: Backend, gates: dict[str, str]) -> Run:
    """A run whose instances each wait at a gate. No worker is there yet: its messages lie in the queue."""
    context = [{"type": "input", "_instance": name, "gate": gate} for name, gate in gates.items()]
    call = {"_tool": "waitAtGate", "gate": "†input.gate", "value": 1, "_outputPath": "†state.a"}
    run = backend.client.submit([*context, {"type": "plan", "calls": [call]}])
    assert backend.redis.llen("instances") == len(gates) // TOGETHER
    return run


def events(subscription: Any, kind: str, number: int) -> list[dict[str, Any]]:
    """All task events up to so many of one kind, in order."""
    found: list[dict[str, Any]] = []
    while sum(event["type"] == kind for event in found) < number:
        message = subscription.get_message(timeout=DEADLINE_SECONDS)
        assert message is not None, Counter(event["type"] for event in found)
        if message["type"] == "pmessage":
            body = json.loads(base64.b64decode(json.loads(message["data"])["body"]))
            found += [event for event in (body if isinstance(body, list) else [body]) if "uuid" in event]
    return found


def sizes(published: list[TaskMessage]) -> list[int]:
    """How many tasks there are in each message."""
    return [len(task.envelope.parts) if task.envelope else 1 for task in enveloped(published)]


def tasks(number: int, run: str = "r", name: str = "") -> list[TaskMessage]:
    return [lane_task(run, f"{name}{one}", "instances") for one in range(number)]


@pytest.mark.parametrize(
    ("number", "expected"), [(1, [1]), (31, [1] * 31), (32, [2] * 16), (40, [2] * 20), (500, [20] * 25)]
)
def test_few_lanes_travel_alone_and_many_share_messages(number: int, expected: list[int]) -> None:
    assert sizes(tasks(number)) == expected


def test_how_many_lanes_share_a_message_follows_how_many_lie_in_the_queue() -> None:
    let_out = [lane_task("r", f"{one}", "instances", 400) for one in range(50)]
    assert sizes(let_out) == [20, 20, 10]


def test_tasks_of_different_names_and_long_ones_do_not_share_a_message() -> None:
    names = EXECUTE_BACKGROUND, EXECUTE_DELEGATE
    mixed = [TaskMessage(names[number % 2], "background", b"", "-", is_forgotten=True) for number in range(80)]
    assert [(task.task, len(task.envelope.parts)) for task in enveloped(mixed) if task.envelope] == [
        (name + SEVERAL, 10) for name in names for _ in range(4)
    ]
    long = tasks(40, name="x" * 50_000)
    assert list(enveloped(long)) == long


def test_operators_see_one_task_per_instance(backend: Backend, app: Celery) -> None:
    with backend.redis.pubsub() as subscription:  # type: ignore[no-untyped-call]  # redis is typed but here
        subscription.psubscribe("/0.celeryev/*")
        assert subscription.get_message(timeout=DEADLINE_SECONDS)["type"] == "psubscribe"
        run = submit(backend, dict.fromkeys(INSTANCES, "seen"))
        with backend.worker("--processes", "1"):
            for _ in INSTANCES:
                backend.meeting.take("at:seen")
            [active] = app.control.inspect().active().values()
            [stats] = app.control.inspect().stats().values()
            backend.meeting.open_gate("seen")
            assert backend.wait(run.id).status == "completed"
            seen = events(subscription, "task-succeeded", len(INSTANCES))
    assert sorted(task["args"] for task in active) == sorted(f"{run.id} {name}" for name in INSTANCES)
    assert {task["name"] for task in active} == {EXECUTE_INSTANCE}
    assert stats["pool"]["coroutines"] == len(INSTANCES)
    for task in active:
        states = [event["type"] for event in seen if event["uuid"] == task["id"]]
        assert states == ["task-sent", "task-received", "task-started", "task-succeeded"]
    assert Counter(event["type"] for event in seen)["task-sent"] == len(INSTANCES)


@pytest.mark.nightly
def test_one_task_of_several_in_a_message_can_be_revoked(backend: Backend, app: Celery) -> None:
    run = submit(backend, dict.fromkeys(INSTANCES, "open"))
    backend.meeting.open_gate("open")
    [oldest] = backend.redis.lrange("instances", -1, -1)
    headers = json.loads(oldest)["headers"]
    assert headers["task"] == EXECUTE_INSTANCE + SEVERAL
    with backend.worker("--processes", "1", "-Q", "delegates", ACTS_REMOTE_CONTROL="true"):
        app.control.revoke(f"{headers['id']}-1", reply=True)
        app.control.add_consumer("instances", reply=True)
        for _ in INSTANCES[1:]:
            backend.meeting.take("at:open")
    with backend.worker("--processes", "1"):
        result = backend.wait(run.id)
    log = backend.log.read_text()
    assert result.status == "completed", "the sweep sends what was revoked again"
    assert f"Discarding revoked task: {EXECUTE_INSTANCE}[{headers['id']}-1]" in log
    assert "were lost with their worker" in log


def test_a_worker_takes_no_more_of_a_message_than_it_has_room_for(backend: Backend, app: Celery) -> None:
    run = submit(backend, dict.fromkeys(INSTANCES, "room"))
    with backend.worker("--processes", "1", "-c", "3", "--name", "small") as small:
        for _ in range(3):
            assert backend.meeting.take("at:room") == small.pid
        [reserved] = app.control.inspect().reserved().values()
        assert [task["acknowledged"] for task in reserved] in ([], [False] * 3)
        with backend.worker("--processes", "1", "--name", "large") as large:
            for _ in range(len(INSTANCES) - 3):
                assert backend.meeting.take("at:room") == large.pid
            backend.meeting.open_gate("room")
            assert backend.wait(run.id).status == "completed"
    assert backend.meeting.count("at:room") == 0


def test_a_worker_killed_in_the_midst_loses_nothing_and_what_had_ended_is_not_repeated(backend: Backend) -> None:
    gates = {name: "done" if number % TOGETHER == 0 else "shut" for number, name in enumerate(INSTANCES)}
    run = submit(backend, gates)
    backend.meeting.open_gate("done")
    with backend.worker("--processes", "1") as victim:
        for name in INSTANCES:
            assert backend.meeting.take(f"at:{gates[name]}") == victim.pid
        ended = (event for event in run.follow() if event.kind == "call")
        for _ in range(len(INSTANCES) // TOGETHER):
            next(ended)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
    backend.meeting.open_gate("shut")
    with backend.worker("--processes", "1") as heir:
        assert backend.wait(run.id).status == "completed"
        for _ in range(len(INSTANCES) // TOGETHER):
            assert backend.meeting.take("at:shut") == heir.pid
    assert (backend.meeting.count("at:done"), backend.meeting.count("at:shut")) == (0, 0)


def test_a_worker_that_is_asked_to_stop_ends_what_it_has_taken(backend: Backend) -> None:
    run = submit(backend, dict.fromkeys(INSTANCES, "stop"))
    with backend.worker("--processes", "1") as leaving:
        for _ in INSTANCES:
            backend.meeting.take("at:stop")
        leaving.terminate()
        backend.meeting.open_gate("stop")
        assert leaving.wait(DEADLINE_SECONDS) == 0
    assert run.status()["status"] == "completed"
    assert backend.meeting.count("at:stop") == 0


@pytest.mark.parametrize("pool", ["threads", "prefork", "solo"])
def test_every_pool_of_celerys_takes_messages_of_several_lanes(backend: Backend, pool: str) -> None:
    run = submit(backend, dict.fromkeys(INSTANCES, "open"))
    backend.meeting.open_gate("open")
    with backend.worker("--processes", "1", "--pool", pool, "-c", "2"):
        assert backend.wait(run.id).status == "completed"
    for _ in INSTANCES:
        backend.meeting.take("at:open")
    assert backend.meeting.count("at:open") == 0


def test_a_worker_whose_connection_broke_takes_as_much_as_before(backend: Backend) -> None:
    run = submit(backend, dict.fromkeys(INSTANCES, "broken"))
    with backend.worker("--processes", "1", "-c", "3") as worker:
        for _ in range(3):
            assert backend.meeting.take("at:broken") == worker.pid
        for client in backend.redis.client_list():
            if client["cmd"] in ("brpop", "psubscribe"):
                backend.redis.client_kill_filter(_id=client["id"])
        backend.meeting.open_gate("broken")
        assert backend.wait(run.id).status == "completed"
    assert backend.meeting.count("at:broken") == len(INSTANCES) - 3
    assert "Connection to broker lost" in backend.log.read_text()


# No queue of a worker keeps the thread that reads messages to itself: each gets an equal share of its time.


@given(st.lists(st.sampled_from(BANDS), min_size=1, unique=True))
def test_each_band_that_has_messages_has_its_turns_the_higher_the_more(filled: list[int]) -> None:
    order, taken = QueueOrder(), Counter[int]()
    order.update(["q"])
    for _ in range(150):
        taken[next(band for band in order.bands("q") if band in filled)] += 1
        order.rotate("q")
    assert taken.keys() == {*filled}
    counts = [taken[band] for band in sorted(filled)]
    assert counts == sorted(counts)
    assert min(counts) >= 10


def test_of_what_a_worker_has_in_hand_each_band_has_its_turns() -> None:
    lines = BandLines[object]()
    for priority in (0, 2, 5, 9) * 20:
        lines.add(priority, priority)
    assert Counter(lines.take() for _ in range(15)) == {9: 8, 5: 4, 2: 2, 0: 1}
    for odd in ("high", -1, None, 2**70):
        lines.add(odd, odd)
    left = [lines.take() for _ in range(4 * 20 - 15 + 4)]
    assert {"high", -1, None, 2**70} < {*left}
    assert not lines


def test_what_is_more_urgent_is_of_no_lower_band() -> None:
    bands = [band_of(priority) for priority in range(10)]
    assert bands == sorted(bands)
    assert ({*bands}, bands[0], bands[9]) == ({*BANDS}, 0, 9)


def _serve(order: QueueOrder, lengths: Counter[str], costs: dict[str, float], count: int) -> list[str]:
    """The queues from which so many messages are taken."""
    taken = []
    for _ in range(count):
        queue = next(queue for queue in order.consume(len(costs)) if lengths[queue])
        lengths[queue] -= 1
        order.rotate(queue)
        order.charge(costs[queue])
        taken.append(queue)
    return taken


def test_a_queue_of_messages_that_take_long_gets_no_more_time_than_another() -> None:
    order = QueueOrder()
    order.update(["heavy", "light"])
    taken = _serve(order, Counter(heavy=100, light=1_000), {"heavy": 1.0, "light": 0.01}, 505)
    assert 4 <= taken.count("heavy") <= 6
    assert "light" in taken[:2]


def test_queues_whose_messages_take_as_long_take_turns() -> None:
    order = QueueOrder()
    order.update(["a", "b", "c"])
    taken = _serve(order, Counter(a=50, b=50, c=50), {"a": 1.0, "b": 1.0, "c": 1.0}, 90)
    assert Counter(taken) == {"a": 30, "b": 30, "c": 30}


def test_a_queue_that_was_empty_for_long_has_saved_up_no_time() -> None:
    order = QueueOrder()
    order.update(["busy", "idle"])
    _serve(order, Counter(busy=1_000), {"busy": 1.0, "idle": 1.0}, 1_000)
    taken = _serve(order, Counter(busy=100, idle=100), {"busy": 1.0, "idle": 1.0}, 20)
    assert 9 <= taken.count("idle") <= 11


def test_a_queue_that_is_new_begins_with_the_others_and_one_that_is_gone_is_not_asked() -> None:
    order = QueueOrder()
    order.update(["old", "gone"])
    _serve(order, Counter(old=100), {"old": 1.0, "gone": 1.0}, 100)
    order.update(["old", "new"])
    assert order.consume(2) == ["old", "new"]
    order.rotate("gone")
    order.charge(1.0)
    taken = _serve(order, Counter(old=100, new=100), {"old": 1.0, "new": 1.0}, 20)
    assert 9 <= taken.count("new") <= 11


def test_small_messages_of_one_queue_do_not_wait_for_all_large_ones_of_another(
    server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []
    seconds = 0.0
    monkeypatch.setattr(transport, "monotonic", lambda: seconds)

    def take(body: Any, message: Any) -> None:
        nonlocal seconds
        taken.append(body)
        message.ack()
        seconds += 0.05 if body == "large" else 0.001  # what it takes to read one

    queues = [Queue("order.large"), Queue("order.small")]
    with BackendConnection(server.broker_url) as connection:
        for queue, count in zip(queues, (20, 40), strict=True):
            queue(connection.default_channel).declare()
            producer = connection.Producer()
            for _ in range(count):
                producer.publish(queue.name.rpartition(".")[2], routing_key=queue.name, exchange="")
        with Consumer(connection, queues, callbacks=[take]):
            while len(taken) < 60:
                connection.drain_events(timeout=10)
    last_small = len(taken) - 1 - taken[::-1].index("small")
    assert taken[:last_small].count("large") <= 5  # of 20, where both queues take turns
    assert taken.count("large") == 20


def test_a_queue_of_which_much_is_in_hand_is_not_asked_until_some_of_it_is_answered() -> None:
    order, in_flight = QueueOrder(), InFlight()
    order.update(["heavy", "light"])
    order.is_closed = in_flight.is_full_of
    answered: list[str] = []

    def message(queue: str, size: int) -> Any:
        answer = partial(answered.append, queue)
        return SimpleNamespace(
            payload=[[b"x" * size], {}, {}],
            delivery_info={"taken_from": queue},
            ack_log_error=lambda *_: answer(),
            reject_log_error=lambda *_: answer(),
        )

    large = [message("heavy", MOST_BYTES_IN_HAND // 4) for _ in range(4)]
    for one in (*large, *(message("light", 1_000) for _ in range(1_000))):
        assert order.consume(2) == (["heavy", "light"] if one in large else ["light"])
        in_flight.add(one)
    assert order.consume(2) == ["light"]
    large[0].ack_log_error()
    large[0].reject_log_error()
    assert (order.consume(2), answered) == (["heavy", "light"], ["heavy"])


def test_a_message_that_is_answered_stays_in_memory_no_longer() -> None:
    class Message(SimpleNamespace):
        def acknowledge(self) -> None:
            self.is_answered = True

    message = Message(payload=[[b"x"], {}, {}], delivery_info={"taken_from": "queue"})
    message.ack_log_error = message.reject_log_error = message.acknowledge
    gone = weakref.ref(message)
    gc.disable()  # only a cycle would have to wait for it
    try:
        InFlight().add(message)
        message.ack_log_error()
        assert message.is_answered
        del message
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("raw", [{}, {"_raw": {"body": "x"}}])  # over RabbitMQ, over Redis
def test_a_message_is_kept_once_over_either_broker(raw: dict[str, Any]) -> None:
    message = SimpleNamespace(
        payload=[[b"x"], {}, {}], body=b"packed", content_type="msgpack", content_encoding="b", **raw
    )
    keep_once(message)
    assert (message.body, message.content_type, message.content_encoding) == ([[b"x"], {}, {}], None, None)
    assert vars(message).get("_raw", {"body": ""}) == {"body": ""}
