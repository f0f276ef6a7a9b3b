"""Calls of a solution that run once in each instance, on real workers (SPEC R10.1)."""

from __future__ import annotations

import time
from typing import Any

from .backend import Backend, Meeting
from .loops import Asked, answer
from .test_control import alone, echo, gate, wait_at
from .test_r14_people import wait_held

__all__ = ["alone", "gate"]  # fixtures

MARKS = ["①", "②", "③"]
CONTEXT: list[dict[str, Any]] = [{"type": "state", "_instance": mark, "mark": mark} for mark in MARKS]


def everywhere(value: Any, path: str, **more: Any) -> dict[str, Any]:
    return echo(value, path, _instance="*", **more)


def test_r10_1_it_runs_in_each_beside_global_calls_and_those_of_one(backend: Backend) -> None:
    calls = [
        everywhere(["†state.mark", "†state.g"], "†state.n"),
        echo(0, "†state.g"),
        echo("†state.n", "†state.own", _instance="②"),
        echo("†state.n", "†data.all", _gather=True),
    ]
    run = backend.client.submit(CONTEXT, {"calls": calls})
    result = backend.wait(run.id)
    assert (result.status, run.status()["calls"]) == ("completed", {"done": 6})
    assert {mark: result.data(mark)["state"]["n"] for mark in MARKS} == {mark: [mark, 0] for mark in MARKS}
    assert result.data("②")["state"]["own"] == ["②", 0]
    assert result.data()["data"]["all"] == {mark: [mark, 0] for mark in MARKS}
    assert {(call.index, call.instance) for call in result.calls} == {
        *((0, mark) for mark in MARKS),
        *((1, None), (2, "②"), (3, None)),
    }


def test_r14_1_each_is_held_and_decided_on_by_itself(backend: Backend) -> None:
    document = {"context": CONTEXT, "solution": {"calls": [everywhere("†state.mark", "†state.n")]}}
    run = backend.client.submit_document({**document, "config": {"approve": ["echo"]}})
    while len(held := wait_held(run)) < len(MARKS):
        time.sleep(0.02)
    assert {(one["index"], one["instance"]) for one in held} == {(0, mark) for mark in MARKS}
    ids = {one["instance"]: one["call"] for one in held}
    run.reject(ids["①"], reason="no")
    run.approve(ids["②"], parameters={"value": "other"})
    run.approve(ids["③"])
    result = backend.wait(run.id)
    assert {call.instance: call.status for call in result.calls} == {"①": "failed", "②": "done", "③": "done"}
    assert [result.data(mark)["state"]["n"] for mark in MARKS[1:]] == ["other", "③"]


def test_r11_7_it_is_added_to_a_run_that_has_ended_and_replaces_what_has_not_begun(
    backend: Backend, meeting: Meeting, gate: str
) -> None:
    run = backend.client.submit(CONTEXT, {"calls": [echo(1, "†state.a"), everywhere("†state.a", "†state.b")]})
    backend.wait(run.id)
    run.amend([everywhere(["†state.mark", "†state.b"], "†state.c")], add=True)
    result = backend.wait(run.id)
    assert {mark: result.data(mark)["state"]["c"] for mark in MARKS} == {mark: [mark, 1] for mark in MARKS}

    calls = [wait_at(gate, "†state.g"), everywhere("†state.g", "†state.old")]
    run = backend.client.submit(CONTEXT, {"calls": calls})
    meeting.take(f"at:{gate}")
    run.amend([everywhere("†state.mark", "†state.new"), echo(1, "†state.more", _instance="①")])
    meeting.open_gate(gate)
    result = backend.wait(run.id)
    assert [result.data(mark)["state"]["new"] for mark in MARKS] == MARKS
    assert not any("old" in result.data(mark)["state"] for mark in MARKS)
    assert run.status()["calls"] == {"done": 5, "skipped": 3}


def test_r11_2_a_fork_has_them_too(backend: Backend) -> None:
    run = backend.client.submit(CONTEXT, {"calls": [everywhere("†state.mark", "†state.n")]})
    backend.wait(run.id)
    copy = run.fork(next(iter(run.log())).id)
    result = backend.wait(copy.id)
    assert [result.data(mark)["state"]["n"] for mark in MARKS] == MARKS


def test_r12_4_a_model_has_a_call_run_in_every_instance(loops: Backend) -> None:
    context = [{"type": "state", "_instance": name, "n": n} for n, name in enumerate(MARKS)]
    call = {"_tool": "add", "a": "†state.n", "b": 1, "_outputPath": "†state.next", "_instance": "*"}
    asked = Asked(loops, answer(call), answer(output=1), context=context)
    result = asked.result()
    assert (result.status, [result.data(name)["state"]["next"] for name in MARKS]) == ("completed", [1, 2, 3])
    assert {(one.index, one.instance, one.tick) for one in result.calls} == {(0, name, 0) for name in MARKS}
    schema = asked.requests[0]["schema"]
    assert "*" in str(schema["$defs"]["instance"]["enum"])
