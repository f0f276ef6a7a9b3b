"""SPEC R9: delegates. (Solving them, and their own runs, are the worker's.)"""

from __future__ import annotations

import json
from typing import Any

import pytest

from acts_celery.protocol import check_submission
from acts_celery.protocol.calls.delegates import delegate_context, input_misfit
from acts_celery.protocol.engine.events import Start
from acts_celery.protocol.engine.execution import Execution
from acts_celery.protocol.plan.checking import Environment
from acts_celery.protocol.requests import compose, read_request
from acts_celery.protocol.state.fold import Fold

from .building import DATE, call, checked, executing, pointers, problems_of

SYSTEM = {"type": "system", "message": "Ты — переводчик."}
CONTEXT: list[dict[str, Any]] = [
    {"type": "state", "_instance": "①", "text": "Привет", "_date": "d"},
    {"type": "state", "_instance": "②", "text": "Bonjour"},
    {"type": "input", "secret": "not in scope"},
    {"type": "text", "text": "nor this"},
]


def delegated(raw: dict[str, Any], own: list[Any], context: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The context that the delegate of a call is given."""
    plan = checked({"_delegate": "d", **raw}, context=context)
    (instance,) = plan.lanes
    shared = Fold()
    fold = Fold(shared) if instance is not None else shared
    for message in context:
        if message.get("_instance") in (None, instance):
            (shared if message.get("_instance") is None else fold).append(message, "message")
    execution = Execution.of(plan, plan.lanes[instance], fold)
    (start,) = execution.decide(DATE)
    assert isinstance(start, Start)
    return delegate_context(own, execution.scoped_messages(start.call), start.parameters)


# R9.1


def test_r9_1_an_unknown_delegate_is_a_structural_error() -> None:
    assert pointers(problems_of(call(_delegate="d"), registered=[])) == ["/solution/calls/0/_delegate"]
    assert checked(call(_delegate="d"), registered=["d"]).calls[0].runner.name == "d"


def test_r9_1_anonymous_needs_no_registration_but_a_tool() -> None:
    assert checked(call(_delegate="anonymous"), registered=[]).calls[0].runner.name == "anonymous"
    found = problems_of({"_tool": "t", "_delegate": "anonymous"}, tools={"t": None}, registered=[])
    assert "/tools/t" in pointers(found)


def test_r9_1_a_misspelt_property_of_a_definition_is_refused_and_one_of_ones_own_is_not() -> None:
    definition = {"schem": {"type": "string"}, "note": "x"}
    (problem,) = problems_of(call(_delegate="d"), delegates={"d": definition})
    assert (problem.pointer, problem.message.rpartition(", ")[2]) == ("/delegates/d/schem", "did you mean 'schema'?")


def test_r9_1_a_definition_of_the_submission_is_checked_with_it() -> None:
    bad = {"d": {"context": [SYSTEM, {"no": "type"}], "schema": {"type": "nonsense"}}}
    found = problems_of(call(_delegate="d"), delegates=bad)
    assert pointers(found) == ["/delegates/d/context/1", "/delegates/d/schema/type"]


def test_r9_1_a_call_of_a_delegate_needs_no_tool_for_its_parameters_to_be_resolved() -> None:
    calls = [{"_tool": "t", "_delegate": "d", "value": "†input.x", "_outputPath": "†state.a"}]
    plan = check_submission({"context": [{"type": "input", "x": 1}], "solution": {"calls": calls}}, delegates=["d"])
    execution, _ = executing(plan)
    (start,) = execution.decide(DATE)
    assert isinstance(start, Start)
    assert start.parameters == {"value": 1}


# R9.2


@pytest.mark.parametrize(("instance", "text"), [("①", "Привет"), ("②", "Bonjour")])
def test_r9_2_the_seeds_delegates_get_their_own_messages_and_the_scoped_state_of_their_instance(
    instance: str, text: str
) -> None:
    raw = {"_tool": "translate", "_instance": instance, "_scopes": ["state"]}
    assert delegated(raw, [SYSTEM], CONTEXT) == [SYSTEM, {"type": "state", "text": text}]


def test_r9_2_without_scopes_and_parameters_there_is_nothing_but_its_own() -> None:
    assert delegated({"_tool": "t"}, [SYSTEM], CONTEXT[2:]) == [SYSTEM]
    assert delegated({"_tool": "t"}, [], CONTEXT[2:]) == []


def test_r9_2_the_parameters_come_last_as_input_with_the_declared_input_schema() -> None:
    schema = {"type": "object", "required": ["of"]}
    own = [{"type": "input", "schema": {}}, {"type": "data", "kind": "input", "schema": schema}, SYSTEM]
    own += [{"type": "state", "schema": {"required": ["other"]}}, {"type": "input", "given": 0}]
    raw = {"_tool": "t", "of": "†state.a", "deep": [{"in": "††x"}], "_scopes": ["state"], "_outputPath": "†data.x"}
    context = [{"type": "state", "a": 1}]
    assert delegated(raw, own, context) == [
        *own,
        {"type": "state", "a": 1},
        {"type": "input", "of": 1, "deep": [{"in": "†x"}], "schema": schema},
    ]
    assert delegated({"_tool": "t", "of": 1}, own[:1], []) == [own[0], {"type": "input", "of": 1, "schema": {}}]


def test_r9_2_parameters_named_like_reserved_words_are_kept_apart() -> None:
    raw = {"_tool": "t", "type": "x", "schema": 1}
    assert delegated(raw, [], []) == [{"type": "data", "kind": "input", "data": {"type": "x", "schema": 1}}]


def test_r9_2_a_whole_kind_brings_its_schema_and_description_and_no_provenance() -> None:
    context = [{"type": "state", "a": 1, "schema": {"type": "object"}, "description": "d", "_call": 5, "_date": "x"}]
    expected = {"type": "state", "a": 1, "schema": {"type": "object"}, "description": "d"}
    assert delegated({"_tool": "t", "_scopes": ["state"]}, [], context) == [expected]


TALK: list[dict[str, Any]] = [
    {"type": "system", "message": "Be brief.", "note": {"kept": True}},
    {"type": "state", "a": 1},
    {"type": "text", "text": "first", "_date": "d"},
    {"role": "user", "content": "no kind of its own"},
    {"type": "text", "_instance": "①", "text": "own"},
    {"type": "system", "message": "Be exact."},
    {"type": "text", "_instance": "②", "text": "another's"},
]


@pytest.mark.parametrize(
    ("scopes", "given"),
    [
        (["text"], [{"type": "text", "text": "first"}, {"type": "text", "text": "own"}]),
        (["†system"], [TALK[0], TALK[5]]),
        (
            ["state", "text", "system"],
            [TALK[0], {"type": "text", "text": "first"}, TALK[5], {"type": "text", "text": "own"}, TALK[1]],
        ),
        (["†text.text", "†system.message"], []),
    ],
)
def test_r8_3_texts_and_system_messages_in_scope_are_given_as_they_are(scopes: list[str], given: list[Any]) -> None:
    raw = {"_tool": "t", "_instance": "①", "_scopes": scopes}
    assert delegated(raw, [], TALK) == given


DEFINITION: dict[str, Any] = {
    "context": [SYSTEM, {"type": "input", "schema": {"required": ["of"], "properties": {"of": {"type": "integer"}}}}]
}


@pytest.mark.parametrize(
    ("parameters", "at"), [({"of": 1}, []), ({"of": "†state.a"}, []), ({"of": "one"}, ["/of"]), ({"off": 1}, [""])]
)
def test_r9_2_parameters_need_not_fit_a_delegates_input_unless_they_are_resolved_upfront(
    parameters: dict[str, Any], at: list[str]
) -> None:
    raw = call(_delegate="d", **parameters)
    context = [{"type": "state", "a": "text"}]
    plan = checked(raw, delegates={"d": DEFINITION}, context=context)
    assert pointers(input_misfit(DEFINITION, plan.calls[0])) == at
    upfront: dict[str, Any] = {"delegates": {"d": DEFINITION}, "context": context, "config": {"resolve": "upfront"}}
    if at:
        assert pointers(problems_of(raw, **upfront)) == [f"/solution/calls/0{place}" for place in at]
    else:
        assert checked(raw, **upfront).size == 1


def test_r9_2_a_delegate_that_declares_no_input_takes_any() -> None:
    plan = checked(call(_delegate="d", of=1), delegates={"d": {"context": [SYSTEM]}}, config={"resolve": "upfront"})
    assert input_misfit({"context": [SYSTEM]}, plan.calls[0]) == []
    broken = {"d": {"context": [{"type": "input", "schema": {"type": 5}}]}}
    found = problems_of(call(_delegate="d", of=1), delegates=broken, config={"resolve": "upfront"})
    assert pointers(found) == ["/delegates/d/context/0/schema/type"]


def test_r9_2_what_was_given_can_be_changed_without_harm() -> None:
    own = [{"type": "state", "a": 1}]
    delegate_context(own, [], {})[0]["a"] = 2
    assert own == [{"type": "state", "a": 1}]


UPFRONT: dict[str, Any] = {"config": {"resolve": "upfront"}}
ASKING = {
    "context": [
        {
            "type": "input",
            "schema": {
                "type": "object",
                "properties": {"of": {"type": "string"}, "by": {"type": "integer"}},
                "required": ["of"],
                "additionalProperties": False,
            },
        }
    ],
    "schema": {"type": "integer"},
}


def test_r9_2_upfront_a_tool_takes_what_its_delegate_takes_and_gives_what_it_gives() -> None:
    tools = {"ask": {"properties": {"_delegate": {"const": "d"}, "of": {"minLength": 2}}, "_output": {"minimum": 3}}}
    parts = {"tools": tools, "delegates": {"d": ASKING}, **UPFRONT}
    plan = checked({"_tool": "ask", "of": "one", "_outputPath": "†state.a"}, **parts)
    declaration = plan.tools["ask"].declaration
    assert declaration["properties"]["of"] == {"allOf": [{"minLength": 2}, {"type": "string"}]}
    assert declaration["properties"]["by"] == {"type": "integer"}
    assert (declaration["required"], declaration["additionalProperties"]) == (["of"], False)
    assert declaration["_output"] == {"allOf": [{"minimum": 3}, {"type": "integer"}]}
    for wrong, at in (({"of": "x"}, "/of"), ({"of": 12}, "/of"), ({"of": "one", "more": 1}, "/more"), ({}, "")):
        found = problems_of({"_tool": "ask", "_outputPath": "†state.a", **wrong}, **parts)
        assert [place.removeprefix("/solution/calls/0") for place in pointers(found)] in ([at], [""]), wrong
    again = checked(
        {"_tool": "ask", "of": "one", "_outputPath": "†state.a"}, **{**parts, "tools": {"ask": declaration}}
    )
    assert again.tools["ask"].declaration == declaration


def test_r9_2_upfront_a_tool_is_narrowed_by_the_one_delegate_that_its_calls_name() -> None:
    plan = checked(call(_delegate="d", of="one"), delegates={"d": ASKING}, **UPFRONT)
    (tool,) = plan.tools.values()
    assert tool.declaration["required"] == ["of"]
    assert tool.declaration["_output"] == {"type": "integer"}


def test_r9_2_upfront_a_definition_with_references_into_itself_is_refused() -> None:
    schema = {"properties": {"of": {"$ref": "#/$defs/text"}}, "$defs": {"text": {"type": "string"}}}
    definition = {"context": [{"type": "input", "schema": schema}]}
    found = problems_of(call(_delegate="d", of="one"), delegates={"d": definition}, **UPFRONT)
    assert pointers(found) == ["/delegates/d"]


def test_r9_2_upfront_the_model_is_shown_what_the_delegate_takes() -> None:
    tools = {"ask": {"properties": {"_delegate": {"const": "d"}}}}
    value = {"context": [], "schema": {}, "tools": tools, "delegates": {"d": ASKING}, **UPFRONT}
    shown = json.dumps(compose(read_request(value, Environment(activities={}, delegates=()))))
    assert '"by"' in shown
    value.pop("config")
    assert '"by"' not in json.dumps(compose(read_request(value, Environment(activities={}, delegates=()))))
