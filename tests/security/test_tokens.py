"""Whoever overhears which call of which run is at work cannot answer for it (docs/security.md)."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from acts_celery.broker_config import EmbeddedServer
from acts_celery.protocol.engine.events import Failure, Success
from acts_celery.worker.broker.attempts import Attempt, CallId, Result, Retry
from acts_celery.worker.broker.consumer import Publisher
from acts_celery.worker.broker.messages import Delivery, delivery_task, unpack, unpack_activity_call
from acts_celery.worker.limits import limits_of
from acts_celery.worker.runner.application import make_client_application
from tests.worker.backend import Backend, Meeting, meeting_url, settings_for

ECHO = {"_tool": "echo", "value": 1, "_outputPath": "†state.a"}
CALL = {"_tool": "remoteAdd", "a": 1, "b": 2, "_outputPath": "†state.sum"}


@pytest.fixture(scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    with EmbeddedServer() as server:
        yield Backend(settings_for(server), Meeting(meeting_url(server)), tmp_path_factory.mktemp("tokens"))


def test_a_result_without_the_token_of_its_attempt_is_refused(backend: Backend) -> None:
    publisher = Publisher(make_client_application(backend.settings))

    def deliver(attempt: Attempt, result: Result) -> None:
        publisher.deliver([delivery_task(Delivery(attempt, result), "instances")])

    with backend.worker("-Q", "instances"):
        run = backend.client.submit(solution={"calls": [CALL]})
        right = taken(backend)
        wrong = [
            replace(right, token=""),
            replace(right, token="0" * len(right.token)),
            replace(right, number=2),
            replace(right, id=CallId(run.id, None, 1)),
        ]
        for attempt in wrong:
            for forged in (Success({"sum": 13}), Failure("Forged", "forged"), Retry(Failure("Forged", "forged"), 0.0)):
                deliver(attempt, forged)
        assert backend.run([ECHO]).status == "completed", "handed in behind them, so done after them"
        assert run.status()["calls"] == {"running": 1}
        for _ in range(2):  # a duplicate does no harm
            deliver(right, Success({"sum": 3}))
        result = backend.wait(run.id)
        assert backend.run([ECHO]).status == "completed"
    assert (result.status, result.data()) == ("completed", {"state": {"sum": {"sum": 3}}})
    refused = [line for line in backend.log.read_text().splitlines() if "does not have the token" in line]
    assert len(refused) == 3 * len(wrong)
    assert right.token not in backend.log.read_text()


def taken(backend: Backend) -> Attempt:
    """The attempt in the oldest message of the activities' queue, which is taken from there."""
    found: Any = backend.redis.brpop(["lathe"], 30)
    assert found is not None
    raw = json.loads(found[1])
    (body,), _, _ = unpack(b64decode(raw["body"]))
    attempt = unpack_activity_call(body, limits_of(backend.settings)).attempt
    assert attempt.token not in json.dumps(raw["headers"]), "what events and Flower show"
    return attempt
