"""What is lost on the way or dies at work is found and run again, and ended runs expire (DESIGN "Sweep")."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from acts_celery import Client, InfrastructureError, OtherFormat
from acts_celery.broker_config import EmbeddedServer, SecretUrl, Settings
from acts_celery.worker.broker.consumer import Publisher
from acts_celery.worker.broker.messages import pack, unpack
from acts_celery.worker.recovery.heartbeats import ReportQueue
from acts_celery.worker.recovery.sweep import Sweeper
from acts_celery.worker.runner.application import make_client_application
from acts_celery.worker.store import run_writer
from acts_celery.worker.store.connections import connect
from acts_celery.worker.store.definition import FORMAT
from acts_celery.worker.store.held_calls import audit_record
from acts_celery.worker.store.keys import Keys, active_runs
from acts_celery.worker.store.run_writer import discard_run

from .backend import Backend, Meeting, settings_apart
from .test_run_writer import StallingWriter


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
    monkeypatch.setattr(run_writer, "_PART_WORDS", 1)
    writer = StallingWriter(swept, lambda number: sweeper.sweep())
    writer.write(plan, keys, now, order)
    sweeper.sweep()
    looked_after = swept.redis.zscore(active_runs("swept"), keys.run)
    lifetimes = {swept.redis.ttl(name) for name in swept.keys(keys.run)}
    discard_run(swept.redis, keys)
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
