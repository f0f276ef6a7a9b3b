"""Findings about calls that are tried out before the run (SPEC R3.4, R4.1, R4.6, R6.7)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import Rejected, check_submission
from protocol.state.operations import Method

from .building import call, checked, plan_submission, run, run_plan, statuses

ACTIVITIES: dict[str, Any] = {"give": {}}


def think(to: str | None, output: Any, method: str | None = None, **parameters: Any) -> dict[str, Any]:
    """A call whose result a model has written already."""
    return call("think", to, _output=output, **parameters, **({} if method is None else {"_outputMethod": method}))


def read(**parameters: Any) -> dict[str, Any]:
    return call("read", "out", _output=1, **parameters)


def held(x: Any) -> list[Any]:
    return [{"type": "state", "x": x}]


def taking(**properties: Any) -> dict[str, Any]:
    return {"read": {"type": "object", "properties": properties}}


def messages(*calls: Any, **parts: Any) -> list[str]:
    plan = checked(*calls, activities=ACTIVITIES, **parts)
    return [finding.message for finding in plan.findings if finding.severity == "warning"]


def ending(*calls: Any, **parts: Any) -> str:
    """How the last call ends."""
    return statuses(run(*calls, activities=ACTIVITIES, **parts))[-1]


SLOW = think("†state.y", 1, x="†state.x")
"""A call between two others."""


@pytest.mark.parametrize(
    ("calls", "context", "why"),
    [
        ([think("†state.x", {"a": 1}, "merge")], held(1), "cannot merge object at †state.x: there is number"),
        ([think("†state.x", "a", "concat")], held([1]), "cannot concat string at †state.x: there is list"),
        ([think("†state.x", 1), SLOW, think("†state.x", 2, "push", d="†state.y")], [], "cannot push number"),
        ([think("†state", 5), think("†state.y", 1, p="†state")], held(1), "there is number, and 'y' is not inside"),
        ([think("†state.x && †state.x.k", "a")], [], "there is string, and 'k' is not inside it"),
        ([think("†state.x.0", 1), think("†state.x.k", 2, p="†state.x.0")], [], "a list has no key 'k'"),
    ],
)
def test_a_result_that_cannot_be_written_is_told_and_fails_the_call(calls: list[Any], context: Any, why: str) -> None:
    (told,) = messages(*calls, context=context)
    assert "can never write its result: " in told
    assert why in told
    assert ending(*calls, context=context) == "failed"


@pytest.mark.parametrize(
    ("method", "type_", "value", "x"),
    [("merge", "object", {}, 1), ("concat", ["string", "null"], "a", [1]), ("concat", "array", [], "")],
)
def test_a_result_of_a_type_that_cannot_be_written_is_told_and_fails_the_call(
    method: str, type_: Any, value: Any, x: Any
) -> None:
    giving = call(to="†state.x", value=value, _outputMethod=method)
    parts: dict[str, Any] = {"context": held(x), "tools": {"give": {"_output": {"type": type_}}}}
    (told,) = messages(giving, **parts)
    assert f"can never write its result: cannot {method}" in told
    assert ending(giving, **parts) == "failed"


@pytest.mark.parametrize(
    ("calls", "context"),
    [
        ([think("†state.x", 5, "merge"), read(p="†state.x.a")], held(1)),
        ([think("†state.x", [1]), think("†state.x", 7, d="†state.x.0"), read(p="†state.x.0", d="†state.x")], []),
    ],
)
def test_a_place_where_nothing_will_be_is_told_and_its_reader_skipped(calls: list[Any], context: Any) -> None:
    (told,) = messages(*calls, context=context)
    assert "where nothing will be, once call 0 (think) " in told
    assert ending(*calls, context=context) == "skipped"


@pytest.mark.parametrize(
    ("calls", "context", "tools", "why"),
    [
        ([read(p="†state.z || †state.x")], held("a"), taking(p={"type": "integer"}), "/p: 'a' is not of type"),
        ([read(p=["†state.x", "†state.x"])], held("a"), taking(p={"uniqueItems": True}), "has non-unique elements"),
        ([read(p=["†state.x"])], held("b"), taking(p={"const": ["a"]}), '["a"] was expected'),
        (
            [read(p="†state.x", q=1)],
            held("a"),
            {"read": {"if": {"properties": {"p": {"const": "a"}}}, "then": {"properties": {"q": {"type": "string"}}}}},
            "/q: 1 is not of type 'string'",
        ),
        (
            [read(p="†state.x", q="†input.n")],
            [*held("a"), {"type": "input", "n": 1}],
            {"read": {"anyOf": [{"properties": {"p": {"const": "a"}, "q": {"const": 2}}}, {"required": ["z"]}]}},
            "not valid under any of the given schemas",
        ),
        (
            [think("†state.x && †state.x", "a"), read(p="†state.x")],
            [],
            taking(p={"type": "integer"}),
            "/p: 'a' is not of type",
        ),
        (
            [think("†state.x", "a", "concat"), read(p="†state.x")],
            held("abc"),
            taking(p={"maxLength": 3}),
            "'abca' is too long",
        ),
        ([think("†state.x.k", 1), read(p="†state.x")], [], taking(p={"required": ["m"]}), "'m' is a required property"),
        ([think("†state.x.0", "a"), read(p="†state.x")], held([1]), taking(p={"type": "object"}), '["a"] is not of'),
    ],
)
def test_parameters_that_will_not_fit_are_told_and_fail_the_call(
    calls: list[Any], context: Any, tools: Any, why: str
) -> None:
    (told,) = messages(*calls, context=context, tools=tools)
    assert "reads what does not fit at " in told
    assert why in told
    assert ending(*calls, context=context, tools=tools) == "failed"


@pytest.mark.parametrize(
    ("calls", "context"),
    [
        ([think("†state.x", 1), think("†state.x", [2], "concat", d="†state.w")], [{"type": "state", "w": 1}]),
        ([call(to="†state.x", value=[]), SLOW, think("†state.x", 2, "push", d="†state.y")], []),
        ([think("†state.x || †state.w", 1), SLOW, think("†state.x", 2, "push", d="†state.y || †state.w")], []),
        ([think("†state.x", 1, s="†input.s || †state.w"), call(to="†state.w", value=1)], []),
        ([think("†state.x.0", 1), think("†state.x.1", 2, d="†state.x.0"), read(p=["†state.x.1"])], []),
        ([read(p="†error.type || †input.n")], [{"type": "input", "n": 1}]),
    ],
)
def test_nothing_is_told_where_something_that_decides_is_not_known_or_all_goes_well(
    calls: list[Any], context: Any
) -> None:
    told = [
        text for text in messages(*calls, context=context, tools=taking(p={})) if "reads " in text or "write" in text
    ]
    assert not [
        text for text in told if "where nothing will be" in text or "can never" in text or "does not fit" in text
    ]


def test_of_what_follows_from_a_failure_nothing_is_told() -> None:
    calls = [think("†state.x", 2, "push"), think("†state.y", 1, p="†state.x.0"), read(p="†state.y")]
    (told,) = messages(*calls, context=held(1))
    assert told.startswith("call 0 ")


def test_of_a_plan_it_is_told_in_which_instance_a_call_fails() -> None:
    context = [{"type": "state", "_instance": "①"}, {"type": "state", "_instance": "②", "b": []}]
    value = plan_submission(think("†state.b", "text", "concat"), context=context)
    plan = check_submission(value, activities=ACTIVITIES)
    (told,) = [finding.message for finding in plan.findings if finding.severity == "warning"]
    assert "there is list" in told
    assert "in instance '②'" in told


places = st.sampled_from(["†state.l", "†state.l.a", "†state.l.0", "†state.l.1", "†state.m", "†state", "†state.l.a.b"])
values = st.sampled_from([1, "a", [], [1], {}, {"a": 1}, {"l": 1}, None])
wholes = st.sampled_from([{}, {"type": "integer"}, {"type": "array"}, {"type": "object"}, {"maxLength": 1}])


@st.composite
def trials(draw: st.DrawFn) -> dict[str, Any]:
    """A call with its result, or one whose result an activity gives."""
    reading = draw(st.lists(st.lists(places, min_size=1, max_size=2), max_size=2))
    parameters = {
        f"p{number}": draw(st.sampled_from([" || ", " && "])).join(read) for number, read in enumerate(reading)
    }
    method = draw(st.sampled_from([None, *Method]))
    writing = draw(st.sampled_from([" && ", " || ", ""]))
    to = writing.join(draw(st.lists(places, min_size=2, max_size=2))) if writing else draw(places)
    if draw(st.integers(0, 3)):
        return think(to, draw(values), method, **parameters)
    return call("give", to, value=draw(values), **parameters, **({} if method is None else {"_outputMethod": method}))


@given(st.lists(trials(), min_size=1, max_size=5), st.none() | values, wholes, wholes)
def test_a_call_that_is_told_to_fail_does_not_succeed(calls: list[Any], x: Any, first: Any, second: Any) -> None:
    context = [] if x is None else [{"type": "state", "l": x}]
    tools = {name: {"properties": {"p0": first, "p1": second}} for name in ("think", "give")}
    try:
        plan = checked(*calls, context=context, tools=tools, activities=ACTIVITIES)
    except Rejected:  # calls that wait for each other, or nobody writes
        return
    signs = ("where nothing will be", "reads what does not fit", "can never write its result: ")
    told = [finding for finding in plan.findings if any(sign in finding.message for sign in signs)]
    if told:
        found = statuses(run_plan(plan))
        for finding in told:
            index = int(finding.message.split()[1])
            assert found[index] in ("failed", "skipped"), finding
