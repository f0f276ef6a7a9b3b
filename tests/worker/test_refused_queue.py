"""A queue that a worker's user may not write fails the calls that are meant for it, and holds up nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from acts_celery.broker_config import EmbeddedServer

from .backend import FIXTURES, Backend, Meeting, meeting_url, settings_for

OPEN = "acts* instances* reports* delegates* background* unacked* _kombu* *celery* *.reply.* record:* gate:* attempts:*"
APART = {"_tool": "apart", "value": 1, "_outputPath": "†state.a"}


@pytest.fixture
def backend(tmp_path: Path) -> Iterator[Backend]:
    with EmbeddedServer() as server, Redis.from_url(server.redis_url) as admin:
        patterns = [f"~{pattern}" for pattern in OPEN.split()]
        admin.execute_command("ACL", "SETUSER", "few", "on", ">word", *patterns, "&*", "+@all")
        at = f"few:word@{server.socket_path}"
        urls = {"broker_url": f"redis+socket://{at}", "redis_url": f"unix://{at}"}
        settings = settings_for(server, activities=(str(FIXTURES / "refused_queue.py"),), **urls)
        yield Backend(settings, Meeting(meeting_url(server)), tmp_path)


def test_its_calls_fail_with_the_brokers_words_and_others_go_on(backend: Backend) -> None:
    with backend.worker("-Q", "instances"):
        others = [{"_tool": "here", "value": "†state.b", "_outputPath": "†state.c"}]
        first = {"_tool": "here", "value": 2, "_outputPath": "†state.b"}
        result = backend.run([APART, first, *others])
        assert (result.status, result.data()["state"]) == ("failed", {"b": 2, "c": 2})
        (failed,) = [call for call in result.calls if call.status == "failed"]
        assert failed.error is not None
        assert failed.error["type"] == "QueueRefused"
        assert "queue 'closed'" in failed.error["message"]
        assert backend.run([first, *others]).status == "completed"


def test_what_is_sent_and_forgotten_there_is_a_dead_letter(backend: Backend) -> None:
    with backend.worker("-Q", "instances"):
        forgotten = {key: value for key, value in APART.items() if key != "_outputPath"}
        assert backend.run([{**forgotten, "_tool": "apart"}]).status == "completed"
        run = backend.run([{"_tool": "here", "value": 2, "_outputPath": "†state.b"}])
        assert run.status == "completed"
        letters = backend.client.dead_letters()
        while not (found := letters.list()):
            time.sleep(0.02)
        assert found[0].error_type == "QueueRefused"
