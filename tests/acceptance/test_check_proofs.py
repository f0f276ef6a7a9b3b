"""`acts check` as a black box: findings, cost, who sees what, the drawing, the simulation, and errors on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
from typing import Any

import pytest

from .command import ACTIVITIES, COMMAND, DEADLINE_SECONDS, FIXTURES, Finished, acts, encoded, environment

GIVE = {"type": "object", "properties": {"value": {}}}
SUBMISSION: dict[str, Any] = {
    "context": [{"type": "state", "user": {"name": "Ада", "ssn": "123"}}],
    "tools": {"give": GIVE},
    "solution": {
        "calls": [
            {"_tool": "give", "value": "†state.user.ssn", "_outputPath": "†data.good || †data.bad"},
            {"_tool": "give", "value": "†data.good", "_outputPath": "†data.said"},
            {"_tool": "give", "value": "†data.bad", "_outputPath": "†data.said"},
            {"_tool": "give", "value": 1, "_outputPath": "†data.said"},
        ]
    },
}


def check(*arguments: str, submission: object = SUBMISSION) -> Finished:
    return acts("check", "-", "--activities", str(ACTIVITIES), *arguments, stdin=submission)


def test_the_machine_output_has_cost_findings_and_what_was_asked_for() -> None:
    result = check("--json", "--mermaid", "--simulate", "--who-sees", "†state.user.ssn")
    assert result.code == 0, result
    document = result.json
    found = [(finding["severity"], finding["calls"]) for finding in document["findings"]]
    assert found == [("warning", [1, 2, 3])]
    assert document["cost"] == {
        "calls": 4,
        "instances": 0,
        "executions": 4,
        "lanes": 1,
        "tasks": 1,
        "wake_ups": 0,
        "queued_activities": 0,
        "delegate_requests": 0,
        "model_requests": 0,
        "background_sends": 0,
        "depth": 2,
        "width": 2,
    }
    assert document["unread"] == [1, 2, 3]
    assert [sight["index"] for sight in document["who_sees"]["direct"]] == [0]
    assert [sight["index"] for sight in document["who_sees"]["derived"]] == [1, 2]
    assert [call["status"] for call in document["simulation"]["calls"]] == ["done", "done", "skipped", "done"]
    assert document["simulation"]["branches"] == [
        {"call": 0, "alternative": "†data.good", "skipped": [2]},
        {"call": 0, "alternative": "†data.bad", "skipped": [1]},
    ]
    assert "-.->" in document["mermaid"]


def test_people_get_lines() -> None:
    plain, asked = check(), check("--simulate", "--who-sees", "state.user.ssn")
    assert "1 Celery task for the global calls; at most 2 calls at the same time, 2 one after another" in plain.stdout
    assert "warning ACT103: race: calls" in plain.stdout
    assert "0 give (activity): parameter /value" in asked.stdout
    assert "0 give writes †data.bad  →  skips 1 give" in asked.stdout


def test_a_simulation_says_that_results_are_made_up_where_calls_are_lost_on_them() -> None:
    give = {"type": "object", "properties": {"value": {"type": "string", "pattern": "^[A-Z]{3}$"}}}
    calls = [
        {"_tool": "give", "_outputPath": "†data.x"},
        {"_tool": "give", "value": "†data.x", "_outputPath": "†data.y"},
    ]
    lost: dict[str, Any] = {"tools": {"give": give}, "solution": {"calls": calls}}
    assert "results are made up" in check("--simulate", submission=lost).stdout.splitlines()[-1]


def test_people_are_told_where_a_slip_stands() -> None:
    calls = [{"_tool": "give", "_outputpath": "†data.x"}]
    result = check(submission={"tools": {"give": GIVE}, "solution": {"calls": calls}})
    told = "warning ACT303: /solution/calls/0/_outputpath: call 0 (give) has the property '_outputpath'"
    assert told in result.stdout
    assert "; write _outputPath" in result.stdout


def test_findings_can_be_ignored_by_code_and_by_name() -> None:
    assert {finding["name"] for finding in check("--json").json["findings"]} == {"race"}
    assert check("--json", "--ignore", "ACT103").json["findings"] == []
    assert check("--json", "--ignore", "race").json["findings"] == []
    refused = check("--ignore", "ACT000")
    assert (refused.code, refused.stdout) == (2, "")
    assert "there is no finding 'ACT000'" in refused.error_lines[0]


def test_a_path_that_does_not_parse_is_wrong_usage() -> None:
    result = check("--who-sees", "†")
    assert (result.code, result.stdout) == (2, "")
    assert result.error_lines[0].startswith("acts: --who-sees: '†' does not parse")


def test_a_place_that_is_not_there_is_reported_beside_who_sees_it() -> None:
    text = check("--who-sees", "†state.usr.ssn").stdout
    assert text.splitlines()[0].endswith("no call")
    assert "did you mean †state.user.ssn?" in text
    assert "did you mean" in check("--who-sees", "†state.usr.ssn", "--json").json["who_sees"]["note"]
    refused = check("--who-sees", "user.ssn")
    assert (refused.code, refused.stdout) == (2, "")
    assert "did you mean †state.user.ssn?" in refused.error_lines[0]


def test_a_caret_stands_under_the_error_on_a_terminal_and_nowhere_else() -> None:
    broken = {"context": [], "tools": {"give": GIVE}, "solution": {"calls": [{"_tool": "give", "value": "†state. x"}]}}
    assert len(check(submission=broken).error_lines) == 1
    terminal = on_a_terminal(broken)
    lines = terminal.splitlines()
    assert "does not parse" in lines[0]
    assert lines[1:] == ["    †state. x", "           ^"]


def on_a_terminal(submission: object) -> str:
    """What the command says on a stderr that is a terminal."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [*COMMAND, "check", "-", "--activities", str(ACTIVITIES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            cwd=FIXTURES,
            env=environment(),
        )
        os.close(theirs)
        process.communicate(encoded(submission), timeout=DEADLINE_SECONDS)
        assert process.returncode == 2
        return os.read(ours, 65_536).decode()
    finally:
        os.close(ours)


def test_r10_2_a_lazy_plan_is_told_of_and_needs_somebody_to_approve_it() -> None:
    call = {"_tool": "give", "value": 1, "_outputPath": "†data.x"}
    lazy = {"context": [{"type": "plan", "mode": "lazy", "calls": [call]}], "tools": {"give": GIVE}}
    assert "nothing runs before a person has approved the plan" in check(submission=lazy).stdout
    told = acts("run", "-", "--activities", str(ACTIVITIES), stdin={**lazy, "tools": {"give": GIVE}})
    assert (told.code != 0, "the plan waits for a person, and there is no terminal" in told.stderr) == (True, True)


@pytest.mark.parametrize("beside", [[], [{"_tool": "greetUser", "userName": "Ann", "_outputPath": "†state.c"}]])
def test_a_held_call_on_which_nobody_can_decide_ends_the_command_also_where_others_wait_for_it(
    beside: list[Any],
) -> None:
    calls = [
        {"_tool": "give", "value": "Bob", "_outputPath": "†state.a"},
        {"_tool": "greetUser", "userName": "†state.a", "_outputPath": "†state.b"},
        *beside,
    ]
    submission = {"solution": {"calls": calls}, "tools": {"give": GIVE}, "config": {"approve": ["give"]}}
    told = acts("run", "-", "--activities", str(ACTIVITIES), stdin=submission)
    assert (told.code, "a call waits for a person, and there is no terminal" in told.stderr) == (3, True), told


def test_r6_3_what_is_promised_is_shown_to_people_too() -> None:
    schema = {"properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}
    context = [{"type": "input", "schema": schema}, {"type": "state", "_instance": "①", "x": 1}]
    call = {"_tool": "give", "value": "†input.name", "_outputPath": "†data.x", "_instance": "①"}
    told = check(submission={"context": context, "tools": {"give": GIVE}, "solution": {"calls": [call]}})
    lines = told.stdout.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("promised"))
    assert lines[at + 1 : at + 3] == [
        '  †input.name  {"type": "string"}',
        '  †input.age  {"type": "integer"}  (no call waits for it)',
    ]


def test_r6_3_a_reader_of_what_nobody_writes_is_told_which_call_has_no_output_path() -> None:
    calls = [{"_tool": "give", "value": 1}, {"_tool": "give", "value": "†state.give", "_outputPath": "†state.x"}]
    told = check(submission={"context": [], "tools": {"give": GIVE}, "solution": {"calls": calls}})
    assert (told.code, len(told.error_lines)) == (2, 1)
    assert 'call 0 (give) has no _outputPath: give it "_outputPath": "†state.give"' in told.error_lines[0]
