"""The units of `deploy/systemd` are what systemd understands, run what supervisord runs, and are well closed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from .files import DEPLOY, ROOT, program_commands, programs
from .test_files import check_command

UNITS = DEPLOY / "systemd"
WORKERS = ("instances", "delegates", "background")
SERVICES = (
    *(f"acts-worker@{name}.service" for name in WORKERS),
    *(f"acts-{n}.service" for n in ("ui", "metrics", "traces")),
)
PROGRAM = "/opt/acts/bin/acts"
MOST_EXPOSED = 15
"""In tenths, of 100: what `systemd-analyze security` may say."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The units where systemd finds them, with a program that there is."""
    folder = tmp_path_factory.mktemp("root")
    units = folder / "etc/systemd/system"
    shutil.copytree(UNITS, units)
    program = folder / "acts"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    for file in units.rglob("*"):
        if file.is_file():
            file.write_text(file.read_text(encoding="utf-8").replace(PROGRAM, str(program)), encoding="utf-8")
    return folder


def test_systemd_understands_every_line(systemd_analyze: str, installed: Path) -> None:
    environment = {**os.environ, "SYSTEMD_UNIT_PATH": f"{installed}/etc/systemd/system:"}
    command = [systemd_analyze, "verify", *SERVICES, "acts.target"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_service_is_closed_to_what_it_does_not_need(systemd_analyze: str, installed: Path) -> None:
    options = ["security", "--offline=true", f"--root={installed}", f"--threshold={MOST_EXPOSED}"]
    done = subprocess.run([systemd_analyze, *options, *SERVICES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("Overall exposure level") == len(SERVICES)


def test_services_run_the_commands_of_supervisord_and_each_reads_secrets_of_its_own() -> None:
    for name in WORKERS:
        command = _command(_text("acts-worker@.service") + _text(f"acts-worker@{name}.service.d/queues.conf"))
        expected = [word for word in program_commands()[name][2:] if word not in ("--processes", "1")]
        assert _without_name([word.replace("%i", name) for word in command]) == _without_name(["acts", *expected[1:]])
    assert "EnvironmentFile=/etc/acts/%i.env" in _text("acts-worker@.service")
    for name in ("ui", "metrics", "traces"):
        check_command(_command(_text(f"acts-{name}.service")))
        assert f"EnvironmentFile=/etc/acts/{name}.env" in _text(f"acts-{name}.service")


def test_a_worker_is_asked_once_to_end_and_has_the_time_that_it_has_elsewhere() -> None:
    common = _text("acts-.service.d/common.conf")
    assert "KillMode=mixed" in common  # a second signal, which its processes would get, ends them at once
    (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", common, re.MULTILINE)
    assert {programs()[name]["stopwaitsecs"] for name in WORKERS} == {seconds}
    assert (
        f"{seconds} seconds"
        in (ROOT / "deploy" / "README.md").read_text(encoding="utf-8").partition("## With systemd")[2]
    )


def _text(name: str) -> str:
    path = UNITS / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _command(text: str) -> list[str]:
    """What a unit executes: the last of its commands counts."""
    return ["acts", *re.findall(r"^ExecStart=(.+)$", text, re.MULTILINE)[-1].split()[1:]]


def _without_name(command: list[str]) -> list[str]:
    place = command.index("--name")
    return command[:place] + command[place + 2 :]
