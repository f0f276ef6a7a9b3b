"""Law of the certain order: who comes before a call has ended when it starts, in every run (SPEC R6.1, R6.5, R6.6)."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from protocol import Plan, Rejected
from protocol.analysis.findings.sight import Sights
from protocol.engine.execution import Start

from .building import FUNCTIONS, call, checked
from .driver import Driver
from .laws import law

KEYS = "abcde"
keys = st.sampled_from(KEYS)
groups = st.lists(keys, min_size=1, max_size=2).map(lambda group: " && ".join(f"†data.{key}" for key in group))
expressions = st.lists(groups, min_size=1, max_size=3).map(" || ".join)


def fail(parameters: Any, context: Any) -> Any:
    raise LookupError("as it is meant to")


class Watched(Driver):
    """Holds every start against the order."""

    def __init__(self, plan: Plan, random: Random) -> None:
        sights = Sights(plan)
        self.orders = {instance: sights.of(lane).order for instance, lane in plan.lanes.items()}
        super().__init__(plan, {**FUNCTIONS, "fail": fail}, random=random)

    def _start(self, instance: str | None, start: Start) -> None:
        ended = sum(1 << entry.outcome.index for entry in self.log if entry.lane in (None, instance))
        missing = self.orders[instance].before(start.call.index) & ~ended
        assert not missing, f"call {start.call.index} starts, and of those before it have not ended: {missing:b}"
        super()._start(instance, start)


@st.composite
def calls(draw: st.DrawFn) -> dict[str, Any]:
    reads = {name: draw(expressions) for name in draw(st.sampled_from(["", "v", "vw"]))}
    to = draw(st.sampled_from([*(f"†data.{key}" for key in KEYS), "†data.a || †data.b", "†data.c && †data.d"]))
    scopes = draw(st.sampled_from([{}, {}, {"_scopes": ["†data.e"]}]))
    instance = draw(st.sampled_from([{}, {"_instance": "①"}]))
    return call(draw(st.sampled_from(["give", "give", "fail"])), to, **reads, **scopes, **instance)


@law
@given(st.lists(calls(), min_size=2, max_size=7), st.sets(keys, max_size=2), st.randoms(use_true_random=False))
def test_who_comes_before_a_call_has_ended_when_it_starts(submitted: list[Any], held: set[str], random: Random) -> None:
    context = [{"type": "text", "_instance": "①"}, {"type": "data", "data": dict.fromkeys(held, 0)}]
    try:
        plan = checked(*submitted, context=context)
    except Rejected:  # a cycle, or what nothing can bring
        return
    Watched(plan, random).run()


def test_a_chain_is_in_order_and_a_fallback_is_not() -> None:
    chain = [call(to="†data.a"), call(to="†data.b", v="†data.a"), call(v="†data.b")]
    sights = Sights(plan := checked(*chain))
    assert [sights.of(plan.lanes[None]).order.before(index) for index in range(3)] == [0b0, 0b1, 0b11]
    joined = [call(to="†data.a"), call(to="†data.b"), call(to="†data.c", v="†data.a", w="†data.b"), call(v="†data.c")]
    sights = Sights(plan := checked(*joined))
    assert sights.of(plan.lanes[None]).order.before(3) == 0b111, "without the third it is skipped"
    fallback = [call(to="†data.a"), call(to="†data.b"), call(v="†data.a || †data.b")]
    sights = Sights(plan := checked(*fallback))
    assert sights.of(plan.lanes[None]).order.before(2) == 0b1
