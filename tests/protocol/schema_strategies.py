"""Strategies: JSON Schemas and values that fit them or nearly do."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from acts_celery.protocol.schemas import schema_problem

schema_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-1, 2), st.sampled_from([0.5, "", "x", "xy"])),
    lambda below: st.lists(below, max_size=3) | st.dictionaries(st.sampled_from("abc"), below, max_size=3),
    max_leaves=6,
)


def _schemas(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(below, min_size=1, max_size=2)
    named = st.dictionaries(st.sampled_from("abc"), below, max_size=2)
    numbers = st.sampled_from([-1, 0, 0.5, 1, 1.5])
    return st.fixed_dictionaries(
        {},
        optional={
            "type": st.sampled_from(["object", "array", "string", "integer", "number", "null", "boolean"]),
            "properties": named,
            "required": st.lists(st.sampled_from("abc"), max_size=2, unique=True),
            "additionalProperties": below,
            "unevaluatedProperties": below,
            "unevaluatedItems": below,
            "patternProperties": st.dictionaries(st.sampled_from(["^a", "b", "(?<!a)$"]), below, max_size=1),
            "dependentSchemas": named,
            "items": below,
            "prefixItems": several,
            "contains": below,
            "minContains": st.integers(0, 2),
            "maxContains": st.integers(0, 2),
            "propertyNames": below,
            "dependentRequired": st.dictionaries(
                st.sampled_from("abc"), st.lists(st.sampled_from("abc"), max_size=2, unique=True), max_size=2
            ),
            "minItems": st.integers(0, 2),
            "maxItems": st.integers(0, 2),
            "uniqueItems": st.booleans(),
            "minProperties": st.integers(0, 2),
            "maxProperties": st.integers(0, 2),
            "const": schema_values,
            "enum": st.lists(schema_values, min_size=1, max_size=3),
            "minimum": numbers,
            "maximum": numbers,
            "exclusiveMinimum": numbers,
            "exclusiveMaximum": numbers,
            "multipleOf": st.sampled_from([0.5, 1, 2]),
            "format": st.sampled_from(["date", "email"]),
            "minLength": st.integers(0, 2),
            "maxLength": st.integers(0, 2),
            "pattern": st.sampled_from(["x", "^$", "^(?!x)"]),
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


_made = st.recursive(st.booleans(), _schemas, max_leaves=6)


@st.composite
def schemas(draw: st.DrawFn) -> Any:
    """A JSON Schema over `schema_values`; its references lead to a definition that has none."""
    schema = draw(_made)
    definition = draw(st.sampled_from([True, {"type": "integer"}, {"required": ["a"]}, {"properties": {"a": False}}]))
    made = {**schema, "$defs": {"d": definition}} if isinstance(schema, dict) else schema
    assert schema_problem(made) is None
    return made
