"""A text of a model's answer that reads as a reference and is none does not run (SPEC R12.6b)."""

from __future__ import annotations

import json
import time
from ast import literal_eval
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts_celery.protocol import Expression, Reference, check_submission
from acts_celery.protocol.analysis.analyse import analyse
from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.requests import Answer, Request, compose, read_answer, read_request
from acts_celery.protocol.requests.streaming import begin_answer, end_answer
from acts_celery.protocol.templates import bare, escaped

from .foreign_plans import calls_of
from .laws import law
from .strategies import expressions
from .test_analysis_slips import FOREIGN, TEXTS, slipped
from .test_scale import steps

TEXT: dict[str, Any] = {"type": "string"}
CONTEXT: list[dict[str, Any]] = [
    {"type": "state", "o": {"id": "A7", "lines": [{"sku": "x"}]}, "name": "Ann"},
    {"type": "input", "mail": "ann@example.com"},
    {"type": "data", "kind": "memo", "data": {"title": "Hello"}},
    {"type": "input", "_instance": "①", "own": 1},
]
TOOLS: dict[str, dict[str, Any]] = {
    "refund": {"properties": {"order": {}, "amount": {"type": "number"}}},
    "send": {"properties": {"body": TEXT, "code": {**TEXT, "_literal": True}, "to": {"enum": ["state.o.id", "Ann"]}}},
}


def asked(**more: Any) -> Request:
    return read_request({"context": CONTEXT, "tools": TOOLS, "schema": {}, **more}, Environment(activities=TOOLS))


def read(*calls: Mapping[str, Any], output: Any = None) -> Answer:
    return read_answer(asked(), {"calls": list(calls), "output": output})


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
        ("refund", "†state.refund"),
        ("input.refund", "†input.refund"),
        (" †state.refund", "†state.refund"),
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
    assert error.message == f"has the text {text!r}, where only a reference may stand: write {corrected}"
    assert not read({**REFUND, "_outputPath": corrected}).errors


def test_a_scope_without_its_dagger_is_an_error_with_the_reference_that_was_meant() -> None:
    ask = {"properties": {"_scopes": {"items": {"enum": ["†state.o", "†input"]}}}, "_output": {"type": "string"}}
    request = asked(tools={"ask": ask})
    call = {"_tool": "ask", "_scopes": ["†input", "state.o"], "_output": None, "_outputPath": "†state.x"}
    (error,) = read_answer(request, {"calls": [call], "output": None}).errors
    assert error.pointer == "/calls/0/_scopes/1"
    assert error.message == "has the text 'state.o', where only a reference may stand: write †state.o"


@pytest.mark.parametrize("path", ["state.other", "refund.", "a b", "state.list[*]", ""])
def test_where_the_reference_that_was_meant_is_none_or_not_admitted_the_rule_is_said(path: str) -> None:
    pinned = {"refund": {**TOOLS["refund"], "properties": {"_outputPath": {"enum": ["†state.one", "†state.two"]}}}}
    call = {"_tool": "refund", "_outputPath": path}
    (error,) = read_answer(asked(tools=pinned), {"calls": [call], "output": None}).errors
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
    think = {"properties": {"_output": TEXT, "_outputPath": {}}}
    answer = read_answer(asked(tools={**TOOLS, "think": think}), {"calls": [call], "output": None})
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
    request = asked()
    begun = begin_answer(request, text[: text.index(', "output"')], CONTEXT, first=0)
    assert [call.index for call in begun.calls] == [2, 3]
    answer = end_answer(request, text, [2, 3], CONTEXT, first=0)
    assert [call.index for call in answer.calls] == [1, 2, 3]
    assert [error.pointer for error in answer.errors] == ["/calls/0/body"]


def test_very_many_names_are_not_looked_up_and_such_a_call_does_not_run() -> None:
    began = time.monotonic()
    text = " ".join(f"{{{{state.o.x{number}}}}}" for number in range(40_000))
    (error,) = read(sent(text), sent("plain")).errors
    assert "not looked at: the answer has more than 20000 texts that may name a place" in error.message
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
    corrected = error.message.partition("write ")[2].partition("; a † of")[0]
    corrected = literal_eval(corrected) if corrected[0] in "'\"" else corrected
    answer = read(sent(corrected))
    assert (answer.errors, len(answer.calls)) == ((), 1)


def test_what_a_tool_says_of_texts_is_not_sent_to_a_model() -> None:
    assert "_literal" not in json.dumps(compose(asked()))


def answered(value: dict[str, Any]) -> Answer:
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
    said = [said for _, value in FOREIGN for said in are_slips(answered(value))]
    own = "has '$var"  # NESTFUL reads in the middle of a formula, too, which is no reference here
    assert [each for each in said if not each.startswith(own)] == []


@pytest.mark.parametrize("slip", sorted(TEXTS.keys() - {"angle brackets", "braces"}))
def test_a_slip_in_such_a_plan_is_an_error_that_names_what_was_meant(slip: str) -> None:
    made = [each for _, value in FOREIGN for each in slipped(value, TEXTS[slip])]
    assert made
    assert [meant for meant, value in made if not any(meant in said for said in are_slips(answered(value)))] == []


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


PAY = {"properties": {"to": {}, "code": {**TEXT, "_literal": True}}, "_trust": {"effects": True}}


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
    request = asked(tools={**TOOLS, "pay": PAY})
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
    request = asked(tools={**TOOLS, "pay": PAY})
    calls = [REFUND, sent("x"), {"_tool": "pay", "to": text}]
    assert read_answer(request, {"calls": calls, "output": None}).errors == ()


def test_a_placeholder_of_other_planners_is_a_finding_of_a_plan_where_a_call_is_listed_before() -> None:
    calls = [sent("#E1"), REFUND, sent("#E2"), sent("$2"), sent("$5"), {"_tool": "send", "code": "$1"}]
    value = {"context": CONTEXT, "tools": TOOLS, "solution": {"calls": calls}}
    found = [each for each in analyse(check_submission(value, activities=TOOLS)) if each.code == "ACT302"]
    assert [(each.pointer, each.remedy) for each in found] == [
        (f"/solution/calls/{at}/body", "write †state.refund") for at in (2, 3)
    ]
