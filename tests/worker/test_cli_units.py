"""What commands print."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
import pytest

from acts_celery import ActivitiesError, CallResult, CallStatus, InfrastructureError, InstanceNotFound, RunNotFound
from acts_celery.broker_config import EmbeddedServer, NotConfigured, SettingsError, load
from acts_celery.protocol import Plan, Problem, Rejected, check_submission
from acts_celery.worker.cli import main
from acts_celery.worker.cli.check import branches
from acts_celery.worker.cli.options import Failed, Interrupted, documented, explain, rejection, reported
from acts_celery.worker.cli.output import (
    SHORT,
    OutputFailed,
    counts_line,
    escaped,
    inline,
    prepare_streams,
    value_lines,
)
from acts_celery.worker.cli.progress import View, result_lines
from acts_celery.worker.cli.run import has_raised
from acts_celery.worker.cli.source import read_submission
from acts_celery.worker.client.call_results import CANCELLED
from acts_celery.worker.client.results import instance_statuses
from tests.environment import without_settings
from tests.protocol.test_scale import steps

from .backend import FIXTURES, Backend, Meeting
from .test_control_cli import command

# The parts of the command line that need no server: what is told, how values look, what is read.

ROOT = Path(__file__).resolve().parents[2]


# --- errors ---


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (Rejected([Problem("/solution", "must be an object")]), 2, "/solution: must be an object"),
        (Rejected([Problem("", "not JSON")]), 2, "not JSON"),
        (SettingsError(["ACTS_LIMIT_DEPTH: too small"]), 2, "ACTS_LIMIT_DEPTH: too small"),
        (ActivitiesError("no module 'x'"), 2, "no module 'x'"),
        (click.BadParameter("no", param_hint="--at"), 2, "Invalid value for --at: no (see `acts --help`)"),
        (NotConfigured("no broker"), 3, "no broker"),
        (RunNotFound("x"), 4, "no run x: it never was in this log, or its retention is over"),
        (InstanceNotFound("x", "Ana", ["Anna", "Bo"]), 4, "run x has no instance 'Ana', did you mean 'Anna'?"),
        (InfrastructureError("no answer"), 3, "no answer"),
        (Failed("not over in time"), 3, "not over in time"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (Interrupted("run x goes on"), 130, "interrupted: run x goes on"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_each_error_has_its_exit_code_and_its_line(error: BaseException, code: int, line: str) -> None:
    assert explain(error) == (code, [line])


def test_an_unforeseen_error_is_said_to_be_a_bug_with_its_place() -> None:
    try:
        raise KeyError("nobody thought of it")
    except KeyError as error:
        code, (line,) = explain(error)
    assert code == 3
    assert "this is a bug: KeyError" in line
    assert "test_cli_units.py:" in line


def test_an_argument_that_is_no_text_is_refused_and_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    argument = os.fsdecode(b"caf\xe9")
    with pytest.raises(UnicodeEncodeError) as raised:
        argument.encode()
    code, (line,) = explain(raised.value)
    assert (code, line.partition(":")[0]) == (2, f"{argument!r} is not valid Unicode")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9\n"), "utf-8"))
    prepare_streams()
    assert sys.stdin.readline() == "caf\ufffd\n"


def test_a_rejection_has_the_keys_of_a_plan() -> None:
    document = rejection(Rejected([Problem("/a", "b"), Problem("", "c")]))
    assert document == {
        "valid": False,
        "errors": [{"pointer": "/a", "message": "b"}, {"pointer": "", "message": "c"}],
        "waves": [],
        "findings": [],
    }


def test_a_closed_pipe_is_distinguished_from_a_full_disk() -> None:
    assert OutputFailed(BrokenPipeError(32, "Broken pipe")).is_closed
    assert not OutputFailed(OSError(28, "No space left on device")).is_closed


def test_wrong_usage_is_one_line_naming_the_command(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run"]) == 2
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines() == ["acts: Missing argument 'FILE' (see `acts run --help`)"]
    assert main(["dead"]) == 2
    assert capfd.readouterr().err.splitlines() == ["acts: Missing command (see `acts dead --help`)"]


def written(error: BaseException, capfd: pytest.CaptureFixture[str], *, has_status: bool, given: bool = False) -> str:
    """What is on stdout when an error has left a command."""

    def leave() -> None:
        with documented(as_json=True, has_status=has_status) as answer:
            answer.is_given = given
            raise error

    with pytest.raises(type(error)):
        leave()
    return capfd.readouterr().out


def test_an_error_is_a_document_too_once_where_json_is_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    rejected = Rejected([Problem("/a", "b")])
    assert json.loads(written(rejected, capfd, has_status=False)) == rejection(rejected)
    assert json.loads(written(rejected, capfd, has_status=True)) == {"status": "rejected"} | rejection(rejected)
    unknown = {"valid": None, "errors": [{"pointer": "", "message": "no answer"}], "waves": [], "findings": []}
    assert json.loads(written(Failed("no answer"), capfd, has_status=False)) == unknown
    assert json.loads(written(Failed("no answer"), capfd, has_status=True)) == {"status": "error"} | unknown
    assert written(Failed("no answer"), capfd, has_status=True, given=True) == ""
    assert written(OutputFailed(OSError(28, "No space left on device")), capfd, has_status=True) == ""
    with pytest.raises(Failed), documented(as_json=False, has_status=True):
        raise Failed("no answer")
    assert capfd.readouterr().out == ""


# --- text ---


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Привет, ①!", "Привет, ①!"),
        ("magnifique\u00a0!", "magnifique\u00a0!"),
        ("👩\u200d🔬", "👩\u200d🔬"),
        ("\x1b[2Jgone", "\\x1b[2Jgone"),
        ("a\nb\tc", "a\\nb\\tc"),
        ("\u202eevil", "\\u202eevil"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_cannot_be_seen_is_escaped(text: str, shown: str) -> None:
    assert escaped(text) == shown


@pytest.mark.parametrize("text", ["1", "true", "null", "-2.5e3", "", " a", "a ", "- a", "{a", '"a"', "\x07"])
def test_a_text_that_could_be_taken_for_something_else_is_quoted(text: str) -> None:
    assert inline(text).startswith('"')


@pytest.mark.parametrize("text", ["Привет, Ада!", "10 o'clock", "†state.x", "nullify", "a: b"])
def test_any_other_text_stands_as_it_is(text: str) -> None:
    assert inline(text) == text


def test_values_are_shown_by_indentation() -> None:
    value = {
        "name": "Ада",
        "tags": ["a", 1],
        "letter": "one\n\ntwo",
        "deep": {"list": [{"k": None, "l": []}, [1, {}]]},
        "a: b": {},
    }
    assert list(value_lines(value)) == [
        "name: Ада",
        'tags: ["a", 1]',
        "letter: |",
        "  one",
        "",
        "  two",
        "deep:",
        "  list:",
        "    -",
        "      k: null",
        "      l: []",
        "    -",
        "      - 1",
        "      - {}",
        '"a: b": {}',
    ]


def test_counts_follow_the_life_of_a_call() -> None:
    assert counts_line({"failed": 1, "done": 3, "waiting": 2}) == "6 calls: 2 waiting, 3 done, 1 failed"
    assert counts_line({"done": 1}) == "1 call: 1 done"
    assert counts_line({}) == "0 calls"


def result(calls: list[dict[str, Any]], **instances: Any) -> dict[str, Any]:
    return {"run": "r", "status": "failed", "output": None, "global": {}, "instances": instances, "calls": calls}


def failed(instance: str | None) -> dict[str, Any]:
    error = {"type": "ValueError", "message": "no"}
    return {"index": 3, "tool": "t", "instance": instance, "status": "failed", "error": error, "reason": None}


def test_calls_that_failed_alike_in_many_instances_are_one_line() -> None:
    calls = [failed(f"i{number}") for number in range(7)]
    lines = [click.unstyle(line) for line in result_lines(result(calls), View())]
    assert lines == [
        "failed  run r, 7 calls: 7 failed",
        "failed",
        "  3 t (i0, i1, i2, i3, i4 and 2 more): ValueError: no",
    ]


def test_a_terminal_is_not_flooded_with_instances() -> None:
    instances = {f"i{number}": {"state": {"n": number}} for number in range(5)}
    lines = [click.unstyle(line) for line in result_lines(result([], **instances), View(limit=2))]
    assert [line for line in lines if line.startswith("i")] == ["i0", "i1"]
    assert lines[-1] == "… and 3 instances more: --all, --limit"


def test_what_failed_is_reported_before_the_values_and_its_instances_first() -> None:
    instances = {f"i{number}": {"state": {"n": number}} for number in range(8)}
    calls = [failed("i7"), *({**failed("i6"), "error": {"type": "E", "message": str(n)}} for n in range(40))]
    lines = [click.unstyle(line) for line in result_lines(result(calls, **instances), View())]
    assert lines[1:3] == ["failed", "  3 t (i7): ValueError: no"]
    assert lines[12] == "  … and 31 failed calls more: --all"
    assert [line for line in lines[13:] if line.startswith("i")] == ["i6", "i7", "i0", "i1", "i2"]
    assert lines[-1] == "… and 3 instances more: --all, --limit"
    assert len(list(result_lines(result(calls, **instances), View(is_all=True)))) > 50
    assert len(list(result_lines(result(calls, **instances), View(is_quiet=True)))) == 1


def test_a_batch_is_its_counts_its_kinds_of_failures_and_what_was_gathered() -> None:
    instances = {f"i{number}": {"state": {"n": number}} for number in range(30)}
    calls = [failed("i29"), *({**failed("i28"), "error": {"type": "E", "message": str(n)}} for n in range(40))]
    document = result(calls, **instances) | {"global": {"data": {"total": 7}}}
    assert [click.unstyle(line) for line in result_lines(document, View())] == [
        "failed  run r, 41 calls: 41 failed",
        "failed",
        "  t E: 40 calls, such as i28: 0",
        "  t ValueError: 1 call, such as i29: no",
        "global",
        "  data:",
        "    total: 7",
        "… and 30 instances: --all, --limit",
    ]


def test_branches_that_were_not_taken_are_counted_and_listed_only_on_request() -> None:
    away = {**failed("i0"), "status": "skipped", "error": None, "reason": "nobody chose it", "not_taken": True}
    lines = [click.unstyle(line) for line in result_lines(result([away, failed("i0")]), View())]
    assert lines == ["failed  run r, 2 calls: 1 not taken, 1 failed", "failed", "  3 t (i0): ValueError: no"]
    for view in (View(is_all=True), View(tool="t")):
        shown = [click.unstyle(line) for line in result_lines(result([away]), view)]
        assert shown[1:3] == ["not taken", "  3 t (i0): nobody chose it"]


def test_a_value_of_a_megabyte_does_not_flood_a_terminal() -> None:
    value = {
        "text": "x" * 1_000_000,
        "list": [{"n": n} for n in range(1000)],
        "lines": "a\n" * 1000,
        "deep": ["y" * 300],
    }
    lines = list(value_lines(value, cut=SHORT))
    assert lines[0] == f"text: {'x' * 200}… (1,000,000 characters)"
    assert sum(map(len, lines)) < 2_000
    assert "  … and 980 elements more" in lines
    assert "  … and 981 lines more" in lines
    assert lines[-1] == f"  - {'y' * 200}… (300 characters)"


# --- plans ---


def test_branches_name_who_reads_each_alternative() -> None:
    calls = [
        {"_tool": "t", "_output": 1, "_outputPath": "†state.yes || †state.no"},
        {"_tool": "t", "on": "†state.yes", "_output": 2, "_outputPath": "†state.a"},
        {"_tool": "t", "on": "†state.no.why || †state.a", "_output": 3, "_outputPath": "†state.b"},
    ]
    plan = check_submission({"context": [], "tools": {"t": {"type": "object"}}, "solution": {"calls": calls}})
    yes = {"paths": ["†state.yes"], "readers": [1], "complete": True}
    no = {"paths": ["†state.no"], "readers": [2], "complete": True}
    assert branches(plan) == [{"call": 0, "alternatives": [yes, no]}]


def test_branches_name_all_readers_of_a_place_that_each_of_them_writes_too_and_who_has_it_in_scope() -> None:
    calls = [
        {"_tool": "t", "_output": 1, "_outputPath": "†state.l || †state.no"},
        *({"_tool": "t", "on": "†state.l", "_output": 2, "_outputPath": "†state.l"} for _ in range(20)),
        {"_tool": "t", "_scopes": ["state"], "_output": 3, "_outputPath": "†data.a"},
    ]
    plan = check_submission({"context": [], "tools": {"t": {"type": "object"}}, "solution": {"calls": calls}})
    chosen, other = branches(plan)[0]["alternatives"]
    assert (chosen["readers"], other["readers"]) == (list(range(1, 22)), [21])


def test_branches_name_readers_only_where_what_is_written_is_in_sight() -> None:
    context = [{"type": "text", "_instance": "①"}, {"type": "text", "_instance": "②"}]
    choosing = {"_tool": "t", "_output": 1, "_outputPath": "†state.yes || †state.no"}
    calls = [
        *({**choosing, "_instance": instance} for instance in "①②"),
        *({"_tool": "t", "on": "†state.yes", "_output": 2, "_outputPath": "†data.a", "_instance": i} for i in "①②"),
    ]
    plan = check_submission({"context": context, "tools": {"t": {"type": "object"}}, "solution": {"calls": calls}})
    assert [branch["alternatives"][0]["readers"] for branch in branches(plan)] == [[2], [3]]


def test_so_many_readers_of_branches_are_listed_and_that_there_are_more_is_reported() -> None:
    choosing = {"_tool": "t", "_output": 1, "_outputPath": "†state.yes || †state.no"}
    reading = {"_tool": "t", "on": "†state.yes || †state.no", "_output": 1, "_outputPath": "†data.x"}
    calls = [choosing, reading, reading]
    plan = check_submission({"context": [], "tools": {"t": {"type": "object"}}, "solution": {"calls": calls}})
    yes, no = branches(plan, most_readers=3)[0]["alternatives"]
    assert (yes["complete"], len(no["readers"]), no["complete"]) == (True, 1, False)


def test_a_call_that_reads_what_many_choose_is_found_in_steps_in_proportion_to_them() -> None:
    def finding(number: int) -> Callable[[], object]:
        choosing = [{"_tool": "t", "_output": 1, "_outputPath": f"†state.a{i} || †state.b{i}"} for i in range(number)]
        reading = {"_tool": "t", "_output": 1, "_outputPath": "†data.x"}
        reading["values"] = [f"†state.a{i} || †state.b{i}" for i in range(number)]
        calls = [*choosing, reading]
        plan = check_submission({"context": [], "tools": {"t": {"type": "object"}}, "solution": {"calls": calls}})
        return lambda: branches(plan)

    assert steps(finding(400)) < 5 * steps(finding(100))


# --- files ---


def test_a_file_beyond_the_limit_is_refused_before_it_is_decoded(tmp_path: Path) -> None:
    file = tmp_path / "large.json"
    file.write_bytes(b"\xff" * 101)
    with pytest.raises(Rejected, match=r"101 bytes, where 100 .*ACTS_LIMIT_SUBMISSION_BYTES"):
        read_submission(str(file), load(env_file=None, limit_submission_bytes=100))


def test_a_pipe_without_an_end_is_read_up_to_the_limit() -> None:
    with pytest.raises(Rejected, match="more bytes than the 100"):
        read_submission("/dev/zero", load(env_file=None, limit_submission_bytes=100))


@pytest.mark.parametrize("name", ["missing.json", "."])
def test_a_file_that_cannot_be_read_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(Rejected, match=re.escape(str(tmp_path))):
        read_submission(str(tmp_path / name), load(env_file=None))


# --- processes ---


def acts(
    *arguments: str, stdin: str = "", shell_after: str = "", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    kept = without_settings()
    command = [sys.executable, "-m", "acts_celery", *arguments]
    if shell_after:
        command = ["sh", "-c", f'"$@" {shell_after}', "sh", *command]
    return subprocess.run(
        command,
        cwd=ROOT,
        env=kept | dict(env or {}),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


SUBMISSION = {"context": [], "tools": {"t": {}}, "solution": {"calls": [{"_tool": "t", "_output": 1}]}}


def test_what_activities_print_when_imported_stays_out_of_machine_output(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text("print('hello')\n")
    ended = acts("check", "-", "--json", "--activities", str(tmp_path / "loud.py"), stdin=json.dumps(SUBMISSION))
    assert json.loads(ended.stdout)["valid"] is True
    assert "hello" in ended.stderr


def test_checking_imports_no_celery() -> None:
    script = (
        "import sys\nfrom acts_celery.worker.cli import main\ncode = main(['check', '-'])\n"
        "sys.exit(code or 'celery' in sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, input=json.dumps(SUBMISSION), text=True, timeout=60, check=False
    )
    assert ended.returncode == 0


def test_an_output_without_a_reader_is_no_error() -> None:
    ended = acts("--help", shell_after="| head -c 1")
    assert (ended.returncode, ended.stderr) == (0, "")
    ended = acts("check", "-", "--json", stdin=json.dumps(SUBMISSION), shell_after="| true")
    assert ended.stderr == ""


def test_output_that_cannot_be_written_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(json.dumps(SUBMISSION))
    # No file may grow: the same path as a full disk.
    script = f'ulimit -f 0; exec "$@" > "{tmp_path}/out"'
    command = [
        "sh",
        "-c",
        script,
        "sh",
        sys.executable,
        "-m",
        "acts_celery",
        "check",
        str(tmp_path / "s.json"),
        "--json",
    ]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 3
    assert ended.stderr.splitlines() == ["acts: the output cannot be written: File too large"]


def test_closed_streams_are_no_error() -> None:
    assert acts("check", "-", stdin=json.dumps(SUBMISSION), shell_after=">&- 2>&-").returncode == 0
    ended = acts("check", "-", shell_after="<&-")
    assert ended.returncode == 2
    assert ended.stderr.splitlines() == ["acts: standard input is closed: give a FILE"]


def test_tracebacks_are_shown_on_request_only(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.json")
    assert "Traceback" not in acts("check", missing).stderr
    assert "Traceback" in acts("check", missing, "--debug").stderr


def test_a_traceback_is_promised_where_code_has_raised_alone() -> None:
    assert has_raised({"status": "failed", "error": {"type": "KeyError", "message": "'a'"}})
    for type_ in ("Rejected", "OutputError"):
        assert not has_raised({"status": "failed", "error": {"type": type_, "message": "no"}})
    assert not has_raised({"status": "done", "error": None})


# --- the embedded backend and the worker ---


def test_an_embedded_worker_that_dies_is_replaced_and_its_calls_are_run_again(tmp_path: Path) -> None:
    (tmp_path / "frail.py").write_text(
        "import os, signal\nfrom pathlib import Path\nfrom acts_celery import activity\n\n\n"
        "@activity\ndef work(mark: str) -> str:\n"
        "    if not Path(mark).exists():\n"
        "        Path(mark).touch()\n        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    return 'survived'\n"
    )
    call = {"_tool": "work", "mark": str(tmp_path / "mark"), "_outputPath": "†state.x"}
    soon = {"ACTS_LEASE_SECONDS": "1", "ACTS_SWEEP_INTERVAL_SECONDS": "0.5"}
    submission = json.dumps({"context": [], "solution": {"calls": [call]}})
    ended = acts("run", "-", "--json", "--activities", str(tmp_path / "frail.py"), stdin=submission, env=soon)
    assert ended.returncode == 0, ended
    assert json.loads(ended.stdout)["global"]["state"] == {"x": "survived"}


def test_an_embedded_worker_that_cannot_start_is_reported_by_its_last_words(tmp_path: Path) -> None:
    # It is loaded by both processes, and fails in the worker alone.
    source = "import sys\nfrom acts_celery import activity\n\nactivity(lambda: 1) if 'run' in sys.argv else missing\n"
    (tmp_path / "partial.py").write_text(source.replace("activity(lambda: 1)", "activity('work')(lambda: 1)"))
    submission = json.dumps({"context": [], "solution": {"calls": [{"_tool": "work", "_outputPath": "†state.x"}]}})
    ended = acts("run", "-", "--activities", str(tmp_path / "partial.py"), stdin=submission)
    assert ended.returncode == 3, ended
    line = ended.stderr.splitlines()[-1]  # before it the server may be gone already when the tasks are published
    assert "the embedded worker ended" in line
    assert "name 'missing' is not defined" in line


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 0)])
def test_a_worker_says_when_it_is_ready_and_stops_at_a_signal(number: signal.Signals, code: int) -> None:
    with EmbeddedServer() as server:
        code_of = ["--activities", str(FIXTURES / "pure_activities.py")]
        options = [
            *code_of,
            "--broker",
            server.broker_url,
            "--queues",
            "a, b,a",
            "--processes",
            "1",
            "--name",
            "mine",
            "--json",
        ]
        command = [sys.executable, "-m", "acts_celery", "worker", *options]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as worker:
            assert worker.stdout is not None
            ready = json.loads(worker.stdout.readline())
            worker.send_signal(number)
            stdout, stderr = worker.communicate(timeout=60)
    assert ready["worker"].startswith("mine@")
    assert (ready["queues"], ready["pid"]) == (["a", "b"], worker.pid)
    assert (worker.returncode, stdout) == (code, ""), stderr
    assert "; activities " in stderr.partition("is ready, on a, b")[2]


def test_what_a_worker_lacks_is_said_once_and_a_misspelt_queue_is_named() -> None:
    ended = acts("worker", "--processes", "2", "--queues", "instnces,delegates,own")
    warning, without_code, error = ended.stderr.splitlines()
    assert warning == (
        "acts: warning: no setting and no activity here names the queue 'instnces', did you mean 'instances'?"
    )
    assert without_code.startswith("acts: warning: no activities are loaded: ")
    assert (ended.returncode, error.partition(":")[2].partition(":")[0]) == (3, " no broker is configured")


# `acts check` leaves out the findings that a project ignores (SPEC R6.7).

CALL = {"_tool": "t", "_outputPath": "†state.a"}


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A plan with a race, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return check_submission({"tools": {"t": {}}, "solution": {"calls": [CALL, CALL]}})


def codes(plan: Plan, *options: str) -> list[str]:
    return [finding.code for finding in reported(plan, options)]


def test_a_project_ignores_findings_by_code_or_by_name(plan: Plan) -> None:
    assert codes(plan) == ["ACT103"]
    for text in ('ignore = ["ACT103"]', 'ignore = ["race"]'):
        Path("pyproject.toml").write_text(f"[tool.acts]\n{text}\n", encoding="utf-8")
        assert codes(plan) == []
    Path("pyproject.toml").write_text('[tool.acts]\nignore = ["ACT201"]\n', encoding="utf-8")
    assert codes(plan) == ["ACT103"]
    assert codes(plan, "race") == []


@pytest.mark.parametrize("text", ['[tool.acts]\nignore = ["ACT000"]', "[tool.acts]\nignore = 5", "no toml"])
def test_what_cannot_be_ignored_is_said(plan: Plan, text: str) -> None:
    Path("pyproject.toml").write_text(text, encoding="utf-8")
    with pytest.raises(Failed, match=r"pyproject\.toml"):
        reported(plan, ())


def test_a_project_file_without_settings_ignores_nothing(plan: Plan) -> None:
    Path("pyproject.toml").write_text('[project]\nname = "x"\n', encoding="utf-8")
    assert codes(plan) == ["ACT103"]


# A result has a status for each instance, computed from its calls (SPEC R11.8).

Json = dict[str, Any]


def call(status: CallStatus, reason: str | None = None, instance: str | None = "①") -> CallResult:
    return CallResult("0:①", 0, "t", instance, status, reason=reason)


@pytest.mark.parametrize(
    ("run", "calls", "expected"),
    [
        ("running", [], "completed"),
        ("running", ["done", "skipped", "sent", "latent"], "completed"),
        ("failed", ["done", "failed"], "failed"),
        ("running", ["failed", "waiting"], "running"),
        ("running", ["held", "waiting"], "held"),
        ("running", ["held", "running"], "running"),
        ("paused", ["held", "waiting"], "paused"),
        ("paused", ["done"], "completed"),
        ("completed", ["failed"], "completed"),  # in a tick of a loop whose output was accepted
    ],
)
def test_the_status_of_an_instance_follows_from_its_calls(run: str, calls: list[CallStatus], expected: str) -> None:
    of_others = call("failed", instance="②"), call("running", instance=None)
    assert instance_statuses(["①"], [*map(call, calls), *of_others], run, None) == {"①": expected}


def test_an_instance_that_had_not_ended_when_its_run_did_is_cancelled_or_has_failed() -> None:
    stopped = [call("done"), call("skipped", CANCELLED)]
    assert instance_statuses(["①", "②"], stopped, "cancelled", CANCELLED) == {"①": "cancelled", "②": "completed"}
    assert instance_statuses(["①"], [call("skipped", "a limit")], "failed", "a limit") == {"①": "failed"}


def plan_instance_status(*calls: Json) -> Json:
    return {"type": "plan", "calls": list(calls)}


CONTEXT = [
    plan_instance_status(
        {"_tool": "failUnless", "_activity": "pick", "path": "†state.path", "value": 1, "_outputPath": "†state.out"},
        {"_tool": "summary", "_activity": "echo", "value": "†state.out", "_outputPath": "†state.again"},
    ),
    {"type": "state", "shared": {"text": "the same for all"}},
    *({"type": "state", "_instance": f"i{n}", "path": 5 if n < 7 else "†state.out"} for n in range(9)),
]
TOOLS: Json = {
    "failUnless": {"type": "object", "properties": {"_activity": {"const": "pick"}}},
    "summary": {"type": "object", "properties": {"_activity": {"const": "echo"}}},
}


def test_results_status_and_show_have_it(backend: Backend, meeting: Meeting) -> None:
    run = backend.client.submit(CONTEXT, tools=TOOLS)
    result = backend.wait(run.id)
    expected = {f"i{n}": "failed" if n < 7 else "completed" for n in range(9)}
    assert result.instance_status == expected
    assert result.to_dict()["instance_status"] == expected
    assert command(backend, "status", run.id, "--json").json["instance_status"] == expected
    assert command(backend, "show", run.id, "--json").json["instance_status"] == expected
    assert command(backend, "show", run.id, "--instance", "i8", "--json").json["instance_status"] == {"i8": "completed"}
    line = "  9 instances: 2 completed, 7 failed (i0, i1, i2, i3, i4 and 2 more)"
    for name in ("status", "show"):
        assert command(backend, name, run.id).stdout.splitlines()[1] == line


def test_what_is_the_same_in_the_global_values_is_not_printed_for_each_instance(backend: Backend) -> None:
    run = backend.client.submit(CONTEXT, tools=TOOLS)
    backend.wait(run.id)
    shown = command(backend, "show", run.id, "--all").stdout
    assert shown.count("the same for all") == 1
    whole = command(backend, "show", run.id, "--json").json["instances"]
    assert all(data["state"]["shared"] == {"text": "the same for all"} for data in whole.values())


def test_a_header_says_of_how_many_calls_it_counts_some(backend: Backend) -> None:
    run = backend.client.submit(CONTEXT, tools=TOOLS)
    backend.wait(run.id)
    for name in ("status", "show"):
        first = command(backend, name, run.id, "--failed").stdout.splitlines()[0]
        assert first == f"failed  run {run.id}, 7 of 18 calls: 7 failed"


def test_an_instance_that_overrides_a_part_of_a_global_value_shows_that_part() -> None:
    document: Json = {
        "run": "r",
        "status": "completed",
        "output": None,
        "calls": [],
        "global": {"state": {"a": {"b": 1, "c": 2}, "d": [1]}},
        "instances": {
            "①": {"state": {"a": {"b": 1, "c": 3}, "d": [1]}},
            "②": {"state": {"a": {"b": 1}, "d": [1], "e": 1}},
        },
        "instance_status": {"①": "completed", "②": "completed"},
    }
    lines = [click.unstyle(line) for line in result_lines(document, View())]
    assert lines[lines.index("①") :] == [
        "①",
        "  state:",
        "    a:",
        "      c: 3",
        "②",
        "  state:",
        "    a:",
        "      b: 1",
        "    e: 1",
    ]
