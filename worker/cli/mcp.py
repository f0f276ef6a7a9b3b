"""`acts mcp`: this backend as an MCP server, and the tools of others."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from .failures import COMPLETED, Failed
from .mcp_tools import admit, tools
from .options import Common, common_options, load_registry
from .serving import ask_log, log_to_stderr

if TYPE_CHECKING:
    from acts_celery.broker_config import Settings


@click.group(invoke_without_command=True, short_help="This backend as an MCP server; tools of others.")
@click.option("--write", is_flag=True, help="Clients may also submit runs, decide on held calls, and cancel.")
@common_options
@click.pass_context
def mcp(ctx: click.Context, write: bool, *, common: Common) -> int:
    """Serve this backend to an MCP client over standard input and output, until it closes them: tools that check, read
    and explain runs; with --write they also submit, approve and cancel.

    With a command: the tools of MCP servers that workers carry out (ACTS_MCP).

    Exit codes: 0 the client has gone, 2 bad settings, 3 no server, or the extra `mcp` is missing.
    """
    if ctx.invoked_subcommand is not None:
        _refuse_options(ctx)
        return COMPLETED
    try:
        from acts_celery.worker.mcp_server import stdio
        from acts_celery.worker.mcp_server.principals import LOCAL, WRITING, Principal
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "starlette"):
            raise
        raise Failed("the server takes other packages: pip install 'acts-celery[mcp]'") from error
    settings = _prepared(common)
    rights = frozenset((*LOCAL, *(WRITING if write else ())))
    asyncio.run(stdio.serve(settings, Principal(_name(settings), rights)))
    return COMPLETED


mcp.add_command(tools)
mcp.add_command(admit)


def _prepared(common: Common) -> Settings:
    """The settings, with all code loaded, and a log that answers."""
    settings = common.settings()
    settings.require_redis()
    load_registry(settings)
    ask_log(settings)
    log_to_stderr(settings)
    return settings


def _name(settings: Settings) -> str:
    from acts_celery.worker.storage.audit import Actor

    return Actor.of(settings).name


def _refuse_options(ctx: click.Context) -> None:
    """Raise `UsageError` for options of the server before a command, which has its own."""
    given = [name for name in ctx.params if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if given:
        option, command = given[0].replace("_", "-"), ctx.invoked_subcommand
        raise click.UsageError(f"--{option} is of the server: give {command} its own options behind its name")
