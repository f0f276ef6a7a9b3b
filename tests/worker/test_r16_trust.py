"""What others wrote starts no effect, on real workers (SPEC R16.1, R16.2, R16.4)."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery.protocol import Rejected
from acts_celery.worker.cli.people import held_lines

from .backend import Backend
from .test_control import echo
from .test_r14_people import wait_held

TOOLS = {
    "echo": {"type": "object", "_trust": {"result": ["mail"]}},
    "add": {"type": "object", "_trust": {"effects": True, "content": ["b"]}},
}
PAY = {"_tool": "add", "a": "†state.amount", "b": 0, "_outputPath": "†state.paid"}


def test_r16_4_a_call_that_others_would_decide_is_held_with_the_way_and_runs_when_it_is_approved(
    backend: Backend,
) -> None:
    calls = [echo(3, "†state.amount"), PAY]
    run = backend.client.submit(solution={"calls": calls}, tools=TOOLS)
    (held,) = wait_held(run)
    assert held["untrusted"] == {"chosen": [], "parameters": {"a": ["mail"]}, "ways": {"mail": [0]}}
    assert held["parameters"] == {"a": 3, "b": 0}
    assert "  others would decide: a comes from mail; mail → call 0" in held_lines(held)
    run.approve(1)
    result = backend.wait(run.id)
    assert (result.status, result.data()["state"]["paid"]) == ("completed", 3)
    assert [entry.message.get("_trust") for entry in run.log()] == [["mail"], ["mail"]]


def test_r16_4_in_every_instance_and_through_a_global_call(backend: Backend) -> None:
    context: list[dict[str, Any]] = [{"type": "state", "_instance": mark, "own": 1} for mark in "①②"]
    context[1]["_trust"] = ["page"]
    calls = [
        echo(3, "†data.amount"),
        *({**PAY, "a": "†data.amount || †state.own", "_instance": mark} for mark in "①②"),
        *({**PAY, "a": "†state.own", "_outputPath": "†state.b", "_instance": mark} for mark in "①②"),
    ]
    config = {"trust": {"otherwise": "refuse"}}
    run = backend.client.submit(context, {"calls": calls}, tools=TOOLS, config=config)
    result = backend.wait(run.id)
    refused = [(call.index, call.instance) for call in result.calls if call.status == "failed"]
    assert refused == [(1, "①"), (2, "②"), (4, "②")]
    assert {call.error["type"] for call in result.calls if call.error is not None} == {"Untrusted"}


def test_r16_2_what_a_gather_call_gives_has_the_sources_of_all_instances(backend: Backend) -> None:
    context: list[dict[str, Any]] = [{"type": "state", "_instance": mark, "own": 1} for mark in "①②"]
    context[1]["_trust"] = ["page"]
    tools = {**TOOLS, "echo": {"type": "object"}}
    gather = {**echo("†state.own", "†data.all"), "_gather": True}
    pay = {**PAY, "a": "†data.all.①"}
    run = backend.client.submit(context, {"calls": [gather, pay]}, tools=tools)
    (held,) = wait_held(run)
    assert held["untrusted"] == {"chosen": [], "parameters": {"a": ["page"]}, "ways": {"page": [0]}}
    run.reject(1, reason="no")
    backend.wait(run.id)


def test_r16_4_what_is_sent_and_forgotten_is_held_as_well(backend: Backend) -> None:
    sent = {"_tool": "add", "a": "†input.page", "b": 1}
    context = [{"type": "input", "page": 5, "_trust": ["web"]}]
    run = backend.client.submit(context, {"calls": [sent]}, tools=TOOLS)
    (held,) = wait_held(run)
    assert held["untrusted"]["parameters"] == {"a": ["web"]}
    run.reject(0, reason="no")
    assert backend.wait(run.id).calls[0].status == "failed"


def test_r16_1_data_that_is_sent_names_its_sources(backend: Backend) -> None:
    promise = {"type": "input", "schema": {"properties": {"page": {"type": "integer"}}, "required": ["page"]}}
    config = {"promise_seconds": 60, "trust": {"otherwise": "refuse"}}
    pay = {**PAY, "a": "†input.page"}
    run = backend.client.submit([promise], {"calls": [pay]}, tools=TOOLS, config=config)
    run.send({"type": "input", "page": 5, "_trust": ["web"]})
    (call,) = backend.wait(run.id).calls
    assert call.error is not None
    assert (call.error["type"], call.error["message"]) == ("Untrusted", "a comes from web")
    with pytest.raises(Rejected, match="must be a list of names of sources"):
        backend.client.submit([{"type": "input", "page": 5, "_trust": "web"}], {"calls": [pay]}, tools=TOOLS)
