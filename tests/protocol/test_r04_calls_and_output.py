"""SPEC R4: calls and output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from protocol import Output, Rejected, check_submission
from protocol.execution import Execution, Failure, Start, Success
from protocol.resolution import Fold
from protocol.tools import Executor

from .building import (
    ANY,
    DATE,
    call,
    checked,
    fail,
    pointers,
    problems,
    problems_of,
    run,
    run_plan,
    statuses,
    submission,
)

COUNT: dict[str, Any] = {
    "type": "object",
    "properties": {"number": {"type": "integer", "minimum": 0}, "unit": {"enum": ["m", "s"]}},
    "required": ["number"],
    "additionalProperties": False,
}
NUMBERS = [{"type": "state", "one": 1, "minus": -1, "text": "1", "unit": "m"}]


def admitted(schema: Any, **properties: Any) -> bool:
    """Whether a tool with this schema admits a call with these properties."""
    value = submission({"_tool": "t", **properties}, context=NUMBERS, tools={"t": schema})
    try:
        check_submission(value)
    except Rejected:
        return False
    return True


# R4.1


@pytest.mark.parametrize(
    ("properties", "pointer"),
    [
        ({"number": "1"}, "/number"),
        ({"number": -1}, "/number"),
        ({"number": 1, "unit": "h"}, "/unit"),
        ({}, ""),
        ({"number": 1, "extra": 1}, ""),
    ],
)
def test_r4_1_a_call_is_held_against_its_tools_schema_at_submission(properties: dict[str, Any], pointer: str) -> None:
    found = problems_of({"_tool": "count", **properties}, tools={"count": COUNT})
    assert pointers(found) == ["/solution/calls/0" + pointer]


def test_r4_1_expressions_stand_in_for_any_value_at_submission() -> None:
    for number in ("†state.one", "†state.minus", "†state.text", "†state.one || †state.text"):
        assert admitted(COUNT, number=number, unit="†state.unit")
    assert not admitted(COUNT, number="††text")
    assert not admitted(COUNT, number="†state.one", extra="†state.one"), "a parameter too many is one in any case"
    assert not admitted(COUNT, unit="†state.unit"), "and so is one that is missing"


@pytest.mark.parametrize(
    ("schema", "value", "is_admitted"),
    [
        ({"anyOf": [{"type": "string"}, {"minimum": 5}]}, "†state.one", True),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"c": "†state.one"}, False),
        ({"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"b": "†state.one"}, True),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "†state.one", True),
        ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"c": "†state.one"}, False),
        ({"oneOf": [{"properties": {"a": {"const": n}}} for n in (1, 2)]}, {"a": "†state.one"}, True),
        ({"not": {"type": "integer"}}, "†state.one", True),
        ({"not": {"properties": {"a": {"const": 1}}}}, {"a": "†state.one"}, True),
        ({"if": {"properties": {"a": {"const": 1}}}, "then": {"required": ["b"]}}, {"a": "†state.one"}, True),
        ({"if": {"required": ["a"]}, "then": {"required": ["b"]}}, {"a": 1}, False),
        ({"const": {"a": 1}}, {"a": "†state.one"}, True),
        ({"const": {"a": 1}}, {"a": 2}, False),
        ({"enum": [[1], [2]]}, ["†state.one"], True),
        ({"enum": [[1], [2]]}, [3], False),
        ({"contains": {"const": 1}}, ["†state.one"], True),
        ({"contains": {"const": 1}}, [2], False),
        ({"uniqueItems": True}, ["†state.one", "†state.one"], True),
        ({"uniqueItems": True}, [1, 1], False),
        ({"minItems": 2}, ["†state.one"], False),
        ({"items": {"type": "string"}}, ["†state.one", 5], False),
        ({"additionalProperties": {"type": "string"}}, {"a": "†state.one"}, True),
        ({"additionalProperties": {"type": "string"}}, {"a": "†state.one", "b": 5}, False),
        ({"propertyNames": {"maxLength": 1}}, {"long": "†state.one"}, False),
        ({"unevaluatedProperties": False, "if": {"properties": {"a": {"const": 1}}}, "else": {"properties": {"b": {}}}},
         {"a": "†state.one", "b": 1}, True),
        ({"$ref": "#/$defs/int"}, "†state.one", True),
        ({"$ref": "#/$defs/int"}, "one", False),
        ({"dependentRequired": {"a": ["b"]}}, {"a": "†state.one"}, False),
        (False, "†state.one", False),
    ],
)  # fmt: skip
def test_r4_1_an_expression_inside_gets_the_benefit_of_the_doubt_and_only_that(
    schema: Any, value: Any, is_admitted: bool
) -> None:
    tool = {"type": "object", "properties": {"x": schema}, "$defs": {"int": {"type": "integer"}}}
    assert admitted(tool, x=value) is is_admitted


def test_r4_1_expressions_are_admitted_below_a_schema_that_names_its_dialect() -> None:
    tool = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "child": {"$ref": "#"},
            "x": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "integer"},
        },
    }
    assert admitted(tool, x="†state.one", child={"x": "†state.one", "child": {"x": 1}})
    assert not admitted(tool, child={"child": {"x": "one"}})


def test_r4_1_resolved_parameters_are_held_against_the_schema_before_execution() -> None:
    calls = [
        {"_tool": "count", "number": f"†state.{name}", "_outputPath": f"†data.{name}"} for name in ("one", "minus")
    ]
    result = run(*calls, context=NUMBERS, tools={"count": COUNT}, functions={"count": lambda parameters, _: parameters})
    assert statuses(result) == ["done", "failed"]
    error = result.outcome(1).error
    assert error is not None
    assert error["type"] == "InvalidParameters"
    assert "/number" in error["message"]
    assert result.started == ((None, 0),)


@pytest.mark.parametrize(
    ("schema", "path", "is_admitted"),
    [
        ({"const": "†state.a"}, "†state.a", True),
        ({"const": "†state.a"}, "†state.b", False),
        ({"enum": ["†state.success", "†state.failure"]}, "†state.failure", True),
        ({"enum": ["†state.success", "†state.failure"]}, "†state.other", False),
        ({"type": "string", "pattern": "^†"}, "†state.a", True),
        ({"type": "string", "pattern": "^†"}, "a", False),
        ({"oneOf": [{"const": "†state.a"}, {"const": "†state.b"}]}, "†state.b", True),
        ({"oneOf": [{"const": "†state.a"}, {"const": "†state.b"}]}, "†state.c", False),
    ],
)
def test_r4_1_a_pinned_output_path_is_enforced(schema: dict[str, Any], path: str, is_admitted: bool) -> None:
    for tool in ({"properties": {"_outputPath": schema}}, {"_outputPath": schema}):
        assert admitted(tool, _outputPath=path) is is_admitted


def test_r4_1_a_pin_inside_a_combined_schema_is_enforced_as_well() -> None:
    pinned = {"properties": {"_outputPath": {"const": "†state.a"}}}
    combined: list[dict[str, Any]] = [
        {"allOf": [pinned]},
        {"if": {"properties": {"mode": {"const": 1}}}, "then": pinned},
        {"$ref": "#/$defs/p", "$defs": {"p": pinned}},
    ]
    for tool in combined:
        assert admitted({"type": "object", **tool}, mode=1, _outputPath="†state.a")
        assert not admitted({"type": "object", **tool}, mode=1, _outputPath="†state.b")


@pytest.mark.parametrize("name", ["_scopes", "_imports"])
@pytest.mark.parametrize(
    ("schema", "scopes", "is_admitted"),
    [
        ({"const": ["input"]}, ["input"], True),
        ({"const": ["input"]}, ["state"], False),
        ({"const": ["input"]}, [], False),
        ({"items": {"enum": ["state", "input"]}}, ["input"], True),
        ({"items": {"enum": ["state", "input"]}}, ["data"], False),
        ({"items": {"enum": ["state"]}}, ["†state.one"], False),
    ],
)
def test_r4_1_scopes_are_held_to_a_const_or_an_enum_of_items(
    name: str, schema: dict[str, Any], scopes: list[str], is_admitted: bool
) -> None:
    assert admitted({"properties": {name: schema}}, _scopes=scopes) is is_admitted
    assert admitted({"properties": {"_scopes": schema}}, **{name: scopes}) is is_admitted


PINS: dict[str, Any] = {"_outputPath": "†state.a", "_outputMethod": "push", "_scopes": ["state"]}
PINNING = {name: {"const": value} for name, value in PINS.items()}


@pytest.mark.parametrize(
    "tool",
    [
        {"properties": PINNING},
        {"_outputPath": PINNING["_outputPath"], "_outputMethod": {"const": "push"}, "_imports": PINNING["_scopes"]},
        PINS,
        {**PINS, "required": list(PINS)},
    ],
)
def test_r4_1_a_pinned_meta_property_that_the_call_omits_is_filled_in(tool: dict[str, Any]) -> None:
    result = run({"_tool": "see"}, tools={"see": tool}, context=[{"type": "state", "b": 1}])
    assert result.data[None]["state"] == {"b": 1, "a": [{"state": {"b": 1}}]}
    (message,) = result.messages
    assert message["_call"] == {"_tool": "see"}, "the call as submitted"
    assert (message["_path"], message["_outputMethod"]) == ("†state.a", "push")


def test_r4_1_a_null_meta_property_counts_as_left_out() -> None:
    nothing = dict.fromkeys(["_outputMethod", "_scopes", "_imports", "_instance", "_delegate", "_activity"])
    result = run({**call(to="†state.a", value=None), **nothing})
    assert result.data[None]["state"] == {"a": None}
    assert statuses(run(call(_outputPath=None))) == ["sent"]
    assert not admitted({"required": ["_outputPath"]}, _outputPath=None)


def test_r4_1_a_pinned_instance_is_where_the_call_runs() -> None:
    tool = {"_instance": {"const": "①"}}
    result = run(call("pinned", to="†state.a"), tools={"pinned": tool}, context=[{"type": "text", "_instance": "①"}],
                 functions={"pinned": lambda *_: 1})  # fmt: skip
    assert result.data == {None: {}, "①": {"state": {"a": 1}}}
    assert pointers(problems_of(call("pinned"), tools={"pinned": tool})) == ["/solution/calls/0"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("_outputPath", 5),
        ("_outputPath", "†"),
        ("_outputMethod", "shuffle"),
        ("_outputMethod", []),
        ("_scopes", "state"),
        ("_scopes", [["state"]]),
        ("_delegate", ["x"]),
        ("_activity", {"const": 1}),
        ("_instance", 5),
    ],
)
def test_r4_1_a_tool_that_pins_nonsense_is_found_at_submission(name: str, value: Any) -> None:
    tool = {"properties": {name: {"const": value}}}
    (problem,) = problems_of({"_tool": "t"}, tools={"t": tool}, activities={"t": ANY})
    assert problem.pointer == "/solution/calls/0"
    assert problem.message.startswith(f"{name}, which its tool's schema fills in: ")


def test_r4_1_additional_properties_false_speaks_of_parameters_unless_meta_is_strict() -> None:
    raw = {"_tool": "count", "number": 1, "_outputPath": "†state.a", "_note": "x"}
    assert len(checked(raw, tools={"count": COUNT}).calls) == 1
    found = problems_of(raw, tools={"count": COUNT}, strict_meta=True)
    assert pointers(found) == ["/solution/calls/0"]
    assert "_outputPath" in found[0].message
    assert "_note" in found[0].message
    mentioned = {**COUNT, "_outputPath": {}, "_note": {}}
    assert len(checked(raw, tools={"count": mentioned}, strict_meta=True).calls) == 1


def test_r4_1_a_schema_is_never_fetched() -> None:
    tool = {"properties": {"x": {"$ref": "http://127.0.0.1:9/schema.json"}}}
    found = problems_of({"_tool": "t", "x": 1}, tools={"t": tool})
    assert pointers(found) == ["/solution/calls/0"]
    assert "http://127.0.0.1:9/schema.json" in found[0].message


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"allOf": [{"$ref": "#/$defs/a"}]}}},
        {"properties": {"x": {"$ref": "#/nowhere"}}},
        {"properties": {"x": {"$ref": "#/example"}}, "example": {"type": 5}},
        {"properties": {"x": {"$ref": "#anchor"}}},
        {"properties": {"x": {"$id": "http://[", "$ref": "y"}}},
    ],
)
def test_r4_1_a_schema_that_cannot_be_applied_is_an_error_and_no_crash(schema: dict[str, Any]) -> None:
    assert not admitted(schema, x=1)


@pytest.mark.parametrize(
    ("tools", "pointer"),
    [
        ([], "/tools"),
        ({"t": []}, "/tools/t"),
        ({"t": {"type": "nonsense"}}, "/tools/t/type"),
        ({"t": {"properties": []}}, "/tools/t/properties"),
        ({"t": {"properties": {"a": {"type": 5}}}}, "/tools/t/properties/a/type"),
        ({"t": {"properties": {"a": "string"}}}, "/tools/t/properties/a"),
        ({"t": {"required": "a"}}, "/tools/t/required"),
        ({"t": {"required": [1]}}, "/tools/t/required"),
        ({"t": {"properties": {"a": {"pattern": "("}}}}, "/tools/t/properties/a/pattern"),
        ({"t": {"_output": {"type": 5}}}, "/tools/t/_output/type"),
    ],
)
def test_r4_1_a_tool_that_is_no_json_schema_is_a_structural_error(tools: Any, pointer: str) -> None:
    assert pointer in pointers(problems({"solution": {"calls": [{"_tool": "t"}]}, "tools": tools}))


# R4.1a


def test_r4_1a_a_call_gets_the_kinds_of_the_signature_unless_it_says_which() -> None:
    scopes = {"type": "array", "items": {"enum": ["state", "input"]}, "x-granted": ["state", "input"]}
    activities = {"see": {"type": "object", "properties": {"_scopes": scopes}, "additionalProperties": False}}
    context = [{"type": "state", "a": 1}, {"type": "input", "b": 2}, {"type": "data", "c": 3}]
    calls: list[dict[str, Any]] = [
        {"_tool": "see", "_outputPath": "†data.all"},
        {"_tool": "see", "_outputPath": "†data.one", "_scopes": ["input"]},
    ]
    value: dict[str, Any] = {"context": context, "solution": {"calls": calls}}
    data = run_plan(check_submission(value, activities=activities)).data[None]["data"]
    assert data["all"] == {"state": {"a": 1}, "input": {"b": 2}}
    assert data["one"] == {"input": {"b": 2}}
    calls[1]["_scopes"] = ["data"]
    assert pointers(problems(value, activities=activities)) == ["/solution/calls/1/_scopes/0"]


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
        ({"_delegate": "d"}, {"_activity": "a"}, ["a", "t"], (Executor.DELEGATE, "d")),
        ({}, {"_delegate": "d", "_activity": "a"}, ["a", "t"], (Executor.DELEGATE, "d")),
        ({}, {"_activity": "a"}, ["a", "t"], (Executor.ACTIVITY, "a")),
        ({}, {"_activity": {"const": "a"}}, ["a", "t"], (Executor.ACTIVITY, "a")),
        ({"_activity": "a"}, {}, ["a", "t"], (Executor.ACTIVITY, "a")),
        ({}, {"_activity": ""}, ["a", "t"], (Executor.ACTIVITY, "t")),
        ({"_activity": ""}, {}, ["t"], (Executor.ACTIVITY, "t")),
        ({}, {}, ["a", "t"], (Executor.ACTIVITY, "t")),
        ({}, {}, ["a"], (Executor.LATENT, "t")),
        ({}, {"_activity": ""}, [], (Executor.LATENT, "t")),
        ({"_delegate": "anonymous"}, {}, ["t"], (Executor.DELEGATE, "anonymous")),
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
    value = {"solution": {"calls": [raw]}, "tools": {"give": {}}}
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
    assert "'b'" in problems({"context": context, "solution": {"calls": [{"_tool": "t"}]}})[0].message
    shorthand = {"t": {"required": ["c"]}}
    assert (
        "'c'" in problems({"context": context, "solution": {"calls": [{"_tool": "t"}]}, "tools": shorthand})[0].message
    )


def test_r4_2_a_declared_schema_comes_before_that_of_the_activity() -> None:
    activities = {"t": {"type": "object", "required": ["a"]}}
    assert len(problems({"solution": {"calls": [{"_tool": "t"}]}}, activities=activities)) == 1
    assert len(checked({"_tool": "t"}, tools={"t": {}}, activities=activities).calls) == 1


# R4.3


def test_r4_3_a_call_appends_one_message_for_each_path_all_at_once() -> None:
    raw = call(to="†state.user.name && †data.copy", value=["†input.n"], _outputMethod="push", _instance="①")
    result = run(raw, context=[{"type": "input", "n": 7, "_instance": "①"}])
    (entry,) = result.log
    common = {"_call": raw, "_date": DATE, "_outputMethod": "push", "_instance": "①"}
    assert list(entry.outcome.messages) == [
        {"type": "data", "kind": "state", "data": {"user": {"name": [7]}}, **common, "_path": "†state.user.name"},
        {"type": "data", "data": {"copy": [7]}, **common, "_path": "†data.copy"},
    ]


def test_r4_3_what_is_not_given_is_not_in_the_message() -> None:
    raw = call(to="user", value=1)
    (message,) = run(raw).messages
    assert message == {"type": "data", "kind": "state", "data": {"user": 1}, "_call": raw, "_date": DATE}


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("†state", 1),
        ("†state.a.b", {"a": {"b": 1}}),
        ("†state.list.0", {"list": {"0": 1}}),
        ('†state["a.b"][""]', {"a.b": {"": 1}}),
    ],
)
def test_r4_3_the_value_is_nested_at_the_path(path: str, data: Any) -> None:
    (message,) = run(call(to=path, value=1)).messages
    assert message["data"] == data


def test_r4_3_written_messages_read_back_as_what_was_written() -> None:
    calls = [
        call(to="†state.a && †state.a.b && †state", value={"b": {"a": 1}}),
        call(to='†state["x.y"].0', value=[1]),
        call(to='†data["0"]', value={"0": 1}),
    ]
    assert run(*calls).data[None] == {"state": {"b": {"a": 1}, "x.y": [[1]]}, "data": {"0": {"0": 1}}}


# R4.4


BRANCH = "†state.good || †state.bad"


def test_r4_4_a_plain_value_goes_to_the_first_alternative() -> None:
    assert run(call(to=BRANCH, value=1)).data[None] == {"state": {"good": 1}}


@pytest.mark.parametrize("path", ["†state.bad", "bad", '†state["bad"]'])
def test_r4_4_the_activity_may_choose_one_of_the_declared_paths(path: str) -> None:
    result = run(call("choose", to=BRANCH), functions={"choose": lambda *_: Output(path, 1)})
    assert result.data[None] == {"state": {"bad": 1}}


def test_r4_4_choosing_one_of_joined_paths_writes_to_all_of_them() -> None:
    to = "†state.a || †state.b && †data.c"
    result = run(call("choose", to=to), functions={"choose": lambda *_: Output("†data.c", 1)})
    assert result.data[None] == {"state": {"b": 1}, "data": {"c": 1}}


@pytest.mark.parametrize(
    "path", ["†state.other", "†data.good", "†state.good.x", "†state", BRANCH, "†", "", 5, None, ["good"]]
)
def test_r4_4_a_path_that_was_not_declared_is_an_error(path: Any) -> None:
    result = run(call("choose", to=BRANCH), functions={"choose": lambda *_: Output(path, 1)})
    assert statuses(result) == ["failed"]
    error = result.outcome(0).error
    assert error is not None
    assert error["type"] == "OutputError"
    assert "state" not in result.data[None]


def test_r4_4_an_exception_goes_to_the_last_of_several_alternatives_and_is_no_failure() -> None:
    result = run(call("fail", to="†state.a || †state.b || †state.c && †data.d", because="no"))
    assert statuses(result) == ["done"]
    error = {"type": "LookupError", "message": "no"}
    assert result.data[None] == {"state": {"c": error}, "data": {"d": error}}


@pytest.mark.parametrize("to", ["†state.a", "†state.a && †state.b"])
def test_r4_4_with_one_alternative_an_exception_is_a_failure(to: str) -> None:
    result = run(call("fail", to=to, because="no"))
    assert statuses(result) == ["failed"]
    assert "state" not in result.data[None]


def test_r4_4_an_exception_that_does_not_fit_the_last_alternative_fails_the_call_under_its_own_name() -> None:
    context = [{"type": "state", "schema": {"properties": {"bad": {"type": "integer"}}}}]
    result = run(call("fail", to=BRANCH, because="the real reason"), context=context)
    assert statuses(result) == ["failed"]
    assert result.outcome(0).error == {"type": "LookupError", "message": "the real reason"}


def test_r4_4_the_seeds_verify_user_writes_what_it_found_or_what_failed() -> None:
    def verify(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
        if parameters["userId"] == "perfect-stranger":
            return Output("†state.user.failed", {"reason": "unknown"})
        return {"id": parameters["userId"]}

    to = "†state.user.verified || †state.user.failed"
    for user, written in (("perfect-stranger", {"failed": {"reason": "unknown"}}), ("u", {"verified": {"id": "u"}})):
        result = run(call("verifyUser", to=to, userId=user), functions={"verifyUser": verify})
        assert result.data[None] == {"state": {"user": written}}


# R4.5


@pytest.mark.parametrize(
    ("message", "data"),
    [
        ({"type": "state", "a": 1}, {"state": {"a": 1}}),
        ({"type": "state", "state": {"a": 1}}, {"state": {"a": 1}}),
        ({"type": "data", "kind": "state", "data": {"a": {"deep": [1]}}}, {"state": {"a": {"deep": [1]}}}),
        ({"type": "state", "a": 1, "b": 2}, {"state": {"a": 1, "b": 2}}),
        ({"type": "data", "c": None}, {"data": {"c": None}}),
        ({"type": "state", "a": 1, "_instance": "②", "_call": {"_tool": "lie"}, "_date": "lie"}, {"state": {"a": 1}}),
    ],
)
def test_r4_5_a_whole_data_message_is_appended_with_provenance_to_the_calls_own_instance(
    message: dict[str, Any], data: dict[str, Any]
) -> None:
    raw = call("whole", to="†state.a && †state.b || †data.c", _instance="①")
    context = [{"type": "text", "_instance": name} for name in ("①", "②")]
    result = run(raw, context=context, functions={"whole": lambda *_: message})
    assert (result.data["①"], result.data["②"]) == (data, {})
    assert all((m["_call"], m["_date"], m["_instance"]) == (raw, DATE, "①") for m in result.messages)


@pytest.mark.parametrize(
    "message",
    [
        {"type": "state"},
        {"type": "state", "other": 1},
        {"type": "state", "a": 1, "other": 1},
        {"type": "state", "data": 5},
        {"type": "state", "data": None},
        {"type": "state", "data": [1]},
        {"type": "input", "a": 1},
        {"type": "data", "a": 1},
        {"type": "error", "data": {"a": 1}},
        {"type": "state", "a": 1, "c": 1},
        {"type": "data", "kind": ["state"], "a": 1},
        {"type": "data", "kind": None, "a": 1},
    ],
)
def test_r4_5_kind_and_path_of_a_returned_message_must_be_declared(message: dict[str, Any]) -> None:
    result = run(call("whole", to="†state.a && †state.b || †data.c"), functions={"whole": lambda *_: message})
    assert statuses(result) == ["failed"]
    assert result.data[None].keys() == {"error"}


@pytest.mark.parametrize("value", [{"type": "text", "a": 1}, {"type": ["state"]}, {"type": None}, {"typ": "state"}, []])
def test_r4_5_what_is_no_data_message_is_a_plain_value(value: Any) -> None:
    assert run(call(to="†state.a", value=value)).data[None] == {"state": {"a": value}}


def test_r4_5_a_model_cannot_smuggle_a_message_into_a_latent_calls_output() -> None:
    message = {"type": "state", "other": 1}
    result = run({"_tool": "t", "_output": message, "_outputPath": "†state.a"}, activities={})
    assert result.data[None] == {"state": {"a": message}}


# R4.6


@pytest.mark.parametrize(("value", "status"), [(5, "done"), ("5", "failed"), (None, "failed")])
def test_r4_6_the_tools_output_schema_validates_the_value(value: Any, status: str) -> None:
    for tool in (
        {"_output": {"type": "integer"}},
        {"properties": {"_output": {"type": "integer"}}, "required": ["_output"]},
    ):
        result = run(call(to="†state.a", value=value), tools={"give": tool})
        assert statuses(result) == [status]
        assert result.data[None].get("state", {}) == ({"a": value} if status == "done" else {})


def test_r4_6_each_value_of_a_returned_message_is_validated() -> None:
    functions = {"whole": lambda *_: {"type": "state", "a": 1, "b": "not a number"}}
    result = run(
        call("whole", to="†state.a && †state.b"), tools={"whole": {"_output": {"type": "integer"}}}, functions=functions
    )
    assert statuses(result) == ["failed"]


def test_r4_6_an_error_is_not_held_against_the_output_schema() -> None:
    result = run(call("fail", to=BRANCH), tools={"fail": {"_output": {"type": "integer"}}})
    assert statuses(result) == ["done"]


STATE_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["user", "audit"],
    "properties": {
        "user": {"type": "object", "required": ["id", "name"], "properties": {"id": {"type": "integer"}}},
        "tags": {"type": "array", "minItems": 2, "items": {"type": "string"}, "prefixItems": [{"const": "first"}]},
        "note": {"type": "string", "minLength": 3, "pattern": "^abc$"},
        "by_name": {"patternProperties": {"^n": {"type": "null"}}, "additionalProperties": {"type": "boolean"}},
        "linked": {"$ref": "#/properties/user/properties/id"},
        "both": {"allOf": [{"properties": {"x": {"type": "integer"}}}, {"$ref": "#/$defs/positive"}]},
    },
    "additionalProperties": False,
    "$defs": {"positive": {"properties": {"x": {"minimum": 1}}}},
}


@pytest.mark.parametrize(
    ("path", "value", "method", "is_valid"),
    [
        ("†state.user.id", 5, "set", True),
        ("†state.user.id", "5", "set", False),
        ("†state.user.anything", "x", "set", True),
        ("†state.user", {"id": 5, "name": "x"}, "set", True),
        ("†state.user", {"id": 5}, "set", False),
        ("†state.user", {"id": 5}, "merge", True),
        ("†state.user", {"id": "5"}, "merge", False),
        ("†state.user", {"name": 1}, "assign", True),
        ("†state", {"user": {"id": 1}}, "set", True),
        ("†state", {"user": {"id": "x"}}, "merge", False),
        ("†state", 5, "set", False),
        ("†state.unknown", 1, "set", False),
        ("†state.tags", ["first"], "concat", True),
        ("†state.tags", ["first"], "set", False),
        ("†state.tags", ["first", "x"], "set", True),
        ("†state.tags", [5], "concat", False),
        ("†state.tags", "first", "push", True),
        ("†state.tags.0", "first", "set", True),
        ("†state.tags.0", "second", "set", False),
        ("†state.note", "ab", "concat", True),
        ("†state.note", "ab", "set", False),
        ("†state.note", "abc", "set", True),
        ("†state.note", ["ab"], "concat", False),
        ("†state.by_name.n1", None, "set", True),
        ("†state.by_name.n1", True, "set", False),
        ("†state.by_name.x", True, "set", True),
        ("†state.by_name.x", None, "set", False),
        ("†state.linked", 5, "set", True),
        ("†state.linked", "5", "set", False),
        ("†state.both.x", 1, "set", True),
        ("†state.both.x", 0, "set", False),
        ("†state.both.x", 1.5, "set", False),
        ("†data.user.id", "5", "set", True),
    ],
)
def test_r4_6_a_states_schema_validates_a_value_against_its_part_at_the_path(
    path: str, value: Any, method: str, is_valid: bool
) -> None:
    context = [{"type": "state", "schema": STATE_SCHEMA}]
    result = run(call(to=path, value=value, _outputMethod=method), context=context)
    assert statuses(result) == ["done" if is_valid else "failed"], result.log


def test_r4_6_the_last_schema_of_a_kind_counts_and_an_instances_own_comes_first() -> None:
    context = [
        {"type": "state", "schema": {"properties": {"a": {"type": "string"}}}},
        {"type": "state", "schema": {"properties": {"a": {"type": "integer"}}}},
        {"type": "state", "schema": {"properties": {"a": {"type": "null"}}}, "_instance": "①"},
        {"type": "text", "_instance": "②"},
    ]
    calls = [call(to="†state.a", value=value, _instance=name) for name in ("①", "②", None) for value in (None, 5)]
    result = run(*calls, context=context)
    assert [statuses(result, name) for name in ("①", "②", None)] == [
        ["done", "failed"],
        ["failed", "done"],
        ["failed", "done"],
    ]


def test_r4_6_what_a_call_returns_declares_no_schema() -> None:
    functions = {"whole": lambda *_: {"type": "state", "a": 1, "schema": {"properties": {"a": {"type": "string"}}}}}
    result = run(call("whole", to="†state.a"), call(to="†state.a", after="†state.a", value=2), functions=functions)
    assert statuses(result) == ["done", "done"]


@pytest.mark.parametrize(
    ("given", "to", "value", "method"),
    [
        ({"n": 5}, "†state.n", "x", "push"),
        ({"n": 5}, "†state.n.x", 1, None),
        ({"l": []}, "†state.l.3", 1, None),
        ({}, "†state.a && †state.a.b", 5, None),
        ({}, "†state.l && †state.l.0.x", [1], None),
    ],
)
def test_r4_6_a_write_that_does_not_fit_what_is_there_fails_the_call_and_writes_nothing(
    given: dict[str, Any], to: str, value: Any, method: str | None
) -> None:
    result = run(call(to=to, value=value, _outputMethod=method), context=[{"type": "state", **given}])
    assert statuses(result) == ["failed"]
    error = result.outcome(0).error
    assert error is not None
    assert error["type"] == "Conflict"
    assert result.data[None].get("state") == given


# R4.7


def test_r4_7_a_latent_calls_result_is_the_output_the_model_wrote() -> None:
    for output in ({"a": 1}, None, "", 0):
        raw = {"_tool": "think", "_output": output, "_outputPath": "†state.thought || †state.other"}
        assert run(raw, activities={}).data[None] == {"state": {"thought": output}}


def test_r4_7_the_output_of_a_latent_call_is_held_against_the_tools_schema() -> None:
    raw = {"_tool": "think", "_output": "x", "_outputPath": "†state.a"}
    found = problems_of(raw, tools={"think": {"_output": {"type": "integer"}}}, activities={})
    assert pointers(found) == ["/solution/calls/0/_output"]


def test_r4_7_a_latent_call_with_an_output_waits_for_what_it_reads() -> None:
    think = {"_tool": "think", "_output": 1, "_outputPath": "†state.b", "about": "†state.a"}
    result = run(think, call("fail", to="†state.a"), activities={"fail": ANY})
    assert statuses(result) == ["skipped", "failed"]


def test_r4_7_a_latent_call_without_an_output_is_put_to_the_model() -> None:
    plan = checked({"_tool": "think", "about": "†input.x", "_outputPath": "†state.a"},
                   context=[{"type": "input", "x": 1}], activities={}, model=True)  # fmt: skip
    fold = Fold()
    fold.append({"type": "input", "x": 1}, "message 0")
    execution = Execution(plan.calls, plan.lanes[None].graph, fold, plan.tools)
    (start,) = execution.decide(DATE)
    assert isinstance(start, Start)
    assert (start.call.runner.executor, start.parameters) == (Executor.LATENT, {"about": 1})
    assert execution.finish(0, Success({"a": 1}), DATE).messages[0]["data"] == {"a": {"a": 1}}


def test_r4_7_without_a_model_that_is_a_structural_error() -> None:
    raw = {"_tool": "think", "_outputPath": "†state.a"}
    found = problems_of(raw, activities={}, model=False)
    assert pointers(found) == ["/solution/calls/0"]
    assert "no model is configured" in found[0].message
    assert len(checked({**raw, "_output": 1}, activities={}, model=False).calls) == 1


def test_an_error_message_can_always_be_stored_and_is_bounded() -> None:
    plan = checked(call(to="†state.a"))
    execution = Execution(plan.calls, plan.lanes[None].graph, Fold(), plan.tools)
    error = execution.finish(0, Failure("Odd\ud800", "\udcff" + "x" * 1_000_000), DATE).error
    assert error is not None
    assert len(str(error).encode()) < 10_000


def test_functions_of_the_tests_raise_what_they_say() -> None:
    with pytest.raises(LookupError, match="because"):
        fail({"because": "because"}, {})
