"""Laws of retries (SPEC R11.8): once what had failed, and all that is stale, was carried out again, the values are
those of a run in which nothing failed, in whatever order and whenever that is done.

There are a hundred random plans with failing calls before every change, and thousands every night.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from acts_celery.protocol import Plan, Rejected, check_submission
from acts_celery.protocol.calls.call import call_of, element_index, element_of
from acts_celery.protocol.engine.events import FINAL, Start, Status
from acts_celery.protocol.plan.lanes import Reach

from . import naive
from .building import call, checked
from .driver import Driver, Function, Result
from .laws import law
from .naive.places import SURE
from .strategies import TOOLS, submissions
from .test_against_naive import FUNCTIONS, compared
from .test_law_errors import error_readers, first_reader, told
from .test_law_orders import Script
from .test_r10_4_gathering import gathering

Where = tuple[str | None, int]
"""A call in its lane."""


class Faulty(Driver):
    """Calls fail at their first attempt, those that `is_faulty`; they, and all that is stale, are carried out again at
    random moments.
    """

    def __init__(
        self,
        plan: Plan,
        is_faulty: Callable[[Where], bool],
        random: Random,
        *,
        functions: Mapping[str, Function] = FUNCTIONS,
    ) -> None:
        super().__init__(plan, functions, random=random)
        self._is_faulty = is_faulty
        self._tried = set[Where]()
        self.failed = set[Where]()
        """Those that have failed for that, and were not carried out again."""
        self.stale = set[Where]()
        self.faults = self.again = 0

    def carried_out(self, instance: str | None, start: Start, context: Mapping[str, Any]) -> Any:
        where = instance, start.call.index
        if where not in self._tried:
            self._tried.add(where)
            if self._is_faulty(where):
                self.faults += 1
                self.failed.add((instance, call_of(start.call.index)))
                raise naive.Wrong("at first")
        return super().carried_out(instance, start, context)

    def run(self) -> Result:
        assert self._random is not None
        while True:
            if not (moves := self._moves()):
                if not self.failed and not self.stale:
                    return super().run()
                self.retry(downstream=True)
            elif self._random.random() < (0.4 if self.failed or self.stale else 0):
                self.retry(downstream=self._random.random() < 0.5)
            else:
                self._random.choice(moves)()
                self._mischief(self._random)

    def retry(self, *, downstream: bool) -> None:
        """What `acts retry --effects` does, with or without `--downstream`."""
        statuses = {None: {}, **self.statuses}
        ends = {lane: {i: s for i, s in calls.items() if s in FINAL} for lane, calls in statuses.items()}
        ended = {lane: {i for i, s in calls.items() if s is not Status.LATENT} for lane, calls in ends.items()}
        skipped = {lane: {i for i, s in calls.items() if s is Status.SKIPPED} for lane, calls in ends.items()}
        begun = {lane: {i for i, s in calls.items() if s is Status.RUNNING} for lane, calls in statuses.items()}
        chosen = self.failed | (self.stale if downstream else set())
        starts = {lane: {index for where, index in chosen if where == lane} & ended[lane] for lane in ended}
        kept = {lane: {i for i in calls if self._has_elements(lane, i)} for lane, calls in starts.items()}
        stale = {lane: {i for where, i in self.stale if where == lane} for lane in ended}
        reach = Reach(
            self.joins(),
            {call.index for call in self._plan.calls if call.gather},
            ended if downstream else skipped,
            {lane: ended[lane] | begun[lane] for lane in ended},
        )
        found = reach.extended(starts, {lane: kept[lane] - (stale[lane] if downstream else set()) for lane in kept})
        self.undo(found.calls, found.keeping)
        undone = {(lane, index) for lane, calls in found.calls.items() for index in calls}
        self.failed -= undone
        self.stale -= undone
        self.stale |= {(lane, index) for lane, calls in found.stale.items() for index in calls}
        self.again += len(undone)

    def _has_elements(self, lane: str | None, index: int) -> bool:
        """Whether a call is done and some of its elements are, too."""
        own = [entry.outcome for entry in self.log if entry.lane == lane and call_of(entry.outcome.index) == index]
        statuses = {outcome.status for outcome in own if element_of(outcome.index) is not None}
        return Status.DONE in statuses and all(
            outcome.status is Status.DONE for outcome in own if outcome.index == index
        )


def own_lanes(submission: dict[str, Any], plan: Plan) -> set[str | None]:
    """The lanes in which calls may fail: who reads errors in an instance waits for no global call, and may find its
    error or not.
    """
    is_read = any(lane is not None for lane, _ in error_readers(submission))
    return {lane for lane in plan.lanes if lane is not None or not is_read}


@law
@given(st.one_of(submissions(), gathering(), told()), st.integers(0, 2**32))
def test_r11_8_after_all_was_carried_out_again_the_values_are_those_of_a_run_in_which_nothing_failed(
    submission: dict[str, Any], seed: int
) -> None:
    try:
        plan = check_submission(submission)
    except Rejected:
        assume(False)
        return
    assume(not plan.dropped_waits)
    assume(naive.is_deterministic(submission) or any(call.gather for call in plan.calls))
    random = Random(seed)
    share, reader = random.choice((0.2, 0.5, 1.0)), first_reader(submission)
    last = float("inf") if reader is None else reader  # who reads an error waits for none that comes later
    assume(reader is None or not any(naive.may_fail(call.raw) for call in plan.calls[reader + 1 :]))
    lanes = own_lanes(submission, plan)
    faulty = Faulty(
        plan, lambda where: where[0] in lanes and call_of(where[1]) <= last and random.random() < share, random
    )
    result = faulty.run()
    assume(faulty.faults)
    expected = naive.evaluate(submission, TOOLS)
    failed = {index for calls in expected.statuses.values() for index, status in calls.items() if status == "failed"}
    # What fails for what is at its place does so by what was there then.
    assume(not any(call.index in failed and call.tool in SURE for call in plan.calls))
    compared(expected, result)


def test_r4_10_an_each_whose_list_is_written_anew_is_carried_out_again_whole() -> None:
    plan = checked(
        call("give", value=[5, 6], to="†state.list"),
        call("give", value="†state.list || †input.list", _each="value", to="†state.results"),
        context=[{"type": "input", "list": [1, 2]}],
    )
    faulty = Faulty(plan, lambda where: where[1] in (0, element_index(1, 1)), Random(2))
    assert faulty.run().data[None]["state"] == {"list": [5, 6], "results": [5, 6]}


def test_r4_10_of_an_each_only_the_elements_that_failed_are_carried_out_again() -> None:
    listed = [{"type": "input", "list": [5, 6, 7]}]
    plan = checked(call("give", value="†input.list", _each="value", to="†state.results"), context=listed)
    faulty = Faulty(plan, lambda where: where[1] == element_index(0, 1), Script([]))
    assert faulty.run().data[None] == {"input": {"list": [5, 6, 7]}, "state": {"results": [5, 6, 7]}}
    assert sorted(index for _, index in faulty.started) == [element_index(0, n) for n in (0, 1, 1, 2)]
