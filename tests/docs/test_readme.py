"""README's own code runs, and its commands exist."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from acts_celery.broker_config import EmbeddedServer, Settings
from tests.acceptance import forks

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language: str, containing: str) -> str:
    """The one code block of a language that contains a text."""
    found = [text for text in re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL) if containing in text]
    assert len(found) == 1
    return str(found[0])


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(block("python", "# shop.py"), encoding="utf-8")
    (tmp_path / "hello.json").write_text(block("json", "_gather"), encoding="utf-8")
    return tmp_path


def acts(*arguments: str, at: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "LANG": "C.UTF-8"}
    code, stdout, stderr = forks.run(arguments, env=environment, folder=at, stdin=b"", timeout_seconds=60)
    return subprocess.CompletedProcess(arguments, code, stdout.decode(), stderr.decode())


def python(program: str, *, at: Path, answers: str = "", **environment: str) -> str:
    """What a program of the text prints."""
    named = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), **environment}
    command = [sys.executable, program]
    done = subprocess.run(
        command, cwd=at, env=named, input=answers, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_plan_runs_for_each_row_from_python(shop: Path) -> None:
    (shop / "hello.py").write_text(block("python", "# hello.py"), encoding="utf-8")
    assert python("hello.py", at=shop) == "{'greeting': 'Hello Ann'} {'summary': '2 greeted: ann, bob'}"


def test_the_plan_as_json_is_the_same_and_can_be_checked_and_run(shop: Path) -> None:
    done = acts("check", "hello.json", "--activities", "shop.py", "--json", at=shop)
    assert (done.returncode, json.loads(done.stdout)["waves"]) == (0, [[0], [1]]), done.stderr
    done = acts("run", "hello.json", "--activities", "shop.py", "--json", at=shop)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["instances"]["ann"]["state"] == {"greeting": "Hello Ann"}
    assert result["global"]["data"] == {"summary": "2 greeted: ann, bob"}


@pytest.mark.parametrize(("says", "prints"), [("yes", "ordered 3 tea"), ("no", "nothing")])
def test_the_agent_asks_before_it_orders(tmp_path: Path, says: str, prints: str) -> None:
    (tmp_path / "agent.py").write_text(block("python", "# agent.py"), encoding="utf-8")
    calls = [{"_tool": "price", "item": item, "_outputPath": f"†state.{item}"} for item in ("tea", "coffee")]
    order = {"_tool": "order", "item": "tea", "amount": 3, "_outputPath": "†state.done"}
    said = [
        {"when": "# Tick 1", "output": "nothing"},
        {"when": "# Tick 0", "answer": {"calls": [order], "output": "†state.done"}},
        {"answer": {"calls": calls, "output": None}},
    ]
    (tmp_path / "answers.json").write_text(json.dumps(said), encoding="utf-8")
    shown = python("agent.py", at=tmp_path, answers=f"{says}\n", ACTS_MODEL="scripted:answers.json")
    assert shown == f"order {{'item': 'tea', 'amount': 3}}? {prints}"


def test_no_character_that_cannot_be_typed_comes_before_it_is_explained() -> None:
    before, _, _ = README.partition("## What a plan looks like")
    assert before.isascii()


def test_every_command_named_in_the_text_exists(tmp_path: Path) -> None:
    named = set(re.findall(r"\bacts (\w+) +(?:hello|RUN|#|\.\.\.|-)", README)) | {"worker", "doctor", "log"}
    for command in sorted(named):
        assert acts(command, "--help", at=tmp_path).returncode == 0, command


def test_every_file_that_the_text_links_to_is_there() -> None:
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in link:
            assert (ROOT / link).exists(), link


def test_the_two_commands_are_those_of_the_makefile_and_ci() -> None:
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert re.search(r"^first test\b", ci, re.MULTILINE)
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    commands = re.findall(r"^make (\w+)", README, re.MULTILINE)
    assert commands == ["run", "test"]
    assert {*commands} <= {*targets}


def test_the_reference_lists_every_setting_with_its_default() -> None:
    reference = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `(ACTS_\w+)` \| `?([^|`]*?)`? \|", reference, re.MULTILINE))
    assert set(listed) == {f"ACTS_{name.upper()}" for name in Settings.model_fields}
    for name, field in Settings.model_fields.items():
        default = field.get_default()
        if isinstance(default, (int, float)) and not isinstance(default, bool):
            assert float(listed[f"ACTS_{name.upper()}"]) == float(default), name


def test_the_reference_lists_every_extra() -> None:
    section = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8").partition("\n## Extras\n")[2]
    listed = {
        name for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall(r"`([\w-]+)`", row)
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert listed == {*project["optional-dependencies"]}


def test_the_readmes_client_finds_the_activities_of_the_environment(shop: Path) -> None:
    with EmbeddedServer() as server:
        program = (
            "from acts_celery import Client\n"
            "with Client() as client:\n"
            "    call = {'_tool': 'greet', 'name': 'A', '_outputPath': 'x'}\n"
            "    print(client.check({'solution': {'calls': [call]}}).waves)"
        )
        environment = {
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(ROOT),
            "ACTS_BROKER_URL": server.broker_url,
            "ACTS_ACTIVITIES": "shop.py",
        }
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, cwd=shop, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "((0,),)"), done.stderr
