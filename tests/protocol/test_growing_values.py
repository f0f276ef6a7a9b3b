"""A state's schema holds while the state comes together, piece by piece (SPEC R4.6)."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from protocol.language.paths import MISSING
from protocol.language.references import Path, Reference
from protocol.schemas import CompiledSchema, schema_problem
from protocol.schemas.growth import after
from protocol.state.fold import Fold
from protocol.state.operations import Method, Operation

from .building import call, run, statuses
from .schema_strategies import schema_values, schemas

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


BY_KIND = [one(kind={"const": "a"}, x=INTEGER), one(kind={"const": "b"}, x=TEXT)]
IF_A = {"if": {**one(kind={"const": "a"}), "required": ["kind"]}, "then": one(x=INTEGER), "else": one(x=TEXT)}
NESTED = {"$ref": "#/$defs/n", "$defs": {"n": one(n={"$ref": "#/$defs/n"}, x=INTEGER)}}
CLOSED = {"allOf": [one(a={})], "anyOf": [one(b=INTEGER), one(c={})], "unevaluatedProperties": False}


@pytest.mark.parametrize(
    ("schema", "before", "to", "value", "method", "is_admitted"),
    [
        # What is still to come is no error.
        ({**one(a=INTEGER), "required": ["a", "b"], "minProperties": 3}, {}, ".a", 1, None, True),
        ({"dependentRequired": {"a": ["b"]}}, {}, ".a", 1, None, True),
        (one(a={"required": ["b"]}), {}, ".a", {}, None, False),
        (one(a={"required": ["b"]}), {}, ".a.c", 1, None, True),
        (one(a={"required": ["b"]}), {}, ".a", {"c": 1}, "merge", True),
        (one(a={"minItems": 2}), {}, ".a", 1, "push", True),
        (one(a={"minLength": 3, "pattern": "^abc$"}), {}, ".a", "ab", "concat", True),
        (one(a={"contains": INTEGER}), {}, ".a", "x", "push", True),
        # What is there all together counts.
        (one(a={"maxItems": 2}), {"a": [1]}, ".a", 2, "push", True),
        (one(a={"maxItems": 2}), {"a": [1, 2]}, ".a", 3, "push", False),
        (one(a={"maxItems": 2}), {"a": [1]}, ".a", [2, 3], "concat", False),
        (one(a={"uniqueItems": True}), {"a": [1]}, ".a", 1, "push", False),
        (one(a={"uniqueItems": True}), {"a": [1, 2]}, ".a.1", 1, None, False),
        (one(a={"contains": INTEGER, "maxContains": 1}), {"a": [1]}, ".a", 2, "push", False),
        (one(a={"contains": INTEGER, "maxContains": 1}), {"a": [1]}, ".a", "x", "push", True),
        (one(a={"maxLength": 3}), {"a": "ab"}, ".a", "cd", "concat", False),
        (one(a={"maxLength": 4}), {"a": "ab"}, ".a", "cd", "concat", True),
        (one(a={"maxProperties": 1}), {"a": {"x": 1}}, ".a", {"y": 1}, "merge", False),
        (one(a={"maxProperties": 1}), {"a": {"x": 1}}, ".a", {"y": 1}, "assign", False),
        (one(a={"maxProperties": 1}), {"a": {"x": 1}}, ".a.y", 1, None, False),
        (one(a={"maxProperties": 1}), {"a": {"x": 1}}, ".a", {"x": 2}, "merge", True),
        ({"maxProperties": 1}, {"x": 1}, ".y", 1, None, False),
        # Only what is new is judged by itself.
        (one(a=INTEGER, b=INTEGER), {"a": "old and wrong"}, ".b", 1, None, True),
        (one(a={"items": INTEGER}), {"a": ["old and wrong"]}, ".a", 1, "push", True),
        (one(a={"items": INTEGER}), {"a": [1]}, ".a", "x", "push", False),
        (one(a={"prefixItems": [TEXT], "items": INTEGER}), {"a": ["x"]}, ".a", 1, "push", True),
        (one(a={"prefixItems": [TEXT], "items": False}), {"a": ["x"]}, ".a", 1, "push", False),
        (one(a={"prefixItems": [TEXT]}), {}, ".a", 1, "push", False),
        (one(a={"items": one(b=INTEGER)}), {"a": [{}]}, ".a.0.b", "x", None, False),
        ({"propertyNames": {"maxLength": 2}}, {"long": 1}, ".ab", 1, None, True),
        ({"propertyNames": {"maxLength": 2}}, {}, ".long", 1, None, False),
        ({"patternProperties": {"^n": INTEGER}, "additionalProperties": TEXT}, {}, ".n", "x", None, False),
        ({"patternProperties": {"^n": INTEGER}, "additionalProperties": TEXT}, {}, ".m", "x", None, True),
        ({"patternProperties": {"^n": INTEGER}, "additionalProperties": False}, {}, ".m", 1, None, False),
        (one(a={"enum": ["x", "xy"]}), {}, ".a", "z", None, False),
        (one(a={"enum": [{"b": 1, "c": 1}]}), {}, ".a.b", 1, None, True),
        (one(a={"enum": [{"b": 1, "c": 1}]}), {}, ".a", {"b": 1}, None, False),
        (one(a=INTEGER), {}, ".a.b", 1, None, False),
        (one(a={"type": "array"}), {"a": {}}, ".a.b", 1, None, False),
        # Alternatives: one must be possible with what is there.
        ({"anyOf": BY_KIND}, {}, ".x", 1, None, True),
        ({"anyOf": BY_KIND}, {}, ".x", "x", None, True),
        ({"anyOf": BY_KIND}, {}, ".x", True, None, False),
        ({"anyOf": BY_KIND}, {"kind": "a"}, ".x", 1, None, True),
        ({"anyOf": BY_KIND}, {"kind": "a"}, ".x", "x", None, False),
        ({"oneOf": BY_KIND}, {"kind": "a"}, ".x", "x", None, False),
        ({"oneOf": BY_KIND}, {"x": "x"}, ".kind", "a", None, False),
        ({"oneOf": BY_KIND}, {"x": "x"}, ".kind", "b", None, True),
        (one(l={"items": {"oneOf": BY_KIND}}), {"l": [{"kind": "b"}]}, ".l.0.x", 1, None, False),
        (one(a={"oneOf": [INTEGER, {"minimum": 1}]}), {}, ".a", 5, None, False),
        ({"oneOf": [one(a=INTEGER), one(b=INTEGER)]}, {}, ".a", 1, None, True),
        # Conditions: decided once that is sure, until then either.
        (IF_A, {"kind": "a"}, ".x", "x", None, False),
        (IF_A, {"kind": "a"}, ".x", 1, None, True),
        (IF_A, {"kind": "b"}, ".x", 1, None, False),
        (IF_A, {"kind": "b"}, ".x", "x", None, True),
        (IF_A, {}, ".x", 1, None, True),
        (IF_A, {}, ".x", "x", None, True),
        (IF_A, {}, ".x", True, None, False),
        (one(a={"if": TEXT, "then": {"minLength": 2}}), {}, ".a", "x", None, False),
        ({"if": {"required": ["p"]}, "then": {"maxProperties": 1}}, {"p": 1}, ".q", 1, None, False),
        ({"if": {"maxProperties": 1}, "then": one(a=INTEGER)}, {}, ".a", "x", None, True),
        ({"dependentSchemas": {"p": one(q=INTEGER)}}, {"p": 1}, ".q", "x", None, False),
        ({"dependentSchemas": {"p": one(q=INTEGER)}}, {}, ".q", "x", None, True),
        # Refusals: of what is sure to stay.
        ({"not": {"required": ["secret"]}}, {}, ".secret", 1, None, False),
        ({"not": {"required": ["secret"]}}, {}, ".other", 1, None, True),
        ({"not": {**one(a={"const": 1}), "required": ["a"]}}, {}, ".a", 1, None, False),
        ({"not": one(a={"const": 1})}, {}, ".b", 1, None, True),
        ({"not": one(a=one(b={"const": 1}))}, {}, ".a.b", 1, None, False),
        ({"not": {"minProperties": 2}}, {"a": 1}, ".b", 1, None, False),
        ({"not": {"maxProperties": 2}}, {}, ".a", 1, None, True),
        (one(a={"not": TEXT}), {}, ".a", "x", None, False),
        (one(a={"not": {"pattern": "x"}}), {"a": "y"}, ".a", "x", "concat", True),
        (one(a={"not": {"items": INTEGER}}), {}, ".a", 1, "push", True),
        # What nothing else speaks of.
        (CLOSED, {}, ".a", 1, None, True),
        (CLOSED, {}, ".b", 1, None, True),
        (CLOSED, {}, ".d", 1, None, False),
        (CLOSED, {"d": "old and wrong"}, ".a", 1, None, True),
        ({**CLOSED, "unevaluatedProperties": INTEGER}, {}, ".d", 1, None, True),
        ({**CLOSED, "unevaluatedProperties": INTEGER}, {}, ".d", "x", None, False),
        (one(a={"prefixItems": [{}], "unevaluatedItems": False}), {"a": [1]}, ".a", 2, "push", False),
        (one(a={"prefixItems": [{}], "unevaluatedItems": False}), {}, ".a", 2, "push", True),
        # By reference.
        (NESTED, {}, ".n.n.x", "x", None, False),
        (NESTED, {}, ".n.n.x", 1, None, True),
        ({"$dynamicAnchor": "n", **one(n={"$dynamicRef": "#n"}, x=INTEGER)}, {}, ".n.n.x", "x", None, False),
        ({"$dynamicAnchor": "n", **one(n={"$dynamicRef": "#n"}, x=INTEGER)}, {}, ".n.n.x", 1, None, True),
    ],
)  # fmt: skip
def test_r4_6_a_value_is_held_against_all_that_can_be_said_of_it_yet(
    schema: Any, before: Any, to: str, value: Any, method: str | None, is_admitted: bool
) -> None:
    assert outcome(schema, before, to, value, method) == ("done" if is_admitted else "failed")


def test_r4_6_what_is_not_enforced_while_a_value_grows() -> None:
    both = {"oneOf": [one(a=INTEGER), one(a={"minimum": 1})]}
    assert outcome(both, {}, ".a", 5) == "done", "that only one alternative fits"


@pytest.mark.parametrize("open_", [{"if": one(p=TEXT), "else": one(a={})}, {"dependentSchemas": {"p": one(a={})}}])
def test_r4_6_what_a_keyword_could_still_speak_of_is_not_unevaluated_and_all_else_is(open_: Any) -> None:
    schema = {**open_, "unevaluatedProperties": False}
    assert outcome(schema, {}, ".a", 1) == "done"
    assert outcome(schema, {}, ".d", 1) == "failed"
    assert outcome(schema, {"d": 1}, ".a", 1) == "done", "of what was there before nobody says anything"
    items = {"if": {"minItems": 3}, "then": {"items": True}, "unevaluatedItems": False}
    assert outcome(one(l=items), {}, ".l", 1, "push") == "done"
    assert outcome(one(l={"unevaluatedItems": False}), {}, ".l", 1, "push") == "failed"


def test_r4_6_the_error_says_where_in_the_state() -> None:
    schema = one(users={"items": one(age=INTEGER)})
    result = run(call(to="†state.users.0.age", value="x"), context=[{"type": "state", "users": [{}], "schema": schema}])
    error = result.outcome(0).error
    assert error is not None
    assert error["message"] == (
        "the schema of state forbids the value at †state.users.0.age: /users/0/age: the value is not of type 'integer'"
    )


def test_r4_6_joined_paths_of_one_call_count_together() -> None:
    context = [{"type": "state", "schema": {"maxProperties": 2}}]
    assert statuses(run(call(to="†state.a && †state.b", value=1), context=context)) == ["done"]
    assert statuses(run(call(to="†state.a && †state.b && †state.c", value=1), context=context)) == ["failed"]


def test_r4_6_an_instance_writes_into_what_is_there_globally() -> None:
    shared = {str(number): number for number in range(100)}
    context = [
        {"type": "state", "data": shared, "schema": {"maxProperties": 101, "properties": {"x": INTEGER}}},
        {"type": "text", "_instance": "①"},
    ]
    calls = [call(to=f"†state.{key}", value=value, _instance="①") for key, value in (("x", "x"), ("x", 1), ("y", 1))]
    assert statuses(run(*calls, context=context), "①") == ["failed", "done", "failed"]


def test_r4_6_a_conflict_elsewhere_is_no_matter() -> None:
    context = [
        {"type": "state", "n": 5, "schema": one(a=INTEGER)},
        {"type": "state", "data": {"n": 1}, "_outputMethod": "push", "_call": {"_outputPath": "n"}},
    ]
    calls = call(to="†state.a", value="x"), call(to="†state.a", value=1)
    assert statuses(run(*calls, context=context)) == ["failed", "done"]


def test_r4_6_a_push_costs_the_schema_of_its_element_and_not_of_the_list() -> None:
    schema = CompiledSchema({"properties": {"l": {"items": TEXT}}})
    operation = Operation(Reference("state", ("l",)), Method.PUSH, 1, "")
    errors = schema.problems(after({"l": list(range(10_000))}, operation), partial=True)
    assert [problem.pointer for problem in errors] == ["/l/10000"]


def _steps(value: Any, path: Path, random: Random) -> list[Operation]:
    """Some writes that make up a value."""
    place = Reference("state", path)
    if isinstance(value, dict) and (not path or random.random() < 0.6):
        if not value or random.random() < 0.2:
            return [Operation(place, random.choice([Method.MERGE, Method.ASSIGN]), value, "")]
        parts = [_steps(item, (*path, key), random) for key, item in value.items()]
        random.shuffle(parts)
        return list(_interleaved(parts, random))
    if isinstance(value, list) and random.random() < 0.6:
        if not value or random.random() < 0.2:
            return [Operation(place, Method.CONCAT, value, "")]
        return [Operation(place, Method.PUSH, item, "") for item in value]
    return [Operation(place, Method.SET, value, "")]


def _interleaved(parts: list[list[Operation]], random: Random) -> Iterator[Operation]:
    waiting = [list(part) for part in parts]
    while waiting := [part for part in waiting if part]:
        yield random.choice(waiting).pop(0)


_part = st.sampled_from([True, False, INTEGER, {"required": ["a"]}, one(a=INTEGER), one(a={"const": "x"}, b=TEXT)])
_more = st.fixed_dictionaries(
    {},
    optional={
        "maxProperties": st.integers(0, 3),
        "unevaluatedProperties": _part,
        "dependentSchemas": st.fixed_dictionaries({"a": _part}),
        "dependentRequired": st.just({"a": ["b"]}),
        "propertyNames": st.just({"maxLength": 1}),
        "oneOf": st.lists(_part, min_size=1, max_size=3),
        "not": _part,
        "if": _part,
        "then": _part,
        "else": _part,
    },
)


@given(schemas(), _more, st.dictionaries(st.sampled_from("abc"), schema_values), st.randoms(use_true_random=False))
def test_whatever_way_a_valid_value_comes_together_each_step_is_admitted(
    schema: Any, more: Any, value: Any, random: Random
) -> None:
    whole = {"allOf": [schema], "$defs": {"d": INTEGER}, **more}
    assume(schema_problem(whole) is None)  # not all keywords are supported beside each other
    compiled = CompiledSchema(whole)
    if compiled.problems(value):
        return
    fold = Fold()
    for step in _steps(value, (), random):
        assert not compiled.problems(after(fold.root("state"), step), partial=True), step
        fold.apply(step)
    assert fold.root("state") == value


@given(schema_values, schema_values, st.sampled_from(list(Method)), st.sampled_from([(), ("a",), ("a", 0), ("b",)]))
def test_what_is_judged_is_what_will_be_there(before: Any, value: Any, method: Method, path: Path) -> None:
    fold = Fold()
    fold.apply(Operation(Reference("state"), Method.SET, before, ""))
    operation = Operation(Reference("state", path), method, value, "")
    try:
        fold.verify(operation)
    except TypeError:
        assume(False)
    judged = after(fold.root("state"), operation)
    fold.apply(operation)
    assert judged == fold.root("state")
    assert after(MISSING, Operation(Reference("state"), Method.SET, value, "")) == value
