"""The commands that look into runs and change them, as a user types them (INTERFACE "Command line")."""

from __future__ import annotations

from itertools import count
from typing import Any

import click
import pytest
from click.testing import CliRunner

from acts_celery.worker.cli import acts as group
from tests.acceptance.command import Finished, acts, finish, send, start

from .backend import Backend, Meeting

_names = count()


@pytest.fixture
def gate() -> str:
    return f"cli{next(_names)}"


def command(backend: Backend, *arguments: str, stdin: Any = None) -> Finished:
    """`acts …` with the backend's settings in its environment."""
    env = backend.settings.to_environment() | {"MEETING_URL": backend.meeting.url}
    return acts(*arguments, stdin=stdin, env=env)


def submitted(backend: Backend, *calls: dict[str, Any]) -> str:
    """The id of a run."""
    return str(command(backend, "submit", "-", "--json", stdin={"solution": {"calls": list(calls)}}).json["run"])


def newest_run(backend: Backend) -> str:
    """The run that was submitted last."""
    return str(command(backend, "runs", "--json", "--limit", "1").json["run"])


def wait_at(gate: str, path: str = "†state.a") -> dict[str, Any]:
    return {"_tool": "waitAtGate", "gate": gate, "value": 1, "_outputPath": path}


def test_a_run_is_paused_resumed_and_cancelled(backend: Backend, meeting: Meeting, gate: str) -> None:
    run = submitted(backend, wait_at(gate), {"_tool": "echo", "value": "†state.a", "_outputPath": "†state.b"})
    meeting.take(f"at:{gate}")
    paused = command(backend, "pause", run, "--json")
    assert (paused.code, paused.json["run"], paused.json["status"]) == (0, run, "paused")
    resumed = command(backend, "resume", run)
    assert (resumed.code, resumed.stdout) == (0, f"running  run {run}, 2 calls: 1 waiting, 1 running\n")
    cancelled = command(backend, "cancel", run, "--json")
    assert (cancelled.code, cancelled.json) == (
        0,
        {"run": run, "status": "cancelled", "calls": {"failed": 1, "skipped": 1}},
    )
    meeting.open_gate(gate)
    shown = command(backend, "show", run)
    assert shown.code == 0
    assert "the run was cancelled" in shown.stdout


def test_a_run_that_is_over_or_not_there_takes_no_orders(backend: Backend) -> None:
    run = submitted(backend, {"_tool": "echo", "value": 1, "_outputPath": "†state.a"})
    backend.wait(run)
    refused = command(backend, "pause", run, "--json")
    assert (refused.code, refused.stdout) == (4, "")
    assert refused.error_lines == [f"acts: run {run} is completed: it cannot be paused any more"]
    assert command(backend, "resume", "nowhere").code == 4


_VALUES = {
    "run": "nowhere",
    "path": "†state.a",
    "file": "-",
    "text": "1",
    "call": "0",
    "reason": "--reason=none",
    "until": "0",
    "rule": "0-0",
}
OF_A_RUN = {
    name: [
        _VALUES[each.name]
        for each in one.params
        if each.name in _VALUES and (each.required or isinstance(each, click.Argument))
    ]
    for name, one in group.commands.items()
    if any(each.name == "run" for each in one.params)
}
OF_A_RUN["settle"].append("--again")


@pytest.mark.parametrize("name", OF_A_RUN)
def test_each_command_of_a_run_says_by_its_exit_code_that_there_is_none(backend: Backend, name: str) -> None:
    told = command(backend, name, *OF_A_RUN[name], stdin={"calls": []} if name == "amend" else [])
    assert (told.code, told.error_lines[0].startswith("acts: no run nowhere")) == (4, True), told
    assert "4 no such run" in " ".join(command(backend, name, "--help").stdout.split())


def test_acts_run_ends_with_1_when_its_run_is_cancelled_by_another_command(
    backend: Backend, meeting: Meeting, gate: str
) -> None:
    env = backend.settings.to_environment() | {"MEETING_URL": meeting.url}
    waiting = start("run", "-", "--json", env=env)
    send(waiting, {"solution": {"calls": [wait_at(gate)]}})
    meeting.take(f"at:{gate}")
    run = newest_run(backend)
    assert command(backend, "cancel", run).code == 0
    finished = finish(waiting)
    assert (finished.code, finished.json["status"]) == (1, "cancelled")
    meeting.open_gate(gate)


def test_a_value_is_explained_by_the_messages_it_came_from(backend: Backend) -> None:
    context: list[dict[str, Any]] = [
        {"type": "state", "items": ["a"]},
        {"type": "state", "_instance": "①", "mark": "x"},
    ]
    calls = [
        {"_tool": "echo", "value": "†state.mark", "_instance": "①", "_outputPath": "†state.b"},
        {
            "_tool": "echo",
            "value": "†state.b",
            "_instance": "①",
            "_outputPath": "†state.items",
            "_outputMethod": "push",
        },
    ]
    run = backend.client.submit(context, {"calls": calls}).id
    backend.wait(run)
    found = command(backend, "explain", run, "†state.items", "--instance", "①", "--json")
    assert found.code == 0
    document = found.json
    assert {key: document[key] for key in ("run", "path", "instance", "value", "conflict")} == {
        "run": run,
        "path": "†state.items",
        "instance": "①",
        "value": ["a", "x"],
        "conflict": None,
    }
    given, pushed = document["messages"]
    assert (given["effect"], given["index"], given["call"], given["reads"]) == ("contributes", None, None, [])
    assert (pushed["method"], pushed["index"], pushed["call"]) == ("push", 1, calls[1])
    assert pushed["reads"] == [{"path": "†state.b", "value": "x", "sources": []}]
    ids = [entry["id"] for entry in command(backend, "log", run, "--json").json_lines]
    before = command(backend, "explain", run, "†state.items", "--instance", "①", "--at", ids[1], "--json").json
    assert (before["value"], len(before["messages"])) == (["a"], 1)
    lines = command(backend, "explain", run, "†state.items", "--instance", "①").stdout.splitlines()
    assert lines[0] == '†state.items in ① = ["a", "x"]'
    assert lines[2].endswith("contributes  call 1 echo: push †state.items = x")
    assert lines[3] == "    had read †state.b = x"


def test_what_cannot_be_explained_says_why(backend: Backend) -> None:
    run = submitted(backend, {"_tool": "echo", "value": 1, "_outputPath": "†state.a"})
    backend.wait(run)
    assert command(backend, "explain", run, "†state.nothing").stdout.startswith("†state.nothing is not there\n")
    assert command(backend, "explain", run, "†state.a || †state.b").code == 2


@pytest.mark.parametrize("asked", [("show",), ("log",), ("log", "--follow"), ("explain", "†state.a")], ids=" ".join)
def test_an_instance_that_is_not_there_is_reported_with_those_that_are(
    backend: Backend, gate: str, asked: tuple[str, ...]
) -> None:
    context = [{"type": "input", "_instance": instance} for instance in "①②"]
    submission = {"context": context, "solution": {"calls": [wait_at(gate)]}}
    run = str(command(backend, "submit", "-", "--json", stdin=submission).json["run"])
    refused = command(backend, asked[0], run, *asked[1:], "--instance", "③")
    assert (refused.code, refused.stdout) == (4, "")
    assert refused.error_lines == [f"acts: run {run} has no instance '③'; it has ①, ②"]
    assert command(backend, "cancel", run).code == 0


def test_following_a_log_says_on_stderr_how_the_run_ended(backend: Backend) -> None:
    run = submitted(backend, {"_tool": "echo", "value": 1, "_outputPath": "†state.a"})
    followed = command(backend, "log", run, "--follow", "--json")
    assert (followed.code, len(followed.json_lines)) == (0, 1)
    assert followed.error_lines == [f"acts: run {run} is completed, 1 call: 1 done"]


@pytest.mark.parametrize("content", [[], "calls", 1], ids=repr)
def test_an_amendment_from_a_file_is_an_object(backend: Backend, meeting: Meeting, gate: str, content: Any) -> None:
    run = submitted(backend, wait_at(gate), {"_tool": "echo", "value": "†state.a", "_outputPath": "†state.b"})
    meeting.take(f"at:{gate}")
    refused = command(backend, "amend", run, "-", stdin=content)
    assert (refused.code, refused.error_lines) == (2, ['acts: an amendment must be an object with "calls"'])
    assert command(backend, "status", run, "--json").json["calls"] == {"waiting": 1, "running": 1}
    assert command(backend, "cancel", run).code == 0
    meeting.open_gate(gate)


def test_what_ends_much_asks_on_a_terminal(backend: Backend, gate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of many calls is not cancelled, nor one emptied by an amendment, where the person says no."""
    others = [{"_tool": "echo", "value": "†state.a", "_outputPath": f"†state.s{n}"} for n in range(120)]
    run = submitted(backend, wait_at(gate), *others)
    asked: list[str] = []

    def refuse(question: str) -> None:
        asked.append(question)
        raise click.Abort

    monkeypatch.setattr("acts_celery.worker.cli.control.confirmed", refuse)
    runner, env = CliRunner(), backend.settings.to_environment()
    runner.invoke(group, ["cancel", run], env=env)
    runner.invoke(group, ["amend", run, "-"], env=env, input='{"calls": []}')
    assert command(backend, "status", run, "--json").json["status"] == "running"
    assert asked == [
        f"end run {run} with 121 calls that have not ended?",
        f"put nothing in place of the calls of run {run} that have not begun?",
    ]
    assert command(backend, "cancel", run, "--yes").code == 0
    backend.meeting.open_gate(gate)


def test_a_run_is_steered_without_its_activities(backend: Backend, meeting: Meeting, gate: str) -> None:
    run = backend.client.submit_document(
        {
            "context": [{"type": "input", "schema": {"type": "object", "properties": {"a": {}}}}],
            "solution": {"calls": [wait_at(gate), {"_tool": "echo", "value": "†input.a", "_outputPath": "†state.b"}]},
            "config": {"promise_seconds": 60},
        }
    ).id
    meeting.take(f"at:{gate}")
    elsewhere = backend.settings.to_environment() | {"ACTS_ACTIVITIES": "no_such_module_anywhere"}
    message = [{"type": "input", "input": {"a": 1}}]
    for arguments in (["pause"], ["held"], ["status"], ["show"], ["send"], ["resume"], ["explain"], ["cancel"]):
        more = {"send": ["-"], "explain": ["state.a"]}.get(arguments[0], [])
        found = acts(arguments[0], run, *more, stdin=message if more == ["-"] else None, env=elsewhere)
        assert found.code == 0, (arguments, found.stderr)
    for verb in (["approve", run, "0"], ["reject", run, "0", "--reason", "no"], ["say", run, "hello"]):
        assert "no_such_module" not in acts(*verb, env=elsewhere).stderr
    meeting.open_gate(gate)
