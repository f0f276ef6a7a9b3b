"""This backend as an MCP server: documents, delegates, over stdio."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import pytest
from click.testing import CliRunner
from mcp import MCPError

from acts_celery import ActivitiesError
from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.cli.serving import mcp
from acts_celery.worker.errors import BadQuery
from acts_celery.worker.limits import DOCUMENTS_SMALL_BYTES
from acts_celery.worker.mcp.code_tools import CodeTool, code_tools
from acts_celery.worker.mcp.documents import Documents
from acts_celery.worker.mcp.tools import Principal
from acts_celery.worker.ui.access import Refused
from tests.worker.backend import Backend, Meeting, meeting_url, settings_apart

from .asking import call, on_stdio, over_http, refused, served

# Large documents: they are checked and submitted in processes of their own, within limits for each visitor.

ANN, BEN = "ann-0123456789abc", "ben-0123456789abc"
LARGE: Final = 31_000_000


def chain(number: int, **more: Any) -> dict[str, Any]:
    """A submission in which each call reads what the one before it has written."""
    calls = [
        {"_tool": "echo", "value": f"†state.r{at - 1}" if at else 1, "_outputPath": f"†state.r{at}"}
        for at in range(number)
    ]
    return {"context": [], "solution": {"calls": calls, "output": f"†state.r{number - 1}"}, **more}


def message(**arguments: Any) -> bytes:
    """A call of `check` as it is sent."""
    called = {"name": "check", "arguments": arguments}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": called}).encode()


@pytest.fixture(scope="module")
def url(backend: Backend) -> Iterator[str]:
    with served(backend, ACTS_MCP_TOKENS=f"ann:submit:{ANN},ben:read:{BEN}") as said:
        yield said["url"]


def test_a_large_document_is_answered_as_a_small_one_is(backend: Backend, url: str) -> None:
    assert len(message(document=chain(300))) > DOCUMENTS_SMALL_BYTES
    broken = chain(300)
    broken["solution"]["calls"][7]["value"] = "†state.nothing"

    async def ask() -> None:
        async with over_http(url, ANN) as ann, over_http(url, BEN) as ben:
            few, many = await call(ben, "check", document=chain(3)), await call(ben, "check", document=chain(300))
            assert (few["valid"], many["valid"], many["waves"][-1]) == (True, True, [299])
            [error] = (await call(ben, "check", document=broken))["errors"]
            assert error["pointer"] == "/solution/calls/7/value"
            assert (await refused(ben, "submit", document=chain(300)))[0] == "NotAdmitted"
            assert (await refused(ben, "result", run="x" * 20_000))[0] == "BadArguments"
            run = (await call(ann, "submit", document=chain(300), name="large"))["run"]
            assert (await call(ann, "result", run=run, wait_seconds=50))["output"] == 1
            audit = [entry.audit for entry in backend.client.run(run).log(audit=True) if entry.audit]
            assert [(one.actor.name, one.actor.is_authenticated) for one in audit] == [("ann", True)]

    asyncio.run(ask())


def test_a_document_that_comes_as_its_json_text_is_read_as_what_it_holds(url: str) -> None:
    async def ask() -> None:
        async with over_http(url, ANN) as ann:
            assert (await call(ann, "check", document=json.dumps(chain(3))))["valid"] is True
            run = (await call(ann, "submit", document=f" {json.dumps(chain(3))}\n"))["run"]
            assert (await call(ann, "result", run=run, wait_seconds=50))["output"] == 1
            kind, text = await refused(ann, "check", document='{"context": [], "context": []}')
            assert (kind, "twice" in text) == ("BadArguments", True)
            kind, text = await refused(ann, "check", document='{"context": [')
            assert (kind, "not JSON" in text) == ("BadArguments", True)
            assert (await refused(ann, "check", document="tea"))[0] == "BadArguments"

    asyncio.run(ask())


def test_others_are_answered_while_a_large_document_is_checked(url: str) -> None:
    async def ask() -> None:
        async with over_http(url, BEN) as ben, httpx2.AsyncClient(timeout=60) as http:
            checking = asyncio.create_task(call(ben, "check", document=chain(5_000)))
            answered = 0
            while not checking.done():
                assert (await http.get(url.removesuffix("/mcp") + "/health")).status_code == 200
                answered += 1
            assert (await checking)["valid"]
            assert answered > 10

    asyncio.run(ask())


def test_a_visitor_has_the_bytes_of_one_large_body_under_way(url: str) -> None:
    def post(token: str) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        return httpx2.post(url, content=b" " * 2_000_000, headers=headers, timeout=60)

    place = urlsplit(url)
    with socket.create_connection((place.hostname, place.port)) as slow:
        head = f"POST /mcp HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer {BEN}\r\nExpect: 100-continue\r\n"
        slow.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {LARGE + 2_000_000}\r\n\r\n".encode())
        assert slow.recv(100).startswith(b"HTTP/1.1 100")  # it reads the body now, which does not come
        answer = post(BEN)
        assert (answer.status_code, answer.json()["error"]["type"]) == (429, "TooManyBytes")
        assert int(answer.headers["retry-after"]) > 0
        assert post(ANN).status_code == 400


def test_a_process_that_has_ended_is_replaced_and_time_is_limited(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ask() -> None:
        some = Documents(backend.settings)
        body, ben = message(document=chain(300)), Principal("ben", frozenset(("read",)))
        for _ in range(2):
            done = await some.run(body, ben)
            assert done is not None
            assert not done.result.is_error
            [process] = some._idle
            os.kill(process.pid, signal.SIGKILL)
            await process.wait()
        monkeypatch.setattr("acts_celery.worker.limits.SPENT_SECONDS", -1.0)
        with pytest.raises(Refused, match="later") as refusal:
            await some.run(body, ben)
        assert (refusal.value.status, "Retry-After" in refusal.value.headers) == (429, True)
        await some.close()

    asyncio.run(ask())


# A delegate that is a tool: each call of it is a run, which outlives its client and the worker that had it.

ANN_DELEGATES, BEN_DELEGATES = "ann-0123456789abc", "ben-0123456789abc"
TOKENS = f"ann:submit:{ANN_DELEGATES},ben:read:{BEN_DELEGATES}"
TRICK = "†state.secret †{state.secret} ††"


def test_a_call_is_a_run_and_what_the_client_gives_is_data(backend: Backend) -> None:
    async def ask(url: str) -> None:
        async with over_http(url, ANN_DELEGATES) as ann, over_http(url, BEN_DELEGATES) as ben:
            tools = {tool.name: tool for tool in (await ann.list_tools()).tools}
            assert tools["look-up"].description == "Looks something up."
            assert "look-up" not in {tool.name for tool in (await ben.list_tools()).tools}
            found = await call(ann, "look-up", what=TRICK)
            assert found["answer"] == {"found": TRICK}
            assert (await refused(ben, "look-up", what="tea"))[0] == "NotAdmitted"
            assert (await refused(ben, "status", run=found["run"]))[0] == "RunNotFound"
            assert (await refused(ann, "look-up", what="tea", _outputPath="†state.x"))[0] == "BadQuery"
            kind, text = await refused(ann, "look-up", what="tea", fails=True)
            assert (kind, "nothing is there" in text) == ("RunFailed", True)

    with served(backend, ACTS_MCP_TOKENS=TOKENS, ACTS_MCP_DELEGATES="look-up") as said:
        asyncio.run(ask(said["url"]))


def test_a_run_outlives_its_client_the_server_and_the_worker(tmp_path: Path, name: str) -> None:
    async def leave(url: str, pid: int) -> str:
        told: asyncio.Queue[str] = asyncio.Queue()

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            told.put_nowait(message or "")

        async with over_http(url, ANN_DELEGATES) as ann:
            arguments = {"what": "tea", "gate": name}
            waiting = asyncio.create_task(ann.call_tool("look-up", arguments, progress_callback=hear))
            first = await told.get()
            while "running" not in await told.get():
                pass
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(Exception, match=r".*"):
                await waiting
            return first.removeprefix("run ").partition(":")[0]

    async def find(url: str, run: str) -> None:
        async with over_http(url, ANN_DELEGATES) as ann:
            assert (await call(ann, "result", run=run, wait_seconds=50))["output"] == {"found": "tea"}
            [listed] = (await call(ann, "runs", search="look-up"))["runs"]
            assert listed["run"] == run

    with EmbeddedServer() as server:
        apart = Backend(settings_apart(server, "mcp"), Meeting(meeting_url(server)), tmp_path)
        tools = {"ACTS_MCP_TOKENS": TOKENS, "ACTS_MCP_DELEGATES": "look-up"}
        with served(apart, **tools) as said, apart.worker() as victim:
            run = asyncio.run(leave(said["url"], said["pid"]))
            os.kill(victim.pid, signal.SIGKILL)
        with served(apart, **tools) as said, apart.worker():
            apart.meeting.open_gate(name)
            asyncio.run(find(said["url"], run))


def test_a_definition_says_what_it_takes_and_what_cannot_be_a_tool_is_named(tmp_path: Path, backend: Backend) -> None:
    taken = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    given = {
        "context": [{"type": "input", "schema": taken}],
        "schema": {"type": "string"},
        "description": "Translates.",
    }
    (tmp_path / "translate.json").write_text(json.dumps(given))
    (tmp_path / "submit.json").write_text(json.dumps(given))
    settings = backend.settings.model_copy(update={"delegates": (str(tmp_path),), "mcp_delegates": ("translate",)})
    [tool] = code_tools(settings, ()).values()
    assert (tool.description, tool.input, tool.answer) == ("Translates.", taken, {"type": "string"})
    with pytest.raises(Exception, match="text"):
        tool.read({"text": 7})
    for name in ("submit", "nowhere"):
        with pytest.raises(ActivitiesError, match=name):
            code_tools(settings.model_copy(update={"mcp_delegates": (name,)}), ("submit",))
    with pytest.raises(ActivitiesError, match="is written 'translate'"):
        code_tools(settings.model_copy(update={"mcp_delegates": ("translate.json",)}), ())


def test_an_activity_that_cannot_be_a_tool_is_named(backend: Backend, tmp_path: Path) -> None:
    def tools(**update: Any) -> Any:
        return code_tools(backend.settings.model_copy(update=update), ("submit",))

    with pytest.raises(ActivitiesError, match="no activity 'nowhere'"):
        tools(mcp_activities=("nowhere",))
    (tmp_path / "echo.json").write_text('{"context": [], "schema": {"type": "string"}}')
    with pytest.raises(ActivitiesError, match="'echo' is the name of an activity"):
        tools(mcp_activities=("echo",), mcp_delegates=("echo",), delegates=(str(tmp_path),))
    workflow = {
        "description": "Doubles.",
        "context": [{"type": "input", "schema": {"type": "object", "properties": {"n": {"type": "integer"}}}}],
        "solution": {"calls": [], "output": "†input.n"},
    }
    (tmp_path / "double.json").write_text(json.dumps(workflow))
    found = tools(mcp_activities=("echo",), mcp_delegates=("double",), delegates=(str(tmp_path),))
    assert found["double"].input["properties"] == {"n": {"type": "integer"}}
    assert not found["echo"].has_effects


def test_a_parameter_that_comes_as_its_json_text_is_read_where_that_fits_and_a_text_does_not() -> None:
    properties = {"options": {"type": "object"}, "text": {"type": "string"}, "any": {}}
    tool = CodeTool("t", "", {"type": "object", "properties": properties}, {})
    assert tool.read({"options": '{"a": 1}', "any": "[1]"}).arguments == {"options": {"a": 1}, "any": "[1]"}
    assert tool.read({"text": '{"a": 1}', "any": "[1]"}).arguments == {"text": '{"a": 1}', "any": "[1]"}
    for wrong in ("[1]", "{", "tea"):
        with pytest.raises(BadQuery):
            tool.read({"options": wrong})


# An MCP client over standard input and output reads, submits and decides.

ECHO = {"calls": [{"_tool": "echo", "value": "tea", "_outputPath": "†state.drink"}], "output": "†state.drink"}
READING = {"activities", "check", "runs", "status", "result", "instances", "explain", "held"}
DOING = {"submit", "approve", "reject", "answer", "settle", "revoke", "cancel"}


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


def test_calls_that_wait_for_the_same_source_are_one_question_and_take_one_answer(backend: Backend) -> None:
    context = [{"type": "data", "data": {"one": "DE01", "two": "DE02"}, "_trust": ["mail"]}]
    calls = [{"_tool": "echo", "value": f"†data.{one}", "_outputPath": f"†state.{one}"} for one in ("one", "two")]
    tools = {"echo": {"_trust": {"effects": True}}}
    run = backend.client.submit_document({"context": context, "solution": {"calls": calls}, "tools": tools})

    async def ask() -> None:
        async with on_stdio(backend, "--write") as client:
            while not (questions := (await call(client, "held", run=run.id))["questions"]):
                await call(client, "status", run=run.id)
            [question] = questions
            assert [row["differs"] for row in question["rows"]] == [{"/parameters/value": v} for v in ("DE01", "DE02")]
            about = {"run": run.id, "calls": question["calls"]}
            assert (await refused(client, "approve", **about, shown="1-1"))[0] == "BadQuery"
            assert (await refused(client, "reject", run=run.id, reason="no"))[0] == "BadQuery"
            assert set((await call(client, "approve", **about))["decisions"]) == {"0", "1"}
            assert (await refused(client, "reject", **about, reason="no"))[0] == "AlreadyDecided"

    asyncio.run(ask())
    assert backend.wait(run.id).status == "completed"


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
