"""Files of the user's own with the names of our packages: `acts` works all the same, others say which file it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .command import ROOT, environment

ACTIVITIES = "from worker import activity\n\n\n@activity\ndef greet(name: str) -> str:\n    return name\n"
SUBMISSION = '{"solution": {"calls": [{"_tool": "greet", "name": "Ada", "_outputPath": "†state.a"}]}}'


def ended(folder: Path, *command: str, path: str = "") -> subprocess.CompletedProcess[str]:
    """A command in a folder, whose search path begins with that folder where `path` says so."""
    env = environment()
    env["PYTHONPATH"] = os.pathsep.join(filter(None, (path, str(ROOT))))
    return subprocess.run(
        [sys.executable, *command], cwd=folder, env=env, input=SUBMISSION, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", ["worker.py", "protocol.py", "broker_config.py", "worker/__init__.py"])
def test_acts_works_where_a_file_has_the_name_of_a_package(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("raise SystemExit('not this one')\n")
    (tmp_path / "mine.py").write_text(ACTIVITIES)
    entry = ("-P", "-c", "import sys; sys.argv[0] = 'acts'; from acts_celery import run; run()")
    told = ended(tmp_path, *entry, "run", "-", "--quiet", "--activities", "mine.py", path=".")
    assert (told.returncode, told.stderr) == (0, ""), told
    assert told.stdout.startswith("completed")


def test_a_script_beside_such_a_file_gets_its_name(tmp_path: Path) -> None:
    (tmp_path / "protocol.py").write_text("")
    (tmp_path / "script.py").write_text("from worker import Client\n")
    told = ended(tmp_path, "script.py")
    assert told.returncode == 1
    assert told.stderr.splitlines()[-1].startswith(f"ImportError: {tmp_path}/protocol.py is in the way: it hides")
    assert "python -P" in told.stderr
    assert ended(tmp_path, "-P", "script.py").returncode == 0


def test_celery_says_it_too(tmp_path: Path) -> None:
    (tmp_path / "protocol.py").write_text("")
    told = ended(tmp_path, "-P", "-m", "celery", "-A", "worker", "report")
    assert told.returncode != 0
    assert f"{tmp_path}/protocol.py is in the way" in told.stderr
