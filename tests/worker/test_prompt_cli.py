"""`acts prompt`: what a model would be asked (SPEC R12.9)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from acts_celery.worker.cli import main

REQUEST: dict[str, Any] = {
    "context": [{"type": "system", "message": "Sell."}, {"type": "input", "item": "pear\x1b[31m"}],
    "schema": {"type": "string"},
    "tools": {"think": {"properties": {"text": {"type": "string"}}}},
}


def prompted(tmp_path: Path, value: Any, *options: str) -> int:
    file = tmp_path / "request.json"
    file.write_text(json.dumps(value), "utf-8")
    return main(["prompt", str(file), *options])


def test_r12_9_messages_and_composed_schema_are_shown_without_asking(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prompted(tmp_path, REQUEST, "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown.keys() == {"messages", "schema"}
    assert [message["role"] for message in shown["messages"]] == ["system", "system", "user"]
    assert shown["schema"]["required"] == ["calls", "output"]
    assert prompted(tmp_path, REQUEST) == 0
    text = capsys.readouterr().out
    assert "Sell." in text
    assert '"_tool"' in text
    assert "\x1b[31m" not in text
    assert '{"max_output_tokens": 4096}' in text


def test_r13_3_the_settings_that_a_model_is_sent_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {"seed": 7, "stop": ["END"], "top_p": 0.5, "reasoning_effort": "low"}
    assert prompted(tmp_path, {**REQUEST, "config": {**config, "tokens": 50_000}}) == 0
    shown = json.loads(capsys.readouterr().out.rstrip().rpartition("\n")[2])
    assert shown == {**config, "max_output_tokens": 4096}


def test_r12_9_without_a_schema_the_output_is_null_and_a_solution_is_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = {"context": [], "solution": {"calls": [{"_tool": "nobody"}]}, "tools": REQUEST["tools"]}
    assert prompted(tmp_path, value, "--json") == 0
    assert json.loads(capsys.readouterr().out)["schema"]["properties"]["output"] == {"type": "null"}


def test_r12_2_a_bare_name_that_nothing_is_registered_under_is_refused_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prompted(tmp_path, {**REQUEST, "tools": ["nobody"]}, "--json") == 2
    (error,) = json.loads(capsys.readouterr().out)["errors"]
    assert error["pointer"] == "/tools/0"
    assert error["message"].startswith("no activity is registered under 'nobody'")


def test_r12_9_a_run_without_its_tick_is_answered_with_what_to_write(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["prompt", "latest"]) == 2
    assert capfd.readouterr().err == ("acts: latest: no such file; what a run has asked: acts prompt RUN --tick 0\n")


def test_r12_8_of_a_request_check_says_what_a_model_can_do_by_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps({**REQUEST, "config": {"tokens": 50_000, "money": 0.5}}), "utf-8")
    assert main(["check", str(file)]) == 0
    out = capsys.readouterr().out
    assert out.startswith("valid  a request: 1 tool, at most 200 calls and 208 requests to models\n")
    assert "all requests  at most 50000 tokens and 0.5 USD\n" in out
    assert "think  latent think; writes anything; sees anything" in out
    assert main(["check", str(file), "--json", "--who-sees", "input.item"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["who_sees"]["model"] == {"name": None, "shown": True, "passes_to": ["think"]}
    assert [tool["tool"] for tool in shown["request"]["tools"]] == ["think"]
    file.write_text(json.dumps({**REQUEST, "config": {"show": "schema"}}), "utf-8")
    assert main(["check", str(file), "--who-sees", "input.item"]) == 0
    assert "is shown to a model by path, schema and size  the configured model" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("model", "tool", "found"),
    [
        ("openai:x", {"properties": {"a": {}}}, ["not enforced: t.a: it may be anything"]),
        ("openai:x", {"properties": {"a": {"type": "object"}}}, ["not enforced: t.a: it may have any property"]),
        ("openai:x", {"properties": {"a": {"type": "string"}, "_output": {"type": "string"}}}, []),
        ("scripted:none.json", {"properties": {"a": {}}}, []),
    ],
)
def test_r12_8_check_says_which_property_of_which_tool_a_provider_cannot_enforce(
    model: str,
    tool: dict[str, Any],
    found: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = tmp_path / "request.json"
    tool = {"properties": {**tool["properties"], "_output": {"type": "string"}}}
    file.write_text(json.dumps({"schema": {"type": "string"}, "tools": {"t": tool}}), "utf-8")
    monkeypatch.setenv("ACTS_MODEL", model)
    monkeypatch.setenv("ACTS_MODEL_API_KEY", "k")
    assert main(["check", str(file), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["request"]["unenforced"] is None
    told = [each for each in shown["findings"] if each["code"] == "ACT413"]
    assert [each["message"] for each in told] == found
    assert all(each["remedy"] for each in told)
    assert main(["check", str(file), "--json", "--ignore", "unenforced"]) == 0
    assert "ACT413" not in capsys.readouterr().out


def test_r12_8_check_says_why_a_provider_enforces_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "request.json"
    file.write_text(json.dumps({"schema": {"type": "string"}, "tools": {}}), "utf-8")
    monkeypatch.setenv("ACTS_MODEL", "openai:x")
    monkeypatch.setenv("ACTS_MODEL_API_KEY", "k")
    monkeypatch.setenv("ACTS_MODEL_PROFILE", "json")
    assert main(["check", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["request"]["unenforced"] == "the provider enforces none"


def test_r12_6_functions_are_shown_where_the_tools_go_as_functions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACTS_MODEL", "openai:m")
    monkeypatch.setenv("ACTS_MODEL_WIRE", "tools")
    assert prompted(tmp_path, REQUEST, "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert [function["name"] for function in shown["functions"]] == ["think", "output"]
    assert "calling functions" in shown["messages"][0]["content"]
    assert prompted(tmp_path, REQUEST) == 0
    text = capsys.readouterr().out
    assert '"name": "think"' in text
    assert '{"max_output_tokens": 4096, "wire": "tools", "tool_choice": "auto"}' in text


def test_r12_8_check_names_the_tools_whose_functions_a_provider_does_not_enforce(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACTS_MODEL", "anthropic:m")
    monkeypatch.setenv("ACTS_MODEL_WIRE", "tools")
    tools = {**REQUEST["tools"], "keep": {"properties": {"note": {"type": "object"}}, "required": ["note"]}}
    file = tmp_path / "request.json"
    file.write_text(json.dumps({**REQUEST, "tools": tools}), "utf-8")
    assert main(["check", str(file), "--json"]) == 0
    found = [one for one in json.loads(capsys.readouterr().out)["findings"] if one["code"] == "ACT413"]
    assert any("keep" in one["message"] and "note" in one["message"] for one in found), found


def test_r4_7_what_a_call_would_ask_for_its_result_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACTS_MODEL", "scripted:none.json")
    value = {
        "context": [{"type": "state", "mail": "Where is it?"}, {"type": "input", "x": 1}],
        "tools": {"judge": {"description": "Judge.", "properties": {"about": {}}}},
        "delegates": {"clerk": {"context": [{"type": "system", "message": "A clerk."}], "schema": {"type": "string"}}},
        "solution": {
            "calls": [
                {"_tool": "judge", "about": "†state.mail", "_scopes": ["input"], "_outputPath": "†state.a || †state.b"},
                {
                    "_tool": "ask",
                    "_delegate": "clerk",
                    "about": "†state.a || †state.mail",
                    "x": ["†{input.x} of 2"],
                    "_outputPath": "†state.c",
                },
            ]
        },
    }
    assert prompted(tmp_path, value, "--json", "--call", "0") == 0
    latent = json.loads(capsys.readouterr().out)
    assert [message["content"] for message in latent["messages"][1:]] == [
        '## Data: †state\n{"mail":"Where is it?"}',
        '## Data: †input\n{"x":1}',
        '# Give the result of this call\n{"_tool":"judge","about":"Where is it?"}\nLook first at: †input',
    ]
    assert len(latent["schema"]["properties"]["output"]["anyOf"]) == 2
    assert prompted(tmp_path, value, "--call", "1") == 0
    shown = capsys.readouterr().out
    assert "A clerk." in shown
    assert "Where is it?" not in shown
    assert '{"about":"†state.a || †state.mail","x":["1 of 2"]}' in shown
    assert prompted(tmp_path, value, "--call", "2", "--json") == 2
    assert "there is no call 2" in json.loads(capsys.readouterr().out)["errors"][0]["message"]
