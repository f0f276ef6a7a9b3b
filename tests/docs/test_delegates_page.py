"""What docs/delegates.md shows is what lies in the queue of the delegates."""

from __future__ import annotations

import base64
import json
import re
from typing import Any, Final

import msgpack
import pytest

from acts_celery import Client
from acts_celery.broker_config import EmbeddedServer
from acts_celery.protocol.calls.delegates import delegate_context
from acts_celery.worker.agent.model_calls import rendered
from tests.worker.backend import Backend, Meeting, meeting_url, settings_for

from .pages import ROOT

PAGE: Final = (ROOT / "docs" / "delegates.md").read_text(encoding="utf-8")
BYTES: Final = int(re.findall(r"msgpack, of (\d+) bytes", PAGE)[0])


def block(name: str) -> Any:
    found = re.search(rf"^```json {re.escape(name)}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert found, name
    return json.loads(found[1])


@pytest.fixture(scope="module")
def argument(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The argument of the task that a worker without the delegates' queue has published."""
    with EmbeddedServer() as server:
        settings = settings_for(server)
        backend = Backend(settings, Meeting(meeting_url(server)), tmp_path_factory.mktemp("page"))
        with Client(settings) as client, backend.worker("--queues", "instances"):
            client.submit_document(block("letter.json"))
            taken: Any = backend.redis.brpop([backend.queue("delegates")], 30)
    body = msgpack.unpackb(base64.b64decode(json.loads(taken[1])["body"]))
    found = body[0][0]
    assert isinstance(found, bytes)
    return found


def test_the_message_is_what_the_page_shows(argument: bytes) -> None:
    message, shown = msgpack.unpackb(argument), block("message")
    for part, name in ((message["attempt"]["id"], "run"), (message["attempt"], "token"), (message["attempt"], "seal")):
        assert part.pop(name)
    message["attempt"]["seen"] = ["…" for _ in message["attempt"]["seen"]]
    for part, name in ((shown["attempt"]["id"], "run"), (shown["attempt"], "token"), (shown["attempt"], "seal")):
        assert part.pop(name) == "…"
    assert message == shown, "say it in docs/delegates.md"
    assert len(argument) == BYTES, "say it in docs/delegates.md"


def test_nothing_out_of_scope_is_in_its_bytes(argument: bytes) -> None:
    for text in ("4000-1234", "9000", "Bob", "customers", "budget", "card"):
        assert text.encode() not in argument


def test_a_model_is_asked_what_the_page_shows(argument: bytes) -> None:
    assert rendered(msgpack.unpackb(argument)["context"]) == block("asked")


def test_code_gets_the_last_two_messages() -> None:
    scoped = block("message")["context"][2]
    assert delegate_context([], [scoped], {"subject": "Your order"}) == [
        {"type": "state", "tone": "friendly", "name": "Ann"},
        {"type": "input", "subject": "Your order"},
    ]
