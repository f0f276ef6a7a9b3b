"""When the sweep looks at a run again, and what it does while recovery is suspended (lua/sweep.lua)."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from acts_celery.broker_config import EmbeddedServer
from acts_celery.protocol.engine.events import Outcome, Status
from acts_celery.worker.broker.attempts import CallId
from acts_celery.worker.broker.messages import Completion, Report, TaskMessage, pack
from acts_celery.worker.recovery.sweep import Sweeper
from acts_celery.worker.store.keys import Keys, active_runs, due_runs
from acts_celery.worker.store.run_list import Parent

from .test_commit_script import RUN
from .test_sweep_script import FAR, Judged, ref, silence

_DEADLINE_SECONDS = 60


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


def ends(sweeper: Sweeper) -> bool:
    """Whether a sweep comes to its end."""
    sweeping = threading.Thread(target=sweeper.sweep, daemon=True)
    sweeping.start()
    sweeping.join(_DEADLINE_SECONDS)
    return not sweeping.is_alive()


def test_a_sweep_ends_and_sends_its_probes_though_runs_are_due_again_before_all_were_looked_at(judged: Judged) -> None:
    now_ms, runs = judged.redis.time()[0] * 1000, [f"r{number}" for number in range(150)]
    with judged.redis.pipeline(transaction=False) as pipeline:
        for keys in (Keys(judged.prefix, run) for run in runs):
            pipeline.hset(keys.state, "status", "running")
            pipeline.zadd(keys.published, {"": now_ms})  # its task may lie in the queue still: a probe is to say
        pipeline.zadd(active_runs(judged.prefix), dict.fromkeys(runs, now_ms))
        pipeline.zadd(due_runs(judged.prefix), dict.fromkeys(runs, 0))
        pipeline.execute()
    judged.settings = judged.settings.model_copy(update={"sweep_interval_seconds": 0.001})
    assert ends(judged.another_sweeper())
    assert judged.published == 1, "the probe"


def test_a_broken_run_is_left_alone_by_the_servers_clock(judged: Judged, monkeypatch: pytest.MonkeyPatch) -> None:
    judged.begin(1)
    judged.redis.set(judged.keys.leases, "none of ours")
    judged.redis.zadd(due_runs(judged.prefix), {RUN: 0})
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() - 3600)
    assert ends(judged.sweeper)
    next_ms: Any = judged.redis.zscore(due_runs(judged.prefix), RUN)
    assert next_ms > judged.redis.time()[0] * 1000


def test_r9_3_an_ended_child_answers_anew_also_while_what_it_has_sent_is_not_done(judged: Judged) -> None:
    judged.begin(1)
    task = TaskMessage("acts.execute_background", FAR, pack({"attempt": {}}), "-", is_forgotten=True)
    judged.advance(outcomes=[Outcome(0, Status.SENT)], sendings={0: task})
    above = Keys(judged.prefix, "above")
    parent: dict[Any, Any] = Parent(CallId(above.run, None, 0), 1, 1).to_fields()
    judged.redis.hset(judged.keys.state, mapping=parent)
    judged.redis.hset(above.state, "status", "running")
    judged.redis.hset(above.calls, "\x1f0", f"child:1:0:{RUN}")
    judged.sweeper.sweep()
    assert (judged.state()["status"], judged.published) == ("completed", 1)
