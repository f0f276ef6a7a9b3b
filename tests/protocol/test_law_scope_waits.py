"""Law of scope waits: those that would close a cycle are left out, found one by one or all at once (SPEC R8.3a)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts_celery.protocol import Plan, Rejected, check_submission, limits, parse

from . import naive
from .building import ANY, call
from .laws import law

KEYS = "abcdef"
places = st.sampled_from([*(f"†state.{key}" for key in KEYS), "†state", "†data.x"])
scopes: st.SearchStrategy[list[str]] = st.one_of(st.just([]), st.lists(st.one_of(st.just("state"), places), max_size=2))


@st.composite
def calls(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Calls in lanes, with many references to calls listed after them."""
    found = []
    for _ in range(draw(st.integers(2, 14))):
        reads = {name: draw(places) for name in draw(st.sampled_from(["", "v", "v", "vw"]))}
        to = draw(st.sampled_from([None, "†data.x", *(f"†state.{key}" for key in KEYS)]))
        instance = draw(st.sampled_from([{}, {}, {"_instance": "①"}]))
        after: dict[str, Any] = draw(st.sampled_from([{}, {}, {"_after": [draw(places)]}]))
        found.append(call("give", to, **reads, **instance, **after, _scopes=draw(scopes)))
    return found


def accepted(submission: dict[str, Any]) -> Plan | None:
    try:
        return check_submission(submission)
    except Rejected:  # a cycle, or what nothing can bring
        return None


def compare(submitted: list[Any], held: set[str]) -> None:
    context = [{"type": "text", "_instance": "①"}, {"type": "state", **dict.fromkeys(held, 0)}]
    submission = {"context": context, "solution": {"calls": submitted}, "tools": {"give": ANY}}
    plan = accepted(submission)
    if plan is None:
        return
    world = naive.World(submission, {})
    lanes = world.lanes()
    for instance, lane in plan.lanes.items():
        own, visible = lanes[instance], {**lanes.get(None, {}), **lanes[instance]}
        expected = naive.seen(own, own, visible, world.values(instance))
        graph = lane.graph
        for index, writers in expected.items():
            found = set[int]()
            for scope in submitted[index]["_scopes"]:
                found.update(graph._reached(graph.scopes[index][parse("†" + scope.removeprefix("†")).references[0]]))
            assert {node for node in found if node >= 0} == writers, (instance, index)
        assert next(graph.cycles(), None) is None


@law
@given(calls(), st.sets(st.sampled_from(KEYS), max_size=3))
def test_scope_waits_are_left_out_as_if_they_were_added_one_by_one(submitted: list[Any], held: set[str]) -> None:
    compare(submitted, held)


@given(calls())
def test_behind_barriers_the_same_are_left_out(submitted: list[Any]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("acts_celery.protocol.limits.SPELLED_OUT", 1)
        compare(submitted, set())


@pytest.mark.parametrize("limit", ["MOST_BITS", "WAITS_MOST_STEPS"])
def test_in_a_window_that_takes_too_much_all_are_left_out(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(limits, limit, 0)
    submitted = [call(to="†state.a", v="†data.x"), call(to="†state.b"), call(to="†data.x", _scopes=["state"])]
    plan = check_submission({"solution": {"calls": [*submitted, call(_scopes=["state"])]}, "tools": {"give": ANY}})
    assert plan.dropped_waits == ((2, 0), (2, 1))
    assert [plan.lanes[None].graph.before(index) for index in (2, 3)] == [(), (0, 1)]
