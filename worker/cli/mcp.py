"""`acts mcp`: the Model Context Protocol."""

from __future__ import annotations

import click

from .mcp_tools import admit, tools


@click.group(short_help="Tools of MCP servers.")
def mcp() -> None:
    """Tools of MCP servers that workers carry out (ACTS_MCP): what there is, and what may be used."""


mcp.add_command(tools)
mcp.add_command(admit)
