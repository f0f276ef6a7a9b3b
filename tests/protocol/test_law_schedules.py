"""Laws of schedules: calls are said to meet where they are at work together in a run, and only there (SPEC R6.4)."""

from __future__ import annotations

import re
from itertools import combinations
from random import Random
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from protocol import Output, Plan, Rejected
from protocol.analysis.findings.sight import Sights
from protocol.engine.execution import Start
from protocol.engine.statuses import Status

from .building import call, checked
from .driver import Driver

MOST_RUNS = 400
CHOICES = ("ab", "bc", "cd")
KEYS = "abcde"
keys = st.sampled_from(KEYS)
groups = st.lists(keys, min_size=1, max_size=2).map(lambda group: " && ".join(f"†data.{key}" for key in group))
expressions = st.lists(groups, min_size=1, max_size=2).map(" || ".join)
INSTANCE = [{"type": "text", "_instance": "①"}]


class Meeting(Driver):
    """Notes which calls are at work at the same time; each call may fail, if it is to, and chooses any branch."""

    def __init__(self, plan: Plan, random: Random, *, failing: float = 0.0) -> None:
        self.met: set[frozenset[int]] = set()

        def end(value: Any) -> Any:
            if random.random() < failing:
                raise LookupError("as it may be")
            return value

        choosing = {keys: lambda *_, keys=keys: end(Output(f"†data.{random.choice(keys)}", 0)) for keys in CHOICES}
        super().__init__(plan, {"give": lambda *_: end(0), **choosing}, random=random)

    def _start(self, instance: str | None, start: Start) -> None:
        super()._start(instance, start)
        at_work = {
            index
            for lane in self._lanes.values()
            for index in lane.results
            if lane.execution.status(index) is Status.RUNNING
        }
        self.met |= {frozenset((index, start.call.index)) for index in at_work - {start.call.index}}


@st.composite
def calls(draw: st.DrawFn, written: str = KEYS) -> dict[str, Any]:
    """A call that writes at one of some keys, or at none."""
    reads = {name: draw(expressions) for name in draw(st.sampled_from(["", "v", "v", "vw"]))}
    instance = draw(st.sampled_from([{}, {}, {"_instance": "①"}]))
    choices = [chosen for chosen in CHOICES if set(chosen) <= set(written)]
    if chosen := draw(st.sampled_from(["", *choices])):
        return call(chosen, " || ".join(f"†data.{key}" for key in chosen), **reads, **instance)
    to = " && ".join(f"†data.{key}" for key in draw(st.sets(st.sampled_from(written), min_size=1, max_size=2)))
    return call("give", to, **reads, **instance)


@st.composite
def plans(draw: st.DrawFn, *, writers_first: bool = False) -> Plan:
    """Plans; with `writers_first`, nobody writes what one listed before reads: it might not wait for that."""
    left, submitted = KEYS, list[Any]()
    for _ in range(draw(st.integers(3, 7))):
        submitted.append(draw(calls(left)))
        read = {place for name in "vw" for place in re.findall(r"†data\.(.)", submitted[-1].get(name, ""))}
        left = "".join(key for key in left if key not in read) if writers_first else left
        if not left:
            break
    held = draw(st.sets(keys, max_size=1))
    context = [*INSTANCE, {"type": "data", "data": dict.fromkeys(held, 0)}]
    functions: dict[str, Any] = {"give": {}, **{keys: {} for keys in CHOICES}}
    try:
        return checked(*submitted, context=context, activities=functions)
    except Rejected:  # a cycle, or what nothing can bring
        assume(False)
        raise


def pairs_of(plan: Plan) -> dict[frozenset[int], bool]:
    """Every two calls of which a lane sees both and of which at least one is its own: whether they are said to meet."""
    found = {}
    for lane in plan.lanes.values():
        sight = Sights(plan).of(lane)
        for one, other in combinations(sorted(sight.calls), 2):
            if {one, other} & sight.own:
                found[frozenset((one, other))] = sight.may_meet(one, other)
    return found


@given(plans(writers_first=True), st.randoms(use_true_random=False))
def test_calls_that_are_at_work_together_are_said_to_meet(plan: Plan, random: Random) -> None:
    run = Meeting(plan, random)
    run.run()
    said = pairs_of(plan)
    unsaid = [sorted(pair) for pair in run.met if not said.get(pair, True)]
    assert not unsaid, unsaid


@given(plans(), st.randoms(use_true_random=False))
def test_calls_that_are_said_to_meet_are_at_work_together_in_some_run(plan: Plan, random: Random) -> None:
    left = {pair for pair, meet in pairs_of(plan).items() if meet}
    for number in range(MOST_RUNS):
        if not left:
            return
        run = Meeting(plan, random, failing=0.3 * (number % 2))
        run.run()
        left -= run.met
    raise AssertionError(f"never at work together in {MOST_RUNS} runs: {left}")
