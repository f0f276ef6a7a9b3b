"""`acts mcp`: this backend as an MCP server, and the tools of others."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click
from click.core import ParameterSource

from .failures import COMPLETED, Failed
from .mcp_tools import admit, tools
from .options import Common, common_options, load_registry
from .output import flush, print_either, tell
from .serving import ask_log, log_to_stderr, made_token

if TYPE_CHECKING:
    from acts_celery.broker_config import Settings

_HOST: Final = "127.0.0.1"
_PORT: Final = 5557
_OF_HTTP: Final = ("host", "port")


@dataclass(frozen=True, slots=True)
class _Serving:
    """How the server is to serve."""

    http: bool
    host: str
    port: int
    write: bool


@click.group(invoke_without_command=True, short_help="This backend as an MCP server; tools of others.")
@click.option("--write", is_flag=True, help="Clients may also submit runs, decide on held calls, and cancel.")
@click.option("--http", is_flag=True, help="Serve over HTTP, with a token, instead of standard input and output.")
@click.option("--host", default=_HOST, show_default=True, metavar="HOST", help="Where to listen, with --http.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=_PORT, show_default=True, metavar="N", help="0: a free one."
)
@common_options
@click.pass_context
def mcp(ctx: click.Context, write: bool, http: bool, host: str, port: int, *, common: Common) -> int:
    """Serve this backend to an MCP client over standard input and output, until it closes them: tools that check, read
    and explain runs; with --write they also submit, approve and cancel.

    With --http it serves many clients, at /mcp of the address that is printed, until Ctrl-C. ACTS_MCP_TOKENS says who
    may enter with which token and with which rights; a host that others reach takes that. Without it a new token is
    printed at each start. With --json that is one line: {"url": …, "token": …, "host": …, "port": …, "pid": …}.

    With a command: the tools of MCP servers that workers carry out (ACTS_MCP).

    Exit codes: 0 the client has gone, or stopped, 2 bad settings, 3 no server, the port is in use, or the extra `mcp`
    is missing.
    """
    if ctx.invoked_subcommand is not None:
        _refuse(ctx, ctx.params, f"is of the server: give {ctx.invoked_subcommand} its own options behind its name")
        return COMPLETED
    if not http:
        _refuse(ctx, _OF_HTTP, "goes with --http")
    try:
        from acts_celery.worker.mcp_server import server  # noqa: F401  # is it installed?
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "starlette", "uvicorn"):
            raise
        raise Failed("the server takes other packages: pip install 'acts-celery[mcp]'") from error
    settings = common.settings()
    settings.require_redis()
    (_serve_http if http else _serve_stdio)(settings, _Serving(http, host, port, write), common)
    return COMPLETED


mcp.add_command(tools)
mcp.add_command(admit)


def _serve_stdio(settings: Settings, serving: _Serving, common: Common) -> None:
    from acts_celery.worker.mcp_server import stdio
    from acts_celery.worker.mcp_server.principals import Principal, local_rights
    from acts_celery.worker.storage.audit import Actor

    _prepare(settings)
    asyncio.run(stdio.serve(settings, Principal(Actor.of(settings).name, local_rights(write=serving.write))))


def _serve_http(settings: Settings, serving: _Serving, common: Common) -> None:
    from acts_celery.worker.mcp_server import over_http
    from acts_celery.worker.mcp_server.principals import local_rights
    from acts_celery.worker.web import listening

    tokens, host = settings.read_mcp_tokens(), serving.host
    rights = local_rights(write=serving.write)
    made = made_token(
        settings,
        tokens,
        rights,
        host,
        write=serving.write,
        variable="ACTS_MCP_TOKENS",
        example="ann:submit+decide:TOKEN",
    )
    _prepare(settings)
    with listening.listen(host, serving.port) as socket:
        url = (settings.mcp_url or listening.address_of(socket, host)) + over_http.PATH

        def announce() -> None:
            place = {"host": host, "port": socket.getsockname()[1], "pid": os.getpid()}
            token = {"token": made.text} if made is not None else {}
            lines = [url, *(f"Authorization: Bearer {text}" for text in token.values())]
            print_either({"url": url, **token, **place}, lines, as_json=common.json)
            flush()
            tell("an MCP server; Ctrl-C ends it")

        who = tokens or ((made,) if made is not None else ())
        asyncio.run(over_http.serve(socket, host, settings, who, announce))


def _prepare(settings: Settings) -> None:
    """Load all code, and see that the log answers."""
    load_registry(settings)
    ask_log(settings)
    log_to_stderr(settings)


def _refuse(ctx: click.Context, names: tuple[str, ...] | dict[str, object], why: str) -> None:
    """Raise `UsageError` where one of these options was given."""
    given = [name for name in names if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if given:
        raise click.UsageError(f"--{given[0].replace('_', '-')} {why}")
