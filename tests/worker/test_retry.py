"""Retries, and what they leave stale (SPEC R11.8)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from acts_celery import BeingAmended, DeadLetter, NothingToRetry, Result, Run, RunOver
from acts_celery.broker_config import EmbeddedServer
from acts_celery.protocol import Rejected
from acts_celery.worker.broker.attempts import CallId
from acts_celery.worker.broker.messages import TaskMessage
from acts_celery.worker.client.amendment import AmendmentSteps
from acts_celery.worker.client.retrying import Choice, Retrier, RetryScope
from acts_celery.worker.store.keys import Keys
from acts_celery.worker.store.scripts import date_now
from tests.acceptance.command import Finished, acts
from tests.protocol import naive

from .backend import Backend, Meeting, settings_for, status_of
from .test_gathering_against_naive import CONTEXT, LANES

# Failed calls are done again in the same run, or given by hand (`acts retry`).

_names = count()


@pytest.fixture
def name() -> str:
    return f"retry{next(_names)}"


def mend(meeting: Meeting, name: str) -> None:
    meeting.redis.set(f"mended:{name}", b"1")


def broken(name: str, value: Any = 1, path: str = "†state.a", **more: Any) -> dict[str, Any]:
    return {"_tool": "failUntilMended", "name": name, "value": value, "_outputPath": path, **more}


def echo(value: Any, path: str, **more: Any) -> dict[str, Any]:
    return {"_tool": "echo", "value": value, "_outputPath": path, **more}


def failed_run(backend: Backend, calls: list[dict[str, Any]], context: Any = ()) -> Run:
    run = backend.client.submit(context, {"calls": calls})
    assert backend.wait(run.id).status == "failed"
    return run


def statuses(run: Run) -> list[str]:
    return [call.status for call in run.result().calls]


def command(backend: Backend, *arguments: str) -> Finished:
    return acts(*arguments, env=backend.settings.to_environment() | {"MEETING_URL": backend.meeting.url})


def test_a_failed_call_and_what_was_skipped_for_it_are_done_again_in_the_same_run(
    backend: Backend, meeting: Meeting, name: str
) -> None:
    calls = [broken(name), echo("†state.a", "†state.b"), echo("†state.b", "†state.c"), echo(7, "†state.d")]
    run = failed_run(backend, calls)
    assert statuses(run) == ["failed", "skipped", "skipped", "done"]
    mend(meeting, name)
    done = run.retry()
    assert (done.calls, done.skipped) == (("0",), ("1", "2"))
    result = backend.wait(run.id)
    assert (result.status, result.data()["state"]) == ("completed", {"a": 1, "b": 1, "c": 1, "d": 7})
    assert run.status()["calls"] == {"done": 4}
    assert "error" not in result.data()  # R3.1: it was carried out again since, and ended without one
    assert [entry.message["type"] for entry in run.log()].count("error") == 1  # the log keeps what was


def test_a_call_that_fails_again_leaves_the_run_failed_as_before(backend: Backend, name: str) -> None:
    run = failed_run(backend, [broken(name), echo("†state.a", "†state.b")])
    for _ in range(2):
        run.retry()
        assert backend.wait(run.id).status == "failed"
        assert run.status()["calls"] == {"failed": 1, "skipped": 1}
        assert statuses(run) == ["failed", "skipped"]


def test_only_the_call_or_the_instance_asked_for_is_retried(backend: Backend, meeting: Meeting, name: str) -> None:
    plan = {"type": "plan", "calls": [broken(name), broken(name, 2, "†state.b"), echo("†state.a", "†state.c")]}
    run = backend.client.submit([plan, *({"type": "state", "_instance": mark, "mark": mark} for mark in "①②③")])
    backend.wait(run.id)
    mend(meeting, name)
    done = run.retry(call=0, instance="②")
    assert (done.calls, done.skipped) == (("0:②",), ("2:②",))
    result = backend.wait(run.id)
    assert result.status == "failed"
    assert [status_of(result, index, "②") for index in range(3)] == ["done", "failed", "done"]
    assert [status_of(result, index, "①") for index in range(3)] == ["failed", "failed", "skipped"]
    assert set(run.retry(instance="①").calls) == {"0:①", "1:①"}
    backend.wait(run.id)
    assert set(run.retry().calls) == {"1:②", "0:③", "1:③"}
    assert backend.wait(run.id).status == "completed"
    assert run.status()["calls"] == {"done": 9}


def test_where_one_instance_is_chosen_the_others_are_not_read(backend: Backend, meeting: Meeting, name: str) -> None:
    plan = {"type": "plan", "calls": [broken(name), echo("†state.a", "†state.c")]}
    run = backend.client.submit([plan, *({"type": "state", "_instance": mark, "mark": mark} for mark in "①②")])
    backend.wait(run.id)
    keys = Keys(backend.settings.key_prefix, run.id)
    backend.redis.xadd(keys.log, {"u": "①", "m": b"\xc1"})  # which cannot be read
    assert run.would_retry(instance="②").calls == ("0:②",)
    with pytest.raises(ValueError):
        run.would_retry()


def test_a_global_call_that_is_retried_brings_back_what_instances_skipped_for_it(
    backend: Backend, meeting: Meeting, name: str
) -> None:
    own = [echo("†state.a", "†state.mine", _instance=mark) for mark in "①②"]
    context = [{"type": "state", "_instance": mark, "mark": mark} for mark in "①②"]
    run = failed_run(backend, [broken(name), *own], context)
    assert statuses(run) == ["failed", "skipped", "skipped"]
    mend(meeting, name)
    assert run.retry().skipped == ("1:①", "2:②")
    result = backend.wait(run.id)
    assert result.status == "completed"
    assert [result.data(mark)["state"]["mine"] for mark in "①②"] == [1, 1]


def test_a_gathering_that_nothing_came_to_is_decided_anew(backend: Backend, meeting: Meeting, name: str) -> None:
    own = [broken(name, mark, _instance=mark) for mark in "①②"]
    gather = echo("†state.a", "†state.all", _gather=True)
    context = [{"type": "state", "_instance": mark, "mark": mark} for mark in "①②"]
    run = failed_run(backend, [*own, gather, echo("†state.all", "†state.seen", _instance="①")], context)
    assert statuses(run) == ["failed", "failed", "skipped", "skipped"]
    mend(meeting, name)
    assert set(run.retry().skipped) == {"2", "3:①"}
    result = backend.wait(run.id)
    assert result.status == "completed"
    assert result.data()["state"]["all"] == {"①": "①", "②": "②"}
    assert result.data("①")["state"]["seen"] == {"①": "①", "②": "②"}


def test_with_a_value_a_failed_call_counts_as_done_and_the_log_says_who_gave_it(backend: Backend, name: str) -> None:
    run = failed_run(backend, [broken(name), echo("†state.a", "†state.b")])
    done = run.retry(skip=True, value={"by": "hand"})
    assert (done.calls, done.skipped) == (("0",), ("1",))
    result = backend.wait(run.id)
    assert (result.status, result.data()["state"]) == ("completed", {"a": {"by": "hand"}, "b": {"by": "hand"}})
    (given,) = [entry for entry in run.log() if entry.message.get("data") == {"a": {"by": "hand"}}]
    assert "@" in given.message["_by"]
    assert given.message["_call"]["_tool"] == "failUntilMended"
    assert result.calls[0].status == "done"
    assert str(result.calls[0].reason).startswith("given by hand by ")


def test_a_run_of_which_everything_left_is_given_by_hand_is_over_at_once(backend: Backend, name: str) -> None:
    run = failed_run(backend, [broken(name)])
    run.retry(skip=True)
    assert run.status() == {"run": run.id, "status": "completed", "calls": {"done": 1}}
    assert run.result().data()["state"] == {"a": None}


@pytest.mark.parametrize("path", ["†state.n", "†state.n || †state.refused"])
def test_a_value_that_does_not_fit_is_refused_and_nothing_has_changed(backend: Backend, path: str) -> None:
    tools = {
        "typed": {"type": "object", "_output": {"type": "integer"}, "properties": {"_activity": {"const": "explode"}}}
    }
    solution = {"calls": [{"_tool": "typed", "_outputPath": "†state.n"}]}
    run = backend.client.submit([], solution, tools=tools)
    assert backend.wait(run.id).status == "failed"
    with pytest.raises(Rejected, match="cannot have the value"):
        run.retry(skip=True, value="a text")
    assert run.status() == {"run": run.id, "status": "failed", "calls": {"failed": 1}}
    run.retry(skip=True, value=3)
    assert run.result().data()["state"] == {"n": 3}


def test_nothing_is_retried_where_nothing_has_failed(backend: Backend, name: str) -> None:
    run = backend.client.submit([], {"calls": [echo(1, "†state.a")]})
    backend.wait(run.id)
    with pytest.raises(NothingToRetry, match="has failed"):
        run.retry()
    with pytest.raises(NothingToRetry, match="is done"):
        run.retry(call=0)
    with pytest.raises(NothingToRetry, match="has no call 9"):
        run.retry(call=9)
    assert run.status()["status"] == "completed"


def test_a_cancelled_run_is_not_retried(backend: Backend, meeting: Meeting, name: str) -> None:
    run = backend.client.submit(
        [], {"calls": [broken(name), {"_tool": "waitAtGate", "gate": name, "_outputPath": "†state.w"}]}
    )
    meeting.take(f"at:{name}")
    run.cancel()
    with pytest.raises(RunOver, match="cancelled"):
        run.retry()
    meeting.open_gate(name)


def test_a_call_is_retried_while_others_of_its_run_are_at_work(backend: Backend, meeting: Meeting, name: str) -> None:
    waiting = {"_tool": "waitAtGate", "gate": name, "value": 5, "_outputPath": "†state.w"}
    run = backend.client.submit([], {"calls": [broken(name), waiting, echo("†state.w", "†state.x")]})
    for event in run.follow():
        if event.kind == "call" and event.status == "failed":
            break
    mend(meeting, name)
    run.retry()
    meeting.open_gate(name)
    result = backend.wait(run.id)
    assert (result.status, result.data()["state"]) == ("completed", {"a": 1, "w": 5, "x": 5})


def test_a_call_that_an_amendment_has_left_behind_is_retried_with_what_it_read(
    backend: Backend, meeting: Meeting, name: str
) -> None:
    run = failed_run(backend, [broken(name), echo("†state.a", "†state.b")])
    run.amend([echo(3, "†state.z")], add=True)
    assert backend.wait(run.id).status == "failed"
    mend(meeting, name)
    assert run.retry().skipped == ("1",)
    result = backend.wait(run.id)
    assert (result.status, result.data()["state"]) == ("completed", {"a": 1, "b": 1, "z": 3})


def test_the_past_of_a_retried_run_is_as_it_was_and_forks_and_amendments_go_on_from_it(
    backend: Backend, meeting: Meeting, name: str
) -> None:
    run = failed_run(backend, [broken(name), echo("†state.a", "†state.b")])
    before = list(run.follow())[-1].id
    mend(meeting, name)
    run.retry()
    backend.wait(run.id)
    past = run.result(before)
    assert (past.status, [call.status for call in past.calls]) == ("failed", ["failed", "skipped"])
    fork = run.fork()
    assert (fork.status()["status"], fork.status()["calls"]) == ("completed", {"done": 2})
    old = run.fork(before)
    assert old.status()["calls"] == {"failed": 1, "skipped": 1}
    old.retry()
    assert backend.wait(old.id).status == "completed"
    run.amend([echo("†state.b", "†state.later")], add=True)
    assert backend.wait(run.id).data()["state"]["later"] == 1


def test_a_large_lane_is_retried_in_parts(backend: Backend, meeting: Meeting, name: str) -> None:
    run = failed_run(backend, [broken(name, n, f"†state.a{n}") for n in range(600)])
    mend(meeting, name)
    assert len(run.retry().calls) == 600
    result = backend.wait(run.id)
    assert result.status == "completed"
    assert result.data()["state"] == {f"a{n}": n for n in range(600)}


def test_a_retry_that_was_interrupted_is_finished_by_repeating_it(
    backend: Backend, meeting: Meeting, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = {"type": "plan", "calls": [broken(name), echo("†state.a", "†state.b")]}
    run = backend.client.submit([plan, *({"type": "state", "_instance": mark, "mark": mark} for mark in "①②")])
    backend.wait(run.id)
    mend(meeting, name)

    def dies(self: AmendmentSteps, step: str, requests: Any) -> None:
        self.do(step, **next(iter(requests)))
        raise KeyboardInterrupt

    monkeypatch.setattr(AmendmentSteps, "do_all", dies)
    with pytest.raises(KeyboardInterrupt):
        run.retry()
    monkeypatch.undo()
    assert run.status()["status"] == "paused"
    with pytest.raises(BeingAmended, match="retry"):
        run.resume()
    assert run.retry().calls == ("0:②",)
    assert backend.wait(run.id).status == "completed"


def test_the_command_retries_and_gives_and_says_what_it_has_done(backend: Backend, meeting: Meeting, name: str) -> None:
    run = failed_run(backend, [broken(name), echo("†state.a", "†state.b")])
    refused = command(backend, "retry", run.id, "--skip", "{no json")
    assert (refused.code, "is not JSON" in refused.stderr) == (2, True)
    told = command(backend, "retry", run.id, "--call", "0", "--skip", "5", "--json")
    assert (told.code, told.json["retried"], told.json["reconsidered"]) == (0, ["0"], ["1"])
    assert told.stderr == "acts: 1 failed call taken as done, 1 skipped call decided anew\n"
    assert backend.wait(run.id).data()["state"] == {"a": 5, "b": 5}
    nothing = command(backend, "retry", run.id)
    assert (nothing.code, nothing.stdout) == (4, "")
    assert nothing.error_lines == [f"acts: no call of run {run.id} has failed: there is nothing to retry"]


def test_a_fork_of_a_failed_run_says_what_does_its_failed_calls_again(backend: Backend, name: str) -> None:
    run = failed_run(backend, [broken(name)])
    told = command(backend, "fork", run.id)
    fork = told.stdout.strip()
    assert told.stderr == f"acts: failed calls: 1; `acts retry {fork}` runs them again\n"


# What has read what a retry writes anew is named, and done again where that is asked for (SPEC R11.8).

MARKS = [f"i{number}" for number in range(12)]
CONTEXT_DOWNSTREAM = [{"type": "state", "_instance": mark, "mark": mark} for mark in MARKS]


@pytest.fixture
def name_downstream() -> str:
    return f"downstream{next(_names)}"


def stale(run: Run) -> list[str]:
    return [call.id for call in run.result().calls if call.stale]


def at_work_on_what_had_failed(backend: Backend, meeting: Meeting, name: str) -> Run:
    """A run whose call 1 is at work with another value than that of call 0, which had failed and would pass now."""
    waiting = {"_tool": "waitAtGate", "gate": name, "value": "†state.a || †state.b", "_outputPath": "†state.w"}
    run = backend.client.submit([{"type": "state", "b": 0}], {"calls": [broken(name, 3), waiting]})
    meeting.take(f"at:{name}")
    mend(meeting, name)
    return run


def test_a_summary_of_instances_of_which_one_had_failed_is_stale_and_done_again(
    backend: Backend, meeting: Meeting, name_downstream: str
) -> None:
    calls = [
        *(echo(1, "†state.score", _instance=mark) for mark in MARKS[1:]),
        broken(name_downstream, 1, "†state.score", _instance=MARKS[0]),
        echo("†state.score", "†state.scores", _gather=True),
        echo("†state.scores", "†state.told", _instance=MARKS[3]),
    ]
    run = failed_run(backend, calls, CONTEXT_DOWNSTREAM)
    assert len(run.result().data()["state"]["scores"]) == 11
    mend(meeting, name_downstream)
    done = run.retry()
    assert (done.calls, done.skipped, done.downstream) == (("11:i0",), (), ())
    assert done.stale == ("12", "13:i3")
    result = backend.wait(run.id)
    assert (result.status, len(result.data()["state"]["scores"])) == ("completed", 11)
    assert stale(run) == ["12", "13:i3"]
    again = run.retry(downstream=True)
    assert (again.calls, again.downstream, again.stale) == ((), ("12", "13:i3"), ())
    result = backend.wait(run.id)
    assert (result.status, stale(run)) == ("completed", [])
    assert result.data()["state"]["scores"] == dict.fromkeys(MARKS, 1)
    assert result.data("i3")["state"]["told"] == dict.fromkeys(MARKS, 1)
    assert run.status()["calls"] == {"done": 14}
    with pytest.raises(NothingToRetry):
        run.retry(downstream=True)


def test_a_plan_for_each_and_one_summary_are_put_right_in_one_step(
    backend: Backend, meeting: Meeting, name_downstream: str
) -> None:
    plan = {
        "type": "plan",
        "calls": [
            {"_tool": "failUntilMended", "name": "†state.needs", "value": 1, "_outputPath": "†state.score"},
            echo("†state.score || †state.mark", "†state.seen"),
            echo("†state.seen", "†state.all", _gather=True),
        ],
    }
    meeting.redis.set(f"mended:{name_downstream}-well", 1)
    context = [
        {
            "type": "state",
            "_instance": mark,
            "mark": mark,
            "needs": name_downstream if mark in MARKS[:3] else f"{name_downstream}-well",
        }
        for mark in MARKS
    ]
    run = backend.client.submit([plan, *context])
    result = backend.wait(run.id)
    assert result.data()["state"]["all"] == dict.fromkeys(MARKS, 1) | {mark: mark for mark in MARKS[:3]}
    mend(meeting, name_downstream)
    done = run.retry(downstream=True)
    assert set(done.downstream) == {"2", *(f"1:{mark}" for mark in MARKS[:3])}
    result = backend.wait(run.id)
    assert (result.status, result.data()["state"]["all"]) == ("completed", dict.fromkeys(MARKS, 1))
    assert all("error" not in result.data(mark) for mark in MARKS)


def test_a_global_call_leaves_what_instances_have_read_stale(
    backend: Backend, meeting: Meeting, name_downstream: str
) -> None:
    own = [echo("†state.a || †state.mark", "†state.mine", _instance=mark) for mark in MARKS[:3]]
    run = failed_run(backend, [broken(name_downstream), *own], CONTEXT_DOWNSTREAM[:3])
    mend(meeting, name_downstream)
    assert run.retry().stale == ("1:i0", "2:i1", "3:i2")
    backend.wait(run.id)
    assert run.retry(downstream=True, instance="i1").downstream == ("2:i1",)
    backend.wait(run.id)
    assert stale(run) == ["1:i0", "3:i2"]
    run.retry(downstream=True)
    result = backend.wait(run.id)
    assert [result.data(mark)["state"]["mine"] for mark in MARKS[:3]] == [1, 1, 1]


def test_what_was_written_and_is_skipped_now_is_withdrawn(
    backend: Backend, meeting: Meeting, name_downstream: str
) -> None:
    calls = [
        broken(name_downstream, "††state.good"),
        {
            "_tool": "pick",
            "path": "†state.a || †state.else",
            "value": 1,
            "_outputPath": "†state.good || †state.bad",
        },
        echo("†state.bad", "†state.worse"),
        echo({"log": "†state.good || †state.worse"}, "†state.list", _outputMethod="merge"),
        echo(["†state.worse || †state.good"], "†state.items", _outputMethod="concat"),
    ]
    run = failed_run(backend, calls, [{"type": "state", "else": "†state.bad", "items": [0]}])
    before = list(run.follow())[-1].id
    past = run.result().data()["state"]
    assert past == {"else": "†state.bad", "items": [0, 1], "bad": 1, "worse": 1, "list": {"log": 1}}
    mend(meeting, name_downstream)
    assert run.retry(downstream=True).downstream == ("1", "2", "3", "4")
    result = backend.wait(run.id)
    expected = {"else": "†state.bad", "items": [0, 1], "a": "†state.good", "good": 1, "list": {"log": 1}}
    assert (result.status, result.data()) == ("completed", {"state": expected})
    assert statuses(run) == ["done", "done", "skipped", "done", "done"]
    assert run.result(before).data()["state"] == past
    assert [origin.logged.call for origin in run.explain("state.list").origins] == [3]
    assert run.explain_absence("state.worse").writers[0].status == "skipped"
    assert run.fork().result().data() == result.data()
    assert run.fork(before).result().data()["state"] == past
    run.amend([echo("†state.worse || †state.good", "†state.late")], add=True)
    assert backend.wait(run.id).data()["state"]["late"] == 1


def test_what_was_added_when_a_call_had_failed_is_stale_once_that_is_done_again(
    backend: Backend, meeting: Meeting, name_downstream: str
) -> None:
    run = failed_run(backend, [broken(name_downstream, _instance="i0")], CONTEXT_DOWNSTREAM[:2])
    run.amend(
        [
            echo("†state.a || †state.mark", "†state.seen", _instance="i0"),
            echo("†state.mark", "†state.other", _instance="i1"),
        ],
        add=True,
    )
    backend.wait(run.id)
    run.amend([echo("†state.seen", "†state.again", _instance="i0")], add=True)
    backend.wait(run.id)
    mend(meeting, name_downstream)
    done = run.retry(downstream=True)
    assert (done.calls, done.downstream, done.stale) == (("0:i0",), ("1:i0", "3:i0"), ())
    result = backend.wait(run.id)
    assert (result.status, result.data("i0")["state"]["again"]) == ("completed", 1)


def test_what_has_effects_or_was_sent_and_forgotten_is_done_again_only_where_that_is_asked_for(
    backend: Backend, meeting: Meeting, name_downstream: str
) -> None:
    tools = {"charge": {"type": "object", "_trust": {"effects": True}, "properties": {"_activity": {"const": "echo"}}}}
    calls = [
        broken(name_downstream, 7),
        {"_tool": "charge", "value": "†state.a || †input.none || †state.b", "_outputPath": "†state.charged"},
        echo("†state.charged", "†state.receipt"),
        {"_tool": "note", "name": name_downstream, "value": "†state.a || †state.b"},
    ]
    run = backend.client.submit([{"type": "state", "b": 0}], {"calls": calls}, tools=tools)
    backend.wait(run.id)
    assert meeting.take(name_downstream)["call"]["value"] == 0
    mend(meeting, name_downstream)
    done = run.retry(downstream=True)
    assert (done.calls, done.downstream, done.stale) == (("0",), (), ("1", "2", "3"))
    backend.wait(run.id)
    letters, forgotten = backend.client.dead_letters(), CallId(run.id, None, 3)
    letters.add(DeadLetter(forgotten, TaskMessage("", "", b"", ""), "E", "it failed before", 1, date_now()))
    done = run.retry(downstream=True, effects=True)
    assert letters.list(run.id) == [], "it would be sent a third time"
    assert (done.downstream, done.stale) == (("1", "2", "3"), ())
    result = backend.wait(run.id)
    assert result.data()["state"] == {"a": 7, "b": 0, "charged": 7, "receipt": 7}
    assert meeting.take(name_downstream)["call"]["value"] == 7


def test_r4_10_the_elements_that_failed_are_done_again_and_the_others_are_kept(
    backend: Backend, meeting: Meeting, name_downstream: str
) -> None:
    meeting.redis.set(f"mended:{name_downstream}-well", 1)
    context = [
        {
            "type": "state",
            "names": [f"{name_downstream}-well", name_downstream, f"{name_downstream}-well"],
            "n": [1, 2, 3],
        }
    ]
    each = {"_tool": "failUntilMended", "name": "†state.names", "value": "†state.n", "_each": ["name", "value"]}
    run = backend.client.submit(context, {"calls": [{**each, "_outputPath": "†state.r"}, echo("†state.r", "†state.s")]})
    result = backend.wait(run.id)
    assert (result.status, result.data()["state"]["s"]) == ("completed", [1, None, 3])
    mend(meeting, name_downstream)
    done = run.retry(downstream=True)
    assert (done.calls, done.downstream) == (("0",), ("1",))
    result = backend.wait(run.id)
    assert (result.status, result.data()["state"]["s"]) == ("completed", [1, 2, 3])
    assert "error" not in result.data()
    (elements,) = [call.elements for call in result.calls if call.elements is not None]
    assert (elements.total, elements.ended, elements.failed) == (3, 3, 0)
    begun = [event.element for event in run.follow() if event.kind == "element"]
    assert sorted(begun, key=str) == [0, 1, 1, 2]


def test_a_call_at_work_that_has_read_what_is_written_anew_is_stale_when_it_ends(
    backend: Backend, meeting: Meeting, name_downstream: str
) -> None:
    run = at_work_on_what_had_failed(backend, meeting, name_downstream)
    assert run.retry(downstream=True).stale == ("1",)
    meeting.open_gate(name_downstream)
    result = backend.wait(run.id)
    assert (result.data()["state"]["w"], stale(run)) == (0, ["1"])
    run.retry(downstream=True)
    assert backend.wait(run.id).data()["state"]["w"] == 3


def test_a_call_that_counts_as_lost_is_stale_since_its_result_may_still_come(
    backend: Backend, meeting: Meeting, name_downstream: str
) -> None:
    run = at_work_on_what_had_failed(backend, meeting, name_downstream)
    backend.redis.hset(Keys(backend.settings.key_prefix, run.id).calls, "\x1f1", "lost:1:0:")
    assert run.retry(downstream=True).stale == ("1",)
    meeting.open_gate(name_downstream)
    backend.wait(run.id)
    run.retry(downstream=True)
    assert backend.wait(run.id).data()["state"]["w"] == 3


def test_a_gather_that_has_not_begun_waits_again_for_an_instance_that_is_retried(
    backend: Backend, meeting: Meeting, name_downstream: str
) -> None:
    calls = [
        broken(name_downstream, 1, "†state.score", _instance="i0"),
        {"_tool": "waitAtGate", "gate": name_downstream, "value": 1, "_outputPath": "†state.score", "_instance": "i1"},
        {
            "_tool": "waitAtGate",
            "gate": f"{name_downstream}-again",
            "value": 1,
            "_outputPath": "†state.w",
            "_instance": "i0",
        },
        echo("†state.score", "†state.all", _gather=True),
    ]
    run = backend.client.submit(CONTEXT_DOWNSTREAM[:2], {"calls": calls})
    meeting.take(f"at:{name_downstream}")
    meeting.take(f"at:{name_downstream}-again")
    for event in run.follow():
        if event.kind == "call" and event.status == "failed":
            break
    mend(meeting, name_downstream)
    run.retry()
    meeting.open_gate(name_downstream)
    meeting.open_gate(f"{name_downstream}-again")
    result = backend.wait(run.id)
    assert (result.status, result.data()["state"]["all"]) == ("completed", {"i0": 1, "i1": 1})


def test_the_command_names_what_is_stale_and_does_it_again(
    backend: Backend, meeting: Meeting, name_downstream: str
) -> None:
    run = failed_run(
        backend, [broken(name_downstream), echo("†state.a || †state.b", "†state.c")], [{"type": "state", "b": 0}]
    )
    mend(meeting, name_downstream)
    refused = command(backend, "retry", run.id, "--effects")
    assert (refused.code, "give both" in refused.stderr) == (2, True)
    told = command(backend, "retry", run.id, "--json")
    assert (told.code, told.json["retried"], told.json["stale"]) == (0, ["0"], ["1"])
    assert told.stderr == (
        "acts: 1 failed call tried again, 0 skipped calls decided anew\n"
        "acts: 1 call stale (call 1); --downstream runs them again\n"
    )
    backend.wait(run.id)
    shown = command(backend, "show", run.id, "--json")
    assert [call.get("stale") for call in shown.json["calls"]] == [None, True]
    assert "stale" in command(backend, "show", run.id, "--all").stdout
    told = command(backend, "retry", run.id, "--downstream", "--json")
    assert (told.json["retried"], told.json["downstream"], told.json["stale"]) == ([], ["1"], [])
    assert backend.wait(run.id).data()["state"]["c"] == 1


def test_a_downstream_retry_that_was_interrupted_is_finished_by_repeating_it(
    backend: Backend, meeting: Meeting, name_downstream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = [echo("†state.a || †state.mark", "†state.mine", _instance=mark) for mark in MARKS[:3]]
    gather = echo("†state.mine", "†state.all", _gather=True)
    run = failed_run(backend, [broken(name_downstream), *own, gather], CONTEXT_DOWNSTREAM[:3])
    assert run.result().data()["state"]["all"] == {mark: mark for mark in MARKS[:3]}
    mend(meeting, name_downstream)

    def dies(self: AmendmentSteps, step: str, requests: Any) -> None:
        for request in list(requests)[:2]:
            self.do(step, **request)
        raise KeyboardInterrupt

    monkeypatch.setattr(AmendmentSteps, "do_all", dies)
    with pytest.raises(KeyboardInterrupt):
        run.retry(downstream=True)
    monkeypatch.undo()
    assert run.status()["status"] == "paused"
    assert set(run.retry().downstream) == {"2:i1", "3:i2"}
    result = backend.wait(run.id)
    assert (result.status, result.data()["state"]["all"]) == ("completed", dict.fromkeys(MARKS[:3], 1))
    assert stale(run) == []


def test_a_gather_waits_again_for_a_global_call_that_is_listed_after_it(
    backend: Backend, meeting: Meeting, name_downstream: str
) -> None:
    own = [echo(mark, "†state.score", _instance=mark) for mark in MARKS[:2]]
    gather = echo("†state.a || †state.score", "†state.all", _gather=True)
    run = failed_run(backend, [*own, gather, broken(name_downstream, 5)], CONTEXT_DOWNSTREAM[:2])
    assert run.result().data()["state"]["all"] == {"i0": "i0", "i1": "i1"}
    mend(meeting, name_downstream)
    assert run.retry(downstream=True).downstream == ("2",)
    result = backend.wait(run.id)
    assert (result.status, result.data()["state"]["all"]) == ("completed", 5)


def test_a_worker_that_is_killed_in_the_middle_of_it_changes_nothing(
    server: EmbeddedServer, meeting: Meeting, tmp_path: Path, name_downstream: str
) -> None:
    settings = settings_for(server, key_prefix=name_downstream, lease_seconds=1.5, sweep_interval_seconds=0.2)
    killed = Backend(settings, meeting, tmp_path)
    waiting = {
        "_tool": "waitAtGate",
        "gate": name_downstream,
        "value": "†state.a || †state.mark",
        "_outputPath": "†state.w",
    }
    plan = {"type": "plan", "calls": [broken(name_downstream), waiting, echo("†state.w", "†state.all", _gather=True)]}
    with killed.worker():
        run = killed.client.submit([plan, *CONTEXT_DOWNSTREAM[:2]])
        meeting.open_gate(name_downstream)
        assert killed.wait(run.id).data()["state"]["all"] == {"i0": "i0", "i1": "i1"}
    meeting.redis.delete(f"gate:{name_downstream}", f"record:at:{name_downstream}")
    mend(meeting, name_downstream)
    run.retry(downstream=True)
    with killed.worker() as worker:
        meeting.take(f"at:{name_downstream}")
        worker.kill()
        worker.wait()
    meeting.open_gate(name_downstream)
    with killed.worker():
        result = killed.wait(run.id)
    assert (result.status, result.data()["state"]["all"]) == ("completed", {"i0": 1, "i1": 1})
    assert run.status()["calls"] == {"done": 5}


def test_a_gather_that_an_amendment_has_left_behind_is_named_as_stale(
    backend: Backend, meeting: Meeting, name_downstream: str
) -> None:
    own = [broken(name_downstream, 1, "†state.score", _instance="i0"), echo(2, "†state.score", _instance="i1")]
    late = [
        echo("†state.g || †state.mark", "†state.seen", _instance="i1"),
        broken(f"{name_downstream}-g", 3, "†state.g"),
    ]
    gather = echo("†state.score", "†state.all", _gather=True)
    run = failed_run(backend, [*own, gather, *reversed(late)], CONTEXT_DOWNSTREAM[:2])
    run.amend([echo(3, "†state.z")], add=True)
    assert backend.wait(run.id).data()["state"]["all"] == {"i1": 2}
    mend(meeting, name_downstream)
    mend(meeting, f"{name_downstream}-g")
    done = run.retry(downstream=True)
    assert (set(done.calls), done.downstream, done.stale) == ({"0:i0", "3"}, ("4:i1",), ("2",))
    result = backend.wait(run.id)
    assert (result.status, result.data()["state"]["all"], stale(run)) == ("completed", {"i1": 2}, ["2"])
    assert result.data("i1")["state"]["seen"] == 3
    run.amend([{**gather, "_outputPath": "†state.all"}], add=True)
    assert backend.wait(run.id).data()["state"]["all"] == {"i0": 1, "i1": 2}


def test_a_call_that_has_written_its_failure_is_done_again_where_it_is_named(
    backend: Backend, meeting: Meeting, name_downstream: str
) -> None:
    calls = [
        broken(name_downstream, 1, "†state.a || †state.why"),
        echo("†state.why.type", "†state.told"),
        echo("†state.a || †state.b", "†state.c"),
    ]
    run = backend.client.submit([{"type": "state", "b": 0}], {"calls": calls})
    result = backend.wait(run.id)
    assert (result.status, result.data()["state"]["told"]) == ("completed", "ConnectionError")
    mend(meeting, name_downstream)
    with pytest.raises(NothingToRetry, match="no call"):
        run.retry(downstream=True)
    done = run.retry(call=0)
    assert (done.calls, done.stale) == (("0",), ("1", "2"))
    assert backend.wait(run.id).data()["state"] == {"a": 1, "b": 0, "c": 0, "told": "ConnectionError"}
    with pytest.raises(NothingToRetry, match="is stale: --downstream"):
        run.retry(call=2)
    run.retry(downstream=True)
    assert backend.wait(run.id).data()["state"] == {"a": 1, "b": 0, "c": 1}
    assert statuses(run) == ["done", "skipped", "done"]


# Random submissions whose failing calls pass at the second attempt, on a real worker: after `retry --downstream
# --effects` the values are those that the naive evaluator gives where nothing fails (SPEC R11.8).

NUMBER = 25
FAULTY = "failUntilMended"


def _give(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    return parameters["value"]


def _see(parameters: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
    return dict(context)


FUNCTIONS = {"echo": _give, FAULTY: _give, "seeScopes": _see}


def faulty(random: Random, name: str) -> dict[str, Any]:
    """A submission in which calls of instances, global ones and gather calls read each other's results."""
    places = [f"†{random.choice(['state', 'data'])}.k{index}" for index in range(random.randint(3, 8))]
    calls = []
    for index, place in enumerate(places):
        known = ["†state.price", "†state.rate", *places[:index], *places[:index], *places[index + 1 :][:1]]
        value = " || ".join(random.sample(known, k=random.choice([1, 2, 2])))
        scopes = random.choice([[], [random.choice(["†state.price", *places[:index]])]])
        tool = random.choice(["echo", "seeScopes", FAULTY, FAULTY])
        call = {"_tool": tool, "value": value, "_scopes": scopes, "_outputPath": place}
        calls.append(call | random.choice(LANES) | ({"name": name} if tool == FAULTY else {}))
    if random.random() < 0.5:
        return {"context": [*CONTEXT, {"type": "plan", "calls": calls}]}
    return {"context": CONTEXT, "solution": {"calls": calls}}


def submitted(backend: Backend, seed: int) -> tuple[str, dict[str, Any], Run] | None:
    """What a call waits for until it passes, a submission, and its run."""
    name = f"faulty{seed}"
    value = faulty(Random(seed), name)
    try:
        if backend.client.check(value).dropped_waits:
            return None
    except Rejected:
        return None
    return name, value, backend.client.submit_document(value)


class _Whole(Retrier):
    """Reads the whole run, whichever instance is chosen."""

    def _read_one(self, choice: Choice) -> None:
        return None


def chosen_alike(backend: Backend, run: Run, result: Result) -> int:
    """What retries of single instances would do, found from the whole run and from as much as is read of it."""
    failed = {call.instance for call in result.calls if call.status == "failed" and call.instance is not None}
    for instance in failed:
        for extent in (RetryScope(), RetryScope(downstream=True, effects=True)):
            choice, arguments = Choice(extent, instance=instance), (run.id, backend.redis, backend.settings)
            assert Retrier(*arguments).planned(choice) == _Whole(*arguments).planned(choice)
    return len(failed)


def retried(backend: Backend, run: Run) -> Result:
    """What a run comes to when all that has failed or is stale was carried out again."""
    while (result := backend.wait(run.id)).status == "failed" or any(call.stale for call in result.calls):
        run.retry(downstream=True, effects=True)
    return result


@pytest.mark.parametrize("first", [1, NUMBER + 1])
def test_r11_8_after_a_retry_the_values_are_those_of_a_run_in_which_nothing_failed(
    backend: Backend, meeting: Meeting, first: int
) -> None:
    found = (one for seed in count(1000 * first) if (one := submitted(backend, seed)) is not None)
    failed = chosen = 0
    for name, value, run in list(islice(found, NUMBER)):
        if first > 1:  # in the middle of it, as soon as something has failed
            for event in run.follow():
                if event.status == "failed":
                    mend(meeting, name)
                    run.retry(downstream=event.id.endswith("0"))
                    break
        result = backend.wait(run.id)
        failed += result.status == "failed"
        chosen += chosen_alike(backend, run, result) if first == 1 else 0
        mend(meeting, name)
        result, verdict = retried(backend, run), naive.evaluate(value, FUNCTIONS)
        statuses: dict[str | None, dict[int, str]] = {}
        for call in result.calls:
            statuses.setdefault(call.instance, {})[call.index] = call.status
        assert statuses == {lane: calls for lane, calls in verdict.statuses.items() if calls}, value
        assert {reader: result.data(reader) for reader in verdict.data} == verdict.data, value
    assert (failed > NUMBER // 2 and chosen > NUMBER // 2) or first > 1
