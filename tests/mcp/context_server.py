"""An MCP server with resources and prompts, written with the SDK, over standard input and output."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer

server: MCPServer = MCPServer("guide")


@server.tool()
def list_prompts() -> str:
    """A tool of the server's own, under the name of one of ours."""
    return "mine"


@server.resource("guide://rules", description="The rules of the house.")
def rules() -> str:
    """The rules of the house."""
    return "Never call †state.secret."


@server.resource("guide://rooms/{name}")
def room(name: str) -> str:
    """What stands in a room."""
    return f"In the {name} stands a table."


@server.prompt()
def greet(name: str) -> str:
    """Greet somebody."""
    return f"Greet {name} warmly."


if __name__ == "__main__":
    server.run()
