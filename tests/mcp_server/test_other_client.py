"""Clients of other implementations that docs/mcp.md shows submit, watch, answer and approve."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import ROOT
from tests.worker.backend import Backend

from .asking import served

ANN = "ann-0123456789abc"

pytestmark = pytest.mark.nightly


def shown(language: str) -> str:
    """The one block of a language in the page, with an activity that the tests have."""
    page = (ROOT / "docs" / "mcp.md").read_text(encoding="utf-8")
    code: str
    [code] = re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    return code.replace('"order"', '"echo"').replace("what:", "value:").replace('"what":', '"value":')


# The SDK for JavaScript.


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the client and its library."""
    if shutil.which("npm") is None:
        pytest.skip("it takes npm")
    folder = tmp_path_factory.mktemp("npm")
    (folder / "client.mjs").write_text(shown("js"), encoding="utf-8")
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "@modelcontextprotocol/sdk@1.32"]
    subprocess.run(command, cwd=folder, check=True, timeout=300)
    return folder


def used(backend: Backend, library: Path, place: str, **environment: str) -> str:
    bin_ = str(Path(sys.executable).parent)
    done = subprocess.run(
        ["node", "client.mjs", place],
        cwd=library,
        env=backend.environment(PATH=f"{bin_}{os.pathsep}{os.environ['PATH']}", **environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_on_standard_input_and_output(backend: Backend, library: Path) -> None:
    assert used(backend, library, "acts") == "tea\n"


def test_over_http(backend: Backend, library: Path) -> None:
    with served(backend, ACTS_MCP_TOKENS=f"ann:submit+decide:{ANN}") as said:
        assert used(backend, library, said["url"], TOKEN=ANN) == "tea\n"


# fastmcp, which has the tasks extension.


def test_a_client_with_tasks_answers_and_approves(backend: Backend, tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=300)
    install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "fastmcp-tasks==4.1.4"]
    subprocess.run(install, check=True, timeout=600)
    (tmp_path / "client.py").write_text(shown("py"), encoding="utf-8")
    with served(backend, ACTS_MCP_TOKENS=f"ann:submit+decide:{ANN}") as said:
        command = [str(python), "client.py", said["url"]]
        environment = {"TOKEN": ANN, "PATH": os.environ["PATH"]}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=120
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("How many?\nMay echo run with this?")
    assert done.stdout.endswith("\n2\n")
