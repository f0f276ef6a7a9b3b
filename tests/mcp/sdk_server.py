"""An MCP server written with the SDK, over standard input and output, or over HTTP at a socket that it is given.

    python sdk_server.py FOLDER [SOCKET KEY]

It keeps in FOLDER what happens: `calls` (one line for each call), `keys` (each key that it was sent),
`sessions` (the session that each request is of). A file
`description` there is what it says of its tool `echo`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)

FOLDER = Path(sys.argv[1])
TEXT = {"type": "object", "properties": {"text": {"type": "string"}}}
READS = ("echo", "hang", "cancelled", "flood")
WRITES = ("die_once", "hang_once", "refuse")
is_cancelled = asyncio.Event()

Context = ServerRequestContext[Any, Any]


def note(name: str, text: str) -> None:
    with (FOLDER / name).open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")


async def list_tools(context: Context, asked: PaginatedRequestParams | None) -> ListToolsResult:
    changed = FOLDER / "description"
    said = changed.read_text() if changed.exists() else "Gives the text back."
    return ListToolsResult(
        tools=[
            Tool(
                name=name,
                description=said if name == "echo" else name,
                input_schema=TEXT,
                annotations=ToolAnnotations(read_only_hint=name in READS),
            )
            for name in (*READS, *WRITES)
        ]
    )


async def call_tool(context: Context, asked: CallToolRequestParams) -> CallToolResult:
    is_first = asked.name not in (FOLDER / "calls").read_text().split()
    note("calls", asked.name)
    match asked.name:
        case "die_once" if is_first:
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang_once" if is_first:
            await asyncio.Event().wait()
        case "hang":
            try:
                await asyncio.Event().wait()
            finally:
                is_cancelled.set()
        case "cancelled":
            await is_cancelled.wait()
        case "refuse":
            raise MCPError(code=-32_000, message="SSE stream ended without a response")
        case "flood":
            return CallToolResult(content=[TextContent(type="text", text="x" * 1_000_000)])
    return CallToolResult(content=[TextContent(type="text", text=str((asked.arguments or {}).get("text", "done")))])


server = Server("sdk", on_list_tools=list_tools, on_call_tool=call_tool)


async def over_stdio() -> None:
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


async def over_http(listening: socket.socket, key: str) -> None:
    manager = StreamableHTTPSessionManager(server)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        sent = dict(scope["headers"]).get(b"authorization", b"").decode()
        note("keys", sent)
        note("sessions", dict(scope["headers"]).get(b"mcp-session-id", b"").decode())
        if sent == f"Bearer {key}":
            await manager.handle_request(scope, receive, send)
        else:
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body"})

    async with manager.run():
        await uvicorn.Server(uvicorn.Config(app, lifespan="off", log_level="warning")).serve([listening])


if __name__ == "__main__":
    (FOLDER / "calls").touch()
    if len(sys.argv) == 2:
        asyncio.run(over_stdio())
    else:
        asyncio.run(over_http(socket.socket(fileno=int(sys.argv[2])), sys.argv[3]))
