"""What has read what a retry writes anew is named, and done again where that is asked for (SPEC R11.8)."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest

from acts_celery import DeadLetter, NothingToRetry, Run
from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.broker.attempts import CallId
from acts_celery.worker.broker.messages import TaskMessage
from acts_celery.worker.client.amendment import AmendmentSteps
from acts_celery.worker.store.keys import Keys
from acts_celery.worker.store.scripts import date_now

from .backend import Backend, Meeting, settings_for
from .test_retry import broken, command, echo, failed_run, mend, statuses

_names = count()
MARKS = [f"i{number}" for number in range(12)]
CONTEXT = [{"type": "state", "_instance": mark, "mark": mark} for mark in MARKS]


@pytest.fixture
def name() -> str:
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
    backend: Backend, meeting: Meeting, name: str
) -> None:
    calls = [
        *(echo(1, "†state.score", _instance=mark) for mark in MARKS[1:]),
        broken(name, 1, "†state.score", _instance=MARKS[0]),
        echo("†state.score", "†state.scores", _gather=True),
        echo("†state.scores", "†state.told", _instance=MARKS[3]),
    ]
    run = failed_run(backend, calls, CONTEXT)
    assert len(run.result().data()["state"]["scores"]) == 11
    mend(meeting, name)
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
    backend: Backend, meeting: Meeting, name: str
) -> None:
    plan = {
        "type": "plan",
        "calls": [
            {"_tool": "failUntilMended", "name": "†state.needs", "value": 1, "_outputPath": "†state.score"},
            echo("†state.score || †state.mark", "†state.seen"),
            echo("†state.seen", "†state.all", _gather=True),
        ],
    }
    meeting.redis.set(f"mended:{name}-well", 1)
    context = [
        {"type": "state", "_instance": mark, "mark": mark, "needs": name if mark in MARKS[:3] else f"{name}-well"}
        for mark in MARKS
    ]
    run = backend.client.submit([plan, *context])
    result = backend.wait(run.id)
    assert result.data()["state"]["all"] == dict.fromkeys(MARKS, 1) | {mark: mark for mark in MARKS[:3]}
    mend(meeting, name)
    done = run.retry(downstream=True)
    assert set(done.downstream) == {"2", *(f"1:{mark}" for mark in MARKS[:3])}
    result = backend.wait(run.id)
    assert (result.status, result.data()["state"]["all"]) == ("completed", dict.fromkeys(MARKS, 1))
    assert all("error" not in result.data(mark) for mark in MARKS)


def test_a_global_call_leaves_what_instances_have_read_stale(backend: Backend, meeting: Meeting, name: str) -> None:
    own = [echo("†state.a || †state.mark", "†state.mine", _instance=mark) for mark in MARKS[:3]]
    run = failed_run(backend, [broken(name), *own], CONTEXT[:3])
    mend(meeting, name)
    assert run.retry().stale == ("1:i0", "2:i1", "3:i2")
    backend.wait(run.id)
    assert run.retry(downstream=True, instance="i1").downstream == ("2:i1",)
    backend.wait(run.id)
    assert stale(run) == ["1:i0", "3:i2"]
    run.retry(downstream=True)
    result = backend.wait(run.id)
    assert [result.data(mark)["state"]["mine"] for mark in MARKS[:3]] == [1, 1, 1]


def test_what_was_written_and_is_skipped_now_is_withdrawn(backend: Backend, meeting: Meeting, name: str) -> None:
    calls = [
        broken(name, "††state.good"),
        {
            "_tool": "choose",
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
    mend(meeting, name)
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
    backend: Backend, meeting: Meeting, name: str
) -> None:
    run = failed_run(backend, [broken(name, _instance="i0")], CONTEXT[:2])
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
    mend(meeting, name)
    done = run.retry(downstream=True)
    assert (done.calls, done.downstream, done.stale) == (("0:i0",), ("1:i0", "3:i0"), ())
    result = backend.wait(run.id)
    assert (result.status, result.data("i0")["state"]["again"]) == ("completed", 1)


def test_what_has_effects_or_was_sent_and_forgotten_is_done_again_only_where_that_is_asked_for(
    backend: Backend, meeting: Meeting, name: str
) -> None:
    tools = {"charge": {"type": "object", "_trust": {"effects": True}, "properties": {"_activity": {"const": "echo"}}}}
    calls = [
        broken(name, 7),
        {"_tool": "charge", "value": "†state.a || †input.none || †state.b", "_outputPath": "†state.charged"},
        echo("†state.charged", "†state.receipt"),
        {"_tool": "note", "name": name, "value": "†state.a || †state.b"},
    ]
    run = backend.client.submit([{"type": "state", "b": 0}], {"calls": calls}, tools=tools)
    backend.wait(run.id)
    assert meeting.take(name)["call"]["value"] == 0
    mend(meeting, name)
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
    assert meeting.take(name)["call"]["value"] == 7


def test_r4_10_the_elements_that_failed_are_done_again_and_the_others_are_kept(
    backend: Backend, meeting: Meeting, name: str
) -> None:
    meeting.redis.set(f"mended:{name}-well", 1)
    context = [{"type": "state", "names": [f"{name}-well", name, f"{name}-well"], "n": [1, 2, 3]}]
    each = {"_tool": "failUntilMended", "name": "†state.names", "value": "†state.n", "_each": ["name", "value"]}
    run = backend.client.submit(context, {"calls": [{**each, "_outputPath": "†state.r"}, echo("†state.r", "†state.s")]})
    result = backend.wait(run.id)
    assert (result.status, result.data()["state"]["s"]) == ("completed", [1, None, 3])
    mend(meeting, name)
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
    backend: Backend, meeting: Meeting, name: str
) -> None:
    run = at_work_on_what_had_failed(backend, meeting, name)
    assert run.retry(downstream=True).stale == ("1",)
    meeting.open_gate(name)
    result = backend.wait(run.id)
    assert (result.data()["state"]["w"], stale(run)) == (0, ["1"])
    run.retry(downstream=True)
    assert backend.wait(run.id).data()["state"]["w"] == 3


def test_a_call_that_counts_as_lost_is_stale_since_its_result_may_still_come(
    backend: Backend, meeting: Meeting, name: str
) -> None:
    run = at_work_on_what_had_failed(backend, meeting, name)
    backend.redis.hset(Keys(backend.settings.key_prefix, run.id).calls, "\x1f1", "lost:1:0:")
    assert run.retry(downstream=True).stale == ("1",)
    meeting.open_gate(name)
    backend.wait(run.id)
    run.retry(downstream=True)
    assert backend.wait(run.id).data()["state"]["w"] == 3


def test_a_gather_that_has_not_begun_waits_again_for_an_instance_that_is_retried(
    backend: Backend, meeting: Meeting, name: str
) -> None:
    calls = [
        broken(name, 1, "†state.score", _instance="i0"),
        {"_tool": "waitAtGate", "gate": name, "value": 1, "_outputPath": "†state.score", "_instance": "i1"},
        {"_tool": "waitAtGate", "gate": f"{name}-again", "value": 1, "_outputPath": "†state.w", "_instance": "i0"},
        echo("†state.score", "†state.all", _gather=True),
    ]
    run = backend.client.submit(CONTEXT[:2], {"calls": calls})
    meeting.take(f"at:{name}")
    meeting.take(f"at:{name}-again")
    for event in run.follow():
        if event.kind == "call" and event.status == "failed":
            break
    mend(meeting, name)
    run.retry()
    meeting.open_gate(name)
    meeting.open_gate(f"{name}-again")
    result = backend.wait(run.id)
    assert (result.status, result.data()["state"]["all"]) == ("completed", {"i0": 1, "i1": 1})


def test_the_command_names_what_is_stale_and_does_it_again(backend: Backend, meeting: Meeting, name: str) -> None:
    run = failed_run(backend, [broken(name), echo("†state.a || †state.b", "†state.c")], [{"type": "state", "b": 0}])
    mend(meeting, name)
    refused = command(backend, "retry", run.id, "--effects")
    assert (refused.code, "give both" in refused.stderr) == (2, True)
    told = command(backend, "retry", run.id, "--json")
    assert (told.code, told.json["retried"], told.json["stale"]) == (0, ["0"], ["1"])
    assert told.stderr == (
        "acts: 1 failed call tried again, 0 skipped calls decided anew\n"
        "acts: 1 call stale: 1; --downstream carries them out again\n"
    )
    backend.wait(run.id)
    shown = command(backend, "show", run.id, "--json")
    assert [call.get("stale") for call in shown.json["calls"]] == [None, True]
    assert "stale" in command(backend, "show", run.id, "--all").stdout
    told = command(backend, "retry", run.id, "--downstream", "--json")
    assert (told.json["retried"], told.json["downstream"], told.json["stale"]) == ([], ["1"], [])
    assert backend.wait(run.id).data()["state"]["c"] == 1


def test_a_downstream_retry_that_was_interrupted_is_finished_by_repeating_it(
    backend: Backend, meeting: Meeting, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = [echo("†state.a || †state.mark", "†state.mine", _instance=mark) for mark in MARKS[:3]]
    gather = echo("†state.mine", "†state.all", _gather=True)
    run = failed_run(backend, [broken(name), *own, gather], CONTEXT[:3])
    assert run.result().data()["state"]["all"] == {mark: mark for mark in MARKS[:3]}
    mend(meeting, name)

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
    backend: Backend, meeting: Meeting, name: str
) -> None:
    own = [echo(mark, "†state.score", _instance=mark) for mark in MARKS[:2]]
    gather = echo("†state.a || †state.score", "†state.all", _gather=True)
    run = failed_run(backend, [*own, gather, broken(name, 5)], CONTEXT[:2])
    assert run.result().data()["state"]["all"] == {"i0": "i0", "i1": "i1"}
    mend(meeting, name)
    assert run.retry(downstream=True).downstream == ("2",)
    result = backend.wait(run.id)
    assert (result.status, result.data()["state"]["all"]) == ("completed", 5)


def test_a_worker_that_is_killed_in_the_middle_of_it_changes_nothing(
    server: EmbeddedServer, meeting: Meeting, tmp_path: Path, name: str
) -> None:
    settings = settings_for(server, key_prefix=name, lease_seconds=1.5, sweep_interval_seconds=0.2)
    killed = Backend(settings, meeting, tmp_path)
    waiting = {"_tool": "waitAtGate", "gate": name, "value": "†state.a || †state.mark", "_outputPath": "†state.w"}
    plan = {"type": "plan", "calls": [broken(name), waiting, echo("†state.w", "†state.all", _gather=True)]}
    with killed.worker():
        run = killed.client.submit([plan, *CONTEXT[:2]])
        meeting.open_gate(name)
        assert killed.wait(run.id).data()["state"]["all"] == {"i0": "i0", "i1": "i1"}
    meeting.redis.delete(f"gate:{name}", f"record:at:{name}")
    mend(meeting, name)
    run.retry(downstream=True)
    with killed.worker() as worker:
        meeting.take(f"at:{name}")
        worker.kill()
        worker.wait()
    meeting.open_gate(name)
    with killed.worker():
        result = killed.wait(run.id)
    assert (result.status, result.data()["state"]["all"]) == ("completed", {"i0": 1, "i1": 1})
    assert run.status()["calls"] == {"done": 5}


def test_a_gather_that_an_amendment_has_left_behind_is_named_as_stale(
    backend: Backend, meeting: Meeting, name: str
) -> None:
    own = [broken(name, 1, "†state.score", _instance="i0"), echo(2, "†state.score", _instance="i1")]
    late = [echo("†state.g || †state.mark", "†state.seen", _instance="i1"), broken(f"{name}-g", 3, "†state.g")]
    gather = echo("†state.score", "†state.all", _gather=True)
    run = failed_run(backend, [*own, gather, *reversed(late)], CONTEXT[:2])
    run.amend([echo(3, "†state.z")], add=True)
    assert backend.wait(run.id).data()["state"]["all"] == {"i1": 2}
    mend(meeting, name)
    mend(meeting, f"{name}-g")
    done = run.retry(downstream=True)
    assert (set(done.calls), done.downstream, done.stale) == ({"0:i0", "3"}, ("4:i1",), ("2",))
    result = backend.wait(run.id)
    assert (result.status, result.data()["state"]["all"], stale(run)) == ("completed", {"i1": 2}, ["2"])
    assert result.data("i1")["state"]["seen"] == 3
    run.amend([{**gather, "_outputPath": "†state.all"}], add=True)
    assert backend.wait(run.id).data()["state"]["all"] == {"i0": 1, "i1": 2}


def test_a_call_that_has_written_its_failure_is_done_again_where_it_is_named(
    backend: Backend, meeting: Meeting, name: str
) -> None:
    calls = [
        broken(name, 1, "†state.a || †state.why"),
        echo("†state.why.type", "†state.told"),
        echo("†state.a || †state.b", "†state.c"),
    ]
    run = backend.client.submit([{"type": "state", "b": 0}], {"calls": calls})
    result = backend.wait(run.id)
    assert (result.status, result.data()["state"]["told"]) == ("completed", "ConnectionError")
    mend(meeting, name)
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
