"""Laws of lenient validation (SPEC R4.1, R4.6): what can still become valid is admitted, and nothing else is."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator

from protocol import parse
from protocol.schemas import CompiledSchema
from protocol.schemas.calls import WholeCall

from .schema_strategies import schema_values, schemas


@given(schemas(), schema_values)
def test_a_schema_means_what_another_implementation_of_the_draft_says(schema: Any, value: Any) -> None:
    assert (not CompiledSchema(schema).problems(value)) == Draft202012Validator(schema).is_valid(value)


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


@given(schemas(), st.dictionaries(st.sampled_from("ab"), schema_values))
def test_of_a_call_a_schema_that_mentions_no_meta_property_says_what_it_says_of_its_parameters(
    schema: Any, parameters: dict[str, Any]
) -> None:
    compiled = CompiledSchema(schema)
    for meta in ({}, {"_outputPath": "†state.x", "_scopes": ["state"]}):
        assert compiled.problems(WholeCall(parameters | meta)) == compiled.problems(parameters)
        counted = WholeCall(parameters | meta, counted=meta)
        assert compiled.problems(counted) == compiled.problems(parameters | meta)


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
