"""Calls that read in every instance, on real workers (SPEC R10.4)."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from acts_celery.broker_config import Settings
from acts_celery.protocol import Rejected
from acts_celery.worker.store.keys import Keys

from .backend import Backend, Meeting, status_of
from .test_control import alone, echo, gate, wait_at
from .test_control_cli import command
from .test_promises import given, promised, wait_idle

__all__ = ["alone", "gate"]  # fixtures

MARKS = ["①", "②", "③"]
CONTEXT: list[dict[str, Any]] = [{"type": "state", "_instance": mark, "mark": mark} for mark in MARKS]


def gather(value: Any, path: str, **more: Any) -> dict[str, Any]:
    return echo(value, path, _gather=True, **more)


def plan(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"type": "plan", "calls": [*calls]}


def test_r10_4_a_reduction_over_instances_needs_no_barrier(backend: Backend) -> None:
    calls = [
        echo({"of": "†state.mark"}, "†state.n"),
        gather("†state.n", "†data.all"),
        echo("†data.all", "†state.back"),
    ]
    run = backend.client.submit([plan(*calls), *CONTEXT])
    result = backend.wait(run.id)
    everything = {mark: {"of": mark} for mark in MARKS}
    assert (result.status, result.data()["data"]["all"]) == ("completed", everything)
    assert all(result.data(mark)["state"]["back"] == everything for mark in MARKS)
    assert run.status()["calls"] == {"done": 7}
    told = command(backend, "explain", run.id, "†data.all")
    assert "had read †state.n from every instance that has it" in told.stdout


def test_r10_4_an_instance_may_have_any_name(backend: Backend) -> None:
    names = ["?", "@due", "a:0", " "]
    context = [{"type": "state", "_instance": name, "mark": name} for name in names]
    run = backend.client.submit([plan(echo("†state.mark", "†state.n"), gather("†state.n", "†data.all")), *context])
    assert backend.wait(run.id).data()["data"]["all"] == {name: name for name in names}


def test_r10_4_it_waits_for_the_last_instance_and_holds_nothing_meanwhile(
    backend: Backend, meeting: Meeting, gate: str
) -> None:
    calls = [wait_at(gate, "†state.n", _instance="①"), *(echo(2, "†state.n", _instance=mark) for mark in MARKS[1:])]
    run = backend.client.submit(CONTEXT, {"calls": [gather("†state.n", "†data.all"), *calls]})
    meeting.take(f"at:{gate}")
    ended = list(islice(run.follow(timeout_seconds=60), 3))
    assert {event.instance for event in ended if event.kind == "call"} == {"②", "③"}
    keys = Keys(backend.settings.key_prefix, run.id)
    assert backend.redis.hgetall(keys.gathers) == {b"0": b"1"}
    meeting.open_gate(gate)
    assert backend.wait(run.id).data()["data"]["all"] == {"①": 1, "②": 2, "③": 2}


def test_r10_4_what_is_there_already_is_read_at_once_and_lanes_without_work_are_not_driven(aside: Backend) -> None:
    run = aside.client.submit(CONTEXT, {"calls": [gather("†state.mark", "†data.all")]})
    assert aside.redis.zcard(Keys(aside.settings.key_prefix, run.id).published) <= 1
    assert aside.wait(run.id).data()["data"]["all"] == {mark: mark for mark in MARKS}


def test_r10_4_it_is_skipped_only_if_no_instance_has_a_value(backend: Backend) -> None:
    failing = [{"_tool": "explode", "_outputPath": "†state.x", "_instance": mark} for mark in MARKS]
    skipped = backend.run([*failing, gather("†state.x", "†data.all")], CONTEXT)
    assert status_of(skipped, 3) == "skipped"
    one = backend.run([*failing[1:], echo(1, "†state.x", _instance="①"), gather("†state.x", "†data.all")], CONTEXT)
    assert one.data()["data"]["all"] == {"①": 1}


def test_r10_4_gather_calls_follow_each_other_and_global_calls(backend: Backend) -> None:
    calls = [
        echo("first", "†data.first"),
        *(echo({"mark": "†state.mark", "of": "†data.first"}, "†state.n", _instance=mark) for mark in MARKS),
        gather({"n": "†state.n", "first": "†data.first"}, "†data.all"),
        gather({"again": "†data.all", "of": "†state.mark"}, "†data.last"),
        echo("†data.last", "†state.back", _instance="②"),
    ]
    result = backend.run(calls, CONTEXT)
    everything = {"n": {mark: {"mark": mark, "of": "first"} for mark in MARKS}, "first": "first"}
    assert result.data()["data"]["last"] == {"again": everything, "of": {mark: mark for mark in MARKS}}
    assert result.data("②")["state"]["back"] == result.data()["data"]["last"]


def test_r10_4_scopes_are_gathered_in_line_by_a_queue_and_by_a_delegate(backend: Backend) -> None:
    seen = {mark: {"mark": mark} for mark in MARKS}
    delegate = {"_tool": "show", "_delegate": "showContext", "_gather": True, "_outputPath": "†data.said"}
    calls = [
        {**delegate, "_scopes": ["state"], "word": "†state.mark"},
        {"_tool": "echoFar", "value": "†state.mark", "_gather": True, "_outputPath": "†data.remote"},
        {"_tool": "seeScopes", "_scopes": ["state"], "_gather": True, "_outputPath": "†data.seen"},
    ]
    result = backend.run(calls, CONTEXT).data()["data"]
    assert result["remote"] == {mark: mark for mark in MARKS}
    assert result["seen"] == {"state": seen}
    assert result["said"]["context"][0] == {"type": "state", **seen}
    assert result["said"]["context"][-1] == {"type": "input", "word": {mark: mark for mark in MARKS}}


def test_r10_4_what_it_gathers_is_bounded(backend: Backend) -> None:
    small = Backend(_apart(backend, limit_call_bytes=400_000), backend.meeting, backend.folder)
    context = [{"type": "state", "_instance": mark, "text": "x" * 100_000} for mark in MARKS]
    with small.worker("-Q", "small-instances"):
        calls = [gather({"a": "†state.text", "b": "†state.text"}, "†data.all")]
        result = small.run(calls, context)
    (call,) = result.calls
    assert (call.status, (call.error or {})["type"]) == ("failed", "TooLarge")


def _apart(backend: Backend, **changed: Any) -> Settings:
    """Settings of the same server, with keys and queues of their own."""
    names = {f"queue_{of}": f"small-{of}" for of in ("instances", "delegates", "background", "reports")}
    return backend.settings.model_copy(update={"key_prefix": "small", **names, **changed})


@pytest.mark.nightly
def test_r10_4_a_worker_that_dies_in_the_midst_of_it_is_replaced(alone: Backend, meeting: Meeting, gate: str) -> None:
    hanging = {"_tool": "hangOnce", "name": gate, "_gather": True, "_scopes": [], "_outputPath": "†data.n"}
    calls = [echo(1, "†state.x"), {**hanging, "_gather": True}, gather("†state.x", "†data.all")]
    with alone.worker() as victim:
        run = alone.client.submit([plan(*calls), *CONTEXT])
        meeting.take(f"hanging:{gate}")
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
    with alone.worker():
        result = alone.wait(run.id)
    assert result.data()["data"] == {"n": 2, "all": dict.fromkeys(MARKS, 1)}


def test_r10_4_the_past_and_forks_of_a_run_that_gathers(backend: Backend) -> None:
    calls = [echo("†state.mark", "†state.n"), gather("†state.n", "†data.all"), echo("†data.all", "†state.back")]
    run = backend.client.submit([plan(*calls), *CONTEXT])
    end = backend.wait(run.id)
    ids = [event.id for event in run.follow() if event.kind == "call"]
    assert len(ids) == 7
    for at in ids:
        fork = backend.wait(run.fork(at).id)
        assert replace(fork, run=run.id, calls=[]) == replace(end, calls=[])
        assert [(call.id, call.status) for call in fork.calls] == [(call.id, call.status) for call in end.calls]
    assert [call.status for call in run.result(at=ids[2]).calls] == ["done"] * 3 + ["waiting"] * 4


def test_r10_4_an_amendment_may_gather(backend: Backend, meeting: Meeting, gate: str) -> None:
    held = [wait_at(gate, "†state.n", _instance="①"), echo("†state.n", "†state.m", _instance="①")]
    run = backend.client.submit(CONTEXT, {"calls": held})
    meeting.take(f"at:{gate}")
    run.amend([echo(2, "†state.n", _instance="②"), gather("†state.n", "†data.all"), gather("†state.n", "†data.two")])
    run.amend([echo(3, "†state.n", _instance="③"), gather({"of": "†state.n"}, "†data.all")])
    meeting.open_gate(gate)
    assert backend.wait(run.id).data()["data"]["all"]["of"].items() >= {"①": 1, "③": 3}.items()


def test_r10_4_what_is_promised_is_gathered_when_it_comes(backend: Backend) -> None:
    schema = {"properties": {"n": {"type": "integer"}}, "required": ["n"]}
    context = [{"type": "input", "schema": schema}, *CONTEXT]
    run = promised(backend, gather("†input.n", "†data.all"), context=context)
    wait_idle(backend, run, parked=3)
    for number, mark in enumerate(MARKS):
        run.send({**given(n=number), "_instance": mark})
    assert backend.wait(run.id).data()["data"]["all"] == {mark: number for number, mark in enumerate(MARKS)}


def test_r10_4_what_was_promised_and_did_not_come_is_given_up_in_every_instance(alone: Backend) -> None:
    schema = {"properties": {"n": {"type": "integer"}}, "required": ["n"]}
    context = [{"type": "input", "schema": schema}, *CONTEXT]
    with alone.worker():
        run = promised(alone, gather("†input.n", "†data.all"), context=context, seconds=0.5)
        run.send({**given(n=1), "_instance": "②"})
        assert alone.wait(run.id).data()["data"]["all"] == {"②": 1}


def test_r10_4_many_instances_are_gathered(backend: Backend) -> None:
    context = [{"type": "state", "_instance": f"i{number}", "n": number} for number in range(1_000)]
    run = backend.client.submit([plan(echo("†state.n", "†state.m"), gather("†state.m", "†data.all")), *context])
    assert backend.wait(run.id).data()["data"]["all"] == {f"i{number}": number for number in range(1_000)}


def test_r10_4_a_gather_call_that_is_wrong_is_still_refused(backend: Backend) -> None:
    with pytest.raises(Rejected):
        backend.client.submit([], {"calls": [gather("†state.n", "†data.all")]})
