"""What `acts run` and `acts submit` say of a submission that runs and can hardly be meant, and of what fails unseen."""

from __future__ import annotations

from typing import Any

from .backend import Backend
from .command import ACTIVITIES, acts, acts_afresh, completed, run_embedded
from .records import Records

MISSPELT: dict[str, Any] = {
    "context": [{"type": "state", "text": "x"}],
    "solution": {"calls": [{"_tool": "give", "value": "†state.text", "_outputpath": "†state.copy"}]},
}
FINE: dict[str, Any] = {"solution": {"calls": [{"_tool": "give", "value": 1, "_outputPath": "†state.a"}]}}


def codes(document: Any) -> list[str]:
    return [finding["code"] for finding in document["findings"]]


def test_run_and_submit_tell_on_stderr_and_in_json_what_check_warns_of(backend: Backend) -> None:
    for name in ("run", "submit"):
        told = backend.acts(name, "-", "--json", stdin=MISSPELT)
        assert (told.code, codes(told.json)) == (0, ["ACT303"])
        (line,) = told.error_lines
        assert line.startswith("acts: warning ACT303: /solution/calls/0/_outputpath: ")
        assert line.endswith("write _outputPath")


def test_a_submission_without_findings_is_silent(backend: Backend) -> None:
    for name in ("run", "submit"):
        told = backend.acts(name, "-", "--json", stdin=FINE)
        assert (told.code, "findings" in told.json, told.error_lines) == (0, False, [])


def test_with_no_check_nothing_is_looked_for_and_nothing_is_said(backend: Backend) -> None:
    for name in ("run", "submit"):
        told = backend.acts(name, "-", "--json", "--no-check", stdin=MISSPELT)
        assert (told.code, "findings" in told.json, told.error_lines) == (0, False, [])


def test_an_ignored_finding_is_neither_reported_nor_counted(backend: Backend) -> None:
    told = backend.acts("run", "-", "--json", "--strict", "--ignore", "misspelt-property", stdin=MISSPELT)
    assert (told.code, "findings" in told.json, told.error_lines) == (0, False, [])


def test_with_strict_a_warning_exits_2_and_nothing_is_submitted(backend: Backend, records: Records) -> None:
    marked = {"solution": {"calls": [{"_tool": "greetUser", "userName": "Ада", "_outputpath": "†state.a"}]}}
    for name in ("run", "submit"):
        told = backend.acts(name, "-", "--json", "--strict", stdin=marked)
        assert (told.code, told.json["status"], told.json["valid"], codes(told.json)) == (
            2,
            "rejected",
            True,
            ["ACT303"],
        )
        assert told.error_lines[-1] == "acts: 1 warning, and --strict: nothing was run"
    # The same without the property reaches the worker, and is the first to do so.
    backend.acts("run", "-", stdin={"solution": {"calls": [{"_tool": "greetUser", "userName": "Bo"}]}})
    assert "Bo" in str(backend.records.take("greetUser"))


def test_strict_and_no_check_exclude_each_other() -> None:
    assert acts("run", "-", "--strict", "--no-check", stdin=FINE).code == 2


def test_many_warnings_do_not_flood_the_terminal(backend: Backend) -> None:
    calls = [{"_tool": "give", "value": f"{{{{state.x{n}}}}}", "_outputpath": f"†state.a{n}"} for n in range(60)]
    told = backend.acts("submit", "-", stdin={"solution": {"calls": calls}})
    assert told.code == 0
    assert len(told.error_lines) == 21
    assert told.error_lines[-1].endswith("more: `acts check` prints all")


def test_a_call_that_is_not_awaited_and_fails_is_reported_by_an_embedded_run_which_exits_1() -> None:
    calls = [{"_tool": "fail"}, {"_tool": "give", "value": 1, "_outputPath": "†state.a"}]
    told = run_embedded({"solution": {"calls": calls}})
    assert told.code == 1
    assert (told.json["status"], [call["status"] for call in told.json["calls"]]) == ("completed", ["sent", "done"])
    assert told.json["background"] == {"outstanding": 0, "done": 0, "dead": 1}
    (letter,) = told.json["dead"]
    assert (letter["index"], letter["activity"], letter["error"]["type"]) == (0, "fail", "ValueError")
    assert told.error_lines[0] == ("acts: fire-and-forget call 0 fail failed: ValueError: it cannot be done")


def test_text_output_of_an_embedded_run_tells_it_too() -> None:
    told = acts_afresh("run", "-", "--activities", str(ACTIVITIES), stdin={"solution": {"calls": [{"_tool": "fail"}]}})
    assert told.code == 1
    assert told.stdout.startswith("completed")
    assert told.stdout.endswith("in the background: 1 dead\n"), "where no run is kept, no list is"
    assert "fire-and-forget call 0 fail" in told.stderr


def test_one_that_is_done_is_no_failure(records: Records) -> None:
    told = run_embedded({"solution": {"calls": [{"_tool": "greetUser", "userName": "Ада"}]}}, env=records.env)
    assert "dead" not in completed(told)
    assert told.json["background"] == {"outstanding": 0, "done": 1, "dead": 0}
    assert records.take("greetUser")


def test_check_warns_of_a_model_that_cannot_be_asked_from_here() -> None:
    request = {"context": [], "schema": {"type": "string"}, "tools": {}}
    none = acts("check", "-", "--json", stdin=request)
    assert (none.code, none.json["models"]) == (0, [none.error_lines[0].removeprefix("acts: warning: ")])
    assert "none is configured here" in none.stderr
    keyless = acts("check", "-", stdin=request, env={"ACTS_MODEL": "openai:some"})
    assert (keyless.code, "openai:some has no key here" in keyless.stderr) == (0, True)
    ready = acts("check", "-", "--json", stdin=request, env={"ACTS_MODEL": "openai:some", "ACTS_MODEL_API_KEY": "k"})
    assert (ready.stderr, "models" in ready.json) == ("", False)
    silent = acts("check", "-", stdin={"solution": {"calls": [{"_tool": "x", "_output": 1}]}, "tools": {"x": {}}})
    assert silent.stderr == ""


def test_a_run_whose_worker_ends_ends_with_it_and_says_why() -> None:
    request = {"context": [], "schema": {"type": "string"}, "tools": {}}
    told = acts_afresh("run", "-", "--json", stdin=request, env={"ACTS_MODEL": "anthropic:some"})
    assert told.error_lines[0].startswith("acts: warning: model anthropic:some has no key here")
    assert told.json["errors"][0]["message"].endswith("model anthropic:some: it has no key: set ACTS_MODEL_API_KEY")
    assert told.code == 3
