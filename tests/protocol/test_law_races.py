"""Laws of races: where nothing is said of two writers no order matters; where one is said to fail, one does.

SPEC R3.2, R3.4, R3.6, R6.4, R6.7.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from protocol import Plan
from protocol.state.operations import Method

from .building import call, checked, run_plan, statuses

places = st.sampled_from(["†state.x", "†state.x", "†state.x.a", "†state.x.a.b", "†state"])
leaves = st.sampled_from([0, 1, True, None, "a", "b"])
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=4,
)
methods = st.sampled_from(list(Method))


@st.composite
def written(draw: st.DrawFn) -> dict[str, Any]:
    """A call whose result a model has written."""
    method = draw(methods)
    taken = {
        "concat": st.sampled_from(["s", [1]]),
        "assign": st.dictionaries(st.sampled_from("ab"), values, max_size=2),
    }
    return call("w", draw(places), _output=draw(taken.get(method, values)), _outputMethod=method.value)


def planned(*calls: dict[str, Any], context: Any = ()) -> Plan:
    return checked(*calls, activities={"see": {}}, context=context)


def told(plan: Plan) -> list[str]:
    return [finding.message for finding in plan.findings if finding.severity == "warning"]


@given(written(), written())
def test_two_calls_of_which_nothing_is_said_leave_the_same_in_either_order(one: Any, other: Any) -> None:
    plan = planned(one, other)
    collecting = {call["_outputMethod"] for call in (one, other)} <= {"push", "concat"}
    if not told(plan) and not collecting:
        first, second = run_plan(plan), run_plan(planned(other, one))
        assert first.data == second.data
        assert statuses(first) == statuses(second) == ["done", "done"]


@given(written(), written())
def test_of_two_calls_of_which_the_second_is_said_to_fail_it_does(one: Any, other: Any) -> None:
    plan = planned(one, other)
    if any("whoever comes second fails" in message for message in told(plan)):
        assert statuses(run_plan(plan)) == statuses(run_plan(planned(other, one))) == ["done", "failed"]


@given(written(), written(), st.booleans())
def test_what_an_instance_is_said_never_to_write_onto_global_values_fails_or_cannot_be_read(
    shared: Any, own: Any, is_first: bool
) -> None:
    own["_instance"] = "①"
    calls = [shared, own] if is_first else [own, shared]
    reader = call("see", "†data.seen", value=own["_outputPath"], _instance="①")
    plan = planned(*calls, reader, context=[{"type": "text", "_instance": "①"}])
    if any("writes in its instance" in message for message in told(plan)):
        result = run_plan(plan, functions={"see": lambda parameters, context: None})
        assert set(result.statuses["①"].values()) != {"done"}
