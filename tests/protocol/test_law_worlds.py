"""Laws of worlds: each run of the engine is one of them, and races are said where runs differ (SPEC R6.4-R6.6)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from random import Random
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from acts_celery.protocol import Output, Plan, Rejected
from acts_celery.protocol.analysis.order import order_findings
from acts_celery.protocol.analysis.worlds import View, Worlds, choices_of, views_of
from acts_celery.protocol.engine.events import Start, Status
from acts_celery.protocol.paths import MISSING

from .building import call, checked
from .driver import Driver

MOST_RUNS = 3_000
KEYS = "abcde"
keys = st.sampled_from(KEYS)
groups = st.lists(keys, min_size=1, max_size=2).map(lambda group: " && ".join(f"†data.{key}" for key in group))
expressions = st.lists(groups, min_size=1, max_size=3).map(" || ".join)
outputs = st.sampled_from([*(f"†data.{key}" for key in KEYS), "†data.a || †data.b", "†data.c && †data.d"])
INSTANCE = {"type": "text", "_instance": "①"}


class Run(Driver):
    """A run in which it is known beforehand which alternative each call chooses, None being an exception."""

    def __init__(self, plan: Plan, ends: Mapping[int, int | None], random: Random) -> None:
        self.ended_before: dict[int, set[int]] = {}
        self._ends = ends
        super().__init__(plan, {"give": self._give}, random=random)

    def _give(self, parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
        index = parameters["n"]
        chosen = self._ends.get(index, 0)
        if chosen is None:
            raise LookupError("as it is meant to")
        output = self._plan.calls[index].output
        assert output is not None
        return Output(" && ".join(map(str, output.alternatives[chosen])), index)

    def _start(self, instance: str | None, start: Start) -> None:
        ended = {entry.outcome.index for entry in self.log if entry.lane in (None, instance)}
        self.ended_before[start.call.index] = self.ended_before.get(start.call.index, ended) & ended
        super()._start(instance, start)

    @property
    def written(self) -> list[int]:
        """The calls that wrote, in the order they ended."""
        return [entry.outcome.index for entry in self.log if entry.outcome.status is Status.DONE]


@st.composite
def plans(draw: st.DrawFn, most: int = 7) -> Plan:
    """Plans of calls that write to a few places."""
    submitted = []
    for index in range(draw(st.integers(2, most))):
        reads = {name: draw(expressions) for name in draw(st.sampled_from(["", "v", "v", "vw"]))}
        more: dict[str, Any] = draw(st.sampled_from([{}, {}, {}, {"_instance": "①"}, {"_scopes": ["†data.e"]}]))
        to = draw(outputs)
        is_known = "||" not in to and draw(st.sampled_from([False, False, False, True]))
        known: dict[str, Any] = {"_tool": "think", "_output": index} if is_known else {}
        submitted.append({**call(to=to, n=index, **reads, **more), **known})
    held = draw(st.sets(keys, max_size=2))
    context = [INSTANCE, {"type": "data", "data": dict.fromkeys(held, 0)}] if held else [INSTANCE]
    try:
        return checked(*submitted, context=context, activities={"give": {}})
    except Rejected:  # a cycle, or what nothing can bring
        assume(False)
        raise


def has_strays(view: View) -> bool:
    """Whether a call may read what one writes that it does not wait for."""
    places = ((call.index, place) for call in view.calls.values() for e in call.expressions for place in e.references)
    return any(view.late_writers(*read) for read in places)


def ends_in(worlds: Worlds, view: View, world: int) -> dict[int, int | None]:
    """What each call chooses in a world."""
    ends: dict[int, int | None] = {}
    for index, each in view.calls.items():
        number = len(each.output.alternatives) if each.output is not None else 0
        ends[index] = next((way for way in range(number) if worlds.chose(index, way) >> world & 1), None)
    return ends


@settings(max_examples=3 * settings().max_examples // 2)
@given(plans(), st.integers(0), st.integers(0, 2**32))
def test_a_run_with_the_choices_of_a_world_is_as_that_world_says(plan: Plan, number: int, seed: int) -> None:
    shared, *others = views_of(plan)
    for view in (shared, *others):
        if has_strays(view) or has_strays(shared):
            continue
        worlds = Worlds(view, choices_of(view))
        world = number % worlds.number
        run = Run(plan, ends_in(worlds, view, world), Random(seed))
        statuses = {index: s for lane in run.run().statuses.values() for index, s in lane.items()}
        ran = {index for index in view.calls if worlds.ran[index] >> world & 1}
        assert ran == {index for index in view.calls if statuses[index] in (Status.DONE, Status.FAILED)}
        before = worlds.before(world, {index: 1 << index for index in view.calls})
        for index in ran & run.ended_before.keys():
            missing = [each for each in ran if before[index] >> each & 1 and each not in run.ended_before[index]]
            assert not missing, f"call {index} starts before the end of {missing}"


def any_run(plan: Plan, random: Random) -> list[int]:
    """The calls that wrote in a run with any choices, in the order they ended."""
    ends: dict[int, int | None] = {}
    for call_ in plan.calls:
        several = len(call_.output.alternatives) if call_.output is not None else 1
        ends[call_.index] = random.randrange(several) if random.random() < 0.8 else None
    run = Run(plan, ends, random)
    run.run()
    return run.written


@settings(max_examples=3 * settings().max_examples // 2)
@given(plans(most=5), st.integers(0, 2**32))
def test_calls_said_to_race_end_in_either_order_and_others_that_write_one_place_in_one(plan: Plan, seed: int) -> None:
    random = Random(seed)
    said = {finding.calls for finding in order_findings(plan) if finding.code == "ACT103"}
    is_simple = all(call.given is MISSING or len(e.alternatives) == 1 for call in plan.calls for e in call.expressions)
    is_exact = is_simple and not any(map(has_strays, views_of(plan)))
    seen: set[tuple[int, int]] = set()
    left = {pair for pair in said if len(pair) == 2}
    for number in range(MOST_RUNS):
        if number > 10 and not left:
            break
        seen.update(combinations(any_run(plan, random), 2))
        left = {(one, other) for one, other in left if not {(one, other), (other, one)} <= seen}
    assert not left, "said to race, and always in one order"
    for one, other in combinations(plan.calls, 2):
        is_pair = one.instance == other.instance and len(one.written) == len(other.written) == 1
        if is_exact and is_pair and set(one.written) & set(other.written):
            is_either = {(one.index, other.index), (other.index, one.index)} <= seen
            assert not is_either or any({one.index, other.index} <= set(calls) for calls in said)
