"""What a contract has against a call that was checked under another one (SPEC R17)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from acts_celery.protocol import Context
from acts_celery.protocol.calls.declarations import CONTRACT_CHANGED, SEVERAL, Contract, merged
from acts_celery.protocol.calls.tools import GRANTED
from acts_celery.protocol.engine.events import Failure, FanOut, FanOutBegun, Outcome, Start, Status
from acts_celery.protocol.engine.execution import Execution

from .building import DATE, call, checked

Json = dict[str, Any]


def contract(required: tuple[str, ...] = (), scopes: tuple[str, ...] = (), **parameters: Json) -> Contract:
    granted = {"_scopes": {"type": "array", "items": {"enum": [*scopes]}, GRANTED: [*scopes]}} if scopes else {}
    properties = {**parameters, **granted}
    schema: Json = {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}
    return Contract("pay", schema)


INTEGER, TEXT = {"type": "integer"}, {"type": "string"}
OLD = contract(("n",), n=INTEGER)


def told(new: Contract, call: Json, old: Contract = OLD) -> list[str]:
    return [str(problem) for problem in new.problems(call, old.mark)]


def test_the_contract_that_a_call_was_checked_under_admits_it_unseen() -> None:
    assert told(contract(("n",), n=INTEGER), {"n": "whatever"}) == []


def test_a_contract_that_admits_more_admits_a_call_and_one_that_does_not_says_why_without_the_value() -> None:
    assert told(contract(("n",), n={}, note=TEXT), {"n": 1, "_outputPath": "†state.a", "_tool": "p"}) == []
    (narrower,) = told(contract(("n",), n={"type": "integer", "maximum": 10}), {"n": 123_456})
    assert "/n" in narrower
    assert "123456" not in narrower
    (gone,) = told(contract(m=INTEGER), {"n": 1})
    assert "n" in gone
    (missing,) = told(contract(("n", "m"), n=INTEGER, m=INTEGER), {"n": 1})
    assert "m" in missing


def test_scopes_that_the_code_asks_for_newly_are_given_or_the_call_waits() -> None:
    new = contract(("n",), n=INTEGER, scopes=("state",))
    assert told(new, {"n": 1}) == ["/_scopes: the code asks for state, which it is not given"]
    assert told(new, {"n": 1, "_scopes": ["†state.user"]}) == []
    (more,) = told(new, {"n": 1, "_scopes": ["state", "input"]})
    assert "_scopes" in more
    before = contract(n=INTEGER, scopes=("state",))
    assert told(new, {"n": 1, "_scopes": []}, before) == [], "a declaration had narrowed them before, too"


def test_calls_that_were_checked_under_several_contracts_are_held_against_each() -> None:
    other = contract(n=TEXT)
    marks = merged({"pay": OLD.mark, "ask": "x"}, {"pay": other.mark, "ask": "x"})
    assert marks == {"pay": SEVERAL, "ask": "x"}
    assert OLD.problems({"n": "1"}, SEVERAL)
    assert other.problems({"n": "1"}, SEVERAL) == []


def test_a_changed_contract_goes_to_no_alternative_of_a_call_or_of_its_elements() -> None:
    gone = Failure(CONTRACT_CHANGED, "x", is_for_no_alternative=True)
    context: list[Json] = [{"type": "state", "n": [1, 2], "m": 1}]
    plan = checked(
        call("pay", "†state.a || †state.b", n="†state.m"),
        call("pay", "†state.a || †state.b", n="†state.n", _each="n"),
        context=context,
    )
    execution = Execution.of(plan, plan.lanes[None], Context(context).fold(None))
    start, spread = execution.decide(DATE)
    assert isinstance(start, Start)
    assert isinstance(spread, FanOut)
    assert execution.finish(0, gone, DATE).status is Status.FAILED
    assert execution.finish(0, replace(gone, is_for_no_alternative=False), DATE).is_rescued
    execution.apply(FanOutBegun(1, spread.snapshot))
    for element in execution.decide(DATE):
        assert isinstance(element, Start)
        for event in execution.finish(element.call.index, gone, DATE).events:
            execution.apply(event)
    (outcome,) = execution.decide(DATE)
    assert isinstance(outcome, Outcome)
    assert (outcome.status, (outcome.error or {})["type"]) == (Status.FAILED, CONTRACT_CHANGED)
