"""Analysis: what is read and written, held against schemas (SPEC R3.5, R4.1, R4.6)."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import pytest

from acts_celery.protocol import Finding, Rejected, check_submission

from .building import ANY, call, checked, plan_submission, run, statuses, submission

INTEGER = {"type": "integer"}
STRING = {"type": "string"}
CLOSED = {"type": "object", "properties": {"age": INTEGER}, "additionalProperties": False}
USER = {"type": "object", "properties": {"id": INTEGER}, "required": ["id"]}
SECONDS = 5


def giving(schema: Any) -> dict[str, Any]:
    """A tool whose result has this schema."""
    return {"type": "object", "properties": {"_output": schema}}


def taking(schema: Any) -> dict[str, Any]:
    """A tool whose parameter `value` has this schema."""
    return {"type": "object", "properties": {"value": schema}}


def joined(given: Any, wanted: Any, path: str = "†data.x", *between: Any, **parts: Any) -> list[Finding]:
    """What is found of a call that gives something at `†data.x`, and one that takes what is at a path."""
    tools = {"make": giving(given), "take": taking(wanted)}
    calls = call("make", to="†data.x"), *between, call("take", value=path, to="†state.taken")
    return [found for found in checked(*calls, tools=tools, **parts).findings if found.code.startswith("ACT2")]


@pytest.mark.parametrize(
    ("given", "wanted", "path", "why"),
    [
        (INTEGER, STRING, "†data.x", "returns integer, and take takes string"),
        ({"type": ["null", "number"]}, STRING, "†data.x", "returns null or number"),
        ({"enum": ["a", "b"]}, {"enum": ["c"]}, "†data.x", 'returns "a" or "b", and take takes "c"'),
        (STRING, {"const": 2}, "†data.x", "returns string, and take takes 2"),
        ({"type": "string", "maxLength": 1}, {"enum": ["ab"]}, "†data.x", "string (length at most 1)"),
        (CLOSED, STRING, "†data.x.age", "returns integer"),
        (CLOSED, {"type": "object", "required": ["name"]}, "†data.x", "returns object, and take takes object"),
        ({"type": "array", "items": INTEGER}, STRING, "†data.x.0", "returns integer"),
        ({"type": "array", "items": INTEGER}, STRING, "†data.x", "returns list of integer"),
        ({"$ref": "#/$defs/n", "$defs": {"n": INTEGER}}, STRING, "†data.x", "returns integer"),
        ({"allOf": [{"type": ["string", "integer"]}, INTEGER]}, STRING, "†data.x", "returns integer"),
    ],
)
def test_a_result_that_is_never_what_its_reader_takes_is_found(given: Any, wanted: Any, path: str, why: str) -> None:
    (found,) = joined(given, wanted, path)
    assert (found.code, found.calls, found.pointer) == ("ACT201", (0, 1), "/solution/calls/1/value")
    assert found.message.startswith(f"call 1 (take) reads {path} at /value, where call 0 (make) returns")
    assert why in found.message


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
        ({"type": "object"}, {"type": "object", "required": ["name"]}, "†data.x"),
        (CLOSED, {"type": "object", "properties": {"age": STRING}}, "†data.x"),
        ({"items": INTEGER}, STRING, "†data.x.0"),
        (INTEGER, {"type": "object"}, "†data"),
        ({"type": "object", "properties": {"a": {}}, "patternProperties": {"^x-": {}}}, STRING, "†data.x.x-more"),
    ],
)
def test_nothing_is_said_where_a_value_may_fit(given: Any, wanted: Any, path: str) -> None:
    assert joined(given, wanted, path) == []


def test_nothing_is_said_where_the_value_may_come_from_elsewhere() -> None:
    assert joined(INTEGER, STRING, "†data.x", call("give", to="†data.x", value="†data.x")) == []
    failing = call("give", to="†data.x || †state.failed", value="†data.x")
    assert joined(INTEGER, STRING, "†state.failed || †data.x", failing) == []


def test_of_places_joined_by_and_the_last_is_held_against_the_schema() -> None:
    context = [{"type": "state", "s": "s"}]
    assert joined(INTEGER, STRING, "†data.x && †state.s", context=context) == []
    assert [found.code for found in joined(INTEGER, STRING, "†state.s && †data.x", context=context)] == ["ACT201"]


def test_a_parameter_deep_inside_is_held_against_its_part_of_the_schema() -> None:
    wanted = {"type": "array", "items": {"type": "object", "properties": {"to": STRING}}}
    calls = call("make", to="†data.x"), call("take", value=[{"to": "†data.x"}])
    (found,) = checked(*calls, tools={"make": giving(INTEGER), "take": taking(wanted)}).findings
    assert "at /value/0/to" in found.message


def test_a_result_written_by_a_model_is_held_against_the_schema() -> None:
    thought = {"_tool": "think", "_output": 7, "_outputPath": "†data.x"}
    tools = {"think": ANY, "take": taking(STRING)}
    (found,) = checked(thought, call("take", value="†data.x"), tools=tools, activities={"take": ANY}).findings
    assert "returns 7, and take takes string" in found.message


def test_what_an_input_promises_is_held_against_its_reader() -> None:
    context = [{"type": "input", "schema": {"properties": {"n": INTEGER}}}]
    for wanted, codes in ((INTEGER, []), (STRING, ["ACT201"])):
        plan = checked(call("take", value="†input.n"), tools={"take": taking(wanted)}, context=context)
        assert [finding.code for finding in plan.findings if finding.code.startswith("ACT2")] == codes


def test_what_a_gather_call_reads_is_not_judged_by_what_one_instance_writes() -> None:
    context = [{"type": "input", "_instance": name, "n": 1} for name in ("①", "②")]
    tools = {"make": giving(INTEGER), "sum": taking({"type": "object"})}
    plan = [call("make", to="†state.x"), call("sum", value="†state.x", to="†data.sum", _gather=True, _scopes=["state"])]
    assert check_submission(plan_submission(*plan, context=context, tools=tools)).findings == ()


def test_what_a_misfit_says_is_so_when_it_runs() -> None:
    tools = {"give": giving(INTEGER), "echo": taking(STRING)}
    calls = call(to="†data.x", value=1), call("echo", value="†data.x", to="†data.y")
    assert len(checked(*calls, tools=tools).findings) == 1
    assert statuses(run(*calls, tools=tools)) == ["done", "failed"]


def test_many_calls_of_the_same_tools_give_one_finding() -> None:
    pairs = [(call("make", to=f"†data.x{n}"), call("take", value=f"†data.x{n}")) for n in range(30)]
    tools = {"make": giving(INTEGER), "take": taking(STRING)}
    (found,) = checked(*(each for pair in pairs for each in pair), tools=tools).findings
    assert "the same for 29 more calls" in found.message


def test_of_instances_whose_own_value_does_not_fit_it_is_said_which() -> None:
    context = [{"type": "input", "_instance": name, "n": value} for name, value in (("①", 1), ("②", "x"), ("③", "y"))]
    value = plan_submission(call(value="†input.n", to="out"), context=context, tools={"give": taking(INTEGER)})
    (found,) = check_submission(value).findings
    assert found.code == "ACT202"
    assert "(in 2 instances: '②', '③')" in found.message


@pytest.mark.parametrize(
    ("read", "schema", "code", "instead"),
    [
        ("†data.x.nmae", {"type": "object", "properties": {"name": {}}}, "ACT204", "write †data.x.name"),
        ("†data.x.0.name", {"type": "object", "properties": {"name": {}}}, "ACT205", "write †data.x.name"),
        ("†data.x.name", {"type": "array", "items": USER}, "ACT205", "write †data.x.0.name to read the first element"),
        ("†data.x.name", STRING, "ACT205", "read †data.x"),
        ("†data.x.ids", CLOSED, "ACT204", "name one of its fields: age"),
        ("†data.x.user.ID", {"type": "object", "properties": {"user": USER}}, "ACT204", "write †data.x.user.id"),
    ],
)
def test_a_path_that_a_result_does_not_have_is_found_with_what_to_write(
    read: str, schema: Any, code: str, instead: str
) -> None:
    assert [(found.code, found.remedy) for found in joined(schema, True, read)] == [(code, instead)]


def written(method: str | None, output: Any, wanted: Any, value: Any) -> tuple[list[str], list[str]]:
    """The findings on a call that writes into a state with a schema, and how it ends."""
    schema = {"properties": {"x": wanted}}
    parts: dict[str, Any] = {"context": [{"type": "state", "schema": schema}], "tools": {"give": {"_output": output}}}
    writing = call(value=value, to="x", **({"_outputMethod": method} if method else {}))
    return [found.code for found in checked(writing, **parts).findings], statuses(run(writing, **parts))


@pytest.mark.parametrize(
    ("method", "output", "value", "wanted", "code"),
    [
        (None, STRING, "x", INTEGER, "ACT203"),
        (None, USER, {"id": 1}, {"properties": {"id": STRING}}, "ACT203"),
        ("assign", STRING, "x", True, "ACT206"),
        ("concat", {"type": ["integer", "null"]}, 1, True, "ACT206"),
        ("push", INTEGER, 1, STRING, "ACT203"),
        ("push", INTEGER, 1, {"items": STRING}, "ACT203"),
        ("push", INTEGER, 1, {"items": False}, "ACT203"),
        ("concat", STRING, "x", {"type": "array"}, "ACT203"),
        ("assign", USER, {"id": 1}, {"type": "array"}, "ACT203"),
        ("merge", INTEGER, 1, STRING, "ACT203"),
    ],
)
def test_what_a_kind_never_admits_is_found_and_fails_the_call(
    method: str | None, output: Any, value: Any, wanted: Any, code: str
) -> None:
    assert written(method, output, wanted, value) == ([code], ["failed"])


@pytest.mark.parametrize(
    ("method", "value", "wanted"),
    [
        (None, "x", {"type": ["number", "string"]}),
        ("push", 1, {"minItems": 3}),
        ("assign", {"id": 1}, {"required": ["name"]}),
        ("merge", {"id": 1}, {"minProperties": 2}),
        ("concat", "x", {"enum": ["yz"]}),
        ("concat", [1], {"minItems": 2}),
    ],
)
def test_nothing_is_said_of_what_can_still_become_what_a_kind_asks_for(
    method: str | None, value: Any, wanted: Any
) -> None:
    assert written(method, {"const": value}, wanted, value) == ([], ["done"])


def product(factors: int, of: int) -> dict[str, Any]:
    """A schema whose alternatives multiply."""
    return {"allOf": [{"anyOf": [{"required": [f"p{n}_{m}"]} for m in range(of)]} for n in range(factors)]}


def doubled(times: int) -> dict[str, Any]:
    """A schema whose alternatives double with every definition."""
    steps = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(times)}
    return {"$ref": "#/$defs/d0", "$defs": {**steps, f"d{times}": {"type": "object"}}}


HOSTILE = [
    product(10, 4),
    product(40, 4),
    doubled(60),
    {"enum": list(range(30_000))},
    {"oneOf": [{"properties": {"k": {"minLength": n}}, "required": [f"r{n}"]} for n in range(200)]},
    {"type": "string", "pattern": "^(a+)+$"},
    {"$ref": "https://e.org/not-there"},
    {"not": product(12, 4)},
    {"if": product(6, 4), "then": product(6, 4), "else": product(6, 4)},
]


@pytest.mark.parametrize("schema", HOSTILE, ids=[*map(str, range(len(HOSTILE)))])
def test_hostile_schemas_are_compared_in_bounded_time(schema: dict[str, Any]) -> None:
    began = time.process_time()
    tools = {f"make{n}": giving(schema | {"title": str(n)}) for n in range(20)}
    calls = [call(f"make{n}", to=f"†data.x{n}") for n in range(20)]
    calls += [call("take", value=f"†data.x{n}") for n in range(20)]
    with suppress(Rejected):  # some are refused before
        plan = check_submission(submission(*calls, tools=tools | {"take": taking(schema)}))
        began = time.process_time()
        assert not any(found.code == "ACT201" for found in plan.findings)
    assert time.process_time() - began < SECONDS


@pytest.mark.nightly
def test_many_calls_and_many_instances_are_looked_at_in_seconds() -> None:
    tools = {"step": {"type": "object", "properties": {"value": STRING, "_output": USER}}}
    chain = [call("step", value=f"†data.x{n}.id" if n else "a", to=f"†data.x{n + 1}") for n in range(5_000)]
    context = [{"type": "state", "_instance": str(n), "q": n} for n in range(1_000)]
    wide = [call("step", value="†state.q" if n < 5 else f"†data.x{n - 5}", to=f"†data.x{n}") for n in range(10)]
    for value in (submission(*chain, tools=tools), plan_submission(*wide, context=context, tools=tools)):
        plan = check_submission(value)
        began = time.process_time()
        assert plan.findings
        assert time.process_time() - began < 2 * SECONDS
