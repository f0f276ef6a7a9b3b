"""A client of another implementation, which speaks an older version of the protocol, submits, watches and approves."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worker.backend import Backend

from .asking import served

CLIENT = Path(__file__).with_name("other_client.mjs")
ANN = "ann-0123456789abc"

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(shutil.which("npm") is None, reason="it takes npm")]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the client's library."""
    folder = tmp_path_factory.mktemp("npm")
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "@modelcontextprotocol/sdk@1.32"]
    subprocess.run(command, cwd=folder, check=True, timeout=300)
    return folder


def used(backend: Backend, library: Path, *arguments: str) -> object:
    done = subprocess.run(
        ["node", str(CLIENT), *arguments],
        cwd=library,
        env=backend.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["output"]


def test_on_standard_input_and_output(backend: Backend, library: Path) -> None:
    assert used(backend, library, "stdio", sys.executable, "-m", "acts_celery", "mcp", "--write") == "tea"


def test_over_http(backend: Backend, library: Path) -> None:
    with served(backend, ACTS_MCP_TOKENS=f"ann:submit+decide:{ANN}") as said:
        assert used(backend, library, "http", said["url"], ANN) == "tea"
