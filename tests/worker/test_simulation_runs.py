"""A plan that a model carries out, without its code (SPEC R12.10)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from acts_celery import IsSimulation, LocalClient, activity, delegate, local, model
from acts_celery.protocol import Rejected, check_submission

from .backend import Backend
from .test_control_cli import command
from .test_r4_12_moments import FAR, until

ran: list[str] = []
asked: list[str] = []


@activity
def simulated_weight(parcel: str) -> int:
    """The weight of a parcel in grams."""
    ran.append("weight")
    return 1


@activity(effects=True)
def simulated_payment(amount: int) -> str:
    """Pays."""
    ran.append("payment")
    return "paid"


@activity
def simulated_notice(text: str) -> None:
    """Sends a notice."""
    ran.append("notice")


@delegate("simulated_writer")
def simulated_writer(context: list[dict[str, Any]]) -> str:
    ran.append("writer")
    return "code"


@model("simulating")
def simulating(messages: list[dict[str, Any]], schema: Any, config: dict[str, Any]) -> Any:
    """A number where one is asked for, else a text; it keeps what it was shown."""
    text = json.dumps(messages, ensure_ascii=False)
    asked.append(text)
    return {"output": 250 if "integer" in json.dumps(schema) else "a text"}


CODE: list[Any] = [simulated_weight, simulated_payment, simulated_notice]
CONTEXT: list[dict[str, Any]] = [
    {"type": "state", "_instance": name, "parcel": f"parcel of {name}", "secret": "not shown"} for name in ("①", "②")
]
PLAN: dict[str, Any] = {
    "type": "plan",
    "calls": [
        {"_tool": "simulated_weight", "parcel": "†state.parcel", "_outputPath": "†state.weight"},
        {"_tool": "write", "_delegate": "simulated_writer", "about": "†state.weight", "_outputPath": "†state.letter"},
        {"_tool": "simulated_payment", "amount": "†state.weight", "_outputPath": "†state.receipt"},
        {"_tool": "simulated_notice", "text": "†state.letter"},
        {"_tool": "simulated_weight", "parcel": "†state.receipt", "_outputPath": "†state.again"},
    ],
}
DOCUMENT: dict[str, Any] = {"context": [*CONTEXT, PLAN], "config": {"latent": True}}


@pytest.fixture
def client() -> Iterator[LocalClient]:
    ran.clear()
    asked.clear()
    with local(CODE, model="simulating:it") as client:
        yield client


def test_r12_10_models_answer_the_calls_of_a_plan_and_no_code_runs(client: LocalClient) -> None:
    run = client.submit_document(DOCUMENT)
    result = run.wait(timeout_seconds=60)
    assert result.status == "completed"
    assert ran == []
    for name in ("①", "②"):
        state = result.data(name)["state"]
        assert (state["weight"], state["letter"]) == (250, "a text")
        assert not {"receipt", "again"} & state.keys()
    statuses = {call.index: call.status for call in result.calls}
    assert statuses == {0: "done", 1: "done", 2: "skipped", 3: "skipped", 4: "skipped"}
    reasons = {call.index: call.reason or "" for call in result.calls}
    assert "recorded" in reasons[2]
    assert "recorded" in reasons[3]
    assert result.is_simulation
    assert result.to_dict()["simulation"] is True
    assert run.status()["simulation"] is True


def test_r12_10_a_model_is_shown_what_the_code_would_get_and_no_more(client: LocalClient) -> None:
    client.submit_document(DOCUMENT).wait(timeout_seconds=60)
    (shown,) = {text for text in asked if "parcel of ①" in text}
    assert "The weight of a parcel in grams." in shown
    assert "not shown" not in shown
    assert "parcel of ②" not in shown


def test_r12_10_nothing_goes_on_from_a_simulation(client: LocalClient) -> None:
    run = client.submit_document(DOCUMENT)
    run.wait(timeout_seconds=60)
    for going_on in (run.fork, run.export_plan, lambda: client.submit([], {"calls": []}, state_of=run.id)):
        with pytest.raises(IsSimulation, match=run.id):
            going_on()
    run.amend({"calls": [{**PLAN["calls"][0], "parcel": "another", "_outputPath": "†state.more"}]}, add=True)
    assert run.wait(timeout_seconds=60).data("①")["state"]["more"] == 250
    assert ran == [], "and what is added to it is simulated, too"


def test_r12_10_a_result_is_held_to_what_the_tool_says(client: LocalClient) -> None:
    tools = {"simulated_weight": {"properties": {"parcel": {}, "_output": {"type": "string", "maxLength": 3}}}}
    calls = [{"_tool": "simulated_weight", "parcel": "x", "_outputPath": "†state.weight"}]
    document = {"tools": tools, "solution": {"calls": calls}, "config": {"latent": True}}
    result = client.submit_document(document).wait(timeout_seconds=60)
    assert [call.status for call in result.calls] == ["failed"]
    assert ran == []


def test_r12_10_what_needs_no_code_is_real_in_a_simulation(client: LocalClient) -> None:
    calls = [
        {"_tool": "simulated_weight", "parcel": "x", "_outputPath": "†state.weight"},
        {
            "_tool": "choose",
            "value": "†state.weight",
            "cases": [{"maximum": 100}],
            "_outputPath": "†state.light || †state.heavy",
        },
        {"_tool": "wait", "until": "2020-01-01T00:00:00Z", "_outputPath": "†state.waited"},
        {"_tool": "wait", "until": FAR, "_outputPath": "†state.later"},
    ]
    run = client.submit_document({"solution": {"calls": calls}, "config": {"latent": True}})
    until(lambda: run.result().calls[3].status == "waiting" and "heavy" in run.result().data().get("state", {}))
    run.move(3, 0)
    state = run.wait(timeout_seconds=60).data()["state"]
    assert (state["heavy"], "light" in state) == (250, False)
    assert state["waited"].startswith("20")
    assert len(asked) == 1


def test_r12_10_a_model_answers_a_workflow_as_one_call(client: LocalClient) -> None:
    inner = {"solution": {"calls": [{"_tool": "simulated_weight", "parcel": "x", "_outputPath": "†state.w"}]}}
    pays = {"solution": {"calls": [{"_tool": "simulated_payment", "amount": 1, "_outputPath": "†state.w"}]}}
    calls = [{"_tool": name, "_delegate": name, "_outputPath": f"†state.{name}"} for name in ("inner", "pays")]
    document = {"solution": {"calls": calls}, "delegates": {"inner": inner, "pays": pays}, "config": {"latent": True}}
    result = client.submit_document(document).wait(timeout_seconds=60)
    assert result.data()["state"] == {"inner": "a text"}
    assert [(call.status, call.child) for call in result.calls] == [("done", None), ("skipped", None)]
    assert ran == []


def test_r12_10_without_the_setting_the_code_runs(client: LocalClient) -> None:
    result = client.submit_document({**DOCUMENT, "config": {}}).wait(timeout_seconds=60)
    assert result.status == "completed"
    assert {"weight", "writer", "payment"} <= set(ran)
    assert "simulation" not in result.to_dict()


def test_r12_10_what_cannot_be_simulated_is_refused() -> None:
    with pytest.raises(Rejected) as rejected:
        check_submission({"context": [], "schema": {"type": "integer"}, "tools": {}, "config": {"latent": True}})
    assert [problem.pointer for problem in rejected.value.errors] == ["/config/latent"]
    with local(CODE) as client, pytest.raises(Rejected) as rejected:
        client.submit_document(DOCUMENT)
    assert "/config/latent" in [problem.pointer for problem in rejected.value.errors]


def test_r12_10_a_command_simulates_a_file_that_says_nothing_of_it(loops: Backend) -> None:
    document = {"context": [], "solution": {"calls": [{"_tool": "echo", "value": 1}]}}
    told = command(loops, "run", "-", "--latent", stdin=document)
    assert told.code == 0
    assert "a simulation" in told.stdout
    assert command(loops, "run", "-", "--latent", "--json", stdin=document).json["simulation"] is True
