"""Labels in runs that are amended, forked, or given a value by hand, on real workers (SPEC R16.2, R16.4)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from .backend import Backend
from .test_control import echo
from .test_r14_people import wait_held

PLAIN = {"echo": {"type": "object"}}
ADD = {"add": {"type": "object", "_trust": {"effects": True}}}
INSTANCES: list[dict[str, Any]] = [
    {"type": "state", "_instance": "①", "own": 1},
    {"type": "state", "_instance": "②", "own": 2, "_trust": ["page"]},
]
GATHER = {**echo("†state.own", "†data.all"), "_gather": True}


def pay(amount: str) -> dict[str, Any]:
    return {"_tool": "add", "a": amount, "b": 0, "_outputPath": "†state.paid"}


def held_for(run: Any, **parameters: list[str]) -> None:
    """That a call is held for what decides, and no more; it is rejected."""
    while not (found := run.held()) and run.status()["status"] == "running":
        time.sleep(0.02)
    (held,) = found
    assert held["untrusted"]["parameters"] == parameters
    run.reject(held["call"], reason="no")


def test_r16_2_an_effect_that_comes_later_knows_what_instances_alone_held(backend: Backend) -> None:
    """No tool of the run speaks of trust, and global data has no source."""
    run = backend.client.submit(INSTANCES, {"calls": [GATHER]}, tools=PLAIN)
    assert backend.wait(run.id).status == "completed"
    run.amend({"calls": [pay("†data.all.①")], "tools": ADD}, add=True)
    held_for(run, a=["page"])
    assert backend.wait(run.id).calls[1].status == "failed"


@pytest.mark.parametrize("value", [{"①": 5, "②": 6}, 7])
def test_r16_2_a_value_by_hand_has_the_sources_of_what_its_gather_call_has_read(backend: Backend, value: Any) -> None:
    gather = {"_tool": "failUntilMended", "name": "never", "value": "†state.own", "_outputPath": "†data.all"}
    calls = [{**gather, "_gather": True}, pay("†data.all.① || †data.all")]
    run = backend.client.submit(INSTANCES, {"calls": calls}, tools=ADD)
    assert backend.wait(run.id).calls[0].status == "failed"
    run.retry(call=0, skip=True, value=value)
    held_for(run, a=["page"])
    backend.wait(run.id)
    assert [entry.message["_trust"] for entry in run.log() if entry.message and "_by" in entry.message] == [["page"]]


def test_r16_2_a_fork_holds_what_its_run_holds_and_what_is_amended_in_it(backend: Backend) -> None:
    tools = {**ADD, "echo": {"type": "object", "_trust": {"result": ["mail"]}}}
    run = backend.client.submit([], {"calls": [echo(3, "†state.amount"), pay("†state.amount")]}, tools=tools)
    wait_held(run)
    fork = run.fork()
    held_for(run, a=["mail"])
    held_for(fork, a=["mail"])
    backend.wait(fork.id)
    later = fork.fork()
    later.amend({"calls": [{**pay("†state.amount"), "_outputPath": "†state.again"}]}, add=True)
    held_for(later, a=["mail"])
    backend.wait(run.id)
    backend.wait(later.id)
