"""SPEC R4.2: which code runs a call, and which tools are known."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from acts_celery.protocol import Rejected, check, check_submission
from acts_celery.protocol.calls.tools import Executor

from .building import (
    ANY,
    checked,
    pointers,
    problems,
)

# R4.2


def runner(
    raw: dict[str, Any], *, tools: Mapping[str, Any] | None = None, activities: Any = (), registered: Any = ()
) -> tuple[Executor, str]:
    """Who runs a call."""
    named = dict.fromkeys(activities, ANY)
    value = {"solution": {"calls": [raw]}, "tools": tools or {}}
    found = check_submission(value, activities=named, delegates=registered).calls[0].runner
    return found.executor, found.name


@pytest.mark.parametrize(
    ("raw", "tool", "activities", "expected"),
    [
        ({"_delegate": "d"}, {"_delegate": {}}, ["a", "t"], (Executor.DELEGATE, "d")),
        ({}, {"_delegate": "d", "_activity": ""}, ["a", "t"], (Executor.DELEGATE, "d")),
        ({}, {"_activity": "a"}, ["a", "t"], (Executor.ACTIVITY, "a")),
        ({}, {"_activity": {"const": "a"}}, ["a", "t"], (Executor.ACTIVITY, "a")),
        ({"_activity": "a"}, {"_activity": {}}, ["a", "t"], (Executor.ACTIVITY, "a")),
        ({}, {"_activity": ""}, ["a", "t"], (Executor.ACTIVITY, "t")),
        ({"_activity": ""}, {}, ["t"], (Executor.ACTIVITY, "t")),
        ({}, {}, ["a", "t"], (Executor.ACTIVITY, "t")),
        ({}, {}, ["a"], (Executor.LATENT, "t")),
        ({}, {"_activity": ""}, [], (Executor.LATENT, "t")),
        ({"_delegate": "anonymous"}, {"_delegate": {}}, ["t"], (Executor.DELEGATE, "anonymous")),
    ],
)
def test_r4_2_a_delegate_then_the_tools_activity_then_one_of_its_name_else_it_is_latent(
    raw: dict[str, Any], tool: dict[str, Any], activities: list[str], expected: tuple[Executor, str]
) -> None:
    assert runner({"_tool": "t", **raw}, tools={"t": tool}, activities=activities, registered=["d"]) == expected


@pytest.mark.parametrize(
    ("tool", "raw"),
    [
        ({"_activity": "a"}, {"_activity": "b"}),
        ({"_activity": ""}, {"_activity": "b"}),
        ({"properties": {"_activity": False}}, {"_activity": "b"}),
        ({"_delegate": {"enum": ["d"]}}, {"_delegate": "e"}),
        ({"properties": {"_delegate": False}}, {"_delegate": "e"}),
    ],
)
def test_r4_2_the_tools_schema_decides_which_code_a_call_may_name(tool: dict[str, Any], raw: dict[str, Any]) -> None:
    found = problems({"solution": {"calls": [{"_tool": "t", **raw}]}, "tools": {"t": tool}},
                     activities={"a": ANY, "b": ANY}, delegates=["d", "e"])  # fmt: skip
    assert pointers(found) == [f"/solution/calls/0/{next(iter(raw))}"]


def test_r4_2_a_tool_is_known_when_declared_registered_or_run_by_a_registered_delegate() -> None:
    assert runner({"_tool": "t"}, tools={"t": {}}) == (Executor.LATENT, "t")
    assert runner({"_tool": "t"}, activities=["t"]) == (Executor.ACTIVITY, "t")
    assert runner({"_tool": "t", "_delegate": "d"}, registered=["d"]) == (Executor.DELEGATE, "d")


@pytest.mark.parametrize(
    ("raw", "pointer", "hint"),
    [
        ({"_tool": "giev"}, "/_tool", "did you mean 'give'?"),
        ({"_tool": "zzz"}, "/_tool", "unknown tool 'zzz'"),
        ({"_tool": "d"}, "/_tool", 'it is a delegate, so write "_delegate": "d", too'),
        ({"_tool": "give", "_delegate": "nobody"}, "/_delegate", "nobody"),
        ({"_tool": "zzz", "_delegate": "nobody"}, "/_delegate", "nobody"),
        ({"_tool": "zzz", "_delegate": "anonymous"}, "/_tool", "zzz"),
        ({"_tool": "give", "_activity": "giev"}, "/_activity", "did you mean 'give'?"),
        ({"_tool": ""}, "/_tool", "_tool"),
        ({"_tool": 5}, "/_tool", "_tool"),
        ({"x": 1}, "", "_tool"),
        ("give", "", "object"),
        (None, "", "object"),
    ],
)
def test_r4_2_an_unknown_tool_delegate_or_activity_is_a_structural_error(raw: Any, pointer: str, hint: str) -> None:
    value = {"solution": {"calls": [raw]}, "tools": {"give": {"_delegate": {}, "_activity": {}}}}
    found = problems(value, activities={"give": ANY}, delegates=["d"])
    assert pointers(found) == ["/solution/calls/0" + pointer]
    assert hint in found[0].message


def test_r4_2_a_submissions_own_delegates_are_registered() -> None:
    own: dict[str, Any] = {"d": {"context": [], "schema": {}}}
    plan = checked({"_tool": "t", "_delegate": "d"}, delegates=own, registered=["e"])
    assert plan.calls[0].runner.name == "d"


def test_r4_2_the_last_declaration_of_a_tool_wins() -> None:
    context = [
        {"type": "tool", "tool": {"t": {"required": ["a"]}}},
        {"type": "tool", "tool": {"t": {"required": ["b"]}}},
    ]
    assert '"b"' in problems({"context": context, "solution": {"calls": [{"_tool": "t"}]}})[0].message
    shorthand = {"t": {"required": ["c"]}}
    assert (
        '"c"' in problems({"context": context, "solution": {"calls": [{"_tool": "t"}]}, "tools": shorthand})[0].message
    )


def test_r4_2_a_declared_schema_comes_before_that_of_the_activity() -> None:
    activities = {"t": {"type": "object", "required": ["a"]}}
    assert len(problems({"solution": {"calls": [{"_tool": "t"}]}}, activities=activities)) == 1
    assert len(checked({"_tool": "t"}, tools={"t": {}}, activities=activities).calls) == 1


@pytest.mark.parametrize("key", ["_activity", "_delegate"])
@pytest.mark.parametrize(
    ("tool", "is_named"),
    [
        ({}, False),
        ({"properties": {"_scopes": {}}}, False),
        ({"patternProperties": {"^_": {}}}, False),
        ({"required": ["KEY"]}, False),
        ({"properties": {"KEY": {}}}, True),
        ({"KEY": {"enum": ["x", "y"]}}, True),
        ({"allOf": [{"$ref": "#/$defs/d"}], "$defs": {"d": {"properties": {"KEY": {"const": "x"}}}}}, True),
    ],
)
def test_r4_2_a_call_names_its_code_only_where_its_tool_names_the_property(
    key: str, tool: dict[str, Any], is_named: bool
) -> None:
    tool = json.loads(json.dumps(tool).replace("KEY", key))
    value = {"solution": {"calls": [{"_tool": "t", key: "x"}]}, "tools": {"t": tool}}
    environment: dict[str, Any] = {"activities": {"x": ANY}, "delegates": ["x"]}
    if is_named:
        assert check_submission(value, **environment).calls[0].runner.name == "x"
    else:
        (problem,) = problems(value, **environment)
        assert problem.pointer == f"/solution/calls/0/{key}"
        assert problem.message == f"the schema of tool 't' does not name {key}, so no call of it may carry one"


def test_r4_2_a_call_of_a_registered_activity_names_no_other_code() -> None:
    for key in ("_activity", "_delegate"):
        found = problems({"solution": {"calls": [{"_tool": "t", key: "x"}]}}, activities={"t": ANY, "x": ANY},
                         delegates=["x"])  # fmt: skip
        assert pointers(found) == [f"/solution/calls/0/{key}"]


@pytest.mark.parametrize(
    ("raw", "tool", "at"),
    [
        ({"_activity": "a", "_delegate": "d"}, {"_activity": {}, "_delegate": {}}, "/_delegate"),
        ({"_delegate": "d"}, {"_activity": "a", "_delegate": {}}, "/_delegate"),
        ({"_activity": "a"}, {"_activity": {}, "_delegate": "d"}, ""),
        ({}, {"_activity": "a", "_delegate": "d"}, ""),
    ],
)
def test_r4_2a_an_activity_and_a_delegate_exclude_each_other(raw: Any, tool: Any, at: str) -> None:
    found = problems({"solution": {"calls": [{"_tool": "t", **raw}]}, "tools": {"t": tool}},
                     activities={"a": ANY}, delegates=["d"])  # fmt: skip
    assert pointers(found) == [f"/solution/calls/0{at}"]
    assert "_activity and _delegate cannot stand together: leave one out" in found[0].message


REVEAL: dict[str, Any] = {"properties": {"_scopes": {"items": {"enum": ["input"]}}, "n": {"type": "integer"}}}
OPEN: dict[str, Any] = {"_activity": {}, "_delegate": {}}


@pytest.mark.parametrize(
    ("tools", "activities", "registered"),
    [
        ({"note": OPEN, "reveal": REVEAL}, {"reveal": ANY}, []),
        ({"note": OPEN}, {"reveal": REVEAL}, []),
        ({"note": OPEN, "reveal": {}}, {"reveal": REVEAL}, []),
        ({"note": {"_activity": "reveal"}, "reveal": REVEAL}, {"reveal": ANY}, []),
    ],
)
def test_r4_2_no_other_name_leads_around_what_is_pinned_for_the_code(
    tools: Any, activities: Any, registered: Any
) -> None:
    def submitted(*scopes: str) -> dict[str, Any]:
        raw = {"_tool": "note", "_activity": "reveal", "_scopes": list(scopes)}
        return {"solution": {"calls": [raw]}, "tools": tools}

    (problem,) = problems(submitted("input", "state"), activities=activities, delegates=registered)
    assert problem.pointer == "/solution/calls/0/_scopes/1"
    assert problem.message.endswith("(by the schema of 'reveal', whose code runs the call)")
    for scopes in ((), ("input",), ("†input.user",)):
        assert check_submission(submitted(*scopes), activities=activities, delegates=registered).size == 1


def test_r4_2_nor_does_the_name_of_a_delegate_or_of_a_tool_that_nothing_declares() -> None:
    for tool, tools in (("note", {"note": OPEN, "reveal": REVEAL}), ("undeclared", {"reveal": REVEAL})):
        raw = {"_tool": tool, "_delegate": "reveal", "_scopes": ["state"]}
        found = problems({"solution": {"calls": [raw]}, "tools": tools}, activities={}, delegates=["reveal"])
        assert pointers(found) == ["/solution/calls/0/_scopes/0"]


def test_r4_2_pins_of_the_code_hold_wherever_its_schema_says_them() -> None:
    pins: list[dict[str, Any]] = [
        {"oneOf": [{"properties": {"_scopes": {"const": ["input"]}}}, {"properties": {"_scopes": {"const": []}}}]},
        {"not": {"properties": {"_scopes": {"contains": {"const": "state"}}}, "required": ["_scopes"]}},
        {"patternProperties": {"^_scopes$": {"maxItems": 0}}},
        {"properties": {"_imports": {"const": ["input"]}}},
    ]
    for pin in pins:
        raw: dict[str, Any] = {"_tool": "note", "_activity": "reveal", "_scopes": ["state"]}
        value: dict[str, Any] = {
            "solution": {"calls": [raw]},
            "tools": {"note": OPEN, "reveal": {**pin, "required": ["n", "_tool"]}},
        }
        (problem,) = problems(value, activities={"reveal": ANY})
        assert problem.pointer.removeprefix("/solution/calls/0") in ("", "/_scopes", "/_scopes/0")
        raw["_scopes"] = []
        assert check_submission(value, activities={"reveal": ANY}).size == 1


def test_r4_2_what_the_tool_of_the_code_says_of_parameters_is_said_of_its_own_calls_only() -> None:
    tools = {"note": OPEN, "reveal": {**REVEAL, "required": ["n"], "additionalProperties": False}}
    raw = {"_tool": "note", "_activity": "reveal", "n": "text", "other": 1, "_outputPath": "†state.a"}
    assert checked(raw, tools=tools, activities={"reveal": ANY}).size == 1


def test_r4_2_a_declaration_narrows_what_an_activity_says_of_meta_properties_and_never_widens_it() -> None:
    activities = {"t": {"properties": {"_scopes": {"items": {"enum": ["state", "input"]}}}}}
    narrow = {"t": {"properties": {"_scopes": {"items": {"enum": ["input", "secrets"]}}}}}
    cases: tuple[tuple[str, dict[str, Any], bool], ...] = (
        ("input", narrow, True),
        ("state", narrow, False),
        ("secrets", narrow, False),
        ("secrets", {"t": {}}, False),
        ("state", {"t": {}}, True),
    )
    for scope, tools, fits in cases:
        value = {"solution": {"calls": [{"_tool": "t", "_scopes": [scope]}]}, "tools": tools}
        if fits:
            check_submission(value, activities=activities)
        else:
            assert pointers(problems(value, activities=activities)) == ["/solution/calls/0/_scopes/0"]


# R4.2a


@pytest.mark.parametrize(
    ("raw", "tool", "allow", "at"),
    [
        ({}, {}, ["t"], []),
        ({}, {}, ["other"], ["/_tool"]),
        ({}, {}, [], ["/_tool"]),
        ({"_activity": "a"}, OPEN, ["t", "a"], []),
        ({"_activity": "a"}, OPEN, ["t"], ["/_activity"]),
        ({"_activity": "a"}, OPEN, ["a"], ["/_tool"]),
        ({"_delegate": "d"}, OPEN, ["t", "d"], []),
        ({"_delegate": "d"}, OPEN, ["t"], ["/_delegate"]),
        ({"_delegate": "anonymous"}, OPEN, ["t"], ["/_delegate"]),
        ({}, {"_activity": "a"}, ["t"], [""]),
        ({}, {"_activity": "a"}, ["t", "a"], []),
        ({"_output": 1}, {"_activity": ""}, ["t"], []),
        ({"_output": 1}, {"_activity": ""}, [], ["/_tool"]),
    ],
)
def test_r4_2a_a_tool_and_its_code_have_both_to_be_allowed(
    raw: Any, tool: Any, allow: list[str], at: list[str]
) -> None:
    value = {"solution": {"calls": [{"_tool": "t", **raw}]}, "tools": {"t": tool}}
    environment: dict[str, Any] = {"activities": {"a": ANY}, "delegates": ["d"], "allow": allow}
    if at:
        found = problems(value, **environment)
        assert pointers(found) == [f"/solution/calls/0{place}" for place in at]
        assert found[0].message.endswith("is not allowed here")
    else:
        assert check_submission(value, **environment).allow == frozenset(allow)


def test_r4_2a_whatever_a_document_declares_only_what_is_allowed_may_be_called() -> None:
    context = [{"type": "tool", "tool": {"mine": {"_delegate": "own"}}}]
    solution = {"calls": [{"_tool": "mine"}, {"_tool": "t"}]}
    with pytest.raises(Rejected) as refused:
        check(context, solution, activities={"t": ANY}, allow=["t"])
    assert pointers(refused.value.errors) == ["/solution/calls/0", "/solution/calls/0/_tool"]


BEHIND = {"note": ANY, "reveal": ANY}
BY_MODE = {
    "if": {"properties": {"mode": {"const": "full"}}, "required": ["mode"]},
    "then": {"properties": {"_scopes": {"items": {"enum": ["state", "input"]}}}},
    "else": {"properties": {"_scopes": {"items": {"enum": ["input"]}}}},
}


def around(reveal: dict[str, Any], **properties: Any) -> list[Any]:
    """What is wrong with a call of `note` that is run by `reveal`."""
    call = {"_tool": "note", "_activity": "reveal", "_outputPath": "†data.a", **properties}
    tools = {"reveal": reveal, "note": {"properties": {"_activity": {"const": "reveal"}}}}
    context = [{"type": "state", "secret": 1}, {"type": "input", "mode": "brief"}]
    with pytest.raises(Rejected) as rejected:
        check_submission({"context": context, "tools": tools, "solution": {"calls": [call]}}, activities=BEHIND)
    return [problem.message for problem in rejected.value.errors]


def test_r4_2_a_pin_holds_where_the_schema_of_the_code_takes_too_long_to_apply() -> None:
    texts = {"type": "string", "pattern": "^(?!admin)[a-z]+$"}
    pinned = {"properties": {"id": texts, "_scopes": {"items": {"enum": ["input"]}}}}
    (message,) = around(pinned, ids=["a" * 26] * 5_000, _scopes=["state"])
    assert "exceed the validation budget" in message


def test_r4_2_what_the_code_pins_by_parameters_is_not_led_around_by_a_reference() -> None:
    (message,) = around(BY_MODE, mode="†input.mode", _scopes=["state"])
    assert "to decide on meta-properties" in message
    assert around(BY_MODE, mode="brief", _scopes=["state"])


def test_r4_2_a_declaration_does_not_widen_what_strict_meta_refuses_of_its_activity() -> None:
    closed = {"reveal": {"properties": {"id": {}}, "additionalProperties": False}}
    value = {
        "context": [{"type": "state", "secret": 1}],
        "tools": {"reveal": {"properties": {"_scopes": True}}},
        "solution": {"calls": [{"_tool": "reveal", "_scopes": ["state"]}]},
    }
    with pytest.raises(Rejected):
        check_submission(value, activities=closed, strict_meta=True)
