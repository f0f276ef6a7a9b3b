"""The client of another implementation that docs/mcp.md shows submits, watches and approves."""

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

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(shutil.which("npm") is None, reason="it takes npm")]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the client and its library."""
    folder = tmp_path_factory.mktemp("npm")
    [code] = re.findall(r"^```js\n(.*?)^```$", (ROOT / "docs" / "mcp.md").read_text(), re.MULTILINE | re.DOTALL)
    (folder / "client.mjs").write_text(code.replace('"order"', '"echo"').replace("what:", "value:"))
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
