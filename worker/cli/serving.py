"""Commands that serve: metrics, pages, traces, and this backend as an MCP server."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from .. import limits
from ..errors import WorkerError
from . import options
from .output import confirmed, escaped, flush, print_json, print_text, tell

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from ...broker_config import Settings
    from ...broker_config.tokens import AccessToken, Right
    from ..registry.mcp_tools import Declaration, ToolAdmission
    from ..telemetry.sending import Exported, TraceExport

_DAY_SECONDS: Final = 86_400


def ask_log(settings: Settings) -> None:
    """Raise `InfrastructureError` if the log, or the replica that is read instead, does not answer."""
    from ..store.connections import connect_once, redis_errors

    for each in (settings, settings.for_reading):
        with (
            redis_errors(each),
            connect_once(each, each.require_redis(), timeout_seconds=limits.SERVING_ASKED_SECONDS) as redis,
        ):
            redis.ping()


def made_token(
    settings: Settings,
    tokens: Sequence[AccessToken],
    rights: Iterable[Right],
    host: str,
    *,
    write: bool,
    variable: str,
    example: str,
) -> AccessToken | None:
    """Return a new token with these rights for the user who starts the server; None if settings name tokens.

    Raises `Failed` for a host that others reach without named tokens, for --write beside named tokens, and for limits
    of a day if runs are kept for less.
    """
    from ...broker_config.tokens import AccessToken
    from ..store.held_calls import Actor
    from ..ui.server import is_loopback

    if any(token.limits.are_of_a_day for token in tokens) and settings.retention_seconds < _DAY_SECONDS:
        text = (
            f"{variable} has limits of a day, and runs are kept for less: set ACTS_RETENTION_SECONDS to {_DAY_SECONDS}"
        )
        raise options.Failed(f"{text} or more", options.REJECTED)
    if tokens:
        if write:
            raise options.Failed(f"{variable} says who may do what: leave out --write", options.REJECTED)
        return None
    if not is_loopback(host):
        raise options.Failed(
            f"others reach {host}: say in {variable} who may enter, as {example} (python -c "
            "'import secrets; print(secrets.token_urlsafe())' makes a TOKEN), or leave out --host",
            options.REJECTED,
        )
    return AccessToken(Actor.of(settings).name, frozenset(rights), secrets.token_urlsafe(32), is_named=False)


def log_to_stderr(settings: Settings) -> None:
    """Write the audit trail and warnings to stderr, in the format of a worker's log."""
    from ..logs import JsonFormatter, MaskedFormatter, Masking

    as_json = settings.log_format == "json"
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s")
    handler = logging.StreamHandler(sys.stderr)
    inner = JsonFormatter() if as_json else plain
    handler.setFormatter(MaskedFormatter(inner, Masking(settings), as_json=as_json))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    logging.getLogger("acts").setLevel(logging.INFO)


# `acts metrics`: the log and the queues in numbers, for Prometheus (docs/observe.md, "Figures").


@options.command("Show figures of the log and the queues to Prometheus.")
@click.option("--port", type=click.IntRange(0, 65_535), required=True, help="Where to listen; 0 for any free port.")
@click.option("--host", metavar="ADDRESS", help="On which address. Default: 127.0.0.1 [ACTS_METRICS_HOST].")
def metrics(*, port: int, host: str | None, common: options.Common) -> int:
    """Show on http://ADDRESS:PORT/metrics what is in the log and the queues, until SIGTERM or Ctrl-C.

    It needs the extra `metrics`. One such process for a backend is enough. It changes nothing. The queues are those of
    settings and activities. Workers serve their own metrics, each process on its own port: ACTS_METRICS_PORT.

    With --json it prints one line once it listens: {"url": …}.

    Exit codes: 2 bad settings or activities, 3 it cannot listen there, or has no prometheus-client, 130 interrupted.
    """
    from ..telemetry.worker_step import load_process_metrics

    shown_by = load_process_metrics()
    settings = common.settings()
    options.load_registry(settings)
    registry = shown_by.new_registry()
    registry.register(_collection(settings))
    address = host or settings.metrics_host
    taken, stop = shown_by.serve(registry, address, port)
    shown = f"[{address}]" if ":" in address else address
    url = f"http://{shown}:{taken}/metrics"
    if common.json:
        print_json({"url": url})
    else:
        print_text(f"figures are shown on {url}")
    flush()  # a reader of the pipe waits for it
    try:
        threading.Event().wait()
    finally:
        stop()
    return 0


def _collection(settings: Settings) -> Collector:
    from ...broker_config import queue_names, redis_url_of
    from ...broker_config.configuration import queue_prefix
    from ..registry.activities import registry
    from ..runner.application import make_client_application
    from ..store.connections import connect_once
    from ..telemetry.metrics import Collection, LogReader, QueueReader

    log = connect_once(settings, settings.require_redis(), timeout_seconds=limits.SERVING_ANSWER_SECONDS)
    url = redis_url_of(settings.require_broker())
    broker = connect_once(settings, url, timeout_seconds=limits.SERVING_ANSWER_SECONDS) if url is not None else None
    names = dict.fromkeys((*queue_names(settings), *registry.queues()))
    app = make_client_application(settings)
    queues = QueueReader(app, broker, queue_prefix(settings), names, log=log, key_prefix=settings.key_prefix)
    return Collection(LogReader(log, settings), queues)


# `acts ui`: the pages of all runs, live.

_HOST: Final = "127.0.0.1"
_PORT: Final = 5556


@options.command("Serve the pages of all runs.")
@click.option("--host", default=_HOST, show_default=True, metavar="HOST", help="Where to listen.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=_PORT, show_default=True, metavar="N", help="0: a free one."
)
@click.option("--write", is_flag=True, help="The link that is printed may also decide on held calls, and control runs.")
def ui(host: str, port: int, write: bool, *, common: options.Common) -> None:
    """Serve the pages of all runs until Ctrl-C, and print the link that opens them.

    The link has a new token at each start, which may read. ACTS_UI_TOKENS says instead who may enter with which token
    and with which rights; a host that others reach needs it. With --json it prints one line: {"url": …, "host": …,
    "port": …, "pid": …}.

    Exit codes: 0 stopped, 2 bad settings, 3 no server, the port is in use, or the extra `ui` is missing.
    """
    from ...broker_config.settings import LOCAL_RIGHTS

    try:
        from ..ui import api as serving
        from ..ui import server as listening
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("fastapi", "starlette", "uvicorn"):
            raise
        raise options.Failed("the pages need more packages: pip install '.[ui]' in the clone of acts-celery") from error
    settings = common.settings()
    tokens, rights = settings.read_ui_tokens(), LOCAL_RIGHTS if write else LOCAL_RIGHTS[:1]
    made = made_token(
        settings, tokens, rights, host, write=write, variable="ACTS_UI_TOKENS", example="ann:decide+control:TOKEN"
    )
    if any("submit" in token.rights for token in tokens):
        options.load_registry(settings)
    ask_log(settings)
    log_to_stderr(settings)
    with listening.listen(host, port) as socket:
        address = settings.ui_url or listening.address_of(socket, host)
        url = serving.link(address, made.text) if made is not None else address

        def announce() -> None:
            place = {"host": host, "port": socket.getsockname()[1], "pid": os.getpid()}
            common.print({"url": url, **place}, [url])
            flush()
            _tell_rights(made)

        asyncio.run(serving.serve(socket, host, settings, tokens or ((made,) if made is not None else ()), announce))


def _tell_rights(made: AccessToken | None) -> None:
    if made is None:
        tell("the pages of all runs, for those whom ACTS_UI_TOKENS names; Ctrl-C ends them")
    elif "control" in made.rights:
        tell("the link reads runs, decides on held calls and controls runs; keep it to yourself; Ctrl-C ends it")
    else:
        tell("the link reads runs (--write: it also decides and controls); Ctrl-C ends it")


# `acts trace`, `acts traces`: runs as traces, for every receiver of OpenTelemetry's protocol.


@options.command("Export a run as a trace.")
@options.RUN
def trace(run: str, *, common: options.Common) -> None:
    """Export RUN and its child runs as a trace, by OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_ENDPOINT …).

    For a run under way, it exports the calls that have ended, and not yet the run itself.

    Exit codes: 0 exported, 2 bad settings, 3 no server, or the spans are not taken, 4 no such run.
    """
    with common.found(run) as found:
        id_ = found.id
    settings = common.settings()
    with _exporting(settings) as export:
        runs = deque([id_])
        while runs:
            exported = export.export(runs.popleft())
            runs += exported.children
            _print(exported, common)


@options.command("Export runs as traces, each once it has ended.")
@click.option("--follow", is_flag=True, help="Go on, and export each run as it ends.")
def traces(follow: bool, *, common: options.Common) -> None:
    """Export every run that has ended and was not exported yet, by OpenTelemetry's own variables.

    With --follow it runs until you stop it. Started again, it continues where it was. Run only one.

    Exit codes: 0 exported, or stopped, 2 bad settings, 3 no server, or the spans are not taken.
    """
    with _exporting(common.settings()) as export:
        if follow:
            _follow(export, common)
        for exported in export.export_ended():
            _print(exported, common)


def _follow(export: TraceExport, common: options.Common) -> None:
    """Export runs until SIGTERM or Ctrl-C raises here."""
    from redis.exceptions import RedisError

    from ..errors import InfrastructureError
    from ..telemetry.sending import delay_seconds

    fails = False
    while True:
        try:
            for exported in export.export_ended():
                _print(exported, common)
        except (InfrastructureError, RedisError) as error:
            if not fails:
                tell(f"{error}: it is tried again")
            fails = True
        else:
            if fails:
                tell("spans are exported again")
            fails = False
        Event().wait(delay_seconds())


@contextmanager
def _exporting(settings: Settings) -> Iterator[TraceExport]:
    """Give what exports the runs of a backend. Raises `Failed` without the extra."""
    try:
        from ..telemetry.sending import NothingToExport, SpanSender
    except ImportError as error:
        text = f"the package {error.name} is missing: pip install '.[otel]' in the clone of acts-celery"
        raise options.Failed(text, options.REJECTED) from None
    from ..store.connections import connect
    from ..telemetry.sending import TraceExport

    try:
        sender = SpanSender()
    except NothingToExport as error:
        raise options.Failed(str(error), options.REJECTED) from None
    try:
        with connect(settings) as redis:
            yield TraceExport(redis, settings.key_prefix, sender)
    finally:
        sender.close()


def _print(exported: Exported, common: options.Common) -> None:
    if exported.fault is not None:
        tell(f"run {exported.run} cannot be exported, its log is broken: {exported.fault}")
        return
    document: dict[str, Any] = {
        "run": exported.run,
        "trace": exported.trace,
        "spans": exported.spans,
        "ended": exported.has_ended,
    }
    state = "" if exported.has_ended else ", and it is under way"
    line = f"{exported.run}  trace {exported.trace}  {exported.spans} spans{state}"
    common.print(document, [line])


# `acts mcp`: this backend as an MCP server, and the tools of others.

# `acts mcp tools` and `acts mcp admit`: what MCP servers offer, and what of it may be used.
#
# The texts of a server are foreign: all but plain text in them is escaped.


@options.command("The tools of MCP servers, and which are admitted.")
@click.argument("names", nargs=-1, metavar="[SERVER[.TOOL]]...")
def tools(*, names: tuple[str, ...], common: options.Common) -> int:
    """List the tools of the servers of ACTS_MCP, or of those named, as they are now: admitted, new, changed since they
    were admitted, gone, or unfit to be a tool here. --json has each whole.

    Exit codes: 0 listed, 2 no such server or tool, 3 a server that does not answer.
    """
    with common.documented(has_status=False):
        found, failed = _tools_of_servers(common.settings(), names)
        lines = (line for each in found for line in _lines(each))
        common.print([each.to_dict() for each in found], lines)
    return options.UNAVAILABLE if failed else options.COMPLETED


@options.command("Admit tools of MCP servers as they are now.")
@click.argument("names", nargs=-1, metavar="SERVER[.TOOL]...")
@click.option(
    "--reads", multiple=True, metavar="SERVER.TOOL", help="Admit this tool as one that only reads; repeatable."
)
def admit(*, names: tuple[str, ...], reads: tuple[str, ...], common: options.Common) -> None:
    """Write into the file of ACTS_MCP_ADMITTED that these tools may be used as they are now; of a SERVER all, and those
    that it has not any more are taken out. What is admitted is shown, and on a terminal asked for: models will read it.

    Workers and clients read the file when they begin. A worker refuses a tool that is not as it was admitted.

    A tool has effects unless its server says that it only reads. Where you know better, --reads says so ("effects":
    false in the file): models are shown what it returns, and its calls are not held. A tool that changes has effects
    again until you say it once more.

    Exit codes: 0 admitted, 2 no such server or tool, or one that is unfit, 3 a server that does not answer.
    """
    from ..registry.mcp_tools import UNSET
    from ..registry.mcp_tools import admit as write

    with common.documented(has_status=False):
        settings = common.settings()
        if settings.mcp_admitted is None:
            raise options.Failed(UNSET, 2)
        if not names and not reads:
            raise options.Failed("name the tools: acts mcp admit SERVER, SERVER.TOOL or --reads SERVER.TOOL", 2)
        if of_all := [name for name in reads if "." not in name]:
            raise options.Failed(f"--reads is said of one tool: {of_all[0]}.TOOL", 2)
        names = (*names, *reads)
        found, failed = _tools_of_servers(settings, names)
        if failed:
            raise options.Failed("nothing is admitted: not all of the servers answer")
        unfit = [each for each in found if each.state == "unfit"]
        if named := [each for each in unfit if each.name in names]:
            raise options.Failed(f"{named[0].name} cannot be a tool here: {named[0].problems[0]}", 2)
        for each in unfit:
            tell(f"{each.name} is left out: {each.problems[0]}")
        found = [each.as_only_reading() if each.name in reads else each for each in found]
        taken = [each for each in found if each.state in ("new", "changed", "gone") or each.newly_only_reads]
        document = [
            {"name": each.name, "state": each.state, "effects": each.has_effects, "digest": each.tool.digest}
            for each in taken
        ]
        lines = [line for each in taken for line in _lines(each, whole=True)]
        common.print(document, lines or ["nothing is new"])
        if taken:
            confirmed(f"Admit {len(taken)} tools?" if len(taken) > 1 else "Admit it?")
        for server in dict.fromkeys(each.server for each in taken):
            own = [each for each in taken if each.server == server]
            gone = [each.tool.name for each in own if each.live is None]
            write(settings, server, [each.live for each in own if each.live is not None], gone)


def _tools_of_servers(settings: Settings, names: Sequence[str]) -> tuple[list[ToolAdmission], bool]:
    """Ask servers for the named tools; returns them, and whether a server does not answer. Raises `Failed`."""
    from ..registry.mcp_tools import read_admitted, tool_admissions

    if not settings.mcp:
        raise options.Failed('there is no MCP server: set ACTS_MCP, such as {"files": {"command": …}}', 2)
    servers = list(dict.fromkeys(name.partition(".")[0] for name in names)) or list(settings.mcp)
    if unknown := [name for name in servers if name not in settings.mcp]:
        raise options.Failed(f"no MCP server {unknown[0]!r}: ACTS_MCP has {', '.join(settings.mcp)}", 2)
    admitted, found, failed = read_admitted(settings), list["ToolAdmission"](), False
    for server, answer in listed(settings, servers).items():
        if isinstance(answer, WorkerError):
            tell(str(answer))
            failed = True
        else:
            found += tool_admissions(server, answer, admitted.get(server, {}))
            _require(names, found, server)
    wanted = [each for each in found if not names or each.server in names or each.name in names]
    return wanted, failed


def _require(names: Sequence[str], found: Sequence[ToolAdmission], server: str) -> None:
    known = {each.name for each in found}
    for name in names:
        if name.startswith(f"{server}.") and name not in known:
            raise options.Failed(
                f"MCP server {server} has no tool {name.removeprefix(f'{server}.')!r}: see `acts mcp tools`", 2
            )


def _lines(admission: ToolAdmission, *, whole: bool = False) -> Iterator[str]:
    tool = admission.tool
    effects = "has effects" if admission.has_effects else "only reads"
    yield f"{escaped(admission.name)}  {admission.state}  {effects}  {tool.digest[:12]}"
    if said := admission.kept or admission.dropped:
        again = "" if admission.kept else "  was said of another declaration: say it again where it holds"
        yield f"    _trust: {escaped(json.dumps(said, ensure_ascii=False))}{again}"
    yield from (f"    {escaped(problem)}" for problem in (*admission.problems, *tool.notes))
    texts = tool.description.splitlines()
    for line in texts if whole else texts[:1]:
        yield f"    {escaped(line)}"
    if whole:
        for key in ("inputSchema", "outputSchema"):
            if key in tool.fields:
                yield f"    {key}: {escaped(json.dumps(tool.fields[key], ensure_ascii=False))}"


_MCP_PORT: Final = 5557
_OF_HTTP: Final = ("host", "port")


@dataclass(frozen=True, slots=True)
class _McpOptions:
    """The options of the MCP server."""

    write: bool = options.option(
        "--write", is_flag=True, help="Clients may also submit runs, decide on held calls, and cancel."
    )
    http: bool = options.option(
        "--http", is_flag=True, help="Serve over HTTP, with a token, instead of standard input and output."
    )
    host: str = options.option(
        "--host", default=_HOST, show_default=True, metavar="HOST", help="Where to listen, with --http."
    )
    port: int = options.option(
        "--port",
        type=click.IntRange(0, 65_535),
        default=_MCP_PORT,
        show_default=True,
        metavar="N",
        help="0: a free one.",
    )


@click.group(invoke_without_command=True, short_help="Serve this backend over MCP; tools of MCP servers.")
@options.option_group("serving", _McpOptions)
@options.common_options
@click.pass_context
def mcp(ctx: click.Context, *, serving: _McpOptions, common: options.Common) -> None:
    """Serve this backend to an MCP client over standard input and output, until it closes them: tools that check, read
    and explain runs; with --write they also submit, approve and cancel.

    With --http it serves many clients, at /mcp of the address that is printed, until Ctrl-C. ACTS_MCP_TOKENS says who
    may enter with which token and with which rights; a host that others reach needs it. Without it a new token is
    printed at each start. With --json that is one line: {"url": …, "token": …, "host": …, "port": …, "pid": …}.

    With a command: the tools of MCP servers that workers run (ACTS_MCP).

    Exit codes: 0 the client has gone, or stopped, 2 bad settings, 3 no server, the port is in use, or the extra `mcp`
    is missing.
    """
    if ctx.invoked_subcommand is not None:
        _refuse(ctx, ctx.params, f"is of the server: give {ctx.invoked_subcommand} its own options behind its name")
        return
    if not serving.http:
        _refuse(ctx, _OF_HTTP, "goes with --http")
    try:
        from ..mcp import server  # noqa: F401  # asks whether its libraries are there
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "starlette", "uvicorn"):
            raise
        raise options.Failed(
            "the server needs more packages: pip install '.[mcp]' in the clone of acts-celery"
        ) from error
    settings = common.settings()
    settings.require_redis()
    (_serve_http if serving.http else _serve_stdio)(settings, serving, common)


mcp.add_command(tools)
mcp.add_command(admit)


def _serve_stdio(settings: Settings, serving: _McpOptions, common: options.Common) -> None:
    from ..mcp.server import serve_stdio
    from ..mcp.tools import Principal, local_rights
    from ..store.held_calls import Actor

    _prepare(settings)
    asyncio.run(serve_stdio(settings, Principal(Actor.of(settings).name, local_rights(write=serving.write))))


def _serve_http(settings: Settings, serving: _McpOptions, common: options.Common) -> None:
    from ..mcp.server import PATH, serve_http
    from ..mcp.tools import local_rights
    from ..ui import server as listening

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
        url = (settings.mcp_url or listening.address_of(socket, host)) + PATH

        def announce() -> None:
            place = {"host": host, "port": socket.getsockname()[1], "pid": os.getpid()}
            token = {"token": made.text} if made is not None else {}
            lines = [url, *(f"Authorization: Bearer {text}" for text in token.values())]
            common.print({"url": url, **token, **place}, lines)
            flush()
            tell("an MCP server; Ctrl-C ends it")

        who = tokens or ((made,) if made is not None else ())
        asyncio.run(serve_http(socket, host, settings, who, announce))


def _prepare(settings: Settings) -> None:
    """Load all code, and check that the log answers."""
    options.load_registry(settings)
    ask_log(settings)
    log_to_stderr(settings)


def _refuse(ctx: click.Context, names: tuple[str, ...] | dict[str, object], why: str) -> None:
    """Raise `UsageError` for any of these options on the command line."""
    given = [name for name in names if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if given:
        raise click.UsageError(f"--{given[0].replace('_', '-')} {why}")


# Asking MCP servers for their tools, for a command.


def listed(settings: Settings, names: Iterable[str]) -> dict[str, Mapping[str, Declaration] | WorkerError]:
    """Ask servers for their tools, at the same time; returns the tools of each, or its error."""
    from ..registry.mcp_sessions import Connections

    servers = list(names)

    async def ask(connections: Connections, name: str) -> Mapping[str, Declaration] | WorkerError:
        try:
            return await connections.to(name).tools()
        except WorkerError as error:
            return error

    async def ask_all() -> list[Mapping[str, Declaration] | WorkerError]:
        connections = Connections(settings)
        try:
            return await asyncio.gather(*(ask(connections, name) for name in servers))
        finally:
            await connections.close()

    return dict(zip(servers, asyncio.run(ask_all()), strict=True))
