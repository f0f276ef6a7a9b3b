"""Bad input beside the submission (issue 2): files, servers, activities and usage; exit 2 or 3, one line each."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from acts_celery.broker_config import EmbeddedServer

from .backend import server_settings
from .command import ACTIVITIES, UNREACHABLE, Finished, acts, assert_refused, at_once, encoded

OPTIONS = ("--json", "--activities", str(ACTIVITIES))
GIVE = {"_tool": "give", "value": 1, "_outputPath": "†state.x"}
GOOD = encoded({"context": [], "solution": {"calls": [GIVE], "output": None}})
BAD = {"context": [], "solution": {"calls": ["give"]}}


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "folder.json"
    folder.mkdir()
    missing = str(tmp_path / "missing.json")
    asked = [("run", missing), ("check", missing), ("submit", missing), ("run", str(folder))]
    for result in at_once(partial(acts, *arguments, "--json") for arguments in asked):
        assert_refused(result)
        assert Path(result.arguments[1]).name in result.stderr, result
        assert result.json["valid"] is False
        (error,) = result.json["errors"]
        assert (error["pointer"], f"acts: {error['message']}") == ("", result.stderr.strip())


def test_machines_are_reported_whatever_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "good.json").write_bytes(GOOD)
    (tmp_path / "bad.json").write_bytes(b"not JSON")
    good, bad, missing = (str(tmp_path / f"{name}.json") for name in ("good", "bad", "missing"))
    asked: list[tuple[tuple[str, ...], int, str | None, bool | None]] = [
        (("check", bad), 2, None, False),
        (("check", good, "--who-sees", "†"), 2, None, None),
        (("check", good, "--activities", missing), 2, None, None),
        (("amend", "some-run", missing), 2, "rejected", False),
        (("amend", "some-run", good, *UNREACHABLE), 3, "error", None),
        (("submit", good), 3, "error", None),
        (("submit", bad), 2, "rejected", False),
        (("run", bad), 2, "rejected", False),
        (("run", good, *UNREACHABLE), 3, "error", None),
    ]
    finished = at_once(partial(acts, *arguments, *OPTIONS) for arguments, *_ in asked)
    for result, (_, code, status, valid) in zip(finished, asked, strict=True):
        assert_refused(result, codes=(code,))
        assert (result.json.get("status"), result.json["valid"]) == (status, valid), result
        assert [f"acts: {error['message']}" for error in result.json["errors"]] == result.error_lines


def test_no_server_is_an_infrastructure_error_on_one_line() -> None:
    asked = [
        ("run", "-"),
        ("submit", "-"),
        ("status", "some-run"),
        ("show", "some-run"),
        ("log", "some-run"),
        ("log", "some-run", "--follow"),
    ]
    for result in at_once(partial(acts, *arguments, *OPTIONS, *UNREACHABLE, stdin=GOOD) for arguments in asked):
        assert_refused(result, codes=(3,))
        assert len(result.error_lines) == 1, result
        assert "127.0.0.1:1" in result.stderr, result


def test_a_bad_submission_is_distinguished_from_a_missing_server() -> None:
    # Validation needs no server: the caller learns of the fault that is the caller's.
    result = acts("submit", "-", *OPTIONS, *UNREACHABLE, stdin=BAD)
    assert_refused(result, codes=(2,))


def test_an_unknown_run_is_said_to_be_unknown(bare_server: EmbeddedServer) -> None:
    env = server_settings(bare_server)
    asked = ("status", "show", "log")
    for result in at_once(partial(acts, command, "no-such-run", "--json", env=env) for command in asked):
        assert_refused(result, codes=(4,))
        assert "no-such-run" in result.stderr, result


def test_a_malformed_server_address_is_refused() -> None:
    def submit(option: str, url: str) -> Finished:
        options = [*UNREACHABLE]
        options[options.index(option) + 1] = url
        return acts("submit", "-", *OPTIONS, *options, stdin=GOOD)

    asked = [("--broker", "gopher://127.0.0.1"), ("--broker", "not a url"), ("--redis", "redis://127.0.0.1:port")]
    for result in at_once(partial(submit, option, url) for option, url in asked):
        assert_refused(result, codes=(2, 3))
        assert len(result.error_lines) == 1, result


def test_activities_that_cannot_be_loaded_are_named(tmp_path: Path) -> None:
    sources = {
        "raising.py": "raise RuntimeError('broken on purpose')\n",
        "wrong.py": "def nothing(:\n",
        "leaving.py": "raise SystemExit(0)\n",
    }
    for name, source in sources.items():
        (tmp_path / name).write_text(source)
    asked = [
        ("run", str(tmp_path / "no_such_file.py"), "no_such_file"),
        ("submit", "no.such.module", "no.such.module"),
        ("run", str(tmp_path / "raising.py"), "broken on purpose"),
        ("check", str(tmp_path / "wrong.py"), "wrong.py"),
        ("check", str(tmp_path / "leaving.py"), "leaving.py"),
    ]
    finished = at_once(
        partial(acts, command, "-", "--json", "--activities", activities, stdin=GOOD)
        for command, activities, _ in asked
    )
    for result, (_, _, says) in zip(finished, asked, strict=True):
        assert_refused(result, codes=(2, 3))
        assert len(result.error_lines) == 1, result
        assert says in result.stderr, result


def test_bad_usage_is_an_exit_of_2() -> None:
    asked = [("nonsense",), ("run",), ("check", "-", "--no-such-option")]
    assert [result.code for result in at_once(partial(acts, *arguments) for arguments in asked)] == [2, 2, 2]
