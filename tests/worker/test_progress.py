"""Progress that a call's code reports: whoever looks sees it, and the next attempt goes on from it."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts_celery import Event, InvalidProgress, Progress, Run, current_call
from acts_celery.protocol.limits import PROGRESS_BYTES, PROGRESS_TEXT
from acts_celery.worker.broker.attempts import pack_progress, read_progress
from acts_celery.worker.cli.progress import NewestReport, progress_words
from acts_celery.worker.limits import LARGEST_COUNT

from .backend import Backend
from .test_control_cli import command

AMOUNTS = st.none() | st.integers(0, LARGEST_COUNT) | st.floats(0, LARGEST_COUNT)
DETAILS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


def call_of(tool: str, **parameters: Any) -> dict[str, Any]:
    return {"_tool": tool, **parameters, "_outputPath": "†state.a"}


def reported(run: Run[Any], done: float) -> Event:
    """The event that says that so much is done; waits for it."""
    return next(event for event in run.follow(timeout_seconds=60) if event.kind == "progress" and event.done == done)


@pytest.mark.parametrize("tool", ["countOn", "countOnFar"])
def test_an_attempt_after_a_kill_goes_on_from_what_was_reported_last(own: Backend, tool: str) -> None:
    with own.worker() as victim:
        run = own.client.submit([], {"calls": [call_of(tool, name=tool, to=10)]})
        assert own.meeting.take(f"halfway:{tool}") == victim.pid
        event = reported(run, 5)
        assert (event.index, event.status, event.total, event.text) == (0, "running", 10, "step 5")
        os.kill(victim.pid, signal.SIGKILL)
    with own.worker():
        assert own.wait(run.id).data()["state"] == {"a": 5}


@pytest.mark.parametrize("tool", ["failHalfway", "failHalfwayAwaiting", "failHalfwayFar"])
def test_a_retry_finds_the_newest_report_however_fast_they_came(backend: Backend, tool: str) -> None:
    run = backend.client.submit([], {"calls": [call_of(tool)]})
    assert backend.wait(run.id).data()["state"]["a"] == {"done": 1, "total": 2, "details": ["①", 7]}
    assert len([event for event in run.follow() if event.kind == "progress"]) <= 3, "bounded in rate"


def test_elements_report_each_for_itself(backend: Backend) -> None:
    context = [{"type": "state", "names": ["x", "y"]}]
    call = {"_tool": "failEachHalfway", "name": "†state.names", "_each": ["name"], "_outputPath": "†state.a"}
    run = backend.client.submit(context, {"calls": [call]})
    assert backend.wait(run.id).data()["state"]["a"] == ["x", "y"]


def test_who_looks_sees_how_far_a_call_is(backend: Backend) -> None:
    gate = "progress"
    run = backend.client.submit([], {"calls": [call_of("reportAtGate", gate=gate)]})
    reported(run, 3)
    shown = {"done": 3, "total": 10, "text": "a\n\x1b[31m text"}
    assert run.status()["progress"] == [{"call": "0", **shown}]
    assert run.result().calls[0].to_dict()["progress"] == shown
    assert r"call 0: 3 of 10 (30%): a \x1b[31m text" in command(backend, "status", run.id).stdout
    backend.meeting.open_gate(gate)
    result = backend.wait(run.id)
    assert "progress" not in result.calls[0].to_dict()
    assert "progress" not in run.status()


@pytest.mark.parametrize("what", ["object", "large", "many", "infinite", "deep"])
def test_what_cannot_be_kept_is_refused_in_the_activity(backend: Backend, what: str) -> None:
    run = backend.client.submit([], {"calls": [call_of("reportBadly", what=what)]})
    assert dict(backend.wait(run.id).calls[0].error or {})["type"] == "InvalidProgress"


def test_a_report_that_nobody_awaits_goes_nowhere(backend: Backend) -> None:
    run = backend.client.submit([], {"calls": [{"_tool": "reportAndLeave"}]})
    backend.meeting.take("reported")
    assert backend.wait(run.id).status == "completed"
    assert not [event for event in run.follow() if event.kind == "progress"]


@given(AMOUNTS, AMOUNTS, st.text(max_size=PROGRESS_TEXT), DETAILS)
def test_a_report_is_read_as_it_was_written(done: Any, total: Any, text: str, details: Any) -> None:
    progress = Progress(done, total, text, details)
    assert read_progress(pack_progress(progress)) == progress


@given(st.binary(max_size=100))
def test_what_strangers_send_is_a_report_or_nothing(data: bytes) -> None:
    found = read_progress(data)
    assert found is None or len(pack_progress(found)) <= PROGRESS_BYTES


@pytest.mark.parametrize("bad", [{"done": -1}, {"done": True}, {"total": "2"}, {"text": 1}, {"text": "\ud800"}])
def test_a_report_that_says_nothing_sensible_is_refused_by_name(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidProgress, match=next(iter(bad))):
        pack_progress(Progress(**bad))


def test_only_the_code_of_a_call_reports() -> None:
    with pytest.raises(LookupError):
        current_call().progress(1)


def test_a_line_has_the_newest_report_of_what_is_at_work() -> None:
    line = NewestReport()
    for index, done in ((0, 1), (1, 5)):
        assert line.take(Event("1-0", "progress", "running", None, index, done=done, total=10))
    assert line.text == progress_words(5, 10) == "5 of 10 (50%)"
    line.take(Event("2-0", "call", "done", None, 1))
    assert line.text == "1 of 10 (10%)"
    line.take(Event("2-0", "call", "done", None, 0))
    assert line.text == ""
