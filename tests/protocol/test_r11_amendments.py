"""Amendments: new calls checked against a run as it stands (SPEC R11.1, R7.1)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from acts_celery.protocol import Limits, Plan, Rejected, check_amendment
from acts_celery.protocol.calls.call import Call, make_call
from acts_celery.protocol.calls.tools import Executor, Runner
from acts_celery.protocol.plan.additions import SoFar
from acts_celery.protocol.plan.checking import Environment

KNOWN = Environment(activities={"echo": {"type": "object"}}, delegates=(), model=False)


def echo(value: Any, path: str, **meta: Any) -> dict[str, Any]:
    return {"_tool": "echo", "value": value, "_outputPath": path, **meta}


def at_work(index: int, call: dict[str, Any]) -> Call:
    return make_call(index, call, {}, Runner(Executor.ACTIVITY, "echo"))


def checked(value: Any, *messages: dict[str, Any], begun: Any = None, **so_far: Any) -> Plan:
    return check_amendment(value, SoFar(messages, begun or {}, first=7, **so_far), KNOWN)


def problems(value: Any, *messages: dict[str, Any], **so_far: Any) -> list[tuple[str, str]]:
    with pytest.raises(Rejected) as refused:
        checked(value, *messages, **so_far)
    return [(problem.pointer, problem.message) for problem in refused.value.errors]


def test_new_calls_come_behind_those_that_are_there() -> None:
    plan = checked({"calls": [echo(1, "†state.a"), echo("†state.a", "†state.b")]})
    assert [call.index for call in plan.calls] == [7, 8]
    assert plan.edges == ((7, 8),)
    assert [plan.submission.place(index) for index in (7, 8)] == [("solution", "calls", 0), ("solution", "calls", 1)]


def test_a_call_at_work_counts_as_a_writer_and_waits_for_no_call() -> None:
    running = at_work(3, echo("†state.b", "†state.a"))
    plan = checked({"calls": [echo("†state.a", "†state.b")]}, begun={None: (running,)})
    assert plan.lanes[None].graph.before(7) == (3,)


def test_a_call_at_work_in_an_instance_is_a_writer_there_and_nowhere_else() -> None:
    messages = [{"type": "state", "_instance": mark, "mark": mark} for mark in "①②"]
    running = at_work(0, echo(1, "†state.a"))
    ((at, message),) = problems(
        {"calls": [echo("†state.a", "†state.b")]}, *messages, begun={"①": (running,)}, is_template=True
    )
    assert at == "/calls/0/value"
    assert "instance '②'" in message


def test_a_global_call_at_work_is_a_writer_for_instances() -> None:
    running = at_work(2, echo(1, "†state.a"))
    new = {"calls": [echo("†state.a", "†state.b", _instance="①")]}
    plan = checked(new, {"type": "state", "_instance": "①", "mark": 1}, begun={None: (running,)})
    assert plan.lanes["①"].graph.awaited == {2}


def test_a_call_that_stays_where_others_are_added_is_a_writer_and_so_is_one_at_work() -> None:
    stays, running = at_work(4, echo("†state.a", "†state.b")), at_work(3, echo(1, "†state.a"))
    added = {"calls": [echo(["†state.a", "†state.b"], "†state.c")]}
    plan = checked(added, begun={None: (running,)}, kept={None: (stays,)})
    assert plan.lanes[None].graph.before(7) == (3, 4)


def test_calls_added_to_an_ended_run_read_what_it_has_written_and_nothing_that_it_has_not() -> None:
    written = {"type": "data", "kind": "state", "data": {"a": 1}, "_call": echo(1, "†state.a"), "_date": "2026-11-21"}
    assert checked({"calls": [echo("†state.a", "†state.b")]}, written).size == 1
    assert problems({"calls": [echo("†state.never", "†state.b")]}, written)[0][0] == "/calls/0/value"


def test_an_amendment_can_call_nothing_that_the_run_does_not_allow() -> None:
    calls = [echo(1, "†state.a"), {"_tool": "other", "_output": 1, "_outputPath": "†state.b"}]
    value = {"calls": calls, "tools": {"other": {}}}
    assert checked(value, allow=frozenset({"echo", "other"})).size == 2
    assert problems(value, allow=frozenset({"echo"})) == [("/calls/1/_tool", "tool 'other' is not allowed here")]
    with pytest.raises(Rejected):
        check_amendment(value, SoFar((), {}, 0, allow=frozenset({"echo", "other"})), replace(KNOWN, allow=frozenset()))


def test_what_calls_have_written_can_be_read() -> None:
    written = {"type": "data", "kind": "state", "data": {"a": 1}, "_call": echo(1, "†state.a"), "_date": "2026-11-21"}
    assert checked({"calls": [echo("†state.a", "†state.b")]}, written).lanes[None].graph.before(7) == ()


def test_errors_point_into_the_amendment_in_both_of_its_shapes() -> None:
    calls = [echo("†state.a", "†state.b"), {"_tool": "unknown"}]
    assert [at for at, _ in problems({"calls": calls})] == ["/calls/0/value", "/calls/1/_tool"]
    assert [at for at, _ in problems({"solution": {"calls": calls}})] == [
        "/solution/calls/0/value",
        "/solution/calls/1/_tool",
    ]


@pytest.mark.parametrize("value", [None, [], {}, {"calls": [], "solution": {"calls": []}}, {"call": []}])
def test_what_is_no_amendment_is_refused(value: Any) -> None:
    ((at, message),) = problems(value)
    assert at == ""
    assert "an amendment must be an object" in message


def test_a_property_that_an_amendment_does_not_have_is_an_error() -> None:
    assert problems({"calls": [], "context": []})[0][0] == "/context"
    assert problems({"calls": "none"})[0][0] == "/calls"


def test_tools_of_the_run_and_of_the_amendment_are_known() -> None:
    calls = [{"_tool": "old", "_output": 1, "_outputPath": "†state.a"}, {"_tool": "new", "_output": 1}]
    plan = checked({"calls": calls, "tools": {"new": {"type": "object"}}}, tools={"old": {"type": "object"}})
    assert set(plan.tools) == {"old", "new"}


def test_limits_of_input_hold_for_what_is_handed_in_and_not_for_the_log() -> None:
    known = replace(KNOWN, limits=Limits(depth=5, message_bytes=400, submission_bytes=1000, messages=2, containers=20))
    deep: Any = 1
    for _ in range(9):
        deep = {"a": deep}
    log = [{"type": "state", "deep": deep}, *({"type": "state", f"n{n}": "x" * 500} for n in range(9))]
    plan = check_amendment({"calls": [echo("†state.n3", "†state.b")]}, SoFar(log, {}, first=7), known)
    assert [call.index for call in plan.calls] == [7]
    for calls in (
        [echo(deep, "†state.b")],
        [echo("x" * 500, "†state.b")],
        [echo(n, f"†state.b{n}") for n in range(30)],
    ):
        with pytest.raises(Rejected, match="ACTS_LIMIT_"):
            check_amendment({"calls": calls}, SoFar(log, {}, first=7), known)


def test_a_call_without_a_path_is_not_added_where_tokens_are_counted() -> None:
    value = {"calls": [{"_tool": "write", "_delegate": "writer"}], "delegates": {"writer": {"context": []}}}
    known = Environment(activities={}, delegates=(), model=True)
    assert check_amendment(value, SoFar((), {}, first=0), known).calls
    with pytest.raises(
        Rejected, match=r"/calls/0: delegate 'writer' is answered by a model.*give the call an _outputPath"
    ):
        check_amendment(value, SoFar((), {}, first=0, config={"tokens": 1000}), known)
