"""When the sweep looks at a run again, and what it does while recovery is suspended (lua/sweep_*.lua)."""

from __future__ import annotations

import pytest

from acts_celery.broker_config import EmbeddedServer
from acts_celery.protocol.engine.decisions import Outcome
from acts_celery.protocol.engine.statuses import Status
from acts_celery.worker.wire.packing import pack
from acts_celery.worker.wire.reports import Completion, Report
from acts_celery.worker.wire.task_messages import TaskMessage

from .test_sweep_script import FAR, Judged, ref, silence


@pytest.fixture
def judged(server: EmbeddedServer, request: pytest.FixtureRequest) -> Judged:
    return Judged(server, f"looks.{abs(hash(request.node.name))}")


def test_a_run_with_a_held_call_is_looked_at_when_the_time_for_a_decision_is_over(judged: Judged) -> None:
    judged.begin(1)
    held_ms = judged.redis.time()[0] * 1000
    judged.redis.hset(judged.keys.state, "approve_ms", 20_000)
    judged.redis.zadd(judged.keys.held, {"\x1f0": held_ms})
    judged.sweeper.sweep()
    assert judged.state()["look"] == str(held_ms + 20_000)


def test_what_is_due_to_be_tried_again_is_published_while_nothing_is_declared_lost(judged: Judged) -> None:
    judged.begin(2)
    judged.claim(0)
    judged.note("retry:1:1:1", 1)
    judged.sweeper.take_turn()
    for index in (0, 1):
        judged.lease(None, index, 1)
    silence(judged, 3600)
    judged.redis.delete(f"{judged.prefix}:sweeping")
    judged.another_sweeper().take_turn()
    assert judged.entry().startswith("running")
    assert judged.published == 1


def test_a_pause_of_recovery_that_none_of_ours_has_written_counts_for_nothing(judged: Judged) -> None:
    judged.begin(1)
    judged.claim(0)
    judged.lease(None, 0, 1)
    judged.redis.hset(f"{judged.prefix}:recovery", "until", 10**14)
    judged.sweeper.take_turn()
    assert judged.entry() == "lost:1:0:"


def test_what_is_sent_and_forgotten_and_done_leaves_nothing_in_the_outbox(judged: Judged) -> None:
    judged.begin(1)
    task = TaskMessage("acts.execute_background", FAR, pack({"attempt": {}}), "-", is_forgotten=True)
    judged.advance(outcomes=[Outcome(0, Status.SENT)], sendings={0: task})
    keys = judged.keys.outbox, judged.keys.outbox_tasks, judged.keys.outbox_due
    assert judged.redis.exists(*keys) == 3
    judged.reports.send(Report(completed=(Completion(ref()),)))
    judged.sweeper.sweep()
    assert judged.redis.exists(*keys) == 0
