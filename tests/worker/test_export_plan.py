"""A run's calls as a plan, to be run again (`acts export --plan`)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acts_celery import NoLoop, NoSuchTick

from .backend import Backend, Meeting
from .loops import Asked, answer
from .test_control_cli import command
from .test_r9_3_children import Told

PEOPLE = [{"type": "input", "_instance": name, "word": name} for name in ("Ann", "Bob")]
OTHERS = [{"type": "input", "_instance": name, "word": name.lower()} for name in ("Cid", "Dan", "Eve")]
COPY = {"_tool": "addInstanceMark", "value": "†input.word", "_outputPath": "†state.copy", "_scopes": ["state"]}
ALL = {"_tool": "echo", "value": {"all": "†state.copy"}, "_gather": True, "_outputPath": "†data.all"}


def test_a_plan_is_run_again_with_other_data(backend: Backend, tmp_path: Path) -> None:
    run = backend.client.submit([*PEOPLE, {"type": "plan", "calls": [COPY, ALL]}])
    first = backend.wait(run.id)
    file, rows = tmp_path / "plan.json", tmp_path / "rows.jsonl"
    told = command(backend, "export", run.id, "--plan", "-o", str(file))
    assert (told.code, told.stdout) == (0, "")
    assert told.stderr == f"acts: run {run.id} is in {file}\n", "a call that gathers stays one"
    rows.write_text("\n".join(map(json.dumps, OTHERS)), encoding="utf-8")
    again = command(backend, "run", str(file), "--context", str(rows), "--json").json
    assert (first.status, again["status"]) == ("completed", "completed")
    assert again["global"]["data"]["all"]["all"].keys() == {"Cid", "Dan", "Eve"}
    plan = json.loads(file.read_text(encoding="utf-8"))
    assert plan["context"] == [{"type": "plan", "calls": [COPY, ALL]}]
    assert plan["tools"].keys() == {"addInstanceMark", "echo"}


def test_what_stands_in_every_instance_is_one_call_and_what_was_replaced_is_none(
    backend: Backend, meeting: Meeting
) -> None:
    gate = {"_tool": "waitAtGate", "gate": "export", "value": 1, "_outputPath": "†state.gate"}
    word = {"_tool": "echo", "value": "†input.word", "_outputPath": "†state.word"}
    both = [{**word, "_instance": name} for name in ("Ann", "Bob")]
    one = {"_tool": "echo", "value": "†state.gate", "_outputPath": "†state.one", "_instance": "Bob"}
    dropped = {"_tool": "echoPlain", "value": "†state.gate", "_outputPath": "†state.x"}
    run = backend.client.submit(PEOPLE, {"calls": [gate, *both, both[0], one, dropped]})
    meeting.take("at:export")
    ended = (event for event in run.follow(timeout_seconds=30) if event.kind == "call")
    assert [next(ended).status for _ in (*both, both[0])] == ["done"] * 3  # what has not begun would be replaced
    run.amend([{"_tool": "echo", "value": 2, "_outputPath": "†state.y"}])
    meeting.open_gate("export")
    backend.wait(run.id)
    said: list[str] = []
    calls = run.export_plan(warn=said.append)["context"][0]["calls"]
    assert calls == [gate, word, word, {"_tool": "echo", "value": 2, "_outputPath": "†state.y"}]
    assert said == [
        "run once, globally, here, and once in each instance in the plan: 0 (waitAtGate), 6 (echo); a call that reads "
        'in all instances is given "_gather": true'
    ]
    told = command(backend, "export", run.id, "--plan")
    assert said[0] in told.stderr
    assert json.loads(told.stdout)["context"][0]["calls"] == calls


def test_a_tick_of_a_loop_is_a_plan(loops: Backend) -> None:
    def add(a: int, **more: Any) -> dict[str, Any]:
        return {"_tool": "add", "a": a, "_outputPath": f"†state.n{a}", **more}

    asked = Asked(loops, answer(add(1), add(2)), answer(add(3)), answer(output=1))
    asked.result()
    ticks = [asked.run.export_plan(tick)["context"][0]["calls"] for tick in range(3)]
    assert ticks == [[add(1), add(2)], [add(3)], []]
    assert asked.run.export_plan()["context"][0]["calls"] == [add(1), add(2), add(3)]
    with pytest.raises(NoSuchTick):
        asked.run.export_plan(3)


def test_a_run_without_ticks_has_no_plan_of_one(backend: Backend) -> None:
    run = backend.client.submit(solution={"calls": [{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}]})
    backend.wait(run.id)
    with pytest.raises(NoLoop):
        run.export_plan(0)
    assert command(backend, "export", run.id, "--plan", "--tick", "0").code == 4
    assert command(backend, "export", run.id, "--tick", "0").code == 2


def test_delegates_come_with_those_that_they_name(aside: Backend) -> None:
    deeper = {"deeper": {"type": "object", "properties": {"_delegate": {"const": "inner"}}}}
    delegates = {"outer": {"context": [], "tools": deeper, "schema": {"type": "string"}}, "inner": {"context": []}}
    call = {"_tool": "ask", "_delegate": "outer", "_outputPath": "†state.a"}
    run = aside.client.submit(solution={"calls": [call]}, delegates=delegates)
    exported = run.export_plan()
    assert exported["delegates"].keys() == {"outer", "inner"}
    assert aside.client.check(exported).waves == ((0,),)
    run.cancel()


def test_the_calls_of_a_tick_that_child_runs_have_answered_run_again(loops: Backend) -> None:
    sums = {"_tool": "add", "a": 1, "b": 2, "_outputPath": "†state.sum"}
    told = Told(loops, answer(sums), answer(output="†state.sum"))
    ask = {"_tool": "ask", "_outputPath": "†state.answer"}
    tools = {"ask": {"properties": {"_delegate": {"const": "researcher"}}}}
    asked = Asked(
        loops, answer(ask), answer(output="†state.answer"), tools=tools, delegates={"researcher": told.definition()}
    )
    assert asked.result().output == 3
    exported = asked.run.export_plan(0)
    assert exported["context"] == [{"type": "plan", "calls": [ask]}]
    again = loops.client.submit_document(exported)
    assert loops.wait(again.id).data()["state"] == {"answer": 3}
    assert told.asked == {0: 2, 1: 2}


def test_r9_5_a_plan_keeps_promises_mode_approvals_and_the_settings_that_change_what_runs(backend: Backend) -> None:
    schema = {"type": "object", "properties": {"word": {"type": "string"}}}
    promise = {"type": "input", "schema": schema, "description": "what is copied"}
    config = {"approve": ["echo"], "max_concurrency": 3, "ignore": ["ACT101"], "mode": "eager"}
    plan = {"type": "plan", "mode": "lazy", "calls": [COPY]}
    people = [{**promise, **one} for one in PEOPLE]
    run = backend.client.submit_document({"context": [*people, plan], "config": config})
    exported = run.export_plan()
    assert exported["context"] == [promise, plan]
    assert exported["config"] == {"approve": ["echo"], "max_concurrency": 3}
    again = backend.client.submit_document({**exported, "context": [*exported["context"], *OTHERS]})
    assert (again.status()["status"], again.plan() is not None) == ("paused", True)
    for each in (run, again):
        each.cancel()
