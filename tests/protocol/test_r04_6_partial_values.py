"""SPEC R4.6: what is written into a kind is held against the part of its schema that speaks of the place."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from acts_celery.protocol import Reference
from acts_celery.protocol.calls.outputs import write_problems
from acts_celery.protocol.schemas import compiled
from acts_celery.protocol.state.operations import Method, Operation

from .building import call, run, statuses
from .test_scale import steps

INTEGER = {"type": "integer"}
TEXT = {"type": "string"}


def outcome(schema: Any, before: Any, to: str, value: Any, method: str | None = None) -> str:
    """What becomes of a call that writes into a state that is there and has a schema."""
    context = [{"type": "state", "data": before, "schema": schema}]
    (status,) = statuses(run(call(to=f"†state{to}", value=value, _outputMethod=method), context=context))
    return status


def one(**properties: Any) -> dict[str, Any]:
    """An object schema of these properties."""
    return {"type": "object", "properties": properties}


NESTED = {"$ref": "#/$defs/n", "$defs": {"n": one(n={"$ref": "#/$defs/n"}, x=INTEGER)}}
JOINED = {"allOf": [one(a=INTEGER), {"$ref": "#/$defs/c"}], "$defs": {"c": one(a={"minimum": 5}, b=TEXT)}}
CLOSED = {"allOf": [one(a={})], "anyOf": [one(b=INTEGER), one(c={})], "unevaluatedProperties": False}


@pytest.mark.parametrize(
    ("schema", "before", "to", "value", "method", "is_admitted"),
    [
        # Siblings that are still to come are no error; a value is written whole.
        ({**one(a=INTEGER), "required": ["a", "b"], "minProperties": 3}, {}, ".a", 1, None, True),
        ({"dependentRequired": {"a": ["b"]}}, {}, ".a", 1, None, True),
        (one(a={"required": ["b"]}), {}, ".a", {}, None, False),
        (one(a={"required": ["b"]}), {}, ".a.c", 1, None, True),
        (one(a={"required": ["b"]}), {}, ".a", {"c": 1}, "merge", True),
        (one(a={"enum": [{"b": 1, "c": 1}]}), {}, ".a.b", 1, None, True),
        (one(a={"enum": [{"b": 1, "c": 1}]}), {}, ".a", {"b": 1}, None, False),
        (one(a={"oneOf": [INTEGER, {"minimum": 1}]}), {}, ".a", 5, None, False),
        (one(a={"not": TEXT}), {}, ".a", "x", None, False),
        # What was there before is not judged again.
        (one(a=INTEGER, b=INTEGER), {"a": "old and wrong"}, ".b", 1, None, True),
        (one(a={"items": INTEGER}), {"a": ["old and wrong"]}, ".a", 1, "push", True),
        # Elements are held against what is said of their index.
        (one(a={"items": INTEGER, "minItems": 2}), {}, ".a", 1, "push", True),
        (one(a={"items": INTEGER}), {"a": [1]}, ".a", "x", "push", False),
        (one(a={"prefixItems": [TEXT], "items": INTEGER}), {"a": ["x"]}, ".a", 1, "push", True),
        (one(a={"prefixItems": [TEXT], "items": INTEGER}), {"a": ["x"]}, ".a", ["x"], "concat", False),
        (one(a={"prefixItems": [TEXT], "items": False}), {"a": ["x"]}, ".a", 1, "push", False),
        (one(a={"prefixItems": [TEXT]}), {}, ".a", 1, "push", False),
        (one(a={"items": one(b=INTEGER)}), {"a": [{}]}, ".a.0.b", "x", None, False),
        (one(a={"type": "object"}), {}, ".a", 1, "push", False),
        (one(a=INTEGER), {}, ".a", [], "concat", False),
        # What is said of properties is said of no elements: digits are a key at the root, and where an object is.
        (one(a={"additionalProperties": False}), {}, ".a", 1, "push", True),
        (one(a={"additionalProperties": False}), {}, ".a.0", 1, None, True),
        (one(a={"additionalProperties": False}), {"a": {}}, ".a.0", 1, None, False),
        ({"additionalProperties": False}, {}, ".2024", 1, None, False),
        ({"properties": {"2024": INTEGER}, "items": False}, {}, ".2024", 1, None, True),
        # Texts that are joined are held against their type.
        (one(a={**TEXT, "minLength": 3, "pattern": "^abc$"}), {}, ".a", "ab", "concat", True),
        (one(a=INTEGER), {}, ".a", "ab", "concat", False),
        # What is merged or assigned, each part at its own place.
        (one(a=one(b=INTEGER)), {}, "", {"a": {"b": "x"}}, "merge", False),
        (one(a=one(b=INTEGER)), {}, "", {"a": {"c": "x"}}, "merge", True),
        (one(a=one(b={"required": ["c"]})), {}, ".a", {"b": {}}, "assign", False),
        (one(a=one(b={"required": ["c"]})), {}, ".a", {"b": {}}, "merge", True),
        (one(a=INTEGER), {}, ".a", {}, "merge", False),
        # The way to the place.
        (one(a=INTEGER), {}, ".a.b", 1, None, False),
        (one(a={"type": "array"}), {"a": {}}, ".a.b", 1, None, False),
        ({"patternProperties": {"^n": INTEGER}, "additionalProperties": TEXT}, {}, ".n", "x", None, False),
        ({"patternProperties": {"^n": INTEGER}, "additionalProperties": TEXT}, {}, ".m", "x", None, True),
        ({"patternProperties": {"^n": INTEGER}, "additionalProperties": False}, {}, ".m", 1, None, False),
        (JOINED, {}, ".a", 5, None, True),
        (JOINED, {}, ".a", 4, None, False),
        (JOINED, {}, ".b", 4, None, False),
        (CLOSED, {}, ".a", 1, None, True),
        (CLOSED, {}, ".b", 1, None, True),
        (CLOSED, {}, ".d", 1, None, False),
        ({**CLOSED, "unevaluatedProperties": INTEGER}, {}, ".d", "x", None, False),
        ({**CLOSED, "unevaluatedProperties": INTEGER}, {}, ".d", 1, None, True),
        (one(a={"prefixItems": [{}], "unevaluatedItems": False}), {"a": [1]}, ".a", 2, "push", False),
        (one(a={"prefixItems": [{}], "unevaluatedItems": False}), {}, ".a", 2, "push", True),
        (NESTED, {}, ".n.n.x", "x", None, False),
        (NESTED, {}, ".n.n.x", 1, None, True),
        ({"$dynamicAnchor": "n", **one(n={"$dynamicRef": "#n"}, x=INTEGER)}, {}, ".n.n.x", "x", None, False),
        ({"$dynamicAnchor": "n", **one(n={"$dynamicRef": "#n"}, x=INTEGER)}, {}, ".n.n.x", 1, None, True),
    ],
)  # fmt: skip
def test_r4_6_a_value_is_held_against_what_the_schema_says_of_its_place(
    schema: Any, before: Any, to: str, value: Any, method: str | None, is_admitted: bool
) -> None:
    assert outcome(schema, before, to, value, method) == ("done" if is_admitted else "failed")


@pytest.mark.parametrize(
    ("schema", "before", "to", "value", "method"),
    [
        ({"maxProperties": 1}, {"x": 1}, ".y", 1, None),
        ({"not": {"required": ["secret"]}}, {}, ".secret", 1, None),
        ({"oneOf": [one(a=INTEGER), one(a=TEXT)]}, {}, ".a", True, None),
        ({"if": one(kind={"const": "a"}), "then": one(x=INTEGER)}, {"kind": "a"}, ".x", "x", None),
        (one(a={"maxItems": 2}), {"a": [1, 2]}, ".a", 3, "push"),
        (one(a={"uniqueItems": True}), {"a": [1]}, ".a", 1, "push"),
        (one(a={"maxLength": 3}), {"a": "ab"}, ".a", "cd", "concat"),
    ],
)
def test_r4_6_what_is_said_of_more_than_the_place_is_not_enforced_while_a_value_comes_together(
    schema: Any, before: Any, to: str, value: Any, method: str | None
) -> None:
    assert outcome(schema, before, to, value, method) == "done"


def test_r4_6_the_error_says_where_in_the_state() -> None:
    schema = one(users={"items": one(age=INTEGER)})
    result = run(call(to="†state.users.0.age", value="x"), context=[{"type": "state", "users": [{}], "schema": schema}])
    error = result.outcome(0).error
    assert error is not None
    assert error["message"] == (
        'the schema of state forbids the value at †state.users.0.age: /users/0/age: the value is not of type "integer"'
    )


def test_r4_6_of_a_value_that_is_merged_the_names_in_the_schema_are_reported_and_no_others() -> None:
    schema = one(users={"additionalProperties": one(age=INTEGER)})
    result = run(
        call(to="†state", value={"users": {"Xolotl": {"age": "x"}}}, _outputMethod="merge"),
        context=[{"type": "state", "schema": schema}],
    )
    error = result.outcome(0).error
    assert error is not None
    assert error["message"].endswith('/users: below it, the value is not of type "integer"')


def test_r4_6_a_conflict_elsewhere_is_no_matter() -> None:
    context = [
        {"type": "state", "n": 5, "schema": one(a=INTEGER)},
        {"type": "state", "data": {"n": 1}, "_outputMethod": "push", "_call": {"_outputPath": "n"}},
    ]
    calls = call(to="†state.a", value="x"), call(to="†state.a", value=1)
    assert statuses(run(*calls, context=context)) == ["failed", "done"]


def test_r4_6_a_write_costs_the_same_however_large_the_value_is_that_it_is_written_into() -> None:
    schema = compiled({"properties": {"l": {"items": TEXT}}, "additionalProperties": INTEGER})
    few, many = ({"l": ["x"] * size, **{f"k{n}": n for n in range(size)}} for size in (10, 10_000))
    for path, method, value in ((("l",), Method.PUSH, "x"), (("k0",), Method.SET, 1), (("l", 3), Method.SET, "x")):
        operation = Operation(Reference("state", path), method, value, "")
        little, much = (steps(partial(write_problems, schema, operation, root)) for root in (few, many))
        assert much < 2 * little
