"""Schemas as providers take them (SPEC R12.6)."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

import pytest
from hypothesis import assume, given
from pydantic import BaseModel, ConfigDict, TypeAdapter

from acts_celery.broker_config import ConfiguredModel
from acts_celery.protocol.requests import compose
from acts_celery.protocol.requests.reading import value_with_texts_read, value_without_nulls
from acts_celery.protocol.requests.tool_texts import functions_of
from acts_celery.protocol.schemas import compiled
from acts_celery.worker.agent.asking import writes_texts
from acts_celery.worker.agent.fitting import Fitting
from acts_celery.worker.agent.model_calls import enveloped
from acts_celery.worker.agent.prices import PROFILES, Rules
from acts_celery.worker.agent.wire_schema import Inexpressible, UnenforcedPlace, wire_schema
from tests.protocol.schema_strategies import schema_values, schemas
from tests.protocol.test_r12_requests import request as protocol_request

from .as_sent import as_sent
from .asked import request
from .provider_rules import anthropic_faults, openai_faults
from .six_tools import Customer, Filters, Item, Priority

# The schema on the wire: what a strict mode takes, never narrower than the truth (SPEC R12.6).

RULES = {name: profile.rules for name, profile in PROFILES.items() if profile.rules is not None}
OPENAI, ANTHROPIC, GRAMMARS = (RULES[name] for name in ("openai", "anthropic", "compatible"))
NUMBER_OR_NULL = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
OF_OPENAI = ConfiguredModel(model="openai:gpt-4o")


def wire(schema: Any, rules: Rules = OPENAI) -> Any:
    return wire_schema(schema, rules).schema


def openings(schema: Any, rules: Rules = OPENAI) -> tuple[UnenforcedPlace, ...]:
    return wire_schema(schema, rules).openings


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


@pytest.mark.parametrize("name", RULES)
@given(schema=schemas(), value=schema_values)
def test_what_the_truth_admits_can_be_written_by_what_is_sent_and_is_read_as_it_was_meant(
    name: str, schema: Any, value: Any
) -> None:
    assume(not compiled(schema).problems(value))
    truth = enveloped(schema)
    try:
        sent = wire(truth, RULES[name])
    except Inexpressible:
        assume(False)
    answer = as_sent({"output": value}, sent)
    assert not compiled(sent).problems(answer)
    read, problems = value_with_texts_read(answer) if RULES[name].is_closed else (answer, [])
    assert not problems
    assert value_without_nulls(truth, read) == value_without_nulls(truth, {"output": value})


def test_every_property_is_required_and_what_may_be_left_out_admits_null() -> None:
    truth = closed(city={"type": "string"}, days={"type": "integer", "minimum": 1}, note=closed())
    truth["required"] = ["city"]
    sent = wire(truth)
    assert sent["required"] == ["city", "days", "note"]
    assert sent["properties"]["days"] == {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]}
    answer = {"city": "Tver", "days": None, "note": None}
    assert not compiled(sent).problems(answer)
    assert value_without_nulls(truth, answer) == {"city": "Tver"}


@pytest.mark.parametrize("fits", [{"const": {"a": None}}, {"minProperties": 1}])
def test_a_null_without_which_the_value_would_be_wrong_stays(fits: dict[str, Any]) -> None:
    schema = {"anyOf": [closed(), {}], **fits}
    assert value_without_nulls(schema, {"a": None}) == {"a": None}


@pytest.mark.parametrize(
    ("schema", "sent"),
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
        ({"anyOf": [{"type": "string"}, {"type": "string", "pattern": "^a$"}, {"enum": ["b"]}]}, {"type": "string"}),
        ({"anyOf": [{"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"type": "null"}]}, NUMBER_OR_NULL),
    ],
)
def test_a_keyword_that_cannot_be_said_is_left_out(schema: Any, sent: Any) -> None:
    assert wire(closed(output=schema))["properties"]["output"] == sent


TREE = {"type": "object", "properties": {"below": {"$ref": "#/$defs/tree"}}, "additionalProperties": False}
OF_TREES = {**closed(output={"$ref": "#/$defs/tree"}), "$defs": {"tree": TREE, "other": {}}}


def test_definitions_are_written_as_far_as_they_are_needed_and_may_be_recursive() -> None:
    sent = wire(OF_TREES)
    assert sent["properties"]["output"] == {"$ref": "#/$defs/tree"}
    assert sent["$defs"].keys() == {"tree"}
    assert not compiled(sent).problems({"output": {"below": {"below": None}}})


def test_what_contains_itself_is_a_text_where_the_provider_knows_no_such_thing() -> None:
    sent = wire_schema(OF_TREES, ANTHROPIC)
    assert "$defs" not in sent.schema
    assert sent.schema["properties"]["output"]["properties"].keys() == {"_json"}
    assert [str(opening) for opening in sent.openings] == ["output: it contains itself"]


def test_beside_a_reference_stands_nothing() -> None:
    sent = wire({**closed(output={"$ref": "#/$defs/tree", "description": "It grows."}), "$defs": {"tree": TREE}})
    assert sent["properties"]["output"] == {"$ref": "#/$defs/tree"}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({}, "it may be anything"),
        (True, "it may be anything"),
        ({"type": "object"}, "it may have any property"),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "it may have any property"),
        ({"type": "object", "properties": {"a": {"type": "string"}}}, "it may have further properties"),
        (
            {"type": "object", "patternProperties": {"^a": {}}, "additionalProperties": False},
            "it may have any property",
        ),
        ({"type": "array"}, "it may be anything"),
        ({"enum": [{}]}, "it may be anything"),
        ({"enum": []}, "it may be anything"),
        ({"$ref": "#/properties/output"}, "it may be anything"),
        ({"anyOf": [{"type": "string"}, {}]}, "it may be anything"),
        ({"minimum": 3}, "it may be anything"),
        (
            {"anyOf": [closed(a={"type": "string"}), closed(a={"type": "integer"})]},
            "of two objects that may stand there the first property is a",
        ),
    ],
)
def test_what_a_provider_cannot_say_is_left_open_for_itself_alone(schema: Any, reason: str) -> None:
    whole = closed(output=schema, other={"type": "integer"})
    (opening,) = openings(whole)
    assert (opening.tool, opening.place, opening.reason) == (None, "output", reason)
    assert opening.remedy
    assert wire(whole)["properties"]["other"] == {"type": "integer"}
    assert openings(whole, GRAMMARS) == ()


def test_objects_that_begin_with_constants_of_their_own_may_stand_side_by_side() -> None:
    kinds = [closed(kind={"const": name}, size={"type": "integer"}) for name in ("a", "b")]
    kinds[1]["required"] = []  # the kind may be left out, which would make both look alike
    assert openings(closed(output={"anyOf": kinds})) == ()


def test_what_is_more_than_a_provider_takes_is_inexpressible() -> None:
    many = closed(**{f"p{number}": {"type": "string"} for number in range(30)})
    assert wire(many, ANTHROPIC)
    many["required"] = []
    with pytest.raises(Inexpressible, match="30 properties that may be left out, where 24 are allowed"):
        wire(many, ANTHROPIC)
    with pytest.raises(Inexpressible, match="1001 listed values"):
        wire(closed(output={"enum": [*range(1_001)]}))
    with pytest.raises(Inexpressible, match="characters of names and listed values, where 120000 are allowed"):
        wire(closed(**{"n" * 60_000: {"type": "string"}, "m" * 60_001: {"type": "string"}}))


def test_a_long_list_of_long_values_is_any_text() -> None:
    values = [f"{number:060}" for number in range(300)]
    assert wire(closed(output={"enum": values}))["properties"]["output"] == {"type": "string"}
    assert "enum" in wire(closed(output={"enum": values[:250]}))["properties"]["output"]


@pytest.mark.parametrize(
    "innermost", [{"type": "integer"}, {}, {"type": "object"}, {"anyOf": [closed(), {"const": 1}]}]
)
@pytest.mark.parametrize("levels", range(6, 14))
@pytest.mark.parametrize("around", [lambda part: closed(a=part), lambda part: {"type": "array", "items": part}])
def test_what_lies_deeper_than_a_provider_takes_is_a_text_which_lies_no_deeper_itself(
    innermost: Any, levels: int, around: Any
) -> None:
    schema: Any = innermost
    for _ in range(levels):
        schema = around(schema)
    sent = wire_schema(closed(a=schema), OPENAI)
    assert not list(openai_faults(sent.schema))
    assert not compiled(sent.schema).problems(as_sent(answer := {"a": _sample(levels, around)}, sent.schema))
    assert value_with_texts_read(as_sent(answer, sent.schema)) == (answer, [])


def _sample(levels: int, around: Any) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value} if "properties" in around({}) else [value]
    return value


def test_what_is_cut_is_named_where_it_is_cut() -> None:
    schema: Any = {"type": "integer"}
    for _ in range(12):
        schema = closed(a=schema)
    (opening,) = openings(schema)
    assert opening.place == ".".join("a" * 8)
    assert opening.reason == "it lies 9 levels deep in what is sent"


def a_call(name: str, parameters: int) -> Any:
    schema = closed(_tool={"const": name}, **{f"p{number}": {"type": "string"} for number in range(parameters)})
    return {**schema, "required": ["_tool"]}


def test_of_too_many_tools_the_largest_have_what_may_be_left_out_as_a_text_and_the_others_stay_as_they_are() -> None:
    calls = [a_call(f"tool{number}", number) for number in range(1, 9)]
    whole = closed(calls={"type": "array", "items": {"anyOf": calls}}, output={"type": "string"})
    sent = wire_schema(whole, ANTHROPIC)
    assert {opening.place for opening in sent.openings} == {""}
    assert [opening.tool for opening in sent.openings] == ["tool7", "tool8"]
    written = sent.schema["properties"]["calls"]["items"]["anyOf"]
    assert [[*call["properties"]] for call in written[:6]] == [[*call["properties"]] for call in calls[:6]]
    assert [[*call["properties"]] for call in written[6:]] == [["_tool", "_json"]] * 2
    assert [call["required"] for call in written[6:]] == [["_tool"]] * 2


def test_where_that_is_not_enough_all_of_a_call_is_a_text() -> None:
    calls = [a_call(f"tool{number}", 1) for number in range(30)]
    for call in calls:
        call["properties"]["either"] = {"anyOf": [{"type": "integer"}, {"type": "string"}]}
        call["required"].append("either")
    sent = wire_schema(closed(calls={"type": "array", "items": {"anyOf": calls}}), ANTHROPIC)
    written = sent.schema["properties"]["calls"]["items"]["anyOf"]
    (whole,) = (call for call in written if "_json" in call["required"])
    assert [*whole["properties"]] == ["_tool", "_json"]
    assert len(whole["properties"]["_tool"]["enum"]) + len(written) - 1 == len(calls)
    assert not list(anthropic_faults(sent.schema))


def test_what_cannot_be_said_at_all_is_not_enforced_shown_to_the_model_and_a_finding() -> None:
    fitted = Fitting(OF_OPENAI, "https://api.openai.com/v1").fitted(request("hello", schema={"type": "object"}))
    assert (fitted.format, fitted.is_json, fitted.is_strict) == (None, True, False)
    assert '{"type":"object"}' in fitted.messages[1]["content"]
    assert "not the schema of an object that lists its properties" in fitted.findings[0]


def test_what_can_be_said_is_enforced_and_not_shown_twice() -> None:
    schema = closed(output={"type": "string"})
    fitted = Fitting(OF_OPENAI, "https://api.openai.com/v1").fitted(request("hello", schema=schema))
    assert (len(fitted.messages), fitted.is_strict, fitted.findings) == (1, True, ())


def test_a_place_that_is_left_open_is_named() -> None:
    fitted = Fitting(OF_OPENAI, "https://api.openai.com/v1").fitted(request("hello", schema=closed(output={})))
    assert fitted.format is not None
    assert fitted.findings == ("not all of the answer's schema is enforced: output: it may be anything",)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("others", [True, {"type": "integer"}])
def test_a_tool_that_is_open_can_be_given_what_it_does_not_name_on_every_wire(name: str, others: Any) -> None:
    tool = {"properties": {"a": {"type": "string"}}, "additionalProperties": others}
    asked = protocol_request({"tools": {"t": tool}}, activities={"t": tool})
    call = {"_tool": "t", "a": "x", "more": 5, "_outputPath": "†state.y"}
    answer = {"calls": [call], "output": None}
    sent = wire_schema(compose(asked), RULES[name])
    written = as_sent(answer, sent.schema)
    assert not compiled(sent.schema).problems(written)
    read, problems = value_with_texts_read(written)
    assert (problems, value_without_nulls(compose(asked), read)) == ([], answer)
    named = [(one.tool, one.reason) for one in sent.openings]
    assert (("t", "it may have further properties") in named) == RULES[name].is_closed
    (function, _) = functions_of(compose(asked))
    parameters = wire_schema(function.parameters, RULES[name], is_function=True).schema
    arguments = {key: part for key, part in call.items() if key != "_tool"}
    assert not compiled(parameters).problems(as_sent(arguments, parameters))


@pytest.mark.parametrize("name", [name for name, rules in RULES.items() if rules.is_closed])
@pytest.mark.parametrize("value", [{"_json": "{}", "x": 1}, {"_json": "{broken"}, {"x": 1}])
def test_a_property_of_the_name_that_texts_have_comes_whole(name: str, value: Any) -> None:
    schema = {"type": "object", "properties": {"_json": {}, "x": {"type": "integer"}}}
    for said in (schema, {**schema, "additionalProperties": False}):
        sent = wire(enveloped(said), RULES[name])
        written = as_sent({"output": value}, sent)
        assert not compiled(sent).problems(written)
        read, problems = value_with_texts_read(written)
        assert (value_without_nulls(enveloped(said), read), problems) == ({"output": value}, [])
        assert not compiled(wire(enveloped(said), GRAMMARS)).problems({"output": value})


@pytest.mark.parametrize(
    ("said", "writes"),
    [
        ({"model": "openai:gpt-4o"}, True),
        ({"model": "openai:gpt-4o", "enforce": "off"}, False),
        ({"model": "openai:qwen", "base_url": "http://localhost:8000/v1"}, False),
        ({"model": "openai:deepseek-chat", "base_url": "https://api.deepseek.com"}, False),
        ({"model": "anthropic:claude-opus-4-1"}, True),
        ({"model": "scripted:answers.json"}, True),
        ({"model": "mine:mine"}, False),
    ],
)
def test_texts_are_read_only_of_models_that_may_be_held_to_write_them(said: Any, writes: bool) -> None:
    assert writes_texts(ConfiguredModel(**said)) == writes


# Types of Python in a signature, as providers are sent them: what of each is left open (SPEC R12.6).

FURTHER, ANY, RECURSIVE = "it may have further properties", "it may be anything", "it contains itself"


class Tree(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    below: list[Tree] = []


@pytest.mark.parametrize(
    ("type_", "value", "openai", "anthropic"),
    [
        (str, "a", set(), set()),
        (int | None, None, set(), set()),
        (date, "2026-03-01", set(), set()),
        (Priority, "low", set(), set()),
        (Literal["a", 1], 1, set(), set()),
        (list[int | str], [1, "a"], set(), set()),
        (tuple[int, str], [1, "a"], set(), set()),
        (Customer, {"name": "Ann", "more": 1}, {FURTHER}, {FURTHER}),
        (Item, {"sku": "T-1"}, {FURTHER}, {FURTHER}),
        (Filters, {"text": "a"}, {FURTHER}, {FURTHER}),
        (dict, {"a": [1]}, {"it may have any property"}, {"it may have any property"}),
        (dict[str, int], {"a": 1}, {"it may have any property"}, {"it may have any property"}),
        (list, [{"a": 1}], {ANY}, {ANY}),
        (Any, {"a": 1}, {ANY}, {ANY}),
        (Tree, {"name": "a", "below": [{"name": "b", "below": []}]}, set(), {RECURSIVE}),
    ],
)
def test_of_each_type_nothing_is_left_open_but_what_cannot_be_said(
    type_: Any, value: Any, openai: set[str], anthropic: set[str]
) -> None:
    schema = TypeAdapter(type_).json_schema()
    definitions = schema.pop("$defs", {})
    truth = {**closed(value=schema), "$defs": definitions}
    for rules, faults, open_ in ((OPENAI, openai_faults, openai), (ANTHROPIC, anthropic_faults, anthropic)):
        sent = wire_schema(truth, rules)
        assert {opening.reason for opening in sent.openings} == open_
        assert not list(faults(sent.schema))
        assert not compiled(sent.schema).problems(as_sent({"value": value}, sent.schema))
