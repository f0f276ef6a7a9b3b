"""Calls that wait for the same source are one question, and one answer decides exactly what was shown (SPEC R16.8)."""

from __future__ import annotations

from typing import Any

import pytest

from acts_celery import HeldAnew, Run
from tests.ui.sites import DECIDER, READER, TOKENS, error_of, served

from .backend import Backend, status_of
from .pages import Asking
from .test_control_cli import command
from .test_r14_people import wait_held

MAIL = {"type": "data", "data": {"one": "DE01", "two": "DE02", "list": ["DE03"]}, "_trust": ["mail"]}
SITE = {"type": "state", "page": "DE04", "_trust": ["web"]}
EFFECT = {"_trust": {"effects": True}}
TOOLS = {"echo": EFFECT, "later": {"properties": {"_activity": {"const": "echo"}}, **EFFECT}}


def pay(payee: Any, place: str, tool: str = "echo", amount: int = 5) -> dict[str, Any]:
    value = {"payee": payee, "amount": amount}
    return {"_tool": tool, "value": value, "_outputPath": f"†state.{place}"}


def submitted(backend: Backend, *calls: dict[str, Any], context: tuple[dict[str, Any], ...] = (MAIL, SITE)) -> Run:
    return backend.client.submit_document({"context": [*context], "solution": {"calls": [*calls]}, "tools": TOOLS})


def test_calls_held_for_the_same_source_are_one_question_with_a_table_of_what_differs(backend: Backend) -> None:
    calls = (pay("†data.one", "a"), pay("†data.two", "b"), pay("†state.page", "c"), pay("†data.one", "d", "later"))
    run = submitted(backend, *calls, pay("†data.list", "e", amount=7))
    held = {call["call"]: call for call in wait_held(run, 5)}
    [question] = run.questions()
    assert question["calls"] == {index: held[index]["shown"] for index in ("0", "1", "4")}, (
        "another source, another tool"
    )
    assert (question["tool"], question["untrusted"]) == ("echo", {"chosen": [], "parameters": {"value": ["mail"]}})
    assert question["columns"] == ["/parameters/value/payee", "/parameters/value/amount"]
    assert [tuple(row["differs"].values()) for row in question["rows"]] == [("DE01", 5), ("DE02", 5), (["DE03"], 7)]
    assert set(question["same"]) == {"/scopes", "/ways"}
    assert Asking(backend, run).ask("questions") == run.questions()
    assert {call["call"] for call in run.held()} == set(held), "each can be decided alone"


def test_one_answer_decides_all_that_was_shown_and_nothing_that_is_held_since(backend: Backend) -> None:
    run = submitted(backend, pay("†data.one", "a"), pay("†data.two", "b"))
    wait_held(run, 2)
    [shown] = run.questions()
    run.amend([pay("†data.one", "c")], add=True)
    wait_held(run, 3)
    assert run.question(shown["question"])["calls"] == shown["calls"]
    done = run.approve_together(shown, by="Ann")
    assert set(done["decisions"]) == {"0", "1"}
    assert done["left"] == {}
    assert [call["call"] for call in run.held()] == ["2"]
    assert run.approve_together(shown) == done, "the same decision twice is one"
    run.reject_together({call["call"]: call["shown"] for call in run.held()}, "not that one")
    result = backend.wait(run.id)
    assert [status_of(result, index) for index in range(3)] == ["done", "done", "failed"]
    assert result.calls[2].error == {"type": "Rejected", "message": "not that one"}


def test_a_call_of_a_question_that_is_another_one_now_is_left(backend: Backend) -> None:
    run = submitted(backend, pay("†data.one", "a"), pay("†data.two", "b"))
    wait_held(run, 2)
    [shown] = run.questions()
    with pytest.raises(HeldAnew):
        run.approve_together(dict.fromkeys(shown["calls"], "0" * 16))
    run.reject("1", "no", shown=shown["calls"]["1"])
    with pytest.raises(HeldAnew, match="nothing was decided"):
        run.question(shown["question"])
    assert run.approve_together(shown)["left"] == {"1": "already_decided"}
    assert [status_of(backend.wait(run.id), index) for index in range(2)] == ["done", "failed"]


def test_calls_of_instances_are_asked_about_together_and_calls_that_wait_for_approval_alone_are_not(
    backend: Backend,
) -> None:
    names = ("Ann", "Bob")
    states = [{"type": "state", "_instance": name, "payee": name, "_trust": ["mail"]} for name in names]
    plan = {"type": "plan", "calls": [pay("†state.payee", "paid")]}
    run = backend.client.submit_document({"context": [*states, plan], "tools": TOOLS})
    wait_held(run, 2)
    [question] = run.questions()
    assert [(row["instance"], *row["differs"].values()) for row in question["rows"]] == [(name, name) for name in names]
    other = backend.client.submit([], {"calls": [pay("x", "a"), pay("y", "b")]}, config={"approve": ["*"]})
    wait_held(other, 2)
    assert other.questions() == []
    run.cancel()
    other.cancel()


def test_the_commands_show_one_question_and_decide_by_its_digest(backend: Backend) -> None:
    run = submitted(backend, pay("†data.one", "a"), pay("†data.two", "b", amount=6))
    wait_held(run, 2)
    [question] = run.questions()
    lines = command(backend, "held", run.id).stdout.splitlines()
    assert lines[0] == f"2 calls of echo together, --question {question['question']}"
    assert [line.split()[:3] for line in lines[-3:]] == [
        ["call", "/parameters/value/payee", "/parameters/value/amount"],
        ["0", "DE01", "5"],
        ["1", "DE02", "6"],
    ]
    together = [line["together"] for line in command(backend, "held", run.id, "--json").json_lines]
    assert together == [question["question"]] * 2
    wrong = command(backend, "approve", run.id, "--question", "0" * 16)
    assert (wrong.code, len(run.held())) == (4, 2)
    assert "acts held" in wrong.stderr
    done = command(backend, "approve", run.id, "--question", question["question"])
    assert done.code == 0
    assert "decided, 0 calls" in done.stdout
    assert backend.wait(run.id).status == "completed"


def test_http_shows_questions_and_takes_one_answer_with_the_right_to_decide(backend: Backend) -> None:
    run = submitted(backend, pay("†data.one", "a"), pay("†data.two", "b"))
    wait_held(run, 2)
    path = f"/api/runs/{run.id}/reject_together"
    with served(backend, ACTS_UI_TOKENS=TOKENS) as site:
        [question] = site.get(f"/api/runs/{run.id}/questions", READER).json()
        body = {"calls": question["calls"], "reason": "no"}
        assert error_of(site.post(path, body, READER)) == (403, "NotAdmitted")
        assert error_of(site.post(path, {**body, "calls": {}}, DECIDER)) == (400, "BadBody")
        assert error_of(site.post(path, {**body, "calls": {"0": "1-1"}}, DECIDER)) == (409, "HeldAnew")
        assert set(site.post(path, body, DECIDER).json()["decisions"]) == {"0", "1"}
    assert [call.status for call in backend.wait(run.id).calls] == ["failed", "failed"]
