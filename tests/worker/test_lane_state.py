"""What is known of a lane's calls by its log, and what a step of a loop asks of its script."""

from __future__ import annotations

from acts_celery.protocol.engine.events import CallEnded, CallsUndone, Status
from acts_celery.protocol.engine.loop import Asked, Loop, PartCame
from acts_celery.protocol.state.fold import Fold
from acts_celery.worker.store.entries import Entry
from acts_celery.worker.store.loop_entries import LoopStep
from acts_celery.worker.store.state import LaneState


def test_what_a_call_has_cost_stays_known_when_it_is_tried_again() -> None:
    lane = LaneState(None, Fold())
    lane.apply(Entry("1-0", CallEnded(0, Status.FAILED, cost={"tokens": 7})))
    lane.apply(Entry("2-0", CallsUndone((0,))))
    assert (lane.end(0), lane.call(0).cost) == (None, {"tokens": 7})


def test_r13_8_a_part_of_an_answer_claims_what_the_answer_may_take() -> None:
    asked = Loop().apply(Asked((), {}, 50, "digest"))
    step = LoopStep(asked, "1-0")
    step.note(PartCame("[", 0, 0))
    assert step.to_request(1, 1)["spent"] == "50"
