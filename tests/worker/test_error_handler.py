"""An error's handler is written as a call (SPEC R3.1), on real workers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from acts_celery.protocol import Rejected

from .backend import Backend, Meeting
from .test_amend import alone
from .test_control import gate, wait_at
from .test_retry import broken, command, echo, failed_run, mend, statuses
from .test_retry import name as name

__all__ = ["alone", "gate"]  # fixtures

HANDLER = echo("†error.error.message", "†state.handled")
MARKS = ["①", "②"]


def test_a_handler_runs_where_a_call_has_failed_and_is_skipped_where_it_was_done_again(
    backend: Backend, meeting: Meeting, name: str
) -> None:
    run = failed_run(backend, [broken(name), echo("†state.a", "†state.b"), HANDLER, echo("†state.handled", "†state.c")])
    assert statuses(run) == ["failed", "skipped", "done", "done"]
    assert run.result().data()["state"]["c"]
    mend(meeting, name)
    done = run.retry()
    assert (done.calls, done.skipped, done.stale) == (("0",), ("1",), ("2", "3"))
    backend.wait(run.id)
    assert run.retry(downstream=True).downstream == ("2", "3")
    result = backend.wait(run.id)
    assert (result.status, statuses(run)) == ("completed", ["done", "done", "skipped", "skipped"])
    assert result.data()["state"] == {"a": 1, "b": 1}


def test_a_handler_waits_for_all_calls_of_its_instance_before_it_also_remote_ones(
    backend: Backend, meeting: Meeting, gate: str, name: str
) -> None:
    calls = [
        wait_at(gate, "†state.n"),
        broken(name, path="†state.m"),
        HANDLER,
        echo("†error || †state.mark", "†state.seen"),
    ]
    context = [{"type": "state", "_instance": mark, "mark": mark} for mark in MARKS]
    run = backend.client.submit([*context, {"type": "plan", "calls": calls}])
    for _ in MARKS:
        meeting.take(f"at:{gate}")
    assert {call.status for call in run.result().calls if call.index > 1} == {"waiting"}
    meeting.open_gate(gate)
    result = backend.wait(run.id)
    assert {call.status for call in result.calls if call.index > 1} == {"done"}
    assert result.data("①")["state"]["seen"]["call"]["_tool"] == "failUntilMended"


def test_a_handler_can_be_added_to_a_run_that_has_failed_and_to_one_under_way(
    backend: Backend, meeting: Meeting, gate: str, name: str
) -> None:
    run = failed_run(backend, [broken(name)])
    run.amend([HANDLER], add=True)
    assert backend.wait(run.id).data()["state"]["handled"]
    mend(meeting, name)
    assert run.retry().stale == ("1",), "it has read an error that counts no more"
    assert backend.wait(run.id).status == "completed"
    assert run.retry(downstream=True).downstream == ("1",)
    assert backend.wait(run.id).data()["state"] == {"a": 1}
    other = backend.client.submit([], {"calls": [wait_at(gate, "†state.n"), broken(f"{name}-2")]})
    meeting.take(f"at:{gate}")
    other.amend([HANDLER], add=True)
    meeting.open_gate(gate)
    result = backend.wait(other.id)
    assert [call.status for call in result.calls] == ["done", "failed", "done"]


def test_a_gather_call_reads_the_errors_of_all_instances(backend: Backend, name: str) -> None:
    context = [{"type": "state", "_instance": mark, "mark": mark} for mark in MARKS]
    calls = [
        broken(name, _instance=MARKS[0]),
        echo(1, "†state.a", _instance=MARKS[1]),
        echo("†error.call._tool", "†state.errors", _gather=True),
    ]
    run = failed_run(backend, calls, context)
    assert run.result().data()["state"] == {"errors": {MARKS[0]: "failUntilMended"}}


def test_who_reads_an_error_that_none_can_bring_is_refused(backend: Backend) -> None:
    with pytest.raises(Rejected, match="reads the errors of the calls of its instance that are listed before it"):
        backend.client.submit([], {"calls": [HANDLER, echo(1, "†state.a")]})


def test_what_is_waited_for_and_why_it_was_skipped_is_shown(backend: Backend) -> None:
    run = backend.client.submit([], {"calls": [echo(1, "†state.a"), HANDLER]})
    result = backend.wait(run.id)
    assert (result.status, result.calls[1].status) == ("completed", "skipped")
    shown: dict[str, Any] = json.loads(command(backend, "show", run.id, "--json").stdout)
    assert shown["calls"][1]["reason"].endswith("no call listed before it has failed")
    explained = command(backend, "explain", run.id, "†state.handled").stdout
    assert "no call listed before it has failed" in explained
