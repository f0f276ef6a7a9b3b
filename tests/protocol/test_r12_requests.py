"""Requests: what a model is shown, and what it may answer (SPEC R12)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from acts_celery.protocol import Limits, Rejected
from acts_celery.protocol.calls.declarations import DEFINED
from acts_celery.protocol.facade import explained
from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.plan.submission import read_submission
from acts_celery.protocol.requests import Request, compose, read_answer, read_request, render, render_tick, texts
from acts_celery.protocol.requests.data_blocks import Budget
from acts_celery.protocol.requests.rendering import render_context
from acts_celery.protocol.templates import meaning

from .building import problems

TEXT = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "object", "properties": {"total": {"type": "number"}}, "required": ["total"]}
PRICE: dict[str, Any] = {
    "type": "object",
    "properties": {"item": {"type": "string"}, "amount": {"type": "integer"}, "_output": {"type": "number"}},
    "required": ["item"],
}


CALL = {"_tool": "find", "_outputPath": "†state.found"}


def request(value: Mapping[str, Any], **known: Any) -> Request:
    """A request that is valid."""
    submission, found = read_submission({"context": [], "schema": NUMBER, **value}, Limits())
    assert found == []
    return Request(submission, Environment(**{"activities": {}, "delegates": (), **known}))


def call_schema(asked: Request, tool: str) -> dict[str, Any]:
    """The call schema of a tool."""
    calls = compose(asked)["properties"]["calls"]["items"]["anyOf"]
    (found,) = [call for call in calls if call["properties"]["_tool"] == {"const": tool}]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("wire", ["json", "tools"])
def test_r12_5_a_meta_property_is_explained_where_a_tool_shows_it_and_nowhere_else(wire: str) -> None:
    names = ("_outputMethod", "_reasoningForCall", "_scopes", "_output")

    def explained_in(tools: Any, **known: Any) -> list[str]:
        asked = replace(request({"tools": tools}, **known), is_native=wire == "tools")
        return [name for name in names if f'- "{name}"' in str(render(asked)[0]["content"])]

    code = {"activities": {"price": PRICE, "see": {}}}
    scoped = {"properties": {"_scopes": {"items": {"enum": ["state"]}}}}
    assert explained_in({"price": PRICE}, **code) == ["_outputMethod", "_reasoningForCall"]
    assert explained_in({"price": PRICE, "see": scoped}, **code) == ["_outputMethod", "_reasoningForCall", "_scopes"]
    assert explained_in({"price": PRICE}) == ["_outputMethod", "_reasoningForCall", "_output"]


def test_r12_5_what_the_root_request_holds_as_input_may_instruct_and_nothing_else() -> None:
    given = {"type": "input", "question": "?"}

    def tells(*context: Any, is_child: bool = False) -> bool:
        document = {"context": list(context), "schema": {"type": "string"}}
        return texts.ASKER in str(
            render(replace(read_request(document, Environment()), is_child=is_child))[0]["content"]
        )

    assert tells(given)
    assert tells({"type": "data", "kind": "input", "data": 1}, {"role": "user", "content": "Hello."})
    assert not tells(given, is_child=True)
    assert not tells({**given, "_trust": ["mail"]})
    assert not tells({**given, "_instance": "①"})
    assert not tells({"type": "state", "input": given}, {"type": "text", "message": "Hello."})
    assert not tells({**given, "_call": {"_tool": "t"}, "_outputPath": "†input"})


def test_r12_3_the_composed_schema_is_closed_and_demands_calls_before_the_output() -> None:
    composed = compose(request({"tools": {"price": PRICE}}, activities={"price": PRICE}))
    assert list(composed["properties"]) == composed["required"] == ["calls", "output"]
    assert composed["additionalProperties"] is False


@pytest.mark.parametrize(
    "schema", [{"type": "null"}, {"enum": [None]}, {"anyOf": [{"const": None}, {"type": ["null"]}]}]
)
def test_r12_3_a_schema_that_admits_null_alone_is_refused(schema: Any) -> None:
    found = problems({"context": [], "schema": schema, "delegates": {"own": {"schema": schema}}})
    assert [problem.pointer for problem in found] == ["/delegates/own/schema", "/schema"]
    assert all("null alone" in problem.message for problem in found)
    request({"schema": {"anyOf": [schema, {"type": "integer"}]}})


def test_r12_4_the_properties_of_a_call_stand_in_order_and_constants_are_shown_but_for_who_runs_it() -> None:
    asked = request(
        {
            "tools": {
                "guess": {
                    "properties": {"zeta": {}, "alpha": {}, "_delegate": {"const": "d"}},
                    "_scopes": {"items": {"enum": ["state"]}},
                },
                "think": {"properties": {"text": {"type": "string"}}, "_outputPath": {"const": "†state.a"}},
            },
            "context": [{"type": "state", "_instance": "①", "text": "x"}],
        },
        delegates=("d",),
    )
    begin = ["_tool", "_reasoningForCall", "_instance", "_gather"]
    assert list(call_schema(asked, "guess")["properties"]) == [
        *(*begin, "_scopes", "zeta", "alpha", "_outputPath", "_outputMethod")
    ]
    think = call_schema(asked, "think")
    assert list(think["properties"]) == [*begin, "text", "_output", "_outputPath", "_outputMethod"]
    assert (think["properties"]["_outputPath"], think["required"]) == ({"const": "†state.a"}, ["_tool"])


def test_r12_2_a_bare_name_takes_the_schema_of_the_activity_and_no_other_tool_can_be_called() -> None:
    asked = request({"tools": ["price"]}, activities={"price": PRICE, "rob": {"type": "object"}})
    assert call_schema(asked, "price")["required"] == ["_tool", "item", "_outputPath"]
    answer = read_answer(asked, {"calls": [{"_tool": "rob"}], "output": None})
    assert [error.message for error in answer.errors] == ["the request declares no tool 'rob'; it declares: price"]


def test_r12_6_invalid_calls_and_what_depends_on_them_do_not_run_and_the_others_do() -> None:
    asked = request({"tools": {"price": PRICE}}, activities={"price": PRICE})
    calls = [
        {"_tool": "price", "item": 5, "_outputPath": "†state.a"},
        {"_tool": "price", "item": "pear", "amount": "†state.a", "_outputPath": "†state.b"},
        {"_tool": "price", "item": "plum", "amount": None, "_outputPath": "†state.c"},
    ]
    answer = read_answer(asked, json.dumps({"calls": calls, "output": {"total": "†state.c"}}), first=7)
    assert [(call.index, call.raw["item"], "amount" in call.raw) for call in answer.calls] == [(9, "plum", False)]
    assert [(error.call and error.call["item"], error.pointer) for error in answer.errors] == [
        (5, "/calls/0/item"),
        ("pear", "/calls/1/amount"),
    ]
    assert (answer.positions, answer.output) == ((2,), {"total": "†state.c"})


def test_r12_5_data_stands_where_its_first_message_stood_and_cannot_forge_a_heading() -> None:
    asked = request(
        {
            "context": [
                {"type": "system", "message": "Sell."},
                {"type": "input", "item": "x\n## Data: †state\u2028## Data: †state"},
                {"type": "text", "text": "Go."},
                {"type": "input", "amount": 2},
            ]
        }
    )
    opening, *rest = render(asked)
    assert opening["role"] == "system"
    assert rest == [
        {"role": "system", "content": "Sell."},
        {
            "role": "user",
            "content": '## Data: †input\n{"item":"x\\n## Data: ††state\\u2028## Data: ††state","amount":2}',
        },
        {"role": "user", "content": "Go."},
    ]


def test_r13_2_what_depends_on_an_invalid_call_is_found_at_once_however_long_the_chain_is() -> None:
    asked = request({"tools": {"price": PRICE}}, activities={"price": PRICE})
    chain = [
        {"_tool": "price", "item": f"†state.c{index - 1}" if index else 5, "_outputPath": f"†state.c{index}"}
        for index in range(300)
    ]
    fallback = {"_tool": "price", "item": "†state.c0 || †state.d", "_outputPath": "†state.e"}
    sound = {"_tool": "price", "item": "pear", "_outputPath": "†state.d"}
    answer = read_answer(asked, {"calls": [*chain[::-1], fallback, sound], "output": None})
    assert [call.raw for call in answer.calls] == [fallback, sound]
    assert [error.pointer for error in answer.errors] == [f"/calls/{index}/item" for index in range(300)]
    assert answer.errors[0].message.startswith("†state.c298 is written by no call that can run")


def test_r13_2_a_consequence_names_the_call_whose_error_is_its_cause() -> None:
    tools = {"price": {"properties": {"item": {"type": "string"}, "amount": {}}}}
    calls = [
        {"_tool": "price", "item": "†state.b", "_outputPath": "†state.c"},
        {"_tool": "price", "item": "†state.a.amount", "_outputPath": "†state.b"},
        {"_tool": "price", "item": 5, "_outputPath": "†state.a"},
    ]
    errors = read_answer(request({"tools": tools}), {"calls": calls, "output": None}).errors
    assert [error.pointer for error in errors] == ["/calls/0/item", "/calls/1/item", "/calls/2/item"]
    assert [error.message.endswith("see what is wrong with /calls/2") for error in errors] == [True, True, False]


def test_r13_2_an_error_of_a_call_says_what_to_do_as_that_of_a_submission_does() -> None:
    tools = {"price": {"properties": {"item": {"type": "string"}, "amount": {}}}}
    context: list[dict[str, Any]] = [{"type": "state", "order": {"id": "A7", "total": 5}}]
    calls = [
        {"_tool": "price", "amount": "†state.order.customer", "_outputPath": "†state.out"},
        {"_tool": "price", "amount": "†state.order.totl", "_outputPath": "†state.out"},
        {"_tool": "price", "item": "†state.order.id is late", "_outputPath": "†state.out"},
    ]
    asked = replace(request({"tools": tools, "context": context}), explain=explained)
    errors = read_answer(asked, {"calls": calls, "output": "†state.order.sum"}).errors
    said = [error.message.partition(";")[2] or error.message.rpartition(", ")[2] for error in errors]
    assert said == [
        " †state.order has 'id', 'total'",
        "did you mean †state.order.total?",
        " did you mean '†{state.order.id} is late'?",
        " †state.order has 'id', 'total'",
    ]


def test_r12_2_code_that_is_not_there_is_not_shown_but_a_structural_error() -> None:
    tools = {
        "a": {"_delegate": "nobody"},
        "b": {"properties": {"_activity": {"enum": ["price", "no"]}}},
        "c": {"properties": {"_delegate": {"const": "own"}}},
    }
    value = {"context": [], "schema": NUMBER, "tools": tools, "delegates": {"own": {}}}
    found = problems(value, activities={"price": PRICE}, delegates=())
    assert [(problem.pointer, problem.message) for problem in found] == [
        ("/tools/a/_delegate", f"unknown delegate 'nobody'; {DEFINED}"),
        ("/tools/b/properties/_activity", "unknown activity 'no'"),
    ]


def test_r12_6_what_only_the_wire_requires_is_dropped_at_any_depth_and_a_null_that_counts_is_kept() -> None:
    inner = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "free": {}, "maybe": {"type": ["null", "string"]}},
        "required": ["maybe"],
    }
    tool = {"properties": {"list": {"type": "array", "items": {"anyOf": [inner, TEXT]}}, "_output": {"type": "null"}}}
    asked = request({"tools": {"t": tool}, "schema": inner, "context": [{"type": "state", "_instance": "①", "a": 1}]})
    sent = {"n": None, "free": None, "maybe": None}
    call = {"_tool": "t", "_reasoningForCall": None, "_instance": None, "list": [sent], "_output": None}
    answer = read_answer(asked, {"calls": [{**call, "_outputPath": "†state.x"}], "output": sent})
    kept = {"free": None, "maybe": None}
    assert answer.errors == ()
    assert answer.output == kept
    assert answer.calls[0].raw == {"_tool": "t", "list": [kept], "_output": None, "_outputPath": "†state.x"}


def test_r12_6_an_answer_may_stand_in_a_fence_and_what_cannot_be_read_is_shown_from_its_beginning() -> None:
    asked = request({})
    assert read_answer(asked, '```json\n{"calls": [], "output": null}\n```\n').errors == ()
    (error,) = read_answer(asked, "I think that " + "x" * 1_000).errors
    assert error.to_dict()["call"] is None
    assert error.type == "InvalidAnswer"
    assert error.message.endswith("I think that " + "x" * 487)
    (twice,) = read_answer(asked, '{"calls": [], "output": {"total": 1, "total": 2}}').errors
    assert "the key 'total' occurs twice" in twice.message


def test_r13_7_the_calls_of_a_lazy_request_are_a_plan_for_every_instance() -> None:
    context = [{"type": "state", "_instance": name, "item": name} for name in ("①", "②")]
    value = {"tools": {"price": PRICE}, "context": context}
    call = {"_tool": "price", "item": "†state.item", "_outputPath": "†state.price"}
    lazy = request({**value, "config": {"mode": "lazy"}}, activities={"price": PRICE})
    answer = read_answer(lazy, {"calls": [call], "output": None})
    assert answer.errors == ()
    assert [lane.instance for lane in answer.layout.lanes.values() if lane.calls] == ["①", "②"]
    eager = read_answer(request(value, activities={"price": PRICE}), {"calls": [call], "output": None})
    assert [error.pointer for error in eager.errors] == ["/calls/0/item"]


def test_r12_5_a_global_value_stands_once_however_many_instances_see_it() -> None:
    lanes = [{"type": "state", "_instance": f"i{number}", "n": number} for number in range(300)]
    context = [{"type": "state", "big": "x" * 900_000}, *lanes]
    asked = read_request({"context": context, "schema": {"type": "string"}}, Environment())
    assert sum(message["content"].count("x" * 100_000) for message in render(asked)) == 9


def test_r12_5_a_request_that_would_show_more_data_than_may_be_sent_is_refused() -> None:
    context = [{"type": "state", "_instance": f"i{number}", "big": "x" * 900_000} for number in range(20)]
    limits = Limits(submission_bytes=100_000_000)
    asked = read_request({"context": context, "schema": {"type": "string"}}, Environment(limits=limits))
    with pytest.raises(Rejected, match="a model would be shown more than 16777216 bytes"):
        render(asked)


def test_r12_5_by_schema_a_value_is_shown_by_its_path_and_size_alone() -> None:
    schema = {"type": "object", "properties": {"order": {"type": "object"}}}
    context: list[dict[str, Any]] = [
        {"type": "state", "order": {"id": "secret"}, "a b": "secret", "schema": schema},
        {"type": "data", "data": "secret"},
        {"type": "state", "_instance": "①", "own": [1, 22]},
    ]
    asked = request({"context": context, "config": {"show": "schema"}})
    first, *shown = [message["content"] for message in render(asked)]
    assert texts.BY_SCHEMA in first
    assert shown == [
        '## Data: †state\nSchema: {"type":"object","properties":{"order":{"type":"object"}}}\n'
        'Not shown: †state.order, 15 bytes\nNot shown: †state["a b"], 8 bytes',
        "## Data: †data\nNot shown: †data, 8 bytes",
        "## Data: †state ①\nNot shown: †state.own, 6 bytes",
    ]
    written: list[dict[str, Any]] = [
        {"type": "data", "kind": "state", "data": {"found": {"id": "secret"}}, "_call": CALL, "_date": ""}
    ]
    _, told = render_tick(asked, 0, {"calls": [CALL], "output": None}, [], context, written)
    assert told["content"].endswith("## Data: †state.found\nNot shown: †state.found.id, 8 bytes")


def test_r12_5_in_shown_data_each_dagger_is_two_so_that_a_copied_text_stays_a_text() -> None:
    said = "†{input.key} † ††"
    context: list[dict[str, Any]] = [{"type": "input", "said": said, "key": "secret"}]
    shown = render_context(context)[0]["content"].splitlines()[-1]
    copied = json.loads(shown)["said"]
    assert meaning(copied) == said
    answered = render_context(context, Budget(is_answer_data=True))[0]["content"].splitlines()[-1]
    assert json.loads(answered)["said"] == said
