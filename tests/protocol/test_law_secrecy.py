"""Laws of secrecy (SPEC R7.2): what is said of a value that does not fit holds nothing of it, whatever refuses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from acts_celery.protocol import Problem, Reference
from acts_celery.protocol.calls.outputs import write_problems
from acts_celery.protocol.calls.tools import Tool
from acts_celery.protocol.paths import MISSING
from acts_celery.protocol.schemas import CompiledSchema
from acts_celery.protocol.state.operations import Method, Operation

from .schema_strategies import schema_values, schemas

TEXT, NAME, NUMBER = "Quetzal", "Xolotl", 7654.25
REFUSING: list[tuple[str, Any, Any]] = [
    ("type", {"type": "boolean"}, TEXT),
    ("enum", {"enum": [1, None]}, [TEXT]),
    ("const", {"const": {"a": 1}}, {NAME: TEXT}),
    ("minimum", {"minimum": 10_000}, NUMBER),
    ("maximum", {"maximum": 1}, NUMBER),
    ("exclusiveMinimum", {"exclusiveMinimum": 10_000}, NUMBER),
    ("exclusiveMaximum", {"exclusiveMaximum": 1}, NUMBER),
    ("multipleOf", {"multipleOf": 2}, NUMBER),
    ("minLength", {"minLength": 100}, TEXT),
    ("maxLength", {"maxLength": 0}, TEXT),
    ("pattern", {"pattern": "^a"}, TEXT),
    ("minItems", {"minItems": 9}, [TEXT]),
    ("maxItems", {"maxItems": 0}, [TEXT]),
    ("uniqueItems", {"uniqueItems": True}, [{NAME: TEXT}, {NAME: TEXT}]),
    ("items", {"items": False}, [TEXT]),
    ("items", {"prefixItems": [True], "items": False}, ["Alex", TEXT, NUMBER]),
    ("items", {"items": {"type": "null"}}, [TEXT]),
    ("prefixItems", {"prefixItems": [False]}, [TEXT]),
    ("contains", {"contains": False}, [TEXT]),
    ("contains", {"contains": True, "minContains": 3}, [TEXT]),
    ("contains", {"contains": True, "maxContains": 0}, [TEXT]),
    ("minProperties", {"minProperties": 3}, {NAME: TEXT}),
    ("maxProperties", {"maxProperties": 0}, {NAME: TEXT}),
    ("required", {"required": ["a"]}, {NAME: TEXT}),
    ("properties", {"properties": {"a": {"type": "null"}}}, {"a": {NAME: TEXT}}),
    ("patternProperties", {"patternProperties": {"^X": {"type": "null"}}}, {NAME: [TEXT]}),
    ("additionalProperties", {"additionalProperties": False}, {NAME: TEXT}),
    ("additionalProperties", {"patternProperties": {"^a": True}, "additionalProperties": False}, {NAME: TEXT}),
    ("additionalProperties", {"additionalProperties": {"items": {"type": "null"}}}, {NAME: [TEXT]}),
    ("propertyNames", {"propertyNames": {"maxLength": 1}}, {NAME: 1}),
    ("propertyNames", {"propertyNames": False}, {NAME: 1}),
    ("dependentRequired", {"dependentRequired": {"a": ["b"]}}, {"a": TEXT, NAME: 1}),
    ("dependentSchemas", {"dependentSchemas": {"a": {"maxProperties": 1}}}, {"a": TEXT, NAME: 1}),
    ("unevaluatedItems", {"prefixItems": [True], "unevaluatedItems": False}, ["Alex", TEXT]),
    ("unevaluatedItems", {"unevaluatedItems": {"type": "null"}}, [TEXT]),
    ("unevaluatedProperties", {"unevaluatedProperties": False}, {NAME: TEXT}),
    ("unevaluatedProperties", {"unevaluatedProperties": {"type": "null"}}, {NAME: TEXT}),
    ("allOf", {"allOf": [False]}, TEXT),
    ("anyOf", {"anyOf": [False, {"type": "null"}]}, {NAME: TEXT}),
    ("oneOf", {"oneOf": [True, True]}, [TEXT]),
    ("oneOf", {"oneOf": [False]}, [TEXT]),
    ("not", {"not": True}, TEXT),
    ("if", {"if": True, "then": {"type": "null"}}, TEXT),
    ("if", {"if": False, "else": {"type": "null"}}, TEXT),
    ("$ref", {"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}, TEXT),
    ("$dynamicRef", {"$dynamicRef": "#a", "$defs": {"a": {"$dynamicAnchor": "a", "type": "null"}}}, TEXT),
]


Inside = Callable[[Any, Any], tuple[Any, Any]]
INSIDE: dict[str, Inside] = {
    "properties": lambda schema, value: ({"properties": {"p": schema}}, {"p": value}),
    "additionalProperties": lambda schema, value: ({"additionalProperties": schema}, {NAME: value}),
    "unevaluatedProperties": lambda schema, value: ({"unevaluatedProperties": schema}, {NAME: value}),
    "patternProperties": lambda schema, value: ({"patternProperties": {"^X": schema}}, {NAME: value}),
    "items": lambda schema, value: ({"items": schema}, [value, value]),
    "prefixItems": lambda schema, value: ({"prefixItems": [schema]}, [value, NAME]),
    "contains": lambda schema, value: ({"contains": schema}, [value]),
    "allOf": lambda schema, value: ({"allOf": [schema]}, value),
    "anyOf": lambda schema, value: ({"anyOf": [schema, False]}, value),
    "oneOf": lambda schema, value: ({"oneOf": [schema, False]}, value),
    "not": lambda schema, value: ({"not": {"not": schema}}, value),
    "if": lambda schema, value: ({"if": schema, "else": False}, value),
    "then": lambda schema, value: ({"if": True, "then": schema}, value),
    "dependentSchemas": lambda schema, value: (
        {"dependentSchemas": {"p": {"properties": {"p": schema}}}},
        {"p": value, NAME: TEXT},
    ),
}


def told(schema: Any, value: Any, known: tuple[str, ...] = ()) -> list[Problem]:
    return CompiledSchema(schema).problems(value, known=known)


def told_of_a_write(schema: Any, value: Any, method: Method = Method.SET) -> list[Problem]:
    return write_problems(CompiledSchema(schema), Operation(Reference("state"), method, value, "test"), MISSING)


def holds_a_secret(problem: Problem) -> bool:
    return any(secret in str(problem) for secret in (TEXT, NAME, str(NUMBER)))


@pytest.mark.parametrize(("keyword", "schema", "value"), REFUSING)
def test_no_keyword_tells_what_it_refuses(keyword: str, schema: Any, value: Any) -> None:
    problems = told(schema, value)
    assert problems
    assert not any(map(holds_a_secret, (*problems, *told_of_a_write(schema, value))))


@given(st.sampled_from(REFUSING), st.lists(st.sampled_from(sorted(INSIDE)), max_size=4))
def test_nor_does_it_inside_of_others(refusing: tuple[str, Any, Any], inside: list[str]) -> None:
    _, schema, value = refusing
    definitions = (
        {"$defs": schema.pop("$defs")} if isinstance(schema, dict) and "$defs" in (schema := {**schema}) else {}
    )
    for keyword in inside:
        schema, value = INSIDE[keyword](schema, value)
    schema = {**schema, **definitions} if definitions else schema
    problems = told(schema, value)
    assert problems
    assert not any(map(holds_a_secret, (*problems, *told_of_a_write(schema, value))))
    if isinstance(value, dict):
        whole = schema if isinstance(schema, dict) else {"allOf": [schema]}
        known = {**value, "_outputPath": "†state.x"}
        assert not any(TEXT in str(problem) for problem in Tool("t", whole).problems(known, is_secret=True))


def test_every_keyword_that_can_refuse_a_value_was_tried() -> None:
    asserting = set(Draft202012Validator.VALIDATORS) - {"format"}  # an annotation: it refuses nothing
    assert {keyword for keyword, _, _ in REFUSING} == asserting


@given(schemas(), schema_values, st.sampled_from([Method.SET, Method.PUSH, Method.MERGE]))
def test_of_what_is_written_the_same_is_said_whatever_it_is(schema: Any, value: Any, method: Method) -> None:
    value = {"a": value} if method is Method.MERGE else value
    said = [
        write_problems(
            CompiledSchema(schema),
            Operation(Reference("state", ("a", "b")), method, _spelled(value, letter), ""),
            MISSING,
        )
        for letter in "QZ"
    ]
    assert said[0] == said[1]


def _spelled(value: Any, letter: str) -> Any:
    """The value with other texts and names: as long as they were, as different from each other, and in no schema."""
    if isinstance(value, str):
        return letter * len(value)
    if isinstance(value, dict):
        return {letter * (ord(name) - 96): _spelled(item, letter) for name, item in value.items()}
    return [_spelled(item, letter) for item in value] if isinstance(value, list) else value


def test_names_that_are_known_anyway_are_reported() -> None:
    schema = {"additionalProperties": {"additionalProperties": {"type": "null"}}}
    value = {"people": {NAME: TEXT}}
    assert [str(problem) for problem in told(schema, value, known=("people",))] == [
        '/people: below it, the value is not of type "null"'
    ]


def test_where_names_are_left_out_what_is_said_alike_is_said_once() -> None:
    schema = {"additionalProperties": {"type": "null"}}
    assert [str(problem) for problem in told(schema, {NAME: TEXT, TEXT: NAME})] == [
        '/: below it, the value is not of type "null"'
    ]
