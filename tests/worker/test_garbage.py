"""What a lane leaves behind in a worker is freed at once: searching for it would cost more than the lane."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from weakref import ref

import pytest

from acts_celery.protocol import Limits, check
from acts_celery.protocol.engine.events import MessageAdded
from acts_celery.worker.broker.attempts import Tokens
from acts_celery.worker.runner.runtime import GarbageStep
from acts_celery.worker.store.definition import pack_definition, pack_lane, unpack_definition
from acts_celery.worker.store.entries import Entry
from acts_celery.worker.store.lane import LaneView, RunView


@pytest.fixture
def unsearched() -> Iterator[None]:
    """Nothing is freed by a search for garbage."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.usefixtures("unsearched")
@pytest.mark.parametrize("instance", ["a", None])
def test_a_lane_that_was_left_and_its_values_are_freed_without_a_search(instance: str | None) -> None:
    of_lane = {"_instance": instance} if instance is not None else {}
    number = {"type": "input", **of_lane, "number": 1}
    call = {"_tool": "add_one", **of_lane, "number": "†input.number", "_outputPath": "†state.sum"}
    plan = check([number], {"calls": [call]}, tools={"add_one": {}})
    run = RunView("r", unpack_definition(pack_definition(plan)), Tokens(b"s" * 32), Limits())
    record = pack_lane(plan.lanes[instance], is_template=False)
    lane = LaneView(
        run, instance, [Entry("1-1", MessageAdded(number), instance=instance, message=number, record=record)]
    )
    assert lane.execution.decide("2026-01-01")
    assert lane.fold.snapshot()["input"] == {"number": 1}
    left: list[ref[object]] = [ref(lane), ref(lane.fold), ref(lane.execution)]
    del lane
    assert [one() for one in left] == [None] * 3


def test_a_worker_searches_seldom_and_not_through_what_it_has_at_its_start() -> None:
    before = gc.get_threshold()
    try:
        gc.set_threshold(700)  # Python's own; another test may have made a worker in this process
        GarbageStep(None)
        assert gc.get_threshold()[0] > 700
        assert gc.get_freeze_count() > 1_000
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
