"""The SDK's client of `acts mcp`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import Client, StdioServerParameters, stdio_client

from tests.worker.backend import Backend

SECONDS = 60


class ToolFailed(Exception):
    """What a tool has answered as an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        self.error = error
        super().__init__(f"{error['type']}: {error['message']}")


@asynccontextmanager
async def on_stdio(backend: Backend, *arguments: str) -> AsyncIterator[Client]:
    """A client that has started the command."""
    command = ["-m", "acts_celery", "mcp", *arguments]
    started = StdioServerParameters(
        command=sys.executable, args=command, env=backend.environment(), cwd=str(backend.folder)
    )
    async with asyncio.timeout(SECONDS), Client(stdio_client(started)) as client:
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
