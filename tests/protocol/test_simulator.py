"""Random schedules: whatever goes wrong and whenever, every call ends once and with what it should, also where calls
have failed and were retried with what was stale (SPEC R11.8).

`ACTS_SIMULATOR_SEED` runs one seed again; `ACTS_SIMULATOR_SCHEDULES` says how many schedules there are, by default
twenty times the examples of a property: 2,000, and 30,000 every night.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from hypothesis import settings

from acts_celery.protocol import Plan, check_submission
from acts_celery.protocol.engine.events import FINAL, Failure, Start, Status, Success
from acts_celery.protocol.plan.lanes import Joins

from . import naive
from .authoring import ACTIVITIES, EXPLICIT, INSTANCES, LATENT, Author, Json, carry_out
from .building import without_errors
from .naive.places import SURE, overlap, written
from .simulator import Lane, World, standing
from .test_law_errors import first_reader
from .test_law_retries import own_lanes

SEED = os.environ.get("ACTS_SIMULATOR_SEED")
SCHEDULES = int(os.environ.get("ACTS_SIMULATOR_SCHEDULES", 20 * settings().max_examples))
PER_SUBMISSION = 5
BATCHES = 20


class Case:
    """A submission, and what must come of it."""

    def __init__(self, submission: Json) -> None:
        self.submission = submission
        self.plan: Plan = check_submission(submission, activities=ACTIVITIES)
        self.is_deterministic = naive.is_deterministic(submission)
        self._expected = self._evaluated({}) if self.is_deterministic else None
        self._last_faulty = self._latest_fault()

    def run(self, seed: int) -> None:
        """One schedule."""
        random = Random(seed)
        world = World(
            self.plan,
            self._carry,
            random,
            processes=random.choice((1, 2, 2, 3)),
            misfortunes=random.choice((0, 4, 10, 30)),
            faulty=self._faulty(random.choice((0, 0, 0.3, 1.0)), random),
        )
        world.run()
        self._check_log(world)
        if self._expected is not None:
            self._check_values(world, self._expected)

    def _faulty(self, share: float, random: Random) -> set[tuple[Lane, int]]:
        """Some of the calls that may fail at their first attempt."""
        lanes = own_lanes(self.submission, self.plan)
        calls = ((lane, call) for lane in self.plan.lanes if lane in lanes for call in self.plan.lanes[lane].calls)
        return {
            (lane, call.index)
            for lane, call in calls
            if call.index <= self._last_faulty and not call.is_fire_and_forget and random.random() < share
        }

    def _latest_fault(self) -> float:
        """Up to which call faults may be retried so that in the end all is as if there had been none, where that can
        be said (see `test_law_retries`).
        """
        if self._expected is None:
            return float("inf")
        failed = {i for calls in self._expected.statuses.values() for i, s in calls.items() if s == "failed"}
        if self._reads_what_comes_after() or self.plan.dropped_waits:
            return -1
        if any(call.index in failed and call.tool in SURE for call in self.plan.calls):
            return -1
        if (reader := first_reader(self.submission)) is None:
            return float("inf")
        return -1 if any(naive.may_fail(call.raw) for call in self.plan.calls[reader + 1 :]) else reader

    def _reads_what_comes_after(self) -> bool:
        """Whether a call reads a place that others write which wait for it: when it is carried out again it may find
        what those have written.
        """
        everything = {call.index: call.raw for call in self.plan.calls}
        for lane in self.plan.lanes.values():
            joins = Joins(lane.instance, [lane.graph])
            for index, raw in everything.items():
                later = joins.within({index}, {call.index for call in lane.calls})
                places = [at for other in later for at in written(everything[other])]
                given = raw if raw["_tool"] == "see" else {key: raw[key] for key in raw.keys() - {"_scopes"}}
                if any(overlap(seen, at) for seen in naive.places_seen(given) for at in places):
                    return True
        return False

    def _carry(self, start: Start, lane: Lane, attempt: int, context: Mapping[str, Any]) -> Success | Failure:
        seen = json.dumps([start.parameters, context], ensure_ascii=False)
        assert not any(f"secret {name}" in seen for name in INSTANCES if name != lane), "a value of another instance"
        return carry_out(start, attempt, context)

    def _check_log(self, world: World) -> None:
        journals = world.log.journals.items()
        ended = [(lane, entry.outcome.index) for lane, journal in journals for entry in standing(journal)]
        everything = {(lane, call.index) for lane, one in self.plan.lanes.items() for call in one.calls}
        assert len(ended) == len(set(ended)), "at most one commit for each call"
        assert set(ended) == everything, "every call has ended"
        assert set(world.log.ends.values()) <= FINAL

    def _check_values(self, world: World, expected: naive.Verdict) -> None:
        attempts = {index: entry.attempt for (_, index), entry in world.log.standing().items()}
        if (
            any(attempt > 0 for attempt in attempts.values()) and not self.plan.submission.is_template
        ):  # of a solution each call is run once
            expected = self._evaluated(attempts)
        for lane, statuses in expected.statuses.items():
            found = {index: world.log.ends[lane, index] for index in statuses}
            assert found == {index: self._status(index, status) for index, status in statuses.items()}, lane
        context = world.context()
        for reader, data in expected.data.items():
            assert without_errors(context.data(reader)) == without_errors(data), reader

    def _evaluated(self, attempts: Mapping[int, int]) -> naive.Verdict:
        def stamp(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
            return {"in": parameters["value"], "by": attempts.get(parameters["n"], 0)}

        return naive.evaluate(self.submission, {**EXPLICIT, **LATENT, "stamp": stamp})

    def _status(self, index: int, status: str) -> Status:
        """The naive evaluator knows no thoughts."""
        return Status.LATENT if self.plan.calls[index].is_note else Status(status)


def _case(seed: int) -> Case:
    """The submission of a seed's schedules; five schedules share one."""
    return Case(Author(Random(seed // PER_SUBMISSION)).submission())


def simulate(seeds: range) -> None:
    """Run the schedules of these seeds; a failure names its seed."""
    case: Case | None = None
    for seed in seeds:
        try:
            if case is None or seed % PER_SUBMISSION == 0:
                case = _case(seed)
            case.run(seed)
        except Exception as error:
            raise AssertionError(f"ACTS_SIMULATOR_SEED={seed}") from error


@pytest.mark.parametrize("batch", range(BATCHES if SEED is None else 1))
def test_whatever_happens_every_call_ends_once_with_what_the_naive_evaluator_says(batch: int) -> None:
    if SEED is not None:
        simulate(range(int(SEED), int(SEED) + 1))
        return
    size = -(-SCHEDULES // BATCHES)
    simulate(range(batch * size, (batch + 1) * size))
