"""`deploy/up.py` and supervisord refuse what cannot work, before anything starts."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from dotenv import dotenv_values

from .files import DEPLOY, NAMES, SUPERVISED

PASSWORDS = dict.fromkeys(SUPERVISED, "a")
DEADLINE_SECONDS = 30


def run_up(environment: Mapping[str, str], folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a copy of it: beside the original there may be passwords."""
    copied = shutil.copytree(DEPLOY, folder / "deploy", dirs_exist_ok=True, ignore=shutil.ignore_patterns(".env"))
    kept = {name: value for name, value in os.environ.items() if name not in PASSWORDS}
    return subprocess.run(
        [sys.executable, str(copied / "up.py"), *arguments],
        capture_output=True,
        text=True,
        env=kept | dict(environment),
        timeout=DEADLINE_SECONDS,
        check=False,
    )


def test_nothing_starts_without_the_passwords(tmp_path: Path) -> None:
    for environment in ({}, dict.fromkeys(PASSWORDS, "")):
        refused = run_up({**environment, "DEPLOY_DIRECTORY": str(tmp_path / "new")}, tmp_path)
        assert refused.returncode == 2
        assert all(f"set {name} " in refused.stderr for name in PASSWORDS)
        assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REDIS_PASSWORD_FLOWER", "with blank"),
        ("REDIS_MEMORY", "much"),
        ("FLOWER_PASSWORD", "one,two"),
        ("REDIS_PORT", "65536"),
        ("FLOWER_PORT", "http"),
        ("INSTANCE_WORKERS", "0"),
        ("DEPLOY_DIRECTORY", "/nowhere/" + "x" * 100),
    ],
)
def test_a_value_that_cannot_work_is_refused_by_name(name: str, value: str, tmp_path: Path) -> None:
    refused = run_up({**PASSWORDS, name: value}, tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"deploy/up.py: {name} ")
    assert refused.stderr.count("\n") == 1


def test_a_folder_that_it_makes_keeps_itself_out_of_git_and_one_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    for name in ("old", "var/new"):
        run_up({**PASSWORDS, "DEPLOY_DIRECTORY": str(tmp_path / name)}, tmp_path, "version")
    assert (tmp_path / "var/new/.gitignore").read_text(encoding="utf-8") == "*\n"
    assert not (tmp_path / "old/.gitignore").exists()


@pytest.mark.parametrize("missing", ["FLOWER_PASSWORD", "REDIS_PASSWORD_DELEGATES"])
def test_supervisord_by_itself_refuses_to_start_without_a_password(missing: str, tmp_path: Path) -> None:
    environment = {
        **PASSWORDS,
        "DEPLOY_DIRECTORY": str(tmp_path),
        "REDIS_PORT": "1",
        "REDIS_USERS": "none",
        "REDIS_MEMORY": "1gb",
        "FLOWER_PORT": "1",
        "FLOWER_USER": "acts",
        "UI_PORT": "1",
        "INSTANCE_WORKERS": "1",
        "PATH": os.environ.get("PATH", ""),
    }
    del environment[missing]
    (tmp_path / "logs").mkdir()
    refused = subprocess.run(
        [sys.executable, "-m", "supervisor.supervisord", "-n", "-c", str(DEPLOY / "supervisord.conf")],
        capture_output=True,
        text=True,
        env=environment,
        timeout=DEADLINE_SECONDS,
        check=False,
    )
    assert refused.returncode == 2
    assert f"ENV_{missing}" in refused.stdout + refused.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["logs"]


def test_the_passwords_that_are_made_are_those_asked_for_and_are_made_once(tmp_path: Path) -> None:
    copied = shutil.copytree(DEPLOY, tmp_path / "deploy", ignore=shutil.ignore_patterns(".env"))
    for _ in range(2):
        subprocess.run([sys.executable, str(copied / "passwords.py")], check=True, capture_output=True)
        made = dotenv_values(copied / ".env")
        assert len(set(made.values())) == len(NAMES)
        assert (copied / ".env").stat().st_mode & 0o777 == 0o600
    refused = run_up({"REDIS_PORT": "none"}, tmp_path)
    assert refused.stderr == "deploy/up.py: REDIS_PORT must be a port number\n", "and nothing else is missing"


def test_the_variables_supervisord_reads_are_those_that_up_knows() -> None:
    text = (DEPLOY / "supervisord.conf").read_text(encoding="utf-8")
    read = set(re.findall(r"%\(ENV_(\w+)\)s", text))
    descriptions = re.findall(r"^;   ([A-Z_]+(?:, [A-Z_]+)*)(?:,$|  )", text, re.MULTILINE)
    described = {name for names in descriptions for name in names.split(", ")}
    known = set(re.findall(r'^    "([A-Z_]+)": (?:Variable\(|PASSWORD,)', (DEPLOY / "up.py").read_text(), re.MULTILINE))
    assert read == described == known
