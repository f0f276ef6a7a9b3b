"""`acts run --rows`: one instance for each row of a file, and one row back (INTERFACE "Command line")."""

from __future__ import annotations

import csv
import io
import json
import re
import signal
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acts_celery.worker.cli import rows as table
from tests.acceptance.command import Finished, acts, finish, start

from .backend import Backend, Meeting

_names = count()
PLAN = {
    "context": [
        {
            "type": "plan",
            "calls": [
                {"_tool": "failFor", "instance": "†input.bad", "mark": "†input.mark", "_outputPath": "†state.mark"},
                {"_tool": "echo", "value": "†state.mark", "_outputPath": "†state.copy"},
            ],
        }
    ]
}
LEADS = "id,bad,mark\nA,,1\nB,2,2\nC,,=3\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "plan.json").write_text(json.dumps(PLAN), "utf-8")
    return tmp_path


def arguments(folder: Path, rows: str | bytes = LEADS, name: str = "leads.csv", *more: str) -> list[str]:
    (folder / name).write_bytes(rows if isinstance(rows, bytes) else rows.encode())
    return [str(folder / "plan.json"), "--rows", str(folder / name), "--key", "id", *more]


def run(backend: Backend, *given: str, **settings: str) -> Finished:
    env = backend.settings.to_environment() | {"MEETING_URL": backend.meeting.url} | settings
    return acts("run", *given, env=env)


def test_each_row_comes_back_with_its_columns_its_status_and_its_first_error(backend: Backend, folder: Path) -> None:
    target = folder / "out.csv"
    target.write_text("what was there before", "utf-8")
    given = arguments(folder, LEADS, "leads.csv", "-o", str(target), "--columns", "state.copy,†input.mark", "--json")
    told = run(backend, *given)
    assert told.code == 1
    assert (told.json["status"], told.json["rows"]) == ("failed", {"total": 3, "completed": 2, "failed": 1})
    (failure,) = told.json["failures"]
    assert (failure["tool"], failure["type"], failure["count"]) == ("failFor", "ValueError", 1)
    assert failure["example"]["instance"] == "B"
    rows = list(csv.reader(io.StringIO(target.read_text("utf-8"))))
    assert rows == [
        ["id", "copy", "mark", "status", "error"],
        ["A", "1", "1", "completed", ""],
        ["B", "", "2", "failed", "failFor: ValueError: not for 2"],
        ["C", "'=3", "'=3", "completed", ""],
    ]


def test_json_lines_keep_values_as_they_are_in_and_out(backend: Backend, folder: Path) -> None:
    lines = "\n".join(json.dumps({"id": id_, "bad": "", "mark": mark}) for id_, mark in ((1, {"a": [None]}), (2, "=3")))
    call = {"_tool": "echo", "value": "†input.mark", "_outputPath": "†state.copy"}
    (folder / "plan.json").write_text(json.dumps({"solution": {"calls": [call]}}), "utf-8")
    target = folder / "out.jsonl"
    told = run(backend, *arguments(folder, lines, "leads.jsonl", "-o", str(target), "--columns", "state.copy"))
    assert told.code == 0
    assert [json.loads(line) for line in target.read_text("utf-8").splitlines()] == [
        {"id": "1", "copy": {"a": [None]}, "status": "completed", "error": None},
        {"id": "2", "copy": "=3", "status": "completed", "error": None},
    ]


def test_the_calls_of_a_solution_run_for_each_row_and_its_output_says_the_columns(
    backend: Backend, folder: Path
) -> None:
    calls = PLAN["context"][0]["calls"]
    solution = {"calls": calls, "output": {"mine": "†state.copy"}}
    (folder / "plan.json").write_text(json.dumps({"solution": solution}), "utf-8")
    told = run(backend, *arguments(folder, "id,bad,mark\nA,,1\n"))
    assert told.stdout == "id,copy,status,error\nA,1,completed,\n"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("", ":1: is empty"),
        ("id,bad,mark\n", ":1: has no rows"),
        ("ids,bad,mark\nA,,1\n", ":1: has no column 'id', which --key names, did you mean 'ids'?"),
        ("id,bad,bad\nA,,1\n", ":1: two columns have the name 'bad'"),
        ("id,bad,mark\nA,,1\nB,,1\nA,,2\n", ':4: id is "A" as in line 2'),
        ('id,bad,mark\n"A\nB",,1\n', r':2: id "A\nB" cannot name an instance'),
        (f"id,bad,mark\n{'x' * 201},,1\n", "cannot name an instance: has 201 characters"),
        ("id,bad,mark\n,,1\n", ':2: id "" cannot name an instance'),
        ("id,bad,mark\nA,,1\nB\n", ":3: has 1 cell, and the first line names 3 columns"),
        ('id,bad,mark\nA,,"1\n2\nB,,3\n', ":2: cannot be read as CSV"),
        ("id,bad,mark\nA,,caf\xe9\n".encode("latin-1"), ":2: is not UTF-8 (byte 0xe9)"),
        ("id,bad,mark\nA,,1\n".encode("utf-16"), ":1: is not UTF-8"),
    ],
)
def test_rows_that_cannot_be_meant_are_refused_with_their_line_before_anything_runs(
    rows: str | bytes, said: str, backend: Backend, folder: Path
) -> None:
    told = run(backend, *arguments(folder, rows))
    assert told.code == 2
    assert said in told.stderr


def test_cells_are_read_as_the_plan_reads_them_and_all_faults_are_listed(folder: Path) -> None:
    code = """
from acts_celery import activity
@activity
def take(n: int, ok: bool, code: str, any: int | str) -> list:
    return [n, ok, code, any]
"""
    (folder / "take.py").write_text(code, "utf-8")
    call = {"_tool": "take", "n": "†input.n", "ok": "†input.ok", "code": "†input.code", "any": "†input.any"}
    solution = {"calls": [{**call, "_outputPath": "†state.taken"}]}
    (folder / "plan.json").write_text(json.dumps({"solution": solution}), "utf-8")
    with_code = ("--activities", str(folder / "take.py"))
    given = arguments(
        folder, "\ufeffid;n;ok;code;any\r\nA;5;TRUE;007;5\r\n", "leads.csv", "-o", str(folder / "out.jsonl")
    )
    assert acts("run", *given, *with_code).code == 0, "an embedded backend runs rows, too"
    assert json.loads((folder / "out.jsonl").read_text("utf-8"))["taken"] == [5, True, "007", "5"]
    told = acts("run", *arguments(folder, "id,n,ok,code,any\nA,1.5,true,x,\nB,1,yes,x,\nC,,true,x,\n"), *with_code)
    lines = [line.partition("leads.csv")[2] for line in told.stderr.splitlines()]
    assert lines == [
        ':2: n is "1.5", where the plan reads integer',
        ':3: ok is "yes", where the plan reads boolean',
        ':4: n is "", where the plan reads integer',
    ]


def test_options_that_make_no_sense_are_refused(backend: Backend, folder: Path) -> None:
    given = arguments(folder)
    for more, said in (
        (["-o", str(folder / "leads.csv")], "the rows are read from there"),
        (["-o", str(folder)], "no file"),
        (["-o", str(folder / "none" / "out.csv")], "there is no folder"),
        (["--columns", "state.copi"], "did you mean †state.copy?"),
        (["--failed"], "only --quiet"),
    ):
        told = run(backend, *given, *more)
        assert (told.code, said in told.stderr) == (2, True), told
    assert "--rows needs --key" in run(backend, *given[:3]).stderr
    assert "--key goes with --rows" in run(backend, given[0], "--key", "id").stderr


@given(st.text(alphabet="=+-@\t\r\n'0123456789.eE aé") | st.text())
def test_law_no_cell_is_a_formula_and_csv_gives_every_other_text_back(text: str) -> None:
    written = table.cell(text)
    is_number = re.fullmatch(r"[+-]\d+(\.\d+)?([eE][+-]?\d+)?", written, re.ASCII) is not None
    assert not written.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) or is_number
    assert text in (written, written.removeprefix("'"))


def many(folder: Path, rows: int) -> list[str]:
    """Rows that are two runs."""
    lines = "".join(f"L{number},,{number}\n" for number in range(rows))
    return arguments(folder, f"id,bad,mark\n{lines}", "leads.csv", "-o", str(folder / "out.csv"))


def test_a_batch_that_was_killed_goes_on_by_its_id_and_runs_nothing_twice(
    backend: Backend, meeting: Meeting, folder: Path
) -> None:
    gate = f"rows{next(_names)}"
    calls = [{"_tool": "waitAtGate", "gate": gate, "value": "†input.mark", "_outputPath": "†state.copy"}]
    (folder / "plan.json").write_text(json.dumps({"context": [{"type": "plan", "calls": calls}]}), "utf-8")
    given = arguments(folder, LEADS, "leads.csv", "-o", str(folder / "out.csv"), "--id", gate)
    env = backend.settings.to_environment() | {"MEETING_URL": backend.meeting.url}
    process = start("run", *given, env=env)
    for _ in range(3):
        meeting.take(f"at:{gate}")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    for _ in range(3):
        meeting.open_gate(gate)
    again = run(backend, *given)
    assert again.code == 0
    assert (folder / "out.csv").read_text("utf-8").splitlines()[1:] == [
        "A,1,completed,",
        "B,2,completed,",
        "C,'=3,completed,",
    ]
    assert meeting.count(f"at:{gate}") == 0, "a row has run twice"
    (folder / "leads.csv").write_text("id,bad,mark\nA,,other\n", "utf-8")
    other = run(backend, *given)
    assert (other.code, "another submission" in other.stderr) == (2, True)


def test_an_interrupted_batch_says_the_command_that_goes_on(backend: Backend, meeting: Meeting, folder: Path) -> None:
    gate = f"rows{next(_names)}"
    calls = [{"_tool": "waitAtGate", "gate": gate, "value": 1, "_outputPath": "†state.copy"}]
    (folder / "plan.json").write_text(json.dumps({"context": [{"type": "plan", "calls": calls}]}), "utf-8")
    process = start("run", *arguments(folder), env=backend.settings.to_environment() | {"MEETING_URL": meeting.url})
    meeting.take(f"at:{gate}")
    process.send_signal(signal.SIGINT)
    told = finish(process)
    for _ in range(3):
        meeting.open_gate(gate)
    first, last = told.stderr.splitlines()
    command = first.partition("continue with: ")[2]
    assert command.startswith("acts run ")
    assert command.split()[-2] == "--id"
    assert (told.code, last.endswith(f"for the rest, use: {command}")) == (130, True)


def test_many_rows_are_several_runs_and_what_is_gathered_over_all_rows_is_one(backend: Backend, folder: Path) -> None:
    told = run(backend, *many(folder, 8), "--json", "--id", f"many{next(_names)}", ACTS_LIMIT_INSTANCES="3")
    assert (told.code, len(told.json["runs"]), told.json["rows"]) == (0, 3, {"total": 8, "completed": 8})
    ids = [line.split(",")[0] for line in (folder / "out.csv").read_text("utf-8").splitlines()]
    assert ids == ["id", *(f"L{number}" for number in range(8))]
    gathered: dict[str, Any] = json.loads(json.dumps(PLAN))
    call = {"_tool": "echo", "value": "†state.mark", "_gather": True, "_outputPath": "†data.all"}
    gathered["context"][0]["calls"].append(call)
    (folder / "plan.json").write_text(json.dumps(gathered), "utf-8")
    told = run(backend, *many(folder, 8), "--json")
    assert len(told.json["runs"]) == 1
    assert len(told.json["global"]["data"]["all"]) == 8


def test_a_batch_is_shown_as_sums(backend: Backend, folder: Path) -> None:
    told = run(backend, *many(folder, 12))
    first, *rest = told.stdout.splitlines()
    assert first.startswith("completed  run rows-")
    assert first.endswith(", 12 rows: 12 completed")
    assert rest == [f"  {folder / 'out.csv'}: 12 rows"]
