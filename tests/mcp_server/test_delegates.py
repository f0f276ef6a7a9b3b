"""A delegate that is a tool: each call of it is a run, which outlives its client and the worker that had it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from acts_celery import ActivitiesError
from acts_celery.broker_config import EmbeddedServer
from acts_celery.worker.errors import BadQuery
from acts_celery.worker.mcp.reading import DelegateTool, delegate_tools
from tests.worker.backend import Backend, Meeting, meeting_url, settings_apart

from .asking import call, over_http, refused, served

ANN, BEN = "ann-0123456789abc", "ben-0123456789abc"
TOKENS = f"ann:submit:{ANN},ben:read:{BEN}"
TRICK = "†state.secret †{state.secret} ††"


def test_a_call_is_a_run_and_what_the_client_gives_is_data(backend: Backend) -> None:
    async def ask(url: str) -> None:
        async with over_http(url, ANN) as ann, over_http(url, BEN) as ben:
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

        async with over_http(url, ANN) as ann:
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
        async with over_http(url, ANN) as ann:
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
    [tool] = delegate_tools(settings, ()).values()
    assert (tool.description, tool.input, tool.answer) == ("Translates.", taken, {"type": "string"})
    with pytest.raises(Exception, match="text"):
        tool.read({"text": 7})
    for name in ("submit", "nowhere"):
        with pytest.raises(ActivitiesError, match=name):
            delegate_tools(settings.model_copy(update={"mcp_delegates": (name,)}), ("submit",))
    with pytest.raises(ActivitiesError, match="is written 'translate'"):
        delegate_tools(settings.model_copy(update={"mcp_delegates": ("translate.json",)}), ())


def test_a_parameter_that_comes_as_its_json_text_is_read_where_that_fits_and_a_text_does_not() -> None:
    properties = {"options": {"type": "object"}, "text": {"type": "string"}, "any": {}}
    tool = DelegateTool("t", "", {"type": "object", "properties": properties}, {})
    assert tool.read({"options": '{"a": 1}', "any": "[1]"}).arguments == {"options": {"a": 1}, "any": "[1]"}
    assert tool.read({"text": '{"a": 1}', "any": "[1]"}).arguments == {"text": '{"a": 1}', "any": "[1]"}
    for wrong in ("[1]", "{", "tea"):
        with pytest.raises(BadQuery):
            tool.read({"options": wrong})
