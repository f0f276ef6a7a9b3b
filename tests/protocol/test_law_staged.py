"""The law of staged plans: whatever the second schema admits is a solution without an error (SPEC R12.7)."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from acts_celery.protocol import Limits
from acts_celery.protocol.calls.call import Call
from acts_celery.protocol.requests import Request
from acts_celery.protocol.requests.staged import Choice, compose_choice, compose_slots, read_choice, read_slots
from acts_celery.protocol.schemas import CompiledSchema
from acts_celery.protocol.submission.checking import Environment
from acts_celery.protocol.submission.submission import read_submission

from .composed_samples import answers
from .test_law_requests import CONTEXT, INSTANCES, output_schemas, plain_schemas, tools


def asked(value: dict[str, Any], *, is_code: bool = False) -> Request:
    """A staged request, whose first tool is code or is not."""
    submission, problems = read_submission({**value, "config": {"plan": "staged"}}, Limits())
    assert problems == []
    code: dict[str, Any] = {"first": {"type": "object"}} if is_code else {}
    return Request(submission, Environment(activities=code, delegates=("helper", "other")))


@settings(max_examples=settings().max_examples // 4)  # each draws schemas, and then values by them
@given(st.data(), st.lists(tools(), min_size=1, max_size=2), output_schemas, st.booleans(), st.booleans())
def test_what_is_drawn_from_the_second_schema_is_read_back_without_an_error(
    data: st.DataObject, declared: list[dict[str, Any]], schema: Any, has_instances: bool, is_code: bool
) -> None:
    names = ["first", "second"][: len(declared)]
    for tool in declared if not has_instances else ():
        tool["properties"].pop("_instance", None)  # a tool that is pinned to an instance needs one
    context = [*CONTEXT, *(INSTANCES if has_instances else ())]
    value = {"context": context, "schema": schema, "tools": dict(zip(names, declared, strict=True))}
    request = asked(value, is_code=is_code)
    choice = read_choice(request, data.draw(answers(compose_choice(request))))
    assert isinstance(choice, Choice)
    slots = compose_slots(request, choice.tools)
    answer = read_slots(request, choice, slots, data.draw(answers(dict(slots.schema))))
    assert [error.message for error in answer.errors] == []
    for position, call in enumerate(answer.calls):
        earlier = [place for other in answer.calls[:position] for place in other.written]
        assert all(
            any(map(place.overlaps, earlier)) or is_there(request, answer.layout.context, place)
            for place in read_by(call)
        )


def test_a_tool_that_leaves_no_place_for_its_result_or_decides_by_it_is_not_offered() -> None:
    declared = {
        "open": {},
        "odd": {"properties": {"_outputPath": {"pattern": "^†report"}}, "required": ["_outputPath"]},
        "torn": {"not": {"required": ["_outputPath", "a"]}},
        "pinned": {"properties": {"_outputPath": {"const": "†report.x"}}},
        "silent": {"properties": {"_outputPath": False}},
    }
    request = asked({"context": [], "schema": {"type": "string"}, "tools": declared})
    offered = compose_choice(request)["properties"]["tools"]["items"]["anyOf"]
    assert [tool["const"] for tool in offered] == ["open", "pinned", "silent"]
    assert compose_slots(request, ["open", "pinned", "silent"], first=4).paths == ("†state.s4", None, None)


def test_results_are_put_where_nothing_is_and_no_schema_speaks_of_it() -> None:
    taken: list[dict[str, Any]] = [
        {"type": "state", "s0": 1},
        {"type": "data", "data": {}, "schema": {"properties": {"s1": {"type": "string"}}}},
    ]
    request = asked({"context": taken, "schema": {"type": "string"}, "tools": {"open": {}}})
    assert compose_slots(request, ["open", "open"]).paths == ("†data.s0", "†state.s1")


def read_by(call: Call) -> list[Any]:
    """The places that a call refers to."""
    return [place for expression in call.expressions for place in expression.references]


def is_there(request: Request, context: Any, place: Any) -> bool:
    """Whether the context holds a place for every instance."""
    return all(context.fold(instance).exists(place) for instance in request.instances or (None,))


@settings(max_examples=settings().max_examples // 4)
@given(st.data(), plain_schemas, plain_schemas)
def test_what_flows_from_a_slot_fits_where_it_is_read(data: st.DataObject, promised: Any, wanted: Any) -> None:
    declared = {
        "first": {"properties": {"_output": promised}},
        "second": {"properties": {"a": wanted}, "required": ["a"]},
    }
    request = asked({"context": [], "schema": {"type": "string"}, "tools": declared}, is_code=True)
    slots = compose_slots(request, ["first", "second"])
    wrong = {"calls": {"s0": {"_tool": "first"}, "s1": {"_tool": "second", "a": "†state.s0"}}, "output": None}
    offered = not CompiledSchema(dict(slots.schema)).problems(wrong)
    value = data.draw(answers({"type": "object", "properties": {"v": promised}, "required": ["v"]}))["v"]
    if offered and not CompiledSchema(promised).problems(value):
        assert not CompiledSchema(wanted).problems(value)
