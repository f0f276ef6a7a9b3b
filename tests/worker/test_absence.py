"""`acts explain` of a place where nothing is: who was to write it, what became of that, what was meant."""

from __future__ import annotations

from typing import Any

from .backend import Backend, Meeting
from .test_control_cli import command


def echo(value: Any, path: str, **more: Any) -> dict[str, Any]:
    return {"_tool": "echo", "value": value, "_outputPath": path, **more}


def ended(backend: Backend, calls: list[dict[str, Any]], context: Any = ()) -> str:
    run = backend.client.submit(context, {"calls": calls})
    backend.wait(run.id)
    return run.id


def test_the_writers_and_their_fate_are_reported_down_to_the_call_that_failed(backend: Backend) -> None:
    calls = [
        {"_tool": "explode", "_outputPath": "†state.a"},
        echo("†state.a", "†state.b"),
        echo("†state.b", "†state.c"),
    ]
    run = ended(backend, calls)
    told = command(backend, "explain", run, "†state.c")
    assert told.code == 0
    lines = told.stdout.splitlines()
    assert lines[0] == "†state.c is not there"
    assert lines[2].startswith("  call 2 echo writes †state.c: skipped: †state.b is missing")
    assert lines[3].startswith("  call 1 echo writes †state.b, which call 2 lacks: skipped: ")
    assert lines[4] == "  call 0 explode writes †state.a, which call 1 lacks: failed: ValueError: boom"
    absence = command(backend, "explain", run, "†state.c", "--json").json["absence"]
    assert [(one["index"], one["status"], one["needed_by"]) for one in absence["writers"]] == [
        (2, "skipped", None),
        (1, "skipped", 2),
        (0, "failed", 1),
    ]
    assert absence["writers"][2]["error"] == {"type": "ValueError", "message": "boom"}


def test_the_near_miss_is_named_and_a_path_may_lack_its_dagger_and_its_kind(backend: Backend) -> None:
    run = ended(backend, [echo({"name": "Ada"}, "†state.user")])
    assert command(backend, "explain", run, "state.user.name").stdout.startswith("†state.user.name = Ada\n")
    assert "did you mean †state.user.name?" in command(backend, "explain", run, "†state.user.nmae").stdout
    assert "did you mean †state.user.name?" in command(backend, "explain", run, "†user.name").stdout
    part = command(backend, "explain", run, "†state.user.address").stdout
    assert "call 0 echo writes †state.user: done: what it wrote has no such part" in part


def test_an_alternative_that_was_not_chosen_says_so(backend: Backend) -> None:
    call = {"_tool": "pick", "path": "††state.no", "value": 1, "_outputPath": "†state.yes || †state.no"}
    told = command(backend, "explain", ended(backend, [call]), "†state.yes").stdout
    assert "call 0 pick writes †state.yes, †state.no: done: it wrote to another of its places" in told


def test_a_global_reader_is_reported_in_which_instances_it_is(backend: Backend) -> None:
    context = [{"type": "state", "_instance": mark, "mark": mark} for mark in "①②"]
    run = ended(backend, [echo("†state.mark", "†state.copy", _instance="①")], context)
    told = command(backend, "explain", run, "†state.mark").stdout
    assert "it is there in ①, ②" in told
    assert command(backend, "explain", run, "†state.copy", "--json").json["absence"]["instances"] == ["①"]
    assert "done: it is there, in this instance only" in command(backend, "explain", run, "†state.copy").stdout
    missing = command(backend, "explain", run, "†state.copy", "--instance", "②").stdout
    assert "no call writes there" in missing


def test_a_value_that_is_not_there_yet_says_who_is_at_work_on_it(backend: Backend, meeting: Meeting) -> None:
    wait = {"_tool": "waitAtGate", "gate": "absence", "_outputPath": "†state.a"}
    run = backend.client.submit([], {"calls": [wait, echo("†state.a", "†state.b")]})
    meeting.take("at:absence")
    writers = command(backend, "explain", run.id, "†state.b", "--json").json["absence"]["writers"]
    assert [(one["index"], one["status"]) for one in writers] == [(1, "waiting"), (0, "running")]
    meeting.open_gate("absence")
