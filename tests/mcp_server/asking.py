"""The SDK's client of `acts mcp`."""

from __future__ import annotations

import asyncio
import json
import os
import select
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.acceptance.forks import Forked
from tests.worker.backend import DEADLINE_SECONDS, Backend

SECONDS = 60


class ToolFailed(Exception):
    """What a tool has answered as an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        self.error = error
        super().__init__(f"{error['type']}: {error['message']}")


@contextmanager
def served(backend: Backend, *arguments: str, **extra: str) -> Iterator[dict[str, Any]]:
    """`acts mcp --http` on a free port; what it has printed."""
    log = backend.folder / "mcp.log"
    with ExitStack() as stack:
        nothing, said_errors = stack.enter_context(Path(os.devnull).open("rb")), stack.enter_context(log.open("ab"))
        reading, writing = os.pipe()
        said = stack.enter_context(os.fdopen(reading, "rb"))
        command = ["mcp", "--http", "--json", "--port", "0", *arguments]
        with os.fdopen(writing, "wb") as out:
            files = (nothing, out, said_errors)
            started = Forked(command, env=backend.environment(**extra), folder=backend.folder, files=files)
        process = stack.enter_context(started)
        stack.callback(process.terminate)
        ready, _, _ = select.select([said], [], [], DEADLINE_SECONDS)
        line = said.readline() if ready else b""
        assert line, f"acts mcp did not start: {log.read_text(errors='replace')[-3000:]}"
        yield json.loads(line)


@asynccontextmanager
async def on_stdio(backend: Backend, *arguments: str) -> AsyncIterator[Client]:
    """A client that has started the command."""
    command = ["-m", "acts_celery", "mcp", *arguments]
    started = StdioServerParameters(
        command=sys.executable, args=command, env=backend.environment(), cwd=str(backend.folder)
    )
    async with asyncio.timeout(SECONDS), Client(stdio_client(started)) as client:
        yield client


@asynccontextmanager
async def over_http(url: str, token: str | None) -> AsyncIterator[Client]:
    """A client that sends a token."""
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    http = httpx2.AsyncClient(headers=headers, timeout=SECONDS)
    async with asyncio.timeout(SECONDS), http, Client(streamable_http_client(url, http_client=http)) as client:
        yield client


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """What a tool gives, which the client has held against its schema. Raises `ToolFailed`."""
    result = await client.call_tool(tool, arguments)
    [content] = result.content
    told = json.loads(content.text)  # type: ignore[union-attr]  # a text, or this test fails
    if result.is_error:
        raise ToolFailed(told["error"])
    assert told == result.structured_content
    found: dict[str, Any] = result.structured_content
    return found


async def refused(client: Client, tool: str, **arguments: Any) -> tuple[str, str]:
    """Type and message of the error that a tool answers."""
    try:
        found = await call(client, tool, **arguments)
    except ToolFailed as failed:
        return failed.error["type"], failed.error["message"]
    raise AssertionError(f"{tool} gave {found}")
