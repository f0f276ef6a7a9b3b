"""Whatever stands in the keys of the log: recovery goes on, says so in one line each, and counts it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.runner.application import make_client_application
from acts_celery.worker.store.keys import Keys
from tests.few import few
from tests.worker.backend import Backend, Meeting, meeting_url, settings_for

from .test_fuzz import ECHO, MUTATIONS, PIECES

ODD = b"\xff\x1b[31m\nforged line"
NOTE = {"_tool": "note", "name": "told"}


@pytest.fixture
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with EmbeddedServer() as server:
        settings = settings_for(server, lease_seconds=2, sweep_interval_seconds=0.2)
        yield Backend(settings, Meeting(meeting_url(server)), tmp_path_factory.mktemp("keys"))


def _slots(redis: Redis) -> None:
    redis.hset("acts:{slots}", mapping={ODD: b"x", b"limited": b"1"})
    redis.zadd("acts:{slots}:holders:limited", {ODD: 0, b"no call": 0, b"run\x1flane\x1fx": 0})
    redis.rpush("acts:{slots}:turns:limited", ODD, b"none")


BROKEN: dict[str, Callable[[Redis], Any]] = {
    "members of the index that are no runs": lambda redis: redis.zadd("acts:due", {ODD: 0, b"": 0, b"none": -1e300}),
    "members of the runs that are none": lambda redis: redis.zadd("acts:runs", {ODD: "-inf", b"none": "inf", b"x": 1}),
    "probes that are none": lambda redis: redis.hset(
        "acts:probes", mapping={ODD: b"1:2:3", b"instances": b"soon", b"far": b"1:2", b"lathe": b""}
    ),
    "times that are none": lambda redis: redis.hset("acts:recovery", mapping={"heard": "soon", "until": "9e99"}),
    "slots that are none": _slots,
    "an index of another type": lambda redis: redis.rename("acts:due", "gone") and redis.set("acts:due", "x"),
    "probes of another type": lambda redis: redis.set("acts:probes", "x"),
    "times of another type": lambda redis: redis.lpush("acts:recovery", "x"),
    "a turn that does not end": lambda redis: redis.set("acts:sweeping", "x"),
}


def lose_task(backend: Backend) -> str:
    """A run whose only task the broker has lost: nothing but recovery can go on with it."""
    run = backend.client.submit([], {"calls": [ECHO]})
    backend.redis.delete("instances")
    return run.id


def assert_recovers(backend: Backend, run: str, note: object) -> dict[str, int]:
    """A worker finds the run; what it has refused."""
    with backend.worker() as process:
        assert backend.wait(run).status == "completed", note
        assert process.poll() is None, note
        inspect = make_client_application(backend.settings).control.inspect(timeout=10, limit=1)
        (stats,) = inspect.stats().values()
    lines = backend.log.read_text(errors="replace").splitlines()
    assert not any(line.startswith("forged line") for line in lines), note
    assert stats["health"]["problems"] == {}, note
    counted: dict[str, int] = stats["refused"]
    return counted


@pytest.mark.parametrize("name", few(BROKEN, 2))
def test_what_stands_in_a_shared_key_does_not_end_recovery(backend: Backend, name: str) -> None:
    run = lose_task(backend)
    BROKEN[name](backend.redis)
    counted = assert_recovers(backend, run, name)
    if name not in ("times that are none", "a turn that does not end"):
        assert counted.get("keys", 0) > 0
        assert "is set aside" in backend.log.read_text(errors="replace")


def test_what_stands_in_the_outbox_of_a_run_keeps_no_other_call_from_being_sent(backend: Backend) -> None:
    run = backend.client.submit([], {"calls": [NOTE, ECHO]})
    with backend.worker("-Q", "instances"):
        assert backend.wait(run.id).status == "completed"
    keys = Keys("acts", run.id)
    entries: Any = backend.redis.hgetall(keys.outbox)
    (entry,) = entries.values()
    odd: dict[Any, Any] = {
        b"\x1f7": b"x",
        b"\x1f8": b"sent:1:0:1/background",
        ODD: entry,
        b"no number": b"retry:1:0:1/background",
        b"\x1f9": b"retry:1:0:1/background",
        b"\x1f10": b"running:99:0:1/background",
    }
    backend.redis.hset(keys.outbox, mapping=odd)
    backend.redis.hset(keys.outbox_tasks, mapping={b"\x1f9": b"\xc1", b"no number": b"x", b"\x1f10": b"x"})
    backend.redis.zadd(keys.outbox_due, dict.fromkeys(odd, 0))
    backend.redis.delete("background")  # so the call that is right is lost, too
    backend.redis.zadd("acts:due", {run.id: 0})
    with backend.worker():
        assert backend.meeting.take("told")["call"]["name"] == "told"
        other = backend.client.submit([], {"calls": [ECHO]})
        assert backend.wait(other.id).status == "completed"
    assert "is set aside" in backend.log.read_text(errors="replace")


def test_whatever_stands_in_the_keys_of_one_run_the_others_are_looked_after(backend: Backend) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    runs = [backend.client.submit([], {"calls": [ECHO, NOTE]}).id for _ in range(max(3, MUTATIONS // 30))]
    for run in runs:
        for key in Keys("acts", run).all:
            if chance.random() < 0.5:
                _spoil(backend.redis, key, chance)
        backend.redis.zadd("acts:due", {run: 0})
    last = lose_task(backend)
    assert_recovers(backend, last, seed)


def _spoil(redis: Redis, key: str, chance: random.Random) -> None:
    """Write something odd into a key, of its own type or another."""
    piece, other = chance.choice(PIECES)[:200], chance.choice(PIECES)[:200]
    kind: Any = redis.type(key)
    if chance.random() < 0.3 or kind == b"none":
        redis.delete(key)
        kind = chance.choice([b"string", b"hash", b"zset", b"list", b"stream"])
    match kind:
        case b"hash":
            known: Any = redis.hkeys(key)
            redis.hset(key, chance.choice([*known, piece]), other)
        case b"zset":
            score: Any = chance.choice(["-inf", "inf", 0, 1e300])
            redis.zadd(key, {piece: score})
        case b"list":
            redis.lpush(key, piece)
        case b"stream":
            redis.xadd(key, {piece or b"x": other})
        case _:
            redis.set(key, piece)
