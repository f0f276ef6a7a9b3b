"""What a worker takes from its queues: hostile bytes, keys and tasks."""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import msgpack
import pytest
import redis
from kombu.exceptions import EncodeError
from redis import Redis

from acts_celery import Client
from acts_celery.broker_config import (
    DELIVER,
    EXECUTE_ACTIVITY,
    EXECUTE_BACKGROUND,
    EXECUTE_DELEGATE,
    EXECUTE_INSTANCE,
    EmbeddedServer,
    celery_configuration,
)
from acts_celery.protocol import Rejected
from acts_celery.protocol.plan.documents import decode
from acts_celery.worker.broker.consumer import InFlight, keep_in_memory
from acts_celery.worker.runner.application import make_client_application
from acts_celery.worker.store.keys import Keys
from tests.few import few
from tests.worker.backend import Backend, Meeting, meeting_url, settings_for

from .broker_messages import message, packed, task_body
from .users import Guarded

# A worker takes what belongs to the queue it came from, whatever the message says (docs/security.md).

ID = {"run": "none", "instance": None, "index": 0}
NOTE = packed(
    {
        "attempt": {"id": ID},
        "activity": "note",
        "call": {"_tool": "note", "name": "forged"},
        "parameters": {"name": "forged"},
        "context": {},
    }
)
DELEGATE = packed(
    {
        "attempt": {"id": ID},
        "delegate": "showContext",
        "context": [],
        "schema": None,
        "config": {},
        "awaited": True,
    }
)
LANE = packed(["none", None])
ECHO = {"_tool": "echo", "value": 1, "_outputPath": "†state.a"}
BACKGROUND = {"_tool": "note", "name": "told"}

FOREIGN = [
    ("delegates", "instances", EXECUTE_ACTIVITY, NOTE),
    ("delegates", "instances", EXECUTE_BACKGROUND, NOTE),
    ("delegates", "instances", EXECUTE_DELEGATE, DELEGATE),
    ("background", "instances", EXECUTE_ACTIVITY, NOTE),
    ("clients", "delegates", EXECUTE_ACTIVITY, NOTE),
    ("clients", "delegates", EXECUTE_INSTANCE, LANE),
    ("clients", "delegates", DELIVER, LANE),
    ("clients", "background", EXECUTE_ACTIVITY, NOTE),
    ("clients", "background", EXECUTE_INSTANCE, LANE),
    ("clients", "lathe", EXECUTE_DELEGATE, DELEGATE),
    ("clients", "lathe", EXECUTE_INSTANCE, LANE),
    ("clients", "lathe", "celery.map", packed([EXECUTE_ACTIVITY, [[NOTE]]])),
]


def refusals(guarded: Guarded, user: str) -> list[str]:
    """The lines of a worker's log that tell of a refusal."""
    text = (guarded.folder / f"{user}.log").read_text(errors="replace")
    return [line for line in text.splitlines() if "is refused" in line]


def put(guarded: Guarded, user: str, queue: str, content: bytes) -> None:
    """Put a message into a queue as one user."""
    with redis.Redis.from_url(guarded.url(user)) as connection:
        connection.lpush(queue, content)


def let_pass(guarded: Guarded, queue: str) -> None:
    """Return when everything that lay in a queue before was taken and judged."""
    run = guarded.as_("clients").client.submit
    calls: dict[str, list[dict[str, Any]]] = {
        "instances": [ECHO],
        "delegates": [{"_tool": "ask", "_delegate": "showContext", "_outputPath": "†state.a"}],
        "background": [BACKGROUND],
        "lathe": [{"_tool": "remoteAdd", "a": 1, "b": 2, "_outputPath": "†state.a"}],
    }
    assert guarded.as_("clients").wait(run([], {"calls": calls[queue]}).id).status == "completed"
    if queue == "background":
        guarded.meeting.take("told")


WORKERS = {"instances": "instances", "delegates": "delegates", "background": "background", "lathe": "background"}


@pytest.mark.parametrize(("user", "queue", "task", "argument"), FOREIGN)
def test_a_task_of_another_queue_is_refused_in_one_line(
    guarded: Guarded, user: str, queue: str, task: str, argument: bytes
) -> None:
    before = len(refusals(guarded, WORKERS[queue]))
    # The sender says that it lay where such tasks belong.
    place = {"delivery_info": {"exchange": "", "routing_key": "background"}}
    put(guarded, user, queue, message(task_body(argument), task=task, properties=place))
    let_pass(guarded, queue)
    (line,) = refusals(guarded, WORKERS[queue])[before:]
    assert f"'{queue}'" in line
    assert "does not belong there" in line
    assert guarded.meeting.count("forged") == 0


FOLLOWED: dict[str, bytes] = {
    name: message(msgpack.packb([[LANE], {}, {name: value}]))
    for name, value in {
        "callbacks": [{"task": EXECUTE_ACTIVITY, "args": [NOTE]}],
        "errbacks": [{"task": EXECUTE_ACTIVITY, "args": [NOTE]}],
        "chain": [{"task": EXECUTE_ACTIVITY, "args": [NOTE]}],
        "chord": {"task": EXECUTE_ACTIVITY, "args": [NOTE]},
    }.items()
}
ASKING: dict[str, dict[str, object]] = {
    "eta": {"eta": "2999-01-01T00:00:00+00:00"},
    "expires": {"expires": "2999-01-01T00:00:00+00:00"},
    "group": {"group": "any"},
    "timelimit": {"timelimit": [0.001, None]},
    "retries": {"retries": 3},
    "stamps": {"stamps": {"a": "b"}, "stamped_headers": ["a"]},
}


@pytest.mark.parametrize(
    "content",
    [
        *FOLLOWED.values(),
        *(
            message(task_body(LANE), headers={"task": EXECUTE_INSTANCE, "id": str(uuid.uuid4()), **headers})
            for headers in ASKING.values()
        ),
        message(task_body(LANE), properties={"reply_to": "delegates"}),
        message(msgpack.packb([[LANE], {"named": 1}, {}])),
    ],
    ids=[*FOLLOWED, *ASKING, "reply_to", "kwargs"],
)
def test_a_task_that_asks_celery_for_more_is_refused_in_one_line(guarded: Guarded, content: bytes) -> None:
    before = len(refusals(guarded, "instances"))
    put(guarded, "delegates", "instances", content)
    let_pass(guarded, "instances")
    assert len(refusals(guarded, "instances")) == before + 1
    assert guarded.meeting.count("forged") == 0


def test_refusals_are_counted(guarded: Guarded) -> None:
    def counted() -> int:
        inspect = make_client_application(guarded.as_("flower").settings).control.inspect(timeout=5, limit=3)
        statistics: dict[str, Any] = inspect.stats()
        return sum(of_worker["refused"].get("messages", 0) for of_worker in statistics.values())

    before = counted()
    put(guarded, "delegates", "instances", message(task_body(NOTE), task=EXECUTE_ACTIVITY))
    let_pass(guarded, "instances")
    assert counted() == before + 1


# Nasty submissions and messages, from a small corpus and by chance: no crash, no hang, nothing left behind.

MUTATIONS = int(os.environ.get("ACTS_FUZZ", "300"))
SECONDS = 10
CORPUS = sorted(path for path in (Path(__file__).parent / "corpus").iterdir())
QUEUES = ("instances", "delegates", "background", "lathe")
EVERYWHERE: list[dict[str, Any]] = [
    ECHO,
    {"_tool": "ask", "_delegate": "showContext", "_scopes": ["state"], "_outputPath": "†data.seen"},
    {"_tool": "remoteAdd", "a": 1, "b": 2, "_outputPath": "†data.sum"},
    {"_tool": "note", "name": "told"},
]
SUBMISSION = {
    "context": [
        {"type": "state", "_instance": "①", "text": "Привет", "n": [1, {"a": None}]},
        {
            "type": "tool",
            "tool": {
                "t": {"properties": {"x": {"pattern": "^a+$"}}, "_outputPath": {"pattern": "^†"}, "_delegate": {}}
            },
        },
        {"type": "plan", "calls": [{"_tool": "echo", "value": "†state.text"}]},
    ],
    "solution": {
        "calls": [
            {"_tool": "echo", "value": "†state.text || †state.b", "_instance": "①", "_outputPath": "†state.a"},
            {"_tool": "t", "x": "aa", "_delegate": "showContext", "_scopes": ["state"], "_outputPath": "†data.d.0"},
            {"_tool": "note", "name": "††x †{data.d || input.x}"},
        ],
        "output": None,
    },
    "delegates": {"d": {"context": [{"type": "system", "message": "m"}], "schema": {"type": "string"}}},
}
ID_FUZZ = {"run": "none", "instance": "①", "index": 0}
BODIES = (
    (EXECUTE_INSTANCE, ["none", "①"]),
    (DELIVER, {"id": ID_FUZZ, "result": {"path": "†state.a", "value": [1]}}),
    (DELIVER, {"id": ID_FUZZ, "result": {"type": "ValueError", "message": "no"}}),
    (EXECUTE_ACTIVITY, {"id": ID_FUZZ, "activity": "echo", "call": {}, "parameters": {"value": 1}, "context": {}}),
    (EXECUTE_BACKGROUND, {"id": ID_FUZZ, "activity": "echo", "call": {}, "parameters": {"value": 1}, "context": {}}),
    (
        EXECUTE_DELEGATE,
        {"id": ID_FUZZ, "delegate": "showContext", "context": [], "schema": {}, "config": {}, "awaited": True},
    ),
)
PIECES = (b"", b"\x00", b"\xff", b"\xc1", b"\xdd\xff\xff\xff\xff", b"\xdf\x7f\xff\xff\xff", b"\xdb\xff\xff\xff\xff",
          b"\xc7\xff\x01", b"\xd7\xff", b"[" * 500, b"\x91" * 2_000, b'{"a":' * 200, b'"\\ud800"', b"1e999", b"NaN",
          "†".encode(), "†{".encode(), b"||", b"&&", b'"_instance"', b'"_tool"', b"9" * 5_000)  # fmt: skip


def mutated(content: bytes, chance: random.Random) -> bytes:
    """The bytes with a few of them changed, dropped, doubled or replaced by something nasty."""
    made = bytearray(content)
    for _ in range(chance.randint(1, 4)):
        start = chance.randrange(len(made) + 1)
        end = min(len(made), start + chance.choice([0, 1, 1, 2, 8, 64]))
        piece = chance.choice([*PIECES, bytes(made[start:end]) * 2, bytes([chance.randrange(256)])])
        made[start:end] = piece
    return bytes(made)


@contextmanager
def in_time(what: object) -> Iterator[None]:
    """Fail what hangs."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"it hangs: {what!r:.500}")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with EmbeddedServer() as server:
        yield Backend(settings_for(server), Meeting(meeting_url(server)), tmp_path_factory.mktemp("fuzz"))


def submit(client: Client, redis: Redis, content: bytes) -> bool:
    """Whether it was accepted; else it was rejected with reasons, and has left nothing."""
    with in_time(content):
        try:
            run = client.submit_document(decode(content))
        except Rejected as rejected:
            "".join(map(str, rejected.errors)).encode()  # it can be printed
            assert list(redis.scan_iter("*")) == []
            return False
        assert run.status()["status"] in ("running", "completed")
        redis.flushall()
        return True


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_each_submission_of_the_corpus_is_rejected(backend: Backend, path: Path) -> None:
    assert not submit(backend.client, backend.redis, path.read_bytes())


@pytest.mark.parametrize("form", ["json", "msgpack"])
def test_any_change_of_a_submissions_bytes_is_accepted_or_rejected(backend: Backend, form: str) -> None:
    content = json.dumps(SUBMISSION).encode() if form == "json" else msgpack.packb(SUBMISSION)
    assert submit(backend.client, backend.redis, content)
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    accepted = 0
    for number in range(MUTATIONS):
        made = mutated(content, chance)
        try:
            accepted += submit(backend.client, backend.redis, made)
        except BaseException as error:
            error.add_note(f"mutation {number} of seed {seed}: {made!r}")
            raise
    assert accepted < MUTATIONS


def test_any_change_of_a_messages_bytes_leaves_the_worker_alive(backend: Backend) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    with backend.worker() as process:
        for number in range(MUTATIONS):
            task, body = chance.choice(BODIES)
            inner, outer = packed(body), task_body(packed(body))
            made = task_body(mutated(inner, chance)) if number % 2 else mutated(outer, chance)
            backend.redis.lpush(chance.choice(QUEUES), message(made, task=task))
        assert_all_queues_are_served(backend, seed)
        assert process.poll() is None, seed
    # What was given back at the end of the worker would be something that was never answered.
    assert not any(map(backend.redis.llen, QUEUES)), seed
    assert "Unrecoverable" not in backend.log.read_text(errors="replace"), seed


@pytest.mark.parametrize("queue", QUEUES)
def test_entries_of_a_queue_that_are_no_messages_leave_the_worker_alive(backend: Backend, queue: str) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    whole = message(task_body(packed(["none", "①"])))
    junk = [b"", b"x", b"{}", b"[]", b"null", b"1", b"\xff", b'{"body": 1}', b'{"properties": []}', b"[" * 100_000]
    with backend.worker() as process:
        before = backend.log.read_text(errors="replace").count("and is dropped")
        backend.redis.lpush(queue, *junk, *(mutated(whole, chance) for _ in range(MUTATIONS)))
        assert_all_queues_are_served(backend, seed)
        assert process.poll() is None, seed
        (stats,) = make_client_application(backend.settings).control.inspect(timeout=10, limit=1).stats().values()
    log = backend.log.read_text(errors="replace")
    assert stats["refused"]["entries"] == log.count("and is dropped") - before >= len(junk), seed
    assert backend.redis.llen(queue) == 0, seed
    assert "Unrecoverable" not in log, seed
    assert "Traceback" not in log, seed


def assert_all_queues_are_served(backend: Backend, note: object) -> None:
    """A run with a call for each queue completes."""
    assert backend.run(EVERYWHERE).status == "completed", note
    assert backend.meeting.take("told")["call"]["name"] == "told", note


def test_nothing_that_lies_among_the_reports_ends_recovery(backend: Backend) -> None:
    """Garbage, messages without their parts, reports of what cannot be: a task that was lost is found all the same."""
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    sign = ["none", "", 0, 1]
    reports: list[Any] = [
        {"closed": [[sign, None, delay]]} for delay in (float("inf"), float("nan"), -1.0, 1e300, 2**63)
    ]
    reports += [{"begun": [[*sign[:2], *numbers]]} for numbers in ((-1, 1), (2**60, 1), (0, -1), (0, 2**60))]
    reports += [{"begun": [["}{", "\x1f@", 0, 1]]}, {"probes": [["instances", -1]]}, {"probes": [["", 2**52]]}]
    whole = [message(packed(report)) for report in reports]
    junk = [b"", b"{}", b"[]", b"null", b"\xff", b'{"body": 1}', message(b"", properties={"delivery_tag": None})]
    junk += [mutated(chance.choice(whole), chance) for _ in range(MUTATIONS)]
    run = backend.client.submit([], {"calls": [ECHO]})
    backend.redis.delete("instances")
    backend.redis.lpush("reports", *whole, *junk)
    with backend.worker() as process:
        assert backend.wait(run.id).status == "completed", seed
        assert process.poll() is None, seed
    assert "the sweep failed" not in backend.log.read_text(errors="replace"), seed


def test_forged_results_end_each_call_once_and_add_none(backend: Backend) -> None:
    """Odd instances, indexes, paths and errors, committed through the script: the run comes out whole."""
    names: list[Any] = ["", "①", "x" * 5_000, "a\x1fb", "@", "\x1f", "{", "}", "*", "none"]
    indexes: list[Any] = [0, 1, -1, 2**53, 2**63]
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    client, redis = backend.client, backend.redis
    run = client.submit([{"type": "state", "_instance": "①"}], {"calls": [{**ECHO, "_instance": "①"}, ECHO]})
    deliveries = [
        {"id": {"run": run.id, "instance": chance.choice([None, *names]), "index": chance.choice(indexes)},
         "result": chance.choice([{"value": 1}, {"path": chance.choice(names), "value": {}},
                                  {"type": chance.choice(names), "message": chance.choice(names)}])}
        for _ in range(MUTATIONS)
    ]  # fmt: skip
    for delivery in deliveries:
        redis.rpush("instances", message(task_body(packed(delivery)), task=DELIVER))
    with backend.worker() as process:
        result = backend.wait(run.id)
        assert backend.run([ECHO]).status == "completed", seed
        assert process.poll() is None, seed
    assert {call.status for call in result.calls} <= {"done", "failed"}, seed
    assert redis.hget(f"acts:{{{run.id}}}:state", "remaining") == b"0"
    entries: Any = redis.xrange(f"acts:{{{run.id}}}:log")
    ended = [fields[b"l"].decode() for _, fields in entries if b"c" in fields]
    assert sorted(ended) == ["", "①"], seed


# Whatever stands in the keys of the log: recovery goes on, says so in one line each, and counts it.

ODD = b"\xff\x1b[31m\nforged line"
NOTE_FUZZ_KEYS = {"_tool": "note", "name": "told"}


@pytest.fixture
def backend_fuzz_keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
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
def test_what_stands_in_a_shared_key_does_not_end_recovery(backend_fuzz_keys: Backend, name: str) -> None:
    run = lose_task(backend_fuzz_keys)
    BROKEN[name](backend_fuzz_keys.redis)
    counted = assert_recovers(backend_fuzz_keys, run, name)
    if name not in ("times that are none", "a turn that does not end"):
        assert counted.get("keys", 0) > 0
        assert "is set aside" in backend_fuzz_keys.log.read_text(errors="replace")


def test_what_stands_in_the_outbox_of_a_run_keeps_no_other_call_from_being_sent(backend_fuzz_keys: Backend) -> None:
    run = backend_fuzz_keys.client.submit([], {"calls": [NOTE_FUZZ_KEYS, ECHO]})
    with backend_fuzz_keys.worker("-Q", "instances"):
        assert backend_fuzz_keys.wait(run.id).status == "completed"
    keys = Keys("acts", run.id)
    entries: Any = backend_fuzz_keys.redis.hgetall(keys.outbox)
    (entry,) = entries.values()
    odd: dict[Any, Any] = {
        b"\x1f7": b"x",
        b"\x1f8": b"sent:1:0:1/background",
        ODD: entry,
        b"no number": b"retry:1:0:1/background",
        b"\x1f9": b"retry:1:0:1/background",
        b"\x1f10": b"running:99:0:1/background",
    }
    backend_fuzz_keys.redis.hset(keys.outbox, mapping=odd)
    backend_fuzz_keys.redis.hset(keys.outbox_tasks, mapping={b"\x1f9": b"\xc1", b"no number": b"x", b"\x1f10": b"x"})
    backend_fuzz_keys.redis.zadd(keys.outbox_due, dict.fromkeys(odd, 0))
    backend_fuzz_keys.redis.delete("background")  # so the call that is right is lost, too
    backend_fuzz_keys.redis.zadd("acts:due", {run.id: 0})
    with backend_fuzz_keys.worker():
        assert backend_fuzz_keys.meeting.take("told")["call"]["name"] == "told"
        other = backend_fuzz_keys.client.submit([], {"calls": [ECHO]})
        assert backend_fuzz_keys.wait(other.id).status == "completed"
    assert "is set aside" in backend_fuzz_keys.log.read_text(errors="replace")


def test_whatever_stands_in_the_keys_of_one_run_the_others_are_looked_after(backend_fuzz_keys: Backend) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    runs = [
        backend_fuzz_keys.client.submit([], {"calls": [ECHO, NOTE_FUZZ_KEYS]}).id
        for _ in range(max(3, MUTATIONS // 30))
    ]
    for run in runs:
        for key in Keys("acts", run).all:
            if chance.random() < 0.5:
                _spoil(backend_fuzz_keys.redis, key, chance)
        backend_fuzz_keys.redis.zadd("acts:due", {run: 0})
    last = lose_task(backend_fuzz_keys)
    assert_recovers(backend_fuzz_keys, last, seed)


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


# msgpack, and JSON for events: nowhere is a pickle read, and nowhere is one written.

SECRET = "canary-77b0"


def test_every_content_that_the_configuration_names_is_msgpack_but_for_events_in_json() -> None:
    settings = settings_for(EmbeddedServer(), result_backend_url="redis://localhost:6379/1")
    configuration = celery_configuration(settings)
    contents = {name: value for name, value in configuration.items() if name.endswith(("serializer", "_content"))}
    assert contents == {
        "accept_content": ["msgpack"],
        "result_accept_content": ["msgpack"],
        "task_serializer": "msgpack",
        "result_serializer": "msgpack",
        "event_serializer": "json",
    }


def test_what_is_no_data_cannot_be_sent() -> None:
    app = make_client_application(settings_for(EmbeddedServer()))
    with pytest.raises(EncodeError):
        app.send_task("any", args=[object()])


def test_kombus_emergency_dump_is_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would pickle messages into a file; what a worker has in hand is not restored."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with EmbeddedServer() as server:
        app = make_client_application(settings_for(server))
        app.send_task("any", args=[SECRET.encode()], queue="left")
        channel = app.connection_for_read().channel()
        keep_in_memory(channel, InFlight())
        assert SECRET.encode() in channel.basic_get("left", no_ack=False).body
    channel.qos.restore_unacked_once()
    assert list(tmp_path.iterdir()) == []
