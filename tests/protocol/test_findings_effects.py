"""Findings about what methods and exceptions leave where it is read (SPEC R3.2, R4.4, R6.7)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from protocol import Output

from .building import ANY, call, checked, run, statuses
from .test_scale import steps

INTEGER: dict[str, Any] = {"type": "integer"}
STRING: dict[str, Any] = {"type": "string"}
LIST: dict[str, Any] = {"type": "array"}
OBJECT: dict[str, Any] = {"type": "object"}
USER: dict[str, Any] = {
    "type": "object",
    "properties": {"id": {"$ref": "#/$defs/Id"}},
    "required": ["id"],
    "$defs": {"Id": INTEGER},
}
VALUES: dict[str, Any] = {"integer": 1, "string": "x", "array": [1], "object": {"id": 1}}
"""A value for each type of schema used here."""


def state(**values: Any) -> list[dict[str, Any]]:
    return [{"type": "state", **values}] if values else []


def parts(given: Any, wanted: Any, path: str, context: list[Any], to: str, method: str, times: int = 1) -> Any:
    """Calls of `give` that write, and one of `take` that reads."""
    tools = {"give": {"properties": {"_output": given}}, "take": {"properties": {"value": wanted}}}
    writing = call(to=to, value=VALUES.get(given["type"], 1), _outputMethod=method)
    return [writing] * times + [call("take", value=path, to="taken")], {
        "tools": tools,
        "context": context,
    }


def told(calls: list[Any], options: dict[str, Any]) -> list[str]:
    """What is said of what is read."""
    findings = checked(*calls, **options).findings
    return [finding.message for finding in findings if finding.severity == "warning" and " reads " in finding.message]


def taken(calls: list[Any], options: dict[str, Any]) -> str:
    """What became of the reader."""
    functions = {"take": lambda parameters, context: parameters["value"]}
    return statuses(run(*calls, functions=functions, **options))[-1]


@pytest.mark.parametrize(
    ("given", "method", "wanted", "path", "context", "why"),
    [
        (INTEGER, "push", STRING, "†state.l", [], "array is not string"),
        (INTEGER, "push", STRING, "†state.l", state(l=["a"]), "array is not string"),
        (INTEGER, "push", LIST | {"items": STRING}, "†state.l", [], "in element 0, integer is not string"),
        (INTEGER, "push", LIST | {"items": STRING}, "†state.l", state(l=["a"]), "in element 1, integer is not string"),
        (STRING, "push", LIST | {"items": STRING}, "†state.l", state(l=[1]), "in element 0, 1 is not string"),
        (INTEGER, "push", STRING, "†state.l.0", [], "integer is not string"),
        (USER, "push", STRING, "†state.l.0.id", [], "integer is not string"),
        (INTEGER, "push", LIST | {"minItems": 3}, "†state.l", state(l=[1]), "a length of at least 2 and at most 2 is"),
        (INTEGER, "push", True, "†state.l.name", [], "nothing is ever there"),
        (OBJECT, "assign", LIST, "†state.l", state(l={}), "object is not array"),
        (USER, "assign", STRING, "†state.l.id", state(l={"id": "a"}), "integer is not string"),
        (USER, "assign", {"properties": {"id": STRING}}, "†state.l", state(l={"id": "a"}), "in 'id', integer is not"),
        (USER, "merge", STRING, "†state.l.id", state(l={"id": "a"}), "integer is not string"),
        (USER, "merge", STRING, "†state.l", state(l={"id": "a"}), "object is not string"),
        (INTEGER, "merge", STRING, "†state.l", state(l={"id": "a"}), "integer is not string"),
        (STRING, "concat", LIST, "†state.l", state(l="a"), "string is not array"),
        (LIST | {"items": INTEGER}, "concat", STRING, "†state.l", [], "array is not string"),
        (INTEGER, "set", STRING, "†state.l.x", [], "nothing is ever there"),
    ],
)
def test_what_a_method_makes_is_held_against_what_reads_it(
    given: Any, method: str, wanted: Any, path: str, context: Any, why: str
) -> None:
    (message,) = told(*parts(given, wanted, path, context, "l", method))
    assert why in message
    assert taken(*parts(given, wanted, path, context, "l", method)) in ("failed", "skipped")


@pytest.mark.parametrize(
    ("given", "method", "wanted", "path", "context"),
    [
        (INTEGER, "push", LIST | {"items": INTEGER}, "†state.l", []),
        (INTEGER, "push", LIST | {"items": INTEGER}, "†state.l", state(l=[1, 2])),
        (INTEGER, "push", STRING, "†state.l.0", state(l=["a"])),
        (INTEGER, "push", STRING, "†state.l", state(l="a")),
        (USER, "push", INTEGER, "†state.l.0.id", []),
        (USER, "assign", STRING, "†state.l.name", state(l={"name": "a"})),
        (USER, "merge", STRING, "†state.l.name", state(l={"name": "a"})),
        (USER, "merge", OBJECT | {"required": ["name"]}, "†state.l", state(l={"name": "a"})),
        (STRING, "concat", STRING, "†state.l", state(l="a")),
        (LIST, "concat", LIST, "†state.l", []),
    ],
)
def test_nothing_is_said_where_what_a_method_makes_may_fit(
    given: Any, method: str, wanted: Any, path: str, context: Any
) -> None:
    assert told(*parts(given, wanted, path, context, "l", method)) == []
    assert taken(*parts(given, wanted, path, context, "l", method)) == "done"


def test_of_a_list_that_several_push_to_each_has_to_misfit() -> None:
    wanted = LIST | {"items": STRING}
    assert len(told(*parts(INTEGER, wanted, "†state.l", [], "l", "push", times=2))) == 2
    tools = {"make": {"_output": INTEGER}, "take": {"properties": {"value": wanted}}}
    calls = [call("make", to="l", _outputMethod="push"), call("see", to="l", _outputMethod="push")]
    assert told([*calls, call("take", value="†state.l")], {"tools": tools}) == []


@pytest.mark.parametrize(
    ("to", "path", "wanted", "why"),
    [
        ("user.name", "†state.user", STRING, "object is not string"),
        ("user.name", "†state.user", {"properties": {"name": INTEGER}}, "in 'name', string is not integer"),
        ("user.names.0", "†state.user", {"properties": {"names": STRING}}, "in 'names', array or object is not string"),
        ("user.name", "†state", {"properties": {"user": LIST}}, "in 'user', object is not array"),
    ],
)
def test_what_holds_a_written_key_is_an_object(to: str, path: str, wanted: Any, why: str) -> None:
    (message,) = told(*parts(STRING, wanted, path, [], to, "set"))
    assert why in message
    assert taken(*parts(STRING, wanted, path, [], to, "set")) == "failed"


def test_nothing_is_said_of_what_holds_a_key_where_the_context_has_something_else() -> None:
    assert told(*parts(STRING, STRING, "†state.user", state(user="Alex"), "user.name", "set")) == []
    assert told(*parts(STRING, OBJECT, "†state.user", state(user={"id": 1}), "user.name", "set")) == []


def test_definitions_go_with_a_schema_and_references_that_cannot_are_taken_to_fit() -> None:
    wanted = LIST | {"items": OBJECT | {"properties": {"id": STRING}}}
    assert len(told(*parts(USER, wanted, "†state.l", [], "l", "push"))) == 1
    tree = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
    assert (
        told(*parts(tree, LIST | {"items": OBJECT | {"properties": {"next": STRING}}}, "†state.l", [], "l", "push"))
        == []
    )


# Exceptions


RAISING: dict[str, Any] = {"properties": {"_output": {"type": "string"}}}


def reading(wanted: Any, path: str = "†state.bad", to: str = "good || bad", **tool: Any) -> list[str]:
    tools = {"give": {**RAISING, **tool}, "take": {"properties": {"value": wanted}}}
    return told([call(to=to), call("take", value=path)], {"tools": tools})


def test_what_neither_an_exception_nor_a_result_can_be_is_told() -> None:
    (message,) = reading(INTEGER)
    assert "call 0 (give) gives what does not fit: string is not integer" in message
    assert len(reading({"type": "object", "required": ["code"]})) == 1
    (message,) = reading(True, "†state.bad.code")
    assert "nothing is ever there" in message
    tools = {"give": ANY, "fail": {"_output": STRING}, "take": {"properties": {"value": INTEGER}}}
    calls = [call("fail", to="good || bad"), call("take", value="†state.bad", to="taken")]
    assert len(told(calls, {"tools": tools})) == 1
    assert taken(calls, {"tools": tools}) == "failed"
    functions = {"fail": lambda parameters, context: Output("bad", "text")}
    assert statuses(run(*calls, tools=tools, functions=functions)) == ["done", "failed"]


@pytest.mark.parametrize("wanted", [STRING, OBJECT, OBJECT | {"required": ["message"]}, {"anyOf": [INTEGER, STRING]}])
def test_nothing_is_said_of_what_an_exception_or_a_result_may_be(wanted: Any) -> None:
    assert reading(wanted) == []
    assert reading(STRING, "†state.bad.message") == []


def test_nothing_is_said_where_an_exception_may_not_be_written_as_it_is() -> None:
    tools = {"give": RAISING, "take": {"properties": {"value": INTEGER}}}
    pushing = call(to="good || bad", _outputMethod="push")
    assert told([pushing, call("take", value="†state.bad")], {"tools": tools}) == []
    assert reading(INTEGER, _output=True, properties={}) == []
    context = state(bad=1)
    assert told([call(to="good || bad"), call("take", value="†state.bad")], {"tools": tools, "context": context}) == []


def test_a_value_of_the_instance_lies_on_top_of_what_a_global_call_gives() -> None:
    context = [{"type": "state", "_instance": "①", "x": "text"}]
    tools = {"give": {"_output": INTEGER}, "take": {"properties": {"value": STRING}}}
    reader = call("take", value="†state.x", _instance="①")
    assert told([call(to="x"), reader], {"tools": tools, "context": context}) == []
    nothing = [{"type": "text", "_instance": "①"}]
    assert len(told([call(to="x"), reader], {"tools": tools, "context": nothing})) == 1


def test_what_the_same_tools_give_and_take_is_compared_once() -> None:
    optional = {"anyOf": [{"type": "string", "minLength": 1}, {"type": "array"}, {"type": "null"}]}
    keys = [f"k{number}" for number in range(20)]
    schema = OBJECT | {"properties": dict.fromkeys(keys, optional), "required": keys}
    tool = {"properties": {"value": schema, "_output": schema}}

    def finding(number: int) -> Callable[[], None]:
        plan = checked(
            *[call("t", to=f"†data.x{n + 1}", value=f"†data.x{n}") for n in range(number)],
            tools={"t": tool},
            context=[{"type": "data", "data": {"x0": dict.fromkeys(keys, "text")}}],
        )

        def find() -> None:
            plan.__dict__.pop("findings", None)
            assert plan.findings == ()

        return find

    assert steps(finding(400)) < 3 * steps(finding(100))
