"""Whatever lies in a queue: the worker takes what is a task of ours, refuses the rest, and lives."""

from __future__ import annotations

import os
import pickle
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from acts_celery.broker_config import (
    DELIVER,
    EXECUTE_ACTIVITY,
    EXECUTE_BACKGROUND,
    EXECUTE_DELEGATE,
    EXECUTE_INSTANCE,
    SEVERAL,
    EmbeddedServer,
)
from tests.worker.backend import Backend, Meeting, meeting_url, settings_for

from .broker_messages import message, packed, task_body

SECRET = "canary-5d1f"
FORGED = "[2026-01-01 00:00:00,000: INFO/MainProcess] forged"
LANES = EXECUTE_INSTANCE + SEVERAL
ECHO = {"_tool": "echo", "value": 1, "_outputPath": "†state.a"}
ID = {"run": "none", "instance": None, "index": 0}
CALL = {"id": ID, "activity": "echo", "call": {}, "parameters": {}, "context": {}}


class Payload:
    """What a pickle may carry."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def named(**headers: object) -> dict[str, object]:
    return {"task": "acts.execute_instance", "id": "x", "argsrepr": "-", "kwargsrepr": "-", **headers}


REFUSED: dict[str, bytes] = {
    "another content": message(b'[["x"], {}, {}]', content_type="application/json"),
    "a list for a name": message(task_body(b"x"), headers=named(task=["x"])),
    "no id": message(task_body(b"x"), headers={"task": "acts.deliver"}),
    "no headers": message(task_body(b"x"), headers={}),
    "a task nobody has": message(task_body(SECRET), task="nobody.knows"),
    "a number for a body": message(packed(5)),
    "a short body": message(packed([[b"x"]])),
    "a body nested deeply": message(b"\x91" * 100_000),
    "no body": message(b""),
    "a time limit of letters": message(task_body(packed(["none", None])), headers=named(timelimit="soon")),
    "compressed": message(zlib.compress(task_body(b"x")), headers=named(compression="application/x-gzip")),
    "compressed by another name": message(zlib.compress(task_body(b"x")), headers=named(compression="zlib")),
    "an expiry that is none": message(task_body(packed(["none", None])), headers=named(expires=["now"])),
    "an id of two lines": message(task_body(packed(["none", None])), headers=named(id=f"x\n{FORGED}")),
    "a result with a key of two lines": message(
        task_body(packed({"attempt": {"id": ID}, "result": {"value": {f"x\n{FORGED}": msgpack.ExtType(5, b"x")}}})),
        task=DELIVER,
    ),
    "an object for a key": message(task_body(b"\x81\x80\x01")),
    "text for bytes": message(task_body(SECRET)),
    "two arguments": message(task_body(b"x", b"y")),
    "no argument": message(task_body()),
    "no msgpack": message(task_body(b"\xc1" + SECRET.encode())),
    "an argument nested deeply": message(task_body(b"\x91" * 100_000)),
    "an array of more than there is": message(task_body(b"\xdd\xff\xff\xff\xff" * 500)),
    "more bytes than a lane's name has": message(task_body(packed(["none", "x" * 2_000_000]))),
    "a lane without a run": message(task_body(packed([None, None]))),
    "a lane that is an object": message(task_body(packed({"run": SECRET}))),
    "an envelope of nothing": message(task_body(packed([0, []])), task=LANES),
    "an envelope of too many tasks": message(task_body(packed([0, [(b"x", "x")] * 101])), task=LANES),
    "an envelope of tasks that are none": message(task_body(packed([0, [{SECRET: 1}]])), task=LANES),
    "an envelope numbered by letters": message(task_body(packed([SECRET, [(b"x", "x")]])), task=LANES),
    "an envelope of what is no lane": message(task_body(packed([0, [(b"x", "x")]])), task=LANES),
    "an envelope of an envelope": message(task_body(packed([0, [(b"x", "x")]])), task=LANES + SEVERAL),
    "an envelope of more bytes than there may be": message(
        task_body(packed([0, [(b"x" * 30_000, "x")] * 50])), task=LANES
    ),
    "an envelope of text": message(task_body(SECRET), task=LANES),
    "an envelope without an argument": message(task_body(), task=LANES),
    "a result of nothing": message(task_body(packed({"id": ID})), task=DELIVER),
    "a result that is a number": message(task_body(packed({"id": ID, "result": 5})), task=DELIVER),
    "a result of neither kind": message(task_body(packed({"id": ID, "result": {SECRET: 1}})), task=DELIVER),
    "a result in bytes": message(task_body(packed({"id": ID, "result": {"value": b"x"}})), task=DELIVER),
    "a result with an extension": message(
        task_body(packed({"id": ID, "result": {"value": msgpack.ExtType(5, b"x")}})), task=DELIVER
    ),
    "a result nested deeply": message(
        task_body(packed({"id": ID, "result": {"value": msgpack.unpackb(b"\x91" * 200 + b"\xc0")}})), task=DELIVER
    ),
    "a result of a call by name": message(
        task_body(packed({"id": {**ID, "index": SECRET}, "result": {"value": 1}})), task=DELIVER
    ),
    "an activity by number": message(task_body(packed({**CALL, "activity": 5})), task=EXECUTE_ACTIVITY),
    "an activity without an id": message(task_body(packed({"activity": "echo"})), task=EXECUTE_BACKGROUND),
    "a delegate without a context": message(task_body(packed({"id": ID, "delegate": "x"})), task=EXECUTE_DELEGATE),
    "a delegate with a context of text": message(
        task_body(packed({**CALL, "delegate": "x", "context": SECRET})), task=EXECUTE_DELEGATE
    ),
}


@pytest.fixture(scope="module")
def besieged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with EmbeddedServer() as server:
        yield Backend(settings_for(server), Meeting(meeting_url(server)), tmp_path_factory.mktemp("besieged"))


def lines(backend: Backend) -> list[str]:
    return [line for line in backend.log.read_text(errors="replace").splitlines() if "refused" in line]


def test_what_is_no_task_of_ours_is_refused_in_one_line_and_the_worker_lives(besieged: Backend) -> None:
    with besieged.worker() as process:
        for name, content in REFUSED.items():
            before = len(lines(besieged))
            besieged.redis.lpush("instances", content)
            # Handed in behind it, so done after it.
            assert besieged.run([ECHO]).status == "completed", name
            assert process.poll() is None, name
            assert len(lines(besieged)) == before + 1, name
    assert besieged.redis.llen("instances") == 0
    log = besieged.log.read_text(errors="replace")
    assert "Traceback" not in log
    assert SECRET not in log
    assert not any(line.startswith(FORGED) for line in log.splitlines())


def test_messages_that_show_nothing_of_their_arguments_take_no_place_for_ever(besieged: Backend) -> None:
    """A task that could not be logged never ended: as many as a worker has places ended its work."""
    bare = {"task": EXECUTE_INSTANCE, "id": "x"}
    with besieged.worker("--concurrency", "4"):
        besieged.redis.lpush("instances", *[message(task_body(packed(["none", None])), headers=bare)] * 5)
        assert besieged.run([ECHO]).status == "completed"


def test_what_a_message_names_forges_no_line_of_the_log(besieged: Backend) -> None:
    run = f"none\n{FORGED}"
    attempt = {"id": {"run": run, "instance": run, "index": 0}}
    with besieged.worker():
        before = len(besieged.log.read_text(errors="replace").splitlines())
        besieged.redis.lpush("instances", message(task_body(packed([run, run]))))
        besieged.redis.lpush(
            "instances", message(task_body(packed({"attempt": attempt, "result": {"value": 1}})), task=DELIVER)
        )
        assert besieged.run([ECHO]).status == "completed"
    said = besieged.log.read_text(errors="replace").splitlines()[before:]
    assert any(FORGED in line for line in said)
    assert not any(line.startswith(FORGED) for line in said)


def test_a_pickle_is_refused_and_never_read(besieged: Backend, tmp_path: Path) -> None:
    evil = pickle.dumps([[Payload(tmp_path / "pwned")], {}, {}])
    contents = ["application/x-python-serialize", "application/x-msgpack", "pickle", "application/x-yaml", ""]
    with besieged.worker() as process:
        before = len(lines(besieged))
        for content in contents:
            besieged.redis.lpush("instances", message(evil, content_type=content))
        besieged.redis.lpush("instances", message(task_body(evil)))
        assert besieged.run([ECHO]).status == "completed"
        assert process.poll() is None
    assert len(lines(besieged)) == before + len(contents) + 1
    assert not (tmp_path / "pwned").exists()
