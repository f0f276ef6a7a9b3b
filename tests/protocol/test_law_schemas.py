"""Laws of lenient validation (SPEC R4.1, R4.6): what can still become valid is admitted, and nothing else is."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from protocol import parse
from protocol.schemas import CompiledSchema

schema_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-1, 2), st.sampled_from(["", "x", "xy"])),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from("abc"), below, max_size=3),
    max_leaves=6,
)


def _schemas(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(below, min_size=1, max_size=2)
    named = st.dictionaries(st.sampled_from("abc"), below, max_size=2)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array", "string", "integer", "null", "boolean"]),
            "properties": named,
            "required": st.lists(st.sampled_from("abc"), max_size=2, unique=True),
            "additionalProperties": below,
            "unevaluatedProperties": below,
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b"]), below, max_size=1),
            "dependentSchemas": named,
            "items": below,
            "prefixItems": several,
            "contains": below,
            "minItems": st.integers(0, 2),
            "maxItems": st.integers(0, 2),
            "uniqueItems": st.booleans(),
            "minProperties": st.integers(0, 2),
            "const": schema_values,
            "enum": st.lists(schema_values, min_size=1, max_size=3),
            "minimum": st.integers(-1, 1),
            "minLength": st.integers(0, 2),
            "pattern": st.sampled_from(["x", "^$"]),
            "anyOf": several,
            "oneOf": several,
            "allOf": several,
            "not": below,
            "if": below,
            "then": below,
            "else": below,
            "$ref": st.just("#/$defs/d"),
        },
    )


@st.composite
def schemas(draw: st.DrawFn) -> Any:
    """A JSON Schema over `schema_values`; its references lead to a definition that has none."""
    schema = draw(st.recursive(st.booleans(), _schemas, max_leaves=6))
    definition = draw(st.sampled_from([True, {"type": "integer"}, {"required": ["a"]}, {"properties": {"a": False}}]))
    return {**schema, "$defs": {"d": definition}} if isinstance(schema, dict) else schema


@given(schemas(), schema_values)
def test_without_expressions_leniency_changes_nothing(schema: Any, value: Any) -> None:
    compiled = CompiledSchema(schema)
    assert compiled.problems(value, lenient=True) == compiled.problems(value)


@given(schemas(), schema_values, st.randoms(use_true_random=False))
def test_what_some_values_make_valid_is_admitted_while_expressions_stand_for_them(
    schema: Any, value: Any, random: Random
) -> None:
    compiled = CompiledSchema(schema)
    if not compiled.problems(value):
        assert not compiled.problems(_with_expressions(value, random), lenient=True)


def _with_expressions(value: Any, random: Random) -> Any:
    if random.random() < 0.3:
        return parse("†state.x")
    if isinstance(value, dict):
        return {key: _with_expressions(item, random) for key, item in value.items()}
    return [_with_expressions(item, random) for item in value] if isinstance(value, list) else value


@given(schemas(), schema_values, st.randoms(use_true_random=False))
def test_what_is_valid_when_complete_is_admitted_while_properties_are_missing(
    schema: Any, value: Any, random: Random
) -> None:
    compiled = CompiledSchema(schema)
    if not compiled.problems(value):
        assert not compiled.problems(_partly(value, random), partial=True)


def _partly(value: Any, random: Random) -> Any:
    if isinstance(value, dict):
        return {key: _partly(item, random) for key, item in value.items() if random.random() < 0.7}
    return value
