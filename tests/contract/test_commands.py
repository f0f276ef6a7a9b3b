"""Commands (INTERFACE "Command line"): exit codes, and what `--json` prints."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.acceptance import forks
from tests.acceptance.command import Finished, acts
from tests.worker.backend import DEADLINE_SECONDS, Backend
from tests.worker.figures import scraped

ECHO = {"_tool": "echo", "value": 1, "_outputPath": "†state.one"}
READS = {"_tool": "echo", "value": "†state.one", "_outputPath": "†state.two"}
FAILS = {"_tool": "explode", "_outputPath": "†state.never"}
CALL_KEYS = {"id", "index", "tool", "instance", "status", "error", "reason"}


def command(backend: Backend, *arguments: str, stdin: Any = None) -> Finished:
    return acts(*arguments, stdin=stdin, env=backend.settings.to_environment() | {"MEETING_URL": backend.meeting.url})


def solution(*calls: dict[str, Any], **parts: Any) -> dict[str, Any]:
    return {"solution": {"calls": list(calls)}, **parts}


def submitted(backend: Backend, *calls: dict[str, Any], **parts: Any) -> str:
    return str(command(backend, "submit", "-", "--json", stdin=solution(*calls, **parts)).json["run"])


def ended(backend: Backend, *calls: dict[str, Any]) -> str:
    run = submitted(backend, *calls)
    backend.wait(run)
    return run


def test_run_prints_the_result_and_its_exit_code_says_what_became_of_it(backend: Backend) -> None:
    good = command(backend, "run", "-", "--json", stdin=solution(ECHO, READS))
    assert good.code == 0
    document = good.json
    assert (document["status"], document["output"]) == ("completed", None)
    assert document["global"]["state"] == {"one": 1, "two": 1}
    assert [set(call) >= CALL_KEYS for call in document["calls"]] == [True, True]
    assert [(call["index"], call["status"]) for call in document["calls"]] == [(0, "done"), (1, "done")]
    failed = command(backend, "run", "-", "--json", stdin=solution(FAILS))
    assert (failed.code, failed.json["status"], failed.json["calls"][0]["status"]) == (1, "failed", "failed")
    refused = command(backend, "run", "-", "--json", stdin=solution({"_tool": "none"}))
    assert refused.code == 2


def test_what_check_finds_is_printed_and_counts_with_strict(backend: Backend) -> None:
    race = solution(ECHO, {**ECHO, "value": 2})
    told = command(backend, "run", "-", "--json", stdin=race)
    assert told.code == 0
    assert [finding["code"] for finding in told.json["findings"]] == ["ACT103"]
    assert command(backend, "submit", "-", "--json", "--strict", stdin=race).code == 2
    assert "findings" not in command(backend, "run", "-", "--json", "--no-check", stdin=race).json
    assert (
        acts("check", "-", "--json", "--ignore", "ACT103", stdin={**race, "tools": {"echo": {}}}).json["findings"] == []
    )


def test_the_same_id_is_one_run(backend: Backend) -> None:
    runs = [
        command(backend, "submit", "-", "--json", "--id", "twice", stdin=solution(ECHO)).json["run"] for _ in range(2)
    ]
    assert runs == ["twice", "twice"]


def test_status_show_and_log_have_their_shapes(backend: Backend) -> None:
    run = ended(backend, ECHO, READS)
    status = command(backend, "status", run, "--json")
    assert (status.code, status.json["run"], status.json["status"]) == (0, run, "completed")
    assert status.json["calls"] == {"done": 2}
    shown = command(backend, "show", run, "--json").json
    assert shown["global"]["state"] == {"one": 1, "two": 1}
    lines = command(backend, "log", run, "--json").json_lines
    assert all(set(line) >= {"id", "instance", "message"} for line in lines)
    writer = next(line["id"] for line in lines if line["message"].get("one") or "one" in json.dumps(line["message"]))
    past = command(backend, "show", run, "--json", "--at", writer)
    assert past.code == 0


def test_runs_are_found_by_latest_by_a_prefix_and_by_name(backend: Backend) -> None:
    run = command(backend, "submit", "-", "--json", "--name", "named once", stdin=solution(ECHO)).json["run"]
    backend.wait(run)
    for text in ("latest", run[:-1], "named once"):
        assert command(backend, "status", text, "--json").json["run"] == run
    listed = command(backend, "runs", "--json", "--limit", "1").json_lines
    assert [one["run"] for one in listed] == [run]


def test_an_unknown_or_ended_run_is_not_possible_now(backend: Backend) -> None:
    run = ended(backend, ECHO)
    assert command(backend, "cancel", run).code == 4
    assert command(backend, "retry", run).code == 4
    for name in ("status", "show", "log", "wait", "pause", "export", "held"):
        assert command(backend, name, "no-such-run").code == 4, name


def test_orders_to_a_run_are_obeyed(backend: Backend, name: str) -> None:
    gate = {"_tool": "waitAtGate", "gate": name, "value": 1, "_outputPath": "†state.gate"}
    run = submitted(backend, gate, {**READS, "value": "†state.gate"})
    backend.meeting.take(f"at:{name}")
    for order, status in (("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")):
        done = command(backend, order, run, "--json")
        assert (done.code, done.json["status"]) == (0, status)
    backend.meeting.open_gate(name)
    assert command(backend, "wait", run, "--json").code == 1


def test_what_waits_for_a_person_is_shown_and_decided(backend: Backend) -> None:
    run = submitted(backend, ECHO, READS, config={"approve": ["*"]})
    next(event for event in backend.client.run(run).follow(timeout_seconds=60) if event.kind == "held")
    (held,) = command(backend, "held", run, "--json").json_lines
    assert {"call", "index", "tool", "instance", "parameters", "scopes", "since"} <= set(held)
    assert (held["tool"], held["parameters"]) == ("echo", {"value": 1})
    approved = command(backend, "approve", run, str(held["index"]), "--yes", "--parameters", '{"value": 2}')
    assert approved.code == 0, approved
    next(
        event
        for event in backend.client.run(run).follow(timeout_seconds=60)
        if event.kind == "held" and event.index == 1
    )
    assert command(backend, "reject", run, "1", "--reason", "too much", "--yes").code == 0
    assert command(backend, "wait", run).code == 1
    document = command(backend, "show", run, "--json").json
    assert document["global"]["state"] == {"one": 2}
    assert "too much" in str(document["calls"][1]["error"])


def test_a_run_travels_as_a_file_and_is_deleted(backend: Backend, tmp_path: Path) -> None:
    run = ended(backend, ECHO)
    file = tmp_path / "run.acts"
    assert command(backend, "export", run, "-o", str(file)).code == 0
    assert command(backend, "delete", run, "--json").code == 0
    assert command(backend, "status", run).code == 4
    assert command(backend, "import", str(file)).code == 0
    assert command(backend, "show", run, "--json").json["global"]["state"] == {"one": 1}


def test_a_fork_and_a_retry_go_on(backend: Backend, name: str) -> None:
    broken = {"_tool": "failUntilMended", "name": name, "value": 1, "_outputPath": "†state.one"}
    run = ended(backend, broken, READS)
    assert command(backend, "status", run, "--json").json["calls"] == {"failed": 1, "skipped": 1}
    backend.meeting.redis.set(f"mended:{name}", 1)
    assert command(backend, "retry", run).code == 0
    assert backend.wait(run).status == "completed"
    fork = command(backend, "fork", run, "--json").json["run"]
    assert fork != run


def test_explain_names_the_call_that_wrote_a_value(backend: Backend) -> None:
    run = ended(backend, ECHO, READS)
    told = command(backend, "explain", run, "state.two")
    assert told.code == 0
    assert "echo" in told.stdout


def test_a_run_is_amended_and_sent_data_by_command(backend: Backend, name: str) -> None:
    gate = {"_tool": "waitAtGate", "gate": name, "value": 1, "_outputPath": "†state.gate"}
    run = submitted(backend, gate, {**READS, "value": "†state.gate"})
    backend.meeting.take(f"at:{name}")
    more = {"calls": [{"_tool": "echo", "value": "†input.text", "_outputPath": "†state.more"}]}
    sent = command(backend, "send", run, "-", "--json", stdin=[{"type": "input", "text": "sent"}])
    assert sent.code == 0, sent
    assert command(backend, "amend", run, "-", "--json", stdin=more).code == 0
    backend.meeting.open_gate(name)
    assert backend.wait(run).data()["state"] == {"gate": 1, "more": "sent"}
    assert command(backend, "say", run, "too late").code == 4


def test_a_question_is_answered_by_command(backend: Backend) -> None:
    age = {"properties": {"_activity": {"const": "ask_human"}, "question": {}}, "_output": {"type": "integer"}}
    run = submitted(
        backend, {"_tool": "askAge", "question": "How old?", "_outputPath": "†state.age"}, tools={"askAge": age}
    )
    next(event for event in backend.client.run(run).follow(timeout_seconds=60) if event.kind == "held")
    assert command(backend, "answer", run, "0", "old", "--yes").code == 2
    assert command(backend, "answer", run, "0", "--yes", "--value", "5").code == 0
    assert backend.wait(run).data()["state"] == {"age": 5}


def test_what_a_model_would_be_asked_is_shown(backend: Backend) -> None:
    request = {"context": [{"type": "text", "message": "Add."}], "schema": {"type": "integer"}, "tools": ["add"]}
    shown = command(backend, "prompt", "-", "--json", stdin=request)
    assert shown.code == 0, shown
    assert {"messages", "schema"} <= set(shown.json)
    assert "Add." in shown.json["messages"][-1]["content"]


def test_cases_are_run_and_held_against_what_is_expected(backend: Backend, tmp_path: Path) -> None:
    plan = {"calls": [ECHO], "output": "†state.one"}
    cases = [{"name": str(value), "submission": {"solution": plan}, "expect": {"value": value}} for value in (1, 2)]
    file = tmp_path / "cases.jsonl"
    file.write_text("".join(json.dumps(case) + "\n" for case in cases), encoding="utf-8")
    found = command(backend, "eval", str(file), "--json")
    assert found.code == 1, found
    assert [(case["case"], case["difference"] is None) for case in found.json["cases"]] == [("1", True), ("2", False)]


def test_live_runs_are_held_against_code_that_is_not_deployed_yet(backend: Backend, name: str, tmp_path: Path) -> None:
    gate = {"_tool": "waitAtGate", "gate": name, "value": 1, "_outputPath": "†state.gate"}
    run = submitted(backend, gate, {"_tool": "add", "a": "†state.gate", "b": 2, "_outputPath": "†state.sum"})
    backend.meeting.take(f"at:{name}")
    new = tmp_path / "new.py"
    new.write_text("from acts_celery import activity\n\n@activity\ndef add(first: str) -> str:\n    return first\n")
    found = command(backend, "check", "--runs", "--activities", str(new), "--json")
    assert (found.code, run in found.stdout) == (1, True), found
    backend.meeting.open_gate(name)
    assert backend.wait(run).status == "completed"


def test_dead_letters_are_listed(backend: Backend) -> None:
    assert command(backend, "dead", "list", "--json").code == 0


def announced(backend: Backend, *arguments: str) -> AbstractContextManager[tuple[forks.Forked, dict[str, Any]]]:
    """A command that stays, and what it prints when it is ready."""
    log = backend.folder / "announced.log"
    return forks.staying([*arguments, "--json"], env=backend.environment(), folder=backend.folder, log=log)


def test_pages_figures_and_workers_announce_where_they_are(backend: Backend) -> None:
    with announced(backend, "ui", "--port", "0") as (process, told):
        assert (told["pid"], told["host"]) == (process.pid, "127.0.0.1")
    with announced(backend, "metrics", "--port", "0") as (_, told):
        assert "acts_log_up 1.0" in scraped(told["url"])
    with announced(backend, "worker", "--processes", "1", "-Q", "elsewhere") as (process, told):
        assert (told["pid"], told["queues"]) == (process.pid, ["elsewhere"])
        process.terminate()
        assert process.wait(DEADLINE_SECONDS) == 0


def test_the_health_of_this_machines_workers_is_told(backend: Backend, tmp_path: Path) -> None:
    env = backend.environment(ACTS_HEALTH_FOLDER=str(tmp_path))
    assert acts("health", "--json", env=env).code == 3
    starting = forks.staying(
        ["worker", "--json", "--processes", "1", "-Q", "elsewhere"],
        env=env,
        folder=backend.folder,
        log=tmp_path / "worker.log",
    )
    with starting as (_, told):
        health = acts("health", "--json", env=env)
        assert (health.code, health.json["ok"]) == (0, True), health
        assert [worker["worker"] for worker in health.json["workers"]] == [told["worker"]]


def test_no_server_is_an_exit_of_3_and_wrong_usage_one_of_2() -> None:
    nobody = ("--broker", "redis://127.0.0.1:1/0", "--redis", "redis://127.0.0.1:1/0")
    for name in ("runs", "doctor"):
        assert acts(name, *nobody).code == 3, name
    assert acts("status", "any", *nobody).code == 3
    assert acts("run").code == 2
    assert acts("run", "-", "--no-such-option").code == 2


def test_a_backend_that_is_well_says_so(backend: Backend) -> None:
    assert command(backend, "doctor").code == 0
