"""What a commit leaves beside its outcomes (lua/commit.lua): leases, counters, holds, gather calls, a fault."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery.broker_config import EmbeddedServer
from acts_celery.protocol.calls.call import element_index
from acts_celery.worker.store.commits import Delegated, Held, Rest

from .test_commit_script import Log, done

SHOWN = b"\x80"
"""An empty map (msgpack): the script does not read what a call is held with."""


@pytest.fixture
def log(server: EmbeddedServer, request: pytest.FixtureRequest) -> Log:
    return Log(server, f"consequences.{abs(hash(request.node.name))}")


def test_a_call_that_a_child_run_is_to_answer_has_no_lease_and_its_child_is_known_until_it_has_ended(log: Log) -> None:
    log.begin(2)
    log.claim(0)
    log.advance(delegated=[Delegated(0, 1, "other")])
    assert log.entry() == "child:1:0:other"
    assert log.redis.smembers(log.keys.children) == {"other"}
    assert not log.redis.exists(log.keys.leases)
    log.commit(done(0))
    assert (log.redis.smembers(log.keys.children), log.state()["running"]) == (set(), "0")


def test_an_element_that_rests_is_not_counted_as_it_was_not_when_it_ran(log: Log) -> None:
    log.begin(2)
    log.claim(0, element_index(1, 0))
    assert log.state()["running"] == "1"
    log.advance(rests=[Rest(element_index(1, 0), 1, 60)])
    assert log.state()["running"] == "1"


def test_what_was_decided_beside_an_outcome_that_was_there_already_is_not_held(log: Log) -> None:
    log.begin(2)
    log.commit(done(0))
    committed = log.commit(done(0), holds=[Held(1, SHOWN)])
    assert (committed.accepted, committed.held) == ((False,), (False,))
    assert not log.redis.exists(log.keys.held)


def test_what_comes_of_a_call_that_waits_for_a_person_is_not_taken(log: Log) -> None:
    log.begin(1)
    assert log.advance(holds=[Held(0, SHOWN)]).held == (True,)
    assert log.commit(done(0)).accepted == (False,)
    assert log.entry().startswith("held:0:0:")


def test_the_sweep_is_to_look_at_a_held_call_when_the_time_for_a_decision_is_over(log: Log) -> None:
    log.begin(1)
    log.redis.hset(log.keys.state, "approve_ms", 20_000)
    committed = log.advance(holds=[Held(0, SHOWN)])
    held_ms: Any = log.redis.zscore(log.keys.held, "\x1f0")
    assert committed.due_ms == int(held_ms) + 20_000


def test_the_global_lane_is_woken_for_a_gather_call_by_the_last_lane_that_has_settled_it(log: Log) -> None:
    log.begin(3)
    log.redis.hset(log.keys.gathers, "2", 2)
    woken = [log.commit(done(0), instance=name, settled=[2]).woken for name in ("①", "①", "②")]
    assert woken == [(), (), ("",)]


def test_an_output_that_can_be_read_in_the_end_is_no_fault_of_the_run(log: Log) -> None:
    log.begin(2)
    log.commit(done(0), output_fault="it is not there")
    assert log.state()["output_fault"] == "it is not there"
    log.commit(done(1), output_fault="")
    assert log.state()["status"] == "completed"
