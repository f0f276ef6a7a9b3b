"""Tools as functions of a provider's own tool calling: what they are, what calls of them are, what is told of them
(SPEC R12.6).
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.requests import Fate, Request, read_answer, read_request, render
from acts_celery.protocol.requests.reading import FunctionAnswer, Unreadable, with_words
from acts_celery.protocol.requests.receipts import Turn
from acts_celery.protocol.requests.rendering import render_functions
from acts_celery.protocol.requests.streaming import GrowingAnswer
from acts_celery.protocol.requests.tool_texts import Function, can_be_carried, function_schema, functions_of, wire_names

NUMBER = {"type": "integer"}
ADD: dict[str, Any] = {
    "description": "Adds.",
    "properties": {"a": NUMBER, "b": NUMBER},
    "required": ["a"],
    "_output": NUMBER,
}
NAMES = st.lists(st.text(max_size=70), unique=True, max_size=30)


def asked(tools: Any, schema: Any = NUMBER, *context: Any) -> Request:
    request = read_request(
        {"context": [*context], "schema": schema, "tools": tools}, Environment(activities={"add": ADD})
    )
    return replace(request, is_native=True)


def answered(request: Request, *calls: tuple[str, Any]) -> str:
    answer = FunctionAnswer(functions_of(function_schema(request)))
    texts = [(name, given if isinstance(given, str) else json.dumps(given)) for name, given in calls]
    return "".join(answer.call(*call) for call in texts) + answer.end()


@given(NAMES)
def test_every_tool_has_a_name_of_its_own_that_every_provider_admits(tools: list[str]) -> None:
    names = wire_names(tools)
    assert list(names) == tools
    assert len({*names.values(), "output"}) == len(tools) + 1
    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,64}", name) for name in names.values())
    assert all(
        name == tool for tool, name in names.items() if re.fullmatch("[a-zA-Z0-9_-]{1,64}", tool) and tool != "output"
    )


def test_tools_whose_names_become_one_have_different_ones_whatever_their_order() -> None:
    assert wire_names(["a.b", "a/b", "a_b", "output", "Привет"]) == {
        "a.b": "a_b_2",
        "a/b": "a_b_3",
        "a_b": "a_b",
        "output": "output_2",
        "Привет": "______",
    }
    long = ["x" * 64, "x" * 65, "x" * 66]
    assert list(wire_names(long).values()) == ["x" * 64, "x" * 62 + "_2", "x" * 62 + "_3"]


def test_a_function_has_the_parameters_and_meta_properties_of_its_tool_and_says_which_it_is() -> None:
    request = asked({"math.add": ADD, "output": ADD})
    add, other, output = functions_of(function_schema(request))
    assert (add.tool, add.name, add.description) == ("math.add", "math_add", "The tool math.add.\nAdds.\n-> integer")
    assert list(add.parameters["properties"]) == [
        "_reasoningForCall",
        "a",
        "b",
        "_output",
        "_outputPath",
        "_outputMethod",
    ]
    assert add.parameters["required"] == ["a"]
    assert (other.tool, other.name) == ("output", "output_2")
    assert (output.tool, output.name, output.parameters["required"]) == (None, "output", ["output"])
    assert "Tools" not in render(request)[0]["content"]


def test_calls_of_functions_are_the_answer_that_they_would_be_in_json() -> None:
    request = asked({"math.add": ADD})
    text = answered(
        request, ("math_add", '{"a": 1, "_output": 2, "_outputPath": "†state.x"}'), ("output", {"output": "†state.x"})
    )
    answer = read_answer(request, text)
    assert answer.errors == ()
    assert answer.solution == {
        "calls": [{"_tool": "math.add", "a": 1, "_output": 2, "_outputPath": "†state.x"}],
        "output": "†state.x",
    }
    assert GrowingAnswer().feed(text)[0]["_tool"] == "math.add"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(), lambda one: st.lists(one) | st.dictionaries(st.text(), one)
)


@pytest.mark.nightly
@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.dictionaries(st.text(), JSON, max_size=4))))
def test_an_answer_of_calls_is_json_with_what_they_hold_as_it_grows(calls: list[tuple[str, Any]]) -> None:
    calls = [(name, arguments) for name, arguments in calls if "_tool" not in arguments]
    answer, growing = FunctionAnswer([Function("a.x", "a", "", {}), Function("b", "b", "", {})]), GrowingAnswer()
    tools = {"a": "a.x", "b": "b"}
    expected = [{"_tool": tools[name], **arguments} for name, arguments in calls]
    written = ""
    for (name, arguments), one in zip(calls, expected, strict=True):
        piece = answer.call(name, json.dumps(arguments, indent=1))
        written += piece
        assert growing.feed(piece) == [one]
    assert json.loads(written + answer.end()) == {"calls": expected, "output": None}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"a": 1', "not JSON"),
        ('"{\\"a\\": 1}"', "not a JSON object"),
        ("[1]", "not a JSON object"),
        ('{"a": 1, "a": 2}', "twice"),
        ('{"a": NaN}', "NaN"),
        ('{"_tool": "other", "a": 1}', "`_tool`"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_arguments_that_cannot_be_read_are_the_error_of_their_call_alone(arguments: str, words: str) -> None:
    request = asked({"add": ADD})
    answer = read_answer(request, answered(request, ("add", arguments), ("add", {"a": 1})))
    assert [(error.pointer, words in error.message) for error in answer.errors] == [("/calls/0", True)]
    assert answer.positions == (1,)


def test_no_arguments_are_an_empty_object_where_a_function_takes_none_and_else_an_error() -> None:
    request = asked({"roll": {"properties": {}, "additionalProperties": False}, "add": ADD})
    answer = read_answer(request, answered(request, ("roll", ""), ("add", "")))
    assert [(error.pointer, "write {}" in error.message) for error in answer.errors] == [("/calls/1", True)]
    assert answer.positions == (0,)


@pytest.mark.parametrize("arguments", ['{"result": 3}', "3", "{}", '{"output": 3', '{"output": 3, "more": 1}'])
def test_an_output_that_cannot_be_read_is_an_error_and_the_calls_run(arguments: str) -> None:
    request = asked({"add": ADD})
    answer = read_answer(request, answered(request, ("add", {"a": 1}), ("output", arguments)))
    assert [error.pointer for error in answer.errors] == ["/_arguments"]
    assert answer.positions == (0,)


def test_the_output_is_called_once_or_with_the_same_value() -> None:
    request = asked({"add": ADD})
    twice = answered(request, ("output", {"output": 3}), ("output", '{"output":3}'))
    assert read_answer(request, twice).output == 3
    differing = read_answer(request, answered(request, ("output", {"output": 3}), ("output", {"output": 4})))
    assert (differing.output, ["called twice" in error.message for error in differing.errors]) == (None, [True])


def test_a_call_that_names_no_place_is_given_one_of_its_own_unless_its_tool_pins_it() -> None:
    tools = {
        "add": ADD,
        "pinned": {**ADD, "_outputPath": {"const": "†state.p"}},
        "chosen": {**ADD, "properties": {**ADD["properties"], "_outputPath": {"pattern": "^†state\\.[a-z]+$"}}},
    }
    request = asked(tools, NUMBER, {"type": "data", "kind": "result", "data": {"c7": 1}})
    calls = [(name, {"a": 1, "_output": 2}) for name in ("add", "pinned", "chosen", "add")]
    answer = read_answer(request, answered(request, *calls), first=4)
    paths = [call.get("_outputPath") for call in answer.solution["calls"]]
    assert paths == ["†result2.c4", None, None, "†result2.c7"]
    json_wire = read_answer(replace(request, is_native=False), answered(request, ("add", {"a": 1})))
    assert "_outputPath" not in json_wire.solution["calls"][0]


def test_words_alone_are_an_output_where_that_may_be_a_text() -> None:
    nothing = '{"calls": [], "output": null}'
    text = asked({"add": ADD}, {"type": "string"})
    assert with_words(text, nothing, "Hello!") == {"calls": [], "output": "Hello!"}
    assert with_words(text, answered(text, ("add", {"a": 1})), "Let me see.") == answered(text, ("add", {"a": 1}))
    for request, words in ((text, "  "), (asked({"add": ADD}), "Hello!"), (asked({"add": ADD}), "")):
        with pytest.raises(Unreadable, match="calls no tool and gives no result"):
            with_words(request, nothing, words)
    schemas = [{"type": "string"}, {}, {"enum": ["a"]}, {"anyOf": [NUMBER, {"type": "string"}]}]
    assert all(asked([], schema).may_say for schema in schemas)
    assert not any(asked([], schema).may_say for schema in (NUMBER, {"type": "object"}, {"enum": [1]}))


def test_advice_is_asked_for_in_json() -> None:
    assert can_be_carried(asked({"add": ADD}))
    advised = read_request({"context": [{"type": "meta", "meta": {"version": "1"}}], "schema": NUMBER}, Environment())
    assert not can_be_carried(advised)


CALLS = st.lists(
    st.sampled_from([{"_tool": "add", "a": 1}, {"_tool": "x.y", "a": "‡"}, {"_tool": "gone"}, {}, 5, {"_tool": 3}]),
    max_size=6,
)


@given(CALLS, st.none() | st.integers(), st.text(), st.sets(st.integers(0, 8)), st.integers(0, 3))
def test_each_call_of_a_turn_has_one_id_and_one_message_whatever_has_become_of_it(
    calls: list[Any], output: Any, words: str, ended: set[int], tick: int
) -> None:
    request = asked({"add": ADD, "x.y": ADD})
    turn = Turn(tick, {"calls": calls, "output": output}, 7, words, "why" if output is not None else None)
    fates = [Fate(7 + at, "add", None, "done", "†state.a") for at in sorted(ended)]
    messages = render_functions(request, turn, fates, request.submission.context, ())
    ids = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    assert [message["tool_call_id"] for message in messages if message["role"] == "tool"] == ids
    assert len(set(ids)) == len(ids) == len(calls) + (output is not None)
    assert all(re.fullmatch("[a-z0-9]{9}", id_) for id_ in ids)
    assert messages[-1]["role"] in ("tool", "user")
    assert all(message["content"] or message.get("tool_calls") for message in messages)
    assert messages == render_functions(request, turn, fates, request.submission.context, ())


LEAKED = [
    '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>',
    '{"name": "add", "arguments": {"a": 1}}\n{"name": "a_b", "parameters": {}}',
    '[TOOL_CALLS][{"name": "add", "arguments": {"a": 1}}]',
    '```json\n{"name": "add", "parameters": {"a": 1}}\n```',
    '<|python_tag|>{"type": "function", "function": {"name": "add", "arguments": "{}"}}',
    "<function=add><parameter=a>1</parameter></function>",
]
TEXTS = [
    "I call add.",
    'I call {"name": "add", "arguments": {}}',
    '{"name": "Ann", "arguments": {"a": 1}}',
    '{"name": "add"}',
    "[]",
    "<b>",
    "{" * 10_000,
]


@pytest.mark.parametrize("text", LEAKED)
def test_a_text_that_is_nothing_but_a_call_is_no_output(text: str) -> None:
    request = asked({"add": ADD, "a.b": ADD}, {"type": "string"})
    words = with_words(request, {"calls": [], "output": None}, text)
    for answer in (words, answered(request, ("output", {"output": text}))):
        read = read_answer(request, answer)
        assert [(error.type, error.pointer) for error in read.errors] == [("InvalidOutput", "/output")]
        assert "is a call of add" in read.errors[0].message
        assert read.output is None


@pytest.mark.parametrize("text", TEXTS)
def test_another_text_is_an_output(text: str) -> None:
    request = asked({"add": ADD}, {"type": "string"})
    assert read_answer(request, {"calls": [], "output": text}).output == text
    literal = asked({"add": ADD}, {"type": "string", "_literal": True})
    assert read_answer(literal, {"calls": [], "output": LEAKED[0]}).output == LEAKED[0]


def test_the_error_of_a_text_that_holds_the_json_that_is_wanted_says_so() -> None:
    tool = {"properties": {"options": {"anyOf": [{"type": "object"}, {"type": "null"}]}, "tags": {"type": "array"}}}
    request = asked({"add": tool}, {"type": "object"})
    calls = [{"_tool": "add", "options": '{"a": 1}', "tags": '["b"]'}, {"_tool": "add", "options": '["b"]'}]
    read = read_answer(request, {"calls": calls, "output": '{"a": 1}'})
    said = {error.pointer: error.message for error in read.errors}
    assert "write the object itself" in said["/calls/0/options"]
    assert "write the list itself" in said["/calls/0/tags"]
    assert "itself" not in said["/calls/1/options"]  # what it holds would not fit
    assert "write the object itself" in said["/output"]


def test_a_value_that_cannot_be_kept_refuses_its_call_alone() -> None:
    deep: Any = {}
    for _ in range(500):
        deep = {"a": deep}
    request = replace(asked({"add": {"properties": {"a": {}}}}), has_texts=True)
    unfit = [2**64, float("nan"), "\ud800", deep, {"\ud800": 1}, {"_json": "[" * 70 + "]" * 70}]
    for value in unfit:
        calls = [{"_tool": "add", "a": value}, {"_tool": "add", "a": 1}]
        for answer in ({"calls": calls, "output": 5}, json.dumps({"calls": calls, "output": 5})):
            read = read_answer(request, answer)
            assert [error.pointer.split("/")[:3] for error in read.errors] == [["", "calls", "0"]], read.errors
            assert (read.positions, read.output) == ((1,), 5)
            json.dumps(read.solution, allow_nan=False).encode()
    read = read_answer(request, f'{{"calls": [{{"_tool": "add", "a": {"9" * 5_000}}}], "output": 5}}')
    assert [error.pointer for error in read.errors] == ["/calls/0/a"]
