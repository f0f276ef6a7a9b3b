"""A run as of any id of its log, held against a replay of the raw streams from the beginning (SPEC R11.2)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from acts_celery import Run
from acts_celery.protocol import Context
from acts_celery.worker.broker.messages import unpack
from acts_celery.worker.store.keys import Keys

from .backend import Backend, Meeting
from .test_control_cli import command

MARKS = ["①", "②"]
FINALS = frozenset({"completed", "failed", "cancelled"})


def echo(value: Any, path: str, **meta: Any) -> dict[str, Any]:
    return {"_tool": "echo", "value": value, "_outputPath": path, **meta}


def eventful(backend: Backend, meeting: Meeting, gate: str) -> Run:
    """Instances and global calls, pauses, several paths at once, a conflict, a failure, what is skipped by it."""
    context: list[dict[str, Any]] = [{"type": "state", "n": 1, "items": [1], "text": "a"}]
    context += [{"type": "state", "_instance": mark, "mark": mark} for mark in MARKS]
    calls = [
        {"_tool": "waitAtGate", "gate": gate, "value": 5, "_outputPath": "†state.first"},
        echo("†state.first", "†state.left && †data.right && †state.deep.er"),
        {"_tool": "explode", "text": "†state.text", "_outputPath": "†state.never"},
        echo("†state.never", "†state.neither"),
        echo("†state.left", "†state.items", _outputMethod="push"),
        echo("†state.items", "†state.text", _outputMethod="concat"),
        {"_tool": "waitAtGate", "gate": f"{gate} end", "_outputPath": "†state.last"},
    ]
    for mark in MARKS:
        calls.append(echo("†state.first", "†state.seen && †state.mark", _instance=mark))
        calls.append(echo("†state.seen", "†state.items", _outputMethod="push", _instance=mark))
    run = backend.client.submit(context, {"calls": calls})
    meeting.take(f"at:{gate}")
    run.pause()
    meeting.open_gate(gate)
    next(event for event in run.follow(timeout_seconds=30) if event.index == 0)
    run.resume()
    return run


def ids_of(backend: Backend, run: Run) -> list[str]:
    """Every id of the run's streams, and ids between and beyond them."""
    keys = Keys(backend.settings.key_prefix, run.id)
    found = {id_ for id_, _ in entries(backend, keys.log)}
    between = {f"{id_.split('-')[0]}-{2**40}" for id_ in found}
    return sorted(found | between | {"0-1", f"{10**15}-0"}, key=order)


def entries(backend: Backend, stream: str) -> list[tuple[str, dict[bytes, bytes]]]:
    """What a stream holds, as it lies there."""
    found: Any = backend.redis.xrange(stream)
    return [(id_.decode(), fields) for id_, fields in found]


def order(id_: str) -> tuple[int, int]:
    milliseconds, _, sequence = id_.partition("-")
    return int(milliseconds), int(sequence)


def replay(backend: Backend, run: Run, at: str) -> tuple[str, dict[Any, Any], dict[Any, str]]:
    """Status, values and calls by brute force: everything up to the id, folded by the pure core from nothing."""
    keys = Keys(backend.settings.key_prefix, run.id)
    before = [fields for id_, fields in entries(backend, keys.log) if order(id_) <= order(at)]
    messages = [unpack(fields[b"m"]) for fields in before if b"m" in fields]
    context = Context(messages)
    status = "running"
    ended: dict[Any, str] = {}
    for fields in before:
        if b"c" in fields and b"s" in fields:
            ended[fields[b"l"].decode() or None, int(fields[b"c"])] = fields[b"s"].decode()
        elif b"status" in fields:
            status = fields[b"status"].decode()
    values: dict[Any, Any] = {lane: context.data(lane) for lane in (None, *MARKS)}
    return status, values, ended


@pytest.mark.parametrize("end", ["to the end", "cancelled"])
def test_a_run_as_of_any_id_is_what_a_replay_up_to_there_gives(backend: Backend, meeting: Meeting, end: str) -> None:
    run = eventful(backend, meeting, f"travel {end}")
    if end == "cancelled":
        run.cancel()
    meeting.open_gate(f"travel {end} end")
    backend.wait(run.id)
    seen = set()
    for id_ in ids_of(backend, run):
        status, values, ended = replay(backend, run, id_)
        result = run.result(at=id_)
        left = ("skipped", "failed") if status == "cancelled" else ("waiting",)
        assert result.status == status, id_
        assert result.data() == values.pop(None), id_
        assert result.instances == values, id_
        for call in result.calls:
            stands = ended.get((call.instance, call.index))
            assert call.status == stands if stands is not None else call.status in left, (id_, call)
        assert run.status(at=id_) == {
            "run": run.id,
            "status": status,
            "calls": Counter(call.status for call in result.calls),
        }
        seen.add(status)
    assert {"running", "paused"} < seen
    assert seen & FINALS
    now = run.result()
    assert run.result(at=f"{10**15}-0") == now


def test_the_command_shows_the_status_of_that_moment(backend: Backend, meeting: Meeting) -> None:
    run = eventful(backend, meeting, "travel by command")
    meeting.open_gate("travel by command end")
    backend.wait(run.id)
    paused = next(event for event in run.follow() if event.status == "paused")
    told = command(backend, "status", run.id, "--at", paused.id, "--json")
    assert (told.code, told.json) == (0, run.status(at=paused.id, instances=True))
    assert told.json["status"] == "paused"
    assert command(backend, "show", run.id, "--at", paused.id, "--json").json["status"] == "paused"
