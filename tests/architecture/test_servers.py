"""No script and no command is left out of what runs on each server, and what is called slow exists."""

from __future__ import annotations

import re
from pathlib import Path

from tests import servers, slow
from tests.acceptance.command import acts

ROOT = Path(__file__).parents[2]


def test_each_script_is_among_what_runs_on_each_server() -> None:
    scripts = {path.stem for path in (ROOT / "worker" / "store" / "lua").glob("*.lua")}
    assert scripts == set(servers.SCRIPTS)


def test_each_command_is_run_by_a_module_that_runs_on_each_server() -> None:
    named = {command: module for module, commands in servers.COMMANDS.items() for command in commands.split()}
    listed = acts("--help").stdout.partition("Commands:\n")[2]
    assert set(named) == set(re.findall(r"^  (\w+)  ", listed, re.MULTILINE))
    for command, module in named.items():
        text = (ROOT / "tests" / f"{module}.py").read_text(encoding="utf-8")
        assert re.search(rf'"{command}"', text) or re.search(rf"\bimport {command}\b", text), (command, module)


def test_the_modules_are_there() -> None:
    assert all((ROOT / "tests" / f"{module}.py").is_file() for module in servers.MODULES)


def test_what_is_called_slow_is_a_test() -> None:
    for name in slow.names():
        path, _, function = name.partition("::")
        assert f"def {function}(" in (ROOT / path).read_text(encoding="utf-8"), name
