"""Steering a loop from outside: what was asked, something said, forks, pauses (SPEC R12.9, R13.5, R13.6)."""

from __future__ import annotations

import secrets
from collections import Counter
from typing import Any

import pytest

from acts_celery import NoLoop, NoSuchTick, RunOver
from tests.acceptance.command import acts

from .backend import Backend, Meeting
from .loops import ADD, Asked, answer, held_call

SUM = {"_tool": "add", "a": 1, "b": 2, "_outputPath": "†state.sum"}
MORE = {"_tool": "add", "a": "†state.sum", "b": 10, "_outputPath": "†state.more"}


def test_r12_9_what_was_asked_can_be_had_of_each_tick(loops: Backend) -> None:
    asked = Asked(loops, answer(SUM), answer(output=3))
    asked.result()
    for tick in range(2):
        assert asked.run.asked(tick)["messages"] == asked.requests[tick]["messages"]
        assert asked.run.asked(tick)["schema"] == asked.requests[tick]["schema"]
    with pytest.raises(NoSuchTick, match="has asked 2 times"):
        asked.run.asked(2)


def test_r13_5_what_a_request_quotes_of_its_log_is_asked_and_can_be_had(loops: Backend) -> None:
    long = {"_tool": "echo", "value": "†† " * 200, "_outputPath": "†state.long.value"}
    context, tools = [{"type": "text", "message": "Repeat it. " * 100}], {"add": ADD, "echo": {}}
    asked = Asked(loops, answer(SUM, long), answer(MORE), answer(output=3), context=context, tools=tools)
    asked.result()
    for tick in range(3):
        assert asked.run.asked(tick)["messages"] == asked.requests[tick]["messages"]
    assert asked.requests[1]["messages"][-1]["content"].count("†† ") == 200
    ids = [entry.id for entry in asked.run.log() if entry.message["type"] == "solution"]
    fork = asked.run.fork(ids[1])
    assert loops.wait(fork.id).output == 3
    assert fork.asked(2)["messages"] == asked.requests[2]["messages"] == asked.requests[-1]["messages"]
    assert asked.run.script() == fork.script()


def test_r12_9_what_was_asked_is_printed(loops: Backend) -> None:
    asked = Asked(loops, answer(SUM), answer(output=3))
    asked.result()
    printed = acts("prompt", asked.run.id, "--tick", "1", "--json", env=loops.environment()).json
    assert printed["messages"] == asked.requests[1]["messages"]


def test_what_is_said_in_a_loop_is_in_its_next_request(loops: Backend) -> None:
    asked = Asked(loops, answer(SUM, gate="said"), answer(output=3))
    asked.wait_until_asked(0)
    asked.run.say("Make it three.")
    assert [entry.audit.did for entry in asked.run.log(audit=True) if entry.audit] == ["submitted", "said"]
    loops.meeting.open_gate("said")
    assert asked.result().output == 3
    assert asked.requests[1]["messages"][-1] == {"role": "user", "content": "Make it three."}


def test_a_loop_that_has_ended_goes_on_with_what_is_said(loops: Backend) -> None:
    asked = Asked(loops, answer(SUM, output="†state.sum"), answer(MORE, output="†state.more"), config={"ticks": 1})
    assert asked.result().output == 3
    asked.run.say("Ten more, please.")
    result = asked.result()
    assert (result.status, result.output) == ("completed", 13)
    assert asked.requests[1]["messages"][-1]["content"] == "Ten more, please."
    assert asked.asked == {0: 1, 1: 1}


def test_nothing_is_said_in_a_run_without_a_loop_or_that_is_cancelled(loops: Backend) -> None:
    with pytest.raises(NoLoop):
        loops.client.run(loops.run([SUM]).run).say("Hello?")
    asked = Asked(loops, answer(gate="never answered"))
    asked.wait_until_asked(0)
    asked.run.cancel()
    loops.meeting.open_gate("never answered")
    with pytest.raises(RunOver):
        asked.run.say("Hello?")


def test_r13_5_a_fork_before_a_solution_asks_anew_and_one_after_it_runs_the_solution(loops: Backend) -> None:
    asked = Asked(loops, answer(SUM), answer(MORE), answer(output="†state.more"))
    asked.result()
    log = list(asked.run.log())
    ids = {entry.message["tick"]: entry.id for entry in log if entry.message["type"] == "solution"}
    before = log[[entry.id for entry in log].index(ids[1]) - 1].id
    fork = asked.run.fork(before)
    assert loops.wait(fork.id).output == 13
    assert asked.asked == {0: 1, 1: 2, 2: 2}
    fork = asked.run.fork(ids[1])
    result = loops.wait(fork.id)
    assert (result.output, asked.asked) == (13, {0: 1, 1: 3, 2: 3})
    last = next(entry.id for entry in log if entry.message.get("_call") == MORE)
    assert loops.wait(asked.run.fork(last).id).output == 13
    assert asked.asked == {0: 1, 1: 3, 2: 4}
    assert loops.wait(asked.run.fork().id).output == 13
    assert asked.asked == {0: 1, 1: 3, 2: 4}


def test_r13_1_an_answer_that_comes_while_the_run_is_paused_is_kept_and_nothing_is_asked(loops: Backend) -> None:
    asked = Asked(loops, answer(SUM, gate="paused"), answer(output="†state.sum"))
    asked.wait_until_asked(0)
    asked.run.pause()
    loops.meeting.open_gate("paused")
    for entry in asked.run.log(follow=True):
        if entry.message["type"] == "solution":
            break
    assert asked.run.status()["status"] == "paused"
    asked.run.resume()
    assert asked.result().output == 3
    assert asked.asked == {0: 1, 1: 1}


def test_r11_1_calls_of_a_tick_that_have_not_begun_can_be_amended(loops: Backend) -> None:
    wait = {"_tool": "waitAtGate", "gate": "amended", "value": 1, "_outputPath": "†state.first"}
    late = {"_tool": "add", "a": "†state.first", "b": 1, "_outputPath": "†state.sum"}
    asked = Asked(loops, answer(wait, late), answer(output="†state.sum"), tools=["add", "waitAtGate"])
    loops.meeting.take("at:amended")
    asked.run.amend([{**late, "b": 10}])
    loops.meeting.open_gate("amended")
    result = asked.result()
    assert (result.status, result.output) == ("completed", 11)
    assert [call.status for call in result.calls] == ["done", "skipped", "done"]
    assert asked.asked == {0: 1, 1: 1}


def test_r11_1_where_all_that_was_left_is_amended_away_the_next_tick_is_asked(loops: Backend) -> None:
    asked = Asked(loops, answer(SUM), answer(MORE, gate="emptied"), answer(output=1))
    asked.wait_until_asked(1)
    asked.run.amend({"calls": []})
    loops.meeting.open_gate("emptied")
    assert asked.result().output == 1
    assert asked.asked == {0: 1, 1: 1, 2: 1}


def test_r11_7_calls_are_added_to_a_loop_under_way_and_to_one_that_has_ended(loops: Backend) -> None:
    asked = Asked(loops, answer(SUM, gate="added"), answer(output="†state.sum"))
    asked.wait_until_asked(0)
    asked.run.amend([{"_tool": "add", "a": 5, "b": 5, "_outputPath": "†state.ten"}], add=True)
    loops.meeting.open_gate("added")
    result = asked.result()
    assert (result.status, result.output) == ("completed", 3)
    assert result.global_data["state"] == {"sum": 3, "ten": 10}
    asked.run.amend([{"_tool": "add", "a": 7, "b": 7, "_outputPath": "†state.more"}], add=True)
    result = asked.result()
    assert (result.status, result.output) == ("completed", 3)
    assert result.global_data["state"]["more"] == 14
    assert sorted(call.index for call in result.calls) == [0, 1, 2]
    asked.run.amend([{"_tool": "add", "a": "no number", "b": 7, "_outputPath": "†state.bad"}], add=True)
    result = asked.result()
    assert (result.status, result.output) == ("failed", 3)


def test_r11_7_calls_added_while_the_model_is_asked_and_those_of_its_answer_all_run_once(
    loops: Backend, meeting: Meeting
) -> None:
    model, first, late, told = (secrets.token_hex(4) for _ in range(4))
    value = f"†state.{first}"
    added = [
        gated(first, 1),
        gated(late, value),  # waits for the first, so it begins when the answer is there
        {"_tool": "add", "_instance": "①", "a": value, "b": 1, "_outputPath": "†state.own"},
        {"_tool": "explode", "text": value, "_outputPath": "†state.bad"},
    ]
    theirs = [gated(told, 2), {"_tool": "add", "_instance": "①", "a": "†state.n", "b": 1, "_outputPath": "†state.told"}]
    context = [{"type": "state", "_instance": "①", "n": 3}]
    tools = ["add", "explode", "waitAtGate"]
    asked = Asked(loops, answer(*theirs, gate=model), answer(output=7), tools=tools, context=context)
    asked.wait_until_asked(0)
    asked.run.amend(added, add=True)
    meeting.take(f"at:{first}")
    loops.meeting.open_gate(model)
    meeting.take(f"at:{told}")
    between = next(entry.id for entry in asked.run.log(follow=True) if entry.message.get("_call") == theirs[1])
    meeting.open_gate(told)
    meeting.open_gate(first)
    meeting.take(f"at:{late}")
    meeting.open_gate(late)
    result = asked.result()
    assert (result.status, result.output, asked.asked) == ("completed", 7, {0: 1, 1: 1})
    assert [meeting.count(f"at:{name}") for name in (first, late, told)] == [0, 0, 0]
    assert result.data()["state"] == {first: 1, late: 1, told: 2}
    assert result.data("①")["state"].items() >= {"own": 2, "told": 4}.items()
    calls = [(0, None, None), (1, None, None), (2, "①", None), (3, None, None), (4, None, 0), (5, "①", 0)]
    assert [(call.index, call.instance, call.tick) for call in result.calls] == calls
    written = Counter(entry.message["_call"]["_outputPath"] for entry in asked.run.log() if "_call" in entry.message)
    assert written == Counter(call["_outputPath"] for call in (*added[:3], *theirs))
    (error,) = asked.messages("error")
    assert (error["data"]["call"], error["data"]["error"]["pointer"]) == (added[3], "/calls")
    past = asked.run.result(between)
    assert [(call.index, call.instance, call.tick) for call in past.calls] == calls
    assert [call.status for call in past.calls[:5]] == ["waiting"] * 5
    shown = acts("show", asked.run.id, "--at", between, "--json", env=loops.environment()).json
    assert [call["status"] for call in shown["calls"]] == [call.status for call in past.calls]
    assert loops.wait(asked.run.fork(between).id).data()["state"] == result.data()["state"]


def test_r11_7_an_answer_waits_for_a_call_that_was_added_and_gathers(loops: Backend, meeting: Meeting) -> None:
    model, gate, told = (secrets.token_hex(4) for _ in range(3))
    added = [
        {**gated(gate, 5), "_instance": "①"},
        {"_tool": "echo", "_gather": True, "value": f"†state.{gate}", "_outputPath": "†data.all"},
    ]
    theirs = [{**gated(told, "†state.n"), "_instance": "①"}]
    context = [{"type": "state", "_instance": "①", "n": 3}]
    tools = ["echo", "waitAtGate"]
    asked = Asked(loops, answer(*theirs, gate=model), answer(output=7), tools=tools, context=context)
    asked.wait_until_asked(0)
    asked.run.amend(added, add=True)
    meeting.take(f"at:{gate}")
    meeting.open_gate(model)
    meeting.open_gate(told)
    meeting.open_gate(gate)
    result = asked.result()
    assert (result.status, result.output) == ("completed", 7)
    assert result.data()["data"]["all"] == {"①": 5}
    assert result.data("①")["state"].items() >= {gate: 5, told: 3}.items()


def gated(gate: str, value: Any) -> dict[str, Any]:
    return {"_tool": "waitAtGate", "gate": gate, "value": value, "_outputPath": f"†state.{gate}"}


def test_a_failed_call_of_a_loop_that_has_ended_can_be_tried_again(loops: Backend) -> None:
    bad = {"_tool": "add", "a": "no number", "_outputPath": "†state.first"}
    asked = Asked(loops, answer(bad), answer(output=1))
    assert asked.result().status == "completed"
    asked.run.retry(skip=True, value=3)
    result = asked.result()
    assert (result.status, result.output) == ("completed", 1)
    assert [call.status for call in result.calls] == ["done"]


def test_the_request_of_a_loop_is_no_call_of_its_run(loops: Backend) -> None:
    asked = Asked(loops, answer(gate="counted"), answer(output=1))
    asked.wait_until_asked(0)
    assert asked.run.status()["calls"] == {}
    loops.meeting.open_gate("counted")
    assert asked.result().output == 1


def test_r14_1_a_call_of_a_loop_waits_for_a_person_and_its_tick_with_it(loops: Backend) -> None:
    asked = Asked(
        loops,
        answer(SUM, MORE),
        answer(SUM, output="†state.more"),
        answer(output="†state.more"),
        config={"approve": ["add"]},
    )
    asked.wait_until_asked(0)
    asked.run.approve(held_call(asked), parameters={"a": 100, "b": 1})
    asked.run.approve(held_call(asked))
    asked.wait_until_asked(1)
    asked.run.reject(held_call(asked), "Not again.")
    result = asked.result()
    assert (result.status, result.output) == ("completed", 111)
    assert "Not again." in asked.requests[2]["messages"][-1]["content"]
    assert result.to_dict()["ticks"][1]["set_aside"]


def test_r13_6_the_calls_of_the_last_solution_are_the_plan_of_the_next_request(loops: Backend) -> None:
    plan = {"type": "plan", "calls": [{"_tool": "add", "a": 5, "_outputPath": "†state.sum"}]}
    asked = Asked(loops, answer(SUM), answer(output="†state.sum"), context=[plan])
    result = asked.result()
    assert (result.output, len(result.calls)) == (3, 1)
    assert "## Plan" in asked.requests[0]["messages"][-1]["content"]
    shown = asked.requests[1]["messages"][-1]["content"]
    assert "## Plan" in shown
    assert '{"_tool":"add","a":1,"b":2,"_outputPath":"†state.sum"}' in shown
