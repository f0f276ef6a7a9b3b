"""Laws of schemas (SPEC R4.1, R4.6): they mean what the draft says; leniency refuses nothing that may be right."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from acts_celery.protocol import Reference, parse
from acts_celery.protocol.calls.outputs import write_problems
from acts_celery.protocol.calls.tools import Tool
from acts_celery.protocol.paths import MISSING
from acts_celery.protocol.schemas import CompiledSchema
from acts_celery.protocol.state.operations import Method, Operation

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


@given(schemas(), st.dictionaries(st.sampled_from("ab"), schema_values), st.booleans())
def test_of_a_call_a_schema_that_mentions_no_meta_property_says_what_it_says_of_its_parameters(
    schema: Any, parameters: dict[str, Any], lenient: bool
) -> None:
    whole = schema if isinstance(schema, dict) else {"allOf": [schema]}
    tool, compiled = Tool("t", whole), CompiledSchema(whole)
    for meta in ({}, {"_outputPath": "†state.x", "_scopes": ["state"]}):
        found = tool.problems(parameters | meta, lenient=lenient)
        assert bool(found) == bool(compiled.problems(parameters)), found


def _with_expressions(value: Any, random: Random) -> Any:
    if random.random() < 0.3:
        return parse("†state.x")
    if isinstance(value, dict):
        return {key: _with_expressions(item, random) for key, item in value.items()}
    return [_with_expressions(item, random) for item in value] if isinstance(value, list) else value


@given(schemas(), schema_values, st.data())
def test_a_part_of_a_valid_value_may_be_written_where_it_stands(schema: Any, value: Any, data: st.DataObject) -> None:
    compiled = CompiledSchema(schema)
    if compiled.problems(value):
        return
    path: list[Any] = []
    while isinstance(value, (dict, list) if path else dict) and value and data.draw(st.booleans()):  # R3.5
        path.append(data.draw(st.sampled_from(sorted(value) if isinstance(value, dict) else range(len(value)))))
        value = value[path[-1]]
    written = Operation(Reference("state", tuple(path)), Method.SET, value, "")
    assert not write_problems(compiled, written, MISSING)
