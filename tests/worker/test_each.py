"""Calls that are carried out for each element of a list, on real workers (SPEC R4.10)."""

from __future__ import annotations

import os
import secrets
import signal
from typing import Any

import pytest

from acts_celery import Run
from acts_celery.worker.cli.progress import Elements
from acts_celery.worker.store.keys import Keys

from .backend import DEADLINE_SECONDS, Backend, Meeting, status_of
from .test_control import alone, echo, gate
from .test_r14_people import wait_held

__all__ = ["alone", "gate"]  # fixtures

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
            pass
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
        pass
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
