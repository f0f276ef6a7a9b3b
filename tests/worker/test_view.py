"""How much of a run `show`, `log`, `status` and `run` print, as a user sees it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from .backend import Backend
from .test_control_cli import command

INSTANCES = [f"n{number:03}" for number in range(60)]


@pytest.fixture(scope="module")
def large(backend: Backend) -> str:
    """A run of sixty instances, of which two fail."""
    plan = {
        "type": "plan",
        "calls": [
            {"_tool": "failFor", "instance": "†input.bad", "mark": "†state.mark", "_outputPath": "†state.a"},
            {"_tool": "echo", "value": "†state.a", "_outputPath": "†state.b"},
        ],
    }
    context: list[dict[str, Any]] = [plan, {"type": "state", "blob": "x" * 500_000}]
    for name in INSTANCES:
        context.append({"type": "input", "_instance": name, "bad": name if name in ("n010", "n059") else ""})
        context.append({"type": "state", "_instance": name, "mark": name})
    run = backend.client.submit(context)
    backend.wait(run.id)
    return run.id


def test_show_is_short_and_tells_what_failed_first(backend: Backend, large: str) -> None:
    lines = command(backend, "show", large).stdout.splitlines()
    assert lines[0] == f"failed  run {large}, 120 calls: 116 done, 2 skipped, 2 failed"
    told = "  60 instances: 58 completed, 2 failed (n010, n059)"
    assert lines[1:4] == [told, "failed", "  failFor ValueError: 2 calls, such as n010: not for n010"]
    assert len(lines) < 20
    assert max(map(len, lines)) < 300
    assert lines[-1] == "… and 60 instances: --all, --limit"
    some = command(backend, "show", large, "--limit", "5").stdout.splitlines()
    assert some[-1] == "… and 55 instances more: --all, --limit"
    assert some.index("n010") < some.index("n059") < some.index("n000")


def test_show_prints_all_on_request_and_as_json_always(backend: Backend, large: str) -> None:
    whole = command(backend, "show", large, "--all").stdout
    assert all(f"\n{name}\n" in whole for name in INSTANCES)
    assert "x" * 500_000 in whole
    document = command(backend, "show", large, "--json").json
    assert (len(document["instances"]), len(document["calls"])) == (60, 120)
    assert len(document["global"]["state"]["blob"]) == 500_000


def test_what_is_chosen_counts_for_json_too(backend: Backend, large: str) -> None:
    failed = command(backend, "show", large, "--failed", "--json").json
    assert [(call["tool"], call["instance"]) for call in failed["calls"]] == [("failFor", "n010"), ("failFor", "n059")]
    assert list(failed["instances"]) == ["n010", "n059"]
    assert len(command(backend, "show", large, "--tool", "echo", "--json").json["calls"]) == 60
    assert len(command(backend, "show", large, "--limit", "3", "--json").json["instances"]) == 3
    assert (
        command(backend, "show", large, "--tool", "echo")
        .stdout.splitlines()[0]
        .endswith("60 of 120 calls: 58 done, 2 skipped")
    )


def test_a_tool_that_no_call_is_of_is_reported(backend: Backend, large: str) -> None:
    for asked in ("show", "status", "log"):
        told = command(backend, asked, large, "--tool", "ecco")
        assert (told.code, told.error_lines) == (0, ["acts: no call is of the tool 'ecco', did you mean 'echo'?"])


def test_status_lists_what_is_asked_for(backend: Backend, large: str) -> None:
    assert command(backend, "status", large).stdout.count("\n") == 2
    lines = command(backend, "status", large, "--failed").stdout.splitlines()
    assert lines[0] == f"failed  run {large}, 2 of 120 calls: 2 failed"
    assert lines[3] == "  0 failFor (n010): ValueError: not for n010"
    counts = command(backend, "status", large, "--tool", "echo", "--json").json["calls"]
    assert counts == {"done": 58, "skipped": 2}


def test_log_prints_the_newest_messages_cut(backend: Backend, large: str) -> None:
    lines = command(backend, "log", large).stdout.splitlines()
    total = len(command(backend, "log", large, "--json").json_lines)
    assert total > 200
    assert lines[0] == f"… {total - 50} messages before these: --all, --limit"
    assert len(lines) == 51
    whole = command(backend, "log", large, "--all").stdout
    assert whole.count("\n") == total + 2  # with --all also the calls that were skipped, which left no message
    assert "x" * 500_000 in whole
    first = command(backend, "log", large, "--limit", str(total)).stdout.splitlines()
    assert len(first) == total
    assert max(map(len, first)) < 600
    assert len(command(backend, "log", large, "--limit", "3", "--json").json_lines) == 3


def test_log_shows_only_what_failed_or_what_a_tool_wrote(backend: Backend, large: str) -> None:
    failed = command(backend, "log", large, "--failed", "--json").json_lines
    assert [line["message"]["type"] for line in failed] == ["error", "error"]
    written = command(backend, "log", large, "--tool", "failFor", "--json").json_lines
    assert len(written) == 60
    assert command(backend, "log", large, "--quiet", "--tool", "echo").stdout == "58 messages\n"


def test_log_follow_goes_on_behind_what_it_has_printed(backend: Backend, large: str) -> None:
    lines = command(backend, "log", large, "--follow", "--limit", "2").stdout.splitlines()
    assert len(lines) == 3


def test_who_follows_behind_the_end_of_a_run_does_not_wait(
    backend: Backend, large: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("acts_celery.worker.limits.PROGRESS_BLOCK_MS", 60_000)
    run = backend.client.run(large)
    *_, last = run.follow()
    begun = time.monotonic()
    assert list(run.follow(after=last.id)) == []
    assert time.monotonic() - begun < 30


def test_run_is_quiet_on_request(backend: Backend) -> None:
    submission = {"solution": {"calls": [{"_tool": "echo", "value": 1, "_outputPath": "†state.a"}]}}
    told = command(backend, "run", "-", "--quiet", stdin=submission)
    assert (told.code, told.stdout.count("\n"), told.stderr) == (0, 1, "")
    assert "†" not in told.stdout
