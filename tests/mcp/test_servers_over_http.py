"""MCP servers at an address: a server that is killed, hangs, changes, floods, is not there or refuses the key; and a
worker that is killed while it waits for one.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from acts_celery import Client, WorkerError, local
from acts_celery.broker_config import EmbeddedServer, McpServer, load
from acts_celery.worker.cli.mcp import listed
from acts_celery.worker.registry.activities import Registry
from acts_celery.worker.registry.mcp_tools import register_tools
from tests.environment import without_settings
from tests.worker.backend import DEADLINE_SECONDS, RUN_SECONDS, Backend, Meeting, meeting_url, settings_apart

from .test_tools_of_servers import admitted, outcome

SERVER = Path(__file__).with_name("sdk_server.py")


@dataclass
class At:
    """An address at which servers follow each other; what connects in between waits for the next."""

    folder: Path
    key: str
    listening: socket.socket = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        self.listening = socket.create_server(("127.0.0.1", 0))

    @contextmanager
    def server(self) -> Iterator[subprocess.Popen[bytes]]:
        number = self.listening.fileno()
        command = [sys.executable, str(SERVER), str(self.folder), str(number), self.key]
        with (
            self.log.open("ab") as log,
            subprocess.Popen(command, env=without_settings(), pass_fds=[number], stdout=log, stderr=log) as process,
        ):
            try:
                yield process
            finally:
                process.kill()

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def named(self, **more: Any) -> McpServer:
        """As the settings name it; its key is in a variable."""
        return at(self.listening, "${MCP_TEST_" + self.folder.name.upper() + "}", **more)

    def said(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []


def at(listening: socket.socket, key: str, **more: Any) -> McpServer:
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
    return McpServer.model_validate({"url": url, "headers": {"Authorization": f"Bearer {key}"}, **more})


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[At]:
    place = At(tmp_path / "web", "key-of-web")
    monkeypatch.setenv("MCP_TEST_WEB", place.key)
    with place.listening:
        yield place


def test_a_server_that_is_killed_hangs_floods_or_changes_spoils_its_own_calls_alone(tmp_path: Path, web: At) -> None:
    servers = {"web": web.named(retries=5), "slow": web.named(timeout_seconds=3)}
    with web.server() as first, local(**admitted(tmp_path, servers), limit_call_bytes=500_000) as client:
        assert outcome(client, "echo", text="tea") == "tea"
        (web.folder / "description").write_text("Sends the text to others.")
        run = client.submit(solution={"calls": [{"_tool": "web.die_once", "_outputPath": "†state.found"}]})
        assert first.wait(RUN_SECONDS) == -signal.SIGKILL
        with web.server():
            assert run.wait(timeout_seconds=RUN_SECONDS).data()["state"]["found"] == "done"
            assert web.said("calls").count("die_once") == 2
            kind, message = outcome(client, "echo", text="tea")
            assert (kind, "acts mcp admit web.echo" in message) == ("McpToolChanged", True)
            kind, message = outcome(client, "flood")
            assert (kind, "ACTS_LIMIT_CALL_BYTES" in message, "500,000" in message) == ("McpRefused", True, True)
            assert web.said("calls").count("flood") == 1
            assert outcome(client, "slow.hang")[0] == "TimeoutError"
            assert outcome(client, "cancelled") == "done"
    with web.server(), local(**admitted(tmp_path, servers)) as client:
        assert outcome(client, "echo", text="tea") == "tea"


def test_an_error_that_a_server_answers_over_http_is_its_tools_though_it_reads_like_one_of_the_transport(
    tmp_path: Path, web: At
) -> None:
    servers = {"web": web.named(retries=2)}
    with web.server(), local(**admitted(tmp_path, servers)) as client:
        assert outcome(client, "refuse") == (
            "McpRefused",
            "MCP server web refused: SSE stream ended without a response",
        )
        assert web.said("calls") == ["refuse"]


def test_a_server_of_the_version_without_sessions_has_one_for_each_run_and_none_where_it_is_stateless(
    tmp_path: Path, web: At
) -> None:
    servers = {"web": web.named(), "shared": web.named(stateless=True)}
    with web.server(), local(**admitted(tmp_path, servers)) as client:
        assert not any(web.said("sessions"))
        for _ in range(2):
            assert outcome(client, "shared.echo", text="tea") == "tea"
        assert not any(web.said("sessions"))
        for _ in range(2):
            assert outcome(client, "web.echo", text="tea") == "tea"
        assert len(set(filter(None, web.said("sessions")))) == 2


def test_an_address_that_speaks_something_else_is_named_by_its_status() -> None:
    class Other(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Nothing."""

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_error(405)

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/sse"
        found = listed(load(mcp={"web": McpServer.model_validate({"url": url})}), ["web"])["web"]
        server.shutdown()
    assert isinstance(found, WorkerError)
    assert all(word in str(found) for word in ("HTTP 405 Method Not Allowed", "only streamable HTTP"))


def test_each_server_is_sent_its_own_key_and_one_that_is_not_there_spoils_no_other(
    tmp_path: Path, web: At, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = At(tmp_path / "other", "key-of-other")
    monkeypatch.setenv("MCP_TEST_OTHER", other.key)
    with other.listening, web.server(), other.server(), socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))  # and does not listen
        servers = {"web": web.named(), "other": other.named()}
        settings = admitted(tmp_path, servers)
        known = json.loads((tmp_path / "tools.json").read_text())
        known |= dict.fromkeys(("dead", "keyless"), known["web"])
        (tmp_path / "tools.json").write_text(json.dumps(known))
        settings["mcp"] = servers | {"dead": at(dead, "x"), "keyless": at(web.listening, "old")}
        with local(**settings) as client:
            assert outcome(client, "dead.echo")[0] == "McpUnavailable"
            kind, message = outcome(client, "keyless.echo")
            assert (kind, "HTTP 401" in message, '"headers"' in message) == ("McpUnavailable", True, True)
            assert outcome(client, "web.echo", text="tea") == "tea"
            assert outcome(client, "other.echo", text="tea") == "tea"
        assert set(other.said("keys")) == {"Bearer key-of-other"}
        assert set(web.said("keys")) == {"Bearer key-of-web", "Bearer old"}


@pytest.mark.parametrize("way", [pytest.param("stdio", marks=pytest.mark.nightly), "http"])
def test_a_call_begins_again_elsewhere_when_its_worker_is_killed_while_it_waits_for_the_server(
    tmp_path: Path, web: At, way: str
) -> None:
    command = {"command": sys.executable, "args": [str(SERVER), str(web.folder)]}
    servers = {"web": web.named() if way == "http" else McpServer.model_validate(command)}
    with ExitStack() as stack:
        if way == "http":
            stack.enter_context(web.server())
        tools = admitted(tmp_path, servers)
        server = stack.enter_context(EmbeddedServer())
        settings = settings_apart(server, "mcp", lease_seconds=2, sweep_interval_seconds=0.2, **tools)
        backend = Backend(settings, Meeting(meeting_url(server)), tmp_path)
        own = Registry()
        register_tools(settings, own)
        client = stack.enter_context(Client(settings, registry=own))
        with backend.worker(MCP_TEST_WEB=web.key) as victim:
            run = client.submit([], {"calls": [{"_tool": "web.hang_once", "_outputPath": "†state.found"}]})
            begun = time.monotonic()
            while not web.said("calls"):
                assert time.monotonic() - begun < DEADLINE_SECONDS, backend.log.read_text()
                time.sleep(0.01)
            os.kill(victim.pid, signal.SIGKILL)
        with backend.worker(MCP_TEST_WEB=web.key):
            assert run.wait(timeout_seconds=RUN_SECONDS).data()["state"]["found"] == "done"
        assert web.said("calls") == ["hang_once", "hang_once"]
