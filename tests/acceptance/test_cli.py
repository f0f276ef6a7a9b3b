"""The `acts` command as INTERFACE's tables say it: exit codes, `--json` shapes, options."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from .backend import Backend
from .command import (
    ACTIVITIES,
    Finished,
    acts,
    at_once,
    completed,
    finish,
    run_embedded,
    send,
    start,
    statuses,
    values,
)
from .records import Records

MESSAGE_ID = re.compile(r"\d+-\d+")
STATUSES = {"done", "failed", "skipped", "sent", "latent", "waiting", "running", "held"}

DIAMOND: list[dict[str, Any]] = [
    {"_tool": "give", "value": 1, "_outputPath": "†state.top"},
    {"_tool": "give", "value": ["†state.left", "†state.right"], "_outputPath": "†state.bottom"},
    {"_tool": "give", "value": "†state.top", "_outputPath": "†state.left"},
    {"_tool": "give", "value": "†state.top", "_outputPath": "†state.right"},
]
BRANCH: list[dict[str, Any]] = [
    {"_tool": "fail", "_outputPath": "†state.fine"},
    {"_tool": "give", "value": "†state.fine", "_outputPath": "†state.next"},
    {"_tool": "give", "value": 1, "_outputPath": "†state.beside"},
    {"_tool": "greetUser", "userName": "Ада"},
    {"_tool": "think", "about": "it"},
]


def solution(*calls: dict[str, Any], context: Sequence[Any] = ()) -> dict[str, Any]:
    """A submission of these calls, with a latent tool at hand."""
    return {
        "context": list(context),
        "tools": {"think": {"type": "object"}},
        "solution": {"calls": list(calls), "output": None},
    }


def check(submission: object, *options: str) -> Finished:
    """`acts check -` with the activities."""
    return acts("check", "-", "--activities", str(ACTIVITIES), *options, stdin=submission)


def held_to_the_shape_of_a_result(document: Any) -> None:
    """`acts run --json` and `acts show --json`: keys and types."""
    assert isinstance(document["run"], str)
    assert document["run"]
    assert document["status"] in {"running", "paused", "completed", "failed", "cancelled"}
    assert "output" in document
    assert isinstance(document["global"], dict)
    assert isinstance(document["instances"], dict)
    assert all(isinstance(kinds, dict) for kinds in document["instances"].values())
    for call in document["calls"]:
        assert {"id", "index", "tool", "instance", "status", "error", "reason"} <= set(call)
        assert [type(call[key]) for key in ("id", "index", "tool")] == [str, int, str]
        assert call["instance"] is None or isinstance(call["instance"], str)
        assert call["status"] in STATUSES
        assert (call["error"] is None) == (call["status"] != "failed")
        assert call["reason"] is None or isinstance(call["reason"], str)


# --- run ---


def test_run_exits_0_and_prints_the_result_when_every_call_is_done_or_skipped(backend: Backend) -> None:
    context = [{"type": "state", "_instance": name, "text": name} for name in "①②"]
    call = {"_tool": "give", "value": "†state.text", "_outputPath": "†state.copy", "_instance": "①"}
    document = completed(backend.run(solution(call, context=context)))
    held_to_the_shape_of_a_result(document)
    assert document["output"] is None
    assert values(document, "①") == {"state": {"text": "①", "copy": "①"}}
    assert values(document, "②") == {"state": {"text": "②"}}
    (told,) = document["calls"]
    assert (told["index"], told["tool"], told["instance"], told["status"]) == (0, "give", "①", "done")


def test_run_exits_1_when_a_call_failed_and_tells_every_call_what_became_of_it(backend: Backend) -> None:
    result = backend.run(solution(*BRANCH))
    assert result.code == 1
    document = result.json
    held_to_the_shape_of_a_result(document)
    assert document["status"] == "failed"
    assert statuses(document) == ["failed", "skipped", "done", "sent", "latent"]
    failed, skipped = document["calls"][:2]
    assert (failed["error"]["type"], failed["error"]["message"]) == ("ValueError", "it cannot be done")
    assert skipped["reason"]
    assert backend.records.take("greetUser")


def test_an_activity_that_exits_fails_its_own_call_and_nothing_else() -> None:
    calls: list[dict[str, Any]] = [
        {"_tool": "leave", "_outputPath": "†state.left"},
        {"_tool": "give", "value": 1, "_outputPath": "†state.beside"},
    ]
    result = run_embedded(solution(*calls))
    assert result.code == 1, result
    assert statuses(result.json) == ["failed", "done"]
    assert result.json["calls"][0]["error"]["type"] == "SystemExit"
    assert values(result.json)["state"] == {"beside": 1}


def test_a_failed_call_leaves_an_error_message_in_the_log(backend: Backend) -> None:
    document = backend.run(solution(BRANCH[0])).json
    messages = [line["message"] for line in backend.log(document["run"])]
    (error,) = [message for message in messages if message["type"] == "error"]
    assert error["data"]["call"]["_tool"] == "fail"
    assert error["data"]["error"]["type"] == "ValueError"
    assert error["data"]["error"]["message"] == "it cannot be done"


def test_an_embedded_run_does_not_leave_before_what_it_sent_is_done(records: Records, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    held = os.open(gate, os.O_RDWR)
    env = records.env | {"ACCEPTANCE_HANG": str(gate)}
    command = start("run", "-", "--json", "--activities", str(ACTIVITIES), env=env)
    send(command, solution({"_tool": "hang"}))
    records.take("hang", from_process=command.pid)
    os.write(held, b"x")
    document = completed(finish(command))
    assert statuses(document) == ["sent"]
    assert records.take("released")
    os.close(held)


def test_a_run_without_calls_is_completed_at_once(backend: Backend) -> None:
    document = completed(backend.run(solution(context=[{"type": "state", "a": 1}])))
    assert document["calls"] == []
    assert values(document) == {"state": {"a": 1}}


def test_a_submission_may_come_from_a_file(backend: Backend, tmp_path: Path) -> None:
    file = tmp_path / "подача.json"
    file.write_text(json.dumps(solution(DIAMOND[0])), encoding="utf-8")
    document = completed(backend.acts("run", str(file), "--json"))
    assert values(document) == {"state": {"top": 1}}


def test_without_json_the_result_is_on_stdout_and_progress_on_stderr(backend: Backend) -> None:
    result = backend.acts("run", "-", stdin=solution({"_tool": "give", "value": "Ада", "_outputPath": "†state.name"}))
    assert result.code == 0
    assert "Ада" in result.stdout


# --- check ---


def test_check_lists_the_waves_in_which_calls_can_run() -> None:
    result = check(solution(*DIAMOND), "--json")
    assert result.code == 0, result
    document = result.json
    assert {"valid", "errors", "waves", "findings"} <= set(document)
    assert (document["valid"], document["errors"]) == (True, [])
    assert [sorted(wave) for wave in document["waves"]] == [[0], [2, 3], [1]]
    assert isinstance(document["findings"], list)


def test_check_has_the_same_keys_for_what_it_refuses() -> None:
    result = check(solution({"_tool": "nobody"}), "--json")
    assert result.code == 2
    assert {"valid", "errors", "waves", "findings"} <= set(result.json)
    (error,) = result.json["errors"]
    assert error["pointer"] == "/solution/calls/0/_tool"


def test_check_draws_the_graph() -> None:
    result = check(solution(*DIAMOND), "--mermaid")
    assert result.code == 0, result
    assert result.stdout.split()[0] in {"flowchart", "graph"}
    assert result.stdout.count("-->") >= 4


def test_check_draws_the_graph_inside_the_machine_output() -> None:
    document = check(solution(*DIAMOND), "--mermaid", "--json").json
    assert document["valid"] is True
    assert document["mermaid"].split()[0] in {"flowchart", "graph"}


def test_check_tells_of_a_whole_kind_read_while_others_write_into_it() -> None:
    calls = [DIAMOND[0], {"_tool": "reveal", "_scopes": ["state"], "_outputPath": "†data.seen"}]
    document = check(solution(*calls), "--json").json
    assert document["valid"] is True
    assert document["findings"] != []


# --- submit, status, show, log ---


def test_a_submitted_run_can_be_followed_to_its_end_and_asked_about(backend: Backend) -> None:
    context = [{"type": "state", "_instance": "①", "text": "Привет"}, {"type": "input", "all": True}]
    call = {"_tool": "give", "value": "†state.text", "_outputPath": "†state.copy", "_instance": "①"}
    submitted = backend.acts("submit", "-", "--json", stdin=solution(call, DIAMOND[0], context=context), afresh=True)
    assert submitted.code == 0, submitted
    run = submitted.json["run"]
    assert isinstance(run, str)

    followed = backend.acts("log", run, "--follow", "--json", afresh=True)
    assert followed.code == 0, followed
    lines = followed.json_lines
    assert all({"id", "instance", "message"} <= set(line) and MESSAGE_ID.fullmatch(line["id"]) for line in lines)
    assert [line["message"] for line in lines if line["message"] in context]
    assert sorted(str(line["instance"]) for line in lines) == ["None", "None", "①", "①"]

    asked_again = (("log", run, "--json"), ("log", run, "--instance", "①", "--json"))
    again, own = (log.json_lines for log in at_once(partial(backend.acts, *asked) for asked in asked_again))
    assert sorted(lines, key=str) == sorted(again, key=str)
    assert {line["instance"] for line in own} >= {"①"}
    assert [line for line in own if line["instance"] == "①"] == [line for line in again if line["instance"] == "①"]

    asked = (("status", run), ("show", run), ("show", run, "--instance", "①"))
    status, shown, one = at_once(partial(backend.acts, *arguments, "--json") for arguments in asked)
    assert status.code == 0, status
    assert [status.json[key] for key in ("run", "status", "calls")] == [run, "completed", {"done": 2}]
    assert shown.code == 0, shown
    held_to_the_shape_of_a_result(shown.json)
    assert values(shown.json) == {"input": {"all": True}, "state": {"top": 1}}
    merged = {"input": {"all": True}, "state": {"top": 1, "text": "Привет", "copy": "Привет"}}
    assert values(shown.json, "①") == merged
    assert values(one.json, "①") == merged


def test_what_show_prints_is_what_run_printed(backend: Backend) -> None:
    document = completed(backend.run(solution(*DIAMOND)))
    assert backend.acts("show", document["run"], "--json").json == document


def test_commands_without_json_speak_to_people(backend: Backend) -> None:
    run = completed(backend.run(solution(*DIAMOND)))["run"]
    status, shown, log = at_once(partial(backend.acts, command, run) for command in ("status", "show", "log"))
    assert "completed" in status.stdout
    assert "bottom" in shown.stdout
    assert "bottom" in log.stdout
