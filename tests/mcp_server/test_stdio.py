"""An MCP client over standard input and output reads, submits and decides."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest
from click.testing import CliRunner
from mcp import MCPError

from acts_celery.worker.cli.mcp import mcp
from tests.worker.backend import Backend

from .asking import call, on_stdio, refused

ECHO = {"calls": [{"_tool": "echo", "value": "tea", "_outputPath": "†state.drink"}], "output": "†state.drink"}
READING = {"check", "runs", "status", "result", "instances", "explain", "held"}
DOING = {"submit", "approve", "reject", "answer", "cancel"}


def test_without_write_a_client_reads_and_changes_nothing(backend: Backend) -> None:
    run = backend.client.submit([], ECHO, name="read").id
    backend.wait(run)

    async def ask() -> None:
        async with on_stdio(backend) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert set(tools) == READING
            assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools.values())
            assert (await call(client, "result", run="read"))["output"] == "tea"
            assert (await call(client, "status", run=run))["counts"] == {"done": 1}
            assert (await call(client, "explain", run=run, path="state.drink"))["value"] == "tea"
            assert run in [each["run"] for each in (await call(client, "runs"))["runs"]]
            wrong = {"calls": [{"_tool": "nothing"}], "output": None}
            found = await call(client, "check", document={"context": [], "solution": wrong})
            assert (found["valid"], found["errors"][0]["pointer"]) == (False, "/solution/calls/0/_tool")
            assert (await call(client, "check", document={"context": [], "solution": ECHO}))["valid"]
            for tool in DOING:
                assert (await refused(client, tool, run=run))[0] == "NotAdmitted"
            with pytest.raises(MCPError):
                await client.call_tool("delete_everything", {})

    before = [each.run for each in backend.client.runs()]
    asyncio.run(ask())
    assert [each.run for each in backend.client.runs()] == before


def test_a_client_submits_waits_with_progress_and_approves_what_was_shown(backend: Backend, name: str) -> None:
    calls = [
        {"_tool": "waitAtGate", "gate": name, "value": 1, "_outputPath": "†state.one"},
        {"_tool": "echo", "value": "†state.one", "_outputPath": "†state.two"},
    ]
    document = {"context": [], "solution": {"calls": calls, "output": "†state.two"}, "config": {"approve": ["echo"]}}
    heard: list[str | None] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message)
        backend.meeting.open_gate(name)

    async def ask() -> None:
        async with on_stdio(backend, "--write") as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == READING | DOING
            run = (await call(client, "submit", document=document, key="one"))["run"]
            assert (await call(client, "submit", document=document, key="one"))["run"] == run
            arguments = {"run": run, "wait_seconds": 50}
            waited = await client.call_tool("result", arguments, progress_callback=hear)
            assert waited.structured_content["held"] == 1
            assert heard[0] is not None
            assert heard[0].startswith(f"run {run}: ")
            [held] = (await call(client, "held", run=run))["held"]
            assert held["parameters"] == {"value": 1}
            about = {"run": run, "call": held["call"]}
            assert (await refused(client, "approve", **about))[0] == "BadQuery"
            assert (await refused(client, "approve", **about, shown="1-1"))[0] == "HeldAnew"
            await call(client, "approve", **about, shown=held["shown"])
            assert (await call(client, "result", **arguments))["output"] == 1
            assert (await refused(client, "reject", **about, shown=held["shown"], reason="no"))[0] == "AlreadyDecided"

    asyncio.run(ask())


def test_what_is_asked_wrongly_is_refused_with_what_to_do(backend: Backend) -> None:
    async def ask() -> None:
        async with on_stdio(backend, "--write") as client:
            kind, text = await refused(client, "status", run="no-such-run")
            assert (kind, text[:18]) == ("RunNotFound", "no run no-such-run")
            kind, text = await refused(client, "result", run=7, much=True)
            assert kind == "BadArguments"
            assert "run: " in text
            assert "much: " in text
            assert (await refused(client, "result", run="x", wait_seconds=1e9))[0] == "BadArguments"
            assert (await refused(client, "submit", document={"context": 7}))[0] == "Rejected"
            given = {"role": "user", "content": [{"type": "file", "file": "/etc/passwd"}]}
            request = {"context": [given], "schema": {"type": "string"}}
            assert (await refused(client, "submit", document=request))[0] == "Rejected"

    asyncio.run(ask())


def test_a_large_result_is_cut_and_each_part_of_it_can_be_had(backend: Backend) -> None:
    value: dict[str, Any] = {"many": ["x" * 100] * 5_000, "†": "†state.secret", "small": 1}
    call_ = {"_tool": "echo", "value": "†data.given", "_outputPath": "†state.got"}
    run = backend.client.submit(
        [{"type": "data", "data": {"given": value}}], {"calls": [call_], "output": "†state.got"}
    ).id
    backend.wait(run)

    async def ask() -> None:
        async with on_stdio(backend) as client:
            whole = await call(client, "result", run=run)
            assert len(json.dumps(whole)) < 100_000
            assert whole["output"]["small"] == 1
            assert whole["output"]["many"]["…cut"]["bytes"] > 500_000
            assert (await call(client, "result", run=run, pointer="/many/4999"))["value"] == "x" * 100
            assert (await call(client, "result", run=run, path="state.got.many.3"))["value"] == "x" * 100
            assert "†state.secret" in (await call(client, "result", run=run, path='state.got["†"]'))["value"]
            assert (await refused(client, "result", run=run, pointer="/none"))[0] == "NoValue"

    asyncio.run(ask())


@pytest.mark.nightly
def test_a_server_ends_with_its_client_and_at_sigterm(backend: Backend) -> None:
    command = [sys.executable, "-m", "acts_celery", "mcp"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=backend.environment(), cwd=backend.folder, **pipes) as process:
        _, said = process.communicate(timeout=60)
        assert (process.returncode, said) == (0, b"")
    ping = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    ping += b'"clientInfo":{"name":"old","version":"1"}}}\n'
    with subprocess.Popen(command, env=backend.environment(), cwd=backend.folder, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(ping)
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["result"]["serverInfo"]["name"] == "acts-celery"
        process.terminate()
        assert process.wait(60) == 143


def test_an_option_of_the_server_before_a_command_is_refused() -> None:
    refused_ = CliRunner().invoke(mcp, ["--write", "tools"])
    assert refused_.exit_code == 2
    assert "--write is of the server" in refused_.output
