"""When calls began and ended, what they waited for, and how often they were tried."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from acts_celery.worker.client.call_results import Timing
from acts_celery.worker.store.entries import Spent

from .backend import Backend, Meeting
from .test_control_cli import command

TOOLS = {"think": {"type": "object"}}


def test_a_call_says_when_it_began_what_it_took_and_how_often_it_was_tried(backend: Backend, meeting: Meeting) -> None:
    calls: list[dict[str, Any]] = [
        {"_tool": "failTwice", "name": "timed", "_outputPath": "†state.a"},
        {"_tool": "waitAtGate", "gate": "timed", "value": "†state.a", "_outputPath": "†state.b"},
        {"_tool": "remoteAdd", "a": "†state.a", "b": 1, "_outputPath": "†state.c"},
    ]
    run = backend.client.submit([], {"calls": calls})
    meeting.take("at:timed")
    (at_gate,) = [call for call in run.result().calls if call.index == 1]
    assert at_gate.timing == Timing(attempts=1)
    meeting.open_gate("timed")
    backend.wait(run.id)
    first, second, remote = (call["timing"] for call in run.result(waits=True).to_dict()["calls"])
    assert [timing["attempts"] for timing in (first, second, remote)] == [3, 1, 1]
    assert first["waited_seconds"] >= 0.01  # it rested twice
    for timing in (second, remote):
        began, ready = datetime.fromisoformat(timing["began"]), datetime.fromisoformat(first["ended"])
        assert timing["waited_seconds"] == max((began - ready).total_seconds(), 0)
        spent = datetime.fromisoformat(timing["ended"]) - began
        assert timing["seconds"] == spent.total_seconds()
    quick = run.result().to_dict()["calls"]
    assert {call["timing"]["waited_seconds"] for call in quick} == {None}


def test_they_are_printed_the_slowest_first_and_beside_what_a_call_wrote(backend: Backend) -> None:
    calls: list[dict[str, Any]] = [
        {"_tool": "echo", "value": 1, "_outputPath": "†state.a"},
        {"_tool": "failTwice", "name": "printed", "_outputPath": "†state.b"},
    ]
    run = backend.run(calls).run
    lines = command(backend, "show", run, "--timings").stdout.splitlines()
    assert len(lines) == 2
    assert any("1 failTwice (global): " in line and ", 3 attempts, by acts@" in line for line in lines)
    assert " ms, 3 attempts" in command(backend, "log", run).stdout
    shown = command(backend, "show", run, "--json").json["calls"]
    assert [call["timing"]["attempts"] for call in shown] == [1, 3]
    ends = [line["end"]["timing"] for line in command(backend, "log", run, "--json").json_lines if "end" in line]
    assert sorted(end["attempts"] for end in ends) == [1, 3]
    assert all(end["began"] <= end["ended"] for end in ends)


def test_a_call_that_left_no_message_is_in_the_log_where_all_is_asked_for(backend: Backend) -> None:
    context = [{"type": "state", "_instance": "①", "x": 1}]
    calls = [
        {"_tool": "think", "thought": "is it enough?", "about": "†state.x"},
        {"_tool": "say", "text": "†state.gone"},
        {"_tool": "say", "text": "it is"},
    ]
    plan = {"type": "plan", "calls": [{"_tool": "explode", "_outputPath": "†state.gone"}, *calls]}
    run = backend.client.submit_document({"context": [*context, plan], "tools": TOOLS})
    backend.wait(run.id)
    usual = command(backend, "log", run.id).stdout
    everything = command(backend, "log", run.id, "--all", "--instance", "①").stdout
    for end in ("← think, latent", "← say, sent", "← say, skipped: †state.gone"):
        assert (end in everything, end in usual) == (True, False)
    lines = command(backend, "log", run.id, "--all", "--json").json_lines
    ends = {(line["end"]["index"], line["end"]["status"]) for line in lines if line["message"] is None}
    assert ends == {(1, "latent"), (2, "skipped"), (3, "sent")}


def test_what_no_worker_of_ours_has_written_is_no_time() -> None:
    for packed in (-1, "1", [1], [1, 1], [-1, 2], [None, "2"], {"took": 1}, None):
        assert Spent.read(packed) is None
    for spent in (Spent(0), Spent(12, 3), Spent(None, 2)):
        assert Spent.read(spent.pack()) == spent
