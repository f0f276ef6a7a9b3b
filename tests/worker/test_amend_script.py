"""The steps of an amendment (lua/amend.lua) on a real server: what they leave in the records of a lane and a run."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery.broker_config import EmbeddedServer
from acts_celery.protocol.calls.call import element_index
from acts_celery.protocol.engine.events import CallsUndone, Outcome, Status
from acts_celery.worker.client.amendment import AmendmentSteps
from acts_celery.worker.store.commits import Held
from acts_celery.worker.store.connections import connect
from acts_celery.worker.store.entries import read_entry

from .test_commit_script import Log, done


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


def test_a_lane_that_is_sent_again_since_its_answer_was_lost_is_amended_once(log: Log) -> None:
    log.begin(1)
    write_twice(begun(log))
    another = begun(log)  # which takes over
    write_twice(another)
    assert (log.state()["total"], log.state()["remaining"]) == ("9", "8")
    another.do("end")
    assert not [name for name in log.state() if name.startswith("amending")]


def write_twice(steps: AmendmentSteps) -> None:
    """Write two lanes with two new calls each, each step twice."""
    shared: dict[str, Any] = {"dropped": [0], "detail": b"\x80", "record": b"", "shared": b"", "gathers": []}
    for lane in "①②":
        request = steps._request("lane", {"lane": lane, "added": 2, **shared})
        for _ in range(2):
            steps._script(steps._keys, request)


def undo(steps: AmendmentSteps, lane: str = "①", **request: Any) -> None:
    steps.do(
        "undo",
        **{"lane": lane, "undone": [], "record": b"", "given": [], "unsettled": [], "detail": b"\x80", **request},
    )


def planned(log: Log, *gathers: str) -> AmendmentSteps:
    steps = begun(log)
    steps.do("plan", by="retry", adds=True, deed=b"\x80", gathers=gathers)
    return steps


def test_r11_8_who_has_not_seen_that_calls_are_undone_begins_nothing(log: Log) -> None:
    log.begin(2)
    log.claim(0, instance="①")
    log.commit(done(0), instance="①")
    before = log.last("①")
    steps = planned(log)
    undo(steps, undone=[0])
    steps.do("end")
    log.redis.hset(log.keys.state, "status", "running")
    outdated: dict[str, Any] = {"seen": before, "holds": [Held(0, b"\x80")], "settled": [5]}
    assert log.claim(1, instance="①", **outdated) == (0,)
    assert (log.entry(0, "①"), log.entry(1, "①"), log.entry(5, "①")) == ("None", "None", "None")
    assert log.claim(0, 1, instance="①") == (1, 1)
    assert (log.state()["n:done"], log.state()["remaining"]) == ("0", "2")


def test_r11_8_who_has_not_seen_it_ends_only_what_had_begun_before(log: Log) -> None:
    log.begin(3)
    mine = {"owner": "mine"}
    log.claim(1, instance="①", **mine)
    log.claim(0, instance="①")
    log.commit(done(0), instance="①")
    before = log.last("①")
    undo(planned(log), undone=[0])
    log.redis.hset(log.keys.state, "status", "running")
    log.claim(0, instance="①")
    outdated = {"instance": "①", "seen": before}
    assert log.commit(done(0), done(2), **outdated, **mine).accepted == (False, False)
    assert log.entry(0, "①").startswith("running:1:")
    assert log.commit(done(1), **outdated, **mine).accepted == (True,)
    assert log.commit(done(0), instance="①").accepted == (True,)


def test_r11_8_a_gather_call_waits_for_the_end_of_a_retry_and_for_the_lanes_that_have_not_settled_it(log: Log) -> None:
    log.begin(2)
    log.redis.hset(log.keys.gathers, "5", 0)
    for lane in "①②":
        log.note("settled", 5, lane)
    steps = planned(log, "5")
    for _ in range(2):  # a retry that was interrupted is repeated
        steps.do("plan", by="retry", adds=True, deed=b"\x80", gathers=["5"])
        undo(steps, "①", unsettled=[5])
        undo(steps, "③", unsettled=[5])  # which had not settled it
        assert log.redis.hget(log.keys.gathers, "5") == "2"
    steps.do("end")
    assert log.redis.hget(log.keys.gathers, "5") == "1"
    assert log.redis.lrange(log.keys.backlog, 0, -1)[-1] == ""
    assert "amending:gathers" not in log.state()


def test_r11_8_a_held_call_is_undone_and_of_an_each_only_what_failed(log: Log) -> None:
    log.begin(2)
    log.advance("①", holds=[Held(0, b"\x80"), Held(1, b"\x80", elements=2)])
    parts = [element_index(1, element) for element in (0, 1)]
    log.claim(*parts, instance="①")
    log.commit(done(parts[0]), Outcome(parts[1], Status.FAILED), instance="①")
    log.commit(done(1), instance="①")
    undo(planned(log), undone=[0, 1], keeping=[1], parts=[parts[1]], stale=[7])
    assert (log.entry(0, "①"), log.entry(1, "①")) == ("None", "each:1:0:")
    assert (log.entry(parts[0], "①"), log.entry(parts[1], "①")) == ("done", "None")
    assert not log.redis.exists(log.keys.held)
    assert str(log.redis.hget(log.keys.lanes, "①")).endswith(":1")
    assert (log.state()["running"], log.state()["remaining"]) == ("1", "3")
    (entry,) = [read_entry(id_, fields) for id_, fields in raw(log) if b"undone" in fields]
    assert entry.event == CallsUndone((0, 1), (1,), (7,))


def raw(log: Log) -> Any:
    return connect(log.settings).xrange(log.keys.log)
