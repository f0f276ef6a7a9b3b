"""A worker outlives what has become of its connections (the rest of the consumer: `test_content`)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from kombu import Connection, Queue

from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.broker.consumer import outlive_channel

from .backend import Backend, Meeting, settings_apart


@pytest.fixture
def message(server: EmbeddedServer) -> Iterator[Any]:
    """A message of a channel as it is left where it could not be closed: without connections, and no way to others."""
    with Connection(server.broker_url) as connection:
        channel = connection.channel()
        queue = Queue("left")(channel)
        queue.declare()
        connection.Producer().publish({}, routing_key="left", exchange="")
        message = queue.get(no_ack=False)
        queue.delete()
        channel._disconnect_pools()
        connection.transport.client = None
        yield message
        connection.transport.client = connection


# As Celery's requests call them.
@pytest.mark.parametrize(("answer", "how"), [("ack_log_error", ()), ("reject_log_error", (True,))])
def test_an_answer_to_a_message_of_a_dead_channel_is_reported_and_ends_nothing(
    message: Any, answer: str, how: tuple[bool, ...], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(AttributeError):
        getattr(message, answer)(logging.getLogger(), (), *how)
    outlive_channel(message)
    getattr(message, answer)(logging.getLogger(), (), *how)
    assert "Couldn't" in caplog.text


def test_a_place_that_is_given_back_is_taken_at_once(server: EmbeddedServer, meeting: Meeting, tmp_path: Path) -> None:
    backend = Backend(settings_apart(server, "few"), meeting, tmp_path)
    context = [{"type": "input", "_instance": f"i{number}", "n": number} for number in range(8)]
    plan = {"type": "plan", "calls": [{"_tool": "rest", "mark": "†input.n", "_outputPath": "†state.n"}]}
    with backend.worker("--concurrency", "1"):
        run = backend.client.submit([*context, plan])
        assert backend.wait(run.id).status == "completed"
    ends = sorted(int(entry.id.partition("-")[0]) for entry in run.log() if "_call" in entry.message)
    assert len(ends) == len(context)
    assert sum(after - before > 600 for before, after in pairwise(ends)) < 3  # of 7, where each waits for a second
