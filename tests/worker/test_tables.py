"""Runs as tables of JSON lines, for analysis (`acts export --jsonl`), and many runs as files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import defaultdict
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from acts_celery import OtherFormat
from acts_celery.worker.client.tables import TABLES
from acts_celery.worker.store.definition import FORMAT
from acts_celery.worker.store.keys import Keys

from .backend import Backend
from .test_control_cli import command

_names = count()
COLUMNS: dict[str, set[str]] = {
    "runs": {
        "run name tags status reason submitted finished seconds instances calls_done calls_failed calls_skipped "
        "calls_sent calls_latent calls_waiting calls_running parent delegate forked_from requests input_tokens "
        "output_tokens cached_tokens model_seconds money"
    },
    "calls": {
        "run instance call tick tool status error_type error_message reason began ended seconds waited_seconds "
        "attempts worker version child elements stale requests input_tokens output_tokens cached_tokens model_seconds "
        "money"
    },
    "ticks": {
        "run tick model calls errors set_aside requests input_tokens output_tokens cached_tokens model_seconds money"
    },
    "messages": {"run id written instance kind call tick counts bytes message"},
}


@pytest.fixture
def name() -> str:
    return f"tables{next(_names)}"


def read(folder: Path) -> dict[str, list[dict[str, Any]]]:
    found = {path.stem: [json.loads(line) for line in path.read_text().splitlines()] for path in folder.iterdir()}
    assert found.keys() == set(TABLES)
    for table, rows in found.items():
        assert {" ".join(row) for row in rows} <= COLUMNS[table]
        for column in rows[0] if rows else ():
            kinds = {type(row[column]) for row in rows} - {type(None)}
            assert len(kinds - {int}) + (kinds == {int}) <= 1, (table, column, kinds)
    return found


def test_every_call_and_message_of_the_runs_that_are_meant_is_one_flat_row(
    backend: Backend, tmp_path: Path, name: str
) -> None:
    context = [{"type": "state", "_instance": mark, "mark": mark} for mark in "①②③"]
    plan = {
        "type": "plan",
        "calls": [
            {"_tool": "echo", "value": "†state.mark", "_outputPath": "†state.copy"},
            {"_tool": "explode", "_outputPath": "†state.broken"},
            {"_tool": "echo", "value": "†state.broken", "_outputPath": "†state.never"},
        ],
    }
    run = backend.client.submit_document({"context": [*context, plan]}, name=name, tags=["nightly"])
    backend.wait(run.id)
    other = backend.client.submit(solution={"calls": []}).id
    told = command(backend, "export", "--name", name, "--jsonl", str(tmp_path / "out"), afresh=True)
    assert (told.code, told.stdout) == (0, ""), told
    assert told.error_lines == [f"acts: 1 run, 9 calls, 0 ticks, 10 messages in {tmp_path / 'out'}"]
    tables = read(tmp_path / "out")
    (row,) = tables["runs"]
    assert (row["run"], row["name"], row["status"], row["instances"]) == (run.id, name, "failed", 3)
    assert (row["calls_done"], row["calls_failed"], row["calls_skipped"]) == (3, 3, 3)
    expected = {(call["index"], call["instance"]): call for call in run.result(waits=True).to_dict()["calls"]}
    assert len(tables["calls"]) == len(expected)
    for call in tables["calls"]:
        was = expected[call["call"], call["instance"]]
        assert (call["status"], call["tool"], call["reason"]) == (was["status"], was["tool"], was["reason"])
        assert call["error_message"] == (was["error"]["message"] if was["error"] else None)
        assert (call["began"], call["waited_seconds"]) == (was["timing"]["began"], was["timing"]["waited_seconds"])
    logged = {entry.id: dict(entry.message) for entry in run.log()}
    assert {message["id"]: json.loads(message["message"]) for message in tables["messages"]} == logged
    assert {message["call"] for message in tables["messages"]} == {None, 0, 1}
    whole = command(backend, "export", "--all", "--jsonl", "-").json_lines
    assert {run.id, other} <= {line["run"] for line in whole if line["table"] == "runs"}
    one = command(backend, "export", other, "--jsonl", "-").json_lines
    assert [(line["table"], line["run"]) for line in one] == [("runs", other)]


def test_what_a_retry_has_withdrawn_is_a_message_that_does_not_count(
    backend: Backend, tmp_path: Path, name: str
) -> None:
    run = backend.client.submit(solution={"calls": [{"_tool": "explode", "_outputPath": "†state.a"}]}, name=name)
    backend.wait(run.id)
    run.retry()
    backend.wait(run.id)
    rows = list(backend.client.export_rows(run=run.id))
    assert [row["counts"] for table, row in rows if table == "messages"] == [False, True]
    assert [row["status"] for table, row in rows if table == "calls"] == ["failed"]


def test_a_loop_has_a_row_for_each_tick_with_what_it_cost(backend: Backend, name: str) -> None:
    run = backend.client.submit(["A latent topic."], schema={"type": "string"}, name=name)
    backend.wait(run.id)
    found = defaultdict[str, list[dict[str, Any]]](list)
    for table, row in backend.client.export_rows(name=name):
        found[table].append(row)
    result = run.result()
    assert [tick["tick"] for tick in found["ticks"]] == [tick.tick for tick in result.ticks or ()]
    assert found["runs"][0]["requests"] == sum(tick["requests"] for tick in found["ticks"])
    assert "solution" in {message["kind"] for message in found["messages"]}


def test_many_runs_are_each_a_file_that_can_be_imported(backend: Backend, tmp_path: Path, name: str) -> None:
    runs = [backend.client.submit(solution={"calls": []}, name=name).id for _ in range(2)]
    told = command(backend, "export", "--name", name, "-o", str(tmp_path / "archive"))
    assert (told.code, told.error_lines) == (0, [f"acts: 2 runs written to {tmp_path / 'archive'}"])
    assert {path.name for path in (tmp_path / "archive").iterdir()} == {f"{run}.jsonl" for run in runs}
    backend.client.run(runs[0]).delete()
    assert command(backend, "import", str(tmp_path / "archive" / f"{runs[0]}.jsonl")).code == 0


@pytest.mark.parametrize("form", ["--jsonl", "-o"])
def test_runs_of_another_version_are_left_out_and_named(backend: Backend, tmp_path: Path, name: str, form: str) -> None:
    foreign, ours = (backend.client.submit([], {"calls": [], "output": 1}, name=name).id for _ in range(2))
    state = Keys(backend.settings.key_prefix, foreign).state
    backend.redis.hset(state, "format", 99)
    told = command(backend, "export", "--name", name, form, str(tmp_path / "out"))
    assert told.code == 1
    assert told.error_lines[0].startswith(f"acts: left out: run {foreign}: the run has format 99")
    files = "".join(path.read_text() for path in (tmp_path / "out").iterdir())
    assert (ours in files, foreign in files) == (True, False)
    assert {path.suffix for path in (tmp_path / "out").iterdir()} == {".jsonl"}
    if form == "--jsonl":
        assert command(backend, "export", "--name", name, "--jsonl", "-").code == 1
        assert command(backend, "export", foreign, "--jsonl", "-").code == 4
        with pytest.raises(OtherFormat):
            list(backend.client.export_rows(name=name))
    backend.redis.hset(state, "format", FORMAT)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "name a run, or say which"),
        (("latest", "--all"), "name a run, or say which"),
        (("--all",), "many runs are written as tables (--jsonl), or each as a file in a folder"),
        (("--all", "--jsonl", "-", "-o", "x"), "give no --output with it"),
        (("latest", "--plan", "--jsonl", "-"), "give one of --script, --plan and --jsonl"),
    ],
)
def test_what_does_not_go_together_is_refused(backend: Backend, arguments: tuple[str, ...], said: str) -> None:
    told = command(backend, "export", *arguments)
    assert (told.code, said in told.stderr) == (2, True), told.stderr


def test_a_folder_that_cannot_be_written_is_an_error_and_leaves_no_half_of_it(backend: Backend, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    told = command(backend, "export", "--all", "--jsonl", str(tmp_path / "file"))
    assert (told.code, f"{tmp_path / 'file'}: " in told.stderr) == (3, True)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.nightly
def test_the_memory_that_it_takes_does_not_grow_with_the_instances(backend: Backend) -> None:
    def peak_kilobytes(instances: int) -> int:
        context = [{"type": "state", "_instance": f"i{number}", "n": number} for number in range(instances)]
        calls = [{"_tool": "add", "a": "†state.n", "_outputPath": "†state.m"}] * 2
        run = backend.client.submit_document({"context": [*context, {"type": "plan", "calls": calls}]})
        run.cancel()
        command = [sys.executable, "-m", "acts_celery", "export", run.id, "--jsonl", "-"]
        with subprocess.Popen(command, env=backend.environment(), stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            # Two calls and a message of each, and what calls wrote before they were cancelled; the plan, the run.
            assert sum(1 for _ in process.stdout) >= 3 * instances + 2
            _, status, usage = os.wait4(process.pid, 0)
            assert status == 0
        return usage.ru_maxrss

    assert peak_kilobytes(30_000) - peak_kilobytes(300) < 60_000
