"""The steps of an amendment (lua/amend*.lua) on a real server: what they leave in the records of a lane and a run."""

from __future__ import annotations

import pytest

from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.client.amendment_steps import AmendmentSteps
from acts_celery.worker.storage.commits import Held
from acts_celery.worker.storage.connections import connect

from .test_commit_script import Log


@pytest.fixture
def log(server: EmbeddedServer, request: pytest.FixtureRequest) -> Log:
    return Log(server, f"amended.{abs(hash(request.node.name))}")


def begun(log: Log) -> AmendmentSteps:
    steps = AmendmentSteps(connect(log.settings), log.keys)
    steps.do("begin")
    return steps


def test_a_held_call_that_is_skipped_is_neither_held_nor_open(log: Log) -> None:
    log.begin(2)
    log.advance("①", holds=[Held(0, b"\x80")])
    begun(log).do("skip", lane="①", dropped=[0, 1], detail=b"\x80")
    assert (log.entry(0, "①"), log.entry(1, "①")) == ("skipped", "skipped")
    assert str(log.redis.hget(log.keys.lanes, "①")).endswith(":0")
    assert not log.redis.exists(log.keys.held)
    assert (log.state()["n:skipped"], log.state()["remaining"]) == ("2", "1")


def test_what_is_promised_has_its_time_anew_when_an_amendment_is_over(log: Log) -> None:
    log.begin(1)
    log.redis.hset(log.keys.state, mapping={"promise_ms": 1_000_000, "promises_due": 1})
    begun(log).do("drop")
    now_ms = log.redis.time()[0] * 1000
    assert now_ms + 900_000 < int(log.state()["promises_due"]) <= now_ms + 1_001_000
