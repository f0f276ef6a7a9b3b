"""Failed calls are done again in the same run, or given by hand (`acts retry`)."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from acts_celery import BeingAmended, NothingToRetry, Run, RunOver
from acts_celery.protocol import Rejected
from acts_celery.worker.client.amendment import AmendmentSteps
from acts_celery.worker.store.keys import Keys
from tests.acceptance.command import Finished, acts

from .backend import Backend, Meeting, status_of

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
    assert told.stderr == f"acts: failed calls: 1; `acts retry {fork}` carries them out again\n"
