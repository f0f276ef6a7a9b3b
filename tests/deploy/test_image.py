"""What an image `FROM` ours installs is where its workers look: the same pip, environment and variables, no Docker."""

from __future__ import annotations

import os
import re
import shutil
import site
import subprocess
import sys
import zipfile
from pathlib import Path

from tests.environment import without_settings

from .files import DEPLOY, instructions

ENVIRONMENT = "/opt/acts"
ACTIVITY = """
import their_library
from acts_celery import activity

@activity
def double(number: int) -> int:
    return their_library.double(number)
"""


def test_a_users_pip_install_lands_where_the_workers_look(tmp_path: Path) -> None:
    (made,) = (text for text in instructions("RUN") if "-m venv" in text)
    assert f"python -m venv --without-pip {ENVIRONMENT} " in made
    acts = tmp_path / "acts"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(acts)], check=True)
    (packages,) = acts.glob("lib/python3*/site-packages")
    (here,) = site.getsitepackages()
    (packages / "ours.pth").write_text(f"import site; site.addsitedir({here!r})\n", encoding="utf-8")
    (variables,) = (text for text in instructions("ENV") if "PATH" in text)
    given = dict(pair.split("=", 1) for pair in variables.replace(ENVIRONMENT, str(acts)).split())
    given["PATH"] = given["PATH"].replace("$PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    given["ACTS_HEALTH_FOLDER"] = str(tmp_path / "health")
    environment = without_settings() | given
    # As the page says it, but for what is installed.
    page = (DEPLOY / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^RUN (pip install) pandas$", page, re.MULTILINE)
    assert given["PIP_PYTHON"] == str(acts / "bin" / "python")  # or it would be installed beside what runs the tests
    words = [*command.split(), "-qq", "--no-index", "--no-deps", "--disable-pip-version-check", str(_wheel(tmp_path))]
    pip = shutil.which(words[0], path=given["PATH"])
    assert pip is not None
    subprocess.run([pip, *words[1:]], env=environment, check=True, timeout=120)
    assert (packages / "their_library.py").exists()
    (tmp_path / "reviews.py").write_text(ACTIVITY, encoding="utf-8")
    document = '{"calls": [{"_tool": "double", "number": 4, "_outputPath": "†state.n"}]}'
    checked = subprocess.run(
        [str(acts / "bin" / "python"), "-m", "acts_celery", "check", "-", "--activities", "reviews.py"],
        env=environment,
        cwd=tmp_path,
        input=document,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr


def _wheel(folder: Path) -> Path:
    """A library of the user's own, packed."""
    name = folder / "their_library-1-py3-none-any.whl"
    about = "their_library-1.dist-info"
    with zipfile.ZipFile(name, "w") as packed:
        packed.writestr("their_library.py", "def double(number):\n    return 2 * number\n")
        packed.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: their_library\nVersion: 1\n")
        packed.writestr(
            f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: none\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        packed.writestr(
            f"{about}/RECORD", f"their_library.py,,\n{about}/METADATA,,\n{about}/WHEEL,,\n{about}/RECORD,,\n"
        )
    return name
