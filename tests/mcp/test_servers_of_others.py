"""An agent over two servers at addresses that others wrote, of which one is killed in the middle of a call."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from acts_celery import local
from acts_celery.broker_config import McpServer
from tests.environment import without_settings

from .test_tools_of_servers import SECONDS, admitted, outcome

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(shutil.which("npm") is None, reason="it takes npm")]

SERVER = "@modelcontextprotocol/server-everything"
LONG = "slow.trigger-long-running-operation"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("npm")
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", f"{SERVER}@2026.8.31"]
    subprocess.run(command, cwd=folder, check=True, timeout=300)
    return folder / "node_modules" / SERVER / "dist" / "index.js"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@contextmanager
def serving(script: Path, port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**without_settings(), "PATH": os.environ["PATH"], "PORT": str(port)}
    log.touch()
    with (
        log.open("ab") as out,
        subprocess.Popen(["node", script, "streamableHttp"], env=environment, stdout=out, stderr=out) as process,
    ):
        try:
            wait_for(log, lambda said: "listening on port" in said)
            yield process
        finally:
            process.kill()


def is_at_work(said: str) -> bool:
    """Whether the session behind that in which the tools were admitted has begun, listed them, and called one."""
    _, *sessions = said.split("Session initialized")
    return len(sessions) == 2 and sessions[1].count("POST") == 3


def wait_for(log: Path, is_said: Callable[[str], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_said(log.read_text()):
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)


def test_an_agent_uses_both_and_outlives_that_one_is_killed_in_the_middle_of_a_call(
    installed: Path, tmp_path: Path
) -> None:
    ports, log = {"quick": free_port(), "slow": free_port()}, tmp_path / "slow.log"
    servers = {
        name: McpServer.model_validate({"url": f"http://127.0.0.1:{port}/mcp", "retries": 5})
        for name, port in ports.items()
    }
    with ExitStack() as stack:
        stack.enter_context(serving(installed, ports["quick"], tmp_path / "quick.log"))
        first = stack.enter_context(serving(installed, ports["slow"], log))
        with local(**admitted(tmp_path, servers)) as client:
            calls = [
                {"_tool": "quick.get-sum", "a": 2, "b": 3, "_outputPath": "†state.sum"},
                {"_tool": LONG, "duration": 4, "steps": 4, "_outputPath": "†state.done"},
            ]
            client.model({"calls": calls, "output": None}, {"calls": [], "output": "both"})
            tools = ["quick.get-sum", LONG]
            run = client.submit(["Use both."], schema={"type": "string"}, tools=tools)
            wait_for(log, is_at_work)
            first.kill()
            first.wait()
            with serving(installed, ports["slow"], tmp_path / "again.log"):
                result = run.wait(timeout_seconds=SECONDS)
            assert result.output == "both", result.to_dict()
            assert "5" in str(result.data()["state"]["sum"])
            assert "completed" in str(result.data()["state"]["done"]).lower()


def test_resources_and_prompts_of_a_server_that_others_wrote_are_read(installed: Path, tmp_path: Path) -> None:
    servers = {"web": McpServer.model_validate({"command": "node", "args": [str(installed), "stdio"]})}
    with local(**admitted(tmp_path, servers)) as client:
        listed = outcome(client, "list_resources")
        text = next(each for each in listed if each["mimeType"].startswith("text/"))
        assert isinstance(outcome(client, "read_resource", uri=text["uri"]), str)
        prompts = {each["name"] for each in outcome(client, "list_prompts")}
        [said] = outcome(client, "get_prompt", name=min(name for name in prompts if "simple" in name))
        assert said["role"] == "user"
