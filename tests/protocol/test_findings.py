"""Findings: what `check` says of a valid submission, and what it keeps silent about (SPEC R6.7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from protocol import Finding, Plan
from protocol.analysis.findings.cases import shape_at
from protocol.analysis.findings.fitting import misfit
from protocol.graph.graph import SPELLED_OUT

from .building import ANY, call, checked, run

INTEGER = {"type": "integer"}
STRING = {"type": "string"}
CLOSED = {"type": "object", "properties": {"age": INTEGER}, "additionalProperties": False}
BRANCHING = call(to="†data.good || †data.bad")


def giving(schema: Any) -> dict[str, Any]:
    """A tool whose result has this schema."""
    return {"type": "object", "properties": {"_output": schema}}


def taking(schema: Any) -> dict[str, Any]:
    """A tool whose parameter `value` has this schema."""
    return {"type": "object", "properties": {"value": schema}}


def joined(given: Any, wanted: Any, path: str = "†data.x", *between: dict[str, Any], **parts: Any) -> Plan:
    """A call that gives something at `†data.x`, and one that takes what is at a path."""
    tools = {"make": giving(given), "take": taking(wanted)}
    return checked(call("make", to="†data.x"), *between, call("take", value=path), tools=tools, **parts)


def said(findings: Sequence[Finding]) -> list[tuple[str, tuple[int, ...]]]:
    return [(finding.severity, finding.calls) for finding in findings]


# Promises: `_output` against the parameter that reads it


@pytest.mark.parametrize(
    ("given", "wanted", "path", "why"),
    [
        (INTEGER, STRING, "†data.x", "integer is not string"),
        ({"type": ["null", "number"]}, STRING, "†data.x", "number or null is not string"),
        ({"enum": ["a", "b"]}, {"enum": ["c"]}, "†data.x", '"a" or "b" is not "c"'),
        ({"const": 1}, {"const": 2}, "†data.x", "1 is not 2"),
        (STRING, {"const": 2}, "†data.x", "string is never 2"),
        (
            {"type": "string", "maxLength": 1},
            {"enum": ["ab", "cd"]},
            "†data.x",
            'never "ab" or "cd": \'ab\' is too long',
        ),
        (CLOSED, STRING, "†data.x.age", "integer is not string"),
        (CLOSED, {"type": "object", "required": ["name"]}, "†data.x", "it never has 'name', which is required"),
        (
            {"type": "object", "required": ["age"]},
            {"type": "object", "additionalProperties": False},
            "†data.x",
            "it always has 'age', which is not admitted",
        ),
        (
            CLOSED,
            {"type": "object", "properties": {"age": STRING}, "required": ["age"]},
            "†data.x",
            "in 'age', integer",
        ),
        ({"type": "array", "items": INTEGER}, STRING, "†data.x.0", "integer is not string"),
        ({"$ref": "#/$defs/n", "$defs": {"n": INTEGER}}, STRING, "†data.x", "integer is not string"),
        ({"allOf": [{"type": ["string", "integer"]}, INTEGER]}, STRING, "†data.x", "integer is not string"),
    ],
)
def test_a_result_that_can_never_be_what_its_reader_takes_is_told(given: Any, wanted: Any, path: str, why: str) -> None:
    (finding,) = joined(given, wanted, path).findings
    assert (finding.severity, finding.calls) == ("warning", (0, 1))
    assert finding.message.startswith(f"call 1 (take) reads {path} at /value, where call 0 (make) gives")
    assert why in finding.message


def test_the_text_about_a_misfit_says_what_to_do() -> None:
    assert [finding.message for finding in joined(INTEGER, STRING).findings] == [
        "call 1 (take) reads †data.x at /value, where call 0 (make) gives what does not fit: integer is not string; "
        "change the path, or one of the schemas"
    ]


@pytest.mark.parametrize(
    ("given", "wanted", "path"),
    [
        (True, STRING, "†data.x"),
        ({}, STRING, "†data.x"),
        (INTEGER, True, "†data.x"),
        (INTEGER, {"type": "number"}, "†data.x"),
        ({"type": "number"}, INTEGER, "†data.x"),
        ({"type": ["string", "null"]}, STRING, "†data.x"),
        ({"enum": [1, "a"]}, STRING, "†data.x"),
        ({"anyOf": [INTEGER, STRING]}, STRING, "†data.x"),
        (INTEGER, {"not": {"multipleOf": 2}}, "†data.x"),
        (STRING, {"type": "string", "pattern": "^x"}, "†data.x"),
        (STRING, {"type": "string", "maxLength": 0}, "†data.x"),
        ({"type": "object"}, {"type": "object", "required": ["name"]}, "†data.x"),
        (CLOSED, {"type": "object", "properties": {"age": STRING}}, "†data.x"),
        ({"properties": {"age": INTEGER}}, STRING, "†data.x.name"),
        ({"items": INTEGER}, STRING, "†data.x.0"),
        (INTEGER, {"type": "object"}, "†data"),
    ],
)
def test_nothing_is_said_where_a_value_might_fit(given: Any, wanted: Any, path: str) -> None:
    assert joined(given, wanted, path).findings == ()


def test_a_place_that_a_result_never_has_is_told() -> None:
    (finding,) = joined(CLOSED, True, "†data.x.name").findings
    assert "nothing is ever there: what call 0 (make) gives has no such place" in finding.message
    (finding,) = joined(STRING, True, "†data.x.name").findings
    assert finding.calls == (0, 1)


def test_nothing_is_said_where_the_value_may_come_from_elsewhere() -> None:
    other = call("give", to="†data.x", value="†data.x")
    assert joined(INTEGER, STRING, "†data.x", other).findings == ()
    below = call("give", to="†data.x.y", value="†data.x")
    assert said(joined(INTEGER, {"type": "object"}, "†data.x", below).findings) == [("info", (1,))], "below a number"


def test_of_places_joined_by_and_the_last_is_held_against_the_schema() -> None:
    assert joined(INTEGER, STRING, "†data.x && †state.s", context=[{"type": "state", "s": "s"}]).findings == ()
    assert len(joined(INTEGER, STRING, "†state.s && †data.x", context=[{"type": "state", "s": "s"}]).findings) == 1


def test_a_parameter_deep_inside_is_held_against_its_part_of_the_schema() -> None:
    wanted = {"type": "array", "items": {"type": "object", "properties": {"to": STRING}}}
    calls = call("make", to="†data.x"), call("take", value=[{"to": "†data.x"}])
    plan = checked(*calls, tools={"make": giving(INTEGER), "take": taking(wanted)})
    assert "at /value/0/to" in plan.findings[0].message


def test_a_result_written_by_a_model_is_held_against_the_schema() -> None:
    thought = {"_tool": "think", "_output": 7, "_outputPath": "†data.x"}
    tools = {"think": ANY, "take": taking(STRING)}
    plan = checked(thought, call("take", value="†data.x"), tools=tools, activities={"take": taking(STRING)})
    assert "7 is not string" in plan.findings[0].message


def test_what_a_misfit_says_is_so_when_it_runs() -> None:
    tools = {"give": giving(INTEGER), "echo": taking(STRING)}
    calls = call(to="†data.x", value=1), call("echo", value="†data.x", to="†data.y")
    assert len(checked(*calls, tools=tools).findings) == 1
    assert [status.value for status in run(*calls, tools=tools).statuses[None].values()] == ["done", "failed"]


def test_schemas_that_refer_to_themselves_are_taken_to_fit() -> None:
    tree = {"type": "object", "required": ["next"], "properties": {"next": {"$ref": "#"}}}
    assert misfit(shape_at(tree), shape_at(tree)) is None


# Branches


def test_a_reader_that_needs_both_branches_can_never_run() -> None:
    (finding,) = checked(BRANCHING, call(a="†data.good", b="†data.bad")).findings
    assert (finding.severity, finding.calls) == ("warning", (0, 1))
    assert finding.message == (
        "call 1 (give) can never run: it needs †data.good and †data.bad, of which call 0 (give) writes only one; "
        "read them as alternatives (||), or split the call"
    )
    assert [status.value for status in run(BRANCHING, call(a="†data.good && †data.bad")).statuses[None].values()] == [
        "done",
        "skipped",
    ]


def test_a_reader_that_needs_both_branches_is_told_behind_more_writers_than_are_spelled_out_too() -> None:
    many = [call(to="†data.log", _outputMethod="push")] * (SPELLED_OUT + 1)
    calls = [*many, call(value="†data.log"), BRANCHING, call(a="†data.good", b="†data.bad")]
    assert said(checked(*calls).findings) == [("warning", (len(calls) - 2, len(calls) - 1))]


def test_of_many_branches_those_that_a_reader_needs_are_told() -> None:
    calls = [call(), call(to="†data.a || †data.b || †data.c && †data.d"), call(a="†data.a", d="†data.d")]
    (finding, _) = checked(*calls).findings
    assert (finding.severity, finding.calls) == ("warning", (1, 2))
    assert "call 2 (give) can never run: it needs †data.a and †data.c && †data.d, of which call 1" in finding.message


def test_of_a_reader_of_both_branches_of_several_calls_the_first_of_these_is_told() -> None:
    other = call(to="†data.yes || †data.no")
    findings = checked(BRANCHING, other, call(v="†data.yes && †data.no && †data.good && †data.bad")).findings
    (message,) = [finding.message for finding in findings if finding.calls == (0, 2)]
    assert "it needs †data.good and †data.bad, of which call 0 (give) writes only one" in message
    assert len(findings) == 1


def test_a_reader_of_both_branches_by_way_of_others_can_never_run() -> None:
    calls = [
        call(to="†data.a", value="†data.good"),
        call(to="†data.b", value="†data.bad"),
        call(v="†data.a && †data.b"),
    ]
    assert said(checked(BRANCHING, *calls).findings) == [("warning", (0, 3))]


def test_a_reader_of_either_branch_or_of_what_is_there_already_can_run() -> None:
    assert checked(BRANCHING, call(a="†data.good || †data.bad")).findings == ()
    held = [{"type": "data", "data": {"good": 1}}]
    assert checked(BRANCHING, call(a="†data.good", b="†data.bad"), context=held).findings == ()
    third = call(to="†data.bad", value="†data.good")
    assert checked(BRANCHING, third, call(a="†data.good", b="†data.bad")).findings == ()
    own = call(to="†data.good", a="†data.good", b="†data.bad")
    assert "can never run" not in str(checked(BRANCHING, own, call(to="†data.good")).findings)


@pytest.mark.parametrize("value", [["†data.a", "†data.b"], ["†data.a", "†data.b || †data.c"]])
def test_a_call_that_can_never_run_races_with_nobody(value: list[str]) -> None:
    never = call(to="†data.r", value=value)
    findings = checked(call(to="†data.a || †data.b || †data.c"), never, call(to="†data.r")).findings
    assert not any("in no certain order" in finding.message for finding in findings)


def test_a_reader_whose_alternatives_all_need_both_branches_can_never_run() -> None:
    either = call(v="†data.good && †data.bad || †data.bad && †data.good")
    assert said(checked(BRANCHING, either).findings) == [("warning", (0, 1))]
    three = call(to="†data.a || †data.b || †data.c")
    reader = call(v="†data.a", w="†data.b || †data.c")
    assert said(checked(three, reader).findings) == [("warning", (1,))]


def test_a_branch_that_nobody_reads_is_told_where_another_is_read() -> None:
    (finding,) = checked(BRANCHING, call(value="†data.good")).findings
    assert (finding.severity, finding.calls) == ("info", (0,))
    assert finding.message == "nobody reads the branch †data.bad of call 0 (give)"
    assert checked(BRANCHING).findings == ()
    assert checked(BRANCHING, call(value="†data.good", _scopes=["†data.bad"])).findings == ()
    elsewhere = call(to="†data.yes || †data.no")
    assert said(checked(elsewhere, BRANCHING, call(value="†data.bad")).findings) == [("info", (1,))]
    joined_paths = call(to="†data.good || †data.bad && †data.why")
    assert checked(joined_paths, call(value="†data.good"), call(value="†data.why")).findings == ()


# Unread results


def test_results_that_no_call_reads_are_listed() -> None:
    plan = checked(call(to="†state.a"), call(to="†state.b", value="†state.a.c"), call("see", _scopes=["data"]))
    assert plan.unread == (1,)
    assert checked(call(to="†data.a"), call("see", _scopes=["data"])).unread == ()
    assert checked(call(to="†data"), call(value="†data.a.b")).unread == ()
    thought = {"_tool": "think", "about": "†data.a"}
    assert checked(call(to="†data.a"), thought, activities={"give": ANY}).unread == (0,)


def test_a_result_beyond_the_schema_of_its_kind_that_nobody_reads_is_told() -> None:
    context = [{"type": "state", "schema": {"type": "object", "properties": {"known": {}}}}]
    plan = checked(call(to="†state.known.x"), call(to="†state.lost"), call(to="†data.free"), context=context)
    assert said(plan.findings) == [("info", (1,))]
    assert plan.findings[0].message == (
        "nobody reads what call 1 (give) writes to †state.lost, and the schema there does not name it: "
        "read it, name it in the schema, or leave the call out"
    )


# How it grows


def test_findings_about_ten_thousand_calls_are_had_at_once() -> None:
    chain = [call(to="†data.x0")] + [call(to=f"†data.x{n}", value=f"†data.x{n - 1}") for n in range(1, 10_000)]
    assert checked(*chain).findings == ()
