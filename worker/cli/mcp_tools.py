"""`acts mcp tools` and `acts mcp admit`: what MCP servers offer, and what of it may be used.

What a server says of itself is text of somebody else: it is shown with everything escaped that is not plain text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from acts_celery.worker.errors import WorkerError

from .failures import COMPLETED, UNAVAILABLE, Failed, documented
from .options import Common, common_options
from .output import confirmed, escaped, print_either, tell

if TYPE_CHECKING:
    from acts_celery.broker_config import Settings
    from acts_celery.worker.mcp.standing import Standing


@click.command(short_help="The tools of MCP servers, and which are admitted.")
@click.argument("names", nargs=-1, metavar="[SERVER[.TOOL]]...")
@common_options
def tools(*, names: tuple[str, ...], common: Common) -> int:
    """List the tools of the servers of ACTS_MCP, or of those named, as they are now: admitted, new, changed since they
    were admitted, gone, or unfit to be a tool here. --json has each whole.

    Exit codes: 0 listed, 2 no such server or tool, 3 a server that does not answer.
    """
    with documented(as_json=common.json, has_status=False):
        found, failed = _asked(common.settings(), names)
        lines = (line for each in found for line in _lines(each))
        print_either([each.to_dict() for each in found], lines, as_json=common.json)
    return UNAVAILABLE if failed else COMPLETED


@click.command(short_help="Admit tools of MCP servers as they are now.")
@click.argument("names", nargs=-1, metavar="SERVER[.TOOL]...")
@click.option(
    "--reads", multiple=True, metavar="SERVER.TOOL", help="Admit this tool as one that only reads; repeatable."
)
@common_options
def admit(*, names: tuple[str, ...], reads: tuple[str, ...], common: Common) -> int:
    """Write into the file of ACTS_MCP_ADMITTED that these tools may be used as they are now; of a SERVER all, and those
    that it has not any more are taken out. What is admitted is shown, and on a terminal asked for: models will read it.

    Workers and clients read the file when they begin. A worker refuses a tool that is not as it was admitted.

    A tool has effects unless its server says that it only reads. Where you know better, --reads says so ("effects":
    false in the file): models are shown what it returns, and its calls are not held. A tool that changes has effects
    again until you say it once more.

    Exit codes: 0 admitted, 2 no such server or tool, or one that is unfit, 3 a server that does not answer.
    """
    from acts_celery.worker.mcp.admitted import UNSET
    from acts_celery.worker.mcp.admitted import admit as write

    with documented(as_json=common.json, has_status=False):
        settings = common.settings()
        if settings.mcp_admitted is None:
            raise Failed(UNSET, 2)
        if not names and not reads:
            raise Failed("name the tools: acts mcp admit SERVER, SERVER.TOOL or --reads SERVER.TOOL", 2)
        if of_all := [name for name in reads if "." not in name]:
            raise Failed(f"--reads is said of one tool: {of_all[0]}.TOOL", 2)
        names = (*names, *reads)
        found, failed = _asked(settings, names)
        if failed:
            raise Failed("nothing is admitted: not all of the servers answer")
        unfit = [each for each in found if each.state == "unfit"]
        if named := [each for each in unfit if each.name in names]:
            raise Failed(f"{named[0].name} cannot be a tool here: {named[0].problems[0]}", 2)
        for each in unfit:
            tell(f"{each.name} is left out: {each.problems[0]}")
        found = [each.as_only_reading() if each.name in reads else each for each in found]
        taken = [each for each in found if each.state in ("new", "changed", "gone") or each.newly_only_reads]
        document = [
            {"name": each.name, "state": each.state, "effects": each.has_effects, "digest": each.tool.digest}
            for each in taken
        ]
        lines = [line for each in taken for line in _lines(each, whole=True)]
        print_either(document, lines or ["nothing is new"], as_json=common.json)
        if taken:
            confirmed(f"Admit {len(taken)} tools?" if len(taken) > 1 else "Admit it?")
        for server in dict.fromkeys(each.server for each in taken):
            own = [each for each in taken if each.server == server]
            gone = [each.tool.name for each in own if each.live is None]
            write(settings, server, [each.live for each in own if each.live is not None], gone)
    return COMPLETED


def _asked(settings: Settings, names: Sequence[str]) -> tuple[list[Standing], bool]:
    """The tools that are named, of the servers that answer, and whether one does not. Raises `Failed`."""
    from acts_celery.worker.mcp.admitted import read_admitted
    from acts_celery.worker.mcp.standing import standings

    from .mcp_listing import listed

    if not settings.mcp:
        raise Failed('there is no MCP server: set ACTS_MCP, such as {"files": {"command": …}}', 2)
    servers = list(dict.fromkeys(name.partition(".")[0] for name in names)) or list(settings.mcp)
    if unknown := [name for name in servers if name not in settings.mcp]:
        raise Failed(f"no MCP server {unknown[0]!r}: ACTS_MCP has {', '.join(settings.mcp)}", 2)
    admitted, found, failed = read_admitted(settings), list["Standing"](), False
    for server, answer in listed(settings, servers).items():
        if isinstance(answer, WorkerError):
            tell(str(answer))
            failed = True
        else:
            found += standings(server, answer, admitted.get(server, {}))
            _require(names, found, server)
    wanted = [each for each in found if not names or each.server in names or each.name in names]
    return wanted, failed


def _require(names: Sequence[str], found: Sequence[Standing], server: str) -> None:
    known = {each.name for each in found}
    for name in names:
        if name.startswith(f"{server}.") and name not in known:
            raise Failed(
                f"MCP server {server} has no tool {name.removeprefix(f'{server}.')!r}: see `acts mcp tools`", 2
            )


def _lines(standing: Standing, *, whole: bool = False) -> Iterator[str]:
    tool = standing.tool
    effects = "has effects" if standing.has_effects else "only reads"
    yield f"{escaped(standing.name)}  {standing.state}  {effects}  {tool.digest[:12]}"
    yield from (f"    {escaped(problem)}" for problem in (*standing.problems, *tool.notes))
    texts = tool.description.splitlines()
    for line in texts if whole else texts[:1]:
        yield f"    {escaped(line)}"
    if whole:
        for key in ("inputSchema", "outputSchema"):
            if key in tool.said:
                yield f"    {key}: {escaped(json.dumps(tool.said[key], ensure_ascii=False))}"
