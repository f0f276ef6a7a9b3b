"""The simulation: a plan run in the pure engine on made-up values (SPEC R6.7)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acts_celery.protocol import check_submission
from acts_celery.protocol.analysis.sample_values import PLACEHOLDER, sample
from acts_celery.protocol.analysis.simulation import (
    MOST_ALTERNATIVES,
    MOST_CALLS,
    MOST_TRIED,
    Simulation,
    branch_effects,
    simulate,
)
from acts_celery.protocol.engine.events import Status
from acts_celery.protocol.schemas import compiled

from .building import call, checked, plan_submission

OBJECT: dict[str, Any] = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 5}, "s": {}}}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (True, PLACEHOLDER),
        ({}, PLACEHOLDER),
        ({"const": [1]}, [1]),
        ({"enum": ["a", "b"]}, "a"),
        ({"type": "string", "examples": ["Ада"]}, "Ада"),
        ({"type": "string", "default": "x"}, "x"),
        (OBJECT, {"n": 5, "s": PLACEHOLDER}),
        ({"type": "object", "required": ["a"], "additionalProperties": {"type": "boolean"}}, {"a": True}),
        ({"type": "array", "items": {"type": "null"}, "minItems": 3}, [None, None, None]),
        ({"type": "array", "maxItems": 0}, []),
        ({"type": "array", "prefixItems": [{"const": 1}], "items": False}, [1]),
        ({"type": ["null", "number"], "exclusiveMinimum": 2}, 3),
        ({"type": "integer", "minimum": 7, "multipleOf": 5}, 10),
        ({"type": "integer", "maximum": -4}, -4),
        ({"type": "string", "minLength": 3}, "………"),
        ({"type": "string", "format": "date"}, "2026-01-01"),
        ({"anyOf": [{"type": "boolean"}, {"type": "string"}]}, True),
        ({"allOf": [{"required": ["a"]}, {"properties": {"a": {"const": 1}}}]}, {"a": 1}),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"const": 4}}}, 4),
    ],
)
def test_a_sample_is_always_the_same_and_satisfies_its_schema(schema: Any, value: Any) -> None:
    assert sample(schema) == value
    assert compiled(schema).problems(value) == []


def test_a_schema_without_end_has_a_sample_that_ends() -> None:
    assert sample({"type": "object", "properties": {"next": {"$ref": "#"}}})
    assert sample({"$ref": "#"}) == PLACEHOLDER


def test_results_are_made_up_from_output_schemas_and_nothing_is_carried_out() -> None:
    tools = {"make": {"type": "object", "properties": {"_output": OBJECT}}}
    calls = call("make", to="†data.x"), call(value="†data.x.n", to="†data.y"), call(value="†data.y")
    simulation = simulate(checked(*calls, tools=tools))
    assert simulation.data == {None: {"data": {"x": {"n": 5, "s": PLACEHOLDER}, "y": PLACEHOLDER}}}
    assert [call.status.value for call in simulation.calls] == ["done", "done", "sent"]
    assert simulate(checked(*calls, tools=tools)) == simulation


def test_without_a_schema_there_is_something_wherever_others_read() -> None:
    simulation = simulate(checked(call(to="†data.x"), call(value="†data.x.user.name"), call(value="†data.x.id")))
    assert simulation.data[None]["data"]["x"] == {"user": {"name": PLACEHOLDER}, "id": PLACEHOLDER}
    assert simulation.skipped == ()


def test_the_schemas_of_delegates_and_of_the_state_are_used_too() -> None:
    context = [{"type": "state", "schema": {"properties": {"age": {"type": "integer"}}}}]
    plan = checked(
        call("ask", _delegate="d", to="†data.a"),
        call(to="†state.age"),
        context=context,
        delegates={"d": {"context": [], "schema": {"type": "boolean"}}},
    )
    assert simulate(plan).data[None] == {"data": {"a": True}, "state": {"age": 1}}


@pytest.mark.parametrize(
    ("method", "before", "after"),
    [("push", [1], [1, "…"]), ("concat", [1], [1, "…"]), ("concat", "a", "a…"), ("merge", {"a": 1}, {"a": 1})],
)
def test_made_up_values_fit_the_method(method: str, before: Any, after: Any) -> None:
    context = [{"type": "data", "data": {"x": before}}]
    simulation = simulate(checked(call(to="†data.x", _outputMethod=method), context=context))
    assert simulation.data[None] == {"data": {"x": after}}


def test_the_first_branch_is_taken_and_the_others_can_be() -> None:
    plan = checked(
        call(to="†data.good || †data.bad"),
        call(value="†data.good", to="†data.x"),
        call(value="†data.bad", to="†data.y"),
        call(value="†data.x"),
    )
    assert simulate(plan).skipped == (2,)
    assert simulate(plan, {0: 1}).skipped == (1, 3)
    assert [effect.to_dict() for effect in branch_effects(plan, simulate(plan))] == [
        {"call": 0, "alternative": "†data.good", "skipped": [2]},
        {"call": 0, "alternative": "†data.bad", "skipped": [1, 3]},
    ]


def test_every_instance_has_its_own_end_and_sees_the_global_one() -> None:
    context = [{"type": "state", "_instance": name, "text": name} for name in "①②"]
    template = simulate(check_submission(plan_submission(call(value="†state.text", to="†state.x"), context=context)))
    assert template.data["②"] == {"state": {"text": "②", "x": PLACEHOLDER}}
    assert len(template.calls) == 2
    calls = call(to="†data.g"), call(value="†data.g", to="†data.h", _instance="①")
    mixed = simulate(checked(*calls, context=context))
    assert mixed.data["①"]["data"] == {"g": PLACEHOLDER, "h": PLACEHOLDER}
    assert mixed.data["②"]["data"] == {"g": PLACEHOLDER}


def test_what_would_fail_fails() -> None:
    tools = {
        "make": {"type": "object", "properties": {"_output": {"type": "string"}}},
        "take": {"type": "object", "properties": {"value": {"type": "integer"}}},
    }
    simulation = simulate(checked(call("make", to="†data.x"), call("take", value="†data.x", to="†data.y"), tools=tools))
    assert [call.status.value for call in simulation.calls] == ["done", "failed"]
    assert (simulation.calls[1].error or {})["type"] == "InvalidParameters"


def test_a_value_made_up_without_a_schema_is_what_its_reader_asks_for() -> None:
    tools = {"take": {"type": "object", "properties": {"value": {"type": "integer"}}}}
    simulation = simulate(checked(call(to="†data.x"), call("take", value="†data.x", to="†data.y"), tools=tools))
    assert [call.status.value for call in simulation.calls] == ["done", "done"]
    assert isinstance(simulation.data[None]["data"]["x"], int)


TAKES_INTEGER: dict[str, Any] = {"properties": {"value": {"type": "integer", "minimum": 2}}}


@pytest.mark.parametrize(
    ("output", "value"),
    [({}, 2), (True, 2), ({"type": "integer"}, 2), ({"type": "integer", "default": 5}, 5), ({"type": "number"}, 2)],
)
def test_what_a_schema_leaves_open_is_what_the_reader_asks_for(output: Any, value: Any) -> None:
    tools = {"make": {"properties": {"_output": output}}, "take": TAKES_INTEGER}
    simulation = simulate(checked(call("make", to="†data.x"), call("take", value="†data.x", to="†data.y"), tools=tools))
    assert simulation.data[None] == {"data": {"x": value, "y": PLACEHOLDER}}


@pytest.mark.parametrize("method", ["push", "concat"])
def test_what_is_read_of_an_element_is_made_up_for_each_element(method: str) -> None:
    context = [{"type": "data", "data": {"l": []}}]
    add = call(to="†data.l", _outputMethod=method)
    simulation = simulate(
        checked(add, add, call("take", value="†data.l.1", to="†data.y"), call(value="†data.l.0"), context=context,
                tools={"take": TAKES_INTEGER})
    )  # fmt: skip
    assert simulation.data[None] == {"data": {"l": [2, 2], "y": PLACEHOLDER}}


def test_what_is_asked_of_the_elements_of_a_list_is_made_up_too() -> None:
    tools = {"take": {"properties": {"value": {"type": "array", "items": {"required": ["id"]}}}}}
    add = call(to="†data.l", _outputMethod="push")
    simulation = simulate(checked(add, add, call("take", value="†data.l"), tools=tools))
    assert simulation.data[None] == {"data": {"l": [{"id": PLACEHOLDER}] * 2}}


@pytest.mark.parametrize(
    ("first", "then", "after"),
    [
        ("†data.o", call(value="†data.o", to="†data.o.k"), {"o": {"k": PLACEHOLDER}}),
        ("†data.o", call(value="†data.o", to="†data.o.k.l"), {"o": {"k": {"l": PLACEHOLDER}}}),
        ("†data.o", call(value="†data.o.n", to="†data.o.k"), {"o": {"n": PLACEHOLDER, "k": PLACEHOLDER}}),
        ("†data.o", call(value="†data.o", to="†data.o", _outputMethod="merge"), {"o": {}}),
        ("†data.o", call(value="†data.o", to="†data.o", _outputMethod="push"), {"o": [PLACEHOLDER] * 2}),
        ("†data.o", call(value="†data.o", to="†data.o.l", _outputMethod="push"), {"o": {"l": [PLACEHOLDER] * 2}}),
    ],
)
def test_what_others_add_to_can_be_added_to(first: str, then: dict[str, Any], after: dict[str, Any]) -> None:
    assert simulate(checked(call(to=first), then)).data[None] == {"data": after}


ADDRESS: dict[str, Any] = {
    "type": "object",
    "properties": {"street": {"type": "string"}, "zip": {"type": "string", "minLength": 5}},
    "required": ["street", "zip"],
}
"""A model, as it stands among the definitions of a schema."""


def outcomes(simulation: Simulation) -> set[Status]:
    """How the calls ended."""
    return {call.status for call in simulation.calls}


@pytest.mark.parametrize("definitions", ["$defs", "definitions"])
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"$ref": "Address"}, {"street": "…", "zip": "……………"}),
        ({"anyOf": [{"$ref": "Address"}, {"type": "null"}]}, {"street": "…", "zip": "……………"}),
        ({"type": "array", "items": {"$ref": "Tier"}}, ["free"]),
        ({"$ref": "Person"}, {"tier": "free"}),
    ],
)
def test_what_a_kind_or_a_reader_refers_to_is_made_up(definitions: str, schema: Any, value: Any) -> None:
    defined = {"Address": ADDRESS, "Tier": {"enum": ["free", "pro"]}}
    defined["Person"] = {"type": "object", "properties": {"tier": {"$ref": "Tier"}}, "required": ["tier"]}
    text = json.dumps({"properties": {"value": schema}, definitions: defined})
    whole = json.loads(text.replace('"$ref": "', f'"$ref": "#/{definitions}/'))
    calls = call(to="†state.value"), call("take", value="†state.value", to="†data.y")
    for declared in ({"tools": {"take": whole}}, {"context": [{"type": "state", "schema": whole}]}):
        simulation = simulate(checked(*calls, **declared))
        assert (simulation.data[None]["state"], outcomes(simulation)) == ({"value": value}, {Status.DONE})


LOG: dict[str, Any] = {
    "properties": {"log": {"type": "array", "items": {"$ref": "#/$defs/a"}}},
    "$defs": {"a": ADDRESS},
}


@pytest.mark.parametrize("held", [{}, {"log": []}, {"log": [{"street": "A", "zip": "12345"}]}])
@pytest.mark.parametrize("method", ["push", "concat"])
@pytest.mark.parametrize("read", ["†state.log", "†state.log.0", "†state.log.0.street"])
def test_what_is_added_to_a_list_is_such_as_the_schema_of_its_kind_asks(held: Any, method: str, read: str) -> None:
    add = call(to="†state.log", _outputMethod=method)
    context = [{"type": "state", "schema": LOG, "data": held}]
    simulation = simulate(checked(add, add, call(value=read, to="†data.y"), context=context))
    assert outcomes(simulation) == {Status.DONE}
    assert simulation.data[None]["state"]["log"][-2:] == [{"street": "…", "zip": "……………"}] * 2


@pytest.mark.parametrize("under", ["kind", "reader"])
def test_objects_merged_in_parts_have_all_that_is_asked_of_them(under: str) -> None:
    schema = {"type": "object", "properties": {"address": ADDRESS}}
    declared: dict[str, Any] = {"context": [{"type": "state", "schema": schema}]}
    if under == "reader":
        declared = {"tools": {"take": schema}}
    merge = call(to="†state.address", _outputMethod="merge")
    calls = merge, {**merge, "value": "†state.address"}, call("take", address="†state.address", to="†data.y")
    simulation = simulate(checked(*calls, call(value="†state.address.zip", to="†data.z"), **declared))
    assert (outcomes(simulation), simulation.data[None]["data"]) == ({Status.DONE}, {"y": "…", "z": "…"})


A_SET: dict[str, Any] = {"type": "array", "uniqueItems": True, "minItems": 3}


@pytest.mark.parametrize("method", ["push", "concat"])
@pytest.mark.parametrize("items", [{"type": "string"}, {"type": "integer"}, ADDRESS])
def test_elements_that_have_to_differ_do(method: str, items: Any) -> None:
    schema = {"properties": {"tags": {**A_SET, "items": items}}}
    add = call(to="†state.tags", _outputMethod=method)
    calls = add, add, add, call("take", tags="†state.tags", to="†data.y")
    context = [{"type": "state", "tags": [], "schema": schema}]
    assert outcomes(simulate(checked(*calls, context=context, tools={"take": schema}))) == {Status.DONE}


def test_what_a_reader_asks_for_is_added_to_what_a_schema_leaves_open() -> None:
    tools = {"make": {"properties": {"_output": {"type": "object"}}}}
    simulation = simulate(checked(call("make", to="†data.x"), call(value="†data.x.id", to="†data.y"), tools=tools))
    assert simulation.data[None]["data"] == {"x": {"id": "…"}, "y": "…"}


def test_a_schema_that_no_sample_fits_is_named_and_not_applied() -> None:
    tools = {"make": {"type": "object", "properties": {"_output": {"type": "string", "pattern": "^[A-Z]{3}$"}}}}
    simulation = simulate(checked(call("make", to="†data.x"), tools=tools))
    assert simulation.unfit == ("make",)
    assert simulation.data[None] == {"data": {"x": PLACEHOLDER}}


def test_thoughts_and_given_results_are_taken_as_they_are() -> None:
    calls = {"_tool": "t", "_output": 7, "_outputPath": "†data.x"}, {"_tool": "t"}
    simulation = simulate(checked(*calls, activities={}))
    assert simulation.data[None] == {"data": {"x": 7}}
    assert [call.status.value for call in simulation.calls] == ["done", "latent"]


def test_of_very_many_branches_the_first_are_tried() -> None:
    plan = checked(*[call(to=f"†data.a{number} || †data.b{number}") for number in range(50)])
    assert len(list(branch_effects(plan, simulate(plan)))) == MOST_ALTERNATIVES


@pytest.mark.nightly
def test_of_very_many_calls_of_instances_the_first_are_run_and_the_others_counted() -> None:
    context = [{"type": "state", "_instance": f"i{number}", "n": number} for number in range(MOST_CALLS)]
    calls = call(value="†state.n", to="†state.x"), call(value="†state.x", to="†state.y || †state.z")
    plan = check_submission(plan_submission(*calls, context=context))
    simulation = simulate(plan)
    assert len(simulation.calls) == MOST_CALLS
    assert (len(simulation.data), simulation.left_out) == (MOST_CALLS // 2 + 1, MOST_CALLS // 2)
    assert simulation.data["i0"]["state"] == {"n": 0, "x": PLACEHOLDER, "y": PLACEHOLDER}
    effects = list(branch_effects(plan, simulation))
    assert [effect.alternative for effect in effects] == ["†state.y", "†state.z"]


@pytest.mark.nightly
def test_what_is_global_and_the_first_instance_are_run_however_many_calls_they_have() -> None:
    context = [{"type": "text", "_instance": name} for name in "①②"]
    calls = [call(to=f"†state.k{i}", _instance=name) for name in (None, "①", "②") for i in range(MOST_CALLS)]
    simulation = simulate(checked(*calls, context=context))
    assert (len(simulation.calls), simulation.left_out) == (2 * MOST_CALLS, 1)
    assert simulation.data.keys() == {None, "①"}


@pytest.mark.nightly
def test_a_message_that_is_left_out_leaves_the_others_their_numbers() -> None:
    context: list[Any] = [{"type": "text", "_instance": "①"}, {"type": "text", "_instance": "②"}]
    context += [{"type": "state", "data": 5}, {"type": "state", "n": 1}]
    calls = [call(to="†data.x", _instance="①") for _ in range(MOST_CALLS)]
    simulation = simulate(checked(*calls, call(_instance="②"), call(value="†state.n"), context=context))
    assert simulation.left_out == 1
    (failed,) = [call for call in simulation.calls if call.error]
    assert "(message 3)" in (failed.error or {})["message"]


def test_alternatives_that_would_take_too_many_calls_are_not_tried() -> None:
    calls = [call(to=f"†data.k{i}") for i in range(MOST_TRIED // 2)]
    plan = checked(call(to="†data.a || †data.b || †data.c"), *calls)
    effects = branch_effects(plan, simulate(plan))
    assert [effect.alternative for effect in effects] == ["†data.a", "†data.b"]


def test_what_is_read_in_a_text_may_be_anything_and_what_is_all_of_it_what_its_reader_asks_for() -> None:
    tools = {"take": {"type": "object", "properties": {"kind": {"enum": ["a", "b"]}, "long": {"maxLength": 30}}}}
    calls = call(to="†data.x"), call("take", kind="†{data.x.k}", long="so: †{data.x.l}", to="†data.y")
    simulation = simulate(checked(*calls, tools=tools))
    assert [call.status.value for call in simulation.calls] == ["done", "done"]
    assert simulation.data[None]["data"]["x"] == {"k": "a", "l": PLACEHOLDER}
