"""People decide on calls that a model has chosen (SPEC R14 with R13.1, R13.2)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acts_celery import HeldAnew, NotHeld, Run
from acts_celery.worker.broker.attempts import CallId
from acts_celery.worker.store.run_list import child_id

from .backend import Backend
from .loops import Asked, answer
from .test_control_cli import command
from .test_r9_3_children import Told
from .test_r14_people import wait_held

SUM = {"_tool": "add", "a": 1, "b": 2, "_outputPath": "†state.sum"}


def test_r14_1_the_next_tick_waits_for_the_person(loops: Backend) -> None:
    asked = Asked(loops, answer(SUM), answer(output="†state.sum"), config={"approve": ["add"]})
    (held,) = wait_held(asked.run)
    assert (held["tool"], held["parameters"], asked.asked) == ("add", {"a": 1, "b": 2}, {0: 1})
    asked.run.approve(held["call"], parameters={"a": 40, "b": 2})
    assert (asked.result().output, asked.asked) == (42, {0: 1, 1: 1})


def test_r14_2_a_rejection_is_told_to_the_model_and_sets_the_output_aside(loops: Backend) -> None:
    asked = Asked(loops, answer(SUM, output=1), answer(output=2), config={"approve": ["*"]})
    wait_held(asked.run)
    asked.run.reject(0, "we do not add here")
    result = asked.result()
    assert (result.status, result.output) == ("completed", 2)
    assert [message["data"]["error"]["type"] for message in asked.messages("error")] == ["Rejected"]
    assert "we do not add here" in asked.requests[1]["messages"][-1]["content"]


def test_r14_a_model_may_ask_a_person(loops: Backend) -> None:
    question = {"_tool": "ask_human", "question": "How many?", "_outputPath": "†state.many"}
    asked = Asked(loops, answer(question), answer(output="†state.many"), tools=["ask_human"])
    wait_held(asked.run)
    asked.run.answer(0, 7)
    assert asked.result().output == 7


def held_below(backend: Backend, **config: Any) -> tuple[Run, Told]:
    """A run that asks a child run, whose model calls `add`."""
    told = Told(backend, answer(SUM), answer(output="†state.sum"))
    asking = {"_tool": "ask", "_delegate": "researcher", "_outputPath": "†state.answer"}
    calls = [asking, {"_tool": "own", "_output": 1, "_outputPath": "†state.own"}]
    document = {
        "solution": {"calls": calls},
        "tools": {"own": {"_output": {}}},
        "delegates": {"researcher": told.definition()},
        "config": {"approve": ["add", "own"]} | config,
    }
    return backend.client.submit_document(document), told


def test_r14_1_what_the_parent_approves_is_held_in_child_runs_too_and_decided_on_from_there(loops: Backend) -> None:
    run, _ = held_below(loops)
    child = child_id(CallId(run.id, None, 0))
    own, below = sorted(wait_held(run, 2), key=lambda held: held["tool"], reverse=True)
    assert (own["call"], own["tool"], "run" in own) == ("1", "own", False)
    assert (below["call"], below["index"], below["tool"], below["run"]) == (f"{child}/0", 0, "add", child)
    assert (run.status()["held_below"], run.status()["calls"]) == (1, {"held": 1, "running": 1})
    (same,) = loops.client.run(child).held()
    assert (same["call"], "run" in same) == ("0", False)
    run.approve(1)
    with pytest.raises(HeldAnew):
        run.approve(below["call"], shown="1-1")
    run.approve(below["call"], parameters={"a": 3, "b": 4}, shown=below["shown"])
    assert loops.wait(run.id).data()["state"] == {"answer": 7, "own": 1}
    assert run.held() == []


def test_r14_1_a_call_of_a_child_is_rejected_and_replaced_through_its_parent(loops: Backend) -> None:
    run, told = held_below(loops, approve=["add"])
    (below,) = wait_held(run)
    run.reject(below["call"], "not that")
    told_again, _ = held_below(loops, approve=["add"])
    (other,) = wait_held(told_again)
    told_again.approve(other["call"], calls=[{**SUM, "a": 20}])
    (instead,) = wait_held(told_again)  # which is to be approved, too
    told_again.approve(instead["call"])
    assert loops.wait(told_again.id).data()["state"]["answer"] == 22
    loops.wait(run.id)
    assert "not that" in str(Asked.requests.fget(told)[1]["messages"])  # type: ignore[attr-defined]  # it uses the same as `Asked`


def test_r14_1_no_run_decides_on_the_calls_of_another_one_that_is_not_below_it(loops: Backend) -> None:
    run, _ = held_below(loops, approve=["add"])
    stranger, _ = held_below(loops, approve=["add"])
    (below,) = wait_held(run)
    wait_held(stranger)
    for call in (below["call"], f"{run.id}/0", f"{stranger.id}/0", "nowhere/0"):
        with pytest.raises(NotHeld, match="is no child run"):
            stranger.approve(call)
        with pytest.raises(NotHeld, match="is no child run"):
            stranger.reject(call, "no")
    for one in (run, stranger):
        one.cancel()
    assert (run.held(), stranger.held()) == ([], [])


def test_r14_1_acts_held_lists_the_calls_of_child_runs_and_acts_approve_takes_them(loops: Backend) -> None:
    run, _ = held_below(loops, approve=["add"])
    (below,) = wait_held(run)
    listed = command(loops, "held", run.id, "--json")
    assert json.loads(listed.stdout)["call"] == below["call"]
    assert f"1 call of child runs waits for a person: acts held {run.id}" in command(loops, "status", run.id).stdout
    decided = command(loops, "approve", run.id, below["call"], "--yes")
    assert (decided.code, decided.stdout.splitlines()[1:]) == (0, [f"decided, 0 calls of run {run.id} still held"])
    assert f"call {below['call']} of run {run.id}: add" in decided.stdout
    assert loops.wait(run.id).data()["state"]["answer"] == 3
