"""Findings that hold in some instances and not in others are told of those they hold in (SPEC R6.7, R10.2)."""

from __future__ import annotations

from typing import Any

import pytest

from protocol import check_submission

from .building import call, checked, plan_submission

PUSHING = [call("push", to="†data.l", _outputMethod="push"), call("take", value="†data.l")]
TOOLS: dict[str, Any] = {
    "push": {"_output": {"type": "integer"}},
    "take": {"properties": {"value": {"type": "array", "minItems": 3}}},
}
BRANCHING = call(to="†data.good || †data.bad")


def told(*calls: Any, data: dict[str, dict[str, Any]], **parts: Any) -> list[str]:
    """What is said of a plan, given a message of each instance."""
    context = [{"type": "data", **message, "_instance": name} for name, message in data.items()]
    plan = check_submission(plan_submission(*calls, context=[*context, *parts.pop("context", ())], **parts))
    return [finding.message for finding in plan.findings]


def holding(name: str, **values: Any) -> dict[str, Any]:
    """A message with values of a kind."""
    return {"kind": name, "data": values}


def schema_of_z(type_: str) -> dict[str, Any]:
    return {"kind": "state", "data": {}, "schema": {"properties": {"z": {"type": type_}}}}


PARTIAL: list[tuple[list[Any], dict[str, Any], dict[str, Any], str]] = [
    ([call(to="a.b")], holding("state", a=5), holding("state", a={}), "call 0 (give) can never write its result"),
    (
        [call(to="l", _outputMethod="push"), call(value="†state.l", to="l.3")],
        holding("state", l=[]),
        holding("state", l=[1, 2]),
        "call 1 (give) can never write †state.l.3",
    ),
    (
        [BRANCHING, call(value=["†data.good", "†data.bad"])],
        {"data": {}},
        holding("data", bad=1),
        "call 1 (give) can never run",
    ),
    (PUSHING, {"data": {}}, holding("data", l=[1, 2, 3]), "call 1 (take) reads †data.l at /value"),
    ([call("push", to="z")], schema_of_z("string"), schema_of_z("integer"), "call 0 (push) writes to †state.z what"),
    (
        [call(to="other")],
        {"kind": "state", "data": {}, "schema": {"properties": {}}},
        {"kind": "state", "data": {}},
        "nobody reads what call 0 (give) writes to †state.other",
    ),
    (
        [BRANCHING, call(value="†data.good", to="a"), call(value="†data.bad", to="a")],
        holding("data", good=1),
        {"data": {}},
        "call 2 (give) writes †state.a in no certain order with call 1 (give)",
    ),
]


@pytest.mark.parametrize(("failing_name", "fine_name"), [("①", "②"), ("②", "①")])
@pytest.mark.parametrize(("calls", "failing", "fine", "message"), PARTIAL)
def test_what_holds_in_one_instance_only_is_told_of_that_one_wherever_it_stands(
    calls: list[Any], failing: dict[str, Any], fine: dict[str, Any], message: str, failing_name: str, fine_name: str
) -> None:
    data = {name: failing if name == failing_name else fine for name in "①②"}
    (found,) = [text for text in told(*calls, data=data, tools=TOOLS) if message in text]
    assert found.startswith(f"in instance '{failing_name}', {message}")
    assert fine_name not in found


@pytest.mark.parametrize(("calls", "failing", "fine", "message"), PARTIAL)
def test_what_holds_in_all_instances_is_told_of_the_call_once(
    calls: list[Any], failing: dict[str, Any], fine: dict[str, Any], message: str
) -> None:
    (found,) = [text for text in told(*calls, data=dict.fromkeys("①②③", failing), tools=TOOLS) if message in text]
    assert found.startswith(message)
    assert message not in str(told(*calls, data=dict.fromkeys("①②③", fine), tools=TOOLS))


@pytest.mark.parametrize(
    ("number", "where"),
    [
        (2, "in instances '0' and '1', call 0"),
        (3, "in instances '0', '1' and '2', call 0"),
        (20, "in instances '0', '1', '2' and 17 more, call 0"),
    ],
)
def test_of_many_instances_a_few_are_named(number: int, where: str) -> None:
    data = {**{str(n): holding("state", a=5) for n in range(number)}, "last": holding("state", a={})}
    (found,) = told(call(to="a.b"), data=data)
    assert found.startswith(where)


def test_of_instances_that_were_not_looked_at_it_is_only_told_that_they_were_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("protocol.analysis.findings.instances._MOST_CALLS", 50)
    data = dict.fromkeys(map(str, range(11)), holding("state", a=5))
    found, rest = told(call(to="a.b"), data=data)
    assert found.startswith("in instances '0', '1', '2' and 7 more, call 0")
    assert rest == "only the first 10 of 11 instances were looked at: what is wrong in others alone is not told"


@pytest.mark.parametrize(
    "call_of_many_places",
    [
        call(value=" || ".join(f"†state.k{i}" for i in range(100)), to="a.b"),
        call(value=["†state.a"] * 100, to="a.b"),
        call(value="†state.a", to="a.b", _scopes=[f"†state.k{i}" for i in range(100)]),
        call(value="†state.a", to=" && ".join(["a.b", *(f"k{i}" for i in range(100))])),
    ],
    ids=["alternatives", "parameters", "scopes", "output paths"],
)
def test_of_calls_of_many_places_fewer_instances_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, call_of_many_places: dict[str, Any]
) -> None:
    monkeypatch.setattr("protocol.analysis.findings.instances._MOST_CALLS", 150)
    data = dict.fromkeys(map(str, range(11)), holding("state", a=5, k0=1))
    assert "only the first 5 of 11 instances" in told(call_of_many_places, data=data)[-1]
    assert "only the first" not in str(told(call(value="†state.a", to="a.b"), data=data))


def test_of_more_calls_than_are_put_in_order_it_is_told_that_they_were_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("instances", "order", "races", "clashes"):
        monkeypatch.setattr(f"protocol.analysis.findings.{module}.MOST_CALLS", 4)
    few, many = ([call(to="†state.x")] * number for number in (4, 5))
    assert "in no certain order with" in checked(*few).findings[0].message
    assert [finding.message for finding in checked(*many).findings] == [
        "more than 4 calls in one lane: what happens to them in no certain order was not looked at"
    ]


def test_the_values_of_all_instances_that_are_looked_at_are_held_against_their_readers() -> None:
    data = {str(number): holding("state", n=number) for number in range(2_000)} | {"last": holding("state", n="x")}
    (found,) = told(call(value="†state.n"), data=data, tools={"give": {"properties": {"value": {"type": "integer"}}}})
    assert "in instance 'last', call 0 (give) reads †state.n at /value, where the context holds what does not" in found


def test_global_calls_are_looked_at_before_those_of_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protocol.analysis.findings.instances._MOST_CALLS", 10)
    context = [{"type": "state", "a": 5}, *({"type": "text", "_instance": name} for name in "①②③")]
    calls = [call(_instance=name) for name in "①②③"] + [call(to="†state.a.b")]
    found, rest = (finding.message for finding in checked(*calls, context=context).findings)
    assert found.startswith("call 3 (give) can never write its result")
    assert rest.startswith("only the first 1 of 3 instances")


def test_each_reason_is_told_of_the_instances_that_it_holds_in() -> None:
    five, text = holding("state", a=5), holding("state", a="x")
    found = told(call(to="a.b"), data={"①": five, "②": text, "③": five})
    assert [message.partition(",")[0] for message in found] == ["in instances '①' and '③'", "in instance '②'"]


def test_a_call_that_runs_in_one_instance_needs_no_name_of_it() -> None:
    data = {"①": holding("state", a={}), "②": holding("state", a=5)}
    pinned = call(to="a.b", _instance="②")
    (of_plan,) = told(call(to="c"), pinned, data=data)
    assert of_plan.startswith("call 1 (give) can never write its result")
    context = [{"type": "data", **message, "_instance": name} for name, message in data.items()]
    (of_solution,) = [finding.message for finding in checked(call(to="†data.c"), pinned, context=context).findings]
    assert of_solution == of_plan
