"""What a conflict means for who reads and writes there (SPEC R2.3, R3.1, R3.4)."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery.protocol import Conflict, Context

from .building import call, run, statuses, written

PUSHED = {"type": "state", "data": {"n": 1}, "_outputMethod": "push", "_call": {"_outputPath": "†state.n"}}
CONTEXT: list[dict[str, Any]] = [{"type": "state", "n": 5, "ok": 1}, PUSHED]
"""`†state.n` is in conflict."""


@pytest.mark.parametrize(
    "expression", ["†state.n", "†state.n || †state.ok", "†state.n && †state.ok", "†state.x || †state.n", "†state"]
)
def test_r3_4_a_place_in_conflict_is_an_error_and_no_reason_for_another_alternative(expression: str) -> None:
    with pytest.raises(Conflict, match="cannot push number at"):
        Context(CONTEXT).resolve(expression)


def test_r3_4_a_conflict_is_reported_at_its_place_above_it_and_below_it_until_all_of_it_is_replaced() -> None:
    context = Context([{"type": "state", "a": {"b": {"c": 1}, "d": 2}}])
    for path in ("†state.a.b", "†state.a.d"):
        context.append(written(path, 3, "push"))
    for expression in ("†state", "†state.a", "†state.a.b", "†state.a.b.c", "†state.a.d"):
        with pytest.raises(Conflict, match="cannot push number"):
            context.resolve(expression)
    context.append(written("†state.a.b", 4))
    assert context.resolve("†state.a.b") == 4
    assert list(context.conflicts()) == [2]
    for expression in ("†state", "†state.a", "†state.a.d"):
        with pytest.raises(Conflict, match=r"cannot push number at †state\.a\.d"):
            context.resolve(expression)
    context.append({"type": "state", "a": {"d": 5}})
    assert context.resolve("†state") == {"a": {"b": 4, "d": 5}}
    assert context.conflicts() == {}


@pytest.mark.parametrize(("to", "status"), [("†state.n", "done"), ("†state.n.a", "failed"), ("†state.ok", "done")])
def test_r3_4_nothing_is_written_below_a_conflict_and_what_replaces_it_is(to: str, status: str) -> None:
    context = [{"type": "state", "n": {"a": 1}}, PUSHED]
    result = run(call(to=to, value=2), context=context)
    assert statuses(result) == [status]
    assert result.data[None]["state"]["n"] == (2 if to == "†state.n" else {"a": 1})


@pytest.mark.parametrize("expression", ["†state.ok || †state.n", "†state.n && †state.x || †state.ok"])
def test_r3_4_a_conflict_in_an_alternative_that_is_not_taken_is_no_matter(expression: str) -> None:
    assert Context(CONTEXT).resolve(expression) == 1
    assert run(call(to="†data.a", value=expression), context=CONTEXT).data[None]["data"] == {"a": 1}


def test_r3_4_a_call_that_reads_a_place_in_conflict_fails_with_it() -> None:
    result = run(call(to="†data.a", value="†state.n || †state.ok"), context=CONTEXT)
    assert statuses(result) == ["failed"]
    error = result.outcome(0).error
    assert error is not None
    assert error["type"] == "Conflict"


def test_r4_4_a_result_that_does_not_fit_its_alternative_fails_the_call_and_takes_no_other() -> None:
    context = [{"type": "state", "n": 5}]
    result = run(call(to="†state.n || †state.other", value=1, _outputMethod="push"), context=context)
    assert (statuses(result), result.data[None]["state"]) == (["failed"], {"n": 5})


@pytest.mark.parametrize("before", [None, 5, "x", []])
def test_r3_1_an_object_is_not_merged_into_what_is_none_and_null_is_a_value(before: Any) -> None:
    context = Context([{"type": "state", "data": before}, {"type": "state", "a": 1}])
    with pytest.raises(Conflict, match="cannot merge object at †state: there is"):
        context.resolve("†state")
    assert context.data()["state"] == before
    assert Context([{"type": "state", "a": 1}, {"type": "state", "data": before}]).resolve("†state") == before
