"""What a strict format cannot say comes as JSON in a text, and is read before anything is validated (SPEC R12.6)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.plan.submission import read_submission
from acts_celery.protocol.requests import Answer, Request, read_answer
from acts_celery.protocol.requests.reading import value_with_texts_read

from .schema_strategies import schema_values

NOTE = {"properties": {"note": {"type": "object"}, "at": {"type": "string"}}, "additionalProperties": False}


def answered(*calls: Any, output: Any = None, schema: Any = True, has_texts: bool = True) -> Answer:
    value = {"context": [{"type": "state", "a": 1}], "schema": schema, "tools": {"keep": NOTE}}
    submission, problems = read_submission(value, Environment().limits)
    assert not problems
    request = Request(submission, Environment(), has_texts=has_texts)
    return read_answer(request, json.dumps({"calls": calls, "output": output}))


def errors(answer: Answer) -> list[tuple[str, str, str]]:
    return [(error.type, error.pointer, error.message) for error in answer.errors]


@given(value=schema_values)
def test_a_text_stands_for_any_value(value: Any) -> None:
    assert value_with_texts_read([{"_json": json.dumps(value)}]) == ([value], [])


@pytest.mark.parametrize(
    ("sent", "meant"),
    [
        ({"note": {"_json": '{"a": "†state.a", "b": [1]}'}}, {"note": {"a": "†state.a", "b": [1]}}),
        ({"note": {"c": 2, "_json": '{"a": 1}'}}, {"note": {"c": 2, "a": 1}}),
        ({"note": {"c": 2, "_json": None}}, {"note": {"c": 2}}),
        ({"_json": '{"note": {}, "at": "home"}'}, {"note": {}, "at": "home"}),
        ({"note": {"_json": '{"_json": "1"}'}}, {"note": {"_json": "1"}}),
    ],
)
def test_what_a_text_holds_is_the_calls(sent: Any, meant: Any) -> None:
    answer = answered({"_tool": "keep", **sent})
    assert errors(answer) == []
    assert answer.solution["calls"] == [{"_tool": "keep", **meant}]
    assert len(answer.calls) == 1


@pytest.mark.parametrize(
    "note", [{"_json": "{}", "x": 1}, {"_json": "{broken"}, {"_json": 5}, {"_json": "[1]"}, {"in": [{"_json": "{}"}]}]
)
def test_where_no_such_text_is_written_the_property_is_one_like_all_others(note: Any) -> None:
    answer = answered({"_tool": "keep", "note": note}, output=note, has_texts=False)
    assert errors(answer) == []
    assert (answer.solution["calls"], answer.output) == ([{"_tool": "keep", "note": note}], note)
    assert [call.parameters for call in answer.calls] == [{"note": note}]


def test_references_in_a_text_are_references() -> None:
    answer = answered({"_tool": "keep", "note": {"_json": '{"a": "†state.b"}'}})
    ((type_, place, message),) = errors(answer)
    assert (type_, place) == ("InvalidCall", "/calls/0/note/a")
    assert "†state.b" in message


@pytest.mark.parametrize(
    ("sent", "place", "words"),
    [
        ({"note": {"_json": "{broken"}}, "/calls/0/note/_json", "it should hold JSON as a text: it is not JSON"),
        ({"note": {"_json": ""}}, "/calls/0/note/_json", "it is not JSON"),
        ({"note": {"c": 1, "_json": "[1]"}}, "/calls/0/note/_json", "so it has to be of an object"),
        ({"note": {"c": 1, "_json": '{"c": 2}'}}, "/calls/0/note/_json", "'c' stands in it and beside it"),
        ({"_json": '{"_tool": "other"}'}, "/calls/0/_json", "'_tool' stands in it and beside it"),
        ({"note": {"_json": '{"a": 1, "a": 2}'}}, "/calls/0/note/_json", "'a'"),
        ({"note": {"_json": "NaN"}}, "/calls/0/note/_json", "NaN is not a JSON value"),
        ({"note": {"_json": "5"}}, "/calls/0/note", "5 is not"),
    ],
)
def test_a_text_that_cannot_be_read_is_the_error_of_its_call_alone(sent: Any, place: str, words: str) -> None:
    answer = answered({"_tool": "keep", **sent}, {"_tool": "keep", "note": {}})
    ((type_, at, message), *_) = errors(answer)
    assert (type_, at) == ("InvalidCall", place)
    assert words in message
    assert [call.index for call in answer.calls] == [1]


def test_a_text_in_the_output_is_read_as_well() -> None:
    assert answered(output={"_json": '{"a": [null]}'}).output == {"a": [None]}
    broken = answered(output={"list": [{"_json": "{"}]})
    assert broken.output is None
    assert [(type_, place) for type_, place, _ in errors(broken)] == [("InvalidOutput", "/output/list/0/_json")]


@pytest.mark.nightly
def test_what_a_text_holds_is_bounded_as_all_that_comes_is() -> None:
    deep = "[" * 90 + "]" * 90
    nested = answered({"_tool": "keep", "note": {"a": {"_json": json.dumps({"b": json.loads(deep)})}}})
    assert nested.errors
    far = answered({"_tool": "keep", "note": {"_json": "[" * 100_000}})
    assert ("InvalidCall", "/calls/0/note/_json") in [(type_, place) for type_, place, _ in errors(far)]
    large = answered({"_tool": "keep", "note": {"_json": json.dumps([[]] * 2_000_000)}})
    assert large.errors
