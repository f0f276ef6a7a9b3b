"""Reading what a model answers (SPEC R12.6): texts, functions, slips, results."""

from __future__ import annotations

import json
import re
import time
from ast import literal_eval
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from acts_celery import Output
from acts_celery.protocol import Expression, Plan, Reference, check_submission
from acts_celery.protocol.calls.call import read_approvals
from acts_celery.protocol.calls.outputs import chosen
from acts_celery.protocol.engine.events import CallDecided, CallHeld, Failure, Hold, Ruling, Start, Success, Verdict
from acts_celery.protocol.engine.execution import Execution
from acts_celery.protocol.facade import analyse
from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.plan.submission import read_submission
from acts_celery.protocol.requests import Answer, Fate, Request, compose, read_answer, read_request, render
from acts_celery.protocol.requests.reading import (
    FunctionAnswer,
    Unreadable,
    find_answer,
    value_with_texts_read,
    with_words,
    words_beside,
)
from acts_celery.protocol.requests.receipts import Turn
from acts_celery.protocol.requests.rendering import ResultRequest, render_functions, result_request
from acts_celery.protocol.requests.streaming import GrowingAnswer, begin_answer, end_answer
from acts_celery.protocol.requests.tool_texts import Function, can_be_carried, function_schema, functions_of, wire_names
from acts_celery.protocol.schemas import CompiledSchema
from acts_celery.protocol.templates import bare, escaped

from .building import DATE, checked
from .foreign_plans import calls_of
from .laws import law
from .schema_strategies import schema_values
from .strategies import expressions
from .test_near_misses import FOREIGN, TEXTS, slipped
from .test_scale import steps

# Tools as functions of a provider's own tool calling: what they are, what calls of them are, what is told of them
# (SPEC R12.6).

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


def test_r12_4_a_function_call_says_by_null_that_its_result_goes_nowhere() -> None:
    think = {"properties": {"_output": {"type": "string"}}}
    request = asked({"add": ADD, "think": think, "pinned": {**ADD, "_outputPath": {"const": "†state.p"}}})
    null = {"_outputPath": None}
    text = answered(
        request, ("add", {"a": 1, **null}), ("think", {"_output": "so", **null}), ("pinned", {"a": 1, **null})
    )
    answer = read_answer(request, text)
    assert answer.errors == ()
    assert [(call.is_fire_and_forget, call.is_thought) for call in answer.calls] == [
        (True, False),
        (False, True),
        (False, False),
    ]
    assert read_answer(request, answer.solution).solution == answer.solution
    (function, *_) = functions_of(function_schema(request))
    assert {"type": "null"} in function.parameters["properties"]["_outputPath"]["anyOf"]
    (said,) = render(request)[:1]
    assert '"_outputPath": null' in said["content"]


def test_r12_6_on_a_wire_that_sends_null_for_what_is_left_out_it_is_a_place_of_its_own() -> None:
    request = replace(asked({"add": ADD}), sends_nulls=True)
    answer = read_answer(request, answered(request, ("add", {"a": 1, "_outputPath": None})))
    assert answer.solution["calls"] == [{"_tool": "add", "a": 1, "_outputPath": "†result.c0"}]
    assert '"_outputPath": null' not in str(render(request)[0]["content"])
    (function, *_) = functions_of(function_schema(request))
    assert "anyOf" not in function.parameters["properties"]["_outputPath"]


def test_r12_4_arguments_may_have_comments_and_a_comma_behind_the_last_one() -> None:
    request = asked({"add": ADD})
    text = answered(request, ("add", '{"a": 1, // one\n "_outputPath": "sum",}'), ("output", '{"output": 3 /* so */,}'))
    answer = read_answer(request, text)
    assert (answer.errors, answer.output) == ((), 3)
    assert [str(place) for place in answer.calls[0].written] == ["†state.sum"]


def test_words_alone_are_an_output_where_that_may_be_a_text() -> None:
    nothing = '{"calls": [], "output": null}'
    text = asked({"add": ADD}, {"type": "string"})
    assert with_words(text, nothing, "Hello!") == {"calls": [], "output": "Hello!"}
    assert with_words(text, answered(text, ("add", {"a": 1})), "Let me see.") == answered(text, ("add", {"a": 1}))
    for request, words in ((text, "  "), (asked({"add": ADD}), "Hello!"), (asked({"add": ADD}), "")):
        with pytest.raises(Unreadable, match="calls no tool and gives no result"):
            with_words(request, nothing, words)
    schemas = [{"type": "string"}, {}, {"enum": ["a"]}, {"anyOf": [NUMBER, {"type": "string"}]}]
    assert all(asked([], schema).may_be_text for schema in schemas)
    assert not any(asked([], schema).may_be_text for schema in (NUMBER, {"type": "object"}, {"enum": [1]}))


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


def test_an_output_is_called_accepted_where_its_run_goes_on_from_it() -> None:
    request = asked({"add": ADD})
    context = request.submission.context
    turns = [Turn(0, {"calls": [], "output": 1}, 0, set_aside=why) for why in (None, "a call failed")]
    told = [render_functions(request, turn, (), context, ())[1]["content"] for turn in turns]
    assert told == ["accepted", "not accepted: a call failed"]


LEAKED = [
    '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>',
    '{"name": "add", "arguments": {"a": 1}}\n{"name": "a_b", "parameters": {}}',
    '[TOOL_CALLS][{"name": "add", "arguments": {"a": 1}}]',
    '```json\n{"name": "add", "parameters": {"a": 1}}\n```',
    '<|python_tag|>{"type": "function", "function": {"name": "add", "arguments": "{}"}}',
    "<function=add><parameter=a>1</parameter></function>",
]
TEXTS_FUNCTIONS = [
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


@pytest.mark.parametrize("text", TEXTS_FUNCTIONS)
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


# What a strict format cannot say comes as JSON in a text, and is read before anything is validated (SPEC R12.6).

NOTE = {"properties": {"note": {"type": "object"}, "at": {"type": "string"}}, "additionalProperties": False}


def answered_texts_on_the_wire(*calls: Any, output: Any = None, schema: Any = True, has_texts: bool = True) -> Answer:
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
    answer = answered_texts_on_the_wire({"_tool": "keep", **sent})
    assert errors(answer) == []
    assert answer.solution["calls"] == [{"_tool": "keep", **meant}]
    assert len(answer.calls) == 1


@pytest.mark.parametrize(
    "note", [{"_json": "{}", "x": 1}, {"_json": "{broken"}, {"_json": 5}, {"_json": "[1]"}, {"in": [{"_json": "{}"}]}]
)
def test_where_no_such_text_is_written_the_property_is_one_like_all_others(note: Any) -> None:
    answer = answered_texts_on_the_wire({"_tool": "keep", "note": note}, output=note, has_texts=False)
    assert errors(answer) == []
    assert (answer.solution["calls"], answer.output) == ([{"_tool": "keep", "note": note}], note)
    assert [call.parameters for call in answer.calls] == [{"note": note}]


def test_references_in_a_text_are_references() -> None:
    answer = answered_texts_on_the_wire({"_tool": "keep", "note": {"_json": '{"a": "†state.b"}'}})
    ((type_, place, message),) = errors(answer)
    assert (type_, place) == ("InvalidCall", "/calls/0/note/a")
    assert "†state.b" in message


@pytest.mark.parametrize(
    ("sent", "place", "words"),
    [
        ({"note": {"_json": "{broken"}}, "/calls/0/note/_json", "it should hold JSON as a text: it is not JSON"),
        ({"note": {"_json": ""}}, "/calls/0/note/_json", "it is not JSON"),
        ({"note": {"c": 1, "_json": "[1]"}}, "/calls/0/note/_json", "it must hold an object"),
        ({"note": {"c": 1, "_json": '{"c": 2}'}}, "/calls/0/note/_json", "'c' is both in it and beside it"),
        ({"_json": '{"_tool": "other"}'}, "/calls/0/_json", "'_tool' is both in it and beside it"),
        ({"note": {"_json": '{"a": 1, "a": 2}'}}, "/calls/0/note/_json", "'a'"),
        ({"note": {"_json": "NaN"}}, "/calls/0/note/_json", "NaN is not a JSON value"),
        ({"note": {"_json": "5"}}, "/calls/0/note", "5 is not"),
    ],
)
def test_a_text_that_cannot_be_read_is_the_error_of_its_call_alone(sent: Any, place: str, words: str) -> None:
    answer = answered_texts_on_the_wire({"_tool": "keep", **sent}, {"_tool": "keep", "note": {}})
    ((type_, at, message), *_) = errors(answer)
    assert (type_, at) == ("InvalidCall", place)
    assert words in message
    assert [call.index for call in answer.calls] == [1]


def test_a_text_in_the_output_is_read_as_well() -> None:
    assert answered_texts_on_the_wire(output={"_json": '{"a": [null]}'}).output == {"a": [None]}
    broken = answered_texts_on_the_wire(output={"list": [{"_json": "{"}]})
    assert broken.output is None
    assert [(type_, place) for type_, place, _ in errors(broken)] == [("InvalidOutput", "/output/list/0/_json")]


@pytest.mark.nightly
def test_what_a_text_holds_is_bounded_as_all_that_comes_is() -> None:
    deep = "[" * 90 + "]" * 90
    nested = answered_texts_on_the_wire(
        {"_tool": "keep", "note": {"a": {"_json": json.dumps({"b": json.loads(deep)})}}}
    )
    assert nested.errors
    far = answered_texts_on_the_wire({"_tool": "keep", "note": {"_json": "[" * 100_000}})
    assert ("InvalidCall", "/calls/0/note/_json") in [(type_, place) for type_, place, _ in errors(far)]
    large = answered_texts_on_the_wire({"_tool": "keep", "note": {"_json": json.dumps([[]] * 2_000_000)}})
    assert large.errors


# The object that a text has as its answer, whatever stands around it (SPEC R12.6a).

ANSWER: dict[str, Any] = {"calls": [{"_tool": "order", "count": 3}], "output": None}
TEXT = json.dumps(ANSWER)
OTHER = '{"calls": [], "output": 1}'


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        f"\n\n  {TEXT}\n",
        f"Sure! Here is what I would do:\n\n{TEXT}",
        f"{TEXT}\n\nDone! Let me know.",
        f"```json\n{TEXT}\n```",
        f"I have looked at it.\n```\n{TEXT}\n```\nThat is all.",
        f"<think>maybe {OTHER}? no.</think>{TEXT}",
        f"<think>\n</think>\n\n```json\n{TEXT}\n```",
        f"maybe {OTHER}? no.</think>{TEXT}",
        f"{TEXT} and once more {TEXT}",
        f'The form is {{"calls": [...], "output": ...}}, so: {TEXT}',
        f'The form is {{"calls": […]}}, so: {TEXT}',
        f'Of the set {{a, b}} and [links](x), of {{"note": 1}}, of {{"a": nonsense}} and [1] I take {TEXT} [2]',
        f"A smiley :-{{ and {TEXT}",
        f"[[wiki]] {TEXT}",
    ],
)
def test_the_answer_is_found_whatever_stands_around_it(text: str) -> None:
    assert find_answer(text) == ANSWER


ORDER: dict[str, Any] = {"_tool": "order", "why": "// no, /* this */ is a text,]"}


@pytest.mark.parametrize(
    "text",
    [
        f'{{"calls": [{json.dumps(ORDER)},],}}',
        f'// first\nSo: {{ // "output": 1\n"calls": [/* one */ {json.dumps(ORDER)}, // it is "enough\n]}} /* see',
        f"```json\n/* all */ {json.dumps([ORDER])}\n```",
        f"[ // one\n{json.dumps(ORDER)},\n]",
        f"<think>{json.dumps([ORDER] * 2)}?</think> {json.dumps(ORDER)}",
    ],
)
def test_r12_4_comments_commas_and_calls_alone_are_read_as_in_a_submission(text: str) -> None:
    assert find_answer(text, is_lenient=True) == {"calls": [ORDER]}


def test_r13_8_what_a_comment_says_never_begins() -> None:
    growing = GrowingAnswer()
    with pytest.raises(Unreadable, match="comment"):
        growing.feed('{ // "calls": [{"_tool": "order"}]\n"calls": []}')
    with pytest.raises(Unreadable, match="comment"):
        GrowingAnswer().feed('{"calls": [{"_tool": "order", // {"_tool": "pay"}\n}]}')


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", 'it is empty; expected {"calls": …, "output": …}'),
        ("   \n", "it is empty"),
        ("I cannot say.", 'no JSON object with "calls" or "output"; expected {"calls": …, "output": …}'),
        ("42", "no JSON object with"),
        ('{"total": 3}', "no JSON object with"),
        ('{"вызовы": [], "результат": 1}', "no JSON object with"),
        ('[{"_tool": "order"}, {"tool": "order"}]', "no JSON object with"),
        ('I would do {"_tool": "order"}', "no JSON object with"),
        ('{"_tool": "order"} {"_tool": "order"}', "no JSON object with"),
        ('{"calls": [] /* and so on', "it is not JSON"),
        ('{"calls": [], // {"output": 1}', "it is not JSON"),
        ('{"calls": [,]}', "it is not JSON"),
        ('"' + TEXT.replace('"', '\\"') + '"', "no JSON object with"),
        (f"{OTHER} or rather {TEXT}", '2 different objects with "calls" or "output": write one'),
        ('{"calls": [], "calls": []}', "'calls' occurs twice"),
        ('{"calls": [{"a": 1, "a": 2}]}', "'a' occurs twice"),
        ('{"output": NaN}', "NaN is not a JSON value"),
        (f'{{"output": {"9" * 5_000}}}', "a number has too many digits: write it as a string"),
        ('{"calls": [{"_tool": "order", "output": {"output": 1}', "it is not JSON"),
        ('{"output": {"output": 1}, nonsense}', "it is not JSON"),
        ('{"calls": [{"_tool": "order" "output": {"calls": []}}], "output": null}', "it is not JSON"),
        ('{"output": ' + "[" * 100_000, "nested too deeply"),
        (f"<think>{TEXT}", "no JSON object with"),
    ],
)
def test_what_is_no_answer_says_what_was_expected(text: str, words: str) -> None:
    with pytest.raises(Unreadable, match=words.replace("{", r"\{").replace("}", r"\}")):
        find_answer(text)


@pytest.mark.parametrize(
    ("text", "beside"),
    [
        (TEXT, ""),
        (f"Sure:\n```json\n{TEXT}\n```\nDone!", "Sure:\n```json\n\n```\nDone!"),
        (f"<think>{OTHER}</think>{TEXT} or {TEXT}.", f"<think>{OTHER}</think> or ."),
        ("I cannot say.", ""),
        (f"{TEXT} or {OTHER}", ""),
    ],
)
def test_what_stands_around_the_answer_is_told(text: str, beside: str) -> None:
    assert words_beside(text) == beside


words = st.text(st.sampled_from("ab .,:;-*#`'\"\\\n†{}[]<>/"), max_size=12).filter(lambda text: '"' not in text)
answers = st.one_of(
    st.fixed_dictionaries({"output": schema_values}),
    st.fixed_dictionaries(
        {"calls": st.lists(st.dictionaries(st.sampled_from(["calls", "output", "a"]), schema_values))}
    ),
)


@given(words, answers, words, st.booleans())
@example("[", {"output": "</think><think>"}, "", False)
def test_prose_changes_nothing(before: str, answer: dict[str, Any], behind: str, is_indented: bool) -> None:
    text = json.dumps(answer, ensure_ascii=False, indent=1 if is_indented else None)
    before, behind = (each.replace("think", "").replace("{", "(").replace("[", "(") for each in (before, behind))
    assert find_answer(f"{before}{text}{behind}") == answer


@given(answers, st.data())
def test_a_text_that_ends_too_early_is_no_answer(answer: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(answer)
    with pytest.raises(Unreadable):
        find_answer(text[: data.draw(st.integers(0, len(text) - 1))])


@pytest.mark.parametrize("piece", ["{", '{"a":', "[", "[{", '{"a": x}', "<think>", '"', "[[1],", "</think>"])
def test_of_broken_pieces_no_more_is_read_than_some_lengths_of_the_text(piece: str) -> None:
    began = time.process_time()
    with pytest.raises(Unreadable):
        find_answer(piece * (200_000 // len(piece)))
    assert time.process_time() - began < 10


# A text of a model's answer that reads as a reference and is none does not run (SPEC R12.6b).

TEXT_SLIPS: dict[str, Any] = {"type": "string"}
CONTEXT: list[dict[str, Any]] = [
    {"type": "state", "o": {"id": "A7", "lines": [{"sku": "x"}]}, "name": "Ann"},
    {"type": "input", "mail": "ann@example.com"},
    {"type": "data", "kind": "memo", "data": {"title": "Hello"}},
    {"type": "input", "_instance": "①", "own": 1},
]
TOOLS: dict[str, dict[str, Any]] = {
    "refund": {"properties": {"order": {}, "amount": {"type": "number"}}},
    "send": {
        "properties": {
            "body": TEXT_SLIPS,
            "code": {**TEXT_SLIPS, "_literal": True},
            "to": {"enum": ["state.o.id", "Ann"]},
        }
    },
}


def asked_slips(**more: Any) -> Request:
    return read_request({"context": CONTEXT, "tools": TOOLS, "schema": {}, **more}, Environment(activities=TOOLS))


def read(*calls: Mapping[str, Any], output: Any = None) -> Answer:
    return read_answer(asked_slips(), {"calls": list(calls), "output": output})


def sent(text: Any, **more: Any) -> dict[str, Any]:
    return {"_tool": "send", "body": text, **more}


REFUND = {"_tool": "refund", "order": "A7", "_outputPath": "†state.refund"}


@pytest.mark.parametrize(
    ("text", "corrected"),
    [
        ("state.o.id", "†state.o.id"),
        ("o.id", "†state.o.id"),
        ("o.lines[0].sku", "†state.o.lines.0.sku"),
        ("input.mail", "†input.mail"),
        ("memo.title", "†memo.title"),
        ("input.own", "†input.own"),
        ("state.refund.amount", "†state.refund.amount"),
        (" †state.o.id", "†state.o.id"),
        ("{{state.o.id}}", "†state.o.id"),
        ("{{ o.id }}", "†state.o.id"),
        ("{{name}}", "†state.name"),
        ("${state.o.id}", "†state.o.id"),
        ("${{ state.o.id }}", "†state.o.id"),
        ("$state.o.id", "†state.o.id"),
        ("$name", "†state.name"),
        ("{{†state.o.id}}", "†state.o.id"),
        ("Refunded †state.refund.amount EUR", "Refunded †{state.refund.amount} EUR"),
        ("Refunded $state.refund.amount EUR", "Refunded †{state.refund.amount} EUR"),
        ("Order {{o.id}}, ${state.name}, †{state.o.id}", "Order †{state.o.id}, †{state.name}, †{state.o.id}"),
        ("Dear †input.nobody,", "Dear †{input.nobody},"),
        ("Dear {†state.name}", "Dear †{state.name}"),
        ("Dear †state.name ①!", "Dear †{state.name}!"),
    ],
)
@pytest.mark.parametrize("wrap", [lambda text: text, lambda text: {"deep": ["x", text]}])
def test_a_slip_is_an_error_with_the_corrected_text(text: str, corrected: str, wrap: Any) -> None:
    first = {"_tool": "refund", "order": wrap(text), "_outputPath": "†state.other"}
    answer = read(first, REFUND, output={"said": text})
    assert [call.raw for call in answer.calls] == [REFUND]
    assert answer.output is None
    (error, of_output) = answer.errors
    assert (error.type, error.call, of_output.type) == ("InvalidCall", first, "InvalidOutput")
    assert error.pointer.startswith("/calls/0/order")
    assert of_output.pointer == "/output/said"
    for one in (error, of_output):
        assert f"write {corrected}" in one.message or f"write {corrected!r}" in one.message


@pytest.mark.parametrize(
    ("text", "corrected"),
    [
        ("state.refund", "†state.refund"),
        ("input.refund", "†input.refund"),
        ("$state.refund", "†state.refund"),
        ("{{ state.refund }}", "†state.refund"),
        ("†{state.refund}", "†state.refund"),
        ("state.a || †state.b", "†state.a || †state.b"),
    ],
)
def test_an_output_path_without_its_dagger_is_an_error_with_the_reference_that_was_meant(
    text: str, corrected: str
) -> None:
    answer = read({**REFUND, "_outputPath": text}, sent("x"))
    assert [call.raw for call in answer.calls] == [sent("x")]
    (error,) = answer.errors
    assert error.pointer == "/calls/0/_outputPath"
    assert error.message == f"has the text {text!r}, where only a reference is allowed: write {corrected}"
    assert not read({**REFUND, "_outputPath": corrected}).errors


@pytest.mark.parametrize("text", ["refund", " refund ", "refund.first", "refund || †state.other"])
def test_r2_5_a_path_inside_of_the_state_needs_no_dagger(text: str) -> None:
    answer = read({**REFUND, "_outputPath": text}, sent("†state.refund"))
    assert answer.errors == ()
    assert str(answer.calls[0].written[0]).startswith("†state.refund")


def test_a_scope_without_its_dagger_is_an_error_with_the_reference_that_was_meant() -> None:
    ask = {"properties": {"_scopes": {"items": {"enum": ["†state.o", "†input"]}}}, "_output": {"type": "string"}}
    request = asked_slips(tools={"ask": ask})
    call = {"_tool": "ask", "_scopes": ["†input", "state.o"], "_output": None, "_outputPath": "†state.x"}
    (error,) = read_answer(request, {"calls": [call], "output": None}).errors
    assert error.pointer == "/calls/0/_scopes/1"
    assert error.message == "has the text 'state.o', where only a reference is allowed: write †state.o"


@pytest.mark.parametrize("path", ["state.other", "refund.", "a b", "state.list[*]", ""])
def test_where_the_reference_that_was_meant_is_none_or_not_admitted_the_rule_is_said(path: str) -> None:
    pinned = {"refund": {**TOOLS["refund"], "properties": {"_outputPath": {"enum": ["†state.one", "†state.two"]}}}}
    call = {"_tool": "refund", "_outputPath": path}
    (error,) = read_answer(asked_slips(tools=pinned), {"calls": [call], "output": None}).errors
    assert "write" not in error.message


@pytest.mark.parametrize(
    "text",
    [
        *("†state.o.id", "†{state.o.id}", "Order †{state.o.id || input.mail}", "††state.o.id", "Order ††state.o.id"),
        *("††{{state.o.id}}", "Order ††{state.o.id}"),
        *("$5", "$HOME", "{{unknown.name}}", "${unknown}", "main.py", "report.txt", "refund.txt", "example.com"),
        *("Look at state.o.id", "{state.o.id}", "<name>", "[name]", "died †1990", "see †", "a †b.c", "††", "state"),
        *("ann@example.com", "https://state.o.id/", "3.5", "name", "o"),
    ],
)
def test_what_is_no_slip_runs_as_it_stands(text: str) -> None:
    answer = read(sent(text), REFUND, output=[text])
    assert answer.errors == ()
    assert len(answer.calls) == 2


@pytest.mark.parametrize(
    "call",
    [
        sent("x", code="const id = `${state.o.id} {{state.o.id}} †state.o.id`"),
        sent("x", to="state.o.id"),
        sent("x", _reasoningForCall="since {{state.o.id}} is state.o.id"),
        {"_tool": "think", "_outputPath": "†state.thought", "_output": "state.o.id"},
    ],
)
def test_where_a_text_is_meant_there_is_no_slip(call: dict[str, Any]) -> None:
    think = {"properties": {"_output": TEXT_SLIPS, "_outputPath": {}}}
    answer = read_answer(asked_slips(tools={**TOOLS, "think": think}), {"calls": [call], "output": None})
    assert (answer.errors, len(answer.calls)) == ((), 1)


def test_a_place_that_only_a_refused_call_was_to_write_is_one_all_the_same() -> None:
    bad = {**REFUND, "amount": "much"}
    answer = read(bad, sent("{{state.refund.amount}}"), sent("†state.refund.amount"))
    assert answer.calls == ()
    assert [error.pointer for error in answer.errors] == ["/calls/0/amount", "/calls/1/body", "/calls/2/body"]


def test_of_a_long_text_what_is_wrong_in_it_is_shown() -> None:
    (error,) = read(sent("word " * 1_000 + "{{state.o.id}}" + " word" * 1_000)).errors
    assert "write †{state.o.id} instead of {{state.o.id}}" in error.message
    assert len(error.message) < 500


def test_while_it_is_written_a_call_waits_whose_text_may_turn_out_to_name_a_place() -> None:
    calls = [sent("{{late.x}}"), sent("{{unknown.name}}"), sent("plain"), {**REFUND, "_outputPath": "†state.late"}]
    text = json.dumps({"calls": calls, "output": None})
    request = asked_slips()
    begun = begin_answer(request, text[: text.index(', "output"')], CONTEXT, first=0)
    assert [call.index for call in begun.calls] == [2, 3]
    answer = end_answer(request, text, [2, 3], CONTEXT, first=0)
    assert [call.index for call in answer.calls] == [1, 2, 3]
    assert [error.pointer for error in answer.errors] == ["/calls/0/body"]


def test_very_many_names_are_not_looked_up_and_such_a_call_does_not_run() -> None:
    began = time.monotonic()
    text = " ".join(f"{{{{state.o.x{number}}}}}" for number in range(40_000))
    (error,) = read(sent(text), sent("plain")).errors
    assert "not checked: the answer has more than 20000 texts that may name a place" in error.message
    assert time.monotonic() - began < 20


PLACES = [Reference("state", ("o", "id")), Reference("state", ("o", "lines", 0, "sku")), Reference("input", ("mail",))]
SLIPS = ["{{%s}}", "${%s}", "$%s", "{†%s}", "{{†%s}}"]
plain = st.text("ab ,.{}[]<>%&|\n", max_size=6)


@law
@given(st.text('†{}ab.0[]"|&$ ', max_size=12), st.sampled_from(["", *map(str, PLACES), "†{state.o.id}"]), plain)
def test_shown_data_that_is_copied_back_stays_a_text(before: str, place: str, behind: str) -> None:
    said = before + place + behind
    answer = read(sent(escaped(said)), output=escaped(said))
    assert (answer.errors, len(answer.calls)) == ((), 1)


@law
@given(st.lists(st.one_of(plain.filter(lambda text: "{" not in text), expressions), max_size=4), expressions)
def test_a_correct_reference_is_called_no_slip(parts: list[Any], whole: Expression) -> None:
    text = "".join(part if isinstance(part, str) else f"†{{{bare(part)}}}" for part in parts)
    answer = read(sent(str(whole)), sent(text))
    assert not any("inside a text" in error.message or "names a place" in error.message for error in answer.errors)


@law
@given(plain, st.sampled_from(PLACES), st.sampled_from(SLIPS), plain.filter(lambda text: text[:1] not in tuple("ab.[")))
def test_with_the_corrected_text_an_answer_is_valid(before: str, place: Reference, slip: str, behind: str) -> None:
    text = before + slip % str(place)[1:] + behind
    (error,) = read(sent(text)).errors
    corrected = error.message.partition("write ")[2].partition("; a literal †")[0]
    corrected = literal_eval(corrected) if corrected[0] in "'\"" else corrected
    answer = read(sent(corrected))
    assert (answer.errors, len(answer.calls)) == ((), 1)


def test_what_a_tool_says_of_texts_is_not_sent_to_a_model() -> None:
    assert "_literal" not in json.dumps(compose(asked_slips()))


def answered_slips(value: dict[str, Any]) -> Answer:
    """The calls of a plan as a model's answer."""
    solution = value["solution"] if "solution" in value else {"calls": calls_of(value)}
    parts = {key: value[key] for key in ("tools", "delegates") if key in value}
    context = [message for message in value.get("context", []) if message.get("type") != "plan"]
    request = read_request({**parts, "context": context, "schema": {}}, Environment())
    return read_answer(request, {"output": None, **solution})


def are_slips(answer: Answer) -> list[str]:
    said = ("inside a text", "names a place and has no †", "other systems replace", "white space before the †")
    return [error.message for error in answer.errors if any(words in error.message for words in said)]


def test_plans_that_were_not_made_for_this_have_no_slips() -> None:
    assert FOREIGN
    said = [said for _, value in FOREIGN for said in are_slips(answered_slips(value))]
    own = "has '$var"  # NESTFUL reads in the middle of a formula, too, which is no reference here
    assert [each for each in said if not each.startswith(own)] == []


@pytest.mark.parametrize("slip", sorted(TEXTS.keys() - {"angle brackets", "braces"}))
def test_a_slip_in_such_a_plan_is_an_error_that_names_what_was_meant(slip: str) -> None:
    made = [each for _, value in FOREIGN for each in slipped(value, TEXTS[slip])]
    assert made
    assert [meant for meant, value in made if not any(meant in said for said in are_slips(answered_slips(value)))] == []


def test_of_many_slips_a_hundred_are_listed_and_no_call_with_one_runs() -> None:
    answer = read(sent(["{{name}}"] * 5_000), sent("{{name}}"), sent("plain"))
    assert [call.index for call in answer.calls] == [2]
    told = [error for error in answer.errors if error.pointer.startswith("/calls/0/")]
    assert len(told) <= 100
    assert "not listed" in told[-1].message
    assert [error.pointer for error in answer.errors if error not in told] == ["/calls/1/body"]


@pytest.mark.parametrize("text", ["{{name}}", "name.first", "plain", "Dear {{name}}"])
def test_what_a_schema_says_of_texts_is_looked_up_once_for_an_answer(text: str) -> None:
    branches = {"anyOf": [{"items": {"type": "string", "enum": [f"{text}{n}"]}} for n in range(200)]}
    listed = {"items": {"anyOf": [branches, {"items": {"_literal": True}}]}}
    tools = {"send": {"properties": {"body": listed}}}
    request = read_request({"context": CONTEXT, "tools": tools, "schema": {}}, Environment(activities=tools))

    def reading(number: int) -> int:
        value = {"calls": [sent([[text] * number, [None]])], "output": None}
        assert len(read_answer(request, value).calls) == 1
        return steps(lambda: read_answer(request, value))

    few, many = reading(100), reading(300)
    assert (many - few) / 200 < 500  # for each text; what is said of its place takes thousands


def test_a_large_call_with_many_errors_is_repeated_with_few_of_them() -> None:
    broken = read(sent(["†state..x"] * 2_000), sent("†state.b c"))
    assert (
        "more errors are not listed"
        in [error for error in broken.errors if error.pointer.startswith("/calls/0/")][-1].message
    )
    assert broken.errors[-1].pointer == "/calls/1/body"
    assert len(json.dumps([error.to_dict() for error in broken.errors])) < 3_000_000


def test_the_calls_of_an_answer_read_a_limited_number_of_places() -> None:
    def reading(number: int) -> dict[str, Any]:
        return sent("†{state.name}" * number)

    answer = read(reading(15_000), reading(5_001), reading(5_000))
    assert [call.index for call in answer.calls] == [0, 2]
    (error,) = answer.errors
    assert (error.pointer, "20000" in error.message) == ("/calls/1", True)


PAY = {"properties": {"to": {}, "code": {**TEXT_SLIPS, "_literal": True}}, "_trust": {"effects": True}}


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        *(("$1", "write †state.refund"), ("#E1", "write †state.refund"), ("<GENERATED>-0", "write †state.refund")),
        *(("$2", "write the place"), ("#E2", "write the place"), ("#E9", "write the place")),
    ],
)
@pytest.mark.parametrize("wrap", [lambda text: text, lambda text: {"deep": [text]}])
def test_a_placeholder_of_other_planners_in_a_call_with_effects_is_an_error_with_the_place(
    text: str, remedy: str, wrap: Any
) -> None:
    request = asked_slips(tools={**TOOLS, "pay": PAY})
    pay = {"_tool": "pay", "to": wrap(text)}
    answer = read_answer(request, {"calls": [REFUND, sent("x"), pay], "output": None})
    assert [call.raw for call in answer.calls] == [REFUND, sent("x")]
    (error,) = answer.errors
    assert error.pointer.startswith("/calls/2/to")
    assert repr(text) in error.message
    assert remedy in error.message
    as_text = [
        [pay, REFUND],
        [REFUND, {"_tool": "pay", "code": text}],
        [REFUND, sent(text)],
    ]
    for calls in as_text:
        assert read_answer(request, {"calls": calls, "output": None}).errors == ()
    so_far = '{"calls": [' + ", ".join(map(json.dumps, [REFUND, sent("x"), pay]))
    assert 2 not in [call.index for call in begin_answer(request, so_far, request.submission.context, first=0).calls]


@pytest.mark.parametrize(
    "text", ["$3", "$0", "$1.50", "$1 each", "#E", "#Ex", "#E1 and #E2", "<GENERATED>", "$12", "E1"]
)
def test_what_only_looks_like_a_placeholder_runs_as_it_stands(text: str) -> None:
    request = asked_slips(tools={**TOOLS, "pay": PAY})
    calls = [REFUND, sent("x"), {"_tool": "pay", "to": text}]
    assert read_answer(request, {"calls": calls, "output": None}).errors == ()


def test_a_placeholder_of_other_planners_is_a_finding_of_a_plan_where_a_call_is_listed_before() -> None:
    calls = [sent("#E1"), REFUND, sent("#E2"), sent("$2"), sent("$5"), {"_tool": "send", "code": "$1"}]
    value = {"context": CONTEXT, "tools": TOOLS, "solution": {"calls": calls}}
    found = [each for each in analyse(check_submission(value, activities=TOOLS)) if each.code == "ACT302"]
    assert [(each.pointer, each.remedy) for each in found] == [
        (f"/solution/calls/{at}/body", "write †state.refund") for at in (2, 3)
    ]


# What a latent call and a delegate without tools ask a model (SPEC R4.4, R4.7, R8.3, R9.2, R12.5).

TOOLS_RESULTS: Final[dict[str, Any]] = {
    "judge": {
        "description": "Say whether the mail is a complaint.",
        "properties": {"about": {"type": "string"}, "_output": {"type": "boolean"}},
    }
}
CONTEXT_RESULTS: Final[list[dict[str, Any]]] = [
    {"type": "system", "message": "Be brief."},
    {"role": "assistant", "content": "Hello."},
    {"type": "state", "mail": "Where is it?†{state.x}", "_date": "2026-01-01"},
    {"type": "text", "message": "for all"},
    {"type": "input", "language": "en", "schema": {"properties": {"language": {"type": "string"}}}},
    {"type": "data", "data": {"own": 1}, "_instance": "①"},
    {"type": "text", "message": "for ② alone", "_instance": "②"},
    {"type": "state", "mail": "other mail", "_instance": "②"},
]


def planned(*calls: Mapping[str, Any], context: Sequence[Any] = CONTEXT_RESULTS, **parts: Any) -> Plan:
    given: dict[str, Any] = {"tools": TOOLS_RESULTS, "activities": {}, **parts}
    return checked(*calls, context=context, **given)


def started(plan: Plan, instance: str | None = "①") -> tuple[Execution, Start]:
    fold = plan.context.fold(instance)
    execution = Execution.of(plan, plan.lanes[instance], fold, approvals=read_approvals(plan.submission.config))
    (start,) = execution.decide(DATE)
    assert isinstance(start, Start)
    return execution, start


def asked_results(plan: Plan, instance: str | None = "①", **options: Any) -> ResultRequest:
    return request_of(plan, *started(plan, instance), **options)


def request_of(plan: Plan, execution: Execution, start: Start, **options: Any) -> ResultRequest:
    call, delegates = start.call, plan.submission.delegates
    return result_request(
        call,
        start.parameters,
        execution.scoped_messages(call),
        execution.alternatives(call),
        tool=plan.tools.get(call.tool),
        definition=delegates.get(call.runner.name, {}),
        **options,
    )


def contents(request: ResultRequest) -> list[str]:
    return [str(message["content"]) for message in request.messages]


def judging(**properties: Any) -> dict[str, Any]:
    return {"_tool": "judge", "_instance": "①", "_outputPath": "†state.verdict", **properties}


def test_r8_3_a_latent_call_sees_the_whole_context_and_its_scopes_last() -> None:
    first, *rest = contents(asked_results(planned(judging(about="†state.mail", _scopes=["†state.mail", "text"]))))
    answer, more = first.split(". ", 1)
    assert answer == 'Answer with one JSON object and nothing else: {"output": ...}'
    assert more.startswith('"output" is the result of the call at the end.\n')
    assert first.endswith("\nTools\njudge(about?: string) -> boolean\n  Say whether the mail is a complaint.")
    assert rest == [
        "Be brief.",
        "Hello.",
        '## Data: †input\nSchema: {"properties":{"language":{"type":"string"}}}\n{"language":"en"}',
        '## Data: †data\n{"own":1}',
        "for all",
        '## Data: †state\n{"mail":"Where is it?†{state.x}"}',
        "# Give the result of this call\n"
        '{"_tool":"judge","about":"Where is it?†{state.x}"}\nLook first at: †state.mail',
    ]
    roles = [message["role"] for message in asked_results(planned(judging())).messages]
    assert roles == ["system", "system", "assistant", "user", "user", "user", "user", "user"]


def test_what_is_beside_the_scopes_of_a_latent_call_is_cut_above_show_bytes() -> None:
    context = [{"type": "state", "long": "x" * 500}, {"type": "input", "long": "y" * 500}, *CONTEXT_RESULTS[5:6]]
    texts = contents(asked_results(planned(judging(_scopes=["input"]), context=context), show_bytes=100))
    (state,) = (text for text in texts if text.startswith("## Data: †state"))
    assert "(†state is cut here: it has 511 bytes" in state
    assert f'"{"y" * 500}"' in texts[-2]


def test_a_gather_call_that_is_latent_sees_what_all_share_and_what_it_gathers() -> None:
    call = {"_tool": "judge", "_gather": True, "_scopes": ["†state.mail"], "_outputPath": "†data.all"}
    plan = planned(call, context=[*CONTEXT_RESULTS, {"type": "state", "mail": "mine", "_instance": "①"}])
    folds = {name: plan.context.fold(name) for name in ("①", "②")}
    execution = Execution.of(plan, plan.lanes[None], plan.context.fold(), gather=lambda _: folds)
    (start,) = execution.decide(DATE)
    assert isinstance(start, Start)
    texts = contents(request_of(plan, execution, start))
    assert texts[-3:-1] == [
        '## Data: †state\n{"mail":"Where is it?†{state.x}"}',
        '## Data: †state\nDescription: of each instance, by its name\n{"①":{"mail":"mine"},"②":{"mail":"other mail"}}',
    ]
    assert not any("for ②" in text or "own" in text for text in texts)


def test_r14_2_a_held_latent_call_runs_with_what_was_there_when_it_was_held() -> None:
    plan = planned(judging(), config={"approve": ["judge"]})
    fold = plan.context.fold("①")
    execution = Execution.of(plan, plan.lanes["①"], fold, approvals=read_approvals(plan.submission.config))
    (hold,) = execution.decide(DATE)
    assert isinstance(hold, Hold)
    execution.apply(CallHeld(0, hold.snapshot))
    fold.append({"type": "state", "mail": "later"}, "later")
    execution.apply(CallDecided(0, Ruling(Verdict.APPROVED)))
    (start,) = execution.decide(DATE)
    assert isinstance(start, Start)
    texts = contents(request_of(plan, execution, start))
    assert texts[1:-1] == contents(asked_results(planned(judging())))[1:-1]


KINDS = st.sampled_from(["state", "input", "data", "note", "text", "system", "chat", "error"])


@given(
    st.lists(st.tuples(KINDS, st.sampled_from([None, "①", "②", "③"]), st.sampled_from(["a", "b"])), max_size=12),
    st.lists(st.sampled_from(["state", "input", "text", "†state.a", "†data.b", "†note"]), max_size=3),
    st.integers(min_value=1) | st.none(),
)
def test_nothing_of_another_instance_reaches_a_latent_call_and_all_of_its_own_does(
    written: list[tuple[str, str | None, str]], scopes: list[str], show_bytes: int | None
) -> None:
    """Of values that replace each other the last counts: each has a key of its own."""
    context: list[dict[str, Any]] = [{"type": "state", "_instance": "①"}]
    for number, (kind, instance, key) in enumerate(written):
        mark, own = f"mark-{number}-{instance}.", {"_instance": instance} if instance is not None else {}
        match kind:
            case "text" | "system":
                context.append({"type": kind, "message": mark, **own})
            case "chat":
                context.append({"role": "user", "content": mark, **own})
            case _:
                context.append({"type": "data", "kind": kind, "data": {f"{key}{number}": mark}, **own})
    request = asked_results(planned(judging(_scopes=scopes), context=context), show_bytes=show_bytes)
    shown = json.dumps(request.messages, ensure_ascii=False)
    assert not any(f"mark-{n}-{instance}." in shown for n in range(12) for instance in ("②", "③"))
    assert "②" not in shown
    if show_bytes is None:
        for number, (kind, instance, _) in enumerate(written):
            is_last_error = kind == "error" and any(
                later == "error" and name in ("①", instance) for later, name, _ in written[number + 1 :]
            )
            is_hidden_error = kind == "error" and instance is None and ("error", "①") in [w[:2] for w in written]
            if instance in (None, "①") and not is_last_error and not is_hidden_error:
                assert f"mark-{number}-{instance}." in shown


CHOICE: Final = "†state.approved || †state.refused && †data.why || †state.error"
SCHEMA: Final = {"properties": {"approved": {"$ref": "#/$defs/Amount"}}, "$defs": {"Amount": {"type": "integer"}}}


def choosing(**parts: Any) -> Plan:
    call = {"_tool": "decide", "_delegate": "judge", "_outputPath": CHOICE}
    delegates = {
        "judge": {"context": [{"type": "system", "message": "Judge."}], "schema": {"type": ["integer", "string"]}}
    }
    return planned(call, context=[{"type": "state", "schema": SCHEMA}], delegates=delegates, tools={}, **parts)


def test_r4_4_alternatives_are_shown_with_their_schemas() -> None:
    request = asked_results(choosing(), None)
    assert request.choices == {
        "state.approved": "†state.approved",
        "state.refused && data.why": "†state.refused && †data.why",
        "state.error": "†state.error",
    }
    assert (
        'write "output" as {"path": PLACE, "value": RESULT}. Choose one of "state.approved", '
        '"state.refused && data.why", "state.error".' in contents(request)[0]
    )
    schema = CompiledSchema(request.schema)
    for path, value, fits in (
        ("state.approved", 1, True),
        ("state.approved", "no integer", False),
        ("state.refused && data.why", "text", True),
        ("state.error", None, False),
        ("state.other", 1, False),
    ):
        assert bool(schema.problems({"path": path, "value": value})) is not fits
    assert schema.problems(1)


def test_r4_4_a_choice_is_written_to_its_places_and_what_was_not_shown_is_an_error() -> None:
    plan = choosing()
    names = asked_results(plan, None).choices

    def written(result: Any) -> Any:
        execution, start = started(plan, None)
        outcome = execution.finish(start.call.index, result, DATE)
        return outcome.error or [(m.get("kind", "data"), m["data"]) for m in outcome.messages]

    for path in ("state.refused && data.why", "†state.refused && †data.why"):
        choice = chosen({"path": path, "value": "no"}, names)
        assert choice == Output("†state.refused && †data.why", "no")
        assert written(Success(choice)) == [("state", {"refused": "no"}), ("data", {"why": "no"})]
    undeclared = chosen({"path": "state.other", "value": 1}, names)
    assert written(Success(undeclared))["type"] == "OutputError"
    assert written(Failure("InvalidAnswer", "x")) == [("state", {"error": {"type": "InvalidAnswer", "message": "x"}})]
    for none in (1, "x", {"path": 1, "value": 1}, {"path": "state.error"}, {"path": "a", "value": 1, "more": 1}):
        assert chosen(none, names) is None


def test_r9_1_an_anonymous_delegate_is_told_its_tool() -> None:
    tools = {
        "judge": {**TOOLS_RESULTS["judge"], "properties": {**TOOLS_RESULTS["judge"]["properties"], "_delegate": {}}}
    }
    plan = planned(judging(_delegate="anonymous", about="it"), tools=tools)
    assert contents(asked_results(plan))[1:] == ['## Data: †input\n{"about":"it"}']
    assert "\nTools\njudge(about?: string) -> boolean\n" in contents(asked_results(plan))[0]
