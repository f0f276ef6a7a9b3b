"""Whatever is published in the channel of remote control: one line, one count, and the worker goes on."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.runner.application import make_client_application
from tests.worker.backend import Backend, Meeting, meeting_url, settings_for

from .broker_messages import message, packed
from .test_fuzz import ECHO, MUTATIONS, mutated

CHANNEL = "/0.celery.pidbox"
ID = "01234567-89ab-cdef-0123-456789abcdef"
ASKER = {"exchange": "reply.celery.pidbox", "routing_key": ID}
SECRET = "canary-41c7"
PING: dict[str, Any] = {"method": "ping", "arguments": {}, "destination": None, "pattern": None, "matcher": None}

REFUSED: dict[str, object] = {
    "a number": 5,
    "a list": [SECRET],
    "no command": {"arguments": {}},
    "a list for a command": {"method": ["ping"]},
    "a part that there is not": {**PING, f"\x1b[31m{SECRET}": 1},
    "a number for a destination": {**PING, "destination": 5},
    "a text for a destination": {**PING, "destination": SECRET},
    "a pattern": {**PING, "pattern": "(a+)+$", "matcher": "pcre"},
    "a list for arguments": {**PING, "arguments": [SECRET]},
    "a number for the name of an argument": {**PING, "arguments": {5: 1}},
    "an argument that there is not": {**PING, "method": "acts_cancel", "arguments": {SECRET: 1}},
    "a ticket of bytes": {**PING, "ticket": b"x" * 100},
    "an answer into a queue": {**PING, "ticket": ID, "reply_to": {"exchange": "", "routing_key": "delegates"}},
    "an answer to a text": {**PING, "ticket": ID, "reply_to": SECRET},
    "an answer to no process": {**PING, "ticket": ID, "reply_to": {**ASKER, "routing_key": "instances"}},
    "tasks of a number": {**PING, "method": "query_task", "arguments": {"ids": 5}},
}
NO_MESSAGES: dict[str, bytes] = {
    "no bytes": b"\xff",
    "no JSON": SECRET.encode(),
    "a number": b"5",
    "a list": b"[]",
    "nothing in it": b"{}",
    "no properties": json.dumps({"body": SECRET}).encode(),
}


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with EmbeddedServer() as server:
        yield Backend(settings_for(server), Meeting(meeting_url(server)), tmp_path_factory.mktemp("channel"))


def refused(backend: Backend) -> dict[str, int]:
    """What the worker has counted; asked until it answers, for one that has just said that it is ready may hear a
    moment later.
    """
    inspect = make_client_application(backend.settings).control.inspect(timeout=1, limit=1)
    (stats,) = next(found for _ in range(20) if (found := inspect.stats())).values()
    counted: dict[str, int] = stats["refused"]
    return counted


def test_what_is_no_command_of_celerys_is_refused_in_one_line_each(backend: Backend) -> None:
    with backend.worker() as process:
        refused(backend)
        for content in REFUSED.values():
            backend.redis.publish(CHANNEL, message(packed(content)))
        backend.redis.publish(CHANNEL, message(b"\xc1"))
        backend.redis.publish(CHANNEL, message(b"x", content_type="application/x-python-serialize"))
        for entry in NO_MESSAGES.values():
            backend.redis.publish(CHANNEL, entry)
        counted = refused(backend)
        assert process.poll() is None
        assert backend.redis.llen("delegates") == 0
    assert counted == {"commands": len(REFUSED) + 2, "entries": len(NO_MESSAGES)}
    lines = backend.log.read_text(errors="replace").splitlines()
    said = [line for line in lines if "refused" in line or "dropped" in line or "fails" in line]
    assert len(said) == len(REFUSED) + 2 + len(NO_MESSAGES)
    assert all(line.isprintable() for line in said)
    assert not any("Traceback" in line for line in lines)


def test_any_change_of_a_commands_bytes_leaves_the_worker_answering(backend: Backend) -> None:
    seed = random.randrange(2**32)
    chance = random.Random(seed)
    bodies: list[Any] = [packed({**PING, "ticket": ID, "reply_to": ASKER}), *map(packed, REFUSED.values())]
    with backend.worker() as process:
        refused(backend)
        for number in range(MUTATIONS):
            body = chance.choice(bodies)
            made = message(mutated(body, chance)) if number % 2 else mutated(message(body), chance)
            backend.redis.publish(CHANNEL, made)
        assert sum(refused(backend).values()) > 0, seed
        assert backend.run([ECHO]).status == "completed", seed
        assert process.poll() is None, seed
    log = backend.log.read_text(errors="replace")
    assert "Unrecoverable" not in log, seed
    assert "Traceback" not in log, seed
