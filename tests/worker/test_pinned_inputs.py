"""Expressions that tools prescribe for their parameters, on real workers (SPEC R4.1)."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery.protocol import Rejected

from .backend import Backend
from .loops import Asked, answer
from .test_control import echo
from .test_control_cli import command
from .test_r14_people import wait_held

TOOLS: dict[str, Any] = {"echo": {"properties": {"value": {"const": "†state.user.id"}}, "required": ["value"]}}
USER: dict[str, Any] = {"type": "state", "user": {"id": "u1"}, "other": "u2"}
PINNED: dict[str, Any] = {"_tool": "echo", "_outputPath": "†state.out"}


@pytest.mark.parametrize("call", [PINNED, {**PINNED, "value": "†state.user.id"}])
def test_r4_1_what_a_call_leaves_out_is_filled_in_and_read(backend: Backend, call: dict[str, Any]) -> None:
    assert backend.run([call], [USER], tools=TOOLS).data()["state"]["out"] == "u1"


def test_r4_1_another_expression_is_refused_before_anything_runs(backend: Backend) -> None:
    with pytest.raises(Rejected, match="/solution/calls/0/value"):
        backend.run([{**PINNED, "value": "†state.other"}], [USER], tools=TOOLS)


def test_r4_1_a_plan_fills_it_in_for_each_instance(backend: Backend) -> None:
    context = [{"type": "state", "_instance": name, "user": {"id": name}} for name in ("①", "②")]
    plan = {"type": "plan", "calls": [PINNED]}
    result = backend.wait(backend.client.submit([*context, plan], tools=TOOLS).id)
    assert [result.data(name)["state"]["out"] for name in ("①", "②")] == ["①", "②"]


def test_r4_1_each_element_of_a_prescribed_list_is_held_against_the_rest(backend: Backend) -> None:
    tools = {"echo": {"properties": {"value": {"const": "†state.ids", "type": "string"}}}}
    call = {**PINNED, "_each": "value"}
    result = backend.run([call], [{"type": "state", "ids": ["u1", 2]}], tools=tools)
    assert result.data()["state"]["out"] == ["u1", None]


def test_r4_1_calls_that_are_added_are_filled_in_and_held_to_it(backend: Backend) -> None:
    run = backend.client.submit([USER], {"calls": [PINNED]}, tools=TOOLS)
    backend.wait(run.id)
    with pytest.raises(Rejected):
        run.amend([{**PINNED, "value": "†state.other"}], add=True)
    run.amend([{**PINNED, "_outputPath": "†state.more"}], add=True)
    assert backend.wait(run.id).data()["state"]["more"] == "u1"


def test_r11_2_a_value_is_explained_by_what_was_filled_in(backend: Backend) -> None:
    run = backend.client.submit([USER], {"calls": [PINNED]}, tools=TOOLS)
    backend.wait(run.id)
    (origin,) = run.explain("†state.out").origins
    assert [(read.reference, read.value) for read in origin.reads] == [("†state.user.id", "u1")]


def test_r14_2_a_person_cannot_change_what_a_tool_prescribes(backend: Backend) -> None:
    document = {"context": [USER], "solution": {"calls": [PINNED]}, "tools": TOOLS, "config": {"approve": ["*"]}}
    run = backend.client.submit_document(document)
    (held,) = wait_held(run)
    assert held["parameters"] == {"value": "u1"}
    with pytest.raises(Rejected, match="/value"):
        run.approve(0, parameters={"value": "u2"})
    run.approve(0, parameters={"value": "u1"})
    assert backend.wait(run.id).data()["state"]["out"] == "u1"


def test_r4_1_an_exported_plan_keeps_what_its_tools_prescribe(backend: Backend) -> None:
    run = backend.client.submit([USER], {"calls": [PINNED]}, tools=TOOLS)
    backend.wait(run.id)
    exported = command(backend, "export", run.id, "--plan", "--json").json
    again = backend.client.submit_document({**exported, "context": [USER, *exported["context"]]})
    assert backend.wait(again.id).data()["state"]["out"] == "u1"


def test_r4_1_a_model_calls_a_tool_whose_input_is_prescribed(loops: Backend) -> None:
    tools = {"add": {"properties": {"a": {"const": "†state.n"}}}}
    context = [{"type": "state", "n": 4, "other": 7}]
    wrong = {"_tool": "add", "a": "†state.other", "_outputPath": "†state.sum"}
    right = {"_tool": "add", "b": 2, "_outputPath": "†state.sum"}
    asked = Asked(loops, answer(wrong), answer(right), answer(output="†state.sum"), tools=tools, context=context)
    result = asked.result()
    assert (result.status, result.output) == ("completed", 6)
    assert [tick.errors for tick in result.ticks or ()] == [1, 0, 0]
    request = asked.requests[0]
    assert "a" not in request["schema"]["properties"]["calls"]["items"]["anyOf"][0]["properties"]
    assert "is given a = †state.n" in str(request["messages"])


def test_r4_1_calls_that_wait_for_what_is_filled_in_come_after_it(backend: Backend) -> None:
    tools = {"echoPlain": {"properties": {"value": {"const": "†state.made"}}}}
    late = {"_tool": "echoPlain", "_outputPath": "†state.late"}
    result = backend.run([late, echo(1, "†state.made")], tools=tools)
    assert result.data()["state"] == {"made": 1, "late": 1}
