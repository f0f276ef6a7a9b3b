"""Each run has its own session with an MCP server, and one at a time, in whichever worker its calls become ready."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from acts_celery import Client, Run, local
from acts_celery.broker_config import EmbeddedServer, McpServer
from acts_celery.worker.broker.messages import pack
from acts_celery.worker.registry.activities import Registry
from acts_celery.worker.registry.mcp_tools import register_tools
from acts_celery.worker.runner.application import make_client_application
from tests.environment import without_settings
from tests.few import few
from tests.worker.backend import DEADLINE_SECONDS, RUN_SECONDS, Backend, Meeting, meeting_url, settings_apart

from .test_tools_of_servers import SECONDS, admitted, outcome

SERVER = Path(__file__).with_name("counting_server.py")
COUNT = {"_tool": "web.count", "_outputPath": "†state.first"}
AGAIN = {"_tool": "web.count", "text": "†state.first", "_outputPath": "†state.second"}
MANY = [f"i{number}" for number in range(12)]
"""Instances."""


@dataclass
class Counting:
    """A counting server's folder, and how it is named."""

    folder: Path
    server: McpServer

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().split() if path.exists() else []


@pytest.fixture(params=["stdio", "http"])
def counting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Counting]:
    with counting_server(tmp_path, request.param) as found:
        yield found


@contextmanager
def counting_server(folder: Path, way: str, **more: Any) -> Iterator[Counting]:
    if way == "stdio":
        command = {"command": sys.executable, "args": [str(SERVER), str(folder)]}
        yield Counting(folder, McpServer.model_validate({**command, **more}))
        return
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listening:
        number = listening.fileno()
        http = [sys.executable, str(SERVER), str(folder), str(number)]
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        with subprocess.Popen(http, env=without_settings(), pass_fds=[number]) as process:
            try:
                yield Counting(folder, McpServer.model_validate({"url": url, **more}))
            finally:
                process.kill()


@dataclass
class Workers:
    """Workers that are processes of their own, and a client."""

    backend: Backend
    client: Client

    @contextmanager
    def one(self, name: str) -> Iterator[Any]:
        with self.backend.worker("-n", name) as process:
            yield process

    def disturb(self) -> None:
        """Send those that have sessions what is no message."""
        strange = (
            b"\xc1",
            b"",
            pack([]),
            pack({"id": 1, "from": "x", "call": {}}),
            pack({"id": 2, "from": [], "call": 3}),
        )
        for key in self.backend.redis.scan_iter("sessions:session:*"):
            self.backend.redis.rpush(key.removesuffix(b":messages") + b":messages", *strange)

    def retire(self, name: str) -> None:
        """Have a worker take at most one lane more, and live on."""
        app = make_client_application(self.backend.settings)
        [host] = [one for one in app.control.inspect(timeout=5).ping() if one.startswith(name)]
        how = {"destination": [host], "reply": True, "timeout": 10, "limit": 1}
        [answer] = app.control.cancel_consumer("sessions-instances", **how)
        assert "ok" in answer[host]


@contextmanager
def workers(counting: Counting) -> Iterator[Workers]:
    with ExitStack() as stack:
        tools = admitted(counting.folder, {"web": counting.server})
        server = stack.enter_context(EmbeddedServer())
        settings = settings_apart(
            server, "sessions", lease_seconds=2, sweep_interval_seconds=0.2, remote_control=True, **tools
        )
        own = Registry()
        register_tools(settings, own)
        client = stack.enter_context(Client(settings, registry=own))
        yield Workers(Backend(settings, Meeting(meeting_url(server)), counting.folder), client)


def until(is_so: Callable[[], bool]) -> None:
    begun = time.monotonic()
    while not is_so():
        assert time.monotonic() - begun < DEADLINE_SECONDS
        time.sleep(0.02)


def decide(run: Run, number: int) -> None:
    """Approve the calls that a run holds, once there are so many."""
    until(lambda: len(run.held()) == number)
    for held in run.held():
        run.approve(held["call"])


def begun(client: Client, number: int) -> list[Run]:
    """Runs of two calls, of which the first is done and the second waits for a person."""
    runs = [client.submit(solution={"calls": [COUNT, AGAIN]}, config={"approve": ["web.count"]}) for _ in range(number)]
    for run in runs:
        decide(run, 1)
    for run in runs:
        until(lambda run=run: [held["call"] for held in run.held()] == ["1"])  # type: ignore[misc]
    return runs


def state(run: Run) -> Any:
    return run.wait(timeout_seconds=RUN_SECONDS).data()["state"]


def test_runs_share_no_session_and_each_keeps_its_own_though_another_worker_goes_on_with_it(counting: Counting) -> None:
    with workers(counting) as both, both.one("first"):
        before = set(counting.lines("sessions"))  # that in which the tool was admitted
        runs = begun(both.client, 4)
        both.disturb()
        both.retire("first")
        with both.one("second"):
            for run in runs:
                decide(run, 1)
            found = [state(run) for run in runs]
            names = [str(run.wait().calls[1].worker) for run in runs]
            assert sum(not name.startswith("second") for name in names) <= 1, names
        assert [(one["first"]["n"], one["second"]["n"]) for one in found] == [(1, 2)] * 4
        assert all(one["first"]["session"] == one["second"]["session"] for one in found)
        assert len({one["first"]["session"] for one in found}) == 4
        until(lambda: set(counting.lines("sessions")) == set(counting.lines("ended")) | before)


@pytest.mark.parametrize("counting", few(["stdio", "http"], 1), indirect=True)
def test_the_instances_of_a_run_share_its_session_in_whichever_worker_they_are(counting: Counting) -> None:
    with workers(counting) as both, both.one("first"), both.one("second"):
        context = [{"type": "input", "_instance": name, "text": name} for name in MANY]
        call = {**COUNT, "_instance": "*", "text": "†input.text"}
        result = both.client.submit(context, solution={"calls": [call]}).wait(timeout_seconds=RUN_SECONDS)
        found = [result.data(name)["state"]["first"] for name in MANY]
        assert sorted(one["n"] for one in found) == list(range(1, len(MANY) + 1))
        assert len({one["session"] for one in found}) == 1


@pytest.mark.parametrize("counting", few(["stdio", "http"], 1), indirect=True)
def test_a_session_whose_worker_is_killed_is_lost_and_the_run_goes_on_in_another_and_says_so(
    counting: Counting,
) -> None:
    with workers(counting) as both:
        with both.one("first") as first:
            [run] = begun(both.client, 1)
            os.kill(first.pid, signal.SIGKILL)
        with both.one("second"):
            decide(run, 1)
            found = state(run)
        assert (found["first"]["n"], found["second"]["n"]) == (1, 1)
        [noted] = [
            entry.audit for entry in run.log(audit=True) if entry.audit and entry.audit.did.startswith("session")
        ]
        assert (noted.about["server"], noted.about["session"]) == ("web", 2)
        assert "worker process" in noted.about["because"]


def test_a_session_that_its_server_or_time_has_ended_is_followed_by_another_and_the_errors_say_so(
    tmp_path: Path,
) -> None:
    with counting_server(tmp_path, "stdio", idle_seconds=0.1) as counting:
        config = {"approve": ["web.count"]}
        tools = admitted(tmp_path, {"web": counting.server})
        before = set(counting.lines("sessions"))
        with local(**tools) as client:
            run = client.submit(solution={"calls": [COUNT, AGAIN]}, config=config)
            decide(run, 1)
            until(lambda: len(set(counting.lines("ended")) - before) == 1)
            decide(run, 1)
            assert state(run)["second"]["n"] == 1
            assert any("idle_seconds" in str(e.audit.about) for e in run.log(audit=True) if e.audit)
            context = [{"type": "input", "text": "fail"}]
            calls = [
                {"_tool": "web.count", "text": "end", "_outputPath": "†state.first"},
                {"_tool": "web.count", "text": "†state.first || †input.text", "_outputPath": "†state.second"},
            ]
            first, second = client.submit(context, solution={"calls": calls}).wait(timeout_seconds=SECONDS).calls
            assert first.error is not None
            assert second.error is not None
            assert (first.error["type"], "what that held is lost" in first.error["message"]) == ("McpUnavailable", True)
            assert (second.error["type"], "session 2" in second.error["message"]) == ("McpToolFailed", True)


def test_more_runs_than_may_have_a_session_wait_for_one_and_are_told_so(tmp_path: Path) -> None:
    with counting_server(tmp_path, "stdio", max_sessions=2, timeout_seconds=8) as counting:
        tools = admitted(tmp_path, {"web": counting.server})
        with local(**tools) as client:
            runs = [client.submit(solution={"calls": [COUNT]}) for _ in range(5)]
            assert [state(run)["first"]["n"] for run in runs] == [1] * 5
            begun(client, 2)
            kind, message = outcome(client, "web.count")
            assert (kind, "max_sessions" in message, "stateless" in message) == ("McpUnavailable", True, True)


def test_a_stateless_server_has_one_session_for_all_runs(tmp_path: Path) -> None:
    with counting_server(tmp_path, "stdio", stateless=True) as counting:
        tools = admitted(tmp_path, {"web": counting.server})
        with local(**tools) as client:
            assert [outcome(client, "web.count")["n"] for _ in range(3)] == [1, 2, 3]
