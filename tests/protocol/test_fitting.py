"""Fitting: what can never be what another schema admits, and what might (SPEC R4.1, R6.7)."""

from __future__ import annotations

from typing import Any

import pytest

from protocol.analysis.findings.cases import shape_at
from protocol.analysis.findings.fitting import misfit
from protocol.analysis.findings.ranges import Range

INTEGER: dict[str, Any] = {"type": "integer"}
STRING: dict[str, Any] = {"type": "string"}
NULL: dict[str, Any] = {"type": "null"}
USER: dict[str, Any] = {"type": "object", "properties": {"id": INTEGER}, "required": ["id"]}
MAYBE_USER: dict[str, Any] = {"anyOf": [{"$ref": "#/$defs/User"}, NULL], "$defs": {"User": USER}}


def why(given: Any, wanted: Any) -> str | None:
    return misfit(shape_at(given), shape_at(wanted))


def union(*tags: Any) -> dict[str, Any]:
    """One of several objects, told apart by a tag."""
    return {"anyOf": [{"type": "object", "properties": {"t": {"const": tag}}, "required": ["t"]} for tag in tags]}


def test_unions_that_have_no_variant_in_common_exclude_each_other() -> None:
    assert "in 't', " in str(why(union("a", "c"), union("b", "d")))
    assert why(union("a", "c"), union("b", "c")) is None
    assert why(union(1, {"x": [2]}), union(True, {"x": [2.0]})) is None
    assert why(union(1), union(True)) is not None


@pytest.mark.parametrize(
    ("given", "wanted", "reason"),
    [
        ({"anyOf": [STRING, NULL]}, INTEGER, "string or null is not integer"),
        (INTEGER, {"oneOf": [STRING, NULL]}, "integer is not string or null"),
        ({"anyOf": [STRING, INTEGER]}, {"anyOf": [{"type": "array"}, NULL]}, "string or integer is not array or null"),
        ({"anyOf": [{"const": 1}, {"enum": [2, 3]}]}, {"anyOf": [STRING, {"minimum": 4}]}, "1 or 2 or 3 is not"),
        (MAYBE_USER, {"type": "object", "properties": {"id": STRING}, "required": ["id"]}, "in 'id', integer is not"),
        (MAYBE_USER, {"anyOf": [STRING, {"type": "object", "maxProperties": 0}]}, "a number of properties of at least"),
        ({"allOf": [{"anyOf": [STRING, INTEGER]}, {"anyOf": [INTEGER, NULL]}]}, STRING, "integer is not string"),
        (
            {"anyOf": [{"type": "string", "minLength": 5}, {"type": "integer", "minimum": 5}]},
            {"type": ["string", "integer"], "maxLength": 4, "maximum": 4},
            "a length of at least 5 is never one of at most 4; or a number of at least 5 is never one of at most 4",
        ),
    ],
)
def test_of_alternatives_every_one_has_to_misfit(given: Any, wanted: Any, reason: str) -> None:
    assert reason in (why(given, wanted) or "")


@pytest.mark.parametrize(
    ("given", "wanted", "reason"),
    [
        ({"enum": ["x", "y"]}, STRING | {"minLength": 3}, """"x" or "y" is not admitted: 'x' is too short"""),
        ({"const": {"a": [1]}}, {"properties": {"a": {"items": STRING}}}, "is not admitted: at /a/0, 1 is not of type"),
        ({"enum": ["x", None]}, INTEGER, '"x" or null is not integer'),
        ({"enum": ["x"]}, {"enum": ["y", "z"]}, '"x" is not "y" or "z"'),
        (STRING | {"pattern": "^a"}, {"const": "x"}, """it is never "x": 'x' does not match '^a'"""),
        (INTEGER, {"const": "x"}, 'integer is never "x"'),
    ],
)
def test_of_values_that_are_listed_it_is_told_what_is_wrong_with_them(given: Any, wanted: Any, reason: str) -> None:
    assert reason in (why(given, wanted) or "")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"anyOf": [STRING, NULL]}, NULL),
        ({"anyOf": [STRING, {"$ref": "#"}]}, STRING),
        ({"anyOf": [{"$ref": "#"}, INTEGER]}, INTEGER),
        (MAYBE_USER, NULL),
        ({"anyOf": [{"const": 1}, {"const": True}]}, {"type": "boolean"}),
        ({"anyOf": [{"minimum": n} for n in range(100)]}, {"type": "number", "maximum": 99}),
        ({"anyOf": [STRING, {"properties": {"a": STRING}}]}, {"properties": {"a": INTEGER}}),
    ],
)
def test_of_alternatives_one_that_may_fit_is_enough(given: Any, wanted: Any) -> None:
    assert why(given, wanted) is None


@pytest.mark.parametrize(
    ("given", "wanted", "reason"),
    [
        ({"minimum": 10}, {"maximum": 9}, "a number of at least 10 is never one of at most 9"),
        ({"minimum": 10}, {"exclusiveMaximum": 10}, "a number of at least 10 is never one of less than 10"),
        ({}, {"minimum": 3.2, "maximum": 3.8}, "a number of any size is never one of at least 3.2 and at most 3.8"),
        ({"exclusiveMinimum": 3}, {"exclusiveMaximum": 4}, "a number of more than 3 is never one of less than 4"),
    ],
)
def test_bounds_of_whole_numbers_that_leave_none_are_told(given: Any, wanted: Any, reason: str) -> None:
    assert why(given | INTEGER, wanted) == reason
    assert why(wanted | INTEGER, given) is not None


@pytest.mark.parametrize(
    ("given", "wanted", "reason"),
    [
        (STRING | {"minLength": 3}, {"maxLength": 2}, "a length of at least 3 is never one of at most 2"),
        ({"type": "array", "minItems": 3}, {"maxItems": 2}, "a length of at least 3 is never one of at most 2"),
        ({"type": "array", "minItems": 2}, {"prefixItems": [{}, False]}, "there is never an element 1"),
        ({"type": "array", "minItems": 1, "items": INTEGER}, {"items": STRING}, "in element 0, integer is not string"),
        ({"type": "array", "items": INTEGER}, {"items": STRING, "minItems": 1}, "in element 0, integer is not string"),
        (
            {"type": "array", "prefixItems": [{}, INTEGER]},
            {"items": STRING, "minItems": 2},
            "in element 1, integer is not string",
        ),
        (USER, {"maxProperties": 0}, "a number of properties of at least 1 is never one of at most 0"),
        (
            {"type": "object", "properties": {"a": {}}, "additionalProperties": False},
            {"minProperties": 2},
            "a number of properties of at most 1 is never one of at least 2",
        ),
    ],
)
def test_lengths_and_elements_that_exclude_each_other_are_told(given: Any, wanted: Any, reason: str) -> None:
    assert reason in (why(given, wanted) or "")


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"type": "number", "exclusiveMinimum": 3}, {"exclusiveMaximum": 4}),
        (INTEGER | {"minimum": 3}, {"maximum": 3}),
        ({"minimum": 10}, {"maximum": 9}),
        ({"type": ["integer", "string"], "minimum": 10}, {"maximum": 9}),
        (STRING | {"minimum": 10}, {"maximum": 9}),
        ({"type": "array", "items": INTEGER}, {"items": STRING}),
        ({"type": "array", "minItems": 1, "prefixItems": [STRING]}, {"prefixItems": [STRING], "items": INTEGER}),
    ],
)
def test_bounds_that_leave_something_are_not_told(given: Any, wanted: Any) -> None:
    assert why(given, wanted) is None


def test_keywords_that_a_reference_takes_from_anywhere_are_no_error() -> None:
    for default in ({"minimum": "x", "required": 5, "properties": [], "items": 1}, {"type": 5, "anyOf": 1, "enum": {}}):
        schema = {"$ref": "#/default", "default": default}
        assert why(schema, schema) is None
        assert not shape_at(schema, ("a", 0)).is_impossible


def test_what_is_optional_is_looked_into() -> None:
    assert misfit(shape_at(MAYBE_USER, ("id",)), shape_at(STRING)) == "integer is not string"
    assert shape_at({"anyOf": [STRING, NULL]}, ("id",)).is_impossible
    assert shape_at({"anyOf": [MAYBE_USER, NULL], "additionalProperties": False}, ("name",)).is_impossible


def test_an_index_that_may_lead_into_a_list_or_an_object_says_nothing() -> None:
    assert shape_at({"items": STRING}, (0,)).admits(1)
    assert shape_at({"type": "array", "additionalProperties": STRING}, (0,)).admits(1)
    assert not shape_at({"type": "array", "items": STRING}, (0,)).admits(1)


def test_a_range_says_what_belongs_to_it() -> None:
    assert str(Range(low=1, high=2, is_high_open=True)) == "at least 1 and less than 2"
    assert str(Range()) == "any size"
    assert Range(low=1).within(Range(low=1, is_low_open=True)) == Range(low=1, is_low_open=True)
    assert Range(high=1).within(Range(high=1, is_high_open=True)) == Range(high=1, is_high_open=True)
    assert not Range(low=1, high=2, is_low_open=True, is_high_open=True).has_integer


NAMED: dict[str, Any] = {"$id": "https://example.org/a", "$ref": "#/$defs/n", "$defs": {"n": INTEGER}}
BUNDLED: dict[str, Any] = {"properties": {"a": NAMED, "b": {"type": "null"}}, "required": ["a"], "$defs": {"n": STRING}}


def test_references_in_a_document_whose_parts_have_names_are_taken_to_admit_anything() -> None:
    assert why(INTEGER, {"$ref": "#/properties/a", **BUNDLED}) is None
    assert misfit(shape_at(INTEGER), shape_at(BUNDLED, ("a",))) is None
    assert shape_at(BUNDLED, ("a",)).problems(5) == []
    assert misfit(shape_at(INTEGER), shape_at(BUNDLED, ("b",))) == "integer is not null"


def test_beyond_the_most_elements_of_a_list_there_is_nothing() -> None:
    short = {"type": "array", "maxItems": 1, "items": STRING}
    assert shape_at(short, (1,)).is_impossible
    assert not shape_at(short, (0,)).is_impossible
    assert not shape_at({"type": ["array", "object"], "maxItems": 1}, (1,)).is_impossible


def test_an_index_that_is_known_to_lead_into_a_list_speaks_of_its_elements() -> None:
    assert misfit(shape_at(STRING), shape_at({"items": INTEGER}, (0,), in_lists=True)) == "string is not integer"
