"""The schema on the wire: what a strict mode takes, never narrower than the truth (SPEC R12.6)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given

from acts_celery.protocol.requests.wire import value_without_nulls
from acts_celery.protocol.schemas import compiled
from acts_celery.worker.models.delegates import enveloped
from acts_celery.worker.models.profiles import Profile
from acts_celery.worker.models.wire_schema import ANTHROPIC, OPENAI, Inexpressible, StrictMode, strict_schema
from tests.protocol.schema_strategies import schema_values, schemas

from .asked import request

LOOSE = StrictMode(False, True, 10_000, 10_000, 10_000, 10_000, 10_000)
"""Takes as much as there is, and lets what is optional be left out, so that a value is one on the wire as well."""


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


@given(schema=schemas(), value=schema_values)
def test_what_the_truth_admits_the_wire_admits(schema: Any, value: Any) -> None:
    assume(not compiled(schema).problems(value))
    try:
        wire = strict_schema(enveloped(schema), LOOSE)
    except Inexpressible:
        return
    assert not compiled(wire).problems({"output": value})


def test_every_property_is_required_and_what_may_be_left_out_admits_null() -> None:
    truth = closed(city={"type": "string"}, days={"type": "integer", "minimum": 1}, note=closed())
    truth["required"] = ["city"]
    wire = strict_schema(truth, OPENAI)
    assert wire["required"] == ["city", "days", "note"]
    assert wire["properties"]["days"] == {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}
    answer = {"city": "Tver", "days": None, "note": None}
    assert not compiled(wire).problems(answer)
    assert value_without_nulls(truth, answer) == {"city": "Tver"}


@pytest.mark.parametrize("fits", [{"const": {"a": None}}, {"minProperties": 1}])
def test_a_null_without_which_the_value_would_be_wrong_stays(fits: dict[str, Any]) -> None:
    schema = {"anyOf": [closed(), {}], **fits}
    assert value_without_nulls(schema, {"a": None}) == {"a": None}


@pytest.mark.parametrize(
    ("schema", "wire"),
    [
        ({"const": "a"}, {"type": "string", "enum": ["a"]}),
        ({"enum": ["a", None]}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"type": ["string", "null"]}, {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        ({"type": "string", "minLength": 3, "not": {"const": "abc"}}, {"type": "string"}),
        ({"type": "string", "format": "date", "pattern": "^(?!x).*$"}, {"type": "string"}),
        ({"type": "string", "pattern": "^[a-z]+$"}, {"type": "string", "pattern": "^[a-z]+$"}),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, {"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        ({"allOf": [{}, {"minimum": 3}, {"type": "integer"}]}, {"type": "integer"}),
        ({"type": "array", "maxItems": 0}, {"type": "array", "maxItems": 0, "items": {"type": "null"}}),
        (
            {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}},
            {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
        ),
        ({"description": "a place", "type": "string"}, {"description": "a place", "type": "string"}),
    ],
)
def test_a_keyword_that_cannot_be_said_is_left_out(schema: Any, wire: Any) -> None:
    assert strict_schema(closed(output=schema), OPENAI)["properties"]["output"] == wire


def test_definitions_are_written_as_far_as_they_are_needed_and_may_be_recursive() -> None:
    tree = {"type": "object", "properties": {"below": {"$ref": "#/$defs/tree"}}, "additionalProperties": False}
    wire = strict_schema({**closed(output={"$ref": "#/$defs/tree"}), "$defs": {"tree": tree, "other": {}}}, OPENAI)
    assert wire["properties"]["output"] == {"$ref": "#/$defs/tree"}
    assert wire["$defs"].keys() == {"tree"}
    assert not compiled(wire).problems({"output": {"below": {"below": None}}})


@pytest.mark.parametrize(
    "schema",
    [
        {},
        True,
        {"type": "object"},
        {"type": "object", "properties": {"a": {"type": "string"}}},
        {"type": "array"},
        {"enum": [{}]},
        {"enum": []},
        {"$ref": "#/properties/output"},
        {"anyOf": [{"type": "string"}, {}]},
        {"minimum": 3},
    ],
)
def test_what_would_have_to_be_narrower_is_inexpressible(schema: Any) -> None:
    with pytest.raises(Inexpressible):
        strict_schema(closed(output=schema), OPENAI)


def test_what_is_more_than_a_provider_takes_is_inexpressible() -> None:
    many = closed(**{f"p{number}": {"type": "string"} for number in range(30)})
    assert strict_schema(many, ANTHROPIC)
    many["required"] = []
    with pytest.raises(Inexpressible, match="30 properties that may be left out, where 24 are allowed"):
        strict_schema(many, ANTHROPIC)
    with pytest.raises(Inexpressible, match="1001 listed values"):
        strict_schema(closed(output={"enum": [*range(1_001)]}), OPENAI)


def test_what_cannot_be_said_is_sent_unenforced_shown_to_the_model_and_a_finding() -> None:
    fitted = Profile(OPENAI).fitted(request("hello", schema=closed(output={})))
    assert (fitted.format, fitted.is_strict) == (None, False)
    assert '"additionalProperties":false' in fitted.messages[1]["content"]
    assert "it admits any value" in fitted.findings[0]


def test_what_can_be_said_is_enforced_and_not_shown_twice() -> None:
    fitted = Profile(OPENAI).fitted(request("hello", schema=closed(output={"type": "string"})))
    assert (len(fitted.messages), fitted.is_strict, fitted.findings) == (1, True, ())
