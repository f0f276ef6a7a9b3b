"""Schemas that share what they refer to, or name themselves twice, are read in time in proportion to their size."""

from __future__ import annotations

import time
from typing import Any

import pytest

from acts_celery.protocol import Context, Reference, Rejected, check_submission
from acts_celery.protocol.analysis.simulation import simulate
from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.plan.places import Promise, schemas_at
from acts_celery.protocol.plan.submission import decode
from acts_celery.protocol.requests import compose, read_request

SECONDS = 1.0
DEPTH = 24


def shared(keyword: str) -> dict[str, Any]:
    """Each definition refers to the next one twice."""
    definitions = {f"d{i}": {keyword: [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(DEPTH)}
    return {"$defs": {**definitions, f"d{DEPTH}": {"type": "integer"}}, "$ref": "#/$defs/d0"}


def timed(begun: float) -> bool:
    return time.process_time() - begun < SECONDS


def test_a_path_through_a_schema_that_names_itself_twice_is_followed_once() -> None:
    schema: dict[str, Any] = {"properties": {"a": {"$ref": "#"}}, "allOf": [{"$ref": "#"}, {"$ref": "#"}]}
    schema["allOf"] = [{"properties": {"a": {"$ref": "#"}}} for _ in range(2)]
    begun = time.process_time()
    assert schemas_at(schema, ("a",) * 40)
    assert timed(begun)


def test_what_a_promise_requires_is_bounded() -> None:
    levels = {
        f"d{i}": {"required": ["a", "b"], "properties": {name: {"$ref": f"#/$defs/d{i + 1}"} for name in "ab"}}
        for i in range(DEPTH)
    }
    promise = Promise(0, None, {"$defs": levels, "$ref": "#/$defs/d0"})
    begun = time.process_time()
    places = list(promise.required(Context([]).fold()))
    assert timed(begun)
    assert Reference("input", ("a",)) in places
    assert Reference("input", ("b", "a", "b")) in places


@pytest.mark.parametrize("schema", [True, False])
def test_a_promise_may_be_a_boolean(schema: bool) -> None:
    promise = Promise(0, None, schema)
    assert promise.schema_of(Reference("input")) in ({}, False)
    assert list(promise.required(Context([]).fold())) == []


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf"])
def test_a_schema_for_a_model_is_composed_once_for_what_is_shared(keyword: str) -> None:
    schema = shared(keyword)
    tools = {"t": {"properties": {"x": {"$ref": schema["$ref"]}}, "$defs": schema["$defs"]}}
    begun = time.process_time()
    assert compose(read_request({"tools": tools, "schema": {}}, Environment()))
    assert timed(begun)


def test_a_text_that_does_not_end_is_not_read_again_and_again() -> None:
    data = b'{"context": ["' + b'\\"' * 800 + b"[" * 2_000_000
    begun = time.process_time()
    with pytest.raises(Rejected):
        decode(data)
    assert timed(begun)


def test_a_path_of_thousands_of_digits_is_a_key() -> None:
    calls = [
        {"_tool": "t", "x": "state." + "9" * 5_000, "_outputPath": "†state.a"},
        {"_tool": "t", "x": "†state.a", "_outputPath": "†state." + "9" * 5_000},
    ]
    assert (
        check_submission({"solution": {"calls": calls}, "tools": {"t": {"properties": {"x": {}}}}}).findings is not None
    )


def test_a_tools_own_definition_does_not_take_the_place_of_what_is_said_of_calls() -> None:
    tools = {"t": {"properties": {"x": {"type": "integer"}}, "$defs": {"(call)": {}, "(call 0)": {}}}}
    with pytest.raises(Rejected, match="is not of type"):
        check_submission(
            {"tools": tools, "solution": {"calls": [{"_tool": "t", "x": "no", "_outputPath": "†state.a"}]}}
        )


def test_a_tool_without_a_name_is_refused() -> None:
    with pytest.raises(Rejected, match="a tool needs a name"):
        read_request({"tools": {"": {}}, "schema": {}}, Environment())


def test_r3_1_no_call_writes_errors() -> None:
    for path in ("†error.mine", "†state.a && †error", "†state.a || †error.b"):
        with pytest.raises(Rejected, match="leads to the kind error, which only the engine writes"):
            check_submission({"tools": {"t": {}}, "solution": {"calls": [{"_tool": "t", "_outputPath": path}]}})


def test_a_multiple_of_next_to_nothing_is_simulated() -> None:
    tools = {"t": {"_output": {"type": "number", "multipleOf": 1e-320}}}
    plan = check_submission({"tools": tools, "solution": {"calls": [{"_tool": "t", "_outputPath": "†state.a"}]}})
    assert simulate(plan).data is not None
