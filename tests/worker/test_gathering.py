"""Calls for many: gathering (SPEC R10.4), elements (R4.10), promises (R6.3)."""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from acts_celery import BeingAmended, Run, RunOver
from acts_celery.broker_config import Settings
from acts_celery.protocol import Rejected
from acts_celery.worker.broker.consumer import Publisher
from acts_celery.worker.cli.progress import Elements
from acts_celery.worker.client import control as sending
from acts_celery.worker.store.keys import Keys

from .backend import DEADLINE_SECONDS, Backend, Meeting, status_of
from .test_control import alone, echo, gate, wait_at
from .test_control_cli import command
from .test_r14_people import wait_held

__all__ = ["alone", "gate"]

# Calls that are carried out for each element of a list, on real workers (SPEC R4.10).

LISTS: list[dict[str, Any]] = [
    {"type": "state", "of": [3, 1, 2], "names": ["a", "b", "c"], "none": [], "mixed": [1, "x", 3]}
]


def each(tool: str, path: str | None = "†state.r", /, **parameters: Any) -> dict[str, Any]:
    """A call for each element of what its references read."""
    named = [name for name, value in parameters.items() if name[0] != "_" and str(value)[0] == "†"]
    return {"_tool": tool, "_each": named, **parameters, **({"_outputPath": path} if path is not None else {})}


def submitted(backend: Backend, *calls: dict[str, Any], context: Any = LISTS, **parts: Any) -> Run:
    return backend.client.submit(context, {"calls": [*calls]}, **parts)


def results_of(backend: Backend, *calls: dict[str, Any], context: Any = LISTS) -> Any:
    result = backend.run(calls, context)
    assert {call.status for call in result.calls} == {"done"}
    return result.data()["state"]["r"]


def names(meeting: Meeting, number: int, *, finished: int = 0) -> list[str]:
    """Names for activities that count their attempts; the first count as tried once already."""
    found = [secrets.token_hex(4) for _ in range(number)]
    for name in found[:finished]:
        meeting.redis.incr(f"attempts:{name}")
    return found


def test_r4_10_the_results_are_a_list_in_order_wherever_it_is_carried_out(backend: Backend) -> None:
    for tool in ("echo", "echoPlain", "echoFar"):
        assert results_of(backend, each(tool, value="†state.of")) == [3, 1, 2]
    assert results_of(backend, each("add", a="†state.of", b="†state.of")) == [6, 2, 4]
    assert results_of(backend, each("explode", text="†state.none")) == []
    shown = results_of(backend, each("ask", text="†state.names", b=[1], _delegate="showContext"))
    assert [context["context"][-1]["text"] for context in shown] == ["a", "b", "c"]
    after = echo("†state.r", "†state.s"), each("add", a="†state.s", b=1)
    assert results_of(backend, each("add", "†state.r", a="†state.of"), *after)[-3:] == [5, 3, 4]


def test_r4_10_it_is_a_call_of_its_instance(backend: Backend) -> None:
    context = [{"type": "state", "_instance": mark, "of": [mark, "x"]} for mark in ("①", "②")]
    plan = {"type": "plan", "calls": [each("whoAmI", value="†state.of")]}
    run = backend.client.submit([*context, plan])
    result = backend.wait(run.id)
    for mark in ("①", "②"):
        first, second = result.data(mark)["state"]["r"]
        assert first == {"value": mark, "index": 0, "element": 0, "attempt": 1, "key": f"{run.id}:0[0]:{mark}"}
        assert (second["element"], second["key"]) == (1, f"{run.id}:0[1]:{mark}")
    assert run.status()["calls"] == {"done": 2}


def test_r4_10_a_failed_element_does_not_lose_the_others(backend: Backend) -> None:
    run = submitted(backend, each("add", a="†state.mixed"), echo("†state.r", "†state.s"))
    result = backend.wait(run.id)
    assert (result.status, result.data()["state"]["s"]) == ("completed", [2, None, 4])
    (call, _) = result.calls
    assert (call.status, call.to_dict()["elements"]) == ("done", {"total": 3, "ended": 3, "failed": 1})
    assert (
        call.reason
        == '1 of 3 elements failed (1); element 1: InvalidParameters: /a: the value is not of type "integer"'
    )
    (error,) = [one.message for one in run.log() if one.message["type"] == "error"]
    assert error["data"]["error"]["element"] == 1


def test_r4_10_it_has_failed_where_all_have_and_can_be_tried_again(backend: Backend, meeting: Meeting) -> None:
    (name,) = names(meeting, 1)
    context = [{"type": "state", "names": [name, name]}]
    run = submitted(backend, each("failUntilMended", name="†state.names"), context=context)
    result = backend.wait(run.id)
    assert (result.status, result.calls[0].error and result.calls[0].error["type"]) == ("failed", "ElementsFailed")
    meeting.redis.set(f"mended:{name}", 1)
    run.retry()
    result = backend.wait(run.id)
    assert (result.status, len(result.data()["state"]["r"])) == ("completed", 2)
    assert run.status()["calls"] == {"done": 1}


def test_r4_10_what_is_no_list_or_of_another_length_is_the_call_s_error(backend: Backend) -> None:
    calls = [each("add", a="†state"), each("add", a="†state.of", b="†state.none")]
    result = backend.run(calls, LISTS)
    messages = [call.error["message"] for call in result.calls if call.error is not None]
    assert messages == [
        "/a: _each takes a list, and this is object",
        "/b: _each takes lists of one length: 0 here, 3 at /a",
    ]


def test_r4_10_who_follows_sees_each_element_end(backend: Backend) -> None:
    run = submitted(backend, each("add", a="†state.mixed"))
    events = list(run.follow(timeout_seconds=DEADLINE_SECONDS))
    spread, *parts = (event for event in events if event.kind in ("each", "element"))
    assert (spread.kind, spread.status, spread.index, spread.elements) == ("each", "running", 0, 3)
    ends = {event.element: event.status for event in parts}
    assert (len(parts), ends) == (3, {0: "done", 1: "failed", 2: "done"})
    elements = Elements()
    texts = [elements.text for event in events if elements.take(event)]
    assert texts == ["0 of 3 elements", "1 of 3 elements", "2 of 3 elements", "3 of 3 elements", ""]


def test_r7_2_each_has_attempts_of_its_own(backend: Backend, meeting: Meeting) -> None:
    context = [{"type": "state", "names": names(meeting, 3)}]
    assert results_of(backend, each("failTwice", name="†state.names"), context=context) == [3, 3, 3]
    context = [{"type": "state", "names": names(meeting, 3)}]
    assert results_of(backend, each("failFarTwice", name="†state.names"), context=context) == [3, 3, 3]


def test_r4_10_a_limit_on_calls_at_work_holds_for_elements(backend: Backend, meeting: Meeting, gate: str) -> None:
    run = submitted(backend, each("waitInCrowd", gate=gate, value="†state.of"))
    meeting.take(f"at:{gate}")
    meeting.take(f"at:{gate}")
    backend.run([echo(1, "†state.other")])
    assert meeting.count(f"at:{gate}") == 0
    assert run.status()["calls"] == {"running": 1}
    meeting.open_gate(gate)
    assert backend.wait(run.id).data()["state"]["r"] == [3, 1, 2]


ELSEWHERE = {"_tool": "ask", "_delegate": "hangOnceElsewhere"}


@pytest.mark.parametrize("code", [{}, pytest.param(ELSEWHERE, marks=pytest.mark.nightly)])
def test_r11_1_of_a_killed_worker_only_what_was_at_work_begins_again(
    alone: Backend, meeting: Meeting, code: dict[str, str]
) -> None:
    given = names(meeting, 3, finished=1)
    with alone.worker() as worker:
        call = {**each("hangOnce", name="†state.names"), **code}
        run = submitted(alone, call, context=[{"type": "state", "names": given}])
        for name in given:
            meeting.take(f"hanging:{name}")
        while (elements := run.result().calls[0].elements) is None or elements.ended < 1:
            time.sleep(0.02)
        os.kill(worker.pid, signal.SIGKILL)
    with alone.worker():
        assert alone.wait(run.id).data()["state"]["r"] == [2, 2, 2]
    assert [meeting.attempts(name) for name in given] == [2, 2, 2]


def test_r11_1_a_paused_run_begins_no_more_elements_and_a_cancelled_one_ends(
    backend: Backend, meeting: Meeting, gate: str
) -> None:
    run = submitted(backend, each("waitInCrowd", gate=gate, value="†state.of"))
    meeting.take(f"at:{gate}")
    meeting.take(f"at:{gate}")
    run.pause()
    meeting.open_gate(gate)
    while run.result().to_dict()["calls"][0]["elements"]["ended"] < 2:
        time.sleep(0.02)
    assert meeting.count(f"at:{gate}") == 0
    copy = run.fork(paused=True)
    run.resume()
    copy.cancel()
    assert backend.wait(run.id).data()["state"]["r"] == [3, 1, 2]
    assert status_of(backend.wait(copy.id), 0) == "failed", "it had begun, and its end is not known"


def test_r11_2_a_fork_goes_on_with_the_elements_that_are_left(backend: Backend) -> None:
    run = submitted(backend, each("whoAmI", value="†state.of"))
    backend.wait(run.id)
    entries: Any = backend.redis.xrange(Keys(backend.settings.key_prefix, run.id).log)
    first, *_ = [(id_.decode(), fields[b"element"]) for id_, fields in entries if b"element" in fields]
    copy = run.fork(first[0])
    done = int(first[1].split(b":")[0])
    owners = [copy.id, copy.id, copy.id]
    owners[done] = run.id
    found = backend.wait(copy.id).data()["state"]["r"]
    assert [one["key"] for one in found] == [f"{owner}:0[{at}]" for at, owner in enumerate(owners)]
    assert copy.status()["calls"] == {"done": 1}


def test_r11_7_an_amendment_leaves_it_at_work(backend: Backend, meeting: Meeting, gate: str) -> None:
    run = submitted(backend, each("waitInCrowd", gate=gate, value="†state.of"), echo("†state.r", "†state.s"))
    meeting.take(f"at:{gate}")
    run.amend({"solution": {"calls": [echo("†state.r.0", "†state.t")]}})
    meeting.open_gate(gate)
    state = backend.wait(run.id).data()["state"]
    assert (state["r"], state["t"], "s" in state) == ([3, 1, 2], 3, False)


def test_r14_1_it_is_held_once_with_all_of_the_list(backend: Backend) -> None:
    config = {"approve": ["add"]}
    document = {"context": LISTS, "solution": {"calls": [each("add", a="†state.of")]}, "config": config}
    run = backend.client.submit_document(document)
    (held,) = wait_held(run)
    assert held["parameters"] == {"a": [3, 1, 2]}
    run.approve(0, parameters={"a": [10, 20]})
    assert backend.wait(run.id).data()["state"]["r"] == [11, 21]
    assert run.status()["calls"] == {"done": 1}


def test_r5_1_without_an_output_path_each_is_sent_by_itself(backend: Backend, meeting: Meeting, gate: str) -> None:
    run = submitted(backend, each("note", None, name=f"{gate}", of="†state.of"))
    assert status_of(backend.wait(run.id), 0) == "sent"
    assert sorted(meeting.take(gate)["call"]["_each"] == ["of"] for _ in range(3)) == [True] * 3
    assert meeting.count(gate) == 0


def test_nothing_is_left_of_what_was_at_work(backend: Backend) -> None:
    run = submitted(backend, each("echoFar", value="†state.of"))
    backend.wait(run.id)
    keys = Keys(backend.settings.key_prefix, run.id)
    assert backend.redis.hget(keys.state, "running") in (None, b"0")
    lane: Any = backend.redis.hget(keys.lanes, "")
    assert lane.endswith(b":0")


# Runs that wait for what is promised, and messages sent to them (SPEC R6.3, R11.6).

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "note": {"type": "string"}},
    "required": ["n"],
}
PROMISE = {"type": "input", "schema": SCHEMA}
MARKS = ["①", "②", "③"]
INSTANCES = [{"type": "state", "_instance": mark, "mark": mark} for mark in MARKS]


def given(**values: Any) -> dict[str, Any]:
    return {"type": "input", "input": values}


def promised(
    backend: Backend, *calls: dict[str, Any], context: Sequence[dict[str, Any]] = (PROMISE,), seconds: float = 3600
) -> Run:
    """A run that waits for its promises for so long."""
    return backend.client.submit_document(
        {"context": [*context], "solution": {"calls": [*calls]}, "config": {"promise_seconds": seconds}}
    )


def wait_idle(backend: Backend, run: Run, parked: int = 0) -> Keys:
    """Wait until a run holds nothing any more but the marks of lanes that wait."""
    keys = Keys(backend.settings.key_prefix, run.id)
    while backend.redis.zcard(keys.published) or backend.redis.zcard(keys.leases):
        time.sleep(0.02)
    assert backend.redis.zcard(keys.parked) == parked
    return keys


def test_r6_3_without_promise_seconds_a_run_is_refused_and_says_what_to_do(backend: Backend) -> None:
    with pytest.raises(Rejected, match="promise_seconds"):
        backend.client.submit([PROMISE], {"calls": [echo("†input.n", "†state.a")]})


def test_r6_3_a_call_waits_for_what_is_promised_and_holds_nothing(backend: Backend) -> None:
    run = promised(backend, echo("†input.n", "†state.a"), echo(1, "†state.b"))
    keys = wait_idle(backend, run)
    assert run.status()["calls"] == {"done": 1, "waiting": 1}
    assert not backend.redis.exists(keys.leases, keys.published, keys.parked, keys.backlog)
    (id_,) = run.send(given(n=7))
    result = backend.wait(run.id)
    assert (result.status, result.data()["state"]) == ("completed", {"a": 7, "b": 1})
    assert [entry.message for entry in run.log() if entry.id == id_] == [given(n=7)]


def test_r11_6_a_global_message_wakes_every_instance_and_one_of_an_instance_that_one(backend: Backend) -> None:
    calls = [echo({"of": "†state.mark", "n": "†input.n"}, "†state.a", _instance=mark) for mark in MARKS]
    run = promised(backend, *calls, context=[PROMISE, *INSTANCES])
    wait_idle(backend, run, parked=3)
    run.send({**given(n=2), "_instance": "②"})
    assert next(event for event in run.follow(timeout_seconds=60) if event.kind == "call").instance == "②"
    assert run.status()["calls"] == {"done": 1, "waiting": 2}
    run.send(given(n=1))
    result = backend.wait(run.id)
    assert [result.data(mark)["state"]["a"]["n"] for mark in MARKS] == [1, 2, 1]


def test_r11_6_messages_are_added_together_or_not_at_all(backend: Backend) -> None:
    run = promised(backend, echo("†input.n", "†state.a"), context=[PROMISE, *INSTANCES])
    before = len(list(run.log()))
    wrong: dict[str, dict[str, Any]] = {
        "/1": given(n="text"),
        "/1/_instance": {**given(n=1), "_instance": "④"},
        "/1/_call": {**given(n=1), "_call": {}},
    }
    for pointer, message in wrong.items():
        with pytest.raises(Rejected) as refused:
            run.send([given(note="first"), message])
        assert [problem.pointer for problem in refused.value.errors] == [pointer]
    assert len(list(run.log())) == before
    assert run.send([]) == ()
    assert len(run.send([given(note="first"), given(n=3)])) == 2
    assert backend.wait(run.id).data()["input"] == {"note": "first", "n": 3}
    with pytest.raises(RunOver):
        run.send(given(n=4))


def test_r11_6_what_is_sent_while_calls_are_at_work_is_seen_by_those_that_follow(
    backend: Backend, meeting: Meeting, gate: str
) -> None:
    run = promised(backend, wait_at(gate), echo(["†state.a", "†input.n"], "†state.b"))
    meeting.take(f"at:{gate}")
    run.send(given(n=5))
    meeting.open_gate(gate)
    assert backend.wait(run.id).data()["state"]["b"] == [1, 5]


def test_r11_6_a_paused_run_takes_messages_and_goes_on_with_them_when_resumed(backend: Backend) -> None:
    run = promised(backend, echo("†input.n", "†state.a", _instance="①"), context=[PROMISE, *INSTANCES])
    wait_idle(backend, run, parked=1)
    run.pause()
    run.send(given(n=1))
    assert run.status()["calls"] == {"waiting": 1}
    run.resume()
    assert backend.wait(run.id).data("①")["state"]["a"] == 1


@pytest.mark.nightly
def test_r11_6_a_client_that_dies_after_the_append_leaves_it_to_the_sweep(
    alone: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [echo("†input.n", "†state.a", _instance=mark) for mark in MARKS]
    with alone.worker():
        run = promised(alone, *calls, echo("†input.n", "†data.a"), context=[PROMISE, *INSTANCES])
        wait_idle(alone, run, parked=3)
        monkeypatch.setattr(sending, "publish_lanes", lambda *args, **more: None)
        run.send(given(n=1))
        assert alone.wait(run.id).status == "completed"


@pytest.mark.nightly
def test_r11_6_a_run_waits_through_the_death_of_its_workers(alone: Backend) -> None:
    with alone.worker() as victim:
        run = promised(alone, echo("†input.n", "†state.a"))
        wait_idle(alone, run)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
    run.send(given(n=1))
    with alone.worker():
        assert alone.wait(run.id).data()["state"] == {"a": 1}


def test_r11_6_what_does_not_come_in_time_fails_the_run_and_is_named(alone: Backend) -> None:
    with alone.worker():
        run = promised(
            alone,
            echo("†input.n || †state.other", "†state.a"),
            echo("†input.n", "†state.b"),
            echo("†state.b", "†state.c"),
            echo("†input.n", "†state.d", _instance="①"),
            context=[PROMISE, {"type": "state", "other": 5}, *INSTANCES],
            seconds=0.5,
        )
        result = alone.wait(run.id)
        assert (result.status, result.reason) == ("failed", "†input.n: promised, and not there within 0.5 s")
        assert [status_of(result, index) for index in range(3)] == ["done", "skipped", "skipped"]
        assert status_of(result, 3, "①") == "skipped"
        assert result.data()["state"]["a"] == 5
        reasons = {call.index: call.reason for call in result.calls}
        assert reasons[1] == "†input.n is not there: it was promised and did not come in time"
        last = list(run.follow())[-1].id
        assert run.result(at=last).reason == result.reason
        assert alone.wait(run.fork(last).id).status == "failed"


def test_r11_6_a_scope_that_a_promise_requires_something_of_is_missed_too(alone: Backend) -> None:
    seeing = {"_tool": "show", "_delegate": "showContext", "_scopes": ["input"], "_outputPath": "†state.a"}
    with alone.worker():
        run = promised(alone, echo(1, "†state.z"), seeing, seconds=0.5)
        result = alone.wait(run.id)
    assert (result.status, status_of(result, 1)) == ("failed", "done")
    assert result.reason == "†input.n: promised, and not there within 0.5 s"


def test_r11_6_the_time_is_kept_where_all_workers_die(alone: Backend) -> None:
    with alone.worker() as victim:
        run = promised(alone, echo("†input.n", "†state.a"), seconds=1)
        wait_idle(alone, run)
        os.kill(victim.pid, signal.SIGKILL)
        victim.wait()
    with alone.worker():
        assert alone.wait(run.id).status == "failed"


def test_r11_6_what_was_promised_and_came_in_time_fails_nothing(alone: Backend, meeting: Meeting, gate: str) -> None:
    with alone.worker():
        run = promised(alone, echo("†input.n", "†state.b"), wait_at(gate), seconds=1)
        run.send(given(n=1))
        keys = Keys(alone.settings.key_prefix, run.id)
        while alone.redis.hexists(keys.state, "promises_due"):
            time.sleep(0.02)
        meeting.open_gate(gate)
        assert alone.wait(run.id).status == "completed"


def test_r11_6_a_fork_from_before_waits_anew(backend: Backend) -> None:
    run = promised(backend, echo(1, "†state.z"), echo("†input.n", "†state.a"))
    wait_idle(backend, run)
    fork = run.fork()
    run.send(given(n=1))
    fork.send(given(n=2))
    assert [backend.wait(one.id).data()["state"]["a"] for one in (run, fork)] == [1, 2]


def test_r11_6_an_amendment_may_read_what_is_promised(backend: Backend) -> None:
    run = promised(backend, echo("†input.n", "†state.a"))
    wait_idle(backend, run)
    run.amend([echo("†input.note", "†state.b")])
    run.send(given(n=1, note="x"))
    assert backend.wait(run.id).data()["state"] == {"b": "x"}


def test_r11_6_nothing_is_added_in_the_midst_of_an_amendment(backend: Backend) -> None:
    run = promised(backend, echo("†input.n", "†state.a"))
    keys = wait_idle(backend, run)
    backend.redis.hset(keys.state, "amending", "another")
    with pytest.raises(BeingAmended):
        run.send(given(n=1))
    backend.redis.hdel(keys.state, "amending")
    run.send(given(n=1))
    assert backend.wait(run.id).status == "completed"


def test_r11_6_a_broker_that_is_away_keeps_no_client_from_sending(
    alone: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    from acts_celery import InfrastructureError

    def refuse(self: Publisher, tasks: Any, **how: Any) -> None:
        raise InfrastructureError("away")

    with alone.worker():
        run = promised(alone, echo("†input.n", "†state.a"))
        wait_idle(alone, run)
        monkeypatch.setattr(Publisher, "publish", refuse)
        run.send(given(n=1))
        assert alone.wait(run.id).data()["state"] == {"a": 1}


def test_r11_6_messages_are_sent_from_the_command_line(backend: Backend) -> None:
    run = promised(backend, echo("†input.n", "†state.a")).id
    refused = command(backend, "send", run, "-", "--json", stdin=[given(n="x")])
    assert (refused.code, refused.json["status"], refused.json["errors"][0]["pointer"]) == (2, "rejected", "/0")
    assert command(backend, "send", run, "-", "--json", stdin=given(n=1)).code == 0
    assert backend.wait(run).data()["state"] == {"a": 1}
    over = command(backend, "send", run, "-", stdin=given(n=1))
    assert (over.code, "nothing can be added" in over.stderr) == (4, True)


# Calls that read in every instance, on real workers (SPEC R10.4).

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
