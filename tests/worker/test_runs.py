"""Whole runs, submitted by a client and executed by a real worker (SPEC R4-R7, R10, R11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from acts_celery import Client, RunNotFound
from acts_celery.protocol import Rejected
from acts_celery.worker.store.keys import Keys

from .backend import Backend, Meeting, status_of

Json = Mapping[str, Any]


def state(instance: str, **values: Any) -> dict[str, Any]:
    return {"type": "state", "_instance": instance, **values}


def echo(value: Any, path: str | None, **meta: Any) -> dict[str, Any]:
    return {"_tool": "echo", "value": value, **({"_outputPath": path} if path else {}), **meta}


def test_a_chain_passes_values_on(backend: Backend) -> None:
    result = backend.run(
        [
            {"_tool": "add", "a": 1, "_outputPath": "†state.a"},
            {"_tool": "add", "a": "†state.a", "b": 10, "_outputPath": "†state.b"},
            {"_tool": "echoPlain", "value": {"deep": ["†state.b"]}, "_outputPath": "†state.c"},
        ]
    )
    assert result.status == "completed"
    assert result.data() == {"state": {"a": 2, "b": 12, "c": {"deep": [12]}}}
    assert [(call.index, call.tool, call.status) for call in result.calls] == [
        (0, "add", "done"),
        (1, "add", "done"),
        (2, "echoPlain", "done"),
    ]


def test_calls_listed_in_the_wrong_order_run_in_the_right_one(backend: Backend) -> None:
    result = backend.run([echo("†state.b", "†state.c"), echo("†state.a", "†state.b"), echo(1, "†state.a")])
    assert result.data() == {"state": {"a": 1, "b": 1, "c": 1}}


def test_fan_out_and_join(backend: Backend) -> None:
    width = 50
    calls = [echo(i, f"†state.parts.p{i}") for i in range(width)]
    result = backend.run([*calls, echo("†state.parts", "†state.all")])
    assert result.data()["state"]["all"] == {f"p{i}": i for i in range(width)}


def test_the_branch_not_taken_is_skipped_with_a_reason_and_so_is_what_follows(backend: Backend) -> None:
    result = backend.run(
        [
            {"_tool": "pick", "path": "††state.no", "value": "refused", "_outputPath": "†state.yes || †state.no"},
            echo("†state.yes", "†state.welcome"),
            echo("†state.welcome", "†state.more"),
            echo("†state.no", "†state.sorry"),
        ]
    )
    assert result.status == "completed"
    assert [call.status for call in result.calls] == ["done", "skipped", "skipped", "done"]
    assert result.data() == {"state": {"no": "refused", "sorry": "refused"}}
    assert "†state.yes" in str(result.calls[1].reason)


def test_r4_12_a_choice_needs_no_code_and_no_worker_of_its_own(backend: Backend) -> None:
    places = "†state.small || †state.large"
    result = backend.run(
        [
            echo(70, "†state.total"),
            {"_tool": "choose", "value": "†state.total", "cases": [{"maximum": 10}], "_outputPath": places},
            echo("†state.small", "†state.quick"),
            echo("†state.large", "†state.slow"),
        ]
    )
    assert [call.status for call in result.calls] == ["done", "done", "skipped", "done"]
    assert result.data()["state"] == {"total": 70, "large": 70, "slow": 70}


def test_r6_8_a_call_that_reads_nothing_runs_after_one_that_failed(backend: Backend) -> None:
    after = {**echo(1, "†state.after"), "_after": ["†state.none"]}
    chosen = {"_tool": "pick", "path": "††state.gone", "value": 1, "_outputPath": "†state.none"}
    result = backend.run([after, chosen])
    assert [call.status for call in result.calls] == ["done", "failed"]
    (late, early) = (call.timing for call in result.calls)
    assert late is not None
    assert early is not None
    assert early.ended_ms is not None
    assert late.began_ms is not None
    assert early.ended_ms <= late.began_ms


def test_an_alternative_waits_for_what_may_still_come(backend: Backend) -> None:
    result = backend.run(
        [
            {"_tool": "pick", "path": "††state.b", "value": 2, "_outputPath": "†state.a || †state.b"},
            echo("†state.a || †state.b", "†state.c"),
        ]
    )
    assert result.data()["state"]["c"] == 2


def test_a_result_goes_to_every_path_at_once(backend: Backend) -> None:
    run = backend.client.submit(solution={"calls": [echo(5, "†state.a && †data.b")]})
    result = backend.wait(run.id)
    assert result.data() == {"state": {"a": 5}, "data": {"b": 5}}
    assert [entry.message["data"] for entry in run.log()] == [{"a": 5}, {"b": 5}]


def test_instances_see_their_own_values_and_the_global_ones_only(backend: Backend) -> None:
    marks = [f"i{n}" for n in range(20)]
    context = [{"type": "state", "shared": "all", "mark": "none"}, *(state(mark, mark=mark) for mark in marks)]
    calls = [
        {"_tool": "addInstanceMark", "value": "†state.shared", "_instance": mark, "_outputPath": "†state.seen"}
        for mark in marks
    ]
    result = backend.run(calls, context)
    assert {mark: result.data(mark)["state"] for mark in marks} == {
        mark: {"shared": "all", "mark": mark, "seen": f"all/{mark}"} for mark in marks
    }
    assert result.data() == {"state": {"shared": "all", "mark": "none"}}


def test_a_failed_instance_leaves_the_others_alone(backend: Backend) -> None:
    context = [
        {
            "type": "plan",
            "calls": [
                {"_tool": "failFor", "instance": "②", "mark": "†state.mark", "_outputPath": "†state.out"},
                echo("†state.out", "†state.after"),
            ],
        },
        *(state(mark, mark=mark) for mark in "①②③"),
    ]
    result = backend.wait(backend.client.submit(context).id)
    assert result.status == "failed"
    assert status_of(result, 0, "②") == "failed"
    assert status_of(result, 1, "②") == "skipped"
    assert [result.data(mark)["state"]["after"] for mark in "①③"] == ["①", "③"]
    assert "after" not in result.data("②")["state"]
    assert result.data("②")["error"]["error"] == {"type": "ValueError", "message": "not for ②"}
    assert "error" not in result.data("①")


def test_a_global_call_feeds_every_instance_that_waits_for_it(backend: Backend, meeting: Meeting) -> None:
    marks = [f"i{n}" for n in range(200)]
    run = backend.client.submit(
        [state(mark, mark=mark) for mark in marks],
        {
            "calls": [
                {"_tool": "waitAtGate", "gate": "feeding", "value": "fed", "_outputPath": "†state.food"},
                *(echo("†state.food", "†state.eaten", _instance=mark) for mark in marks),
            ]
        },
    )
    meeting.take("at:feeding")
    meeting.open_gate("feeding")
    result = backend.wait(run.id)
    assert {result.data(mark)["state"]["eaten"] for mark in marks} == {"fed"}
    assert result.status == "completed"


def test_instances_are_skipped_when_the_global_call_they_wait_for_fails(backend: Backend) -> None:
    result = backend.run(
        [
            {"_tool": "explode", "_outputPath": "†state.food"},
            echo("†state.food", "†state.eaten", _instance="①"),
            echo("†state.food || †state.mark", "†state.other", _instance="②"),
        ],
        [state("①", mark=1), state("②", mark=2)],
    )
    assert [call.status for call in result.calls] == ["failed", "skipped", "done"]
    assert result.data("②")["state"]["other"] == 2


def test_a_plan_runs_once_for_each_instance(backend: Backend) -> None:
    plan = {
        "type": "plan",
        "calls": [
            {"_tool": "add", "a": "†state.n", "_outputPath": "†state.m"},
            {"_tool": "add", "a": "†state.m", "_outputPath": "†state.o"},
        ],
    }
    marks = [f"i{n}" for n in range(30)]
    result = backend.wait(backend.client.submit([plan, *(state(f"i{n}", n=n) for n in range(30))]).id)
    assert [result.data(mark)["state"]["o"] for mark in marks] == [n + 2 for n in range(30)]
    assert len(result.calls) == 60


def test_a_plan_without_instances_runs_once(backend: Backend) -> None:
    result = backend.wait(backend.client.submit([{"type": "plan", "calls": [echo(1, "†state.a")]}]).id)
    assert result.data() == {"state": {"a": 1}}


def test_a_template_pinned_to_an_instance_runs_there_only(backend: Backend) -> None:
    plan = {"type": "plan", "calls": [echo("†state.n", "†state.m"), echo("pinned", "†state.p", _instance="②")]}
    result = backend.wait(backend.client.submit([plan, state("①", n=1), state("②", n=2)]).id)
    assert result.data("①")["state"] == {"n": 1, "m": 1}
    assert result.data("②")["state"] == {"n": 2, "m": 2, "p": "pinned"}
    assert [(call.index, call.instance) for call in result.calls] == [(0, "①"), (0, "②"), (1, "②")]


@pytest.mark.parametrize("count", [600, pytest.param(2_000, marks=pytest.mark.nightly)])
def test_more_instances_complete_than_a_run_has_in_the_queue(backend: Backend, count: int) -> None:
    assert count > backend.settings.publish_window
    plan = {"type": "plan", "calls": [{"_tool": "add", "a": "†state.n", "_outputPath": "†state.m"}]}
    run = backend.client.submit([plan, *(state(f"i{n}", n=n) for n in range(count))])
    result = backend.wait(run.id)
    assert result.status == "completed"
    assert [result.data(f"i{n}")["state"]["m"] for n in range(count)] == [n + 1 for n in range(count)]
    assert run.status() == {"run": run.id, "status": "completed", "calls": {"done": count}}


@pytest.mark.parametrize(("tool", "expected"), [("remoteAdd", {"sum": 5}), ("remoteAddPlain", 5)])
def test_an_activity_with_a_queue_of_its_own_comes_back(backend: Backend, tool: str, expected: Any) -> None:
    calls = [{"_tool": tool, "a": 2, "b": 3, "_outputPath": "†state.a"}, echo("†state.a", "†state.b")]
    result = backend.run(calls)
    assert result.data() == {"state": {"a": expected, "b": expected}}


def test_many_remote_calls_of_one_lane_come_back(backend: Backend) -> None:
    calls = [{"_tool": "remoteAddPlain", "a": n, "b": 0, "_outputPath": f"†state.p{n}"} for n in range(40)]
    result = backend.run([*calls, echo("†state", "†data.all")])
    assert result.status == "completed"
    assert {key: result.data()["state"][key] for key in ("p0", "p39")} == {"p0": 0, "p39": 39}


@pytest.mark.parametrize("tool", ["echo", "echoPlain"])
def test_a_slow_sibling_does_not_hold_up_a_fast_branch(backend: Backend, tool: str) -> None:
    gate = f"sibling-{tool}"
    result = backend.run(
        [
            {"_tool": "waitAtGate", "gate": gate, "value": "slow", "_outputPath": "†state.slow"},
            {"_tool": tool, "value": gate, "_outputPath": "†state.gate"},
            {"_tool": "openGate", "gate": "†state.gate", "value": "fast", "_outputPath": "†state.fast"},
        ]
    )
    assert result.status == "completed"
    assert (result.data()["state"]["slow"], result.data()["state"]["fast"]) == ("slow", "fast")


def test_a_slow_sibling_does_not_hold_up_the_result_of_a_remote_call(backend: Backend) -> None:
    result = backend.run(
        [
            {"_tool": "waitAtGate", "gate": "remote-sibling", "_outputPath": "†state.slow"},
            {"_tool": "remoteAddPlain", "a": 1, "b": 1, "_outputPath": "†state.two"},
            {"_tool": "openGate", "gate": "remote-sibling", "value": "†state.two", "_outputPath": "†state.fast"},
        ]
    )
    assert result.status == "completed"


def test_a_slow_sibling_does_not_hold_up_a_call_that_waits_for_a_global_one(backend: Backend, meeting: Meeting) -> None:
    run = backend.client.submit(
        [state("①", n=1)],
        {
            "calls": [
                {"_tool": "waitAtGate", "gate": "global", "value": 1, "_outputPath": "†state.g"},
                {"_tool": "waitAtGate", "gate": "own", "_instance": "①", "_outputPath": "†state.slow"},
                {
                    "_tool": "openGate",
                    "gate": "own",
                    "value": "†state.g",
                    "_instance": "①",
                    "_outputPath": "†state.fast",
                },
            ]
        },
    )
    meeting.take("at:global")
    meeting.take("at:own")
    meeting.open_gate("global")
    try:
        assert run.wait(timeout_seconds=4).status == "completed"
    finally:
        meeting.open_gate("own")


@pytest.mark.parametrize("tool", ["sleepForever", "blockAtGate"])
def test_a_call_that_takes_too_long_fails(backend: Backend, meeting: Meeting, tool: str) -> None:
    parameters = {"gate": tool} if tool == "blockAtGate" else {}
    result = backend.run([{"_tool": tool, "_outputPath": "†state.a", **parameters}])
    meeting.open_gate(tool)
    assert result.status == "failed"
    error = result.calls[0].error
    assert error is not None
    assert error["type"] == "TimeoutError"
    assert "0.05 seconds" in error["message"]


def test_a_call_is_retried_as_its_policy_says(backend: Backend, meeting: Meeting) -> None:
    result = backend.run([{"_tool": "failTwice", "name": "retried", "_outputPath": "†state.attempts"}])
    assert result.data() == {"state": {"attempts": 3}}
    assert meeting.attempts("retried") == 3


@pytest.mark.parametrize("tool", ["failForATime", "failForATimeFar"])
def test_a_call_is_retried_as_long_as_all_its_attempts_may_take(backend: Backend, meeting: Meeting, tool: str) -> None:
    result = backend.run([{"_tool": tool, "name": tool, "_outputPath": "†state.a"}])
    error = result.calls[0].error
    assert error is not None
    assert error["type"] in ("ValueError", "TimeoutError"), "the last attempt's, or there was no time for one"
    assert "(total_timeout_seconds=3)" in error["message"]
    assert 1 < meeting.attempts(tool) < 100
    state: Any = backend.redis.hgetall(Keys(backend.settings.key_prefix, result.run).state)
    assert not [name for name in state if name.startswith(b"begun:")]


def test_a_failure_that_says_so_is_not_retried(backend: Backend, meeting: Meeting) -> None:
    result = backend.run([{"_tool": "refuse", "name": "refused", "_outputPath": "†state.a"}])
    assert (result.status, meeting.attempts("refused")) == ("failed", 1)


def test_an_exception_goes_to_the_last_of_several_alternatives(backend: Backend) -> None:
    result = backend.run(
        [
            {"_tool": "explode", "text": "why", "_outputPath": "†state.ok || †state.maybe || †state.failed"},
            echo("†state.failed.message", "†state.told"),
            echo("†state.ok", "†state.never"),
        ]
    )
    assert result.status == "completed"
    assert [call.status for call in result.calls] == ["done", "done", "skipped"]
    assert result.data()["state"] == {"failed": {"type": "ValueError", "message": "why"}, "told": "why"}


def test_a_failed_call_leaves_an_error_message_without_a_traceback(backend: Backend) -> None:
    call = {"_tool": "explode", "_outputPath": "†state.a"}
    run = backend.client.submit(solution={"calls": [call, echo(1, "†state.b")]})
    result = backend.wait(run.id)
    assert (result.status, result.data()["state"]) == ("failed", {"b": 1})
    (message,) = [entry.message for entry in run.log() if entry.message["type"] == "error"]
    assert message["data"] == {"call": call, "error": {"type": "ValueError", "message": "boom"}}
    assert "Traceback" not in str(message)


def test_a_parameter_that_turns_out_wrong_fails_the_call(backend: Backend) -> None:
    result = backend.run([echo("text", "†state.a"), {"_tool": "add", "a": "†state.a", "_outputPath": "†state.b"}])
    error = result.calls[1].error
    assert error is not None
    assert error["type"] == "InvalidParameters"


def test_values_are_never_parsed_as_references(backend: Backend) -> None:
    secret = {"type": "state", "secret": "hidden", "text": "†state.secret"}
    result = backend.run([echo("†state.text", "†data.a"), echo("†data.a", "†data.b"), echo("††x", "†data.c")], [secret])
    assert result.data()["data"] == {"a": "†state.secret", "b": "†state.secret", "c": "†x"}


def test_an_empty_solution_is_completed_at_once_and_needs_no_worker(aside: Backend) -> None:
    run = aside.client.submit([{"type": "state", "a": 1}], {"calls": [], "output": {"said": "nothing"}})
    assert run.status() == {"run": run.id, "status": "completed", "calls": {}}
    result = run.wait(timeout_seconds=5)
    assert (result.status, result.output, result.data()) == ("completed", {"said": "nothing"}, {"state": {"a": 1}})


def test_a_latent_call_without_an_output_path_is_a_passing_thought(backend: Backend) -> None:
    tools = {"think": {"type": "object", "properties": {"about": {"type": "string"}}}}
    result = backend.run([{"_tool": "think", "about": "x", "_output": "hm"}], tools=tools)
    assert [call.status for call in result.calls] == ["latent"]
    assert result.data() == {}


def test_the_output_written_into_a_latent_call_is_its_result(backend: Backend) -> None:
    tools = {"think": {"type": "object", "properties": {}}}
    call = {"_tool": "think", "_output": {"idea": 1}, "_outputPath": "†state.idea"}
    result = backend.run([call, echo("†state.idea.idea", "†state.x")], tools=tools)
    assert result.data() == {"state": {"idea": {"idea": 1}, "x": 1}}


def test_the_result_as_of_a_past_message(backend: Backend) -> None:
    calls = [echo("new", "†state.a", _instance="①"), echo("†state.a", "†state.b", _instance="①")]
    run = backend.client.submit([state("①", a="old")], {"calls": calls})
    backend.wait(run.id)
    entries = list(run.log())
    seen = [run.result(at=entry.id).data("①")["state"] for entry in entries]
    assert seen == [{"a": "old"}, {"a": "new"}, {"a": "new", "b": "new"}]
    assert [call.status for call in run.result(at=entries[1].id).calls] == ["done", "waiting"]


def test_the_log_lists_the_messages_of_all_lanes_in_order_with_provenance(backend: Backend) -> None:
    context = [{"type": "text", "text": "hello", "extra": [1]}, state("①", n=1)]
    call = echo("†state.n", "†state.m", _instance="①", _outputMethod="set")
    run = backend.client.submit(context, {"calls": [call]})
    backend.wait(run.id)
    entries = list(run.log())
    assert [(entry.instance, entry.message) for entry in entries[:2]] == [(None, context[0]), ("①", context[1])]
    written = dict(entries[2].message)
    assert written.pop("_date").endswith("Z")
    assert written == {
        "type": "data",
        "kind": "state",
        "data": {"m": 1},
        "_call": call,
        "_instance": "①",
        "_outputMethod": "set",
    }
    assert [entry.message for entry in run.log(instance="①")] == [entry.message for entry in entries[1:]]


def test_following_the_log_of_a_run_under_way_gives_every_message_once(backend: Backend, meeting: Meeting) -> None:
    first = {"_tool": "waitAtGate", "gate": "followed", "value": 0, "_outputPath": "†state.n0"}
    run = backend.client.submit(solution={"calls": [first, *(echo("†state.n0", f"†state.n{n}") for n in range(1, 9))]})
    meeting.take("at:followed")
    following = run.log(follow=True)
    meeting.open_gate("followed")
    followed = [entry.id for entry in following]
    assert followed == [entry.id for entry in run.log()]
    assert len(followed) == 9


def test_following_a_run_tells_of_every_call_and_of_the_end(backend: Backend) -> None:
    run = backend.client.submit(solution={"calls": [echo(1, "†state.a"), echo("†state.a", "†state.b")]})
    events = list(run.follow(timeout_seconds=30))
    assert [(event.kind, event.status, event.index) for event in events] == [
        ("run", "running", None),
        ("call", "done", 0),
        ("call", "done", 1),
        ("run", "completed", None),
    ]


def test_waiting_gives_up_in_time_and_the_run_goes_on(backend: Backend, meeting: Meeting) -> None:
    run = backend.client.submit(
        solution={"calls": [{"_tool": "waitAtGate", "gate": "late", "_outputPath": "†state.a"}]}
    )
    meeting.take("at:late")
    with pytest.raises(TimeoutError, match="continues"):
        run.wait(timeout_seconds=0.05)
    assert run.status()["calls"] == {"running": 1}
    assert [call.status for call in run.result().calls] == ["running"]
    meeting.open_gate("late")
    assert backend.wait(run.id).status == "completed"


@pytest.mark.nightly
def test_waiting_outlasts_a_run_that_is_silent_for_longer_than_a_socket_may_be(aside: Backend) -> None:
    with Client(aside.settings.model_copy(update={"queue_instances": "nobodys", "key_prefix": "nobodys"})) as client:
        run = client.submit(solution={"calls": [echo(1, "†state.a")]})
        with pytest.raises(TimeoutError, match="continues"):
            run.wait(timeout_seconds=5.5)


def test_an_unknown_run_is_not_found(backend: Backend) -> None:
    with pytest.raises(RunNotFound):
        backend.client.run("nosuchrun")


def test_the_result_has_the_shape_of_the_interface(backend: Backend) -> None:
    result = backend.run([echo(1, "†state.a", _instance="①")], [{"type": "input", "q": 1}, state("①", s=1)])
    document = result.to_dict()
    (call,) = document["calls"]
    assert document == {
        "run": result.run,
        "status": "completed",
        "output": None,
        "global": {"input": {"q": 1}},
        "instances": {"①": {"input": {"q": 1}, "state": {"s": 1, "a": 1}}},
        "instance_status": {"①": "completed"},
        "calls": [call],
    }
    assert {key: call[key] for key in ("index", "tool", "instance", "status", "error", "reason")} == {
        "index": 0,
        "tool": "echo",
        "instance": "①",
        "status": "done",
        "error": None,
        "reason": None,
    }


def test_a_rejected_submission_lists_every_error(backend: Backend) -> None:
    with pytest.raises(Rejected) as rejected:
        backend.client.submit(solution={"calls": [{"_tool": "nothing"}, echo("†state.x", "†state.y")]})
    assert [problem.pointer for problem in rejected.value.errors] == [
        "/solution/calls/0/_tool",
        "/solution/calls/1/value",
    ]


def test_the_second_of_two_results_that_end_together_and_do_not_fit_fails(backend: Backend) -> None:
    result = backend.run(
        [
            {"_tool": "echo", "value": 5, "_outputPath": "†state.x"},
            {"_tool": "echo", "value": 1, "_outputPath": "†state.x", "_outputMethod": "push"},
            {"_tool": "echo", "value": "†state.x", "_outputPath": "†state.y"},
        ]
    )
    assert result.conflicts == ()
    assert sorted(call.status for call in result.calls[:2]) in (["done", "failed"], ["done", "done"])
