"""Nasty submissions and messages, from a small corpus and by chance: no crash, no hang, nothing left behind.

By chance means a fixed number of mutations with a seed that a failure tells; ACTS_FUZZ=10000 makes more of them.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import msgpack
import pytest
from redis import Redis

from acts_celery import Client
from acts_celery.broker_config import (
    DELIVER,
    EXECUTE_ACTIVITY,
    EXECUTE_BACKGROUND,
    EXECUTE_DELEGATE,
    EXECUTE_INSTANCE,
    EmbeddedServer,
)
from acts_celery.protocol import Rejected
from acts_celery.protocol.plan.submission import decode
from acts_celery.worker.runner.application import make_client_application
from tests.worker.backend import Backend, Meeting, meeting_url, settings_for

from .broker_messages import message, packed, task_body

MUTATIONS = int(os.environ.get("ACTS_FUZZ", "300"))
SECONDS = 10
CORPUS = sorted(path for path in (Path(__file__).parent / "corpus").iterdir())
ECHO = {"_tool": "echo", "value": 1, "_outputPath": "†state.a"}
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
ID = {"run": "none", "instance": "①", "index": 0}
BODIES = (
    (EXECUTE_INSTANCE, ["none", "①"]),
    (DELIVER, {"id": ID, "result": {"path": "†state.a", "value": [1]}}),
    (DELIVER, {"id": ID, "result": {"type": "ValueError", "message": "no"}}),
    (EXECUTE_ACTIVITY, {"id": ID, "activity": "echo", "call": {}, "parameters": {"value": 1}, "context": {}}),
    (EXECUTE_BACKGROUND, {"id": ID, "activity": "echo", "call": {}, "parameters": {"value": 1}, "context": {}}),
    (
        EXECUTE_DELEGATE,
        {"id": ID, "delegate": "showContext", "context": [], "schema": {}, "config": {}, "awaited": True},
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
